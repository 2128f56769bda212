//! Nodes whose links are in Redis: what they serve from memory, what they fetch, what they refuse, and what they store.

use std::path::Path;

use carom_shards::{CodeLength, CodeSecret, CodeSpace, CounterValue};
use serde_json::{Value, json};

use crate::support::alarms::is_seen;
use crate::support::api_client::JSON;
use crate::support::browser::{Browser, SCREEN};
use crate::support::bulk::{code_of, many, send_all};
use crate::support::cluster::Cluster;
use crate::support::console::{at, press, press_in_menu, says, shows};
use crate::support::fleet::{
    Fleet, HOT_LIMIT, KEY, assert_redirects, changed, delete, known, open_links, redirects, settle, shared,
};
use crate::support::http::{SHORT_URLS, Wire, request};
use crate::support::links::change;
use crate::support::memory::{keeping, map_bytes};
use crate::support::node::{Dice, Node, Setup, wait_until};
use crate::support::openapi::is_described;
use crate::support::redis::{self, Server};
use crate::support::resp::Reply;

const TARGET: &str = "https://example.org/target";

fn start(fleet: &Fleet, nodes: usize) -> Vec<Node> {
    let nodes: Vec<Node> = (0..nodes).map(|number| shared(fleet.setup(number)).start()).collect();
    nodes.iter().for_each(settle);
    nodes
}

/// A generated code that was never leased.
fn guess(dice: &mut Dice) -> String {
    let (space, length) = (CodeSpace::new(&CodeSecret::from_hex(KEY).unwrap()), CodeLength::DEFAULT);
    let value = length.codes() / 2 + dice.below(length.codes() / 2);
    space.code(length, CounterValue(value)).to_code().to_string()
}

/// Waits until guesses cost a node no command.
fn knows_slugs(node: &Node, server: &Server, dice: &mut Dice) {
    let mut wire = node.wire();
    wait_until("guesses without commands", || {
        let before = server.calls("get");
        wire.get(&format!("/{}", guess(dice))).status == 404 && server.calls("get") == before
    });
}

fn get(node: &Node, code: &str) -> u16 {
    node.wire().get(&format!("/{code}")).status
}

/// True if a node has a link in memory, or Redis has it.
fn has(node: &Node, code: &str) -> bool {
    known(|| node.wire().get(&format!("/{code}"))).status == 302
}

fn has_stored_nothing(setup: &Setup) -> bool {
    open_links(setup).page(&[], 1).unwrap().is_empty()
}

/// The bytes of all files below a folder.
fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let bytes = entries.map(|entry| match entry.metadata().unwrap() {
        of if of.is_dir() => bytes_below(&entry.path()),
        of => of.len(),
    });
    bytes.sum()
}

#[test]
fn links_of_other_nodes_are_fetched() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    let (mut here, mut there) = (nodes[0].wire(), nodes[1].wire());
    let codes: Vec<String> = (0..100).map(|number| here.shorten(&format!("{TARGET}/{number}"))).collect();
    here.shorten_as("slug", TARGET);
    for (code, number) in codes.iter().zip(0..) {
        assert_redirects(&nodes[1], code, &format!("{TARGET}/{number}"));
    }
    assert_redirects(&nodes[1], "slug", TARGET);
    let read = known(|| there.get(&format!("{SHORT_URLS}/slug")));
    assert_eq!((read.status, read.json()["longUrl"].as_str()), (200, Some(TARGET)));
    // A change and a delete take effect at once on their node, and soon on others that have the link in memory.
    let moved = format!("{TARGET}/moved");
    assert_eq!(changed(&nodes[1], "slug", &json!({"longUrl": moved})).status, 200);
    assert_redirects(&nodes[1], "slug", &moved);
    wait_until("the change on the other node", || redirects(&nodes[0], "slug", &moved));
    delete(&nodes[1], "slug");
    assert_ne!(get(&nodes[1], "slug"), 302);
    wait_until("the delete on both nodes", || nodes.iter().all(|node| get(node, "slug") == 404));
    wait_until("a slug that no node has", || get(&nodes[0], "no-such-slug") == 404);
}

