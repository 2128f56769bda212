//! Sections of the runbook as pages: the status page and the console link from an alarm to what to do about it.
//!
//! Their text is that of `docs/src/operate/runbook.md`. This module reads the Markdown that its sections about alarms use:
//! paragraphs, list items and code, and within them bold words, code and links. Tests render every section.

use hyper::{StatusCode, header};
use serde::Serialize;

use super::status::POLICY;
use crate::api::response::{ApiResponse, answer, with};
use crate::pages::Pages;
use carom_telemetry::alarms::Alarm;

/// The page of the book.
const RUNBOOK: &str = include_str!("../../../docs/src/operate/runbook.md");

/// Returns the section about an alarm as a page; `None` if no alarm has this name.
pub(super) fn page(pages: &Pages, name: &str) -> Option<ApiResponse> {
    let page = RunbookSection::about(name)?;
    let answer = answer(StatusCode::OK, "text/html; charset=utf-8", pages.runbook(&page));
    Some(with(with(answer, header::CONTENT_SECURITY_POLICY, POLICY), header::REFERRER_POLICY, "no-referrer"))
}

/// The contents of the page.
#[derive(Debug, Serialize)]
struct RunbookSection {
    alarm: &'static str,
    meaning: &'static str,
    blocks: Vec<TextBlock>,
}

impl RunbookSection {
    fn about(name: &str) -> Option<RunbookSection> {
        let alarm = Alarm::ALL.into_iter().find(|alarm| alarm.name() == name)?;
        let (_, after) = RUNBOOK.split_once(&format!("\n### {name}\n"))?;
        let section = after.split("\n#").next().unwrap_or_default();
        Some(RunbookSection { alarm: alarm.name(), meaning: alarm.meaning(), blocks: blocks(section) })
    }
}

/// A paragraph, a list item or a line of code.
#[derive(PartialEq, Eq, Debug, Serialize)]
struct TextBlock {
    /// `text`, `item` or `code`.
    kind: &'static str,
    spans: Vec<TextSpan>,
}

/// A part of a block that looks the same.
#[derive(PartialEq, Eq, Debug, Serialize)]
struct TextSpan {
    /// `text`, `bold` or `code`.
    kind: &'static str,
    text: String,
    /// The section of another alarm to which the text leads.
    alarm: Option<String>,
    /// The page of the book to which the text refers. No node serves it.
    page: Option<String>,
}

impl TextSpan {
    fn new(kind: &'static str, text: &str) -> TextSpan {
        TextSpan { kind, text: text.to_owned(), alarm: None, page: None }
    }

    /// Returns the span of a link. Its target is relative to the page of the runbook.
    fn link(label: &str, target: &str) -> TextSpan {
        let mut span = TextSpan::new("text", &label.replace('`', ""));
        if let Some(name) = target.strip_prefix('#') {
            span.alarm = Some(name.to_owned()).filter(|name| Alarm::ALL.iter().any(|alarm| alarm.name() == name));
        } else {
            let page = target.strip_prefix("../").map_or_else(|| format!("operate/{target}"), str::to_owned);
            span.page = Some(page);
        }
        span
    }
}

