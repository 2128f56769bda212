//! Expiry: expired links leave memory and store after a delay, at a limited rate, unless their end is moved in time;
//! and their codes return after a delay, to one link only.

use std::collections::HashSet;
use std::process::Command;
use std::time::{Duration, Instant};

use carom_model::formats::dates;
use carom_shards::Code;
use carom_store::links::{EndKind, Index};
use carom_telemetry::clock::unix_ms;
use serde_json::{Value, json};

use crate::support::http::SHORT_URLS;
use crate::support::links::{AT_ONCE, change, create_many, everybody_gets, moved_to, race_removal, wires};
use crate::support::memory::keeping;
use crate::support::node::{CAROM, Dice, Node, Setup, wait_until};
use crate::support::store::open_store;

const TARGET: &str = "https://example.org/target";

/// A node of one core, one of three, and one that has hardly any link in memory: all at once, since they mostly wait.
fn on_every_kind_at_once(check: impl Fn(&Setup) + Sync) {
    let check = |change: fn(Setup) -> Setup| {
        let data = tempfile::tempdir().unwrap();
        check(&change(Setup::new(data.path())));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| check(|setup| setup));
        scope.spawn(|| check(|setup| setup.cores(3)));
        scope.spawn(|| check(|setup| keeping(setup, 512 << 10)));
    });
}

/// An instant that is so many seconds away.
fn in_seconds(seconds: i64) -> String {
    dates::format(unix_ms().saturating_add_signed(seconds * 1_000))
}

fn expired(node: &Node) -> u64 {
    node.status()["expiry"]["expired"].as_u64().expect("a number")
}

/// Imports so many slugs that ended long ago.
fn import_ended(setup: &Setup, count: usize) {
    let ended = |number: usize| {
        let link = json!({"shortCode": format!("s{number}"), "longUrl": TARGET, "dateCreated": "2020-01-01T00:00:00+00:00",
            "validUntil": "2020-01-02T00:00:00+00:00"});
        format!("{link}\n")
    };
    import(setup, &(0..count).map(ended).collect::<String>());
}

