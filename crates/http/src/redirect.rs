//! Parses requests for a short code, and predicts them for prefetching.

use carom_shards::{CODE_LEN_MAX, Code};

use super::head::{Head, Method};

/// A range of bytes in a request's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    at: u16,
    len: u16,
}

impl Span {
    /// Returns the bytes of this range.
    #[inline]
    pub fn of(self, head: &[u8]) -> &[u8] {
        &head[usize::from(self.at)..][..usize::from(self.len)]
    }

    /// Returns the number of bytes.
    pub fn len(self) -> usize {
        usize::from(self.len)
    }

    /// True if the range is empty.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// A request for a short code, as the fast path takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedirectRequest {
    /// The code behind the slash.
    pub code: Code,
    /// The value of `Host`.
    pub host: Span,
    /// The query string, without the question mark.
    pub query: Span,
    /// The value of `Forwarded`.
    pub forwarded: Span,
    /// The value of `X-Forwarded-For`.
    pub x_forwarded_for: Span,
    /// True if either of those two fields has several lines. Its range is then that of the last line.
    pub is_split: bool,
    /// The value of `User-Agent`.
    pub user_agent: Span,
    /// The value of `Referer`.
    pub referer: Span,
    /// The first line of `Accept-Language`.
    pub accept_language: Span,
    /// True for `HEAD`: the response has no body.
    pub head_only: bool,
    /// True if an error page may be HTML.
    pub accepts_html: bool,
    /// True if the connection ends after the response.
    pub close: bool,
    /// True if the client asked for that. Then it sends nothing more.
    pub asked_to_close: bool,
}

/// The path of the status for clients on the same machine. It has the form of a code, but hyper answers it.
const STATUS_NAME: &[u8] = b"shorturl_status";

/// Predicts the code that bytes ask for, if they begin as most requests do. It is only a guess for prefetching:
/// nothing is checked.
#[inline]
pub fn peek(bytes: &[u8]) -> Option<Code> {
    let path = bytes.strip_prefix(b"GET /")?;
    let end = memchr::memchr2(b' ', b'?', &path[..path.len().min(CODE_LEN_MAX + 1)])?;
    Code::parse(&path[..end]).ok()
}

/// Predicts the host that the bytes name, if `Host` is the first field, as with most clients. Only a guess, like
/// [`peek`].
pub fn peek_host(bytes: &[u8]) -> &[u8] {
    let field = memchr::memchr(b'\n', bytes).map_or(&[][..], |end| &bytes[end + 1..]);
    match field.split_at_checked("Host: ".len()) {
        Some((name, value)) if name.eq_ignore_ascii_case(b"Host: ") => {
            &value[..memchr::memchr(b'\r', value).unwrap_or(0)]
        }
        _ => &[],
    }
}

/// Returns the request of a head that the fast path answers; `None` for any other. `is_last`: the connection ends after
/// it in any case. `nostat`: a query parameter of requests that hyper answers, because they are no visits.
#[inline]
pub(crate) fn fast_request(head: &Head<'_>, bytes: &[u8], is_last: bool, nostat: &str) -> Option<RedirectRequest> {
    if head.is_unusual || !head.is_http11 || head.method == Method::Other {
        return None;
    }
    let path = head.target.strip_prefix(b"/")?;
    let (path, query) = match memchr::memchr2(b'?', b'#', path) {
        Some(end) if path[end] == b'?' => {
            if !nostat.is_empty() && has_parameter(&path[end + 1..], nostat) {
                return None;
            }
            (&path[..end], query_span(head, end + 2)?)
        }
        Some(_) => return None,
        None => (path, Span::default()),
    };
    if path == STATUS_NAME {
        return None;
    }
    let code = Code::parse(path).ok()?;
    Some(RedirectRequest {
        code,
        host: span_in(bytes, head.host),
        query,
        forwarded: span_in(bytes, head.forwarded),
        x_forwarded_for: span_in(bytes, head.x_forwarded_for),
        is_split: head.is_split,
        user_agent: span_in(bytes, head.user_agent),
        referer: span_in(bytes, head.referer),
        accept_language: span_in(bytes, head.accept_language),
        head_only: head.method == Method::Head,
        accepts_html: head.accepts_html,
        close: head.close || is_last,
        asked_to_close: head.close,
    })
}

/// Returns the range of `part` in `head`.
#[inline]
fn span_in(head: &[u8], part: &[u8]) -> Span {
    let at = part.as_ptr().addr().wrapping_sub(head.as_ptr().addr());
    // A part outside the head would be none of its bytes. That does not happen.
    match (u16::try_from(at), u16::try_from(part.len())) {
        (Ok(at), Ok(len)) if usize::from(at) + usize::from(len) <= head.len() => Span { at, len },
        _ => Span::default(),
    }
}

