//! Fleet membership: joining and leaving, and the leases that a node leaves behind.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::alarms::{alarms, is_seen};
use crate::support::fleet::{Fleet, KEY, LATE, assert_redirects, known, redirects, settle, setup};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::redis::{Reply, Server, tls_server};

#[test]
fn nodes_know_each_other() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = fleet.start();
    for node in &nodes {
        wait_until("all nodes in the status", || {
            let status = node.status();
            let names: Vec<&str> =
                status["fleet"]["nodes"].as_array().unwrap().iter().filter_map(|node| node["node"].as_str()).collect();
            names == ["n0", "n1", "n2"]
        });
    }
    assert_eq!(nodes[1].status()["fleet"]["node"], "n1");
}

#[test]
fn generated_name_is_kept() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path()).env("CAROM_SPACE_KEY", KEY).argument("--redis").argument(server.url());
    let node = LATE.into_iter().fold(setup, Setup::expect).start();
    settle(&node);
    let name = node.status()["fleet"]["node"].as_str().unwrap().to_owned();
    assert!(name.starts_with("node-"), "{name}");
    let node = node.restart();
    settle(&node);
    assert_eq!(node.status()["fleet"]["node"], name.as_str());
}

#[test]
fn fleet_node_refuses_to_start_alone() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let node = setup(folder.path(), 0, &server.url()).start();
    // A create does not wait for long until the node has codes.
    wait_until("a link", || create(&node) == 200);
    // However short its life was.
    node.kill();
    let alone = Setup::new(folder.path()).env("CAROM_SPACE_KEY", KEY);
    let (code, said) = alone.fail();
    assert!(code != 0, "{code}: {said}");
    assert!(said.contains("belongs to a node of a fleet"), "{code}: {said}");
    assert!(said.contains("--redis"), "{code}: {said}");
}

#[test]
fn other_code_secret_is_refused() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let node = setup(&folder.path().join("a"), 0, &server.url()).start();
    settle(&node);
    node.terminate();
    let other = "ff".repeat(32);
    let stranger =
        Setup::new(&folder.path().join("b")).env("CAROM_SPACE_KEY", &other).argument("--redis").argument(server.url());
    let (code, said) = stranger.fail();
    assert_eq!(code, 19, "{code}: {said}");
    assert!(said.contains("fingerprint"), "{code}: {said}");
    assert!(!said.contains(&other), "{code}: {said}");
    // One that has none is told to take the fleet's, and makes none of its own.
    let newcomer = Setup::new(&folder.path().join("c")).argument("--redis").argument(server.url());
    let (code, said) = newcomer.fail();
    assert_eq!(code, 19, "{code}: {said}");
    assert!(said.contains("space.key"), "{code}: {said}");
    assert!(said.contains("copy"), "{code}: {said}");
    assert!(!folder.path().join("c/space.key").exists());
    server.kill();
    let (code, said) = newcomer.fail();
    assert_eq!(code, 19, "{code}: {said}");
    assert!(said.contains("Redis"), "{code}: {said}");
}

#[test]
fn wrong_password_is_named_and_hidden() {
    let server = Server::start();
    server.command(&["CONFIG", "SET", "requirepass", "open-sesame"]);
    let folder = tempfile::tempdir().unwrap();
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}", server.port());
    let wrong =
        setup(folder.path(), 0, &url("geheim")).expect("redis_refuses").expect("redis_away").expect("codes_failed");
    let node = wrong.start();
    crate::support::alarms::is_seen(&node, "redis_refuses");
    wait_until("the reason", || node.status().to_string().contains("WRONGPASS"));
    assert!(!node.log().contains("geheim"));
    assert!(!node.status().to_string().contains("geheim"));
    node.terminate();
    let node = setup(folder.path(), 0, &server.url()).env("CAROM_FLEET_PASSWORD", "open-sesame").start();
    settle(&node);
    let code = node.wire().shorten("https://example.org/");
    assert!(!node.log().contains("sesame"));
    assert!(!node.status().to_string().contains("sesame"));
    let node = node.restart();
    assert_eq!(node.wire().get(&format!("/{code}")).status, 302);
}

