//! A data directory and a Redis that an earlier version wrote: this version reads every link as recorded, and writes to
//! both.
//!
//! `tests/data/make-data-dir.sh` writes the archive and the expectations of a release, and `make-redis-dump.sh` the dump
//! of Redis.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::alarms::alarms;
use crate::support::api_client::{ApiClient, JSON};
use crate::support::fleet::settle;
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, Setup};
use crate::support::redis::Server;

/// A copy of the data directory of version 0.1.0, and what its links must answer.
struct Earlier {
    setup: Setup,
    links: Vec<Value>,
    /// The key of the app `ops`, an administrator.
    ops: String,
    /// The key of the app `shop`.
    shop: String,
    /// Holds the copy.
    _dir: TempDir,
}

impl Earlier {
    fn unpack() -> Earlier {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let dir = tempfile::tempdir().unwrap();
        let archive = data.join("data-dir-0.1.0.tar.gz");
        let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(dir.path()).status();
        assert!(unpacked.expect("tar can be run").success(), "{}", archive.display());
        let expected = std::fs::read_to_string(data.join("data-dir-0.1.0.json")).unwrap();
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let key = |app: &str| expected["keys"][app].as_str().unwrap().to_owned();
        let setup = Setup::new(dir.path())
            .cores(2)
            .env("CAROM_BASE_URL", "http://carom.test")
            .env("CAROM_DOMAINS_SERVE", "http://go.test")
            .env("CAROM_LINKS_KEEP_EXPIRED", "forever");
        let links = expected["links"].as_array().unwrap().clone();
        assert_eq!(links.len(), 15);
        Earlier { setup, links, ops: key("ops"), shop: key("shop"), _dir: dir }
    }
}

fn text<'v>(link: &'v Value, field: &str) -> &'v str {
    link[field].as_str().unwrap()
}

/// The path of a link in the API.
fn api_path(link: &Value) -> String {
    format!("{SHORT_URLS}/{}?domain={}", text(link, "code"), text(link, "host"))
}

/// Checks what a visitor gets, over both HTTP paths. Links with a limit are left alone.
fn check_redirect(node: &Node, link: &Value) {
    let Some(status) = link["status"].as_u64() else { return };
    for through_hyper in [false, true] {
        let mut wire = node.wire();
        if through_hyper {
            assert_eq!(wire.get("/rest/health").status, 200);
        }
        let reply = wire.get_at(text(link, "host"), &format!("/{}", text(link, "code")));
        assert_eq!(u64::from(reply.status), status, "{link}");
        assert_eq!(reply.field("location"), link["location"].as_str(), "{link}");
    }
}

/// Returns a link without the fields that came after 0.1.0, which say nothing of a link of that version.
fn known_to_earlier(mut link: Value) -> Value {
    let newer = link.as_object_mut().expect("a link").remove("hasRedirectRules");
    assert_eq!(newer, Some(Value::Bool(false)));
    link
}

#[test]
fn every_link_reads_as_recorded() {
    let earlier = Earlier::unpack();
    let node = earlier.setup.start();
    let mut ops = ApiClient::new(&node, &earlier.ops);
    for link in &earlier.links {
        assert_eq!(known_to_earlier(ops.get(&api_path(link)).json()), link["record"]);
    }
    for link in &earlier.links {
        check_redirect(&node, link);
    }
    assert_eq!(ops.get(&format!("{SHORT_URLS}/deleted")).status, 404);
    assert_eq!(alarms(&node.status()), Vec::<&str>::new());
    drop(ops);
    node.terminate();
}

/// A new node of the fleet whose Redis version 0.1.0 has written. It has nothing but the code secret.
fn new_node(earlier: &Earlier, server: &Server, dir: &Path) -> Node {
    let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/redis-0.1.0.rdb");
    server.restore_dump(&std::fs::read(dump).unwrap());
    std::fs::copy(earlier.setup.data_dir().join("space.key"), dir.join("space.key")).unwrap();
    let setup = Setup::new(dir)
        .cores(2)
        .env("CAROM_BASE_URL", "http://carom.test")
        .env("CAROM_DOMAINS_SERVE", "http://go.test")
        .env("CAROM_LINKS_KEEP_EXPIRED", "forever")
        .argument("--redis")
        .argument(server.url());
    let node = setup.start();
    settle(&node);
    node
}

