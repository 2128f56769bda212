//! Tests of the rules by which nodes share their visit logs.

use proptest::prelude::*;

use super::*;

const A: OriginId = OriginId(7);
const B: OriginId = OriginId(8);

fn span(from_ms: u64, to_ms: u64) -> LogSpan {
    LogSpan { from_ms, to_ms }
}

fn entry(first: u64, blocks: usize) -> LogEntry {
    LogEntry { first, span: span(10, 20), published: 99, blocks: vec![vec![5; 40]; blocks] }
}

fn note(number: u64) -> LogNote {
    LogNote { number, last_ms: 50_000, lacking: None, node: "n1".to_owned() }
}

#[test]
fn gaps_are_joined_and_bounded() {
    let mut gaps = LogGaps::default();
    [span(50, 60), span(10, 20), span(30, 40), span(18, 31)].into_iter().for_each(|span| gaps.add(span));
    assert_eq!(gaps.spans(), [span(10, 40), span(50, 60)]);
    assert!(gaps.touch(span(0, 10)));
    assert!(gaps.touch(span(55, 55)));
    assert!(gaps.touch(span(0, u64::MAX)));
    assert!(!gaps.touch(span(41, 49)));
    assert!(!gaps.touch(span(61, u64::MAX)));
    gaps.forget_before(41);
    assert_eq!(gaps.spans(), [span(50, 60)]);
    for at in 0..3 * VISIT_LOG_GAPS_MAX as u64 {
        gaps.add(span(at * 1_000, at * 1_000 + 1));
    }
    assert_eq!(gaps.spans().len(), VISIT_LOG_GAPS_MAX);
    assert!((0..3 * VISIT_LOG_GAPS_MAX as u64).all(|at| gaps.touch(span(at * 1_000, at * 1_000))));
}

#[test]
fn entries_are_read_as_they_were_written() {
    let written = entry(4, 3);
    let bytes = written.encode();
    assert_eq!((written.last(), ReadEntry::read(&bytes, 6)), (6, ReadEntry::Known(written.clone())));
    assert_eq!(ReadEntry::read(&bytes, 7), ReadEntry::Damaged, "another identifier");
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert_eq!(ReadEntry::read(&damaged, 6), ReadEntry::Damaged, "{at}");
    }
    let mut later = bytes[..bytes.len() - 8].to_vec();
    later[0] = ENTRY_VERSION + 1;
    later.extend_from_slice(b"more");
    later.extend_from_slice(&xxh3_64(&later).to_le_bytes());
    assert_eq!(ReadEntry::read(&later, 6), ReadEntry::Later(4, written.span));
}

#[test]
fn notes_are_read_as_they_were_written() {
    for lacking in [None, Some(span(0, 5)), Some(span(3, 3))] {
        let note = LogNote { lacking, ..note(12) };
        assert_eq!(LogNote::parse(&note.to_text()), Some(note));
    }
    assert_eq!(LogNote::parse("1 2 3"), None);
}

#[test]
fn state_is_read_as_it_was_written() {
    let mut state = SharedLogState::lost(1_000);
    state.identify(A, Some(span(0, 900)));
    state.reach(A, 3, 2_000);
    state.note_sealed(12);
    assert!(state.meet(B, &note(5)));
    assert!(!state.meet(B, &note(6)));
    assert_eq!(state.position(B).number, 5, "after a loss, the blocks that are there may be in the log already");
    assert!(state.gaps().touch(span(50_000, 50_000)));
    assert!(!state.gaps().touch(span(50_001, 50_001)));
    assert_eq!(SharedLogState::decode(&state.encode()), Some(state.clone()));
    let text = state.encode();
    for at in 0..text.len() {
        let mut damaged = text.clone().into_bytes();
        damaged[at] ^= 1;
        let damaged = String::from_utf8(damaged).unwrap();
        assert_eq!(SharedLogState::decode(&damaged), None, "{at}");
    }
    assert_eq!(SharedLogState::decode(""), None);
}

