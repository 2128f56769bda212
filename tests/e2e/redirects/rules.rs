//! Redirect rules: which destination a visitor gets, on every core, over both HTTP paths, and after changes, restarts,
//! backups and imports. Single conditions are tested in `carom-model` with the tables of Shlink.

use serde_json::{Value, json};

use crate::support::api_client::JSON;
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::links::{change, everybody_gets, moved_to, on_every_kind, wires};
use crate::support::node::Setup;

const ANDROID: &str = "User-Agent: Mozilla/5.0 (Linux; Android 13) AppleWebKit/537.36\r\n";
const IPHONE: &str = "User-Agent: Mozilla/5.0 (iPhone; CPU iPhone OS 16_4 like Mac OS X)\r\n";
const EDGE: &str = "User-Agent: Mozilla/5.0 (Windows NT 10.0) Chrome/120.0.0.0 Safari/537.36 Edg/120.0\r\n";

fn condition(kind: &str, key: Option<&str>, value: Option<&str>) -> Value {
    json!({"type": kind, "matchKey": key, "matchValue": value})
}

fn rule(url: &str, conditions: &[Value]) -> Value {
    json!({"longUrl": url, "conditions": conditions})
}

fn set(wire: &mut Wire, code: &str, rules: &[Value]) -> Reply {
    let body = json!({ "redirectRules": rules }).to_string();
    wire.ask("POST", &format!("{SHORT_URLS}/{code}/redirect-rules"), JSON, body.as_bytes())
}

/// The one destination that all connections get with these fields of the head.
fn destination(wires: &mut [Wire], path: &str, fields: &str) -> String {
    let ask = |wire: &mut Wire| {
        let reply = wire.ask("GET", path, fields, b"");
        assert_eq!(reply.status, 302, "{path} {fields}");
        reply.location().to_owned()
    };
    let mut found: Vec<String> = wires.iter_mut().map(ask).collect();
    found.dedup();
    assert_eq!(found.len(), 1, "{path} {fields}: {found:?}");
    found.remove(0)
}

#[test]
fn conditions_decide_on_every_core_and_path() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut wires = wires(&node);
        let code = wires[0].shorten("https://default.test/");
        let path = format!("/{code}");
        // The network of the clients, over the kernel and over bypass.
        let network = if node.is_over_bypass() { "10.78.0.0/16" } else { "127.0.0.0/8" };
        let rules = [
            rule(
                "https://fr-app.test/",
                &[condition("device", None, Some("android")), condition("language", None, Some("fr"))],
            ),
            rule("https://app.test/", &[condition("device", None, Some("mobile"))]),
            rule("https://fr.test/", &[condition("language", None, Some("fr"))]),
            rule("https://a-b.test/", &[condition("query-param", Some("a"), Some("b c"))]),
            rule("https://bare.test/", &[condition("valueless-query-param", Some("bare"), None)]),
            rule("https://any.test/", &[condition("any-value-query-param", Some("any"), None)]),
            rule("https://edge.test/", &[condition("browser", None, Some("edge"))]),
            rule("https://never.test/", &[condition("geolocation-country-code", None, Some("FR"))]),
            rule("https://never.test/", &[condition("geolocation-city-name", None, Some("Paris"))]),
            rule("https://never.test/", &[condition("before-date", None, Some("2020-01-01T00:00:00+00:00"))]),
            rule("https://never.test/", &[condition("ip-address", None, Some("192.0.2.*"))]),
            rule(
                "https://late.test/",
                &[
                    condition("after-date", None, Some("2020-01-01T00:00:00Z")),
                    condition("before-date", None, Some("2999-01-01T00:00:00Z")),
                    condition("ip-address", None, Some(network)),
                    condition("any-value-query-param", Some("late"), None),
                ],
            ),
        ];
        let reply = set(&mut wires[1], &code, &rules);
        assert_eq!(reply.status, 200, "{}", reply.text());
        for (query, fields, expected) in [
            ("", "", "https://default.test/"),
            ("", ANDROID, "https://app.test/"),
            ("", IPHONE, "https://app.test/"),
            ("", EDGE, "https://edge.test/"),
            ("", "Accept-Language: fr-CA, en;q=0.5\r\n", "https://fr.test/"),
            ("", "accept-language:FR\r\n", "https://fr.test/"),
            ("", "Accept-Language: en, fr;q=0.5\r\n", "https://default.test/"),
            ("", "Accept-Language: en\r\nAccept: */*\r\nAccept-Language: de, fr\r\n", "https://fr.test/"),
            ("?a=b+c", "", "https://a-b.test/?a=b+c"),
            ("?bare", "", "https://bare.test/?bare"),
            ("?bare=1", "", "https://default.test/?bare=1"),
            ("?x=1&any=1", "", "https://any.test/?x=1&any=1"),
            ("?late", "", "https://late.test/?late"),
        ] {
            assert_eq!(destination(&mut wires, &format!("{path}{query}"), fields), expected);
        }
        let both = format!("{ANDROID}Accept-Language: fr\r\n");
        assert_eq!(destination(&mut wires, &path, &both), "https://fr-app.test/");
        // A visitor whose fields are as long as they can be.
        let long = format!("User-Agent: Android {}\r\n", "x".repeat(7_000));
        assert_eq!(destination(&mut wires, &path, &long), "https://app.test/");
        let many = format!("Accept-Language: fr,{}\r\n", "xx,".repeat(500));
        assert_eq!(destination(&mut wires, &path, &many), "https://fr.test/");
    });
}

