//! Tests of the ring with real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;

#[test]
fn a_reset_leaves_nothing_unacknowledged() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (reader, _) = listener.accept().unwrap();
    // More than the kernel takes for a peer that does not read.
    sender.set_nonblocking(true).unwrap();
    let full = loop {
        if let Err(error) = sender.write(&[0; 65_536]) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    let socket = OwnedFd::from(sender.try_clone().unwrap());
    assert!(unacknowledged_len(&socket) > 0);
    // Closing with bytes unread resets the connection.
    drop(reader);
    sender.set_nonblocking(false).unwrap();
    assert_eq!(sender.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(unacknowledged_len(&socket), 0);
}

#[test]
fn poll_reports_each_arrival_until_cancelled() {
    let mut ring = Ring::new(None).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let tag = Tag { slot: 3, generation: 7 };
    ring.poll(&socket, tag);
    let next = |ring: &mut Ring| loop {
        let mut completions = Vec::new();
        ring.sleep().unwrap();
        ring.take_completions(&mut completions);
        if let Some(completion) = completions.pop() {
            assert!(completions.is_empty());
            return completion;
        }
    };
    for _ in 0..3 {
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        let completion = next(&mut ring);
        assert!(
            matches!(completion, Completion::Readable { tag: of, result: Ok(()), more: true } if of == tag),
            "{completion:?}"
        );
        socket.recv(&mut [0]).unwrap();
    }
    ring.cancel_poll(tag);
    let completion = next(&mut ring);
    assert!(
        matches!(completion, Completion::Readable { tag: of, result: Err(libc::ECANCELED), more: false } if of == tag),
        "{completion:?}"
    );
}

#[test]
fn gathering_waits_for_several_completions() {
    let mut ring = Ring::new(None).unwrap();
    if !ring.can_gather() {
        println!("skipped: the kernel is older than 6.12");
        return;
    }
    let sockets = [(); 3].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    for (slot, socket) in sockets.iter().enumerate() {
        ring.poll(socket, Tag { slot: slot as u32, generation: 0 });
    }
    ring.enter().unwrap();
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
    let own = std::fs::read_link("/proc/thread-self").unwrap();
    let waits = move || {
        let stat = std::fs::read_to_string(std::path::Path::new("/proc").join(&own).join("stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.trim_start().starts_with('S')
    };
    let (signal, begun) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        begun.recv().unwrap();
        // One that came before the wait would end it at once.
        while !waits() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for address in addresses {
            std::thread::sleep(Duration::from_millis(20));
            socket.send_to(b"x", address).unwrap();
        }
    });
    signal.send(()).unwrap();
    // All three come within the time. They are fewer than those that would end it.
    let began = std::time::Instant::now();
    ring.gather(Duration::from_secs(5), Duration::from_secs(20)).unwrap();
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    thread.join().unwrap();
    let mut completions = Vec::new();
    ring.take_completions(&mut completions);
    assert_eq!(completions.len(), 3);
    // Nothing comes: the longest time ends the wait.
    ring.gather(Duration::from_millis(1), Duration::from_millis(20)).unwrap();
    ring.take_completions(&mut completions);
    assert_eq!(completions.len(), 3);
}