#[test]
fn missing_blocks_leave_a_gap() {
    let mut state = SharedLogState::default();
    assert!(state.meet(B, &LogNote { lacking: Some(span(0, 1_000)), ..note(9) }));
    assert_eq!(state.gaps().spans(), [span(0, 1_000)], "visits from before the fleet");
    assert!(!state.bridge(B, 1, 60_000), "the stream is whole");
    state.reach(B, 2, 70_000);
    assert!(!state.bridge(B, 3, 71_000));
    assert!(!state.bridge(B, 1, 60_000));
    assert!(state.bridge(B, 6, 90_000));
    assert_eq!((state.position(B).number, state.gaps().spans()[1]), (5, span(65_000, 95_000)));
    state.skip(B, 8, 120_000);
    assert_eq!((state.position(B).number, state.gaps().spans()[1]), (8, span(65_000, 125_000)));
    // A node that joins later reads the stream from where it begins.
    let mut later = SharedLogState::default();
    assert!(later.meet(B, &note(9)));
    assert!(later.bridge(B, 6, 90_000));
    assert_eq!(later.gaps().spans(), [span(0, 95_000)]);
}

#[test]
fn older_copy_reads_its_former_blocks() {
    let mut state = SharedLogState::default();
    state.identify(A, None);
    state.reach(A, 4, 40_000);
    let common = OriginPosition { number: 4, last_ms: 40_000 };
    state.renew(B, common, 90_000);
    assert_eq!((state.own(), state.position(A), state.position(B).number), (B, common, 0));
    assert_eq!(state.lacking(), None);
    // It has logged visits under the former numbers before it could ask Redis.
    state.reach(B, 9, 80_000);
    state.renew(OriginId(9), OriginPosition { number: 7, last_ms: 70_000 }, 90_000);
    assert_eq!((state.position(B).number, state.lacking()), (7, Some(span(65_000, 95_000))));
    assert_eq!(state.gaps().spans(), [span(65_000, 95_000)], "blocks of both directories have these numbers");
}

#[test]
fn stream_is_bounded_and_compared() {
    let mut own = OwnLogStream::default();
    let now = Duration::from_secs(10);
    let now_ms = 3 * ENTRY_KEPT.as_millis() as u64;
    assert!(own.is_unsure());
    assert!(own.compare(0, &[], 0, (now, now_ms)));
    assert!(!own.is_unsure());
    assert_eq!((own.number_to_note(None), own.number_to_note(Some(0))), (Some(0), None));
    let part = VISIT_LOG_STREAM_BYTES / 4;
    for last in 1..=3 {
        assert_eq!(own.make_room(part, now), 1);
        own.sent(last, part, now);
    }
    assert_eq!(own.make_room(part, now), 2, "the oldest entry gives way");
    own.sent(4, part, now);
    assert_eq!(own.make_room(10, now + ENTRY_KEPT + Duration::from_secs(1)), 5, "all are too old");
    assert_eq!((own.number_to_note(Some(0)), own.number_to_note(Some(4))), (Some(4), None));
    assert_eq!(own.number_to_note(Some(3)), None);
    assert!(own.is_unsure(), "Redis has lost writes");
    // The next process finds the entries of this one.
    let ends = [1, 2].map(|number| {
        let published = number * part as u64;
        let span = span(now_ms - 10, now_ms);
        (number, LogEntry { first: number, span, published, blocks: vec![vec![1; 9]] }.encode())
    });
    let mut next = OwnLogStream::default();
    assert!(next.compare(2, &ends, 2, (now, now_ms)));
    assert_eq!((next.published(), next.make_room(10, now)), (2, 0));
    assert_eq!(next.total(), 2 * part as u64 + ends[1].1.len() as u64);
    assert_eq!(next.make_room(VISIT_LOG_STREAM_BYTES - part, now), 3, "they leave together");
    // Entries of two weeks leave with the next one.
    assert!(next.compare(2, &ends, 2, (now, now_ms + 3 * ENTRY_KEPT.as_millis() as u64)));
    assert_eq!(next.make_room(10, now + Duration::from_millis(1)), 3);
    assert!(!next.compare(1, &ends, 0, (now, now_ms)), "a newer copy has published more");
    assert!(!OwnLogStream::default().compare(1, &[], 2, (now, now_ms)));
}

proptest! {
    #[test]
    fn reading_entries_is_total(bytes in any::<Vec<u8>>(), last in any::<u64>()) {
        prop_assert_eq!(ReadEntry::read(&bytes, last), ReadEntry::Damaged);
    }

    #[test]
    fn reading_states_is_total(text in "\\PC{0,200}") {
        prop_assert!(SharedLogState::decode(&text).is_none());
    }
}
