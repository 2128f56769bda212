//! API keys that are limited to some domains of a service. Each test runs with one core and with three.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::api_client::{ApiClient, JSON, run_app};
use crate::support::domains::{SERVE, TARGET, codes, setup, target};
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::node::{CAROM, Node, Setup, wait_until};

/// A node with the domains of [`SERVE`], and clients whose keys are limited to some of them.
struct Keyed {
    node: Node,
    setup: Setup,
    /// All domains, of the app `boss`.
    boss: ApiClient,
    /// `go.test` alone, of the app `shop`.
    shop: ApiClient,
    /// The default domain and `go.test`, with a role for all apps.
    both: ApiClient,
    /// The key of `shop`.
    shop_key: String,
    /// The code of a link that `shop` made without naming a domain.
    code: String,
    /// Holds the data directory, and is dropped after the node.
    _dir: TempDir,
}

impl Keyed {
    fn new(cores: usize) -> Keyed {
        let dir = tempfile::tempdir().unwrap();
        let setup = setup(dir.path(), cores);
        let config = settings_file(dir.path());
        let all = run_app(&setup, &["add", "boss", "--role", "write-all"]);
        let shop_key = run_app(&setup, &["add", "shop", "--domain", "go.test", "--config", &config]);
        let two = run_app(
            &setup,
            &["add", "both", "--role", "write-all", "--domain", "DEFAULT", "--domain", "GO.test", "--config", &config],
        );
        let node = setup.start();
        let [mut boss, mut shop, both] = [&all, &shop_key, &two].map(|key| ApiClient::new(&node, key));
        for domain in ["", "go.test", "xn--bcher-kva.test"] {
            let body =
                json!({"longUrl": target(domain, "x"), "domain": domain, "customSlug": "x", "tags": ["of-boss"]});
            assert_eq!(boss.create(&body).status, 200);
        }
        let made = shop.create(&json!({"longUrl": TARGET, "tags": ["mine"]})).json();
        assert_eq!(made["domain"], "go.test", "the domain of the key is the default");
        assert_eq!(made["app"], "shop");
        let code = made["shortCode"].as_str().unwrap().to_owned();
        Keyed { node, setup, boss, shop, both, shop_key, code, _dir: dir }
    }
}

/// Runs a check with one core and with three.
fn with_domain_keys(check: impl Fn(Keyed)) {
    for cores in [1, 3] {
        check(Keyed::new(cores));
    }
}

/// Writes a settings file with the domains of [`SERVE`], and returns its path.
fn settings_file(dir: &std::path::Path) -> String {
    let file = dir.join("carom.toml");
    let serve = SERVE.split(", ").map(|it| format!("'{it}'")).collect::<Vec<_>>().join(",");
    std::fs::write(&file, format!("base_url = 'https://s.test'\n[domains]\nserve = [{serve}]\n")).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn command_limits_keys_to_served_domains() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(dir.path(), 1);
    let refused = Command::new(CAROM)
        .args(["app", "add", "shop", "--domain", "other.test", "--data-dir"])
        .arg(setup.data_dir())
        .env("CAROM_BASE_URL", "https://s.test")
        .env("CAROM_DOMAINS_SERVE", SERVE)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("s.test, go.test"), "{said}");
    let config = settings_file(dir.path());
    run_app(&setup, &["add", "shop", "--domain", "go.test", "--config", &config]);
    run_app(&setup, &["add", "both", "--domain", "DEFAULT", "--domain", "GO.test", "--config", &config]);
    let listed = run_app(&setup, &["list"]);
    assert!(listed.lines().any(|line| line.contains("shop") && line.contains("go.test")), "{listed}");
    assert!(listed.contains("DEFAULT,go.test"), "{listed}");
}

