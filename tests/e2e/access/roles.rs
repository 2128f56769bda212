//! The roles of API keys: what each may read and change, over the API, in the console, and in the form.

use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, JSON, new_key, run_app, try_run_app};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::sessions::{SignedIn, more_keys, sign_in, with_key};

const TARGET: &str = "https://example.org/";

fn codes(list: &Value) -> Vec<&str> {
    list["shortUrls"]["data"].as_array().unwrap().iter().map(|link| link["shortCode"].as_str().unwrap()).collect()
}

/// Waits until a node accepts a key.
fn accepted(node: &Node, key: &str) -> ApiClient {
    let mut client = ApiClient::new(node, key);
    wait_until("a key that is accepted", || client.is_known(node));
    client
}

#[test]
fn read_all_reads_every_link_and_changes_none() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).cores(2).env("CAROM_EVENTS_LOG", "on").env("CAROM_VISITS_LOG", "on");
    let writer = new_key(&setup, "shop", "write-own");
    let reader = new_key(&setup, "audit", "read-all");
    let little = new_key(&setup, "audit", "read");
    let node = setup.start();
    let mut shop = accepted(&node, &writer);
    let code = shop.shorten(TARGET);
    let path = format!("{SHORT_URLS}/{code}");
    let mut audit = accepted(&node, &reader);
    assert_eq!(audit.get(&path).json()["app"], "shop");
    wait_until("the link in a list", || codes(&audit.get(SHORT_URLS).json()) == [&*code]);
    assert_eq!(audit.get(&format!("{SHORT_URLS}/export")).text().lines().count(), 1);
    for path in ["/rest/v3/visits", "/rest/v3/visits/orphan", "/rest/v3/visits/stats", "/rest/v3/events"] {
        assert_eq!(audit.get(path).status, 200, "{path}");
    }
    audit.create(&json!({"longUrl": TARGET})).problem(403, "forbidden");
    for (method, path, body) in [
        ("PATCH", &*path, r#"{"title": "mine"}"#),
        ("DELETE", &*path, ""),
        ("PUT", "/rest/v3/tags", r#"{"oldName": "a", "newName": "b"}"#),
        ("DELETE", "/rest/v3/visits/orphan", ""),
        ("PATCH", "/rest/v3/domains/redirects", r#"{"domain": "carom.test", "baseUrlRedirect": null}"#),
        ("POST", "/rest/v3/short-urls/bulk", "{}"),
    ] {
        assert_eq!(audit.ask(method, path, JSON, body).status, 403, "{method} {path}");
    }
    assert_eq!(audit.get(&format!("{SHORT_URLS}/shorten?longUrl={TARGET}")).status, 403);
    assert_eq!(shop.get(&path).json()["title"], Value::Null);
    let per_day = format!("/rest/v3/visits/per-day?shortCodes[]={code}");
    assert_eq!(audit.get(&per_day).json()["visits"]["data"][0]["shortCode"], code.as_str());
    // The app of the key decides for the smaller role.
    let mut own = accepted(&node, &little);
    own.get(&path).problem(404, "/short-url-not-found");
    assert_eq!(own.get("/rest/v3/visits").json()["visits"]["visitsCount"], 0);
    own.get("/rest/v3/visits/orphan").problem(403, "forbidden");
    assert_eq!(own.get(&per_day).json()["visits"]["data"], json!([]));
    node.terminate();
}

#[test]
fn unknown_role_is_refused_with_the_known_ones() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let wrong = try_run_app(&setup, &["add", "shop", "--role", "root"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success(), "{said}");
    assert!(said.contains("read, read-all, write-own, write-all, admin"), "{said}");
    new_key(&setup, "shop", "read-all");
    let file = setup.data_dir().join("apps.json");
    let text = std::fs::read_to_string(&file).unwrap().replace("read-all", "read-most");
    std::fs::write(&file, text).unwrap();
    let told = try_run_app(&setup, &["list"]);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("\"read-most\""), "{told}");
    assert!(told.contains("expected one of read, read-all"), "{told}");
}

#[test]
fn names_of_keys_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let key = run_app(&setup, &["add", "shop", "--role", "read", "--name", "Anna’s phone"]);
    assert!(run_app(&setup, &["list"]).contains("Anna’s phone"));
    let (node, admin) = with_key(&setup);
    assert_eq!(accepted(&node, &key).get("/rest/v3/api-key").json()["apiKey"]["name"], "Anna’s phone");
    let mut browser = SignedIn::new(&node, &admin);
    let made = browser.send("POST", "/apps", JSON, &json!({"app": "shop", "name": "Till 1"}).to_string());
    assert_eq!(made.status, 201, "{}", made.text());
    let wrong = browser.send("POST", "/apps", JSON, &json!({"app": "shop", "name": " "}).to_string());
    assert_eq!(wrong.problem(400, "invalid-data")["invalidElements"], json!(["name"]));
    run_app(&setup, &["rotate", "shop", "--key", made.json()["id"].as_str().unwrap(), "--grace", "0"]);
    wait_until("a key with the name of the old one", || {
        let apps = browser.get("/apps").json();
        let shop = apps["apps"].as_array().unwrap().iter().find(|app| app["app"] == "shop").cloned().unwrap();
        shop["keys"].as_array().unwrap().iter().filter(|key| key["name"] == "Till 1").count() == 2
    });
    wait_until("a key that signs in", || sign_in(&node, &key, "").status == 303);
    let mut anna = SignedIn::new(&node, &key);
    assert_eq!(anna.get("/admin/api/session").json()["keyName"], "Anna’s phone");
    node.terminate();
}

