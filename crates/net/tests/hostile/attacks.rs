//! Attacks: blind segments, floods, windows and sizes that cost, overlaps.

use carom_net::{CloseReason, DropReason, NetFaults, Reflect, StackConfig};
use smoltcp::wire::{TcpControl, TcpRepr, TcpSeqNumber, TcpTimestampRepr};

use crate::peer::{Bench, CLIENT, IRS, SERVER, frame, syn};

#[test]
fn blind_reset_is_challenged() {
    let mut bench = Bench::connected();
    let reset = |bench: &Bench, offset| TcpRepr { control: TcpControl::Rst, ..bench.client_segment(offset, 0, b"") };
    assert_eq!(bench.give(&reset(&bench, 500)).len(), 1, "a challenge");
    assert_eq!(bench.give(&reset(&bench, 600)), [], "at most twice a second");
    assert_eq!(bench.give(&reset(&bench, -5000)), [], "nothing outside the window");
    assert_eq!(bench.notes.closed, []);
    bench.give(&reset(&bench, 0));
    assert_eq!(bench.notes.closed, [CloseReason::ResetByPeer]);
    bench.assert_empty();
}

#[test]
fn blind_syn_is_challenged() {
    let mut bench = Bench::connected();
    let answers = bench.give(&TcpRepr { seq_number: TcpSeqNumber(IRS + 777), ..syn() });
    assert_eq!((answers.len(), answers[0].control), (1, TcpControl::None));
    assert!(bench.stack.is_open(bench.id()));
}

#[test]
fn challenges_to_blind_syns_are_limited() {
    let stamped = TcpRepr { timestamp: Some(TcpTimestampRepr::new(500, 0)), ..syn() };
    for handshake in [syn(), stamped] {
        let mut bench = Bench::connected_with(StackConfig::default(), handshake);
        // In the window, behind it and ahead of it, with an old timestamp or none.
        let blind = |at: i32| TcpRepr { seq_number: TcpSeqNumber(IRS.wrapping_add(at * 1_000_000 + 777)), ..syn() };
        let sent: usize = (-50..50).map(|at| bench.give(&blind(at)).len()).sum();
        assert_eq!(sent, 1, "a challenge");
        bench.now_us += 500_000;
        assert_eq!(bench.give(&blind(40)).len(), 1, "a client that has restarted learns of the connection");
    }
}

#[test]
fn blind_data_is_refused() {
    let mut bench = Bench::connected();
    // Acknowledgements ahead of everything sent, and of long ago (RFC 5961, 5).
    for acked in [1, 1000, -100_000, i32::MIN] {
        bench.give(&bench.client_segment(0, acked, b"evil"));
    }
    assert_eq!(bench.notes.received, b"");
    assert_eq!(bench.stack.counters().dropped_for(DropReason::UnacceptableAck), 4);
}

#[test]
fn syn_flood_leaves_room_for_clients() {
    let mut bench = Bench::new(StackConfig { half_open_max: 128, ..StackConfig::default() });
    for attacker in 0..100_000_u32 {
        let [_, b, c, d] = attacker.to_be_bytes();
        bench.give_frame(&frame([11, b, c, d], &syn()));
    }
    let counters = bench.stack.counters();
    assert_eq!((counters.half_open, counters.open), (128, 0));
    assert_eq!(counters.cookies_sent, 100_000 - 128);
    for stamp in [None, Some(TcpTimestampRepr::new(5, 0))] {
        let source_port = if stamp.is_some() { 5001 } else { 5000 };
        let hello = TcpRepr { src_port: source_port, timestamp: stamp, window_scale: Some(7), ..syn() };
        let answers = bench.give(&hello);
        assert_eq!(answers[0].options.1.is_some(), stamp.is_some(), "the options are in the timestamp");
        bench.server_seq = answers[0].seq.wrapping_add(1);
        let timestamp = answers[0].timestamp.map(|sent| TcpTimestampRepr::new(6, sent.tsval));
        bench.give(&TcpRepr { src_port: source_port, timestamp, ..bench.client_segment(0, 0, b"GET") });
    }
    assert_eq!(bench.notes.received, b"GETGET");
    assert_eq!(bench.stack.counters().cookies_accepted, 2);
    let guess = TcpRepr { src_port: 6000, ..bench.client_segment(0, 12_345, b"GET") };
    assert_eq!(bench.give(&guess), [], "it may have overtaken the answer to a cookie");
    assert_eq!(bench.stack.counters().cookies_refused, 1);
    bench.now_us += 3_000_000;
    assert_eq!(bench.give(&guess)[0].control, TcpControl::Rst);
}

