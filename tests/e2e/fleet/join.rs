//! New nodes that take all links from a snapshot of a peer, and follow the streams from there.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::support::api_client::new_key;
use crate::support::bulk::{BULK, TARGET, code_of, many, send_all};
use crate::support::cli_user::{CliUser, text};
use crate::support::fleet::{Fleet, KEY, redirects, settle};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis::Server;
use crate::support::stop::StopOnDrop;
use crate::support::visits::counted;

/// A user who has the code secret of the fleet.
fn user() -> CliUser {
    CliUser::new().env("CAROM_SPACE_KEY", KEY)
}

/// Ten megabytes of links, which are three pieces.
fn long_links(node: &Node) -> Vec<String> {
    let mut lines = String::new();
    for number in 0..5_000 {
        let target = format!("{TARGET}/{number}/{}", "x".repeat(1_900));
        writeln!(lines, "{}", json!({"longUrl": target})).unwrap();
    }
    send_all(node, BULK, lines.as_bytes()).iter().map(|result| code_of(result).to_owned()).collect()
}

/// Starts the first node of a fleet, with a link whose slug is `kept`.
fn peer(fleet: &Fleet) -> Node {
    let first = fleet.setup(0).start();
    first.wire().shorten_as("kept", TARGET);
    settle(&first);
    first
}

/// Starts a node with three pieces of links. Returns it with their codes.
fn peer_of_pieces(setup: &Setup) -> (Node, Vec<String>) {
    let first = setup.start();
    settle(&first);
    let codes = long_links(&first);
    settle(&first);
    (first, codes)
}

/// Starts a node that has joined, and checks that it redirects all links.
fn has_all(setup: &Setup, codes: &[String]) {
    let second = setup.start();
    settle(&second);
    let mut wire = second.wire();
    assert!(codes.iter().all(|code| wire.get(&format!("/{code}")).status == 302));
}

/// The arguments of a join from this URL.
fn join_from<'a>(from: &'a str, setup: &'a Setup) -> [&'a str; 5] {
    ["join", "--from", from, "--data-dir", text(setup.data_dir())]
}

/// Returns how many states a comparison has read. Its scan is that of the retention, too, which may run at any time.
fn reads(server: &Server) -> u64 {
    server.calls("getrange")
}

fn visit(node: &Node, slug: &str, times: usize) {
    let mut wire = node.wire();
    for _ in 0..times {
        assert_eq!(wire.get(&format!("/{slug}")).status, 302);
    }
}

/// The file with the pieces that a join has kept.
fn pieces(setup: &Setup) -> PathBuf {
    setup.data_dir().join("join.partial/pieces")
}

fn kept(setup: &Setup) -> u64 {
    std::fs::metadata(pieces(setup)).map_or(0, |meta| meta.len())
}

/// Starts a join without waiting for its end.
fn begin(user: &CliUser, from: &str, setup: &Setup) -> Child {
    let mut command = user.command(&join_from(from, setup));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn new_node_follows_from_the_snapshot() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let first = fleet.setup(0).start();
    settle(&first);
    let results = send_all(&first, BULK, many(3_000).as_bytes());
    let mut codes: Vec<&str> = results.iter().map(code_of).collect();
    for slug in ["seen", "gone"] {
        first.wire().shorten_as(slug, TARGET);
    }
    visit(&first, "seen", 5);
    let deleted = codes.pop().unwrap();
    for code in [deleted, "gone"] {
        assert_eq!(first.wire().delete(code).status, 204);
    }
    settle(&first);
    let before = reads(&server);
    let (setup, is_over) = (fleet.setup(1), AtomicBool::new(false));
    let written: Vec<String> = std::thread::scope(|scope| {
        let (mut wire, is_over, stop) = (first.wire(), &is_over, StopOnDrop(&is_over));
        let writing = scope.spawn(move || {
            let mut written = Vec::new();
            while !is_over.load(Ordering::Relaxed) || written.len() < 50 {
                written.push(wire.shorten(&format!("{TARGET}/meanwhile/{}", written.len())));
            }
            written
        });
        wait_until("writes", || first.status()["links"].as_u64() > Some(3_005));
        let from = format!("http://{}", first.admin);
        let said = user().done(&join_from(&from, &setup));
        assert!(said.contains("from n0"), "{said}");
        drop(stop);
        writing.join().unwrap()
    });
    let second = setup.start();
    settle(&second);
    let fleet_of_second = second.status()["fleet"].clone();
    assert_eq!((&fleet_of_second["node"], &fleet_of_second["gaps"]), (&json!("n1"), &json!(0)));
    assert_eq!(reads(&server), before, "nothing was compared");
    let mut wire = second.wire();
    for (number, code) in codes.iter().enumerate() {
        assert_eq!(wire.get(&format!("/{code}")).location(), format!("{TARGET}/{number}"));
    }
    for (number, code) in written.iter().enumerate() {
        assert_eq!(wire.get(&format!("/{code}")).location(), format!("{TARGET}/meanwhile/{number}"));
    }
    wait_until("404 for deleted links", || {
        [deleted, "gone"].iter().all(|code| wire.get(&format!("/{code}")).status == 404)
    });
    let fresh = first.wire().shorten("https://example.org/later");
    wait_until("a later link", || redirects(&second, &fresh, "https://example.org/later"));
    // Each node counts under an identity of its own.
    visit(&second, "seen", 3);
    visit(&first, "seen", 1);
    wait_until("all visits on both", || [&first, &second].iter().all(|node| counted(node, "seen") == 9));
    let said = second.wire().shorten("https://example.org/of-second");
    wait_until("a link of the new node", || redirects(&first, &said, "https://example.org/of-second"));
    assert!([&first, &second].iter().all(|node| node.status()["fleet"]["conflicts"] == 0));
}

