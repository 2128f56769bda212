//! Apps: what each role allows, and links that belong to apps. Each test runs with one core and with three.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, JSON, new_key, run_app, try_run_app};
use crate::support::bulk::{BULK, IMPORT};
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::node::{CAROM, Node, PATIENCE, Setup, wait_until, with_one_and_three_cores};

const LINES: &str = "Content-Type: application/x-ndjson\r\n";
const SINGLE_STEP: &str = "/rest/v3/short-urls/shorten";
const CHANGES: &str = "/rest/v3/short-urls/bulk/changes";
const MATCHING: &str = "/rest/v3/short-urls/bulk/matching";
const EXPORT: &str = "/rest/v3/short-urls/export";

fn codes(list: &Value) -> BTreeSet<String> {
    let links = list["shortUrls"]["data"].as_array().unwrap().iter();
    links.map(|link| link["shortCode"].as_str().unwrap().to_owned()).collect()
}

/// Two apps with a link each, and what may be done with the keys of all roles.
struct Two {
    node: Node,
    /// Of the first app.
    own: ApiClient,
    /// Of the second app.
    other: ApiClient,
    /// Reads what the first app has.
    reader: ApiClient,
    /// Writes what any app has.
    all: ApiClient,
    /// The link of the first app.
    code: String,
}

const SECRET: &str = "https://example.org/of-the-first-app";

impl Two {
    fn new(setup: &Setup) -> Two {
        let keys = [("first", "write-own"), ("second", "write-own"), ("first", "read"), ("third", "write-all")]
            .map(|(name, role)| new_key(setup, name, role));
        let node = setup.start();
        let [mut own, mut other, reader, all] = keys.map(|key| ApiClient::new(&node, &key));
        let code = own.create(&json!({"longUrl": SECRET, "tags": ["first-tag"], "title": "first title"})).code();
        other.create(&json!({"longUrl": "https://example.org/second", "tags": ["second-tag"]})).code();
        Two { node, own, other, reader, all, code }
    }

    fn record(&mut self) -> Value {
        self.own.get(&format!("{SHORT_URLS}/{}", self.code)).json()
    }
}

/// The content type and the body for a method of a path; empty where it takes none.
fn body_of(path: &str, method: &str) -> (&'static str, String) {
    match (path, method) {
        (CHANGES, _) => (LINES, json!({"shortCode": "x", "delete": true}).to_string()),
        (IMPORT, _) => (LINES, json!({"shortCode": "x", "longUrl": "https://example.org/x"}).to_string()),
        (MATCHING, _) => (JSON, json!({"delete": true}).to_string()),
        (BULK, _) => (LINES, json!({"longUrl": "https://example.org/x"}).to_string()),
        (_, "post") => (JSON, json!({"longUrl": "https://example.org/x"}).to_string()),
        (_, "patch") => (JSON, json!({"longUrl": "https://example.org/stolen", "title": "stolen"}).to_string()),
        _ => ("", String::new()),
    }
}

/// Every operation of the API that asks for a key: path and method, as the description has them.
fn operations(node: &Node) -> Vec<(String, String)> {
    let document = node.wire().get("/rest/v3/openapi.json").json();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters") {
            if operation.get("security").is_none() {
                found.push((path.clone(), method.clone()));
            }
        }
    }
    assert!(found.len() >= 12, "{found:?}");
    found
}

