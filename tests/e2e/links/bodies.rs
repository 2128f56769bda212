//! Invalid bodies of both requests that take one: each is refused with a problem that names the field, nothing is
//! stored or changed, and the node continues.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::http::{Reply, SHORT_URLS, Wire, request};
use crate::support::node::{CAROM, Node, Setup};

const JSON: &str = "Content-Type: application/json\r\n";

/// The end of a Redis command and another command behind it, for a server that does not count bytes.
const FLUSH: &str = r"\r\n*1\r\n$8\r\nFLUSHALL\r\n";

const BODY_MAX: usize = 1024 * 1024;

/// Longest problem that is an answer to a megabyte of nonsense.
const PROBLEM_MAX: usize = 32 * 1024;

/// The link whose changes are tried.
const KEPT: &str = "kept";

/// A body and the refusal that it must get.
struct Bad {
    body: Vec<u8>,
    kind: &'static str,
    fields: Vec<String>,
}

fn bad(body: impl Into<Vec<u8>>, kind: &'static str, fields: &[&str]) -> Bad {
    Bad { body: body.into(), kind, fields: fields.iter().map(|field| (*field).to_owned()).collect() }
}

/// A body that is right but for one field, which has this value.
fn body(field: &str, value: &[u8]) -> Vec<u8> {
    let right = if field == "longUrl" { "" } else { r#""longUrl": "https://example.org/other", "# };
    [b"{", right.as_bytes(), b"\"", field.as_bytes(), b"\": ", value, b"}"].concat()
}

/// Values of other types than the fields have.
fn of_wrong_types() -> Vec<Bad> {
    const TEXTS: &[&str] = &["longUrl", "customSlug", "pathPrefix", "validSince", "validUntil", "title"];
    const NUMBERS: &[&str] = &["redirectStatus", "cacheSeconds", "maxVisits"];
    const FLAGS: &[&str] = &["forwardQuery", "archived", "crawlable", "private", "findIfExists"];
    let fields = [(TEXTS, "\"x\""), (NUMBERS, "301"), (FLAGS, "true"), (&["tags"], "[\"a\"]")];
    let all = [
        "true",
        "0",
        "301",
        "1.5",
        "\"x\"",
        "[]",
        "[\"a\"]",
        "{}",
        "{\"longUrl\": \"https://example.org/\"}",
        "[[[]]]",
    ];
    let is_right = |kind: &str, value: &str| {
        kind == value || kind.starts_with('[') && value == "[]" || kind == "301" && value == "0"
    };
    fields
        .iter()
        .flat_map(|(names, right)| {
            let wrong = all.iter().filter(|value| !is_right(right, value));
            wrong.flat_map(|value| names.iter().map(|name| bad(body(name, value.as_bytes()), "/invalid-data", &[name])))
        })
        .collect()
}

/// Values of the right type that no link can have.
fn out_of_bounds() -> Vec<Bad> {
    let mut values = [wrong_numbers(), wrong_dates(), wrong_texts(), wrong_tags(), wrong_urls(), too_long()].concat();
    values.extend([
        ("domain", text("example.org")),
        ("validateUrl", "true".to_owned()),
        ("shortCodeLength", "3".to_owned()),
        ("shortCodeLength", "33".to_owned()),
        ("pathPrefix", text("a/")),
    ]);
    values.iter().map(|(field, value)| bad(body(field, value.as_bytes()), "/invalid-data", &[field])).collect()
}

/// A JSON string.
fn text(text: &str) -> String {
    format!("\"{text}\"")
}

/// Numbers out of range, each with its field.
fn wrong_numbers() -> Vec<(&'static str, String)> {
    let mut values = Vec::new();
    for number in ["-1", "1e300", "99999999999999999999999", "-99999999999999999999999", "0.1", "18446744073709551615"]
    {
        values.extend(["redirectStatus", "cacheSeconds", "maxVisits"].map(|field| (field, number.to_owned())));
    }
    let numbers =
        [("redirectStatus", "200"), ("cacheSeconds", "2147483648"), ("maxVisits", "0"), ("maxVisits", "4294967296")];
    values.extend(numbers.map(|(field, number)| (field, number.to_owned())));
    values
}

/// Dates that do not exist or are out of range.
fn wrong_dates() -> Vec<(&'static str, String)> {
    let mut values = Vec::new();
    for date in [
        "1969-12-31T23:59:59Z",
        "0000-01-01T00:00:00Z",
        "-000001-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "+010000-01-01T00:00:00Z",
        "9999-12-31T23:59:59-10:00",
        "2027-02-29T00:00:00Z",
        "2027-01-01T24:00:01Z",
        "2027-01-01",
        "2027-01-01T00:00:00",
        "2027-01-01T00:00:00Z[Europe/Berlin]",
        "2027-01-01T00:00:00Z\\r\\n",
        "2027-01-01T00:00:00+99:99",
        "1700000000",
        FLUSH,
    ] {
        values.extend(["validSince", "validUntil"].map(|field| (field, text(date))));
    }
    values
}

/// Slugs and titles with forbidden characters.
fn wrong_texts() -> Vec<(&'static str, String)> {
    let mut values = Vec::new();
    let slugs = [
        "a\\\"b",
        "a'b",
        "a\\\\b",
        "a\\u0000",
        "\\u0000",
        "../../etc/passwd",
        "a/b",
        "%00",
        "é",
        "\\u202e",
        "a b",
        "rest",
        FLUSH,
    ];
    values.extend(slugs.map(|slug| ("customSlug", text(slug))));
    values.extend(
        ["\\u0000", "a\\nb", "\\u009f.", "a\\u007f", FLUSH].map(|title| ("title", text(&format!("a{title}b")))),
    );
    values
}

/// Tags that are empty, too long, too many, or hold forbidden characters.
fn wrong_tags() -> Vec<(&'static str, String)> {
    let mut values = Vec::new();
    for tag in ["", " ", "\\u0000.", "a\\nb", &format!("a{FLUSH}b"), &"é".repeat(256), &"x".repeat(65_536)] {
        values.push(("tags", format!("[\"right\", \"{tag}\"]")));
    }
    values.push(("tags", format!("[{}\"x\"]", "\"x\", ".repeat(100_000))));
    values.push(("tags", json!((0..65).map(|number| format!("t{number}")).collect::<Vec<_>>()).to_string()));
    values.push((
        "tags",
        json!((0..60).map(|number| format!("{number}{}", "é".repeat(100))).collect::<Vec<_>>()).to_string(),
    ));
    values
}

/// Destinations that are no web address.
fn wrong_urls() -> Vec<(&'static str, String)> {
    let mut values = Vec::new();
    let urls = [
        "",
        "  ",
        "a",
        "//example.org/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "redis://127.0.0.1/",
        "https://",
    ];
    values.extend(urls.map(|url| ("longUrl", text(url))));
    let ends = ["\\u0000", "\\t", FLUSH, "\\u007f"];
    values.extend(ends.map(|end| ("longUrl", text(&format!("https://example.org/a{end}b")))));
    values.extend(
        ["https://a:b@example.org/", "https://exa\\u0000mple.org/", "https://[::1", "https://a:99999/"]
            .map(|url| ("longUrl", text(url))),
    );
    values
}

/// Texts longer than their fields.
fn too_long() -> Vec<(&'static str, String)> {
    let mut values = Vec::new();
    for (field, len) in
        [("longUrl", 65_536), ("customSlug", 65), ("customSlug", 65_536), ("title", 513), ("title", 65_536)]
    {
        values.push((
            field,
            if field == "longUrl" { text(&format!("https://{}", "x".repeat(len))) } else { text(&"x".repeat(len)) },
        ));
    }
    values.extend(
        ["validSince", "validUntil", "redirectStatus", "cacheSeconds", "maxVisits"]
            .map(|field| (field, text(&"x".repeat(65_536)))),
    );
    values
}

/// Values that are no JSON.
fn no_json() -> Vec<Bad> {
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(10_000), close.repeat(10_000)).into_bytes();
    let values: Vec<Vec<u8>> = vec![
        br#""\ud800""#.to_vec(),
        br#""\udc00x""#.to_vec(),
        br#""\ud800A""#.to_vec(),
        br#""\ud800\ud800""#.to_vec(),
        br#""\u00""#.to_vec(),
        br#""\x41""#.to_vec(),
        b"\"a\0b\"".to_vec(),
        b"\"a\r\nb\"".to_vec(),
        b"\"\xff\"".to_vec(),
        b"\"\xc0\x80\"".to_vec(),
        b"\"\xed\xa0\x80\"".to_vec(),
        b"\"\xf4\x90\x80\x80\"".to_vec(),
        b"\"cut \xe2\x82\"".to_vec(),
        b"1e999".to_vec(),
        b"-1e999".to_vec(),
        b"NaN".to_vec(),
        b"Infinity".to_vec(),
        b"0x10".to_vec(),
        b"01".to_vec(),
        b"+1".to_vec(),
        b"'x'".to_vec(),
        b"x".to_vec(),
        b"\0".to_vec(),
        b"// x\n1".to_vec(),
        b"[1,]".to_vec(),
        b"\"no end".to_vec(),
        deep("[", "]"),
        deep("{\"a\": ", "}"),
        b"[".repeat(10_000),
        b"{\"a\":".repeat(200_000),
    ];
    let fields = ["longUrl", "title", "tags", "validUntil", "customSlug", "cacheSeconds", "colour"];
    let values = values.iter().flat_map(|value| fields.map(|field| (field, value)));
    values.map(|(field, value)| bad(body(field, value), "/malformed-request-body", &[field])).collect()
}

