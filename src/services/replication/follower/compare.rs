//! Compares everything of some partitions with Redis, in both directions: after a place in a stream was lost, and when a
//! node is new.
//!
//! First down: every code that Redis has, and that differs here, is taken. Then up: every code that the store has and
//! that Redis lacks, or has an older state of, is offered. It goes on in pieces beside the streams, and takes as long as
//! it takes; that it is needed is on disk, so a crash begins it anew. It is over for a partition when every entry that
//! it has made in the stream has come by: should Redis lose one before, everything is compared again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::{ANSWER_TIME, Follower, Stopped};
use crate::bridge::Order;
use crate::services::replication::redis::{Change, Scan, Trouble};
use carom_model::replication::follow::{Entry, Position};
use carom_model::replication::rules::Verdict;
use carom_model::replication::{Partition, State};
use carom_telemetry::alarms::Alarm;

/// Codes of one piece.
const PIECE: usize = 512;

/// How often its progress is logged.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// A comparison under way.
pub(super) struct Compare {
    /// What it is about. Partitions that are added later are compared after it.
    which: BTreeSet<Partition>,
    phase: Phase,
    compared: u64,
    logged: Instant,
}

enum Phase {
    Down(Scan),
    /// Behind this key of the store.
    Up(Vec<u8>),
}

impl Compare {
    /// A partition whose place was lost once more must be compared from the beginning.
    pub(super) fn again(&mut self, partition: Partition) {
        self.which.remove(&partition);
    }
}

impl Follower {
    /// Goes on with what must be compared. Returns whether there is more.
    pub(super) fn compare(&mut self) -> Result<bool, Stopped> {
        self.count_what_is_left();
        let Some(compare) = self.compare.take() else { return self.begin_to_compare() };
        let Compare { which, phase, mut compared, mut logged } = compare;
        let next = match phase {
            Phase::Down(scan) => self.down(&which, scan, &mut compared),
            Phase::Up(behind) => self.up(&which, &behind, &mut compared),
        };
        // After trouble the walk begins anew: a cluster may have moved what it had not seen.
        let Some(phase) = next? else {
            self.end_comparing(&which)?;
            return Ok(false);
        };
        if logged.elapsed() >= LOG_EVERY {
            let way = if matches!(phase, Phase::Down(_)) { "from Redis" } else { "to Redis" };
            tracing::info!(codes = compared, way, "comparing links");
            logged = Instant::now();
        }
        self.compare = Some(Compare { which, phase, compared, logged });
        Ok(true)
    }

    fn begin_to_compare(&mut self) -> Result<bool, Stopped> {
        // What only waits for its entries to come by is as good as done.
        let which: BTreeSet<Partition> =
            self.must_compare.iter().copied().filter(|of| !self.ending.contains_key(of)).collect();
        if which.is_empty() {
            return Ok(false);
        }
        // What an earlier one has made, which did not come to its end, is of no interest.
        self.expected.retain(|partition, _| self.ending.contains_key(partition));
        let scan = self.redis.scan(ANSWER_TIME)?;
        tracing::info!(partitions = which.len(), "comparing links with Redis");
        self.compare = Some(Compare { which, phase: Phase::Down(scan), compared: 0, logged: Instant::now() });
        Ok(true)
    }

    /// Takes some of what Redis has and this node has not.
    fn down(
        &mut self,
        which: &BTreeSet<Partition>,
        mut scan: Scan,
        compared: &mut u64,
    ) -> Result<Option<Phase>, Stopped> {
        let Some(mut codes) = self.redis.scan_on(&mut scan, PIECE, ANSWER_TIME)? else {
            return Ok(Some(Phase::Up(Vec::new())));
        };
        codes.retain(|code| which.contains(&Partition::of(code)));
        *compared += codes.len() as u64;
        let (known, mut wanted): (Vec<Code>, Vec<Code>) =
            codes.into_iter().partition(|code| self.shared.links.get(code).is_ok_and(|value| value.is_some()));
        // Of what is here already the version is enough, which is much shorter.
        for (code, head) in known.iter().zip(self.redis.heads(&known, ANSWER_TIME)) {
            let Some(head) = self.leave_out(head)? else { continue };
            if self.stored(code).is_none_or(|state| differs(code, &state, &head)) {
                wanted.push(*code);
            }
        }
        let mut found = Vec::new();
        for (code, state) in wanted.iter().zip(self.redis.states(&wanted, ANSWER_TIME)) {
            found.extend(self.leave_out(state)?.flatten().map(|state| (*code, state)));
        }
        if !found.is_empty() {
            self.tell(Order::Found(found))?;
        }
        Ok(Some(Phase::Down(scan)))
    }

