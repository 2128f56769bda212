//! The allow list of destination hosts: its static part, its dynamic part from a file, over HTTP and from Redis, the
//! notifications of Apollo, and the last valid list while the current one is malformed or unreadable.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::support::alarms::alarms;
use crate::support::bulk::send_all;
use crate::support::bypass;
use crate::support::fleet::{Fleet, settle};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{CAROM, Node, Setup, wait_until};
use crate::support::redis::Server;

const LISTED: &str = "{\"1\": \"dynamic.example\", \"2\": \"*.wide.example\"}";

/// A node whose settings name two hosts and a file with more.
struct ListedNode {
    setup: Setup,
    file: PathBuf,
}

impl ListedNode {
    fn new(dir: &Path, cores: usize) -> ListedNode {
        let file = dir.join("allow.json");
        let setup = Setup::new(&dir.join("data"))
            .cores(cores)
            .env("CAROM_ALLOW_HOSTS", "static.example, *.fixed.example")
            .env("CAROM_ALLOW_SOURCE", file.to_str().unwrap());
        ListedNode { setup, file }
    }

    /// Writes the file as a whole, so that nobody reads half of it.
    fn write(&self, text: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }
}

/// True if links may lead to a host.
fn may(wire: &mut Wire, host: &str) -> bool {
    let body = json!({"longUrl": format!("https://{host}/a?b")}).to_string();
    let reply = wire.ask("POST", SHORT_URLS, "Content-Type: application/json\r\n", body.as_bytes());
    if reply.status == 200 {
        return true;
    }
    let problem = reply.problem(400, "/invalid-data");
    assert_eq!(problem["invalidElements"], json!(["longUrl"]));
    assert!(problem["detail"].as_str().unwrap().contains("allow list"), "{problem}");
    false
}

/// Waits until links may lead to a host, or may not, on every core.
fn wait_for_host(node: &Node, host: &str, wanted: bool) {
    let mut wires: Vec<Wire> = (0..12).map(|_| node.wire()).collect();
    wait_until("the list on every core", || wires.iter_mut().all(|wire| may(wire, host) == wanted));
}

fn with_one_and_three_cores(check: impl Fn(ListedNode)) {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        check(ListedNode::new(dir.path(), cores));
    }
}

#[test]
fn static_host_is_allowed() {
    with_one_and_three_cores(|fixture| {
        fixture.write(LISTED);
        let node = fixture.setup.start();
        let mut wire = node.wire();
        for host in ["static.example", "STATIC.example:8443", "a.fixed.example", "a.b.fixed.example"] {
            assert!(may(&mut wire, host), "{host}");
        }
        for host in ["fixed.example", "a.static.example", "static.example.org", "static.example@evil.example"] {
            let body = json!({"longUrl": format!("https://{host}/")}).to_string();
            assert_eq!(wire.ask("POST", SHORT_URLS, "Content-Type: application/json\r\n", body.as_bytes()).status, 400);
        }
    });
}

#[test]
fn dynamic_host_is_allowed() {
    with_one_and_three_cores(|fixture| {
        fixture.write(LISTED);
        let node = fixture.setup.start();
        let mut wire = node.wire();
        assert!(may(&mut wire, "dynamic.example"));
        assert!(may(&mut wire, "any.wide.example"));
        assert!(!may(&mut wire, "other.example"));
        assert_eq!(&node.status()["allowList"]["static"], &json!(2));
        assert_eq!(&node.status()["allowList"]["dynamic"], &json!(2));
    });
}

#[test]
fn added_host_is_allowed() {
    with_one_and_three_cores(|fixture| {
        fixture.write("{}");
        let node = fixture.setup.start();
        assert!(!may(&mut node.wire(), "dynamic.example"));
        fixture.write(LISTED);
        wait_for_host(&node, "dynamic.example", true);
    });
}

#[test]
fn removed_dynamic_host_is_refused() {
    with_one_and_three_cores(|fixture| {
        fixture.write(LISTED);
        let node = fixture.setup.start();
        assert!(may(&mut node.wire(), "dynamic.example"));
        fixture.write("{\"2\": \"*.wide.example\"}");
        wait_for_host(&node, "dynamic.example", false);
        assert!(may(&mut node.wire(), "any.wide.example"));
    });
}

#[test]
fn removed_static_host_stays_allowed() {
    with_one_and_three_cores(|fixture| {
        fixture.write("{\"1\": \"static.example\", \"2\": \"dynamic.example\"}");
        let node = fixture.setup.start();
        assert!(may(&mut node.wire(), "static.example"));
        fixture.write("{\"1\": \"new.example\"}");
        wait_for_host(&node, "dynamic.example", false);
        assert!(may(&mut node.wire(), "static.example"));
    });
}

