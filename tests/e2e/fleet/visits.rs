//! Visits of a fleet: every node shows the totals of all, whatever happens to nodes and to Redis.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api_client::{JSON, new_key};
use crate::support::cluster::Cluster;
use crate::support::fleet::{Fleet, known, settle, setup};
use crate::support::http::{SHORT_URLS, Wire, request_at};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::redis::{self, Server};
use crate::support::resp::Reply;
use crate::support::sessions::{SignedIn, sign_in};
use crate::support::stop::StopOnDrop;
use crate::support::visits::{BOT, BROWSER};

const TARGET: &str = "https://example.org/counted";

/// Makes a link with this slug on one node and waits until all have it.
fn link(nodes: &[Node], slug: &str) {
    nodes[0].wire().shorten_as(slug, TARGET);
    let path = format!("{SHORT_URLS}/{slug}");
    wait_until("the link on every node", || nodes.iter().all(|node| node.wire().get(&path).status == 200));
}

/// Follows a link so many times.
fn follow(node: &Node, slug: &str, times: u64) {
    let mut wire = node.wire();
    for _ in 0..times {
        // A node that has not read of the link yet asks Redis.
        assert_eq!(known(|| wire.ask("GET", &format!("/{slug}"), BROWSER, b"")).status, 302);
    }
}

fn visits(node: &Node, slug: &str) -> Value {
    known(|| node.wire().get(&format!("{SHORT_URLS}/{slug}/visits"))).json()["visits"].clone()
}

fn total(node: &Node, slug: &str) -> u64 {
    visits(node, slug)["summary"]["total"].as_u64().unwrap()
}

/// The totals that the nodes show.
fn shown(nodes: &[Node], slug: &str) -> Vec<u64> {
    nodes.iter().map(|node| total(node, slug)).collect()
}

/// Waits until every node shows this total. A later total of the same link shows whether a visit has counted twice since.
fn all_reach(nodes: &[Node], slug: &str, expected: u64) {
    let begun = Instant::now();
    while shown(nodes, slug) != vec![expected; nodes.len()] {
        let status: Vec<Value> = nodes.iter().map(|node| node.status()["fleet"]["visits"].clone()).collect();
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}, not {expected}: {status:?}", shown(nodes, slug));
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Waits until every node shows this total for each of the links, and sees that it stays.
fn all_show_each(nodes: &[Node], slugs: &[&str], expected: u64) {
    slugs.iter().for_each(|slug| all_reach(nodes, slug, expected));
    // There is nothing to wait for: a visit that counts twice arrives within two exchanges.
    std::thread::sleep(Duration::from_secs(2));
    slugs.iter().for_each(|slug| assert_eq!(shown(nodes, slug), vec![expected; nodes.len()], "{slug}"));
}

/// Waits until every node shows this total, and sees that it stays.
fn all_show(nodes: &[Node], slug: &str, expected: u64) {
    all_show_each(nodes, &[slug], expected);
}

fn start(fleet: &Fleet, nodes: usize) -> Vec<Node> {
    start_with(fleet, nodes, |setup| setup)
}

fn start_with(fleet: &Fleet, nodes: usize, of: impl Fn(Setup) -> Setup) -> Vec<Node> {
    let nodes: Vec<Node> = (0..nodes).map(|number| of(fleet.setup(number)).expect("redis_away").start()).collect();
    nodes.iter().for_each(settle);
    nodes
}

#[test]
fn counts_of_a_lost_directory_can_be_given_up() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = start(&fleet, 2);
    link(&nodes, "few");
    follow(&nodes[0], "few", 3);
    follow(&nodes[1], "few", 4);
    all_reach(&nodes, "few", 7);
    let status = nodes[0].status();
    let mut origins = status["fleet"]["visits"].as_array().unwrap().iter();
    let gone = origins.find(|of| of["node"] == "n1").unwrap()["origin"].as_str().unwrap();
    nodes.pop().unwrap().terminate();
    server.command(&["HSET", "{carom}:visits:forgotten", gone, "1"]);
    all_reach(&nodes, "few", 3);
    wait_until("a status without it", || !nodes[0].status()["fleet"]["visits"].to_string().contains(gone));
}