/// Splits a section into its blocks.
fn blocks(section: &str) -> Vec<TextBlock> {
    let mut texts: Vec<(&'static str, String)> = Vec::new();
    let (mut is_open, mut is_code) = (false, false);
    for line in section.lines().map(str::trim) {
        if line.starts_with("```") {
            (is_open, is_code) = (false, !is_code);
        } else if is_code {
            texts.push(("code", line.to_owned()));
        } else if line.is_empty() {
            is_open = false;
        } else if let Some(item) = item(line) {
            texts.push(("item", item));
            is_open = true;
        } else if is_open && let Some((_, text)) = texts.last_mut() {
            text.push(' ');
            text.push_str(line);
        } else {
            texts.push(("text", line.to_owned()));
            is_open = true;
        }
    }
    let block = |(kind, text): (&'static str, String)| {
        let spans = if kind == "code" { vec![TextSpan::new("text", &text)] } else { titled(spans(&text)) };
        TextBlock { kind, spans }
    };
    texts.into_iter().map(block).collect()
}

/// Returns the text of a list item with a bullet, or with its number.
fn item(line: &str) -> Option<String> {
    if let Some(text) = line.strip_prefix("* ") {
        return Some(format!("• {text}"));
    }
    let (number, _) = line.split_once(". ")?;
    number.parse::<u32>().is_ok().then(|| line.to_owned())
}

/// Makes a title of bold words at the beginning: the title loses its colon, and the text below it begins with a capital letter.
fn titled(mut spans: Vec<TextSpan>) -> Vec<TextSpan> {
    if let [title, text, ..] = &mut spans[..]
        && title.kind == "bold"
    {
        title.text = title.text.trim_end_matches(':').to_owned();
        let begin = text.text.trim_start();
        let is_name = begin.starts_with("carom ");
        if text.kind == "text"
            && !is_name
            && let Some(first) = begin.chars().next()
        {
            text.text = first.to_uppercase().chain(begin.chars().skip(1)).collect();
        }
    }
    spans
}

/// Splits a text at its bold words, code and links.
fn spans(text: &str) -> Vec<TextSpan> {
    let mut spans = Vec::new();
    let (mut plain, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['`', '[', '*']) {
        let (before, marked) = rest.split_at(at);
        plain.push_str(before);
        if let Some((span, after)) = marked_span(marked) {
            spans.push(TextSpan::new("text", &plain));
            spans.push(span);
            plain.clear();
            rest = after;
        } else {
            // A sign that marks nothing.
            plain.push_str(&marked[..1]);
            rest = &marked[1..];
        }
    }
    plain.push_str(rest);
    spans.push(TextSpan::new("text", &plain));
    spans.retain(|span| !span.text.is_empty());
    spans
}

/// Returns the span that a text begins with, and the text after it.
fn marked_span(text: &str) -> Option<(TextSpan, &str)> {
    for (mark, kind) in [("**", "bold"), ("*", "text"), ("`", "code")] {
        if let Some(marked) = text.strip_prefix(mark) {
            let (words, after) = marked.split_once(mark)?;
            return Some((TextSpan::new(kind, words), after));
        }
    }
    let (label, after) = text.strip_prefix('[')?.split_once("](")?;
    let (target, after) = after.split_once(')')?;
    (!label.contains('[')).then(|| (TextSpan::link(label, target), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_alarms_can_be_read() {
        for alarm in Alarm::ALL {
            let section = RunbookSection::about(alarm.name()).expect("every alarm has a section");
            let labels = ["Severity", "Users see", "Check", "Fix", "Over when", "Prevent"];
            for label in labels {
                let is_label = |block: &TextBlock| block.spans[0] == TextSpan::new("bold", label);
                assert!(section.blocks.iter().any(is_label), "{} has no {label}", alarm.name());
            }
            let html = Pages::plain().runbook(&section);
            for sign in ["**", "```", "](", "undefined"] {
                assert!(!html.contains(sign), "{sign} stands in {html}");
            }
        }
        assert!(RunbookSection::about("none").is_none());
    }

    #[test]
    fn markdown_becomes_spans() {
        let text = spans(
            "**Fix:** run `a *b*`, see [redis_away](#redis_away), [`join`](../deploy/fleet.md#redis) and *it* [::1].",
        );
        let kinds: Vec<_> = text.iter().map(|span| (span.kind, &*span.text)).collect();
        let expected = [
            ("bold", "Fix:"),
            ("text", " run "),
            ("code", "a *b*"),
            ("text", ", see "),
            ("text", "redis_away"),
            ("text", ", "),
            ("text", "join"),
            ("text", " and "),
            ("text", "it"),
            ("text", " [::1]."),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(text[4].alarm.as_deref(), Some("redis_away"));
        assert_eq!(text[6].page.as_deref(), Some("deploy/fleet.md#redis"));
        let shown: Vec<_> = titled(text).into_iter().take(2).map(|span| span.text).collect();
        assert_eq!(shown, ["Fix", "Run "]);
    }

    #[test]
    fn lines_become_blocks() {
        let found = blocks("\nfirst\nline\n\n* one\n  more\n* two\n\n  ```sh\n  ls\n  ```\n\n1. last");
        let texts: Vec<_> = found.iter().map(|block| (block.kind, &*block.spans[0].text)).collect();
        let expected =
            [("text", "first line"), ("item", "• one more"), ("item", "• two"), ("code", "ls"), ("item", "1. last")];
        assert_eq!(texts, expected);
    }
}
