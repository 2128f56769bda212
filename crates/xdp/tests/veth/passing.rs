//! Frames that the program leaves to the kernel.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use carom_xdp::program::{AttachMode, Decapsulation, ProgramCounts};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, sendto, socket};

use crate::frames::{IPIP, IPV6, TCP, UDP, ethernet, ipv4, ipv6, matching, syn, tagged, udp};
use crate::pair::{CLIENT, PATIENCE, PORT, Pair, SERVER, SILENCE, inject, received, wait_for};

/// Sends a line to a listener of the server's kernel, and reads another.
fn talk(pair: &Pair, port: u16) {
    let to = SocketAddr::new(SERVER.into(), port);
    let listener = pair.server.run(|| TcpListener::bind(to).unwrap());
    let mut client = pair.client.run(|| TcpStream::connect_timeout(&to, PATIENCE).unwrap());
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"hello").unwrap();
    let mut line = [0; 5];
    server.read_exact(&mut line).unwrap();
    server.write_all(&line).unwrap();
    client.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"hello");
}

fn other_traffic_passes(mode: AttachMode) {
    let Some(pair) = Pair::new() else { return };
    let mut program = pair.attach(mode, Decapsulation::None);
    let mut socket = pair.socket();
    program.register(&socket).unwrap();
    // ARP first of all, then TCP as of ssh, UDP to the same port, and a ping.
    talk(&pair, 22);
    let server = pair.server.run(|| UdpSocket::bind((SERVER, PORT)).unwrap());
    let client = pair.client.run(|| UdpSocket::bind((CLIENT, 0)).unwrap());
    client.send_to(b"datagram", (SERVER, PORT)).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(server.recv(&mut [0; 16]).unwrap(), 8);
    ping(&pair);
    assert_eq!(received(&mut socket), Vec::<Vec<u8>>::new());
    let counts = program.counts().unwrap();
    assert!(counts.redirected == 0, "{counts:?}");
    assert!(counts.other_tcp >= 4, "{counts:?}");
    assert!(counts.others >= 3, "{counts:?}");
}

fn ping(pair: &Pair) {
    let icmp = Some(rustix::net::ipproto::ICMP);
    let socket = pair.client.run(|| socket(AddressFamily::INET, SocketType::RAW, icmp).unwrap());
    let request = [8, 0, 0xf7, 0xfd, 0, 1, 0, 1];
    sendto(&socket, &request, SendFlags::empty(), &SocketAddr::new(SERVER.into(), 0)).unwrap();
    let mut reply = [0; 64];
    let len = wait_for("reply", || recv(&socket, &mut reply, RecvFlags::DONTWAIT).ok().map(|(len, _)| len));
    // Type 0 after the IP header: a reply.
    assert_eq!((len, reply[20]), (28, 0));
}

#[test]
fn other_traffic_passes_native_mode() {
    other_traffic_passes(AttachMode::Native);
}

#[test]
fn other_traffic_passes_generic_mode() {
    other_traffic_passes(AttachMode::Generic);
}

#[test]
fn all_passes_without_a_socket() {
    let Some(pair) = Pair::new() else { return };
    let mut program = pair.attach(AttachMode::Native, Decapsulation::None);
    talk(&pair, PORT);
    let socket = pair.socket();
    program.register(&socket).unwrap();
    program.unregister(0);
    talk(&pair, PORT);
    program.register(&socket).unwrap();
    // A closed socket leaves the map by itself.
    drop(socket);
    talk(&pair, PORT);
    let counts = program.counts().unwrap();
    assert!(counts.no_socket >= 9, "{counts:?}");
    assert!(counts.redirected == 0, "{counts:?}");
}

/// Injects frames that must not arrive in the socket, and returns the counts.
fn pass(decapsulation: Decapsulation, frames: &[Vec<u8>]) -> Option<ProgramCounts> {
    let pair = Pair::new()?;
    let mut program = pair.attach(AttachMode::Native, decapsulation);
    let mut socket = pair.socket();
    program.register(&socket).unwrap();
    let before = program.counts().unwrap();
    let mut injector = pair.injector();
    frames.iter().for_each(|frame| inject(&mut injector, frame));
    let counted = |counts: &ProgramCounts| counts.fragments + counts.other_tcp + counts.others;
    let counts = wait_for("count of the last frame", || {
        program.counts().ok().filter(|counts| counted(counts) >= counted(&before) + frames.len() as u64)
    });
    std::thread::sleep(SILENCE);
    assert_eq!(received(&mut socket), Vec::<Vec<u8>>::new());
    assert_eq!(counts.redirected, 0);
    Some(counts)
}

#[test]
fn fragments_pass() {
    let fragment_header = [&[TCP, 0, 0, 1, 0, 0, 0, 1][..], &syn(PORT)].concat();
    let frames = [
        ethernet(&ipv4(SERVER, TCP, 0x2000, &syn(PORT))),
        ethernet(&ipv4(SERVER, TCP, 1, &syn(PORT))),
        ethernet(&ipv6(44, &fragment_header)),
    ];
    if let Some(counts) = pass(Decapsulation::None, &frames) {
        assert_eq!(counts.fragments, 3);
    }
}

#[test]
fn tunnels_pass_unless_configured() {
    let frames = [
        ethernet(&ipv4(SERVER, IPIP, 0, &matching())),
        ethernet(&ipv4(SERVER, IPV6, 0, &ipv6(TCP, &syn(PORT)))),
        ethernet(&ipv4(SERVER, UDP, 0, &udp(6_080, &matching()))),
    ];
    pass(Decapsulation::None, &frames);
    pass(Decapsulation::Gue(6_081), &frames[2..]);
    pass(Decapsulation::Ipip, &frames[2..]);
}

#[test]
fn odd_and_cut_frames_pass() {
    let mut frames = vec![
        ethernet(&ipv4(CLIENT, TCP, 0, &syn(PORT))),
        ethernet(&ipv4(SERVER, TCP, 0, &syn(PORT + 1))),
        tagged(&[1, 2], &matching()),
        // A tunnel in a tunnel.
        ethernet(&ipv4(SERVER, IPIP, 0, &ipv4(SERVER, IPIP, 0, &matching()))),
        // A header length below the least.
        ethernet(&[&[0x44], &matching()[1..]].concat()),
        ethernet(&ipv4(SERVER, IPIP, 0, &ipv4(SERVER, TCP, 0x2000, &syn(PORT)))),
    ];
    let whole = ethernet(&ipv4(SERVER, IPIP, 0, &matching()));
    // The ports of the inner header are at 54 to 58.
    frames.extend((14..58).map(|len| whole[..len].to_vec()));
    pass(Decapsulation::Ipip, &frames);
}
