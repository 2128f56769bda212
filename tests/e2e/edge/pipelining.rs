//! Clients that pipeline, half-close, never read, or stay idle: each gets its responses in order, and none costs
//! another client anything.

use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::support::http::{Wire, create_request, replies, request};
use crate::support::links::codes_left;
use crate::support::node::{Node, Setup, wait_until};

const TARGET: &str = "https://example.org/target";

/// Connections that only sit there.
const IDLE: usize = 2_000;

/// Batches in which these connections come.
const BATCHES: usize = 4;

/// Most memory that the rest of the node may take beside all batches, in bytes.
const BESIDE_BYTES: u64 = 512 * 1024;

/// Most memory for one idle connection, in bytes.
const IDLE_BYTES: u64 = 1024;

/// Most memory of the stack for an idle connection, in bytes.
const STACK_BYTES: u64 = 256;

fn start(data: &tempfile::TempDir, cores: usize) -> Node {
    let node = Setup::new(data.path()).cores(cores).start();
    let mut wire = node.wire();
    for number in 0..16 {
        wire.shorten_as(&format!("link-{number}"), &format!("{TARGET}/{number}"));
    }
    node
}

fn get(path: &str) -> Vec<u8> {
    request("GET", path, "", b"")
}

#[test]
fn responses_keep_request_order() {
    let data = tempfile::tempdir().unwrap();
    let node = start(&data, 4);
    for from in [0, 50, 199] {
        // Up to `from` everything is for the fast way; then the API comes in between.
        let kinds: Vec<usize> = (0..200).map(|at| if at < from { at % 3 } else { at % 7 }).collect();
        let ask = |(at, kind): (usize, &usize)| match kind {
            0 | 1 => get(&format!("/link-{}", at % 16)),
            2 => get("/missing"),
            3 => get("/rest/health"),
            4 => create_request(&json!({"longUrl": format!("{TARGET}/made/{at}")})),
            5 => create_request(&json!({"longUrl": "nonsense"})),
            _ => get(&format!("/rest/v3/short-urls/link-{}", at % 16)),
        };
        let mut wire = node.wire();
        wire.send(&kinds.iter().enumerate().flat_map(ask).collect::<Vec<u8>>());
        for (at, kind) in kinds.iter().enumerate() {
            let reply = wire.reply();
            let target = format!("{TARGET}/{}", at % 16);
            match kind {
                0 | 1 => assert_eq!((reply.status, reply.location()), (302, target.as_str()), "{at}"),
                2 => assert_eq!(reply.status, 404, "{at}"),
                3 => assert_eq!(reply.json()["status"], json!("pass"), "{at}"),
                4 => assert_eq!(reply.json()["longUrl"], json!(format!("{TARGET}/made/{at}"))),
                5 => assert_eq!(reply.status, 400, "{at}"),
                _ => assert_eq!(reply.json()["longUrl"], json!(target), "{at}"),
            }
        }
    }
    node.terminate();
}

#[test]
fn response_precedes_a_partial_request() {
    let data = tempfile::tempdir().unwrap();
    let node = start(&data, 1);
    let post = create_request(&json!({"longUrl": TARGET}));
    for first in [get("/rest/health"), get("/link-1")] {
        for cut in [1, 60, post.len() - 1] {
            let mut wire = node.wire();
            wire.send(&[&first[..], &post[..cut]].concat());
            assert!(wire.reply().status < 400, "cut at {cut}");
            wire.send(&post[cut..]);
            assert_eq!(wire.reply().status, 200, "cut at {cut}");
        }
    }
    node.terminate();
}

#[test]
fn half_closed_client_gets_every_response() {
    let data = tempfile::tempdir().unwrap();
    let node = start(&data, 4);
    let create = create_request(&json!({"longUrl": TARGET}));
    let fast: Vec<u8> = (0..50).flat_map(|at| get(&format!("/link-{}", at % 16))).collect();
    let slow: Vec<u8> = (0..20).flat_map(|_| create.clone()).collect();
    for (bytes, count) in
        [(&get("/link-3"), 1), (&create, 1), (&fast, 50), (&slow, 20), (&[&fast[..], &slow].concat(), 70)]
    {
        let mut wire = node.wire();
        wire.send(bytes);
        wire.end_sending();
        let answers = replies(&wire.read_to_end());
        assert_eq!(answers.len(), count);
        assert!(answers.iter().all(|answer| answer.status < 400), "{answers:?}");
    }
    // What is not whole is no question: nothing is made of it, and the connection ends.
    for cut in [10, create.len() - 1] {
        let mut wire = node.wire();
        wire.send(&[&get("/link-3")[..], &create[..cut]].concat());
        wire.end_sending();
        let answers = replies(&wire.read_until_closed());
        assert_eq!(answers[0].status, 302);
        assert!(answers[1..].iter().all(|answer| answer.status >= 400), "{answers:?}");
    }
    assert_eq!(node.status()["links"], json!(16 + 1 + 20 + 20));
    node.terminate();
}

