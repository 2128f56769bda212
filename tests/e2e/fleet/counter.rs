//! A counter that is set back: by hand, by an old dump, or by a failover that loses an increment. No code is given or
//! tried twice.

use std::collections::HashSet;
use std::time::Duration;

use carom::services::replication::redis::LeaseRequest;
use carom_shards::CodeLength;
use serde_json::Value;

use crate::support::cluster::Cluster;
use crate::support::fleet::{Fleet, WITHIN, settle, with_usual_timeouts};
use crate::support::node::{Node, wait_for, wait_until};
use crate::support::redis::{Reply, Server, Setup};

/// Times that each is done; `make soak` does it more often.
fn rounds(usual: usize) -> usize {
    std::env::var("CAROM_FLEET_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(usual)
}

/// Makes every node lease anew: by restarting it without its id table.
fn lease_anew(node: Node) -> Node {
    lease_anew_and_tell(node).0
}

/// Restarts a node, so that it takes a new lease. Also returns the log of the ended process.
fn lease_anew_and_tell(node: Node) -> (Node, String) {
    let (setup, log) = node.terminate_and_tell();
    std::fs::remove_dir_all(setup.data_dir().join("ids")).unwrap();
    let node = setup.start();
    settle(&node);
    (node, log)
}

/// Some links from each node, none of which may have been seen before.
fn create(nodes: &[Node], seen: &mut HashSet<String>) {
    for node in nodes {
        let mut wire = node.wire();
        for _ in 0..20 {
            let code = wire.shorten("https://example.org/");
            assert!(seen.insert(code.clone()), "{code} was given out twice");
        }
    }
}

/// Counts how often a process has noticed that the counter was set back, and said so.
fn regressions(log: &str) -> usize {
    log.lines().filter(|line| line.contains("counter_regressed")).count()
}

/// True if its status says so, too.
fn shows_a_regression(node: &Node) -> bool {
    let is_counted = |status: &Value| status["fleet"]["regressions"].as_u64() > Some(0);
    let status = node.status();
    let is_shown = status["alarms"].to_string().contains("counter_regressed") || is_counted(&status);
    if is_shown {
        // The node counts first, and then raises the alarm.
        crate::support::alarms::is_seen(node, "counter_regressed");
        assert!(is_counted(&node.status()), "{}", node.status());
    }
    is_shown
}

fn collisions(nodes: &[Node]) -> u64 {
    nodes.iter().map(|node| node.status()["fleet"]["collisions"].as_u64().unwrap()).sum()
}

/// Runs of counter values that were leased so far, each as its first value and the one behind its last.
#[derive(Default)]
struct Leases {
    taken: Vec<(u64, u64)>,
    /// Leases in the dump. Restoring the dump shows each of them once more.
    dumped: Vec<(u64, u64)>,
}

impl Leases {
    fn in_redis(server: &Server) -> Vec<(u64, u64)> {
        let fields = server.command(&["HGETALL", "{carom}:leases"]);
        let number = |text: Option<&str>| text.unwrap().parse::<u64>().unwrap();
        let run = |name: &str, value: &str| {
            let start = number(name.split(':').nth(1));
            (start, start + number(value.split(':').next()))
        };
        fields.list().chunks(2).map(|lease| run(&lease[0].text(), &lease[1].text())).collect()
    }

    /// Takes the leases out of Redis that were made since the last time. No two may have a value in common.
    fn take(&mut self, server: &Server) -> Result<(), String> {
        let runs = Leases::in_redis(server);
        server.command(&["DEL", "{carom}:leases"]);
        for (start, end) in runs {
            if let Some(at) = self.dumped.iter().position(|dumped| *dumped == (start, end))
                && self.taken.contains(&(start, end))
            {
                self.dumped.swap_remove(at);
                continue;
            }
            if let Some((from, to)) = self.taken.iter().find(|(from, to)| start < *to && *from < end) {
                return Err(format!("{start} to {end} were leased, and {from} to {to} before"));
            }
            self.taken.push((start, end));
        }
        Ok(())
    }
}

fn start(fleet: &Fleet) -> Vec<Node> {
    let start = |number: usize| {
        let setup = with_usual_timeouts(fleet.setup(number)).expect("counter_regressed");
        setup.expect("redis_away").expect("codes_failed").start()
    };
    let nodes: Vec<Node> = (0..2).map(start).collect();
    nodes.iter().for_each(settle);
    nodes
}

#[test]
fn reset_by_hand_repeats_no_code() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = start(&fleet);
    let mut seen = HashSet::new();
    let mut leases = Leases::default();
    for round in 0..rounds(6) {
        create(&nodes, &mut seen);
        leases.take(&server).unwrap();
        let value = ["0", "17", "-5", "nonsense"][round % 4];
        let before: usize = nodes.iter().map(|node| regressions(&node.log())).sum();
        server.command(&["SET", "{carom}:counter:7", value]);
        // The node that leases first notices. It may be one that has not been restarted yet.
        let (anew, logs): (Vec<Node>, Vec<String>) = nodes.into_iter().map(lease_anew_and_tell).unzip();
        nodes = anew;
        let noticed = logs.iter().map(|log| regressions(log)).sum::<usize>() > before;
        create(&nodes, &mut seen);
        leases.take(&server).unwrap();
        assert_eq!(collisions(&nodes), 0, "round {round}");
        assert!(noticed || nodes.iter().any(shows_a_regression), "nobody has noticed in round {round}");
    }
}

