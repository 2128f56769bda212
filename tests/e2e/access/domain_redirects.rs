//! Redirects of domains, changed at run time: `PATCH /rest/v3/domains/redirects`.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, JSON, run_app};
use crate::support::cli_user::{done, text};
use crate::support::domains::{TARGET, create, leads, make, setup, target};
use crate::support::http::{Reply, Wire};
use crate::support::node::{Node, Setup};
use crate::support::openapi::is_described;

const PATH: &str = "/rest/v3/domains/redirects";
const LOST: &str = "https://example.org/lost";
const UNKNOWN: &str = "https://example.org/unknown";
const ENDED: &str = "https://example.org/ended";

fn edit(wire: &mut Wire, body: &Value) -> Reply {
    wire.ask("PATCH", PATH, JSON, body.to_string().as_bytes())
}

/// The redirects of a domain in the list of domains.
fn listed(wire: &mut Wire, domain: &str) -> Value {
    let domains = wire.get("/rest/v3/domains").json()["domains"]["data"].clone();
    let found = domains.as_array().unwrap().iter().find(|it| it["domain"] == domain);
    found.unwrap_or_else(|| panic!("{domain} is missing in {domains}"))["redirects"].clone()
}

/// Settings with redirects of `go.test` that requests change.
fn with_settings(dir: &Path, cores: usize) -> Setup {
    let serve = format!("https://go.test home={TARGET} not_found={LOST} expired={ENDED}, https://plain.test");
    setup(dir, cores).env("CAROM_DOMAINS_SERVE", &serve).env("CAROM_LINKS_KEEP_EXPIRED", "forever")
}

#[test]
fn each_redirect_can_be_changed_alone() {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let node = with_settings(dir.path(), cores).start();
        let mut wire = node.wire();
        make(&mut wire, "plain.test", "here");
        let over = json!({"longUrl": TARGET, "customSlug": "over", "domain": "plain.test", "validUntil": "2020-01-01T00:00:00Z"});
        create(&mut wire, &over);
        let seen = |node: &Node| ["/", "/no/such/path", "/none", "/over"].map(|path| leads(node, "plain.test", path));
        assert_eq!(seen(&node), ["200", "404", "404", "410"]);
        let fields = ["baseUrlRedirect", "regular404Redirect", "invalidShortUrlRedirect", "expiredShortUrlRedirect"];
        let urls = [TARGET, LOST, UNKNOWN, ENDED];
        let mut expected = seen(&node);
        let mut redirects = json!({fields[0]: null, fields[1]: null, fields[2]: null, fields[3]: null});
        for (at, (field, url)) in fields.into_iter().zip(urls).enumerate() {
            let reply = edit(&mut wire, &json!({"domain": "plain.test", field: url}));
            is_described(&node, "patch", PATH, &reply);
            redirects[field] = url.into();
            url.clone_into(&mut expected[at]);
            assert_eq!((reply.status, &reply.json()), (200, &redirects));
            assert_eq!(listed(&mut wire, "plain.test"), redirects);
            // Every core redirects accordingly as soon as the change is acknowledged.
            assert_eq!(seen(&node), expected);
        }
        assert_eq!(leads(&node, "plain.test", "/none+"), UNKNOWN);
        assert_eq!(leads(&node, "plain.test", "/here"), target("plain.test", "here"));
        // Other domains keep theirs.
        assert_eq!(leads(&node, "go.test", "/none"), LOST);
        assert_eq!(leads(&node, "s.test", "/none"), "404");
        drop(wire);
        let node = node.restart();
        assert_eq!(seen(&node), expected, "the change is durable");
        let node = node.kill().start();
        assert_eq!(seen(&node), expected);
        node.terminate();
    }
}

#[test]
fn change_replaces_the_setting() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_settings(dir.path(), 2).start();
    let mut wire = node.wire();
    let go = json!({"baseUrlRedirect": TARGET, "regular404Redirect": LOST, "invalidShortUrlRedirect": LOST, "expiredShortUrlRedirect": ENDED});
    assert_eq!(listed(&mut wire, "go.test"), go);
    // A request without redirects reads them.
    assert_eq!(edit(&mut wire, &json!({"domain": "GO.test"})).json(), go);
    let changed =
        edit(&mut wire, &json!({"domain": "go.test", "baseUrlRedirect": null, "invalidShortUrlRedirect": UNKNOWN}))
            .json();
    assert_eq!(changed["baseUrlRedirect"], Value::Null);
    assert_eq!(changed["regular404Redirect"], LOST);
    let seen = |node: &Node| ["/", "/no/such/path", "/none"].map(|path| leads(node, "go.test", path));
    assert_eq!(seen(&node), ["200", LOST, UNKNOWN]);
    // The default domain has redirects as well, under each of its names.
    for name in ["DEFAULT", "s.test"] {
        let url = format!("{UNKNOWN}?{name}");
        assert_eq!(edit(&mut wire, &json!({"domain": name, "invalidShortUrlRedirect": url})).status, 200);
        assert_eq!(leads(&node, "s.test", "/none"), url);
        let defaults = wire.get("/rest/v3/domains").json()["domains"]["defaultRedirects"].clone();
        assert_eq!(defaults["invalidShortUrlRedirect"], url);
    }
    drop(wire);
    let node = node.restart();
    assert_eq!(seen(&node), ["200", LOST, UNKNOWN]);
    node.terminate();
}

