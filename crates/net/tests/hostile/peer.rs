//! A hand-made peer: segments as a test wants them, written and read with the headers of smoltcp.

use carom_net::{CloseReason, ConnectionId, Events, MemoryPool, NextHop, NextHops, Stack, StackConfig};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber, TcpTimestampRepr,
};

pub(crate) const SERVER: [u8; 4] = [10, 0, 0, 1];
pub(crate) const CLIENT: [u8; 4] = [10, 0, 0, 2];
pub(crate) const PORT: u16 = 80;
const CLIENT_PORT: u16 = 4000;
pub(crate) const IRS: i32 = 1000;

/// An answer of the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) control: TcpControl,
    pub(crate) seq: i32,
    pub(crate) ack: Option<i32>,
    pub(crate) window: u16,
    pub(crate) options: (Option<u16>, Option<u8>, bool),
    pub(crate) sack: [Option<(u32, u32)>; 3],
    pub(crate) timestamp: Option<TcpTimestampRepr>,
    pub(crate) payload: Vec<u8>,
}

/// The events of a stack, noted.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) opened: Vec<ConnectionId>,
    pub(crate) received: Vec<u8>,
    pub(crate) finished: usize,
    pub(crate) writable: usize,
    pub(crate) closed: Vec<CloseReason>,
}

impl Events for Notes {
    fn opened(&mut self, id: ConnectionId) {
        self.opened.push(id);
    }

    fn received(&mut self, _: ConnectionId, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    fn peer_finished(&mut self, _: ConnectionId) {
        self.finished += 1;
    }

    fn writable(&mut self, _: ConnectionId) {
        self.writable += 1;
    }

    fn closed(&mut self, _: ConnectionId, reason: CloseReason) {
        self.closed.push(reason);
    }
}

/// The route to every client; without one, answers go to where frames come from.
#[derive(Default)]
pub(crate) struct Route(pub(crate) Option<NextHop>);

impl NextHops for Route {
    fn next_hop(&mut self, _: std::net::IpAddr, _: std::net::IpAddr) -> Option<NextHop> {
        self.0
    }
}

/// A stack with its surroundings, and a peer in front of it.
pub(crate) struct Bench {
    pub(crate) stack: Stack,
    pub(crate) pool: MemoryPool,
    pub(crate) notes: Notes,
    pub(crate) route: Route,
    pub(crate) now_us: u64,
    /// Sequence number of the server's first byte.
    pub(crate) server_seq: i32,
}

pub(crate) fn segment() -> TcpRepr<'static> {
    TcpRepr {
        src_port: CLIENT_PORT,
        dst_port: PORT,
        control: TcpControl::None,
        seq_number: TcpSeqNumber(IRS + 1),
        ack_number: None,
        window_len: 20_000,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    }
}

pub(crate) fn syn() -> TcpRepr<'static> {
    TcpRepr { control: TcpControl::Syn, seq_number: TcpSeqNumber(IRS), max_seg_size: Some(1000), ..segment() }
}

/// Returns the frame of a segment from an address.
pub(crate) fn frame(source: [u8; 4], segment: &TcpRepr<'_>) -> Vec<u8> {
    let ip = Ipv4Repr {
        src_addr: source.into(),
        dst_addr: SERVER.into(),
        next_header: IpProtocol::Tcp,
        payload_len: segment.buffer_len(),
        hop_limit: 64,
    };
    let capabilities = ChecksumCapabilities::default();
    let mut bytes = vec![0; 14 + 20 + segment.buffer_len()];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[14..]), &capabilities);
    let (from, to) = (IpAddress::Ipv4(source.into()), IpAddress::Ipv4(SERVER.into()));
    segment.emit(&mut TcpPacket::new_unchecked(&mut bytes[34..]), &from, &to, &capabilities);
    bytes
}

