//! Purges of links in a shared home: afterwards no node and no key of Redis has anything of them, and the next link of a slug
//! keeps what it has.

use std::fs;

use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, JSON, new_key, run_app};
use crate::support::bulk::{BULK, send_all};
use crate::support::cli_user::CliUser;
use crate::support::cluster::Cluster;
use crate::support::fleet::{Fleet, assert_redirects, changed, delete, known, settle, shared};
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, Setup, wait_for, wait_until};
use crate::support::openapi::is_described;
use crate::support::purges::{
    MARKER, PURGES, assert_clean, fails_with, hold_back, marked_files, marked_keys, purge, wait_for_purge,
};
use crate::support::redis::Server;

const KEPT: &str = "https://example.org/kept";

fn setup(fleet: &Fleet, number: usize) -> Setup {
    let expected = ["counter_regressed", "could not be carried out", "deleted again", "search for links to purge was"];
    let setup = shared(fleet.setup(number)).env("CAROM_EVENTS_LOG", "on");
    expected.into_iter().fold(setup, Setup::expect)
}

fn start(fleet: &Fleet, nodes: usize) -> Vec<Node> {
    let nodes: Vec<Node> = (0..nodes).map(|number| setup(fleet, number).start()).collect();
    nodes.iter().for_each(settle);
    nodes
}

fn target() -> String {
    format!("https://a.example/{MARKER}")
}

/// Visits a slug on a node, which may have to ask Redis for the link.
fn visit(node: &Node, slug: &str) {
    wait_until("a visit", || node.wire().get(&format!("/{slug}")).status == 302);
}

fn visits(node: &Node, slug: &str) -> Value {
    let reply = node.wire().get(&format!("{SHORT_URLS}/{slug}/visits"));
    if reply.status == 200 { reply.json()["visits"]["summary"]["total"].clone() } else { Value::Null }
}

/// Begins a purge of the link `gone`.
fn begin(node: &Node) -> String {
    begin_of(node, "gone")
}

fn begin_of(node: &Node, slug: &str) -> String {
    // A node that has just lost Redis says 503.
    let ask = || node.wire().ask("DELETE", &format!("{SHORT_URLS}/{slug}?purge=true"), "", b"");
    let reply = wait_for("a purge", || Some(ask()).filter(|reply| reply.status != 503));
    assert_eq!(reply.status, 202, "{}", reply.text());
    reply.json()["id"].as_str().unwrap().to_owned()
}

/// Begins to look for the links of a selection. Returns the number of the purge.
fn select(node: &Node, fields: &Value) -> String {
    // A node that has just lost Redis says 503.
    let ask = || node.wire().ask("POST", PURGES, JSON, fields.to_string().as_bytes());
    let reply = wait_for("a selection", || Some(ask()).filter(|reply| reply.status != 503));
    assert_eq!(reply.status, 202, "{}", reply.text());
    is_described(node, "post", PURGES, &reply);
    reply.json()["purge"]["id"].as_str().unwrap().to_owned()
}

/// Waits for the end of a selection and of its purges. Returns what its search has found.
fn end_of(node: &Node, id: &str) -> Value {
    wait_for_purge(node, id);
    let reply = node.wire().get(&format!("{PURGES}/{id}"));
    is_described(node, "get", "/rest/v3/purges/{purgeId}", &reply);
    reply.json()["selection"].clone()
}

fn create_tagged(node: &Node, slug: &str) {
    let fields = json!({"longUrl": target(), "customSlug": slug, "title": MARKER, "tags": [MARKER]});
    assert_eq!(node.wire().create_named(&fields).status, 200);
}

/// Trims the streams of changes to the last entry of each.
fn trim_streams(server: &Server) {
    for stream in server.command(&["KEYS", "*}:s"]).list() {
        server.command(&["XTRIM", &stream.text(), "MAXLEN", "1"]);
    }
}

/// True once a node stores no change any more.
fn is_settled(node: &Node) -> bool {
    let status = node.status();
    status["fleet"]["outbox"] == 0 && status["fleet"]["settling"] == 0
}

fn is_denied(node: &Node) -> bool {
    node.wire().get("/gone").status == 404
}

/// Creates the link `gone` on the first node, changes it on the last one, and visits it on all.
fn leave_traces(nodes: &[Node]) {
    let texts = json!({"longUrl": target(), "customSlug": "gone", "title": MARKER, "tags": [MARKER]});
    assert_eq!(nodes[0].wire().create_named(&texts).status, 200);
    let last = &nodes[nodes.len() - 1];
    assert_eq!(changed(last, "gone", &json!({"title": format!("New {MARKER}")})).status, 200);
    nodes.iter().for_each(|node| visit(node, "gone"));
    let is_counted = |node: &Node| visits(node, "gone").as_u64() > Some(0);
    wait_until("a visit on every node", || nodes.iter().all(is_counted));
}

