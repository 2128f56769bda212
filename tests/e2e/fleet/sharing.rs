//! Links that one node creates or deletes, seen from the other nodes.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::cluster::Cluster;
use crate::support::fleet::{Fleet, assert_redirects, delete, is_usually_within_a_second, known, redirects, settle};
use crate::support::fleet_clients::{self, check};
use crate::support::node::{Node, wait_until};
use crate::support::redis::Server;

fn addresses(nodes: &[Node]) -> Vec<std::net::SocketAddr> {
    nodes.iter().map(|node| node.public).collect()
}

/// Creates on every node at full speed; nothing is given out twice, and everything is everywhere.
fn create_everywhere(fleet: &Fleet, time: Duration) {
    let nodes = fleet.start();
    let (seen, ()) = fleet_clients::run(&addresses(&nodes), 4, Duration::ZERO, &[], || std::thread::sleep(time));
    println!("{} links in {time:?}", seen.made.len());
    assert!(seen.made.len() > 100, "{} made, {:?}", seen.made.len(), seen.refused);
    assert!(seen.refused.is_empty(), "{} made, {:?}", seen.made.len(), seen.refused);
    assert_eq!(seen.twice(), Vec::<&str>::new());
    for node in &nodes {
        assert_eq!(check(node.public, &seen.made), Vec::<String>::new());
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
    // Not only through the look-up: every node holds all of them.
    wait_until("links in the memory of all nodes", || {
        nodes.iter().all(|node| node.status()["links"].as_u64() == Some(seen.made.len() as u64))
    });
    nodes.iter().for_each(settle);
    nodes.iter().for_each(|node| assert_eq!(seen.check_on(node.public), Vec::<String>::new()));
}

#[test]
fn three_nodes_create_over_one_server() {
    let server = Server::start();
    create_everywhere(&Fleet::new(3, &server.url()), Duration::from_secs(4));
}

#[test]
fn three_nodes_create_over_a_cluster() {
    let cluster = Cluster::start();
    let servers: Vec<String> = (0..2).map(|index| cluster.server(index).address().to_string()).collect();
    create_everywhere(&Fleet::new(3, &format!("redis://{}", servers.join(","))), Duration::from_secs(4));
    // The links lie on all masters.
    for master in 0..3 {
        let keys: u64 = cluster.command(master, &["DBSIZE"]).to_number();
        assert!(keys > 100, "master {master} has {keys} keys");
    }
}

#[test]
fn link_is_on_every_node_at_once() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = fleet.start();
    let mut times = Vec::new();
    for number in 0..30 {
        let target = format!("https://example.org/{number}");
        let code = nodes[number % 3].wire().shorten(&target);
        for node in &nodes {
            // The other nodes look the code up in Redis at once. If that takes too long on a busy machine, a node answers
            // 503, and never 404.
            assert_redirects(node, &code, &target);
        }
        // One that nobody has asked for yet.
        let links = |node: &Node| node.status()["links"].as_u64().unwrap();
        let before = links(&nodes[(number + 1) % 3]);
        nodes[number % 3].wire().shorten(&target);
        let start = Instant::now();
        wait_until("the change in the stream", || links(&nodes[(number + 1) % 3]) > before);
        times.push(start.elapsed());
    }
    is_usually_within_a_second(times);
}

#[test]
fn concurrent_slug_has_one_owner() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = fleet.start();
    let (mut rounds, mut round) = (0, 0);
    while rounds < 40 {
        round += 1;
        assert!(round < 400, "Redis is too slow");
        // The same target, too: only one of them has made the link.
        let fields = json!({"longUrl": "https://example.org/same", "customSlug": format!("slug{round}")});
        let ask = |node: &Node| node.wire().create(&fields).status;
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = nodes.iter().chain(&nodes).map(|node| scope.spawn(move || ask(node))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let made = statuses.iter().filter(|&&status| status == 200).count();
        assert!(statuses.iter().all(|status| matches!(status, 200 | 400 | 503)), "{statuses:?}");
        // A node that Redis does not answer in time refuses the slug, although Redis may have taken it.
        let are_sure = !statuses.contains(&503);
        assert!((usize::from(are_sure)..=1).contains(&made), "{statuses:?}");
        rounds += u32::from(are_sure);
    }
}