/// Everything that a node shows of visits, without the links themselves.
fn everything(node: &Node, key: &str, slugs: &[&str]) -> Value {
    let mut browser = SignedIn::new(node, key);
    let usage = browser.get("/admin/api/usage").json();
    let listed = browser.get("/rest/v3/short-urls?orderBy=visits-DESC").json();
    let order: Vec<Value> = listed["shortUrls"]["data"].as_array().unwrap().clone();
    let order: Vec<Value> = order.iter().map(|link| json!([link["shortCode"], link["visitsSummary"]])).collect();
    let of_links: Vec<Value> =
        slugs.iter().map(|slug| browser.get(&format!("{SHORT_URLS}/{slug}/visits")).json()).collect();
    let top: Vec<Value> = usage["topLinks"].as_array().unwrap().clone();
    let top: Vec<Value> = top.iter().map(|top| json!([top["link"]["shortCode"], top["visits"]])).collect();
    json!({
        "links": of_links,
        "order": order,
        "top": top,
        "all": browser.get("/rest/v3/visits").json(),
        "usage": [usage["visits"], usage["orphanVisits"], usage["links"]["byApp"], usage["links"]["byDomain"]],
    })
}

/// Creates a link with a slug, once Redis answers in time.
fn create_signed_in(browser: &mut SignedIn, fields: &Value) {
    wait_until("a link", || browser.send("POST", SHORT_URLS, JSON, &fields.to_string()).status == 200);
}

#[test]
fn every_node_shows_the_totals_of_all() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let of = |number| {
        fleet.setup(number).env("CAROM_BASE_URL", "http://s.test").env("CAROM_DOMAINS_SERVE", "http://go.test")
    };
    let key = new_key(&of(0), "ops", "admin");
    let nodes: Vec<Node> = (0..3).map(|number| of(number).start()).collect();
    nodes.iter().for_each(settle);
    wait_until("the key on every node", || nodes.iter().all(|node| sign_in(node, &key, "").status == 303));
    let mut browser = SignedIn::new(&nodes[0], &key);
    let slugs = ["one", "two", "three"];
    for slug in slugs {
        create_signed_in(&mut browser, &json!({"longUrl": TARGET, "customSlug": slug}));
    }
    create_signed_in(&mut browser, &json!({"longUrl": TARGET, "customSlug": "else", "domain": "go.test"}));
    let mut expected = 0;
    for (at, node) in nodes.iter().enumerate() {
        let mut wire = node.wire();
        for (weight, slug) in slugs.iter().enumerate() {
            for round in 0..=(weight + at) {
                let agent = if round % 2 == 0 { BROWSER } else { BOT };
                let fields = format!("{agent}Referer: https://{slug}-{at}.example/\r\n");
                let request = request_at("s.test", "GET", &format!("/{slug}"), &fields, b"");
                wait_until("the link", || {
                    wire.send(&request);
                    wire.reply().status == 302
                });
                expected += 1;
            }
        }
        wait_until("the link of the domain", || wire.get_at("go.test", "/else").status == 302);
        // One visit, once Redis has answered in time.
        wait_until("an answer that no node has the code", || wire.get("/never-made").status == 404);
        expected += 1;
    }
    let is_complete = |node: &Node| {
        let all = SignedIn::new(node, &key).get("/rest/v3/visits").json();
        all["visits"]["nonOrphanVisits"]["total"] == expected && all["visits"]["orphanVisits"]["total"] == 3
    };
    let begun = Instant::now();
    wait_until("the totals on every node", || nodes.iter().all(is_complete));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let agree = |nodes: &[Node]| {
        let shown = || nodes.iter().map(|node| everything(node, &key, &slugs)).collect::<Vec<_>>();
        wait_until("nodes that agree", || shown().windows(2).all(|two| two[0] == two[1]));
        shown().remove(0)
    };
    let shown = agree(&nodes);
    let host = |slug: &str, at: usize| json!(format!("{slug}-{at}.example"));
    let summary = json!({"total": 12, "nonBots": 7, "bots": 5});
    assert_eq!(&shown["links"][2]["visits"]["summary"], &summary, "{shown}");
    let referrers = shown["links"][2]["visits"]["referrers"].as_array().unwrap();
    assert_eq!(
        referrers.iter().map(|of| of["host"].clone()).collect::<Vec<_>>(),
        [2, 1, 0].map(|at| host("three", at))
    );
    assert_eq!(&shown["order"][0], &json!(["three", summary]));
    assert_eq!(&shown["top"][0], &json!(["three", summary]));
    assert_eq!(&shown["usage"][2][0]["visits"]["total"], &json!(expected));
    // What came from other nodes is as durable as the node's own.
    let nodes: Vec<Node> = nodes.into_iter().map(Node::restart).collect();
    nodes.iter().for_each(settle);
    assert_eq!(agree(&nodes), shown);
}

