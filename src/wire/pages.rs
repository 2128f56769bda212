//! The pages for people who follow a link that leads nowhere: small, friendly, without script, and never with anything in
//! them that the request brought.

/// The style of every page. Its hash is in [`CONTENT_SECURITY_POLICY`].
macro_rules! style {
    () => {
        "body{margin:0;min-height:100vh;display:grid;place-items:center;font:1rem/1.5 system-ui,sans-serif;color:#1c2430;background:#f6f7f9}main{max-width:30rem;padding:2rem;text-align:center;overflow-wrap:anywhere}a{color:inherit}h1{margin:0 0 .5rem;font-size:1.5rem}p{margin:0;color:#566072}b{display:block;font-size:4rem;font-weight:700;letter-spacing:-.03em;color:#2f6fed}@media(prefers-color-scheme:dark){body{color:#e8ebf0;background:#12161c}p{color:#9aa5b5}b{color:#7aa5ff}}"
    };
}

/// What a browser may do on these pages: use that one style, and nothing else.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'sha256-bQCb1hwpI8sB5djLws9rGK5AbU79l5mNzcYXb5tQPDE='; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// One answer for people: as HTML for browsers, as a line of text for everyone else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Number and phrase of the status line.
    pub status: &'static str,
    /// The whole page.
    pub html: &'static str,
    /// One line.
    pub text: &'static str,
}

impl Page {
    /// Number of the status line.
    pub fn number(&self) -> u16 {
        self.status[..3].parse().unwrap_or_default()
    }

    /// After how many seconds a client should come again, where that may help.
    pub fn retry_after(&self) -> Option<u32> {
        (self.status.starts_with("503") || self.status.starts_with("429")).then_some(1)
    }
}

/// A page with content that is HTML already: whoever wrote it has escaped what is in it.
pub fn with_content(title: &str, content: &str) -> String {
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><meta name=\"robots\" content=\"noindex\"><title>{title}</title><style>{}</style></head><body><main>{content}</main></body></html>\n",
        style!()
    )
}

macro_rules! page {
    ($status:literal, $number:literal, $title:literal, $text:literal) => {
        Page {
            status: $status,
            html: concat!(
                "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><meta name=\"robots\" content=\"noindex\"><title>",
                $title, "</title><style>", style!(), "</style></head><body><main><b>", $number, "</b><h1>", $title, "</h1><p>", $text, "</p></main></body></html>\n"
            ),
            text: concat!($title, ". ", $text, "\n"),
        }
    };
}

/// What stands at the root of a service that runs.
pub const HOME: Page = page!(
    "200 OK",
    "carom",
    "Short links are served here",
    "Follow one that you were given, or make one through the API."
);

/// There is no such link.
pub const NOT_FOUND: Page = page!(
    "404 Not Found",
    "404",
    "This link does not exist",
    "Check that the address is complete: capital and small letters matter."
);

/// There was such a link.
pub const GONE: Page = page!(
    "410 Gone",
    "410",
    "This link has ended",
    "It was valid for a limited time. Ask whoever gave it to you for a new one."
);

/// There is such a link, but its target is on the block list.
pub const BLOCKED: Page = page!(
    "410 Gone",
    "410",
    "This link was stopped",
    "Where it leads is blocked by the operators of this service. Do not look for another way there."
);

/// Whoever asks has asked for too many links that do not exist.
pub const TOO_MANY: Page = page!(
    "429 Too Many Requests",
    "429",
    "Too many wrong links",
    "From where you are, too many links were asked for that do not exist. Try again in a moment."
);

/// The host that was asked is no domain of the service.
pub const MISDIRECTED: Page = page!(
    "421 Misdirected Request",
    "421",
    "Nothing is served here",
    "This address leads to a service of short links, but its host name is none of theirs. Check how the link begins."
);

/// There is such a link, but where it leads cannot be read.
pub const DAMAGED: Page = page!(
    "500 Internal Server Error",
    "500",
    "This link cannot be followed",
    "Its record is damaged. The operators of this service have been told."
);

/// The answer is not to be had now.
pub const UNAVAILABLE: Page =
    page!("503 Service Unavailable", "503", "Not available right now", "Try again in a moment.");

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for group in bytes.chunks(3) {
            let bits = group.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
            for place in 0..4 {
                let digit = char::from(DIGITS[(bits >> (18 - 6 * place)) as usize & 63]);
                text.push(if place <= group.len() { digit } else { '=' });
            }
        }
        text
    }

    #[test]
    fn the_policy_allows_exactly_the_style_of_the_pages() {
        let hash = format!("'sha256-{}'", base64(&Sha256::digest(style!())));
        assert!(CONTENT_SECURITY_POLICY.contains(&hash), "{hash}");
        for page in [NOT_FOUND, GONE, BLOCKED, TOO_MANY, MISDIRECTED, DAMAGED, UNAVAILABLE] {
            assert!(page.html.contains(concat!("<style>", style!(), "</style>")));
            assert!(!page.html.contains("<script") && !page.html.contains("style="));
        }
    }
}
