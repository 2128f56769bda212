//! Sessions of the console: sign-in, sign-out, cookies and cross-site requests.

use serde_json::{Value, json};

use crate::support::api_client::{self, JSON};
use crate::support::bulk::{self, BULK};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{Setup, wait_for, wait_until};
use crate::support::sessions::{SignedIn, sign_in, with_key};

const TARGET: &str = "https://example.org/target";

#[test]
fn sign_in_returns_to_the_page_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (node, key) = with_key(&setup);
    let mut wire = Wire::open(node.admin);
    let page = wire.get("/admin/links?searchTerm=a%20b");
    assert_eq!((page.status, page.location()), (303, "/admin/sign-in?next=/admin/links%3FsearchTerm%3Da%2520b"));
    let form = wire.get(page.location());
    assert_eq!(form.status, 200);
    assert!(form.text().contains("value=\"&#x2f;admin&#x2f;links?searchTerm=a%20b\""));
    assert!(!form.text().contains(&key));
    assert!(form.field("content-security-policy").unwrap().starts_with("default-src 'none'; script-src 'self';"));
    let mut signed_in = SignedIn::new(&node, &key);
    assert_eq!(signed_in.get("/admin/").status, 200);
    assert_eq!(signed_in.get("/admin/sign-in?next=/admin/apps").location(), "/admin/apps");
    node.terminate();
}

#[test]
fn session_cookie_is_closed_to_scripts() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (node, key) = with_key(&setup);
    let reply = sign_in(&node, &key, "");
    let set = reply.field("set-cookie").unwrap();
    assert!(set.starts_with("carom-console="), "{set}");
    assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{set}");
    // A proxy in front of the node speaks TLS.
    let set = sign_in(&node, &key, "X-Forwarded-Proto: https\r\nUser-Agent: Browser/1 <b>\r\n")
        .field("set-cookie")
        .unwrap()
        .to_owned();
    assert!(set.starts_with("__Host-carom-console="), "{set}");
    assert!(set.ends_with("; SameSite=Strict; Secure"), "{set}");
    // Whichever way the browser comes, it is its own cookie that goes, and none of another node.
    let mut tls = SignedIn::of(&node, &sign_in(&node, &key, "X-Forwarded-Proto: https\r\n"));
    tls.cookie = format!("carom-console-1=other; {}; b=c", tls.cookie);
    let out = tls.send("DELETE", "/admin/api/session", "", "");
    assert_eq!(
        out.field("set-cookie"),
        Some("__Host-carom-console=; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=0")
    );
    node.terminate();
}

#[test]
fn session_lists_all_sessions_of_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (node, key) = with_key(&setup);
    sign_in(&node, &key, "User-Agent: Browser/1 <b>\r\n");
    let mut first = SignedIn::new(&node, &key);
    let told = first.get("/admin/api/session").json();
    assert_eq!(&told["app"], &json!("ops"));
    assert_eq!(&told["open"], &json!(false));
    let sessions = told["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2);
    assert_eq!(sessions.iter().filter(|session| session["current"] == true).count(), 1);
    assert!(!told.to_string().contains(&key), "the key is shown");
    let others: Vec<_> = sessions.iter().map(|session| (&session["address"], &session["userAgent"])).collect();
    assert!(others.contains(&(&json!("127.0.0.1"), &json!("Browser/1 <b>"))), "{others:?}");
    node.terminate();
}

