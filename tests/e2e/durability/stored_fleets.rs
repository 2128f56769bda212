//! The stored data of a fleet, in the newest format of its time: the data directory of a node, and Redis. This version reads
//! every kind of content in both.
//!
//! Each `tests/data/fleet-format-N.tar.gz` is such a fleet. With `CAROM_WRITE_STORED_DATA`, `newest_format_is_stored` writes
//! the one of the newest format. Write it once, with the version that brings the format, and keep those of earlier formats.
//! `make-data-dir.sh` beside it writes a node without a fleet, for which `data_dir.rs` has the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use carom_model::replication::formats;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::alarms::alarms;
use crate::support::api_client::{ApiClient, JSON, new_key, run_app};
use crate::support::bulk::{IMPORT, KIND};
use crate::support::destination_rules::RULES;
use crate::support::fleet::{LATE, known, settle};
use crate::support::http::{HOST, SHORT_URLS};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::redis::Server;
use crate::support::sessions::SignedIn;
use crate::support::visits::{BOT, BROWSER};

/// The variable that makes a test write the archive of the newest format.
const WRITE: &str = "CAROM_WRITE_STORED_DATA";

/// Most bytes of an archive.
const ARCHIVE_MAX: u64 = 200_000;

/// The node whose data directory is stored.
const STORED_NODE: &str = "a";

/// A node that was stopped before.
const STOPPED_NODE: &str = "b";

/// A node that has only what Redis has.
const NEW_NODE: &str = "c";

const DOMAIN: &str = "go.test";

const TITLE: &str = "Grüße <b>";

/// The visit limit of a link, and the visits that the stored nodes have redirected.
const GRANTED: (usize, usize) = (40, 5);

const ANDROID: &str = "User-Agent: Mozilla/5.0 (Linux; Android 13) AppleWebKit/537.36\r\n";

/// The path of redirects of domains.
const REDIRECTS: &str = "/rest/v3/domains/redirects";

/// Returns the archive of a format.
fn archive_of(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/fleet-format-{format}.tar.gz"))
}

/// A node of the fleet. Nothing that it stores expires, so that later versions find all of it.
fn setup(dir: &Path, name: &str, server: &Server) -> Setup {
    let setup = Setup::new(dir)
        .env("CAROM_BASE_URL", "http://carom.test")
        .env("CAROM_DOMAINS_SERVE", "http://go.test")
        .env("CAROM_LINKS_DEFAULT_TTL", "off")
        .env("CAROM_LINKS_KEEP_EXPIRED", "forever")
        .env("CAROM_LINKS_MULTI_SEGMENT_SLUGS", "true")
        .env("CAROM_VISITS_LOG", "on")
        .env("CAROM_VISITS_KEEP", "forever")
        .env("CAROM_EVENTS_LOG", "on")
        .env("CAROM_EVENTS_KEEP", "forever")
        .env("CAROM_FLEET_NODE", name)
        .env("CAROM_FLEET_RETENTION", "forever")
        .env("CAROM_FLEET_ANSWER_MS", "1000")
        .env("CAROM_FLEET_LOOK_UP_MS", "1000")
        .argument("--redis")
        .argument(server.url());
    LATE.into_iter().fold(setup, Setup::expect)
}

fn path_of(code: &str) -> String {
    format!("{SHORT_URLS}/{code}")
}

/// Returns the status and the destination that a visitor gets for a path at a host.
fn visited(node: &Node, host: &str, code: &str) -> (u16, Option<String>) {
    let reply = known(|| node.wire().get_at(host, &format!("/{code}")));
    (reply.status, reply.field("location").map(str::to_owned))
}

fn redirected(status: u16, target: &str) -> (u16, Option<String>) {
    (status, Some(target.to_owned()))
}

// The fleet that is stored.

/// Asks for a change, which must succeed.
fn change(ops: &mut ApiClient, method: &str, path: &str, fields: &str, body: &str) {
    let reply = known(|| ops.ask(method, path, fields, body));
    assert!(matches!(reply.status, 200 | 204), "{method} {path}: {}", reply.text());
}

