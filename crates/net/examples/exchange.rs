//! Times one exchange of a redirect: a request comes in, an answer of 200 bytes goes out and carries the
//! acknowledgement, and the client's acknowledgement comes in later. `cargo run --release -p carom-net --example
//! exchange`
#![allow(dead_code, clippy::print_stdout, reason = "a part of the tests' peer, and figures for a person")]

#[path = "../tests/hostile/peer.rs"]
mod peer;

use std::time::Instant;

use carom_net::Reflect;
use peer::{Bench, CLIENT, frame};

const EXCHANGES: i32 = 50_000;
const REQUEST: [u8; 120] = [b'q'; 120];
const ANSWER: [u8; 200] = [b'a'; 200];

fn main() {
    let mut bench = Bench::connected();
    let id = bench.id();
    let (requests, answers) = (REQUEST.len() as i32, ANSWER.len() as i32);
    let frames: Vec<(Vec<u8>, Vec<u8>)> = (0..EXCHANGES)
        .map(|at| {
            let request = bench.client_segment(at * requests, at * answers, &REQUEST);
            let ack = bench.client_segment((at + 1) * requests, (at + 1) * answers, &[]);
            (frame(CLIENT, &request), frame(CLIENT, &ack))
        })
        .collect();
    let mut taken = 0;
    let start = Instant::now();
    for (request, ack) in &frames {
        bench.now_us += 10;
        bench.notes.received.clear();
        bench.stack.receive(bench.now_us, request, &mut bench.pool, &mut Reflect, &mut bench.notes);
        taken += bench.stack.send(bench.now_us, id, &ANSWER, &mut bench.pool);
        bench.stack.flush(bench.now_us, &mut bench.pool);
        bench.pool.transmit(|_| ());
        bench.stack.receive(bench.now_us, ack, &mut bench.pool, &mut Reflect, &mut bench.notes);
        bench.stack.flush(bench.now_us, &mut bench.pool);
    }
    let elapsed = start.elapsed();
    assert_eq!(taken, frames.len() * ANSWER.len());
    let counters = bench.stack.counters();
    println!(
        "{} ns for each exchange; {} bare acknowledgements",
        elapsed.as_nanos() / frames.len() as u128,
        counters.bare_acks
    );
}
