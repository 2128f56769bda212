//! A program between two interfaces that passes frames on, and may treat them badly or wrap them on their way.
//!
//! The clients and the node are in namespaces of their own. The wire is in a third one: `w0` leads to the clients, `w1`
//! to the node. Its thread looks at both every millisecond at least, so it adds up to a millisecond of delay.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use carom_netns::Namespace;
use carom_xdp::config::SocketConfig;
use carom_xdp::interface::InterfaceFacts;
use carom_xdp::program::{AttachMode, Decapsulation, XdpProgram};
use carom_xdp::socket::XdpSocket;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use smoltcp::phy::{Device, Medium, RawSocket, RxToken, TxToken};
use smoltcp::time::Duration;

/// The interfaces of the wire.
pub(crate) const ENDS: [&str; 2] = ["w0", "w1"];

/// The place of the type in an Ethernet header.
const ETHER_TYPE: std::ops::Range<usize> = 12..14;

const IPV4: [u8; 2] = [8, 0];

/// Bytes of the Ethernet header.
pub(crate) const ETHERNET_LEN: usize = 14;

/// The fate of a frame: the forms in which it arrives, each after so many microseconds.
pub(crate) type Fate = Vec<(u64, Vec<u8>)>;

/// Decides on the fate of each frame. Called with true for frames to the node.
pub(crate) type Treatment = Box<dyn FnMut(bool, Vec<u8>) -> Fate + Send>;

/// A wire that passes frames on until it is dropped.
pub(crate) struct FrameWire {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FrameWire {
    /// Connects the two interfaces of a namespace. Answers to `tapped` clients reach the wire through a socket that
    /// shows their VLAN tags; other sockets get frames without.
    pub(crate) fn start(namespace: Namespace, tapped: Vec<SocketAddr>, treatment: Treatment) -> FrameWire {
        let is_over = Arc::new(AtomicBool::new(false));
        let is_over_too = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            namespace.enter().expect("root may enter it");
            let ends = ENDS.map(|end| RawSocket::new(end, Medium::Ethernet).expect("root may see frames"));
            let tap = (!tapped.is_empty()).then(|| Tap::open(&tapped));
            pass(ends, tap, treatment, &is_over_too);
        });
        FrameWire { is_over, thread: Some(thread) }
    }
}

impl Drop for FrameWire {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            assert!(outcome.is_ok() || thread::panicking(), "the wire has failed");
        }
    }
}

/// Takes whole frames from the node's end, before the kernel sees them.
struct Tap {
    socket: XdpSocket,
    _program: XdpProgram,
}

impl Tap {
    fn open(destinations: &[SocketAddr]) -> Tap {
        let interface = InterfaceFacts::read(ENDS[1]).expect("it is there").index;
        let mut program = XdpProgram::attach(interface, AttachMode::Auto, destinations, Decapsulation::None)
            .unwrap_or_else(|error| panic!("{error}"));
        let socket =
            XdpSocket::open(&SocketConfig { frames: 4_096, ring_len: 1_024, ..SocketConfig::new(interface, 0) })
                .unwrap_or_else(|error| panic!("{error}"));
        program.register(&socket).unwrap_or_else(|error| panic!("{error}"));
        Tap { socket, _program: program }
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let received = self.socket.receive()?;
        let frame = self.socket.bytes(received.frame)[received.offset as usize..][..received.len as usize].to_vec();
        self.socket.free(received.frame);
        self.socket.refill();
        Some(frame)
    }
}

/// The time of arrival in microseconds, the number of the frame, the end where it arrives, and the frame.
type FrameUnderWay = (u64, u64, usize, Vec<u8>);

fn pass(mut ends: [RawSocket; 2], mut tap: Option<Tap>, mut treatment: Treatment, is_over: &AtomicBool) {
    let began = Instant::now();
    let mut under_way: BinaryHeap<Reverse<FrameUnderWay>> = BinaryHeap::new();
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        let _ = smoltcp::phy::wait(ends[0].as_raw_fd(), Some(Duration::from_millis(1)));
        let now_us = began.elapsed().as_micros() as u64;
        for (from, end) in ends.iter_mut().enumerate() {
            let tapped = std::iter::from_fn(|| tap.as_mut().filter(|_| from == 1)?.receive());
            let seen = std::iter::from_fn(|| {
                let (frame, _) = end.receive(smoltcp::time::Instant::ZERO)?;
                Some(frame.consume(<[u8]>::to_vec))
            });
            for (after_us, frame) in tapped.chain(seen).flat_map(|frame| treatment(from == 0, frame)) {
                number += 1;
                under_way.push(Reverse((now_us + after_us, number, 1 - from, frame)));
            }
        }
        while under_way.peek().is_some_and(|Reverse((at_us, ..))| *at_us <= now_us)
            && let Some(Reverse((_, _, to, frame))) = under_way.pop()
        {
            send(&mut ends[to], &frame);
        }
    }
}

/// Sends a frame, unless the interface has no room for it.
fn send(end: &mut RawSocket, frame: &[u8]) {
    if let Some(token) = end.transmit(smoltcp::time::Instant::ZERO) {
        token.consume(frame.len(), |bytes| bytes.copy_from_slice(frame));
    }
}

/// True for frames with IPv4 and without a tag.
pub(crate) fn is_ipv4(frame: &[u8]) -> bool {
    frame.get(ETHER_TYPE) == Some(&IPV4)
}

/// Returns the Internet checksum over parts of even lengths.
pub(crate) fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks_exact(2));
    let mut sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    (!(sum as u16)).to_be_bytes()
}

/// The faults of a wire: chances in a thousand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Badness {
    pub(crate) loss: usize,
    pub(crate) double: usize,
    /// Frames that arrive up to five milliseconds later than others, and so in another order.
    pub(crate) late: usize,
    pub(crate) damage: usize,
    pub(crate) cut: usize,
}

/// Returns a treatment that follows from a seed. Frames of other protocols than IPv4 pass.
pub(crate) fn bad(badness: Badness, seed: u64) -> Treatment {
    let mut random = Pcg64Mcg::new(u128::from(seed) << 64 | 0xcafe_f00d_d15e_a5e5);
    let mut below = move |bound: usize| (random.next_u64() % bound as u64) as usize;
    Box::new(move |_, mut frame| {
        if !is_ipv4(&frame) {
            return vec![(0, frame)];
        }
        let mut fate: Fate = Vec::new();
        let chances = [badness.double, badness.loss, badness.cut, badness.damage, badness.late];
        let [is_doubled, is_lost, is_cut, is_damaged, is_late] = chances.map(|chance| below(1_000) < chance);
        let payload = frame.len() - ETHERNET_LEN;
        if is_doubled {
            fate.push((below(5_000) as u64, frame.clone()));
        }
        if is_cut {
            frame.truncate(ETHERNET_LEN + below(payload));
        } else if is_damaged {
            frame[ETHERNET_LEN + below(payload)] ^= 1 << below(8);
        }
        if !is_lost {
            fate.push((if is_late { below(5_000) as u64 } else { 0 }, frame));
        }
        fate
    })
}
