//! Links with a visit limit in a fleet: all nodes together never exceed it, and together they reach it.

use std::time::{Duration, Instant};

use carom::services::replication::redis::{Allowance, GrantAnswer, GrantAsker, GrantReport};
use carom_model::replication::Partition;
use carom_model::visits::allowance::{SHARE_MAX, VisitGrant};
use carom_model::visits::grants::{GrantAdmission, GrantEpoch, GrantLedger, share_of};
use carom_shards::Code;
use serde_json::{Value, json};

use crate::support::alarms::alarms;
use crate::support::fleet::{Fleet, WITHIN, connect, open_links, settle, setup};
use crate::support::http::Wire;
use crate::support::node::{Dice, Node, Setup, wait_until};
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis::{Reply, Server};

const TARGET: &str = "https://example.org/once";

/// Makes a link on one node and waits until all have it.
fn limited(nodes: &[Node], visits: u32) -> String {
    let code = nodes[0].wire().create(&json!({"longUrl": TARGET, "maxVisits": visits})).code();
    // The API would answer from Redis as well.
    let links = nodes[0].status()["links"].clone();
    wait_until("the link on every node", || nodes.iter().all(|node| node.status()["links"] == links));
    code
}

/// Asks over all connections at once.
fn ask_at_once(wires: &mut [Wire], code: &str) -> Vec<u16> {
    wires.iter_mut().for_each(|wire| wire.send(format!("GET /{code} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()));
    wires.iter_mut().map(|wire| wire.reply().status).collect()
}

/// Waits until a node redirects a visit: Redis grants none before the reports of all nodes, nor to a node that has just started.
fn visit_once(node: &Node, code: &str) {
    wait_until("the first visit", || node.wire().get(&format!("/{code}")).status == 302);
}

#[test]
fn limit_holds_across_nodes() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = fleet.start();
    nodes.iter().for_each(settle);
    let mut wires: Vec<Wire> = (0..20).flat_map(|_| nodes.iter().map(Node::wire)).collect();
    for visits in [1, 1, 1, 1, 1, 2, 7, 50, 200] {
        let code = limited(&nodes, visits);
        let mut made = 0;
        // Each node uses up what it has: a share of one node is of no use to another.
        wait_until("the end of its visits", || {
            let statuses = ask_at_once(&mut wires, &code);
            // A new fleet grants nothing in its first seconds.
            assert!(statuses.iter().all(|status| [302, 410, 503].contains(status)), "{statuses:?}");
            made += statuses.iter().filter(|status| **status == 302).count();
            assert!(made <= visits as usize, "{made} of {visits}");
            statuses.iter().all(|status| *status == 410)
        });
        assert_eq!(made, visits as usize);
    }
}

#[test]
fn limited_link_elsewhere_is_never_missing() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    let (mut here, mut there) = (nodes[0].wire(), nodes[1].wire());
    for _ in 0..40 {
        let code = here.create(&json!({"longUrl": TARGET, "maxVisits": 9})).code();
        // Redis has the link, and the store of this node gets it in the same moment. A Redis that takes too long makes the
        // link unavailable.
        let status = there.get(&format!("/{code}")).status;
        assert!(status == 302 || status == 503, "{status}");
    }
}

#[test]
fn restart_keeps_the_remainder() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes: Vec<Node> = (0..2).map(|number| fleet.setup(number).expect("redis_away").start()).collect();
    nodes.iter().for_each(settle);
    let code = limited(&nodes, 100);
    let ask = |node: &Node| node.wire().get(&format!("/{code}")).status;
    for round in 0..40 {
        visit_once(&nodes[round % 2], &code);
        if round % 10 == 9 {
            let restarted = nodes.remove(0).restart();
            settle(&restarted);
            nodes.insert(0, restarted);
        }
    }
    drop(server);
    // What a node has in its share it gives; then nobody can say.
    let end = (0..200).map(|_| ask(&nodes[0])).find(|status| *status != 302);
    assert_eq!(end, Some(503));
}

#[test]
fn restarted_node_soon_grants_visits() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = fleet.start();
    nodes.iter().for_each(settle);
    for end in [Node::terminate, Node::kill] {
        // A busy machine may take long for one start. A node that waits whether its predecessor has ended always takes longer.
        let is_soon = (0..5).any(|_| {
            // The node that restarts has nothing left of this link.
            let code = limited(&nodes, 1_000);
            visit_once(&nodes[1], &code);
            let setup = end(nodes.remove(0));
            let begun = Instant::now();
            nodes.insert(0, setup.start());
            visit_once(&nodes[0], &code);
            begun.elapsed() < Duration::from_secs(3)
        });
        assert!(is_soon, "each restart takes longer");
    }
}

