//! Real URLs as people write them: each redirects to the serialised form of the URL standard, or is refused with a
//! reason, also after restarts and crashes and with another number of cores.

use std::path::Path;

use serde_json::json;
use url::Url;

use crate::support::http::{SHORT_URLS, Wire, create_request, request};
use crate::support::node::{Node, Setup};

/// Connections that send at once.
const CONNECTIONS: usize = 32;

/// Threads that drive them.
const THREADS: usize = 4;

/// Requests that a connection sends before it reads their answers.
const PIPELINED: usize = 8;

/// A link that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Made {
    code: String,
    target: String,
}

fn urls() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/urls.txt");
    let text = std::fs::read_to_string(path).expect("the URLs are part of the repository");
    let urls: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(urls.len(), 10_883);
    urls
}

/// Returns the serialised form of a URL by the letter of the standard, without the code under test, or `None` if it
/// must be refused.
fn oracle(text: &str) -> Option<String> {
    let url = Url::parse(text.trim_matches(' ')).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    let is_plain = url.username().is_empty() && url.password().is_none() && !text.chars().any(char::is_control);
    let text = url.to_string();
    (is_web && is_plain && text.len() <= 2_048).then_some(text)
}

/// Gives every item to one of many connections, which pipelines; `each` reads the answer to an item. The results are in
/// the order of the items.
fn over_many_connections<T: Sync, R: Send>(
    node: &Node,
    items: &[T],
    ask: impl Fn(&T) -> Vec<u8> + Sync,
    each: impl Fn(&T, &mut Wire) -> R + Sync,
) -> Vec<R> {
    let share = |items: &[T]| -> Vec<R> {
        let mut wires: Vec<Wire> = (0..CONNECTIONS / THREADS).map(|_| node.wire()).collect();
        let mut results = Vec::new();
        for batches in items.chunks(PIPELINED * wires.len()) {
            // All connections have requests in flight before the first answer is read.
            for (batch, wire) in batches.chunks(PIPELINED).zip(&mut wires) {
                wire.send(&batch.iter().flat_map(&ask).collect::<Vec<u8>>());
            }
            for (batch, wire) in batches.chunks(PIPELINED).zip(&mut wires) {
                results.extend(batch.iter().map(|item| each(item, wire)));
            }
        }
        results
    };
    std::thread::scope(|scope| {
        let pieces = items.chunks(items.len().div_ceil(THREADS).max(1));
        let threads: Vec<_> = pieces.map(|piece| scope.spawn(|| share(piece))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("an assertion failed")).collect()
    })
}

/// Sends every URL to be shortened.
fn shorten_all(node: &Node, urls: &[String]) -> Vec<Made> {
    let ask = |url: &String| create_request(&json!({"longUrl": url}));
    let made = over_many_connections(node, urls, ask, |url, wire| {
        let reply = wire.reply();
        match oracle(url) {
            Some(target) => {
                let code = reply.code();
                assert_eq!(reply.json()["longUrl"], json!(target), "{url}");
                Some(Made { code, target })
            }
            None => {
                let problem = reply.problem(400, "/invalid-data");
                assert_eq!(problem["invalidElements"], json!(["longUrl"]), "{url}");
                None
            }
        }
    });
    made.into_iter().flatten().collect()
}

/// Follows every link.
fn follow_all(node: &Node, made: &[Made]) {
    let ask = |link: &Made| request("GET", &format!("/{}", link.code), "", b"");
    over_many_connections(node, made, ask, |link, wire| {
        let reply = wire.reply();
        assert_eq!((reply.status, reply.location()), (302, link.target.as_str()), "{}", link.code);
    });
}

/// Makes links with so many cores, and follows them after a restart and after a kill with every other number.
fn made_with(cores: usize, served_with: [usize; 4]) {
    let data = tempfile::tempdir().unwrap();
    let urls = urls();
    let node = Setup::new(data.path()).cores(cores).start();
    let made = shorten_all(&node, &urls);
    assert!(made.len() > 10_000, "only {} of {} were taken", made.len(), urls.len());
    follow_all(&node, &made);
    assert_eq!(node.status()["links"], json!(made.len()));
    let mut setup = node.terminate();
    for (round, cores) in served_with.into_iter().enumerate() {
        let node = setup.cores(cores).start();
        follow_all(&node, &made);
        assert_eq!(node.status()["links"], json!(made.len()));
        // One more link, so that no round finds only what an earlier one left.
        let late = node.wire().shorten("https://example.org/late");
        assert!(made.iter().all(|link| link.code != late), "{late} was given twice");
        assert_eq!(node.wire().delete(&late).status, 204);
        setup = if round % 2 == 0 { node.kill() } else { node.terminate() };
    }
}

#[test]
fn real_urls_survive_one_core() {
    made_with(1, [1, 4, 2, 1]);
}

#[test]
fn real_urls_survive_two_cores() {
    made_with(2, [2, 1, 4, 2]);
}

#[test]
fn real_urls_survive_four_cores() {
    made_with(4, [4, 2, 1, 4]);
}

#[test]
fn killed_node_keeps_every_link() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(2).start();
    let made = shorten_all(&node, &urls()[..2_000]);
    // No gentle end between the making and the kill.
    let node = node.kill().start();
    follow_all(&node, &made);
    let mut wire = node.wire();
    for link in made.iter().step_by(97) {
        let read = wire.get(&format!("{SHORT_URLS}/{}", link.code)).json();
        assert_eq!(&read["shortCode"], &json!(link.code));
        assert_eq!(&read["longUrl"], &json!(link.target));
    }
    node.terminate();
}

#[test]
fn oracle_refuses_invalid_urls() {
    for url in ["ftp://a/", "http://u@a/", "mailto:a@b", "no url", &format!("http://a/{}", "x".repeat(2_048))] {
        assert_eq!(oracle(url), None, "{url}");
    }
    assert_eq!(oracle("HTTP://A").as_deref(), Some("http://a/"));
}
