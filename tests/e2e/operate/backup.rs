//! Backups: of a node under load, verified, restored, and refused if one byte has changed.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::api_client;
use crate::support::cli_user::{carom, done, text};
use crate::support::http::{SHORT_URLS, Wire, create_request};
use crate::support::node::{Node, Setup, sum, wait_for, wait_until};
use crate::support::stop::StopOnDrop;

const TARGET: &str = "https://example.org/";

fn backup(from: &Setup, to: &Path) -> String {
    done(&["backup", text(to), "--data-dir", text(from.data_dir())])
}

fn restore(from: &Path, to: &Path) -> Setup {
    let said = done(&["restore", text(from), "--data-dir", text(to)]);
    assert!(said.contains("restored "), "{said}");
    Setup::new(to)
}

/// The codes of so many new links.
fn many(node: &Node, count: usize) -> BTreeSet<String> {
    let lines: String =
        (0..count).map(|number| json!({"longUrl": format!("{TARGET}{number}")}).to_string() + "\n").collect();
    let reply = node.wire().ask(
        "POST",
        &format!("{SHORT_URLS}/bulk"),
        "Content-Type: application/x-ndjson\r\n",
        lines.as_bytes(),
    );
    let codes: BTreeSet<String> = reply
        .text()
        .lines()
        .filter_map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["shortUrl"]["shortCode"].as_str().map(str::to_owned)
        })
        .collect();
    assert_eq!(codes.len(), count);
    codes
}

#[test]
fn live_backup_restores_acknowledged_links() {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup::new(&dir.path().join("data")).cores(cores);
        let node = setup.start();
        many(&node, 5_000);
        node.wire().shorten_as("counted", TARGET);
        let mut wire = node.wire();
        (0..7).for_each(|_| assert_eq!(wire.get("/counted").status, 302));
        drop(wire);
        let (acknowledged, is_over) = (Mutex::new(HashMap::new()), AtomicBool::new(false));
        let copy = dir.path().join("backup");
        let before = std::thread::scope(|scope| {
            let stop = StopOnDrop(&is_over);
            for thread in 0..3 {
                let (node, acknowledged, is_over) = (&node, &acknowledged, &is_over);
                scope.spawn(move || {
                    let mut wire = node.wire();
                    for number in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        let target = format!("{TARGET}{thread}/{number}");
                        wire.send(&create_request(
                            &json!({"longUrl": target, "tags": ["some"], "validUntil": "2090-01-01T00:00:00Z"}),
                        ));
                        let code = wire.reply().code().to_owned();
                        acknowledged.lock().unwrap().insert(code, target);
                    }
                });
            }
            wait_until("some links", || acknowledged.lock().unwrap().len() > 100);
            let before = acknowledged.lock().unwrap().clone();
            let said = backup(&setup, &copy);
            assert!(said.contains("backed up "), "{said}");
            let after = before.len();
            wait_until("writes that go on", || acknowledged.lock().unwrap().len() > after + 50);
            drop(stop);
            before
        });
        // What the node gives out after the backup is known to nobody who has the backup alone.
        let lost = many(&node, 30_000);
        node.terminate();
        done(&["verify", text(&copy)]);
        done(&["verify", text(setup.data_dir())]);

        let new = restore(&copy, &dir.path().join("restored")).cores(cores);
        done(&["verify", text(new.data_dir())]);
        let node = new.start();
        assert!(sum(&node.status(), "/links") >= 5_001 + before.len() as u64);
        let mut wire = node.wire();
        for (code, target) in &before {
            assert_eq!(wire.get(&format!("/{code}")).location(), target);
        }
        assert_eq!(wire.get("/counted").location(), TARGET);
        let again = many(&node, 30_000);
        assert_eq!(again.intersection(&lost).count(), 0, "a code was given out twice");
        // It can be searched, and it ends: the indexes came along.
        let total = wait_for("a search that is counted", || {
            let found = wire.get(&format!("{SHORT_URLS}?tags[]=some&itemsPerPage=1"));
            found.json()["shortUrls"]["pagination"]["totalItems"].as_u64()
        });
        assert!(total >= before.len() as u64, "{total}");
        drop(wire);
        node.terminate();
    }
}

