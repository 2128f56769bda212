//! API keys: when one is required, and when it is valid. Each test runs with one core and with three.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, new_key, run_app};
use crate::support::bulk::Session;
use crate::support::domains::codes;
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::node::{Node, Setup, wait_until, with_one_and_three_cores};

#[test]
fn first_key_makes_the_api_require_keys() {
    with_one_and_three_cores(|setup| {
        let node = setup.start();
        let code = node.wire().shorten("https://example.org/before");
        let first = new_key(&setup, "shop", "write-own");
        let mut shop = ApiClient::new(&node, &first);
        wait_until("keys that are asked for", || {
            (0..8).all(|_| node.wire().create(&json!({"longUrl": "https://example.org/"})).status == 401)
        });
        node.wire().get(SHORT_URLS).problem(401, "/missing-authentication");
        assert_eq!(node.wire().get(&format!("/{code}")).status, 302, "redirects ask for no key");
        assert_eq!(node.wire().get("/rest/v3/openapi.json").status, 200);
        assert_eq!(node.wire().get("/rest/health").status, 200);
        wait_until("the key on every core", || shop.is_known(&node));
        let own = shop.shorten("https://example.org/own");
        assert_eq!(shop.get(&format!("{SHORT_URLS}/{own}")).json()["app"], "shop");
        // As a bearer's token, too.
        let bearer = format!("Authorization: Bearer {first}\r\n");
        assert_eq!(node.wire().ask("GET", SHORT_URLS, &bearer, b"").status, 200);
        // What was made before belongs to nobody.
        shop.get(&format!("{SHORT_URLS}/{code}")).problem(404, "/short-url-not-found");
        // Another key while the node runs, and the first one is no more.
        let second = new_key(&setup, "shop", "write-own");
        let mut with_second = ApiClient::new(&node, &second);
        wait_until("the second key", || with_second.is_known(&node));
        assert_eq!(
            with_second.get(&format!("{SHORT_URLS}/{own}")).status,
            200,
            "an app is an app with any of its keys"
        );
        let id = run_app(&setup, &["list", "--json"]);
        let id: Value = serde_json::from_str(&id).unwrap();
        let id = id["keys"][0]["id"].as_str().unwrap().to_owned();
        run_app(&setup, &["revoke", "shop", "--key", &id]);
        wait_until("a key that is revoked", || !shop.is_known(&node));
        assert!(with_second.is_known(&node));
        let node = node.restart();
        assert!(!shop.is_known(&node));
        assert!(with_second.is_known(&node));
        run_app(&setup, &["revoke", "shop"]);
        wait_until("all keys gone", || !with_second.is_known(&node));
        node.wire().get(SHORT_URLS).problem(401, "/missing-authentication");
        let log = node.terminate_and_tell().1;
        assert!(!log.contains(&first[9..]), "a key in the log");
        assert!(!log.contains(&second[9..]), "a key in the log");
    });
}

#[test]
fn rotated_key_stays_valid_for_its_grace() {
    with_one_and_three_cores(|setup| {
        let old = new_key(&setup, "shop", "read");
        let node = setup.start();
        let new = run_app(&setup, &["rotate", "shop", "--grace", "1h"]);
        let (mut with_old, mut with_new) = (ApiClient::new(&node, &old), ApiClient::new(&node, &new));
        wait_until("the new key", || with_new.is_known(&node));
        assert!(with_old.is_known(&node));
        let newer = run_app(&setup, &["rotate", "shop", "--grace", "0"]);
        let mut with_newer = ApiClient::new(&node, &newer);
        wait_until("the newer key", || with_newer.is_known(&node) && !with_new.is_known(&node));
        assert!(with_old.is_known(&node));
        with_newer.create(&json!({"longUrl": "https://example.org/"})).problem(403, ":forbidden");
        let list = run_app(&setup, &["list"]);
        assert_eq!(list.lines().count(), 4, "{list}");
        assert!(list.contains("revoked"), "{list}");
        assert!(list.contains("valid until"), "{list}");
        node.terminate();
    });
}

