//! Purges: a text that no file and no key of Redis may have afterwards, and the search for it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::fleet::Fleet;
use crate::support::node::Node;
use crate::support::redis::Server;
use crate::support::resp::Reply as RedisReply;

/// The path of purges.
pub(crate) const PURGES: &str = "/rest/v3/purges";

/// A text without repetitions, which no compression shortens, in the letters that searches store.
pub(crate) const MARKER: &str = "q7zt0vxk9lmb2swc5ryh8pne3jdf6uga1tio4x-hgvqfykzplwsmjcrednaubo";

/// Bytes of the marker that are looked for at once. A compressed block has pieces of it as they are.
const PIECE_LEN: usize = 12;

/// Longest time of a purge: each node compacts its store.
const PURGE_TIME: Duration = Duration::from_secs(180);

fn is_marked(bytes: &[u8]) -> bool {
    MARKER.as_bytes().chunks_exact(PIECE_LEN).any(|piece| memchr::memmem::find(bytes, piece).is_some())
}

/// Returns the files below a directory that have a piece of the marker.
pub(crate) fn marked_files(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(marked_files(&path));
        } else if std::fs::read(&path).is_ok_and(|bytes| is_marked(&bytes)) {
            // The node may delete a file meanwhile.
            found.push(path.display().to_string());
        }
    }
    found
}

fn has_marker(reply: &RedisReply) -> bool {
    match reply {
        RedisReply::Text(bytes) => is_marked(bytes),
        RedisReply::List(parts) => parts.iter().any(has_marker),
        RedisReply::Nil | RedisReply::Int(_) | RedisReply::Error(_) => false,
    }
}

/// Returns the keys of Redis whose content has a piece of the marker.
pub(crate) fn marked_keys(server: &Server) -> Vec<String> {
    let keys = server.command(&["KEYS", "*"]);
    let keys = keys.list().iter().map(RedisReply::text);
    let is_marked = |key: &String| {
        let read: &[&str] = match server.command(&["TYPE", key]).text().as_str() {
            "string" => &["GET", key],
            "hash" => &["HGETALL", key],
            // Redis only marks removed entries: no reader sees their bytes, but dumps and replicas have them.
            "stream" => &["DUMP", key],
            "zset" => &["ZRANGE", key, "0", "-1"],
            "list" => &["LRANGE", key, "0", "-1"],
            "set" => &["SMEMBERS", key],
            // It has expired meanwhile.
            _ => return false,
        };
        has_marker(&server.command(read))
    };
    keys.filter(is_marked).collect()
}

/// Returns a purge; `None` if the node does not know it.
pub(crate) fn purge(node: &Node, id: &str) -> Option<Value> {
    let reply = node.wire().get(&format!("{PURGES}/{id}"));
    (reply.status == 200).then(|| reply.json())
}

/// Waits until a node says that a purge is complete.
pub(crate) fn wait_for_purge(node: &Node, id: &str) {
    let begun = Instant::now();
    loop {
        let purge = purge(node, id);
        if purge.as_ref().is_some_and(|purge| purge["complete"] == true) {
            return;
        }
        assert!(begun.elapsed() < PURGE_TIME, "the purge does not end: {purge:?}\n{}", node.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Holds the part of a node in purges back, until the returned folder is removed: a node whose visit log is off leaves logged
/// visits to its operator.
pub(crate) fn hold_back(fleet: &Fleet, number: usize) -> PathBuf {
    let folder = fleet.setup(number).data_dir().join("visit-log");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("segment-1"), b"visits").unwrap();
    folder
}

/// True if the last attempt of a node at a purge has failed for a reason with this text.
pub(crate) fn fails_with(node: &Node, id: &str, text: &str) -> bool {
    purge(node, id).is_some_and(|purge| purge["error"].as_str().is_some_and(|why| why.contains(text)))
}

/// Fails if the data directory of a node or a key of Redis has a piece of the marker.
pub(crate) fn assert_clean(fleet: &Fleet, nodes: usize, server: &Server) {
    for number in 0..nodes {
        assert_eq!(marked_files(fleet.setup(number).data_dir()), Vec::<String>::new());
    }
    assert_eq!(marked_keys(server), Vec::<String>::new());
}