#[test]
fn waiting_requests_share_a_question() {
    const WAITERS: usize = 32;
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    let mut wires: Vec<Wire> = (0..WAITERS).map(|_| nodes[0].wire()).collect();
    wait_until("one question for all", || {
        let code = nodes[1].wire().shorten(TARGET);
        let before = server.calls("get");
        // Redis answers once all requests wait. On a busy machine some wait for too long.
        assert_eq!(server.command(&["CLIENT", "PAUSE", "60", "ALL"]), "OK");
        for wire in &mut wires {
            wire.send(&request("GET", &format!("/{code}"), "", b""));
        }
        let statuses: Vec<u16> = wires.iter_mut().map(|wire| wire.reply().status).collect();
        assert!(statuses.iter().all(|status| [302, 503].contains(status)), "{statuses:?}");
        let asked = server.calls("get") - before;
        println!("{WAITERS} waiters: {asked} commands, {statuses:?}");
        // A commit of the node meanwhile makes another question necessary.
        statuses.iter().all(|status| *status == 302) && asked <= 4
    });
}

#[test]
fn outage_serves_memory_and_never_404() {
    let server = redis::Setup::new().append_only(true).start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    let mut wire = nodes[1].wire();
    let (hot, cold) = (wire.shorten(&format!("{TARGET}/hot")), wire.shorten(&format!("{TARGET}/cold")));
    wire.shorten_as("cold-slug", TARGET);
    wait_until("a link in memory", || get(&nodes[0], &hot) == 302 && nodes[0].status()["links"] == 1);
    server.kill();
    for code in [cold.as_str(), "cold-slug", "no-such-slug"] {
        let reply = nodes[0].wire().get(&format!("/{code}"));
        assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")), "{code}: {}", reply.text());
        assert_eq!(nodes[0].wire().get(&format!("{SHORT_URLS}/{code}")).status, 503, "{code}");
    }
    assert!(redirects(&nodes[0], &hot, &format!("{TARGET}/hot")));
    let slug = json!({"longUrl": TARGET, "customSlug": "taken-perhaps"});
    assert_eq!(nodes[0].wire().create(&slug).status, 503);
    assert_eq!(change(&mut nodes[0].wire(), &hot, &json!({"title": "mine"})).status, 503);
    // The node stores what it creates alone, and serves it.
    let alone = nodes[0].wire().shorten(&format!("{TARGET}/alone"));
    assert!(redirects(&nodes[0], &alone, &format!("{TARGET}/alone")));
    server.start_again();
    wait_until("the cold link", || redirects(&nodes[0], &cold, &format!("{TARGET}/cold")));
    wait_until("the link on the other node", || redirects(&nodes[1], &alone, &format!("{TARGET}/alone")));
    nodes.iter().for_each(settle);
}

#[test]
fn outage_confirms_no_delete() {
    let server = redis::Setup::new().append_only(true).start();
    let fleet = Fleet::new(1, &server.url());
    let node = start(&fleet, 1).remove(0);
    let settling = node.wire().shorten(&format!("{TARGET}/settling"));
    server.kill();
    let alone = node.wire().shorten(&format!("{TARGET}/alone"));
    for code in [settling.as_str(), alone.as_str(), "no-such-slug"] {
        let reply = node.wire().delete(code);
        assert_eq!(reply.status, 503, "{code}: {}", reply.text());
    }
    // The node has no other state of either link than the one that it has confirmed.
    assert!(redirects(&node, &settling, &format!("{TARGET}/settling")));
    assert!(redirects(&node, &alone, &format!("{TARGET}/alone")));
    server.start_again();
    settle(&node);
    for code in [settling.as_str(), alone.as_str()] {
        wait_until("a delete that Redis confirms", || node.wire().delete(code).status == 204);
        wait_until("a deleted link", || get(&node, code) == 404);
    }
}

