//! Slugs with slashes, and slugs in any case of letters, as Shlink has them by its settings.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::http::{SHORT_URLS, Wire};
use crate::support::links::{everybody_gets, moved_to, on_every_kind, wires};
use crate::support::node::{CAROM, Node, Setup, wait_until};
use crate::support::visits::BROWSER;

const TARGET: &str = "https://example.org/a?b=1";
const SLUG: &str = "docs/2026/start";
const ESCAPED: &str = "docs%2F2026%2Fstart";
const JSON: &str = "Content-Type: application/json\r\n";

fn with_slashes(setup: &Setup) -> Setup {
    setup.clone().env("CAROM_LINKS_MULTI_SEGMENT_SLUGS", "true")
}

fn in_any_case(setup: &Setup) -> Setup {
    setup.clone().env("CAROM_LINKS_SLUG_CASE", "insensitive")
}

fn create(node: &Node, slug: &str, target: &str) -> String {
    let reply = node.wire().create(&json!({"longUrl": target, "customSlug": slug}));
    assert_eq!(reply.status, 200, "{slug}: {reply:?}");
    reply.code()
}

#[test]
fn slug_with_slashes_redirects_on_every_core() {
    on_every_kind(|setup| {
        let node = with_slashes(setup).start();
        assert_eq!(create(&node, &format!("/{SLUG}/"), TARGET), SLUG);
        let mut wires = wires(&node);
        for path in [format!("/{SLUG}"), format!("/{ESCAPED}"), "/docs%2F2026/start".to_owned()] {
            assert_eq!(everybody_gets(&mut wires, &path), moved_to(TARGET), "{path}");
        }
        assert_eq!(everybody_gets(&mut wires, &format!("/{SLUG}?c=2")), moved_to(&format!("{TARGET}&c=2")));
        for path in ["/docs", "/docs/2026", "/docs/2026/start/", "/docs/2026/start/x", "/docs//2026/start", "/start"] {
            assert_eq!(everybody_gets(&mut wires, path).0, 404, "{path}");
        }
        drop(wires);
        // A restart reads the slug from the store or the image, and the setting is needed only to create more.
        let node = with_slashes(&node.terminate()).env("CAROM_LINKS_MULTI_SEGMENT_SLUGS", "false").start();
        assert_eq!(everybody_gets(&mut self::wires(&node), &format!("/{SLUG}")), moved_to(TARGET));
        let refused = node.wire().create(&json!({"longUrl": TARGET, "customSlug": "docs/other"}));
        let told = refused.problem(400, "/invalid-data")["detail"].to_string();
        assert!(told.contains("links.multi_segment_slugs"), "{told}");
        let mut wires = self::wires(&node);
        assert_eq!(everybody_gets(&mut wires, &format!("/{SLUG}/track")).0, 200);
        assert_eq!(everybody_gets(&mut wires, "/no/link/track").0, 404);
        assert_eq!(node.wire().ask("DELETE", &format!("{SHORT_URLS}/{ESCAPED}"), "", b"").status, 204);
        assert_eq!(everybody_gets(&mut self::wires(&node), &format!("/{SLUG}")).0, 404);
    });
}

