//! The destination of a link: an absolute `http` or `https` URL, as the `url` crate serialises it.
//!
//! The serialised form is stored and sent, so that nothing in it can end the `Location` header. A URL that leads back
//! to the service is recognised by the authorities that the service answers to. This module compares names and never
//! resolves them.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use url::{Host, Url};

use carom_limits::DESTINATION_LEN_MAX;

/// A host and port that the service answers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Authority {
    host: String,
    port: u16,
}

impl Authority {
    /// Returns the authority of a URL, such as the base URL; `None` if it has no host or no known port.
    pub fn of(url: &str) -> Option<Authority> {
        authority(&Url::parse(url).ok()?)
    }
}

/// A checked destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LongUrl {
    text: String,
    host: String,
}

/// The reason for which a text is not a valid destination. The client must correct it: a retry cannot succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LongUrlError {
    /// An empty text.
    Empty,
    /// A control character.
    Control,
    /// The text is not an absolute URL.
    Unreadable(url::ParseError),
    /// The scheme is neither `http` nor `https`.
    Scheme,
    /// No host.
    NoHost,
    /// A user name or password.
    UserInfo,
    /// The serialised URL is longer than [`DESTINATION_LEN_MAX`].
    TooLong,
    /// The URL leads to the service itself.
    Own,
}

impl fmt::Display for LongUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LongUrlError::Empty => f.write_str("is empty"),
            LongUrlError::Control => f.write_str("has a control character"),
            LongUrlError::Unreadable(url::ParseError::RelativeUrlWithoutBase) => {
                f.write_str("is not an absolute URL, which begins with https:// or http://")
            }
            LongUrlError::Unreadable(error) => write!(f, "is not an absolute URL: {error}"),
            LongUrlError::Scheme => f.write_str("is neither http nor https"),
            LongUrlError::NoHost => f.write_str("has no host"),
            LongUrlError::UserInfo => f.write_str("has a user name or password"),
            LongUrlError::TooLong => write!(f, "is longer than {DESTINATION_LEN_MAX} bytes"),
            LongUrlError::Own => f.write_str("points to this service itself, so the link would redirect in a loop"),
        }
    }
}

impl std::error::Error for LongUrlError {}

impl LongUrlError {
    /// True if the text is a relative URL, such as a host without a scheme.
    pub fn is_relative(self) -> bool {
        self == LongUrlError::Unreadable(url::ParseError::RelativeUrlWithoutBase)
    }
}