#[test]
fn guesses_cost_no_command() {
    const GUESSES: u64 = 1_000;
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    let mut dice = Dice::new();
    knows_slugs(&nodes[0], &server, &mut dice);
    let mut wire = nodes[0].wire();
    // While heartbeats are late, a guess is asked for, or unsure.
    wait_until("guesses that Redis is not asked for", || {
        let before = server.calls("get");
        let statuses: Vec<u16> = (0..GUESSES)
            .map(|_| wire.get(&format!("/{}", guess(&mut dice))).status)
            .filter(|status| *status != 404)
            .collect();
        assert!(statuses.iter().all(|status| *status == 503), "{statuses:?}");
        let asked = server.calls("get") - before;
        println!("{GUESSES} guesses: {asked} commands, {} unsure", statuses.len());
        asked <= GUESSES / 10 && statuses.len() as u64 <= GUESSES / 10
    });
    // A chosen slug that looks like a guess is there as soon as it is acknowledged, and after a restart.
    let slug = guess(&mut dice);
    nodes[1].wire().shorten_as(&slug, TARGET);
    assert_redirects(&nodes[0], &slug, TARGET);
    let mut nodes = nodes.into_iter();
    let node = nodes.next().expect("a node").restart();
    settle(&node);
    knows_slugs(&node, &server, &mut dice);
    assert_redirects(&node, &slug, TARGET);
}

#[test]
fn memory_and_disk_stay_small() {
    const LINKS: usize = 20_000;
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    let results = send_all(&nodes[0], "/rest/v3/short-urls/bulk", many(LINKS).as_bytes());
    let codes: Vec<String> = results.iter().take(LINKS).map(|result| code_of(result).to_owned()).collect();
    let mut wire = nodes[1].wire();
    for _ in 0..2 {
        for code in &codes {
            let reply = known(|| wire.get(&format!("/{code}")));
            assert_eq!(reply.status, 302, "{code} was evicted, and is in Redis");
        }
        let status = nodes[1].status();
        assert!(map_bytes(&status) <= HOT_LIMIT, "{status}");
        assert!(status["links"].as_u64() < Some(LINKS as u64), "{status}");
    }
    wait_until("states that have settled", || {
        nodes.iter().all(|node| node.status()["fleet"]["outbox"] == 0 && node.status()["fleet"]["settling"] == 0)
    });
    for node in nodes {
        let setup = node.terminate();
        println!("{} bytes in the data directory", bytes_below(setup.data_dir()));
        assert!(has_stored_nothing(&setup), "a copy of a link");
    }
}

#[test]
fn kill_loses_no_acknowledged_link() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    let mut wire = nodes[0].wire();
    let codes: Vec<String> = (0..200).map(|_| wire.shorten(TARGET)).collect();
    let mut nodes = nodes.into_iter();
    let setup = nodes.next().expect("a node").kill();
    let other = nodes.next().expect("another node");
    assert!(codes.iter().all(|code| has(&other, code)));
    let node = setup.start();
    settle(&node);
    assert!(codes.iter().all(|code| has(&node, code)));
}

#[test]
fn redis_gets_lost_changes_again() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let expecting = |number| shared(fleet.setup(number)).expect("counter_regressed");
    let nodes: Vec<Node> = (0..2).map(|number| expecting(number).start()).collect();
    nodes.iter().for_each(settle);
    let mut wire = nodes[0].wire();
    let codes: Vec<String> = (0..50).map(|number| wire.shorten(&format!("{TARGET}/{number}"))).collect();
    assert_redirects(&nodes[1], &codes[0], &format!("{TARGET}/0"));
    // As after a failover to a replica that had none of these changes.
    server.kill();
    server.start_again_empty();
    for node in &nodes {
        wait_until("the links of before", || {
            codes.iter().zip(0..).all(|(code, number)| redirects(node, code, &format!("{TARGET}/{number}")))
        });
        // A node may answer from memory before it has noticed.
        wait_until("a lost position", || node.status()["fleet"]["gaps"].as_u64() > Some(0));
    }
}

