//! Sentinels name the master: ordered failovers, a killed and a stopped master, lost writes, sentinels that do not
//! answer, their login, and TLS.

use std::collections::HashSet;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::fleet::{Fleet, settle, setup, with_usual_timeouts};
use crate::support::fleet_clients::{self, Made};
use crate::support::node::{CAROM, Node, Setup as NodeSetup, wait_until};
use crate::support::redis::{RedisCertificate, Server, Setup};
use crate::support::sentinel::Sentinels;

/// Longest time between the moment when all sentinels name a master and the first answer of that master to a client. It
/// is a second on an idle machine.
const FOUND_WITHIN: Duration = Duration::from_secs(5);

/// Two nodes that know only the sentinels.
fn start(sentinels: &Sentinels) -> (Fleet, Vec<Node>) {
    start_with(sentinels, |setup| setup)
}

fn start_with(sentinels: &Sentinels, of: impl Fn(NodeSetup) -> NodeSetup) -> (Fleet, Vec<Node>) {
    let fleet = Fleet::new(2, &sentinels.url());
    let start = |number: usize| {
        let setup = of(with_usual_timeouts(fleet.setup(number))).expect("redis_away");
        setup.expect("counter_regressed").expect("codes_failed").start()
    };
    let nodes: Vec<Node> = (0..2).map(start).collect();
    nodes.iter().for_each(settle);
    (fleet, nodes)
}

/// Waits until each node gets answers of the new master: only Redis decides about custom slugs.
fn wait_for_slugs(nodes: &[Node], round: &str) {
    let start = Instant::now();
    for (number, node) in nodes.iter().enumerate() {
        let slug = json!({"longUrl": "https://example.org/slug", "customSlug": format!("{round}-{number}")});
        wait_until("a custom slug", || node.wire().create(&slug).status == 200);
    }
    let took = start.elapsed();
    println!("{round}: custom slugs {took:?} after the sentinels agreed");
    assert!(took < FOUND_WITHIN, "{round}: {took:?}");
}

/// Creates, deletes and follows links on both nodes during `failovers`; then everything must be everywhere.
fn survive(nodes: &[Node], failovers: impl FnOnce()) {
    let mut wire = nodes[0].wire();
    let target = |number: usize| format!("https://example.org/before/{number}");
    let links: Vec<Made> =
        (0..100).map(|number| Made { code: wire.shorten(&target(number)), target: target(number) }).collect();
    wait_until("links on both nodes", || nodes.iter().all(|node| fleet_clients::check(node.public, &links).is_empty()));
    let addresses: Vec<_> = nodes.iter().map(|node| node.public).collect();
    let (seen, ()) = fleet_clients::run(&addresses, 1, Duration::from_millis(5), &links, failovers);
    println!("{} made, {} followed, slowest create {:?}", seen.made.len(), seen.right, seen.slowest);
    assert_eq!(seen.wrong, Vec::<String>::new());
    assert!(seen.right > 20, "{}", seen.right);
    assert!(seen.made.len() > 10, "{}", seen.made.len());
    assert!(seen.refused.is_empty(), "{:?}", seen.refused);
    assert!(seen.slowest < Duration::from_secs(5), "{:?}", seen.slowest);
    assert_eq!(seen.twice(), Vec::<&str>::new());
    nodes.iter().for_each(settle);
    for node in nodes {
        assert_eq!(seen.check_on(node.public), Vec::<String>::new());
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
}

#[test]
fn ordered_failovers_lose_nothing() {
    let sentinels = Sentinels::start();
    let (_fleet, nodes) = start(&sentinels);
    survive(&nodes, || {
        for round in 0..2 {
            sentinels.failover();
            wait_for_slugs(&nodes, &format!("ordered-{round}"));
            sentinels.wait_until_whole();
        }
    });
    shows_the_master(&nodes[0], &sentinels);
}

#[test]
fn nodes_servers_and_sentinels_speak_tls() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = RedisCertificate::create(folder.path());
    let sentinels = Sentinels::start_secured(&certificate);
    assert!(sentinels.url().starts_with("rediss+sentinel://"));
    let (fleet, nodes) = start_with(&sentinels, |setup| setup.env("CAROM_FLEET_CA_FILE", certificate.file()));
    survive(&nodes, || {
        sentinels.failover();
        wait_for_slugs(&nodes, "tls");
    });
    shows_the_master(&nodes[0], &sentinels);
    // A node that does not trust the certificate speaks with none of them.
    drop(nodes);
    let stranger = fleet.setup(0).expect("redis_away").expect("codes_failed").start();
    wait_until("the reason", || stranger.status()["alarms"].to_string().contains("certificate"));
    assert_eq!(stranger.status()["redis"]["connected"], false);
}

