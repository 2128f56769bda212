//! Request heads: the end of a head, its validity, and the fields that the HTTP machine needs.
//!
//! This is the only gate: hyper sees no head that was not checked here first. Lenient parsing allows request smuggling,
//! so everything that two programs could read in two ways is rejected (RFC 9112, sections 2.2, 3.2, 5.1, 5.2, 6.1,
//! 6.3). `syntax` finds the lines and checks their bytes; this module knows the fields.

mod syntax;

use super::rejection::Rejection;
use carom_limits::HEADERS_MAX;

/// The delimiting of a message's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// No body.
    None,
    /// A body of this many bytes.
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
    /// Parses the head at the start of `bytes`, and returns it with its length; `None` if its end has not come. The terms
    /// are those of [`find_end`](HeadScan::find_end) and [`parse`].
    ///
    /// # Errors
    /// As soon as the bytes cannot begin a head that is accepted.
    #[inline]
    pub fn parse<'a>(&mut self, bytes: &'a [u8], max: usize) -> Result<Option<(Head<'a>, usize)>, Rejection> {
        // Most heads are valid and arrive whole: then one pass is enough.
        if self.scanned == 0
            && let Ok((head, len)) = parse_first(bytes)
            && len <= max
        {
            return Ok(Some((head, len)));
        }
        let Some(end) = self.find_end(bytes, max)? else { return Ok(None) };
        Ok(Some((parse(&bytes[..end])?, end)))
    }

    /// Returns the length of the head at the start of `bytes`, or `None` if its end has not come. A head has at most
    /// `max` bytes. Each call must get the bytes of the one before, and possibly more.
    ///
    /// # Errors
    /// As soon as the bytes cannot begin a head that is accepted.
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
pub fn parse(bytes: &[u8]) -> Result<Head<'_>, Rejection> {
    match parse_first(bytes) {
        Ok((head, len)) if len == bytes.len() => Ok(head),
        // The scan and the parser disagree about the end of the head, so other programs may too.
        Ok(_) => Err(Rejection::BadRequest),
        Err(Rejection::VersionNotSupported) => parse_later_minor(bytes),
        Err(rejection) => Err(rejection),
    }
}

/// Parses the head of HTTP/1.0 or HTTP/1.1 at the start of `bytes`, and returns its length as well.
///
/// # Errors
/// [`Rejection`] if it is not valid or does not end. `VersionNotSupported` stands for any other version.
#[inline]
fn parse_first(bytes: &[u8]) -> Result<(Head<'_>, usize), Rejection> {
    let line = syntax::request_line(bytes)?;
    let mut rest = line.behind;
    let mut fields = HeadFields::default();
    let mut count = 0;
    // A fault of a value is reported only if all lines are well-formed.
    let mut fault = None;
    let behind = loop {
        if let Some(behind) = rest.strip_prefix(b"\r\n") {
            break behind;
        }
        let (name, value, behind) = syntax::field(rest).ok_or(Rejection::BadRequest)?;
        count += 1;
        if count > HEADERS_MAX {
            return Err(Rejection::HeadTooLarge);
        }
        if let Err(rejection) = fields.take(name, value) {
            fault = fault.or(Some(rejection));
        }
        rest = behind;
    };
    let method = match line.method {
        b"GET" => Method::Get,
        b"HEAD" => Method::Head,
        b"CONNECT" => return Err(Rejection::Tunnel),
        _ => Method::Other,
    };
    if !line.is_visible || (line.target.first() != Some(&b'/') && !is_other_form(line.method, line.target)) {
        return Err(Rejection::BadRequest);
    }
    if let Some(fault) = fault {
        return Err(fault);
    }
    let head = fields.into_head(method, line.target, line.is_http11)?;
    Ok((head, bytes.len() - behind.len()))
}

