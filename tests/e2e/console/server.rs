//! The API of the console: sessions, cross-site requests, and the data that only the console reads. The other modules
//! show its pages.

use serde_json::{Value, json};

use crate::support::api_client::{self, JSON};
use crate::support::bulk::{self, BULK, many};
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::node::{Node, Setup, sum, wait_for, wait_until};

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
const TARGET: &str = "https://example.org/target";

/// A browser that is signed in, without a screen.
struct SignedIn {
    wire: Wire,
    cookie: String,
    csrf: String,
}

/// Sends the form of the sign-in page.
fn sign_in(node: &Node, key: &str, fields: &str) -> Reply {
    let body = format!("key={key}&next=%2Fadmin%2Flinks");
    Wire::open(node.admin).ask("POST", "/admin/sign-in", &format!("{FORM}{fields}"), body.as_bytes())
}

/// The cookie that an answer sets, as a browser sends it back.
fn cookie(reply: &Reply) -> String {
    let set = reply.field("set-cookie").unwrap_or_else(|| panic!("no cookie: {reply:?}"));
    set.split(';').next().unwrap().to_owned()
}

impl SignedIn {
    fn new(node: &Node, key: &str) -> SignedIn {
        SignedIn::of(node, &sign_in(node, key, ""))
    }

    /// The browser that a response to a sign-in let in.
    fn of(node: &Node, reply: &Reply) -> SignedIn {
        assert_eq!((reply.status, reply.location()), (303, "/admin/links"), "{}", reply.text());
        let mut signed_in = SignedIn { wire: Wire::open(node.admin), cookie: cookie(reply), csrf: String::new() };
        signed_in.csrf = signed_in.get("/admin/api/session").json()["csrf"].as_str().unwrap().to_owned();
        signed_in
    }

    fn get(&mut self, path: &str) -> Reply {
        self.wire.ask("GET", path, &format!("Cookie: {}\r\n", self.cookie), b"")
    }

    fn send(&mut self, method: &str, path: &str, fields: &str, body: &str) -> Reply {
        let fields = format!("Cookie: {}\r\nX-CSRF-Token: {}\r\n{fields}", self.cookie, self.csrf);
        self.wire.ask(method, path, &fields, body.as_bytes())
    }

    fn create(&mut self, fields: &Value) -> String {
        self.send("POST", SHORT_URLS, JSON, &fields.to_string()).code()
    }
}

/// A node that asks for keys, and one with the role admin.
fn with_key(setup: &Setup) -> (Node, String) {
    let key = api_client::new_key(setup, "ops", "admin");
    let node = setup.start();
    wait_until("keys that are asked for", || Wire::open(node.admin).get("/admin/api/session").status == 401);
    (node, key)
}

