//! Parser for HTTP/1.1 responses: finds the end, the status, `Location` and the body. Pure, and total for any
//! bytes.

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Maximum number of fields in a head; more is malformed.
const FIELDS_MAX: usize = 64;

/// Maximum length of one response in bytes; more is malformed. Correct responses are far smaller, and a response
/// that arrives in small pieces is parsed again with each piece.
pub(crate) const RESPONSE_LEN_MAX: usize = 256 * 1024;

/// A complete response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ParsedResponse {
    /// Length of the response in the input, in bytes.
    pub(crate) len: usize,
    /// Status code.
    pub(crate) status: u16,
    /// Range of the value of `Location` in the input.
    pub(crate) location: Option<Range<usize>>,
    /// Range of the body in the input, including its framing if it is chunked.
    pub(crate) body: Range<usize>,
    /// True if the body is chunked.
    is_chunked: bool,
    /// True if the server closes the connection after the response.
    pub(crate) close: bool,
}

/// Error for bytes that are not an HTTP/1.1 response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MalformedResponse;

impl ParsedResponse {
    /// Returns a response whose frame is known: its location and its body are at these places of the input.
    pub(crate) fn framed(status: u16, location: Option<Range<usize>>, body: Range<usize>) -> ParsedResponse {
        ParsedResponse { len: body.end, status, location, body, is_chunked: false, close: false }
    }

    /// Returns the content: the body without its framing. `input` is the input in which the response was found.
    pub(crate) fn content<'a>(&self, input: &'a [u8]) -> Cow<'a, [u8]> {
        let mut rest = &input[self.body.clone()];
        if !self.is_chunked {
            return Cow::Borrowed(rest);
        }
        let mut content = Vec::with_capacity(rest.len());
        while let Ok(httparse::Status::Complete((line_len, size))) = httparse::parse_chunk_size(rest) {
            let Some(chunk) = rest.get(line_len..line_len + size as usize).filter(|chunk| !chunk.is_empty()) else {
                break;
            };
            content.extend_from_slice(chunk);
            rest = rest.get(line_len + chunk.len() + 2..).unwrap_or_default();
        }
        Cow::Owned(content)
    }
}

enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// Parses the first response of `input`; `None` if it is incomplete. `to_head` is true if the request was `HEAD`,
/// and `ended` if no more bytes will arrive.
///
/// # Errors
/// [`MalformedResponse`] if the bytes are not an HTTP/1.1 response.
pub(crate) fn parse(input: &[u8], to_head: bool, ended: bool) -> Result<Option<ParsedResponse>, MalformedResponse> {
    let mut start = 0;
    loop {
        let Some(response) = parse_one(&input[start..], to_head, ended)? else {
            return if input.len() > RESPONSE_LEN_MAX { Err(MalformedResponse) } else { Ok(None) };
        };
        // 100 and 103 are interim responses; the final one follows.
        if response.status >= 200 {
            let shift = |range: Range<usize>| range.start + start..range.end + start;
            return Ok(Some(ParsedResponse {
                len: response.len + start,
                location: response.location.map(shift),
                body: shift(response.body),
                ..response
            }));
        }
        start += response.len;
    }
}

fn parse_one(input: &[u8], to_head: bool, ended: bool) -> Result<Option<ParsedResponse>, MalformedResponse> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut head, input, &mut fields);
    let head_len = match parsed {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(MalformedResponse),
    };
    let status = head.code.ok_or(MalformedResponse)?;
    let mut close = head.version == Some(0);
    let (mut location, mut framing, mut content_length) = (None, Framing::UntilClose, None);
    for field in head.headers.iter() {
        match field.name.len() {
            8 if field.name.eq_ignore_ascii_case("location") => {
                let from = field.value.as_ptr().addr() - input.as_ptr().addr();
                // With two values, clients would follow different ones.
                if location.replace(from..from + field.value.len()).is_some() {
                    return Err(MalformedResponse);
                }
            }
            14 if field.name.eq_ignore_ascii_case("content-length") => {
                let len = std::str::from_utf8(field.value).ok().and_then(|text| text.parse().ok());
                let len = len.filter(|&len| len <= RESPONSE_LEN_MAX).ok_or(MalformedResponse)?;
                if content_length.replace(len).is_some_and(|other| other != len) {
                    return Err(MalformedResponse);
                }
                if !matches!(framing, Framing::Chunked) {
                    framing = Framing::Length(len);
                }
            }
            10 if field.name.eq_ignore_ascii_case("connection") => {
                close = field.value.eq_ignore_ascii_case(b"close")
                    || close && !field.value.eq_ignore_ascii_case(b"keep-alive");
            }
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => framing = Framing::Chunked,
            _ => {}
        }
    }
    if to_head || status < 200 || matches!(status, 204 | 304) {
        framing = Framing::Length(0);
    }
    let rest = &input[head_len..];
    let is_chunked = matches!(framing, Framing::Chunked);
    let body_len = match framing {
        Framing::Length(len) if len <= rest.len() => Some(len),
        Framing::Length(_) => None,
        Framing::Chunked => chunked_len(rest)?,
        Framing::UntilClose => {
            close = true;
            ended.then_some(rest.len())
        }
    };
    Ok(body_len.map(|body_len| {
        let len = head_len + body_len;
        ParsedResponse { len, status, location, body: head_len..len, is_chunked, close }
    }))
}