#[test]
fn damaged_floor_is_named_and_not_lowered() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let start = |number: usize| {
        let setup = fleet.setup(number).expect("redis_refuses").expect("redis_away").expect("codes_failed");
        setup.start()
    };
    let nodes: Vec<Node> = (0..2).map(start).collect();
    nodes.iter().for_each(settle);
    let mut seen = HashSet::new();
    create(&nodes, &mut seen);
    let (space, field) = ("{carom}:space", format!("floor:{}", CodeLength::DEFAULT));
    let floor = || match server.command(&["HGET", space, &field]) {
        Reply::Text(value) => String::from_utf8_lossy(&value).parse::<u64>().unwrap_or(0),
        _ => 0,
    };
    let before = floor();
    assert!(before > 0, "otherwise the test proves nothing");
    for damaged in ["nonsense", "-5", "1e3", "0x7"] {
        server.command(&["HSET", space, &field, damaged]);
        let remedy = format!(
            "{damaged}; expected a whole number. While all nodes of the fleet run, type: redis-cli HDEL '{space}' {field}"
        );
        wait_until("the alarm", || nodes.iter().all(|node| node.status()["alarms"].to_string().contains(&remedy)));
        assert_eq!(server.command(&["HGET", space, &field]).text(), damaged, "nobody lowers it");
        server.command(&["HDEL", space, &field]);
        wait_until("the value", || floor() >= before);
        nodes.iter().for_each(settle);
    }
    let nodes: Vec<Node> = nodes.into_iter().map(lease_anew).collect();
    create(&nodes, &mut seen);
    assert_eq!(collisions(&nodes), 0);
}

#[test]
fn old_dump_repeats_no_code() {
    let server = Setup::new().start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = start(&fleet);
    let mut seen = HashSet::new();
    let mut leases = Leases::default();
    for round in 0..rounds(4) {
        create(&nodes, &mut seen);
        leases.take(&server).unwrap();
        server.save();
        let dump = server.copy_dump();
        // A node may have leased values between `take` and `save`, so the dump contains that lease.
        leases.dumped = Leases::in_redis(&server);
        create(&nodes, &mut seen);
        nodes = nodes.into_iter().map(lease_anew).collect();
        create(&nodes, &mut seen);
        leases.take(&server).unwrap();
        server.restore_dump(&dump);
        nodes = nodes.into_iter().map(lease_anew).collect();
        create(&nodes, &mut seen);
        leases.take(&server).unwrap();
        assert_eq!(collisions(&nodes), 0, "round {round}");
        // What the dump did not have is there again.
        for node in &nodes {
            wait_until("all links everywhere", || node.status()["links"].as_u64() == Some(seen.len() as u64));
            assert_eq!(node.status()["fleet"]["conflicts"], 0);
        }
    }
}