#[test]
fn no_route_shows_links_of_another_app() {
    with_one_and_three_cores(|setup| {
        let mut two = Two::new(&setup);
        let before = two.record();
        for (path, method) in operations(&two.node) {
            let place = path.replace("{shortCode}", &two.code).replace("{domain}", "DEFAULT").replace("{tag}", "none");
            let (fields, body) = body_of(&path, &method);
            let upper = method.to_uppercase();
            let what = format!("{upper} {place}");
            // Without a key, and with one that is none.
            let reply = two.node.wire().ask(&upper, &place, fields, body.as_bytes());
            reply.problem(401, "/missing-authentication");
            // A HEAD has no effect, so the GET that creates a link allows none.
            if method == "get" && path != SINGLE_STEP {
                assert_eq!(two.node.wire().ask("HEAD", &place, fields, body.as_bytes()).status, 401, "{what}");
            }
            // With one of another app.
            for path in
                [place.clone(), percent(&place, &two.code), format!("{place}?searchTerm=first&tags[]=first-tag")]
            {
                let reply = two.other.ask(&upper, &path, fields, &body);
                let text = String::from_utf8_lossy(&reply.body).into_owned();
                assert!(!text.contains("first") || text.contains("/short-url-not-found"), "{what}: {text}");
                // Most calls refuse parameters of lists before they look for the link.
                let is_refused = path.contains('?') && text.contains("searchTerm is not a parameter");
                if place.contains(&two.code) && !is_refused {
                    reply.problem(404, "/short-url-not-found");
                }
            }
            // With one that may not write.
            let reply = two.reader.ask(&upper, &place, fields, &body);
            match (&*method, &*path) {
                (
                    "get",
                    "/rest/v3/visits/orphan" | "/rest/v3/events" | "/rest/v3/events/dead-letters" | SINGLE_STEP,
                ) => {
                    _ = reply.problem(403, ":forbidden");
                }
                ("get", "/rest/v3/purges/{purgeId}") => _ = reply.problem(404, ":purge-not-found"),
                ("get", "/rest/v3/tags/{tag}/visits") => _ = reply.problem(404, "/tag-not-found"),
                ("get", "/rest/v3/mercure-info") => assert_eq!(reply.status, 501, "{what}: {reply:?}"),
                ("get", _) => assert_eq!(reply.status, 200, "{what}: {reply:?}"),
                _ => _ = reply.problem(403, ":forbidden"),
            }
        }
        assert_eq!(two.record(), before);
        assert_eq!(two.node.wire().get(&format!("/{}", two.code)).location(), SECRET);
        two.node.terminate();
    });
}

/// Spells a path in another way: the first byte of the code is percent-encoded.
fn percent(path: &str, code: &str) -> String {
    let first = code.as_bytes()[0];
    path.replace(code, &format!("%{first:02x}{}", &code[1..]))
}

#[test]
fn lists_hold_own_links_or_all_by_role() {
    with_one_and_three_cores(|setup| {
        let mut two = Two::new(&setup);
        let set = |caller: &mut ApiClient, path: &str| codes(&caller.get(path).json());
        let own = BTreeSet::from([two.code.clone()]);
        for query in [
            "",
            "?tags[]=first-tag",
            "?searchTerm=first",
            "?orderBy=title-ASC",
            "?orderBy=shortCode-ASC",
            "?orderBy=visits-DESC",
        ] {
            let path = format!("{SHORT_URLS}{query}");
            assert_eq!(set(&mut two.own, &path), own, "{query}");
            assert_eq!(set(&mut two.reader, &path), own, "{query}");
            assert!(set(&mut two.other, &path).is_disjoint(&own), "{query}");
            assert!(set(&mut two.all, &path).is_superset(&own), "{query}");
        }
        assert_eq!(two.own.get(SHORT_URLS).json()["shortUrls"]["pagination"]["totalItems"], 1);
        assert_eq!(two.all.get(SHORT_URLS).json()["shortUrls"]["pagination"]["totalItems"], 2);
        let tags = |caller: &mut ApiClient| caller.get("/rest/v3/tags").json()["tags"]["data"].clone();
        assert_eq!(tags(&mut two.own), json!(["first-tag"]));
        assert_eq!(tags(&mut two.other), json!(["second-tag"]));
        assert_eq!(tags(&mut two.all), json!(["first-tag", "second-tag"]));
        assert_eq!(two.own.get("/rest/v3/tags/stats").json()["tags"]["data"][0]["shortUrlsCount"], 1);
        let lines = |caller: &mut ApiClient| caller.get(EXPORT).text().lines().count();
        assert_eq!(lines(&mut two.own), 1);
        assert_eq!(lines(&mut two.other), 1);
        assert_eq!(lines(&mut two.all), 2);
        assert_eq!(two.own.get(&format!("{SHORT_URLS}/{}/visits", two.code)).status, 200);
        // A key with `write-all` changes a link of another app, and the link stays with that app.
        let path = format!("{SHORT_URLS}/{}", two.code);
        let changed = two.all.ask("PATCH", &path, JSON, &json!({"title": "by the third"}).to_string());
        assert_eq!(changed.json()["app"].as_str(), Some("first"));
        assert_eq!(changed.json()["title"].as_str(), Some("by the third"));
        assert_eq!(two.own.ask("DELETE", &path, "", "").status, 204);
        assert_eq!(two.all.get(&path).status, 404);
        two.node.terminate();
    });
}

