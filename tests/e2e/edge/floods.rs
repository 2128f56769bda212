//! Redirects beside a flood of other requests: no request occupies a core for long.
//!
//! The usual run is short. It bounds the CPU time of a turn of the core's loop, which other programs on the machine do not
//! change: a redirect waits for about one turn. Its bound on the latency is generous, because tests run unoptimised. A
//! campaign sets `CAROM_FLOOD_SECONDS`, optimises, has the node on one CPU and the clients on another, and holds the 99th
//! percentile to 10 ms.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};

use crate::support::http::{SHORT_URLS, Wire, request};
use crate::support::node::{Node, Setup, free_address, sum, wait_until};
use crate::support::tls::{Ca, NAME, open};

const TARGET: &str = "https://example.org/target";

/// Connections that follow a link, each in steps of [`STEP`].
const FOLLOWERS: usize = 20;

/// From one request of a follower to the next.
const STEP: Duration = Duration::from_millis(20);

/// Most CPU time of a turn of the core's loop, in milliseconds: the mean over a flood.
const TURN_MAX_MS: f64 = 10.0;

/// The work of the core since its start.
#[derive(Clone, Copy)]
struct CoreWork {
    /// Turns of its loop.
    turns: f64,
    /// CPU time of its thread.
    cpu_ms: f64,
}

impl CoreWork {
    fn of(node: &Node) -> CoreWork {
        let metrics = Wire::open(node.admin).get("/metrics");
        let turns = metrics.text().lines().find_map(|line| line.strip_prefix("carom_loop_turns_total{core=\"0\"} "));
        let tasks = fs::read_dir(format!("/proc/{}/task", node.pid())).expect("the node runs");
        let mut stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
        let stat = stats.find(|stat| stat.contains("(core-0-")).expect("the core runs");
        let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
        // utime and stime, in hundredths of a second.
        let ticks = fields.split_whitespace().skip(11).take(2);
        let cpu_ms = ticks.map(|ticks| ticks.parse::<f64>().expect("a number") * 10.0).sum();
        CoreWork { turns: turns.expect("a metric of the core").parse().expect("a number"), cpu_ms }
    }

    /// Returns the mean CPU time of a turn since `earlier`, in milliseconds.
    fn turn_ms_since(self, earlier: CoreWork) -> f64 {
        (self.cpu_ms - earlier.cpu_ms) / (self.turns - earlier.turns)
    }
}

/// Seconds of each flood in a campaign.
fn campaign() -> Option<u64> {
    std::env::var("CAROM_FLOOD_SECONDS").ok().and_then(|seconds| seconds.parse().ok())
}

/// Follows a link over some connections until the flood is over, each request at its time, however long the one before
/// took. Returns how long after its time each was answered.
fn follow(node: &Node, time: Duration, over: &AtomicBool) -> Vec<Duration> {
    let begin = Instant::now();
    let one = |number: usize| {
        let mut wire = node.wire();
        let mut times = Vec::new();
        let mut due = begin + STEP * number as u32 / FOLLOWERS as u32;
        while begin.elapsed() < time {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            assert_eq!(wire.get("/followed").location(), TARGET);
            times.push(due.elapsed());
            due += STEP;
        }
        times
    };
    let mut all: Vec<Duration> = std::thread::scope(|scope| {
        let followers: Vec<_> = (0..FOLLOWERS).map(|number| scope.spawn(move || one(number))).collect();
        followers.into_iter().flat_map(|follower| follower.join().unwrap()).collect()
    });
    over.store(true, Ordering::Relaxed);
    all.sort_unstable();
    all
}

/// Asks over so many connections at once, again and again, until it is over.
fn ask_all(node: &Node, connections: usize, over: &AtomicBool, ask: impl Fn(u64) -> Vec<u8>, statuses: &[u16]) -> u64 {
    let mut wires: Vec<Wire> = (0..connections).map(|_| node.wire()).collect();
    let mut asked = 0;
    while !over.load(Ordering::Relaxed) {
        for wire in &mut wires {
            wire.send(&ask(asked));
            asked += 1;
        }
        for wire in &mut wires {
            let reply = wire.reply();
            assert!(statuses.contains(&reply.status), "{reply:?}");
        }
    }
    asked
}

