//! Every alarm, raised: it is in the status, in the metrics and in the log. Tests of other themes raise the remaining
//! alarms and check them with [`is_seen`]; `tests/tidy.rs` compares both with the list of all alarms.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::alarms::{alarms, is_seen};
use crate::support::fleet::{self, Fleet, settle};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{Dice, Node, Setup, wait_until};
use crate::support::redis::Server;
use crate::support::store::open_store;
use carom_store::links::RowPlace;

/// From now on no file of the node may grow: as on a disk that takes nothing.
fn let_no_file_grow(node: &Node) {
    let limited = Command::new("prlimit").args(["--fsize=1:1", "--pid", &node.pid().to_string()]).status().unwrap();
    assert!(limited.success());
}

/// Notes that these alarms are no surprise.
fn expecting(setup: Setup, alarms: &[&str]) -> Setup {
    alarms.iter().fold(setup, |setup, alarm| setup.expect(&format!("alarm=\"{alarm}\"")))
}

/// A node that is told of a file that may not grow by an error and not by a signal.
fn limitable(data_dir: &Path) -> Setup {
    Setup::new(data_dir).shell("trap '' XFSZ; exec \"$@\"")
}

#[test]
fn failed_writes_raise_their_alarms() {
    let dir = tempfile::tempdir().unwrap();
    let (allow, block) = (dir.path().join("allow.json"), dir.path().join("block.json"));
    fs::write(&allow, "{\"1\": \"example.org\"}").unwrap();
    fs::write(&block, "{}").unwrap();
    let setup = limitable(&dir.path().join("data"))
        .env("CAROM_ALLOW_SOURCE", &allow.display().to_string())
        .env("CAROM_BLOCK_SOURCE", &block.display().to_string())
        .expect("a write to the store failed");
    let node =
        expecting(setup, &["allow_list_unkept", "block_list_unkept", "visits_failed", "store_failed", "codes_failed"])
            .start();
    let mut wire = node.wire();
    let code = wire.shorten("https://example.org/");
    let_no_file_grow(&node);
    fs::write(&allow, "{\"1\": \"example.org\", \"2\": \"example.net\"}").unwrap();
    is_seen(&node, "allow_list_unkept");
    fs::write(&block, "{\"1\": \"bad.example\"}").unwrap();
    is_seen(&node, "block_list_unkept");
    // Visits are counted in memory, and written twice a second.
    assert_eq!(wire.get(&format!("/{code}")).status, 302);
    is_seen(&node, "visits_failed");
    wire.create(&json!({"longUrl": "https://example.org/", "title": "x".repeat(500)})).problem(503, ":unconfirmed");
    is_seen(&node, "store_failed");
    let status = node.status();
    let failed = status["alarms"].as_array().unwrap().iter().find(|alarm| alarm["name"] == "store_failed").unwrap();
    let text = |name: &str| failed[name].as_str().unwrap();
    assert!(text("message").ends_with("; writes are refused."), "{failed}");
    assert_eq!(text("remedy"), "Check the disk, then restart the node.");
    assert!(text("text").ends_with("; writes are refused; check the disk, then restart the node"), "{failed}");
    assert_eq!(wire.get(&format!("/{code}")).status, 302);
    node.kill();
}

#[test]
fn unusable_lists_raise_their_alarms() {
    let dir = tempfile::tempdir().unwrap();
    let (allow, block) = (dir.path().join("allow.json"), dir.path().join("block.json"));
    let write = |text: &str| [&allow, &block].into_iter().for_each(|file| fs::write(file, text).unwrap());
    write("{\"1\": \"https://a.example/\"}");
    let setup = Setup::new(&dir.path().join("data"))
        .env("CAROM_ALLOW_SOURCE", &allow.display().to_string())
        .env("CAROM_BLOCK_SOURCE", &block.display().to_string());
    let of_lists = ["allow_list_", "block_list_"]
        .map(|list| ["entries", "malformed", "unreadable"].map(|what| format!("{list}{what}")))
        .concat();
    let node = expecting(setup, &of_lists.iter().map(String::as_str).collect::<Vec<_>>()).start();
    is_seen(&node, "allow_list_entries");
    is_seen(&node, "block_list_entries");
    write("[]");
    is_seen(&node, "allow_list_malformed");
    is_seen(&node, "block_list_malformed");
    [&allow, &block].into_iter().for_each(|file| fs::remove_file(file).unwrap());
    is_seen(&node, "allow_list_unreadable");
    is_seen(&node, "block_list_unreadable");
    node.terminate();
}

