//! Sections of the runbook as pages: the status page and the console link from an alarm to what to do about it.
//!
//! Their text is that of `docs/src/operate/runbook.md`. Tests render every section.

use hyper::{StatusCode, header};
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Parser, Tag, TagEnd, html};
use serde::Serialize;

use super::status::{POLICY, sentence};
use crate::api::response::{ApiResponse, answer, with};
use crate::pages::Pages;
use carom_telemetry::alarms::{Alarm, Severity};

/// The page of the book.
const RUNBOOK: &str = include_str!("../../../docs/src/operate/runbook.md");

/// Script that adds a button to each command.
pub(super) const SCRIPT: &str = include_str!("runbook.js");

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
    /// The condition that raises the alarm, as a sentence.
    title: &'static str,
    severity: String,
    /// The kind of the badge with the severity, for its colour.
    tone: &'static str,
    /// The section as HTML.
    text: String,
    /// True if the text names pages of the book. No node serves them.
    names_pages: bool,
}

impl RunbookSection {
    fn about(name: &str) -> Option<RunbookSection> {
        let alarm = Alarm::ALL.into_iter().find(|alarm| alarm.name() == name)?;
        let (_, after) = RUNBOOK.split_once(&format!("\n### {name}\n"))?;
        let section = after.split("\n#").next().unwrap_or_default().trim_start();
        // The badge says it.
        let severity = alarm.severity();
        let section = section.strip_prefix(&format!("**Severity:** {}\n", severity.name())).unwrap_or(section);
        let events = SectionEvents::of(section);
        let mut text = String::new();
        html::push_html(&mut text, events.shown.into_iter());
        let tone = match severity {
            Severity::Critical => "bad",
            Severity::Warning => "warn",
            Severity::Notice => "",
        };
        let (title, severity, names_pages) = (alarm.meaning(), sentence(severity.name()), events.names_pages);
        Some(RunbookSection { alarm: alarm.name(), title, severity, tone, text, names_pages })
    }
}

/// A section as a page shows it: its parts have headings, each command is a block, links lead to pages of this node, and
/// HTML is text.
#[derive(Debug, Default)]
struct SectionEvents<'t> {
    shown: Vec<Event<'t>>,
    /// The page of the book to which the open link leads.
    page: Option<String>,
    names_pages: bool,
    /// True within a code block.
    is_code: bool,
    /// True before the first words below a heading.
    is_begin: bool,
}

impl<'t> SectionEvents<'t> {
    fn of(section: &'t str) -> SectionEvents<'t> {
        let read: Vec<Event<'t>> = Parser::new(section).collect();
        let mut events = SectionEvents::default();
        let mut rest = &read[..];
        while let Some((event, after)) = rest.split_first() {
            rest = after;
            if let [Event::Start(Tag::Strong), Event::Text(label), Event::End(TagEnd::Strong), after @ ..] = after
                && *event == Event::Start(Tag::Paragraph)
                && let Some(label) = label.strip_suffix(':')
            {
                events.begin_part(label);
                rest = after;
            } else {
                events.add(event);
            }
        }
        events
    }

    /// Makes a heading of a label. The text below it begins with a capital letter.
    fn begin_part(&mut self, label: &str) {
        let level = HeadingLevel::H2;
        self.shown.extend([
            Event::Start(Tag::Heading { level, id: None, classes: Vec::new(), attrs: Vec::new() }),
            Event::Text(label.to_owned().into()),
            Event::End(TagEnd::Heading(level)),
            Event::Start(Tag::Paragraph),
        ]);
        self.is_begin = true;
    }

    fn add(&mut self, event: &Event<'t>) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => self.is_code = true,
            Event::End(TagEnd::CodeBlock) => self.is_code = false,
            Event::Text(text) if self.is_code => self.add_commands(text),
            Event::Text(text) if self.is_begin => {
                let text = text.trim_start();
                self.is_begin = text.is_empty();
                self.shown.push(Event::Text(sentence(text).into()));
            }
            Event::Start(Tag::Link { dest_url, .. }) => match page_of(dest_url) {
                Ok(url) => self.shown.push(Event::Start(link_to(url))),
                Err(page) => self.page = Some(page),
            },
            Event::End(TagEnd::Link) => match self.page.take() {
                Some(page) => self.name_page(page),
                None => self.shown.push(event.clone()),
            },
            Event::Html(text) | Event::InlineHtml(text) => self.shown.push(Event::Text(text.clone())),
            event => {
                self.is_begin &= !matches!(event, Event::Code(_));
                self.shown.push(event.clone());
            }
        }
    }

    /// Adds each line of a code block as a block of its own.
    fn add_commands(&mut self, lines: &str) {
        for line in lines.lines() {
            self.shown.extend([
                Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)),
                Event::Text(line.to_owned().into()),
                Event::End(TagEnd::CodeBlock),
            ]);
        }
    }

    /// Names a page of the book behind the words that link to it.
    fn name_page(&mut self, page: String) {
        self.names_pages = true;
        self.shown.extend([Event::Text(" (".into()), Event::Code(page.into()), Event::Text(")".into())]);
    }
}