#[test]
fn keys_and_visits_are_private_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let node = setup.start();
    node.wire().shorten_as("kept", TARGET);
    (0..5).for_each(|_| assert_eq!(node.wire().get("/kept").status, 302));
    // Counts are in the store when the node has ended.
    let setup = node.terminate();
    let key = api_client::new_key(&setup, "shop", "write-all");
    // Without a node, this time.
    let copy = dir.path().join("deep/backup");
    backup(&setup, &copy);
    for entry in fs::read_dir(&copy).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{entry:?}");
    }
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o077, 0);
    assert_eq!(fs::read(copy.join("space.key")).unwrap(), fs::read(setup.data_dir().join("space.key")).unwrap());
    let restored = restore(&copy, &dir.path().join("restored"));
    let node = restored.start();
    let mut caller = api_client::ApiClient::new(&node, &key);
    assert_eq!(node.wire().get(SHORT_URLS).status, 401);
    let link = caller.get(&format!("{SHORT_URLS}/kept")).json();
    assert_eq!(&link["longUrl"], &json!(TARGET), "{link}");
    assert_eq!(link["visitsSummary"]["total"].as_u64(), Some(5), "{link}");
    assert_eq!(sum(&node.status(), "/links"), 1);
    drop(caller);
    node.terminate();
}

/// The instants of the visits of a link, newest first.
fn logged(node: &Node, slug: &str) -> Vec<Value> {
    let visits = node.wire().get(&format!("{SHORT_URLS}/{slug}/visits")).json()["visits"].clone();
    assert_eq!(visits["pagination"]["complete"], true, "{visits}");
    visits["data"].as_array().unwrap().iter().map(|visit| visit["date"].clone()).collect()
}

#[test]
fn logged_visits_are_in_backups() {
    let dir = tempfile::tempdir().unwrap();
    let logging = |setup: Setup| setup.env("CAROM_VISITS_LOG", "on");
    let setup = logging(Setup::new(&dir.path().join("data")));
    let node = setup.start();
    node.wire().shorten_as("kept", TARGET);
    let follow = || (0..5).for_each(|_| assert_eq!(node.wire().get("/kept").status, 302));
    follow();
    // A visit is logged a moment after its redirect.
    wait_until("the first visits", || logged(&node, "kept").len() == 5);
    // A deletion of orphan visits seals the segment, so that the log has two kinds of files.
    assert_eq!(node.wire().ask("DELETE", "/rest/v3/visits/orphan", "", b"").status, 200);
    let log = setup.data_dir().join("visit-log");
    let has = |kind: &str| {
        fs::read_dir(&log).unwrap().any(|file| {
            let file = file.unwrap();
            file.file_name().to_str().unwrap().starts_with(kind) && file.metadata().is_ok_and(|file| file.len() > 0)
        })
    };
    wait_until("a sealed segment", || has("segment-") && !has("active-"));
    follow();
    wait_until("visits in the active segment", || has("active-"));
    wait_until("all visits", || logged(&node, "kept").len() == 10);
    let before = logged(&node, "kept");
    let copies = [dir.path().join("live"), dir.path().join("stopped")];
    backup(&setup, &copies[0]);
    node.terminate();
    backup(&setup, &copies[1]);
    for (number, copy) in copies.iter().enumerate() {
        done(&["verify", text(copy)]);
        let restored = logging(restore(copy, &dir.path().join(format!("restored{number}"))));
        let node = restored.start();
        assert_eq!(logged(&node, "kept"), before);
        node.terminate();
    }
}

