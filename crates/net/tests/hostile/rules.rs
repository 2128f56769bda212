//! Rules of the RFCs, one segment at a time.

use carom_net::{CloseReason, DropReason, FramePool, MemoryPool, NextHop, StackConfig};
use smoltcp::wire::{TcpControl, TcpRepr, TcpTimestampRepr};

use crate::peer::{Answer, Bench, CLIENT, IRS, Route, frame, syn};

fn stamped_syn() -> TcpRepr<'static> {
    TcpRepr { timestamp: Some(TcpTimestampRepr::new(500, 0)), sack_permitted: true, window_scale: Some(7), ..syn() }
}

#[test]
fn options_are_agreed_if_they_are_offered() {
    let answers = Bench::new(StackConfig::default()).give(&stamped_syn());
    assert_eq!(answers[0].options, (Some(1460), Some(3), true));
    assert_eq!(answers[0].timestamp.map(|stamp| stamp.tsecr), Some(500));
    assert_eq!(answers[0].ack, Some(IRS + 1));
    let plain = Bench::new(StackConfig::default()).give(&syn());
    assert_eq!((plain[0].options, plain[0].timestamp), ((Some(1460), None, false), None));
}

#[test]
fn lost_handshake_segments_cost_no_connection() {
    let mut bench = Bench::new(StackConfig::default());
    let first = bench.give(&syn());
    bench.server_seq = first[0].seq.wrapping_add(1);
    assert_eq!(bench.wait_ms(500), []);
    let mut again = bench.give(&syn());
    again.extend(bench.wait_ms(30_000));
    assert_eq!(again.len(), 5, "for the SYN that came again, and after 1, 3, 7 and 15 seconds");
    assert!(again.iter().all(|answer| *answer == first[0]), "one connection: {again:?}");
    // Only now does a segment arrive: the request, then a copy of it and the acknowledgement that was late.
    for payload in [&b"GET"[..], b"GET", b""] {
        let answers = bench.give(&bench.client_segment(0, 0, payload));
        assert!(answers.iter().all(|answer| answer.control != TcpControl::Rst), "{answers:?}");
    }
    assert_eq!(bench.notes.received, b"GET");
    let counters = bench.stack.counters();
    assert_eq!((counters.opened, counters.resets_sent_unknown), (1, 0));
}

#[test]
fn answer_carries_the_acknowledgement() {
    let mut bench = Bench::connected();
    let request = bench.client_segment(0, 0, b"GET");
    // The turn: the request, then the answer.
    let frame = crate::peer::frame(crate::peer::CLIENT, &request);
    let id = bench.id();
    bench.stack.receive(bench.now_us, &frame, &mut bench.pool, &mut carom_net::Reflect, &mut bench.notes);
    assert_eq!(bench.stack.send(bench.now_us, id, b"answer", &mut bench.pool), 6);
    let answers = bench.sent();
    assert_eq!(answers.len(), 1, "one frame in, one frame out");
    assert_eq!((answers[0].ack, &answers[0].payload[..]), (Some(IRS + 4), &b"answer"[..]));
    assert_eq!(bench.wait_ms(25), [], "no acknowledgement without data");
    assert_eq!(bench.give(&bench.client_segment(3, 6, b"")), []);
    assert_eq!((bench.stack.in_flight(id), bench.stack.acknowledged(id)), (Some(0), Some(6)));
    assert_eq!(bench.pool.in_use(), 0);
}

#[test]
fn acknowledgement_without_answer_is_delayed() {
    let mut bench = Bench::connected();
    assert_eq!(bench.give(&bench.client_segment(0, 0, b"a")), []);
    assert_eq!(bench.wait_ms(30).len(), 1);
    assert_eq!(bench.give(&bench.client_segment(1, 0, b"b")), []);
    let second = bench.give(&bench.client_segment(2, 0, b"c"));
    assert_eq!(second.len(), 1, "every second segment at once");
    assert_eq!(second[0].ack, Some(IRS + 4));
}

