//! The OpenAPI description and the real binary agree: every response is described, every described path is served, and
//! exactly the allowed fields are accepted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::http::{Reply, SHORT_URLS, Wire, curl};
use crate::support::links::change;
use crate::support::node::{Setup, wait_until};
use crate::support::openapi::{DESCRIPTION, conforms, conforms_to, description};
use crate::support::schema::{Schemas, resolve};
use crate::support::store::open_store;

const TARGET: &str = "https://example.org/a";
const ONE: &str = "/rest/v3/short-urls/{shortCode}";
const BULK: &str = "/rest/v3/short-urls/bulk";
const TAGS: &str = "/rest/v3/tags";
const JSON: &str = "Content-Type: application/json\r\n";
const BODY_MAX: usize = 1024 * 1024;
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "patch", "trace"];

/// Each operation: path, method in small letters, and what is said of it.
fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().expect("paths").iter();
    paths.flat_map(|(path, item)| {
        let methods = item.as_object().expect("a path is an object").iter();
        let methods = methods.filter(|(name, _)| METHODS.contains(&name.as_str()));
        methods.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    })
}

/// Everything in a document, with its JSON pointer.
fn walk<'d>(value: &'d Value, at: &str, visit: &mut impl FnMut(&str, &'d Value)) {
    visit(at, value);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                walk(value, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), visit);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(place, value)| walk(value, &format!("{at}/{place}"), visit));
        }
        _ => {}
    }
}

/// The schema of a media type of a request or an answer.
fn schema_of<'d>(document: &'d Value, owner: &'d Value, kind: &str) -> Option<&'d Value> {
    resolve(document, owner)["content"][kind].get("schema")
}

#[test]
fn description_is_sound() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).all_interfaces().start();
    let document = description(&node);
    assert_eq!(curl(&[&node.url(DESCRIPTION)]).json(), document);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    assert!(document["info"]["title"].is_string());
    assert!(document["info"]["version"].is_string());
    let groups: BTreeSet<&str> =
        document["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    let mut names = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let name = operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path} has no name"));
        assert!(names.insert(name), "{name} is there twice");
        assert!(operation["summary"].is_string(), "{name}");
        assert!(operation["tags"].as_array().unwrap().iter().all(|tag| groups.contains(tag.as_str().unwrap())));
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with(['2', '3'])), "{name} never succeeds");
        for (status, response) in responses {
            assert!(resolve(&document, response)["description"].is_string(), "{name} {status}");
            let is_status = status.len() == 3 && status.parse().is_ok_and(|number| (100..600).contains(&number));
            assert!(is_status || status == "default", "{name} {status}");
        }
        // What stands in braces in the path is what is declared, each once.
        let inherited = document["paths"][path]["parameters"].as_array().into_iter().flatten();
        let parameters = inherited.chain(operation["parameters"].as_array().into_iter().flatten());
        let parameters: Vec<&Value> = parameters.map(|parameter| resolve(&document, parameter)).collect();
        let in_path = |parameter: &&&Value| parameter["in"] == "path" && parameter["required"] == true;
        let mut declared: Vec<&str> =
            parameters.iter().filter(in_path).map(|parameter| parameter["name"].as_str().unwrap()).collect();
        declared.sort_unstable();
        let mut used: Vec<&str> =
            path.split('{').skip(1).filter_map(|part| part.split_once('}').map(|(name, _)| name)).collect();
        used.sort_unstable();
        assert_eq!(declared, used, "{path}");
        assert!(
            parameters.iter().all(|parameter| parameter["schema"].is_object() && parameter["description"].is_string())
        );
    }
    let mut named = BTreeSet::new();
    walk(&document, "", &mut |at, value| {
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            resolve(&document, value);
            named.insert(reference.to_owned());
            assert_eq!(value.as_object().unwrap().len(), 1, "what stands beside the reference at {at} is not read");
        }
    });
    for kind in ["schemas", "responses", "parameters", "headers"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            assert!(named.contains(&format!("#/components/{kind}/{name}")), "nobody uses {kind}/{name}");
        }
    }
    node.terminate();
}

