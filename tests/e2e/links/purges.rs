//! Purges on a single node: afterwards no file has anything of the links.

use std::path::Path;

use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;
use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, new_key};
use crate::support::bulk::{IMPORT, send_all};
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::links::change;
use crate::support::node::{Node, Setup, wait_for, wait_until};
use crate::support::openapi::is_described;
use crate::support::purges::{MARKER, PURGES, marked_files, purge, wait_for_purge};

const KEPT: &str = "https://example.org/kept";

/// A node that keeps everything that it can.
fn keeping(dir: &Path) -> Setup {
    let on = ["CAROM_VISITS_LOG", "CAROM_EVENTS_LOG", "CAROM_EVENTS_VISITS"];
    on.iter().fold(Setup::new(dir), |setup, name| setup.env(name, "on"))
}

fn target() -> String {
    format!("https://a.example/{MARKER}")
}

fn ask(wire: &mut Wire, fields: &Value) -> Reply {
    wire.ask("POST", PURGES, "Content-Type: application/json\r\n", fields.to_string().as_bytes())
}

fn id_of(purge: &Value) -> String {
    purge["id"].as_str().unwrap_or_else(|| panic!("no purge: {purge}")).to_owned()
}

/// Follows a link, and waits until its visit is logged.
fn visit(wire: &mut Wire, slug: &str) {
    assert_eq!(wire.get(&format!("/{slug}")).status, 302);
    let path = format!("{SHORT_URLS}/{slug}/visits");
    wait_until("the visit", || wire.get(&path).json()["visits"]["pagination"]["totalItems"] == 1);
}

#[test]
fn purged_link_leaves_every_file() {
    let data = tempfile::tempdir().unwrap();
    let node = keeping(data.path()).start();
    let mut wire = node.wire();
    wire.create(&json!({"longUrl": target(), "customSlug": "gone", "title": MARKER, "tags": [MARKER]}));
    wire.shorten_as("kept", KEPT);
    change(&mut wire, "gone", &json!({"title": format!("New {MARKER}")}));
    visit(&mut wire, "gone");
    visit(&mut wire, "kept");
    assert_ne!(marked_files(data.path()), Vec::<String>::new(), "otherwise the test proves nothing");
    // A restart writes the files of the search index, so the marker is in them, too.
    drop(wire);
    let node = node.restart();
    let mut wire = node.wire();
    let path = format!("{SHORT_URLS}/gone?purge=true");
    let reply = wire.ask("DELETE", &path, "", b"");
    assert_eq!(reply.status, 202, "{}", reply.text());
    is_described(&node, "delete", "/rest/v3/short-urls/{shortCode}", &reply);
    assert_eq!(wire.get("/gone").status, 404);
    let id = id_of(&reply.json());
    wait_for_purge(&node, &id);
    let read = wire.get(&format!("{PURGES}/{id}"));
    is_described(&node, "get", "/rest/v3/purges/{purgeId}", &read);
    assert_eq!((&read.json()["links"], &read.json()["nodes"]), (&json!(1), &json!([])));
    assert_eq!(marked_files(data.path()), Vec::<String>::new());
    assert_eq!(wire.get("/kept").location(), KEPT);
    assert!(!wire.get("/rest/v3/events").text().contains(MARKER));
    drop(wire);
    let setup = node.terminate();
    assert_eq!(marked_files(data.path()), Vec::<String>::new());
    let node = setup.start();
    let mut wire = node.wire();
    assert_eq!((wire.get("/kept").location(), wire.get("/gone").status), (KEPT, 404));
    assert_eq!(purge(&node, &id).unwrap()["complete"], true);
    // The slug is free again. The purge names the old link by its creation time, so it leaves the new one alone.
    wire.shorten_as("gone", KEPT);
    assert_eq!(wire.get("/gone").location(), KEPT);
}

