//! Responses of the real binary are those that the OpenAPI description allows.

use serde_json::{Value, json};

use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::node::{Setup, wait_until};
use crate::support::openapi::{DESCRIPTION, conforms, conforms_to, description, operations};
use crate::support::store::open_store;

const TARGET: &str = "https://example.org/a";
const ONE: &str = "/rest/v3/short-urls/{shortCode}";
const BULK: &str = "/rest/v3/short-urls/bulk";
const TAGS: &str = "/rest/v3/tags";
const JSON: &str = "Content-Type: application/json\r\n";
const BODY_MAX: usize = 1024 * 1024;
const BROWSER: &str = "User-Agent: Mozilla/5.0 (X11)\r\n";

/// A client that checks each answer against the description.
struct Client<'n> {
    document: &'n Value,
    wire: Wire,
}

impl Client<'_> {
    /// Asks an operation. `code` stands for the parameter of its path.
    fn ask(&mut self, method: &str, path: &str, code: &str, fields: &str, body: &[u8], status: u16) -> Reply {
        let reply = self.wire.ask(method, &path.replace("{shortCode}", code), fields, body);
        self.check(method, path, &reply, status);
        reply
    }

    fn check(&self, method: &str, path: &str, reply: &Reply, status: u16) {
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.text());
        conforms(self.document, &self.document["paths"][path][method.to_ascii_lowercase()], reply);
    }

    /// Reads from a path with a query.
    fn get(&mut self, path: &str, query: &str, status: u16) -> Reply {
        let reply = self.wire.get(&format!("{path}{query}"));
        self.check("GET", path, &reply, status);
        reply
    }

    fn create(&mut self, fields: &Value, status: u16) -> Reply {
        self.ask("POST", SHORT_URLS, "", JSON, fields.to_string().as_bytes(), status)
    }

    fn change(&mut self, code: &str, fields: &Value, status: u16) -> Reply {
        self.ask("PATCH", ONE, code, JSON, fields.to_string().as_bytes(), status)
    }
}

#[test]
fn link_responses_are_described() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).all_interfaces().cores(2).start();
    let document = description(&node);
    let mut client = Client { document: &document, wire: node.wire() };
    let plain = client.create(&json!({"longUrl": TARGET}), 200).code();
    let full = json!({"longUrl": "HTTP://b\u{fc}cher.example/a b", "customSlug": "full", "redirectStatus": 308, "cacheSeconds": 60,
        "validSince": "2026-01-01T00:00:00.5+01:00", "validUntil": "2100-01-01T00:00:00Z", "title": "T", "tags": ["B", "a"],
        "forwardQuery": false, "archived": false, "maxVisits": 7, "crawlable": true, "findIfExists": true});
    client.create(&full, 200);
    client.create(&full, 200);
    let private = client.create(&json!({"longUrl": TARGET, "private": true}), 200).code();
    client.create(&json!({"longUrl": TARGET, "customSlug": "full"}), 400).problem(400, "/non-unique-slug");
    client.create(&json!({"colour": 1, "tags": "a"}), 400).problem(400, "/invalid-data");
    for body in ["[]", "{", "{\"longUrl\": \"\\ud800\"}"] {
        for (method, path) in [("POST", SHORT_URLS), ("PATCH", ONE)] {
            let reply = client.ask(method, path, "full", JSON, body.as_bytes(), 400);
            reply.problem(400, "/malformed-request-body");
            client.ask(method, path, "full", "Content-Type: text/plain\r\n", body.as_bytes(), 415);
        }
    }
    for code in ["full", &plain, &private] {
        client.ask("GET", ONE, code, "", b"", 200);
        client.change(code, &json!({"title": "Other"}), 200);
        client.change(code, &json!({"validSince": "2100-01-01T00:00:00Z", "validUntil": "2026-01-01T00:00:00Z"}), 400);
    }
    for absent in ["nowhere", "a%20b", "%00%ff"] {
        client.ask("GET", ONE, absent, "", b"", 404);
        client.change(absent, &json!({}), 404);
        client.ask("DELETE", ONE, absent, "", b"", 404);
    }
    client.ask("DELETE", ONE, &private, "", b"", 204);
    let large = vec![b' '; BODY_MAX + 1];
    for (method, path) in [("POST", SHORT_URLS), ("PATCH", ONE)] {
        let mut last = Client { document: &document, wire: node.wire() };
        last.ask(method, path, "full", JSON, &large, 413);
    }
    node.terminate();
}

