//! End-to-end tests of the load generator's binary, against servers whose behaviour is known.

#![allow(clippy::unwrap_used, reason = "what fails in a test ends it")]

mod bind;
mod compare;
mod http2;
mod live;
mod server;
#[path = "../../../tests/e2e/support/session_page.rs"]
mod session_page;
mod sessions;
#[path = "../../../tests/e2e/support/terminal.rs"]
#[allow(dead_code, reason = "the load generator asks for no keys")]
mod terminal;
mod tls;
mod url;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::server::{Reply, Server, long_url, missing, ok, pause, redirect, right, target_of};

/// The generator's binary, with a folder for its files.
struct Generator {
    folder: tempfile::TempDir,
}

impl Generator {
    fn new() -> Generator {
        let folder = tempfile::tempdir().unwrap();
        let lines: String = (0..1_000)
            .map(|number| {
                format!("{{\"shortCode\":\"c{number}\",\"longUrl\":\"{}\"}}\n", target_of(&format!("c{number}")))
            })
            .collect();
        std::fs::write(folder.path().join("codes"), lines).unwrap();
        Generator { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, server: &Server, options: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_carom-loadgen"));
        command.args(["--target", &server.address.to_string(), "--codes"]).arg(self.file("codes"));
        command.arg("--json").arg(self.file("json")).args(options.split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the generator and checks its exit code. Returns its JSON. On a busy machine the generator may report
    /// itself as the bottleneck with code 3, which most tests accept.
    fn run(&self, server: &Server, options: &str, code: i32) -> Value {
        self.finish(&self.command(server, options).output().unwrap(), code)
    }

    fn finish(&self, output: &Output, code: i32) -> Value {
        let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let was_late = output.status.code() == Some(3) && matches!(code, 0 | 1);
        assert!(was_late || output.status.code() == Some(code), "{code} expected: {shown}");
        serde_json::from_slice(&std::fs::read(self.file("json")).unwrap()).unwrap()
    }
}

fn number(json: &Value, path: &str) -> f64 {
    json.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {json}"))
}

#[test]
fn a_stall_is_felt_by_everybody_who_waited_and_a_closed_loop_hides_it() {
    let begin = Instant::now();
    let server = Server::start(move |head| {
        // The server answers nothing in the first tenth of each second.
        let into_second = Duration::from_nanos(u64::from(begin.elapsed().subsec_nanos()));
        if into_second < Duration::from_millis(100) {
            pause(Duration::from_millis(100) - into_second);
        }
        right(head)
    });
    let generator = Generator::new();
    let open = generator.run(&server, "--rate 500 --connections 16 --warmup 0s --duration 4s", 0);
    let p99 = number(&open, "/latencyMicros/intended/all/p99");
    assert!((80_000.0..130_000.0).contains(&p99), "{p99}");
    let median = number(&open, "/latencyMicros/intended/all/p50");
    assert!(median < 20_000.0, "{median}");
    assert!(number(&open, "/requests/lateForServer") > 0.0, "{open}");
    let closed = generator.run(&server, "--closed --connections 1 --warmup 0s --duration 4s", 0);
    let p99 = number(&closed, "/latencyMicros/actual/all/p99");
    assert!(p99 < 20_000.0, "the control: a closed loop would have told {p99}");
}

#[test]
fn wrong_answers_are_counted_by_kind_and_fail_the_run() {
    let count = AtomicUsize::new(0);
    let every = move |n: usize| count.fetch_add(1, Ordering::Relaxed) % n == n - 1;
    let every = Arc::new(every);
    type Answer = Box<dyn Fn(&str) -> Reply + Send + Sync>;
    let cases: Vec<(&str, Answer)> = vec![
        ("location", {
            let every = Arc::clone(&every);
            Box::new(move |head| if every(100) { Reply::Bytes(redirect("https://evil.example/")) } else { right(head) })
        }),
        ("status", {
            let every = Arc::clone(&every);
            Box::new(move |head| if every(100) { Reply::Bytes(missing()) } else { right(head) })
        }),
        ("malformed", {
            let every = Arc::clone(&every);
            Box::new(move |head| if every(100) { Reply::Last("what?\r\n\r\n".to_owned()) } else { right(head) })
        }),
    ];
    for (fault, answer) in cases {
        let server = Server::start(answer);
        let json = Generator::new().run(&server, "--rate 500 --warmup 200ms --duration 3s --slo p50=10s", 1);
        assert_eq!(json["verdict"], "wrong answers");
        assert!(number(&json, &format!("/errors/{fault}")) >= 3.0, "{fault}: {json}");
        assert_eq!(number(&json, "/errors/total"), number(&json, &format!("/errors/{fault}")), "{json}");
    }
}

#[test]
fn answers_that_do_not_come_are_errors_and_stay_in_the_histogram() {
    let cut = Server::start(|head| match right(head) {
        Reply::Bytes(bytes) if head.starts_with("GET /c7") => Reply::Last(bytes[..20].to_owned()),
        reply => reply,
    });
    let json = Generator::new().run(&cut, "--rate 500 --requests 500 --slo errors=0", 1);
    assert!(number(&json, "/errors/closed") >= 1.0, "{json}");
    assert!(json["slo"][0]["held"] == false, "{json}");
    let silent = Server::start(|head| if head.starts_with("GET /c1") { Reply::Silence } else { right(head) });
    let json = Generator::new().run(&silent, "--rate 200 --warmup 0s --duration 3s --timeout 300ms --slo errors=0", 1);
    assert!(number(&json, "/errors/timeout") >= 1.0, "{json}");
    assert!(number(&json, "/latencyMicros/intended/all/max") >= 290_000.0, "{json}");
    assert_eq!(
        number(&json, "/latencyMicros/intended/all/count"),
        number(&json, "/requests/planned"),
        "nothing vanishes: {json}"
    );
    let dead = Server::start(|_| Reply::Silence);
    let json = Generator::new().run(&dead, "--rate 50 --connections 4 --warmup 0s --duration 3s --timeout 300ms", 1);
    assert_eq!(json["verdict"], "wrong answers", "no answer at all is no success");
}

#[test]
fn a_generator_that_was_stopped_says_that_it_was_the_bottleneck() {
    let server = Server::start(right);
    let generator = Generator::new();
    let started = Instant::now();
    let child = generator.command(&server, "--rate 500 --warmup 0s --duration 3s").spawn().unwrap();
    let pid = Pid::from_child(&child);
    while server.heads.lock().unwrap().len() < 100 {
        assert!(started.elapsed() < Duration::from_secs(20), "no requests come");
        pause(Duration::from_millis(5));
    }
    kill_process(pid, Signal::STOP).unwrap();
    pause(Duration::from_millis(500));
    kill_process(pid, Signal::CONT).unwrap();
    let json = generator.finish(&child.wait_with_output().unwrap(), 3);
    assert_eq!(json["generator"]["bottleneck"], true);
    assert!(number(&json, "/generator/lagMicros/max") > 400_000.0, "{json}");
    assert!(number(&json, "/requests/lateForGenerator") > 100.0, "{json}");
    // The control: without a disturbance few requests are late.
    let json = generator.run(&server, "--rate 500 --warmup 0s --duration 1s", 0);
    assert!(number(&json, "/requests/lateForGenerator") < 100.0, "{json}");
}

#[test]
fn wrong_usage_names_every_mistake() {
    let run = |arguments: &str| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_carom-loadgen")).args(arguments.split_whitespace()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = run("--target 127.0.0.1:1 --rate x --duration 5 --mix put=1 --slo p98=1s");
    assert_eq!(code, Some(2));
    for option in ["--rate", "--duration", "--mix", "--slo"] {
        assert!(text.contains(option), "{option} in {text}");
    }
    for wrong in ["", "--target 127.0.0.1:1 --frobnicate", "--target 127.0.0.1:1 --codes /nowhere/at/all"] {
        assert_eq!(run(wrong).0, Some(2), "{wrong}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("codes");
    std::fs::write(&file, "{\"shortCode\":\"a\",\"longUrl\":\"https://a/\"}\nnonsense\n").unwrap();
    let (code, text) = run(&format!("--target 127.0.0.1:1 --codes {}", file.display()));
    assert!(code == Some(2), "{text}");
    assert!(text.contains("line 2"), "{text}");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, text) = run(&format!("--target {free} --mix miss=1 --connections 2"));
    assert!(code == Some(4), "{text}");
    assert!(text.contains("cannot be reached"), "{text}");
}

#[test]
fn a_seed_repeats_the_requests() {
    let lines = |seed: u64, popularity: &str| {
        let server = Server::start(right);
        let options = format!(
            "--seed {seed} {popularity} --rate 400 --arrival constant --connections 1 --requests 150 --mix redirect=8,miss=1,head=1"
        );
        Generator::new().run(&server, &options, 0);
        let heads = server.heads.lock().unwrap();
        heads.iter().map(|head| head.lines().next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for popularity in ["", "--zipf 1.1"] {
        let (one, two, other) = (lines(7, popularity), lines(7, popularity), lines(8, popularity));
        let common = one.len().min(two.len()).min(other.len());
        assert!(common > 100, "{common}");
        assert_eq!(one[..common], two[..common]);
        assert_ne!(one[..common], other[..common]);
    }
}

#[test]
fn files_agree_with_each_other() {
    let server = Server::start(right);
    let generator = Generator::new();
    let (hgrm, hlog, html) = (generator.file("hgrm"), generator.file("hlog"), generator.file("html"));
    let mut command = generator.command(&server, "--rate 1000 --warmup 200ms --duration 3s --slo errors=0");
    command.arg("--hgrm").arg(&hgrm).arg("--hlog").arg(&hlog).arg("--html").arg(&html);
    // A machine that stands still at the end of a run leaves requests unsent, which only some of the files have.
    let mut runs = std::iter::repeat_with(|| generator.finish(&command.output().unwrap(), 0)).take(5);
    let json = runs.find(|json| number(json, "/requests/unsent") == 0.0).expect("a run that sends all");
    for (word, older) in [
        ("/requests/successful", "/requests/completed"),
        ("/requests/notSent", "/requests/unsent"),
        ("/latencyMicros/corrected", "/latencyMicros/intended"),
        ("/latencyMicros/uncorrected", "/latencyMicros/actual"),
        ("/generator/schedulerLagMicros", "/generator/lagMicros"),
    ] {
        assert!(json.pointer(word).is_some(), "{word}: {json}");
        assert!(json.pointer(word) == json.pointer(older), "{word}: {json}");
    }
    let completed = number(&json, "/requests/completed");
    assert_eq!(completed, number(&json, "/requests/planned"));
    let series: f64 =
        json["series"].as_array().unwrap().iter().map(|second| second["completed"].as_f64().unwrap()).sum();
    assert_eq!(series, completed);

    let log = std::fs::read(&hlog).unwrap();
    let mut all = Histogram::<u64>::new(3).unwrap();
    let mut seconds = 0;
    for entry in IntervalLogIterator::new(&log).map(|entry| entry.expect("a log that parses")) {
        if let LogEntry::Interval(interval) = entry {
            let bytes = base64(interval.encoded_histogram());
            let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            assert_eq!(interval.duration(), Duration::from_secs(1));
            all.add(&histogram).unwrap();
            seconds += 1;
        }
    }
    assert_eq!((all.len() as f64, seconds), (completed, 3));
    let p99 = number(&json, "/latencyMicros/intended/all/p99");
    let from_log = all.value_at_quantile(0.99) as f64 / 1e3;
    assert!((from_log / p99 - 1.0).abs() < 0.01, "{from_log} in the log, {p99} in the JSON");
    let text = std::fs::read_to_string(&hgrm).unwrap();
    assert!(text.trim_start().starts_with("Value     Percentile TotalCount 1/(1-Percentile)"), "{text}");
    assert!(text.contains("#[Mean    ="), "{text}");
    assert!(text.contains(&format!("Total count    = {completed:12}]")), "{text}");
    let max: f64 = text
        .lines()
        .find_map(|line| line.strip_prefix("#[Max     ="))
        .unwrap()
        .split(',')
        .next()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!((max * 1e3 / number(&json, "/latencyMicros/intended/all/max") - 1.0).abs() < 0.01, "{max}");

    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("<svg"), "a page that needs nothing else");
    assert!(!["<script", "src="].iter().any(|part| page.contains(part)), "a page that needs nothing else");
}

/// Decodes base64 with the alphabet of RFC 4648.
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let digit = ALPHABET.iter().position(|one| *one == byte).expect("base64") as u32;
        (bits, count) = (bits << 6 | digit, count + 6);
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

#[test]
fn every_kind_is_sent_in_its_share_and_checked() {
    let server = Server::start(right);
    let options = "--rate 1000 --connections 8 --requests 2000 --mix redirect=80,head=10,miss=8,create=2 -H X-Test:1";
    let json = Generator::new().run(&server, options, 0);
    assert_eq!(number(&json, "/errors/total"), 0.0, "{json}");
    let heads = server.heads.lock().unwrap();
    let shares = shares(&heads);
    for (kind, percent) in [("redirect", 80.0), ("head", 10.0), ("miss", 8.0), ("create", 2.0f64)] {
        let expected = heads.len() as f64 * percent / 100.0;
        let seen = shares[kind] as f64;
        assert!((seen - expected).abs() < 6.0 * expected.sqrt(), "{kind}: {seen} for {expected}");
        assert_eq!(number(&json, &format!("/latencyMicros/actual/{kind}/count")), seen);
    }
    assert!(heads.iter().all(|head| head.contains("X-Test:1")));
}

#[test]
fn connections_are_renewed_and_pipelined_as_asked() {
    let server = Server::start(right);
    let json = Generator::new().run(&server, "--rate 400 --connections 4 --renew 1 --warmup 0s --duration 1s", 0);
    let sent = number(&json, "/requests/sent") as usize;
    let opened = server.connections.load(Ordering::Relaxed);
    assert!((sent..=sent + 4).contains(&opened), "{opened} connections for {sent} requests");
    assert!(server.heads.lock().unwrap().iter().all(|head| head.contains("Connection: close")));

    let server = Server::start(right);
    let json = Generator::new().run(&server, "--rate 400 --connections 4 --renew 10 --warmup 0s --duration 1s", 0);
    let sent = number(&json, "/requests/sent") as usize;
    let opened = server.connections.load(Ordering::Relaxed);
    assert!((sent / 10..=sent / 10 + 8).contains(&opened), "{opened} connections for {sent} requests");

    // The server takes a while for each response: 8 requests in flight on one connection raise the throughput.
    let slow = Server::start(|head| {
        pause(Duration::from_micros(200));
        right(head)
    });
    let json = Generator::new().run(&slow, "--closed --connections 1 --pipeline 8 --requests 2000", 0);
    let (completed, mean) = (number(&json, "/requests/completed"), number(&json, "/latencyMicros/actual/all/mean"));
    let in_flight = completed * mean / 1e6 / number(&json, "/durationSeconds");
    assert!((4.0..12.0).contains(&in_flight), "{in_flight} in flight");
    assert_eq!(slow.connections.load(Ordering::Relaxed), 1);
}

#[test]
fn several_targets_share_the_connections() {
    let (one, other) = (Server::start(right), Server::start(right));
    let options = format!("--target {} --rate 400 --connections 6 --requests 300", other.address);
    Generator::new().run(&one, &options, 0);
    for server in [&one, &other] {
        assert_eq!(server.connections.load(Ordering::Relaxed), 3);
        assert!(server.heads.lock().unwrap().len() > 50);
    }
}

#[test]
fn links_are_made_first_where_there_is_no_file() {
    let server = Server::start(right);
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("json");
    let output = Command::new(env!("CARGO_BIN_EXE_carom-loadgen"))
        .args([
            "--target",
            &format!("http://{}", server.address),
            "--create",
            "50",
            "--rate",
            "200",
            "--connections",
            "4",
        ])
        .args(["--requests", "100", "--api-key", "very-secret", "--quiet", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    assert!(output.stdout.is_empty(), "quiet");
    assert!(output.stderr.is_empty(), "quiet");
    let heads = server.heads.lock().unwrap();
    let creates: Vec<&String> = heads.iter().filter(|head| head.starts_with("POST /rest/v3/short-urls ")).collect();
    assert_eq!(creates.len(), 50);
    assert!(creates.iter().all(|head| head.contains("X-Api-Key: very-secret")));
    assert!(heads.iter().filter(|head| head.starts_with("GET /made")).count() > 50);
    assert!(!std::fs::read_to_string(&json).unwrap().contains("very-secret"));
}

/// True if the generator reports that a busy machine limited it.
fn was_limited(json: &Value) -> bool {
    json["generator"]["bottleneck"] == true
}

#[test]
fn the_search_finds_what_a_server_can_do() {
    // One request after the other, a millisecond each: at most a thousand a second.
    let gate = std::sync::Mutex::new(());
    let server = Server::start(move |head| {
        let _one = gate.lock().unwrap();
        let until = Instant::now() + Duration::from_millis(1);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        right(head)
    });
    let generator = Generator::new();
    let options = "--find-rate --rate 100 --connections 32 --warmup 100ms --duration 500ms --slo p90<100ms";
    let output = generator.command(&server, options).output().unwrap();
    let json = generator.finish(&output, 0);
    let rate = number(&json, "/rate");
    assert!(rate < 1_300.0, "{json}");
    assert!(rate >= 200.0 || was_limited(&json), "{json}");
    assert_eq!((&json["slo"][0]["held"], &json["slo"][0]["met"]), (&Value::Bool(true), &Value::Bool(true)));
    let answer = json["found"]["text"].as_str().unwrap();
    assert!(answer.starts_with("max rate "), "{answer}");
    assert!(answer.contains("/s within p90<100ms (limited by: "), "{answer}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().last(), Some(answer));
    assert_eq!(number(&json, "/found/maxRate"), rate);
}

#[test]
fn a_search_takes_refusals_for_too_much_and_not_for_wrong() {
    // The server serves two hundred requests a second and refuses the rest.
    let begin = Instant::now();
    let served = std::sync::Mutex::new((0, 0));
    let server = Server::start(move |request| {
        let mut served = served.lock().unwrap();
        let tenth = begin.elapsed().as_millis() / 100;
        if served.0 != tenth {
            *served = (tenth, 0);
        }
        served.1 += 1;
        if served.1 <= 40 {
            right(request)
        } else {
            Reply::Bytes("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_owned())
        }
    });
    let options = "--find-rate --arrival constant --rate 100 --warmup 0s --duration 500ms --slo p99=1s";
    let json = Generator::new().run(&server, options, 0);
    let steps = json["search"].as_array().unwrap();
    assert!(steps.len() > 3, "{json}");
    assert!(steps.iter().any(|step| step["held"] == false), "{json}");
    let rate = number(&json, "/rate");
    assert!(rate < 500.0, "{json}");
    assert!(rate >= 100.0 || was_limited(&json), "{json}");

    // Missing responses also fail the objective.
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request| match count.fetch_add(1, Ordering::Relaxed) % 50 {
        49 => Reply::Last(String::new()),
        _ => {
            // Long enough that the generator's own lag, on a busy machine, is less than half of the latency.
            pause(Duration::from_millis(5));
            right(request)
        }
    });
    let options = "--find-rate --arrival constant --rate 40 --warmup 0s --duration 500ms --connections 4 --slo p50=1s";
    let json = Generator::new().run(&server, options, 0);
    assert!(number(&json, "/rate") < 200.0, "{json}");
}

#[test]
fn a_backlog_is_unsent_and_no_throughput() {
    let server = Server::start(|request| {
        pause(Duration::from_millis(50));
        right(request)
    });
    let json = Generator::new().run(&server, "--rate 2000 --connections 4 --warmup 0s --duration 1s", 0);
    let (sent, unsent) = (number(&json, "/requests/sent"), number(&json, "/requests/unsent"));
    assert!(sent <= 88.0, "{json}");
    assert!(unsent > 1_500.0, "{json}");
    assert_eq!(sent + unsent, number(&json, "/requests/planned"));
    assert!(number(&json, "/throughput") <= 80.0, "{json}");
}

#[test]
fn what_creates_make_is_checked() {
    let answers: [fn(&str) -> String; 3] = [
        |request| ok(&format!("{{\"shortCode\":\"same\",\"longUrl\":\"{}\"}}", long_url(request))),
        |_| ok("{\"shortCode\":\"a\",\"longUrl\":\"https://elsewhere.example/\"}"),
        |_| ok("{}"),
    ];
    for answer in answers {
        let server = Server::start(move |request| Reply::Bytes(answer(request)));
        let json = Generator::new().run(&server, "--mix create=1 --rate 100 --requests 50", 1);
        assert!(number(&json, "/errors/created") > 10.0, "{json}");
    }
    let server = Server::start(|request| match right(request) {
        Reply::Bytes(bytes) => {
            let (_, body) = bytes.split_once("\r\n\r\n").unwrap();
            let (one, two) = body.split_at(10);
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            Reply::Bytes(format!("{head}a\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", two.len()))
        }
        reply => reply,
    });
    let json = Generator::new().run(&server, "--mix create=1 --rate 100 --requests 50", 0);
    assert_eq!(number(&json, "/errors/total"), 0.0, "{json}");
}

#[test]
fn every_target_is_asked_by_whatever_thread() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    let (one, other) = (Server::start(right), Server::start(right));
    let options = format!("--target {} --threads 2 --rate 400 --connections 2 --requests 200", other.address);
    Generator::new().run(&one, &options, 0);
    for server in [&one, &other] {
        assert_eq!(server.connections.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn links_that_cannot_be_made_are_given_up() {
    // The server creates the first three links, and then stops answering.
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request| match count.fetch_add(1, Ordering::Relaxed) {
        0..3 => right(request),
        _ => Reply::Silence,
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom-loadgen"));
    let target = server.address.to_string();
    command.args(["--target", &target, "--create", "20", "--connections", "1", "--timeout", "3s"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1), "{output:?}");
    assert!(text.contains("3 of 20 links"), "{output:?}");
}

/// A process that uses up a CPU until the test ends, even by a panic.
struct Burning(Child);

impl Drop for Burning {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn a_thread_that_others_keep_from_its_cpu_says_so() {
    let server = Server::start(right);
    let generator = Generator::new();
    // Two processes use up the generator's CPU until the test ends.
    let burn =
        || Burning(Command::new("taskset").args(["-c", "0", "sh", "-c", "while :; do :; done"]).spawn().unwrap());
    let _burning = [burn(), burn()];
    let json = generator.run(&server, "--closed --cpus 0 --connections 4 --warmup 0s --duration 1s", 3);
    assert!(number(&json, "/generator/displaced") > 0.1, "{json}");
}

#[test]
fn an_interrupted_run_still_reports() {
    let server = Server::start(right);
    let generator = Generator::new();
    let started = Instant::now();
    let child: Child = generator.command(&server, "--rate 500 --warmup 0s --duration 1h").spawn().unwrap();
    while server.heads.lock().unwrap().len() < 300 {
        assert!(started.elapsed() < Duration::from_secs(20), "no requests come");
        pause(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let json = generator.finish(&child.wait_with_output().unwrap(), 130);
    assert_eq!(json["interrupted"], true);
    assert!(number(&json, "/requests/completed") >= 250.0, "{json}");
    assert!(number(&json, "/durationSeconds") < 20.0, "{json}");
    assert_eq!(number(&json, "/requests/unsent"), 0.0, "what was not due yet is not missing");
}

impl Generator {
    /// Returns the JSON of a run that came to its end; `None` for one that never started.
    fn finish_or_not(&self, output: &Output, code: i32) -> Option<Value> {
        if matches!(code, 0 | 1 | 3) {
            return Some(self.finish(output, code));
        }
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        None
    }
}

/// Counts requests by method and kind of path.
fn shares(heads: &[String]) -> HashMap<&'static str, usize> {
    let mut shares = HashMap::new();
    for head in heads {
        let line = head.lines().next().unwrap();
        let kind = match line {
            _ if line.starts_with("HEAD /c") => "head",
            _ if line.starts_with("POST ") => "create",
            _ if line.contains('-') => "miss",
            _ => "redirect",
        };
        *shares.entry(kind).or_default() += 1;
    }
    shares
}
