//! The help of the view: keys and columns.

use ratatui::text::{Line, Span};

use super::super::picture::PictureStyle;

/// Width of the first column.
const FIRST: usize = 16;

/// Keys with their effects.
const KEYS: [(&str, &str); 7] = [
    ("q, Esc, Ctrl-C", "quit"),
    ("s, →", "sort the cores by the next column"),
    ("←", "sort the cores by the previous column"),
    ("r", "reverse the order"),
    ("↑, ↓", "scroll the cores"),
    ("p", "pause and resume"),
    ("h", "show and close this help; Esc closes it as well"),
];

/// Words of the picture with their meanings. Rates and latencies are those of the last second.
const WORDS: [(&str, &str); 12] = [
    ("requests/s", "redirects, unknown links, errors and refused requests; not the API"),
    ("p50, p99, p99.9", "latency in the node, which half, 99% and 99.9% of requests do not exceed"),
    ("errors", "requests answered with 503"),
    ("not found/s", "requests without a redirect to a link (404, 410, 421)"),
    ("refused/s", "requests answered with 400, 408, 414, 429 and the like"),
    ("link writes/s", "links created, changed and deleted"),
    ("API/s", "requests of the API, the console and pages"),
    ("lookups/s", "links that the core requested from the core that owns them"),
    ("codes", "short codes that the core can issue at once"),
    ("resent/s", "kernel bypass: frames sent again"),
    ("dropped/s", "kernel bypass: frames that the kernel or the stack dropped"),
    ("unacked", "kernel bypass: frames that wait for their acknowledgement"),
];

/// Returns the lines of the help. A line that is wider than the terminal is cut.
pub(super) fn lines(look: PictureStyle, width: usize) -> Vec<Line<'static>> {
    // On a narrow terminal, the explanation needs the room more.
    let first = FIRST.min(width / 3);
    let line = |(word, meaning): (&'static str, &'static str)| {
        let word: String = word.chars().take(first).collect();
        Line::from(vec![Span::styled(format!("{word:first$}  "), look.strong()), Span::raw(meaning)])
    };
    KEYS.into_iter().chain([("", "")]).chain(WORDS).map(line).collect()
}