#[test]
fn without_cookies_a_flood_keeps_clients_out() {
    let faults = NetFaults { sends_no_cookies: true, ..NetFaults::default() };
    let mut bench = Bench::new(StackConfig { half_open_max: 128, faults, ..StackConfig::default() });
    for attacker in 0..128_u8 {
        bench.give_frame(&frame([11, 0, 0, attacker], &syn()));
    }
    assert_eq!(bench.give(&syn()), []);
    assert_eq!(bench.stack.counters().dropped_for(DropReason::Full), 1);
}

/// Returns a bench whose SYN cache is full, and that has answered the client's SYN with a cookie.
fn with_cookie() -> Bench {
    let mut bench = Bench::new(StackConfig { half_open_max: 1, ..StackConfig::default() });
    let server_seq = bench.give_frame(&frame([11, 0, 0, 1], &syn()))[0].seq;
    bench.server_seq = bench.give(&syn())[0].seq.wrapping_add(1);
    assert_eq!(bench.stack.counters().cookies_sent, 1);
    let reset = TcpRepr { control: TcpControl::Rst, ..bench.client_segment(0, 0, b"") };
    bench.give_frame(&frame([11, 0, 0, 1], &reset));
    assert_eq!(bench.stack.counters().half_open, 0, "{server_seq}");
    bench
}

#[test]
fn segment_ahead_of_a_cookie_resets_nothing() {
    let mut bench = with_cookie();
    // The first segments are lost or late, and the second half of the request comes before the first.
    assert_eq!(bench.give(&bench.client_segment(3, 0, b" /abc")), []);
    bench.give(&bench.client_segment(0, 0, b"GET"));
    bench.give(&bench.client_segment(3, 0, b" /abc"));
    assert_eq!(bench.notes.received, b"GET /abc");
}

#[test]
fn copy_of_a_syn_keeps_its_cookie_valid() {
    let mut bench = with_cookie();
    let second = bench.give(&syn())[0].seq;
    assert_ne!(second.wrapping_add(1), bench.server_seq, "the cache has room again");
    assert_eq!(bench.give(&bench.client_segment(3, 0, b" /abc")), [], "no reset");
    bench.give(&bench.client_segment(0, 0, b"GET"));
    assert_eq!(bench.notes.received, b"GET");
    let counters = bench.stack.counters();
    assert_eq!((counters.half_open, counters.open, counters.cookies_accepted), (0, 1, 1));
}

#[test]
fn answer_to_an_old_cookie_leaves_a_new_handshake() {
    let mut bench = with_cookie();
    let old = bench.client_segment(0, 0, b"GET");
    let hello = TcpRepr { seq_number: TcpSeqNumber(IRS + 50_000), ..syn() };
    let server_seq = bench.give(&hello)[0].seq.wrapping_add(1);
    assert_eq!(bench.give(&old), []);
    assert_eq!(bench.stack.counters().half_open, 1, "the old answer is of another SYN");
    bench.server_seq = server_seq;
    bench.give(&bench.client_segment(50_000, 0, b"PUT"));
    assert_eq!(bench.notes.received, b"PUT");
}

#[test]
fn late_segment_of_a_cookie_opens_nothing() {
    let mut bench = with_cookie();
    bench.give(&bench.client_segment(0, 0, b"GET"));
    bench.send(b"302");
    let id = bench.id();
    bench.stack.reset(bench.now_us, id, &mut bench.pool);
    bench.sent();
    // Both sides have sent three bytes.
    let end = bench.client_segment(3, 3, b"");
    bench.give(&TcpRepr { control: TcpControl::Fin, ..end });
    assert_eq!(bench.notes.opened, [id]);
    bench.assert_empty();
}

#[test]
fn window_of_zero_for_ever_ends() {
    let mut bench = Bench::connected();
    bench.give(&TcpRepr { window_len: 0, ..bench.client_segment(0, 0, b"GET") });
    bench.send(b"answer");
    for _ in 0..300 {
        if !bench.wait_ms(1000).is_empty() {
            bench.give(&TcpRepr { window_len: 0, ..bench.client_segment(3, 0, b"") });
        }
    }
    assert_eq!(bench.notes.closed, [CloseReason::TimedOut]);
    bench.assert_empty();
}

