//! The small functions of the hot path and of code generation, as repeatable work. `benches/micro.rs` times it, and
//! the command `instructions` counts its instructions.

use std::hint::black_box;

use carom_http::head::HeadScan;
use carom_http::{Action, Connection};
use carom_model::visits::raw::{RawVisit, copy_parts};
use carom_model::visits::record::{LoggedKind, RequestPart};
use carom_model::visits::{self, Visit};
use carom_shards::segment::{Run, Segment};
use carom_shards::{
    Code, CodeHash, CodeHasher, CodeLength, CodeSecret, CodeSpace, CounterValue, LinkMap, MapEntry, Policy,
};

/// Key of the codes. Any value does.
const KEY: [u8; 32] = [7; 32];

/// Head that a browser sends.
const BROWSER: &[u8] = b"GET /EKyEUwU HTTP/1.1\r\nHost: s.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nUpgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: cross-site\r\n\r\n";

/// Shortest head that the fast path accepts.
const MINIMAL: &[u8] = b"GET /EKyEUwU HTTP/1.1\r\nHost: s.example.com\r\n\r\n";

/// Head that the fast path passes on to hyper.
const API: &[u8] = b"POST /rest/v3/short-urls HTTP/1.1\r\nHost: s.example.com\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n";

/// Bytes of the ring in which a core logs visits.
const LOG_RING_LEN: usize = 4 * 1024 * 1024;

/// Visits between two times at which the rings are emptied: fewer than fit into them.
const VISITS_AT_ONCE: u64 = 512;

/// A piece of work: called with the number of the repetition.
pub(crate) type Work = Box<dyn FnMut(u64)>;

/// Names of all pieces of work, in the order of reports.
pub(crate) const NAMES: [&str; 14] = [
    "permutation: one code",
    "permutation: back to the counter",
    "segment: 1,000 codes, shuffled",
    "map: look-up, 1 k links",
    "map: look-up, 100 k links",
    "map: insert and remove, 1 k links",
    "map: insert and remove, 100 k links",
    "head: browser",
    "head: minimal",
    "connection: one redirect",
    "connection: 16 redirects, pipelined",
    "connection: a head for hyper",
    "visit: counted",
    "visit: counted and logged",
];

/// Prepares the work with that name.
///
/// # Panics
/// If the name is unknown.
pub(crate) fn work(name: &str) -> Work {
    match name {
        "permutation: one code" => {
            let space = CodeSpace::new(&CodeSecret::from_bytes(KEY));
            Box::new(move |n| _ = black_box(space.code(CodeLength::DEFAULT, CounterValue(n))))
        }
        "permutation: back to the counter" => {
            let space = CodeSpace::new(&CodeSecret::from_bytes(KEY));
            let code = space.code(CodeLength::DEFAULT, CounterValue(1));
            Box::new(move |_| _ = black_box(space.counter(black_box(code))))
        }
        "segment: 1,000 codes, shuffled" => {
            let space = CodeSpace::new(&CodeSecret::from_bytes(KEY));
            Box::new(move |n| {
                let run = Run { length: CodeLength::DEFAULT, start: CounterValue(n * 1_000), len: 1_000 };
                black_box(Segment::prepare(&space, run, [n as u8; 16]));
            })
        }
        "map: look-up, 1 k links" => look_up(1_000),
        "map: look-up, 100 k links" => look_up(100_000),
        "map: look-up, 1 M links" => look_up(1_000_000),
        "map: look-up, 10 M links" => look_up(10_000_000),
        "map: insert and remove, 1 k links" => insert_and_remove(1_000),
        "map: insert and remove, 100 k links" => insert_and_remove(100_000),
        "head: browser" => parse(BROWSER),
        "head: minimal" => parse(MINIMAL),
        "connection: one redirect" => step(BROWSER.to_vec(), 1),
        "connection: 16 redirects, pipelined" => step(BROWSER.repeat(16), 16),
        "connection: a head for hyper" => step(API.to_vec(), 2),
        "visit: counted" => visit(false),
        "visit: counted and logged" => visit(true),
        _ => panic!("`{name}` is not known"),
    }
}