#[test]
fn sign_in_page_returns_to_the_page_asked_for() {
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
fn sign_in_needs_a_valid_admin_key() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let writer = api_client::new_key(&setup, "shop", "write-all");
    let (node, key) = with_key(&setup);
    let wrong = sign_in(&node, "carom_ak_none", "");
    assert_eq!((wrong.status, wrong.field("set-cookie")), (401, None));
    assert!(wrong.text().contains("id=\"key-error\""));
    let little = sign_in(&node, &writer, "");
    assert_eq!((little.status, little.field("set-cookie")), (403, None));
    assert!(little.text().contains("id=\"key-error\""), "{}", little.text());
    assert!(!little.text().contains(&writer), "{}", little.text());
    // The API here is for those alone who may use the listener.
    let with = |key: &str| format!("X-Api-Key: {key}\r\n");
    let mut wire = Wire::open(node.admin);
    assert_eq!(wire.ask("GET", SHORT_URLS, &with(&writer), b"").status, 403);
    assert_eq!(wire.ask("GET", SHORT_URLS, &with(&key), b"").status, 200);
    assert_eq!(wire.get(SHORT_URLS).status, 401);
    // A cookie of a key that holds no more hides no other.
    let former = api_client::new_key(&setup, "former", "admin");
    wait_until("one more key", || sign_in(&node, &former, "").status == 303);
    let (mut former, present) = (SignedIn::new(&node, &former), SignedIn::new(&node, &key));
    api_client::run_app(&setup, &["revoke", "former"]);
    wait_until("the end of the session", || former.get("/admin/api/session").status == 401);
    former.cookie = format!("{}; {}", former.cookie, present.cookie.replace("carom-console", "carom-console-1"));
    assert_eq!(former.get("/admin/api/session").status, 200);
    // Who guesses is stopped, and who has a key is not.
    let guess = || sign_in(&node, "carom_ak_none", "");
    wait_until("no more guesses", || guess().status == 429);
    assert!(guess().field("retry-after").is_some());
    assert!(guess().text().contains("id=\"key-error\""));
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
    browser.csrf = token;
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

#[test]
fn links_are_created_like_over_the_api() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).cores(3);
    let (node, key) = with_key(&setup);
    let mut browser = SignedIn::new(&node, &key);
    let code = browser.create(&json!({"longUrl": TARGET, "tags": ["a"]}));
    assert_eq!(node.wire().get(&format!("/{code}")).location(), TARGET);
    assert_eq!(browser.get(&format!("{SHORT_URLS}/{code}")).json()["app"], "ops");
    // More than a core lends at once, from all of them.
    let reply = browser.send("POST", BULK, "Content-Type: application/x-ndjson\r\n", &many(2_000));
    let lines: Vec<Value> = reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2_000);
    assert!(lines.iter().all(|line| line["status"] == 200));
    let total = |wire: &mut SignedIn, query: &str| {
        wire.get(&format!("{SHORT_URLS}?{query}")).json()["shortUrls"]["pagination"]["totalItems"].as_u64()
    };
    wait_until("all of them", || total(&mut browser, "") == Some(2_001));
    assert_eq!(sum(&node.status(), "/codes/errors"), 0);
    assert_eq!(browser.send("PUT", SHORT_URLS, "", "").status, 405);
    browser.get("/rest/v3/none").problem(404, "not-found");
    // One in each state, and what an app has made.
    for (slug, fields) in [
        ("scheduled", json!({"validSince": "2099-01-01T00:00:00Z"})),
        ("ended", json!({"validUntil": "2020-01-01T00:00:00Z"})),
        ("archived", json!({"archived": true})),
        ("usedUp", json!({"maxVisits": 1})),
    ] {
        let mut fields = fields;
        fields["longUrl"] = json!(TARGET);
        fields["customSlug"] = json!(slug);
        fields["tags"] = json!(["state"]);
        browser.create(&fields);
    }
    assert_eq!(node.wire().get("/usedUp").status, 302);
    for state in ["scheduled", "ended", "archived", "usedUp"] {
        let listed = wait_for("the link of that state", || {
            let list = browser.get(&format!("{SHORT_URLS}?state={state}&tags[]=state")).json();
            let codes: Vec<Value> =
                list["shortUrls"]["data"].as_array()?.iter().map(|link| link["shortCode"].clone()).collect();
            (!codes.is_empty()).then_some(codes)
        });
        assert_eq!(listed, [json!(state)]);
        let exported = browser.get(&format!("{SHORT_URLS}/export?state={state}&tags[]=state"));
        assert_eq!(exported.text().lines().count(), 1, "{state}: {}", exported.text());
    }
    assert_eq!(total(&mut browser, "state=active&tags[]=state"), Some(0));
    assert_eq!(total(&mut browser, "app=ops&tags[]=a"), Some(1));
    assert_eq!(total(&mut browser, "app=none"), Some(0));
    let told = browser.get(&format!("{SHORT_URLS}?state=gone&app=A%20B")).problem(400, "invalid-data");
    assert_eq!(told["invalidElements"], json!(["app", "state"]));
    node.terminate();
}