#[test]
fn invalid_redis_data_raises_alarms() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    server.command(&["SET", "{carom}:apps", "no hash"]);
    let most_of_them = 62u64.pow(6) / 100 * 95;
    server.command(&["SET", "{carom}:counter:6", &most_of_them.to_string()]);
    let setup = fleet::setup(dir.path(), 0, &server.url());
    let nonsense = ["apps_unshared", "codes_used_up", "stream_damaged", "other_key", "redis_away", "codes_failed"];
    let node = expecting(setup.env("CAROM_LINKS_CODE_LENGTH", "6"), &nonsense).start();
    settle(&node);
    is_seen(&node, "apps_unshared");
    is_seen(&node, "codes_used_up");
    // As long as nobody knows whether there are keys, nobody is let in.
    server.command(&["DEL", "{carom}:apps"]);
    wait_until("the end of an alarm", || !alarms(&node.status()).contains(&"apps_unshared"));
    let code = node.wire().shorten("https://example.org/");
    settle(&node);
    let stream = server.command(&["KEYS", "{carom:*}:s"]).list()[0].text();
    server.command(&["XADD", &stream, "*", "c", &code, "v", "nothing that carom has written"]);
    is_seen(&node, "stream_damaged");
    server.command(&["HSET", "{carom}:space", "fingerprint", "another"]);
    is_seen(&node, "other_key");
    server.kill();
    is_seen(&node, "redis_away");
    node.kill();
}

#[test]
fn lost_lease_and_outage_raise_alarms() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let setup = fleet::setup(dir.path(), 0, &server.url()).env("CAROM_FLEET_RECLAIM_SECONDS", "10");
    let node = expecting(setup, &["lease_lost", "redis_away", "codes_failed"]).start();
    settle(&node);
    node.signal(Signal::STOP);
    // There is nothing to wait for: nobody hears of a process that stands still.
    std::thread::sleep(Duration::from_secs(12));
    node.signal(Signal::CONT);
    is_seen(&node, "lease_lost");
    node.terminate();
    server.kill();
    let alone = fleet::setup(&dir.path().join("new"), 1, &server.url());
    let alone = expecting(alone, &["codes_failed", "redis_away"]).start();
    is_seen(&alone, "codes_failed");
    alone.kill();
}

/// Flips a bit in every piece of a file that a block may take.
fn damage(file: &Path) {
    let file = fs::File::options().read(true).write(true).open(file).unwrap();
    let len = file.metadata().unwrap().len();
    // The index stands at the end.
    for at in (0..len - len / 16).step_by(2_048) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    }
}

#[test]
fn damaged_visits_raise_an_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    setup.start().terminate();
    let store = open_store(&setup);
    let name = |at: usize| format!("t{at:06}").into_bytes();
    let (mut dice, mut value) = (Dice::new(), [0; 1_900]);
    for first in (0..24_000).step_by(1_000) {
        let mut batch = store.batch();
        for at in first..first + 1_000 {
            // Without meaning, since nothing of it is read, and of no pattern that could be compressed.
            value.iter_mut().for_each(|byte| *byte = dice.below(256) as u8);
            batch.put_visits(&name(at), RowPlace { hour: 1, slot: 0, log: 1 }, &value);
        }
        store.commit(batch).unwrap();
    }
    store.sync().unwrap();
    wait_until("tables", || !crate::support::store::tables(&setup).is_empty() && store.unflushed_bytes() < 32 << 20);
    drop(store);
    crate::support::store::tables(&setup).iter().for_each(|table| damage(table));
    let node = expecting(setup, &["visits_damaged", "store_damaged"]).expect("a block of the store is damaged").start();
    let mut wire = node.wire();
    wire.shorten_as("t000500", "https://example.org/");
    assert_eq!(wire.delete("t000500").status, 204);
    is_seen(&node, "visits_damaged");
    node.kill();
}

#[test]
fn unopened_id_table_raises_an_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    setup.start().terminate();
    fs::write(dir.path().join("ids/conf"), "this was never a table").unwrap();
    let node = expecting(setup, &["id_table_moved"]).expect("the code table could not be opened").start();
    is_seen(&node, "id_table_moved");
    node.wire().shorten("https://example.org/");
    node.terminate();
}