#[test]
fn failover_of_a_cluster_loses_no_link() {
    let cluster = Cluster::start();
    let servers: Vec<String> = (0..6).map(|index| cluster.server(index).address().to_string()).collect();
    let fleet = Fleet::new(2, &format!("redis://{}", servers.join(",")));
    let nodes = start(&fleet, 2);
    let mut wire = nodes[0].wire();
    let codes: Vec<String> = (0..200).map(|number| wire.shorten(&format!("{TARGET}/{number}"))).collect();
    let has_all =
        |node: &Node| codes.iter().zip(0..).all(|(code, number)| redirects(node, code, &format!("{TARGET}/{number}")));
    wait_until("all links on the other node", || has_all(&nodes[1]));
    let master = cluster.master_of("{carom:00}");
    cluster.kill(master);
    for node in &nodes {
        wait_until("all links after the failover", || has_all(node));
    }
    cluster.start_again(master);
    cluster.wait_until_whole();
    nodes.iter().for_each(settle);
    for node in &nodes {
        wait_until("all links of the whole cluster", || has_all(node));
    }
}

#[test]
fn requests_for_all_links_are_refused() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let nodes = start(&fleet, 1);
    let mut wire = nodes[0].wire();
    let code = wire.shorten(TARGET);
    for path in ["", "/export"] {
        let problem = wire.get(&format!("{SHORT_URLS}{path}")).problem(501, "shared-home");
        assert!(problem["detail"].as_str().unwrap().contains("links.home"), "{problem}");
    }
    for path in ["/rest/v3/tags", "/rest/v3/tags/stats"] {
        wire.get(path).problem(501, "shared-home");
    }
    wire.ask("DELETE", &format!("{SHORT_URLS}/{code}?after=1"), "", b"").problem(501, "shared-home");
    let keyed = format!("{JSON}Idempotency-Key: one\r\n");
    let body = json!({"longUrl": TARGET}).to_string();
    wire.ask("POST", SHORT_URLS, &keyed, body.as_bytes()).problem(501, "shared-home");
    for (field, value) in [("maxVisits", json!(3)), ("crawlable", json!(true)), ("findIfExists", json!(true))] {
        let refused = wire.create(&json!({"longUrl": TARGET, field: value})).problem(400, "invalid-data");
        assert_eq!(refused["invalidElements"], json!([field]));
        assert!(refused["detail"].as_str().unwrap().contains("links.home"), "{refused}");
    }
    assert_eq!(change(&mut wire, &code, &json!({"maxVisits": 3})).status, 400);
    let form = wire.ask("GET", "/", "Accept: text/html\r\n", b"");
    assert!(form.text().contains("name=\"customSlug\""), "{form:?}");
    assert!(!form.text().contains("maxVisits"), "{form:?}");
    assert_eq!(wire.create(&json!({"longUrl": TARGET, "findIfExists": false, "maxVisits": null})).status, 200);
    assert_eq!(wire.get("/robots.txt").text(), "User-agent: *\nDisallow: /\n");
    assert_eq!(wire.get(&format!("{SHORT_URLS}/{code}/visits")).status, 200);
}

/// Pages of the console, each with a part of what it says instead of something that needs all links.
const MISSING: [(&str, &str); 7] = [
    ("", "Links in memory"),
    ("links", "No list of links on this node"),
    ("tags", "No tags on this node"),
    ("usage", "Top links, new links, and numbers by tag, app and domain need all links"),
    ("import", "it rejects lines with maxVisits"),
    ("domains", "Numbers of links by domain need all links"),
    ("links/slug", "No history on this node"),
];

#[test]
fn console_says_what_needs_all_links() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let nodes = start(&fleet, 1);
    nodes[0].wire().shorten_as("slug", TARGET);
    let mut browser = Browser::open();
    browser.resize(SCREEN);
    for (page, said) in MISSING {
        browser.go(&at(&nodes[0], page));
        says(&browser, "main", said);
        browser.is_accessible();
        let to_tags = browser.value("document.querySelectorAll('a[href=\"/admin/tags\"]').length");
        assert_eq!(to_tags, 0, "{page} leads to tags");
    }
    // The browser reports each response above 399: no page has asked for what the node refuses.
    browser.has_no_complaints();
    browser.go(&at(&nodes[0], "links"));
    shows(&browser, "[name=shortCode]");
    browser.fill("[name=shortCode]", "slug");
    press(&browser, "main", "open-link");
    wait_until("the page of the link", || browser.url() == at(&nodes[0], "links/slug"));
    // A delete takes effect at once, and the page then asks for the link.
    browser.expect("status of 404");
    browser.expect("status of 503");
    press_in_menu(&browser, "delete");
    press(&browser, "dialog", "confirm");
    wait_until("the delete", || get(&nodes[0], "slug") == 404);
    browser.close();
}

