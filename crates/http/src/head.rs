//! Request heads: the end of a head, its validity, and the fields that the HTTP machine needs.
//!
//! This is the only gate: hyper sees no head that was not checked here first. Lenient parsing allows request smuggling,
//! so everything that two programs could read in two ways is rejected (RFC 9112, sections 2.2, 3.2, 5.1, 5.2, 6.1,
//! 6.3).

use std::mem::MaybeUninit;

use super::rejection::Rejection;
use carom_limits::HEADERS_MAX;

/// The delimiting of a message's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// No body.
    None,
    /// This many bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// The methods that the fast path distinguishes. Handlers refuse the others where they must.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// Any other.
    Other,
}

/// A valid head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head<'a> {
    /// The request method.
    pub method: Method,
    /// The request target as it was sent: visible ASCII.
    pub target: &'a [u8],
    /// True for HTTP/1.1, false for HTTP/1.0.
    pub is_http11: bool,
    /// The delimiting of its body.
    pub body: Body,
    /// True if the client asked for the connection to end after the response.
    pub close: bool,
    /// True if the client names HTML in `Accept`.
    pub accepts_html: bool,
    /// The value of `Host`, with a port if it has one; empty if the field is missing.
    pub host: &'a [u8],
    /// The value of `User-Agent`; empty if the field is missing.
    pub user_agent: &'a [u8],
    /// The last line of `Forwarded`; empty if the field is missing.
    pub forwarded: &'a [u8],
    /// The last line of `X-Forwarded-For`; empty if the field is missing.
    pub x_forwarded_for: &'a [u8],
    /// True if either of those two fields has several lines: see [`all_of`].
    pub is_split: bool,
    /// The value of `Referer`; empty if the field is missing.
    pub referer: &'a [u8],
    /// The first line of `Accept-Language`; empty if the field is missing.
    pub accept_language: &'a [u8],
    /// True if a field asks for more than a plain response: a body's length (even 0), `Expect`, `Upgrade`.
    pub is_unusual: bool,
}

/// A search for the end of a head. It remembers how far it has looked, so that a head that drips in is not read again
/// and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeadScan {
    /// Bytes that hold no end of a head.
    scanned: usize,
    /// Offset of the line that is being scanned.
    line_start: usize,
}

impl HeadScan {
    /// Returns the length of the head at the start of `bytes`, or `None` if its end has not come. A head has at most
    /// `max` bytes. Each call must get the bytes of the one before, and possibly more.
    ///
    /// # Errors
    /// As soon as the bytes cannot begin a head that is accepted.
    #[inline]
    pub fn find_end(&mut self, bytes: &[u8], max: usize) -> Result<Option<usize>, Rejection> {
        if bytes.first().is_some_and(|first| !first.is_ascii_uppercase()) {
            // Every method in use begins with a capital letter. A TLS hello and an empty line do not.
            return Err(Rejection::BadRequest);
        }
        for place in memchr::memchr_iter(b'\n', &bytes[self.scanned..]) {
            let end = self.scanned + place + 1;
            if end < 2 || bytes[end - 2] != b'\r' {
                return Err(Rejection::BadRequest);
            }
            if end - self.line_start == 2 {
                return if end > max { Err(Rejection::HeadTooLarge) } else { Ok(Some(end)) };
            }
            self.line_start = end;
        }
        self.scanned = bytes.len();
        if bytes.len() >= max { Err(Rejection::HeadTooLarge) } else { Ok(None) }
    }
}

/// Parses a complete head: `bytes` ends with its empty line.
///
/// # Errors
/// [`Rejection`] if it is not valid.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Head<'_>, Rejection> {
    let mut fields = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete(len)) if len == bytes.len() => {}
        // The scan and the parser disagree about the end of the head, so other programs may too.
        Ok(_) => return Err(Rejection::BadRequest),
        Err(httparse::Error::TooManyHeaders) => return Err(Rejection::HeadTooLarge),
        Err(httparse::Error::Version) => return parse_later_minor(bytes),
        Err(_) => return Err(Rejection::BadRequest),
    }
    let is_http11 = request.version == Some(1);
    let method = match request.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        Some("CONNECT") => return Err(Rejection::Tunnel),
        _ => Method::Other,
    };
    let target = request.path.unwrap_or_default().as_bytes();
    if target.first() != Some(&b'/') && !is_other_form(request.method, target) {
        return Err(Rejection::BadRequest);
    }
    if !target.iter().all(u8::is_ascii_graphic) {
        return Err(Rejection::BadRequest);
    }
    let mut fields = Fields::default();
    for field in request.headers.iter() {
        fields.take(field.name.as_bytes(), field.value)?;
    }
    let body = fields.body(is_http11)?;
    if fields.hosts > 1 || (is_http11 && fields.hosts == 0) {
        return Err(Rejection::BadRequest);
    }
    Ok(Head {
        method,
        target,
        is_http11,
        body,
        close: fields.close || (!is_http11 && !fields.keep_alive),
        accepts_html: fields.accepts_html,
        host: fields.host,
        user_agent: fields.user_agent,
        forwarded: fields.forwarded,
        x_forwarded_for: fields.x_forwarded_for,
        is_split: fields.is_split,
        referer: fields.referer,
        accept_language: fields.accept_language.unwrap_or_default(),
        is_unusual: fields.is_unusual || body != Body::None,
    })
}