#[test]
fn joined_directory_is_not_joined_again() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let first = peer(&fleet);
    let (setup, from) = (fleet.setup(1), format!("http://{}", first.admin));
    let arguments = join_from(&from, &setup);
    user().done(&arguments);
    user().refused(&arguments, 2, &["links", "already exists", "nothing was changed"]);
    let second = setup.start();
    user().refused(&arguments, 15, &["in use"]);
    assert!(redirects(&second, "kept", TARGET));
}

#[test]
fn node_joins_at_its_start() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let first = peer(&fleet);
    let before = reads(&server);
    let from = format!("http://{}", first.admin);
    let second = fleet.setup(1).env("CAROM_FLEET_JOIN_FROM", &from).start();
    assert!(second.log().contains("joins from a peer"), "{}", second.log());
    settle(&second);
    assert!(redirects(&second, "kept", TARGET));
    assert_eq!(reads(&server), before);
    // The peer is needed once.
    first.terminate();
    let second = second.restart();
    assert!(redirects(&second, "kept", TARGET));
    assert_eq!(second.log().matches("joins from a peer").count(), 0, "{}", second.log());
}

#[test]
fn interrupted_join_continues() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    // A piece every four seconds.
    let (first, codes) = peer_of_pieces(&fleet.setup(0).env("CAROM_FLEET_JOIN_RATE", "1MiB"));
    let proxy = Proxy::start(first.admin);
    let (user, setup, from) = (user(), fleet.setup(1), format!("http://{}", proxy.address()));
    let mut child = begin(&user, &from, &setup);
    wait_until("a whole piece", || {
        let len = kept(&setup);
        // A machine that stands still makes a pause within a piece, too, but no longer one.
        std::thread::sleep(Duration::from_secs(1));
        len > 0 && kept(&setup) == len
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let (code, said) = setup.fail();
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("unfinished join"), "{said}");
    let before = kept(&setup);
    let child = begin(&user, &from, &setup);
    // The connection breaks while a piece is on its way.
    wait_until("another piece", || kept(&setup) > before || !pieces(&setup).exists());
    proxy.set(Mode::Cut);
    proxy.set(Mode::Pass);
    let ended = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{out}{err}");
    assert!(out.contains("of them from an earlier attempt"), "{out}{err}");
    has_all(&setup, &codes);
}

#[test]
fn damaged_bytes_are_refused() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let (first, codes) = peer_of_pieces(&fleet.setup(0));
    let proxy = Proxy::start(first.admin);
    let (setup, from) = (fleet.setup(1), format!("http://{}", proxy.address()));
    let arguments = join_from(&from, &setup);
    proxy.set(Mode::Flip);
    user().refused(&arguments, 1, &["checksum does not match", "no links"]);
    assert!(!setup.data_dir().join("links").exists());
    proxy.set(Mode::Pass);
    user().done(&arguments);
    has_all(&setup, &codes);
}

#[test]
fn peer_gives_links_to_admins_of_its_fleet() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let first = peer(&fleet);
    let setup = first.terminate();
    let (admin, writer) = (new_key(&setup, "ops", "admin"), new_key(&setup, "shop", "write-all"));
    let first = setup.env("CAROM_ADMIN_REQUIRE_KEY", "true").start();
    let (user, setup, from) = (user(), fleet.setup(1), format!("http://{}", first.admin));
    let arguments = join_from(&from, &setup);
    user.refused(&arguments, 2, &["X-Api-Key", "--key-file"]);
    for (key, said) in [(&*writer, "requires admin"), ("wrong", "invalid")] {
        let file = user.file("key", key);
        user.refused(&[&arguments[..], &["--key-file", text(&file)]].concat(), 2, &[said]);
    }
    let other = CliUser::new().env("CAROM_SPACE_KEY", &"ff".repeat(32));
    let file = user.file("key", &admin);
    let arguments = [&arguments[..], &["--key-file", text(&file)]].concat();
    other.refused(&arguments, 19, &["another fingerprint"]);
    assert!(!setup.data_dir().join("join.partial").exists());
    user.done(&arguments);
    let second = setup.start();
    settle(&second);
    assert!(redirects(&second, "kept", TARGET));
}

#[test]
fn unfit_peers_are_named() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let folder = tempfile::tempdir().unwrap();
    let alone = Setup::new(&folder.path().join("alone")).start();
    let setup = fleet.setup(0);
    let join = |from: String, code: i32, words: &[&str]| {
        user().refused(&join_from(&from, &setup), code, words);
        assert!(!setup.data_dir().join("links").exists());
    };
    join(format!("http://{}", alone.admin), 1, &["not in a fleet"]);
    // The public listener, like an older version, has no snapshots.
    join(format!("http://{}", alone.public), 1, &["older version"]);
    join("10.0.0.1:8081".to_owned(), 2, &["http://"]);
    let admin = alone.admin;
    alone.terminate();
    join(format!("http://{admin}"), 1, &["does not answer"]);
}
