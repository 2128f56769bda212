//! The API of the console: the data that only the console reads. `sessions` signs in; the other modules show its pages.

use serde_json::{Value, json};

use crate::support::api_client::{self, JSON};
use crate::support::bulk::{BULK, many};
use crate::support::destination_rules::RULES;
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::node::{Node, Setup, sum, wait_for, wait_until};
use crate::support::sessions::{SignedIn, with_key};

const TARGET: &str = "https://example.org/target";

#[test]
fn links_are_created_like_over_the_api() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).cores(3).env("CAROM_LINKS_KEEP_EXPIRED", "forever");
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
    assert_eq!(browser.get("/admin/api/history/never").json()["history"], json!([]));
    // A slug that is given again has a history of its own.
    browser.create(&fields);
    assert_eq!(browser.get("/admin/api/history/changing").json()["history"], json!([]));
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
            let totals = [&told["visits"]["summary"], &told["orphanVisits"]["summary"], &told["topLinks"][0]["visits"]];
            (totals.map(|one| one["total"].as_u64()) == [Some(7), Some(1), Some(5)]).then_some(told)
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
    let ago = |ms: u64| carom_model::formats::dates::format(carom_telemetry::clock::unix_ms() - ms).replace('+', "%2B");
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
fn drafts_of_rules_change_nothing() {
    let (dir, lists) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let listed = lists.path().join("blocked.json");
    std::fs::write(&listed, r#"{"1": "read.example"}"#).unwrap();
    let source = listed.to_str().unwrap();
    let setup = Setup::new(dir.path()).env("CAROM_BLOCK_HOSTS", "evil.example").env("CAROM_BLOCK_SOURCE", source);
    let (node, key) = with_key(&setup);
    let mut browser = SignedIn::new(&node, &key);
    let in_force = browser.get(RULES).json();
    assert_eq!(in_force["block"], json!({"hosts": ["evil.example"], "source": source, "hidesSource": false}));
    let mut send = |path: &str, body: &Value| browser.send("POST", path, JSON, &body.to_string());
    let draft = json!({"allow": {"hosts": ["*.Shop.example"]}, "block": {"source": source}});
    let reply = send(RULES, &draft);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let told = reply.json();
    assert_eq!(told["allow"]["hosts"], json!(["*.shop.example"]));
    // The text of a draft reads back as the same draft.
    assert_eq!(send(RULES, &json!({"toml": told["toml"]})).json(), told);
    for (wrong, fields) in [
        (json!({"allow": {"hosts": ["a.example", "https://b.example"]}}), json!(["allow.hosts[1]"])),
        (json!({"toml": "[allow]\nhosts = [\n'a b']\n"}), json!(["toml"])),
        (json!({"toml": "[log]\nlevel = 'warn'\n"}), json!(["toml"])),
    ] {
        let refused = send(RULES, &wrong);
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert_eq!(refused.json()["invalidElements"], fields, "{}", refused.text());
    }
    let mut check = |url: &str, rules: &Value| {
        let told = send("/admin/api/check-url", &json!({"longUrl": url, "rules": rules})).json();
        (told["accepted"].clone(), told["allowList"].clone(), told["blockList"].clone())
    };
    let expected = |accepted: Value, allow: &str, block: &str| (accepted, json!(allow), json!(block));
    assert_eq!(check("https://a.shop.example/", &draft), expected(json!(true), "allowed", "not blocked"));
    assert_eq!(check("https://shop.example/", &draft), expected(json!(false), "not allowed", "not blocked"));
    // The draft keeps the source, and drops the host of the settings.
    let block = |source: Option<&str>| json!({"block": {"source": source}});
    assert_eq!(check("https://read.example/", &block(Some(source))), expected(json!(false), "no list", "blocked"));
    assert_eq!(check("https://evil.example/", &block(Some(source))), expected(json!(true), "no list", "not blocked"));
    assert_eq!(check("https://read.example/", &block(None)), expected(json!(true), "no list", "no list"));
    // Nobody has read another source yet.
    assert_eq!(check("https://read.example/", &block(Some("/other"))), expected(Value::Null, "no list", "unknown"));
    assert_eq!(browser.get(RULES).json(), in_force);
    let body = json!({"longUrl": "https://evil.example/"}).to_string();
    assert_eq!(browser.send("POST", SHORT_URLS, JSON, &body).status, 400, "the rules in force still apply");
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
        told.filter(|told| {
            told["now"]["redirects"].as_u64() > Some(0) && told["now"]["latencyMicros"]["p99"].is_number()
        })
        .last()
    });
    // The window began with the first event, and the time since the start has all requests.
    let (window, ever) = (&told["latency"]["window"], &told["latency"]["sinceStart"]);
    for quantiles in [window, ever] {
        assert!(quantiles["p50"].as_f64() <= quantiles["p99"].as_f64(), "{quantiles}");
        assert!(quantiles["p99"].as_f64() <= quantiles["p999"].as_f64(), "{quantiles}");
    }
    assert!(window["count"].as_u64() >= told["now"]["latencyMicros"]["count"].as_u64(), "{told}");
    assert!(window["count"].as_u64() <= ever["count"].as_u64(), "{told}");
    let told = &told["now"];
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
    // Longer than a stall of the machine before the changes that follow.
    at(6);
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

#[test]
fn files_of_pages_are_packed_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (node, key) = with_key(&setup);
    let pages = [SignedIn::new(&node, &key).get("/admin/links"), Wire::open(node.admin).get("/admin/sign-in")];
    let mut wire = Wire::open(node.admin);
    for page in &pages {
        assert!(page.text().contains("<meta name=\"description\" content=\""), "{}", page.text());
        let files = page.text().split("=\"/admin/assets/").skip(1).filter_map(|rest| rest.split('"').next());
        let files: Vec<&str> = files.collect();
        assert!(files.len() > 4, "{files:?}");
        for file in files {
            let reply = wire.ask("GET", &format!("/admin/assets/{file}"), "Accept-Encoding: gzip\r\n", b"");
            assert_eq!(
                (reply.status, reply.field("cache-control")),
                (200, Some("public, max-age=31536000, immutable"))
            );
            assert_eq!(reply.field("content-encoding").is_some(), !file.ends_with(".woff2"), "{file}");
        }
    }
    // Without a revision, a browser asks each time, and gets nothing that it has.
    let plain = wire.get("/admin/assets/app.js");
    assert_eq!((plain.field("cache-control"), plain.field("content-encoding")), (Some("no-cache"), None));
    let known = format!("If-None-Match: {}\r\n", plain.field("etag").unwrap());
    assert_eq!(wire.ask("GET", "/admin/assets/app.js", &known, b"").status, 304);
    node.terminate();
}
