//! The next hop of answers: a known route, or else the neighbour that passed on the client's frames. Balancers get no
//! answers.

use std::net::IpAddr;

use carom_net::{Decapsulate, DropReason, NextHop, NextHops, StackConfig};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpRepr};

use crate::peer::{Bench, CLIENT, frame, syn};

/// The tunnels of balancers.
const TUNNELS: [Decapsulate; 2] = [Decapsulate::Ipip, Decapsulate::Gue { port: 6080 }];

/// MAC address of the server in the frames of clients and balancers.
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// MAC address of the server's interface in the route.
const ROUTE_SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 0x10];

/// MAC addresses of gateways.
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 0x20];
const OTHER_GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 0x21];

/// Returns the route through a gateway.
fn route(gateway: [u8; 6]) -> NextHop {
    NextHop { mac: gateway, source_mac: ROUTE_SOURCE, vlan: None, mtu: 1_500 }
}

/// Returns the Ethernet header of an untagged IPv4 frame.
fn header(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    [&to[..], &from[..], &[8, 0]].concat()
}

/// Returns the MAC address of a balancer, or of a router in front of clients.
fn neighbour(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, number]
}

/// Returns the frame as such a neighbour sends it.
fn passed_on(number: u8, mut frame: Vec<u8>) -> Vec<u8> {
    frame[6..12].copy_from_slice(&neighbour(number));
    frame
}

/// Returns the frame of a client behind the header of a balancer.
fn wrapped(tunnel: Decapsulate, frame: &[u8]) -> Vec<u8> {
    let (ethernet, packet) = frame.split_at(14);
    let (next_header, between) = match tunnel {
        Decapsulate::None => return frame.to_vec(),
        Decapsulate::Ipip => (IpProtocol::Unknown(4), Vec::new()),
        Decapsulate::Gue { port } => {
            let mut udp = vec![0x30, 0x39];
            udp.extend(port.to_be_bytes());
            udp.extend((packet.len() as u16 + 8).to_be_bytes());
            udp.extend([0, 0]);
            (IpProtocol::Udp, udp)
        }
    };
    let outer = Ipv4Repr {
        src_addr: [192, 0, 2, 1].into(),
        dst_addr: [192, 0, 2, 2].into(),
        next_header,
        payload_len: between.len() + packet.len(),
        hop_limit: 64,
    };
    let mut head = vec![0; 20];
    outer.emit(&mut Ipv4Packet::new_unchecked(&mut head), &ChecksumCapabilities::default());
    [ethernet, &head, &between, packet].concat()
}

/// A stack, and neighbours that pass on what a client sends: each frame comes from another one.
struct Link {
    bench: Bench,
    tunnel: Decapsulate,
    passed: u8,
}

impl Link {
    fn new(tunnel: Decapsulate, hop: Option<NextHop>) -> Link {
        let mut bench = Bench::new(StackConfig { decapsulate: tunnel, ..StackConfig::default() });
        bench.route.0 = hop;
        Link { bench, tunnel, passed: 0 }
    }

    /// Returns a link with an open connection, after a look at the answer to its SYN.
    fn connected(tunnel: Decapsulate, hop: Option<NextHop>) -> Link {
        let mut link = Link::new(tunnel, hop);
        let answers = link.give(&syn());
        assert_eq!(answers.len(), 1);
        let seq = i32::from_be_bytes(answers[0][38..42].try_into().expect("four bytes"));
        link.bench.server_seq = seq.wrapping_add(1);
        link.assert_way(&answers);
        let request = link.bench.client_segment(0, 0, b"GET");
        link.give(&request);
        assert_eq!(link.bench.notes.received, b"GET");
        link
    }

    /// Gives the stack a segment from the next neighbour. Returns the frames that it sends.
    fn give(&mut self, segment: &TcpRepr<'_>) -> Vec<Vec<u8>> {
        self.passed += 1;
        self.give_frame(&passed_on(self.passed, wrapped(self.tunnel, &frame(CLIENT, segment))))
    }

    fn give_frame(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let bench = &mut self.bench;
        bench.stack.receive(bench.now_us, frame, &mut bench.pool, &mut bench.route, &mut bench.notes);
        self.sent()
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        let bench = &mut self.bench;
        bench.stack.flush(bench.now_us, &mut bench.pool);
        let mut frames = Vec::new();
        bench.pool.transmit(|frame| frames.push(frame.to_vec()));
        frames
    }

    fn answer(&mut self) -> Vec<Vec<u8>> {
        let id = self.bench.id();
        let bench = &mut self.bench;
        assert_eq!(bench.stack.send(bench.now_us, id, b"answer", &mut bench.pool), 6);
        self.sent()
    }

    /// Lets a second pass. Returns the frames that the stack sends.
    fn wait(&mut self) -> Vec<Vec<u8>> {
        let end_us = self.bench.now_us + 1_000_000;
        let mut frames = Vec::new();
        while let Some(at_us) = self.bench.stack.next_deadline(self.bench.now_us).filter(|at_us| *at_us <= end_us) {
            let bench = &mut self.bench;
            bench.now_us = at_us;
            bench.stack.poll(at_us, &mut bench.pool, &mut bench.notes);
            frames.extend(self.sent());
        }
        self.bench.now_us = end_us;
        frames
    }

    /// Checks that frames follow the route. Without a route, they go back to the neighbour that passed on the last frame.
    fn assert_way(&self, frames: &[Vec<u8>]) {
        let way = match self.bench.route.0 {
            Some(hop) => header(hop.mac, ROUTE_SOURCE),
            None => header(neighbour(self.passed), SERVER_MAC),
        };
        assert!(!frames.is_empty(), "something is sent");
        for frame in frames {
            assert_eq!(frame[..14], way[..]);
        }
    }

