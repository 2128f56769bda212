//! First steps of a user: create, follow, read and delete a link, and read the error messages.

use std::time::{Duration, SystemTime};

use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;
use serde_json::{Value, json};

use crate::support::http::{SHORT_URLS, Wire, agent, curl, received, replies};
use crate::support::node::{Node, Setup, wait_for};

const TARGET: &str = "https://example.org/a/b?c=d#e";

/// Fields of the API that make hyper drive a connection from then on.
const HEALTH: &str = "/rest/health";

const CORES: usize = 2;

fn node(data: &tempfile::TempDir) -> Node {
    // Links that expired long ago would be removed within seconds, and get 404.
    Setup::new(data.path()).cores(CORES).env("CAROM_LINKS_KEEP_EXPIRED", "forever").start()
}

/// A connection that hyper drives.
fn slow_wire(node: &Node) -> Wire {
    let mut wire = node.wire();
    assert_eq!(wire.get(HEALTH).status, 200);
    wire
}

#[test]
fn library_creates_follows_reads_deletes() {
    let data = tempfile::tempdir().unwrap();
    let node = node(&data);
    let agent = agent();
    let made = received(agent.post(node.url(SHORT_URLS)).send_json(json!({"longUrl": TARGET})).unwrap());
    assert_eq!(made.field("content-type"), Some("application/json"));
    let code = made.code();
    assert_eq!(code.len(), 7);
    let mut link = made.json();
    check_link(&link, &code, &node.url(&format!("/{code}")));
    let followed = received(agent.get(link["shortUrl"].as_str().unwrap()).call().unwrap());
    assert_eq!((followed.status, followed.location()), (302, TARGET));
    let read = received(agent.get(node.url(&format!("{SHORT_URLS}/{code}"))).call().unwrap());
    link["visitsSummary"] = json!({"total": 1, "nonBots": 1, "bots": 0});
    assert_eq!((read.status, read.json()), (200, link));
    let deleted = received(agent.delete(node.url(&format!("{SHORT_URLS}/{code}"))).call().unwrap());
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    assert_eq!(received(agent.get(node.url(&format!("/{code}"))).call().unwrap()).status, 404);
    let gone = received(agent.get(node.url(&format!("{SHORT_URLS}/{code}"))).call().unwrap());
    assert_eq!(gone.problem(404, "/short-url-not-found")["shortCode"], json!(code));
    node.terminate();
}

/// Every field that clients of Shlink's API look for.
fn check_link(link: &Value, code: &str, short_url: &str) {
    let created = dates::parse(link["dateCreated"].as_str().unwrap()).unwrap();
    assert!(unix_ms().abs_diff(created) < 120_000, "{link}");
    let expected = json!({
        "shortCode": code, "shortUrl": short_url, "longUrl": TARGET, "dateCreated": link["dateCreated"],
        "visitsSummary": {"total": 0, "nonBots": 0, "bots": 0}, "tags": [],
        "meta": {"validSince": null, "validUntil": link["meta"]["validUntil"], "maxVisits": null},
        "domain": null, "title": null, "crawlable": false, "forwardQuery": true,
        "hasRedirectRules": false,
        "redirectStatus": 302, "cacheSeconds": null, "archived": false, "private": false, "blocked": false, "app": null,
        "appVersion": null,
    });
    assert_eq!(*link, expected);
    // Two years, unless the settings say otherwise.
    let instant = |value: &Value| dates::parse(value.as_str().unwrap()).unwrap();
    let life_ms = instant(&link["meta"]["validUntil"]) - instant(&link["dateCreated"]);
    assert_eq!(life_ms, 2 * 365 * 86_400 * 1_000);
}