#[test]
fn invalid_requests_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_settings(dir.path(), 1).start();
    let mut wire = node.wire();
    let before = listed(&mut wire, "go.test");
    for (body, fields) in [
        (json!({}), json!(["domain"])),
        (json!({"domain": ""}), json!(["domain"])),
        (json!({"domain": null}), json!(["domain"])),
        (
            json!({"domain": "go.test", "regular404Redirect": "https://www.example/{ORIGINAL_PATH}"}),
            json!(["regular404Redirect"]),
        ),
        (json!({"domain": "go.test", "baseUrlRedirect": "somewhere.com"}), json!(["baseUrlRedirect"])),
        (
            json!({"domain": "go.test", "regular404Redirect": 7, "baseUrlRedirect": TARGET}),
            json!(["regular404Redirect"]),
        ),
        (
            json!({"domain": "go.test", "expiredShortUrlRedirect": "https://go.test/loop"}),
            json!(["expiredShortUrlRedirect"]),
        ),
        (json!({"domain": "go.test", "baseURLRedirect": TARGET}), json!(["baseURLRedirect"])),
    ] {
        let problem = edit(&mut wire, &body).problem(400, "/invalid-data");
        assert_eq!(problem["invalidElements"], fields, "{body}");
    }
    for domain in ["other.test", "go.test/x", "https://go.test", "a b"] {
        let problem =
            edit(&mut wire, &json!({"domain": domain, "baseUrlRedirect": TARGET})).problem(404, "/domain-not-found");
        assert_eq!(problem["authority"], domain);
    }
    assert_eq!(wire.ask("GET", PATH, "", b"").status, 405);
    assert_eq!(listed(&mut wire, "go.test"), before);
    node.terminate();
}

#[test]
fn a_key_changes_its_domains_only() {
    let dir = tempfile::tempdir().unwrap();
    let setup = with_settings(dir.path(), 2);
    let config = dir.path().join("carom.toml");
    std::fs::write(
        &config,
        "base_url = \"https://s.test\"\n[domains]\nserve = [\"https://go.test\", \"https://plain.test\"]\n",
    )
    .unwrap();
    let config = config.display().to_string();
    let writer = run_app(&setup, &["add", "writer", "--role", "write-own"]);
    let limited =
        run_app(&setup, &["add", "limited", "--role", "write-all", "--domain", "go.test", "--config", &config]);
    let node = setup.start();
    let [mut writer, mut limited] = [&writer, &limited].map(|key| ApiClient::new(&node, key));
    let body = |domain: &str| json!({"domain": domain, "regular404Redirect": UNKNOWN}).to_string();
    writer.ask("PATCH", PATH, JSON, &body("go.test")).problem(403, ":forbidden");
    limited.ask("PATCH", PATH, JSON, &body("plain.test")).problem(404, "/domain-not-found");
    assert_eq!(limited.ask("PATCH", PATH, JSON, &body("go.test")).status, 200);
    assert_eq!(leads(&node, "go.test", "/no/such/path"), UNKNOWN);
    assert_eq!(leads(&node, "plain.test", "/no/such/path"), "404");
    assert_eq!(node.wire().ask("PATCH", PATH, JSON, body("go.test").as_bytes()).status, 401);
    node.terminate();
}

#[test]
fn backups_have_changed_redirects() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = with_settings(&data, 1).start();
    assert_eq!(
        edit(&mut node.wire(), &json!({"domain": "plain.test", "invalidShortUrlRedirect": UNKNOWN})).status,
        200
    );
    let backup = dir.path().join("backup");
    done(&["backup", text(&backup), "--data-dir", text(&data)]);
    node.terminate();
    let restored = dir.path().join("restored");
    done(&["restore", text(&backup), "--data-dir", text(&restored)]);
    done(&["verify", text(&backup)]);
    let node = with_settings(&restored, 1).start();
    assert_eq!(leads(&node, "plain.test", "/none"), UNKNOWN);
    node.terminate();
}

#[test]
fn malformed_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    with_settings(dir.path(), 1).start().terminate();
    let file = dir.path().join("domains.json");
    std::fs::write(&file, "{").unwrap();
    let (_, said) = with_settings(dir.path(), 1).fail();
    assert!(said.contains("domains.json"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), b"{");
}