    fn dropped(&self) -> u64 {
        self.bench.stack.counters().dropped_for(DropReason::NoNextHop)
    }
}

/// Checks each kind of answer: to a SYN, with data, sent again, an acknowledgement, the end, and resets.
fn check_all_answers(tunnel: Decapsulate, hop: Option<NextHop>) {
    let mut link = Link::connected(tunnel, hop);
    let first = link.answer();
    link.assert_way(&first);
    let again = link.wait();
    link.assert_way(&again);
    let far = link.bench.client_segment(100, 6, b"later");
    let acknowledgement = link.give(&far);
    link.assert_way(&acknowledgement);
    let id = link.bench.id();
    link.bench.stack.shutdown(link.bench.now_us, id, &mut link.bench.pool);
    let end = link.sent();
    link.assert_way(&end);
    link.bench.stack.reset(link.bench.now_us, id, &mut link.bench.pool);
    let reset = link.sent();
    link.assert_way(&reset);
    let astray = link.bench.client_segment(3, 6, b"GET");
    let refusal = link.give(&astray);
    link.assert_way(&refusal);
    assert_eq!(link.bench.stack.counters().resets_sent_unknown, 1);
}

#[test]
fn answers_behind_a_tunnel_follow_the_route() {
    for tunnel in TUNNELS {
        check_all_answers(tunnel, Some(route(GATEWAY)));
    }
}

#[test]
fn known_route_beats_the_way_back() {
    check_all_answers(Decapsulate::None, Some(route(GATEWAY)));
}

#[test]
fn answers_without_a_route_go_back() {
    check_all_answers(Decapsulate::None, None);
}

#[test]
fn clients_behind_a_tunnel_need_a_route() {
    for tunnel in TUNNELS {
        let mut link = Link::new(tunnel, None);
        assert_eq!(link.give(&syn()), Vec::<Vec<u8>>::new(), "an answer would reach the balancer");
        assert_eq!((link.dropped(), link.bench.stack.counters().half_open), (1, 0));
        let astray = link.bench.client_segment(0, 0, b"GET");
        assert_eq!(link.give(&astray), Vec::<Vec<u8>>::new(), "a reset would, too");
        assert_eq!((link.dropped(), link.bench.stack.counters().resets_sent_unknown), (2, 0));
        link.bench.route.0 = Some(route(GATEWAY));
        let answers = link.give(&syn());
        link.assert_way(&answers);
    }
}

#[test]
fn tag_of_a_balancer_is_not_the_clients() {
    for tunnel in TUNNELS {
        let mut link = Link::new(tunnel, Some(route(GATEWAY)));
        let mut hello = wrapped(tunnel, &frame(CLIENT, &syn()));
        hello.splice(12..12, [0x81, 0, 0, 5]);
        let answers = link.give_frame(&hello);
        link.assert_way(&answers);
    }
}

#[test]
fn connections_behind_a_tunnel_keep_to_routes() {
    for tunnel in TUNNELS {
        let mut link = Link::connected(tunnel, Some(route(GATEWAY)));
        link.bench.route.0 = None;
        link.bench.stack.refresh_next_hops(&mut link.bench.route);
        let answers = link.answer();
        assert_eq!(answers[0][..14], header(GATEWAY, ROUTE_SOURCE)[..], "the last known next hop");
        link.bench.route.0 = Some(route(OTHER_GATEWAY));
        link.bench.stack.refresh_next_hops(&mut link.bench.route);
        let again = link.wait();
        link.assert_way(&again);
    }
}

#[test]
fn strangers_do_not_move_the_way_back() {
    let mut link = Link::connected(Decapsulate::None, None);
    let known = link.passed;
    let blind = TcpRepr { control: TcpControl::Rst, ..link.bench.client_segment(500, 0, b"") };
    let challenge = link.give(&blind);
    assert_eq!(challenge[0][..14], header(neighbour(known), SERVER_MAC)[..]);
    let answers = link.answer();
    assert_eq!(answers[0][..14], header(neighbour(known), SERVER_MAC)[..]);
}

/// A machine with one MAC address.
struct OneAddress;

impl NextHops for OneAddress {
    fn next_hop(&mut self, _: IpAddr, _: IpAddr) -> Option<NextHop> {
        None
    }

    fn is_own(&self, mac: [u8; 6]) -> bool {
        mac == SERVER_MAC
    }
}

#[test]
fn frames_for_other_hosts_get_no_answer() {
    let mut bench = Bench::connected();
    let stray = TcpRepr { src_port: 9, ..bench.client_segment(0, 5, b"GET") };
    let hello = TcpRepr { src_port: 10, ..syn() };
    for (to, answers) in [([2, 0, 0, 0, 0, 7], 0), ([0xff; 6], 0), (SERVER_MAC, 2)] {
        for segment in [&stray, &hello] {
            let mut flooded = frame(CLIENT, segment);
            flooded[..6].copy_from_slice(&to);
            bench.stack.receive(bench.now_us, &flooded, &mut bench.pool, &mut OneAddress, &mut bench.notes);
        }
        assert_eq!(bench.sent().len(), answers, "frames to {to:?}");
    }
    assert_eq!(bench.stack.counters().dropped_for(DropReason::Martian), 4);
}

#[test]
fn broadcasts_open_nothing() {
    let mut bench = Bench::new(StackConfig::default());
    let mut hello = frame(CLIENT, &syn());
    hello[..6].copy_from_slice(&[0xff; 6]);
    assert_eq!(bench.give_frame(&hello), []);
    bench.assert_empty();
}
