//! Timeouts of Redis: no request waits longer than configured, whichever step is slow.

use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::fleet::{settle, setup, with_usual_timeouts};
use crate::support::node::{Node, wait_until};
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis::Server;
use crate::support::redis::tls_server;

/// Longest time for a create: the timeout of Redis, and a margin for a busy machine.
const CREATE_MAX: Duration = Duration::from_millis(250);

/// Longest time for the look-up of an unknown code.
const LOOK_UP_MAX: Duration = Duration::from_millis(150);

/// Asks for a new link, for one under a chosen name, and for a code that nobody has: all are answered in time.
fn hurry(node: &Node, round: usize) {
    let timed = |what: &str, most: Duration, ask: &dyn Fn() -> u16| {
        let start = Instant::now();
        let status = ask();
        assert!(start.elapsed() < most, "{what} {round}: {:?}", start.elapsed());
        status
    };
    let create = |fields: serde_json::Value| node.wire().create(&fields).status;
    let issued = timed("a create", CREATE_MAX, &|| create(json!({"longUrl": "https://example.org/"})));
    assert_eq!(issued, 200);
    let fields = json!({"longUrl": "https://example.org/", "customSlug": format!("slug{round}")});
    assert_eq!(timed("a slug", CREATE_MAX, &|| create(fields.clone())), 503);
    let unknown = timed("a look-up", LOOK_UP_MAX, &|| node.wire().get(&format!("/nobody{round}")).status);
    assert_eq!(unknown, 503, "another node may have it");
}

#[test]
fn silent_name_server_is_bounded() {
    // Where nothing may listen on its port the packets go to an address that nobody has.
    let silent = UdpSocket::bind("127.9.9.9:53");
    let name_server = if silent.is_ok() { "127.9.9.9" } else { "192.0.2.1" };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let hosts = file("hosts", "127.0.0.1 localhost\n127.0.0.1 redis.example\n");
    let servers = file("resolv.conf", &format!("nameserver {name_server}\noptions timeout:10 attempts:3\n"));
    let services = file("nsswitch.conf", "hosts: files dns\n");
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    let mounts = [(&hosts, "hosts"), (&servers, "resolv.conf"), (&services, "nsswitch.conf")]
        .map(|(file, name)| format!("mount --bind {file} $(readlink -f /etc/{name})"));
    let url = format!("redis://redis.example:{}", proxy.address().port());
    let node = with_usual_timeouts(setup(&folder.path().join("a"), 0, &url))
        .unshared(&format!(r#"{} && exec "$@""#, mounts.join(" && ")))
        .expect("redis_away")
        .start();
    settle(&node);
    node.wire().shorten_as("before", "https://example.org/");
    // From here on the name server would have to be asked, and all connections are gone.
    std::fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
    proxy.set(Mode::Cut);
    for round in 0..5 {
        hurry(&node, round);
    }
    // The last address is still good.
    let start = Instant::now();
    proxy.set(Mode::Pass);
    wait_until("Redis", || {
        node.wire().create(&json!({"longUrl": "https://example.org/", "customSlug": "after"})).status == 200
    });
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

/// A node that speaks TLS through a proxy.
fn behind_tls(folder: &Path) -> (Server, Proxy, Node) {
    let (server, port, certificate) = tls_server(folder);
    let proxy = Proxy::start(([127, 0, 0, 1], port).into());
    let node = with_usual_timeouts(setup(&folder.join("a"), 0, &format!("rediss://{}", proxy.address())))
        .env("CAROM_FLEET_CA_FILE", &certificate)
        .expect("redis_away")
        .start();
    settle(&node);
    (server, proxy, node)
}

#[test]
fn slow_tls_reply_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, proxy, node) = behind_tls(folder.path());
    node.wire().shorten_as("before", "https://example.org/");
    proxy.set(Mode::Drip(Duration::from_millis(8)));
    for round in 0..5 {
        hurry(&node, round);
    }
    proxy.set(Mode::Pass);
    wait_until("Redis", || {
        node.wire().create(&json!({"longUrl": "https://example.org/", "customSlug": "after"})).status == 200
    });
}

#[test]
fn slow_connect_succeeds_eventually() {
    const HITS: u64 = 20;
    const ROUNDS_MAX: usize = 800;
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(server.address());
    let first = setup(&folder.path().join("a"), 0, &server.url()).start();
    let far = setup(&folder.path().join("b"), 1, &format!("redis://{}", proxy.address()));
    let other = with_usual_timeouts(far).expect("redis_away").start();
    [&first, &other].into_iter().for_each(settle);
    // One round trip is within the time of a look-up, and all that make up a connection are not.
    proxy.reconnect_as(Mode::Delay(Duration::from_millis(4)));
    let mut maker = first.wire();
    let hits = || other.status()["fleet"]["lookUpHits"].as_u64().unwrap();
    // On a busy machine, a single look-up over an open connection may take too long as well.
    for number in 0..ROUNDS_MAX {
        let code = maker.shorten(&format!("https://example.org/{number}"));
        let start = Instant::now();
        let status = other.wire().get(&format!("/{code}")).status;
        assert!(start.elapsed() < LOOK_UP_MAX, "{:?}", start.elapsed());
        assert!([302, 503].contains(&status), "{status}");
        if hits() >= HITS {
            return;
        }
    }
    panic!("{} look-ups of {ROUNDS_MAX} found a link", hits());
}