#[test]
fn lost_answer_is_sent_again() {
    let mut bench = Bench::connected();
    let first = bench.send(b"answer").1;
    let again = bench.wait_ms(10_000);
    assert!(again.len() >= 4, "a probe, and timeouts with backoff: {}", again.len());
    assert!(again.iter().all(|answer| answer.payload == b"answer" && answer.seq == first[0].seq));
    assert!(bench.stack.counters().tail_probes == 1);
    assert!(bench.stack.counters().timeouts >= 3);
    bench.give(&bench.client_segment(0, 6, b""));
    assert_eq!(bench.wait_ms(100_000), []);
    assert_eq!(bench.pool.in_use(), 0);
}

/// A pool whose transmit ring is full.
struct FullRing<'a>(&'a mut MemoryPool);

impl FramePool for FullRing<'_> {
    fn take(&mut self) -> Option<u32> {
        self.0.take()
    }

    fn bytes(&mut self, frame: u32) -> &mut [u8] {
        self.0.bytes(frame)
    }

    fn send(&mut self, _: u32, _: usize, _: usize) -> bool {
        false
    }

    fn is_queued(&self, frame: u32) -> bool {
        self.0.is_queued(frame)
    }

    fn release(&mut self, frame: u32) {
        self.0.release(frame);
    }
}

#[test]
fn full_ring_delays_an_answer() {
    let mut bench = Bench::connected();
    let id = bench.id();
    assert_eq!(bench.stack.send(bench.now_us, id, b"answer", &mut FullRing(&mut bench.pool)), 6);
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.stack.counters().ring_full, 1);
    let again = bench.wait_ms(100);
    assert_eq!(again.len(), 1, "a timer sends it");
    assert_eq!(again[0].payload, b"answer");
    bench.give(&bench.client_segment(0, 6, b""));
    assert_eq!((bench.stack.in_flight(id), bench.pool.in_use()), (Some(0), 0));
}

#[test]
fn slow_paths_are_measured_by_timestamps() {
    let mut bench = Bench::connected_with(StackConfig::default(), stamped_syn());
    let first = bench.send(b"answer").1;
    let sent = first[0].timestamp.expect("timestamps are agreed");
    assert!(bench.wait_ms(3_000).len() > 3, "sent again and again");
    let late = TcpTimestampRepr::new(502, sent.tsval);
    bench.give(&TcpRepr { timestamp: Some(late), ..bench.client_segment(0, 6, b"") });
    bench.send(b"answer");
    assert!(bench.wait_ms(3_000).len() <= 1, "the timeout is longer than the round trip, so a probe at most");
}

#[test]
fn timeout_stays_long_until_there_is_a_round_trip() {
    let mut bench = Bench::connected();
    bench.send(b"answer");
    let before = bench.wait_ms(3_000).len();
    bench.give(&bench.client_segment(0, 6, b""));
    bench.send(b"answer");
    let after = bench.wait_ms(3_000).len();
    assert!(after < before, "{after} transmissions after {before} (Karn)");
    bench.give(&bench.client_segment(0, 12, b""));
    bench.send(b"a");
    bench.give(&bench.client_segment(0, 13, b""));
    bench.send(b"b");
    assert_eq!(bench.wait_ms(100).len(), 1, "a probe: the path is fast again");
}

#[test]
fn silent_peer_is_given_up() {
    let mut bench = Bench::connected();
    bench.send(b"answer");
    bench.wait_ms(600_000);
    assert_eq!(bench.notes.closed, [CloseReason::TimedOut]);
    bench.assert_empty();
}