#[test]
fn visits_are_those_of_the_keys_links() {
    with_one_and_three_cores(|setup| {
        let mut two = Two::new(&setup);
        let of_other = two.other.shorten("https://example.org/third");
        let mut wire = two.node.wire();
        for path in [&*two.code, &*two.code, &*of_other, "never-made"] {
            wire.get(&format!("/{path}"));
        }
        let counts = |client: &mut ApiClient| {
            let visits = client.get("/rest/v3/visits").json()["visits"].clone();
            [visits["visitsCount"].as_u64(), visits["orphanVisitsCount"].as_u64()].map(Option::unwrap_or_default)
        };
        wait_until("all visits", || counts(&mut two.all) == [3, 1]);
        assert_eq!(counts(&mut two.own), [2, 0]);
        assert_eq!(counts(&mut two.reader), [2, 0]);
        assert_eq!(counts(&mut two.other), [1, 0]);
        two.node.terminate();
    });
}

#[test]
fn dedupe_stays_within_one_app() {
    with_one_and_three_cores(|setup| {
        let setup = setup.env("CAROM_LINKS_DEDUPE", "1d");
        let (first, second) = (new_key(&setup, "first", "write-own"), new_key(&setup, "second", "write-all"));
        let node = setup.start();
        let (mut first, mut second) = (ApiClient::new(&node, &first), ApiClient::new(&node, &second));
        for find in [false, true] {
            let body = json!({"longUrl": "https://example.org/same", "findIfExists": find});
            let codes = [first.create(&body).code(), first.create(&body).code(), second.create(&body).code()];
            assert_eq!(codes[0], codes[1]);
            assert_ne!(codes[1], codes[2]);
        }
        let slug = json!({"longUrl": "https://example.org/slug", "customSlug": "same-slug", "findIfExists": true});
        assert_eq!(first.create(&slug).code(), "same-slug");
        assert_eq!(first.create(&slug).code(), "same-slug");
        second.create(&slug).problem(400, "/non-unique-slug");
        node.terminate();
    });
}

#[test]
fn app_version_is_stored_with_the_link() {
    with_one_and_three_cores(|setup| {
        let shop = new_key(&setup, "shop", "write-own");
        let node = setup.start();
        let mut shop = ApiClient::new(&node, &shop);
        let url = json!({"longUrl": "https://example.org/"});
        let made = shop.ask("POST", SHORT_URLS, &format!("{JSON}X-App-Version: 1.4.2\r\n"), &url.to_string()).json();
        assert_eq!(&made["app"], &json!("shop"));
        assert_eq!(&made["appVersion"], &json!("1.4.2"));
        let said = shop.create(&json!({"longUrl": "https://example.org/", "appVersion": "2 \"beta\""})).json();
        assert_eq!(said["appVersion"], "2 \"beta\"");
        assert_eq!(shop.create(&url).json()["appVersion"], Value::Null);
        for wrong in [json!(1), json!(""), json!("é"), json!("a\nb"), json!("x".repeat(1 << 16))] {
            let reply = shop.create(&json!({"longUrl": "https://example.org/", "appVersion": wrong}));
            assert_eq!(reply.problem(400, "/invalid-data")["invalidElements"], json!(["appVersion"]));
        }
        shop.ask("GET", SHORT_URLS, &format!("X-App-Version: {}\r\n", "x".repeat(65)), "")
            .problem(400, "/invalid-data");
        let apps = node.status()["apps"].clone();
        assert_eq!(&apps[0]["app"], &json!("shop"));
        assert_eq!(&apps[0]["appVersion"], &json!("1.4.2"));
        assert_eq!(&apps[0]["creates"], &json!(3));
        assert!(apps[0]["requests"].as_u64() >= Some(7), "{apps}");
        // An export says whose links are, and an import makes them so.
        let exported = shop.get(EXPORT);
        let setup = node.terminate();
        let other = tempfile::tempdir().unwrap();
        let file = other.path().join("links.ndjson");
        std::fs::write(&file, &exported.body).unwrap();
        let into = Setup::new(&other.path().join("data"));
        let import =
            Command::new(CAROM).args(["import", "--data-dir"]).arg(into.data_dir()).arg(&file).output().unwrap();
        assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
        std::fs::copy(setup.data_dir().join("apps.json"), into.data_dir().join("apps.json")).unwrap();
        let node = into.start();
        let code = made["shortCode"].as_str().unwrap();
        shop.wire = node.wire();
        let moved = shop.get(&format!("{SHORT_URLS}/{code}")).json();
        assert_eq!(&moved["app"], &json!("shop"));
        assert_eq!(&moved["appVersion"], &json!("1.4.2"));
        node.terminate();
    });
}

