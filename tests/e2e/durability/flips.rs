//! One flipped byte anywhere in a data directory: a node never redirects to a wrong destination and never crashes, and
//! an alarm reports every acknowledged link that it cannot serve.
//!
//! `CAROM_FLIPS` is the number of places; `make soak` tries many.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::alarms::alarms;
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::node::{Dice, Node, Setup};
use crate::support::store::{copy, files, flip_at, is_reported};

/// Places for each way to stop a node, where nothing else is set. A start takes about a fifth of a second.
const PLACES: usize = 16;

/// Exit codes that say that the store or the secret key cannot be read.
const REFUSALS: [i32; 2] = [18, 19];

/// The acknowledged state of each code: its destination, or `None` where the link was deleted.
type Acknowledged = BTreeMap<String, Option<String>>;

fn patch(wire: &mut Wire, code: &str, destination: &str) -> Reply {
    let body = json!({"longUrl": destination}).to_string();
    wire.ask("PATCH", &format!("{SHORT_URLS}/{code}"), "Content-Type: application/json\r\n", body.as_bytes())
}

/// Creates, changes and deletes links.
fn change(node: &Node, round: usize, known: &mut Acknowledged) {
    let mut wire = node.wire();
    let created: Vec<String> = (0..30)
        .map(|at| {
            let destination = format!("https://example.org/{round}/{at}");
            let code = wire.shorten(&destination);
            known.insert(code.clone(), Some(destination));
            code
        })
        .collect();
    for (at, code) in created.iter().enumerate().filter(|(at, _)| at % 3 != 0) {
        let destination = format!("https://example.org/changed/{round}/{at}");
        let changed = patch(&mut wire, code, &destination);
        assert_eq!(changed.status, 200, "{changed:?}");
        known.insert(code.clone(), Some(destination));
    }
    for code in created.iter().step_by(5) {
        assert_eq!(wire.delete(code).status, 204);
        known.insert(code.clone(), None);
    }
    // The last write is a change of a link that the tables or an older batch have, too.
    let code = &created[1];
    let destination = format!("https://example.org/last/{round}");
    let changed = patch(&mut wire, code, &destination);
    assert_eq!(changed.status, 200, "{changed:?}");
    known.insert(code.clone(), Some(destination));
}

/// Makes one byte of a directory another one. Two places of three lie in the last writes to the journal. Returns the
/// place.
fn flip(dir: &Path, dice: &mut Dice) -> String {
    let (path, at) = if dice.below(3) > 0 {
        let path = newest_journal(dir);
        let bytes = fs::read(&path).unwrap();
        let end = 1 + bytes.iter().rposition(|&byte| byte != 0).expect("a journal that was written to") as u64;
        (path, end - 1 - dice.below(end.min(1_200)))
    } else {
        let all: Vec<PathBuf> = files(dir).into_iter().filter(|path| path.metadata().unwrap().len() > 0).collect();
        let path = all[dice.below(all.len() as u64) as usize].clone();
        let len = path.metadata().unwrap().len();
        (path, dice.below(len))
    };
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    let other = 1 + dice.below(255) as u8;
    file.write_all_at(&[byte[0] ^ other], at).unwrap();
    format!("byte {at} of {}", path.strip_prefix(dir).unwrap().display())
}

fn newest_journal(dir: &Path) -> PathBuf {
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let journals = files(&dir.join("links")).into_iter().filter(|path| path.extension().is_some_and(|it| it == "jnl"));
    journals.max_by_key(number).expect("a store has a journal")
}

/// Links that a node does not serve as clients were told. A redirect to any other destination fails the test.
fn unserved(node: &Node, known: &Acknowledged, place: &str) -> Vec<String> {
    let mut wire = node.wire();
    let mut found = Vec::new();
    for (code, destination) in known {
        let reply = wire.get(&format!("/{code}"));
        match (reply.status, destination) {
            (302, Some(destination)) => assert_eq!(reply.location(), destination, "{code} after {place}"),
            (302, None) => panic!("{code} was deleted and redirects, after {place}"),
            (404 | 410, None) => {}
            (status, _) => found.push(format!("{code}: {status}")),
        }
    }
    found
}

fn places() -> usize {
    std::env::var("CAROM_FLIPS").ok().and_then(|count| count.parse().ok()).unwrap_or(PLACES)
}

/// Flips bytes in copies of the data that `stop` leaves.
fn campaign(stop: impl Fn(Node) -> Setup) {
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice::new();
    let mut known = Acknowledged::new();
    let whole = Setup::new(&folder.path().join("whole"));
    for round in 0..2 {
        let node = whole.start();
        change(&node, round, &mut known);
        stop(node);
    }
    for round in 0..places() {
        // What a damaged file makes a node say is its own business, as long as it neither ends nor says nothing.
        let setup = Setup::new(&folder.path().join(round.to_string())).expect("");
        copy(whole.data_dir(), setup.data_dir());
        let place = flip(setup.data_dir(), &mut dice);
        match setup.start_or_fail() {
            Ok(node) => {
                let missing = unserved(&node, &known, &place);
                let status = node.status();
                let reported = alarms(&status).contains(&"store_damaged");
                assert!(missing.is_empty() || reported, "{place} lost {missing:?} without an alarm:\n{}", node.log());
                assert!(!node.log().contains("panicked"), "{place}:\n{}", node.log());
                node.kill();
            }
            Err((code, log)) => assert!(REFUSALS.contains(&code), "{place}: exit code {code}\n{log}"),
        }
        fs::remove_dir_all(setup.data_dir()).unwrap();
    }
}

#[test]
fn one_byte_after_a_clean_stop() {
    campaign(Node::terminate);
}

#[test]
fn one_byte_after_a_kill() {
    campaign(Node::kill);
}

/// Damages the last link that a node has created.
fn damage_the_last_write(stop: impl Fn(Node) -> Setup) {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path()).expect("damaged");
    let node = setup.start();
    let mut wire = node.wire();
    let first = wire.shorten("https://example.org/first");
    let last = wire.shorten("https://example.org/the-last-one");
    let setup = stop(node);
    let journal = flip_at(&setup, b"https://example.org/the-last-one", 22);
    let before = fs::read(&journal).unwrap();
    let node = setup.start();
    is_reported(&node, &last);
    assert_eq!(node.wire().get(&format!("/{first}")).location(), "https://example.org/first");
    let log = node.log();
    let kept = log.split_once("is kept as ").expect("a log that says where").1;
    let kept = kept.split_whitespace().next().unwrap();
    assert_eq!(fs::read(kept).unwrap(), before, "the damaged journal");
    node.kill();
}

/// A record that is still whole leaves no trace of the damage but this alarm.
#[test]
fn cut_write_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path()).expect("damaged");
    let node = setup.start();
    let code = node.wire().shorten("https://example.org/the-last-one");
    node.kill();
    let journal = newest_journal(setup.data_dir());
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, &bytes[..carom_store::journal::written_len(&bytes) - 8]).unwrap();
    let node = setup.start();
    crate::support::alarms::is_seen(&node, "store_damaged");
    assert!(node.log().contains("at its end were missing"), "{}", node.log());
    assert!(node.log().contains("is kept as "), "{}", node.log());
    assert_eq!(node.wire().get(&format!("/{code}")).location(), "https://example.org/the-last-one");
    node.kill();
}

#[test]
fn last_write_before_a_stop_is_reported() {
    damage_the_last_write(Node::terminate);
}

#[test]
fn last_write_before_a_kill_is_reported() {
    damage_the_last_write(Node::kill);
}
