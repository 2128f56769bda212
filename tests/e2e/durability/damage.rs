//! Full disks and damaged data: redirects continue, writes are refused with a reason, and damage is reported and never
//! served as another link.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::alarms::alarms;
use crate::support::http::{SHORT_URLS, Wire, replies, request};
use crate::support::node::{Dice, Node, Setup, wait_for, wait_until};
use crate::support::store::{
    TARGET, copy, files, fill_disk, fill_tables, flip_at, is_reported, open_store, parse, tables,
};

/// Fills a file until the disk is full: all but `left` bytes of it, then `between`, and the rest at once.
fn fill(path: &Path, left: u64, between: impl FnOnce()) {
    let (file, mut at) = fill_disk(path, left);
    between();
    let piece = vec![1; 64 * 1024];
    while file.write_all_at(&piece, at).is_ok() {
        at += piece.len() as u64;
    }
}

#[test]
fn full_disk_stops_writes_not_redirects() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let mount = format!("mount -t tmpfs -o size=192m tmpfs {data}; exec \"$@\"");
    let node = Setup::new(folder.path()).cores(2).unshared(&mount).expect("alarm=\"disk_full\"").start();
    let mut wire = node.wire();
    wire.shorten_as("before", TARGET);
    // The mount is the node's own; its process leads to it.
    let inside = PathBuf::from(format!("/proc/{}/root{data}", node.pid()));
    for round in 0..2 {
        // The node may have found room just before. It must look again.
        fill(&inside.join("ballast"), 40 << 20, || drop(wire.shorten(TARGET)));
        let refused = wait_for("a refusal", || {
            let reply = wire.create(&json!({"longUrl": TARGET}));
            (reply.status != 200).then_some(reply)
        });
        let problem = refused.problem(503, ":unavailable");
        assert!(problem["detail"].as_str().unwrap().contains("the disk is full"), "{problem}");
        assert!(refused.field("retry-after").is_some());
        let not_deleted = wire.delete("before").problem(503, ":unavailable");
        assert!(not_deleted["detail"].as_str().unwrap().contains("Nothing was changed"), "{not_deleted}");
        for _ in 0..50 {
            assert_eq!(node.wire().get("/before").location(), TARGET);
        }
        let status = node.status();
        assert_eq!(&status["store"]["writable"], &json!(false));
        assert_eq!(alarms(&status), vec!["disk_full"]);
        crate::support::alarms::is_seen(&node, "disk_full");
        assert_eq!(wire.get(&format!("{SHORT_URLS}/before")).status, 200);
        std::fs::remove_file(inside.join("ballast")).unwrap();
        wait_until("a store that is writable again", || node.status()["store"]["writable"] == json!(true));
        wire.shorten_as(&format!("after-{round}"), TARGET);
        assert_eq!(wire.get(&format!("/after-{round}")).location(), TARGET);
        assert_eq!(alarms(&node.status()), Vec::<&str>::new());
    }
    node.terminate();
}

/// Makes links and ends the node. Returns what they lead to.
fn make_links(setup: &Setup, count: usize) -> BTreeMap<String, String> {
    let node = setup.start();
    let mut wire = node.wire();
    let links = (0..count).map(|at| {
        let target = format!("{TARGET}/{at:06}");
        (wire.shorten(&target), target)
    });
    let links = links.collect();
    node.terminate();
    links
}

/// Returns each code that does not redirect to its own target, with its status. Fails on a redirect to any other
/// target.
fn not_followed(node: &Node, links: &BTreeMap<String, String>) -> BTreeMap<String, u16> {
    let mut missing = BTreeMap::new();
    let codes: Vec<(&String, &String)> = links.iter().collect();
    let mut wire = node.wire();
    for codes in codes.chunks(64) {
        wire.send(
            &codes.iter().flat_map(|(code, _)| request("GET", &format!("/{code}"), "", b"")).collect::<Vec<u8>>(),
        );
        for (code, target) in codes {
            let reply = wire.reply();
            match reply.status {
                302 => assert_eq!(reply.location(), target.as_str(), "{code} leads to another link's target"),
                status => _ = missing.insert((*code).clone(), status),
            }
        }
    }
    missing
}