#[test]
fn creates_per_second_are_limited() {
    with_one_and_three_cores(|setup| {
        let slow = run_app(&setup, &["add", "slow", "--creates-per-second", "5"]);
        let setup = setup.all_interfaces().env("CAROM_LIMITS_CREATES_PER_SECOND", "1000");
        let quick = new_key(&setup, "quick", "write-own");
        let node = setup.start();
        let url = json!({"longUrl": "https://example.org/"});
        let begin = Instant::now();
        let (mut made, mut refused) = (0, 0);
        // A busy machine may take longer for five creates, and for one that comes too early.
        while begin.elapsed() < Duration::from_millis(1_500) || made < 5 || refused == 0 {
            assert!(begin.elapsed() < PATIENCE, "{made} made, {refused} refused");
            let reply = ApiClient::new(&node, &slow).create(&url);
            let left = |reply: &Reply, name: &str| reply.field(name).unwrap().parse::<u64>().unwrap();
            assert_eq!(left(&reply, "x-ratelimit-limit"), 5);
            assert!(left(&reply, "x-ratelimit-remaining") < 5);
            assert!(left(&reply, "x-ratelimit-reset") <= 2);
            match reply.status {
                200 => made += 1,
                _ => {
                    assert_eq!(reply.problem(429, ":too-many-requests")["retryAfter"], 1);
                    assert_eq!(left(&reply, "x-ratelimit-remaining"), 0);
                    assert_eq!(left(&reply, "retry-after"), 1);
                    refused += 1;
                }
            }
        }
        let most = 5 + begin.elapsed().as_millis() as u64 / 200 + 1;
        assert!((5..=most).contains(&made), "{made} made, {refused} refused");
        assert!(refused > 0, "{made} made, {refused} refused");
        // Line by line where many are made at once, and nobody else is held up.
        let lines = "{\"longUrl\":\"https://example.org/\"}\n".repeat(50);
        let answer = ApiClient::new(&node, &slow).ask("POST", BULK, LINES, &lines);
        let results: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(results.len(), 50);
        let told_when = |result: &&Value| result["status"] == 429 && result["error"]["retryAfter"] == 1;
        // Each time that the machine stands still, the app may create five more.
        let lines_refused = results.iter().filter(told_when).count() as u64;
        assert!(lines_refused >= 30, "{results:?}");
        // So is who calls as another shortener was called.
        let path = format!("/yourls-api.php?action=shorturl&format=json&url=https://example.org/&signature={slow}");
        let told = (0..1_000).map(|_| node.wire().get(&path)).find(|reply| reply.status == 429).unwrap();
        assert_eq!(told.field("retry-after"), Some("1"));
        assert_eq!(told.field("x-ratelimit-limit"), Some("5"));
        let mut quick = ApiClient::new(&node, &quick);
        assert_eq!(quick.create(&url).field("x-ratelimit-limit"), Some("1000"));
        let status = node.status();
        let slow = status["apps"].as_array().unwrap().iter().find(|app| app["app"] == "slow").unwrap();
        assert!(slow["limited"].as_u64() >= Some(refused + lines_refused), "{slow}");
        node.terminate();
    });
}