/// Returns the length of a chunked body with its framing, if it is complete.
fn chunked_len(input: &[u8]) -> Result<Option<usize>, MalformedResponse> {
    let mut at = 0;
    loop {
        match httparse::parse_chunk_size(&input[at..]) {
            Ok(httparse::Status::Partial) => return Ok(None),
            Ok(httparse::Status::Complete((line_len, 0))) => {
                // Trailers end with an empty line, as heads do.
                let mut line = at + line_len;
                loop {
                    let Some(end) = memchr::memchr(b'\n', &input[line.min(input.len())..]) else { return Ok(None) };
                    let is_empty = input[line..line + end].trim_ascii().is_empty();
                    line += end + 1;
                    if is_empty {
                        return Ok(Some(line));
                    }
                }
            }
            Ok(httparse::Status::Complete((line_len, size))) if size <= RESPONSE_LEN_MAX as u64 => {
                at += line_len + size as usize + 2;
                match input.get(at - 2..at) {
                    None => return Ok(None),
                    Some(b"\r\n") => {}
                    Some(_) => return Err(MalformedResponse),
                }
            }
            _ => return Err(MalformedResponse),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REDIRECT: &[u8] =
        b"HTTP/1.1 302 Found\r\nlocation: https://a/?x=1\r\nContent-Length: 0\r\nDate: now\r\n\r\nHTTP/1.1 4";

    #[test]
    fn a_redirect_ends_where_it_ends() {
        let response = parse(REDIRECT, false, false).unwrap().unwrap();
        assert_eq!(response.len, REDIRECT.len() - "HTTP/1.1 4".len());
        assert_eq!((response.status, response.close), (302, false));
        assert_eq!(&REDIRECT[response.location.unwrap()], b"https://a/?x=1");
        assert_eq!(parse(&REDIRECT[..response.len - 1], false, false), Ok(None));
    }

    #[test]
    fn bodies_of_every_framing_are_measured() {
        let whole = |text: &str, to_head, ended| {
            let response = parse(text.as_bytes(), to_head, ended).unwrap()?;
            Some((response.len, text[response.body].to_owned(), response.close))
        };
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(whole(length, false, false), Some((length.len(), "abc".to_owned(), false)));
        assert_eq!(whole(length, true, false), Some((length.len() - 3, String::new(), false)));
        let chunked = "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n";
        assert_eq!(whole(chunked, false, false).unwrap().0, chunked.len());
        let in_chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let response = parse(in_chunks.as_bytes(), false, false).unwrap().unwrap();
        assert_eq!(&*response.content(in_chunks.as_bytes()), b"abcde");
        for cut in 0..chunked.len() {
            assert_eq!(whole(&chunked[..cut], false, false), None, "{cut}");
        }
        let open = "HTTP/1.0 200 OK\r\n\r\nabc";
        assert_eq!(whole(open, false, false), None);
        assert_eq!(whole(open, false, true), Some((open.len(), "abc".to_owned(), true)));
        let announced = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
        assert_eq!(whole(announced, false, false), Some((announced.len(), String::new(), true)));
    }

    #[test]
    fn what_is_no_response_is_refused() {
        for wrong in [
            "GET / HTTP/1.1\r\n\r\n",
            "HTTP/1.1 xxx\r\n\r\n",
            "\0",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "HTTP/1.1 302 X\r\nLocation: https://b/\r\nLocation: https://a/\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcde0\r\n\r\n",
        ] {
            assert_eq!(parse(wrong.as_bytes(), false, false), Err(MalformedResponse), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(input in proptest::collection::vec(any::<u8>(), 0..300), to_head: bool, ended: bool) {
            let _ = parse(&input, to_head, ended);
        }

        #[test]
        fn no_change_of_a_response_panics(at in 0..REDIRECT.len(), byte: u8, cut in 0..REDIRECT.len()) {
            let mut input = REDIRECT.to_vec();
            input[at] = byte;
            let _ = parse(&input, false, false);
            let _ = parse(&input[..cut], false, true);
        }
    }
}