fn import(setup: &Setup, lines: &str) {
    let file = setup.data_dir().with_extension("ndjson");
    std::fs::write(&file, lines).unwrap();
    let done = Command::new(CAROM).arg("import").arg("--data-dir").arg(setup.data_dir()).arg(&file).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn expired_link_leaves_memory_and_store() {
    // So long that what may only be done meanwhile is done in time, even if the machine stands still for seconds.
    const KEPT_MS: u64 = 15_000;
    on_every_kind_at_once(|setup| {
        let node = setup.clone().env("CAROM_LINKS_KEEP_EXPIRED", &format!("{}s", KEPT_MS / 1_000)).start();
        let mut wire = node.wire();
        let kept = create_many(&node, &json!({"longUrl": TARGET}), 20);
        let end_ms = (unix_ms() / 1_000 + 4) * 1_000;
        let ending = json!({"longUrl": TARGET, "validUntil": dates::format(end_ms)});
        let gone = create_many(&node, &ending, 300);
        let mut slug = ending;
        slug["customSlug"] = json!("slug");
        wire.create(&slug);
        let path = format!("/{}", gone[0]);
        wait_until("the end", || wire.get(&path).status == 410);
        // Over, and not yet gone: it can be read, and brought back to life.
        assert_eq!(wire.get(&format!("{SHORT_URLS}/{}", gone[0])).json()["shortCode"], json!(gone[0]));
        let revived = change(&mut wire, &gone[1], &json!({"validUntil": in_seconds(1_000)}));
        assert_eq!(revived.status, 200, "{revived:?}");
        assert!(unix_ms() < end_ms + KEPT_MS, "the machine stood still");
        assert_eq!(expired(&node), 0);
        wait_until("the removal", || expired(&node) == 300);
        assert!(unix_ms() >= end_ms + KEPT_MS);
        assert_eq!(wire.get(&format!("{SHORT_URLS}/{}", gone[0])).status, 404);
        assert_eq!(change(&mut wire, &gone[0], &json!({"validUntil": in_seconds(1_000)})).status, 404);
        assert_eq!(everybody_gets(&mut wires(&node), &path), (404, None));
        assert_eq!(everybody_gets(&mut wires(&node), &format!("/{}", gone[1])), moved_to(TARGET));
        wait_until("no link in memory that is gone", || node.status()["links"] == json!(21));
        assert_eq!(&node.status()["expiry"]["waiting"], &json!(0));
        assert_eq!(&node.status()["expiry"]["oldestWaitsSeconds"], &Value::Null);
        // A slug is free again, an issued code is not.
        wire.shorten_as("slug", TARGET);
        let taken = wire.create(&json!({"longUrl": TARGET, "customSlug": gone[0]}));
        assert_eq!(taken.status, 400, "{taken:?}");
        let node = node.restart();
        assert_eq!(everybody_gets(&mut wires(&node), &path), (404, None));
        assert_eq!(everybody_gets(&mut wires(&node), &format!("/{}", kept[0])), moved_to(TARGET));
        assert_eq!(node.status()["links"], json!(22));
        let store = open_store(&node.terminate());
        let ends = store.due(EndKind::Link, None, unix_ms() + 10_000_000, 9).unwrap();
        assert_eq!(ends.iter().map(|due| due.code.to_string()).collect::<Vec<_>>(), [gone[1].clone()]);
        assert_eq!(store.due(EndKind::Quarantine, None, u64::MAX, 9).unwrap(), [], "nobody has asked for codes back");
    });
}

#[test]
fn removals_per_second_are_limited() {
    const LINKS: usize = 1_200;
    const PER_SECOND: u64 = 200;
    on_every_kind_at_once(|setup| {
        import_ended(setup, LINKS);
        let setup = setup.clone().env("CAROM_LINKS_EXPIRE_PER_SECOND", &PER_SECOND.to_string());
        let begin = Instant::now();
        let node = setup.start();
        let (mut killed_at, mut waiting) = (0, 0);
        wait_until("some that are gone", || {
            let status = node.status();
            killed_at = status["expiry"]["expired"].as_u64().unwrap();
            waiting = status["expiry"]["waiting"].as_u64().unwrap();
            killed_at > 100
        });
        assert!(waiting > 0, "{waiting}");
        assert!(waiting < LINKS as u64, "{waiting}");
        let most = |begin: Instant| (begin.elapsed().as_millis() as u64 + 20) * PER_SECOND / 1_000 + 1;
        assert!(killed_at <= most(begin), "{killed_at} in {:?}", begin.elapsed());
        assert!(node.status()["expiry"]["oldestWaitsSeconds"].as_u64().unwrap() > 100_000_000);
        let setup = node.kill();
        let begin = Instant::now();
        let node = setup.start();
        let mut wire = node.wire();
        let mut is_left = |number| wire.get(&format!("/s{number}")).status == 410;
        wait_until("no more that are left", || {
            let expired = expired(&node);
            assert!(expired <= most(begin), "{expired} in {:?}", begin.elapsed());
            !(0..LINKS).any(&mut is_left)
        });
        wait_until("no more that wait", || node.status()["expiry"]["waiting"] == 0);
        assert_eq!(node.status()["links"], 0);
        // Those of the last moment before the kill may go once more, since nobody waits for a sync of that.
        assert!(expired(&node) + killed_at <= LINKS as u64 + 100);
        node.terminate();
    });
}

#[test]
fn extended_link_is_kept() {
    on_every_kind_at_once(|setup| {
        let setup = setup.clone().env("CAROM_LINKS_KEEP_EXPIRED", "1s").env("CAROM_LINKS_EXPIRE_PER_SECOND", "60");
        let node = setup.start();
        let mut wire = node.wire();
        // There is time to create them all, and the changes take about as long as the removals.
        let ending = json!({"longUrl": TARGET, "validUntil": in_seconds(4)});
        let codes = create_many(&node, &ending, 300);
        wait_until("the first removal", || expired(&node) > 0);
        let (kept, gone) = race_removal(&codes, Duration::from_millis(15), |code, _| {
            change(&mut wire, code, &json!({"validUntil": in_seconds(10_000)})).status
        });
        wait_until("the others gone", || expired(&node) == gone.len() as u64);
        let mut node = node;
        for removed in [gone.len() as u64, 0] {
            for (codes, expected) in [(&kept, moved_to(TARGET)), (&gone, (404, None))] {
                let (mut wires, mut wire) = (wires(&node), node.wire());
                codes.iter().for_each(|code| assert_eq!(wire.get(&format!("/{code}")).status, expected.0));
                let some = codes.iter().step_by(20);
                some.for_each(|code| assert_eq!(everybody_gets(&mut wires, &format!("/{code}")), expected));
            }
            assert_eq!(expired(&node), removed, "nothing more has gone");
            node = node.restart();
        }
    });
}

#[test]
fn expiry_before_the_sweep_is_found() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).env("CAROM_LINKS_KEEP_EXPIRED", "1s").start();
    let mut wire = node.wire();
    for round in 0..2 {
        // Each ended earlier than those before, whose ends were passed.
        let ended = json!({"longUrl": TARGET, "validUntil": in_seconds(-1_000 * (round + 1))});
        let code = wire.create(&ended).code();
        wait_until("its removal", || wire.get(&format!("/{code}")).status == 404);
        let code = wire.shorten(TARGET);
        assert_eq!(change(&mut wire, &code, &json!({"validUntil": in_seconds(-1_000_000)})).status, 200);
        wait_until("its removal", || wire.get(&format!("/{code}")).status == 404);
    }
    // They are counted when they are gone.
    wait_until("four that have ended", || expired(&node) == 4);
    node.terminate();
}