#[test]
fn session_lasts_until_sign_out() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (node, key) = with_key(&setup);
    let mut first = SignedIn::new(&node, &key);
    let mut second = SignedIn::new(&node, &key);
    let of_second = second.get("/admin/api/session").json();
    let of_second = of_second["sessions"].as_array().unwrap().iter().find(|session| session["current"] == true);
    let id = of_second.unwrap()["id"].as_str().unwrap().to_owned();
    assert_eq!(first.send("DELETE", &format!("/admin/api/sessions/{id}"), "", "").status, 204);
    assert_eq!(second.get("/admin/api/session").status, 401);
    assert_eq!(first.send("DELETE", &format!("/admin/api/sessions/{id}"), "", "").status, 404);
    let mut third = SignedIn::new(&node, &key);
    assert_eq!(first.send("DELETE", "/admin/api/sessions", "", "").status, 204);
    assert_eq!(third.get("/admin/api/session").status, 401);
    assert_eq!(first.get("/admin/api/session").status, 200);
    let out = first.send("DELETE", "/admin/api/session", "", "");
    assert_eq!(out.status, 204);
    assert!(out.field("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(first.get("/admin/api/session").status, 401);
    // Signing in again replaces the session of the browser.
    let mut earlier = SignedIn::new(&node, &key);
    let mut later = SignedIn::of(&node, &sign_in(&node, &key, &format!("Cookie: {}\r\n", earlier.cookie)));
    assert_eq!(earlier.get("/admin/api/session").status, 401);
    assert_eq!(later.get("/admin/api/session").status, 200);
    // A restart ends every session.
    let mut fourth = SignedIn::new(&node, &key);
    let node = node.restart();
    fourth.wire = Wire::open(node.admin);
    assert_eq!(fourth.get("/admin/api/session").status, 401);
    let log = node.terminate_and_tell().1;
    assert!(!log.contains(&key[9..]), "the key is in the log");
}

#[test]
fn session_ends_with_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).env("CAROM_ADMIN_REQUIRE_KEY", "true");
    let (node, key) = with_key(&setup);
    let mut events = SignedIn::new(&node, &key);
    let mut browser = SignedIn::new(&node, &key);
    assert_eq!(browser.get("/apps").status, 200);
    let request = format!("GET /admin/api/events HTTP/1.1\r\nHost: carom.test\r\nCookie: {}\r\n\r\n", events.cookie);
    events.wire.send(request.as_bytes());
    api_client::run_app(&setup, &["revoke", "ops"]);
    wait_until("the end of the session", || browser.get("/admin/api/session").status == 401);
    assert_eq!(browser.get("/apps").status, 401);
    assert_eq!(browser.get(SHORT_URLS).status, 401);
    // The stream ends as it should, so that the page asks who it is.
    assert!(events.wire.reply().text().contains("event: status\ndata: {"));
    node.terminate();
}

#[test]
fn ended_session_stops_its_requests() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (node, key) = with_key(&setup);
    let line = "{\"longUrl\": \"https://example.org/\"}\n";
    let (mut thief, mut owner) = (SignedIn::new(&node, &key), SignedIn::new(&node, &key));
    let mut begun = [&thief, &owner].map(|it| {
        let fields = format!("Cookie: {}\r\nX-CSRF-Token: {}\r\n", it.cookie, it.csrf);
        let head =
            format!("POST {BULK} HTTP/1.1\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n");
        bulk::Session::open(node.admin, &(head + &fields))
    });
    for session in &mut begun {
        session.send(line);
        assert_eq!(session.begin(), 200);
        assert_eq!(session.result()["status"].clone(), json!(200));
    }
    assert_eq!(owner.send("DELETE", "/admin/api/sessions", "", "").status, 204);
    assert_eq!(thief.get("/admin/api/session").status, 401);
    for (session, status) in begun.iter_mut().zip([401, 200]) {
        session.send(line);
        assert_eq!(session.result()["status"], status);
    }
    drop(begun);
    node.terminate();
}

#[test]
fn sign_in_needs_a_valid_key() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (node, key) = with_key(&setup);
    let wrong = sign_in(&node, "carom_ak_none", "");
    assert_eq!((wrong.status, wrong.field("set-cookie")), (401, None));
    assert!(wrong.text().contains("id=\"key-error\""));
    let with = |key: &str| format!("X-Api-Key: {key}\r\n");
    let mut wire = Wire::open(node.admin);
    assert_eq!(wire.ask("GET", SHORT_URLS, &with(&key), b"").status, 200);
    assert_eq!(wire.get(SHORT_URLS).status, 401);
    // The console skips the cookie of a revoked key, and finds a valid cookie behind it.
    let former = api_client::new_key(&setup, "former", "admin");
    wait_until("one more key", || sign_in(&node, &former, "").status == 303);
    let (mut former, present) = (SignedIn::new(&node, &former), SignedIn::new(&node, &key));
    api_client::run_app(&setup, &["revoke", "former"]);
    wait_until("the end of the session", || former.get("/admin/api/session").status == 401);
    former.cookie = format!("{}; {}", former.cookie, present.cookie.replace("carom-console", "carom-console-1"));
    assert_eq!(former.get("/admin/api/session").status, 200);
    // Who guesses is stopped, and who has a key is not.
    let guess = || sign_in(&node, "carom_ak_none", "");
    let refused = wait_for("no more guesses", || Some(guess()).filter(|reply| reply.status == 429));
    assert!(refused.field("retry-after").is_some());
    assert!(refused.text().contains("id=\"key-error\""));
    assert_eq!(sign_in(&node, &key, "").status, 303);
    node.terminate();
}