#[test]
fn curl_creates_follows_reads_deletes() {
    let data = tempfile::tempdir().unwrap();
    let node = node(&data);
    let api = node.url(SHORT_URLS);
    let body = json!({"longUrl": TARGET}).to_string();
    let made = curl(&["-H", "Content-Type: application/json", "-d", &body, &api]);
    let code = made.code();
    let short = node.url(&format!("/{code}"));
    for arguments in [&[][..], &["-I"], &["--http1.0"], &["--http1.0", "-I"], &["-H", "Expect: 100-continue"]] {
        let followed = curl(&[arguments, &[&short]].concat());
        assert_eq!((followed.status, followed.location()), (302, TARGET), "{arguments:?}");
    }
    let long = format!("{api}/{code}");
    let mut link = made.json();
    // Who asks for the head alone does not visit.
    link["visitsSummary"] = json!({"total": 3, "nonBots": 0, "bots": 3});
    assert_eq!(curl(&[&long]).json(), link);
    assert_eq!(curl(&["-X", "DELETE", &long]).status, 204);
    assert_eq!(curl(&[&short]).status, 404);
    node.terminate();
}

#[test]
fn status_and_cache_time_are_sent_as_set() {
    let data = tempfile::tempdir().unwrap();
    // What a link without an end allows.
    let node = Setup::new(data.path()).env("CAROM_LINKS_DEFAULT_TTL", "off").start();
    let (mut wire, mut slow) = (node.wire(), slow_wire(&node));
    for status in [301, 302, 303, 307, 308] {
        for (cache, age) in [(None, 0), (Some(0), 0), (Some(1), 1), (Some(2_147_483_647), 2_147_483_647u64)] {
            let made = slow.create(&json!({"longUrl": TARGET, "redirectStatus": status, "cacheSeconds": cache})).json();
            assert_eq!(&made["redirectStatus"], &json!(status));
            assert_eq!(&made["cacheSeconds"], &json!(cache));
            let path = format!("/{}", made["shortCode"].as_str().unwrap());
            for followed in [wire.get(&path), slow.get(&path)] {
                assert_eq!((followed.status, followed.location()), (status, TARGET));
                assert_eq!(followed.field("cache-control"), Some(format!("private, max-age={age}").as_str()));
                assert_eq!(followed.field("content-length"), Some("0"));
            }
        }
    }
    node.terminate();
}

#[test]
fn expiry_is_exact_and_bounds_caching() {
    let data = tempfile::tempdir().unwrap();
    let node = node(&data);
    let (mut wire, mut slow) = (node.wire(), slow_wire(&node));
    let past = slow.create(&json!({"longUrl": TARGET, "validUntil": "2001-01-01T00:00:00+00:00"})).code();
    assert_eq!(wire.get(&format!("/{past}")).status, 410);
    assert_eq!(slow.get(&format!("/{past}")).status, 410);
    // Longer than a stall of the machine before the first request.
    let until = unix_ms() + 8_500;
    let made = slow.create(&json!({"longUrl": TARGET, "validUntil": dates::format(until), "cacheSeconds": 3600}));
    assert_eq!(made.json()["meta"]["validUntil"], json!(dates::format(until)));
    let path = format!("/{}", made.code());
    let (first, first_at) = (wire.get(&path), unix_ms());
    assert_eq!((first.status, first.location()), (302, TARGET));
    let age: u64 = first.field("cache-control").unwrap().strip_prefix("private, max-age=").unwrap().parse().unwrap();
    assert!(age <= 8, "{age} s to keep what lives 8.5 s");
    assert!(first_at < until, "{age} s to keep what lives 8.5 s");
    let mut late = 0;
    let ended = wait_for("the end of the link", || {
        let before = unix_ms();
        let reply = wire.get(&path);
        // Asked after the end it must not redirect; answered before the end it must. Each core reads the clock once in a
        // turn, in which the machine may pause it.
        late += usize::from(reply.status == 302 && before >= until);
        assert!(late <= CORES, "followed {} ms late", before - until);
        assert!(reply.status == 302 || unix_ms() >= until, "ended too early");
        (reply.status == 410).then_some(reply)
    });
    assert_eq!(ended.lasting_fields(), slow.get(&path).lasting_fields());
    let node = node.restart();
    assert_eq!(node.wire().get(&path).status, 410);
    node.terminate();
}

