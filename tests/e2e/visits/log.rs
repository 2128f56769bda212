//! The visit log: each visit is listed once, with what the log may store, until it is deleted or too old.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::alarms::is_seen;
use crate::support::api_client::{ApiClient, new_key};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::links::{on_every_kind, wires};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::visits::logging;

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64) Chrome/142.0.0.0 Safari/537.36";
const BOT: &str = "Googlebot/2.1 (+http://www.google.com/bot.html)";

/// Starts a node, which logs visits, and creates a link.
fn with_link(setup: &Setup) -> (Node, Wire, String) {
    let node = setup.start();
    let mut wire = node.wire();
    let code = wire.shorten("https://example.org/");
    (node, wire, code)
}

/// Follows a path once over one connection.
fn follow_once(wire: &mut Wire, path: &str, agent: &str) {
    follow(std::slice::from_mut(wire), path, agent);
}

/// Follows a path once over each connection.
fn follow(wires: &mut [Wire], path: &str, agent: &str) {
    for wire in wires {
        let fields = format!("User-Agent: {agent}\r\nReferer: https://news.example/a?secret=1\r\n");
        let status = wire.ask("GET", path, &fields, b"").status;
        assert!(matches!(status, 302 | 404), "{path}: {status}");
    }
}

fn listed(wire: &mut Wire, path: &str) -> Vec<Value> {
    let visits = wire.get(path).json()["visits"].clone();
    assert_eq!(visits["pagination"]["complete"], true, "{visits}");
    visits["data"].as_array().unwrap().clone()
}

fn of_link(code: &str) -> String {
    format!("{SHORT_URLS}/{code}/visits")
}

/// True if any file of the log has these bytes, in the compressed form as well as the plain one: the text does not
/// repeat, so the compression leaves it as it is.
fn is_on_disk(data_dir: &Path, text: &[u8]) -> bool {
    let files = fs::read_dir(data_dir.join("visit-log")).unwrap();
    files.into_iter().any(|file| {
        let bytes = fs::read(file.unwrap().path()).unwrap_or_default();
        bytes.windows(text.len()).any(|part| part == text)
    })
}

fn sealed_files(data_dir: &Path) -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(data_dir.join("visit-log")).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.to_string_lossy().contains("segment-")).collect()
}

/// Makes the log seal its segment, by a deletion of orphan visits, and waits until the pass over the disk is over.
fn seal(node: &Node, data_dir: &Path) {
    assert_eq!(node.wire().ask("DELETE", "/rest/v3/visits/orphan", "", b"").status, 200);
    wait_until("the segment is sealed and the pass over", || {
        !sealed_files(data_dir).is_empty() && fs::read(data_dir.join("visit-log/deletions")).unwrap().is_empty()
    });
}