#[test]
fn cross_site_requests_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (node, key) = with_key(&setup);
    for fields in ["Origin: https://evil.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        let reply = sign_in(&node, &key, fields);
        assert_eq!((reply.status, reply.field("set-cookie")), (403, None), "{fields}");
    }
    let mut browser = SignedIn::new(&node, &key);
    let code = browser.create(&json!({"longUrl": TARGET}));
    let path = format!("{SHORT_URLS}/{code}");
    // A cookie alone changes nothing, nor does the token of somebody else.
    let token = std::mem::take(&mut browser.csrf);
    let other = SignedIn::new(&node, &key).csrf;
    for csrf in [String::new(), "0".repeat(64), other] {
        browser.csrf = csrf;
        let told = browser.send("DELETE", &path, "", "");
        assert!(told.problem(403, "forbidden")["detail"].as_str().unwrap().contains("X-CSRF-Token"));
        browser.send("POST", SHORT_URLS, JSON, &json!({"longUrl": TARGET}).to_string()).problem(403, "forbidden");
        browser.send("DELETE", "/admin/api/sessions", "", "").problem(403, "forbidden");
    }
    // One path creates a link with `GET`. A page on another port of this host can make the browser open it, with the cookie.
    let single_step = format!("{SHORT_URLS}/shorten?longUrl={TARGET}");
    browser.get(&single_step).problem(403, "forbidden");
    browser.csrf = token;
    assert_eq!(browser.send("GET", &single_step, "", "").status, 200);
    browser.send("DELETE", &path, "Origin: https://evil.example\r\n", "").problem(403, "forbidden");
    assert_eq!(browser.get(&path).status, 200);
    assert_eq!(browser.send("DELETE", &path, "Origin: https://carom.test\r\n", "").status, 204);
    // A key that is shown counts, whatever cookie comes with it.
    let fields = format!("Cookie: {}\r\nX-Api-Key: carom_ak_none\r\n", browser.cookie);
    assert_eq!(browser.wire.ask("GET", SHORT_URLS, &fields, b"").status, 401);
    node.terminate();
}

#[test]
fn keyless_console_serves_loopback_only() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut wire = Wire::open(node.admin);
    let told = wire.get("/admin/api/session").json();
    assert_eq!(&told["open"], &json!(true));
    assert_eq!(&told["csrf"], &Value::Null);
    assert_eq!(wire.get("/admin/").status, 200);
    assert_eq!(wire.get("/").location(), "/admin/");
    assert_eq!(sign_in(&node, "", "").location(), "/admin/links");
    wire.shorten(TARGET);
    // A link on another site may lead to a page, but not to the path that creates a link with `GET`.
    let led_here = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
    assert_eq!(wire.ask("GET", "/admin/", led_here, b"").status, 200);
    let single_step = format!("{SHORT_URLS}/shorten?longUrl={TARGET}");
    wire.ask("GET", &single_step, led_here, b"").problem(403, "forbidden");
    assert_eq!(wire.get(&single_step).status, 200);
    // What comes through a proxy comes from anywhere.
    for field in [
        "X-Forwarded-For: 203.0.113.7\r\n",
        "Forwarded: for=203.0.113.7\r\n",
        "X-Forwarded-Proto: https\r\n",
        "X-Real-IP: 203.0.113.7\r\n",
        "Via: 1.1 proxy\r\n",
        "x-forwarded-port: 443\r\n",
    ] {
        for (method, path) in [("POST", "/apps"), ("GET", "/apps"), ("GET", "/status"), ("GET", "/admin/api/session")] {
            let body = br#"{"app":"evil","role":"admin"}"#;
            let refused = Wire::open(node.admin).ask(method, path, &format!("{JSON}{field}"), body);
            assert_eq!(refused.status, 401, "{field}{method} {path}: {}", refused.text());
        }
    }
    let node = node.terminate().env("CAROM_ADMIN_REQUIRE_KEY", "true").start();
    let mut wire = Wire::open(node.admin);
    assert_eq!(wire.get(SHORT_URLS).status, 401);
    assert_eq!(wire.get("/admin/api/session").status, 401);
    let page = wire.get("/admin/");
    let form = wire.get(page.location()).text().to_owned();
    assert!(form.contains("carom app add ops --role admin"), "{form}");
    assert_eq!(sign_in(&node, "", "").status, 401);
    node.terminate();
}