#[test]
fn damaged_record_is_named_and_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path()).cores(2).expect("a stored record is damaged").expect("store_damaged");
    let links = make_links(&setup, 200);
    let codes: Vec<&String> = links.keys().collect();
    let store = open_store(&setup);
    let record = |code: &str| store.get(&parse(code)).unwrap().expect("it was made").to_vec();
    let mut flipped = record(codes[20]);
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    let mut batch = store.batch();
    // A flipped bit, the whole record of another code, half a record, nothing, and a version that is not known.
    batch.put(&parse(codes[20]), &flipped);
    batch.put(&parse(codes[40]), &record(codes[41]));
    batch.put(&parse(codes[60]), &record(codes[60])[..30]);
    batch.put(&parse(codes[80]), b"");
    batch.put(&parse(codes[100]), &[&[99][..], &record(codes[100])[1..]].concat());
    store.commit(batch).unwrap();
    store.sync().unwrap();
    drop(store);
    let damaged: Vec<&String> = [20, 40, 60, 80, 100].map(|at| codes[at]).to_vec();
    let node = setup.start();
    let found = not_followed(&node, &links);
    assert_eq!(found.keys().collect::<Vec<_>>(), damaged);
    for code in &damaged {
        is_reported(&node, code);
    }
    assert_eq!(node.status()["store"]["damaged"].as_u64(), node.status()["cache"]["error"].as_u64());
    // It is no better, and no worse, after the next start.
    let node = node.restart();
    assert_eq!(not_followed(&node, &links), found);
    node.terminate();
}

#[test]
fn flipped_journal_bits_cost_one_link() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path()).cores(2);
    let links = make_links(&setup, 300);
    let (code, target) = links.iter().nth(150).expect("there are more");
    let file = flip_at(&setup, target.as_bytes(), 10);
    assert_eq!(file.extension().and_then(|it| it.to_str()), Some("jnl"));
    let setup = setup.expect("damaged");
    let node = setup.start();
    let missing = not_followed(&node, &links);
    assert_eq!(missing.keys().collect::<Vec<_>>(), [code]);
    is_reported(&node, code);
    node.terminate();
}

#[test]
fn flipped_bits_never_serve_another_link() {
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice::new();
    let whole = Setup::new(&folder.path().join("whole")).cores(2);
    let links = make_links(&whole, 200);
    for round in 0..12 {
        let setup = Setup::new(&folder.path().join(round.to_string())).cores(2);
        let setup = setup.expect("damaged");
        copy(whole.data_dir(), setup.data_dir());
        let journal = setup.data_dir().join("links/0.jnl");
        let held = std::fs::read(&journal).unwrap();
        let len = 1 + held.iter().rposition(|&byte| byte != 0).expect("a journal with links");
        let file = File::options().write(true).open(&journal).unwrap();
        for _ in 0..3 {
            let at = dice.below(len as u64);
            file.write_all_at(&[held[at as usize] ^ 1 << dice.below(8)], at).unwrap();
        }
        drop(file);
        let node = setup.start();
        let missing = not_followed(&node, &links);
        assert!(missing.len() <= 3, "three bits cost {} links", missing.len());
        // What can be followed is in lists, though its entry there was in the same broken commit.
        let listed = node.wire().get("/rest/v3/short-urls?itemsPerPage=500").json();
        let listed =
            listed["shortUrls"]["data"].as_array().unwrap().iter().map(|link| link["shortCode"].as_str().unwrap());
        let listed: std::collections::BTreeSet<&str> = listed.collect();
        let unlisted = links.keys().filter(|code| !missing.contains_key(*code) && !listed.contains(code.as_str()));
        assert_eq!(unlisted.collect::<Vec<_>>(), Vec::<&String>::new());
        // Which code it was is not known where the flipped bit lies in the code itself or in a length.
        assert!(missing.is_empty() || node.log().contains("was damaged in"), "lost without a word:\n{}", node.log());
        for code in missing.iter().filter(|(_, status)| **status == 500).map(|(code, _)| code) {
            assert!(node.log().contains(code.as_str()), "{code} is not named:\n{}", node.log());
        }
        node.kill();
    }
}