/// Visits the link on all of these nodes in turn until its visits are used up, and returns how many were redirected.
fn use_up(nodes: &[&Node], code: &str) -> usize {
    let mut made = 0;
    wait_until("the end of its visits", || {
        let statuses: Vec<u16> = nodes.iter().map(|node| node.wire().get(&format!("/{code}")).status).collect();
        assert!(statuses.iter().all(|status| [302, 410, 503].contains(status)), "{statuses:?}");
        made += statuses.iter().filter(|status| **status == 302).count();
        statuses.iter().all(|status| *status == 410)
    });
    made
}

#[test]
fn emptied_redis_grants_no_visit_twice() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = [0, 1].map(|number| fleet.setup(number).expect("counter_regressed").start());
    nodes.iter().for_each(settle);
    let code = limited(&nodes, 40);
    // The first node uses up its share, and does not hear of the shares that the second one gets after that.
    (0..5).for_each(|_| visit_once(&nodes[0], &code));
    (0..6).for_each(|_| visit_once(&nodes[1], &code));
    let mut made = 11;
    server.command(&["FLUSHALL"]);
    made += use_up(&[&nodes[0], &nodes[1]], &code);
    assert_eq!(made, 40);
}

#[test]
fn grants_of_silent_nodes_are_not_repeated() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let expected = ["counter_regressed", "Redis may have lost visits"];
    let start = |number: usize| expected.iter().fold(fleet.setup(number), |setup, text| setup.expect(text)).start();
    let mut nodes: Vec<Node> = (0..2).map(start).collect();
    nodes.iter().for_each(settle);
    wait_until("nodes that know each other", || {
        nodes.iter().all(|node| node.status()["fleet"]["nodes"].as_array().is_some_and(|known| known.len() == 2))
    });
    let code = limited(&nodes, 40);
    let ask = |node: &Node| node.wire().get(&format!("/{code}")).status;
    visit_once(&nodes[0], &code);
    let mut made = 1 + (1..5).filter(|_| ask(&nodes[0]) == 302).count();
    made += (0..6).filter(|_| ask(&nodes[1]) == 302).count();
    // The visits of a killed node are known to nobody else. Redis and the other node forget what they have in memory.
    let (away, here) = (nodes.remove(1).kill(), nodes.remove(0).terminate());
    server.command(&["FLUSHALL"]);
    let here = here.start();
    settle(&here);
    let statuses: Vec<u16> = (0..60).map(|_| ask(&here)).collect();
    made += statuses.iter().filter(|status| **status == 302).count();
    assert!(statuses.iter().all(|status| [302, 503].contains(status)), "{statuses:?}");
    assert_eq!(statuses.last(), Some(&503));
    let away = away.start();
    settle(&away);
    made += use_up(&[&here, &away], &code);
    assert!((30..=40).contains(&made), "{made} of 40; a kill loses the rest of a share");
}

#[test]
fn nobody_waits_for_a_stopped_node() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    // The other running node may report late.
    let expected = ["counter_regressed", "Redis may have lost visits"];
    let start = |number: usize| expected.into_iter().fold(fleet.setup(number), Setup::expect).start();
    let (here, leaving) = (start(0), start(1));
    [&here, &leaving].into_iter().for_each(settle);
    let nodes = [here, leaving];
    let code = limited(&nodes, 40);
    let [here, leaving] = nodes;
    visit_once(&here, &code);
    let ask = |node: &Node| node.wire().get(&format!("/{code}")).status;
    let mut made = 1 + (1..5).filter(|_| ask(&here) == 302).count();
    made += (0..6).filter(|_| ask(&leaving) == 302).count();
    let gone = leaving.terminate();
    let left = server.command(&["EXISTS", "{carom}:grants:left:n1"]);
    assert!(matches!(left, Reply::Int(1)), "the node has left nothing");
    // A node that joins now has heard of the stopped one, too.
    let late = start(2);
    settle(&late);
    wait_until("the grants of the stopped node on both nodes", || {
        [&here, &late].into_iter().all(|node| node.log().contains("took over the visits that were granted to a node"))
    });
    // A node forgets the stopped one with the first heartbeat after that.
    let beat = |node: &str| {
        let about = server.command(&["HGET", "{carom}:nodes", node]).text();
        serde_json::from_str::<Value>(&about).unwrap()["beat"].as_u64().unwrap()
    };
    let before = ["n0", "n2"].map(beat);
    wait_until("two heartbeats of both nodes", || {
        ["n0", "n2"].into_iter().zip(before).all(|(node, before)| beat(node).wrapping_sub(before) >= 2)
    });
    server.command(&["FLUSHALL"]);
    made += use_up(&[&here, &late], &code);
    // The rest of a share stays with the stopped node.
    let back = gone.start();
    settle(&back);
    made += use_up(&[&back], &code);
    assert_eq!(made, 40);
}