/// Waits until a node shows the master. Only the servers are shown, not the sentinels.
fn shows_the_master(node: &Node, sentinels: &Sentinels) {
    let master = format!("127.0.0.1:{}", sentinels.server(sentinels.master()).peer_port());
    wait_until("the new master in the status", || node.status()["fleet"]["servers"] == json!([master]));
}

#[test]
fn killed_master_is_replaced() {
    let sentinels = Sentinels::start();
    let (_fleet, nodes) = start(&sentinels);
    survive(&nodes, || {
        let master = sentinels.master();
        sentinels.server(master).kill();
        sentinels.replacement_of(master);
        wait_for_slugs(&nodes, "killed");
        // It returns as a master, until the sentinels make it a replica.
        sentinels.server(master).start_again();
        sentinels.wait_until_whole();
        wait_for_slugs(&nodes, "returned");
    });
}

#[test]
fn stopped_master_and_sentinel_hold_up_nobody() {
    let sentinels = Sentinels::start();
    let (_fleet, nodes) = start(&sentinels);
    survive(&nodes, || {
        sentinels.sentinel(0).pause();
        let master = sentinels.master();
        sentinels.server(master).pause();
        sentinels.replacement_of(master);
        wait_for_slugs(&nodes, "stopped");
        sentinels.server(master).resume();
        sentinels.sentinel(0).resume();
        sentinels.wait_until_whole();
        wait_for_slugs(&nodes, "resumed");
    });
}

#[test]
fn unreplicated_writes_repeat_no_code() {
    let sentinels = Sentinels::start();
    let (_fleet, nodes) = start(&sentinels);
    let mut seen = HashSet::new();
    let mut create = |nodes: &[Node]| {
        for node in nodes {
            let mut wire = node.wire();
            for _ in 0..20 {
                let code = wire.shorten("https://example.org/");
                assert!(seen.insert(code.clone()), "{code} was given out twice");
            }
        }
        seen.len() as u64
    };
    create(&nodes);
    let (master, replicas) = (sentinels.master(), sentinels.replicas());
    // The replicas miss what follows, links as well as leases.
    replicas.iter().for_each(|replica| sentinels.server(*replica).pause());
    sentinels.server(master).close_replicas();
    create(&nodes);
    sentinels.server(master).kill();
    replicas.iter().for_each(|replica| sentinels.server(*replica).resume());
    sentinels.replacement_of(master);
    // Without its table of codes, a node leases again.
    let lease_again = |node: Node| {
        let setup = node.terminate();
        std::fs::remove_dir_all(setup.data_dir().join("ids")).unwrap();
        setup.start()
    };
    let nodes: Vec<Node> = nodes.into_iter().map(lease_again).collect();
    nodes.iter().for_each(settle);
    let links = create(&nodes);
    for node in &nodes {
        wait_until("all links everywhere", || node.status()["links"].as_u64() == Some(links));
        let fleet = &node.status()["fleet"];
        assert_eq!((fleet["conflicts"].as_u64(), fleet["collisions"].as_u64()), (Some(0), Some(0)));
    }
}

#[test]
fn logins_are_separate_and_hidden() {
    let server = Server::start();
    let sentinel = Setup::new().sentinel_of(server.port()).start();
    // Nobody asks without a login from here on, this test included.
    assert_eq!(server.command(&["CONFIG", "SET", "requirepass", "geheim-1"]), "OK");
    let user = ["ACL", "SETUSER", "watch", "on", ">geheim-2", "-@all", "+sentinel|get-master-addr-by-name"];
    assert_eq!(sentinel.command(&user), "OK");
    assert_eq!(sentinel.command(&["ACL", "SETUSER", "default", "off"]), "OK");
    let url = |password: &str| {
        let address = sentinel.address();
        format!("redis+sentinel://:geheim-1@{address}/main/0?sentinel_username=watch&sentinel_password={password}")
    };
    let folder = tempfile::tempdir().unwrap();
    let checked = Command::new(CAROM).arg("check-config").env("CAROM_REDIS", url("geheim-2")).output().unwrap();
    let shown = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert!(shown.contains("/main/0"), "{shown}");
    assert!(shown.contains("password hidden"), "{shown}");
    assert!(!shown.contains("geheim"), "{shown}");

    let node = setup(&folder.path().join("right"), 0, &url("geheim-2")).start();
    settle(&node);
    node.wire().shorten_as("mine", "https://example.org/");
    assert!(!node.status().to_string().contains("geheim"));
    let (_, log) = node.terminate_and_tell();
    assert!(!log.contains("geheim"), "{log}");

    let wrong = setup(&folder.path().join("wrong"), 1, &url("geheim-3"));
    let node = wrong.expect("redis_refuses").expect("redis_away").expect("codes_failed").start();
    wait_until("an alarm", || node.status().to_string().contains("rejects the login: WRONGPASS"));
    assert!(!node.status().to_string().contains("geheim"));
    let (_, log) = node.terminate_and_tell();
    assert!(!log.contains("geheim"), "{log}");
}