#[test]
fn visit_log_that_is_off_holds_a_purge_back() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).env("CAROM_VISITS_LOG", "on").start();
    let mut wire = node.wire();
    wire.shorten_as("gone", &target());
    visit(&mut wire, "gone");
    drop(wire);
    let node = node.terminate().env("CAROM_VISITS_LOG", "off").expect("a purge could not be carried out").start();
    let begun = node.wire().ask("DELETE", &format!("{SHORT_URLS}/gone?purge=true"), "", b"");
    let id = id_of(&begun.json());
    let failed = wait_for("the reason", || purge(&node, &id).filter(|purge| purge["error"].is_string()));
    assert!(failed["error"].as_str().unwrap().contains("visit-log"), "{failed}");
    assert_eq!(failed["complete"], false);
    std::fs::remove_dir_all(data.path().join("visit-log")).unwrap();
    wait_for_purge(&node, &id);
    assert_eq!(purge(&node, &id).unwrap()["error"], Value::Null);
    assert_eq!(marked_files(data.path()), Vec::<String>::new());
}

#[test]
fn link_imported_again_holds_no_purge_back() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).env("CAROM_VISITS_LOG", "on").start();
    let import = |node: &Node, target: &str| {
        let line = json!({"shortCode": "gone", "longUrl": target, "dateCreated": "2025-06-01T12:00:00.123Z"});
        send_all(node, IMPORT, format!("{line}\n").as_bytes());
        assert_eq!(node.wire().get("/gone").location(), target);
    };
    import(&node, &target());
    // The visit log has the visit, and holds the purge back once it is off.
    let counted = format!("{SHORT_URLS}/gone/visits");
    let count = |node: &Node| node.wire().get(&counted).json()["visits"]["pagination"]["totalItems"].clone();
    wait_until("the visit", || count(&node) == 1);
    let node = node.terminate().env("CAROM_VISITS_LOG", "off").expect("a purge could not be carried out").start();
    let begun = node.wire().ask("DELETE", &format!("{SHORT_URLS}/gone?purge=true"), "", b"");
    let id = id_of(&begun.json());
    wait_for("the reason", || purge(&node, &id).filter(|purge| purge["error"].is_string()));
    import(&node, KEPT);
    std::fs::remove_dir_all(data.path().join("visit-log")).unwrap();
    wait_for_purge(&node, &id);
    assert_eq!(marked_files(data.path()), Vec::<String>::new());
    assert_eq!(node.wire().get("/gone").location(), KEPT);
}

#[test]
fn deleted_links_stay_in_files_without_a_purge() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    node.wire().shorten_as("gone", &target());
    assert_eq!(node.wire().delete("gone").status, 204);
    node.terminate();
    assert_ne!(marked_files(data.path()), Vec::<String>::new());
}

#[test]
fn links_are_selected_counted_and_purged() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let mut wire = node.wire();
    for number in 0..12 {
        wire.create(&json!({"longUrl": format!("{}?{number}", target()), "tags": ["old"]}));
    }
    wire.shorten_as("kept", KEPT);
    wait_until("counts of links", || ask(&mut wire, &json!({"tag": "old"})).status == 200);
    for fields in [json!({"tag": "old"}), json!({"destination": target()})] {
        let counted = ask(&mut wire, &fields);
        is_described(&node, "post", PURGES, &counted);
        assert_eq!((counted.status, &counted.json()["count"]), (200, &json!(12)));
        assert_eq!(counted.json()["sample"].as_array().unwrap().len(), 10);
    }
    assert_eq!(ask(&mut wire, &json!({"domain": "DEFAULT"})).json()["count"], 13);
    for mut fields in [json!({"tag": "none"}), json!({"app": "none"}), json!({"destination": "https://none.example/"})]
    {
        assert_eq!(ask(&mut wire, &fields).json()["count"], 0, "{fields}");
        fields["confirm"] = json!(5);
        let nothing = ask(&mut wire, &fields);
        is_described(&node, "post", PURGES, &nothing);
        assert_eq!((nothing.status, &nothing.json()["purge"]), (200, &Value::Null));
    }
    ask(&mut wire, &json!({"tag": "old", "confirm": 11})).problem(409, "more-links-match");
    let begun = ask(&mut wire, &json!({"tag": "old", "confirm": 12}));
    assert_eq!(begun.status, 202, "{}", begun.text());
    is_described(&node, "post", PURGES, &begun);
    let begun = begun.json();
    assert_eq!((&begun["deleted"], &begun["failed"], &begun["left"]), (&json!(12), &json!(0), &json!(0)));
    wait_for_purge(&node, &id_of(&begun["purge"]));
    assert_eq!(marked_files(data.path()), Vec::<String>::new());
    assert_eq!(wire.get("/kept").location(), KEPT);
}

