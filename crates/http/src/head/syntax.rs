//! The syntax of a request head: the bounds of its request line and fields, and the bytes that they may have.
//!
//! The parser reads each byte once, and eight bytes at a time, because the heads of browsers are long. Nothing here knows
//! what a field means.

use crate::rejection::Rejection;

/// The highest bit of each byte, in which the searches mark bytes.
const HIGH: u64 = repeat(0x80);

/// All bits below it.
const LOW: u64 = repeat(0x7f);

/// True for the bytes of methods and names of fields (RFC 9110, section 5.6.2).
static TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~", false);

/// True for the bytes of hosts with a port: those of RFC 3986, section 3.2, without the comma, and all outside of ASCII.
static HOST: [bool; 256] = table(b".-_~:[]%!$&'()*+;=", true);

/// A request line.
pub(super) struct RequestLine<'a> {
    /// The method: a token that begins with a capital letter.
    pub(super) method: &'a [u8],
    /// The request target.
    pub(super) target: &'a [u8],
    /// True if the target consists of visible ASCII. No other target is valid.
    pub(super) is_visible: bool,
    /// True for HTTP/1.1, false for HTTP/1.0.
    pub(super) is_http11: bool,
    /// The bytes behind the line.
    pub(super) behind: &'a [u8],
}

/// Parses the request line at the start of `bytes`.
///
/// # Errors
/// `VersionNotSupported` if it is valid up to its version, which is neither HTTP/1.0 nor HTTP/1.1. `BadRequest` for any
/// other fault, and if the line does not end.
#[inline]
pub(super) fn request_line(bytes: &[u8]) -> Result<RequestLine<'_>, Rejection> {
    let (method, rest) = method(bytes).ok_or(Rejection::BadRequest)?;
    let len = leading(rest, not_visible);
    let is_visible = rest.get(len) == Some(&b' ');
    let len = if is_visible { len } else { other_target_len(rest) };
    let (target, rest) = rest.split_at(len);
    let rest = rest.strip_prefix(b" ").ok_or(Rejection::BadRequest)?;
    if target.is_empty() {
        return Err(Rejection::BadRequest);
    }
    let (is_http11, rest) = match rest.split_first_chunk::<8>() {
        Some((b"HTTP/1.1", rest)) => (true, rest),
        Some((b"HTTP/1.0", rest)) => (false, rest),
        _ => return Err(Rejection::VersionNotSupported),
    };
    let behind = rest.strip_prefix(b"\r\n").ok_or(Rejection::BadRequest)?;
    Ok(RequestLine { method, target, is_visible, is_http11, behind })
}

/// Returns the method at the start of `bytes`, and the bytes behind its space. Every method in use begins with a capital
/// letter.
#[inline]
fn method(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if let Some(rest) = bytes.strip_prefix(b"GET ") {
        return Some((b"GET", rest));
    }
    let (method, rest) = bytes.split_at(token_len(bytes));
    method.first().filter(|first| first.is_ascii_uppercase())?;
    Some((method, rest.strip_prefix(b" ")?))
}

/// Returns the length of a target that does not consist of visible ASCII alone: 0 if it is not even UTF-8.
#[cold]
fn other_target_len(bytes: &[u8]) -> usize {
    let is_end = |byte: &u8| !byte.is_ascii_graphic() && byte.is_ascii();
    let len = bytes.iter().position(is_end).unwrap_or(bytes.len());
    if std::str::from_utf8(&bytes[..len]).is_ok() { len } else { 0 }
}

/// Returns the name and the value of the field at the start of `bytes`, and the bytes behind its line. `None` if it is
/// not valid or does not end. The value has no whitespace at its ends.
#[inline]
pub(super) fn field(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let len = leading(bytes, not_letter_or_dash);
    // Names with other characters are rare.
    let len = if bytes.get(len) == Some(&b':') { len } else { token_len(bytes) };
    let (name, rest) = bytes.split_at(len);
    let mut rest = rest.strip_prefix(b":")?;
    if name.is_empty() {
        return None;
    }
    while let [b' ' | b'\t', behind @ ..] = rest {
        rest = behind;
    }
    let mut len = leading(rest, not_text);
    while rest.get(len) == Some(&b'\t') {
        len += 1;
        len += leading(&rest[len..], not_text);
    }
    let (mut value, rest) = rest.split_at(len);
    let behind = rest.strip_prefix(b"\r\n")?;
    while let [front @ .., b' ' | b'\t'] = value {
        value = front;
    }
    Some((name, value, behind))
}

/// True if a value is that of `Host`: a host with an optional port, without user, path, space or list.
pub(super) fn is_host(value: &[u8]) -> bool {
    // Nearly all hosts are sound, so no byte needs a branch of its own.
    let is_sound = || value.iter().fold(true, |so_far, &byte| so_far & HOST[usize::from(byte)]);
    (1..=255 + 6).contains(&value.len()) && is_sound()
}