#[test]
fn purge_reaches_nodes_and_home() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = start(&fleet, 3);
    nodes[0].wire().shorten_as("kept", KEPT);
    leave_traces(&nodes);
    for number in [0, 2] {
        assert_ne!(marked_files(fleet.setup(number).data_dir()), Vec::<String>::new(), "the test would prove nothing");
    }
    assert_ne!(marked_keys(&server), Vec::<String>::new(), "the test would prove nothing");
    // A node that has not changed the link carries the purge out, too.
    let id = begin(&nodes[1]);
    for node in &nodes {
        wait_for_purge(node, &id);
    }
    let parts = purge(&nodes[2], &id).unwrap();
    let done = |name: &str| json!({"node": name, "complete": true, "silentSince": null});
    assert_eq!((&parts["links"], &parts["nodes"]), (&json!(1), &json!([done("n0"), done("n1"), done("n2")])));
    assert_clean(&fleet, 3, &server);
    for node in &nodes {
        wait_until("the end of the link", || is_denied(node));
        wait_until("another link", || node.wire().get("/kept").status == 302);
        assert!(!node.wire().get("/rest/v3/events").text().contains(MARKER));
    }
    nodes[0].wire().shorten_as("gone", KEPT);
    nodes.iter().for_each(|node| wait_until("no visit", || visits(node, "gone") == json!(0)));
    for node in nodes {
        node.terminate();
    }
    assert_clean(&fleet, 3, &server);
}

#[test]
fn next_link_of_a_slug_keeps_events() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    nodes[0].wire().shorten_as("gone", &target());
    visit(&nodes[1], "gone");
    let folder = hold_back(&fleet, 1);
    let id = begin(&nodes[0]);
    wait_until("a purge that is held back", || fails_with(&nodes[1], &id, "visit-log"));
    let next = format!("{KEPT}/next");
    nodes[1].wire().shorten_as("gone", &next);
    visit(&nodes[1], "gone");
    // No store has this link once Redis has kept it for ten seconds. Only Redis tells it from the purged one.
    wait_until("a settled link", || is_settled(&nodes[1]));
    fs::remove_dir_all(&folder).unwrap();
    nodes.iter().for_each(|node| wait_for_purge(node, &id));
    assert_clean(&fleet, 2, &server);
    let events = nodes[1].wire().get("/rest/v3/events");
    assert!(events.text().contains(&next), "{}", events.text());
    wait_until("the visit of the next link, which is kept", || visits(&nodes[1], "gone") == json!(1));
    for node in &nodes {
        wait_until("the next link", || {
            let reply = node.wire().get("/gone");
            reply.status == 302 && reply.location() == next
        });
    }
}

#[test]
fn damaged_state_holds_no_other_back() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    for slug in ["bad", "gone"] {
        nodes[0].wire().shorten_as(slug, &target());
    }
    let folder = hold_back(&fleet, 1);
    let bad = begin_of(&nodes[0], "bad");
    wait_until("a purge that is held back", || fails_with(&nodes[1], &bad, "visit-log"));
    let has_ended = |purge: &Value| purge["nodes"][0]["complete"] == true;
    wait_until("the part of the first node", || purge(&nodes[0], &bad).as_ref().is_some_and(has_ended));
    let key = server.command(&["KEYS", "*:l:bad"]).list()[0].text();
    server.command(&["SET", &key, "damaged"]);
    let id = begin(&nodes[0]);
    fs::remove_dir_all(&folder).unwrap();
    nodes.iter().for_each(|node| wait_for_purge(node, &id));
    wait_until("the reason", || fails_with(&nodes[1], &bad, "damaged"));
    assert_eq!(purge(&nodes[1], &bad).unwrap()["complete"], false);
}

#[test]
fn restored_home_is_purged_again() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    nodes[0].wire().shorten_as("gone", &target());
    visit(&nodes[1], "gone");
    // Without the changes that nodes still store, Redis alone decides what comes back.
    wait_until("settled links", || nodes.iter().all(is_settled));
    assert_ne!(marked_keys(&server), Vec::<String>::new(), "the test would prove nothing");
    let dump = server.copy_dump();
    let id = begin(&nodes[0]);
    nodes.iter().for_each(|node| wait_for_purge(node, &id));
    assert_clean(&fleet, 2, &server);
    wait_until("settled deletions", || nodes.iter().all(is_settled));
    server.restore_dump(&dump);
    nodes.iter().for_each(settle);
    wait_until("a Redis without the link", || marked_keys(&server).is_empty());
    nodes.iter().for_each(|node| wait_until("the end of the link", || is_denied(node)));
}