#[test]
fn deleted_link_leaves_no_visits_on_any_node() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, 2);
    for round in 0..2 {
        link(&nodes, "again");
        nodes.iter().for_each(|node| follow(node, "again", 3 + round));
        all_show(&nodes, "again", 6 + 2 * round);
        assert_eq!(nodes[1].wire().delete("again").status, 204);
        let path = format!("{SHORT_URLS}/again");
        wait_until("the delete on every node", || nodes.iter().all(|node| node.wire().get(&path).status == 404));
        std::thread::sleep(Duration::from_secs(3));
    }
    link(&nodes, "again");
    all_show(&nodes, "again", 0);
}

/// Follows a link up to five hundred times a second, until `is_over` or the node is gone. Counts the redirects.
fn follow_until(wire: &mut Wire, slug: &str, is_over: &AtomicBool, answered: &AtomicU64) {
    let path = format!("/{slug}");
    while !is_over.load(Ordering::Acquire)
        && let Ok(reply) = wire.try_ask("GET", &path, BROWSER, b"")
    {
        assert_eq!(reply.status, 302);
        answered.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Watches a number for some seconds. Returns what it was a second before the end. That second has a hundred looks, so it is
/// longer if the machine stood still.
fn a_second_before_the_end(number: &AtomicU64, seconds: usize) -> u64 {
    const LOOKS: usize = 100;
    let mut seen = Vec::new();
    for _ in 0..seconds * LOOKS {
        seen.push(number.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(10));
    }
    seen[seen.len() - LOOKS]
}

#[test]
fn kill_under_load_takes_less_than_a_second() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let mut nodes = start(&fleet, 3);
    let slugs = ["through-0", "through-1", "through-2"];
    slugs.iter().for_each(|slug| link(&nodes, slug));
    wait_until("the links in the memory of every node", || nodes.iter().all(|node| node.status()["links"] == 3));
    // The last one counts what the killed node answers after its restart.
    let (over, answered) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 4]);
    let wires: Vec<Wire> = nodes.iter().map(Node::wire).collect();
    let (before, sent) = std::thread::scope(|scope| {
        let (is_over, stop) = (&over, StopOnDrop(&over));
        for ((mut wire, slug), answered) in wires.into_iter().zip(slugs).zip(&answered) {
            scope.spawn(move || follow_until(&mut wire, slug, is_over, answered));
        }
        let before = a_second_before_the_end(&answered[0], 2);
        let killed = nodes.remove(0).kill();
        // What the node had sent before, without its log.
        let sent = || nodes.iter().map(|node| total(node, slugs[0])).min().unwrap();
        wait_until("the counts of a second before on both", || sent() >= before);
        let sent = sent();
        let (back, answered) = (killed.start(), &answered[3]);
        settle(&back);
        let mut wire = back.wire();
        nodes.insert(0, back);
        scope.spawn(move || follow_until(&mut wire, slugs[0], is_over, answered));
        wait_until("visits after the restart", || answered.load(Ordering::Relaxed) > 300);
        drop(stop);
        (before, sent)
    });
    let begun = Instant::now();
    let [of_killed, rest @ .., after] = answered.map(AtomicU64::into_inner);
    for (slug, expected) in slugs[1..].iter().zip(rest) {
        wait_until("all visits through the others", || shown(&nodes, slug) == [expected; 3]);
    }
    let possible = sent.max(before) + after..=of_killed + 1 + after;
    let agree = |shown: &[u64]| shown.iter().all(|total| *total == shown[0] && possible.contains(total));
    wait_until("one total of the killed node", || agree(&shown(&nodes, slugs[0])));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    all_show(&nodes, slugs[0], total(&nodes[0], slugs[0]));
}

#[test]
fn killed_node_is_missing_until_stopped() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = start(&fleet, 2);
    nodes.remove(1).kill();
    let seen = || nodes[0].status()["fleet"].clone();
    let lacks =
        || seen()["totals"]["lacks"].as_array().unwrap().iter().map(|of| of["node"].clone()).collect::<Vec<_>>();
    wait_until("a silent node", || lacks() == ["n1"]);
    // Its directory is lost. Another one takes its name, and stops.
    let folder = tempfile::tempdir().unwrap();
    let retired = setup(folder.path(), 1, &server.url()).expect("redis_away").start();
    settle(&retired);
    retired.terminate();
    let is_long_silent = || {
        let nodes = seen()["nodes"].as_array().unwrap().clone();
        let retired = nodes.into_iter().find(|of| of["node"] == "n1").unwrap();
        retired["about"]["stopped"] == true && retired["silentMillis"].as_u64().unwrap() > 7_000
    };
    wait_until("a node that has stopped for long", is_long_silent);
    wait_until("totals that lack nothing", || lacks().is_empty());
}

