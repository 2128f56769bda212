//! Segments: runs of counter values, turned into shuffled codes before any of them is used.
//!
//! Three pure parts: [`Issuer`] decides which counter values come next and never issues one twice, [`SegmentSizer`]
//! decides how many at a time, and [`Segment::prepare`] makes the codes. The caller decides where the state is stored,
//! where counter values come from in a fleet, and what time it is.

use std::time::Duration;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::code::GeneratedCode;
use crate::space::{CodeLength, CodeSpace, CounterValue};

/// The shortest segment and the first one, in codes, unless fewer remain.
pub const SEGMENT_LEN_MIN: u64 = 10_000;

/// The longest segment, in codes: 8 MB as a row of the id table.
pub const SEGMENT_LEN_MAX: u64 = 1_000_000;

/// A segment that lasts less than this is followed by one of double the length.
pub const SEGMENT_LASTS_MIN: Duration = Duration::from_secs(15 * 60);

/// A segment that lasts more than this is followed by one of half the length.
pub const SEGMENT_LASTS_MAX: Duration = Duration::from_secs(60 * 60);

/// Share of the codes of a length, in percent, from which on the operator is warned.
pub const ALARM_PERCENT: u8 = 90;

/// PCG's published default stream; the seed decides everything else.
const SHUFFLE_STREAM: u128 = 0x0a02_bdbf_7bb3_c0a7_ac28_fa16_a64a_bf96;

/// Consecutive counter values of one length. Within the codes of that length and never empty when an [`Issuer`] made
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Length of the codes.
    pub length: CodeLength,
    /// The first value.
    pub start: CounterValue,
    /// Number of values.
    pub len: u64,
}

impl Run {
    /// Returns the value behind the last one.
    pub fn end(self) -> CounterValue {
        CounterValue(self.start.0 + self.len)
    }
}

/// The codes of a run in shuffled order, ready to be stored and then used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    run: Run,
    codes: Vec<GeneratedCode>,
}

impl Segment {
    /// Makes the codes of a run and shuffles them.
    ///
    /// Codes that are reserved names are left out, so there may be a few fewer than the run has values. `seed` should
    /// come from the operating system. Takes 0.1 to 0.2 microseconds a code, so up to 0.2 seconds: too long for a
    /// core's own thread.
    ///
    /// # Panics
    /// If the run goes beyond the codes of its length.
    pub fn prepare(space: &CodeSpace, run: Run, seed: [u8; 16]) -> Segment {
        let mut codes = Vec::with_capacity(run.len as usize);
        codes.extend(space.codes(run.length, run.start, run.len).filter(|code| !code.to_code().is_reserved()));
        shuffle(&mut codes, &mut Pcg64::new(u128::from_le_bytes(seed), SHUFFLE_STREAM));
        assert!(codes.len() as u64 <= run.len, "a counter value made two codes");
        debug_assert!(
            codes.iter().all(|code| code.len() == run.length.get()),
            "a code has another length than its run"
        );
        Segment { run, codes }
    }

    /// Shuffles codes that were in use before, so that the next one cannot be predicted. `seed` as in
    /// [`Segment::prepare`].
    #[must_use]
    pub fn reshuffle(mut codes: Vec<GeneratedCode>, seed: [u8; 16]) -> Vec<GeneratedCode> {
        shuffle(&mut codes, &mut Pcg64::new(u128::from_le_bytes(seed), SHUFFLE_STREAM));
        codes
    }

    /// Returns the run that it was made of.
    pub fn run(&self) -> Run {
        self.run
    }

    /// Returns the codes in their order of use.
    pub fn codes(&self) -> &[GeneratedCode] {
        &self.codes
    }

    /// Returns the codes, to be moved into a queue.
    pub fn into_codes(self) -> Vec<GeneratedCode> {
        self.codes
    }

    /// Returns how many codes of the run are reserved names and were left out.
    pub fn left_out(&self) -> u64 {
        self.run.len - self.codes.len() as u64
    }
}

/// Shuffles the items: Fisher-Yates, in the form of Durstenfeld (1964).
fn shuffle<T>(items: &mut [T], random: &mut Pcg64) {
    for place in (1..items.len()).rev() {
        let other = below(place as u64 + 1, random);
        items.swap(place, other as usize);
    }
}

/// Returns an integer below `bound`, without bias (Lemire 2019, "Fast random integer generation in an interval").
/// Multiplies, and draws again where the low half shows a value that some results have once more than others.
fn below(bound: u64, random: &mut Pcg64) -> u64 {
    let uneven = bound.wrapping_neg() % bound;
    loop {
        let product = u128::from(random.next_u64()) * u128::from(bound);
        if product as u64 >= uneven {
            let drawn = (product >> 64) as u64;
            debug_assert!(drawn < bound, "a shuffle would swap beyond its items");
            return drawn;
        }
    }
}