#[test]
fn changed_byte_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let node = setup.start();
    many(&node, 3_000);
    node.terminate();
    let copy = dir.path().join("backup");
    backup(&setup, &copy);
    done(&["verify", text(&copy)]);
    for name in ["backup.json", "space.key", "store.carom"] {
        let path = copy.join(name);
        let good = fs::read(&path).unwrap();
        let places = [0, 20, good.len() / 3, good.len() / 2, good.len() - 1];
        for at in places {
            let mut bad = good.clone();
            let at = at.min(bad.len() - 1);
            bad[at] ^= 0x10;
            fs::write(&path, &bad).unwrap();
            let (code, said) = carom(&["verify", text(&copy)]);
            assert_eq!(code, 18, "{name} {at}: {code} {said}");
            assert!(said.contains(&format!("{name}: ")), "{name} {at}: {code} {said}");
            if name == "store.carom" {
                assert!(said.contains("at byte "), "{said}");
            }
            let new = dir.path().join("new");
            let (code, said) = carom(&["restore", text(&copy), "--data-dir", text(&new)]);
            assert_eq!(code, 18, "{said}");
            assert!(said.contains(name), "{said}");
            assert!(!new.join("links").exists());
            assert!(!new.join("space.key").exists());
        }
        fs::write(&path, &good[..good.len() - 1]).unwrap();
        assert_eq!(carom(&["verify", text(&copy)]).0, 18, "{name} cut off");
        fs::remove_file(&path).unwrap();
        let (code, said) = carom(&["verify", text(&copy)]);
        assert_eq!(code, 18, "{said}");
        assert!(said.contains(name), "{said}");
        fs::write(&path, &good).unwrap();
    }
    done(&["verify", text(&copy)]);
}

#[test]
fn existing_data_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let node = setup.start();
    node.wire().shorten_as("kept", TARGET);
    let copy = dir.path().join("backup");
    backup(&setup, &copy);
    let refused = |arguments: &[&str], expected: i32, words: &str| {
        let (code, said) = carom(arguments);
        assert!(code == expected, "{arguments:?}: {code} {said}");
        assert!(said.contains(words), "{arguments:?}: {code} {said}");
    };
    let data = text(setup.data_dir());
    refused(&["backup", text(&copy), "--data-dir", data], 2, "is not empty");
    refused(&["backup", text(&dir.path().join("other")), "--data-dir", text(dir.path())], 2, "contains no links");
    assert!(!dir.path().join("other").exists());
    refused(&["verify", text(dir.path())], 2, "neither a backup nor a data directory");
    refused(&["verify", data], 15, "in use");
    refused(&["restore", text(&copy), "--data-dir", data], 15, "in use");
    let setup = node.terminate();
    refused(&["restore", text(&copy), "--data-dir", data], 2, "already exists");
    // What is somebody else's stays.
    let other = dir.path().join("other");
    fs::create_dir_all(other.join("visits")).unwrap();
    fs::write(other.join("visits/of-somebody"), "x").unwrap();
    refused(&["restore", text(&copy), "--data-dir", text(&other)], 2, "already exists");
    assert_eq!(fs::read(other.join("visits/of-somebody")).unwrap(), b"x");
    // A socket that nobody listens at any more is no obstacle.
    fs::write(setup.data_dir().join("control.sock"), "").unwrap();
    let node = setup.start();
    assert_eq!(node.wire().get("/kept").location(), TARGET);
    backup(&setup, &dir.path().join("another"));
    // Somebody who asks for something else, or for nothing, is no trouble.
    for question in ["", "restore\n", "backup"] {
        let mut stream = std::os::unix::net::UnixStream::connect(setup.data_dir().join("control.sock")).unwrap();
        std::io::Write::write_all(&mut stream, question.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    }
    assert_eq!(Wire::open(node.public).get("/kept").status, 302);
    node.terminate();
}

