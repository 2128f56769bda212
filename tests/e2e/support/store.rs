//! The store of a stopped node: opened, filled, copied and damaged.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use carom_model::link::labels::LinkLabels;
use carom_model::link::{Link, Origin, Version};
use carom_shards::{Code, CodeSecret, Policy};
use carom_store::links::Links;
use serde_json::json;

use crate::support::alarms::alarms;
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, Setup, wait_until};

pub(crate) const TARGET: &str = "https://example.org/target";

/// Creates a file that takes all space of its disk but `left` bytes. Returns it with its length.
pub(crate) fn fill_disk(path: &Path, left: u64) -> (File, u64) {
    let file = File::create(path).expect("the disk can be reached");
    let stat = rustix::fs::fstatvfs(&file).expect("the disk tells its space");
    let most = (stat.f_bavail * stat.f_frsize).saturating_sub(left);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, most).expect("there was that much space");
    (file, most)
}

pub(crate) fn parse(code: &str) -> Code {
    Code::parse(code.as_bytes()).expect("a code")
}

/// Checks that a code is answered as damaged on every way, that the log and the status name it, and that it is not
/// given to anybody else.
pub(crate) fn is_reported(node: &Node, code: &str) {
    let is_named = |line: &str| line.contains("ERROR") && line.contains(code);
    wait_until("a log that names the code", || node.log().lines().any(is_named));
    let mut wire = node.wire();
    for accept in ["", "Accept: text/html\r\n"] {
        let page = wire.ask("GET", &format!("/{code}"), accept, b"");
        assert_eq!(page.status, 500, "{page:?}");
        assert!(!page.text().contains(code), "an echo");
    }
    let problem = wire.get(&format!("{SHORT_URLS}/{code}")).problem(500, ":damaged-record");
    assert_eq!(problem["shortCode"], json!(code));
    assert_eq!(wire.get(&format!("/{code}")).status, 500, "over a connection that hyper drives");
    wire.create(&json!({"longUrl": TARGET, "customSlug": code})).problem(400, "/non-unique-slug");
    let status = node.status();
    assert_eq!(alarms(&status), ["store_damaged"]);
    assert!(status["store"]["damaged"].as_u64() >= Some(1), "{status}");
}

/// The store of a node that does not run.
pub(crate) fn open_store(setup: &Setup) -> Links {
    let key = std::fs::read_to_string(setup.data_dir().join("space.key")).expect("a node has run here");
    let key = CodeSecret::from_hex(&key).expect("a node keeps a whole key");
    Links::open(&setup.data_dir().join("links"), &key.fingerprint()).expect("the store opens").0
}

/// The files below a directory.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path if path.is_file() => found.push(path),
            // A socket of a node that was killed.
            _ => {}
        }
    }
    found
}

/// Flips a bit of two bytes at the first place in any file of the store that holds these bytes. Returns in which file.
/// A batch of a journal with one wrong byte would be put right.
pub(crate) fn flip_at(setup: &Setup, bytes: &[u8], behind: usize) -> PathBuf {
    for path in files(&setup.data_dir().join("links")) {
        let held = std::fs::read(&path).unwrap();
        if let Some(at) = held.windows(bytes.len()).position(|window| window == bytes) {
            let at = at + behind;
            let flipped = [held[at] ^ 1, held[at + 1] ^ 1];
            File::options().write(true).open(&path).unwrap().write_all_at(&flipped, at as u64).unwrap();
            return path;
        }
    }
    panic!("{:?} is in no file", String::from_utf8_lossy(bytes));
}

/// Puts links straight into the store of a node that does not run, so many that it writes tables. Returns what they
/// lead to.
pub(crate) fn fill_tables(setup: &Setup, count: usize) -> BTreeMap<String, String> {
    let store = open_store(setup);
    let mut links = BTreeMap::new();
    let mut record = Vec::new();
    for first in (0..count).step_by(1_000) {
        let mut batch = store.batch();
        for at in first..first + 1_000 {
            let (code, target) = (format!("t{at:06}"), format!("{TARGET}/{at}/{}", "x".repeat(1_900)));
            let link = Link {
                code: parse(&code),
                policy: Policy::default(),
                target: target.clone(),
                created_ms: 1_000,
                origin: Origin::Custom,
                version: Version::default(),
                labels: LinkLabels::default(),
            };
            record.clear();
            carom_model::link::record::encode_link(code.as_bytes(), &link, &mut record);
            batch.put(&link.code, &record);
            links.insert(code, target);
        }
        store.commit(batch).unwrap();
    }
    store.sync().unwrap();
    wait_until("tables", || !tables(setup).is_empty() && store.unflushed_bytes() < 32 * 1024 * 1024);
    links
}

/// The tables of the store that are not small.
pub(crate) fn tables(setup: &Setup) -> Vec<PathBuf> {
    let all = files(&setup.data_dir().join("links")).into_iter();
    all.filter(|path| path.parent().is_some_and(|parent| parent.ends_with("tables")))
        .filter(|path| path.metadata().is_ok_and(|meta| meta.len() > 4 * 1024 * 1024))
        .collect()
}

/// Copies a directory with all in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for path in files(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(&path, &target).unwrap();
    }
}