/// The rule for the length of segments: long enough to last a quarter of an hour, short enough that losing one wastes
/// few codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentSizer {
    len: u64,
}

impl Default for SegmentSizer {
    fn default() -> SegmentSizer {
        SegmentSizer { len: SEGMENT_LEN_MIN }
    }
}

impl SegmentSizer {
    /// Records how long the last segment lasted, from its first code to its last.
    pub fn lasted(&mut self, time: Duration) {
        let len = if time < SEGMENT_LASTS_MIN {
            self.len * 2
        } else if time > SEGMENT_LASTS_MAX {
            self.len / 2
        } else {
            self.len
        };
        self.len = len.clamp(SEGMENT_LEN_MIN, SEGMENT_LEN_MAX);
    }

    /// Returns how many codes the next segment should have when `remaining` are left of their length.
    pub fn next_len(&self, remaining: u64) -> u64 {
        self.len.min(remaining)
    }
}

/// The result of offering counter values from outside; see [`Issuer::offer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// The values are new: make codes of them. The run is shorter than the offered one if the length ended.
    Accepted(Run),
    /// The values start below the high-water mark, so the counter outside has lost what it had acknowledged. Nothing was
    /// issued; raise the counter to this value and ask again.
    Regressed {
        /// The lowest value that was never issued.
        raise_to: CounterValue,
    },
    /// The values lie beyond the last code of their length, or their length is used up: ask for values of this length.
    UsedUp {
        /// The length in use; `None` when the longest is used up as well.
        next: Option<CodeLength>,
    },
}

/// Decides which counter values become codes: never one twice, and never one below a high-water mark.
///
/// The high-water mark of a length is the lowest value that was never issued. The caller stores [`Issuer::state`]
/// durably before it uses a run, and gives back at start the highest marks that it finds anywhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issuer {
    /// The length in use. When it is used up the next one takes over; past the longest, it stays and nothing is left.
    length: CodeLength,
    /// High-water mark of every length from [`CodeLength::MIN`] on; never beyond `codes()`.
    marks: [CounterValue; CodeLength::COUNT],
}

impl Issuer {
    /// Returns an issuer for codes of at least `start` characters, above the given marks. The highest mark of each
    /// length counts, and a mark beyond the codes of its length means that it is used up.
    pub fn new(start: CodeLength, marks: impl IntoIterator<Item = (CodeLength, CounterValue)>) -> Issuer {
        let mut issuer = Issuer { length: start, marks: [CounterValue(0); CodeLength::COUNT] };
        for (length, mark) in marks {
            issuer.raise(length, mark);
        }
        issuer
    }

    /// Returns the high-water marks of all lengths that were ever used: the state to store.
    pub fn state(&self) -> Vec<(CodeLength, CounterValue)> {
        CodeLength::MIN.and_longer().map(|length| (length, self.mark(length))).filter(|(_, mark)| mark.0 > 0).collect()
    }

    /// Returns the length of the codes that are issued now.
    pub fn length(&self) -> CodeLength {
        self.length
    }

    /// Returns the lowest value of a length that was never issued.
    pub fn mark(&self, length: CodeLength) -> CounterValue {
        self.marks[length.index()]
    }

    /// Returns how many codes of the length in use were never issued; 0 only when the longest length is used up.
    pub fn remaining(&self) -> u64 {
        self.length.codes() - self.mark(self.length).0
    }

    /// Returns the share of the codes of the length in use that was issued, in whole percent, rounded down.
    pub fn used_percent(&self) -> u8 {
        (u128::from(self.mark(self.length).0) * 100 / u128::from(self.length.codes())) as u8
    }

    /// True if the length in use is nearly used up, so that codes will soon be longer.
    pub fn alarm(&self) -> bool {
        self.used_percent() >= ALARM_PERCENT
    }

    /// Returns the next `want` values of this node's own counter, fewer at the end of a length. `None` when `want` is 0
    /// or every length is used up.
    pub fn issue(&mut self, want: u64) -> Option<Run> {
        let len = want.min(self.remaining());
        if len == 0 {
            return None;
        }
        let run = Run { length: self.length, start: self.mark(self.length), len };
        self.raise(run.length, run.end());
        self.assert_issued(run);
        Some(run)
    }

    /// Takes values that another counter gave this node (a fleet's `INCRBY`), as a run of the length in use.
    pub fn offer(&mut self, run: Run) -> Offer {
        let mark = self.mark(run.length);
        let used_up = run.length < self.length || run.len == 0 || run.start.0 >= run.length.codes();
        if used_up {
            // A value beyond the end means that other nodes have used up the length.
            self.raise(run.length, run.start);
            return Offer::UsedUp { next: (self.remaining() > 0).then_some(self.length) };
        }
        if run.start < mark {
            return Offer::Regressed { raise_to: mark };
        }
        let run = Run { len: run.len.min(run.length.codes() - run.start.0), ..run };
        self.raise(run.length, run.end());
        self.assert_issued(run);
        Offer::Accepted(run)
    }

