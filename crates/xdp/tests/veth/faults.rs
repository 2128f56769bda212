//! The end of a process and of a link.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use carom_xdp::program::{AttachMode, Decapsulation, XdpProgram};
use carom_xdp::socket::{Kick, XdpSocket};

use crate::frames::{ethernet, is_to_port, matching};
use crate::pair::{PATIENCE, PORT, Pair, SERVER, SILENCE, inject, interface, ip, received, wait_for};

/// Set for the process that `killed_process_leaves_the_kernel` starts; holds the number of the interface.
const VICTIM: &str = "CAROM_XDP_VICTIM";

/// Holds a program and a socket until it is killed. Does nothing in an ordinary run.
#[test]
fn victim() {
    let Ok(interface) = std::env::var(VICTIM) else { return };
    let interface = interface.parse().unwrap();
    let to = SocketAddr::new(SERVER.into(), PORT);
    let mut program = XdpProgram::attach(interface, AttachMode::Native, &[to], Decapsulation::None).unwrap();
    let socket = XdpSocket::open(&carom_xdp::config::SocketConfig::new(interface, 0)).unwrap();
    program.register(&socket).unwrap();
    println!("\nattached");
    std::thread::sleep(6 * PATIENCE);
}

#[test]
fn killed_process_leaves_the_kernel() {
    let Some(pair) = Pair::new() else { return };
    let to = SocketAddr::new(SERVER.into(), PORT);
    let _listener = pair.server.run(|| TcpListener::bind(to).unwrap());
    let interface = interface(&pair.server, "s0");
    let mut victim = pair.server.run(|| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "faults::victim", "--nocapture"])
            .env(VICTIM, interface.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "attached"), "the victim attaches its program");
    let connects = |time| pair.client.run(|| TcpStream::connect_timeout(&to, time).is_ok());
    assert!(!connects(SILENCE), "the frames go to the victim");
    // SIGKILL.
    victim.kill().unwrap();
    victim.wait().unwrap();
    // The client sends the second SYN after a second.
    assert!(connects(3 * SILENCE), "the kernel answers the first SYN after the kill");
}

#[test]
fn link_down_and_up_is_survived() {
    let Some(pair) = Pair::new() else { return };
    let mut program = pair.attach(AttachMode::Native, Decapsulation::None);
    let mut socket = pair.socket();
    program.register(&socket).unwrap();
    ip(&pair.server, "link set s0 down");
    let frame = socket.take().unwrap();
    assert!(socket.send(frame, 0, 60));
    assert_eq!(socket.kick().unwrap(), Kick::Down);
    ip(&pair.server, "link set s0 up");
    let mut completed = Vec::new();
    wait_for("completion", || {
        socket.kick().unwrap();
        socket.take_completions(&mut completed);
        (completed == [frame]).then_some(())
    });
    let mut injector = pair.injector();
    wait_for("frame", || {
        inject(&mut injector, &ethernet(&matching()));
        received(&mut socket).into_iter().find(|frame| is_to_port(frame, SERVER.into()))
    });
}