#[test]
fn purge_of_a_home_waits_for_redis() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = start(&fleet, 1).remove(0);
    node.wire().shorten_as("gone", &target());
    settle(&node);
    let id = begin(&node);
    // No purge of a fleet ends within the five seconds that the nodes have for the streams of visits.
    server.pause();
    let waits = wait_for("a purge that waits", || {
        purge(&node, &id).filter(|purge| purge["error"].as_str().is_some_and(|why| why.contains("waits for it")))
    });
    assert_eq!(waits["complete"], false, "{waits}");
    server.resume();
    wait_for_purge(&node, &id);
    assert_clean(&fleet, 1, &server);
    node.wire().get(&format!("{PURGES}/1")).problem(404, "purge-not-found");
}

#[test]
fn selected_links_leave_everything() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    create_tagged(&nodes[0], "gone");
    create_tagged(&nodes[1], "other");
    nodes[0].wire().shorten_as("kept", KEPT);
    for node in &nodes {
        ["gone", "other", "kept"].iter().for_each(|slug| visit(node, slug));
    }
    assert_ne!(marked_keys(&server), Vec::<String>::new(), "the test would prove nothing");
    let id = select(&nodes[1], &json!({"tag": MARKER}));
    let counted = end_of(&nodes[1], &id);
    let elsewhere = nodes[0].wire().get(&format!("{PURGES}/{id}")).problem(404, "purge-not-found");
    assert!(elsewhere["detail"].as_str().unwrap().contains("only the node of the request"), "{elsewhere}");
    let found =
        |selection: &Value| ["onlyCounts", "matched", "unreadable", "ended", "stopped"].map(|of| selection[of].clone());
    assert_eq!(found(&counted), [json!(true), json!(2), json!(0), json!(true), Value::Null]);
    assert!(counted["examined"].as_u64() >= Some(3), "{counted}");
    nodes.iter().for_each(|node| visit(node, "gone"));
    let purged = end_of(&nodes[1], &select(&nodes[1], &json!({"tag": MARKER, "confirm": 2})));
    assert_eq!(found(&purged), [json!(false), json!(2), json!(0), json!(true), Value::Null]);
    assert_clean(&fleet, 2, &server);
    for node in &nodes {
        for slug in ["gone", "other"] {
            wait_until("the end of a link", || node.wire().get(&format!("/{slug}")).status == 404);
        }
        visit(node, "kept");
    }
    let again = end_of(&nodes[0], &select(&nodes[0], &json!({"destination": target(), "confirm": 9})));
    assert_eq!(found(&again)[1], json!(0));
}

#[test]
fn links_deleted_before_are_purged() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    ["gone", "again"].iter().for_each(|slug| create_tagged(&nodes[0], slug));
    nodes.iter().for_each(|node| visit(node, "gone"));
    ["gone", "again"].iter().for_each(|slug| delete(&nodes[0], slug));
    nodes[0].wire().shorten_as("again", KEPT);
    nodes.iter().for_each(settle);
    assert_ne!(marked_keys(&server), Vec::<String>::new(), "the test would prove nothing");
    // No client has created or deleted them on this node.
    let find = |fields: Value| end_of(&nodes[1], &select(&nodes[1], &fields));
    let found = |selection: &Value| ["matched", "deletedBefore", "stopped"].map(|of| selection[of].clone());
    let expected = [json!(0), json!(2), Value::Null];
    assert_eq!(found(&find(json!({"tag": MARKER}))), expected);
    assert_eq!(found(&find(json!({"tag": MARKER, "confirm": 0}))), expected);
    assert_clean(&fleet, 2, &server);
    assert_redirects(&nodes[1], "again", KEPT);
    let left = find(json!({"tag": MARKER}));
    assert_eq!(left["deletedBefore"], 0, "{left}");
}

#[test]
fn events_find_links_deleted_before() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = start(&fleet, 1).remove(0);
    let user = CliUser::new().env("CAROM_URL", &node.url(""));
    create_tagged(&node, "gone");
    delete(&node, "gone");
    settle(&node);
    trim_streams(&server);
    let counted = user.done(&["purge", "--tag", MARKER, "--dry-run"]);
    assert_eq!(counted, "0 links would be deleted and purged\n1 link deleted before would be purged\n");
    assert_eq!(user.done(&["purge", "--tag", MARKER, "--yes"]), "purged 1 link\n");
    assert_eq!(marked_files(fleet.setup(0).data_dir()), Vec::<String>::new());
    let events = node.wire().get("/rest/v3/events");
    assert!(!events.text().contains(MARKER), "{}", events.text());
}