impl LongUrl {
    /// Checks a destination and serialises it. `own` lists the authorities that the service answers to.
    ///
    /// # Errors
    /// [`LongUrlError`] with the first problem.
    pub fn parse(text: &str, own: &[Authority]) -> Result<LongUrl, LongUrlError> {
        let text = text.trim_matches(' ');
        if text.is_empty() {
            return Err(LongUrlError::Empty);
        }
        // Serialising can shorten a URL, by dot segments or a name in Punycode. This limit bounds the work.
        if text.len() > 4 * DESTINATION_LEN_MAX {
            return Err(LongUrlError::TooLong);
        }
        // The library would silently remove tabs and line breaks, but such a URL was probably not copied whole.
        if text.chars().any(char::is_control) {
            return Err(LongUrlError::Control);
        }
        let url = Url::parse(text).map_err(|error| match error {
            url::ParseError::EmptyHost => LongUrlError::NoHost,
            error => LongUrlError::Unreadable(error),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(LongUrlError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(LongUrlError::UserInfo);
        }
        let here = authority(&url).ok_or(LongUrlError::NoHost)?;
        if own.contains(&here) {
            return Err(LongUrlError::Own);
        }
        let text = String::from(url);
        if text.len() > DESTINATION_LEN_MAX {
            return Err(LongUrlError::TooLong);
        }
        // The library leaves some bytes of hosts and queries unescaped, which might not be printable ASCII.
        if !crate::link::is_target(text.as_bytes()) {
            return Err(LongUrlError::Control);
        }
        Ok(LongUrl { text, host: here.host })
    }

    /// Returns the serialised URL: 1 to [`DESTINATION_LEN_MAX`] printable ASCII characters.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the host in the form of host lists: lower case, Punycode, without a trailing dot.
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl From<LongUrl> for String {
    fn from(url: LongUrl) -> String {
        url.text
    }
}

/// Returns host and port of a URL. A trailing dot is removed: resolvers treat both forms alike.
fn authority(url: &Url) -> Option<Authority> {
    let host = match url.host()? {
        Host::Domain(name) => name.trim_end_matches('.').to_ascii_lowercase(),
        address => address.to_string(),
    };
    if host.is_empty() {
        return None;
    }
    Some(Authority { host, port: url.port_or_known_default()? })
}

/// Returns further spellings of a search text in stored URLs, in lower case and without the text itself:
/// percent-encoded, and as a host in Punycode.
pub fn url_terms(text: &str) -> Vec<String> {
    let text = text.trim();
    let small = text.to_lowercase();
    let mut terms = vec![escaped(text), escaped(&small)];
    let (scheme, rest) = text.find("://").map_or(("", text), |at| text.split_at(at + "://".len()));
    let (host, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let in_ascii = Url::parse(&format!("http://{host}/")).ok().filter(|_| !host.is_ascii());
    terms.extend(in_ascii.iter().filter_map(Url::host_str).map(|host| [scheme, host, &escaped(rest)].concat()));
    terms.iter_mut().for_each(|term| term.make_ascii_lowercase());
    terms.sort_unstable();
    terms.dedup();
    terms.retain(|term| *term != small);
    terms
}

/// Bytes with escapes in both a path and a query (URL Standard, section 1.3), besides those that are not ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'`');

/// Returns a text with the escapes that a path or query gets.
fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<String, LongUrlError> {
        LongUrl::parse(text, &[]).map(String::from)
    }

    proptest! {
        #[test]
        fn parsing_is_total_and_settles(text in any::<String>(), near in "(https?|ftp)://[^/]{0,20}(/.{0,40})?") {
            for text in [text, near] {
                if let Ok(url) = parse(&text) {
                    prop_assert!(crate::link::is_target(url.as_bytes()));
                    prop_assert_eq!(parse(&url), Ok(url.clone()));
                }
            }
        }
    }

    #[test]
    fn the_serialised_form_is_kept() {
        assert_eq!(parse("HTTP://EXAMPLE.org:80/a b?q=é#x"), Ok("http://example.org/a%20b?q=%C3%A9#x".into()));
        assert_eq!(parse("https://bücher.example/"), Ok("https://xn--bcher-kva.example/".into()));
        assert_eq!(parse(" https://example.org "), Ok("https://example.org/".into()));
    }

    #[test]
    fn each_reason_is_named() {
        for (text, error) in [
            ("", LongUrlError::Empty),
            ("  ", LongUrlError::Empty),
            ("https://example.org/\r\nSet-Cookie: a=b", LongUrlError::Control),
            ("https://exa\tmple.org/", LongUrlError::Control),
            ("example.org/path", LongUrlError::Unreadable(url::ParseError::RelativeUrlWithoutBase)),
            ("javascript:alert(1)", LongUrlError::Scheme),
            ("ftp://example.org/", LongUrlError::Scheme),
            ("https://", LongUrlError::NoHost),
            ("https://user@example.org/", LongUrlError::UserInfo),
            ("https://:word@example.org/", LongUrlError::UserInfo),
        ] {
            assert_eq!(parse(text), Err(error), "{text:?}");
        }
        let long = |len: usize| format!("https://example.org/{}", "a".repeat(len - 20));
        assert_eq!(parse(&long(DESTINATION_LEN_MAX)).unwrap().len(), DESTINATION_LEN_MAX);
        assert_eq!(parse(&long(DESTINATION_LEN_MAX + 1)), Err(LongUrlError::TooLong));
        assert_eq!(parse(&format!("https://example.org/{}", "é".repeat(400))), Err(LongUrlError::TooLong));
    }

    #[test]
    fn the_service_itself_is_recognised() {
        let own = [Authority::of("https://Go.Example/").unwrap(), Authority::of("http://127.0.0.1:8080").unwrap()];
        for text in [
            "https://go.example/abc",
            "https://GO.EXAMPLE:443/abc",
            "https://go.example./abc",
            "http://127.0.0.1:8080/",
            "http://127.1:8080/",
        ] {
            assert_eq!(LongUrl::parse(text, &own), Err(LongUrlError::Own), "{text}");
        }
        for text in
            ["http://go.example/abc", "https://go.example:8443/", "http://127.0.0.1/", "https://go.example.org/"]
        {
            assert!(LongUrl::parse(text, &own).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_people_search_for_is_found_as_it_is_stored() {
        for (text, stored) in [
            ("a.example/Ünï", "https://a.example/%C3%9Cn%C3%AF"),
            ("ünï", "https://a.example/%C3%BCn%C3%AF"),
            ("two words", "https://a.example/two words"),
            ("Bücher.example", "https://bücher.example/x"),
            ("https://Bücher.example/ä b?ö#ü", "https://bücher.example/ä b?ö#ü"),
        ] {
            let url = LongUrl::parse(stored, &[]).unwrap().as_str().to_ascii_lowercase();
            assert!(url_terms(text).iter().any(|term| url.contains(term)), "{text}: {:?} {url}", url_terms(text));
        }
        for plain in ["example.org", "Example.org/a?b=c#d", "%C3%9C", "a-b_c~d"] {
            assert_eq!(url_terms(plain), [""; 0], "{plain}");
        }
    }

    #[test]
    fn what_a_path_or_query_escapes_is_escaped() {
        assert_eq!(escaped("\u{1}\u{7f} \"<>`\u{e4}"), "%01%7F%20%22%3C%3E%60%C3%A4");
        let kept: String = (33..127u8).map(char::from).filter(|c| !"\"<>`".contains(*c)).collect();
        assert_eq!(escaped(&kept), kept);
    }
}