/// True if a target that does not begin with a slash has one of the other forms (RFC 9112, section 3.2). These are the
/// absolute form with an HTTP scheme, and the asterisk, which belongs to `OPTIONS` alone.
#[cold]
fn is_other_form(method: &[u8], target: &[u8]) -> bool {
    let begins_with = |scheme: &[u8]| {
        target.split_at_checked(scheme.len()).is_some_and(|(first, _)| first.eq_ignore_ascii_case(scheme))
    };
    match target {
        b"*" => method == b"OPTIONS",
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

/// Parses a head of another version than HTTP/1.0 and HTTP/1.1.
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
struct HeadFields<'a> {
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

impl<'a> HeadFields<'a> {
    #[inline]
    fn take(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Rejection> {
        // The length distinguishes most names, so that most fields cost one comparison of a number.
        match name.len() {
            4 if is_name(name, b"host") => {
                self.hosts += 1;
                self.host = value;
                if !syntax::is_host(value) {
                    return Err(Rejection::BadRequest);
                }
            }
            6 if is_name(name, b"accept") => self.accepts_html |= accepts_html(value),
            6 if is_name(name, b"expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(Rejection::ExpectationFailed);
                }
                self.is_unusual = true;
            }
            7 if is_name(name, b"referer") => self.referer = value,
            7 if is_name(name, b"upgrade") => self.is_unusual = true,
            9 if is_name(name, b"forwarded") => {
                self.is_split |= !std::mem::replace(&mut self.forwarded, value).is_empty();
            }
            15 if is_name(name, b"accept-language") => _ = self.accept_language.get_or_insert(value),
            15 if is_name(name, b"x-forwarded-for") => {
                self.is_split |= !std::mem::replace(&mut self.x_forwarded_for, value).is_empty();
            }
            10 if is_name(name, b"user-agent") => self.user_agent = value,
            10 if is_name(name, b"connection") => self.take_connection(value),
            14 if is_name(name, b"content-length") => self.take_length(value)?,
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
        // Most clients send this alone, or nothing.
        if is_name(value, b"keep-alive") {
            self.keep_alive = true;
            return;
        }
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

    /// Returns the head with these fields.
    #[inline]
    fn into_head(self, method: Method, target: &'a [u8], is_http11: bool) -> Result<Head<'a>, Rejection> {
        let body = self.body(is_http11)?;
        if self.hosts > 1 || (is_http11 && self.hosts == 0) {
            return Err(Rejection::BadRequest);
        }
        Ok(Head {
            method,
            target,
            is_http11,
            body,
            close: self.close || (!is_http11 && !self.keep_alive),
            accepts_html: self.accepts_html,
            host: self.host,
            user_agent: self.user_agent,
            forwarded: self.forwarded,
            x_forwarded_for: self.x_forwarded_for,
            is_split: self.is_split,
            referer: self.referer,
            accept_language: self.accept_language.unwrap_or_default(),
            is_unusual: self.is_unusual || body != Body::None,
        })
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

/// True if a name is the one that `lower` spells in lower case: 4 to 16 letters and dashes. Compares both ends, four or
/// eight bytes at once, without the bit that distinguishes the case of letters. A carriage return would pass for a dash,
/// but the parser accepts none in a name or value.
#[inline]
fn is_name<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    const CASE: u64 = u64::from_ne_bytes([0x20; 8]);
    const {
        assert!(N >= 4, "a name would be shorter than its ends");
        assert!(N <= 16, "bytes between both ends would not be compared");
    }
    let folded = |text: &[u8]| {
        let ends = if N < 8 {
            [*text.first_chunk::<4>()?, *text.last_chunk::<4>()?].map(|end| u64::from(u32::from_ne_bytes(end)))
        } else {
            [*text.first_chunk::<8>()?, *text.last_chunk::<8>()?].map(u64::from_ne_bytes)
        };
        Some(ends.map(|end| end | CASE))
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

/// True if `text/html` or `application/xhtml+xml` is in the list. Browsers name them; programs mostly do not.
#[inline]
pub fn accepts_html(value: &[u8]) -> bool {
    // Browsers name it first when they ask for a page.
    if let Some(rest) = value.strip_prefix(b"text/html")
        && matches!(rest, [] | [b',' | b';', ..])
    {
        return true;
    }
    value.split(|&b| b == b',').any(|range| {
        let media = range.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        media.eq_ignore_ascii_case(b"text/html") || media.eq_ignore_ascii_case(b"application/xhtml+xml")
    })
}

#[cfg(test)]
mod tests;
