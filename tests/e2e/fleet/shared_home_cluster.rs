//! Nodes whose links are in a Redis Cluster: a failover to a replica that misses the last writes, and slots that move while
//! nodes learn the chosen slugs. No link that was acknowledged is lost, and none that exists gets 404.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carom_model::replication::Partition;
use carom_shards::{Code, CodeLength, CodeSecret, CodeSpace, CounterValue};
use serde_json::json;

use crate::support::bulk::{many, send_all};
use crate::support::cluster::Cluster;
use crate::support::fleet::{Fleet, KEY, assert_redirects, delete, known, settle, shared};
use crate::support::links::change;
use crate::support::node::{Dice, Node, wait_until};
use crate::support::stop::StopOnDrop;

const TARGET: &str = "https://example.org/target";

/// Time for which a node stores its changes after Redis has accepted them. A failover may take back that much.
const KEPT: Duration = Duration::from_secs(10);

/// The partition whose slot moves, and the stream in that slot.
const MOVING: (Partition, &str) = (Partition(1), "{carom:01}:s");

/// Restarts of a node while the slot moves.
const ROUNDS: usize = 4;

/// A part of the log of a node that knows the chosen slugs, and so asks Redis for no guess.
const KNOWS_SLUGS: &str = "the chosen slugs of the fleet are known";

/// A code with its target.
type Made = (String, String);

fn start(cluster: &Cluster) -> (Fleet, Vec<Node>) {
    let servers: Vec<String> = (0..6).map(|index| cluster.server(index).address().to_string()).collect();
    let fleet = Fleet::new(2, &format!("redis://{}", servers.join(",")));
    let start = |number| shared(fleet.setup(number)).expect("counter_regressed").expect("codes_failed").start();
    let nodes: Vec<Node> = (0..2).map(start).collect();
    nodes.iter().for_each(settle);
    (fleet, nodes)
}

/// True if a node redirects all links. Each of them exists, so it denies none.
fn has_all(node: &Node, links: &[Made]) -> bool {
    let mut wire = node.wire();
    let mut has_all = true;
    for (code, target) in links {
        let reply = wire.get(&format!("/{code}"));
        assert!([302, 503].contains(&reply.status), "{code} exists: {reply:?}");
        has_all &= reply.status == 302 && reply.location() == target;
    }
    has_all
}

/// Creates links with generated codes, and slugs.
fn create(node: &Node, name: &str, count: usize) -> Vec<Made> {
    let mut wire = node.wire();
    let mut made = Vec::new();
    for number in 0..count {
        let target = format!("{TARGET}/{name}/{number}");
        made.push((wire.shorten(&target), target.clone()));
        let slug = format!("{name}-{number}");
        wire.shorten_as(&slug, &target);
        made.push((slug, target));
    }
    made
}

fn gaps(nodes: &[Node]) -> u64 {
    nodes.iter().map(|node| node.status()["fleet"]["gaps"].as_u64().unwrap()).sum()
}

#[test]
fn stale_master_loses_no_link() {
    let cluster = Cluster::start();
    let (_fleet, nodes) = start(&cluster);
    let mut links = create(&nodes[0], "old", 40);
    wait_until("links that only Redis stores", || {
        nodes.iter().all(|node| node.status()["fleet"]["outbox"] == 0 && node.status()["fleet"]["settling"] == 0)
    });
    let before = gaps(&nodes);
    let master = cluster.master_of("{carom:00}");
    let replica = cluster.replica_of(master);
    cluster.cut_off(master, replica);
    let paused = Instant::now();
    let (changed, deleted) = (links[1].0.clone(), links.remove(3).0);
    links[1].1 = format!("{TARGET}/changed");
    links.extend(create(&nodes[0], "late", 20));
    assert_eq!(known(|| change(&mut nodes[1].wire(), &changed, &json!({"longUrl": links[1].1}))).status, 200);
    delete(&nodes[1], &deleted);
    cluster.kill(master);
    assert!(paused.elapsed() < KEPT, "the machine is too slow: a node may have forgotten its first changes");
    cluster.server(replica).resume();
    for node in &nodes {
        wait_until("all links after the failover", || has_all(node, &links));
    }
    assert_eq!(cluster.master_of("{carom:00}"), replica);
    for node in &nodes {
        wait_until("the delete after the failover", || node.wire().get(&format!("/{deleted}")).status == 404);
    }
    // Otherwise the new master lacked no change, and the test has proved nothing.
    wait_until("a gap in a stream", || gaps(&nodes) > before);
    cluster.start_again(master);
    cluster.wait_until_whole();
    nodes.iter().for_each(settle);
    assert_redirects(&nodes[1], &changed, &format!("{TARGET}/changed"));
    for node in &nodes {
        wait_until("all links on both masters", || has_all(node, &links));
    }
}