/// Returns how many bytes at the start are those of a token.
fn token_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| !TOKEN[usize::from(byte)]).unwrap_or(bytes.len())
}

/// Returns how many bytes precede the first one that `others` marks; it marks zeros. The first of eight bytes is the
/// lowest one.
#[inline]
fn leading(bytes: &[u8], others: impl Fn(u64) -> u64) -> usize {
    let (eights, last) = bytes.as_chunks::<8>();
    for (at, eight) in eights.iter().enumerate() {
        let marks = others(u64::from_le_bytes(*eight));
        if marks != 0 {
            return 8 * at + marks.trailing_zeros() as usize / 8;
        }
    }
    let mut eight = [0; 8];
    eight[..last.len()].copy_from_slice(last);
    8 * eights.len() + others(u64::from_le_bytes(eight)).trailing_zeros() as usize / 8
}

/// Marks each byte that is not visible ASCII.
#[inline]
fn not_visible(eight: u64) -> u64 {
    (eight | !within(eight & LOW, b'!', b'~')) & HIGH
}

/// Marks each control character.
#[inline]
fn not_text(eight: u64) -> u64 {
    !(eight | within(eight & LOW, b' ', b'~')) & HIGH
}

/// Marks each byte that is neither a letter nor a dash.
#[inline]
fn not_letter_or_dash(eight: u64) -> u64 {
    let low = eight & LOW;
    let letter = within(low | repeat(0x20), b'a', b'z');
    (eight | !(letter | within(low, b'-', b'-'))) & HIGH
}

/// Marks each byte from `first` to `last`, besides other bits below the highest one. `low` has no byte outside of ASCII,
/// so no sum leaves its byte: it has the highest bit if the byte is at least `first`, or more than `last`.
#[inline]
fn within(low: u64, first: u8, last: u8) -> u64 {
    (low + repeat(0x80 - first)) ^ (low + repeat(0x7f - last))
}

/// Returns eight times the same byte.
const fn repeat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Returns a table that is true for letters, digits and `marks`, and with `beyond_ascii` for all bytes outside of ASCII.
const fn table(marks: &[u8], beyond_ascii: bool) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = (byte as u8).is_ascii_alphanumeric() || (beyond_ascii && byte >= 0x80);
        byte += 1;
    }
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_marked_by_itself() {
        let is_letter_or_dash = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-';
        let is_text = |byte: u8| !byte.is_ascii_control();
        let is_visible = |byte: u8| byte.is_ascii_graphic();
        for byte in 0..=u8::MAX {
            for around in [0, b'-', b'a', b'\r', 0x7f, 0x80, 0xff] {
                for at in 0..8 {
                    let mut eight = [around; 8];
                    eight[at] = byte;
                    let of_eight = |others: fn(u64) -> u64| others(u64::from_le_bytes(eight)).to_le_bytes();
                    let expected = |is_in: fn(u8) -> bool| eight.map(|byte| if is_in(byte) { 0_u8 } else { 0x80 });
                    assert_eq!(of_eight(not_letter_or_dash), expected(is_letter_or_dash), "{eight:?}");
                    assert_eq!(of_eight(not_text), expected(is_text), "{eight:?}");
                    assert_eq!(of_eight(not_visible), expected(is_visible), "{eight:?}");
                }
            }
        }
    }

    #[test]
    fn a_search_ends_at_any_place() {
        for len in 0..40 {
            for behind in [&b""[..], b"\r", b"\x7f\n", b"\t12345678"] {
                let bytes = [&vec![b'x'; len][..], behind].concat();
                assert_eq!(leading(&bytes, not_text), len);
                let field = [&b"A:"[..], &bytes[..len], b"\r\n"].concat();
                assert_eq!(super::field(&field), Some((&b"A"[..], &bytes[..len], &b""[..])));
            }
        }
    }

    #[test]
    fn whitespace_at_the_ends_of_a_value_is_removed() {
        let value = |line: &'static str| field(line.as_bytes()).map(|(_, value, _)| value);
        assert_eq!(value("A: \t b\t c \t\r\n\r\n"), Some(&b"b\t c"[..]));
        assert_eq!(value("A:b\r\n"), Some(&b"b"[..]));
        assert_eq!(value("A-1_~: \t \r\nB"), Some(&b""[..]));
        for line in ["", "A", "A:", "A:b", "A:b\r", "A:b\n", "A :b\r\n", ":b\r\n", "A\r:b\r\n", "A:b\x7f\r\n"] {
            assert_eq!(value(line), None, "{line:?}");
        }
    }
}