#[test]
fn restore_reports_keys_valid_again() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let shop = api_client::new_key(&setup, "shop", "read");
    api_client::new_key(&setup, "other", "read");
    let copy = dir.path().join("backup");
    setup.start().terminate();
    backup(&setup, &copy);
    let manifest = fs::read_to_string(copy.join("backup.json")).unwrap();
    let manifest: Value = serde_json::from_str(manifest.lines().next().unwrap()).unwrap();
    let taken = carom_model::formats::dates::format(manifest["takenMillis"].as_u64().expect("the time of the backup"));
    api_client::run_app(&setup, &["revoke", "shop"]);
    // The keys of the backup are valid, and the command says so.
    let new = dir.path().join("new");
    let said = done(&["restore", text(&copy), "--data-dir", text(&new)]);
    for part in [
        "restored 2 valid API keys",
        &format!("including any that were revoked after {taken}"),
        "carom app list",
        "--revoke-keys",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let node = Setup::new(&new).start();
    assert!(api_client::ApiClient::new(&node, &shop).is_known(&node));
    node.terminate();
    // With the flag, none is, and a key is still asked for.
    let safe = dir.path().join("safe");
    let said = done(&["restore", text(&copy), "--revoke-keys", "--data-dir", text(&safe)]);
    assert!(said.contains("revoked 2 valid API keys of the backup"), "{said}");
    let node = Setup::new(&safe).start();
    assert!(!api_client::ApiClient::new(&node, &shop).is_known(&node));
    node.wire().get(SHORT_URLS).problem(401, "/missing-authentication");
    node.terminate();
}

/// The time of the last backup and the free bytes of the disk, as the metrics have them. The status agrees.
fn reported(node: &Node) -> (u64, u64) {
    let text = Wire::open(node.admin).get("/metrics").text().to_owned();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}")).parse::<f64>().expect("a number") as u64
    };
    let size = value("carom_data_dir_size_bytes");
    let free = value("carom_data_dir_free_bytes");
    assert!(free <= size, "{free} of {size}");
    (value("carom_last_backup_timestamp_seconds"), free)
}

#[test]
fn last_backup_and_disk_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let node = setup.start();
    wait_until("a look at the disk", || reported(&node).1 > 0);
    assert_eq!(reported(&node).0, 0);
    assert_eq!(node.status()["dataDir"]["lastBackup"], Value::Null);
    // A backup that fails leaves no time of a last backup.
    let copy = dir.path().join("first");
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("of-somebody"), "x").unwrap();
    assert_eq!(carom(&["backup", text(&copy), "--data-dir", text(setup.data_dir())]).0, 2);
    assert!(!setup.data_dir().join("last-backup").exists());
    fs::remove_file(copy.join("of-somebody")).unwrap();
    let before = carom_telemetry::clock::unix_ms() / 1_000;
    backup(&setup, &copy);
    wait_until("the time of the backup", || reported(&node).0 >= before);
    let first = reported(&node).0;
    let manifest = fs::read_to_string(copy.join("backup.json")).unwrap();
    let manifest: Value = serde_json::from_str(manifest.lines().next().unwrap()).unwrap();
    assert_eq!(first, manifest["takenMillis"].as_u64().unwrap() / 1_000);
    assert_eq!(node.status()["dataDir"]["lastBackup"], manifest["taken"]);
    // A restart keeps it, and one of a stopped node counts as well.
    let setup = node.terminate();
    wait_until("a later second", || carom_telemetry::clock::unix_ms() / 1_000 > first);
    let node = setup.start();
    wait_until("the time that was kept", || reported(&node).0 == first);
    let setup = node.terminate();
    backup(&setup, &dir.path().join("second"));
    let node = setup.start();
    wait_until("the time of the second backup", || reported(&node).0 > first);
    node.terminate();
}