#[test]
fn empty_list_keeps_static_hosts() {
    with_one_and_three_cores(|fixture| {
        fixture.write(LISTED);
        let node = fixture.setup.start();
        fixture.write("{}");
        wait_for_host(&node, "dynamic.example", false);
        assert!(may(&mut node.wire(), "static.example"));
        assert_eq!(alarms(&node.status()), Vec::<&str>::new());
    });
}

#[test]
fn malformed_list_counts_as_empty() {
    with_one_and_three_cores(|fixture| {
        fixture.write(LISTED);
        let node = fixture.setup.clone().expect("allow_list_malformed").start();
        for text in ["[\"dynamic.example\"]", "{\"1\": 7}", "dynamic.example", "", "{\"1\": \"dynamic.example\""] {
            fixture.write(text);
            wait_for_host(&node, "dynamic.example", false);
            assert!(may(&mut node.wire(), "static.example"));
            assert_eq!(alarms(&node.status()), ["allow_list_malformed"], "{text}");
            fixture.write(LISTED);
            wait_for_host(&node, "dynamic.example", true);
            assert_eq!(alarms(&node.status()), Vec::<&str>::new());
        }
    });
}

#[test]
fn unreadable_list_keeps_the_last_good() {
    with_one_and_three_cores(|fixture| {
        fixture.write(LISTED);
        let setup = fixture.setup.clone().expect("allow_list_unreadable");
        let mut node = setup.start();
        std::fs::remove_file(&fixture.file).unwrap();
        for round in 0..3 {
            wait_until("the alarm", || alarms(&node.status()) == ["allow_list_unreadable"]);
            let mut wire = node.wire();
            assert!(may(&mut wire, "dynamic.example"));
            assert!(may(&mut wire, "static.example"));
            assert!(!may(&mut wire, "other.example"));
            drop(wire);
            if round == 0 {
                node.terminate();
            } else {
                node.kill();
            }
            node = setup.start();
        }
        fixture.write("{\"1\": \"other.example\"}");
        wait_for_host(&node, "other.example", true);
        assert!(!may(&mut node.wire(), "dynamic.example"));
        assert_eq!(alarms(&node.status()), Vec::<&str>::new());
    });
}

#[test]
fn only_creates_and_changes_are_checked() {
    with_one_and_three_cores(|fixture| {
        fixture.write(LISTED);
        let node = fixture.setup.start();
        let mut wire = node.wire();
        let code = wire.shorten("https://dynamic.example/kept");
        fixture.write("{}");
        wait_for_host(&node, "dynamic.example", false);
        assert_eq!(wire.get(&format!("/{code}")).location(), "https://dynamic.example/kept");
        let path = format!("{SHORT_URLS}/{code}");
        assert_eq!(wire.get(&path).json()["longUrl"], json!("https://dynamic.example/kept"));
        let mut patch = |fields: Value| {
            wire.ask("PATCH", &path, "Content-Type: application/json\r\n", fields.to_string().as_bytes())
        };
        assert_eq!(patch(json!({"title": "kept"})).status, 200);
        let problem = patch(json!({"longUrl": "https://dynamic.example/new"})).problem(400, "/invalid-data");
        assert_eq!(problem["invalidElements"], json!(["longUrl"]));
        assert_eq!(patch(json!({"longUrl": "https://static.example/new"})).status, 200);
        let lines = "{\"longUrl\": \"https://dynamic.example/\"}\n{\"longUrl\": \"https://static.example/\"}\n";
        let statuses: Vec<Value> = send_all(&node, "/rest/v3/short-urls/bulk", lines.as_bytes())
            .iter()
            .map(|result| result["status"].clone())
            .collect();
        assert_eq!(statuses, [json!(400), json!(200)]);
    });
}

#[test]
fn invalid_entries_raise_an_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = ListedNode::new(dir.path(), 1);
    fixture.write("{\"1\": \"https://a.example/\", \"2\": \"dynamic.example\", \"3\": \"b c\"}");
    let node = fixture.setup.expect("allow_list_entries").start();
    let mut wire = node.wire();
    assert!(may(&mut wire, "dynamic.example"));
    assert!(!may(&mut wire, "a.example"));
    let status = node.status();
    let alarm = status["alarms"].as_array().unwrap().iter().find(|alarm| alarm["name"] == "allow_list_entries");
    assert!(alarm.unwrap()["text"].as_str().unwrap().contains("are ignored: 2 ("), "{status}");
}

