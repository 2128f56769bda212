//! Deduplication in a fleet: every node returns one code for a destination, as long as Redis can be asked.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use carom_model::link::UrlKey;
use carom_model::link::labels::LinkLabels;
use carom_model::replication::PARTITIONS;
use carom_shards::{Policy, RedirectStatus};
use serde_json::{Value, json};

use crate::support::cluster::Cluster;
use crate::support::fleet::{agreeing_rounds, assert_redirects, delete, known, settle, setup, with_usual_timeouts};
use crate::support::http::Wire;
use crate::support::node::{Node, sum, wait_for, wait_until};
use crate::support::redis::{Reply, Server};

const TARGET: &str = "https://example.org/target";

/// A window that no test outlasts, in milliseconds.
const WINDOW: u64 = 86_400_000;

/// Nodes with that window.
fn start(nodes: usize, redis: &str, folder: &std::path::Path) -> Vec<Node> {
    let start = |number: usize| {
        let setup = setup(&folder.join(number.to_string()), number, redis);
        setup
            .env("CAROM_LINKS_DEDUPE", "1d")
            .expect("redis_refuses")
            .expect("redis_away")
            .expect("counter_regressed")
            .start()
    };
    let nodes: Vec<Node> = (0..nodes).map(start).collect();
    nodes.iter().for_each(settle);
    nodes
}

/// The key in Redis for the code of a destination.
fn entry_of(target: &str, policy: &Policy) -> String {
    let policy = Policy { forward_query: true, ..*policy };
    let labels = LinkLabels { default_expiry: policy.valid_until_ms.is_none(), ..LinkLabels::default() };
    let UrlKey(hash) = UrlKey::of(target, &policy, &labels);
    format!("{{carom:{:02x}}}:u:{hash:016x}", hash % u64::from(PARTITIONS))
}

/// Asks all nodes for the same, from several clients each, at once.
fn at_once(nodes: &[Node], clients: usize, fields: &Value) -> HashSet<String> {
    let mut wires: Vec<Wire> = (0..clients).flat_map(|_| nodes.iter().map(Node::wire)).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = wires.iter_mut().map(|wire| scope.spawn(|| wire.create(fields).code())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn find(target: &str) -> Value {
    json!({"longUrl": target, "findIfExists": true})
}

#[test]
fn same_url_gets_one_code_on_every_node() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let nodes = start(3, &server.url(), folder.path());
    let mut made = HashSet::new();
    agreeing_rounds(&nodes, 20, |round| {
        let target = format!("{TARGET}/{round}");
        let first = nodes[round % 3].wire().create(&json!({"longUrl": target}));
        let mut codes = HashSet::from([first.code()]);
        for node in nodes.iter().chain(&nodes) {
            // Before the stream has told of it, too; with all that belongs to the link.
            let again = node.wire().create(&json!({"longUrl": target}));
            let is_first = again.code() == first.code();
            assert!(!is_first || again.json()["dateCreated"] == first.json()["dateCreated"], "{again:?} {first:?}");
            assert_redirects(node, &again.code(), &target);
            codes.insert(again.code());
        }
        let (code, entry) = (first.code(), entry_of(&target, &Policy::default()));
        let is_named = server.command(&["GET", &entry]) == code.as_str();
        server.command(&["PEXPIRE", &entry, "100000"]);
        codes.insert(nodes[0].wire().shorten(&target));
        let left = server.command(&["PTTL", &entry]);
        let is_renewed = matches!(left, Reply::Int(left) if (WINDOW - 60_000..=WINDOW).contains(&left.unsigned_abs()));
        println!("{target}: {codes:?}, named by Redis: {is_named}, with a new window: {is_renewed}");
        let is_one = codes.len() == 1;
        made.extend(codes);
        is_one && is_named && is_renewed
    });
    let links = made.len() as u64;
    wait_until("all links everywhere", || nodes.iter().all(|node| sum(&node.status(), "/links") == links));
    nodes.iter().for_each(settle);
}

#[test]
fn concurrent_creates_agree() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let nodes = start(3, &server.url(), folder.path());
    let mut made = HashSet::new();
    agreeing_rounds(&nodes, 20, |round| {
        let target = format!("{TARGET}/{round}");
        let codes = at_once(&nodes, 8, &json!({"longUrl": target}));
        for node in &nodes {
            codes.iter().for_each(|code| assert_redirects(node, code, &target));
        }
        let is_one = codes.len() == 1;
        made.extend(codes);
        is_one
    });
    // One node, which has it from its own memory alone.
    for round in 0..5 {
        let codes = at_once(&nodes[..1], 32, &find(&format!("{TARGET}/find/{round}")));
        assert_eq!(codes.len(), 1, "{codes:?}");
        made.extend(codes);
    }
    let links = made.len() as u64;
    wait_until("all links everywhere", || nodes.iter().all(|node| sum(&node.status(), "/links") == links));
}