#[test]
fn console_follows_the_role_of_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (node, admin) = with_key(&setup);
    let mut boss = SignedIn::new(&node, &admin);
    let code = boss.create(&json!({"longUrl": TARGET}));
    let path = format!("{SHORT_URLS}/{code}");
    let roles = ["read", "read-all", "write-own", "write-all"];
    let keys = more_keys(&setup, &node, roles.map(|role| (role, role)));
    for (role, key) in roles.into_iter().zip(&keys) {
        let mut user = SignedIn::new(&node, key);
        assert_eq!(user.get("/admin/").status, 200);
        let told = user.get("/admin/api/session").json();
        assert_eq!((&told["role"], &told["app"]), (&json!(role), &json!(role)));
        // Nobody but an admin sees the sessions of others.
        assert!(told["sessions"].as_array().unwrap().iter().all(|one| one["app"] == role), "{told}");
        // This machine is trusted without a session, and not with one of another role.
        for (method, path) in [("GET", "/apps"), ("GET", "/status"), ("GET", "/metrics"), ("POST", "/apps")] {
            let body = r#"{"app": "evil", "role": "admin"}"#;
            assert_eq!(user.send(method, path, JSON, body).status, 403, "{role}: {method} {path}");
        }
        for path in ["/admin/api/events", "/admin/api/settings"] {
            assert_eq!(user.get(path).status, 403, "{role}: {path}");
        }
        for (method, body) in [("POST", "{}"), ("PUT", r#"{"version": ""}"#), ("DELETE", "")] {
            let refused = user.send(method, "/admin/api/destination-rules?version=0", JSON, body);
            assert_eq!(refused.status, 403, "{role}: {method}");
        }
        assert_eq!(user.send("POST", "/admin/api/check-url", JSON, r#"{"longUrl": "https://a.example"}"#).status, 403);
        let (sees, writes) = (role.ends_with("-all"), role.starts_with("write"));
        for path in ["/admin/api/usage", "/admin/api/destination-rules"] {
            assert_eq!(user.get(path).status, if sees { 200 } else { 403 }, "{role}: {path}");
        }
        for path in [
            path.clone(),
            format!("/admin/api/history/{code}"),
            format!("/admin/api/visits/{code}?startDate=2020-01-01"),
        ] {
            assert_eq!(user.get(&path).status, if sees { 200 } else { 404 }, "{role}: {path}");
        }
        let made = user.send("POST", SHORT_URLS, JSON, &json!({"longUrl": TARGET}).to_string());
        assert_eq!(made.status, if writes { 200 } else { 403 }, "{role}: {}", made.text());
        let deleted = user.send("DELETE", &format!("/admin/api/links/{code}?after=20"), "", "");
        let expected = match role {
            "write-all" => 200,
            "write-own" => 404,
            _ => 403,
        };
        assert_eq!(deleted.status, expected, "{role}: {}", deleted.text());
        let tried = user.send("POST", &format!("/admin/api/try-rules/{code}"), JSON, r#"{"redirectRules": []}"#);
        assert_eq!(tried.status, expected, "{role}: {}", tried.text());
        // No role lets a user end the session of another key.
        let id = boss.get("/admin/api/session").json();
        let id = id["sessions"].as_array().unwrap().iter().find(|one| one["current"] == true).unwrap()["id"].clone();
        let ended = user.send("DELETE", &format!("/admin/api/sessions/{}", id.as_str().unwrap()), "", "");
        assert_eq!(ended.status, 404, "{role}");
        assert_eq!(user.send("DELETE", "/admin/api/sessions", "", "").status, 204, "{role}");
        assert_eq!(boss.get("/admin/api/session").status, 200, "{role}");
    }
    node.terminate();
}

#[test]
fn later_deletes_and_restores_follow_the_role() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let roles = ["read", "read-all", "write-own", "write-all"];
    let keys = roles.map(|role| new_key(&setup, role, role));
    let other = new_key(&setup, "shop", "write-own");
    let node = setup.start();
    let mut shop = accepted(&node, &other);
    let foreign = shop.shorten(TARGET);
    let restore = r#"{"archived": false}"#;
    for (role, key) in roles.into_iter().zip(&keys) {
        let mut client = accepted(&node, key);
        let path = format!("{SHORT_URLS}/{foreign}");
        let expected = match role {
            "write-all" => 200,
            "write-own" => 404,
            _ => 403,
        };
        let deleted = client.ask("DELETE", &format!("{path}?after=3600"), "", "");
        assert_eq!(deleted.status, expected, "{role}: {deleted:?}");
        assert_eq!(shop.get(&path).json()["deletesAt"].is_string(), expected == 200, "{role}");
        assert_eq!(shop.ask("DELETE", &format!("{path}?after=3600"), "", "").status, 200, "{role}");
        assert_eq!(client.ask("PATCH", &path, JSON, restore).status, expected, "{role}");
        assert_eq!(shop.get(&path).json()["deletesAt"].is_null(), expected == 200, "{role}");
        assert_eq!(shop.ask("PATCH", &path, JSON, restore).status, 200, "{role}");
    }
    node.terminate();
}

#[test]
fn form_accepts_the_session_of_the_console() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let writer = run_app(&setup, &["add", "shop", "--role", "write-own", "--name", "Anna"]);
    let reader = new_key(&setup, "audit", "read");
    let (node, _) = with_key(&setup);
    let asks = || (0..8).all(|_| form(&mut node.wire(), "").contains("name=\"key\""));
    wait_until("a form that asks for a key", asks);
    for key in [&writer, &reader] {
        wait_until("a key that signs in", || sign_in(&node, key, "").status == 303);
        accepted(&node, key);
    }
    let mut anna = SignedIn::new(&node, &writer);
    let page = form(&mut node.wire(), &anna.cookie);
    assert!(page.contains("Signed in as Anna"), "{page}");
    assert!(!page.contains("name=\"key\""), "{page}");
    assert!(page.contains(&format!("name=\"csrf\" value=\"{}\"", anna.csrf)), "{page}");
    let send = |cookie: &str, csrf: &str, fields: &str| {
        let fields = format!("Cookie: {cookie}\r\nAccept: text/html\r\n{FORM}{fields}");
        let body = format!("longUrl=https%3A%2F%2Fexample.org&csrf={csrf}");
        node.wire().ask("POST", "/", &fields, body.as_bytes())
    };
    let made = send(&anna.cookie, &anna.csrf, "");
    assert_eq!(made.status, 303, "{}", made.text());
    wait_until("the link of the form", || anna.get(SHORT_URLS).json()["shortUrls"]["data"][0]["app"] == "shop");
    // A cookie alone creates nothing, and neither does a page of another site.
    assert_eq!(send(&anna.cookie, "", "").status, 403);
    assert_eq!(send(&anna.cookie, &anna.csrf, "Origin: https://evil.example\r\n").status, 403);
    assert_eq!(send("carom-console=none", "none", "").status, 401);
    // A key that may not create links is asked for another one.
    let audit = SignedIn::new(&node, &reader);
    assert!(form(&mut node.wire(), &audit.cookie).contains("name=\"key\""));
    assert_eq!(anna.send("DELETE", "/admin/api/session", "", "").status, 204);
    assert_eq!(send(&anna.cookie, &anna.csrf, "").status, 401);
    node.terminate();
}

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

/// Returns the page with the form, as a browser with that cookie gets it.
fn form(wire: &mut Wire, cookie: &str) -> String {
    let page = wire.ask("GET", "/", &format!("Cookie: {cookie}\r\nAccept: text/html\r\n"), b"");
    assert_eq!(page.status, 200, "{}", page.text());
    page.text().to_owned()
}
