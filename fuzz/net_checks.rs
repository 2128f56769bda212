//! Properties of the TCP/IP stack that hold for any frames. The fuzz targets `net` and `tunnel` and the tests of
//! `crates/net` check them.
#![allow(dead_code, reason = "each fuzz target uses one of these")]

use std::net::IpAddr;

use carom_net::{
    CloseReason, ConnectionId, Decapsulate, Events, MemoryPool, NextHop, NextHops, Reflect, Stack, StackConfig,
};

const FRAMES: u32 = 64;

/// Place of the acknowledgement in a frame of IPv4 without a tag.
const ACK_AT: usize = 42;

/// Length of the acknowledgement.
const ACK_LEN: usize = 4;

/// MAC address of the gateway to all clients.
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// The route of answers to clients behind a tunnel.
struct TunnelRoute;

impl NextHops for TunnelRoute {
    fn next_hop(&mut self, _: IpAddr, _: IpAddr) -> Option<NextHop> {
        Some(NextHop { mac: GATEWAY, source_mac: [2, 0, 0, 0, 0, 1], vlan: None, mtu: 1_500 })
    }
}

/// The application: it echoes what it gets, and shuts down after the peer.
#[derive(Default)]
struct EchoServer {
    open: Vec<ConnectionId>,
    echoes: Vec<(ConnectionId, Vec<u8>)>,
    finished: Vec<ConnectionId>,
}

impl Events for EchoServer {
    fn opened(&mut self, id: ConnectionId) {
        self.open.push(id);
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8]) {
        assert!(self.open.contains(&id));
        assert!(!bytes.is_empty());
        self.echoes.push((id, bytes.to_vec()));
    }

    fn peer_finished(&mut self, id: ConnectionId) {
        self.finished.push(id);
    }

    fn writable(&mut self, id: ConnectionId) {
        assert!(self.open.contains(&id));
    }

    fn closed(&mut self, id: ConnectionId, _: CloseReason) {
        assert!(self.open.contains(&id));
        self.open.retain(|open| *open != id);
    }
}

/// Feeds frames to a stack: no frame panics, and no frame of the pool is lost.
///
/// The input is a list of a step, two bytes of length, and a frame. The low bits of a step are time; the high one puts
/// the acknowledgement into the frame that the stack waits for, so that a fuzzer gets past the handshake.
pub(crate) fn check_frames(input: &[u8]) {
    feed(input, (Decapsulate::None, ACK_AT), &mut Reflect, |_| ());
}

/// Feeds packets from the tunnel that the first byte chooses, and checks them as [`check_frames`] does. Each answer goes
/// to the gateway, never to the balancer; only clients whose own frames have a tag are answered on their way.
pub(crate) fn check_tunnels(input: &[u8]) {
    let Some((first, frames)) = input.split_first() else { return };
    let tunnel = match first % 3 {
        0 => (Decapsulate::Ipip, ACK_AT + 20),
        // GUE in variant 1, the bare packet, and in variant 0, with a header of one word.
        1 => (Decapsulate::Gue { port: 6080 }, ACK_AT + 28),
        _ => (Decapsulate::Gue { port: 6080 }, ACK_AT + 32),
    };
    feed(frames, tunnel, &mut TunnelRoute, |frame| {
        assert!(frame[..6] == GATEWAY || frame[12..14] == [0x81, 0], "an answer goes to {:?}", &frame[..6]);
    });
}

/// Feeds frames to a stack. `ack_at` is the place of the acknowledgement in them; `look` sees what the stack sends.
fn feed<H: NextHops>(input: &[u8], (decapsulate, ack_at): (Decapsulate, usize), hops: &mut H, look: impl Fn(&[u8])) {
    let mut now_us = 1_000_000_000;
    let mut config =
        StackConfig { connections_max: 8, half_open_max: 2, frames_held_max: FRAMES - 8, ..StackConfig::default() };
    config.verifies_checksums = false;
    config.decapsulate = decapsulate;
    config.out_of_order_blocks_max = 16;
    let mut stack = Stack::new(config, &[5; 16], now_us);
    stack.listen(None, 80);
    let mut pool = MemoryPool::new(FRAMES);
    let mut echo = EchoServer::default();
    let mut expected = [0; 4];
    let mut rest = input;
    while let [step, high, low, after @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low]) & 0x7ff).min(after.len());
        let mut frame = after[..len].to_vec();
        rest = &after[len..];
        let step_ms = u64::from(step & 0x7f);
        now_us += step_ms * step_ms * 1000;
        if step & 0x80 != 0
            && let Some(ack) = frame.get_mut(ack_at..ack_at + ACK_LEN)
        {
            ack.copy_from_slice(&expected);
        }
        stack.poll(now_us, &mut pool, &mut echo);
        stack.receive(now_us, &frame, &mut pool, hops, &mut echo);
        for (id, bytes) in std::mem::take(&mut echo.echoes) {
            stack.send(now_us, id, &bytes, &mut pool);
        }
        for id in std::mem::take(&mut echo.finished) {
            stack.shutdown(now_us, id, &mut pool);
        }
        stack.flush(now_us, &mut pool);
        pool.transmit(|frame| {
            look(frame);
            expected = next_seq(frame).unwrap_or(expected);
        });
    }
    end(stack, pool, echo, now_us);
}

/// Returns the sequence number after a frame that was sent.
fn next_seq(frame: &[u8]) -> Option<[u8; 4]> {
    let tcp = frame.get(34..54)?;
    let seq = u32::from_be_bytes(tcp[4..8].try_into().ok()?);
    let marks = u32::from(tcp[13] & 1) + u32::from(tcp[13] >> 1 & 1);
    let payload = (frame.len() - 34) as u32 - u32::from(tcp[12] >> 4) * 4;
    Some(seq.wrapping_add(marks + payload).to_be_bytes())
}

/// Ends everything, and checks that nothing is left.
fn end(mut stack: Stack, mut pool: MemoryPool, mut echo: EchoServer, now_us: u64) {
    let counters = stack.counters();
    assert!(counters.open + counters.time_wait <= 8, "{counters:?}");
    assert!(counters.half_open <= 2, "{counters:?}");
    for id in echo.open.clone() {
        stack.reset(now_us, id, &mut pool);
    }
    pool.transmit(|_| ());
    let mut now_us = now_us;
    while let Some(at_us) = stack.next_deadline(now_us) {
        now_us = at_us;
        stack.poll(now_us, &mut pool, &mut echo);
        pool.transmit(|_| ());
    }
    let counters = stack.counters();
    assert_eq!((counters.open, counters.half_open, counters.time_wait, counters.frames_held), (0, 0, 0, 0));
    assert_eq!(pool.in_use(), 0);
}