#[test]
fn slugs_are_validated_and_unique() {
    let data = tempfile::tempdir().unwrap();
    let node = node(&data);
    let mut wire = node.wire();
    let longest = "L".repeat(64);
    for slug in ["a", "_", "-", "A", "with-dash_and_1", &longest] {
        wire.shorten_as(slug, &format!("https://example.org/{slug}"));
    }
    for slug in ["a", "_", "-", "A", "with-dash_and_1", &longest] {
        assert_eq!(node.wire().get(&format!("/{slug}")).location(), format!("https://example.org/{slug}"));
        let taken = wire.create(&json!({"longUrl": TARGET, "customSlug": slug}));
        assert_eq!(taken.problem(400, "/non-unique-slug")["customSlug"], json!(slug));
    }
    let too_long = "L".repeat(65);
    let reserved = ["rest", "REST", "status", "metrics", "healthz", "readyz", "shorturl_status", "v3", "admin"];
    for slug in ["a/b", "a b", "ä", "a.b", "%41", &too_long].into_iter().chain(reserved) {
        let refused = wire.create(&json!({"longUrl": TARGET, "customSlug": slug}));
        assert_eq!(refused.problem(400, "/invalid-data")["invalidElements"], json!(["customSlug"]), "{slug}");
    }
    assert_eq!(node.wire().get(&format!("/{too_long}")).status, 404);
    assert_eq!(wire.delete("a").status, 204);
    wire.shorten_as("a", "https://example.org/again");
    let node = node.restart();
    assert_eq!(node.wire().get("/a").location(), "https://example.org/again");
    node.terminate();
}

#[test]
fn fast_path_and_hyper_agree() {
    let data = tempfile::tempdir().unwrap();
    let node = node(&data);
    let mut slow = slow_wire(&node);
    slow.create(&json!({"longUrl": TARGET, "customSlug": "live", "cacheSeconds": 5}));
    slow.create(&json!({"longUrl": TARGET, "customSlug": "over", "validUntil": "2001-01-01T00:00:00Z"}));
    for path in ["/live", "/live?utm=1", "/over", "/none", "/-"] {
        for accept in ["", "Accept: text/html\r\n", "Accept: */*\r\n"] {
            let mut fast = node.wire();
            let one = fast.ask("GET", path, accept, b"");
            let other = slow.ask("GET", path, accept, b"");
            let fields = one.lasting_fields();
            assert_eq!(one.status, other.status, "{path}");
            assert_eq!(&fields, &other.lasting_fields(), "{path}");
            assert_eq!(&one.body, &other.body, "{path}");
            assert_eq!(one.line, other.line);
            for head in [fast.ask("HEAD", path, accept, b""), slow.ask("HEAD", path, accept, b"")] {
                assert_eq!((head.status, head.lasting_fields()), (one.status, fields.clone()), "HEAD {path}");
                assert_eq!(head.body, b"");
            }
        }
    }
    // Nothing of a HEAD's body was left behind on either connection.
    assert_eq!(slow.get("/live").status, 302);
    node.terminate();
}