/// Returns the range of the query string that begins at byte `begin` of the target. `None` if a fragment follows it,
/// which no client sends.
fn query_span(head: &Head<'_>, begin: usize) -> Option<Span> {
    let query = &head.target[begin..];
    if memchr::memchr(b'#', query).is_some() {
        return None;
    }
    let method_len = if head.method == Method::Head { "HEAD ".len() } else { "GET ".len() };
    Some(Span { at: u16::try_from(method_len + begin).ok()?, len: u16::try_from(query.len()).ok()? })
}

/// True if a query has a parameter with this name, with or without a value.
pub fn has_parameter(query: &[u8], name: &str) -> bool {
    query.split(|byte| *byte == b'&').any(|pair| is_named(pair, name))
}

/// Returns a query without the parameters of this name.
pub fn without_parameter(query: &str, name: &str) -> String {
    let others: Vec<&str> = query.split('&').filter(|pair| !is_named(pair.as_bytes(), name)).collect();
    others.join("&")
}

/// True if a pair of a query has this name.
fn is_named(pair: &[u8], name: &str) -> bool {
    pair.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'='))
}

/// Returns the values of the fields with this name, in lower case, in the bytes of a head: of the first ones, as many as
/// `lines` has room for. They count as one list (RFC 9110, section 5.3).
pub fn lines_of<'l, 'h>(head: &'h [u8], name: &str, lines: &'l mut [&'h [u8]]) -> &'l [&'h [u8]] {
    let (mut rest, mut count) = (head, 0);
    while count < lines.len()
        && let Some((value, behind)) = next_of(rest, name)
    {
        lines[count] = value;
        (rest, count) = (behind, count + 1);
    }
    &lines[..count]
}

/// Returns the value of the next field with this name, and the bytes behind it. The bytes begin within another line.
#[inline]
fn next_of<'h>(head: &'h [u8], name: &str) -> Option<(&'h [u8], &'h [u8])> {
    let mut rest = head;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        rest = &rest[end + 1..];
        // Few lines have a colon at this place, so names are rarely compared.
        if let Some((of_line, value)) = rest.split_at_checked(name.len())
            && let Some(value) = value.strip_prefix(b":")
            && of_line.eq_ignore_ascii_case(name.as_bytes())
        {
            let (value, behind) = value.split_at(memchr::memchr(b'\n', value).unwrap_or(value.len()));
            return Some((value.trim_ascii(), behind));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_and_removed_by_name() {
        for query in ["nostat", "nostat=", "a=1&nostat=true", "nostat&a"] {
            assert!(has_parameter(query.as_bytes(), "nostat"), "{query}");
        }
        for query in ["", "nostats", "a=nostat", "Nostat", "xnostat=1", "a&b=1"] {
            assert!(!has_parameter(query.as_bytes(), "nostat"), "{query}");
            assert_eq!(without_parameter(query, "nostat"), query);
        }
        assert_eq!(without_parameter("a=1&nostat&b=&nostat=2", "nostat"), "a=1&b=");
    }

    #[test]
    fn a_request_has_the_first_line_of_its_languages() {
        for (fields, languages) in [
            ("", ""),
            ("Accept: */*\r\nX-Forwarded-For: de\r\n", ""),
            ("accept-LANGUAGE:\tfr, en \r\nAccept-Language: de\r\n", "fr, en"),
            ("Accept-Language:\r\nAccept-Language: de\r\n", ""),
        ] {
            let head = format!("GET /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let head = head.as_bytes();
            let request = fast_request(&crate::head::parse(head).unwrap(), head, false, "").unwrap();
            assert_eq!(request.accept_language.of(head), languages.as_bytes(), "{fields}");
        }
    }

    #[test]
    fn lines_of_a_name_are_found() {
        let head =
            b"GET /a HTTP/1.1\r\nHost: a\r\naccept-LANGUAGE:\tfr, en \r\nAccept-Language: de\r\nAccept: */*\r\n\r\n";
        let lines = |name, room: usize| lines_of(head, name, &mut vec![&b""[..]; room]).to_vec();
        assert_eq!(lines("accept-language", 3), [&b"fr, en"[..], b"de"]);
        assert_eq!(lines("accept-language", 1), [b"fr, en"]);
        assert_eq!(lines("accept", 3), [b"*/*"]);
        assert!(lines("accept-language", 0).is_empty());
        assert!(lines("accept-charset", 3).is_empty());
        assert!(lines("acc", 3).is_empty());
        assert!(lines("get /a http/1.1", 3).is_empty());
    }
}