/// True if a target that does not begin with a slash has one of the other forms (RFC 9112, section 3.2): the absolute
/// form with an HTTP scheme, or the asterisk, which belongs to `OPTIONS` alone.
#[cold]
fn is_other_form(method: Option<&str>, target: &[u8]) -> bool {
    let begins_with = |scheme: &[u8]| {
        target.split_at_checked(scheme.len()).is_some_and(|(first, _)| first.eq_ignore_ascii_case(scheme))
    };
    match target {
        b"*" => method == Some("OPTIONS"),
        _ => begins_with(b"http://") || begins_with(b"https://"),
    }
}

/// Returns the offset of the minor version in a head of HTTP/1.2 to HTTP/1.9. Such a head is read as one of HTTP/1.1,
/// the highest version of that major version that this server implements (RFC 9110, section 6.2).
pub(crate) fn later_minor(head: &[u8]) -> Option<usize> {
    let end = memchr::memchr(b'\r', head)?;
    let minor = end.checked_sub(1)?;
    (head[..minor].ends_with(b" HTTP/1.") && matches!(head[minor], b'2'..=b'9')).then_some(minor)
}

/// Parses a head whose version httparse does not know.
#[cold]
fn parse_later_minor(bytes: &[u8]) -> Result<Head<'_>, Rejection> {
    let Some(minor) = later_minor(bytes) else { return Err(version_rejection(bytes)) };
    let mut as_http11 = bytes.to_vec();
    as_http11[minor] = b'1';
    let head = parse(&as_http11)?;
    // Each part has the same offset in the original. Empty parts may have none.
    let original = |part: &[u8]| {
        let at = part.as_ptr().addr().wrapping_sub(as_http11.as_ptr().addr());
        if part.is_empty() { &[] } else { &bytes[at..at + part.len()] }
    };
    Ok(Head {
        target: original(head.target),
        host: original(head.host),
        user_agent: original(head.user_agent),
        forwarded: original(head.forwarded),
        x_forwarded_for: original(head.x_forwarded_for),
        referer: original(head.referer),
        accept_language: original(head.accept_language),
        method: head.method,
        is_http11: head.is_http11,
        body: head.body,
        close: head.close,
        accepts_html: head.accepts_html,
        is_split: head.is_split,
        is_unusual: head.is_unusual,
    })
}

/// Returns the values of all lines of a field as one list (RFC 9110, section 5.3). [`parse`] has accepted the head.
pub fn all_of(head: &[u8], name: &str) -> Vec<u8> {
    let value = |line: &'_ [u8]| -> Option<Vec<u8>> {
        let (of_line, value) = line.split_at_checked(name.len())?;
        of_line.eq_ignore_ascii_case(name.as_bytes()).then(|| value.strip_prefix(b":").map(<[u8]>::to_vec))?
    };
    let lines = head.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter_map(value).collect::<Vec<_>>().join(&b',')
}

/// Returns the rejection of a version: unsupported for HTTP/2 and later, malformed for anything that is no version.
fn version_rejection(bytes: &[u8]) -> Rejection {
    let line = bytes.split(|&b| b == b'\r').next().unwrap_or_default();
    let version = line.rsplit(|&b| b == b' ').next().unwrap_or_default();
    let named = version.len() == 8
        && version.starts_with(b"HTTP/")
        && !version.starts_with(b"HTTP/1.")
        && version[5].is_ascii_digit()
        && version[6] == b'.'
        && version[7].is_ascii_digit();
    if named { Rejection::VersionNotSupported } else { Rejection::BadRequest }
}

/// The fields of one head, collected one by one.
#[derive(Default)]
struct Fields<'a> {
    hosts: u32,
    host: &'a [u8],
    content_length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    accepts_html: bool,
    user_agent: &'a [u8],
    forwarded: &'a [u8],
    x_forwarded_for: &'a [u8],
    is_split: bool,
    referer: &'a [u8],
    accept_language: Option<&'a [u8]>,
    is_unusual: bool,
}

