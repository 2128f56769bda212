//! Nodes whose clocks are minutes or weeks apart: no promise depends on the time of day.

use std::time::Duration;

use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;
use serde_json::json;

use crate::support::alarms::alarms;
use crate::support::fleet::{Fleet, changed, known, redirects, settle};
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, Setup, wait_until};
use crate::support::purges::{MARKER, marked_files, wait_for_purge};
use crate::support::redis::Server;

/// Returns the path of the library that gives a program another time of day, from the Debian package libfaketime.
fn library() -> String {
    let architectures = std::fs::read_dir("/usr/lib").expect("it is there").flatten();
    let libraries = architectures.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    let mut libraries = libraries.filter(|library| library.exists());
    libraries.next().expect("the Debian package libfaketime is missing").display().to_string()
}

/// Sets the clock of a node ahead or back. Its monotonic clocks are those of the machine.
fn shifted(setup: Setup, shift: &str) -> Setup {
    setup.env("LD_PRELOAD", &library()).env("FAKETIME", shift).env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
}

fn total(node: &Node, slug: &str) -> u64 {
    let told = known(|| node.wire().get(&format!("{SHORT_URLS}/{slug}/visits"))).json();
    told["visits"]["summary"]["total"].as_u64().unwrap()
}

/// Returns the clock of a node, in seconds since 1970 UTC, from the time at which it says that a link was created.
fn clock(node: &Node, slug: &str) -> u64 {
    let link = known(|| node.wire().get(&format!("{SHORT_URLS}/{slug}"))).json();
    dates::parse(link["dateCreated"].as_str().unwrap()).unwrap() / 1_000
}

#[test]
fn purges_reach_clocks_that_are_weeks_apart() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let shifts = ["-40d", "+0s", "+40d"];
    let nodes: Vec<Node> =
        shifts.iter().enumerate().map(|(number, shift)| shifted(fleet.setup(number), shift).start()).collect();
    nodes.iter().for_each(settle);
    let target = format!("https://a.example/{MARKER}");
    for (node, slug) in nodes.iter().zip(["late", "exact", "early"]) {
        node.wire().shorten_as(slug, &target);
        wait_until("the link on every node", || nodes.iter().all(|node| redirects(node, slug, &target)));
        let begun = known(|| node.wire().ask("DELETE", &format!("{SHORT_URLS}/{slug}?purge=true"), "", b""));
        let id = begun.json()["id"].as_str().unwrap().to_owned();
        nodes.iter().for_each(|node| wait_for_purge(node, &id));
    }
    for number in 0..nodes.len() {
        assert_eq!(marked_files(fleet.setup(number).data_dir()), Vec::<String>::new());
    }
}

#[test]
fn early_clock_removes_no_link_early() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let setup = |number: usize| fleet.setup(number).env("CAROM_LINKS_KEEP_EXPIRED", "1s");
    let nodes = [setup(0).start(), shifted(setup(1), "+60s").start()];
    nodes.iter().for_each(settle);
    let end_ms = (unix_ms() / 1_000 + 9) * 1_000;
    let link = json!({"longUrl": "https://example.org/", "customSlug": "ends", "validUntil": dates::format(end_ms)});
    assert_eq!(nodes[0].wire().create_named(&link).status, 200);
    wait_until("the end on the early node", || nodes[1].wire().get("/ends").status == 410);
    let mut wire = nodes[0].wire();
    wait_until("the end on the other node", || {
        let status = wire.get("/ends").status;
        let is_over = unix_ms() >= end_ms;
        assert!(is_over || status == 302, "{status}");
        is_over
    });
    wait_until("its removal", || nodes.iter().all(|node| node.wire().get("/ends").status == 404));
}

#[test]
fn clocks_apart_change_no_promise() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let shifts = ["-60s", "+0s", "+60s"];
    let nodes: Vec<Node> =
        shifts.iter().enumerate().map(|(number, shift)| shifted(fleet.setup(number), shift).start()).collect();
    nodes.iter().for_each(settle);
    let slugs = ["late", "exact", "early"];
    let everywhere = |slug: &str, target: &str| {
        wait_until("the link on every node", || nodes.iter().all(|node| redirects(node, slug, target)));
    };
    for (node, slug) in nodes.iter().zip(slugs) {
        node.wire().shorten_as(slug, "https://example.org/first");
    }
    slugs.iter().for_each(|slug| everywhere(slug, "https://example.org/first"));
    let apart = clock(&nodes[0], "early") - clock(&nodes[0], "late");
    assert!((115..=150).contains(&apart), "the clocks are {apart} s apart");
    // The last change counts, whatever the clock of its node says.
    for (first, second) in [(0, 2), (2, 0), (1, 0)] {
        let target = format!("https://example.org/{first}-{second}");
        assert_eq!(changed(&nodes[first], "exact", &json!({"longUrl": "https://example.org/lost"})).status, 200);
        everywhere("exact", "https://example.org/lost");
        assert_eq!(changed(&nodes[second], "exact", &json!({"longUrl": target})).status, 200);
        everywhere("exact", &target);
    }
    // A delete on the node that is late ends a link of the node that is early.
    assert_eq!(nodes[0].wire().delete("early").status, 204);
    wait_until("the delete", || nodes.iter().all(|node| node.wire().get("/early").status == 404));
    nodes[0].wire().shorten_as("early", "https://example.org/second");
    everywhere("early", "https://example.org/second");
    // Visits count once on every node, and a limit on visits is exact.
    wait_until("visits that no longer change", || {
        let shown = || nodes.iter().map(|node| total(node, "late")).collect::<Vec<_>>();
        let first = shown();
        std::thread::sleep(Duration::from_secs(2));
        first == shown() && first.windows(2).all(|two| two[0] == two[1])
    });
    let before = total(&nodes[0], "late");
    for node in &nodes {
        let mut wire = node.wire();
        (0..10).for_each(|_| assert_eq!(known(|| wire.get("/late")).status, 302));
    }
    wait_until("the totals", || nodes.iter().all(|node| total(node, "late") == before + 30));
    let limited = nodes[2].wire().create(&json!({"longUrl": "https://example.org/", "maxVisits": 7})).code();
    let path = format!("{SHORT_URLS}/{limited}");
    wait_until("the limited link", || nodes.iter().all(|node| node.wire().get(&path).status == 200));
    let mut made = 0;
    wait_until("the end of its visits", || {
        let statuses = nodes.iter().map(|node| node.wire().get(&format!("/{limited}")).status).collect::<Vec<_>>();
        made += statuses.iter().filter(|status| **status == 302).count();
        statuses.iter().all(|status| *status == 410)
    });
    assert_eq!(made, 7);
    // Each node hears of all others, and writes the newest format.
    for node in &nodes {
        // A late heartbeat makes a node silent for a moment.
        wait_until("heartbeats of all nodes", || {
            let totals = node.status()["fleet"]["totals"].clone();
            (&totals["nodes"], &totals["lacks"]) == (&json!(["n0", "n1", "n2"]), &json!([]))
        });
        let status = node.status();
        assert_eq!(status["fleet"]["formats"]["reads"], status["fleet"]["formats"]["writes"]);
        wait_until("no alarm", || alarms(&node.status()).is_empty());
    }
}