    /// Asserts that the values of a run exist, and that none of them will be issued again.
    fn assert_issued(&self, run: Run) {
        assert!(run.len > 0, "a run without values was issued");
        assert!(run.end().0 <= run.length.codes(), "the run has values without a code");
        assert_eq!(self.mark(run.length), run.end(), "the values of the run would be issued again, or some never");
    }

    /// Records that all values of a length below `mark` were issued, here or elsewhere. A lower mark than the known one
    /// changes nothing.
    pub fn raise(&mut self, length: CodeLength, mark: CounterValue) {
        let (mark_before, length_before) = (self.mark(length), self.length);
        let known = &mut self.marks[length.index()];
        *known = mark.clamp(*known, CounterValue(length.codes()));
        while self.remaining() == 0 {
            let Some(next) = self.length.next() else { break };
            self.length = next;
        }
        assert!(self.mark(length) >= mark_before, "a lower mark would issue values again");
        assert!(self.mark(length).0 <= length.codes(), "the mark is beyond the codes of its length");
        assert!(self.length >= length_before, "codes never become shorter");
        assert!(self.remaining() > 0 || self.length == CodeLength::MAX, "a used up length is in use");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;
    use crate::space::CodeSecret;
    use std::collections::HashSet;

    fn length(characters: usize) -> CodeLength {
        CodeLength::new(characters).unwrap()
    }

    fn run(characters: usize, start: u64, len: u64) -> Run {
        Run { length: length(characters), start: CounterValue(start), len }
    }

    fn space() -> CodeSpace {
        CodeSpace::new(&CodeSecret::from_bytes([3; 32]))
    }

    #[test]
    fn a_segment_is_its_run_in_another_order() {
        let (space, run) = (space(), run(7, 40_000, 10_000));
        let segment = Segment::prepare(&space, run, [1; 16]);
        let mut values: Vec<u64> = segment.codes().iter().map(|&code| space.counter(code).unwrap().1.0).collect();
        assert!(values.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count() < 10, "the order is still visible");
        values.sort_unstable();
        assert!(values.iter().copied().eq(40_000..50_000));
        assert_eq!(segment, Segment::prepare(&space, run, [1; 16]));
        assert_ne!(segment, Segment::prepare(&space, run, [2; 16]));
    }

    #[test]
    fn reserved_names_are_left_out() {
        let length = CodeLength::MIN;
        let whole = Run { length, start: CounterValue(0), len: length.codes() };
        let segment = Segment::prepare(&space(), whole, [0; 16]);
        // The reserved names of two characters are v3, V3, v4 and V4.
        assert_eq!(segment.left_out(), 4);
        assert!(segment.codes().iter().all(|code| !code.to_code().is_reserved()));
    }

    /// All 24 orders of four items come equally often: chi-square with 23 degrees of freedom stays below 49.7 (p =
    /// 0.001).
    #[test]
    fn the_shuffle_is_even() {
        let mut random = Pcg64::new(5, SHUFFLE_STREAM);
        let mut seen = std::collections::HashMap::new();
        const SHUFFLES: u32 = 48_000;
        for _ in 0..SHUFFLES {
            let mut items = [0u8, 1, 2, 3];
            shuffle(&mut items, &mut random);
            *seen.entry(items).or_insert(0u32) += 1;
        }
        let fair = f64::from(SHUFFLES) / 24.0;
        let statistic: f64 = seen.values().map(|&count| (f64::from(count) - fair).powi(2) / fair).sum();
        assert!(seen.len() == 24, "chi-square {statistic}");
        assert!(statistic < 49.7, "chi-square {statistic}");
    }

    #[test]
    fn the_length_follows_the_time() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let mut sizer = SegmentSizer::default();
        let mut lens = Vec::new();
        for time in
            [minutes(20), minutes(14), minutes(1), minutes(15), minutes(60), minutes(61), minutes(90), minutes(99)]
        {
            sizer.lasted(time);
            lens.push(sizer.next_len(u64::MAX));
        }
        assert_eq!(lens, [10_000, 20_000, 40_000, 40_000, 40_000, 20_000, 10_000, 10_000]);
        (0..20).for_each(|_| sizer.lasted(Duration::ZERO));
        assert_eq!(sizer.next_len(u64::MAX), SEGMENT_LEN_MAX);
        assert_eq!(sizer.next_len(17), 17);
    }