#[test]
fn three_duplicates_bring_the_lost_segment() {
    let mut bench = Bench::connected();
    let (taken, sent) = bench.send(&[7; 5000]);
    assert_eq!((taken, sent.len()), (5000, 5));
    for _ in 0..2 {
        assert_eq!(bench.give(&bench.client_segment(0, 0, b"")), []);
    }
    let again = bench.give(&bench.client_segment(0, 0, b""));
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].seq, bench.server_seq);
    let partial = bench.give(&bench.client_segment(0, 1000, b""));
    assert_eq!(partial[0].seq, bench.server_seq + 1000, "a partial acknowledgement shows the next loss");
}

#[test]
fn selective_acknowledgements_spare_what_arrived() {
    let mut bench = Bench::connected_with(StackConfig::default(), TcpRepr { sack_permitted: true, ..syn() });
    bench.send(&[7; 6000]);
    let start = bench.server_seq as u32;
    let block = Some((start + 1000, start + 5000));
    let ack = TcpRepr { sack_ranges: [block, None, None], ..bench.client_segment(0, 0, b"") };
    let again = bench.give(&ack);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].seq, bench.server_seq);
    assert_eq!(bench.stack.counters().fast_retransmissions, 1);
}

#[test]
fn gaps_are_reported_with_the_latest_first() {
    let mut bench = Bench::connected_with(StackConfig::default(), TcpRepr { sack_permitted: true, ..syn() });
    bench.give(&bench.client_segment(10, 0, b"0123456789"));
    let answers = bench.give(&bench.client_segment(40, 0, b"0123456789"));
    let at = |offset: u32| IRS as u32 + 1 + offset;
    assert_eq!(answers[0].sack, [Some((at(40), at(50))), Some((at(10), at(20))), None]);
    let filled = bench.give(&bench.client_segment(0, 0, b"abcdefghij"));
    assert_eq!(filled[0].ack, Some(IRS + 21));
    assert_eq!(bench.notes.received, b"abcdefghij0123456789");
}

#[test]
fn old_timestamps_are_refused() {
    let mut bench = Bench::connected_with(StackConfig::default(), stamped_syn());
    let stamped = |bench: &Bench, value, payload| TcpRepr {
        timestamp: Some(TcpTimestampRepr::new(value, 0)),
        ..bench.client_segment(0, 0, payload)
    };
    bench.give(&stamped(&bench, 400, b"old"));
    bench.give(&bench.client_segment(0, 0, b"none"));
    assert_eq!(bench.notes.received, b"");
    bench.give(&stamped(&bench, 600, b"new"));
    assert_eq!(bench.notes.received, b"new");
}

#[test]
fn half_close_lets_the_answer_through() {
    let mut bench = Bench::connected();
    bench.give(&TcpRepr { control: TcpControl::Fin, ..bench.client_segment(0, 0, b"GET") });
    assert_eq!((bench.notes.finished, &bench.notes.received[..]), (1, &b"GET"[..]));
    let id = bench.id();
    assert_eq!(bench.stack.send_last(bench.now_us, id, b"answer", &mut bench.pool), 6);
    let answers = bench.sent();
    assert_eq!((answers.len(), answers[0].control), (1, TcpControl::Fin));
    bench.give(&bench.client_segment(4, 7, b""));
    assert_eq!(bench.notes.closed, [CloseReason::Finished]);
    bench.assert_empty();
}

#[test]
fn end_is_held_until_it_is_acknowledged() {
    let mut bench = Bench::connected();
    let id = bench.id();
    bench.give(&bench.client_segment(0, 0, b"GET"));
    bench.stack.send_last(bench.now_us, id, b"answer", &mut bench.pool);
    bench.stack.close(bench.now_us, id, &mut bench.pool);
    bench.sent();
    // A driver that stops waits for this number to be zero: nobody else would send the frame again.
    let held = |bench: &Bench| bench.stack.counters().frames_held;
    assert_eq!((bench.stack.is_open(id), held(&bench)), (false, 1));
    let again = bench.wait_ms(1_000);
    assert!(again.iter().any(|answer| answer.payload == b"answer"), "{again:?}");
    bench.give(&bench.client_segment(3, 6, b""));
    assert_eq!(held(&bench), 1, "the FIN is on its way");
    bench.give(&bench.client_segment(3, 7, b""));
    assert_eq!(held(&bench), 0);
}

