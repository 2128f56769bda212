//! Tests of the parser of heads, and a plain parser to compare it with.

use super::*;
use carom_limits::HEAD_LEN_MAX;
use proptest::prelude::*;
use proptest::sample::{Index, select};

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
    assert!(head.is_http11);
    assert!(head.accepts_html);
    assert!(!head.close);
    assert!(!head.is_unusual);
    assert_eq!(head.body, Body::None);
}

/// Compares a name with all names that differ from it in one byte.
fn check_name<const N: usize>(name: &[u8; N]) {
    assert!(is_name(&name.to_ascii_uppercase(), name));
    assert!(!is_name(&name[1..], name));
    assert!(!is_name(&[&name[..], b"s"].concat(), name));
    for at in 0..N {
        for byte in (0..=u8::MAX).filter(|byte| *byte != b'\r') {
            let mut other = *name;
            other[at] = byte;
            assert_eq!(is_name(&other, name), other.eq_ignore_ascii_case(name), "{}", other.escape_ascii());
        }
    }
}

#[test]
fn names_are_compared_in_any_case() {
    check_name(b"host");
    check_name(b"expect");
    check_name(b"referer");
    check_name(b"forwarded");
    check_name(b"keep-alive");
    check_name(b"content-length");
    check_name(b"accept-language");
}

#[test]
fn lines_of_one_field_are_one_list() {
    let head = b"GET /forwarded HTTP/1.1\r\nHost: a\r\nForwarded: for=1.2.3.4\r\nX-Forwarded-For: 9.9.9.9\r\nFORWARDED:for=5.6.7.8\r\n\r\n";
    assert_eq!(all_of(head, "forwarded"), b" for=1.2.3.4,for=5.6.7.8");
    assert_eq!(all_of(head, "x-forwarded-for"), b" 9.9.9.9");
    assert_eq!(all_of(head, "via"), b"");
    let parsed = parse(head).unwrap();
    assert!(parsed.is_split);
    assert!(!parsed.is_unusual);
    assert!(parsed.forwarded == b"for=5.6.7.8");
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
        assert_eq!(rejected(&format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n")), Rejection::Tunnel, "{target}");
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

/// Parses a complete head with httparse, and takes its fields one after the other by their names. [`parse`] must return
/// the same.
fn parse_plainly(bytes: &[u8]) -> Result<Head<'_>, Rejection> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) if len == bytes.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Rejection::HeadTooLarge),
        Err(httparse::Error::Version) => {
            let minor = later_minor(bytes).ok_or(version_rejection(bytes))?;
            let mut as_http11 = bytes.to_vec();
            as_http11[minor] = b'1';
            return parse_plainly(as_http11.leak());
        }
        _ => return Err(Rejection::BadRequest),
    }
    let (name, target) = (request.method.unwrap(), request.path.unwrap().as_bytes());
    let is_http11 = request.version == Some(1);
    let method = match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "CONNECT" => return Err(Rejection::Tunnel),
        _ => Method::Other,
    };
    let has_form = target.starts_with(b"/") || is_other_form(name.as_bytes(), target);
    if !has_form || !target.iter().all(u8::is_ascii_graphic) {
        return Err(Rejection::BadRequest);
    }
    let body = plain_body(request.headers, is_http11)?;
    let values = |name| values(request.headers, name);
    let last = |name| values(name).pop().unwrap_or_default();
    let is_split = |name| values(name).iter().rev().skip(1).any(|line| !line.is_empty());
    let listed = values("connection").into_iter().flat_map(|value| value.split(|&b| b == b','));
    let options: Vec<&[u8]> = listed.map(<[u8]>::trim_ascii).collect();
    let has_option = |name: &[u8]| options.iter().any(|option| option.eq_ignore_ascii_case(name));
    let is_known = |option: &&[u8]| [&b"close"[..], b"keep-alive"].iter().any(|name| option.eq_ignore_ascii_case(name));
    let is_unusual = !options.iter().all(is_known) || !values("expect").is_empty() || !values("upgrade").is_empty();
    Ok(Head {
        method,
        target,
        is_http11,
        body,
        close: has_option(b"close") || (!is_http11 && !has_option(b"keep-alive")),
        accepts_html: values("accept").iter().any(|value| names_html(value)),
        host: last("host"),
        user_agent: last("user-agent"),
        forwarded: last("forwarded"),
        x_forwarded_for: last("x-forwarded-for"),
        is_split: is_split("forwarded") || is_split("x-forwarded-for"),
        referer: last("referer"),
        accept_language: values("accept-language").first().copied().unwrap_or_default(),
        is_unusual: is_unusual || body != Body::None,
    })
}

/// Returns the values of all fields with this name.
fn values<'a>(fields: &[httparse::Header<'a>], name: &str) -> Vec<&'a [u8]> {
    let named = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
    named.map(|field| field.value).collect()
}

/// Returns the delimiting of the body, or else the first fault of a field.
fn plain_body(fields: &[httparse::Header<'_>], is_http11: bool) -> Result<Body, Rejection> {
    let mut body = None;
    let mut is_chunked = false;
    for field in fields {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("host") && !is_plain_host(field.value) {
            return Err(Rejection::BadRequest);
        } else if is("expect") && !field.value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Rejection::ExpectationFailed);
        } else if is("content-length") {
            let length = content_length(field.value)?;
            if body.replace(Body::Length(length)).is_some() {
                return Err(Rejection::BadRequest);
            }
        } else if is("transfer-encoding") {
            if is_chunked {
                return Err(Rejection::BadRequest);
            }
            transfer_encoding(field.value)?;
            is_chunked = true;
        }
    }
    let hosts = values(fields, "host").len();
    if (is_chunked && (body.is_some() || !is_http11)) || hosts > 1 || (is_http11 && hosts == 0) {
        return Err(Rejection::BadRequest);
    }
    Ok(if is_chunked { Body::Chunked } else { body.unwrap_or(Body::None) })
}