#[test]
fn failover_under_load_repeats_no_code() {
    let cluster = Cluster::start();
    let servers: Vec<String> = (0..6).map(|index| cluster.server(index).address().to_string()).collect();
    let fleet = Fleet::new(2, &format!("redis://{}", servers.join(",")));
    let nodes = start(&fleet);
    let addresses: Vec<_> = nodes.iter().map(|node| node.public).collect();
    let pause = Duration::from_millis(2);
    let (seen, ()) = crate::support::fleet_clients::run(&addresses, 2, pause, &[], || {
        for round in 0..rounds(4) {
            let master = cluster.master_of(&format!("{{carom:{:02x}}}:s", round * 11 % 64));
            cluster.failover(cluster.replica_of(master));
        }
    });
    println!("{} links, {} followed at once, {} not known yet", seen.made.len(), seen.fresh, seen.unsure);
    assert_eq!(seen.wrong, Vec::<String>::new());
    assert!(seen.fresh > 20, "{}", seen.fresh);
    assert!(seen.made.len() > 50, "{:?}", seen.refused);
    assert!(seen.refused.is_empty(), "{:?}", seen.refused);
    assert_eq!(seen.twice(), Vec::<&str>::new());
    nodes.iter().for_each(settle);
    for node in &nodes {
        assert_eq!(seen.check_on(node.public), Vec::<String>::new());
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
    assert_eq!(collisions(&nodes), 0);
}

#[test]
fn unreplicated_increments_repeat_no_code() {
    let cluster = Cluster::start();
    let servers: Vec<String> = (0..6).map(|index| cluster.server(index).address().to_string()).collect();
    let fleet = Fleet::new(2, &format!("redis://{}", servers.join(",")));
    let mut nodes = start(&fleet);
    let mut seen = HashSet::new();
    create(&nodes, &mut seen);
    let master = cluster.master_of("{carom}:counter:7");
    let replica = cluster.replica_of(master);
    cluster.cut_off(master, replica);
    create(&nodes, &mut seen);
    cluster.server(master).kill();
    cluster.server(replica).resume();
    wait_until("the replica in its place", || cluster.master_of("{carom}:counter:7") == replica);
    nodes = nodes.into_iter().map(lease_anew).collect();
    create(&nodes, &mut seen);
    assert_eq!(collisions(&nodes), 0);
    for node in &nodes {
        wait_until("all links everywhere", || node.status()["links"].as_u64() == Some(seen.len() as u64));
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
}

#[test]
fn second_lease_confirms_the_first() {
    let master = Server::start();
    let replica = Setup::new().replica_of(master.port()).start();
    replica.wait_until_linked();
    let mut redis = crate::support::fleet::connect(&master);
    let length = CodeLength::new(7).unwrap();
    let wanted = LeaseRequest { length, want: 100, seen: 0, margin: 0 };
    let mut lease = || redis.lease(wanted, "n", WITHIN).unwrap();
    // On a busy machine, a replica may take longer than a lease waits for it.
    let (first, _, replicas) =
        wait_for("a confirmed lease", || Some(lease()).filter(|(_, confirmed, _)| *confirmed == 1));
    assert_eq!(replicas, 1);
    // What was asked before is confirmed by now, and more than that.
    wait_until("a replica that has everything", || {
        let offset = master.info("master_repl_offset").unwrap();
        master.info("slave0").is_some_and(|slave| slave.contains(&format!("offset={offset},")))
    });
    // The server has forgotten the scripts, and the replica hears nothing of what comes now.
    assert_eq!(master.command(&["SCRIPT", "FLUSH"]), "OK");
    replica.pause();
    let (second, confirmed, replicas) = lease();
    assert_eq!(confirmed, 0, "the replica stands still");
    assert_eq!(replicas, 1, "the replica stands still");
    assert!(second.start >= first.start + 100);
}

/// The control: nodes that trust the counter are caught by the same check.
#[cfg(feature = "faults")]
mod fault_tests {
    use super::*;

    #[test]
    fn trusted_counter_repeats_values() {
        let server = Server::start();
        let fleet = Fleet::new(2, &server.url());
        let start = |number: usize| {
            let setup = fleet.setup(number).env("CAROM_FAULT", "trust-counter");
            setup.expect("CAROM_FAULT is not a setting").expect("codes_failed").start()
        };
        let nodes: Vec<Node> = (0..2).map(start).collect();
        nodes.iter().for_each(settle);
        let mut leases = Leases::default();
        leases.take(&server).unwrap();
        server.command(&["SET", "{carom}:counter:7", "0"]);
        let nodes: Vec<Node> = nodes.into_iter().map(lease_anew).collect();
        let caught = leases.take(&server).unwrap_err();
        assert!(caught.contains("before"), "{caught}");
        nodes.into_iter().for_each(|node| _ = node.terminate());
    }
}
