//! Client addresses from a balancer: PROXY headers of both versions, from trusted peers only, written by hand and by a
//! real HAProxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::http::{Reply, SHORT_URLS, Wire, request};
use crate::support::node::{Node, Setup, free_address, sum, wait_until};

const TARGET: &str = "https://example.org/";
const CLIENT: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const OTHER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 8);

/// A service behind a balancer on this machine.
fn setup(dir: &Path, cores: usize) -> Setup {
    let setup = Setup::new(dir).cores(cores).env("CAROM_PROXY_PROTOCOL", "require");
    setup.trust_client().env("CAROM_LIMITS_MISSES_PER_SECOND", "1")
}

fn v1(client: Ipv4Addr) -> Vec<u8> {
    format!("PROXY TCP4 {client} 10.0.0.1 40000 80\r\n").into_bytes()
}

fn v2(client: Ipv4Addr) -> Vec<u8> {
    let addresses = [&client.octets()[..], &[10, 0, 0, 1, 0x9c, 0x40, 0, 80]].concat();
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat()
}

/// A connection that begins so.
fn behind(node: &Node, header: &[u8]) -> Wire {
    let mut wire = Wire::open(node.public);
    wire.send(header);
    wire
}

/// Asks for missing codes until the client gets 429. Returns what it gets for a path just behind: each guess has that
/// request in the same piece, so that no second passes, after which a client may miss again.
fn status_after_misses(wire: &mut Wire, path: &str, fields: &str) -> u16 {
    for number in 0..100 {
        let miss = request("GET", &format!("/none-{number}"), fields, b"");
        wire.send(&[miss, request("GET", path, fields, b"")].concat());
        let (miss, status) = (wire.reply().status, wire.reply().status);
        if miss == 429 {
            return status;
        }
        assert_eq!(miss, 404);
    }
    panic!("100 misses are allowed");
}

#[test]
fn header_names_the_client() {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let node = setup(dir.path(), cores).start();
        let mut wire = behind(&node, &v2(OTHER));
        let code = wire.shorten(TARGET);
        let told = |header: &[u8], guesses: bool, slow: bool| -> u16 {
            let mut wire = behind(&node, header);
            if slow {
                wire.get("/rest/health");
            }
            let path = format!("/{code}");
            if guesses { status_after_misses(&mut wire, &path, "") } else { wire.get(&path).status }
        };
        for slow in [false, true] {
            // An address of the Internet that guesses is refused everything, over both versions and on every core.
            let of_client: Vec<u16> =
                (0..8).map(|number| told(&if number % 2 == 0 { v1(CLIENT) } else { v2(CLIENT) }, true, slow)).collect();
            assert!(of_client.iter().all(|status| *status == 429), "{of_client:?}");
            // Nobody else behind the same balancer is, nor the balancer itself.
            for header in
                [v1(OTHER), v2(OTHER), b"PROXY UNKNOWN\r\n".to_vec(), b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec()]
            {
                assert!((0..8).all(|_| told(&header, false, slow) == 302));
            }
        }
        drop(wire);
        node.terminate();
    }
}

#[test]
fn header_may_arrive_in_pieces_and_is_required() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than a stall of the machine while the bytes come.
    let node = setup(dir.path(), 1).env("CAROM_LIMITS_HEAD_SECONDS", "5").start();
    let code = behind(&node, &v1(OTHER)).shorten(TARGET);
    let path = format!("/{code}");
    for header in [v1(OTHER), v2(OTHER)] {
        let mut wire = Wire::open(node.public);
        let whole = [&header[..], &request("GET", &path, "", b""), &request("GET", &path, "", b"")].concat();
        for byte in &whole {
            wire.send(&[*byte]);
        }
        assert_eq!((wire.reply().status, wire.reply().status), (302, 302));
    }
    // Without one, or with one that is none, nobody is told anything.
    let refused = sum(&node.status(), "/badRequests");
    let nothing: [&[u8]; 4] = [
        &request("GET", &path, "", b""),
        b"PROXY TCP4 203.0.113.7 10.0.0.1 1\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c012345678901GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ];
    for bytes in nothing {
        let mut wire = Wire::open(node.public);
        wire.send(bytes);
        assert_eq!(wire.read_until_closed(), b"", "{bytes:?}");
    }
    assert_eq!(sum(&node.status(), "/badRequests"), refused + 4);
    // A second one is no request.
    let mut twice = behind(&node, &v1(OTHER));
    twice.send(&[v1(CLIENT), request("GET", &path, "", b"")].concat());
    assert_eq!(twice.reply().status, 400);
    // Who says nothing is not waited for.
    assert_eq!(Wire::open(node.public).reply().status, 408);
    node.terminate();
}