    /// The whole life of a code space that starts with two characters, up to its third.
    #[test]
    fn a_used_up_length_is_followed_by_the_next() {
        let space = space();
        let mut issuer = Issuer::new(length(2), []);
        let mut codes = HashSet::new();
        let mut alarms = Vec::new();
        while issuer.length() == length(2) {
            let run = issuer.issue(100).unwrap();
            assert_eq!(run.length, length(2));
            for code in Segment::prepare(&space, run, [9; 16]).into_codes() {
                assert!(codes.insert(code), "{code:?} was issued twice");
            }
            if issuer.length() == length(2) {
                assert_eq!(issuer.alarm(), issuer.mark(length(2)).0 * 10 >= 3_844 * 9);
                alarms.push(issuer.alarm());
            }
        }
        assert_eq!(codes.len(), 3_844 - 4);
        assert!(alarms.is_sorted());
        assert!(alarms.contains(&true));
        assert!(alarms.contains(&false));

        assert_eq!(issuer.issue(100), Some(run(3, 0, 100)));
        assert!(!issuer.alarm());
        assert_eq!((issuer.used_percent(), issuer.remaining()), (0, 62u64.pow(3) - 100));
        assert_eq!(issuer.state(), [(length(2), CounterValue(3_844)), (length(3), CounterValue(100))]);
        assert_eq!(Issuer::new(length(2), issuer.state()), issuer);
    }

    #[test]
    fn the_alarm_comes_at_ninety_percent() {
        let mut issuer = Issuer::new(length(2), [(length(2), CounterValue(3_459))]);
        assert_eq!((issuer.used_percent(), issuer.alarm()), (89, false));
        issuer.issue(1);
        assert_eq!((issuer.used_percent(), issuer.alarm(), issuer.remaining()), (90, true, 384));
    }

    #[test]
    fn a_regression_is_refused_and_mended() {
        let mut issuer = Issuer::new(length(7), [(length(7), CounterValue(50_000))]);
        assert_eq!(issuer.offer(run(7, 49_999, 10)), Offer::Regressed { raise_to: CounterValue(50_000) });
        assert_eq!(issuer.mark(length(7)), CounterValue(50_000), "a refused offer changes nothing");
        assert_eq!(issuer.offer(run(7, 50_000, 10)), Offer::Accepted(run(7, 50_000, 10)));
        // Another node took the values between.
        assert_eq!(issuer.offer(run(7, 80_000, 10)), Offer::Accepted(run(7, 80_000, 10)));
        assert_eq!(issuer.offer(run(7, 50_010, 10)), Offer::Regressed { raise_to: CounterValue(80_010) });
        assert_eq!(issuer.issue(5), Some(run(7, 80_010, 5)));
    }

    #[test]
    fn an_offer_beyond_the_end_changes_the_length() {
        let mut issuer = Issuer::new(length(2), []);
        assert_eq!(issuer.offer(run(2, 3_840, 100)), Offer::Accepted(run(2, 3_840, 4)));
        assert_eq!(issuer.offer(run(2, 3_940, 100)), Offer::UsedUp { next: Some(length(3)) });
        assert_eq!(issuer.offer(run(3, u64::MAX, u64::MAX)), Offer::UsedUp { next: Some(length(4)) });
        assert_eq!(issuer.length(), length(4));
    }

    #[test]
    fn the_end_of_all_codes_is_an_answer() {
        let mut issuer = Issuer::new(CodeLength::MAX, [(CodeLength::MAX, CounterValue(u64::MAX))]);
        assert_eq!((issuer.remaining(), issuer.used_percent(), issuer.alarm()), (0, 100, true));
        assert_eq!(issuer.issue(1), None);
        assert_eq!(issuer.offer(run(10, 5, 1)), Offer::Regressed { raise_to: CounterValue(CodeLength::MAX.codes()) });
        assert_eq!(issuer.offer(run(10, u64::MAX, 1)), Offer::UsedUp { next: None });
    }

    #[test]
    fn marks_of_any_order_are_taken_at_their_highest() {
        let marks = [(length(8), CounterValue(5)), (length(7), CounterValue(9)), (length(8), CounterValue(3))];
        let issuer = Issuer::new(length(7), marks);
        assert_eq!((issuer.mark(length(7)), issuer.mark(length(8))), (CounterValue(9), CounterValue(5)));
        let longer = Issuer::new(length(8), issuer.state());
        assert_eq!(longer.length(), length(8));
        assert_eq!(longer.mark(length(8)), CounterValue(5), "a code length that was changed goes on above its mark");
    }

    #[test]
    fn reserved_codes_are_recognised_in_generated_form() {
        let digits: Vec<u8> = b"METRICS".iter().map(|&byte| byte - b'A' + 10).collect();
        let code = GeneratedCode::from_digits(&digits).to_code();
        assert_eq!(code, Code::parse(b"METRICS").unwrap());
        assert!(code.is_reserved());
    }
}
