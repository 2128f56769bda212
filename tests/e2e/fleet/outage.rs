//! Redis is killed, stopped, unreachable, slow, or sends garbage: redirects continue, and no acknowledged change is
//! lost.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use carom_limits::CHANGE_TIME_MIN;
use serde_json::json;
use tempfile::TempDir;

use crate::support::browser::Browser;
use crate::support::bulk::{BULK, KIND, code_of};
use crate::support::fleet::{Fleet, known, most_are_shorter, redirects, settle, setup, with_usual_timeouts};
use crate::support::fleet_clients::{self, Made, check};
use crate::support::http::Wire;
use crate::support::links::change;
use crate::support::node::{Node, Setup as NodeSetup, free_address, wait_until};
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis::{Server, Setup};

/// Longest time until nodes have heard of a Redis that is back: a second on an idle machine.
const RECOVERED_WITHIN: Duration = Duration::from_secs(5);

/// Duration of each kind of outage; `make soak` takes a minute.
fn outage_time() -> Duration {
    let seconds = std::env::var("CAROM_OUTAGE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

fn some_links(node: &Node) -> Vec<Made> {
    let mut wire = node.wire();
    let target = |number: usize| format!("https://example.org/before/{number}");
    (0..200).map(|number| Made { code: wire.shorten(&target(number)), target: target(number) }).collect()
}

/// Two nodes under load while `outage` does its worst and undoes it; then everything must be everywhere.
fn survive(nodes: &[Node], begin: impl FnOnce(), end: impl FnOnce()) -> fleet_clients::Seen {
    let links = some_links(&nodes[0]);
    nodes.iter().for_each(settle);
    wait_until("links on both nodes", || nodes.iter().all(|node| check(node.public, &links).is_empty()));
    let addresses: Vec<_> = nodes.iter().map(|node| node.public).collect();
    let (seen, recovered) = fleet_clients::run(&addresses, 2, Duration::from_millis(2), &links, || {
        std::thread::sleep(Duration::from_millis(300));
        begin();
        std::thread::sleep(outage_time());
        end();
        let back = Instant::now();
        wait_until("nodes that have heard of Redis", || {
            nodes.iter().all(|node| node.status()["redis"]["connected"] == true)
        });
        back.elapsed()
    });
    println!(
        "{} made, {} deleted, {} followed, slowest create {:?}",
        seen.made.len(),
        seen.deleted.len(),
        seen.right,
        seen.slowest
    );
    assert_eq!(seen.wrong, Vec::<String>::new());
    assert!(seen.right > 20, "{:?}", seen.refused);
    assert!(seen.made.len() > 20, "{:?}", seen.refused);
    assert!(seen.deleted.len() > 2, "{:?}", seen.refused);
    assert!(seen.refused.is_empty(), "{:?}", seen.refused);
    assert!(recovered < RECOVERED_WITHIN, "{recovered:?}");
    nodes.iter().for_each(settle);
    assert_eq!(seen.twice(), Vec::<&str>::new());
    for node in nodes {
        assert_eq!(seen.check_on(node.public), Vec::<String>::new());
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
    seen
}

/// Two nodes without proxies.
fn start(fleet: &Fleet) -> Vec<Node> {
    // One of the tests empties Redis.
    let expected = ["redis_away", "counter_regressed"];
    let start = |number| expected.into_iter().fold(with_usual_timeouts(fleet.setup(number)), NodeSetup::expect).start();
    let nodes: Vec<Node> = (0..2).map(start).collect();
    nodes.iter().for_each(settle);
    nodes
}

/// Two nodes, each behind a proxy of its own to one server. The first `usual` of them wait for Redis as long as nodes usually do.
fn behind_proxies(server: &Server, usual: usize) -> (TempDir, Vec<Proxy>, Vec<Node>) {
    let folder = tempfile::tempdir().unwrap();
    let proxies: Vec<Proxy> = (0..2).map(|_| Proxy::start(server.address())).collect();
    let start = |(number, proxy): (usize, &Proxy)| {
        let data_dir = folder.path().join(number.to_string());
        let setup = setup(&data_dir, number, &format!("redis://{}", proxy.address())).expect("redis_away");
        if number < usual { with_usual_timeouts(setup).start() } else { setup.start() }
    };
    let nodes: Vec<Node> = proxies.iter().enumerate().map(start).collect();
    nodes.iter().for_each(settle);
    (folder, proxies, nodes)
}

fn survive_mode(mode: Mode) -> fleet_clients::Seen {
    let server = Server::start();
    let (_folder, proxies, nodes) = behind_proxies(&server, 2);
    let set = |mode: Mode| proxies.iter().for_each(|proxy| proxy.set(mode));
    survive(&nodes, || set(mode), || set(Mode::Pass))
}

#[test]
fn killed_redis_returns_with_data() {
    let server = Setup::new().append_only(true).start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet);
    survive(&nodes, || server.kill(), || server.start_again());
}

#[test]
fn console_shows_other_nodes_as_unknown() {
    let server = Setup::new().append_only(true).start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet);
    let browser = Browser::open();
    browser.go(&format!("http://{}/admin/fleet", nodes[0].admin));
    let says = |kind: &str, times: usize| {
        let badges = format!("document.querySelectorAll('main tbody .badge.{kind}').length");
        browser.value(&badges) == serde_json::json!(times)
    };
    wait_until("two that serve", || says("good", 2));
    server.kill();
    wait_until("one of which nobody knows", || says("good", 1) && says("warn", 1));
    let silent = |node: &serde_json::Value| node["silentMillis"].as_u64().unwrap() > 1_500;
    wait_until("silence", || nodes[0].status()["fleet"]["nodes"].as_array().unwrap().iter().all(silent));
    server.start_again();
    wait_until("two that serve again", || says("good", 2));
    browser.close();
}

#[test]
fn empty_redis_is_refilled() {
    let server = Setup::new().append_only(true).start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet);
    survive(&nodes, || server.kill(), || server.start_again_empty());
    // A node that knows nothing gets everything from Redis.
    let folder = tempfile::tempdir().unwrap();
    let third = setup(folder.path(), 9, &server.url()).start();
    settle(&third);
    wait_until("all links on the new node", || third.status()["links"] == nodes[0].status()["links"]);
}

