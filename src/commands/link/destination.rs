//! Destinations that people type, as a browser would take them.

use std::borrow::Cow;
use std::net::Ipv4Addr;

/// Returns a destination that begins with a host, such as `example.com/a`, with `https://` before it. Any other text
/// stays as it is, so that the node judges it. A host is an IPv4 address, or a name with a dot and letters behind it.
pub(super) fn with_scheme(text: &str) -> Cow<'_, str> {
    let authority = text.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = authority.split_once(':').unwrap_or((authority, "0"));
    let is_label =
        |label: &str| !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
    let is_name = host.split('.').all(is_label)
        && host.rsplit_once('.').is_some_and(|(_, last)| last.chars().any(char::is_alphabetic));
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if is_port && (is_name || host.parse::<Ipv4Addr>().is_ok()) {
        Cow::Owned(format!("https://{text}"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_a_scheme_get_https() {
        for text in [
            "example.com",
            "example.com/a?b=https://c#d",
            "example.com:8443/a",
            "www.müller.example?a",
            "xn--mller-kva.xn--p1ai",
            "192.0.2.1:8080/a",
            "example.com#top",
        ] {
            assert_eq!(with_scheme(text), format!("https://{text}"));
        }
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in [
            "https://example.com",
            "HTTP://example.com/a.b",
            "ftp://example.com",
            "mailto:ana@example.com",
            "ana@example.com",
            "tel:555.1",
            "javascript:alert(1.5)",
            "localhost/a",
            "1.5",
            "example.com:/a",
            "example.com:port",
            "/a.b",
            "./a.b",
            ".example",
            "a b.example",
            "",
        ] {
            assert_eq!(with_scheme(text), text);
        }
    }
}