/// Bodies that are wrong as a whole.
fn no_object() -> Vec<Bad> {
    let mut bodies: Vec<Vec<u8>> = [
        "",
        " ",
        "\0",
        "[]",
        "[{\"longUrl\": \"https://example.org/\"}]",
        "null",
        "true",
        "1",
        "\"x\"",
        "{",
        "}",
        "{}}",
        "{} {}",
        "{longUrl: 1}",
        "{'longUrl': 1}",
        "{\"\\ud800\": 1}",
        "longUrl=https://example.org/",
        "\u{feff}{}",
        "*1\r\n$8\r\nFLUSHALL\r\n",
    ]
    .map(|body| body.as_bytes().to_vec())
    .to_vec();
    bodies.push(b"{\"a\xff\": 1}".to_vec());
    bodies.push("{\"longUrl\": \"https://example.org/\"}".encode_utf16().flat_map(u16::to_le_bytes).collect());
    bodies.push(b"[".repeat(10_000));
    bodies.push(b"[".repeat(BODY_MAX));
    bodies.push(b" ".repeat(BODY_MAX));
    let behind_a_name = ["{\"title\"}", "{\"title\":}", "{\"title\" 1}", "{\"title\":"]
        .map(|body| bad(body, "/malformed-request-body", &["title"]));
    bodies.into_iter().map(|body| bad(body, "/malformed-request-body", &[])).chain(behind_a_name).collect()
}