#[test]
fn lease_is_taken_over_once() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let impatient = |number: usize| {
        fleet.setup(number).env("CAROM_FLEET_RECLAIM_SECONDS", "10").expect("a node that left the fleet").start()
    };
    let (first, second, third) = (impatient(0), impatient(1), impatient(2));
    [&first, &second, &third].into_iter().for_each(settle);
    let used: Vec<String> = (0..100).map(|_| first.wire().shorten("https://example.org/")).collect();
    let leased_by = |node: &str| {
        let leases = server.command(&["HVALS", "{carom}:leases"]);
        leases.list().iter().filter(|lease| lease.text().ends_with(&format!(":{node}"))).count()
    };
    wait_until("leases of the first node", || leased_by("n0") > 0);
    let leases = || -> BTreeSet<String> {
        server.command(&["HKEYS", "{carom}:leases"]).list().iter().map(Reply::text).collect()
    };
    first.kill();
    // The other nodes may still lease codes for their reserves.
    let before = leases();
    wait_until("leases that were taken over", || leased_by("n0") == 0);
    assert!(before.is_subset(&leases()), "each by one node");
    wait_until("its name to be gone", || {
        [&second, &third].iter().all(|node| node.status()["fleet"]["nodes"].as_array().unwrap().len() == 2)
    });
    // What it had given out is still its links'.
    used.iter().for_each(|code| assert_redirects(&second, code, "https://example.org/"));
    let made: Vec<String> = (0..200).map(|_| third.wire().shorten("https://example.org/")).collect();
    assert_eq!(made.len(), 200);
}

#[test]
fn earlier_links_join_the_fleet() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let alone = Setup::new(&folder.path().join("a")).env("CAROM_SPACE_KEY", KEY).start();
    let codes: Vec<String> = (0..50).map(|_| alone.wire().shorten("https://example.org/old")).collect();
    alone.wire().shorten_as("slug", "https://example.org/slug");
    alone.terminate();
    let first = setup(&folder.path().join("a"), 0, &server.url()).start();
    settle(&first);
    let second = setup(&folder.path().join("b"), 1, &server.url()).start();
    settle(&second);
    for code in codes.iter().map(String::as_str).chain(["slug"]) {
        assert_eq!(known(|| second.wire().get(&format!("/{code}"))).status, 302, "{code}");
    }
    let fresh = second.wire().shorten("https://example.org/new");
    assert!(!codes.contains(&fresh));
}

#[test]
fn redis_tls_needs_a_trusted_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (_redis, port, certificate) = tls_server(folder.path());
    let url = format!("rediss://127.0.0.1:{port}");
    let node = setup(&folder.path().join("a"), 0, &url).env("CAROM_FLEET_CA_FILE", &certificate).start();
    settle(&node);
    let code = node.wire().shorten("https://example.org/");
    assert_eq!(node.wire().get(&format!("/{code}")).status, 302);
    // Whom the system trusts has not signed it: nobody is spoken to.
    let stranger = setup(&folder.path().join("b"), 1, &url).expect("redis_away").expect("codes_failed").start();
    assert_eq!(stranger.wire().get(&format!("/{code}")).status, 503, "the stranger cannot know whether it exists");
    assert_eq!(stranger.status()["redis"]["connected"], false);
    wait_until("the reason in the log", || stranger.log().contains("certificate"));
}

/// Returns the status of a create.
fn create(node: &Node) -> u16 {
    node.wire().create(&json!({"longUrl": "https://example.org/"})).status
}

#[test]
fn second_process_of_a_name_gives_way() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let named = |number: usize| fleet.setup(number).env("CAROM_FLEET_NODE", "n0").expect("duplicate_node");
    let first = named(0).start();
    settle(&first);
    let code = first.wire().shorten("https://example.org/");
    let second = named(1).start();
    for node in [&first, &second] {
        is_seen(node, "duplicate_node");
        let told = node.status()["alarms"].to_string();
        for pid in [first.pid(), second.pid()] {
            assert!(told.contains(&format!("process {pid} on ")), "{told}");
        }
    }
    wait_until("a node that refuses writes", || create(&second) == 503);
    let refused = second.wire().delete(&code);
    assert!(refused.status == 503, "{}", refused.text());
    assert!(refused.text().contains("duplicate_node"), "{}", refused.text());
    assert_eq!(create(&first), 200);
    wait_until("redirects", || redirects(&second, &code, "https://example.org/"));
    // A node that restarts is no twin of its last process, and keeps the name.
    let first = first.kill().start();
    let number = || first.status()["fleet"]["nodes"][0]["about"]["beat"].as_u64();
    wait_until("a heartbeat", || number().is_some());
    let begun = number();
    wait_until("two more", || number() >= begun.map(|begun| begun + 2));
    assert!(!alarms(&first.status()).contains(&"duplicate_node"), "{}", first.status());
    assert_eq!((create(&first), create(&second)), (200, 503));
    first.terminate();
    let second = second.restart();
    settle(&second);
    assert_eq!(create(&second), 200);
    assert!(!alarms(&second.status()).contains(&"duplicate_node"), "{}", second.status());
}