/// Slugs of the partition that moves. They look like generated codes that were never leased, so a node that does not know
/// them takes them for guesses.
fn slugs(dice: &mut Dice, count: usize) -> Vec<Made> {
    let (space, length) = (CodeSpace::new(&CodeSecret::from_hex(KEY).unwrap()), CodeLength::DEFAULT);
    let guess = || {
        let value = length.codes() / 2 + dice.below(length.codes() / 2);
        space.code(length, CounterValue(value)).to_code()
    };
    let moves = |code: &Code| Partition::of(code) == MOVING.0;
    let codes = std::iter::repeat_with(guess).filter(moves).take(count);
    codes.map(|code| (code.to_string(), format!("{TARGET}/{code}"))).collect()
}

/// Moves the slot from master to master until it is to stop. Returns the number of moves.
fn keep_moving(cluster: &Cluster, stop: &AtomicBool) -> usize {
    let (_, key) = MOVING;
    let (slot, mut dice, mut moves) = (cluster.slot_of(key), Dice(7), 0);
    while !stop.load(Ordering::Acquire) {
        let from = cluster.master_of(key);
        let to = (0..6).map(|index| cluster.master_of(&format!("{{carom:{index:02x}}}:s"))).find(|at| *at != from);
        let to = to.expect("there are three masters");
        cluster.begin_to_move(&slot, from, to);
        cluster.empty_slot(&slot, from, to);
        cluster.end_move(&slot, from, to);
        moves += 1;
        // Some scans are under way when the next move begins, and some end before.
        std::thread::sleep(Duration::from_millis(50 + dice.below(1_000)));
    }
    moves
}

#[test]
fn slugs_in_moving_slots_are_found() {
    let cluster = Cluster::start();
    let (_fleet, mut nodes) = start(&cluster);
    let (first, second) = (nodes.remove(0), nodes.remove(0));
    let mut dice = Dice::new();
    let links = slugs(&mut dice, 60);
    let (early, late) = links.split_at(links.len() / 2);
    for (slug, target) in &links {
        first.wire().shorten_as(slug, target);
    }
    // A scan of more than one piece.
    send_all(&first, "/rest/v3/short-urls/bulk", many(3_000).as_bytes());
    let stop = AtomicBool::new(false);
    let (second, moves) = std::thread::scope(|scope| {
        let mover = scope.spawn(|| keep_moving(&cluster, &stop));
        let over = StopOnDrop(&stop);
        let mut node = second;
        for slug in slugs(&mut dice, ROUNDS) {
            node = node.restart();
            wait_until("the slugs of the fleet", || {
                has_all(&node, early);
                node.log().contains(KNOWS_SLUGS)
            });
            // A slug that the scan has missed would count as a guess from here on.
            wait_until("slugs that were not in memory", || has_all(&node, late));
            let body = json!({"longUrl": slug.1, "customSlug": slug.0});
            if first.wire().create(&body).status == 200 {
                wait_until("a new slug", || has_all(&node, std::slice::from_ref(&slug)));
            }
        }
        drop(over);
        (node, mover.join().unwrap())
    });
    println!("{moves} moves during {ROUNDS} restarts");
    assert!(moves >= ROUNDS, "{moves}");
    for node in [&first, &second] {
        settle(node);
        wait_until("all slugs after the moves", || has_all(node, &links));
    }
}