#[test]
fn key_with_domains_reaches_no_other() {
    with_domain_keys(|keyed| {
        let Keyed { node, mut shop, mut both, code, boss, _dir, .. } = keyed;
        assert_eq!(shop.get(&format!("{SHORT_URLS}/{code}")).json()["domain"], "go.test");
        for domain in ["s.test", "DEFAULT", "xn--bcher-kva.test"] {
            let refused = shop.create(&json!({"longUrl": TARGET, "domain": domain})).problem(400, "/invalid-data");
            assert_eq!(refused["invalidElements"], json!(["domain"]), "{refused}");
        }
        // With the role for all apps, but not for all domains.
        let path = |domain: &str| format!("{SHORT_URLS}/x?domain={domain}");
        for domain in ["DEFAULT", "go.test"] {
            assert_eq!(both.get(&path(domain)).status, 200);
            assert_eq!(both.ask("PATCH", &path(domain), JSON, "{\"title\": \"T\"}").status, 200);
        }
        let out = path("xn--bcher-kva.test");
        for (is_shop, path) in [(false, &out), (true, &path("DEFAULT")), (true, &path("go.test")), (true, &out)] {
            let caller = if is_shop { &mut shop } else { &mut both };
            caller.get(path).problem(404, "/short-url-not-found");
            caller.ask("PATCH", path, JSON, "{\"title\": \"stolen\"}").problem(404, "/short-url-not-found");
            caller.ask("DELETE", path, "", "").problem(404, "/short-url-not-found");
            caller.get(&path.replace("/x?", "/x/visits?")).problem(404, "/short-url-not-found");
        }
        drop((boss, both, shop));
        node.terminate();
    });
}

