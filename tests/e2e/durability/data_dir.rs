//! Data directories and dumps of Redis that earlier versions wrote: this version reads every link as recorded, and writes
//! to both.
//!
//! `tests/data/make-data-dir.sh` writes the archive and the expectations of a release, and `make-redis-dump.sh` the dump
//! of Redis. Each test reads all that are there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::alarms::alarms;
use crate::support::api_client::{ApiClient, JSON};
use crate::support::fleet::{LATE, known, settle};
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, Setup, wait_until};
use crate::support::redis::Server;

/// A copy of the data directory of an earlier version, and what its links must answer.
struct Earlier {
    /// The dump of Redis with the same links.
    dump: PathBuf,
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
    /// Unpacks a copy of each data directory that is there.
    fn unpack_all() -> Vec<Earlier> {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let names = std::fs::read_dir(&data).unwrap().filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().ok()?;
            Some(name.strip_prefix("data-dir-")?.strip_suffix(".json")?.to_owned())
        });
        let names: Vec<String> = names.collect();
        assert!(names.iter().any(|name| name == "0.1.0"), "{names:?}");
        names.iter().map(|name| Earlier::unpack(&data, name)).collect()
    }

    fn unpack(data: &Path, name: &str) -> Earlier {
        let dir = tempfile::tempdir().unwrap();
        let archive = data.join(format!("data-dir-{name}.tar.gz"));
        let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(dir.path()).status();
        assert!(unpacked.expect("tar can be run").success(), "{}", archive.display());
        let expected = std::fs::read_to_string(data.join(format!("data-dir-{name}.json"))).unwrap();
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let key = |app: &str| expected["keys"][app].as_str().unwrap().to_owned();
        let setup = Setup::new(dir.path())
            .cores(2)
            .env("CAROM_BASE_URL", "http://carom.test")
            .env("CAROM_DOMAINS_SERVE", "http://go.test")
            .env("CAROM_LINKS_KEEP_EXPIRED", "forever");
        let links = expected["links"].as_array().unwrap().clone();
        assert!(links.len() >= 15, "{name}");
        let dump = data.join(format!("redis-{name}.rdb"));
        Earlier { dump, setup, links, ops: key("ops"), shop: key("shop"), _dir: dir }
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

/// Returns a link without the fields that came after its record, which say nothing of a link of that version.
fn known_to_earlier(mut link: Value, record: &Value) -> Value {
    let (fields, known) = (link.as_object_mut().expect("a link"), record.as_object().expect("a record"));
    fields.retain(|name, value| {
        let is_known = known.contains_key(name);
        assert!(is_known || matches!(value, Value::Null | Value::Bool(false)), "{name}: {value}");
        is_known
    });
    link
}

/// Checks what the API says of a link, `but` some of its fields.
fn check_record(ops: &mut ApiClient, link: &Value, but: &[&str]) {
    let mut read = known_to_earlier(ops.get(&api_path(link)).json(), &link["record"]);
    let mut expected = link["record"].clone();
    for field in but {
        read[field].take();
        expected[field].take();
    }
    assert_eq!(read, expected);
    // The oldest records are from before redirect rules.
    if let Some(rules) = link.get("rules") {
        let path = format!("{SHORT_URLS}/{}/redirect-rules?domain={}", text(link, "code"), text(link, "host"));
        assert_eq!(&ops.get(&path).json()["redirectRules"], rules, "{link}");
    }
}

#[test]
fn every_link_reads_as_recorded() {
    for earlier in Earlier::unpack_all() {
        let node = earlier.setup.start();
        let mut ops = ApiClient::new(&node, &earlier.ops);
        for link in &earlier.links {
            check_record(&mut ops, link, &[]);
        }
        for link in &earlier.links {
            check_redirect(&node, link);
        }
        assert_eq!(ops.get(&format!("{SHORT_URLS}/deleted")).status, 404);
        assert_eq!(alarms(&node.status()), Vec::<&str>::new());
        drop(ops);
        node.terminate();
    }
}

/// A new node of the fleet whose Redis an earlier version has written. It has nothing but the code secret.
fn new_node(earlier: &Earlier, server: &Server, dir: &Path) -> Node {
    server.restore_dump(&std::fs::read(&earlier.dump).expect("each data directory has a dump"));
    std::fs::copy(earlier.setup.data_dir().join("space.key"), dir.join("space.key")).unwrap();
    let setup = Setup::new(dir)
        .cores(2)
        .env("CAROM_BASE_URL", "http://carom.test")
        .env("CAROM_DOMAINS_SERVE", "http://go.test")
        .env("CAROM_LINKS_KEEP_EXPIRED", "forever")
        .env("CAROM_FLEET_ANSWER_MS", "1000")
        .env("CAROM_FLEET_LOOK_UP_MS", "1000")
        .argument("--redis")
        .argument(server.url());
    let node = LATE.into_iter().fold(setup, Setup::expect).start();
    settle(&node);
    node
}

#[test]
fn earlier_redis_reads_as_recorded() {
    for earlier in Earlier::unpack_all() {
        let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
        let node = new_node(&earlier, &server, dir.path());
        let mut ops = ApiClient::new(&node, &earlier.ops);
        wait_until("the key on every core", || ops.is_known(&node));
        for link in &earlier.links {
            // Each node counts its own visits.
            check_record(&mut ops, link, &["visitsSummary"]);
            check_redirect(&node, link);
        }
        assert_eq!(known(|| ops.get(&format!("{SHORT_URLS}/deleted"))).status, 404);
        wait_until("no alarm", || alarms(&node.status()).is_empty());
        let tagged = format!("{SHORT_URLS}/tagged");
        assert_eq!(known(|| ops.ask("PATCH", &tagged, JSON, "{\"tags\": [\"new\"]}")).status, 200);
        ops.shorten("https://example.org/new");
        settle(&node);
        drop(ops);
        node.terminate();
    }
}

#[test]
fn limited_links_keep_their_remainder() {
    for earlier in Earlier::unpack_all() {
        let node = earlier.setup.start();
        let statuses: Vec<u16> = (0..4).map(|_| node.wire().get_at("carom.test", "/limited").status).collect();
        assert_eq!(statuses, [302, 302, 302, 410], "two of five visits were used");
        assert_eq!(node.wire().get_at("carom.test", "/used-up").status, 410);
        node.terminate();
    }
}

#[test]
fn keys_keep_their_roles() {
    for earlier in Earlier::unpack_all() {
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
}

#[test]
fn links_can_be_written() {
    for earlier in Earlier::unpack_all() {
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
}
