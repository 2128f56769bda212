//! Measures the cost of one code: the permutation of this crate beside the `fpe` crate, in turns within one run.
//!
//! `cargo run --release -p carom-shards --example code_speed`

#![expect(clippy::print_stdout, reason = "the output is what the example is for")]

use std::hint::black_box;
use std::time::Instant;

use carom_shards::segment::{Run, Segment};
use carom_shards::{CodeLength, CodeSecret, CodeSpace, CounterValue};
use fpe::ff1::{FF1, FlexibleNumeralString};

const CODES: u64 = 300_000;
const TURNS: usize = 5;

/// Any key serves.
const KEY: [u8; 32] = *b"a key of thirty-two bytes, fixed";

fn main() {
    if cfg!(debug_assertions) {
        panic!("a debug build says nothing about speed: use --release");
    }
    let space = CodeSpace::new(&CodeSecret::from_bytes(KEY));
    let oracle = FF1::<aes::Aes256>::new(&KEY, 62).expect("62 is a radix of FF1");
    let length = CodeLength::DEFAULT;
    for turn in 0..TURNS {
        let ours = nanoseconds_each(|counter| {
            black_box(space.code(length, CounterValue(counter)));
        });
        let back = nanoseconds_each(|counter| {
            let code = space.code(length, CounterValue(counter));
            black_box(space.counter(code));
        }) - ours;
        let fpe = nanoseconds_each(|counter| {
            let digits: Vec<u16> = (0..7).rev().map(|place| (counter / 62u64.pow(place) % 62) as u16).collect();
            black_box(oracle.encrypt(&[], &FlexibleNumeralString::from(digits)).expect("seven digits below 62"));
        });
        let start = Instant::now();
        let run = Run { length, start: CounterValue(0), len: CODES };
        black_box(Segment::prepare(&space, run, [turn as u8; 16]));
        let segment = start.elapsed().as_nanos() as f64 / CODES as f64;
        println!(
            "turn {turn}: code {ours:.0} ns, counter {back:.0} ns, shuffled segment {segment:.0} ns a code, fpe {fpe:.0} ns"
        );
    }
}

fn nanoseconds_each(mut work: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..CODES).for_each(&mut work);
    start.elapsed().as_nanos() as f64 / CODES as f64
}