#[test]
fn earlier_store_gets_the_index() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let mut wire = node.wire();
    let code = wire.create(&json!({"longUrl": TARGET, "validUntil": in_seconds(-100_000)})).code();
    wire.shorten_as("kept", TARGET);
    wait_until("the removal", || wire.get(&format!("/{code}")).status == 404);
    let recent = wire.create(&json!({"longUrl": TARGET, "validUntil": in_seconds(-10)})).code();
    let setup = node.terminate();
    let store = open_store(&setup);
    store.forget_index(Index::Ends).unwrap();
    drop(store);
    let node = setup.env("CAROM_LINKS_KEEP_EXPIRED", "1s").start();
    assert!(node.log().contains("building the index of expiry dates"), "{}", node.log());
    wait_until("the removal", || node.wire().get(&format!("/{recent}")).status == 404);
    assert_eq!(node.wire().get("/kept").location(), TARGET);
    let node = node.restart();
    assert!(!node.log().contains("building the index of expiry dates"), "once is enough");
    node.terminate();
}

/// A node that gives codes again after two seconds.
fn recycling(data: &std::path::Path) -> Setup {
    Setup::new(data).env("CAROM_LINKS_KEEP_EXPIRED", "1s").env("CAROM_LINKS_RECYCLE_AFTER", "2s")
}

fn recycled(node: &Node) -> u64 {
    node.status()["expiry"]["recycled"].as_u64().expect("a number")
}

