//! The visits of one subject: in total, by day, by hour and by referring host.

use std::collections::BTreeMap;
use std::ops::Range;

use super::tally::{TallyRow, VisitCounts, push_number, take_number};

/// Hours that are kept separately, counted back from the newest: a month. Days are kept forever.
const HOURS_KEPT: u32 = 31 * 24;

/// The visits of a subject over time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VisitHistory {
    /// All visits, with their referring hosts.
    pub all: TallyRow,
    /// Visits by day, counted from 1970 UTC.
    pub days: BTreeMap<u32, VisitCounts>,
    /// Visits by hour, counted from 1970 UTC, for the last month.
    pub hours: BTreeMap<u32, VisitCounts>,
}

impl VisitHistory {
    /// Adds the visits of an hour, counted from 1970 UTC.
    pub fn add(&mut self, hour: u32, row: &TallyRow) {
        if row.counts == VisitCounts::default() && row.hosts.is_empty() {
            return;
        }
        self.all.add(row);
        self.days.entry(hour / 24).or_default().add(row.counts);
        self.hours.entry(hour).or_default().add(row.counts);
    }

    /// Adds the visits of another history.
    pub fn merge(&mut self, other: &VisitHistory) {
        self.all.add(&other.all);
        other.days.iter().for_each(|(day, counts)| self.days.entry(*day).or_default().add(*counts));
        other.hours.iter().for_each(|(hour, counts)| self.hours.entry(*hour).or_default().add(*counts));
    }

    /// Returns the visits in a range of hours, counted from 1970 UTC. Of days without separate hours, the whole day
    /// counts.
    pub fn within(&self, hours: Range<u32>) -> VisitCounts {
        let oldest = self.hours.first_key_value().map_or(u32::MAX, |(hour, _)| *hour);
        let mut counts = VisitCounts::default();
        self.hours.range(hours.clone()).for_each(|(_, of_hour)| counts.add(*of_hour));
        // The oldest day may lack some of its hours, and only its total is complete.
        let days = hours.start / 24..hours.end.div_ceil(24).min(oldest.div_ceil(24));
        let is_kept = |day: u32| oldest < (day + 1) * 24;
        for (day, of_day) in self.days.range(days.start..days.end.max(days.start)) {
            if is_kept(*day) {
                let kept = self.hours.range(day * 24..(day + 1) * 24);
                let kept = kept.fold(VisitCounts::default(), |mut sum, (_, of_hour)| {
                    sum.add(*of_hour);
                    sum
                });
                counts.add(VisitCounts { total: of_day.total - kept.total, bots: of_day.bots - kept.bots });
            } else {
                counts.add(*of_day);
            }
        }
        counts
    }

    /// Appends the stored form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.all.encode(out);
        let newest = self.hours.last_key_value().map_or(0, |(hour, _)| *hour);
        let hours = self.hours.range(newest.saturating_sub(HOURS_KEPT - 1)..);
        push_times(self.days.iter(), out);
        push_times(hours, out);
    }

    /// Decodes the stored form; `None` if it is malformed.
    pub fn decode(mut bytes: &[u8]) -> Option<VisitHistory> {
        let all = TallyRow::decode(&mut bytes)?;
        let (days, hours) = (take_times(&mut bytes)?, take_times(&mut bytes)?);
        bytes.is_empty().then_some(VisitHistory { all, days, hours })
    }
}

fn push_times<'t>(times: impl Iterator<Item = (&'t u32, &'t VisitCounts)>, out: &mut Vec<u8>) {
    let times: Vec<_> = times.collect();
    push_number(times.len() as u64, out);
    for (time, counts) in times {
        push_number(u64::from(*time), out);
        push_number(counts.total, out);
        push_number(counts.bots, out);
    }
}

fn take_times(bytes: &mut &[u8]) -> Option<BTreeMap<u32, VisitCounts>> {
    let mut times = BTreeMap::new();
    for _ in 0..take_number(bytes)? {
        let time = u32::try_from(take_number(bytes)?).ok()?;
        times.insert(time, VisitCounts { total: take_number(bytes)?, bots: take_number(bytes)? });
    }
    Some(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn old_hours_become_days() {
        let mut history = VisitHistory::default();
        let row = TallyRow::of_visit(true, b"a.example");
        for hour in 480_000..482_000 {
            history.add(hour, &row);
        }
        let mut bytes = Vec::new();
        history.encode(&mut bytes);
        let read = VisitHistory::decode(&bytes).unwrap();
        assert_eq!((read.hours.len(), read.hours.first_key_value().map(|(hour, _)| *hour)), (744, Some(481_256)));
        assert_eq!((&read.days, read.all.counts), (&history.days, VisitCounts { total: 2_000, bots: 2_000 }));
        assert_eq!(read.days.values().map(|counts| counts.total).sum::<u64>(), 2_000);
        let mut twice = read.clone();
        twice.merge(&read);
        assert_eq!(twice.all.hosts, [(b"a.example"[..].into(), 4_000)]);
    }

    proptest! {
        #[test]
        fn decoding_is_total(bytes in any::<Vec<u8>>()) {
            let _ = VisitHistory::decode(&bytes);
        }
    }
}