#[test]
fn totals_of_a_stopped_node_reach_redis() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = fleet.start();
    nodes.iter().for_each(settle);
    let code = limited(&nodes, 40);
    visit_once(&nodes[1], &code);
    let key = server.command(&["KEYS", &format!("{{carom:*}}:v:{code}:*")]).list()[0].text();
    let granted = server.command(&["GET", &key]).text();
    // The other node has reported already when Redis loses the total, as a cluster may in the failover of one master.
    server.command(&["DEL", &key]);
    nodes.remove(1).terminate();
    wait_until("the total of the stopped node", || server.command(&["GET", &key]) == granted.as_str());
}

#[test]
fn returned_node_reports_before_grants() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    let folder = tempfile::tempdir().unwrap();
    let expected = ["counter_regressed", "redis_away", "Redis may have lost visits"];
    let start = |number: usize, url: &str| {
        let setup = setup(&folder.path().join(format!("{number}")), number, url);
        expected.into_iter().fold(setup, Setup::expect).start()
    };
    let first = start(0, &format!("redis://{}", proxy.address()));
    settle(&first);
    let code = limited(std::slice::from_ref(&first), 40);
    visit_once(&first, &code);
    let ask = |node: &Node| node.wire().get(&format!("/{code}")).status;
    let mut made = 1 + (1..5).filter(|_| ask(&first) == 302).count();
    proxy.set(Mode::Cut);
    server.command(&["FLUSHALL"]);
    // These have never heard of the first one, and complete the epochs of the emptied Redis.
    let new = [1, 2].map(|number| start(number, &server.url()));
    new.iter().for_each(settle);
    let ledger = ledger_of(&code);
    wait_until("a complete epoch", || server.command(&["HGET", &ledger, "complete"]) == "1");
    proxy.set(Mode::Pass);
    wait_until("the link on the new nodes", || {
        let statuses: Vec<u16> = new.iter().map(&ask).collect();
        made += statuses.iter().filter(|status| **status == 302).count();
        !statuses.contains(&404)
    });
    made += use_up(&[&new[0], &new[1]], &code);
    made += use_up(&[&first], &code);
    assert_eq!(made, 40);
}

/// Returns the key of the grants of the partition of a code.
fn ledger_of(code: &str) -> String {
    format!("{{carom:{:02x}}}:grants", Partition::of(&Code::parse(code.as_bytes()).unwrap()).0)
}

#[test]
fn damaged_epoch_is_named_without_a_grant() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = fleet.setup(0).expect("redis_refuses").start();
    settle(&node);
    let code = limited(std::slice::from_ref(&node), 40);
    visit_once(&node, &code);
    let ledger = ledger_of(&code);
    server.command(&["HSET", &ledger, "epoch", "7.x"]);
    wait_until("the end of the share", || node.wire().get(&format!("/{code}")).status == 503);
    wait_until("the key in the log", || node.log().contains(&ledger));
    assert_eq!(node.wire().get(&format!("/{code}")).status, 503);
    server.command(&["DEL", &ledger]);
    visit_once(&node, &code);
}

#[test]
fn copy_of_a_store_names_the_node() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = fleet.setup(0).start();
    settle(&node);
    // Its share waits for a heartbeat.
    visit_once(&node, &limited(std::slice::from_ref(&node), 40));
    let setup = node.terminate();
    assert_eq!(open_links(&setup).grant_holders().unwrap(), ["n0"], "a node that joins must wait for its report");
}