#[test]
fn history_names_authors_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).cores(2);
    let shop = api_client::new_key(&setup, "shop", "write-own");
    let (node, key) = with_key(&setup);
    let mut caller = api_client::ApiClient::new(&node, &shop);
    wait_until("the key of the shop", || caller.is_known(&node));
    let fields = json!({"longUrl": TARGET, "customSlug": "changing", "title": "<b>before</b>"});
    assert_eq!(caller.create(&fields).status, 200);
    let path = format!("{SHORT_URLS}/changing");
    let change = |caller: &mut api_client::ApiClient, fields: Value| {
        caller.ask("PATCH", &path, JSON, &fields.to_string()).status
    };
    assert_eq!(change(&mut caller, json!({"title": "after", "tags": ["x"]})), 200);
    // What changes nothing is no change.
    assert_eq!(change(&mut caller, json!({"title": "after"})), 200);
    let mut browser = SignedIn::new(&node, &key);
    assert_eq!(browser.send("PATCH", &path, JSON, &json!({"archived": true}).to_string()).status, 200);
    assert_eq!(browser.send("DELETE", &path, "", "").status, 204);
    let node = node.restart();
    let mut browser = SignedIn::new(&node, &key);
    let told = browser.get("/admin/api/history/changing").json();
    let told = told["history"].as_array().unwrap();
    let short: Vec<(&str, &str, &str)> = told
        .iter()
        .map(|edit| {
            let text = |name: &str| edit[name].as_str().unwrap();
            (text("what"), text("app"), text("through"))
        })
        .collect();
    assert_eq!(short, [("deleted", "ops", "admin"), ("changed", "ops", "admin"), ("changed", "shop", "api")]);
    assert_eq!(told[1]["changes"], json!([{"field": "archived", "from": false, "to": true}]));
    assert_eq!(
        told[2]["changes"],
        json!([{"field": "tags", "from": [], "to": ["x"]}, {"field": "title", "from": "<b>before</b>", "to": "after"}])
    );
    assert_eq!(browser.get("/admin/api/history/never").json(), json!({"history": []}));
    // A slug that is given again has a history of its own.
    browser.create(&fields);
    assert_eq!(browser.get("/admin/api/history/changing").json(), json!({"history": []}));
    assert_eq!(browser.send("PATCH", &path, JSON, &json!({"title": "new"}).to_string()).status, 200);
    let told = browser.get("/admin/api/history/changing").json();
    let told = told["history"].as_array().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(&told[0]["changes"][0]["to"], &json!("new"), "{told:?}");
    assert_eq!(Wire::open(node.admin).get("/admin/api/history/changing").status, 401);
    node.terminate();
}

/// A node in use: a link in the default domain with five visits, and one in `go.test` with two.
struct Used {
    node: Node,
    key: String,
    /// The code of the link in the default domain.
    code: String,
    /// The code of the link in `go.test`.
    elsewhere: String,
}

impl Used {
    fn new(dir: &std::path::Path) -> Used {
        let setup = Setup::new(dir)
            .cores(2)
            .env("CAROM_DOMAINS_SERVE", "http://go.test")
            .env("CAROM_BASE_URL", "http://carom.test");
        let (node, key) = with_key(&setup);
        let mut browser = SignedIn::new(&node, &key);
        let code = browser.create(&json!({"longUrl": TARGET}));
        let elsewhere = browser.create(&json!({"longUrl": TARGET, "domain": "go.test"}));
        let mut wire = node.wire();
        for _ in 0..5 {
            wire.ask("GET", &format!("/{code}"), "Referer: https://news.example/\r\n", b"");
        }
        for _ in 0..2 {
            wire.get_at("go.test", &format!("/{elsewhere}"));
        }
        wire.get("/nothing-here");
        Used { node, key, code, elsewhere }
    }

    /// The usage of the last days, once every visit is counted.
    fn usage(&self) -> Value {
        let mut browser = SignedIn::new(&self.node, &self.key);
        wait_for("all visits", || {
            let told = browser.get("/admin/api/usage").json();
            (told["visits"]["summary"]["total"] == 7 && !told["topLinks"].as_array()?.is_empty()).then_some(told)
        })
    }
}

