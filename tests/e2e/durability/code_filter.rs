//! The file of the filters of codes: a node that keeps only the links in use in memory starts without a scan.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use crate::support::http::{Wire, request};
use crate::support::memory::{code, import, import_for, keeping, target};
use crate::support::node::{CAROM, Node, Setup, sum, wait_until};

/// A node with fewer links has no file.
const LINKS: u64 = 101_000;

const FROM_FILE: &str = "filters of codes loaded from their file";

const BUILT: &str = "the filters of codes are built in the background";

/// Requests that are sent before the first answer is read.
const TOGETHER: usize = 64;

fn hot(data: &Path) -> Setup {
    keeping(Setup::new(data), 16 << 20).cores(2).env("CAROM_LOG_LEVEL", "info")
}

fn file_of(data: &Path) -> PathBuf {
    data.join("links.filter")
}

/// Requests links by their numbers, and checks each answer. Of those in `gone`, none redirects.
fn follow(wire: &mut Wire, numbers: impl Iterator<Item = u64>, gone: &[u64]) {
    let numbers: Vec<u64> = numbers.collect();
    for some in numbers.chunks(TOGETHER) {
        let requests = some.iter().flat_map(|&number| request("GET", &format!("/{}", code(number)), "", b""));
        wire.send(&requests.collect::<Vec<u8>>());
        for &number in some {
            let reply = wire.reply();
            if gone.contains(&number) {
                assert_eq!(reply.status, 404, "{number}");
            } else {
                assert_eq!((reply.status, reply.field("location")), (302, Some(target(number).as_str())), "{number}");
            }
        }
    }
}

/// Requests codes that do not exist, and were not requested before. Returns how many of them the node looked for in the
/// store.
fn miss(node: &Node, wire: &mut Wire) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let first = NEXT.fetch_add(1_000, Ordering::Relaxed);
    let before = sum(&node.status(), "/fetches");
    for number in first..first + 1_000 {
        assert_eq!(wire.get(&format!("/missing-{number}")).status, 404, "{number}");
    }
    sum(&node.status(), "/fetches") - before
}

fn delete(wire: &mut Wire, gone: &mut Vec<u64>, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert_eq!(wire.delete(&code(number)).status, 204);
        gone.push(number);
    }
}

#[test]
fn start_reads_file_then_log() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    import(&data, LINKS);
    let (image, mut gone) = (data.join("links.image"), Vec::new());
    assert!(image.exists(), "the import is for a node that keeps all links in memory");
    let node = hot(&data).start();
    assert!(!image.exists(), "this node would not keep it current");
    let mut wire = node.wire();
    // The node serves while the filters are built.
    assert!(node.log().contains(BUILT), "{}", node.log());
    follow(&mut wire, (0..LINKS).step_by(101), &gone);
    assert_eq!(wire.get("/nowhere").status, 404);
    wait_until("the file", || file_of(&data).exists());
    wait_until("filters", || miss(&node, &mut wire) < 100);
    delete(&mut wire, &mut gone, 0..20);
    wire.shorten_as("new-1", "https://example.org/new-1");
    // After a kill and after a clean stop.
    let node = node.kill().start();
    assert!(node.log().contains(FROM_FILE), "{}", node.log());
    let mut wire = node.wire();
    assert!(miss(&node, &mut wire) < 100);
    follow(&mut wire, (0..60).chain((60..LINKS).step_by(11)), &gone);
    assert_eq!(wire.get("/new-1").location(), "https://example.org/new-1");
    delete(&mut wire, &mut gone, 20..40);
    wire.shorten_as("new-2", "https://example.org/new-2");
    let node = node.restart();
    assert!(node.log().contains(FROM_FILE), "{}", node.log());
    let mut wire = node.wire();
    assert!(miss(&node, &mut wire) < 100);
    follow(&mut wire, (0..60).chain((60..LINKS).step_by(97)), &gone);
    assert_eq!(wire.get("/new-2").location(), "https://example.org/new-2");
    // A node that keeps all links in memory has an image instead.
    node.terminate();
    let node = Setup::new(&data).cores(2).start();
    assert!(!file_of(&data).exists());
    follow(&mut node.wire(), (0..60).chain((60..LINKS).step_by(97)), &gone);
}

#[test]
fn damaged_file_denies_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    import(&data, LINKS);
    let node = hot(&data).start();
    wait_until("the file", || file_of(&data).exists());
    let mut setup = node.kill().expect("the filters of codes in");
    let len = fs::metadata(file_of(&data)).unwrap().len();
    // In the header, and among the blocks.
    for at in [100, len / 2, len - 10_000] {
        let file = File::options().read(true).write(true).open(file_of(&data)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        let node = setup.start();
        assert!(node.log().contains("cannot be used"), "{}", node.log());
        let mut wire = node.wire();
        follow(&mut wire, (0..LINKS).step_by(53), &[]);
        wait_until("the file", || file_of(&data).exists());
        wait_until("filters", || miss(&node, &mut wire) < 100);
        follow(&mut wire, (1..LINKS).step_by(53), &[]);
        setup = node.kill();
    }
    let node = setup.start();
    assert!(node.log().contains(FROM_FILE), "{}", node.log());
}

#[test]
fn import_writes_file() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let settings = [("CAROM_LINKS_RESIDENCY", "hot"), ("CAROM_LINKS_MEMORY_LIMIT", "16777216"), ("CAROM_CORES", "2")];
    import_for(&settings, &data, LINKS);
    let node = hot(&data).start();
    assert!(node.log().contains(FROM_FILE), "{}", node.log());
    let mut wire = node.wire();
    assert!(miss(&node, &mut wire) < 100);
    follow(&mut wire, (0..LINKS).step_by(101), &[]);
}

#[test]
fn import_outdates_file() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    import(&data, LINKS);
    let node = hot(&data).start();
    wait_until("the file", || file_of(&data).exists());
    let setup = node.terminate();
    let file = folder.path().join("more.ndjson");
    let line = json!({"shortCode": "imported", "longUrl": "https://example.org/imported"});
    fs::write(&file, format!("{line}\n")).unwrap();
    let imported = Command::new(CAROM).arg("import").arg("--data-dir").arg(&data).arg(&file).status().unwrap();
    assert!(imported.success());
    let node = setup.start();
    assert!(node.log().contains(BUILT), "{}", node.log());
    let mut wire = node.wire();
    assert_eq!(wire.get("/imported").location(), "https://example.org/imported");
    wait_until("filters", || miss(&node, &mut wire) < 100);
    assert_eq!(wire.get("/imported").location(), "https://example.org/imported");
    // With another number of cores, codes have other owners.
    let node = node.terminate().cores(1).start();
    assert!(node.log().contains(BUILT), "{}", node.log());
    let mut wire = node.wire();
    wait_until("filters", || miss(&node, &mut wire) < 100);
    follow(&mut wire, (0..LINKS).step_by(89), &[]);
    assert_eq!(wire.get("/imported").location(), "https://example.org/imported");
}