#[test]
fn unread_responses_cost_no_memory() {
    let data = tempfile::tempdir().unwrap();
    let node = start(&data, 1);
    let long = format!("https://example.org/{}", "x".repeat(2_000));
    node.wire().shorten_as("long", &long);
    let before = node.anonymous_bytes();
    // 200 MB of answers, of which the kernel takes a few. With one of the two hyper has to wait.
    for prelude in [vec![], get("/rest/health")] {
        let mut deaf = node.wire();
        deaf.send(&prelude);
        deaf.write_patience(Duration::from_secs(1));
        let pipeline = get("/long").repeat(1_000);
        let mut sent = 0;
        'asking: for _ in 0..100 {
            let mut rest = &pipeline[..];
            while !rest.is_empty() {
                match deaf.send_some(rest) {
                    Ok(len) => (rest, sent) = (&rest[len..], sent + len),
                    // The node takes no more from it: that is what should happen.
                    Err(_) => break 'asking,
                }
            }
        }
        assert!(sent > pipeline.len(), "the node gave up after {sent} bytes");
        let mut honest = node.wire();
        for _ in 0..100 {
            assert_eq!(honest.get("/link-7").location(), format!("{TARGET}/7"));
        }
        let grown = node.anonymous_bytes().saturating_sub(before);
        assert!(grown < 8 * 1024 * 1024, "{} KiB for a client that does not read", grown / 1024);
        // When it does read, what it gets is right.
        if !prelude.is_empty() {
            assert_eq!(deaf.reply().status, 200);
        }
        for at in 0..500 {
            assert_eq!(deaf.reply().location(), long, "{at}");
        }
    }
    node.terminate();
}

/// Opens connections that have asked once, and waits until the node counts them.
fn sit_down(node: &Node, count: usize) -> Vec<Wire> {
    let before = connections(node);
    let mut wires: Vec<Wire> = (0..count).map(|_| node.wire()).collect();
    for wire in &mut wires {
        assert_eq!(wire.get("/link-5").status, 302);
    }
    assert_eq!(connections(node), before + count as u64);
    wires
}

fn connections(node: &Node) -> u64 {
    node.status()["cores"].as_array().unwrap().iter().map(|core| core["connections"].as_u64().unwrap()).sum()
}

#[test]
fn idle_connections_cost_little_memory() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("the soft limit may be raised to the hard one");
    let data = tempfile::tempdir().unwrap();
    let node = start(&data, 1);
    wait_until("those who made the links to be gone", || connections(&node) == 0);
    // Codes that the node makes in advance would count.
    codes_left(&node);
    // Whatever the first connections cost once is not counted; their slots stay in use.
    let first = sit_down(&node, 200);
    let mut idle = Vec::new();
    let grown: Vec<u64> = (0..BATCHES)
        .map(|_| {
            let before = node.anonymous_bytes();
            idle.extend(sit_down(&node, IDLE / BATCHES));
            node.anonymous_bytes().saturating_sub(before)
        })
        .collect();
    // Each batch has the cost of its connections. Memory that another thread takes once is in one of them.
    let each = grown.iter().min().unwrap() / (IDLE / BATCHES) as u64;
    let most = IDLE_BYTES + if node.is_over_bypass() { STACK_BYTES } else { 0 };
    println!("{each} bytes for an idle connection, batches took {grown:?}");
    assert!(each <= most, "{each} bytes for an idle connection, batches took {grown:?}");
    // A table that doubles is in one batch as well, so all of them together are bounded, too.
    let all: u64 = grown.iter().sum();
    assert!(all <= most * IDLE as u64 + BESIDE_BYTES, "{all} bytes for all, batches took {grown:?}");
    // A stall of the machine hits one of the requests; what 2,000 connections cost, each of them.
    let times = (0..10).map(|_| {
        let begin = Instant::now();
        assert_eq!(node.wire().get("/link-5").status, 302);
        begin.elapsed()
    });
    assert!(times.min() < Some(Duration::from_secs(1)), "the others make it slow");
    drop((first, idle));
    wait_until("all to be gone", || connections(&node) == 0);
    node.terminate();
}
