//! Frames from the socket to the other side, and who owns them when.

use std::net::UdpSocket;

use carom_xdp::program::{AttachMode, Decapsulation};
use carom_xdp::socket::{Kick, XdpSocket};

use crate::frames::{UDP, ethernet, matching, packet, udp};
use crate::pair::{CLIENT, CLIENT_MAC, PATIENCE, Pair, SERVER, SERVER_MAC, inject, wait_for};

/// A datagram to a port of the client.
fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    let packet = packet(SERVER, CLIENT, UDP, 0, &udp(port, payload));
    [&CLIENT_MAC[..], &SERVER_MAC, &[8, 0], &packet].concat()
}

fn build(socket: &mut XdpSocket, bytes: &[u8]) -> u32 {
    let frame = socket.take().expect("there are free frames");
    socket.bytes_mut(frame)[256..][..bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn sent_frame_reaches_the_kernel_twice() {
    let Some(pair) = Pair::new() else { return };
    let client = pair.client.run(|| UdpSocket::bind((CLIENT, 0)).unwrap());
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut socket = pair.socket();
    let bytes = datagram(client.local_addr().unwrap().port(), b"hello");
    let frame = build(&mut socket, &bytes);
    // A frame stays with its sender after the completion, and can be sent again.
    for _ in 0..2 {
        assert!(socket.send(frame, 256, bytes.len() as u32));
        assert!(!socket.is_held(frame));
        assert_eq!(socket.bytes(frame)[256..][..bytes.len()], bytes, "a sent frame can be read");
        assert_eq!(socket.kick().unwrap(), Kick::Done);
        let mut received = [0; 16];
        assert_eq!(client.recv(&mut received).unwrap(), 5);
        assert_eq!(&received[..5], b"hello");
        let completed = wait_for("completion", || completion(&mut socket));
        assert_eq!(completed, [frame]);
        assert!(socket.is_held(frame));
    }
    socket.free(frame);
}

fn completion(socket: &mut XdpSocket) -> Option<Vec<u32>> {
    let mut completed = Vec::new();
    socket.take_completions(&mut completed);
    (!completed.is_empty()).then_some(completed)
}

#[test]
fn each_completion_comes_once() {
    let Some(pair) = Pair::new() else { return };
    let mut socket = pair.socket();
    let bytes = datagram(9, b"to a closed port");
    let (mut sent, mut completed) = (0, 0);
    let free = socket.free_frames();
    wait_for("completion of 20,000 frames", || {
        while sent < 20_000 && socket.free_frames() > 0 {
            let frame = build(&mut socket, &bytes);
            if !socket.send(frame, 256, bytes.len() as u32) {
                socket.free(frame);
                break;
            }
            sent += 1;
        }
        socket.kick().unwrap();
        // A frame that came twice would not be held the second time, and `free` would panic.
        let back = completion(&mut socket).unwrap_or_default();
        completed += back.len();
        back.into_iter().for_each(|frame| socket.free(frame));
        (completed == 20_000).then_some(())
    });
    assert_eq!(socket.free_frames(), free);
}

#[test]
fn full_ring_refuses_and_recovers() {
    let Some(pair) = Pair::new() else { return };
    let mut socket = pair.small_socket(256, 64);
    let bytes = datagram(9, b"x");
    let send = |socket: &mut XdpSocket| {
        let frame = build(socket, &bytes);
        let is_sent = socket.send(frame, 256, bytes.len() as u32);
        if !is_sent {
            assert!(socket.is_held(frame));
            socket.free(frame);
        }
        is_sent
    };
    // The kernel takes none before the kick.
    assert_eq!((0..100).filter(|_| send(&mut socket)).count(), 64);
    wait_for("room", || (socket.kick().unwrap() == Kick::Done).then_some(()));
    assert_eq!(wait_for("completions", || completion(&mut socket)).len(), 64);
    assert!(send(&mut socket));
}

#[test]
fn full_receive_ring_drops_and_recovers() {
    let Some(pair) = Pair::new() else { return };
    let mut program = pair.attach(AttachMode::Native, Decapsulation::None);
    let mut socket = pair.small_socket(128, 64);
    program.register(&socket).unwrap();
    let mut injector = pair.injector();
    let frame = ethernet(&matching());
    (0..200).for_each(|_| inject(&mut injector, &frame));
    wait_for("last frame", || (program.counts().unwrap().redirected == 200).then_some(()));
    assert_eq!(crate::pair::received(&mut socket).len(), 64);
    let counted = wait_for("drops", || socket.statistics().ok().filter(|counted| counted.all_drops() >= 136));
    assert_eq!(counted.invalid, 0, "{counted:?}");
    inject(&mut injector, &frame);
    assert_eq!(wait_for("frame", || socket.receive()).len, frame.len() as u32);
}

#[test]
fn freed_frame_in_flight_returns_by_itself() {
    let Some(pair) = Pair::new() else { return };
    let mut socket = pair.socket();
    let free = socket.free_frames();
    let frame = socket.take().unwrap();
    assert!(socket.send(frame, 0, 60));
    assert!(socket.is_sending(frame));
    socket.free(frame);
    assert_eq!(socket.free_frames(), free - 1, "the kernel has it");
    wait_for("completion", || {
        socket.kick().unwrap();
        assert_eq!(completion(&mut socket), None, "the caller has given it up");
        (socket.free_frames() == free).then_some(())
    });
}

#[test]
#[should_panic(expected = "is Sending")]
fn frame_in_flight_cannot_be_changed() {
    let Some(pair) = Pair::new() else { panic!("frame is Sending: skipped") };
    let mut socket = pair.socket();
    let frame = socket.take().unwrap();
    assert!(socket.send(frame, 0, 60));
    socket.bytes_mut(frame);
}

#[test]
#[should_panic(expected = "is Filling")]
fn frame_of_the_kernel_cannot_be_read() {
    let Some(pair) = Pair::new() else { panic!("frame is Filling: skipped") };
    let socket = pair.socket();
    // `refill` takes the lowest numbers first.
    socket.bytes(0);
}