/// A number of visits, none by bots.
fn visits(total: u64) -> Value {
    json!({"total": total, "nonBots": total, "bots": 0})
}

/// The usage of a domain with one link.
fn of_domain(domain: &Value, total: u64) -> Value {
    json!({"domain": domain, "links": 1, "created": 1, "visits": visits(total)})
}

#[test]
fn usage_reports_visits_and_links() {
    let dir = tempfile::tempdir().unwrap();
    let used = Used::new(dir.path());
    let told = used.usage();
    assert_eq!(told["topLinks"][0]["link"]["shortCode"], json!(used.code));
    assert_eq!(&told["topLinks"][0]["visits"]["total"], &json!(5));
    assert_eq!(&told["orphanVisits"]["summary"]["total"], &json!(1));
    assert_eq!(told["visits"]["referrers"], json!([{"host": "news.example", "total": 5}]));
    assert_eq!(&told["links"]["total"], &json!(2));
    assert_eq!(&told["links"]["created"], &json!(2));
    assert_eq!(told["links"]["byApp"], json!([{"app": "ops", "links": 2, "created": 2, "visits": visits(7)}]));
    assert_eq!(told["links"]["byDomain"], json!([of_domain(&Value::Null, 5), of_domain(&json!("go.test"), 2)]));
    let days = told["links"]["perDay"].as_array().unwrap();
    assert_eq!(days.iter().map(|day| day["links"].as_u64().unwrap()).sum::<u64>(), 2);
    used.node.terminate();
}

#[test]
fn usage_covers_the_days_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let used = Used::new(dir.path());
    used.usage();
    let mut browser = SignedIn::new(&used.node, &used.key);
    let before = browser.get("/admin/api/usage?startDate=2020-01-01&endDate=2020-01-31").json();
    assert_eq!(&before["visits"]["summary"]["total"], &json!(0));
    assert_eq!(&before["links"]["created"], &json!(0));
    assert_eq!(before["visits"]["referrers"], json!([]));
    assert_eq!(before["links"]["perDay"].as_array().unwrap().len(), 31);
    assert_eq!(&before["links"]["total"], &json!(2));
    let wrong = browser.get("/admin/api/usage?startDate=2020-02-01&endDate=2020-01-01").problem(400, "invalid-data");
    assert_eq!(wrong["invalidElements"], json!(["startDate"]));
    // Of a day that is not whole its part counts.
    let ago = |ms: u64| carom_model::dates::format(carom_telemetry::clock::unix_ms() - ms).replace('+', "%2B");
    let (hours, minutes) = (ago(7_200_000), ago(3_600_000));
    let part = browser.get(&format!("/admin/api/usage?startDate={hours}&endDate={minutes}")).json();
    let sum: u64 = part["links"]["perDay"].as_array().unwrap().iter().map(|day| day["links"].as_u64().unwrap()).sum();
    assert_eq!(sum, 0, "{part}");
    assert_eq!(&part["links"]["created"], &json!(0), "{part}");
    used.node.terminate();
}

#[test]
fn usage_keeps_links_of_removed_domains() {
    let dir = tempfile::tempdir().unwrap();
    let used = Used::new(dir.path());
    used.usage();
    let Used { node, key, code, elsewhere } = used;
    let node = node.terminate().env("CAROM_DOMAINS_SERVE", "http://other.test").start();
    let told = wait_for("links that are counted", || {
        let told = SignedIn::new(&node, &key).get("/admin/api/usage").json();
        told["links"]["total"].is_number().then_some(told)
    });
    let domains = &told["links"]["byDomain"];
    let none = json!({"domain": "other.test", "links": 0, "created": 0, "visits": visits(0)});
    assert_eq!(*domains, json!([of_domain(&Value::Null, 5), none, of_domain(&json!("go.test"), 2)]));
    // Also where there is no other domain at all any more.
    let node = node.terminate().env("CAROM_DOMAINS_SERVE", "").expect("CAROM_DOMAINS_SERVE is empty").start();
    for (domain, code) in [("DEFAULT", &code), ("go.test", &elsewhere)] {
        let links = SignedIn::new(&node, &key).get(&format!("{SHORT_URLS}?domain={domain}")).json();
        let links = links["shortUrls"]["data"].as_array().unwrap();
        assert_eq!(links.iter().map(|link| &link["shortCode"]).collect::<Vec<_>>(), [&json!(code)], "{domain}");
    }
    node.terminate();
}

