//! Fills a link map, looks links up, removes all, and prints the memory and time of each.
//!
//! `cargo run --release -p carom-shards --example map_growth [links]`; ten million links by default. The worst insert
//! is given by the wall clock and by the thread's CPU time, which leaves out the time of other threads. Time that a
//! hypervisor or an interrupt takes is in both, so a control does as many operations of the same length that touch no
//! memory: compare with its line.

#![expect(clippy::print_stdout, reason = "the output is what the example is for")]

use std::hint::black_box;
use std::io::{Read, Seek};
use std::time::Instant;

use carom_shards::{
    CodeHasher, CodeLength, CodeSecret, CodeSpace, CounterValue, GeneratedCode, LinkMap, MapEntry, Policy,
};
use rustix::time::{ClockId, clock_gettime};

const URL_BYTES: usize = 100;

fn main() {
    if cfg!(debug_assertions) {
        panic!("a debug build says nothing about speed: use --release");
    }
    let links: u64 = std::env::args().nth(1).map_or(10_000_000, |links| links.parse().expect("a number of links"));
    let length = CodeLength::DEFAULT;
    let space = CodeSpace::new(&CodeSecret::from_bytes([1; 32]));
    let codes: Vec<GeneratedCode> = (0..links).map(|counter| space.code(length, CounterValue(counter))).collect();
    let hasher = CodeHasher::new(7);
    let mut meter = Meter::open();

    let before = meter.resident_bytes();
    let mut map = LinkMap::new(hasher);
    let mut stalls = Stalls::default();
    for (counter, code) in codes.iter().enumerate() {
        let target = url(counter);
        let code = code.to_code();
        let hash = hasher.hash(&code);
        let entry = MapEntry::Link { policy: Policy::default(), target: &target };
        stalls.time(|| map.put(&code, hash, entry).expect("there is memory for the links"));
    }
    let resident = meter.resident_bytes() - before;
    println!("insert: {stalls}");
    println!("control: {}", control(&stalls));
    println!(
        "{links} links: resident {:.1} bytes a link, {:.3} of code and URL; the map counts {:.1}",
        resident as f64 / links as f64,
        resident as f64 / map.link_bytes() as f64,
        map.memory_bytes() as f64 / links as f64,
    );

    // A step that shares no small factor with the number of links visits them in an order that no cache foresees; the
    // codes themselves are read one after the other, as from a socket.
    let step = (0x9e37_79b9_7f4a_7c15 % links) | 1;
    let asked: Vec<GeneratedCode> = (0..links).map(|turn| codes[(turn * step % links) as usize]).collect();
    let start = Instant::now();
    for code in asked {
        let code = code.to_code();
        black_box(map.get(&code, hasher.hash(&code)).expect("every code was inserted"));
    }
    println!("random get: mean {:.0} ns", start.elapsed().as_nanos() as f64 / links as f64);

    let mut stalls = Stalls::default();
    for (number, code) in codes.iter().enumerate() {
        let code = code.to_code();
        let hash = hasher.hash(&code);
        stalls.time(|| assert!(map.remove(&code, hash)));
        if number as u64 == links / 10 * 9 {
            let resident = meter.resident_bytes() - before;
            println!("a tenth left: resident {:.1} bytes a live link", resident as f64 / map.len() as f64);
        }
    }
    println!("remove: {stalls}");
    println!("empty: resident {} bytes more than at start", meter.resident_bytes().saturating_sub(before));
}

/// Runs as many operations of about the same mean time that touch no memory: the effect of the machine alone on the
/// worst one.
fn control(model: &Stalls) -> Stalls {
    let timed = |rounds: u64| {
        let start = Instant::now();
        black_box(
            (0..rounds).fold(1u64, |number, round| black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round)),
        );
        start.elapsed().as_nanos() as u64
    };
    let rounds = model.nanoseconds / model.count * 1_000_000 / timed(1_000_000);
    let mut stalls = Stalls::default();
    for _ in 0..model.count {
        stalls.time(|| timed(rounds));
    }
    stalls
}

/// A URL that differs in its last eight bytes.
fn url(counter: usize) -> [u8; URL_BYTES] {
    let mut url = [b'x'; URL_BYTES];
    url[..20].copy_from_slice(b"https://example.org/");
    url[URL_BYTES - 8..].copy_from_slice(&counter.to_be_bytes());
    url
}

/// Times of single operations.
#[derive(Default)]
struct Stalls {
    count: u64,
    nanoseconds: u64,
    worst: u64,
    /// The worst time by the thread's CPU time, as the counts are.
    worst_cpu: u64,
    over_100_us: u64,
    over_1_ms: u64,
}

impl Stalls {
    fn time<T>(&mut self, work: impl FnOnce() -> T) {
        let cpu_start = thread_cpu_nanoseconds();
        let start = Instant::now();
        black_box(work());
        let took = start.elapsed().as_nanos() as u64;
        self.count += 1;
        self.nanoseconds += took;
        self.worst = self.worst.max(took);
        // Only operations that were slow by the clock can have been slow by the CPU.
        if took > 20_000 {
            let cpu = thread_cpu_nanoseconds() - cpu_start;
            self.worst_cpu = self.worst_cpu.max(cpu);
            self.over_100_us += u64::from(cpu > 100_000);
            self.over_1_ms += u64::from(cpu > 1_000_000);
        }
    }
}

impl std::fmt::Display for Stalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "mean {:.0} ns, worst {:.0} us; of CPU time: worst {:.0} us, {} above 100 us, {} above 1 ms",
            self.nanoseconds as f64 / self.count as f64,
            self.worst as f64 / 1e3,
            self.worst_cpu as f64 / 1e3,
            self.over_100_us,
            self.over_1_ms,
        )
    }
}

/// Returns the CPU time that this thread has used.
fn thread_cpu_nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The resident set of this process.
struct Meter {
    statm: std::fs::File,
}

impl Meter {
    fn open() -> Meter {
        Meter { statm: std::fs::File::open("/proc/self/statm").expect("Linux has /proc") }
    }

    fn resident_bytes(&mut self) -> u64 {
        let mut text = String::new();
        self.statm.rewind().expect("files of /proc can be read again");
        self.statm.read_to_string(&mut text).expect("files of /proc are text");
        let pages = text.split_whitespace().nth(1).expect("the second number is the resident set");
        pages.parse::<u64>().expect("a number of pages") * 4096
    }
}
