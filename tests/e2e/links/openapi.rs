//! The OpenAPI description is sound, every described path is served, and exactly the allowed fields are accepted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::http::{Reply, SHORT_URLS, curl};
use crate::support::links::change;
use crate::support::node::{Setup, wait_until};
use crate::support::openapi::{DESCRIPTION, METHODS, conforms, conforms_to, description, operations};
use crate::support::schema::{Schemas, resolve};

const TARGET: &str = "https://example.org/a";
const ONE: &str = "/rest/v3/short-urls/{shortCode}";
const TAGS: &str = "/rest/v3/tags";

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
        let succeeds = responses.keys().any(|status| status.starts_with(['2', '3']));
        assert!(succeeds, "{name} never succeeds");
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
            if method == "options" && path.starts_with("/rest/") {
                // The description says once that pages of other origins may ask this.
                assert_eq!(reply.status, 204, "{path}");
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
    // A HEAD must have no effect, and this GET creates a link.
    let head = (described.contains("GET") && place != "/rest/v3/short-urls/shorten").then(|| "HEAD".to_owned());
    described.into_iter().chain(head).collect()
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
    // The description allows slashes in slugs, which a node accepts with this setting only.
    let setup = Setup::new(data.path()).all_interfaces().env("CAROM_LINKS_MULTI_SEGMENT_SLUGS", "true");
    let node = setup.start();
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
        // Rust takes a plus sign, too.
        Some("integer") if !text.starts_with('+') => {
            text.parse::<i64>().map(|number| json!(number)).unwrap_or(json!(text))
        }
        Some("boolean") => text.parse::<bool>().map(|flag| json!(flag)).unwrap_or(json!(text)),
        Some("array") => json!([text]),
        _ => json!(text),
    }
}

/// Returns the required parameters of an operation besides one, each with its example.
fn required_besides(document: &Value, operation: &Value, besides: &str) -> String {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let required = parameters.map(|parameter| resolve(document, parameter)).filter(|it| it["required"] == true);
    let others = required.filter(|it| it["in"] == "query" && it["name"] != besides);
    others.map(|it| format!("&{}={}", it["name"].as_str().unwrap(), it["example"].as_str().unwrap())).collect()
}

#[test]
fn parameters_match_the_schemas() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).all_interfaces().env("CAROM_EVENTS_LOG", "on").start();
    let document = description(&node);
    let schemas = Schemas(&document);
    let mut wire = node.wire();
    let code = wire.create(&json!({"longUrl": TARGET, "tags": ["known"]})).code();
    let known = || node.wire().get("/rest/v3/tags").json()["tags"]["data"] == json!(["known"]);
    wait_until("the tag in the lists", known);
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
            // A link or domain that does not exist is 404 for statistics, whatever its name.
            let is_named = path == "/rest/v3/visits/stats" && ["shortCode", "domain"].contains(&name);
            if name == "cursor" || is_named {
                continue;
            }
            let is_flag = parameter["schema"].to_string().contains("\"boolean\"");
            for text in texts.iter().filter(|text| !(is_flag && ["0", "1"].contains(*text))) {
                let escaped: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
                let others = required_besides(&document, operation, name);
                let reply = wire.get(&format!(
                    "{}?{name}={escaped}{others}",
                    path.replace("{shortCode}", &code).replace("{domain}", "DEFAULT").replace("{tag}", "known")
                ));
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
