//! The block list of destination hosts: it refuses new links and stops existing ones.

use std::path::Path;

use carom_model::redirect::Notice;
use serde_json::{Value, json};

use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{Node, Setup, wait_until};

const JSON: &str = "Content-Type: application/json\r\n";

fn write(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

/// Returns the statuses of a code, over both HTTP paths and on every core.
fn statuses(node: &Node, code: &str) -> Vec<u16> {
    let mut all = Vec::new();
    for number in 0..8 {
        let mut wire = node.wire();
        if number % 2 == 0 {
            // From here on hyper drives it.
            wire.get("/rest/health");
        }
        all.push(wire.get(&format!("/{code}")).status);
    }
    all
}

fn is_refused(wire: &mut Wire, url: &str) -> bool {
    let reply = wire.create(&json!({"longUrl": url}));
    if reply.status == 200 {
        return false;
    }
    let problem = reply.problem(400, "/invalid-data");
    assert_eq!(problem["invalidElements"], json!(["longUrl"]));
    assert!(problem["detail"].as_str().unwrap().contains("block list"), "{problem}");
    true
}

const TARGETS: [&str; 4] = [
    "https://bad.example/a?b",
    "http://deep.evil.example:8080/",
    "https://later.example/",
    "https://good.example/bad.example",
];

/// A node that has links to [`TARGETS`] from before its block list, which is in a file as well.
struct Blocking {
    node: Node,
    /// Settings without a block list.
    plain: Setup,
    /// The file with the dynamic part of the list.
    file: std::path::PathBuf,
    /// The codes of links to [`TARGETS`].
    codes: [String; 4],
    /// The code of a link to the first of them, which may be visited five times.
    limited: String,
    /// Holds the data directory, and is dropped after the node.
    _dir: tempfile::TempDir,
}

impl Blocking {
    fn new(cores: usize) -> Blocking {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("block.json");
        write(&file, "{}");
        let plain = Setup::new(&dir.path().join("data")).cores(cores);
        let node = plain.start();
        let mut wire = node.wire();
        let codes = TARGETS.map(|target| wire.shorten(target));
        let limited = wire.create(&json!({"longUrl": TARGETS[0], "maxVisits": 5})).code();
        drop(wire);
        node.terminate();
        let setup = plain
            .clone()
            .env("CAROM_BLOCK_HOSTS", "bad.example, *.evil.example")
            .env("CAROM_BLOCK_SOURCE", file.to_str().unwrap())
            .expect("the block list of");
        Blocking { node: setup.start(), plain, file, codes, limited, _dir: dir }
    }
}

/// True if every core answers with this status, over both HTTP paths.
fn everybody(node: &Node, code: &str, status: u16) -> bool {
    statuses(node, code).iter().all(|it| *it == status)
}

#[test]
fn blocked_host_stops_old_links() {
    for cores in [1, 3] {
        let Blocking { node, plain, codes, limited, _dir, .. } = Blocking::new(cores);
        assert!(everybody(&node, &codes[0], 410));
        assert!(everybody(&node, &codes[1], 410));
        assert!(everybody(&node, &limited, 410));
        assert!(everybody(&node, &codes[2], 302));
        assert!(everybody(&node, &codes[3], 302));
        let page = node.wire().ask("GET", &format!("/{}", codes[0]), "Accept: text/html\r\n", b"");
        assert!(page.text().contains(Notice::Blocked.heading()), "{page:?}");
        assert!(!page.text().contains("bad.example"), "{page:?}");
        assert_eq!(page.field("location"), None);
        node.terminate();
        // All its visits are left: it has redirected no one.
        let node = plain.start();
        let visits = (0..6).map(|_| node.wire().get(&format!("/{limited}")).status);
        assert_eq!(visits.collect::<Vec<u16>>(), [302, 302, 302, 302, 302, 410]);
        node.terminate();
    }
}

#[test]
fn blocked_host_stops_creates_and_changes() {
    for cores in [1, 3] {
        let Blocking { node, codes, _dir, .. } = Blocking::new(cores);
        let mut wire = node.wire();
        assert!(is_refused(&mut wire, "https://BAD.example./x"));
        assert!(is_refused(&mut wire, "https://a.b.evil.example/"));
        assert!(!is_refused(&mut wire, "https://evil.example/"));
        assert!(!is_refused(&mut wire, "https://good.example/"));
        // A blocked link can be read, and changed to another destination.
        let path = format!("{SHORT_URLS}/{}", codes[1]);
        let told = wire.get(&path).json();
        assert_eq!(&told["longUrl"], &json!("http://deep.evil.example:8080/"));
        assert_eq!(&told["blocked"], &json!(true));
        let free = wire.get(&format!("{SHORT_URLS}/{}", codes[2])).json();
        assert_eq!(free["blocked"], false);
        wire.ask("PATCH", &path, JSON, b"{\"longUrl\": \"https://bad.example/\"}").problem(400, "/invalid-data");
        assert_eq!(wire.ask("PATCH", &path, JSON, b"{\"longUrl\": \"https://good.example/\"}").status, 200);
        assert!(everybody(&node, &codes[1], 302));
        drop(wire);
        node.terminate();
    }
}

#[test]
fn list_survives_bad_files_and_restarts() {
    for cores in [1, 3] {
        let Blocking { node, file, codes, _dir, .. } = Blocking::new(cores);
        write(&file, "{\"1\": \"later.example\"}");
        wait_until("a host that is blocked", || everybody(&node, &codes[2], 410));
        assert_eq!(node.status()["blockList"]["dynamic"], 1);
        // A malformed list and a missing one change nothing.
        write(&file, "[]");
        let alarm = |node: &Node, name: &str| crate::support::alarms::alarms(&node.status()).contains(&name);
        wait_until("an alarm", || alarm(&node, "block_list_malformed"));
        assert!(everybody(&node, &codes[2], 410));
        std::fs::remove_file(&file).unwrap();
        wait_until("another alarm", || alarm(&node, "block_list_unreadable"));
        let node = node.restart();
        assert!(everybody(&node, &codes[2], 410));
        assert!(everybody(&node, &codes[0], 410));
        write(&file, "{}");
        wait_until("a host that is free again", || everybody(&node, &codes[2], 302));
        assert!(everybody(&node, &codes[0], 410));
        assert_eq!(node.status()["allowList"], Value::Null);
        node.terminate();
    }
}
