//! The access log: which requests are in it, and that no request waits for it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::alarms::alarms;
use crate::support::http::{Wire, request};
use crate::support::node::{Node, Setup, wait_until};

/// A setup that writes there.
fn logging(dir: &Path, file: &Path) -> Setup {
    Setup::new(&dir.join("data")).env("CAROM_ACCESS_LOG_FILE", &file.display().to_string())
}

/// The lines of a file, of a node that has ended.
fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is whole");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Returns the lines with that path.
fn of<'l>(lines: &'l [Value], path: &str) -> Vec<&'l Value> {
    lines.iter().filter(|line| line["path"] == path).collect()
}

#[test]
fn every_request_is_logged_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("access.log");
    let node = logging(dir.path(), &file).cores(2).start();
    let mut wire = node.wire();
    // Links of both cores, so that some are asked of the other one.
    let codes: Vec<String> = (0..20).map(|n| wire.shorten(&format!("https://example.org/{n}"))).collect();
    let key = "carom_ak_0000000000000000000000000000000000";
    let fields = format!(
        "User-Agent: curl/8 {key}\r\nReferer: https://me:word@News.example/a?q=hidden\r\nX-Api-Key: {key}\r\nAuthorization: Bearer {key}\r\n"
    );
    for code in &codes {
        assert_eq!(wire.ask("GET", &format!("/{code}?token=hidden"), &fields, b"").status, 302);
    }
    assert_eq!(wire.ask("HEAD", "/none", "", b"").status, 404);
    assert_eq!(wire.get("/rest/v3/short-urls?searchTerm=hidden").status, 200);
    assert_eq!(Wire::open(node.admin).get("/status").status, 200);
    let mut broken = node.wire();
    broken.send(b"GET /x?q=hidden HTTP/1.1\r\nHost : x\r\n\r\n");
    assert_eq!(broken.reply().status, 400);
    // A password in front of the host, in both places where a client may write it.
    let mut named = node.wire();
    named.send(b"GET http://me:word@go.example/other HTTP/1.1\r\nHost: me:word@go.example\r\n\r\n");
    named.reply();
    let status = node.status();
    assert_eq!(status["accessLog"]["dropped"], 0, "{status}");
    node.terminate();

    let text = fs::read_to_string(&file).unwrap();
    for secret in ["hidden", "word", &key["carom_ak_".len()..]] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let lines = lines(&file);
    for code in &codes {
        let mine = of(&lines, &format!("/{code}"));
        assert_eq!(mine.len(), 1, "{code}");
        let expected = json!({
            "address": "127.0.0.0", "method": "GET", "host": "carom.test", "status": 302, "protocol": "HTTP/1.1", "tls": false,
            "referrer": "News.example", "agent": "curl/8 carom_ak_...",
        });
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&mine[0][name], value, "{name}");
        }
        assert!(mine[0]["micros"].as_u64().unwrap() < 30_000_000);
        assert!(mine[0]["time"].as_str().unwrap().ends_with('Z'));
        assert!(["0", "1"].contains(&mine[0]["core"].as_str().unwrap()));
    }
    assert_eq!(of(&lines, "/none")[0]["method"], "HEAD");
    assert_eq!(of(&lines, "/none")[0]["status"], 404);
    assert_eq!(of(&lines, "/rest/v3/short-urls").len(), 21);
    assert!(of(&lines, "/status").iter().all(|line| line["core"] == "admin"));
    let refused: Vec<&Value> = lines.iter().filter(|line| line["status"] == 400).collect();
    assert!(
        refused.iter().any(|line| (&line["path"], &line["method"]) == (&json!("/x"), &json!("GET"))),
        "{refused:?}"
    );
}