/// Fields that are none, or there twice.
fn wrong_names() -> Vec<Bad> {
    let url = r#""longUrl": "https://example.org/other""#;
    let cut = format!("{}…", "x".repeat(64));
    let many: Vec<String> = (0..60_000).map(|number| format!("\"f{number:05}\": 1")).collect();
    let named: Vec<String> = (0..64).map(|number| format!("f{number:05}")).collect();
    let twice: Vec<String> = (0..30_000).map(|number| format!("\"f{number:05}\": 1, \"f{number:05}\": 1")).collect();
    let mut bodies = vec![
        bad(format!("{{{url}, {}}}", many.join(", ")), "/invalid-data", &[]),
        bad(format!("{{{url}, {}}}", twice.join(", ")), "/invalid-data", &[]),
        bad(format!("{{{url}, \"{}\": 1}}", "x".repeat(65_536)), "/invalid-data", &[&cut]),
        bad(format!("{{{url}, {url}}}"), "/invalid-data", &["longUrl"]),
        bad(format!("{{{url}, \"longUrl\": null}}"), "/invalid-data", &["longUrl"]),
        bad(format!("{{{url}, \"l\\u006fngUrl\": \"https://example.org/2\"}}"), "/invalid-data", &["longUrl"]),
        bad(
            format!("{{{url}, \"title\": \"a\", \"tags\": [], \"title\": \"a\", \"tags\": []}}"),
            "/invalid-data",
            &["tags", "title"],
        ),
        bad(
            r#"{"longUrl": "https://example.org/", "longURL": "https://example.org/2"}"#,
            "/invalid-data",
            &["longURL"],
        ),
    ];
    bodies[0].fields.clone_from(&named);
    bodies[1].fields = named;
    for name in [
        "colour",
        "",
        " longUrl",
        "__proto__",
        "constructor",
        "meta",
        "shortCode",
        "shortUrl",
        "dateCreated",
        "a\"b",
        "\0",
        "é",
        "$ne",
    ] {
        let json = json!({"longUrl": "https://example.org/other", name: {"a": 1}});
        bodies.push(bad(json.to_string(), "/invalid-data", &[name]));
    }
    bodies
}