#[test]
fn windows_that_open_without_progress_end() {
    let mut bench = Bench::connected();
    bench.send(b"answer");
    for _ in 0..400 {
        bench.give(&TcpRepr { window_len: 0, ..bench.client_segment(0, 0, b"") });
        bench.give(&bench.client_segment(0, 0, b""));
        bench.wait_ms(1000);
    }
    assert_eq!(bench.notes.closed, [CloseReason::TimedOut]);
    bench.assert_empty();
}

#[test]
fn progress_without_a_window_is_enough() {
    let mut bench = Bench::connected();
    let id = bench.id();
    bench.send(&[7; 5_000]);
    for acked in 0..5 {
        // A third of the longest time without a window.
        for _ in 0..20 {
            bench.give(&TcpRepr { window_len: 0, ..bench.client_segment(0, acked * 1_000, b"") });
            bench.wait_ms(1_000);
        }
    }
    assert_eq!(bench.notes.closed, []);
    bench.give(&bench.client_segment(0, 5_000, b""));
    assert_eq!((bench.stack.in_flight(id), bench.pool.in_use()), (Some(0), 0));
}

#[test]
fn divided_acknowledgements_gain_nothing() {
    let mut bench = Bench::connected_with(StackConfig::default(), TcpRepr { window_len: 60_000, ..syn() });
    bench.give(&TcpRepr { window_len: 60_000, ..bench.client_segment(0, 0, b"") });
    let (first, _) = bench.send(&[1; 60_000]);
    for acked in 1..=first as i32 {
        bench.give(&TcpRepr { window_len: 60_000, ..bench.client_segment(0, acked, b"") });
    }
    let (second, _) = bench.send(&[1; 60_000]);
    assert!(second <= 2 * first, "{second} after {first}");
}

#[test]
fn tiny_segment_size_is_raised() {
    let mut bench = Bench::connected_with(StackConfig::default(), TcpRepr { max_seg_size: Some(1), ..syn() });
    let (_, answers) = bench.send(&[1; 500]);
    assert!(answers.len() <= 6, "{} segments", answers.len());
}

#[test]
fn overlaps_keep_the_first_bytes() {
    let mut bench = Bench::connected();
    bench.give(&bench.client_segment(4, 0, b"EFGH"));
    bench.give(&bench.client_segment(2, 0, b"cdefghij"));
    bench.give(&bench.client_segment(0, 0, b"ab"));
    bench.give(&bench.client_segment(0, 0, b"XXXXXXXXXXkl"));
    assert_eq!(bench.notes.received, b"abcdEFGHijkl");
}

/// Connects a client from a port of its own. Returns the last connection that was opened.
fn connect(bench: &mut Bench, port: u16) -> carom_net::ConnectionId {
    let answer = bench.give(&TcpRepr { src_port: port, ..syn() });
    bench.server_seq = answer[0].seq.wrapping_add(1);
    bench.give(&TcpRepr { src_port: port, ..bench.client_segment(0, 0, b"") });
    *bench.notes.opened.last().expect("a connection")
}

#[test]
fn silent_clients_leave_frames_for_others() {
    let config = StackConfig { frames_held_max: 64, ..StackConfig::default() };
    let mut bench = Bench::new(config);
    for port in 1..=7 {
        let id = connect(&mut bench, port);
        bench.stack.send(bench.now_us, id, &[1; 60_000], &mut bench.pool);
        bench.sent();
    }
    assert!(bench.stack.counters().frames_held > 56, "{:?}", bench.stack.counters());
    let id = connect(&mut bench, 100);
    assert_eq!(bench.stack.send(bench.now_us, id, b"302", &mut bench.pool), 3, "some frames are kept for it");
    bench.sent();
    // It acknowledges, and the others do not.
    bench.now_us += 500_000;
    bench.give(&TcpRepr { src_port: 100, ..bench.client_segment(0, 3, b"") });
    let held = bench.stack.counters().frames_held;
    for _ in 0..16 {
        bench.wait_ms(100);
        bench.sent();
    }
    let counters = bench.stack.counters();
    assert!(counters.frames_held < held, "{held}, {counters:?}");
    assert!(counters.frames_held <= 56, "{held}, {counters:?}");
    assert!(counters.shed > 0, "no more than need be: {counters:?}");
    assert!(counters.shed < 7, "no more than need be: {counters:?}");
    assert!(bench.stack.is_open(id));
    assert!(bench.notes.closed.iter().all(|reason| *reason == CloseReason::TimedOut));
    assert_eq!(bench.stack.send(bench.now_us, id, b"302", &mut bench.pool), 3);
}