#[test]
fn crossing_creates_do_not_deadlock() {
    const URLS: usize = 32;
    let (cluster, folder) = (Cluster::start(), tempfile::tempdir().unwrap());
    let nodes = start(2, &format!("redis://{}", cluster.server(0).address()), folder.path());
    let mut wires: Vec<Wire> = (0..2 * URLS).map(|place| nodes[place % 2].wire()).collect();
    agreeing_rounds(&nodes, 30, |round| {
        let start = std::sync::Barrier::new(2 * URLS);
        let ask = |wire: &mut Wire, at: usize| {
            start.wait();
            (at, wire.shorten(&format!("{TARGET}/{round}/{at}")))
        };
        let codes: HashSet<(usize, String)> = std::thread::scope(|scope| {
            let asked: Vec<_> = wires
                .iter_mut()
                .enumerate()
                .map(|(place, wire)| {
                    scope.spawn({
                        let ask = &ask;
                        move || ask(wire, place / 2)
                    })
                })
                .collect();
            asked.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        codes.len() == URLS
    });
}

#[test]
fn cluster_nodes_agree() {
    let (cluster, folder) = (Cluster::start(), tempfile::tempdir().unwrap());
    let servers: Vec<String> = (0..2).map(|index| cluster.server(index).address().to_string()).collect();
    let nodes = start(2, &format!("redis://{}", servers.join(",")), folder.path());
    agreeing_rounds(&nodes, 30, |round| {
        let target = format!("{TARGET}/{round}");
        let code = nodes[0].wire().shorten(&target);
        nodes[1].wire().shorten(&target) == code
    });
}

#[test]
fn other_status_is_another_link() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let nodes = start(2, &server.url(), folder.path());
    agreeing_rounds(&nodes, 1, |round| {
        let target = format!("{TARGET}/{round}");
        let ways = [json!({"longUrl": target}), json!({"longUrl": target, "redirectStatus": 301})];
        let codes: Vec<String> = ways.iter().map(|fields| nodes[0].wire().create(fields).code()).collect();
        assert_ne!(codes[0], codes[1]);
        let mut is_one_each = true;
        for node in nodes.iter().chain(&nodes) {
            is_one_each &= ways.iter().zip(&codes).all(|(fields, code)| node.wire().create(fields).code() == *code);
            assert_eq!(known(|| node.wire().get(&format!("/{}", codes[1]))).status, 301);
        }
        let permanent = Policy { status: RedirectStatus::MovedPermanently, ..Policy::default() };
        is_one_each && server.command(&["GET", &entry_of(&target, &permanent)]) == codes[1].as_str()
    });
}

#[test]
fn stale_entry_is_replaced() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let nodes = start(2, &server.url(), folder.path());
    nodes[1].wire().shorten_as("other", "https://example.org/other");
    let mut made = None;
    agreeing_rounds(&nodes, 1, |round| {
        let (target, way) = (format!("{TARGET}/{round}"), format!("way-{round}"));
        nodes[1].wire().create_named(&json!({"longUrl": target, "customSlug": way, "redirectStatus": 308}));
        let entry = entry_of(&target, &Policy::default());
        let (mut codes, mut slow, mut is_named) = (HashSet::new(), 0, true);
        // Nobody, another URL, the same URL in another way, no code at all.
        for wrong in ["nobody1", "other", &way, "no code: /", ""] {
            server.command(&["SET", &entry, wrong, "PX", "100000"]);
            let begin = Instant::now();
            // The link of the entry before is here, and was used within the window.
            let code = nodes[0].wire().shorten(&target);
            slow += usize::from(begin.elapsed() >= Duration::from_secs(1));
            is_named &= server.command(&["GET", &entry]) == code.as_str();
            codes.extend([code, nodes[1].wire().shorten(&target)]);
            println!("{wrong:?} at {target}: {codes:?}, {slow} slow ones, replaced: {is_named}");
        }
        let is_one = codes.len() == 1;
        made = Some((target, entry, codes));
        is_one && is_named && slow < 2
    });
    // Something else lies there: a link is made, or found, without Redis.
    let (target, entry, codes) = made.expect("there was a round");
    server.command(&["DEL", &entry]);
    server.command(&["LPUSH", &entry, "x"]);
    assert!(codes.contains(&nodes[0].wire().shorten(&target)));
    let other = "https://example.org/third";
    server.command(&["LPUSH", &entry_of(other, &Policy::default()), "x"]);
    let code = nodes[0].wire().shorten(other);
    assert_redirects(&nodes[0], &code, other);
}

#[test]
fn deleted_link_is_not_reused() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let nodes = start(3, &server.url(), folder.path());
    agreeing_rounds(&nodes, 20, |round| {
        let target = format!("{TARGET}/{round}");
        let fields = if round % 2 == 0 { json!({"longUrl": target}) } else { find(&target) };
        let code = nodes[0].wire().create(&fields).code();
        // All of them have it.
        let have_it = || nodes.iter().all(|node| node.wire().create(&find(&target)).code() == code);
        if !(0..20).any(|_| have_it()) {
            return false;
        }
        delete(&nodes[round % 3], &code);
        // At once, on a node that may not have heard of it.
        let next = nodes[(round + 1) % 3].wire().create(&fields).code();
        if next == code {
            return false;
        }
        assert_redirects(&nodes[(round + 2) % 3], &next, &target);
        nodes[round % 3].wire().create(&json!({"longUrl": target})).code() == next
    });
}