/// Sends a body and checks that it is refused as it should be.
fn refused(wire: &mut Wire, method: &str, path: &str, bad: &Bad) {
    // Also of an empty body the length is told.
    let length = if bad.body.is_empty() { "Content-Length: 0\r\n" } else { "" };
    let reply = wire.ask(method, path, &format!("{JSON}{length}"), &bad.body);
    let shown = String::from_utf8_lossy(&bad.body[..bad.body.len().min(200)]).into_owned();
    assert_eq!(reply.status, 400, "{method} {shown}: {}", reply.text());
    let problem = reply.problem(400, bad.kind);
    let expected = if bad.fields.is_empty() { Value::Null } else { json!(bad.fields) };
    assert_eq!(problem["invalidElements"], expected, "{method} {shown}: {problem}");
    assert!(reply.body.len() < PROBLEM_MAX, "{} bytes", reply.body.len());
}

/// Checks what is refused before it is read.
fn unreadable(node: &Node, method: &str, path: &str) {
    let mut wire = node.wire();
    let right = br#"{"longUrl": "https://example.org/other"}"#;
    for kind in [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "json",
        "*/*",
    ] {
        let kind = if kind.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
        wire.ask(method, path, &kind, right).problem(415, ":unsupported-media-type");
    }
    let mut large = right.to_vec();
    large.resize(BODY_MAX + 1, b' ');
    let last = |bytes: &[u8]| -> Reply {
        let mut wire = node.wire();
        // The refusal may come before all is sent.
        let _ = wire.try_send(bytes);
        wire.reply()
    };
    last(&request(method, path, JSON, &large)).problem(413, ":body-too-large");
    let mut chunked = request(method, path, &format!("{JSON}Transfer-Encoding: chunked\r\n"), b"");
    large.chunks(0x1000).for_each(|chunk| {
        chunked.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    });
    chunked.extend_from_slice(b"0\r\n\r\n");
    last(&chunked).problem(413, ":body-too-large");
}

/// Every link of a node that does not run, as lines.
fn export(setup: &Setup) -> String {
    let done = Command::new(CAROM).args(["export", "--data-dir"]).arg(setup.data_dir()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn invalid_bodies_name_the_field() {
    let bodies: Vec<Bad> =
        [of_wrong_types(), out_of_bounds(), no_json(), no_object(), wrong_names()].into_iter().flatten().collect();
    for cores in [1, 3] {
        let data = tempfile::tempdir().unwrap();
        let node = Setup::new(data.path()).cores(cores).start();
        let kept = json!({"longUrl": "https://example.org/kept", "customSlug": KEPT, "title": "T", "tags": ["a"],
            "validSince": "2026-01-01T00:00:00Z", "validUntil": "2100-01-01T00:00:00Z", "cacheSeconds": 5});
        assert_eq!(node.wire().create(&kept).status, 200);
        node.wire().shorten("https://example.org/issued");
        let setup = node.terminate();
        let before = export(&setup);
        assert_eq!(before.lines().count(), 2);
        let node = setup.start();
        let one = format!("{SHORT_URLS}/{KEPT}");
        let link = node.wire().get(&one).json();
        // Several connections, so that every core gets some.
        let mut wires: Vec<Wire> = (0..4 * cores).map(|_| node.wire()).collect();
        for (number, bad) in bodies.iter().enumerate() {
            let wire = &mut wires[number % (4 * cores)];
            refused(wire, "POST", SHORT_URLS, bad);
            refused(wire, "PATCH", &one, bad);
            assert_eq!(
                wire.get(&one).json(),
                link,
                "{}",
                String::from_utf8_lossy(&bad.body[..bad.body.len().min(200)])
            );
        }
        for wire in &mut wires {
            // What is only wrong for one of the two.
            refused(wire, "POST", SHORT_URLS, &bad("{}", "/invalid-data", &["longUrl"]));
            for field in ["customSlug", "private"] {
                refused(wire, "PATCH", &one, &bad(format!("{{\"{field}\": null}}"), "/invalid-data", &[field]));
            }
            let contrary = r#"{"validSince": "2100-01-01T00:00:00Z"}"#;
            refused(wire, "PATCH", &one, &bad(contrary, "/invalid-data", &["validSince"]));
        }
        unreadable(&node, "POST", SHORT_URLS);
        unreadable(&node, "PATCH", &one);
        assert_eq!(node.status()["links"], json!(2));
        assert_eq!(node.wire().get(&one).json(), link);
        assert_eq!(node.wire().get(&format!("/{KEPT}")).location(), "https://example.org/kept");
        assert_eq!(export(&node.terminate()), before);
    }
}