#[test]
fn calls_for_a_link_take_slashes() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_slashes(&Setup::new(dir.path()).cores(2)).env("CAROM_VISITS_LOG", "on").start();
    create(&node, SLUG, TARGET);
    let mut wire = node.wire();
    assert_eq!(wire.get(&format!("/{SLUG}/qr-code")).field("content-type"), Some("image/png"));
    assert_eq!(wire.get(&format!("/{SLUG}+")).text(), format!("{TARGET}\n"));
    assert_eq!(wire.ask("GET", &format!("/{SLUG}/track"), BROWSER, b"").field("content-type"), Some("image/gif"));
    // Shlink takes the slashes with and without escapes.
    for slug in [SLUG, ESCAPED] {
        let path = |rest: &str| format!("{SHORT_URLS}/{slug}{rest}");
        assert_eq!(wire.get(&path("")).json()["shortCode"], SLUG);
        wait_until("the visit by the pixel", || wire.get(&path("/visits")).json()["visits"]["summary"]["total"] == 1);
        assert_eq!(wire.get(&path("/qr")).field("content-type"), Some("image/png"));
        let rules = json!({"redirectRules": [{"longUrl": "https://example.org/phone", "priority": 1,
            "conditions": [{"type": "device", "matchKey": null, "matchValue": "android"}]}]});
        assert_eq!(wire.ask("POST", &path("/redirect-rules"), JSON, rules.to_string().as_bytes()).status, 200);
        assert_eq!(wire.get(&path("/redirect-rules/try?userAgent=x")).status, 200);
        let changed = wire.ask("PATCH", &path(""), JSON, br#"{"title": "Start"}"#).json();
        assert_eq!((&changed["title"], &changed["shortUrl"]), (&json!("Start"), &json!(node.url(&format!("/{SLUG}")))));
    }
    let android = "User-Agent: Mozilla/5.0 (Linux; Android 15) Mobile\r\n";
    assert_eq!(wire.ask("GET", &format!("/{SLUG}"), android, b"").location(), "https://example.org/phone");
    let search = format!("{SHORT_URLS}?searchTerm=2026%2Fsta");
    wait_until("the list", || wire.get(&search).json()["shortUrls"]["data"][0]["shortCode"] == SLUG);
    let line = json!({"shortCode": SLUG, "change": {"title": "Bulk"}}).to_string();
    let lines = wire.ask(
        "POST",
        &format!("{SHORT_URLS}/bulk/changes"),
        "Content-Type: application/x-ndjson\r\n",
        line.as_bytes(),
    );
    assert!(lines.text().contains("200"), "{lines:?}");
    assert_eq!(wire.get(&format!("{SHORT_URLS}/{ESCAPED}")).json()["title"], "Bulk");
}

#[test]
fn creators_see_their_link_with_slashes() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_slashes(&Setup::new(dir.path())).start();
    let mut wire = node.wire();
    let fields = "Accept: text/html\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    let form = format!("longUrl=https%3A%2F%2Fexample.org%2F&customSlug={ESCAPED}");
    let sent = wire.ask("POST", "/", fields, form.as_bytes());
    assert_eq!(sent.status, 303, "{sent:?}");
    assert!(sent.location().starts_with(&format!("/-/links/{ESCAPED}?mark=")), "{sent:?}");
    let page = wire.get(sent.location());
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")), "{page:?}");
}

#[test]
fn other_interfaces_expand_slugs_with_slashes() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_slashes(&Setup::new(dir.path()).all_interfaces()).start();
    for (slug, target) in [(SLUG, TARGET), ("start", "https://example.org/other")] {
        create(&node, slug, target);
    }
    let expand = |name: &str| {
        let body = json!({"bitlink_id": name}).to_string();
        let reply = node.wire().ask("POST", "/v4/expand", JSON, body.as_bytes());
        (reply.status, reply.json()["long_url"].clone())
    };
    for name in
        [SLUG.to_owned(), format!("/{SLUG}/"), node.url(&format!("/{SLUG}?a=/start")), format!("go.test/{SLUG}")]
    {
        assert_eq!(expand(&name), (200, json!(TARGET)), "{name}");
    }
    // The last segment of a missing link is not the name of another one.
    for name in ["docs/start", "docs/none/start", &node.url("/docs/start")] {
        assert_eq!(expand(name), (404, Value::Null), "{name}");
    }
    assert_eq!(expand(&node.url("/start")), (200, json!("https://example.org/other")));
}

#[test]
fn slugs_with_slashes_have_reserved_ends() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_slashes(&Setup::new(dir.path())).start();
    let refused = |fields: Value| {
        let mut body = json!({"longUrl": TARGET});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        node.wire().create(&body).problem(400, "/invalid-data")["invalidElements"][0].clone()
    };
    let long = format!("{}/a", "a".repeat(61));
    for slug in ["rest/a", "Admin/b", "-/links/a", "a/track", "a/b/qr-code", "a//b", "a/./b", "a/../b", &long] {
        assert_eq!(refused(json!({"customSlug": slug})), "customSlug", "{slug}");
    }
    assert_eq!(refused(json!({"pathPrefix": "rest/"})), "pathPrefix");
    let drawn = node.wire().create(&json!({"longUrl": TARGET, "pathPrefix": "sale/", "shortCodeLength": 8})).code();
    assert!(drawn.starts_with("sale/"), "{drawn}");
    assert!(drawn.len() == 13, "{drawn}");
    assert_eq!(node.wire().get(&format!("/{drawn}")).location(), TARGET);
    assert_eq!(node.wire().get("/robots.txt").status, 200);
}

