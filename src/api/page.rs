//! Pages for people, as hyper sends them. The same texts as on the fast way.

use hyper::header;
use hyper::{Request, StatusCode};

use super::{Answer, accepts_html, answer, with};
use crate::wire::pages::{CONTENT_SECURITY_POLICY, Page};

/// An answer that is a page.
pub(super) fn as_html(html: String) -> Answer {
    let answer = answer(StatusCode::OK, "text/html; charset=utf-8", html);
    with(answer, header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY)
}

/// A page in the form that the client prefers.
pub(super) fn page<B>(request: &Request<B>, page: &Page) -> Answer {
    let number = page.status.split(' ').next().and_then(|number| StatusCode::from_bytes(number.as_bytes()).ok());
    let status = number.expect("every page begins with its status");
    let answer = if accepts_html(request) {
        with(
            answer(status, "text/html; charset=utf-8", page.html),
            header::CONTENT_SECURITY_POLICY,
            CONTENT_SECURITY_POLICY,
        )
    } else {
        answer(status, "text/plain; charset=utf-8", page.text)
    };
    let answer = with(with(answer, header::VARY, "Accept"), header::REFERRER_POLICY, "no-referrer");
    match page.retry_after() {
        Some(seconds) => with(answer, header::RETRY_AFTER, &seconds.to_string()),
        None => answer,
    }
}

/// Text as it stands in HTML, also between quotes, and in XML.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(escaped("http://a/?\"><script>'&amp;"), "http://a/?&quot;&gt;&lt;script&gt;&#39;&amp;amp;");
    }
}