/// A body of a megabyte that is hard to read, and wrong.
fn hard_body() -> Vec<u8> {
    let start = format!("{{\"longUrl\": \"{TARGET}\", \"tags\": [");
    let many = "[],".repeat((1024 * 1024 - start.len() - 8) / 3);
    format!("{start}{many}[]]}}").into_bytes()
}

/// A node with a plain listener and one for TLS, with links to show.
struct Target {
    node: Node,
    ca: Ca,
    secure: String,
    _dir: tempfile::TempDir,
}

fn start() -> Target {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    ca.write("go", &[NAME]);
    let secure = free_address().to_string();
    let mut setup: Setup = ca.setup(&dir.path().join("data"), &["go"]);
    setup = setup.argument("--listen").argument("127.0.0.1:0").argument("--listen").argument(&secure);
    setup = setup.env("CAROM_TLS_LISTEN", &secure);
    if campaign().is_some() {
        // The CPU of the clients is the other one.
        setup = setup.shell("exec taskset -c 0 \"$@\"");
        let mut cpus = CpuSet::new();
        cpus.set(1);
        sched_setaffinity(None, &cpus).expect("a campaign needs two CPUs");
    }
    let node = setup.start();
    let mut wire = node.wire();
    wire.shorten_as("followed", TARGET);
    let count = if campaign().is_some() { 30_000 } else { 1_000 };
    let lines: String = (0..count)
        .map(|number| {
            let link = json!({
                "longUrl": format!("{TARGET}/{number}"), "customSlug": format!("crawlable-{number}"),
                "crawlable": true, "title": "a link", "tags": [format!("tag-{}", number % 600)],
            });
            link.to_string() + "\n"
        })
        .collect();
    let made =
        wire.ask("POST", &format!("{SHORT_URLS}/bulk"), "Content-Type: application/x-ndjson\r\n", lines.as_bytes());
    assert_eq!(made.status, 200);
    wait_until("lists", || {
        let robots = wire.get("/robots.txt");
        robots.status == 200 && robots.text().contains("crawlable-999")
    });
    drop(wire);
    Target { node, ca, secure, _dir: dir }
}

/// Asks a node until it is over, and says how often it did.
type Flood = Box<dyn Fn(&Target, &AtomicBool) -> u64 + Sync>;

/// The floods, each with its name.
fn floods() -> Vec<(&'static str, Flood)> {
    let mut floods = page_floods();
    floods.extend(api_floods());
    floods.extend(tls_floods());
    floods
}

/// Asks for one path over so many connections at once.
fn plain(connections: usize, path: String, fields: &'static str, statuses: &'static [u16]) -> Flood {
    Box::new(move |target, over| {
        ask_all(&target.node, connections, over, |_| request("GET", &path, fields, b""), statuses)
    })
}

fn page_floods() -> Vec<(&'static str, Flood)> {
    let html = "Accept: text/html\r\n";
    vec![
        (
            "QR codes",
            Box::new(|target, over| {
                // No two alike, so that none is kept from before.
                let picture = |number: u64| {
                    let (size, margin) = (1_000 - number % 900, 500 - number / 900 % 500);
                    request("GET", &format!("/followed/qr-code?size={size}&margin={margin}"), "", b"")
                };
                ask_all(&target.node, 128, over, picture, &[200, 503])
            }),
        ),
        ("previews", plain(128, "/followed+".to_owned(), html, &[200, 503])),
        ("robots.txt", plain(32, "/robots.txt".to_owned(), "", &[200, 503])),
        (
            "missing codes",
            Box::new(|target, over| {
                ask_all(&target.node, 128, over, |number| request("GET", &format!("/none-{number}"), "", b""), &[404])
            }),
        ),
        ("missing pages", plain(128, "/none/at/all".to_owned(), html, &[404])),
    ]
}

