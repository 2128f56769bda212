//! Client addresses, and the CPU time of the machine around them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use crate::server::{Server, right};
use crate::{Generator, number};

#[test]
fn connections_take_client_addresses_in_turn() {
    let peers = Arc::new(Mutex::new(HashMap::<IpAddr, usize>::new()));
    let seen = Arc::clone(&peers);
    let server = Server::start_with(right, move |stream| {
        let peer = stream.peer_addr().expect("a connected socket has a peer");
        *seen.lock().unwrap().entry(peer.ip()).or_default() += 1;
        Box::new(stream)
    });
    let options = "--bind 127.0.0.2 --bind 127.0.0.3 --rate 200 --connections 6 --requests 100";
    let json = Generator::new().run(&server, options, 0);
    let expected = [([127, 0, 0, 2], 3), ([127, 0, 0, 3], 3)].map(|(address, count)| (IpAddr::from(address), count));
    assert_eq!(*peers.lock().unwrap(), HashMap::from(expected));
    assert_eq!(number(&json, "/errors/total"), 0.0, "{json}");
}

#[test]
fn ports_of_a_client_address_suffice_for_a_connection_per_request() {
    let server = Server::start(right);
    let options = "--bind 127.0.0.2 --renew 1 --closed --connections 4 --warmup 0s --duration 1s";
    let json = Generator::new().run(&server, options, 0);
    assert!(number(&json, "/requests/completed") > 100.0, "{json}");
    assert!(number(&json, "/errors/total") == 0.0, "{json}");
}

#[test]
fn address_of_another_machine_is_named() {
    let server = Server::start(right);
    let output = Generator::new().command(&server, "--bind 192.0.2.1 --connections 1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(4), "{text}");
    assert!(text.contains("assign requested address"), "{text}");
}

#[test]
fn cpu_time_of_the_machine_is_told() {
    let server = Server::start(right);
    let json = Generator::new().run(&server, "--closed --connections 4 --warmup 200ms --duration 1s", 0);
    let (machine, own) = (number(&json, "/machine/cpuSeconds"), number(&json, "/generator/cpuSeconds/system"));
    // The kernel counts the machine's time in ticks.
    assert!(machine >= own - 0.02, "{json}");
    assert!(machine > 0.02, "{json}");
}