    /// Offers some of what this node has and Redis has not.
    fn up(&mut self, which: &BTreeSet<Partition>, behind: &[u8], compared: &mut u64) -> Result<Option<Phase>, Stopped> {
        let page = match self.shared.links.page(behind, PIECE) {
            Ok(page) => page,
            Err(error) => {
                let text = format!("{error}; links cannot be compared with Redis while the store cannot be read");
                self.shared.stats.alarms.raise(Alarm::CompareFailed, text.clone());
                return Err(Stopped::Trouble(Trouble::Refused(text)));
            }
        };
        let Some((last, _)) = page.last() else { return Ok(None) };
        let last = last.clone();
        let states: Vec<(Code, State)> = page
            .iter()
            .filter_map(|(key, value)| Some((Code::from_key(key).ok()?, value)))
            .filter(|(code, _)| which.contains(&Partition::of(code)))
            .filter_map(|(code, value)| Some((code, State::from_value(code, value)?)))
            .collect();
        *compared += states.len() as u64;
        let codes: Vec<Code> = states.iter().map(|(code, _)| *code).collect();
        let mut offers = Vec::new();
        for ((code, state), head) in states.into_iter().zip(self.redis.heads(&codes, ANSWER_TIME)) {
            let Some(head) = self.leave_out(head)? else { continue };
            if head.is_empty() || differs(&code, &state, &head) {
                offers.push((code, Change::Offer(state)));
            }
        }
        self.offer(&offers)?;
        Ok(Some(Phase::Up(last)))
    }

    /// What Redis refuses of one code must not keep the others from being compared; the alarm names it.
    fn leave_out<T>(&self, answer: Result<T, Trouble>) -> Result<Option<T>, Stopped> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(trouble @ Trouble::Refused(_)) => {
                super::note_trouble(&self.shared.stats, &trouble);
                Ok(None)
            }
            Err(trouble) => Err(trouble.into()),
        }
    }

    fn offer(&mut self, offers: &[(Code, Change)]) -> Result<(), Stopped> {
        let mut held = Vec::new();
        for ((code, _), answer) in offers.iter().zip(self.redis.change(offers, ANSWER_TIME)) {
            let Some(changed) = self.leave_out(answer)? else { continue };
            match (changed.verdict, changed.echo) {
                (Verdict::Accepted(_), Some(echo)) => {
                    self.expected.entry(echo.partition).or_default().insert(echo.id);
                }
                (Verdict::Held(state), _) => held.push((*code, state)),
                _ => {}
            }
        }
        if held.is_empty() { Ok(()) } else { self.tell(Order::Found(held)) }
    }

    fn end_comparing(&mut self, which: &BTreeSet<Partition>) -> Result<(), Stopped> {
        tracing::info!("all links have been compared with Redis");
        for partition in which {
            if self.expected.contains_key(partition) {
                // It is over when all that it has made has come by.
                self.ending.insert(*partition, Instant::now());
            } else {
                self.compared(*partition)?;
            }
        }
        Ok(())
    }

    fn compared(&mut self, partition: Partition) -> Result<(), Stopped> {
        self.must_compare.retain(|of| *of != partition);
        self.expected.remove(&partition);
        self.ending.remove(&partition);
        self.tell(Order::Compared(partition))
    }

    /// Sees whether what a comparison has made comes by.
    pub(super) fn expect(&mut self, partition: Partition, entries: &[Entry], to: Position) -> Result<(), Stopped> {
        let Some(expected) = self.expected.get_mut(&partition) else { return Ok(()) };
        entries.iter().for_each(|entry| _ = expected.remove(&entry.id));
        let is_lost = expected.first().is_some_and(|id| *id <= to.id);
        if !is_lost && !expected.is_empty() {
            return Ok(());
        }
        self.expected.remove(&partition);
        match (self.ending.remove(&partition).is_some(), is_lost) {
            (true, false) => self.compared(partition),
            // Redis has lost some of it: everything is compared from the beginning.
            (_, true) => {
                self.compare.iter_mut().for_each(|compare| compare.again(partition));
                Ok(())
            }
            // Of a comparison under way there may be more; its end finds none missing.
            (false, false) => Ok(()),
        }
    }
}

/// Whether Redis has another state. After a loss, two changes may have given one link the same version; so its record has
/// to be the same as well, of which the head has the checksum.
fn differs(code: &Code, state: &State, head: &[u8]) -> bool {
    !state.to_text(code).starts_with(head)
}