#[test]
fn each_visit_is_listed_once() {
    on_every_kind(|setup| {
        // Each start has another port, and `visitedUrl` would have it.
        let setup = setup.clone().env("CAROM_VISITS_LOG", "on").env("CAROM_BASE_URL", "https://s.example");
        let node = setup.start();
        let mut wires = wires(&node);
        let count = wires.len();
        let code =
            wires[6].create(&json!({"longUrl": "https://example.org/a?b=1", "tags": ["news"]})).json()["shortCode"]
                .as_str()
                .unwrap()
                .to_owned();
        follow(&mut wires, &format!("/{code}?utm_source=x"), BROWSER);
        follow(&mut wires, &format!("/{code}"), BOT);
        follow(&mut wires, "/never-made?x=1", BROWSER);
        for wire in &mut wires {
            wire.send(format!("HEAD /{code} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            assert_eq!(wire.try_reply(true).unwrap().status, 302);
        }
        let wire = &mut wires[0];
        let all = listed(wire, &of_link(&code));
        assert_eq!(all.len(), 2 * count);
        let people = listed(wire, &format!("{}?excludeBots=true", of_link(&code)));
        assert_eq!(people.len(), count);
        assert_eq!(listed(wire, &format!("{}?excludeBots", of_link(&code))), people, "as in Shlink");
        assert_eq!(listed(wire, &format!("{}?excludeBots=false&itemsPerPage=-1", of_link(&code))), all);
        for visit in &people {
            assert_eq!(visit["userAgent"], BROWSER);
            assert_eq!(visit["date"].as_str().unwrap().len(), "2026-01-02T03:04:05+00:00".len(), "{visit}");
            assert_eq!(visit["referer"], "https://news.example/a");
            assert_eq!(visit["redirectUrl"], "https://example.org/a?b=1&utm_source=x");
            assert!(visit["visitedUrl"].as_str().unwrap().ends_with(&format!("/{code}?utm_source=x")), "{visit}");
            assert_eq!((&visit["potentialBot"], &visit["visitLocation"]), (&json!(false), &json!(null)));
            assert!(visit.get("address").is_none());
        }
        for path in ["/rest/v3/tags/news/visits", "/rest/v3/domains/DEFAULT/visits", "/rest/v3/visits/non-orphan"] {
            assert_eq!(listed(wire, path), all, "{path}");
        }
        wait_until("the index of tags", || wire.get("/rest/v3/tags/none/visits").status == 404);
        assert_eq!(wire.get("/rest/v3/tags/none/visits").problem(404, "/tag-not-found")["tag"], "none");
        wire.get("/rest/v3/domains/none.example/visits").problem(404, "/domain-not-found");
        for (domain, expected) in [("DEFAULT", &all[..]), ("S.example", &all[..]), ("none.example", &[][..])] {
            for path in ["/rest/v3/tags/news/visits", "/rest/v3/visits/non-orphan"] {
                assert_eq!(listed(wire, &format!("{path}?domain={domain}")), expected, "{path} {domain}");
            }
        }
        let orphans = listed(wire, "/rest/v3/visits/orphan?type=invalid_short_url");
        assert_eq!(orphans.len(), count);
        assert!(orphans.iter().all(|visit| visit["type"] == "invalid_short_url"));
        assert!(orphans[0]["visitedUrl"].as_str().unwrap().ends_with("/never-made?x=1"), "{}", orphans[0]);
        assert_eq!(listed(wire, "/rest/v3/visits/orphan?type=base_url"), [] as [Value; 0]);
        let page = wire.get(&format!("{}?page=2&itemsPerPage=7", of_link(&code))).json()["visits"].clone();
        assert_eq!(page["data"].as_array().unwrap(), &all[7..14]);
        assert_eq!(page["pagination"]["totalItems"], 2 * count);
        let past = format!("{}?endDate=2020-01-01", of_link(&code));
        assert_eq!(listed(wire, &past), [] as [Value; 0]);
        let invalid = wire.get("/rest/v3/visits/orphan?type=x&page=0&itemsPerPage=5001").problem(400, "/invalid-data");
        assert_eq!(invalid["invalidElements"], json!(["page", "itemsPerPage", "type"]));
        drop(wires);
        node.terminate();
        let node = setup.start();
        assert_eq!(listed(&mut node.wire(), &of_link(&code)), all);
        seal(&node, setup.data_dir());
        assert_eq!(listed(&mut node.wire(), &of_link(&code)), all);
        assert_eq!(listed(&mut node.wire(), "/rest/v3/visits/orphan"), [] as [Value; 0]);
        node.kill();
        let node = setup.start();
        assert_eq!(listed(&mut node.wire(), &of_link(&code)), all);
    });
}

#[test]
fn later_pages_of_a_tag_leave_the_index_alone() {
    let data = tempfile::tempdir().unwrap();
    let node = logging(data.path()).start();
    let mut wire = node.wire();
    let made = wire.create(&json!({"longUrl": "https://example.org/", "tags": ["news"]})).json();
    let path = format!("/{}", made["shortCode"].as_str().unwrap());
    (0..3).for_each(|_| follow_once(&mut wire, &path, BROWSER));
    let list = "/rest/v3/tags/news/visits";
    let all = listed(&mut wire, list);
    wait_until("the index of tags", || wire.get("/rest/v3/tags/none/visits").status == 404);
    let selects = || node.status()["store"]["select"].as_u64().unwrap();
    let before = selects();
    assert_eq!(listed(&mut wire, &format!("{list}?page=2&itemsPerPage=2")), &all[2..]);
    assert_eq!(selects(), before);
    wire.get("/rest/v3/tags/none/visits?page=2").problem(404, "/tag-not-found");
    assert!(selects() > before, "an empty page asks the index");
    node.terminate();
}

#[test]
fn orphan_visits_have_their_kinds() {
    let data = tempfile::tempdir().unwrap();
    let setup = logging(data.path())
        .env("CAROM_BASE_URL", "https://s.example")
        .env("CAROM_DOMAINS_SERVE", "https://s.example home=https://home.example/ not_found=https://lost.example/");
    let node = setup.start();
    let mut wire = node.wire();
    for (path, target) in [
        ("/?utm_source=x", "https://home.example/"),
        ("/never-made", "https://lost.example/"),
        ("/what.ever", "https://lost.example/"),
        ("/some/page?a=b", "https://lost.example/"),
    ] {
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: s.example\r\nUser-Agent: {BROWSER}\r\n\r\n").as_bytes());
        assert_eq!(wire.try_reply(false).unwrap().location(), target);
        wire.send(format!("HEAD {path} HTTP/1.1\r\nHost: s.example\r\n\r\n").as_bytes());
        assert_eq!(wire.try_reply(true).unwrap().location(), target);
    }
    for (kind, visited) in [
        ("base_url", &["/?utm_source=x"][..]),
        ("invalid_short_url", &["/what.ever", "/never-made"]),
        ("regular_404", &["/some/page?a=b"]),
    ] {
        let visits = listed(&mut wire, &format!("/rest/v3/visits/orphan?type={kind}"));
        assert_eq!(visits.len(), visited.len(), "{visits:?}");
        for visit in &visits {
            assert_eq!((&visit["type"], &visit["userAgent"]), (&json!(kind), &json!(BROWSER)));
            // Several may have come within a millisecond.
            let url = visit["visitedUrl"].as_str().unwrap();
            assert!(visited.iter().any(|path| url.ends_with(path)), "{visit}");
            let target = if kind == "base_url" { "https://home.example/" } else { "https://lost.example/" };
            assert_eq!(visit["redirectUrl"], target);
        }
    }
    assert_eq!(listed(&mut wire, "/rest/v3/visits/orphan").len(), 4);
    for (domain, count) in [("s.example", 4), ("S.example", 4), ("DEFAULT", 4), ("other.example", 0)] {
        let visits = listed(&mut wire, &format!("/rest/v3/visits/orphan?domain={domain}"));
        assert_eq!(visits.len(), count, "{domain}");
    }
    let counts = || node.wire().get("/rest/v3/visits").json()["visits"]["orphanVisitsCount"].clone();
    wait_until("the orphan visits are counted", || counts() == 4);
}

#[test]
fn kill_loses_visits_of_the_last_second_at_most() {
    let data = tempfile::tempdir().unwrap();
    let setup = logging(data.path());
    let (node, mut wire, code) = with_link(&setup);
    follow_once(&mut wire, &format!("/{code}"), BROWSER);
    wait_until("the visit is on disk", || is_on_disk(data.path(), b"news.example"));
    node.kill();
    // A write that the kill cut off.
    let active = fs::read_dir(data.path().join("visit-log")).unwrap().map(|file| file.unwrap().path());
    let active = active.into_iter().find(|path| path.to_string_lossy().contains("active-")).unwrap();
    let mut bytes = fs::read(&active).unwrap();
    let whole = bytes.len();
    bytes.extend_from_within(..whole - 1);
    fs::write(&active, &bytes).unwrap();
    let node = setup.expect("cut off the end of the visit log").start();
    let mut wire = node.wire();
    assert_eq!(listed(&mut wire, &of_link(&code)).len(), 1);
    assert_eq!(fs::read(&active).unwrap().len(), whole);
    follow_once(&mut wire, &format!("/{code}"), BROWSER);
    assert_eq!(listed(&mut wire, &of_link(&code)).len(), 2);
    node.terminate().start();
}

#[test]
fn deletions_apply_at_once_and_reach_the_disk_soon() {
    let data = tempfile::tempdir().unwrap();
    let node = logging(data.path()).start();
    let mut wire = node.wire();
    for (slug, agent) in [("first", "firstling/1"), ("second", "secondary/2"), ("third", "thirdness/3")] {
        wire.shorten_as(slug, "https://example.org/");
        follow_once(&mut wire, &format!("/{slug}"), agent);
    }
    follow_once(&mut wire, "/never-made", "orphanage/4");
    for text in ["firstling", "secondary", "thirdness", "orphanage"] {
        wait_until("the visits are on disk", || is_on_disk(data.path(), text.as_bytes()));
    }
    let deleted = wire.ask("DELETE", &of_link("first"), "", b"");
    assert_eq!(deleted.json(), json!({"deletedVisits": 1}));
    assert_eq!(listed(&mut wire, &of_link("first")), [] as [Value; 0]);
    assert_eq!(wire.ask("DELETE", "/rest/v3/visits/orphan", "", b"").json(), json!({"deletedVisits": 1}));
    assert_eq!(listed(&mut wire, "/rest/v3/visits/orphan"), [] as [Value; 0]);
    // Later visits are listed.
    follow_once(&mut wire, "/first", BROWSER);
    assert_eq!(listed(&mut wire, &of_link("first")).len(), 1);
    for text in ["firstling", "orphanage"] {
        wait_until("deleted visits are gone", || !is_on_disk(data.path(), text.as_bytes()));
    }
    // The next link of a slug has its own visits only, also within a second.
    for round in 0..5 {
        wire.shorten_as("again", &format!("https://example.org/{round}"));
        follow_once(&mut wire, "/again", "againness/5");
        wait_until("the visit is logged", || listed(&mut wire, &of_link("again")).len() == 1);
        assert_eq!(wire.delete("again").status, 204);
    }
    assert_eq!(wire.delete("third").status, 204);
    wire.get(&of_link("third")).problem(404, "/short-url-not-found");
    wire.shorten_as("third", "https://example.org/other");
    assert_eq!(listed(&mut wire, &of_link("third")), [] as [Value; 0]);
    let agents: Vec<Value> =
        listed(&mut wire, "/rest/v3/visits/non-orphan").iter().map(|visit| visit["userAgent"].clone()).collect();
    assert_eq!(agents, [BROWSER, "secondary/2"]);
    wire.ask("DELETE", &of_link("never-made"), "", b"").problem(404, "/short-url-not-found");
}

#[test]
fn addresses_are_stored_as_the_setting_says() {
    for (treatment, shown) in
        [(None, None), (Some("network"), Some("203.0.113.0")), (Some("full"), Some("203.0.113.77"))]
    {
        let data = tempfile::tempdir().unwrap();
        let setup = logging(data.path()).trust_client().env("CAROM_FORWARDED_FIELD", "x-forwarded-for");
        let setup = treatment.map_or(setup.clone(), |treatment| setup.env("CAROM_VISITS_ADDRESSES", treatment));
        let node = setup.start();
        let mut wires = wires(&node);
        let code = wires[6].shorten("https://example.org/");
        for wire in &mut wires {
            let fields = format!(
                "User-Agent: {BROWSER}\r\nReferer: https://me:word@a.example/\r\nX-Forwarded-For: 203.0.113.77\r\n"
            );
            assert_eq!(wire.ask("GET", &format!("/{code}?key=carom_ak_secret"), &fields, b"").status, 302);
        }
        let visits = listed(&mut wires[0], &of_link(&code));
        assert_eq!(visits.len(), wires.len());
        for visit in &visits {
            assert_eq!(visit.get("address").and_then(Value::as_str), shown);
            assert_eq!(visit["referer"], "");
        }
        seal(&node, data.path());
        let has = |bytes: &[u8]| is_on_disk(data.path(), bytes);
        assert!(has(b"Chrome/142"));
        assert!(!has(b"203.0.113"));
        assert!(!has(b"carom_ak_"));
        assert!(!has(b"word@"));
        assert_eq!(has(&[203, 0, 113, 77]), treatment == Some("full"));
        assert_eq!(has(&[203, 0, 113]), treatment.is_some());
    }
}

#[test]
fn keys_list_the_visits_of_their_links_only() {
    let data = tempfile::tempdir().unwrap();
    let setup = logging(data.path());
    let keys = ["one", "two"].map(|app| new_key(&setup, app, "write-own"));
    let admin = new_key(&setup, "all", "admin");
    let node = setup.start();
    let [mut one, mut two, mut admin] = [&keys[0], &keys[1], &admin].map(|key| ApiClient::new(&node, key));
    let mut wire = node.wire();
    for client in [&mut one, &mut two] {
        let code = client.shorten("https://example.org/");
        follow_once(&mut wire, &format!("/{code}"), BROWSER);
    }
    let total = |client: &mut ApiClient| {
        client.get("/rest/v3/visits/non-orphan").json()["visits"]["pagination"]["totalItems"].clone()
    };
    assert_eq!((total(&mut one), total(&mut two), total(&mut admin)), (json!(1), json!(1), json!(2)));
    // Shlink also tells only keys that see a link with a tag that it exists.
    one.create(&json!({"longUrl": "https://example.org/", "tags": ["mine"]}));
    wait_until("the tag is unknown", || two.get("/rest/v3/tags/mine/visits").status == 404);
    two.get("/rest/v3/tags/mine/visits").problem(404, "/tag-not-found");
    assert_eq!(one.get("/rest/v3/tags/Mine/visits").status, 200);
    assert_eq!(one.get("/rest/v3/visits/orphan").status, 403);
    assert_eq!(one.ask("DELETE", "/rest/v3/visits/orphan", "", "").status, 403);
}

#[test]
fn log_is_off_by_default() {
    let data = tempfile::tempdir().unwrap();
    let (_node, mut wire, code) = with_link(&Setup::new(data.path()));
    follow_once(&mut wire, &format!("/{code}"), BROWSER);
    let visits = wire.get(&of_link(&code)).json()["visits"].clone();
    assert_eq!((&visits["summary"]["total"], &visits["data"]), (&json!(1), &json!([])));
    assert_eq!(visits["pagination"]["complete"], false);
    assert!(!data.path().join("visit-log").exists());
}

#[test]
fn damaged_segment_is_left_out_and_reported() {
    let data = tempfile::tempdir().unwrap();
    let setup = logging(data.path());
    let (node, mut wire, code) = with_link(&setup);
    follow_once(&mut wire, &format!("/{code}"), BROWSER);
    seal(&node, data.path());
    drop(wire);
    node.terminate();
    let files = sealed_files(data.path());
    assert_eq!(files.len(), 1);
    let whole = fs::read(&files[0]).unwrap();
    // A wrong byte in a block, in the index, and in the trailer.
    for place in [20, whole.len() - 60, whole.len() - 30] {
        let mut damaged = whole.clone();
        damaged[place] ^= 4;
        fs::write(&files[0], &damaged).unwrap();
        let node = setup.clone().expect("visit_log_damaged").start();
        let mut wire = node.wire();
        follow_once(&mut wire, &format!("/{code}"), BROWSER);
        let visits = wire.get(&of_link(&code)).json()["visits"].clone();
        assert_eq!(
            (visits["pagination"]["complete"].clone(), visits["data"][0]["userAgent"].clone()),
            (json!(false), json!(BROWSER))
        );
        is_seen(&node, "visit_log_damaged");
        drop(wire);
        node.terminate();
    }
}

#[test]
fn full_disk_stops_the_log_and_nothing_else() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("visit-log");
    fs::create_dir_all(&folder).unwrap();
    let mount = format!("mount -t tmpfs -o size=4k tmpfs {}; exec \"$@\"", folder.display());
    let (node, mut wire, code) = with_link(&logging(data.path()).unshared(&mount).expect("visit_log_failed"));
    wait_until("the log has failed", || {
        for number in 0..100 {
            follow_once(&mut wire, &format!("/{code}?{number}"), &format!("{number}{BROWSER}"));
        }
        node.status()["alarms"].to_string().contains("visit_log_failed")
    });
    is_seen(&node, "visit_log_failed");
    let counts = wire.get(&of_link(&code)).json()["visits"]["summary"]["total"].as_u64().unwrap();
    assert!(counts >= 100, "{counts}");
}