/// Creates links with custom slugs, and links with generated codes. Returns the generated codes.
fn create_links(ops: &mut ApiClient, shop: &mut ApiClient) -> Value {
    let named = [
        json!({"customSlug": "tagged", "title": TITLE, "tags": ["sale", "two-words"], "crawlable": true}),
        json!({"customSlug": "permanent", "redirectStatus": 308, "cacheSeconds": 60, "forwardQuery": false}),
        json!({"customSlug": "expired", "validUntil": "2020-01-01T00:00:00Z"}),
        json!({"customSlug": "archived", "archived": true}),
        json!({"customSlug": "granted", "maxVisits": GRANTED.0}),
        json!({"customSlug": "with/slashes"}),
        json!({"customSlug": "changed"}),
        json!({"customSlug": "ruled"}),
        json!({"customSlug": "deleted"}),
        json!({"customSlug": "tagged", "domain": DOMAIN}),
    ];
    for mut fields in named {
        let place = fields["domain"].as_str().unwrap_or("links").to_owned();
        fields["longUrl"] = json!(format!("https://example.org/{place}/{}", fields["customSlug"].as_str().unwrap()));
        let reply = known(|| ops.create(&fields));
        assert_eq!(reply.status, 200, "{fields}: {}", reply.text());
    }
    let code = |client: &mut ApiClient, fields: &Value| known(|| client.create(fields)).code();
    let app = code(shop, &json!({"longUrl": "https://example.org/app", "appVersion": "1.4.2"}));
    let private = code(ops, &json!({"longUrl": "https://example.org/private", "private": true}));
    let gone = code(ops, &json!({"longUrl": "https://example.org/gone"}));
    json!({"app": app, "private": private, "gone": gone})
}