#[test]
fn only_expired_codes_are_recycled() {
    let data = tempfile::tempdir().unwrap();
    // So long that the code that is asked for below lies unused until then.
    let node = recycling(data.path()).env("CAROM_LINKS_RECYCLE_AFTER", "6s").start();
    let mut wire = node.wire();
    let deleted = create_many(&node, &json!({"longUrl": TARGET}), 50);
    deleted.iter().for_each(|code| assert_eq!(wire.delete(code).status, 204));
    let begin = Instant::now();
    let ended = json!({"longUrl": TARGET, "validUntil": in_seconds(-100)});
    let codes = create_many(&node, &ended, 400);
    let private = wire.create(&json!({"longUrl": TARGET, "validUntil": in_seconds(-100), "private": true})).code();
    let mut slug = ended;
    slug["customSlug"] = json!("chosen1");
    wire.create(&slug);
    wait_until("the removal", || expired(&node) == 402);
    // A person may not have a code that lies unused; and it lies so for six seconds at least.
    let is_late = || begin.elapsed() >= Duration::from_secs(6);
    let taken = wire.create(&json!({"longUrl": TARGET, "customSlug": codes[7]})).status;
    assert!(taken == 400 || (taken == 200 && is_late()), "{taken}");
    assert!(recycled(&node) == 0 || is_late());
    let mut made: HashSet<String> = (taken == 200).then(|| codes[7].clone()).into_iter().collect();
    wait_until("codes that come back", || recycled(&node) == 400);
    // One of them is chosen by a person before it is given to anybody.
    wire.shorten_as(&codes[0], TARGET);
    made.insert(codes[0].clone());
    let old: HashSet<&String> = codes.iter().collect();
    let fields = json!({"longUrl": TARGET});
    while made.iter().filter(|code| old.contains(code)).count() < 400 {
        for code in create_many(&node, &fields, 2_000) {
            assert!(made.insert(code.clone()), "{code} was given twice");
        }
        assert!(made.len() < 60_000, "they do not come back");
    }
    assert!(deleted.iter().all(|code| !made.contains(code)));
    assert!(!made.contains(&private));
    for code in codes.iter().step_by(20) {
        assert_eq!(wire.get(&format!("/{code}")).location(), TARGET);
    }
    deleted.iter().for_each(|code| assert_eq!(node.wire().get(&format!("/{code}")).status, 404));
    let store = open_store(&node.terminate());
    assert_eq!(store.due(EndKind::Quarantine, None, u64::MAX, 9).unwrap(), []);
    let has = |code: &String| store.get(&Code::parse(code.as_bytes()).unwrap()).unwrap().is_some();
    assert!(deleted.iter().all(has), "their tombstones stay for good");
    assert!(has(&private), "their tombstones stay for good");
}

#[test]
fn full_segment_waits_before_recycling() {
    let data = tempfile::tempdir().unwrap();
    let setup = recycling(data.path()).env("CAROM_LINKS_RECYCLE_AFTER", "4s");
    let line = json!({"longUrl": TARGET, "dateCreated": "2020-01-01T00:00:00Z", "validUntil": "2020-01-02T00:00:00Z"});
    import(&setup, &format!("{line}\n").repeat(10_000));
    let removed_at_first = Instant::now();
    let node = setup.start();
    wait_until("the removal", || expired(&node) == 10_000);
    wait_until("codes that come back", || recycled(&node) == 10_000);
    assert!(removed_at_first.elapsed() >= Duration::from_secs(4), "{:?}", removed_at_first.elapsed());
}

/// Links are made, expire and give their codes back, while the node is killed again and again: no code has two links.
#[test]
fn kills_repeat_no_recycled_code() {
    let data = tempfile::tempdir().unwrap();
    let mut dice = Dice::new();
    let mut setup = recycling(data.path());
    // Codes of links that do not end, and how often each other code was given.
    let (mut lasting, mut given) = (HashSet::new(), HashSet::new());
    let (mut again, mut rounds) = (0, 0);
    while again < 200 {
        rounds += 1;
        assert!(rounds < 40, "{again} codes have come back");
        let node = setup.start();
        // So many that a segment is used up every few rounds.
        for code in create_many(&node, &json!({"longUrl": format!("{TARGET}/lasting")}), 1_000) {
            again += usize::from(given.contains(&code));
            assert!(lasting.insert(code.clone()), "{code} was given twice");
        }
        let ended = json!({"longUrl": format!("{TARGET}/ended"), "validUntil": in_seconds(-100)});
        for code in create_many(&node, &ended, 1_000) {
            assert!(!lasting.contains(&code), "{code} was given twice");
            given.insert(code);
        }
        // Codes that are on their way back are lost with the node. On a slow disk that way is long.
        std::thread::sleep(Duration::from_millis(dice.below(1_000 + 100 * rounds)));
        setup = node.kill();
    }
    let node = setup.start();
    let mut wire = node.wire();
    let lasting: Vec<String> = lasting.into_iter().collect();
    for codes in lasting.chunks(AT_ONCE) {
        wire.send(
            codes.iter().map(|code| format!("GET /{code} HTTP/1.1\r\nHost: a\r\n\r\n")).collect::<String>().as_bytes(),
        );
        codes.iter().for_each(|_| assert_eq!(wire.reply().location(), format!("{TARGET}/lasting")));
    }
    node.terminate();
}