#[test]
fn closing_clients_get_one_response() {
    let data = tempfile::tempdir().unwrap();
    let node = node(&data);
    node.wire().shorten_as("old", TARGET);
    let requests = [
        "GET /old HTTP/1.0\r\n\r\n",
        "GET /old HTTP/1.0\r\nHost: a\r\n\r\n",
        "GET /old HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /old HTTP/1.1\r\nHost: a\r\nConnection: CLOSE\r\nUpgrade: x\r\n\r\n",
    ];
    for request in requests {
        let mut wire = node.wire();
        // What comes behind the last request must not be answered.
        wire.send(format!("{request}GET /old HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let all = replies(&wire.read_until_closed());
        assert_eq!(all.len(), 1, "{request}");
        assert_eq!(all[0].status, 302, "{request}");
        assert_eq!(all[0].location(), TARGET, "{request}");
    }
    let mut kept = node.wire();
    for _ in 0..3 {
        kept.send(b"GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(kept.reply().location(), TARGET);
    }
    node.terminate();
}

#[test]
fn own_urls_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let setup = Setup::new(data.path()).over_kernel().argument("--base-url").argument("https://short.example");
    let node = setup.start();
    let mut wire = node.wire();
    let port = node.public.port();
    let mut own: Vec<String> = ["localhost", "LocalHost", "127.0.0.1", "[::1]", "2130706433", "0x7f.1", "localhost."]
        .map(|host| format!("http://{host}:{port}/abc"))
        .to_vec();
    own.extend(["https://short.example/x", "https://SHORT.example:443/", "https://short.example./x"].map(String::from));
    for url in own {
        let refused = wire.create(&json!({"longUrl": url}));
        let problem = refused.problem(400, "/invalid-data");
        assert_eq!(problem["invalidElements"], json!(["longUrl"]), "{url}");
        assert!(problem["detail"].as_str().unwrap().contains("service itself"), "{problem}");
    }
    for url in ["http://localhost:1/", "https://short.example.org/", "http://127.0.0.1/"] {
        let made = wire.create(&json!({"longUrl": url})).json();
        let code = made["shortCode"].as_str().unwrap();
        assert_eq!(made["shortUrl"], json!(format!("https://short.example/{code}")));
    }
    node.terminate();
}

#[test]
fn destinations_are_serialised_or_refused() {
    let data = tempfile::tempdir().unwrap();
    let node = node(&data);
    let mut wire = node.wire();
    let longest = format!("https://example.org/{}", "x".repeat(2_048 - 20));
    for (given, sent) in [
        ("HTTP://EXAMPLE.org", "http://example.org/"),
        ("https://example.org/a b\u{e4}\u{2028}", "https://example.org/a%20b%C3%A4%E2%80%A8"),
        ("https://b\u{fc}cher.example/", "https://xn--bcher-kva.example/"),
        (&longest, &longest),
    ] {
        let code = wire.shorten(given);
        assert_eq!(node.wire().get(&format!("/{code}")).location(), sent, "{given}");
    }
    let too_long = format!("{longest}x");
    let refused = [
        "",
        "/a",
        "example.org",
        "ftp://a/",
        "javascript:alert(1)",
        "data:text/html,x",
        "http://",
        "https://u:p@a/",
        "https://u@a/",
        "http://a/\r\nSet-Cookie: x=y",
        "http://a/\t",
        "http://a\n.b/",
        "http://a:99999/",
        &too_long,
    ];
    for url in refused {
        let problem = wire.create(&json!({"longUrl": url})).problem(400, "/invalid-data");
        assert_eq!(problem["invalidElements"], json!(["longUrl"]), "{url}");
        let is_relative = ["/a", "example.org"].contains(&url);
        let reasons = is_relative.then(|| json!([{"element": "longUrl", "reason": "relative-url"}]));
        assert_eq!(problem.get("invalidReasons"), reasons.as_ref(), "{url}");
    }
    node.terminate();
}

#[test]
fn every_invalid_field_is_named() {
    let data = tempfile::tempdir().unwrap();
    let node = node(&data);
    let mut wire = node.wire();
    let wrong = json!({
        "longUrl": "ftp://a/", "customSlug": "a/b", "validUntil": "soon", "redirectStatus": 200, "cacheSeconds": -1,
        "maxVisits": 0, "colour": "red",
    });
    let problem = wire.create(&wrong).problem(400, "/invalid-data");
    let mut named: Vec<&str> =
        problem["invalidElements"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    named.sort_unstable();
    let mut sent: Vec<&str> = wrong.as_object().unwrap().keys().map(String::as_str).collect();
    sent.sort_unstable();
    assert_eq!(named, sent);
    assert_eq!(wire.create(&json!({})).problem(400, "/invalid-data")["invalidElements"], json!(["longUrl"]));
    for body in ["", "{", "[]", "null", "\"x\"", "{\"longUrl\": \"http://a/\"} x", "{'longUrl': 1}"] {
        let fields = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        wire.send(format!("POST {SHORT_URLS} HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}").as_bytes());
        wire.reply().problem(400, "/malformed-request-body");
    }
    let body = json!({"longUrl": TARGET}).to_string();
    for kind in ["", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"] {
        wire.ask("POST", SHORT_URLS, kind, body.as_bytes()).problem(415, ":unsupported-media-type");
    }
    let kind = "Content-Type: Application/JSON; charset=utf-8\r\n";
    assert_eq!(wire.ask("POST", SHORT_URLS, kind, body.as_bytes()).status, 200);
    assert_eq!(node.status()["links"], json!(1));
    node.terminate();
}

#[test]
fn unknown_paths_and_methods_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let node = node(&data);
    let mut wire = node.wire();
    wire.shorten_as("abc", TARGET);
    for path in ["/rest", "/rest/", "/rest/v3", "/rest/v3/none", "/rest/v3/short-urls/abc/none", "/rest/v4/short-urls"]
    {
        wire.get(path).problem(404, "/not-found");
    }
    let one = format!("{SHORT_URLS}/abc");
    for (method, path, allow) in [
        ("PUT", SHORT_URLS, "GET, HEAD, POST"),
        ("PUT", &one, "GET, HEAD, PATCH, DELETE"),
        ("DELETE", HEALTH, "GET, HEAD"),
        ("POST", "/abc", "GET, HEAD"),
        ("DELETE", "/abc", "GET, HEAD"),
        ("BREW", "/abc", "GET, HEAD"),
    ] {
        let refused = wire.ask(method, path, "", b"");
        refused.problem(405, "/method-not-allowed");
        assert_eq!(refused.field("allow"), Some(allow), "{method} {path}");
    }
    assert_eq!(wire.get("/abc").location(), TARGET);
    assert_eq!(wire.get(HEALTH).json()["status"], json!("pass"));
    wire.delete("unknown").problem(404, "/short-url-not-found");
    wire.delete("not%20a%20code").problem(404, "/short-url-not-found");
    node.terminate();
}

#[test]
fn notices_never_echo_the_request() {
    let data = tempfile::tempdir().unwrap();
    let node = node(&data);
    let mark = "zQx9echo";
    let mut slow = slow_wire(&node);
    slow.create(
        &json!({"longUrl": TARGET, "customSlug": format!("{mark}-over"), "validUntil": "2001-01-01T00:00:00Z"}),
    );
    let browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    let paths =
        [format!("/{mark}"), format!("/{mark}-over"), format!("/a/{mark}"), format!("/%3Cscript%3E{mark}?q={mark}")];
    for path in &paths {
        for (accept, kind) in [(browser, "text/html; charset=utf-8"), ("", "text/plain; charset=utf-8")] {
            for page in [node.wire().ask("GET", path, accept, b""), slow.ask("GET", path, accept, b"")] {
                assert_eq!(page.status, if path.ends_with("-over") { 410 } else { 404 }, "{path}");
                assert_eq!(page.field("content-type"), Some(kind));
                assert_eq!(page.field("x-content-type-options"), Some("nosniff"));
                assert_eq!(page.field("content-security-policy").is_some(), kind.starts_with("text/html"));
                assert!(!page.text().contains(mark), "{path} is echoed");
                assert!(page.fields.iter().all(|(_, value)| !value.contains(mark)), "{path} is echoed in a field");
            }
        }
    }
    let home = slow.ask("GET", "/", browser, b"");
    assert_eq!(home.status, 200);
    assert!(home.text().contains("<title>"));
    assert!(home.text().matches("<script").count() == home.text().matches("<script src=\"/-/page.js?").count());
    node.terminate();
}

#[test]
fn every_response_has_the_current_date() {
    let data = tempfile::tempdir().unwrap();
    let node = node(&data);
    let mut wire = node.wire();
    wire.shorten_as("abc", TARGET);
    let mut garbage = node.wire();
    let before = SystemTime::now();
    garbage.send(b"nonsense\r\n\r\n");
    let answers =
        [node.wire().get("/abc"), node.wire().get("/none"), wire.get("/abc"), wire.get(HEALTH), garbage.reply()];
    for answer in answers {
        let date = httpdate::parse_http_date(answer.field("date").unwrap()).unwrap();
        // However long the machine stands still after that.
        assert!(before.duration_since(date).unwrap_or_default() < Duration::from_secs(5), "{answer:?}");
        assert!(date <= SystemTime::now(), "{answer:?}");
    }
    node.terminate();
}