#[test]
fn refused_request_has_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("access.log");
    let node = logging(dir.path(), &file)
        .env("CAROM_ACCESS_LOG_ADDRESSES", "full")
        .env("CAROM_TRUSTED_PROXIES", "127.0.0.0/8")
        .env("CAROM_FORWARDED_FIELD", "x-forwarded-for")
        .env("CAROM_LIMITS_HEAD_SECONDS", "3")
        .start();
    let told = |bytes: &[u8]| {
        let mut wire = node.wire();
        wire.send(bytes);
        wire.reply().status
    };
    // Its handler would say 405, which nobody would hear.
    let chunk = "Transfer-Encoding: chunked\r\n\r\nnot hexadecimal\r\n";
    assert_eq!(told(format!("POST /nothing HTTP/1.1\r\nHost: a\r\n{chunk}").as_bytes()), 400);
    let long = format!("POST /rest/v3/short-urls HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 64 << 20);
    assert_eq!(told(long.as_bytes()), 413);
    assert_eq!(told(format!("GET /long HTTP/1.1\r\nHost: a\r\nX-A: {}\r\n\r\n", "a".repeat(40_000)).as_bytes()), 431);
    assert_eq!(told(b"GET /slow HTTP/1.1\r\nHost: a\r\n"), 408);
    // The line of a refused head names the proxy, and not the client of the request before it.
    let mut proxy = node.wire();
    assert_eq!(proxy.ask("GET", "/innocent", "X-Forwarded-For: 203.0.113.9\r\n", b"").status, 404);
    proxy.send(b"GET /guilty HTTP/1.1\r\nHost : a\r\nX-Forwarded-For: 198.51.100.7\r\n\r\n");
    assert_eq!(proxy.reply().status, 400);
    let core = node.status()["cores"][0].clone();
    assert_eq!(&core["timedOut"], &json!(1), "{core}");
    assert_eq!(&core["tooLong"], &json!(2), "{core}");
    assert_eq!(&core["badRequests"], &json!(5), "{core}");
    node.terminate();
    let all = lines(&file);
    let public: Vec<&Value> = all.iter().filter(|line| line["core"] != "admin").collect();
    let statuses: Vec<u64> = public.iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [400, 413, 431, 408, 404, 400], "{public:?}");
    assert_eq!(&of(&all, "/rest/v3/short-urls")[0]["method"], &json!("POST"));
    assert_eq!(&of(&all, "/long")[0]["status"], &json!(431));
    assert!(of(&all, "/slow")[0]["micros"].as_u64().unwrap() >= 2_750_000);
    assert_eq!(of(&all, "/innocent")[0]["address"], "203.0.113.9");
    assert_eq!(of(&all, "/guilty")[0]["address"], "127.0.0.1");
}

#[test]
fn stdout_holds_only_access_lines() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(crate::support::node::CAROM);
    command.args(["serve", "--cores", "1", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(dir.path()).env("CAROM_ACCESS_LOG_FILE", "-");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = said.filter(|line| line.contains(" serves http://"));
    let line = said.next().expect("an announcement on standard error");
    let public = line.split(" serves http://").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(Wire::open(public).get("/none").status, 404);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    // Until its end, so that nobody is kept waiting.
    let rest = said.count();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(rest, 0);
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(of(&lines, "/none").len(), 1, "{out}");
}

#[test]
fn invalid_settings_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let node = setup.clone().env("CAROM_ACCESS_LOG_ONE_IN", "10").expect("access_log.one_in has no effect").start();
    assert!(node.log().contains("access_log.one_in has no effect"));
    assert!(node.status()["accessLog"].is_null());
    node.terminate();
    let folder = dir.path().display().to_string();
    for (name, value, said) in [
        ("CAROM_ACCESS_LOG_FILE", folder.as_str(), "is a directory"),
        ("CAROM_ACCESS_LOG_FILE", " ", "is blank"),
        ("CAROM_ACCESS_LOG_FORMAT", "xml", "write json or combined"),
        ("CAROM_ACCESS_LOG_ONE_IN", "0", "from 1 to 1000000"),
        ("CAROM_ACCESS_LOG_ADDRESSES", "some", "write shortened, full or off"),
    ] {
        let (code, text) = setup.clone().env(name, value).fail();
        assert_eq!(code, 2, "{name}={value}: {code}: {text}");
        assert!(text.contains(said), "{name}={value}: {code}: {text}");
    }
}