#[test]
fn any_host_is_allowed_without_a_list() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    assert!(may(&mut node.wire(), "any.example"));
    assert_eq!(node.status()["allowList"], Value::Null);
}

#[test]
fn settings_errors_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.toml");
    std::fs::write(&file, "[allow]\nhosts = [\"https://a.example\", \"b.example\", \"*\"]\nsource = \"redis\"\n")
        .unwrap();
    let checked = std::process::Command::new(CAROM).arg("check-config").arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
    assert!(!checked.status.success());
    for part in ["contains more than a host", "has a misplaced star", "the setting redis is not set"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    std::fs::write(&file, "[allow]\nhosts = []\n").unwrap();
    let checked = std::process::Command::new(CAROM).arg("check-config").arg(&file).output().unwrap();
    assert!(!checked.status.success());
    assert!(String::from_utf8_lossy(&checked.stderr).contains("is an empty list"));
    std::fs::write(&file, "[allow]\nsource = \"https://a.example/hosts?token=secret\"\n").unwrap();
    let checked = std::process::Command::new(CAROM).arg("check-config").arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{text}");
    assert!(text.contains("source is set (hidden)"), "{text}");
    assert!(!text.contains("token="), "{text}");
    assert!(!text.contains("a.example"), "{text}");
    std::fs::write(&file, "[allow]\nsource = \"https://me:secret@a.example/\"\n").unwrap();
    let checked = std::process::Command::new(CAROM).arg("check-config").arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
    assert!(!checked.status.success(), "{text}");
    assert!(text.contains("password"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

/// The list that an HTTP server sends, and the requests that it received.
#[derive(Default)]
struct Served {
    /// Status, and the list with its tag.
    answer: (u16, String),
    whole: usize,
    unchanged: usize,
    /// The headers `Authorization` and `Timestamp` of each request, in lower case.
    signed: Vec<String>,
    /// The notification ID of the list; `None` if the server has no notifications.
    notification: Option<u64>,
    /// Time for which a poll for notifications is held.
    hold: Duration,
    /// Path and query of each poll for notifications.
    polls: Vec<String>,
}

impl Served {
    /// Responses to requests for the list.
    fn reads(&self) -> usize {
        self.whole + self.unchanged
    }

    /// True if the last poll names a notification ID.
    fn is_polled_with(&self, id: &str) -> bool {
        let known = format!("%22notificationId%22%3A{id}%7D%5D");
        self.polls.last().is_some_and(|poll| poll.ends_with(&known))
    }
}

/// A configuration service on a port of its own; it ends with the process.
fn serve(served: &Arc<Mutex<Served>>) -> SocketAddr {
    bypass::enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = Arc::clone(served);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let served = Arc::clone(&served);
            std::thread::spawn(move || while answer_one(&stream, &served).is_some() {});
        }
    });
    address
}

/// Answers a request; `None` at the end of the connection.
fn answer_one(stream: &TcpStream, served: &Mutex<Served>) -> Option<()> {
    let (mut target, mut tag, mut signed) = (String::new(), None, Vec::new());
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("if-none-match") => tag = Some(value.to_owned()),
            Some((name, _)) if ["authorization", "timestamp"].contains(&&*name.to_ascii_lowercase()) => {
                signed.push(line.trim_end().to_ascii_lowercase());
            }
            None if line.trim_end().is_empty() => break,
            None if target.is_empty() => target = line.split(' ').nth(1)?.to_owned(),
            _ => {}
        }
    }
    // Both headers at once, for a test that counts them.
    served.lock().unwrap().signed.extend(signed);
    let head = if target.starts_with("/notifications/v2?") {
        answer_to_poll(&target, served)
    } else {
        answer_to_read(tag, &mut served.lock().unwrap())
    };
    (&*stream).write_all(head.as_bytes()).ok()
}