#[test]
fn earlier_redis_reads_as_recorded() {
    let (earlier, server, dir) = (Earlier::unpack(), Server::start(), tempfile::tempdir().unwrap());
    let node = new_node(&earlier, &server, dir.path());
    let mut ops = ApiClient::new(&node, &earlier.ops);
    assert!(ops.is_known(&node));
    for link in &earlier.links {
        let (mut read, mut expected) = (known_to_earlier(ops.get(&api_path(link)).json()), link["record"].clone());
        // Each node counts its own visits.
        for link in [&mut read, &mut expected] {
            link["visitsSummary"].take();
        }
        assert_eq!(read, expected);
        check_redirect(&node, link);
    }
    assert_eq!(ops.get(&format!("{SHORT_URLS}/deleted")).status, 404);
    assert_eq!(alarms(&node.status()), Vec::<&str>::new());
    assert_eq!(ops.ask("PATCH", &format!("{SHORT_URLS}/tagged"), JSON, "{\"tags\": [\"new\"]}").status, 200);
    ops.shorten("https://example.org/new");
    settle(&node);
    drop(ops);
    node.terminate();
}

#[test]
fn limited_links_keep_their_remainder() {
    let earlier = Earlier::unpack();
    let node = earlier.setup.start();
    let statuses: Vec<u16> = (0..4).map(|_| node.wire().get_at("carom.test", "/limited").status).collect();
    assert_eq!(statuses, [302, 302, 302, 410], "two of five visits were used");
    assert_eq!(node.wire().get_at("carom.test", "/used-up").status, 410);
    node.terminate();
}

#[test]
fn keys_keep_their_roles() {
    let earlier = Earlier::unpack();
    let node = earlier.setup.start();
    assert_eq!(node.wire().get(SHORT_URLS).status, 401);
    let mut shop = ApiClient::new(&node, &earlier.shop);
    assert!(shop.is_known(&node));
    let listed = shop.get(SHORT_URLS).json();
    assert_eq!(listed["shortUrls"]["pagination"]["totalItems"], 1, "{listed}");
    assert_eq!(listed["shortUrls"]["data"][0]["app"], "shop", "{listed}");
    shop.get(&format!("{SHORT_URLS}/custom-slug")).problem(404, "/short-url-not-found");
    drop(shop);
    node.terminate();
}

#[test]
fn links_can_be_written() {
    let earlier = Earlier::unpack();
    let node = earlier.setup.start();
    let mut ops = ApiClient::new(&node, &earlier.ops);
    let old: BTreeSet<String> = earlier.links.iter().map(|link| text(link, "code").to_owned()).collect();
    let created: BTreeSet<String> =
        (0..200).map(|number| ops.shorten(&format!("https://example.org/new/{number}"))).collect();
    assert_eq!(created.len(), 200);
    assert!(created.is_disjoint(&old), "a code was given twice");
    let taken = json!({"longUrl": "https://example.org/", "customSlug": "custom-slug"});
    ops.create(&taken).problem(400, "/non-unique-slug");
    let path = |code: &str| format!("{SHORT_URLS}/{code}");
    assert_eq!(ops.ask("PATCH", &path("tagged"), JSON, "{\"tags\": [\"new\"]}").status, 200);
    assert_eq!(ops.ask("DELETE", &path("lasting"), "", "").status, 204);
    drop(ops);

    let node = node.restart();
    let mut ops = ApiClient::new(&node, &earlier.ops);
    for code in &created {
        assert_eq!(node.wire().get_at("carom.test", &format!("/{code}")).status, 302, "{code}");
    }
    assert_eq!(ops.get(&path("tagged")).json()["tags"], json!(["new"]));
    assert_eq!(ops.get(&path("lasting")).status, 404);
    let unchanged = earlier.links.iter().filter(|link| text(link, "code") != "lasting");
    unchanged.for_each(|link| check_redirect(&node, link));
    drop(ops);
    node.terminate();
}