#[test]
fn whole_path_comes_before_extra_path() {
    let dir = tempfile::tempdir().unwrap();
    let setup = with_slashes(&Setup::new(dir.path()).cores(3));
    let node = setup.env("CAROM_LINKS_EXTRA_PATH", "append").env("CAROM_LINKS_TRAILING_SLASH", "true").start();
    for (slug, target) in [("a/b/c", "https://example.org/abc"), ("a/b", "https://example.org/ab"), ("x/y", TARGET)] {
        create(&node, slug, target);
    }
    let mut wires = wires(&node);
    for (path, target) in [
        ("/a/b/c", "https://example.org/abc"),
        ("/a/b/c/", "https://example.org/abc"),
        // As in Shlink, the shortest slug comes second.
        ("/a/b/c/d", "https://example.org/ab/c/d"),
        ("/a/b/d", "https://example.org/ab/d"),
        ("/a/b/", "https://example.org/ab"),
        ("/x/y/z.html?c=2", "https://example.org/a/z.html?b=1&c=2"),
    ] {
        assert_eq!(everybody_gets(&mut wires, path), moved_to(target), "{path}");
    }
    create(&node, "a", "https://example.org/first");
    assert_eq!(everybody_gets(&mut wires, "/a/b/c/d"), moved_to("https://example.org/first/b/c/d"));
    // These ask for a part of a link with slashes only if it exists.
    for end in ["+", "/track", "/qr-code"] {
        assert_eq!(everybody_gets(&mut wires, &format!("/a/b{end}")), (200, None), "{end}");
        let target = format!("https://example.org/first/z{end}");
        assert_eq!(everybody_gets(&mut wires, &format!("/a/z{end}")), moved_to(&target), "{end}");
    }
    for path in ["/b/a", "/x/z", "/none/a/b/c"] {
        assert_eq!(everybody_gets(&mut wires, path).0, 404, "{path}");
    }
}

#[test]
fn slugs_with_slashes_move_between_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let node = with_slashes(&Setup::new(&path("from"))).start();
    create(&node, SLUG, TARGET);
    let exported = Wire::open(node.admin).get(&format!("{SHORT_URLS}/export")).text().to_owned();
    let file = path("links.ndjson");
    std::fs::write(&file, exported).unwrap();
    let setup = node.terminate();
    let into = Setup::new(&path("into"));
    let imported = Command::new(CAROM).args(["import", "--data-dir"]).arg(into.data_dir()).arg(&file).output().unwrap();
    assert!(imported.status.success(), "{imported:?}");
    assert_eq!(into.start().wire().get(&format!("/{SLUG}")).location(), TARGET);
    let (backup, restored) = (path("backup"), path("restored"));
    for (command, at, data) in [("backup", &backup, setup.data_dir()), ("restore", &backup, &*restored)] {
        let done = Command::new(CAROM).arg(command).arg(at).arg("--data-dir").arg(data).output().unwrap();
        assert!(done.status.success(), "{command}: {done:?}");
    }
    assert_eq!(Setup::new(&restored).start().wire().get(&format!("/{SLUG}")).location(), TARGET);
}

