//! Enough of Markdown to check pages: prose without code, links, and the anchors of headings.

/// Returns the text without fenced blocks and inline code.
pub(crate) fn prose(text: &str) -> String {
    let mut prose = String::new();
    for line in unfenced(text) {
        // Every other piece is between backticks.
        line.split('`').step_by(2).for_each(|piece| prose.push_str(piece));
        prose.push('\n');
    }
    prose
}

/// Returns the targets of all inline links and images.
pub(crate) fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    targets.filter(|target| !target.is_empty()).map(str::to_owned).collect()
}

/// Returns the anchors of all headings, as GitHub and mdBook form them.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for line in unfenced(text).filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim();
        let plain = anchor(title);
        let same = anchors.iter().filter(|known| **known == plain).count();
        anchors.push(if same == 0 { plain } else { format!("{plain}-{same}") });
    }
    anchors
}

fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' '));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn unfenced(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    })
}

#[test]
fn anchors_match_github() {
    let text = "# The `serve` command\n```\n# no heading\n```\n## A, b & c_d\n## Twice\n## Twice\n";
    assert_eq!(anchors(text), ["the-serve-command", "a-b--c_d", "twice", "twice-1"]);
}

#[test]
fn code_holds_no_links() {
    assert_eq!(links("[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```\n![g](h.png \"i\")"), ["b.md", "h.png"]);
}