#[test]
fn own_close_ends_in_time_wait() {
    let mut bench = Bench::connected();
    let id = bench.id();
    bench.stack.shutdown(bench.now_us, id, &mut bench.pool);
    assert_eq!(bench.sent()[0].control, TcpControl::Fin);
    assert_eq!(bench.give(&bench.client_segment(0, 1, b"")), []);
    let fin = TcpRepr { control: TcpControl::Fin, ..bench.client_segment(0, 1, b"") };
    assert_eq!(bench.give(&fin).len(), 1);
    assert_eq!(bench.notes.closed, [CloseReason::Finished]);
    assert_eq!(bench.stack.counters().time_wait, 1);
    assert_eq!(bench.give(&fin).len(), 1, "the FIN again gets its acknowledgement again");
    bench.wait_ms(61_000);
    bench.assert_empty();
}

#[test]
fn both_sides_may_close_at_once() {
    let mut bench = Bench::connected();
    let id = bench.id();
    bench.stack.close(bench.now_us, id, &mut bench.pool);
    assert_eq!(bench.sent()[0].control, TcpControl::Fin);
    let end = TcpRepr { control: TcpControl::Fin, ..bench.client_segment(0, 0, b"") };
    assert_eq!(bench.give(&end)[0].ack, Some(IRS + 2), "it was sent before ours arrived");
    assert_eq!(bench.give(&end)[0].ack, Some(IRS + 2), "it comes again: the acknowledgement was lost");
    bench.give(&bench.client_segment(1, 1, b""));
    assert_eq!(bench.stack.counters().time_wait, 1);
    bench.wait_ms(61_000);
    bench.assert_empty();
}

#[test]
fn keep_alive_probes_are_answered() {
    let mut bench = Bench::connected();
    bench.give(&bench.client_segment(0, 0, b"GET"));
    bench.wait_ms(1_000);
    for garbage in [&b""[..], b"x"] {
        let answers = bench.give(&bench.client_segment(2, 0, garbage));
        assert_eq!((answers.len(), answers[0].ack), (1, Some(IRS + 4)), "{garbage:?}");
        bench.wait_ms(1_000);
    }
    assert_eq!(bench.notes.received, b"GET");
}

#[test]
fn timestamps_wrap() {
    let stamp = |value| Some(TcpTimestampRepr::new(value, 0));
    let hello = TcpRepr { timestamp: stamp(u32::MAX - 1), ..syn() };
    let mut bench = Bench::connected_with(StackConfig::default(), hello);
    bench.give(&TcpRepr { timestamp: stamp(5), ..bench.client_segment(0, 0, b"a") });
    bench.give(&TcpRepr { timestamp: stamp(u32::MAX), ..bench.client_segment(1, 0, b"b") });
    assert_eq!(bench.notes.received, b"a", "the second is older");
    assert_eq!(bench.stack.counters().dropped_for(DropReason::Paws), 1);
}

#[test]
fn time_wait_gives_way_to_a_later_syn() {
    let mut bench = Bench::connected();
    let id = bench.id();
    bench.stack.shutdown(bench.now_us, id, &mut bench.pool);
    bench.sent();
    bench.give(&TcpRepr { control: TcpControl::Fin, ..bench.client_segment(0, 1, b"") });
    let early = bench.give(&syn());
    assert_eq!(early[0].control, TcpControl::None, "an old SYN gets an acknowledgement");
    let later = TcpRepr { seq_number: (syn().seq_number + 5000), ..syn() };
    assert_eq!(bench.give(&later)[0].control, TcpControl::Syn);
    assert_eq!(bench.stack.counters().time_wait_reused, 1);
}