#[test]
fn delete_reaches_every_node_within_a_second() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = fleet.start();
    let gone = |node: &Node, code: &str| node.wire().get(&format!("/{code}")).status == 404;
    let mut times = Vec::new();
    for round in 0..10 {
        let slug = format!("slug{round}");
        nodes[0].wire().shorten_as(&slug, "https://example.org/old");
        let code = nodes[1].wire().shorten("https://example.org/issued");
        for (at, code) in [(2, &slug), (0, &code)] {
            // Also of a link that another node has made a moment ago.
            delete(&nodes[at], code);
            // 503 where a busy machine keeps Redis from confirming it in time.
            assert_ne!(nodes[at].wire().get(&format!("/{code}")).status, 302, "on the node itself at once");
            let start = Instant::now();
            for node in &nodes {
                wait_until("the delete on another node", || gone(node, code));
            }
            times.push(start.elapsed());
            assert_eq!(known(|| nodes[1].wire().delete(code)).status, 404, "it is gone for all");
        }
        // The slug is free for all, the issued code for nobody.
        nodes[1].wire().shorten_as(&slug, "https://example.org/new");
        let taken = known(|| nodes[2].wire().create(&json!({"longUrl": "https://example.org/", "customSlug": code})));
        assert_eq!(taken.status, 400);
        let start = Instant::now();
        let target = "https://example.org/new";
        wait_until("the new link everywhere", || nodes.iter().all(|node| redirects(node, &slug, target)));
        times.push(start.elapsed());
    }
    is_usually_within_a_second(times);
}

#[test]
fn new_and_returning_nodes_catch_up() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    // So few entries are kept that a node that was away has lost its place.
    let few = |number: usize| fleet.setup(number).env("CAROM_FLEET_STREAM_ENTRIES", "1024");
    let (first, second) = (few(0).start(), few(1).start());
    [&first, &second].into_iter().for_each(settle);
    let gaps = |node: &Node| node.status()["fleet"]["gaps"].as_u64();
    assert_eq!([&first, &second].map(gaps), [Some(0); 2], "a new fleet has no place to lose");
    let mut made = Vec::new();
    let mut make = |node: &Node, count: usize| {
        let mut wire = node.wire();
        for _ in 0..count {
            let target = format!("https://example.org/{}", made.len());
            made.push(fleet_clients::Made { code: wire.shorten(&target), target });
        }
        made.clone()
    };
    make(&first, 50);
    let away = second.terminate();
    first.wire().shorten_as("later", "https://example.org/later");
    let all = make(&first, 15_000);
    assert_eq!(first.wire().delete("later").status, 204);
    let (second, third) = (away.start(), few(2).start());
    for node in [&second, &third] {
        settle(node);
        assert_eq!(check(node.public, &all), Vec::<String>::new());
        wait_until("all links in memory", || node.status()["links"] == all.len());
    }
    assert!(gaps(&second) > Some(0), "its places were trimmed away");
    assert_eq!(gaps(&third), Some(0), "a new node has no place to lose");
    let codes: HashSet<&str> = all.iter().map(|made| made.code.as_str()).collect();
    assert_eq!(codes.len(), all.len());
}

#[test]
fn quiet_streams_cost_one_command_a_poll() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    nodes.iter().for_each(settle);
    let calls = || ["xread", "xrange"].map(|command| server.calls(command));
    // After its start, each node reports the visits that it was granted, and then looks whether all have.
    let is_complete = || server.command(&["HEXISTS", "{carom:3f}:grants", "complete"]).to_number() == 1;
    wait_until("all reports", is_complete);
    wait_until("the looks of both nodes", || {
        let (polls, all) = (calls()[0], server.all_calls());
        wait_until("ten polls", || calls()[0] >= polls + 10);
        server.all_calls() - all <= 16 * (calls()[0] - polls)
    });
    let (before, all_before) = (calls(), server.all_calls());
    wait_until("forty polls", || server.calls("xread") >= before[0] + 40);
    let (after, all_after) = (calls(), server.all_calls());
    let [polls, apart] = [0, 1].map(|of| after[of] - before[of]);
    // Heartbeats, notes on visits and redirects of domains come once a second. There are 64 streams.
    let all = all_after - all_before;
    assert!(all <= 16 * polls, "{all} commands, those of scripts included, for {polls} polls");
    // The streams of visits are read one by one, less often.
    assert!(apart <= polls, "{apart} streams were read by themselves, and {polls} times all");
    // A change still arrives.
    let code = nodes[0].wire().shorten("https://example.org/late");
    wait_until("the link in the other node", || nodes[1].status()["links"] == 1);
    assert_eq!(nodes[1].wire().get(&format!("/{code}")).location(), "https://example.org/late");
}

#[test]
fn refused_xread_hides_no_change() {
    let server = Server::start();
    assert_eq!(server.command(&["ACL", "SETUSER", "default", "-xread"]).text(), "OK");
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    for number in 0..3 {
        nodes[0].wire().shorten(&format!("https://example.org/{number}"));
    }
    wait_until("the links in the other node", || nodes[1].status()["links"] == 3);
    settle(&nodes[1]);
}