/// Returns the response to a poll for notifications: at once if the ID is another one, otherwise after the hold.
fn answer_to_poll(target: &str, served: &Mutex<Served>) -> String {
    served.lock().unwrap().polls.push(target.to_owned());
    let start = Instant::now();
    loop {
        let (id, hold) = {
            let served = served.lock().unwrap();
            (served.notification, served.hold)
        };
        let Some(id) = id else { return "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}".to_owned() };
        if !target.ends_with(&format!("%3A{id}%7D%5D")) {
            let list = json!([{"namespaceName": "hosts.json", "notificationId": id, "messages": {"details": {}}}]);
            let list = list.to_string();
            return format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{list}", list.len());
        }
        if start.elapsed() >= hold {
            return "HTTP/1.1 304 Not Modified\r\n\r\n".to_owned();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the response to a request for the list with an `ETag`.
fn answer_to_read(tag: Option<String>, served: &mut Served) -> String {
    let (status, list) = served.answer.clone();
    let own = format!("\"{}\"", list.len());
    match (status, tag) {
        (200, Some(tag)) if tag == own => {
            served.unchanged += 1;
            format!("HTTP/1.1 304 Not Modified\r\nETag: {own}\r\n\r\n")
        }
        (200, _) => {
            served.whole += 1;
            format!("HTTP/1.1 200 OK\r\nETag: {own}\r\nContent-Length: {}\r\n\r\n{list}", list.len())
        }
        (status, _) => format!("HTTP/1.1 {status} No\r\nContent-Length: 2\r\n\r\n{{}}"),
    }
}

/// A node that reads its list from Apollo, and the configuration service that sends it notifications.
fn notified(data: &Path) -> (Node, Arc<Mutex<Served>>) {
    let served = Served {
        answer: (200, LISTED.to_owned()),
        notification: Some(101),
        hold: Duration::from_secs(1),
        ..Served::default()
    };
    let served = Arc::new(Mutex::new(served));
    let address = serve(&served);
    let setup = Setup::new(data)
        .over_kernel()
        .env("CAROM_ALLOW_SOURCE", &format!("http://{address}/configs/shop/default/hosts.json?ip=10.0.0.1"))
        .env("CAROM_ALLOW_ACCESS_KEY", "key-of-apollo");
    let node = setup.start();
    assert!(may(&mut node.wire(), "dynamic.example"));
    wait_until("notifications", || node.log().contains("Apollo notifies carom of changes of the allow list"));
    wait_until("polls instead of reads", || !is_read_within(&served, Duration::from_secs(4)));
    assert!(served.lock().unwrap().is_polled_with("101"));
    (node, served)
}

/// True if the list is read within a time. Without notifications, carom reads it every two seconds.
fn is_read_within(served: &Mutex<Served>, time: Duration) -> bool {
    let before = served.lock().unwrap().reads();
    std::thread::sleep(time);
    served.lock().unwrap().reads() > before
}

/// Each wait is far shorter than the minute after which carom reads the list without a notification.
#[test]
fn apollo_notifies_of_a_change() {
    let data = tempfile::tempdir().unwrap();
    let (node, served) = notified(data.path());
    let first = served.lock().unwrap().polls[0].clone();
    let parameters = "/notifications/v2?appId=shop&cluster=default&ip=10.0.0.1&notifications=%5B%7B%22namespaceName";
    assert!(first.starts_with(parameters), "{first}");
    assert!(first.contains("%3A%22hosts.json%22%2C"), "{first}");
    served.lock().unwrap().answer = (200, "{\"1\": \"other.example\"}".to_owned());
    assert!(!is_read_within(&served, Duration::from_secs(4)));
    assert!(!may(&mut node.wire(), "other.example"));
    {
        let mut served = served.lock().unwrap();
        (served.notification, served.hold) = (Some(102), Duration::from_secs(60));
    }
    wait_for_host(&node, "other.example", true);
    assert!(!may(&mut node.wire(), "dynamic.example"));
    // The next poll knows the notification, and is held for longer than the test waits for the end of the node.
    wait_until("the next poll", || served.lock().unwrap().is_polled_with("102"));
    {
        let served = served.lock().unwrap();
        let signatures = served.signed.iter().filter(|line| line.starts_with("authorization: apollo shop:")).count();
        assert!(signatures >= served.reads() + served.polls.len(), "{:?}", served.signed);
    }
    assert!(!node.log().contains("key-of-apollo"));
    node.terminate();
}

#[test]
fn failed_notifications_leave_the_reads() {
    let data = tempfile::tempdir().unwrap();
    let (node, served) = notified(data.path());
    {
        let mut served = served.lock().unwrap();
        (served.notification, served.answer) = (None, (200, "{\"1\": \"other.example\"}".to_owned()));
    }
    wait_for_host(&node, "other.example", true);
    // A server that returns with a lower notification ID.
    {
        let mut served = served.lock().unwrap();
        (served.notification, served.answer) = (Some(7), (200, LISTED.to_owned()));
    }
    wait_for_host(&node, "dynamic.example", true);
    wait_until("a poll that knows the notification", || served.lock().unwrap().is_polled_with("7"));
    node.terminate();
}

#[test]
fn apollo_list_is_read_with_signed_requests() {
    let listed = json!({"appId": "shop", "configurations": {"content": LISTED}, "releaseKey": "1"}).to_string();
    let served = Arc::new(Mutex::new(Served { answer: (200, listed), ..Served::default() }));
    let address = serve(&served);
    let data = tempfile::tempdir().unwrap();
    let setup = Setup::new(data.path())
        .over_kernel()
        .env("CAROM_ALLOW_SOURCE", &format!("http://{address}/configs/shop/default/hosts.json"))
        .env("CAROM_ALLOW_ACCESS_KEY", "key-of-apollo");
    let node = setup.start();
    assert!(may(&mut node.wire(), "dynamic.example"));
    assert!(!may(&mut node.wire(), "other.example"));
    served.lock().unwrap().answer = (200, json!({"content": "{\"1\": \"other.example\"}"}).to_string());
    wait_for_host(&node, "other.example", true);
    let signed = served.lock().unwrap().signed.clone();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let times = signed.iter().filter_map(|line| line.strip_prefix("timestamp: ")?.parse::<u64>().ok());
    let signatures = signed.iter().filter(|line| line.starts_with("authorization: apollo shop:"));
    let (times, signatures): (Vec<u64>, usize) = (times.collect(), signatures.count());
    assert!(times.len() >= 2, "{signed:?}");
    assert!(times.len() == signatures, "{signed:?}");
    assert!(times.iter().all(|time| (now_ms - 60_000..=now_ms).contains(time)), "{signed:?}");
    assert!(!node.log().contains("key-of-apollo"));
    assert!(!node.status().to_string().contains("key-of-apollo"));
    node.terminate();
    let (_, said) = setup.env("CAROM_ALLOW_SOURCE", &format!("http://{address}/hosts.json")).fail();
    assert!(said.contains("the source has another address"), "{said}");
    assert!(!said.contains("key-of-apollo"), "{said}");
}

#[test]
fn http_list_is_fetched_conditionally() {
    let served = Arc::new(Mutex::new(Served { answer: (200, LISTED.to_owned()), ..Served::default() }));
    let address = serve(&served);
    let data = tempfile::tempdir().unwrap();
    let setup = Setup::new(data.path())
        .over_kernel()
        .cores(2)
        .env("CAROM_ALLOW_SOURCE", &format!("http://{address}/configfiles/json/app/default/hosts"))
        .expect("allow_list_unreadable");
    let node = setup.start();
    assert!(may(&mut node.wire(), "dynamic.example"));
    assert!(!may(&mut node.wire(), "other.example"));
    wait_until("answers without the list", || served.lock().unwrap().unchanged >= 2);
    assert_eq!(served.lock().unwrap().whole, 1);
    served.lock().unwrap().answer = (503, String::new());
    wait_until("the alarm", || alarms(&node.status()) == ["allow_list_unreadable"]);
    assert!(may(&mut node.wire(), "dynamic.example"));
    node.kill();
    let node = setup.start();
    wait_until("the alarm", || alarms(&node.status()) == ["allow_list_unreadable"]);
    assert!(may(&mut node.wire(), "dynamic.example"));
    assert!(!may(&mut node.wire(), "other.example"));
    served.lock().unwrap().answer = (200, "{\"1\": \"other.example\"}".to_owned());
    wait_for_host(&node, "other.example", true);
    assert!(!may(&mut node.wire(), "dynamic.example"));
}

#[test]
fn redis_list_outlives_an_outage() {
    let server = Server::start();
    let set = |list: &str| server.command(&["SET", "{carom}:allow", list]);
    set(LISTED);
    let fleet = Fleet::new(2, &server.url());
    let setup = |number| {
        let setup = fleet.setup(number).over_kernel();
        let setup = setup.env("CAROM_ALLOW_SOURCE", "redis").env("CAROM_ALLOW_HOSTS", "static.example");
        setup.expect("redis_away").expect("allow_list_unreadable")
    };
    let mut nodes: Vec<Node> = (0..2).map(|number| setup(number).start()).collect();
    // Without codes, a node creates no link for any host.
    nodes.iter().for_each(settle);
    nodes.iter().for_each(|node| wait_for_host(node, "dynamic.example", true));
    set("{\"1\": \"other.example\"}");
    for node in &nodes {
        wait_for_host(node, "dynamic.example", false);
        assert!(may(&mut node.wire(), "other.example"));
        assert!(may(&mut node.wire(), "static.example"));
    }
    server.kill();
    wait_until("the alarm", || alarms(&nodes[0].status()).contains(&"allow_list_unreadable"));
    assert!(may(&mut nodes[0].wire(), "other.example"));
    assert!(!may(&mut nodes[0].wire(), "dynamic.example"));
    nodes.remove(0).kill();
    let node = setup(0).start();
    assert!(may(&mut node.wire(), "other.example"));
    assert!(!may(&mut node.wire(), "dynamic.example"));
}