#[test]
fn window_of_zero_is_probed_until_it_opens() {
    let mut bench = Bench::connected();
    bench.give(&TcpRepr { window_len: 0, ..bench.client_segment(0, 0, b"GET") });
    assert_eq!(bench.send(b"answer").0, 0);
    assert_eq!(bench.wait_ms(20).len(), 1, "the acknowledgement of the request");
    let probes = bench.wait_ms(10_000);
    assert!((3..10).contains(&probes.len()), "{}", probes.len());
    assert!(probes.iter().all(|probe| probe.payload.is_empty() && probe.seq == bench.server_seq - 1));
    bench.give(&bench.client_segment(3, 0, b""));
    assert_eq!(bench.notes.writable, 1);
    assert_eq!(bench.send(b"answer").0, 6);
}

#[test]
fn syn_ack_is_sent_again_and_then_forgotten() {
    let mut bench = Bench::new(StackConfig::default());
    bench.give(&syn());
    assert_eq!(bench.wait_ms(120_000).len(), 5);
    bench.assert_empty();
}

#[test]
fn acknowledged_part_is_not_sent_again() {
    let mut bench = Bench::connected();
    let id = bench.id();
    bench.stack.send_last(bench.now_us, id, b"answer", &mut bench.pool);
    bench.sent();
    bench.give(&bench.client_segment(0, 4, b""));
    let again = bench.wait_ms(3000);
    assert!(again.iter().all(|answer| answer.payload == b"er" && answer.control == TcpControl::Fin), "{again:?}");
    assert_eq!(again[0].seq, bench.server_seq + 4);
}

/// The way to a gateway, with packets of at most so many bytes.
fn gateway(mtu: u16) -> NextHop {
    NextHop { mac: [2, 0, 0, 0, 0, 9], source_mac: [2, 0, 0, 0, 0, 1], vlan: None, mtu }
}

#[test]
fn segments_shrink_with_the_route() {
    let mut bench = Bench::new(StackConfig::default());
    bench.route.0 = Some(gateway(1_000));
    bench.server_seq = bench.give(&syn())[0].seq.wrapping_add(1);
    bench.give(&bench.client_segment(0, 0, b""));
    let id = bench.id();
    bench.stack.send_last(bench.now_us, id, &[7; 900], &mut bench.pool);
    assert_eq!(bench.sent().len(), 1, "it is lost: the route has changed");
    bench.route.0 = Some(gateway(500));
    bench.stack.refresh_next_hops(&mut bench.route);
    let lens = |answers: Vec<Answer>| answers.iter().map(|it| (it.payload.len(), it.control)).collect::<Vec<_>>();
    let again = lens(bench.wait_ms(2_000));
    assert!(!again.is_empty(), "{again:?}");
    assert!(again.iter().all(|sent| *sent == (460, TcpControl::Psh)), "{again:?}");
    let rest = lens(bench.give(&bench.client_segment(0, 460, b"")));
    assert_eq!(rest, [(440, TcpControl::Fin)], "the rest follows at once");
    bench.give(&bench.client_segment(0, 901, b""));
    assert_eq!(bench.stack.in_flight(id), Some(0));
}

#[test]
fn way_back_shrinks_with_the_route() {
    let mut bench = Bench::connected();
    bench.route.0 = Some(gateway(500));
    bench.stack.refresh_next_hops(&mut bench.route);
    let id = bench.id();
    assert_eq!(bench.stack.send(bench.now_us, id, &[7; 900], &mut bench.pool), 900);
    let mut sent = Vec::new();
    bench.pool.transmit(|frame| sent.push((frame[5], frame.len())));
    assert_eq!(sent, [(2, 514), (2, 494)], "to where the client's frames come from");
}