fn api_floods() -> Vec<(&'static str, Flood)> {
    vec![
        ("lists of 500", plain(32, format!("{SHORT_URLS}?itemsPerPage=500"), "", &[200, 503])),
        ("tags", plain(32, "/rest/v3/tags?withStats=true".to_owned(), "", &[200, 503])),
        ("the description", plain(128, "/rest/v3/openapi.json".to_owned(), "", &[200])),
        (
            "bodies of 1 MiB",
            Box::new(|target, over| {
                let body = request("POST", SHORT_URLS, "Content-Type: application/json\r\n", &hard_body());
                ask_all(&target.node, 8, over, |_| body.clone(), &[400, 503])
            }),
        ),
    ]
}

fn tls_floods() -> Vec<(&'static str, Flood)> {
    vec![("TLS handshakes", Box::new(handshakes)), ("HTTP/2 streams", Box::new(streams))]
}

/// Opens connections with TLS, eight at a time. Returns how many.
fn handshakes(target: &Target, over: &AtomicBool) -> u64 {
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // A new configuration has no session to resume.
                    let terms = target.ca.usual();
                    open(target.secure.parse().unwrap(), &terms);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    count.into_inner()
}

/// Asks over many streams of eight connections. Returns how many requests were answered.
fn streams(target: &Target, over: &AtomicBool) -> u64 {
    let url = format!("https://{}/followed+", target.secure);
    let mut asked = 0;
    while !over.load(Ordering::Relaxed) {
        let mut client = Command::new("h2load");
        client.args(["-n", "2000", "-c", "8", "-m", "100", &url]).stderr(Stdio::null());
        let made = client.output().expect("h2load, which `make test` installs");
        let said = String::from_utf8_lossy(&made.stdout).into_owned();
        assert!(said.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
        asked += 2_000;
    }
    asked
}

fn millis(times: &[Duration], share: f64) -> f64 {
    let place = ((times.len() - 1) as f64 * share) as usize;
    times[place].as_secs_f64() * 1_000.0
}

fn longest_task_micros(status: &Value) -> u64 {
    status["cores"][0]["longestTaskMicros"].as_u64().unwrap_or_default()
}

#[test]
fn redirects_wait_one_turn_at_most() {
    let target = start();
    let time = campaign().map_or(Duration::from_millis(1_500), Duration::from_secs);
    let mut slow = Vec::new();
    for (name, flood) in floods() {
        let over = AtomicBool::new(false);
        let (followed, before) = (sum(&target.node.status(), "/redirects"), CoreWork::of(&target.node));
        let (times, asked) = std::thread::scope(|scope| {
            let flooding = scope.spawn(|| flood(&target, &over));
            (follow(&target.node, time, &over), flooding.join().unwrap())
        });
        let turn_ms = CoreWork::of(&target.node).turn_ms_since(before);
        assert!(sum(&target.node.status(), "/redirects") >= followed + times.len() as u64);
        let [half, most, all] = [0.5, 0.99, 1.0].map(|share| millis(&times, share));
        println!(
            "{name}: {:.0}/s beside redirects that wait {half:.2} ms (p50), {most:.2} ms (p99), {all:.2} ms (max); a turn took {turn_ms:.2} ms of CPU; longest task so far {} us",
            asked as f64 / time.as_secs_f64(),
            longest_task_micros(&target.node.status()),
        );
        let (what, bound) = if campaign().is_some() { (most, 10.0) } else { (half, 50.0) };
        if what >= bound {
            slow.push(format!("{name}: {what:.1} ms, and at most {bound} ms was promised"));
        }
        if turn_ms >= TURN_MAX_MS {
            slow.push(format!("{name}: {turn_ms:.1} ms of CPU for a turn, and at most {TURN_MAX_MS} ms was promised"));
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
    target.node.terminate();
}
