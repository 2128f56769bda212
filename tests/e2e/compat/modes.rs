//! Settings that make carom behave as Shlink does, or as one of its settings makes it.

use serde_json::{Value, json};

use crate::support::domains::leads;
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::links::{everybody_gets, moved_to, wires};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::visits::BROWSER;

const TARGET: &str = "https://example.org/a?b=1";

fn with_cores(setup: impl Fn(Setup) -> Setup, check: impl Fn(Node)) {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        check(setup(Setup::new(dir.path()).cores(cores).env("CAROM_LINKS_KEEP_EXPIRED", "forever")).start());
    }
}

fn create(wire: &mut Wire, slug: &str, fields: &Value) -> Value {
    let mut body = json!({"longUrl": TARGET, "customSlug": slug});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let reply = wire.create(&body);
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// Makes an expired link, one that is archived, and one without visits left, and returns what visitors get for each.
fn ended(node: &Node) -> Vec<u16> {
    let mut wire = node.wire();
    create(&mut wire, "over", &json!({"validUntil": "2020-01-01T00:00:00Z"}));
    create(&mut wire, "archived", &json!({"archived": true}));
    create(&mut wire, "once", &json!({"maxVisits": 1}));
    assert_eq!(node.wire().get("/once").location(), TARGET);
    let status = |path: &str| everybody_gets(&mut wires(node), path).0;
    ["/over", "/archived", "/once", "/over+"].map(status).to_vec()
}

#[test]
fn strict_mode_hides_expired_links() {
    with_cores(|setup| setup, |node| assert_eq!(ended(&node), [410; 4]));
    let strict = |setup: Setup| setup.env("CAROM_API_SHLINK_STRICT", "true");
    with_cores(strict, |node| assert_eq!(ended(&node), [404; 4]));
}

#[test]
fn strict_mode_lets_domains_inherit_redirects() {
    let serve = "https://s.test home=https://home.example/ not_found=https://lost.example/,\
                 https://go.test not_found=https://own.example/,https://plain.test";
    for (strict, plain) in [("false", ["200", "404"]), ("true", ["https://home.example/", "https://lost.example/"])] {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup::new(dir.path()).cores(2).env("CAROM_BASE_URL", "https://s.test");
        let node = setup.env("CAROM_DOMAINS_SERVE", serve).env("CAROM_API_SHLINK_STRICT", strict).start();
        assert_eq!(["/", "/none"].map(|path| leads(&node, "plain.test", path)), plain, "{strict}");
        assert_eq!(leads(&node, "go.test", "/none"), "https://own.example/", "{strict}");
        // The API shows what each domain has itself, as a client would send it back.
        let domains = node.wire().get("/rest/v3/domains").json()["domains"]["data"].clone();
        let shown = domains.as_array().unwrap().iter().find(|domain| domain["domain"] == "plain.test").unwrap();
        assert_eq!(shown["redirects"]["invalidShortUrlRedirect"], Value::Null, "{strict}");
    }
}

#[test]
fn strict_mode_gives_links_no_end() {
    let until = |setup: Setup| {
        let node = setup.start();
        let link = create(&mut node.wire(), "lasting", &json!({}));
        // A filter that is ignored would return more than was asked for.
        node.wire().get(&format!("{SHORT_URLS}?tagz[]=a")).problem(400, "/invalid-data");
        link["meta"]["validUntil"].clone()
    };
    let dir = || tempfile::tempdir().unwrap();
    let (plain, strict, given) = (dir(), dir(), dir());
    assert!(until(Setup::new(plain.path())).is_string());
    let strict = Setup::new(strict.path()).env("CAROM_API_SHLINK_STRICT", "true");
    assert_eq!(until(strict), Value::Null);
    let given = Setup::new(given.path()).env("CAROM_API_SHLINK_STRICT", "true");
    assert!(until(given.env("CAROM_LINKS_DEFAULT_TTL", "1d")).is_string());
}

#[test]
fn slash_behind_the_code_needs_its_setting() {
    let path = "/abc/";
    with_cores(
        |setup| setup,
        |node| {
            create(&mut node.wire(), "abc", &json!({}));
            assert_eq!(everybody_gets(&mut wires(&node), path).0, 404);
        },
    );
    with_cores(
        |setup| setup.env("CAROM_LINKS_TRAILING_SLASH", "true"),
        |node| {
            create(&mut node.wire(), "abc", &json!({}));
            for path in ["/abc", path] {
                assert_eq!(everybody_gets(&mut wires(&node), path), moved_to(TARGET), "{path}");
            }
            assert_eq!(everybody_gets(&mut wires(&node), "/abc/?c=2"), moved_to(&format!("{TARGET}&c=2")));
            for path in ["/abc//", "/abc/x", "/none/", "//"] {
                assert_eq!(everybody_gets(&mut wires(&node), path).0, 404, "{path}");
            }
            // A path that cannot be a link has no such method.
            assert_eq!(node.wire().ask("POST", path, "", b"").status, 404);
        },
    );
}

#[test]
fn an_extra_path_is_appended_or_ignored() {
    let cases = [
        ("append", "/abc/x/y", "https://example.org/a/x/y?b=1"),
        ("append", "/abc/x%20y/?c=2", "https://example.org/a/x%20y/?b=1&c=2"),
        ("append", "/abc/", TARGET),
        ("ignore", "/abc/x/y", TARGET),
        ("ignore", "/abc/x?c=2", "https://example.org/a?b=1&c=2"),
    ];
    for mode in ["append", "ignore"] {
        with_cores(
            |setup| setup.env("CAROM_LINKS_EXTRA_PATH", mode),
            |node| {
                create(&mut node.wire(), "abc", &json!({}));
                for (_, path, target) in cases.iter().filter(|(of, ..)| *of == mode) {
                    assert_eq!(everybody_gets(&mut wires(&node), path), moved_to(target), "{mode} {path}");
                }
                assert_eq!(everybody_gets(&mut wires(&node), "/none/x/y").0, 404);
                // Paths with a meaning of their own keep it.
                assert_eq!(node.wire().get("/abc/qr-code").status, 200);
                assert_eq!(node.wire().get("/rest/v3/none/x").status, 404);
            },
        );
    }
}

#[test]
fn requests_with_nostat_are_no_visits() {
    let nostat = |setup: Setup| setup.env("CAROM_VISITS_NOSTAT_PARAMETER", "nostat").env("CAROM_VISITS_LOG", "on");
    with_cores(nostat, |node| {
        let mut wire = node.wire();
        create(&mut wire, "abc", &json!({}));
        let visit = |query: &str| node.wire().ask("GET", &format!("/abc{query}"), BROWSER, b"").location().to_owned();
        for query in ["?nostat", "?nostat=1", "?nostat=&nostat"] {
            assert_eq!(visit(query), TARGET, "{query}");
        }
        assert_eq!(visit("?c=2&nostat"), format!("{TARGET}&c=2"));
        // These are visits, and come after the others.
        assert_eq!(visit("?nostats"), format!("{TARGET}&nostats"));
        assert_eq!(visit(""), TARGET);
        let visits = |wire: &mut Wire| wire.get(&format!("{SHORT_URLS}/abc/visits")).json()["visits"].clone();
        wait_until("two visits", || visits(&mut wire)["summary"]["total"].as_u64() >= Some(2));
        wait_until("both in the log", || visits(&mut wire)["pagination"]["totalItems"].as_u64() >= Some(2));
        let visits = visits(&mut wire);
        assert_eq!((&visits["summary"]["total"], &visits["pagination"]["totalItems"]), (&json!(2), &json!(2)));
        assert_eq!(node.wire().get("/missing?nostat").status, 404);
    });
    // Without the setting, it is a parameter like any other.
    with_cores(
        |setup| setup,
        |node| {
            create(&mut node.wire(), "abc", &json!({}));
            assert_eq!(everybody_gets(&mut wires(&node), "/abc?nostat"), moved_to(&format!("{TARGET}&nostat")));
        },
    );
}
