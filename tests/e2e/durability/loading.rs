//! Changes on the admin listener while a node still loads its links: acknowledged changes hold afterwards.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::http::{SHORT_URLS, Wire, request};
use crate::support::memory::{code, import, keeping};
use crate::support::node::{Dice, Node, Setup, free_address};
use crate::support::stop::StopOnDrop;

/// Enough for the load to take a while on a fast machine.
const LINKS: u64 = 200_000;

/// Clients that change links at once.
const CLIENTS: u64 = 4;

/// Starts of the node: every other one with only the links in use in memory.
const ROUNDS: u64 = 4;

/// Parts of all codes: one for each client of each round.
const PARTS: u64 = CLIENTS * ROUNDS;

/// Requests sent before their answers are read.
const PIPELINED: usize = 64;

/// The acknowledged state of each code: its destination, or `None` where the link was deleted.
type Acknowledged = BTreeMap<String, Option<String>>;

/// Changes and deletes links over the admin listener until `is_loaded`.
///
/// Only codes whose number is `part` modulo [`PARTS`]: no two clients change the same link.
fn change_until(admin: SocketAddr, mut dice: Dice, part: u64, is_loaded: &AtomicBool) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    let begin = Instant::now();
    let mut wire = loop {
        match Wire::try_open(admin) {
            Ok(wire) => break wire,
            Err(_) if begin.elapsed() < Duration::from_secs(30) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    while !is_loaded.load(Ordering::Acquire) {
        let slug = code(dice.below(LINKS / PARTS) * PARTS + part);
        let path = format!("{SHORT_URLS}/{slug}");
        if acknowledged.contains_key(&slug) {
            continue;
        }
        if dice.below(2) == 0 {
            let target = format!("https://changed.example/{slug}");
            let body = json!({"longUrl": target}).to_string();
            let reply = wire.ask("PATCH", &path, "Content-Type: application/json\r\n", body.as_bytes());
            assert_eq!(reply.status, 200, "{}", reply.text());
            acknowledged.insert(slug, Some(target));
        } else {
            let reply = wire.ask("DELETE", &path, "", b"");
            assert_eq!(reply.status, 204, "{}", reply.text());
            acknowledged.insert(slug, None);
        }
    }
    acknowledged
}

/// Every code whose redirect is not what was acknowledged.
fn undone(node: &Node, acknowledged: &Acknowledged) -> Vec<String> {
    let mut wire = node.wire();
    let mut undone = Vec::new();
    let all: Vec<_> = acknowledged.iter().collect();
    for some in all.chunks(PIPELINED) {
        let requests = some.iter().flat_map(|(code, _)| request("GET", &format!("/{code}"), "", b""));
        wire.send(&requests.collect::<Vec<u8>>());
        for (code, target) in some {
            let reply = wire.reply();
            let is_right = match target {
                Some(target) => reply.status == 302 && reply.location() == target,
                None => reply.status == 404,
            };
            if !is_right {
                undone.push(format!("{code}: {} {:?}, not {target:?}", reply.status, reply.field("location")));
            }
        }
    }
    undone
}

#[test]
fn changes_made_while_loading_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let data: &Path = &folder.path().join("data");
    import(data, LINKS);
    // The first start reads the store.
    std::fs::remove_file(data.join("links.image")).unwrap();
    let mut dice = Dice::new();
    let mut changed = 0;
    // A change is at risk while the old record is on its way to its owner: several rounds meet enough of that.
    for round in 0..ROUNDS {
        let admin = free_address();
        let setup = Setup::new(data).cores(2).argument("--admin-listen").argument(admin.to_string());
        let setup = if round % 2 == 0 { setup } else { keeping(setup, 64 << 20) };
        let is_loaded = AtomicBool::new(false);
        let (node, acknowledged) = std::thread::scope(|scope| {
            let stop = StopOnDrop(&is_loaded);
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let (dice, part, is_loaded) = (Dice(dice.next()), round * CLIENTS + client, &is_loaded);
                    scope.spawn(move || change_until(admin, dice, part, is_loaded))
                })
                .collect();
            let node = setup.start();
            drop(stop);
            (node, clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>())
        });
        for acknowledged in &acknowledged {
            changed += acknowledged.len();
            assert_eq!(undone(&node, acknowledged), Vec::<String>::new(), "in round {round}");
        }
        node.terminate();
    }
    assert!(changed > 0, "nothing was changed while links were loaded");
}