#[test]
fn invalid_keys_get_identical_401s() {
    with_one_and_three_cores(|setup| {
        let good = new_key(&setup, "shop", "write-own");
        let revoked = new_key(&setup, "gone", "admin");
        run_app(&setup, &["revoke", "gone"]);
        let node = setup.start();
        assert!(ApiClient::new(&node, &good).is_known(&node));
        let other_case: String = good
            .chars()
            .map(|c| if c.is_ascii_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() })
            .collect();
        let wrong = [
            revoked.clone(),
            good[..good.len() - 1].to_owned(),
            good[1..].to_owned(),
            other_case,
            format!("{good}{good}"),
            format!("{good} {good}"),
            format!("\"{good}\""),
            format!("{{\"key\": \"{good}\"}}"),
            format!("[\"{good}\"]"),
            format!("{good}\r\nX-Api-Key: {good}"),
            format!("{good}\r\nAuthorization: Bearer {good}"),
            String::new(),
            "null".to_owned(),
            "x".repeat(4_096),
        ];
        let mut bodies = BTreeSet::new();
        for (number, text) in wrong.iter().enumerate() {
            let mut caller = ApiClient::new(&node, text);
            // Each from an address of its own: one may try only so many.
            let source = format!("127.0.1.{number}").parse().unwrap();
            caller.wire = Wire::open_from(source, node.public);
            let reply = caller.get(SHORT_URLS);
            reply.problem(401, "/invalid-api-key");
            bodies.insert(reply.body);
            caller.create(&json!({"longUrl": "https://example.org/"})).problem(401, "/invalid-api-key");
        }
        assert_eq!(bodies.len(), 1, "which of them it is shows");
        let list = ApiClient::new(&node, &good).get(SHORT_URLS);
        assert_eq!(codes(&list).len(), 0, "nothing was made");
        let log = node.terminate_and_tell().1;
        assert!(!log.contains(&good[9..]), "a key in the log");
        assert!(!log.contains(&revoked[9..]), "a key in the log");
    });
}

fn request(method: &str, path: &str, fields: &str) -> Vec<u8> {
    crate::support::http::request(method, path, fields, b"")
}

/// The answer to a request from another address of this machine.
fn from(node: &Node, address: &str, request: &[u8]) -> Reply {
    let mut wire = Wire::open_from(address.parse().unwrap(), node.public);
    wire.send(request);
    wire.reply()
}

#[test]
fn key_expires_at_its_time() {
    with_one_and_three_cores(|setup| {
        new_key(&setup, "other", "read");
        let node = setup.start();
        // On a busy machine, it takes seconds until the node knows the key.
        let end_ms = carom_telemetry::clock::unix_ms() + 15_000;
        let ending = run_app(&setup, &["add", "shop", "--expires", &carom_model::formats::dates::format(end_ms)]);
        let mut caller = ApiClient::new(&node, &ending);
        wait_until("the key", || caller.is_known(&node));
        // A core that stands still hears of the key later than the others.
        let mut missing_since = None;
        wait_until("the end of the key", || {
            if caller.is_known(&node) {
                missing_since = None;
                return false;
            }
            let now_ms = carom_telemetry::clock::unix_ms();
            let is_over = now_ms >= end_ms / 1_000 * 1_000;
            let missing_ms = now_ms - *missing_since.get_or_insert(now_ms);
            assert!(is_over || missing_ms < 5_000, "it ended too early");
            is_over
        });
        node.terminate();
    });
}

