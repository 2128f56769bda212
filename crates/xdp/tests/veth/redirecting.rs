//! Frames that the program sends to the socket, in every form in which they may come.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use std::os::fd::AsFd;

use carom_ring::{Completion, Ring, Tag};
use carom_xdp::config::{BusyPoll, SocketConfig};
use carom_xdp::program::{AttachMode, Decapsulation};
use carom_xdp::socket::XdpSocket;

use crate::frames::{IPIP, IPV6, TCP, UDP, ethernet, ipv4, ipv6, is_to_port, matching, syn, tagged, udp};
use crate::pair::{PORT, Pair, SERVER, SERVER_V6, SILENCE, inject, interface, next_frame, received, wait_for};

/// Connects from the client's kernel, and returns whether the server's kernel has accepted.
fn connects(pair: &Pair, to: SocketAddr) -> bool {
    pair.client.run(|| TcpStream::connect_timeout(&to, SILENCE).is_ok())
}

fn syn_reaches_only_the_socket(mode: AttachMode, is_native: bool) {
    let Some(pair) = Pair::new() else { return };
    let mut program = pair.attach(mode, Decapsulation::None);
    assert_eq!(program.is_native(), is_native);
    let mut socket = pair.socket();
    program.register(&socket).unwrap();
    for to in [IpAddr::V4(SERVER), IpAddr::V6(SERVER_V6)] {
        let to = SocketAddr::new(to, PORT);
        // The kernel would answer if it got the frame.
        let _listener = pair.server.run(|| TcpListener::bind(to).unwrap());
        assert!(!connects(&pair, to), "the kernel must not see the SYN to {to}");
        next_frame(&mut socket, |frame| is_to_port(frame, to.ip()));
    }
    let counts = program.counts().unwrap();
    assert!(counts.redirected >= 2, "{counts:?}");
    assert!(counts.no_socket == 0, "{counts:?}");
}

#[test]
fn native_mode_takes_the_syn() {
    syn_reaches_only_the_socket(AttachMode::Native, true);
}

#[test]
fn auto_mode_is_native_on_veth() {
    syn_reaches_only_the_socket(AttachMode::Auto, true);
}

#[test]
fn generic_mode_takes_the_syn() {
    syn_reaches_only_the_socket(AttachMode::Generic, false);
}

/// Injects frames, and asserts that each arrives as it was sent.
fn arrive(decapsulation: Decapsulation, frames: &[Vec<u8>]) {
    let Some(pair) = Pair::new() else { return };
    let mut program = pair.attach(AttachMode::Native, decapsulation);
    let mut socket = pair.socket();
    program.register(&socket).unwrap();
    let mut injector = pair.injector();
    for (number, frame) in frames.iter().enumerate() {
        inject(&mut injector, frame);
        let arrived = wait_for(&format!("frame {number}"), || received_one(&mut socket));
        assert_eq!(&arrived, frame, "{number}");
    }
    assert_eq!(program.counts().unwrap().redirected, frames.len() as u64);
}

fn received_one(socket: &mut XdpSocket) -> Option<Vec<u8>> {
    let mut all = received(socket);
    assert!(all.len() <= 1, "{all:?}");
    all.pop()
}

#[test]
fn plain_and_tagged_frames_arrive() {
    let in_v6 = ipv6(TCP, &syn(PORT));
    let plain = [ethernet(&matching()), ethernet(&in_v6), tagged(&[5], &matching()), tagged(&[5], &in_v6)];
    arrive(Decapsulation::None, &plain);
}

/// Puts words of options between a header of IPv4 and its payload.
fn with_options(mut packet: Vec<u8>, words: u8) -> Vec<u8> {
    packet[0] = 0x45 + words;
    packet.splice(20..20, vec![1; usize::from(words) * 4]);
    packet
}

#[test]
fn headers_of_every_length_arrive() {
    let lengths: Vec<Vec<u8>> = (1..=10).map(|words| ethernet(&with_options(matching(), words))).collect();
    arrive(Decapsulation::None, &lengths);
    let gue = |words: u8, packet: &[u8]| {
        let header = [vec![words, IPIP, 0, 0], vec![7; usize::from(words) * 4]].concat();
        udp(6_081, &[&header, packet].concat())
    };
    let lengths: Vec<Vec<u8>> = (0..16)
        .map(|words| {
            let inner = with_options(matching(), words % 11);
            ethernet(&with_options(ipv4(SERVER, UDP, 0, &gue(words, &inner)), words % 7))
        })
        .collect();
    arrive(Decapsulation::Gue(6_081), &lengths);
}

#[test]
fn ipip_frames_arrive() {
    let in_v6 = ipv6(TCP, &syn(PORT));
    let frames = [
        ethernet(&ipv4(SERVER, IPIP, 0, &matching())),
        ethernet(&ipv4(SERVER, IPV6, 0, &in_v6)),
        ethernet(&ipv6(IPIP, &matching())),
        ethernet(&ipv6(IPV6, &in_v6)),
        tagged(&[9], &ipv4(SERVER, IPIP, 0, &matching())),
        ethernet(&matching()),
    ];
    arrive(Decapsulation::Ipip, &frames);
}

#[test]
fn gue_frames_arrive() {
    let in_v6 = ipv6(TCP, &syn(PORT));
    let gue = |header: &[u8], packet: &[u8]| udp(6_081, &[header, packet].concat());
    let frames = [
        ethernet(&ipv4(SERVER, UDP, 0, &gue(&[], &matching()))),
        ethernet(&ipv4(SERVER, UDP, 0, &gue(&[], &in_v6))),
        ethernet(&ipv4(SERVER, UDP, 0, &gue(&[0, IPIP, 0, 0], &matching()))),
        ethernet(&ipv4(SERVER, UDP, 0, &gue(&[2, IPV6, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], &in_v6))),
        ethernet(&ipv6(UDP, &gue(&[], &matching()))),
        ethernet(&matching()),
    ];
    arrive(Decapsulation::Gue(6_081), &frames);
}

#[test]
fn poll_in_a_ring_reports_arrivals() {
    let Some(pair) = Pair::new() else { return };
    let mut program = pair.attach(AttachMode::Native, Decapsulation::None);
    let mut socket = pair.socket();
    program.register(&socket).unwrap();
    let mut ring = Ring::new(None).unwrap();
    let tag = Tag { slot: 1, generation: 2 };
    ring.poll(&socket.as_fd(), tag);
    let mut injector = pair.injector();
    for _ in 0..3 {
        inject(&mut injector, &ethernet(&matching()));
        let mut completions = Vec::new();
        wait_for("completion and frame", || {
            ring.wait(SILENCE).unwrap();
            ring.take_completions(&mut completions);
            let is_reported = completions.drain(..).any(
                |completion| matches!(completion, Completion::Readable { tag: of, result: Ok(()), more: true } if of == tag),
            );
            is_reported.then(|| assert_eq!(received(&mut socket).len(), 1))
        });
    }
}

#[test]
fn busy_polled_socket_gets_frames() {
    let Some(pair) = Pair::new() else { return };
    let mut program = pair.attach(AttachMode::Native, Decapsulation::None);
    let busy_poll = Some(BusyPoll { micros: 20, budget: 64 });
    let config = SocketConfig { busy_poll, ..SocketConfig::new(interface(&pair.server, "s0"), 0) };
    let mut socket = pair.server.run(|| XdpSocket::open(&config)).unwrap();
    program.register(&socket).unwrap();
    let mut injector = pair.injector();
    inject(&mut injector, &ethernet(&matching()));
    assert_eq!(next_frame(&mut socket, |_| true), ethernet(&matching()));
}