#[test]
fn examples_match_their_schemas() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).all_interfaces().start();
    let document = description(&node);
    let schemas = Schemas(&document);
    let mut count = 0;
    walk(&document, "", &mut |at, value| {
        // A media type, parameter or header has its schema beside the examples; a schema has examples of its own.
        let schema = value.get("schema");
        let given = value.get("example").into_iter();
        let given: Vec<&Value> = match value.get("examples") {
            Some(Value::Object(named)) => given.chain(named.values().map(|example| &example["value"])).collect(),
            _ => given.collect(),
        };
        let own = value.get("examples").and_then(Value::as_array).into_iter().flatten();
        let own = own.map(|example| (value, example));
        for (schema, example) in given.into_iter().filter_map(|example| Some((schema?, example))).chain(own) {
            assert_eq!(schemas.faults(schema, example), Vec::<String>::new(), "{at}");
            assert_eq!(schemas.undescribed(schema, example), Vec::<String>::new(), "{at}");
            count += 1;
        }
    });
    assert!(count >= 20, "{count} examples were found");
    node.terminate();
}

#[test]
fn every_path_and_method_is_served() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).all_interfaces().start();
    let document = description(&node);
    let mut wire = node.wire();
    for (path, item) in document["paths"].as_object().unwrap() {
        let place = path.replace("{shortCode}", "abc");
        for method in METHODS {
            let reply = wire.ask(&method.to_uppercase(), &place, "", b"");
            if item.get(method).is_some() {
                assert_ne!(reply.status, 405, "{method} {path}");
                let is_unknown = reply.status == 404 && reply.text().contains("/not-found");
                assert!(!is_unknown, "{method} {path} is described and not served");
                continue;
            }
            let expected = methods_at(&document, &place);
            if expected.contains(&method.to_uppercase()) {
                continue;
            }
            assert_eq!(reply.status, 405, "{method} {path} is served and not described");
            let allowed: BTreeSet<String> = reply.field("allow").unwrap().split(", ").map(str::to_owned).collect();
            assert_eq!(allowed, expected, "{path}");
            if let Some(get) = item.get("get") {
                conforms(&document, get, &reply);
                assert_eq!(wire.try_ask("HEAD", &place, "", b"").map(|reply| reply.body.len()).unwrap_or(0), 0);
            }
        }
    }
    for path in ["/rest", "/rest/v3", "/rest/v3/none", "/rest/v3/short-urls/a/b", "/rest/v4/short-urls"] {
        conforms_to(&document, &document["components"]["responses"]["Refused"], &wire.get(path));
    }
    node.terminate();
}

/// The methods that are described for a place.
fn methods_at(document: &Value, place: &str) -> BTreeSet<String> {
    let is_at = |path: &str| {
        let (path, place): (Vec<&str>, Vec<&str>) = (path.split('/').collect(), place.split('/').collect());
        path.len() == place.len() && path.iter().zip(place).all(|(name, part)| name.starts_with('{') || *name == part)
    };
    // A name of the API is not a short code as well.
    let is_name = document["paths"].get(place).is_some();
    let is_meant = |path: &str| if is_name { path == place } else { is_at(path) };
    let described = operations(document).filter(|(path, ..)| is_meant(path));
    let described = described.map(|(_, method, _)| method.to_uppercase());
    let described: BTreeSet<String> = described.collect();
    let head = described.contains("GET").then(|| "HEAD".to_owned());
    described.into_iter().chain(head).collect()
}

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