#[test]
fn slugs_in_any_case_find_their_link() {
    on_every_kind(|setup| {
        let node = setup.start();
        create(&node, "Summer", "https://example.org/mixed");
        let node = with_slashes(&in_any_case(&node.terminate())).start();
        assert_eq!(create(&node, "Sale-26", TARGET), "sale-26");
        assert_eq!(create(&node, "Docs/A", TARGET), "docs/a");
        assert_eq!(create(&node, "SUMMER", "https://example.org/lower"), "summer");
        let mut wires = wires(&node);
        for path in ["/sale-26", "/SALE-26", "/Sale-26", "/docs/a", "/DOCS/A", "/Docs%2Fa"] {
            assert_eq!(everybody_gets(&mut wires, path), moved_to(TARGET), "{path}");
        }
        // A slug from before the setting is reached exactly; every other case means the new one.
        assert_eq!(everybody_gets(&mut wires, "/Summer"), moved_to("https://example.org/mixed"));
        assert_eq!(everybody_gets(&mut wires, "/sUMMER"), moved_to("https://example.org/lower"));
        assert_eq!(everybody_gets(&mut wires, "/NONE").0, 404);
        node.wire().create(&json!({"longUrl": TARGET, "customSlug": "SALE-26"})).problem(400, "/non-unique-slug");
        // Generated codes differ by case: of their other forms, at most that in lower case is a link.
        let code = node.wire().shorten("https://example.org/generated");
        assert_eq!(everybody_gets(&mut wires, &format!("/{code}")), moved_to("https://example.org/generated"));
        let swapped: String = code.chars().map(swap_case).collect();
        if swapped.to_lowercase() != code {
            assert_eq!(everybody_gets(&mut wires, &format!("/{swapped}")).0, 404, "{code} {swapped}");
        }
    });
}

fn swap_case(character: char) -> char {
    if character.is_ascii_lowercase() { character.to_ascii_uppercase() } else { character.to_ascii_lowercase() }
}

#[test]
fn the_api_finds_slugs_in_any_case() {
    let dir = tempfile::tempdir().unwrap();
    let node = in_any_case(&Setup::new(dir.path()).cores(2)).start();
    create(&node, "sale", TARGET);
    let mut wire = node.wire();
    for path in ["/SALE+", "/Sale/qr-code", "/SALE/track"] {
        assert_eq!(wire.get(path).status, 200, "{path}");
    }
    assert_eq!(wire.get(&format!("{SHORT_URLS}/SALE")).json()["shortCode"], "sale");
    assert_eq!(wire.get(&format!("{SHORT_URLS}/Sale/visits")).status, 200);
    assert_eq!(wire.ask("PATCH", &format!("{SHORT_URLS}/SALe"), JSON, br#"{"title": "T"}"#).json()["title"], "T");
    assert_eq!(wire.delete("SALE").status, 204);
    assert_eq!(wire.get("/sale").status, 404);
    let drawn = wire.create(&json!({"longUrl": TARGET, "pathPrefix": "S-", "shortCodeLength": 20})).code();
    assert!(drawn.starts_with("s-"), "{drawn}");
    assert!(drawn == drawn.to_lowercase(), "{drawn}");
    assert_eq!(wire.get(&format!("/{}", drawn.to_uppercase())).location(), TARGET);
}

#[test]
fn another_domain_finds_slugs_in_any_case() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).cores(3).argument("--base-url").argument("https://s.test");
    let setup = setup.env("CAROM_DOMAINS_SERVE", "https://go.test").env("CAROM_DOMAINS_FALLBACK", "true");
    let node = in_any_case(&setup).start();
    for (domain, slug) in [("s.test", "Default"), ("go.test", "Own"), ("s.test", "own")] {
        let target = format!("https://example.org/{domain}");
        let reply = node.wire().create(&json!({"longUrl": target, "customSlug": slug, "domain": domain}));
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    for (host, path, of) in [
        ("go.test", "/OWN", "go.test"),
        ("s.test", "/OWN", "s.test"),
        ("go.test", "/DEFAULT", "s.test"),
        ("go.test", "/default", "s.test"),
    ] {
        // Over the fast path and over hyper, on several cores.
        for connection in 0..12 {
            let mut wire = node.wire();
            if connection % 2 == 1 {
                wire.get("/rest/health");
            }
            assert_eq!(wire.get_at(host, path).location(), format!("https://example.org/{of}"), "{host}{path}");
        }
    }
    assert_eq!(node.wire().get_at("go.test", "/NONE").status, 404);
}