/// Changes and deletes some of the links, and imports one with its visits.
fn change_links(ops: &mut ApiClient, codes: &Value) {
    let android = json!({"type": "device", "matchKey": null, "matchValue": "android"});
    let edge = json!({"type": "browser", "matchKey": null, "matchValue": "edge"});
    let rules = json!({"redirectRules": [
        {"longUrl": "https://example.org/android", "conditions": [android]},
        {"longUrl": "https://example.org/edge", "conditions": [edge]},
    ]});
    change(ops, "POST", &format!("{}/redirect-rules", path_of("ruled")), JSON, &rules.to_string());
    let visits = json!({"total": 7, "bots": 1});
    let line = json!({"shortCode": "imported", "longUrl": "https://example.org/imported",
        "dateCreated": "2025-06-01T12:00:00Z", "visitsSummary": visits});
    change(ops, "POST", IMPORT, KIND, &format!("{line}\n"));
    wait_until("the visits before the import", || record(ops, "imported")["visitsSummary"]["total"] == 7);
    change(ops, "PATCH", &path_of("changed"), JSON, r#"{"longUrl": "https://example.org/after"}"#);
    change(ops, "DELETE", &path_of("deleted"), "", "");
    change(ops, "DELETE", &path_of(codes["gone"].as_str().unwrap()), "", "");
}

/// Changes the redirects of a domain, and saves destination rules.
fn change_settings(node: &Node, ops: &mut ApiClient, key: &str) {
    let redirects = json!({"domain": DOMAIN, "baseUrlRedirect": "https://example.org/home"});
    change(ops, "PATCH", REDIRECTS, JSON, &redirects.to_string());
    let mut admin = SignedIn::new(node, key);
    let version = admin.get(RULES).json()["version"].clone();
    let saved = json!({"version": version, "block": {"hosts": ["blocked.example"]}}).to_string();
    let reply = known(|| admin.send("PUT", RULES, JSON, &saved));
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Visits links on both nodes, and waits until the first one has all visits.
fn visit_links(first: &Node, second: &Node, ops: &mut ApiClient) {
    let visit = |node: &Node, path: &str, fields: &str, status: u16| {
        wait_until("a visit", || node.wire().ask("GET", path, fields, b"").status == status);
    };
    let person = format!("{BROWSER}Referer: https://news.example/a\r\n");
    (0..3).for_each(|_| visit(first, "/tagged", &person, 302));
    visit(second, "/tagged", BOT, 302);
    visit(first, "/no-such-link", &person, 404);
    (0..3).for_each(|_| visit(first, "/granted", BOT, 302));
    (3..GRANTED.1).for_each(|_| visit(second, "/granted", BOT, 302));
    wait_until("all visits on the first node", || {
        let visits = ops.get(&format!("{}/visits", path_of("tagged"))).json()["visits"].clone();
        visits["summary"]["total"] == 4 && visits["data"].as_array().is_some_and(|data| data.len() == 4)
    });
}

/// Stops the second node. Waits until the first one knows what it was granted, and no longer counts it.
fn stop_second(first: &Node, second: Node, server: &Server) {
    second.terminate();
    let has_taken = || first.log().contains("took over the visits that were granted to a node");
    wait_until("the grants of the stopped node", has_taken);
    let beat = || {
        let about = server.command(&["HGET", "{carom}:nodes", STORED_NODE]).text();
        serde_json::from_str::<Value>(&about).unwrap()["beat"].as_u64().unwrap()
    };
    let before = beat();
    wait_until("two heartbeats", || beat().wrapping_sub(before) >= 2);
    settle(first);
}

/// Packs the stored fleet. The archive lacks the prepared codes: they are most of its bytes, and a node takes new ones.
fn pack(folder: &Path, archive: &Path) {
    let packed = Command::new("tar")
        .args(["--sparse", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"])
        .args(["--exclude=*.sock", "--exclude=a/ids", "-I", "gzip -9n", "-cf"])
        .arg(archive)
        .arg("-C")
        .arg(folder)
        .args([STORED_NODE, "dump.rdb", "known.json"])
        .status();
    assert!(packed.expect("tar can be run").success(), "{}", archive.display());
}

/// Writes the archive of the newest format.
fn write(archive: &Path) {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let setups = [STORED_NODE, STOPPED_NODE].map(|name| {
        let dir = folder.path().join(name);
        fs::create_dir(&dir).unwrap();
        setup(&dir, name, &server)
    });
    let apps = [("ops", "admin"), ("shop", "write-own"), ("revoked", "read-all")];
    let [ops, shop, revoked] = apps.map(|(app, role)| new_key(&setups[0], app, role));
    run_app(&setups[0], &["revoke", "revoked"]);
    let first = setups[0].start();
    settle(&first);
    fs::copy(setups[0].data_dir().join("space.key"), setups[1].data_dir().join("space.key")).unwrap();
    let second = setups[1].start();
    settle(&second);
    let writes = |node: &Node| node.status()["fleet"]["formats"]["writes"] == formats::NEWEST;
    wait_until("the newest format", || writes(&first) && writes(&second));
    let [mut of_ops, mut of_shop] = [&ops, &shop].map(|key| ApiClient::new(&first, key));
    let codes = create_links(&mut of_ops, &mut of_shop);
    change_links(&mut of_ops, &codes);
    change_settings(&first, &mut of_ops, &ops);
    visit_links(&first, &second, &mut of_ops);
    drop((of_ops, of_shop));
    stop_second(&first, second, &server);
    first.terminate();
    // Keys that expire would be gone when the dump is read.
    for key in server.command(&["KEYS", "*"]).list() {
        server.command(&["PERSIST", &key.text()]);
    }
    fs::write(folder.path().join("dump.rdb"), server.copy_dump()).unwrap();
    let known = json!({"keys": {"ops": ops, "shop": shop, "revoked": revoked}, "codes": codes});
    fs::write(folder.path().join("known.json"), known.to_string()).unwrap();
    pack(folder.path(), archive);
}

#[test]
fn newest_format_is_stored() {
    let archive = archive_of(formats::NEWEST);
    if std::env::var_os(WRITE).is_some() {
        write(&archive);
    }
    let bytes = fs::metadata(&archive).map(|archive| archive.len());
    let bytes = bytes.unwrap_or_else(|error| panic!("{}: {error}; set {WRITE} to write it", archive.display()));
    assert!(bytes <= ARCHIVE_MAX, "{bytes} bytes");
}

// What this version reads.

/// A copy of a stored fleet.
struct StoredFleet {
    folder: TempDir,
    /// The API keys and generated codes.
    known: Value,
}

impl StoredFleet {
    /// Unpacks a copy of each stored fleet.
    fn unpack_all() -> Vec<StoredFleet> {
        let archives = (1..=formats::NEWEST).map(archive_of).filter(|archive| archive.exists());
        let stored: Vec<StoredFleet> = archives.map(|archive| StoredFleet::unpack(&archive)).collect();
        assert!(!stored.is_empty(), "no fleet is stored; set {WRITE} to write one");
        stored
    }

    fn unpack(archive: &Path) -> StoredFleet {
        let folder = tempfile::tempdir().unwrap();
        let unpacked = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder.path()).status();
        assert!(unpacked.expect("tar can be run").success(), "{}", archive.display());
        let known = fs::read(folder.path().join("known.json")).unwrap();
        StoredFleet { known: serde_json::from_slice(&known).unwrap(), folder }
    }

    /// Starts a server with the stored data of Redis.
    fn server(&self) -> Server {
        let server = Server::start();
        server.restore_dump(&fs::read(self.folder.path().join("dump.rdb")).unwrap());
        server
    }

    /// Starts the stored node, or a new one.
    fn start(&self, name: &str, server: &Server) -> Node {
        let dir = self.folder.path().join(name);
        if name == NEW_NODE {
            fs::create_dir(&dir).unwrap();
            fs::copy(self.folder.path().join(STORED_NODE).join("space.key"), dir.join("space.key")).unwrap();
        }
        let node = setup(&dir, name, server).start();
        settle(&node);
        node
    }

    fn key(&self, app: &str) -> &str {
        self.known["keys"][app].as_str().unwrap()
    }

    fn code(&self, name: &str) -> &str {
        self.known["codes"][name].as_str().unwrap()
    }

    /// A client with the key of an app that is valid.
    fn client(&self, node: &Node, app: &str) -> ApiClient {
        let mut client = ApiClient::new(node, self.key(app));
        wait_until("the key on every core", || client.is_known(node));
        client
    }
}

/// Checks nodes of these names, each in a copy of each stored fleet, with the key of an admin.
fn on_nodes(names: &[&str], check: impl Fn(&StoredFleet, &Node, &mut ApiClient)) {
    for name in names {
        for stored in StoredFleet::unpack_all() {
            let server = stored.server();
            let node = stored.start(name, &server);
            let mut ops = stored.client(&node, "ops");
            check(&stored, &node, &mut ops);
            wait_until("no alarm", || alarms(&node.status()).is_empty());
            drop(ops);
            node.terminate();
        }
    }
}

/// Returns the record of a link of the default domain.
fn record(ops: &mut ApiClient, code: &str) -> Value {
    let reply = known(|| ops.get(&path_of(code)));
    assert_eq!(reply.status, 200, "{code}: {}", reply.text());
    reply.json()
}

#[test]
fn links_keep_what_they_have() {
    on_nodes(&[STORED_NODE, NEW_NODE], |stored, _, ops| {
        let tagged = record(ops, "tagged");
        assert_eq!(tagged["title"], TITLE);
        assert_eq!(tagged["tags"], json!(["sale", "two-words"]));
        assert_eq!(tagged["crawlable"], true);
        assert_eq!(tagged["app"], "ops");
        let of_app = record(ops, stored.code("app"));
        assert_eq!(of_app["app"], "shop");
        assert_eq!(of_app["appVersion"], "1.4.2");
        assert_eq!(record(ops, stored.code("private"))["private"], true);
        assert_eq!(record(ops, "permanent")["cacheSeconds"], 60);
        assert_eq!(record(ops, "expired")["meta"]["validUntil"], "2020-01-01T00:00:00+00:00");
        assert_eq!(record(ops, "granted")["meta"]["maxVisits"], GRANTED.0);
        assert_eq!(record(ops, "archived")["archived"], true);
        wait_until("the visits before the import", || record(ops, "imported")["visitsSummary"]["total"] == 7);
    });
}

#[test]
fn links_redirect_as_before() {
    on_nodes(&[STORED_NODE, NEW_NODE], |stored, node, _| {
        let of_host = |host: &str, code: &str| visited(node, host, code);
        assert_eq!(of_host(HOST, "tagged"), redirected(302, "https://example.org/links/tagged"));
        assert_eq!(of_host(DOMAIN, "tagged"), redirected(302, "https://example.org/go.test/tagged"));
        assert_eq!(of_host(HOST, "permanent"), redirected(308, "https://example.org/links/permanent"));
        assert_eq!(of_host(HOST, "with/slashes"), redirected(302, "https://example.org/links/with/slashes"));
        assert_eq!(of_host(HOST, "changed"), redirected(302, "https://example.org/after"));
        assert_eq!(of_host(HOST, stored.code("app")), redirected(302, "https://example.org/app"));
        assert_eq!(of_host(HOST, "imported"), redirected(302, "https://example.org/imported"));
        assert_eq!(of_host(HOST, "expired").0, 410);
    });
}

#[test]
fn redirect_rules_still_apply() {
    on_nodes(&[STORED_NODE, NEW_NODE], |_, node, ops| {
        let rules = known(|| ops.get(&format!("{}/redirect-rules", path_of("ruled")))).json()["redirectRules"].clone();
        assert_eq!(rules[0]["longUrl"], "https://example.org/android");
        assert_eq!(rules[0]["conditions"][0]["type"], "device");
        assert_eq!(rules[1]["conditions"][0]["matchValue"], "edge");
        let with = |fields: &str| known(|| node.wire().ask("GET", "/ruled", fields, b"")).location().to_owned();
        assert_eq!(with(ANDROID), "https://example.org/android");
        assert_eq!(with(""), "https://example.org/links/ruled");
    });
}

#[test]
fn tombstones_keep_codes_taken() {
    on_nodes(&[STORED_NODE, NEW_NODE], |stored, node, ops| {
        assert_eq!(visited(node, HOST, "deleted").0, 404);
        assert_eq!(visited(node, HOST, stored.code("gone")).0, 404);
        let create = |ops: &mut ApiClient, slug: &str| {
            let fields = json!({"longUrl": "https://example.org/next", "customSlug": slug});
            known(|| ops.create(&fields)).status
        };
        assert_eq!(create(ops, stored.code("gone")), 400, "a generated code is never given again");
        assert_eq!(create(ops, "deleted"), 200, "a slug is free again");
        assert_eq!(visited(node, HOST, "deleted"), redirected(302, "https://example.org/next"));
    });
}

#[test]
fn visits_of_both_nodes_are_read() {
    on_nodes(&[STORED_NODE], |_, _, ops| {
        let visits = known(|| ops.get(&format!("{}/visits", path_of("tagged")))).json()["visits"].clone();
        assert_eq!(visits["summary"]["total"], 4);
        assert_eq!(visits["summary"]["bots"], 1);
        assert_eq!(visits["referrers"], json!([{"host": "news.example", "total": 3}]));
        assert_eq!(visits["data"].as_array().map(Vec::len), Some(4), "{visits}");
        let orphans = known(|| ops.get("/rest/v3/visits/orphan")).json()["visits"]["data"].clone();
        assert_ne!(orphans, json!([]), "no visit of an unknown link");
    });
}

#[test]
fn granted_visits_stay_granted() {
    let (limit, used) = GRANTED;
    on_nodes(&[STORED_NODE], |_, node, _| {
        let mut made = 0;
        wait_until("the end of the visits", || {
            let statuses: Vec<u16> = (0..10).map(|_| node.wire().get("/granted").status).collect();
            // A Redis that has just started grants nothing until the node has reported.
            assert!(statuses.iter().all(|status| [302, 410, 503].contains(status)), "{statuses:?}");
            made += statuses.iter().filter(|status| **status == 302).count();
            statuses.last() == Some(&410)
        });
        // The stopped node has not used up its share.
        assert!((limit / 2..=limit - used).contains(&made), "{made} of {limit} after {used}");
    });
}

#[test]
fn settings_of_admins_still_apply() {
    on_nodes(&[STORED_NODE, NEW_NODE], |stored, node, ops| {
        let is_home = |target: Option<String>| target.as_deref() == Some("https://example.org/home");
        wait_until("the redirect of the domain", || is_home(visited(node, DOMAIN, "").1));
        let rules = SignedIn::new(node, stored.key("ops")).get(RULES).json();
        assert_eq!(rules["block"]["hosts"], json!(["blocked.example"]));
        assert_eq!(rules["saved"]["by"], "ops");
        let blocked = ops.create(&json!({"longUrl": "https://blocked.example/"}));
        assert_eq!(blocked.status, 400, "{}", blocked.text());
    });
}

#[test]
fn keys_keep_their_rights() {
    on_nodes(&[STORED_NODE, NEW_NODE], |stored, node, _| {
        let listed = stored.client(node, "shop").get(SHORT_URLS).json()["shortUrls"].clone();
        assert_eq!(listed["pagination"]["totalItems"], 1, "{listed}");
        assert_eq!(listed["data"][0]["shortCode"], stored.code("app"), "{listed}");
        let revoked = ApiClient::new(node, stored.key("revoked")).get(SHORT_URLS);
        assert_eq!(revoked.status, 401, "{}", revoked.text());
    });
}

#[test]
fn events_are_still_listed() {
    on_nodes(&[STORED_NODE], |stored, _, ops| {
        let page = ops.get("/rest/v3/events?type=link.deleted&limit=1000").json()["events"]["data"].clone();
        let codes: Vec<&Value> =
            page.as_array().unwrap().iter().map(|event| &event["data"]["shortUrl"]["shortCode"]).collect();
        assert_eq!(codes, ["deleted", stored.code("gone")]);
    });
}

#[test]
fn stored_node_goes_on_in_its_fleet() {
    for stored in StoredFleet::unpack_all() {
        let server = stored.server();
        let nodes = [STORED_NODE, NEW_NODE].map(|name| stored.start(name, &server));
        let [mut there, mut here] = [&nodes[0], &nodes[1]].map(|node| stored.client(node, "ops"));
        let code = known(|| there.create(&json!({"longUrl": "https://example.org/later"}))).code();
        assert_ne!(code, stored.code("gone"), "a code was given twice");
        assert_eq!(record(&mut here, &code)["longUrl"], "https://example.org/later");
        change(&mut here, "PATCH", &path_of("tagged"), JSON, r#"{"tags": ["new"]}"#);
        wait_until("the change on the stored node", || record(&mut there, "tagged")["tags"] == json!(["new"]));
        drop((there, here));
        for node in nodes {
            settle(&node);
            node.terminate();
        }
    }
}