/// Values of every type, and near every bound that a field of a link has.
fn pool() -> Vec<Value> {
    let mut pool = vec![
        json!(null),
        json!(true),
        json!(false),
        json!([]),
        json!([null]),
        json!(["a"]),
        json!([["a"]]),
        json!({}),
        json!({"a": 1}),
        json!(["a", 1]),
        json!([""]),
        json!((0..64).map(|number| format!("t{number}")).collect::<Vec<_>>()),
        json!((0..257).map(|_| "t").collect::<Vec<_>>()),
        json!(["x".repeat(255)]),
        json!(["x".repeat(256)]),
    ];
    let numbers = [0, 1, 2, 299, 300, 301, 302, 303, 304, 306, 307, 308, 309, 2_147_483_647, 2_147_483_648];
    pool.extend(numbers.map(|number: u64| json!(number)));
    pool.extend([4_294_967_295, 4_294_967_296, 9_007_199_254_740_993, u64::MAX].map(|number| json!(number)));
    pool.extend([json!(-1), json!(i64::MIN), json!(1.5), json!(-0.5), json!(1e300)]);
    let texts =
        ["", "a", "_-9", "a/b", "a b", "é", "true", "null", "1", "302", "[]", "2027-01-31", "2027-01-31T12:00:00"];
    pool.extend(texts.map(|text| json!(text)));
    pool.extend(
        ["2027-01-31T12:00:00+01:00", "2027-01-31T12:00:00.125Z", "2027-02-30T12:00:00Z"].map(|text| json!(text)),
    );
    pool.extend(["https://example.org/b", "ftp://example.org/", "example.org"].map(|text| json!(text)));
    pool.extend([63, 64, 65, 512, 513, 65_536].map(|len| json!("x".repeat(len))));
    pool
}

#[test]
fn fields_match_the_schemas() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).all_interfaces().start();
    let document = description(&node);
    let schemas = Schemas(&document);
    let mut wire = node.wire();
    let request = |path: &str, method: &str| {
        schema_of(&document, &document["paths"][path][method]["requestBody"], "application/json").unwrap()
    };
    let (create, edit) = (request(SHORT_URLS, "post"), request(ONE, "patch"));
    let fields = |schema: &Value| resolve(&document, schema)["properties"].as_object().unwrap().clone();
    let nothing = json!({});
    let (mut taken, mut refused) = (0, 0);
    let mut count = |schema: &Value, field: &str, body: &Value, reply: &Reply| {
        let faults = schemas.faults(schema, body);
        // Which domains there are, no schema knows; none of the texts is one.
        let is_no_domain = field == "domain" && body[field].as_str().is_some_and(|name| !name.is_empty());
        if faults.is_empty() && !is_no_domain {
            assert_eq!(reply.status, 200, "{field} is allowed: {}", reply.text());
            taken += 1;
        } else {
            assert_eq!(reply.status, 400, "{faults:?}: {}", reply.text());
            let problem = reply.problem(400, "/invalid-data");
            assert_eq!(problem["invalidElements"], json!([field]), "{problem}");
            refused += 1;
        }
    };
    for (field, property) in fields(create).iter().chain([(&"colour".to_owned(), &nothing)]) {
        for value in pool().iter().chain(property["examples"].as_array().into_iter().flatten()) {
            let mut body = json!({"longUrl": TARGET});
            body[field] = value.clone();
            let reply = wire.create(&body);
            count(create, field, &body, &reply);
            if reply.status == 200 {
                assert_eq!(wire.delete(&reply.code()).status, 204);
            }
        }
    }
    assert_eq!(wire.create(&json!({})).problem(400, "/invalid-data")["invalidElements"], json!(["longUrl"]));
    let only_when_made =
        ["colour", "customSlug", "private", "findIfExists", "shortCode", "dateCreated"].map(str::to_owned);
    for (field, property) in fields(edit).iter().chain(only_when_made.iter().map(|field| (field, &nothing))) {
        let code = wire.shorten(TARGET);
        wait_until("lists", || [SHORT_URLS, TAGS].iter().all(|path| node.wire().get(path).status == 200));
        for value in pool().iter().chain(property["examples"].as_array().into_iter().flatten()) {
            let mut body = json!({});
            body[field] = value.clone();
            let reply = change(&mut wire, &code, &body);
            count(edit, field, &body, &reply);
        }
        assert_eq!(wire.delete(&code).status, 204);
    }
    assert!(taken > 200, "{taken} were taken, {refused} refused");
    assert!(refused > 1_000, "{taken} were taken, {refused} refused");
    assert_eq!(node.status()["links"], json!(0));
    node.terminate();
}