#[test]
fn yourls_totals_are_refused() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = shared(fleet.setup(0)).all_interfaces().start();
    settle(&node);
    let mut wire = node.wire();
    let code = wire.shorten(TARGET);
    for action in ["stats", "db-stats"] {
        let reply = wire.get(&format!("/yourls-api.php?action={action}&format=json"));
        is_described(&node, "get", "/yourls-api.php", &reply);
        assert_eq!(reply.status, 501, "{reply:?}");
        assert_eq!(reply.json()["errorCode"], "501");
        let simple = wire.get(&format!("/yourls-api.php?action={action}&format=simple"));
        assert_eq!(simple.status, 501, "{simple:?}");
        assert!(simple.text().contains("links.home"), "{simple:?}");
    }
    // The visits of one link are known.
    let of_one = wire.get(&format!("/yourls-api.php?action=url-stats&format=json&shorturl={code}"));
    assert_eq!(of_one.status, 200, "{of_one:?}");
    assert_eq!(of_one.json()["link"]["url"], TARGET);
}

#[test]
fn another_retention_ends_no_link() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let home = shared(fleet.setup(0)).expect("settings_differ").expect("fleet_behind").start();
    settle(&home);
    let code = home.wire().shorten(TARGET);
    let create = || home.wire().create(&json!({"longUrl": TARGET})).status;
    // The default is seven days.
    let whole = fleet.setup(1).expect("settings_differ").expect("fleet_behind").start();
    settle(&whole);
    wait_until("a node that refuses writes", || create() == 503);
    is_seen(&home, "fleet_behind");
    // In a fleet without a shared home, states expire from the second heartbeat on.
    wait_until("some heartbeats", || {
        let about = server.command(&["HGET", "{carom}:nodes", "n1"]).text();
        serde_json::from_str::<Value>(&about).unwrap()["beat"].as_u64() >= Some(5)
    });
    let is_kept = || {
        let states = server.command(&["KEYS", "{carom:*}:l:*"]);
        states.list().iter().all(|state| server.command(&["PTTL", &state.text()]) == Reply::Int(-1))
    };
    assert!(is_kept(), "links would be lost in seven days");
    let whole = whole.terminate().env("CAROM_FLEET_RETENTION", "forever").start();
    settle(&whole);
    wait_until("a node that accepts writes", || create() == 200);
    assert!(is_kept());
    assert_redirects(&home, &code, TARGET);
    assert_redirects(&whole, &code, TARGET);
}

#[test]
fn data_directory_keeps_its_home() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 1);
    let setup = nodes.into_iter().next().expect("a node").terminate();
    let (_, said) = keeping(fleet.setup(0), HOT_LIMIT).fail();
    assert!(said.contains("links.home"), "{said}");
    settle(&setup.start());
    let whole = fleet.setup(1).env("CAROM_FLEET_RETENTION", "forever").start();
    settle(&whole);
    drop(whole);
    let (_, said) = shared(fleet.setup(1)).fail();
    assert!(said.contains("links.home"), "{said}");
}

#[test]
fn refused_node_marks_no_data_directory() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    start(&fleet, 1).into_iter().for_each(|node| _ = node.terminate());
    let setup = fleet.setup(1);
    let (code, said) = shared(setup.clone()).env("CAROM_SPACE_KEY", &"ff".repeat(32)).fail();
    assert_eq!(code, 19, "{said}");
    assert!(said.contains("fingerprint"), "{said}");
    assert!(!setup.data_dir().join("shared-home").exists(), "a mark of a node that never ran");
    // So the directory still fits either home.
    let whole = setup.env("CAROM_FLEET_RETENTION", "forever").start();
    settle(&whole);
    drop(whole);
    let marked = fleet.setup(0).data_dir().join("shared-home");
    assert!(marked.exists(), "a directory without its mark would be taken for a whole copy");
}