/// The pairs of codes between which the log says that records cannot be read.
fn named_ranges(log: &str) -> Vec<(String, String)> {
    let lines = log.lines().filter(|line| line.contains("records cannot be read"));
    let range = |line: &str| {
        let rest = line.split_once("codes after ").expect("a range").1;
        let (after, rest) = rest.split_once(' ').expect("more words");
        let before = rest.strip_prefix("and before ").map_or("~", |rest| rest.split(' ').next().expect("a code"));
        (after.to_owned(), before.to_owned())
    };
    lines.map(range).collect()
}

#[test]
fn flipped_table_bit_costs_one_block() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path()).cores(2);
    setup.start().terminate();
    let links = fill_tables(&setup, 24_000);
    let mut dice = Dice::new();
    let table = tables(&setup).remove(0);
    let len = table.metadata().unwrap().len();
    let file = File::options().read(true).write(true).open(&table).unwrap();
    for third in 0..3 {
        // Among the data, which is nearly all of it; the index stands at the end.
        let at = len / 4 * (third + 1) - dice.below(len / 8);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    }
    let setup = setup.expect("a block of the store is damaged").expect("store_damaged");
    // Where only the links in use are in memory, the damage is met when a link is read, too.
    let hot = crate::support::memory::keeping(setup.clone(), 8 << 20).expect("a stored record is damaged").start();
    let missing = not_followed(&hot, &links);
    assert!(missing.values().all(|&status| status == 500), "{missing:?}");
    hot.terminate();
    let node = setup.start();
    assert_eq!(not_followed(&node, &links), missing);
    let ranges = named_ranges(&node.log());
    // A block of 16 KiB holds eight of these.
    assert!((1..=3 * 9).contains(&missing.len()), "three bits cost {} links", missing.len());
    let mut wire = node.wire();
    for code in missing.keys() {
        assert!(ranges.iter().any(|(after, before)| after < code && code < before), "{code} is in none of {ranges:?}");
        wire.get(&format!("{SHORT_URLS}/{code}")).problem(500, ":damaged-record");
        wire.create(&json!({"longUrl": TARGET, "customSlug": code})).problem(400, "/non-unique-slug");
    }
    assert_eq!(alarms(&node.status()), ["store_damaged"]);
    node.terminate();
}

/// Every code that a node gives out for so many links.
fn issue(node: &Node, count: usize) -> Vec<String> {
    let mut wire: Wire = node.wire();
    (0..count).map(|at| wire.shorten(&format!("{TARGET}/{at}"))).collect()
}

#[test]
fn lost_id_table_repeats_no_code() {
    let folder = tempfile::tempdir().unwrap();
    const KEPT: usize = 10;
    let mut setup = Setup::new(folder.path()).cores(2);
    let mut given = Vec::new();
    for round in 0..4 {
        let node = setup.start();
        let codes = issue(&node, 200);
        // Codes of deleted links are not free again either, and nothing but their tombstones would show it.
        let mut wire = node.wire();
        codes.iter().skip(KEPT).for_each(|code| assert_eq!(wire.delete(code).status, 204));
        given.extend(codes);
        setup = if round % 2 == 0 { node.kill() } else { node.terminate() };
        match round {
            0 => std::fs::remove_dir_all(folder.path().join("ids")).unwrap(),
            _ => {
                for file in files(&folder.path().join("ids")) {
                    std::fs::write(file, b"this is no table").unwrap();
                }
                setup = setup.expect("code table");
            }
        }
    }
    let node = setup.start();
    given.extend(issue(&node, 200));
    let mut unique = given.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), given.len(), "a code was given twice");
    let mut wire = node.wire();
    wire.send(&given.iter().flat_map(|code| request("GET", &format!("/{code}"), "", b"")).collect::<Vec<u8>>());
    wire.end_sending();
    let deleted = replies(&wire.read_to_end()).iter().filter(|reply| reply.status == 404).count();
    assert_eq!(deleted, 4 * (200 - KEPT));
    node.terminate();
}