/// Backs up in a second of its own, as the name of the backup has no smaller unit.
fn backup_and_keep(setup: &Setup, dir: &Path, keep: &str) -> (i32, String) {
    let second = || carom_telemetry::clock::unix_ms() / 1_000;
    let begun = second();
    wait_until("the next second", || second() > begun);
    carom(&["backup", "--keep", keep, text(dir), "--data-dir", text(setup.data_dir())])
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn keep_removes_the_oldest_backups_only() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let node = setup.start();
    node.wire().shorten_as("kept", TARGET);
    let all = dir.path().join("all");
    for _ in 0..2 {
        let (code, said) = backup_and_keep(&setup, &all, "2");
        assert_eq!(code, 0, "{said}");
        assert!(!said.contains("removed"), "{said}");
    }
    let first = names(&all);
    assert_eq!(first.len(), 2, "{first:?}");
    assert_eq!(fs::metadata(all.join(&first[0])).unwrap().permissions().mode() & 0o077, 0);
    // These look old, but nobody knows what they are.
    fs::create_dir(all.join("2020-01-31T030500Z")).unwrap();
    fs::create_dir(all.join("before-the-upgrade")).unwrap();
    fs::copy(all.join(&first[0]).join("backup.json"), all.join("before-the-upgrade/backup.json")).unwrap();
    let node = node.terminate();
    let (code, said) = backup_and_keep(&node, &all, "2");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(&format!("removed the old backup {}", all.join(&first[0]).display())), "{said}");
    let left = names(&all);
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(left.contains(&first[1]), "{left:?}");
    assert!(!left.contains(&first[0]), "{left:?}");
    let newest = left.iter().rfind(|name| name.ends_with('Z')).unwrap();
    done(&["verify", text(&all.join(newest))]);
    restore(&all.join(newest), &dir.path().join("restored"));
    // A single backup is no place for others, and neither is the data directory.
    for odd in [all.join(newest), setup.data_dir().to_owned(), setup.data_dir().join("backups")] {
        let (code, said) = backup_and_keep(&setup, &odd, "1");
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("with --keep, pass a directory that contains only dated backups"), "{said}");
    }
    assert_eq!(backup_and_keep(&setup, &all, "0").0, 2);
    assert_eq!(names(&all), left);
}

#[test]
fn truncated_backup_takes_no_place() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let node = setup.start();
    node.wire().shorten_as("kept", TARGET);
    let node = node.terminate();
    let all = dir.path().join("all");
    for _ in 0..2 {
        assert_eq!(backup_and_keep(&node, &all, "9").0, 0);
    }
    let [whole, broken]: [String; 2] = names(&all).try_into().unwrap();
    let store = all.join(&broken).join("store.carom");
    let bytes = fs::read(&store).unwrap();
    fs::write(&store, &bytes[..bytes.len() / 2]).unwrap();
    let (code, said) = backup_and_keep(&node, &all, "2");
    assert_eq!(code, 0, "{said}");
    let broken_path = all.join(&broken);
    assert!(said.contains(&format!("{} is broken and does not count", broken_path.display())), "{said}");
    assert!(said.contains("store.carom: has "), "{said}");
    assert!(!said.contains("removed the old backup"), "{said}");
    let left = names(&all);
    assert!(left.len() == 3, "{left:?}");
    assert!(left.contains(&whole), "{left:?}");
    assert!(left.contains(&broken), "{left:?}");
    done(&["verify", text(&all.join(&whole))]);
}

#[test]
fn one_of_several_backups_at_once_wins() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let node = setup.start();
    many(&node, 3_000);
    for round in 0..5 {
        let copy = dir.path().join(format!("backup{round}"));
        let ran: Vec<(i32, String)> = std::thread::scope(|scope| {
            let one = || scope.spawn(|| carom(&["backup", text(&copy), "--data-dir", text(setup.data_dir())]));
            let threads: Vec<_> = (0..4).map(|_| one()).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(ran.iter().filter(|(code, _)| *code == 0).count(), 1, "{ran:?}");
        for (code, said) in ran.iter().filter(|(code, _)| *code != 0) {
            let is_clear = said.contains("another `carom backup` is writing to") || said.contains("is not empty");
            assert!(*code == 2, "{code} {said}");
            assert!(is_clear, "{code} {said}");
        }
        done(&["verify", text(&copy)]);
    }
    node.terminate();
}

#[test]
fn place_of_a_running_backup_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    setup.start().terminate();
    let copy = dir.path().join("backup");
    fs::create_dir(&copy).unwrap();
    let store = fs::File::create_new(copy.join("store.carom")).unwrap();
    store.lock().unwrap();
    let (code, said) = carom(&["backup", text(&copy), "--data-dir", text(setup.data_dir())]);
    assert!(code == 2, "{code} {said}");
    assert!(said.contains("another `carom backup` is writing to"), "{code} {said}");
    assert_eq!(names(&copy), ["store.carom"]);
}