#[test]
fn fin_without_a_frame_is_sent_later() {
    let config = StackConfig { frames_held_max: 64, ..StackConfig::default() };
    let mut bench = Bench::new(config);
    let holders: Vec<_> = (1..=64).map(|port| connect(&mut bench, port)).collect();
    for id in &holders {
        assert_eq!(bench.stack.send(bench.now_us, *id, b"302", &mut bench.pool), 3);
    }
    bench.sent();
    let id = connect(&mut bench, 100);
    bench.stack.close(bench.now_us, id, &mut bench.pool);
    // All frames are held, so each try fails and is followed by another.
    for _ in 0..10 {
        assert!(bench.wait_ms(50).iter().all(|answer| answer.control != TcpControl::Fin));
    }
    for id in holders {
        bench.stack.reset(bench.now_us, id, &mut bench.pool);
    }
    bench.sent();
    let is_sent = (0..20).any(|_| bench.wait_ms(100).iter().any(|answer| answer.control == TcpControl::Fin));
    assert!(is_sent, "{:?}", bench.stack.counters());
}

/// Returns a stack whose frames seven connections hold, and the port and sequence number of each.
fn short_of_frames() -> (Bench, Vec<(u16, i32)>) {
    let mut bench = Bench::new(StackConfig { frames_held_max: 64, ..StackConfig::default() });
    let mut holders = Vec::new();
    for port in 1..=7 {
        let id = connect(&mut bench, port);
        bench.stack.send(bench.now_us, id, &[1; 60_000], &mut bench.pool);
        bench.sent();
        holders.push((port, bench.server_seq));
    }
    (bench, holders)
}

#[test]
fn slow_acknowledgements_keep_frames_for_a_second() {
    let (mut bench, holders) = short_of_frames();
    // One byte every 150 ms, so that no timeout expires.
    for acked in 1..=20 {
        bench.wait_ms(150);
        for (port, server_seq) in &holders {
            bench.server_seq = *server_seq;
            bench.give(&TcpRepr { src_port: *port, ..bench.client_segment(0, acked, b"") });
        }
    }
    let counters = bench.stack.counters();
    assert!(counters.shed > 0, "{counters:?}");
    assert!(counters.frames_held <= 56, "{counters:?}");
}

#[test]
fn windows_of_zero_keep_no_frames_while_they_are_short() {
    let (mut bench, holders) = short_of_frames();
    assert!(bench.stack.counters().frames_held > 56, "{:?}", bench.stack.counters());
    bench.now_us += 1_100_000;
    for _ in 0..3 {
        // They come in each turn, before the timers run.
        for (port, server_seq) in &holders {
            bench.server_seq = *server_seq;
            let full = TcpRepr { src_port: *port, window_len: 0, ..bench.client_segment(0, 0, b"") };
            let full = frame(CLIENT, &full);
            bench.stack.receive(bench.now_us, &full, &mut bench.pool, &mut bench.route, &mut bench.notes);
        }
        bench.stack.poll(bench.now_us, &mut bench.pool, &mut bench.notes);
        bench.sent();
        bench.now_us += 1_000;
    }
    let counters = bench.stack.counters();
    assert!(counters.shed > 0, "{counters:?}");
    assert!(counters.frames_held <= 56, "{counters:?}");
}

#[test]
fn kept_doublings_cost_no_connection_while_frames_are_short() {
    let config = StackConfig { frames_held_max: 64, ..StackConfig::default() };
    let mut bench = Bench::new(config);
    let id = connect(&mut bench, 100);
    let server_seq = bench.server_seq;
    bench.stack.send(bench.now_us, id, b"302", &mut bench.pool);
    bench.sent();
    // Three timeouts. Without timestamps the acknowledgement gives no round trip.
    bench.wait_ms(2_000);
    bench.give(&TcpRepr { src_port: 100, ..bench.client_segment(0, 3, b"") });
    bench.stack.send(bench.now_us, id, b"410", &mut bench.pool);
    bench.sent();
    // It is lost. Others take the frames before it is sent again, after 1.6 seconds.
    bench.wait_ms(500);
    for port in 1..=7 {
        let holder = connect(&mut bench, port);
        bench.stack.send(bench.now_us, holder, &[1; 60_000], &mut bench.pool);
        bench.sent();
    }
    assert!(bench.stack.counters().frames_held > 56, "{:?}", bench.stack.counters());
    assert!(bench.wait_ms(1_300).iter().any(|answer| answer.payload == b"410"), "it is sent again");
    bench.server_seq = server_seq;
    bench.give(&TcpRepr { src_port: 100, ..bench.client_segment(0, 6, b"") });
    assert_eq!(bench.stack.in_flight(id), Some(0));
}