#[test]
fn later_process_of_a_name_gets_no_visits() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let named = |number: usize| {
        let setup = fleet.setup(number).env("CAROM_FLEET_NODE", "n0");
        ["duplicate_node", "counter_regressed"].into_iter().fold(setup, Setup::expect).start()
    };
    let first = named(0);
    settle(&first);
    let code = limited(std::slice::from_ref(&first), 40);
    visit_once(&first, &code);
    let second = named(1);
    settle(&second);
    // Neither while it is not known which of the two stays, nor after that.
    let ask = |node: &Node| node.wire().get(&format!("/{code}")).status;
    wait_until("an alarm", || {
        assert_eq!(ask(&second), 503);
        alarms(&second.status()).contains(&"duplicate_node")
    });
    let mut made = 1;
    wait_until("the visits of the first process", || {
        made += (made..20).filter(|_| ask(&first) == 302).count();
        made == 20
    });
    assert_eq!(ask(&second), 503);
    // Redis loses all grants. The first process reports its own, and nobody has any others.
    server.command(&["FLUSHALL"]);
    made += use_up(&[&first], &code);
    assert_eq!((made, ask(&second)), (40, 503));
}

#[test]
fn grant_scripts_and_rules_agree() {
    let server = Server::start();
    let (mut redis, mut dice) = (connect(&server), Dice::new());
    let code = Code::parse(b"limited").unwrap();
    let partition = Partition::of(&code);
    let key = format!("{{test:{:02x}}}:grants", partition.0);
    let nodes = ["n0", "n1", "n2"].map(str::to_owned);
    let (mut known, mut ledger) = ([GrantEpoch::default(); 3], GrantLedger::default());
    let (mut total, mut name, mut granted, mut missing) = (0_u64, 0_u32, 0, 0);
    for nonce in 1..=2_000 {
        let (node, action) = (dice.below(3) as usize, dice.below(40));
        let others: Vec<String> = nodes.iter().filter(|_| dice.below(2) == 0).cloned().collect();
        let (asker, epoch) = (GrantAsker { node: &nodes[node], nonce, others: &others }, known[node]);
        match action {
            0 => {
                server.command(&["FLUSHALL"]);
                (ledger, total) = (GrantLedger::default(), 0);
            }
            1 => {
                // Another server answers.
                server.command(&["HSET", &key, "server", "another"]);
                name += 1;
            }
            2..24 => {
                let (taken, is_last, is_settled) = (dice.below(50), dice.below(2) == 0, dice.below(4) == 0);
                let entered = ledger.enter(epoch, nonce, &name.to_string());
                if entered == epoch {
                    total = total.max(taken);
                    if is_last || ledger.has_report(&nodes[node]) {
                        ledger.report(&nodes[node], &others);
                    }
                    if is_settled {
                        ledger.complete(&nodes[node], &others);
                    }
                }
                let part = GrantReport { partition, epoch, totals: vec![(code, 7, taken)], is_last, is_settled };
                let answer = redis.report_grants(&[part], &asker, WITHIN).remove(0).unwrap();
                assert_eq!(answer, (entered, entered == epoch && ledger.has_report(&nodes[node])));
                known[node] = entered;
            }
            _ => {
                let (max, taken, waiting) = (50 + dice.below(500), dice.below(50), 1 + dice.below(9));
                let is_settled = dice.below(4) > 0;
                ledger.enter(epoch, nonce, &name.to_string());
                // No node has an empty name.
                let awaited: Vec<String> = others.iter().cloned().chain((!is_settled).then(String::new)).collect();
                let expected = match ledger.admit(&nodes[node], epoch, &awaited) {
                    GrantAdmission::Missing(of) => {
                        missing += 1;
                        GrantAnswer::Missing(of)
                    }
                    GrantAdmission::Open => {
                        granted += 1;
                        let before = total.max(taken);
                        let given = share_of(max.saturating_sub(before), waiting, SHARE_MAX);
                        total = before + given;
                        GrantAnswer::Granted(VisitGrant { given, taken: total })
                    }
                };
                let asked = Allowance { code, claim: 7, max, taken, waiting, epoch, is_settled };
                let answer = redis.allow(&[asked], &asker, WITHIN).remove(0).unwrap();
                assert_eq!(answer, expected, "{asked:?} by {asker:?}, {ledger:?}");
            }
        }
        let has_report = redis.has_reports_of(&nodes[node], &[partition], WITHIN).remove(0).unwrap();
        assert_eq!(has_report, ledger.has_report(&nodes[node]), "{ledger:?}");
    }
    assert!(granted > 50, "{granted} grants, {missing} refusals");
    assert!(missing > 50, "{granted} grants, {missing} refusals");
}