/// Sends 10,000 bytes over a path that silently drops payloads of more than `longest` bytes. Returns the time until the
/// client has all of them, in milliseconds.
fn read_through(bench: &mut Bench, longest: usize) -> u64 {
    let bytes: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
    let start_us = bench.now_us;
    let (taken, mut answers) = bench.send(&bytes);
    assert_eq!(taken, bytes.len());
    let mut arrived = vec![None; bytes.len()];
    for _ in 0..10_000 {
        answers.retain(|answer| (1..=longest).contains(&answer.payload.len()));
        for answer in &answers {
            let at = answer.seq.wrapping_sub(bench.server_seq) as usize;
            for (to, byte) in arrived[at..].iter_mut().zip(&answer.payload) {
                *to = Some(*byte);
            }
        }
        let next = arrived.iter().take_while(|byte| byte.is_some()).count();
        let is_heard = !answers.is_empty();
        answers = if is_heard { bench.give(&bench.client_segment(0, next as i32, b"")) } else { bench.wait_ms(1) };
        if next == bytes.len() {
            break;
        }
    }
    assert_eq!(arrived.iter().flatten().copied().collect::<Vec<_>>(), bytes);
    (bench.now_us - start_us) / 1000
}

#[test]
fn black_holes_are_left_with_shorter_segments() {
    for (longest, ms_max) in [(1_240, 3_000), (536, 8_000)] {
        let mut bench = Bench::connected_with(StackConfig::default(), TcpRepr { max_seg_size: Some(1_460), ..syn() });
        let ms = read_through(&mut bench, longest);
        assert!(ms < ms_max, "{ms} ms for payloads of {longest} bytes");
        let (_, answers) = bench.send(&[1; 3_000]);
        assert!(answers.iter().all(|answer| answer.payload.len() <= longest), "they stay short");
    }
}

#[test]
fn short_segments_tell_nothing_about_the_path() {
    let mut bench = Bench::connected_with(StackConfig::default(), TcpRepr { max_seg_size: Some(1_460), ..syn() });
    bench.send(b"answer");
    assert!(bench.wait_ms(3_000).len() > 3, "timeouts");
    bench.give(&bench.client_segment(0, 6, b""));
    let (_, answers) = bench.send(&[1; 2_000]);
    assert_eq!(answers[0].payload.len(), 1_460);
}

/// Returns the Ethernet header of the answer to a SYN with such a tag.
fn header_of_answer(tag: Option<[u8; 2]>, route: Option<NextHop>) -> Vec<u8> {
    let mut bench = Bench::new(StackConfig::default());
    let mut hello = frame(CLIENT, &syn());
    if let Some(tag) = tag {
        hello.splice(12..12, [0x81, 0, tag[0], tag[1]]);
    }
    bench.stack.receive(bench.now_us, &hello, &mut bench.pool, &mut Route(route), &mut bench.notes);
    let mut header = Vec::new();
    bench.pool.transmit(|frame| header = frame[..18].to_vec());
    header
}

#[test]
fn tagged_clients_get_tagged_answers() {
    let header = header_of_answer(Some([0, 5]), Some(gateway(1_500)));
    assert_eq!((header[5], &header[12..16]), (2, &[0x81, 0, 0, 5][..]), "the way back, with its tag");
    let header = header_of_answer(Some([0, 5]), Some(NextHop { vlan: Some(7), ..gateway(1_500) }));
    assert_eq!((header[5], &header[12..16]), (9, &[0x81, 0, 0, 7][..]), "the route of another VLAN");
    let header = header_of_answer(None, Some(gateway(1_500)));
    assert_eq!((header[5], &header[12..14]), (9, &[8, 0][..]), "the route");
    let header = header_of_answer(Some([0x60, 0]), Some(gateway(1_500)));
    assert_eq!((header[5], &header[12..14]), (9, &[8, 0][..]), "a priority is no VLAN: the route");
    let header = header_of_answer(Some([0x60, 0]), None);
    assert_eq!((header[5], &header[12..14]), (2, &[8, 0][..]), "the way back, without a tag");
}
