//! Runs without links, which request a URL as it was given.

use std::process::{Command, Output};

use serde_json::Value;

use crate::server::{Reply, Server, missing, ok, right};
use crate::{Generator, number};

/// Runs the generator with these arguments, and with files of all formats.
fn run(generator: &Generator, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom-loadgen"));
    command.args(arguments.split_whitespace()).arg("-o").arg(generator.file("run.json"));
    for name in ["run.html", "run.txt", "run.hgrm", "run.hlog"] {
        command.arg("-o").arg(generator.file(name));
    }
    command.output().unwrap()
}

/// Checks the exit code of a run, and returns its JSON. A busy machine may limit the generator.
fn figures(generator: &Generator, output: &Output, code: i32) -> Value {
    assert!([Some(code), Some(3)].contains(&output.status.code()), "{code} expected: {output:?}");
    serde_json::from_slice(&std::fs::read(generator.file("run.json")).unwrap()).unwrap()
}

#[test]
fn short_flags_and_a_url_make_a_run() {
    let (server, generator) = (Server::start(right), Generator::new());
    let url = format!("http://{}/c7?from=here#part", server.address);
    let output = run(&generator, &format!("{url} -c 4 -d 1m -n 400 -r 400 -t 1 --warmup 0s -H X-Test:yes"));
    let json = figures(&generator, &output, 0);
    assert!(number(&json, "/requests/completed") > 100.0, "{json}");
    assert!(number(&json, "/errors/total") == 0.0, "{json}");
    assert_eq!((number(&json, "/connections"), number(&json, "/rate")), (4.0, 400.0));
    assert_eq!(number(&json, "/latencyMicros/intended/url/count"), number(&json, "/requests/planned"));
    let heads = server.heads.lock().unwrap();
    let is_right = |head: &String| head.starts_with("GET /c7?from=here HTTP/1.1\r\n") && head.contains("X-Test:yes");
    assert!(heads.iter().all(is_right), "{:?}", heads.first());
    let text = std::fs::read_to_string(generator.file("run.txt")).unwrap();
    assert_eq!(text, String::from_utf8_lossy(&output.stdout), "the file holds the table");
    assert!(std::fs::read_to_string(generator.file("run.html")).unwrap().contains("<svg"));
    assert!(std::fs::read_to_string(generator.file("run.hgrm")).unwrap().contains("#[Mean"));
    assert!(std::fs::metadata(generator.file("run.hlog")).unwrap().len() > 100);
}

#[test]
fn a_number_of_requests_ends_the_run() {
    for options in ["-n 25 -c 2 -r 500", "-n 25 -c 2 --closed", "-n 25 -c 3 -r 500 --warmup 200ms"] {
        let (server, generator) = (Server::start(right), Generator::new());
        let json = figures(&generator, &run(&generator, &format!("{}/c1 {options}", server.address)), 0);
        for count in ["planned", "sent", "completed"] {
            assert_eq!(number(&json, &format!("/requests/{count}")), 25.0, "{options}: {json}");
        }
        assert_eq!((number(&json, "/requests/unsent"), &json["interrupted"]), (0.0, &Value::Bool(false)), "{json}");
        let sent = server.heads.lock().unwrap().len();
        assert!(if options.contains("--warmup") { sent > 25 } else { sent == 25 }, "{options}: {sent}");
    }
    let (server, generator) = (Server::start(right), Generator::new());
    let options = "-n 1000 -d 500ms --warmup 0s -r 100 -c 2";
    let json = figures(&generator, &run(&generator, &format!("{}/c1 {options}", server.address)), 0);
    assert!(number(&json, "/requests/planned") < 200.0, "the duration ends first: {json}");
}

#[test]
fn a_server_that_falls_silent_ends_a_number_of_requests() {
    let (server, generator) = (Server::start(|_| Reply::Silence), Generator::new());
    let output = run(&generator, &format!("{}/c1 -n 1000 -c 1 -r 200 --timeout 300ms", server.address));
    let json = figures(&generator, &output, 1);
    assert!(number(&json, "/errors/timeout") >= 1.0, "{json}");
    assert!(number(&json, "/durationSeconds") < 60.0, "{json}");
}

#[test]
fn responses_of_a_url_must_succeed_or_redirect() {
    let (page, generator) = (Server::start(|_| Reply::Bytes(ok("a page"))), Generator::new());
    let json = figures(&generator, &run(&generator, &format!("{} -n 10 -r 100 -c 2", page.address)), 0);
    assert_eq!(number(&json, "/errors/total"), 0.0, "{json}");
    assert!(page.heads.lock().unwrap().iter().all(|head| head.starts_with("GET / HTTP/1.1")));
    let gone = Server::start(|_| Reply::Bytes(missing()));
    let arguments = format!("http://{}/x -n 10 -r 100 -c 2", gone.address);
    let json = figures(&generator, &run(&generator, &arguments), 1);
    assert_eq!(number(&json, "/errors/status"), 10.0, "{json}");
    let json = figures(&generator, &run(&generator, &format!("{arguments} --expect-status 404")), 0);
    assert_eq!(number(&json, "/errors/total"), 0.0, "{json}");
}

#[test]
fn urls_of_several_servers_keep_their_paths() {
    let (one, other, generator) = (Server::start(right), Server::start(right), Generator::new());
    let arguments = format!("{}/c1 http://{}/c2 -n 40 -r 400 -c 2", one.address, other.address);
    figures(&generator, &run(&generator, &arguments), 0);
    for (server, path) in [(&one, "GET /c1 "), (&other, "GET /c2 ")] {
        let heads = server.heads.lock().unwrap();
        assert!(!heads.is_empty(), "{heads:?}");
        assert!(heads.iter().all(|head| head.starts_with(path)), "{heads:?}");
    }
}
