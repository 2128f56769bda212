//! Nodes whose links are in Redis while they have much to read there: the lines of bulk requests.

use std::io::Write;

use serde_json::{Value, json};

use crate::support::bulk::{BULK, KIND, Session, TARGET, code_of, many, send_all};
use crate::support::fleet::{Fleet, redirects, settle, shared};
use crate::support::http::{Wire, request};
use crate::support::node::{Node, wait_until};
use crate::support::redis::Server;

/// Bulk requests that a core serves at once.
const SESSIONS: usize = 8;

/// Lines that a bulk request reads before it answers any.
const CHUNK: usize = 256;

/// Sends a bulk request that changes nothing, and so only reads its links.
fn read_all(node: &Node, codes: &[&str]) -> Session {
    let line = |code: &&str| format!("{}\n", json!({"shortCode": code, "change": {"title": "T"}}));
    let body: String = codes.iter().map(line).collect();
    let head = format!("POST {BULK}/changes?dryRun=true HTTP/1.1\r\n{KIND}Content-Length: {}\r\n", body.len());
    let mut session = Session::open(node.public, &head);
    session.stream.write_all(body.as_bytes()).unwrap();
    session
}

/// Reads the whole answer to a bulk request.
fn results_of(session: &mut Session) -> Vec<Value> {
    assert_eq!(session.begin(), 200);
    let results: Vec<Value> = std::iter::from_fn(|| session.line().unwrap()).collect();
    assert_eq!(results.len(), CHUNK);
    results
}

#[test]
fn bulk_lines_delay_no_redirect() {
    const REDIRECTS: usize = 8;
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = [0, 1].map(|number| shared(fleet.setup(number)).start());
    nodes.iter().for_each(settle);
    let made = send_all(&nodes[1], BULK, many(REDIRECTS + SESSIONS * CHUNK).as_bytes());
    let codes: Vec<&str> = made.iter().map(code_of).collect();
    let (visited, lines) = codes.split_at(REDIRECTS);
    let asked = || nodes[0].status()["fleet"]["lookUps"].as_u64().unwrap();
    let before = asked();
    // Redis answers once all wait.
    assert_eq!(server.command(&["CLIENT", "PAUSE", "300", "ALL"]), "OK");
    let mut sessions: Vec<Session> = lines.chunks(CHUNK).map(|codes| read_all(&nodes[0], codes)).collect();
    wait_until("lines that wait for Redis", || asked() > before);
    let mut wires: Vec<Wire> = visited.iter().map(|_| nodes[0].wire()).collect();
    for (wire, code) in wires.iter_mut().zip(visited) {
        wire.send(&request("GET", &format!("/{code}"), "", b""));
    }
    let statuses: Vec<u16> = wires.iter_mut().map(|wire| wire.reply().status).collect();
    // On a busy machine some wait for too long. None is refused because of the lines.
    assert!(statuses.iter().all(|status| [302, 503].contains(status)), "{statuses:?}");
    assert_eq!(nodes[0].status()["residency"]["fetchesLeftOut"], 0);
    for (session, codes) in sessions.iter_mut().zip(lines.chunks(CHUNK)) {
        let mut results = results_of(session);
        wait_until("lines that Redis answers in time", || {
            let is_known = |result: &Value| result["status"] == 200 || result["status"] == 503;
            assert!(results.iter().all(is_known), "{results:?}");
            let are_read = results.iter().all(|result| result["status"] == 200);
            if !are_read {
                results = results_of(&mut read_all(&nodes[0], codes));
            }
            are_read
        });
    }
    for (code, number) in visited.iter().zip(0..) {
        wait_until("a redirect", || redirects(&nodes[0], code, &format!("{TARGET}/{number}")));
    }
    // The lines of bulk requests push no link out of memory.
    wait_until("the visited links in memory", || nodes[0].status()["links"] == REDIRECTS);
}
