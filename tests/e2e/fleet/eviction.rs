//! A Redis that may remove keys once its memory is full: nodes warn of it, also if they may not read its configuration.

use crate::support::alarms::{alarms, is_seen};
use crate::support::cluster::Cluster;
use crate::support::fleet::{settle, setup};
use crate::support::node::{Node, wait_until};
use crate::support::redis::Setup;

fn is_silent(node: &Node) -> bool {
    !alarms(&node.status()).contains(&"redis_evicts")
}

#[test]
fn evicting_server_raises_an_alarm() {
    let server = Setup::new().argument("--maxmemory-policy").argument("allkeys-lru").start();
    // A managed Redis forbids this command.
    let user = ["ACL", "SETUSER", "carom", "on", ">geheim", "~*", "&*", "+@all", "-config"];
    assert_eq!(server.command(&user), "OK");
    let folder = tempfile::tempdir().unwrap();
    let url = format!("redis://carom:geheim@{}", server.address());
    let node = setup(folder.path(), 0, &url).expect("redis_evicts").start();
    settle(&node);
    assert!(is_silent(&node), "without a limit, Redis evicts nothing");
    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", "256mb"]), "OK");
    is_seen(&node, "redis_evicts");
    let remedy = format!("redis-cli -h 127.0.0.1 -p {} CONFIG SET maxmemory-policy noeviction", server.port());
    assert!(node.status()["alarms"].to_string().contains(&remedy), "{}", node.status()["alarms"]);
    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]), "OK");
    wait_until("the end of the alarm", || is_silent(&node));
}

#[test]
fn every_master_of_a_cluster_is_asked() {
    let cluster = Cluster::start();
    let servers: Vec<String> = (0..6).map(|index| cluster.server(index).address().to_string()).collect();
    let folder = tempfile::tempdir().unwrap();
    let node = setup(folder.path(), 0, &format!("redis://{}", servers.join(","))).expect("redis_evicts").start();
    settle(&node);
    // Heartbeats go to the master of these keys.
    let asked = cluster.master_of("{carom}:space");
    let other = (0..3).find(|index| *index != asked).unwrap();
    let set = ["CONFIG", "SET", "maxmemory", "256mb", "maxmemory-policy", "volatile-lru"];
    assert_eq!(cluster.command(other, &set), "OK");
    is_seen(&node, "redis_evicts");
    let text = node.status()["alarms"].to_string();
    assert!(text.contains(&format!("{} has maxmemory-policy volatile-lru", servers[other])), "{text}");
    assert!(!text.contains(&format!("{} has", servers[asked])), "{text}");
}