impl<'a> Fields<'a> {
    #[inline]
    fn take(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Rejection> {
        // The length distinguishes most names, so that most fields cost one comparison of a number.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                self.hosts += 1;
                self.host = value;
                if !is_host(value) {
                    return Err(Rejection::BadRequest);
                }
            }
            6 if name.eq_ignore_ascii_case(b"accept") => self.accepts_html |= accepts_html(value),
            6 if name.eq_ignore_ascii_case(b"expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(Rejection::ExpectationFailed);
                }
                self.is_unusual = true;
            }
            7 if name.eq_ignore_ascii_case(b"referer") => self.referer = value,
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.is_unusual = true,
            9 if is_long_name(name, b"forwarded") => {
                self.is_split |= !std::mem::replace(&mut self.forwarded, value).is_empty();
            }
            15 if is_long_name(name, b"accept-language") => _ = self.accept_language.get_or_insert(value),
            15 if is_long_name(name, b"x-forwarded-for") => {
                self.is_split |= !std::mem::replace(&mut self.x_forwarded_for, value).is_empty();
            }
            10 if is_long_name(name, b"user-agent") => self.user_agent = value,
            10 if is_long_name(name, b"connection") => self.take_connection(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.take_length(value)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked {
                    return Err(Rejection::BadRequest);
                }
                transfer_encoding(value)?;
                self.chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn take_length(&mut self, value: &[u8]) -> Result<(), Rejection> {
        match self.content_length.replace(content_length(value)?) {
            None => Ok(()),
            Some(_) => Err(Rejection::BadRequest),
        }
    }

    fn take_connection(&mut self, value: &[u8]) {
        for option in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else {
                self.is_unusual = true;
            }
        }
    }

    fn body(&self, is_http11: bool) -> Result<Body, Rejection> {
        match (self.content_length, self.chunked) {
            (Some(_), true) => Err(Rejection::BadRequest),
            (None, true) if !is_http11 => Err(Rejection::BadRequest),
            (None, true) => Ok(Body::Chunked),
            (Some(len), false) => Ok(Body::Length(len)),
            (None, false) => Ok(Body::None),
        }
    }
}

/// True if a name is the one that `lower` spells in lower case: 8 to 16 letters and dashes. Compares eight bytes at once,
/// without the bit that distinguishes the case of letters. The parser accepts no control character in a name, so no other
/// byte passes for a dash.
#[inline]
fn is_long_name<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    const CASE: u64 = u64::from_ne_bytes([0x20; 8]);
    const {
        assert!(N >= 8, "a name would be shorter than its ends");
        assert!(N <= 16, "bytes between both ends would not be compared");
    }
    let folded = |text: &[u8]| {
        let ends = [*text.first_chunk::<8>()?, *text.last_chunk::<8>()?];
        Some(ends.map(|end| u64::from_ne_bytes(end) | CASE))
    };
    name.len() == N && folded(name) == folded(lower)
}

/// Parses one or more digits and nothing else: no sign, no list, no `0x`.
fn content_length(value: &[u8]) -> Result<u64, Rejection> {
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return Err(Rejection::BadRequest);
    }
    Ok(value.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Accepts exactly `chunked`. Another well-formed list that ends in `chunked` is an unsupported coding; the rest is an
/// attempt to be read in two ways.
fn transfer_encoding(value: &[u8]) -> Result<(), Rejection> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut codings = value.split(|&b| b == b',').map(<[u8]>::trim_ascii);
    let known = |coding: &[u8]| {
        [&b"gzip"[..], b"deflate", b"compress", b"x-gzip"].iter().any(|k| coding.eq_ignore_ascii_case(k))
    };
    let last = codings.next_back().unwrap_or_default();
    if last.eq_ignore_ascii_case(b"chunked") && codings.all(known) {
        Err(Rejection::NotImplemented)
    } else {
        Err(Rejection::BadRequest)
    }
}

/// True for a host with an optional port: no user, no path, no space, no list.
fn is_host(value: &[u8]) -> bool {
    !value.is_empty()
        && value.len() <= 255 + 6
        && value.iter().all(|&b| b.is_ascii_alphanumeric() || b".-_~:[]%!$&'()*+;=".contains(&b) || b >= 0x80)
}