#[test]
fn revoked_key_ends_long_requests() {
    with_one_and_three_cores(|setup| {
        let (shop, other) = (new_key(&setup, "shop", "write-own"), new_key(&setup, "other", "write-own"));
        let node = setup.start();
        let line = "{\"longUrl\": \"https://example.org/\"}\n";
        let mut sessions = [&shop, &other].map(|key| Session::bulk_as(&node, key));
        for session in &mut sessions {
            session.send(line);
            assert_eq!(session.begin(), 200);
            assert_eq!(session.result()["status"].clone(), json!(200));
        }
        run_app(&setup, &["revoke", "shop"]);
        let mut caller = ApiClient::new(&node, &shop);
        wait_until("a key that is revoked", || !caller.is_known(&node));
        let [of_shop, of_other] = &mut sessions;
        let send = |session: &mut Session| {
            session.send(line);
            session.result()["status"].clone()
        };
        // Each core hears of it by itself, and another one served the caller.
        wait_until("the core of the session to know", || send(of_shop) == json!(401));
        assert_eq!(send(of_other), json!(200));
        assert_eq!(ApiClient::new(&node, &other).get(SHORT_URLS).json()["shortUrls"]["pagination"]["totalItems"], 2);
        drop(sessions);
        node.terminate();
    });
}

#[test]
fn failed_keys_are_rate_limited() {
    with_one_and_three_cores(|setup| {
        let good = new_key(&setup, "shop", "write-own");
        let node = setup.start();
        let mut caller = ApiClient::new(&node, "carom_ak_000000000000000000000000000000000");
        let mut tried = 0;
        let refused = loop {
            let reply = caller.get(SHORT_URLS);
            if reply.status != 401 {
                break reply;
            }
            tried += 1;
            assert!(tried <= 40, "nobody minds");
        };
        assert!(tried >= 30, "{tried}");
        refused.problem(429, ":too-many-requests");
        assert!(refused.field("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
        // Nobody is locked out by that, and another address is another one.
        let wrong = std::mem::replace(&mut caller.fields, format!("X-Api-Key: {good}\r\n"));
        assert_eq!(caller.get(SHORT_URLS).status, 200);
        assert_eq!(from(&node, "127.0.0.2", &request("GET", SHORT_URLS, &wrong)).status, 401);
        node.terminate();
    });
}

#[test]
fn public_listener_requires_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data")).argument("--listen").argument("0.0.0.0:0");
    let (code, said) = setup.fail();
    assert_eq!(code, 20, "{said}");
    assert!(said.contains("carom app add"), "{said}");
    assert!(said.contains("--open"), "{said}");
    let admin = new_key(&setup, "ops", "admin");
    let node = setup.start();
    let public = SocketAddr::from(([127, 0, 0, 1], node.public.port()));
    let ask = |fields: &str| Wire::open(public).ask("GET", SHORT_URLS, fields, b"").status;
    assert_eq!(ask(""), 401);
    assert_eq!(ask(&format!("X-Api-Key: {admin}\r\n")), 200);
    let setup = node.terminate();
    // An admin listener for others tells them nothing without a key that may manage apps, and makes none.
    let writer = new_key(&setup, "shop", "write-all");
    let setup = setup.argument("--admin-listen").argument("0.0.0.0:0").expect("without TLS");
    let node = setup.start();
    assert!(node.log().contains("session cookies cross the network unencrypted"), "{}", node.log());
    let address = SocketAddr::from(([127, 0, 0, 1], node.admin.port()));
    for (path, method) in [("/status", "GET"), ("/shorturl_status", "GET"), ("/apps", "GET"), ("/apps/ops", "DELETE")] {
        let ask = |fields: &str| Wire::open(address).ask(method, path, fields, b"");
        ask("").problem(401, "/missing-authentication");
        ask("X-Api-Key: none\r\n").problem(401, "/invalid-api-key");
        ask(&format!("X-Api-Key: {writer}\r\n")).problem(403, ":forbidden");
        assert_eq!(ask(&format!("X-Api-Key: {admin}\r\n")).status, 200, "{path}");
    }
    assert_eq!(Wire::open(address).get("/healthz").status, 200);
    let setup = node.terminate();
    // What says who may do what must be whole.
    std::fs::write(setup.data_dir().join("apps.json"), "{").unwrap();
    let (code, said) = setup.fail();
    assert_eq!(code, 18, "{said}");
    assert!(said.contains("apps.json"), "{said}");
    assert!(said.contains("backup"), "{said}");
}