#[test]
fn emptied_redis_denies_no_link() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let start = |number| fleet.setup(number).expect("redis_away").expect("counter_regressed").start();
    let (first, second): (Node, Node) = (start(0), start(1));
    [&first, &second].into_iter().for_each(settle);
    first.wire().shorten_as("early", "https://example.org/early");
    wait_until("the slug on both nodes", || redirects(&second, "early", "https://example.org/early"));
    wait_until("a slug that nobody has", || second.wire().get("/late").status == 404);
    // Only the first node has this link when no connection ends, and it cannot bring the link back yet.
    second.pause();
    first.wire().shorten_as("late", "https://example.org/late");
    first.pause();
    assert_eq!(server.command(&["FLUSHALL"]), "OK");
    second.resume();
    wait_until("a lost position", || second.status()["fleet"]["gaps"].as_u64() > Some(0));
    let mut wire = second.wire();
    for _ in 0..20 {
        let unsure = wire.get("/late");
        assert_eq!((unsure.status, unsure.field("retry-after")), (503, Some("1")), "{}", unsure.text());
    }
    let taken = known(|| wire.create(&json!({"longUrl": "https://example.org/other", "customSlug": "early"})));
    assert_eq!(taken.status, 400, "{}", taken.text());
    first.resume();
    wait_until("the link on the other node", || redirects(&second, "late", "https://example.org/late"));
    for node in [&first, &second] {
        settle(node);
        assert!(redirects(node, "early", "https://example.org/early"));
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
    for slug in ["early", "late"] {
        let keys = server.command(&["KEYS", &format!("{{carom:*}}:l:{slug}")]);
        assert_eq!(keys.list().len(), 1, "Redis has {slug} again");
    }
}

#[test]
fn stopped_redis() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet);
    survive(&nodes, || server.pause(), || server.resume());
}

#[test]
fn unreachable_redis() {
    survive_mode(Mode::BlackHole);
}

#[test]
fn cut_connections() {
    survive_mode(Mode::Cut);
}

#[test]
fn slow_redis() {
    survive_mode(Mode::Delay(Duration::from_millis(60)));
}

#[test]
fn garbage_replies() {
    survive_mode(Mode::Garbage);
}

#[test]
fn single_byte_replies() {
    survive_mode(Mode::OneByte);
}

#[test]
fn late_replies_are_discarded() {
    survive_mode(Mode::Late);
}

#[test]
fn slug_waits_for_redis_then_is_refused() {
    let server = Server::start();
    let (_folder, proxies, nodes) = behind_proxies(&server, 1);
    for mode in [Mode::BlackHole, Mode::Cut, Mode::Garbage, Mode::Late] {
        proxies[0].set(mode);
        let times = [0, 1, 2, 3, 4].map(|attempt| {
            let fields = json!({"longUrl": "https://example.org/", "customSlug": format!("slug{attempt}")});
            let start = Instant::now();
            let reply = nodes[0].wire().create(&fields);
            let took = start.elapsed();
            assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")), "{mode:?}: {}", reply.text());
            took
        });
        most_are_shorter(times, Duration::from_millis(250));
        proxies[0].set(Mode::Pass);
        wait_until("Redis", || nodes[0].status()["redis"]["connected"] == true);
        settle(&nodes[0]);
    }
    // What was refused was not made, although Redis may have heard of it.
    for attempt in 0..5 {
        let slug = format!("slug{attempt}");
        wait_until("a slug that nobody has", || {
            nodes.iter().all(|node| node.wire().get(&format!("/{slug}")).status == 404)
        });
        nodes[1].wire().shorten_as(&slug, "https://example.org/mine");
        wait_until("the slug on the other node", || nodes[0].wire().get(&format!("/{slug}")).status == 302);
    }
}