#[test]
fn links_deleted_before_are_purged_too() {
    let data = tempfile::tempdir().unwrap();
    let node = keeping(data.path()).start();
    let mut wire = node.wire();
    wire.create(&json!({"longUrl": target(), "customSlug": "gone", "title": MARKER, "tags": [MARKER]}));
    wire.shorten_as("kept", KEPT);
    assert_eq!(wire.delete("gone").status, 204);
    assert_ne!(marked_files(data.path()), Vec::<String>::new(), "otherwise the test proves nothing");
    wait_until("counts of links", || ask(&mut wire, &json!({"tag": MARKER})).status == 200);
    for fields in [json!({"destination": target()}), json!({"tag": MARKER}), json!({"domain": "DEFAULT"})] {
        let counted = ask(&mut wire, &fields);
        is_described(&node, "post", PURGES, &counted);
        assert_eq!(counted.json()["deletedBefore"], 1, "{fields}: {}", counted.text());
    }
    let none = ask(&mut wire, &json!({"destination": "https://other.example/"})).json();
    assert_eq!((&none["count"], &none["deletedBefore"]), (&json!(0), &json!(0)));
    let begun = ask(&mut wire, &json!({"destination": target(), "confirm": 0}));
    assert_eq!(begun.status, 202, "{}", begun.text());
    is_described(&node, "post", PURGES, &begun);
    assert_eq!((&begun.json()["deleted"], &begun.json()["deletedBefore"]), (&json!(0), &json!(1)));
    wait_for_purge(&node, &id_of(&begun.json()["purge"]));
    assert_eq!(marked_files(data.path()), Vec::<String>::new());
    assert_eq!(ask(&mut wire, &json!({"destination": target()})).json()["deletedBefore"], 0);
    assert_eq!(wire.get("/kept").location(), KEPT);
}

fn await_next_millisecond() {
    let since_ms = unix_ms();
    wait_until("the next millisecond", || unix_ms() > since_ms);
}

#[test]
fn purge_leaves_the_next_link_of_a_slug() {
    let data = tempfile::tempdir().unwrap();
    let node = keeping(data.path()).start();
    let mut wire = node.wire();
    wire.create(&json!({"longUrl": target(), "customSlug": "slug", "title": MARKER, "tags": [MARKER]}));
    visit(&mut wire, "slug");
    assert_eq!(wire.delete("slug").status, 204);
    // Visits tell both links apart by their milliseconds.
    await_next_millisecond();
    wire.shorten_as("slug", KEPT);
    change(&mut wire, "slug", &json!({"title": "kept"}));
    visit(&mut wire, "slug");
    assert_ne!(marked_files(data.path()), Vec::<String>::new(), "otherwise the test proves nothing");
    let begun = ask(&mut wire, &json!({"destination": target(), "confirm": 0}));
    assert_eq!(begun.status, 202, "{}", begun.text());
    assert_eq!((&begun.json()["deleted"], &begun.json()["deletedBefore"]), (&json!(0), &json!(1)));
    wait_for_purge(&node, &id_of(&begun.json()["purge"]));
    assert_eq!(marked_files(data.path()), Vec::<String>::new());
    let visits = wire.get(&format!("{SHORT_URLS}/slug/visits")).json();
    assert_eq!(visits["visits"]["pagination"]["totalItems"], 1, "the next link keeps its visits: {visits}");
    assert_eq!(wire.get("/slug").location(), KEPT);
    assert_eq!(wire.get(&format!("{SHORT_URLS}/slug")).json()["title"], "kept");
    assert_eq!(ask(&mut wire, &json!({"destination": target()})).json()["deletedBefore"], 0);
}