#[test]
fn kills_count_no_visit_twice() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = start(&fleet, 2);
    link(&nodes, "kept");
    let mut made = 0;
    for round in 0..4 {
        for node in &nodes {
            follow(node, "kept", 50);
            made += 50;
        }
        // A kill may take the counts of the last second, so these are older; batches are on their way all the time.
        std::thread::sleep(Duration::from_millis(1_500 + 600 * round));
        // Unless the machine is slow, the other node has them by now.
        wait_until("the visits on the other node", || total(&nodes[1], "kept") == made);
        let killed = nodes.remove(0).kill();
        nodes.push(killed.start());
        settle(&nodes[1]);
    }
    all_show(&nodes, "kept", made);
}

/// Follows links on all nodes before, during and after an outage of Redis, and sees that nothing is lost or doubled.
fn survive(cut: impl Fn(&Server), back: impl Fn(&Server)) {
    let server = redis::Setup::new().append_only(true).start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = start_with(&fleet, 3, |setup| setup.expect("counter_regressed"));
    link(&nodes, "kept");
    nodes.iter().for_each(|node| follow(node, "kept", 20));
    all_show(&nodes, "kept", 60);
    cut(&server);
    for _ in 0..3 {
        nodes.iter().for_each(|node| follow(node, "kept", 5));
        std::thread::sleep(Duration::from_millis(600));
    }
    back(&server);
    nodes.iter().for_each(settle);
    nodes.iter().for_each(|node| follow(node, "kept", 1));
    all_show(&nodes, "kept", 60 + 45 + 3);
}

#[test]
fn outage_of_redis_delays_counts() {
    survive(Server::kill, Server::start_again);
}

#[test]
fn emptied_redis_loses_no_counts() {
    survive(Server::kill, Server::start_again_empty);
}

/// Removes the batches of all nodes from Redis, as its bound on them does in time.
fn trim(server: &Server) {
    for stream in server.command(&["KEYS", "*:v:*"]).list() {
        server.command(&["DEL", &stream.text()]);
    }
}

#[test]
fn node_that_was_away_asks_for_a_snapshot() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = start(&fleet, 2);
    link(&nodes, "kept");
    nodes.iter().for_each(|node| follow(node, "kept", 10));
    all_reach(&nodes, "kept", 20);
    let away = nodes.remove(1).terminate();
    for _ in 0..3 {
        follow(&nodes[0], "kept", 7);
        std::thread::sleep(Duration::from_millis(1_200));
    }
    trim(&server);
    nodes.push(away.start());
    settle(&nodes[1]);
    all_reach(&nodes, "kept", 41);
    nodes.iter().for_each(|node| follow(node, "kept", 1));
    all_show(&nodes, "kept", 43);
    let missing =
        |node: &Node| node.status()["fleet"]["visits"].as_array().unwrap().iter().any(|of| of["missing"] == true);
    assert!(nodes.iter().all(|node| !missing(node)));
}

#[test]
fn later_node_gets_the_totals_of_all() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    // One node counted visits before it was in a fleet, and one is gone when the third joins.
    let alone = Setup::new(fleet.setup(0).data_dir()).env("CAROM_SPACE_KEY", crate::support::fleet::KEY).start();
    alone.wire().shorten_as("kept", TARGET);
    follow(&alone, "kept", 4);
    alone.terminate();
    let mut nodes = start(&fleet, 2);
    let path = format!("{SHORT_URLS}/kept");
    wait_until("the link on every node", || nodes.iter().all(|node| node.wire().get(&path).status == 200));
    nodes.iter().for_each(|node| follow(node, "kept", 10));
    all_reach(&nodes, "kept", 24);
    nodes.pop().unwrap().terminate();
    trim(&server);
    nodes.push(fleet.setup(2).start());
    settle(&nodes[1]);
    all_reach(&nodes, "kept", 24);
    nodes.iter().for_each(|node| follow(node, "kept", 1));
    all_show(&nodes, "kept", 26);
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

#[test]
fn older_copy_of_a_directory_counts_apart() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let dirs = ["0", "1", "copy"].map(|name| folder.path().join(name));
    let of = |number: usize| setup(&dirs[number], number, &server.url());
    let mut nodes: Vec<Node> = (0..2).map(|number| of(number).start()).collect();
    nodes.iter().for_each(settle);
    link(&nodes, "kept");
    nodes.iter().for_each(|node| follow(node, "kept", 10));
    all_reach(&nodes, "kept", 20);
    nodes.remove(0).terminate();
    copy(&dirs[0], &dirs[2]);
    nodes.insert(0, of(0).start());
    settle(&nodes[0]);
    follow(&nodes[0], "kept", 5);
    all_show(&nodes, "kept", 25);
    nodes.remove(0).terminate();
    std::fs::remove_dir_all(&dirs[0]).unwrap();
    copy(&dirs[2], &dirs[0]);
    nodes.insert(0, of(0).expect("newer visits of this data directory").start());
    settle(&nodes[0]);
    follow(&nodes[0], "kept", 3);
    all_show(&nodes, "kept", 28);
}