#[test]
fn protocol_and_proxied_client_are_logged() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("access.log");
    let (ca, setup) = crate::support::tls::service(dir.path());
    let setup = setup
        .env("CAROM_ACCESS_LOG_FILE", &file.display().to_string())
        .env("CAROM_ACCESS_LOG_ADDRESSES", "full")
        .env("CAROM_TRUSTED_PROXIES", "127.0.0.0/8")
        .env("CAROM_FORWARDED_FIELD", "x-forwarded-for");
    let node = setup.start();
    let mut wire = crate::support::tls::open(node.public, &ca.usual());
    let code = wire.shorten("https://example.org/");
    wire.ask("GET", &format!("/{code}"), "X-Forwarded-For: 2001:db8:1:2::3\r\n", b"");
    wire.ask("GET", &format!("/{code}/x"), "X-Forwarded-For: 203.0.113.9\r\n", b"");
    let port = node.public.port();
    let resolve = format!("{}:{port}:127.0.0.1", crate::support::tls::NAME);
    let url = format!("https://{}:{port}/{code}", crate::support::tls::NAME);
    crate::support::http::curl(&["--http2", "--cacert", &ca.file("ca.pem"), "--resolve", &resolve, "-A", "h2", &url]);
    node.terminate();
    let lines = lines(&file);
    let followed = of(&lines, &format!("/{code}"));
    assert_eq!(followed[0]["address"], "2001:db8:1:2::3");
    assert_eq!(of(&lines, &format!("/{code}/x"))[0]["address"], "203.0.113.9");
    assert!(lines.iter().all(|line| line["tls"] == (line["core"] != "admin")), "{lines:?}");
    assert_eq!(&followed[1]["protocol"], &json!("HTTP/2.0"));
    assert_eq!(&followed[1]["status"], &json!(302));
}

#[test]
fn sampling_and_combined_format_work() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("access.log");
    let node = logging(dir.path(), &file)
        .env("CAROM_ACCESS_LOG_ONE_IN", "10")
        .env("CAROM_ACCESS_LOG_FORMAT", "combined")
        .env("CAROM_ACCESS_LOG_ADDRESSES", "off")
        .start();
    let mut wire = node.wire();
    let code = wire.shorten("https://example.org/");
    let one = request("GET", &format!("/{code}"), "", b"");
    for _ in 0..40 {
        wire.send(&one.repeat(100));
        (0..100).for_each(|_| assert_eq!(wire.reply().status, 302));
    }
    node.terminate();
    let text = fs::read_to_string(&file).unwrap();
    let count =
        text.lines().filter(|line| line.contains(&format!("\"GET /{code} HTTP/1.1\" 302 - \"-\" \"-\""))).count();
    // 4,000 chances of a tenth: six standard deviations to both sides.
    assert!((286..=514).contains(&count), "{count}");
    assert!(text.lines().all(|line| line.starts_with("- - - [")));
}

#[test]
fn moved_file_is_reopened() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("access.log");
    let node = logging(dir.path(), &file).expect("access_log_failed").start();
    let mut wire = node.wire();
    assert_eq!(wire.get("/first").status, 404);
    let written = |node: &Node| node.status()["accessLog"]["lines"].as_u64().unwrap();
    wait_until("a line", || fs::read_to_string(&file).unwrap().contains("/first"));
    fs::rename(&file, dir.path().join("access.log.1")).unwrap();
    wait_until("a new file", || file.exists());
    assert_eq!(wire.get("/second").status, 404);
    wait_until("a line", || fs::read_to_string(&file).unwrap().contains("/second"));

    // A disk that takes nothing.
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/full", &file).unwrap();
    wait_until("an alarm", || {
        assert_eq!(wire.get("/third").status, 404);
        alarms(&node.status()) == ["access_log_failed"]
    });
    crate::support::alarms::is_seen(&node, "access_log_failed");
    let status = node.status();
    assert!(status["accessLog"]["dropped"].as_u64().unwrap() > 0, "{status}");
    let before = written(&node);
    fs::remove_file(&file).unwrap();
    wait_until("lines again", || {
        assert_eq!(wire.get("/fourth").status, 404);
        written(&node) > before
    });
    wait_until("the end of the alarm", || alarms(&node.status()).is_empty());
    node.terminate();
    assert!(fs::read_to_string(&file).unwrap().contains("/fourth"));
}

#[test]
fn stalled_reader_drops_lines() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let node = logging(dir.path(), &pipe).expect("access_log_failed").start();
    let mut wire = node.wire();
    let one = request("GET", "/none", &format!("User-Agent: {}\r\n", "x".repeat(200)), b"");
    // More than pipe and ring hold: 64 KiB and 2 MiB.
    wait_until("lines that are dropped", || {
        wire.send(&one.repeat(200));
        (0..200).for_each(|_| assert_eq!(wire.reply().status, 404));
        node.status()["accessLog"]["dropped"].as_u64().unwrap() > 0
    });
    wait_until("an alarm", || alarms(&node.status()) == ["access_log_failed"]);
    let begin = Instant::now();
    node.terminate();
    // An end that waited for the reader would wait for good. One on a busy machine only takes its time.
    assert!(begin.elapsed() < Duration::from_secs(20), "the end took {:?}", begin.elapsed());
    drop(reader);
}