#[test]
fn changes_apply_at_once_and_outlast_a_kill() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut asking = wires(&node);
        let code = asking[0].shorten("https://default.test/");
        let (path, api) = (format!("/{code}"), format!("{SHORT_URLS}/{code}"));
        let ios = condition("device", None, Some("ios"));
        // Copies of the plain link are with all cores.
        (0..4).for_each(|_| assert_eq!(everybody_gets(&mut asking, &path), moved_to("https://default.test/")));
        for round in 0..4 {
            let url = format!("https://round{round}.test/");
            assert_eq!(set(&mut asking[round], &code, &[rule(&url, std::slice::from_ref(&ios))]).status, 200);
            assert_eq!(destination(&mut asking, &path, IPHONE), url);
            assert_eq!(destination(&mut asking, &path, ""), "https://default.test/");
        }
        assert_eq!(change(&mut asking[0], &code, &json!({"longUrl": "https://other.test/", "title": "T"})).status, 200);
        assert_eq!(destination(&mut asking, &path, ""), "https://other.test/");
        assert_eq!(asking[0].get(&api).json()["hasRedirectRules"], true);
        drop(asking);
        node.kill();
        let node = setup.start();
        let mut asking = wires(&node);
        assert_eq!(destination(&mut asking, &path, IPHONE), "https://round3.test/");
        assert_eq!(
            asking[0].get(&format!("{api}/redirect-rules")).json(),
            json!({"defaultLongUrl": "https://other.test/", "redirectRules": [
                {"longUrl": "https://round3.test/", "priority": 1, "conditions": [ios]},
            ]})
        );
        assert_eq!(set(&mut asking[0], &code, &[]).json()["redirectRules"], json!([]));
        assert_eq!(destination(&mut asking, &path, IPHONE), "https://other.test/");
        assert_eq!(asking[0].get(&api).json()["hasRedirectRules"], false);
        assert_eq!(set(&mut asking[0], &code, &[rule("https://again.test/", &[ios])]).status, 200);
        assert_eq!(change(&mut asking[0], &code, &json!({"archived": true})).status, 200);
        assert_eq!(everybody_gets(&mut asking, &path).0, 410);
        assert_eq!(asking[0].delete(&code).status, 204);
        assert_eq!(everybody_gets(&mut asking, &path).0, 404);
    });
}

#[test]
fn a_visit_by_a_rule_counts_for_the_limit() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut wires = wires(&node);
        let code = wires[0].create(&json!({"longUrl": "https://default.test/", "maxVisits": 8})).code();
        assert_eq!(
            set(&mut wires[0], &code, &[rule("https://app.test/", &[condition("device", None, Some("mobile"))])])
                .status,
            200
        );
        let mut found: Vec<(u16, Option<String>)> = Vec::new();
        for (at, wire) in wires.iter_mut().enumerate() {
            let reply = wire.ask("GET", &format!("/{code}"), if at % 2 == 0 { ANDROID } else { "" }, b"");
            found.push((reply.status, reply.field("location").map(str::to_owned)));
        }
        let expected = |at: usize| match at {
            8.. => (410, None),
            at if at % 2 == 0 => moved_to("https://app.test/"),
            _ => moved_to("https://default.test/"),
        };
        assert_eq!(found, (0..wires.len()).map(expected).collect::<Vec<_>>());
    });
}