#[test]
fn land_attack_is_dropped() {
    let mut bench = Bench::new(StackConfig::default());
    assert_eq!(bench.give_frame(&frame(SERVER, &TcpRepr { src_port: 80, ..syn() })), []);
    assert_eq!(bench.give_frame(&frame([255; 4], &syn())), []);
    assert_eq!(bench.give_frame(&frame([224, 0, 0, 1], &syn())), []);
    assert_eq!(bench.stack.counters().dropped_for(DropReason::Martian), 3);
}

#[test]
fn gaps_cost_bounded_memory() {
    let config = StackConfig { out_of_order_blocks_per_connection: 8, ..StackConfig::default() };
    let mut bench = Bench::connected_with(config, syn());
    for gap in 0..1000 {
        bench.give(&bench.client_segment(1 + 2 * gap, 0, b"x"));
    }
    assert_eq!(bench.stack.counters().dropped_for(DropReason::OutOfOrderFull), 992);
    bench.give(&bench.client_segment(0, 0, b"y"));
    assert_eq!(bench.notes.received, b"yx");
}

#[test]
fn resets_to_strangers_are_limited() {
    let mut bench = Bench::new(StackConfig { resets_per_second: 10, ..StackConfig::default() });
    let stray = bench.client_segment(0, 5, b"");
    let sent: usize = (0..100).map(|_| bench.give(&stray).len()).sum();
    assert_eq!(sent, 10);
    let reset = TcpRepr { control: TcpControl::Rst, ..stray };
    bench.now_us += 1_000_000;
    assert_eq!(bench.give(&reset), [], "a reset gets no answer");
}

#[test]
fn unfinished_handshakes_answer_wrong_acknowledgements() {
    let mut bench = Bench::new(StackConfig::default());
    let server_seq = bench.give(&syn())[0].seq;
    bench.server_seq = server_seq + 1;
    let wrong = bench.give(&bench.client_segment(0, 77, b""));
    assert_eq!((wrong[0].control, wrong[0].seq), (TcpControl::Rst, server_seq + 78));
    assert_eq!(bench.stack.counters().half_open, 1);
    bench.give(&TcpRepr { control: TcpControl::Rst, ..bench.client_segment(0, 0, b"") });
    bench.assert_empty();
}

#[test]
fn full_table_evicts_time_wait_only() {
    let mut bench = Bench::new(StackConfig { connections_max: 2, ..StackConfig::default() });
    let mut connect = |port: u16| {
        let answer = bench.give(&TcpRepr { src_port: port, ..syn() });
        bench.server_seq = answer[0].seq.wrapping_add(1);
        let opened = bench.notes.opened.len();
        bench.give(&TcpRepr { src_port: port, ..bench.client_segment(0, 0, b"") });
        bench.notes.opened.len() > opened
    };
    assert!(connect(1));
    assert!(connect(2));
    assert!(!connect(3));
    let first = bench.notes.opened[0];
    bench.stack.reset(bench.now_us, first, &mut bench.pool);
    assert_eq!(bench.sent()[0].control, TcpControl::Rst);
    assert!(!bench.stack.is_open(first));
    assert_eq!(bench.stack.counters().dropped_for(DropReason::Full), 1);
}

#[test]
fn odd_flags_open_nothing() {
    let mut bench = Bench::new(StackConfig::default());
    let plain = frame(CLIENT, &syn());
    for flags in 0..64_u8 {
        let mut odd = plain.clone();
        odd[14 + 20 + 13] = flags;
        let mut unverified = Bench::new(StackConfig { verifies_checksums: false, ..StackConfig::default() });
        unverified.stack.receive(1, &odd, &mut unverified.pool, &mut Reflect, &mut unverified.notes);
        let opens = flags & 2 != 0 && flags & (1 | 4 | 16) == 0;
        assert_eq!(unverified.stack.counters().half_open, u64::from(opens), "{flags:#x}");
        bench.give_frame(&odd);
    }
    assert_eq!(bench.stack.counters().half_open, 1);
}