#[test]
fn settings_hide_the_code_secret() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path())
        .cores(2)
        .env("CAROM_SPACE_KEY", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    let (node, key) = with_key(&setup);
    let mut browser = SignedIn::new(&node, &key);
    let settings = browser.get("/admin/api/settings");
    let all = settings.json()["settings"].as_array().unwrap().clone();
    let named = |name: &str| all.iter().find(|setting| setting["name"] == name).unwrap().clone();
    assert_eq!(&named("cores")["value"], &json!("2"));
    assert_eq!(&named("space_key")["value"], &Value::Null);
    assert_eq!(named("space_key")["hidden"], true);
    assert!(!settings.text().contains("0001020304050607"), "the secret key is shown");
    node.terminate();
}

#[test]
fn url_check_tells_what_is_blocked() {
    let dir = tempfile::tempdir().unwrap();
    let (node, key) = with_key(&Setup::new(dir.path()).env("CAROM_BLOCK_HOSTS", "*.evil.example"));
    let mut browser = SignedIn::new(&node, &key);
    let mut check = |url: &str| {
        let reply = browser.send("POST", "/admin/api/check-url", JSON, &json!({"longUrl": url}).to_string());
        assert_eq!(reply.status, 200, "{}", reply.text());
        let told = reply.json();
        (told["accepted"].as_bool().unwrap(), told["blockList"].as_str().unwrap().to_owned(), told["longUrl"].clone())
    };
    assert_eq!(check("HTTPS://Example.org"), (true, "not blocked".to_owned(), json!("https://example.org/")));
    assert_eq!(check("https://x.evil.example/"), (false, "blocked".to_owned(), json!("https://x.evil.example/")));
    assert_eq!(check("javascript:alert(1)"), (false, "not blocked".to_owned(), Value::Null));
    assert_eq!(check(""), (false, "not blocked".to_owned(), Value::Null));
    node.terminate();
}

#[test]
fn events_report_each_second() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).start();
    let code = node.wire().shorten(TARGET);
    let mut events = Wire::open(node.admin);
    events.send(b"GET /admin/api/events HTTP/1.1\r\nHost: carom.test\r\n\r\n");
    let mut text = String::new();
    let mut wire = node.wire();
    let told = wait_for("redirects in an event", || {
        for _ in 0..50 {
            wire.get(&format!("/{code}"));
        }
        text.push_str(&String::from_utf8_lossy(&events.some()));
        let whole = text.split("data: ").skip(1).filter_map(|rest| rest.split_once("\n\n"));
        let told = whole.filter_map(|(data, _)| serde_json::from_str::<Value>(data).ok());
        let now = told.map(|told| told["now"].clone());
        now.filter(|now| now["redirects"].as_u64() > Some(0) && now["latencyMicros"]["p99"].is_number()).last()
    });
    let micros = |name: &str| told["latencyMicros"][name].as_f64().unwrap();
    assert!(0.0 < micros("p50"), "{told}");
    assert!(micros("p50") <= micros("p90"), "{told}");
    assert!(micros("p99") <= micros("p999"), "{told}");
    // Nobody waits for pages that are open, and come again and again.
    let admin = node.admin;
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let Ok(mut again) = Wire::try_open(admin) else { return };
                    let _ = again.try_send(b"GET /admin/api/events HTTP/1.1\r\nHost: carom.test\r\n\r\n");
                    let _ = again.try_reply(false);
                }
            });
        }
        let mut seen = Wire::open(admin);
        seen.send(b"GET /admin/api/events HTTP/1.1\r\nHost: carom.test\r\n\r\n");
        seen.some();
        node.terminate();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

