//! The scripts that take purged links out of streams, on a real server: no bytes of them are left, and Redis never stands
//! still for long.

use std::collections::HashSet;

use carom_model::replication::Partition;
use carom_shards::Code;

use crate::support::fleet::{WITHIN, connect};
use crate::support::node::wait_for;
use crate::support::purges::{MARKER, marked_keys};
use crate::support::redis::{Server, Setup};
use crate::support::resp::Reply;

/// The code of the purged links.
fn gone() -> Code {
    Code::parse(b"gone").unwrap()
}

/// The stream of the code of the purged links.
fn stream_of_gone() -> String {
    format!("{{test:{:02x}}}:s", Partition::of(&gone()).0)
}

/// Purges the code in its stream.
fn purge_stream(server: &Server) {
    connect(server).purge_stream(Partition::of(&gone()), &HashSet::from([gone()]), WITHIN).unwrap();
}

/// Appends `count` entries of a code to the stream, each with this text.
fn fill(server: &Server, count: usize, code: &str, text: &str) {
    let script = "for _ = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', 'c', ARGV[2], 'v', ARGV[3]) end";
    server.command(&["EVAL", script, "1", &stream_of_gone(), &count.to_string(), code, text]);
}

fn length(server: &Server) -> Reply {
    server.command(&["XLEN", &stream_of_gone()])
}

#[test]
fn purged_entries_leave_no_bytes() {
    let server = Server::start();
    let stream = stream_of_gone();
    let add = |id: &str, code: &str, text: &str| server.command(&["XADD", &stream, id, "c", code, "v", text]);
    let kept = [("2-0", "kept", "A1"), ("3-0", "gone", "F1"), ("4-0", "gone", "A2")];
    add("1-0", "gone", &format!("A{MARKER}"));
    kept.iter().for_each(|(id, code, text)| _ = add(id, code, text));
    add("5-0", "kept", "last");
    server.command(&["XDEL", &stream, "5-0"]);
    server.command(&["PEXPIRE", &stream, "100000"]);
    let read = || redis_ids(&server.command(&["XRANGE", &stream, "-", "+"]));
    assert_eq!(marked_keys(&server), [stream.as_str()], "the test would prove nothing");
    purge_stream(&server);
    assert_eq!(read(), kept.map(|(id, ..)| id), "what follows the deletion is about another link");
    assert_eq!(marked_keys(&server), Vec::<String>::new());
    assert!(matches!(add("5-0", "kept", "A3"), Reply::Error(_)), "nodes have read an entry with this ID");
    assert!(matches!(server.command(&["PTTL", &stream]), Reply::Int(1..=100_000)));
    assert_eq!(add("5-1", "kept", "A3"), "5-1");
}

/// Returns the IDs of entries.
fn redis_ids(entries: &Reply) -> Vec<String> {
    entries.list().iter().map(|entry| entry.list()[0].text()).collect()
}

#[test]
fn each_stream_is_rewritten_once() {
    let server = Server::start();
    fill(&server, 1, "gone", &format!("A{MARKER}"));
    fill(&server, 50_100, "kept", "A1");
    fill(&server, 1, "gone", "F1");
    purge_stream(&server);
    assert_eq!(length(&server), Reply::Int(50_101));
    assert_eq!(marked_keys(&server), Vec::<String>::new());
}

#[test]
fn steps_are_short_with_long_entries_too() {
    let server = Server::start();
    fill(&server, 1, "gone", &format!("A{MARKER}"));
    fill(&server, 1_500, "kept", &"A".repeat(4_000));
    fill(&server, 1, "gone", "F1");
    // Each step asks for the last ID of the copy, and the last step also for that of the stream.
    let steps = || server.calls("xinfo|stream") + server.calls("xinfo");
    let before = steps();
    purge_stream(&server);
    assert!(steps() - before >= 6, "6 MB were written at once");
    assert_eq!(length(&server), Reply::Int(1_501));
    assert_eq!(marked_keys(&server), Vec::<String>::new());
}

#[test]
fn a_stream_is_written_once_by_a_purge() {
    let server = Server::start();
    fill(&server, 12_000, "gone", &format!("A{MARKER}"));
    fill(&server, 10, "kept", "A1");
    fill(&server, 1, "gone", "F1");
    let before = server.calls("xadd");
    purge_stream(&server);
    let written = server.calls("xadd") - before;
    assert!(written < 100, "{written} entries were written, and 11 are left");
    assert_eq!(length(&server), Reply::Int(11));
    assert_eq!(marked_keys(&server), Vec::<String>::new());
}

#[test]
fn next_purge_ends_an_interrupted_one() {
    let server = Server::start();
    let (stream, copy) = (stream_of_gone(), format!("{}:copy", stream_of_gone()));
    fill(&server, 1, "gone", &format!("A{MARKER}"));
    fill(&server, 3, "kept", "A1");
    // The purge has removed the entry, and copied another one that Redis has trimmed since.
    let first = redis_ids(&server.command(&["XRANGE", &stream, "-", "+", "COUNT", "1"])).remove(0);
    server.command(&["XDEL", &stream, &first]);
    server.command(&["XADD", &copy, "1-1", "c", "old", "v", "A1"]);
    assert_eq!(marked_keys(&server), [stream.as_str()], "the test would prove nothing");
    purge_stream(&server);
    assert_eq!(length(&server), Reply::Int(3));
    assert_eq!(marked_keys(&server), Vec::<String>::new());
    assert_eq!(server.command(&["EXISTS", &copy]), Reply::Int(0));
}

#[test]
fn copy_of_a_lost_stream_replaces_nothing() {
    let server = Server::start();
    let (stream, copy) = (stream_of_gone(), format!("{}:copy", stream_of_gone()));
    // The clock of the server that has the stream now is behind that of the one before.
    server.command(&["XADD", &copy, "9-0", "c", "old", "v", "A1"]);
    server.command(&["XADD", &stream, "5-0", "c", "kept", "v", "A1"]);
    purge_stream(&server);
    assert_eq!(redis_ids(&server.command(&["XRANGE", &stream, "-", "+"])), ["5-0"]);
    assert_eq!(server.command(&["EXISTS", &copy]), Reply::Int(0));
}

#[test]
fn data_is_known_after_a_lost_connection() {
    let server = Setup::new().append_only(true).start();
    let mut redis = connect(&server);
    let before = redis.data_identity(WITHIN);
    assert!(before.is_some());
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let same = wait_for("an identity", || redis.data_identity(WITHIN));
    assert_eq!(Some(same), before);
    assert!(redis.last_disturbance().is_some(), "the test would prove nothing");
    server.kill();
    server.start_again();
    let after = wait_for("an identity", || redis.data_identity(WITHIN));
    assert_ne!(Some(after), before, "it may have lost writes");
}