#[test]
fn strict_node_refuses_all_writes() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let setup = with_usual_timeouts(setup(folder.path(), 0, &server.url())).expect("redis_away");
    let node = setup.env("CAROM_FLEET_ACCEPT_WITHOUT_REDIS", "false").start();
    settle(&node);
    let code = node.wire().shorten("https://example.org/");
    server.pause();
    let times = [0, 1, 2].map(|round| {
        let start = Instant::now();
        let refused = node.wire().create(&json!({"longUrl": "https://example.org/no"}));
        // Until it is known that Redis is away it is asked, and may yet do what it has not confirmed. On a busy machine it is asked
        // again, for as long as a node waits.
        let is_unconfirmed = refused.json()["type"] == "urn:carom:problem:unconfirmed";
        assert_eq!((refused.status, refused.field("retry-after")), (503, (!is_unconfirmed).then_some("1")));
        assert!(!is_unconfirmed || round == 0 || start.elapsed() >= CHANGE_TIME_MIN, "{refused:?}");
        assert_eq!(node.wire().delete(&code).status, 503);
        start.elapsed()
    });
    most_are_shorter(times, Duration::from_millis(500));
    assert_eq!(node.wire().get(&format!("/{code}")).status, 302);
    server.resume();
    wait_until("writes", || node.wire().create(&json!({"longUrl": "https://example.org/"})).status == 200);
}

#[test]
fn kill_during_outbox_delivery_loses_nothing() {
    let server = Setup::new().append_only(true).start();
    let fleet = Fleet::new(2, &server.url());
    let mut node = fleet.setup(0).expect("redis_away").start();
    let other = fleet.setup(1).expect("redis_away").start();
    [&node, &other].into_iter().for_each(settle);
    let mut made = Vec::new();
    for round in 0..4 {
        server.pause();
        let targets: Vec<String> = (0..3_000).map(|number| format!("https://example.org/{round}/{number}")).collect();
        let lines: String = targets.iter().map(|target| format!("{}\n", json!({"longUrl": target}))).collect();
        let reply = node.wire().ask("POST", BULK, KIND, lines.as_bytes());
        let results = reply.text().lines().map(|line| serde_json::from_str(line).unwrap());
        made.extend(results.zip(targets).map(|(result, target)| Made { code: code_of(&result).to_owned(), target }));
        assert_eq!(made.len() as u64, 3_000 * (round + 1));
        server.resume();
        // Somewhere in the middle.
        wait_until("some of the outbox in Redis", || {
            node.status()["fleet"]["delivered"].as_u64() > Some(200 * round) || round == 0
        });
        node = node.kill().start();
        // Without an answer to a heartbeat, it would create nothing alone.
        wait_until("Redis", || node.status()["redis"]["connected"] == true);
    }
    [&node, &other].into_iter().for_each(settle);
    for node in [&node, &other] {
        assert_eq!(check(node.public, &made), Vec::<String>::new());
        assert_eq!(node.status()["links"], made.len());
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
}

#[test]
fn ready_node_has_the_changes_that_it_missed() {
    let server = Server::start();
    let (_folder, proxies, mut nodes) = behind_proxies(&server, 0);
    nodes[1].wire().shorten_as("slug", "https://example.org/0");
    wait_until("the link on both nodes", || redirects(&nodes[0], "slug", "https://example.org/0"));
    let away = nodes.remove(0).terminate();
    let mut wire = nodes[0].wire();
    for number in 1..=40 {
        let fields = json!({"longUrl": format!("https://example.org/{number}")});
        assert_eq!(known(|| change(&mut wire, "slug", &fields)).status, 200);
    }
    // A node far from Redis has its own links long before it has read the streams.
    proxies[0].set(Mode::Delay(Duration::from_millis(30)));
    // The start waits for `/readyz`.
    let back = away.start();
    assert!(redirects(&back, "slug", "https://example.org/40"));
}

#[test]
fn service_manager_hears_of_a_ready_node() {
    let server = Server::start();
    let (folder, proxies, mut nodes) = behind_proxies(&server, 0);
    let (path, admin) = (folder.path().join("notify"), free_address());
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let hears = std::thread::spawn(move || {
        let mut text = [0; 64];
        let len = manager.recv(&mut text).unwrap();
        let heard = (String::from_utf8_lossy(&text[..len]).trim().to_owned(), Wire::open(admin).get("/readyz").status);
        (heard, manager)
    });
    // A node far from Redis accepts clients long before it has read the streams.
    proxies[0].set(Mode::Delay(Duration::from_millis(30)));
    let setup = nodes.remove(0).terminate().env("NOTIFY_SOCKET", path.to_str().unwrap());
    let back = setup.argument("--admin-listen").argument(admin.to_string()).start();
    // The manager hears of the stop, too.
    let (heard, _manager) = hears.join().unwrap();
    assert_eq!(heard, ("READY=1".to_owned(), 200));
    back.terminate();
}