const LINKS: &str = "/admin/api/links";

/// Asks the admin listener of an open node for something.
fn ask_admin(node: &Node, method: &str, path: &str) -> Reply {
    Wire::open(node.admin).ask(method, path, "", b"")
}

/// Archives a link, or restores it.
fn archive(node: &Node, code: &str, archived: bool) {
    let body = json!({ "archived": archived }).to_string();
    let reply = node.wire().ask("PATCH", &format!("{SHORT_URLS}/{code}"), JSON, body.as_bytes());
    assert_eq!((reply.status, &reply.json()["deletesAt"]), (200, &Value::Null), "{reply:?}");
}

#[test]
fn delayed_delete_runs_unless_undone() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).start();
    let codes = ["gone", "restored", "kept", "noted", "late"];
    codes.iter().for_each(|code| node.wire().shorten_as(code, TARGET));
    let status = |node: &Node, code: &str| node.wire().get(&format!("/{code}")).status;
    let at = |seconds: u32| {
        for code in codes {
            let told = ask_admin(&node, "DELETE", &format!("{LINKS}/{code}?after={seconds}"));
            assert_eq!((told.status, &told.json()["archived"]), (200, &json!(true)), "{told:?}");
            assert!(told.json()["deletesAt"].is_string(), "{told:?}");
            assert_eq!(status(&node, code), 410);
        }
    };
    at(600);
    // Any browser sees what waits; another time takes the place of the first.
    assert!(node.wire().get(&format!("{SHORT_URLS}/gone")).json()["deletesAt"].is_string());
    at(2);
    archive(&node, "restored", false);
    archive(&node, "kept", true);
    let body = br#"{"title": "T"}"#;
    assert!(node.wire().ask("PATCH", &format!("{SHORT_URLS}/noted"), JSON, body).json()["deletesAt"].is_string());
    assert_eq!(ask_admin(&node, "DELETE", &format!("{LINKS}/late?after=3600")).status, 200);
    for code in ["gone", "noted"] {
        wait_until("a link that is gone", || status(&node, code) == 404);
        node.wire().get(&format!("{SHORT_URLS}/{code}")).problem(404, "/short-url-not-found");
    }
    let history = ask_admin(&node, "GET", "/admin/api/history/gone").json();
    assert_eq!(&history["history"][0]["what"], &json!("deleted"), "{history}");
    assert_eq!(&history["history"][0]["through"], &json!("admin"), "{history}");
    assert_eq!([status(&node, "restored"), status(&node, "kept"), status(&node, "late")], [302, 410, 410]);
    // Whatever becomes of the process: the time is kept with the link.
    assert_eq!(ask_admin(&node, "DELETE", &format!("{LINKS}/restored?after=1")).status, 200);
    let node = node.kill().start();
    wait_until("a link that is gone", || status(&node, "restored") == 404);
    assert_eq!([status(&node, "kept"), status(&node, "late")], [410, 410]);
    for wrong in ["", "?after=0", "?after=3601", "?after=soon", "?after=-1"] {
        let problem = ask_admin(&node, "DELETE", &format!("{LINKS}/kept{wrong}")).problem(400, "/invalid-data");
        assert_eq!(problem["invalidElements"], json!(["after"]), "{wrong}");
    }
    ask_admin(&node, "DELETE", &format!("{LINKS}/none?after=1")).problem(404, "/short-url-not-found");
    ask_admin(&node, "GET", &format!("{LINKS}/kept")).problem(405, "/method-not-allowed");
    let reply = node.wire().ask("DELETE", &format!("{LINKS}/kept?after=1"), "", b"");
    assert_eq!(reply.status, 404, "the public listener has no such path");
    assert_eq!(status(&node, "kept"), 410, "the public listener has no such path");
    node.terminate();
}
