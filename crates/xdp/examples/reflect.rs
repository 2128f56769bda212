//! The cost of a frame on a pair of virtual interfaces, without TCP: a thread in one namespace sends TCP frames, a
//! thread in another turns them around. Needs root. Prints CPU time per frame of the reflecting thread, of both
//! threads, and of the machine. The last one says something only if nothing else runs; it includes interrupts that no
//! thread paid for.
//!
//! `cargo run --release -p carom-xdp --example reflect -- [SECONDS] [FRAMES IN FLIGHT]`
#![allow(clippy::print_stdout, reason = "it is a measurement for a terminal")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use carom_xdp::config::{SocketConfig, ZeroCopy};
use carom_xdp::interface::InterfaceFacts;
use carom_xdp::program::{AttachMode, Decapsulation, XdpProgram};
use carom_xdp::socket::XdpSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustix::time::{ClockId, clock_gettime};

/// A frame of the length of a small request: Ethernet, IPv4 and TCP headers, and payload.
const FRAME_LEN: usize = 14 + 20 + 20 + 100;

/// Set when the time is over.
static STOP: AtomicBool = AtomicBool::new(false);

/// Frames that the reflecting thread has turned around, and its CPU time in nanoseconds.
static REFLECTED: AtomicU64 = AtomicU64::new(0);
static REFLECTOR_NANOS: AtomicU64 = AtomicU64::new(0);

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>().expect("a number"));
    let (seconds, in_flight) = (arguments.next().unwrap_or(5), arguments.next().unwrap_or(64));
    let (client, server) = (NamespaceProcess::new(), NamespaceProcess::new());
    let names = [("c0", &client), ("s0", &server)];
    run("ip", &format!("link add c0 netns {} type veth peer name s0 netns {}", client.0.id(), server.0.id()));
    for (name, namespace) in names {
        run("nsenter", &format!("-t {} -n ip link set {name} up", namespace.0.id()));
    }
    let before = busy();
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| reflect(&server));
        let sender = scope.spawn(|| send(&client, in_flight));
        thread::sleep(Duration::from_secs(seconds.into()));
        STOP.store(true, Ordering::Relaxed);
        sender.join().expect("the sender ends");
    });
    let time = start.elapsed();
    let frames = REFLECTED.load(Ordering::Relaxed);
    let each = |nanos: u64| nanos as f64 / frames.max(1) as f64 / 1_000.0;
    println!("{frames} frames in {time:.1?}, {:.0} per second", frames as f64 / time.as_secs_f64());
    println!(
        "CPU of the reflecting thread: {:.2} µs per frame (in and out)",
        each(REFLECTOR_NANOS.load(Ordering::Relaxed))
    );
    println!("CPU of both threads: {:.2} µs per frame (there and back)", each(cpu_nanos(ClockId::ProcessCPUTime)));
    println!("CPU of the machine: {:.2} µs per frame (there and back)", each(busy() - before));
}

/// A process that holds a network namespace.
struct NamespaceProcess(Child);

impl NamespaceProcess {
    fn new() -> NamespaceProcess {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo ready; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().expect("unshare is installed");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("it says that it is ready");
        NamespaceProcess(holder)
    }

    fn enter(&self) {
        let file = std::fs::File::open(format!("/proc/{}/ns/net", self.0.id())).expect("the holder runs");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root can enter");
    }
}

impl Drop for NamespaceProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(program: &str, arguments: &str) {
    let status = Command::new(program).args(arguments.split(' ')).status().expect("it is installed");
    assert!(status.success(), "{program} {arguments}");
}

/// Opens program and socket on an interface of the current namespace.
fn open(name: &str) -> (XdpProgram, XdpSocket) {
    let interface = InterfaceFacts::read(name).expect("the interface exists").index;
    let to: [SocketAddr; 1] = [SocketAddr::new([10, 77, 0, 2].into(), 80)];
    let program = XdpProgram::attach(interface, AttachMode::Native, &to, Decapsulation::None);
    let mut program = program.unwrap_or_else(|error| panic!("{error}"));
    let config = SocketConfig { zero_copy: ZeroCopy::Off, ..SocketConfig::new(interface, 0) };
    let socket = XdpSocket::open(&config).unwrap_or_else(|error| panic!("{error}"));
    program.register(&socket).expect("the socket is of this interface");
    (program, socket)
}

fn wait(socket: &XdpSocket) {
    let time = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&time));
}

/// Turns frames around: received frames are sent in place.
fn reflect(namespace: &NamespaceProcess) {
    namespace.enter();
    let (_program, mut socket) = open("s0");
    let mut completed = Vec::new();
    while !STOP.load(Ordering::Relaxed) {
        wait(&socket);
        while let Some(received) = socket.receive() {
            let bytes = &mut socket.bytes_mut(received.frame)[received.offset as usize..];
            let (to, from) = bytes[..12].split_at_mut(6);
            to.swap_with_slice(from);
            if socket.send(received.frame, received.offset, received.len) {
                REFLECTED.fetch_add(1, Ordering::Relaxed);
            } else {
                socket.free(received.frame);
            }
        }
        turn(&mut socket, &mut completed);
    }
    REFLECTOR_NANOS.store(cpu_nanos(ClockId::ThreadCPUTime), Ordering::Relaxed);
}

fn cpu_nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Keeps a number of frames on their way.
fn send(namespace: &NamespaceProcess, in_flight: u32) {
    namespace.enter();
    let (_program, mut socket) = open("c0");
    let mut frame = [0_u8; FRAME_LEN];
    frame[12..14].copy_from_slice(&[8, 0]);
    // The addresses stay as they are when the frame is turned around: both programs match the same destination.
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 140, 0, 0, 0, 0, 64, 6, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
    frame[36..38].copy_from_slice(&80_u16.to_be_bytes());
    let mut completed = Vec::new();
    let (mut sent, mut received, mut heard) = (0_u64, 0_u64, Instant::now());
    while !STOP.load(Ordering::Relaxed) {
        // Frames are lost while the other side starts.
        if heard.elapsed() > Duration::from_millis(100) {
            (received, heard) = (sent, Instant::now());
        }
        while sent - received < in_flight.into() {
            let Some(number) = socket.take() else { break };
            socket.bytes_mut(number)[..FRAME_LEN].copy_from_slice(&frame);
            assert!(socket.send(number, 0, FRAME_LEN as u32), "the ring is larger than what is in flight");
            sent += 1;
        }
        turn(&mut socket, &mut completed);
        wait(&socket);
        while let Some(back) = socket.receive() {
            socket.free(back.frame);
            (received, heard) = ((received + 1).min(sent), Instant::now());
        }
    }
}

/// Does what both threads do once a turn.
fn turn(socket: &mut XdpSocket, completed: &mut Vec<u32>) {
    socket.refill();
    socket.kick().expect("the socket works");
    socket.take_completions(completed);
    completed.drain(..).for_each(|frame| socket.free(frame));
}

/// Returns the CPU time of all processes and of the kernel since the start of the machine, in nanoseconds.
fn busy() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").expect("Linux has it");
    let numbers: Vec<u64> =
        text.lines().next().unwrap_or_default().split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq: in hundredths of a second.
    (numbers[0] + numbers[1] + numbers[2] + numbers[5] + numbers[6]) * 10_000_000
}