/// Returns the URL to which a link of the runbook leads.
///
/// # Errors
/// The page of the book and its heading, if no node serves what the link leads to.
fn page_of(target: &str) -> Result<String, String> {
    if target.contains("://") {
        return Ok(target.to_owned());
    }
    match target.strip_prefix('#') {
        Some(name) if Alarm::ALL.iter().any(|alarm| alarm.name() == name) => Ok(format!("/runbook/{name}")),
        Some(_) => Err(format!("operate/runbook.md{target}")),
        None => Err(target.strip_prefix("../").map_or_else(|| format!("operate/{target}"), str::to_owned)),
    }
}

fn link_to<'t>(url: String) -> Tag<'t> {
    let link_type = pulldown_cmark::LinkType::Inline;
    Tag::Link { link_type, dest_url: url.into(), title: "".into(), id: "".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html_of(section: &str) -> String {
        let mut text = String::new();
        html::push_html(&mut text, SectionEvents::of(section).shown.into_iter());
        text
    }

    #[test]
    fn sections_of_alarms_can_be_read() {
        for alarm in Alarm::ALL {
            let section = RunbookSection::about(alarm.name()).expect("every alarm has a section");
            for label in ["Users see", "Check", "Fix", "Over when", "Prevent"] {
                let heading = format!("<h2>{label}</h2>");
                assert!(section.text.contains(&heading), "{} has no {label}", alarm.name());
            }
            assert!(!section.text.contains("Severity"), "{} says its severity twice", alarm.name());
            let page = Pages::plain().runbook(&section);
            assert!(page.contains(&section.text), "the section is escaped in {page}");
            for sign in ["**", "```", "](", "undefined"] {
                assert!(!page.contains(sign), "{sign} stands in {page}");
            }
            let prose = section.text.replace("<pre><code>", "");
            let is_inline = |program: &&str| prose.contains(&format!("<code>{program} "));
            assert_eq!(
                ["df", "redis-cli", "sudo"].into_iter().find(is_inline),
                None,
                "{}: a command within a text",
                alarm.name()
            );
            let named = page.contains("/usr/share/doc/carom/docs</code> on Debian");
            assert_eq!(named, section.text.contains(".md"), "{}", alarm.name());
        }
        assert!(RunbookSection::about("none").is_none());
    }

    #[test]
    fn page_names_alarm_and_severity() {
        let page = |alarm: Alarm| Pages::plain().runbook(&RunbookSection::about(alarm.name()).unwrap());
        let full = page(Alarm::DiskFull);
        for part in [
            "<h1>The disk of the data directory is nearly full; writes are refused.</h1>",
            r#"<span class="badge bad">Critical</span> <code>disk_full</code>"#,
            r#"<script src="/runbook.js" defer></script>"#,
        ] {
            assert!(full.contains(part), "{part} is missing in {full}");
        }
        assert!(page(Alarm::RedisAway).contains(r#"<span class="badge warn">Warning</span>"#));
        assert!(page(Alarm::CodesUsedUp).contains(r#"<span class="badge">Notice</span>"#));
    }

    #[test]
    fn parts_have_headings_and_begin_with_a_capital() {
        let html = html_of(
            "**Fix:** free space, or *wait*.\n\n**Over when:** carom writes.\n\n**Check:** `df`; a.\n\n**Not** a label.",
        );
        let expected = "<h2>Fix</h2>\n<p>Free space, or <em>wait</em>.</p>\n<h2>Over when</h2>\n<p>carom writes.</p>\n\
                        <h2>Check</h2>\n<p><code>df</code>; a.</p>\n<p><strong>Not</strong> a label.</p>\n";
        assert_eq!(html, expected);
    }

    #[test]
    fn each_command_is_a_block() {
        let html = html_of("1. one\n\n   ```sh\n   ls -l\n   df -h | grep '<a>'\n   ```\n2. two");
        assert!(
            html.contains("<pre><code>ls -l</code></pre>\n<pre><code>df -h | grep '&lt;a&gt;'</code></pre>"),
            "{html}"
        );
    }

    #[test]
    fn links_lead_to_pages_of_the_node() {
        let html =
            html_of("[`join`](../deploy/fleet.md#a), [x](#redis_away), [y](#users-get-404), [z](tuning.md), [::1]");
        let expected = "<p><code>join</code> (<code>deploy/fleet.md#a</code>), <a href=\"/runbook/redis_away\">x</a>, \
                        y (<code>operate/runbook.md#users-get-404</code>), z (<code>operate/tuning.md</code>), [::1]</p>\n";
        assert_eq!(html, expected);
    }

    #[test]
    fn markup_is_text() {
        let html = html_of("<div onclick=x>\n\n<script>alert(1)</script> `<b>` [<i>](../\"><i>) a <b>c</b>");
        let tags = html.replace("&lt;", "");
        assert!(!["<script", "<div", "<i", "<b"].iter().any(|tag| tags.contains(tag)), "{html}");
    }
}