#[test]
fn admin_api_manages_apps() {
    with_one_and_three_cores(|setup| {
        let node = setup.start();
        let mut admin = Wire::open(node.admin);
        assert_eq!(admin.get("/apps").json(), json!({"apps": []}));
        let body = json!({"app": "shop", "role": "read", "createsPerSecond": 9}).to_string();
        let made = admin.ask("POST", "/apps", JSON, body.as_bytes());
        assert_eq!(made.status, 201, "{made:?}");
        let (first, id) = (made.json()["key"].as_str().unwrap().to_owned(), made.json()["id"].clone());
        let mut shop = ApiClient::new(&node, &first);
        wait_until("the key", || shop.is_known(&node));
        let listed = admin.get("/apps").json();
        assert_eq!(&listed["apps"][0]["app"], &json!("shop"));
        assert_eq!(&listed["apps"][0]["keys"][0]["id"], &id);
        assert_eq!(listed["apps"][0]["keys"][0]["createsPerSecond"], 9);
        assert!(!listed.to_string().contains(&first[9..]), "a key is told once");
        let rotated = admin.ask("POST", "/apps/shop/rotate", JSON, b"{\"graceSeconds\": 0}");
        assert_eq!((rotated.status, &rotated.json()["follows"]), (201, &id));
        let mut next = ApiClient::new(&node, rotated.json()["key"].as_str().unwrap());
        wait_until("the next key", || next.is_known(&node) && !shop.is_known(&node));
        let next_id = rotated.json()["id"].as_str().unwrap().to_owned();
        let gone = admin.ask("DELETE", &format!("/apps/shop/keys/{next_id}"), "", b"");
        assert_eq!((gone.status, gone.json()), (200, json!({"revoked": [next_id]})));
        wait_until("no key", || !next.is_known(&node));
        admin.ask("DELETE", "/apps/shop", "", b"").problem(404, ":app-not-found");
        // The command line sees the same.
        assert!(run_app(&setup, &["list"]).contains("revoked"));
        // Wrong in every way.
        for (body, field) in [
            (json!({}), "app"),
            (json!({"app": "a\"b"}), "app"),
            (json!({"app": "a\r\nSET x"}), "app"),
            (json!({"app": "x".repeat(1 << 16)}), "app"),
            (json!({"app": 7}), "app"),
            (json!({"app": "a", "role": "root"}), "role"),
            (json!({"app": "a", "expires": "1969-12-31T23:59:59Z"}), "expires"),
            (json!({"app": "a", "expires": "10000-01-01T00:00:00Z"}), "expires"),
            (json!({"app": "a", "createsPerSecond": 1e300}), "createsPerSecond"),
            (json!({"app": "a", "createsPerSecond": -1}), "createsPerSecond"),
            (json!({"app": "a", "colour": "red"}), "colour"),
        ] {
            let reply = admin.ask("POST", "/apps", JSON, body.to_string().as_bytes());
            assert_eq!(reply.problem(400, "/invalid-data")["invalidElements"], json!([field]), "{body}");
        }
        admin.ask("POST", "/apps", "", b"{}").problem(415, ":unsupported-media-type");
        admin.ask("PUT", "/apps", JSON, b"{}").problem(405, "/method-not-allowed");
        admin
            .ask("POST", "/apps", &format!("{JSON}Origin: https://evil.example\r\n"), b"{\"app\":\"a\"}")
            .problem(403, ":forbidden");
        assert_eq!(admin.get("/apps").json()["apps"].as_array().unwrap().len(), 1, "nothing was stored");
        node.terminate();
    });
}

#[test]
fn command_names_each_wrong_argument() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let said = |arguments: &[&str]| {
        let output = try_run_app(&setup, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["list"]).contains("does not exist"));
    for wrong in [
        &["add", "A B"][..],
        &["add", "a", "--role", "root"],
        &["add", "a", "--expires", "2001-01-01"],
        &["add", "a", "--expires", "soon"],
        &["add", "a", "--creates-per-second", "0"],
    ] {
        assert!(said(wrong).contains("invalid value"), "{wrong:?}");
    }
    assert!(!setup.data_dir().exists());
    let text = new_key(&setup, "shop", "read");
    assert!(text.starts_with("carom_ak_"), "{text}");
    assert_eq!(text.len(), 42, "{text}");
    let file = std::fs::read_to_string(setup.data_dir().join("apps.json")).unwrap();
    assert!(!file.contains(&text[9..30]), "the key itself is kept nowhere");
    assert!(said(&["revoke", "other"]).contains("the app other has no valid key"));
    assert!(said(&["revoke", "shop", "--key", "x"]).contains("no valid key x"));
    new_key(&setup, "shop", "read");
    assert!(said(&["rotate", "shop"]).contains("2 valid keys"));
}