#[test]
fn a_visitor_keeps_its_share() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data")).cores(2);
    let node = setup.start();
    let mut wires = wires(&node);
    let mut counts = [0; 2];
    for number in 0..40 {
        let code = format!("weighted{number}");
        wires[0].shorten_as(&code, "https://rest.test/");
        assert_eq!(
            set(&mut wires[0], &code, &[rule("https://half.test/", &[condition("weight", None, Some("50"))])]).status,
            200
        );
        let found = destination(&mut wires, &format!("/{code}"), "");
        counts[usize::from(found == "https://half.test/")] += 1;
    }
    // The address is always the same, so that the codes alone make the difference.
    assert!(counts.iter().all(|count| *count >= 8), "{counts:?}");
}

#[test]
fn wrong_rules_are_refused_by_path() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(&dir.path().join("data")).start();
    let mut wire = node.wire();
    let code = wire.shorten("https://default.test/");
    let reply = set(
        &mut wire,
        &code,
        &[
            rule("https://a.test/", &[condition("device", None, Some("fridge")), condition("weather", None, None)]),
            rule("ftp://a.test/", &[]),
        ],
    );
    let problem = reply.problem(400, "https://shlink.io/api/error/invalid-data");
    assert_eq!(
        problem["invalidElements"],
        json!([
            "redirectRules[0].conditions[0].matchValue",
            "redirectRules[0].conditions[1].type",
            "redirectRules[1].longUrl",
            "redirectRules[1].conditions",
        ])
    );
    let reply = set(&mut wire, "missing", &[]);
    assert_eq!(reply.problem(404, "https://shlink.io/api/error/short-url-not-found")["shortCode"], "missing");
    // Conditions that contradict each other are taken, as in Shlink, and never match.
    let (ios, android) = (condition("device", None, Some("ios")), condition("device", None, Some("android")));
    assert_eq!(set(&mut wire, &code, &[rule("https://a.test/", &[ios, android])]).status, 200);
    assert_eq!(wire.ask("GET", &format!("/{code}"), ANDROID, b"").location(), "https://default.test/");
}

#[test]
fn rules_are_tried_without_a_visit() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(&dir.path().join("data")).start();
    let mut wire = node.wire();
    let code = wire.shorten("https://default.test/");
    let rules = [
        rule(
            "https://fr.test/",
            &[condition("device", None, Some("desktop")), condition("geolocation-country-code", None, Some("FR"))],
        ),
        rule("https://old.test/", &[condition("before-date", None, Some("2026-01-01T00:00:00Z"))]),
    ];
    assert_eq!(set(&mut wire, &code, &rules).status, 200);
    let api = format!("{SHORT_URLS}/{code}/redirect-rules/try");
    let tried = wire.get(&format!("{api}?userAgent=Windows&country=FR&ipAddress=192.0.2.1")).json();
    assert_eq!((&tried["longUrl"], &tried["priority"]), (&json!("https://fr.test/"), &json!(1)));
    let tried = wire.get(&format!("{api}?userAgent=Windows&date=2025-06-01T00:00:00Z")).json();
    assert_eq!((&tried["longUrl"], &tried["priority"]), (&json!("https://old.test/"), &json!(2)));
    let matches: Vec<&Value> =
        tried["redirectRules"][0]["conditions"].as_array().unwrap().iter().map(|of| &of["matches"]).collect();
    assert_eq!(matches, [&json!(true), &json!(false)]);
    let tried = wire.get(&api).json();
    assert_eq!((&tried["longUrl"], &tried["priority"]), (&json!("https://default.test/"), &Value::Null));
    assert_eq!(wire.get(&format!("{api}?ipAddress=x")).status, 400);
}

#[test]
fn a_thread_describes_many_conditions() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut wire = node.wire();
        let code = wire.shorten("https://default.test/");
        // More conditions than a core describes or tries itself.
        let conditions: Vec<Value> =
            (0..10).map(|number| condition("any-value-query-param", Some(&format!("p{number}")), None)).collect();
        let rules: Vec<Value> = (0..20).map(|_| rule("https://many.test/", &conditions)).collect();
        let reply = node.by_document_thread(|| set(&mut wire, &code, &rules));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let path = format!("{SHORT_URLS}/{code}/redirect-rules");
        for path in [path.clone(), format!("{path}/try")] {
            let shown = node.by_document_thread(|| wire.get(&path).json());
            assert_eq!(shown["redirectRules"].as_array().unwrap().len(), 20, "{path}: {shown}");
        }
    });
}