/// Commands for visits that a server has carried out, without reads of streams, and bytes of visits that it holds.
fn handled(server: &Server) -> [u64; 2] {
    let streams = server.command(&["KEYS", "*:v:*"]);
    let bytes = streams.list().iter().map(|stream| server.command(&["MEMORY", "USAGE", &stream.text()]).to_number());
    [["xadd", "pexpire", "hgetall"].map(|of| server.calls(of)).iter().sum(), bytes.sum()]
}

/// Follows links over one connection for some seconds, 13,400 times a second if the node is fast enough. Returns how
/// many requests were redirected.
fn follow_many(node: &Node, slugs: u64) -> u64 {
    const TOGETHER: u64 = 67;
    let (mut wire, begun, mut made) = (node.wire(), Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(8) {
        let fields = format!("Host: a\r\nReferer: https://news-{}.example/\r\n", made % 10);
        let requests = (0..TOGETHER).map(|at| (made + at * 7) % slugs);
        let requests: String = requests.map(|at| format!("GET /l{at} HTTP/1.1\r\n{fields}\r\n")).collect();
        wire.send(requests.as_bytes());
        for _ in 0..TOGETHER {
            assert_eq!(wire.reply().status, 302);
            made += 1;
        }
        std::thread::sleep(Duration::from_micros(made * 1_000_000 / 13_400).saturating_sub(begun.elapsed()));
    }
    made
}

#[test]
fn load_on_redis_does_not_grow_with_redirects() {
    const SLUGS: u64 = 500;
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = start(&fleet, 3);
    (0..SLUGS).for_each(|at| nodes[0].wire().shorten_as(&format!("l{at}"), TARGET));
    wait_until("the links in the memory of every node", || nodes.iter().all(|node| node.status()["links"] == SLUGS));
    // States from before the nodes had agreed on the retention get their expiry times soon after.
    wait_until("states that expire", || {
        let states = server.command(&["KEYS", "{carom:*}:l:*"]);
        states.list().iter().all(|state| server.command(&["PTTL", &state.text()]) != Reply::Int(-1))
    });
    let (before, begun) = (handled(&server), Instant::now());
    let redirects: u64 = std::thread::scope(|scope| {
        let all: Vec<_> = nodes.iter().map(|node| scope.spawn(|| follow_many(node, SLUGS))).collect();
        all.into_iter().map(|each| each.join().unwrap()).sum()
    });
    let (after, seconds) = (handled(&server), begun.elapsed().as_secs_f64());
    let [commands, bytes] = [0, 1].map(|at| (after[at] - before[at]) as f64 / seconds);
    let redirects = redirects as f64 / seconds;
    println!("{redirects:.0} redirects/s over three nodes: {commands:.0} commands/s and {bytes:.0} bytes/s for visits");
    assert!(redirects > 100.0, "{redirects} redirects a second");
    // Of each node: two batches a second with two commands each, and three lists with the heartbeat's and the keys' own.
    assert!(commands < 60.0, "{commands} commands a second for {redirects} redirects");
    assert!(bytes < 1_000_000.0, "{bytes} bytes a second for {redirects} redirects");
}

#[test]
fn nodes_over_a_cluster_show_the_totals_of_all() {
    let cluster = Cluster::start();
    let fleet = Fleet::new(3, &format!("redis://{}", cluster.server(0).address()));
    let nodes = start(&fleet, 3);
    // Their states are on different masters.
    let slugs = ["first-one", "second-one", "third-one"];
    slugs.iter().for_each(|slug| link(&nodes, slug));
    for (node, times) in nodes.iter().zip([3, 5, 7]) {
        slugs.iter().for_each(|slug| follow(node, slug, times));
    }
    all_show_each(&nodes, &slugs, 15);
    // The streams of visits are on one master. A replica takes over, and knows all that it knew.
    let master = cluster.master_of("{carom}:beats");
    let replica = cluster.replica_of(master);
    cluster.failover(replica);
    nodes.iter().for_each(settle);
    nodes.iter().for_each(|node| follow(node, slugs[0], 2));
    all_show(&nodes, slugs[0], 21);
}