/// True if `text/html` or `application/xhtml+xml` is in the list. Browsers name them; programs mostly do not.
#[inline]
pub fn accepts_html(value: &[u8]) -> bool {
    value.split(|&b| b == b',').any(|range| {
        let media = range.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        media.eq_ignore_ascii_case(b"text/html") || media.eq_ignore_ascii_case(b"application/xhtml+xml")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_limits::HEAD_LEN_MAX;

    fn rejected(head: &str) -> Rejection {
        let mut scan = HeadScan::default();
        match scan.find_end(head.as_bytes(), HEAD_LEN_MAX) {
            Err(rejection) => rejection,
            Ok(None) => panic!("no end in {head:?}"),
            Ok(Some(end)) => parse(&head.as_bytes()[..end]).expect_err(head),
        }
    }

    #[test]
    fn a_browser_head_is_plain() {
        let head = "GET /abc?x=1 HTTP/1.1\r\nHost: s.example:8080\r\nAccept: text/html,*/*;q=0.8\r\nConnection: keep-alive\r\nCookie: a=b\r\n\r\n";
        let head = parse(head.as_bytes()).unwrap();
        assert_eq!(head.target, b"/abc?x=1");
        assert!(head.is_http11 && head.accepts_html && !head.close && !head.is_unusual);
        assert_eq!(head.body, Body::None);
    }

    #[test]
    fn long_names_are_compared_in_any_case() {
        let name = b"accept-language";
        assert!(is_long_name(b"Accept-LANGUAGE", name));
        assert!(!is_long_name(b"accept-languag", name) && !is_long_name(b"accept-languages", name));
        for at in 0..name.len() {
            for byte in b'!'..=b'~' {
                let mut other = *name;
                other[at] = byte;
                assert_eq!(is_long_name(&other, name), other.eq_ignore_ascii_case(name), "{}", other.escape_ascii());
            }
        }
    }

    #[test]
    fn lines_of_one_field_are_one_list() {
        let head = b"GET /forwarded HTTP/1.1\r\nHost: a\r\nForwarded: for=1.2.3.4\r\nX-Forwarded-For: 9.9.9.9\r\nFORWARDED:for=5.6.7.8\r\n\r\n";
        assert_eq!(all_of(head, "forwarded"), b" for=1.2.3.4,for=5.6.7.8");
        assert_eq!(all_of(head, "x-forwarded-for"), b" 9.9.9.9");
        assert_eq!(all_of(head, "via"), b"");
        let parsed = parse(head).unwrap();
        assert!(parsed.is_split && !parsed.is_unusual && parsed.forwarded == b"for=5.6.7.8");
    }

    #[test]
    fn shapes_that_two_programs_read_in_two_ways_are_refused() {
        for (what, fields) in [
            ("two lengths that differ", "Host: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n"),
            ("two lengths that agree", "Host: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n"),
            ("a list of lengths", "Host: a\r\nContent-Length: 5, 5\r\n"),
            ("a signed length", "Host: a\r\nContent-Length: +5\r\n"),
            ("a negative length", "Host: a\r\nContent-Length: -5\r\n"),
            ("a hexadecimal length", "Host: a\r\nContent-Length: 0x5\r\n"),
            ("an empty length", "Host: a\r\nContent-Length: \r\n"),
            ("a huge length", "Host: a\r\nContent-Length: 99999999999999999999\r\n"),
            ("length and chunked", "Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
            ("chunked and length", "Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
            ("chunked twice", "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
            ("chunked then something", "Host: a\r\nTransfer-Encoding: chunked, identity\r\n"),
            ("nearly chunked", "Host: a\r\nTransfer-Encoding: xchunked\r\n"),
            ("quoted chunked", "Host: a\r\nTransfer-Encoding: \"chunked\"\r\n"),
            ("vertical tab before chunked", "Host: a\r\nTransfer-Encoding: \x0bchunked\r\n"),
            ("space before the colon", "Host: a\r\nTransfer-Encoding : chunked\r\n"),
            ("space before the host's colon", "Host : a\r\n"),
            ("a folded line", "Host: a\r\nX: b\r\n c\r\n"),
            ("a line without a colon", "Host: a\r\nnothing\r\n"),
            ("an empty name", "Host: a\r\n: b\r\n"),
            ("a bare CR in a value", "Host: a\r\nX: b\rc\r\n"),
            ("a bare LF", "Host: a\nX: b\r\n"),
            ("a NUL in a value", "Host: a\r\nX: b\0c\r\n"),
            ("no host", "Accept: */*\r\n"),
            ("two hosts", "Host: a\r\nHost: a\r\n"),
            ("an empty host", "Host: \r\n"),
            ("a host with a user", "Host: a@b\r\n"),
            ("a host with a path", "Host: a/b\r\n"),
            ("a host with a space", "Host: a b\r\n"),
        ] {
            assert_eq!(rejected(&format!("POST /x HTTP/1.1\r\n{fields}\r\n")), Rejection::BadRequest, "{what}");
        }
    }

    #[test]
    fn bad_request_lines_are_refused() {
        for line in [
            "GET  /x HTTP/1.1",
            "GET /x  HTTP/1.1",
            "GET /x",
            "GET /x HTTP/1.1 ",
            " GET /x HTTP/1.1",
            "get /x HTTP/1.1",
            "GET /\u{e9} HTTP/1.1",
            "GET /x\ty HTTP/1.1",
            "GET  HTTP/1.1",
            "G@T /x HTTP/1.1",
            "GET /x http/1.1",
            "\r\nGET /x HTTP/1.1",
            "GET * HTTP/1.1",
            "POST * HTTP/1.1",
            "OPTIONS ** HTTP/1.1",
            "GET abc HTTP/1.1",
            "GET a.example:80 HTTP/1.1",
            "GET ftp://a/abc HTTP/1.1",
            "GET /x HTTP/1.10",
            "GET /x HTTP/1.",
        ] {
            let rejection = rejected(&format!("{line}\r\nHost: a\r\n\r\n"));
            assert_eq!(rejection, Rejection::BadRequest, "{line:?}");
        }
        assert_eq!(rejected("GET /x HTTP/2.0\r\nHost: a\r\n\r\n"), Rejection::VersionNotSupported);
        assert_eq!(rejected("GET /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Rejection::BadRequest);
        assert_eq!(rejected("GET /x HTTP/1.2\r\n\r\n"), Rejection::BadRequest, "HTTP/1.2 needs a host as well");
        for target in ["a.example:80", "/x", "*"] {
            assert_eq!(
                rejected(&format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n")),
                Rejection::Tunnel,
                "{target}"
            );
        }
        assert_eq!(
            rejected("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
            Rejection::NotImplemented
        );
        assert_eq!(rejected("POST /x HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n"), Rejection::ExpectationFailed);
    }

    #[test]
    fn every_form_of_a_target_is_taken_with_its_methods() {
        for line in ["GET /", "GET //x", "GET http://a", "POST HTTPS://a/x", "OPTIONS *", "OPTIONS /x", "DELETE /*"] {
            let head = format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n");
            let target = line.split(' ').nth(1).unwrap();
            assert_eq!(parse(head.as_bytes()).map(|head| head.target), Ok(target.as_bytes()), "{line}");
        }
    }

    #[test]
    fn a_later_minor_version_is_read_as_http_1_1() {
        let fields = "Host: a\r\nUser-Agent: b\r\nReferer: c\r\nForwarded: for=d\r\nX-Forwarded-For: e\r\nAccept-Language: f\r\n\r\n";
        let [old, new] = ["1", "7"].map(|minor| format!("HEAD /x?y HTTP/1.{minor}\r\n{fields}"));
        assert_eq!(parse(new.as_bytes()), parse(old.as_bytes()));
        let place = later_minor(new.as_bytes()).unwrap();
        assert_eq!((&new[place - 7..=place], later_minor(old.as_bytes())), ("HTTP/1.7", None));
        // The parts are ranges of the original bytes.
        assert!(new.as_bytes().as_ptr_range().contains(&parse(new.as_bytes()).unwrap().host.as_ptr()));
    }

    #[test]
    fn too_large_heads_are_refused_before_their_end() {
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(HEAD_LEN_MAX));
        assert_eq!(HeadScan::default().find_end(long.as_bytes(), HEAD_LEN_MAX), Err(Rejection::HeadTooLarge));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX));
        assert_eq!(rejected(&many), Rejection::HeadTooLarge);
    }

    #[test]
    fn the_largest_head_is_taken() {
        let start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
        let head = format!("{start}{}\r\n\r\n", "b".repeat(HEAD_LEN_MAX - start.len() - 4));
        assert_eq!(head.len(), HEAD_LEN_MAX);
        assert_eq!(HeadScan::default().find_end(head.as_bytes(), HEAD_LEN_MAX), Ok(Some(HEAD_LEN_MAX)));
        assert!(parse(head.as_bytes()).is_ok());
    }

    #[test]
    fn old_clients_close_unless_they_ask_otherwise() {
        assert!(parse(b"GET /x HTTP/1.0\r\n\r\n").unwrap().close);
        assert!(!parse(b"GET /x HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").unwrap().close);
        assert!(parse(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap().close);
    }
}