#[test]
fn redirect_and_page_responses_are_described() {
    let data = tempfile::tempdir().unwrap();
    // A link that ended long ago must still be there when it is asked for.
    let setup = Setup::new(data.path()).all_interfaces().cores(2).env("CAROM_LINKS_KEEP_EXPIRED", "forever");
    let node = setup.start();
    let document = description(&node);
    let mut client = Client { document: &document, wire: node.wire() };
    for (slug, fields) in [
        ("over", json!({"validUntil": "2001-01-01T00:00:00Z"})),
        ("away", json!({"archived": true})),
        ("early", json!({"validSince": "2100-01-01T00:00:00Z"})),
    ] {
        let mut fields = fields;
        fields["longUrl"] = json!(TARGET);
        fields["customSlug"] = json!(slug);
        client.create(&fields, 200);
    }
    for status in [301, 302, 303, 307, 308] {
        let code = client.create(&json!({"longUrl": TARGET, "redirectStatus": status, "cacheSeconds": 9}), 200).code();
        client.ask("GET", "/{shortCode}", &code, "", b"", status);
        let fast = node.wire().ask("GET", &format!("/{code}?a=1"), "Referer: https://example.com/\r\n", b"");
        client.check("GET", "/{shortCode}", &fast, status);
        let visits = client.ask("GET", "/rest/v3/short-urls/{shortCode}/visits", &code, "", b"", 200).json();
        assert_eq!(visits["visits"]["summary"]["total"], json!(2), "{visits}");
    }
    client.get("/rest/v3/visits", "", 200);
    client.get("/rest/v3/visits/per-day", "?shortCodes[]=over&shortCodes[]=none", 200);
    // A browser under a name that is nobody's, while no key is asked for.
    for (path, method, operation) in
        operations(&document).filter(|(path, _, it)| *path != "/" && it["responses"]["403"].is_object())
    {
        let lured = client.wire.ask(&method.to_ascii_uppercase(), &path.replace("{shortCode}", "a"), BROWSER, b"");
        assert_eq!(lured.status, 403, "{method} {path}");
        conforms(&document, operation, &lured);
    }
    let visits = format!("{SHORT_URLS}/over/visits");
    for (path, status) in
        [(&*visits, 200), (&format!("{visits}?startDate=soon"), 400), ("/rest/v3/short-urls/none/visits", 404)]
    {
        let reply = client.wire.get(path);
        client.check("GET", "/rest/v3/short-urls/{shortCode}/visits", &reply, status);
    }
    for accept in ["", "Accept: text/html\r\n"] {
        for (code, status) in [("over", 410), ("away", 410), ("early", 404), ("nowhere", 404), ("a.b", 404)] {
            client.ask("GET", "/{shortCode}", code, accept, b"", status);
            let fast = node.wire().ask("GET", &format!("/{code}"), accept, b"");
            client.check("GET", "/{shortCode}", &fast, status);
        }
        client.ask("GET", "/", "", accept, b"", 200);
    }
    wait_until("lists", || client.wire.get("/robots.txt").status == 200);
    for path in ["/rest/health", "/rest/v3/health", DESCRIPTION, "/robots.txt"] {
        client.ask("GET", path, "", "", b"", 200);
        client.ask("GET", path, "", "X-Api-Key: none\r\n", b"", 200);
    }
    node.terminate();
}

#[test]
fn refused_requests_are_described() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let document = description(&node);
    // What is refused before anybody looks at it.
    for (bytes, status) in [
        (&b"GET /over HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"[..], 400),
        (b"GET /over HTTP/3.0\r\nHost: a\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", 417),
        (&[b"GET /over HTTP/1.1\r\nHost: a\r\nX: ", &vec![b'x'; 20_000][..], b"\r\n\r\n"].concat(), 431),
    ] {
        let mut wire = node.wire();
        wire.send(bytes);
        let reply = wire.reply();
        assert_eq!(reply.status, status);
        conforms_to(&document, &document["components"]["responses"]["Refused"], &reply);
    }
    node.terminate();
}

#[test]
fn server_errors_are_described() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path()).expect("a stored record is damaged").expect("store_damaged");
    let node = setup.start();
    node.wire().shorten_as("broken", TARGET);
    node.wire().shorten_as("kept", TARGET);
    let document = description(&node);
    let setup = node.terminate();
    let store = open_store(&setup);
    let mut batch = store.batch();
    batch.put(&carom_shards::Code::parse(b"broken").unwrap(), b"");
    store.commit(batch).unwrap();
    store.sync().unwrap();
    drop(store);
    let node = setup.start();
    let mut client = Client { document: &document, wire: node.wire() };
    client.ask("GET", ONE, "broken", "", b"", 500).problem(500, ":damaged-record");
    client.change("broken", &json!({}), 500).problem(500, ":damaged-record");
    client.ask("GET", "/{shortCode}", "broken", "", b"", 500);
    client.ask("DELETE", ONE, "broken", "", b"", 204);
    // Nobody listens there: what needs Redis is refused.
    let away = node.terminate().argument("--redis").argument("redis://127.0.0.1:1");
    // It has heard before that its fleet has no API keys.
    std::fs::write(away.data_dir().join("apps.json"), "{\"version\": 1, \"keys\": []}").unwrap();
    let node = away.expect("redis_away").expect("codes_failed").start();
    let mut client = Client { document: &document, wire: node.wire() };
    client.create(&json!({"longUrl": TARGET, "customSlug": "other"}), 503).problem(503, ":unavailable");
    client.change("kept", &json!({"title": "a"}), 503).problem(503, ":unavailable");
    client.ask("GET", ONE, "kept", "", b"", 200);
    client.ask("GET", "/{shortCode}", "kept", "", b"", 302);
    node.terminate();
}