#[test]
fn failed_comparison_raises_an_alarm() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let setup = fleet::setup(dir.path(), 0, &server.url());
    // The store is opened with the key that a node keeps there.
    fs::create_dir_all(dir.path()).unwrap();
    let node = setup.start();
    settle(&node);
    node.terminate();
    fs::write(dir.path().join("space.key"), fleet::KEY).unwrap();
    crate::support::store::fill_tables(&setup, 24_000);
    crate::support::store::tables(&setup).iter().for_each(|table| damage(table));
    fs::remove_file(dir.path().join("space.key")).unwrap();
    server.command(&["FLUSHALL"]);
    let setup = setup.expect("a block of the store is damaged");
    let node = expecting(setup, &["store_damaged", "compare_failed", "counter_regressed", "redis_refuses"]).start();
    is_seen(&node, "store_damaged");
    is_seen(&node, "compare_failed");
    node.kill();
}

/// Memory that a core cannot address is more than a machine of a test has.
#[cfg(feature = "faults")]
mod fault_tests {
    use super::*;
    use crate::support::http::request;

    #[test]
    fn full_memory_raises_an_alarm() {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup::new(dir.path()).env("CAROM_FAULT", "little-memory").expect("CAROM_FAULT is not a setting");
        let node = expecting(setup, &["memory_full"]).start();
        let mut wire = node.wire();
        let long = format!("https://example.org/{}", "x".repeat(2_000));
        let refused = (0..100_000).find(|_| wire.create(&json!({"longUrl": long})).status == 503);
        assert!(refused.is_some());
        is_seen(&node, "memory_full");
        node.terminate();
    }

    #[test]
    fn dropped_visits_raise_an_alarm() {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup::new(dir.path()).env("CAROM_FAULT", "deaf-visits").expect("CAROM_FAULT is not a setting");
        let node = expecting(setup, &["visits_dropped"]).start();
        let mut wire = node.wire();
        let slug = "a-slug-that-takes-many-words-of-a-ring".repeat(2)[..64].to_owned();
        wire.shorten_as(&slug, "https://example.org/");
        let ask = request("GET", &format!("/{slug}"), "", b"");
        // A visit of such a link takes seven words, and a ring has 32,768.
        for _ in 0..100 {
            wire.send(&ask.repeat(50));
            (0..50).for_each(|_| assert_eq!(wire.reply().status, 302));
        }
        is_seen(&node, "visits_dropped");
        node.kill();
    }
}

/// The alarm comes after a minute, so this test is not among those of the fleet, each of which has the machine to itself.
#[test]
fn missing_counts_of_visits_raise_an_alarm() {
    let server = Server::start();
    let nodes = Fleet::new(2, &server.url());
    let start = |number: usize| {
        let node = nodes.setup(number).expect("redis_away").expect("visits_missing").start();
        settle(&node);
        node
    };
    let (counting, other) = (start(0), start(1));
    counting.wire().shorten_as("kept", "https://example.org/kept");
    let path = format!("{SHORT_URLS}/kept");
    wait_until("the link on the other node", || other.wire().get(&path).status == 200);
    let published = |node: &Node| {
        let visits = node.status()["fleet"]["visits"].clone();
        visits.as_array().unwrap().iter().map(|of| of["published"].as_u64().unwrap()).sum::<u64>()
    };
    let other = other.terminate();
    let before = published(&counting);
    assert_eq!(counting.wire().get("/kept").status, 302);
    wait_until("a published batch", || published(&counting) > before);
    counting.terminate();
    // The batches are gone from Redis, and the node that has them is away.
    for stream in server.command(&["KEYS", "*:v:*"]).list() {
        server.command(&["DEL", &stream.text()]);
    }
    let other = other.start();
    let begun = Instant::now();
    while !alarms(&other.status()).contains(&"visits_missing") {
        assert!(begun.elapsed() < Duration::from_secs(120), "{}", other.status()["fleet"]);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(begun.elapsed() > Duration::from_secs(50), "a snapshot had no time");
    is_seen(&other, "visits_missing");
    assert!(Wire::open(other.admin).get("/metrics").text().contains("carom_fleet_visits_missing 1\n"));
    let counting = start(0);
    wait_until("the end of the alarm", || !alarms(&other.status()).contains(&"visits_missing"));
    counting.terminate();
    other.terminate();
}