fn answer(frame: &[u8]) -> Answer {
    let ip = Ipv4Packet::new_checked(&frame[14..]).expect("an IPv4 packet");
    let capabilities = ChecksumCapabilities::default();
    let (from, to) = (IpAddress::Ipv4(ip.src_addr()), IpAddress::Ipv4(ip.dst_addr()));
    let tcp = TcpPacket::new_checked(ip.payload()).expect("a segment");
    let repr = TcpRepr::parse(&tcp, &from, &to, &capabilities).expect("a valid segment");
    Answer {
        control: repr.control,
        seq: repr.seq_number.0,
        ack: repr.ack_number.map(|ack| ack.0),
        window: repr.window_len,
        options: (repr.max_seg_size, repr.window_scale, repr.sack_permitted),
        sack: repr.sack_ranges,
        timestamp: repr.timestamp,
        payload: repr.payload.to_vec(),
    }
}

impl Bench {
    pub(crate) fn new(config: StackConfig) -> Bench {
        let now_us = 5_000_000_000;
        let mut stack = Stack::new(config, &[9; 16], now_us);
        stack.listen(None, PORT);
        Bench {
            stack,
            pool: MemoryPool::new(4096),
            notes: Notes::default(),
            route: Route::default(),
            now_us,
            server_seq: 0,
        }
    }

    /// Returns a bench with a connection that is open.
    pub(crate) fn connected() -> Bench {
        Bench::connected_with(StackConfig::default(), syn())
    }

    pub(crate) fn connected_with(config: StackConfig, syn: TcpRepr<'_>) -> Bench {
        let mut bench = Bench::new(config);
        let answers = bench.give(&syn);
        bench.server_seq = answers[0].seq.wrapping_add(1);
        let ack = TcpRepr { ack_number: Some(TcpSeqNumber(bench.server_seq)), ..segment() };
        let timestamp = syn.timestamp.map(|stamp| TcpTimestampRepr { tsval: stamp.tsval + 1, ..stamp });
        assert_eq!(bench.give(&TcpRepr { timestamp, ..ack }), []);
        assert_eq!(bench.notes.opened.len(), 1);
        bench
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.notes.opened[0]
    }

    /// Returns a segment of the client that acknowledges `acked` bytes, and begins `offset` bytes after its last in
    /// order.
    pub(crate) fn client_segment<'a>(&self, offset: i32, acked: i32, payload: &'a [u8]) -> TcpRepr<'a> {
        TcpRepr {
            seq_number: TcpSeqNumber((IRS + 1).wrapping_add(offset)),
            ack_number: Some(TcpSeqNumber(self.server_seq.wrapping_add(acked))),
            payload,
            ..segment()
        }
    }

    /// Gives a segment to the stack, and returns what it sends until the end of the turn.
    pub(crate) fn give(&mut self, segment: &TcpRepr<'_>) -> Vec<Answer> {
        self.give_frame(&frame(CLIENT, segment))
    }

    pub(crate) fn give_frame(&mut self, frame: &[u8]) -> Vec<Answer> {
        self.stack.receive(self.now_us, frame, &mut self.pool, &mut self.route, &mut self.notes);
        self.sent()
    }

    /// Ends the turn, and returns what was sent.
    pub(crate) fn sent(&mut self) -> Vec<Answer> {
        self.stack.flush(self.now_us, &mut self.pool);
        let mut answers = Vec::new();
        self.pool.transmit(|frame| answers.push(answer(frame)));
        answers
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> (usize, Vec<Answer>) {
        let taken = self.stack.send(self.now_us, self.id(), bytes, &mut self.pool);
        (taken, self.sent())
    }

    /// Lets time pass in steps of a millisecond, and returns what was sent.
    pub(crate) fn wait_ms(&mut self, ms: u64) -> Vec<Answer> {
        let end_us = self.now_us + ms * 1000;
        let mut answers = Vec::new();
        while let Some(at_us) = self.stack.next_deadline(self.now_us).filter(|at_us| *at_us <= end_us) {
            self.now_us = at_us;
            self.stack.poll(self.now_us, &mut self.pool, &mut self.notes);
            answers.extend(self.sent());
        }
        self.now_us = end_us;
        answers
    }

    /// Checks that nothing is left.
    pub(crate) fn assert_empty(&self) {
        let counters = self.stack.counters();
        assert_eq!((counters.open, counters.half_open, counters.time_wait, counters.frames_held), (0, 0, 0, 0));
        assert_eq!(self.pool.in_use(), 0);
    }
}