#[test]
fn bulk_responses_are_described() {
    const LINES: &str = "Content-Type: application/x-ndjson\r\n";
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).all_interfaces().cores(2).start();
    let document = description(&node);
    let mut client = Client { document: &document, wire: node.wire() };
    let lines = [
        json!({"longUrl": TARGET}).to_string(),
        String::new(),
        json!({"longUrl": TARGET, "customSlug": "one", "tags": ["a"], "title": "T", "maxVisits": 7, "crawlable": true}).to_string(),
        json!({"longUrl": TARGET, "customSlug": "one"}).to_string(),
        json!({"longUrl": TARGET, "validSince": "2026-01-01T00:00:00Z", "validUntil": "2100-01-01T00:00:00Z", "archived": true}).to_string(),
        json!({"longUrl": 5}).to_string(),
        "{\"longUrl\": \"\\ud800\"}".to_owned(),
        "[]".to_owned(),
        "x".repeat(300_000),
    ];
    for query in ["?dryRun=true", ""] {
        let path = format!("{BULK}{query}");
        let reply = client.wire.ask("POST", &path, LINES, lines.join("\n").as_bytes());
        client.check("POST", BULK, &reply, 200);
        assert_eq!(reply.text().lines().count(), 8);
    }
    client.ask("POST", BULK, "", JSON, b"{}", 415);
    let reply = client.wire.ask("POST", &format!("{BULK}?dryRun=perhaps"), LINES, b"{}");
    client.check("POST", BULK, &reply, 400);
    let exported = client.get("/rest/v3/short-urls/export", "", 200);
    assert_eq!(exported.text().lines().count(), 3);
    node.terminate();
}

#[test]
fn list_responses_are_described() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).all_interfaces().cores(2).start();
    let document = description(&node);
    let mut client = Client { document: &document, wire: node.wire() };
    for number in 0..7 {
        let title = (number % 2 == 0).then_some("Even");
        let fields =
            json!({"longUrl": TARGET, "tags": ["a", format!("t{number}")], "title": title, "crawlable": number == 3});
        client.create(&fields, 200);
    }
    let lists = [SHORT_URLS, TAGS, "/rest/v3/tags/stats", "/robots.txt"];
    // They are counted in the background.
    for path in lists {
        wait_until("lists", || node.wire().get(path).status == 200);
    }
    for query in ["", "?itemsPerPage=3", "?page=2&itemsPerPage=3", "?page=9", "?searchTerm=even", "?searchTerm=nothing"]
    {
        for path in lists {
            client.get(path, query, 200);
        }
    }
    for query in [
        "?tags[]=a&tags%5B%5D=t1&tagsMode=all",
        "?tags[]=t1&tags[]=t2",
        "?orderBy=title-DESC&excludeMaxVisitsReached=true",
        "?startDate=2026-01-01&endDate=2100-01-01T00:00:00%2B00:00&excludePastValidUntil=true",
        "?domain=other.test",
    ] {
        client.get(SHORT_URLS, query, 200);
    }
    for query in ["?withStats=true", "?orderBy=shortUrlsCount-DESC"] {
        client.get(TAGS, query, 200);
    }
    for path in [SHORT_URLS, TAGS, "/rest/v3/tags/stats", "/rest/v3/domains", "/rest/v3/visits"] {
        let problem = client.get(path, "?colour=red", 400).problem(400, "/invalid-data");
        assert_eq!(problem["invalidElements"], json!(["colour"]), "{path}");
    }
    client.get("/rest/v3/mercure-info", "", 501).problem(501, "/mercure-not-configured");
    client.get("/rest/v3/domains", "", 200);
    let first = client.get(SHORT_URLS, "?itemsPerPage=3", 200).json();
    let cursor = first["shortUrls"]["pagination"]["cursor"].as_str().expect("there are more").to_owned();
    client.get(SHORT_URLS, &format!("?itemsPerPage=3&cursor={cursor}"), 200);
    client.get(SHORT_URLS, &format!("?searchTerm=a&cursor={cursor}"), 400).problem(400, "/invalid-data");
    node.terminate();
}