/// Returns a map of `links` links, and codes of them in an order that defeats caches.
fn map(links: u64) -> (LinkMap, CodeHasher, Vec<(Code, CodeHash)>) {
    let space = CodeSpace::new(&CodeSecret::from_bytes(KEY));
    let hasher = CodeHasher::new(7);
    let mut map = LinkMap::new(hasher);
    let target = vec![b'x'; 100];
    let code = |counter| space.code(CodeLength::DEFAULT, CounterValue(counter)).to_code();
    for counter in 0..links {
        let code = code(counter);
        let entry = MapEntry::Link { policy: Policy::default(), target: &target };
        map.put(&code, hasher.hash(&code), entry).expect("there is memory for the links");
    }
    let step = (0x9e37_79b9_7f4a_7c15 % links) | 1;
    let asked = (0..links.min(1_000_000)).map(|turn| code(turn * step % links)).map(|code| (code, hasher.hash(&code)));
    let asked = asked.collect();
    (map, hasher, asked)
}

fn look_up(links: u64) -> Work {
    let (map, hasher, asked) = map(links);
    Box::new(move |n| {
        let (code, _) = &asked[(n % asked.len() as u64) as usize];
        black_box(map.get(code, hasher.hash(code)).is_some());
    })
}

fn insert_and_remove(links: u64) -> Work {
    let (mut map, hasher, _) = map(links);
    let space = CodeSpace::new(&CodeSecret::from_bytes(KEY));
    let fresh: Vec<Code> =
        (0..1_000).map(|n| space.code(CodeLength::DEFAULT, CounterValue(links + n)).to_code()).collect();
    let target = vec![b'y'; 100];
    Box::new(move |n| {
        let code = &fresh[(n % 1_000) as usize];
        let hash = hasher.hash(code);
        let entry = MapEntry::Link { policy: Policy::default(), target: &target };
        map.put(code, hash, entry).expect("there is memory for one link");
        assert!(map.remove(code, hash));
    })
}

fn parse(bytes: &'static [u8]) -> Work {
    Box::new(move |_| {
        let bytes = black_box(bytes);
        black_box(HeadScan::default().parse(bytes, bytes.len()).ok().flatten().expect("a whole and sound head"));
    })
}

fn step(bytes: Vec<u8>, actions: usize) -> Work {
    Box::new(move |_| {
        let (mut connection, mut at) = (Connection::for_redirects(), 0);
        for _ in 0..actions {
            // Without this, the compiler leaves out the parts of the request that nothing here reads.
            let step = black_box(connection.step(black_box(&bytes[at..])));
            at += step.consumed;
            assert!(matches!(step.action, Action::Lookup(_) | Action::HandOver | Action::Pass));
        }
        assert_eq!(at, bytes.len());
    })
}

/// Records the visit of a redirect as a core does (`src/core/access.rs`): it counts it, and with `is_logged` also logs it.
/// The difference of the two is the cost of the visit log on the core.
fn visit(is_logged: bool) -> Work {
    let Action::Lookup(request) = Connection::for_redirects().step(BROWSER).action else { panic!("no redirect") };
    let code = CodeSpace::new(&CodeSecret::from_bytes(KEY)).code(CodeLength::DEFAULT, CounterValue(1)).to_code();
    let (mut counts, mut counted) = visits::ring();
    let (mut log, mut logged) = rtrb::RingBuffer::<u8>::new(LOG_RING_LEN);
    let target = vec![b'x'; 100];
    Box::new(move |n| {
        let head = black_box(BROWSER);
        let [query, referrer, agent] = [request.query, request.referer, request.user_agent].map(|span| span.of(head));
        let visitor = counts.visitor(agent, referrer);
        black_box(counts.record(&Visit { code: Some(code), visitor }));
        if is_logged {
            let language = request.accept_language.of(head);
            let part = RequestPart { query, referrer, agent, language, ..RequestPart::default() };
            let visit = RawVisit {
                at_ms: n,
                kind: LoggedKind::Link,
                is_secure: false,
                forwards: true,
                is_bot: visitor.is_bot,
                code: Some(code),
                target: &target,
            };
            visit.encode(&part, |parts| {
                let len = parts.iter().map(|part| part.len()).sum();
                let mut chunk = log.write_chunk(len).expect("the ring is emptied in time");
                copy_parts(parts, chunk.as_mut_slices());
                chunk.commit_all();
            });
        }
        if n % VISITS_AT_ONCE == 0 {
            counted.drain(|visit| _ = black_box(visit));
            let waiting = logged.slots();
            logged.read_chunk(waiting).expect("so many bytes wait").commit_all();
        }
    })
}