#[test]
fn search_waits_for_links_of_a_node() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes: Vec<Node> = (0..2).map(|number| setup(&fleet, number).expect("redis_away").start()).collect();
    nodes.iter().for_each(settle);
    server.pause();
    wait_until("a link without Redis", || nodes[1].wire().create(&json!({"longUrl": target()})).status == 200);
    nodes[1].pause();
    server.resume();
    settle(&nodes[0]);
    let id = select(&nodes[0], &json!({"destination": target()}));
    wait_until("a search that waits", || fails_with(&nodes[0], &id, "links that Redis lacks"));
    nodes[1].resume();
    let found = end_of(&nodes[0], &id);
    assert!(found["matched"].as_u64() >= Some(1), "{found}");
}

#[test]
fn search_stops_at_too_many_links() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = start(&fleet, 1).remove(0);
    let slugs = ["one", "two", "three"];
    slugs.iter().for_each(|slug| create_tagged(&node, slug));
    let stopped = end_of(&node, &select(&node, &json!({"destination": target(), "confirm": 2})));
    assert!(stopped["stopped"].as_str().is_some_and(|why| why.contains("more links")), "{stopped}");
    assert_eq!(stopped["matched"], 0, "{stopped}");
    slugs.iter().for_each(|slug| visit(&node, slug));
}

#[test]
fn search_passes_no_damaged_state() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = start(&fleet, 1).remove(0);
    create_tagged(&node, "gone");
    node.wire().shorten_as("bad", KEPT);
    wait_until("settled links", || is_settled(&node));
    let key = server.command(&["KEYS", "*:l:bad"]).list()[0].text();
    server.command(&["SET", &key, "damaged"]);
    let id = select(&node, &json!({"tag": MARKER, "confirm": 1}));
    wait_until("the reason", || fails_with(&node, &id, "the value of bad"));
    server.command(&["DEL", &key]);
    let purged = end_of(&node, &id);
    assert_eq!(purged["matched"], 1, "{purged}");
    assert_clean(&fleet, 1, &server);
}

#[test]
fn keys_select_in_their_domains() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let setup = setup(&fleet, 0).env("CAROM_BASE_URL", "https://s.test");
    let setup = setup.env("CAROM_DOMAINS_SERVE", "https://go.test").start().terminate();
    let config = setup.data_dir().join("carom.toml");
    fs::write(&config, "base_url = 'https://s.test'\n[domains]\nserve = ['https://go.test']\n").unwrap();
    let config = config.display().to_string();
    let all = new_key(&setup, "all", "write-all");
    let limited =
        run_app(&setup, &["add", "limited", "--role", "write-all", "--domain", "go.test", "--config", &config]);
    let node = setup.start();
    settle(&node);
    let [mut all, mut limited] = [&all, &limited].map(|key| ApiClient::new(&node, key));
    for domain in ["", "go.test"] {
        let body = json!({"longUrl": target(), "domain": domain, "customSlug": "gone"});
        wait_until("a link", || all.create(&body).status == 200);
    }
    let body = json!({"destination": target(), "confirm": 9}).to_string();
    let begun = known(|| limited.ask("POST", PURGES, JSON, &body));
    assert_eq!(begun.status, 202, "{}", begun.text());
    let path = format!("{PURGES}/{}", begun.json()["purge"]["id"].as_str().unwrap());
    let has_ended = |purge: &Value| purge["selection"]["ended"] == true;
    let purge = wait_for("the end of the search", || Some(limited.get(&path).json()).filter(has_ended));
    assert_eq!(purge["selection"]["matched"], 1, "{purge}");
    let mut status = |domain: &str| all.get(&format!("{SHORT_URLS}/gone?domain={domain}")).status;
    wait_until("the end of the link", || status("go.test") == 404);
    // The key has no access to this one.
    wait_until("the other link", || status("DEFAULT") == 200);
}

