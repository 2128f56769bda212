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