/// Reads a parameter of a query as the type that its schema allows.
fn value_of(schema: &Value, text: &str) -> Value {
    let schema = schema.get("anyOf").map_or(schema, |choices| &choices[0]);
    match schema["type"].as_str() {
        // Digits only: Rust takes a sign, too.
        Some("integer") if !text.starts_with('+') => {
            text.parse::<u64>().map(|number| json!(number)).unwrap_or(json!(text))
        }
        Some("boolean") => text.parse::<bool>().map(|flag| json!(flag)).unwrap_or(json!(text)),
        Some("array") => json!([text]),
        _ => json!(text),
    }
}

#[test]
fn parameters_match_the_schemas() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).all_interfaces().start();
    let document = description(&node);
    let schemas = Schemas(&document);
    let mut wire = node.wire();
    let code = wire.shorten(TARGET);
    let texts =
        ["0", "1", "-1", "2", "500", "501", "10000", "10001", "1.5", "+1", "x", "any", "all", "true", "false", "maybe"];
    let texts = texts.into_iter().chain([
        "dateCreated-DESC",
        "title-ASC",
        "visits",
        "tag",
        "shortUrlsCount-DESC",
        "longUrl-UP",
    ]);
    let texts = texts.chain([
        "2026-01-02",
        "2026-13-02",
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05",
        "1969-12-31",
        "yesterday",
    ]);
    let long = ["x".repeat(512), "x".repeat(513), "é".repeat(256)];
    let texts: Vec<&str> = texts.chain(long.iter().map(String::as_str)).collect();
    let (mut taken, mut refused) = (0, 0);
    // Which parameters the other one takes depends on its `action`, and what is wrong it says in its own way.
    let ours = operations(&document).filter(|(path, method, _)| *method == "get" && *path != "/yourls-api.php");
    for (path, _, operation) in ours {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let parameter = resolve(&document, parameter);
            let name = parameter["name"].as_str().unwrap();
            // Of what a cursor is, clients know nothing.
            if name == "cursor" {
                continue;
            }
            let is_flag = parameter["schema"].to_string().contains("\"boolean\"");
            for text in texts.iter().filter(|text| !(is_flag && ["0", "1"].contains(*text))) {
                let escaped: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
                let reply = wire.get(&format!("{}?{name}={escaped}", path.replace("{shortCode}", &code)));
                if schemas.allow(&parameter["schema"], &value_of(&parameter["schema"], text)) {
                    assert_eq!(reply.status, 200, "{path} {name}={text}: {}", reply.text());
                    taken += 1;
                } else {
                    let problem = reply.problem(400, "/invalid-data");
                    let field = name.trim_end_matches("[]");
                    assert_eq!(problem["invalidElements"], json!([field]), "{path} {name}={text}: {problem}");
                    conforms(&document, operation, &reply);
                    refused += 1;
                }
            }
        }
    }
    assert!(taken > 100, "{taken} were taken, {refused} refused");
    assert!(refused > 100, "{taken} were taken, {refused} refused");
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
    for query in [
        "",
        "?itemsPerPage=3",
        "?page=2&itemsPerPage=3",
        "?page=9",
        "?searchTerm=even",
        "?searchTerm=nothing&unknown=1",
    ] {
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
    client.get("/rest/v3/domains", "", 200);
    let first = client.get(SHORT_URLS, "?itemsPerPage=3", 200).json();
    let cursor = first["shortUrls"]["pagination"]["cursor"].as_str().expect("there are more").to_owned();
    client.get(SHORT_URLS, &format!("?itemsPerPage=3&cursor={cursor}"), 200);
    client.get(SHORT_URLS, &format!("?searchTerm=a&cursor={cursor}"), 400).problem(400, "/invalid-data");
    node.terminate();
}