fn is_plain_host(value: &[u8]) -> bool {
    let is_allowed = |&byte: &u8| byte.is_ascii_alphanumeric() || b".-_~:[]%!$&'()*+;=".contains(&byte) || byte >= 0x80;
    (1..=261).contains(&value.len()) && value.iter().all(is_allowed)
}

fn names_html(value: &[u8]) -> bool {
    value.split(|&b| b == b',').any(|range| {
        let media = range.split(|&b| b == b';').next().unwrap().trim_ascii().to_ascii_lowercase();
        media == b"text/html" || media == b"application/xhtml+xml"
    })
}

/// Checks that the first head in these bytes is found and parsed as by the plain parser, in one pass and in two.
fn check(bytes: &[u8]) {
    let end = HeadScan::default().find_end(bytes, HEAD_LEN_MAX);
    let plain = |end: usize| parse_plainly(&bytes[..end]).map(|head| (head, end));
    let expected = end.and_then(|end| end.map(plain).transpose());
    assert_eq!(HeadScan::default().parse(bytes, HEAD_LEN_MAX), expected, "{}", bytes.escape_ascii());
    if let Ok(Some(end)) = end {
        assert_eq!(parse(&bytes[..end]).map(|head| Some((head, end))), expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn each_byte_counts_as_for_the_plain_parser() {
    for head in [
        "GET /a?b HTTP/1.1\r\nHost: a.b:8\r\nAccept:text/html;q=1, b\r\nX-1_a: \t\r\nUser-Agent: c \t\r\nDNT: 1\r\n\r\n",
        "POST http://a/ HTTP/1.1\r\nhost: a\r\nContent-Length: 15\r\nExpect: 100-continue\r\nForwarded: b\tc\r\n\r\nbody",
        "HEAD / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: close, keep-alive\r\nAccept-Language: d\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: b\r\nX-Forwarded-For: 1.2.3.4\r\nReferer: https://a/\r\nAccept: */*\r\n\r\n",
    ] {
        for at in 0..head.len() {
            for byte in 0..=u8::MAX {
                let mut changed = head.as_bytes().to_vec();
                changed[at] = byte;
                check(&changed);
            }
            check(&head.as_bytes()[..at]);
            check(&[&head.as_bytes()[..at], &head.as_bytes()[at + 1..]].concat());
        }
    }
}

#[test]
fn faults_have_the_order_of_the_plain_parser() {
    for line in [
        "GET /\u{e9} HTTP/1.1",
        "GET /\u{e9} HTTP/2.0",
        "PRI * HTTP/2.0",
        "CONNECT a HTTP/1.1",
        "GET a HTTP/1.5",
        "GET / HT",
    ] {
        for fields in ["", "Host: a\r\n", "Expect: b\r\n", "Expect: b\r\nC\r\n", "Host: a\r\nHost: a\r\nExpect: b\r\n"]
        {
            check(format!("{line}\r\n{fields}\r\n").as_bytes());
        }
    }
    check(b"GET /\xff HTTP/2.0\r\n\r\n");
    for count in HEADERS_MAX - 2..HEADERS_MAX + 2 {
        for last in ["", "Expect: b\r\n", "C\r\n", "C: \0\r\n"] {
            check(format!("GET / HTTP/1.1\r\nHost: a\r\n{}{last}\r\n", "A: b\r\n".repeat(count)).as_bytes());
        }
    }
}

/// A line of a field, which is valid in most cases.
fn field() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        select(vec!["Host", "ACCEPT", "expect", "Referer", "Upgrade", "Forwarded", "User-Agent", "connection"]),
        select(vec![
            "Content-Length",
            "Transfer-Encoding",
            "Accept-Language",
            "X-Forwarded-For",
            "Cookie",
            "Sec-Fetch-Mode"
        ]),
    ];
    let colon = prop_oneof![20 => Just(": "), 2 => Just(":"), 2 => Just(":\t "), 1 => Just(" :")];
    let value = prop_oneof![
        select(vec![
            "",
            "a",
            "5",
            "chunked",
            "gzip, chunked",
            "100-continue",
            "close",
            "keep-alive, x",
            "Keep-Alive",
            "b , TEXT/html"
        ])
        .prop_map(|value| value.as_bytes().to_vec()),
        "[ -~\t]{0,30}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..3),
    ];
    let end = prop_oneof![40 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r\n "), 1 => Just("\r")];
    (name, colon, value, end)
        .prop_map(|(name, colon, value, end)| [name.as_bytes(), colon.as_bytes(), &value[..], end.as_bytes()].concat())
}

proptest! {
    #[test]
    fn heads_are_read_as_by_the_plain_parser(
        line in "(GET|HEAD|POST|OPTIONS) (/[!-~]{0,20}|\\*|http://a/) HTTP/1\\.[012]\r\n",
        fields in proptest::collection::vec(field(), 0..6),
        (at, byte, is_changed) in (any::<Index>(), any::<u8>(), any::<bool>()),
    ) {
        let mut head = [line.as_bytes(), b"Host: a\r\n", &fields.concat()[..], b"\r\nGET /next"].concat();
        if is_changed {
            let at = at.index(head.len());
            head[at] = byte;
        }
        check(&head);
    }
}