#[test]
fn expired_link_without_changes_is_purged() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).env("CAROM_VISITS_LOG", "on").env("CAROM_LINKS_KEEP_EXPIRED", "1s").start();
    let mut wire = node.wire();
    let end = dates::format((unix_ms() / 1_000 + 2) * 1_000);
    let fields = json!({"longUrl": target(), "customSlug": "gone", "title": MARKER, "validUntil": end});
    assert_eq!(wire.create(&fields).code(), "gone");
    wire.shorten_as("kept", KEPT);
    wait_until("the removal of the link", || wire.get("/gone").status == 404);
    // A restart writes the files of the search index, which still have its texts.
    drop(wire);
    let node = node.restart();
    let mut wire = node.wire();
    wait_until("the search index", || {
        let counted = ask(&mut wire, &json!({"destination": target()}));
        counted.status == 200 && counted.json()["deletedBefore"] == 1
    });
    assert_ne!(marked_files(data.path()), Vec::<String>::new(), "otherwise the test proves nothing");
    let begun = ask(&mut wire, &json!({"destination": target(), "confirm": 0}));
    assert_eq!((begun.status, &begun.json()["deletedBefore"]), (202, &json!(1)), "{}", begun.text());
    wait_for_purge(&node, &id_of(&begun.json()["purge"]));
    assert_eq!(marked_files(data.path()), Vec::<String>::new());
    assert_eq!(ask(&mut wire, &json!({"destination": target()})).json()["deletedBefore"], 0);
    assert_eq!(wire.get("/kept").location(), KEPT);
}

#[test]
fn malformed_purges_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let mut wire = node.wire();
    wire.shorten_as("kept", KEPT);
    let wrong = wire.ask("DELETE", &format!("{SHORT_URLS}/kept?purge=maybe"), "", b"");
    assert_eq!(wrong.problem(400, "invalid-data")["invalidElements"], json!(["purge"]));
    wire.ask("DELETE", &format!("{SHORT_URLS}/none?purge=true"), "", b"").problem(404, "short-url-not-found");
    for (fields, named) in [
        (json!({}), json!(["domain"])),
        (json!({"tag": "a", "app": "b"}), json!(["tag"])),
        (json!({"tag": "a\nb"}), json!(["tag"])),
        (json!({"app": "Not an app"}), json!(["app"])),
        (json!({"destination": "a.example"}), json!(["destination"])),
        (json!({"tag": "a", "confirm": -1}), json!(["confirm"])),
        (json!({"tag": "a", "all": true}), json!(["all"])),
    ] {
        let refused = ask(&mut wire, &fields);
        is_described(&node, "post", PURGES, &refused);
        assert_eq!(refused.problem(400, "invalid-data")["invalidElements"], named);
    }
    for id in ["0123456789abcdef", "x"] {
        let unknown = wire.get(&format!("{PURGES}/{id}"));
        is_described(&node, "get", "/rest/v3/purges/{purgeId}", &unknown);
        let problem = unknown.problem(404, "purge-not-found");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with("No purge"), "`carom purge` recognises {detail:?}");
    }
    assert_eq!(wire.ask("DELETE", &format!("{SHORT_URLS}/kept?purge=false"), "", b"").status, 204);
}

#[test]
fn purges_need_rights_on_the_links() {
    let data = tempfile::tempdir().unwrap();
    let setup = Setup::new(data.path());
    let keys = ["write-own", "write-all"].map(|role| new_key(&setup, role, role));
    let node = setup.start();
    let [mut own, mut all] = keys.map(|key| ApiClient {
        wire: node.wire(),
        fields: format!("X-Api-Key: {key}\r\nContent-Type: application/json\r\n"),
    });
    let ask = |client: &mut ApiClient, method: &str, path: &str, body: &Value| {
        let fields = client.fields.clone();
        let body = if method == "POST" { body.to_string() } else { String::new() };
        client.wire.ask(method, path, &fields, body.as_bytes())
    };
    let create = |slug: &str| json!({"longUrl": KEPT, "customSlug": slug});
    assert_eq!(ask(&mut own, "POST", SHORT_URLS, &create("mine")).status, 200);
    assert_eq!(ask(&mut all, "POST", SHORT_URLS, &create("other")).status, 200);
    ask(&mut own, "POST", PURGES, &json!({"app": "write-own"})).problem(403, "forbidden");
    ask(&mut own, "DELETE", &format!("{SHORT_URLS}/other?purge=true"), &Value::Null).problem(404, "not-found");
    assert_eq!(ask(&mut own, "DELETE", &format!("{SHORT_URLS}/mine?purge=true"), &Value::Null).status, 202);
    let mut counted = || ask(&mut all, "POST", PURGES, &json!({"app": "write-all"}));
    wait_until("counts of links", || counted().status == 200);
    assert_eq!(counted().json()["count"], 1);
}