#[test]
fn untrusted_header_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path(), 2).start();
    let code = behind(&node, &v1(OTHER)).shorten(TARGET);
    for _ in 0..10 {
        let mut wire = Wire::open_from(IpAddr::from([127, 0, 0, 2]), node.public);
        // It may be closed before or after that is sent.
        let _ = wire.try_send(&[&v1(CLIENT)[..], &request("GET", &format!("/{code}"), "", b"")].concat());
        assert_eq!(wire.read_until_closed(), b"");
    }
    assert_eq!(sum(&node.status(), "/untrusted"), 10);
    assert_eq!(behind(&node, &v1(OTHER)).get(&format!("/{code}")).status, 302);
    node.terminate();
    // A listener beside it that requires no header accepts a client without one.
    let free = SocketAddr::from((Ipv6Addr::LOCALHOST, free_address().port()));
    let both = Setup::new(dir.path())
        .argument("--listen")
        .argument("127.0.0.1:0")
        .argument("--listen")
        .argument(free.to_string());
    let node = both.env("CAROM_PROXY_PROTOCOL", &free.to_string()).env("CAROM_TRUSTED_PROXIES", "::1").start();
    assert_eq!(node.wire().get(&format!("/{code}")).status, 302);
    assert_eq!(behind(&node, &v1(OTHER)).get(&format!("/{code}")).status, 400);
    let mut proxied = Wire::open(free);
    proxied.send(&v2(OTHER));
    assert_eq!(proxied.get(&format!("/{code}")).status, 302);
    drop(proxied);
    node.terminate();
}

/// A balancer that passes connections on to a node, with the header of that version.
struct Balancer {
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Balancer {
    fn start(node: SocketAddr, send: &str) -> Balancer {
        let dir = tempfile::tempdir().unwrap();
        let address = free_address();
        let config = format!(
            "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n  \
             timeout check 10s\nlisten carom\n  bind {address}\n  server node {node} {send}\n"
        );
        let file = dir.path().join("haproxy.cfg");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("HAProxy is installed by `make test`");
        let balancer = Balancer { child, address, _dir: dir };
        wait_until("a balancer", || Wire::try_open(address).is_ok());
        balancer
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn haproxy_headers_are_understood() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path(), 2).start();
    let code = behind(&node, &v1(OTHER)).shorten(TARGET);
    for send in [
        "send-proxy",
        "send-proxy-v2",
        "send-proxy-v2 proxy-v2-options crc32c,unique-id check check-send-proxy inter 100 fall 100",
    ] {
        let balancer = Balancer::start(node.public, send);
        let from = |address: [u8; 4]| Wire::open_from(IpAddr::from(address), balancer.address);
        let follow = |wire: &mut Wire| -> Reply { wire.get(&format!("/{code}")) };
        // A first check that fails takes the node out at once, however many later ones may.
        wait_until("a balancer that has found the node", || {
            from([127, 0, 0, 9]).try_ask("GET", SHORT_URLS, "", b"").is_ok_and(|reply| reply.status == 200)
        });
        assert_eq!(follow(&mut from([127, 0, 0, 9])).location(), TARGET, "{send}");
        assert_eq!(from([127, 0, 0, 9]).get(SHORT_URLS).status, 200);
        // Whose misses they are is known through it.
        let mut guesser = from([127, 0, 0, 9]);
        assert_eq!(status_after_misses(&mut guesser, "/none", ""), 429, "{send}");
        drop(guesser);
    }
    assert_eq!(sum(&node.status(), "/badRequests"), 0);
    node.terminate();
}

#[test]
fn forwarded_field_names_the_client() {
    for (cores, field, other) in [(1, "X-Forwarded-For", "Forwarded"), (3, "Forwarded", "X-Forwarded-For")] {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup::new(dir.path()).cores(cores).env("CAROM_TRUSTED_PROXIES", "127.0.0.1, 10.0.0.0/8");
        let setup =
            setup.env("CAROM_FORWARDED_FIELD", &field.to_lowercase()).env("CAROM_LIMITS_MISSES_PER_SECOND", "1");
        let node = setup.start();
        let path = format!("/{}", node.wire().shorten(TARGET));
        let of = |field: &str, clients: &[&str]| {
            let element =
                |client: &&str| if field == "Forwarded" { format!("for={client}") } else { (*client).to_owned() };
            format!("{field}: {}\r\n", clients.iter().map(element).collect::<Vec<_>>().join(", "))
        };
        let follow = |wire: &mut Wire, fields: &str| wire.ask("GET", &path, fields, b"").status;
        for slow in [false, true] {
            let open = || {
                let mut wire = node.wire();
                if slow {
                    wire.get("/rest/health");
                }
                wire
            };
            // One proxy's connection carries the requests of many: who guesses is refused, and nobody else.
            let mut wire = open();
            let guesser = of(field, &["203.0.113.7"]);
            assert_eq!(status_after_misses(&mut wire, &path, &guesser), 429);
            let innocent = of(field, &["203.0.113.8"]);
            assert_eq!(follow(&mut wire, &innocent), 302);
            assert_eq!(follow(&mut wire, ""), 302);
            // Nobody gets away by what he writes in front of that, or into the other field, or on a line of its own.
            let forged = of(field, &["198.51.100.1", "203.0.113.7", "10.1.1.1"]);
            assert_eq!(status_after_misses(&mut wire, &path, &forged), 429);
            let lines = of(field, &["198.51.100.2"]) + &guesser + &of(other, &["198.51.100.3"]);
            assert_eq!(status_after_misses(&mut wire, &path, &lines), 429);
            // Who is not trusted says nothing of others.
            let mut stranger = Wire::open_from(IpAddr::from([127, 0, 0, 2]), node.public);
            if slow {
                stranger.get("/rest/health");
            }
            status_after_misses(&mut stranger, &path, &guesser);
            assert_eq!(follow(&mut open(), &innocent), 302);
        }
        node.terminate();
    }
}