#[test]
fn lists_hold_links_of_the_keys_domains() {
    with_domain_keys(|keyed| {
        let Keyed { node, mut boss, mut shop, mut both, code, _dir, .. } = keyed;
        let listed = codes(&both.get(&format!("{SHORT_URLS}?orderBy=shortCode")));
        assert_eq!(listed.len(), 3, "{listed:?}");
        assert!(!listed.iter().any(|url| url.contains("bcher")), "{listed:?}");
        assert_eq!(codes(&both.get(&format!("{SHORT_URLS}?domain=xn--bcher-kva.test"))), [""; 0]);
        assert_eq!(codes(&shop.get(SHORT_URLS)), [format!("https://go.test/{code}")]);
        assert_eq!(both.get("/rest/v3/short-urls/export").text().lines().count(), 3);
        let stats = both.get("/rest/v3/tags/stats").json()["tags"]["data"].clone();
        let of_boss = stats.as_array().unwrap().iter().find(|tag| tag["tag"] == "of-boss").unwrap().clone();
        assert_eq!(of_boss["shortUrlsCount"], 2, "{stats}");
        let names = |reply: &Reply| reply.json()["domains"]["data"].as_array().unwrap().len();
        assert_eq!(names(&shop.get("/rest/v3/domains")), 1);
        assert_eq!(names(&both.get("/rest/v3/domains")), 2);
        // Visits are counted by app and by domain, and not by both.
        shop.get("/rest/v3/visits").problem(403, ":forbidden");
        let mut wire = node.wire();
        for host in ["s.test", "go.test", "go.test", "xn--bcher-kva.test"] {
            wire.send(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
            assert_eq!(wire.reply().status, 302, "{host}");
        }
        let count = |client: &mut ApiClient| client.get("/rest/v3/visits").json()["visits"]["visitsCount"].clone();
        wait_until("all visits", || count(&mut boss) == 4);
        assert_eq!(count(&mut both), 3);
        drop((boss, both, shop));
        node.terminate();
    });
}

#[test]
fn tags_of_an_app_follow_the_keys_domains() {
    with_domain_keys(|keyed| {
        let Keyed { node, setup, mut shop, boss, both, _dir, .. } = keyed;
        let mut everywhere = ApiClient::new(&node, &run_app(&setup, &["add", "shop"]));
        wait_until("the key for all domains", || everywhere.is_known(&node));
        assert_eq!(everywhere.create(&json!({"longUrl": TARGET, "tags": ["mine", "elsewhere"]})).status, 200);
        let tags = |caller: &mut ApiClient| {
            let stats = caller.get("/rest/v3/tags/stats").json()["tags"]["data"].clone();
            let stats = stats.as_array().unwrap().iter().map(|tag| format!("{} {}", tag["tag"], tag["shortUrlsCount"]));
            stats.collect::<Vec<String>>()
        };
        assert_eq!(tags(&mut shop), ["\"mine\" 1"]);
        assert_eq!(tags(&mut everywhere), ["\"elsewhere\" 1", "\"mine\" 2"]);
        drop((everywhere, boss, both, shop));
        node.terminate();
    });
}

#[test]
fn rotated_key_keeps_its_domains() {
    with_domain_keys(|keyed| {
        let Keyed { node, setup, boss, both, shop, _dir, .. } = keyed;
        let keys: Value = serde_json::from_str(&run_app(&setup, &["list", "--json"])).unwrap();
        let old = keys["keys"].as_array().unwrap().iter().find(|key| key["domains"] == json!(["go.test"])).unwrap();
        let new = run_app(&setup, &["rotate", "shop", "--key", old["id"].as_str().unwrap(), "--grace", "0"]);
        let mut rotated = ApiClient::new(&node, &new);
        wait_until("the new key", || rotated.is_known(&node));
        rotated.create(&json!({"longUrl": TARGET, "domain": "s.test"})).problem(400, "/invalid-data");
        assert_eq!(rotated.create(&json!({"longUrl": TARGET})).json()["domain"], "go.test");
        drop((rotated, boss, both, shop));
        node.terminate();
    });
}

#[test]
fn admin_api_creates_keys_with_domains() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(dir.path(), 1);
    run_app(&setup, &["add", "boss", "--role", "write-all"]);
    let node = setup.start();
    let mut admin = Wire::open(node.admin);
    let body = json!({"app": "late", "domains": ["go.test"]}).to_string();
    let made = admin.ask("POST", "/apps", JSON, body.as_bytes()).json();
    let mut late = ApiClient::new(&node, made["key"].as_str().unwrap());
    wait_until("the key of the admin listener", || late.is_known(&node));
    assert_eq!(late.create(&json!({"longUrl": TARGET})).json()["domain"], "go.test");
    let listed = admin.get("/apps").json();
    let app = listed["apps"].as_array().unwrap().iter().find(|app| app["app"] == "late").unwrap();
    assert_eq!(app["keys"][0]["domains"], json!(["go.test"]), "{listed}");
    for domains in [json!(["other.test"]), json!("go.test"), json!([])] {
        let body = json!({"app": "late", "domains": domains}).to_string();
        let refused = admin.ask("POST", "/apps", JSON, body.as_bytes()).problem(400, "/invalid-data");
        assert_eq!(refused["invalidElements"], json!(["domains"]), "{refused}");
    }
    drop((admin, late));
    node.terminate();
}

#[test]
fn key_of_a_removed_domain_creates_nothing() {
    with_domain_keys(|keyed| {
        let Keyed { node, shop_key, code, boss, both, shop, _dir, .. } = keyed;
        drop((boss, both, shop));
        let node = node.terminate().env("CAROM_DOMAINS_SERVE", "https://plain.test").start();
        let mut shop = ApiClient::new(&node, &shop_key);
        for body in [json!({"longUrl": TARGET}), json!({"longUrl": TARGET, "domain": "go.test"})] {
            let refused = shop.create(&body).problem(400, "/invalid-data");
            assert!(refused["detail"].as_str().unwrap().contains("currently not served"), "{refused}");
            assert_eq!(refused["invalidElements"], json!(["domain"]));
        }
        assert_eq!(codes(&shop.get(SHORT_URLS)), [format!("http://go.test/{code}")]);
        drop(shop);
        node.terminate();
    });
}