#[test]
fn killed_node_continues_its_search() {
    /// More than one purge takes.
    const LINKS: usize = 2_500;
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = start(&fleet, 2);
    let line = |number: usize| format!("{}\n", json!({"longUrl": format!("{}?{number}", target())}));
    let lines: String = (0..LINKS).map(line).collect();
    assert_eq!(send_all(&nodes[0], BULK, lines.as_bytes()).len(), LINKS);
    let id = select(&nodes[0], &json!({"destination": target(), "confirm": LINKS}));
    let is_begun = |purge: Value| purge["selection"]["matched"].as_u64() > Some(0);
    wait_until("the first deletions", || purge(&nodes[0], &id).is_some_and(is_begun));
    let setup = nodes.remove(0).kill();
    // The search finds them again.
    let node = setup.expect("a purge leaves out links that were not deleted").start();
    settle(&node);
    let selection = end_of(&node, &id);
    assert_eq!(selection["stopped"], Value::Null, "{selection}");
    assert_eq!(selection["matched"], LINKS, "the purge that the kill interrupted counts, too");
    let left = end_of(&nodes[0], &select(&nodes[0], &json!({"destination": target()})));
    assert_eq!(left["matched"], 0, "{left}");
    assert_clean(&fleet, 2, &server);
}

#[test]
fn count_waits_for_no_purge() {
    /// Purges that a search leaves open.
    const OPEN: usize = 50;
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = start(&fleet, 1).remove(0);
    create_tagged(&node, "gone");
    let codes: Vec<String> = (0..OPEN).map(|_| node.wire().shorten(KEPT)).collect();
    let folder = hold_back(&fleet, 0);
    let open: Vec<String> = codes.iter().map(|code| begin_of(&node, code)).collect();
    let waiting = select(&node, &json!({"tag": MARKER, "confirm": 1}));
    wait_until("a search that waits", || fails_with(&node, &waiting, "50 purges have not ended"));
    let counted = end_of(&node, &select(&node, &json!({"tag": MARKER})));
    assert_eq!(counted["matched"], 1, "{counted}");
    visit(&node, "gone");
    fs::remove_dir_all(&folder).unwrap();
    let purged = end_of(&node, &waiting);
    assert_eq!(purged["matched"], 1, "{purged}");
    open.iter().for_each(|id| wait_for_purge(&node, id));
    assert_clean(&fleet, 1, &server);
}

#[test]
fn cluster_is_searched_as_a_whole() {
    const LINKS: usize = 100;
    let cluster = Cluster::start();
    let servers: Vec<String> = (0..6).map(|index| cluster.server(index).address().to_string()).collect();
    let fleet = Fleet::new(2, &format!("redis://{}", servers.join(",")));
    let nodes = start(&fleet, 2);
    let mut wire = nodes[0].wire();
    let codes: Vec<String> = (0..LINKS).map(|number| wire.shorten(&format!("{}?{number}", target()))).collect();
    wire.shorten_as("kept", KEPT);
    let purged = end_of(&nodes[1], &select(&nodes[1], &json!({"destination": target(), "confirm": LINKS})));
    assert_eq!((&purged["matched"], &purged["stopped"]), (&json!(LINKS), &Value::Null));
    for code in &codes {
        wait_until("the end of a link", || nodes[0].wire().get(&format!("/{code}")).status == 404);
    }
    assert_redirects(&nodes[0], "kept", KEPT);
}

#[test]
fn command_purges_a_selection() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = start(&fleet, 1).remove(0);
    let user = CliUser::new().env("CAROM_URL", &node.url(""));
    create_tagged(&node, "gone");
    node.wire().shorten_as("kept", KEPT);
    assert_eq!(user.done(&["purge", "--tag", MARKER, "--dry-run"]), "1 link would be deleted and purged\n");
    user.refused(&["purge", "--tag", MARKER], 2, &["cannot be undone", "--yes"]);
    visit(&node, "gone");
    assert_eq!(user.done(&["purge", "--tag", MARKER, "--yes"]), "purged 1 link\n");
    assert_clean(&fleet, 1, &server);
    let nothing = user.run(&["purge", "--tag", MARKER, "--yes"]);
    assert_eq!(nothing.code, 0, "{nothing:?}");
    assert!(nothing.err.contains("no link matches"), "{nothing:?}");
}

#[test]
fn lost_deletion_is_made_again() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = start(&fleet, 1).remove(0);
    node.wire().shorten_as("gone", &target());
    wait_until("a settled link", || is_settled(&node));
    let dump = server.copy_dump();
    let folder = hold_back(&fleet, 0);
    let id = begin(&node);
    wait_until("a purge that is held back", || fails_with(&node, &id, "visit-log"));
    // From then on, no node sends the deletion again.
    wait_until("a settled deletion", || is_settled(&node));
    server.restore_dump(&dump);
    settle(&node);
    fs::remove_dir_all(&folder).unwrap();
    wait_for_purge(&node, &id);
    assert_clean(&fleet, 1, &server);
    wait_until("the end of the link", || is_denied(&node));
}
