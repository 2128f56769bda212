//! A flood of SYNs from many addresses while clients go on.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use socket2::{Domain, Socket, Type};

use crate::support::bypass::{Pair, SERVER, counter};
use crate::support::http::Wire;
use crate::support::node::wait_until;
use crate::support::stop::StopOnDrop;
use crate::support::wire::checksum;

const TARGET: &str = "https://example.org/";

/// SYNs in each millisecond.
const SYNS_PER_MS: u64 = 100;

const DURATION: Duration = Duration::from_secs(3);

const CLIENTS: usize = 64;

/// Requests of a client over one connection.
const REQUESTS: usize = 20;

/// The protocol of sockets that take whole packets.
const IPPROTO_RAW: i32 = 255;

/// Address and port of the node.
const NODE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 78, 0, 2), 8_080);

/// Returns the packet of a SYN to the node, from an address of the 131,072 for benchmarks (RFC 2544).
fn syn(random: &mut Pcg64Mcg) -> Vec<u8> {
    let (source, number) =
        ((198 << 24 | 18 << 16 | random.next_u32() >> 15).to_be_bytes(), random.next_u64().to_be_bytes());
    let destination = NODE.0.octets();
    let mut ip = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    ip[12..16].copy_from_slice(&source);
    ip[16..].copy_from_slice(&destination);
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum);
    let mut tcp = [0; 20];
    tcp[..2].copy_from_slice(&[number[0] | 0x80, number[1]]);
    tcp[2..4].copy_from_slice(&NODE.1.to_be_bytes());
    tcp[4..8].copy_from_slice(&number[4..]);
    (tcp[12], tcp[13], tcp[14]) = (5 << 4, 2, 0x40);
    let sum = checksum(&[&source, &destination, &[0, 6, 0, 20], &tcp]);
    tcp[16..18].copy_from_slice(&sum);
    [&ip[..], &tcp].concat()
}

/// Sends SYNs until it is over, in the namespace of this thread. Returns their number.
fn flood(is_over: &AtomicBool) -> u64 {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(IPPROTO_RAW.into())).expect("root may send packets");
    let node = SocketAddr::from(NODE).into();
    let mut random = Pcg64Mcg::new(0xcafe_f00d_d15e_a5e5);
    let began = Instant::now();
    let mut sent = 0;
    while !is_over.load(Ordering::Relaxed) {
        let due = began.elapsed().as_millis() as u64 * SYNS_PER_MS;
        // A sender that was asleep does not catch up at once.
        sent = sent.max(due.saturating_sub(20 * SYNS_PER_MS));
        while sent < due {
            // A packet that a full queue drops counts as sent.
            let _ = socket.send_to(&syn(&mut random), &node);
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    sent
}

/// Visits the link over one connection after another, and counts. Returns the first error.
fn visit(is_over: &AtomicBool, visits: &AtomicU64) -> Result<(), String> {
    let address: SocketAddr = SERVER.parse().expect("an address");
    while !is_over.load(Ordering::Relaxed) {
        let mut wire = Wire::try_open(address).map_err(|error| format!("no connection: {error}"))?;
        for number in 0..REQUESTS {
            let reply = wire.try_ask("GET", "/abc", "", b"").map_err(|error| format!("request {number}: {error}"))?;
            if reply.field("location") != Some(TARGET) {
                return Err(format!("{reply:?}"));
            }
            visits.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

#[test]
fn clients_go_on_during_a_flood_of_syns() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let setup = pair.setup(&dir.path().join("data")).env("CAROM_LIMITS_CONNECTIONS_PER_ADDRESS", "0");
    let node = pair.start(&setup);
    pair.ask(|mut wire| wire.shorten_as("abc", TARGET));
    let (is_over, visits) = (AtomicBool::new(false), AtomicU64::new(0));
    let sent = std::thread::scope(|scope| {
        let stop = StopOnDrop(&is_over);
        let attacker = scope.spawn(|| pair.client.run(|| flood(&is_over)));
        let visit = || pair.client.run(|| visit(&is_over, &visits));
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(visit)).collect();
        std::thread::sleep(DURATION);
        drop(stop);
        for client in clients {
            assert_eq!(client.join().unwrap(), Ok(()));
        }
        attacker.join().unwrap()
    });
    wait_until("counted cookies", || counter(&pair.status(&node), "cookiesAccepted") > 0);
    let status = pair.status(&node);
    let (frames, cookies) = (counter(&status, "framesIn"), counter(&status, "cookiesSent"));
    println!("{sent} SYNs, {frames} frames, {cookies} cookies, {} visits", visits.load(Ordering::Relaxed));
    assert!(cookies > 10_000, "{status}");
    assert!(visits.load(Ordering::Relaxed) > 10 * CLIENTS as u64, "{status}");
    node.terminate();
}

/// The control: the same flood keeps clients out of a listener without cookies.
#[test]
fn flood_of_syns_needs_cookies() {
    let Some(pair) = Pair::new() else { return };
    for (program, arguments) in
        [("ip", "route add 198.18.0.0/15 via 10.78.0.1"), ("sysctl", "-w net.ipv4.tcp_syncookies=0")]
    {
        pair.server.command(program, arguments).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup_over_kernel(&dir.path().join("data")));
    let is_over = AtomicBool::new(false);
    let failed = std::thread::scope(|scope| {
        let stop = StopOnDrop(&is_over);
        scope.spawn(|| pair.client.run(|| flood(&is_over)));
        let failed = pair.client.run(|| {
            let address: SocketAddr = SERVER.parse().expect("an address");
            let connects = |_: &usize| std::net::TcpStream::connect_timeout(&address, DURATION / 10).is_ok();
            std::thread::sleep(DURATION / 10);
            10 - (0..10).filter(connects).count()
        });
        drop(stop);
        failed
    });
    assert!(failed > 0, "each of 10 clients got in");
    node.terminate();
}