/// Makes a link that both nodes return for its destination, and returns both. Adds the codes of all links that it made:
/// on a busy machine, Redis may answer so late that a node decides alone.
fn agreed_link(nodes: &[Node], made: &mut HashSet<String>) -> (String, String) {
    let mut round = 0;
    wait_for("a link that both nodes return", || {
        round += 1;
        let target = format!("{TARGET}/{round}");
        let [first, second] = [0_usize, 1].map(|number| nodes[number].wire().shorten(&target));
        made.extend([first.clone(), second.clone()]);
        (first == second).then_some((target, first))
    })
}

/// Checks that a node answers alone, with a link that it has or with one that it makes. Returns the code of the link that
/// it makes for `target`.
fn answers_alone(node: &Node, (known_target, known): (&str, &str), target: &str) -> String {
    let begin = Instant::now();
    let mut wire = node.wire();
    assert_eq!(wire.shorten(known_target), known, "it was used here within the window");
    let code = wire.shorten(target);
    assert_eq!(wire.shorten(target), code);
    assert_eq!(wire.create(&find(target)).code(), code);
    let codes = at_once(std::slice::from_ref(node), 16, &json!({"longUrl": target}));
    assert_eq!(codes, HashSet::from([code.clone()]));
    let slug = json!({"longUrl": "https://example.org/slug", "customSlug": "slug", "findIfExists": true});
    assert_eq!(wire.create(&slug).code(), "slug", "it is here, so Redis need not say");
    // On a busy machine, each create may wait for Redis once more.
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    code
}

#[test]
fn outage_falls_back_to_the_node() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let nodes = start(2, &server.url(), folder.path());
    let mut made = HashSet::new();
    let (known_target, known) = agreed_link(&nodes, &mut made);
    nodes[0].wire().shorten_as("slug", "https://example.org/slug");
    let mut links = made.len() as u64 + 1;
    // Once the server is gone, once it stands still.
    for outage in ["kill", "pause"] {
        wait_until("all links everywhere", || nodes.iter().all(|node| sum(&node.status(), "/links") == links));
        if outage == "kill" {
            server.kill();
        } else {
            server.pause();
        }
        let target = format!("{TARGET}/{outage}");
        let alone = |node| answers_alone(node, (known_target.as_str(), known.as_str()), &target);
        let made: HashSet<String> = nodes.iter().map(alone).collect();
        assert_eq!(made.len(), 2, "no node can know of the link of the other one");
        links += 2;
        if outage == "kill" {
            server.start_again();
        } else {
            server.resume();
        }
        wait_until("both links everywhere", || nodes.iter().all(|node| sum(&node.status(), "/links") == links));
        nodes.iter().for_each(settle);
        // Now all agree on one of the two. Redis may answer too late once more.
        let one = wait_for("one code on both nodes", || {
            let codes: HashSet<String> = nodes.iter().map(|node| node.wire().shorten(&target)).collect();
            (codes.len() == 1).then_some(codes)
        });
        assert!(one.is_subset(&made), "{one:?} {made:?}");
    }
}

#[test]
fn slug_on_another_node_is_found() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let nodes = start(2, &server.url(), folder.path());
    for round in 0..20 {
        let mut fields = find(TARGET);
        fields["customSlug"] = json!(format!("slug{round}"));
        let first = nodes[0].wire().create_named(&fields);
        assert_eq!(known(|| nodes[1].wire().create(&fields)).json()["dateCreated"], first.json()["dateCreated"]);
        fields["longUrl"] = json!("https://example.org/other");
        assert_eq!(known(|| nodes[1].wire().create(&fields)).status, 400);
    }
    assert!(matches!(server.command(&["GET", &entry_of(TARGET, &Policy::default())]), Reply::Nil), "slugs are chosen");
}

#[test]
fn refused_create_blocks_no_one() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let setup = with_usual_timeouts(setup(&folder.path().join("0"), 0, &server.url()));
    let setup = setup.env("CAROM_LINKS_DEDUPE", "1d");
    let node = setup.env("CAROM_FLEET_ACCEPT_WITHOUT_REDIS", "false").expect("redis_away").start();
    settle(&node);
    server.pause();
    // The node says whether it has asked Redis, which it does until it knows that Redis is away.
    node.wire().create(&json!({"longUrl": TARGET})).problem(503, "");
    server.resume();
    wait_until("Redis again", || node.status()["redis"]["connected"] == true);
    let code = wait_for("a link", || {
        let reply = node.wire().create(&json!({"longUrl": TARGET}));
        (reply.status == 200).then(|| reply.code())
    });
    for _ in 0..5 {
        assert_eq!(node.wire().shorten(TARGET), code);
    }
}
