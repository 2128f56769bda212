//! Visit counts and their stored form.
//!
//! The unit is a *row*: the visits of one link in one hour, with the referring hosts. Rows of a link add up in any
//! order, so a write needs no read.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use carom_shards::code::CODE_KEY_LEN_MAX;
use carom_shards::{Code, DomainId, GeneratedCode};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use carom_limits::{ALL_HOSTS_HELD, LINK_HOSTS_HELD};

/// Referring hosts that are stored for a link; the least frequent are dropped first.
pub const REFERRERS_STORED_MAX: usize = 100;

/// Memory for a code that could have been generated, in bytes: an entry of a hash table while it grows.
const SHORT_BYTES: usize = 64;

/// Memory for any other subject, or one with referrers, before its first host, in bytes.
const HELD_BYTES: usize = 320;

/// Memory for a host in addition to its name, in bytes.
const HOST_BYTES: usize = 80;

/// A number of visits, and of bots among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VisitCounts {
    /// All visits.
    pub total: u64,
    /// Visits by bots.
    pub bots: u64,
}

impl VisitCounts {
    /// Adds other counts.
    pub fn add(&mut self, other: VisitCounts) {
        self.total += other.total;
        self.bots += other.bots;
    }

    /// Decodes counts from the front of a stored row or history; `None` if it is malformed.
    pub fn decode(bytes: &mut &[u8]) -> Option<VisitCounts> {
        Some(VisitCounts { total: take_number(bytes)?, bots: take_number(bytes)? })
    }
}

/// The subject of a count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// All links together.
    All,
    /// Requests for codes that do not exist.
    Orphans,
    /// The link with a code.
    Link(Code),
}

impl Subject {
    /// Returns the stored name of the subject. No code begins with such a byte.
    pub fn name(&self) -> Vec<u8> {
        match self {
            Subject::All => vec![1],
            Subject::Orphans => vec![2],
            Subject::Link(code) => code.key(&mut [0; CODE_KEY_LEN_MAX]).to_vec(),
        }
    }

    /// Parses a stored name.
    pub fn of_name(name: &[u8]) -> Option<Subject> {
        match name {
            [1] => Some(Subject::All),
            [2] => Some(Subject::Orphans),
            name => Code::from_key(name).ok().map(Subject::Link),
        }
    }
}

/// Returns the name under which the visits of all links on one day are stored, for its referring hosts. The day is
/// counted from 1970 UTC. Names sort by day.
pub fn name_of_day(day: u32) -> Vec<u8> {
    [&[4][..], &day.to_be_bytes()].concat()
}

/// A group of links whose visits are also counted together.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum VisitGroup {
    /// The links of an app.
    App(Box<str>),
    /// The links of a domain other than the default one.
    Domain(DomainId),
}

impl VisitGroup {
    /// Returns the name under which their visits are stored, by hour. Neither a code nor any other name begins with
    /// such a byte.
    pub fn name(&self) -> Vec<u8> {
        match self {
            VisitGroup::App(app) => [&[5], app.as_bytes()].concat(),
            VisitGroup::Domain(domain) => [&[6][..], &domain.to_bytes()].concat(),
        }
    }
}

/// The visits of a subject in some period.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TallyRow {
    /// The number of visits.
    pub counts: VisitCounts,
    /// Referring hosts, each with its number of visits.
    pub hosts: Vec<(Box<[u8]>, u64)>,
}

impl From<VisitCounts> for TallyRow {
    fn from(counts: VisitCounts) -> TallyRow {
        TallyRow { counts, hosts: Vec::new() }
    }
}

impl TallyRow {
    /// Builds the row of one visit.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_visit(is_bot: bool, host: &[u8]) -> TallyRow {
        let hosts = if host.is_empty() { Vec::new() } else { vec![(host.into(), 1)] };
        TallyRow { counts: VisitCounts { total: 1, bots: u64::from(is_bot) }, hosts }
    }

    /// Adds another row.
    pub fn add(&mut self, other: &TallyRow) {
        self.counts.add(other.counts);
        other.hosts.iter().for_each(|(host, count)| self.add_host(host, *count));
        self.bound(ALL_HOSTS_HELD);
    }

    fn add_host(&mut self, host: &[u8], count: u64) {
        match self.hosts.iter_mut().find(|(known, _)| **known == *host) {
            Some((_, before)) => *before += count,
            None => self.hosts.push((host.into(), count)),
        }
    }

    /// Drops the rarest hosts if there are more than `most`.
    fn bound(&mut self, most: usize) {
        if self.hosts.len() > most {
            self.sort_hosts();
            self.hosts.truncate(most - most / 4);
        }
    }

    /// Sorts the hosts, the most frequent first.
    pub fn sort_hosts(&mut self) {
        self.hosts.sort_unstable_by(|(a, many), (b, more)| more.cmp(many).then_with(|| a.cmp(b)));
    }

    /// Appends the stored form to `out`: numbers of seven bits a byte, hosts with their lengths.
    pub fn encode(&self, out: &mut Vec<u8>) {
        push_number(self.counts.total, out);
        push_number(self.counts.bots, out);
        let mut hosts: Vec<_> = self.hosts.iter().collect();
        hosts.sort_unstable_by(|(a, many), (b, more)| more.cmp(many).then_with(|| a.cmp(b)));
        hosts.truncate(REFERRERS_STORED_MAX);
        push_number(hosts.len() as u64, out);
        for (host, count) in hosts {
            push_number(host.len() as u64, out);
            out.extend_from_slice(host);
            push_number(*count, out);
        }
    }

    /// Decodes a row from the front of `bytes`; `None` if it is malformed.
    pub fn decode(bytes: &mut &[u8]) -> Option<TallyRow> {
        let counts = VisitCounts::decode(bytes)?;
        let hosts = take_number(bytes)?;
        let mut row = TallyRow { counts, hosts: Vec::new() };
        for _ in 0..hosts {
            let host = take_bytes(bytes)?.into();
            row.hosts.push((host, take_number(bytes)?));
        }
        Some(row)
    }
}

/// Appends a number, seven bits a byte, the lowest first.
pub fn push_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number from the front; `None` if it is malformed.
pub fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Takes length-prefixed bytes from the front; `None` if they are incomplete.
pub fn take_bytes<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = usize::try_from(take_number(bytes)?).ok()?;
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

/// The visits of all subjects in one hour.
///
/// Nearly all visits are to short codes and have no referrer: those take sixteen bytes for each link.
#[derive(Debug, Default)]
pub struct Tally {
    short: HashMap<u64, (u32, u32), Numbers>,
    /// The counts of all other codes, and of visits with referrers.
    held: HashMap<Subject, SubjectTally>,
    /// All links together, which every visit adds to.
    all: SubjectTally,
    orphans: SubjectTally,
    /// Memory for `held` and `all`, in bytes.
    held_bytes: usize,
}

/// The visits of a subject, with its hosts in a hash table.
#[derive(Clone, Debug, Default)]
struct SubjectTally {
    counts: VisitCounts,
    hosts: HashMap<Box<[u8]>, u64, Numbers>,
    /// Memory for the hosts, in bytes.
    bytes: usize,
}

impl SubjectTally {
    fn add_host(&mut self, host: &[u8], count: u64, most: usize) {
        match self.hosts.get_mut(host) {
            Some(before) => *before += count,
            None => {
                self.hosts.insert(host.into(), count);
                self.bytes += bytes_of(host);
                self.forget_rarest(most);
            }
        }
    }

    /// Drops the rarest hosts if there are more than `most`.
    fn forget_rarest(&mut self, most: usize) {
        if self.hosts.len() <= most {
            return;
        }
        let mut counts: Vec<u64> = self.hosts.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let mut room = most - most / 4;
        let least = counts[room - 1];
        let above = counts.iter().take_while(|count| **count > least).count();
        // Some of the hosts at the threshold stay.
        room -= above;
        self.hosts.retain(|_, count| match (*count).cmp(&least) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal if room > 0 => {
                room -= 1;
                true
            }
            std::cmp::Ordering::Equal => false,
        });
        self.bytes = self.hosts.keys().map(|host| bytes_of(host)).sum();
    }

    fn add(&mut self, counts: VisitCounts, hosts: impl Iterator<Item = (impl AsRef<[u8]>, u64)>, most: usize) {
        self.counts.add(counts);
        hosts.for_each(|(host, count)| self.add_host(host.as_ref(), count, most));
    }

    fn row(&self) -> TallyRow {
        TallyRow { counts: self.counts, hosts: self.hosts.iter().map(|(host, count)| (host.clone(), *count)).collect() }
    }
}

fn bytes_of(host: &[u8]) -> usize {
    HOST_BYTES + host.len()
}

/// Returns the most hosts that are held for a subject.
fn hosts_held(subject: &Subject) -> usize {
    if *subject == Subject::All { ALL_HOSTS_HELD } else { LINK_HOSTS_HELD }
}

/// A hasher for the numbers of codes: several times as fast as the library's, and seeded, so that clients cannot
/// predict it.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    seed: u64,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers { seed: RandomState::new().hash_one(0) }
    }
}

impl BuildHasher for Numbers {
    type Hasher = NumberHasher;

    fn build_hasher(&self) -> NumberHasher {
        NumberHasher { hash: self.seed }
    }
}

/// The hash of a number so far.
#[derive(Debug)]
struct NumberHasher {
    hash: u64,
}

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.hash = xxh3_64_with_seed(bytes, self.hash);
    }

    fn write_u64(&mut self, number: u64) {
        self.write(&number.to_le_bytes());
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

impl Tally {
    /// Counts a visit.
    pub fn add_visit(&mut self, subject: Subject, is_bot: bool, host: &[u8]) {
        match short(&subject) {
            Some(bits) if host.is_empty() => {
                self.add_short(bits, 1, u32::from(is_bot));
            }
            _ => {
                let counts = VisitCounts { total: 1, bots: u64::from(is_bot) };
                let hosts = (!host.is_empty()).then_some((host, 1));
                self.add_held(subject, counts, hosts.into_iter());
            }
        }
    }

    fn add_short(&mut self, bits: u64, total: u32, bots: u32) {
        let before = self.short.entry(bits).or_default();
        *before = (before.0.saturating_add(total), before.1.saturating_add(bots));
    }

    /// Adds to a subject that is not in the compact table.
    fn add_held(
        &mut self,
        subject: Subject,
        counts: VisitCounts,
        hosts: impl Iterator<Item = (impl AsRef<[u8]>, u64)>,
    ) {
        let held = match subject {
            Subject::All => &mut self.all,
            Subject::Orphans => &mut self.orphans,
            Subject::Link(_) => self.held.entry(subject).or_insert_with(|| {
                self.held_bytes += HELD_BYTES;
                SubjectTally::default()
            }),
        };
        let before = held.bytes;
        held.add(counts, hosts, hosts_held(&subject));
        self.held_bytes = self.held_bytes + held.bytes - before;
    }

    /// Iterates over the subjects outside the compact table that have visits.
    fn all_held(&self) -> impl Iterator<Item = (Subject, &SubjectTally)> {
        let others = [(Subject::All, &self.all), (Subject::Orphans, &self.orphans)];
        let held = self.held.iter().map(|(subject, held)| (*subject, held));
        held.chain(others.into_iter().filter(|(_, held)| held.counts.total > 0))
    }

    /// Adds the counts of another tally.
    pub fn add(&mut self, other: &Tally) {
        for (bits, (total, bots)) in &other.short {
            self.add_short(*bits, *total, *bots);
        }
        for (subject, held) in other.all_held() {
            self.add_held(subject, held.counts, held.hosts.iter().map(|(host, count)| (host, *count)));
        }
    }

    /// Returns the visits of a subject.
    pub fn row(&self, subject: &Subject) -> TallyRow {
        let mut row = match subject {
            Subject::All => self.all.row(),
            Subject::Orphans => self.orphans.row(),
            Subject::Link(_) => self.held.get(subject).map(SubjectTally::row).unwrap_or_default(),
        };
        if let Some((total, bots)) = short(subject).and_then(|bits| self.short.get(&bits)) {
            row.counts.add(VisitCounts { total: u64::from(*total), bots: u64::from(*bots) });
        }
        row
    }

    /// Returns the number of visits of a subject.
    pub fn counts(&self, subject: &Subject) -> VisitCounts {
        let mut counts = match subject {
            Subject::All => self.all.counts,
            Subject::Orphans => self.orphans.counts,
            Subject::Link(_) => self.held.get(subject).map(|held| held.counts).unwrap_or_default(),
        };
        if let Some((total, bots)) = short(subject).and_then(|bits| self.short.get(&bits)) {
            counts.add(VisitCounts { total: u64::from(*total), bots: u64::from(*bots) });
        }
        counts
    }

    /// Adds a row to a subject.
    pub fn add_row(&mut self, subject: Subject, row: &TallyRow) {
        let counted = row.counts;
        match (short(&subject), u32::try_from(counted.total)) {
            (Some(bits), Ok(total)) if row.hosts.is_empty() => self.add_short(bits, total, counted.bots as u32),
            _ => self.add_held(subject, counted, row.hosts.iter().map(|(host, count)| (host, *count))),
        }
    }

    /// Removes a subject.
    pub fn remove(&mut self, subject: &Subject) {
        let gone = match subject {
            Subject::All => std::mem::take(&mut self.all).bytes,
            Subject::Orphans => std::mem::take(&mut self.orphans).bytes,
            Subject::Link(_) => self.held.remove(subject).map_or(0, |held| HELD_BYTES + held.bytes),
        };
        self.held_bytes -= gone;
        short(subject).map(|bits| self.short.remove(&bits));
    }

    /// Iterates over all subjects, each once.
    pub fn subjects(&self) -> impl Iterator<Item = Subject> {
        let of_short = self.short.keys().filter_map(|bits| of_short(*bits));
        of_short.chain(self.only_held().map(|(subject, _)| subject))
    }

    /// Iterates over the subjects that are only outside the compact table.
    fn only_held(&self) -> impl Iterator<Item = (Subject, &SubjectTally)> {
        self.all_held().filter(|(subject, _)| short(subject).is_none_or(|bits| !self.short.contains_key(&bits)))
    }

    /// Passes each subject with its row to `take`, mostly without look-ups.
    pub fn each(&self, mut take: impl FnMut(Subject, &TallyRow)) {
        for (bits, (total, bots)) in &self.short {
            let Some(subject) = of_short(*bits) else { continue };
            let counts = VisitCounts { total: u64::from(*total), bots: u64::from(*bots) };
            match self.held.get(&subject) {
                Some(_) => take(subject, &self.row(&subject)),
                None => take(subject, &TallyRow::from(counts)),
            }
        }
        self.only_held().for_each(|(subject, held)| take(subject, &held.row()));
    }

    /// Passes links with their visits to `take`; a link may come more than once.
    pub fn each_link(&self, mut take: impl FnMut(Code, VisitCounts)) {
        for (bits, (total, bots)) in &self.short {
            if let Some(Subject::Link(code)) = of_short(*bits) {
                take(code, VisitCounts { total: u64::from(*total), bots: u64::from(*bots) });
            }
        }
        for (subject, held) in &self.held {
            if let Subject::Link(code) = subject {
                take(*code, held.counts);
            }
        }
    }

    /// Returns the approximate memory of the tally, in bytes. Costs nothing: a running total.
    pub fn weight(&self) -> usize {
        SHORT_BYTES * self.short.len() + self.held_bytes
    }

    /// True if no visit was counted.
    pub fn is_empty(&self) -> bool {
        self.short.is_empty() && self.all_held().next().is_none()
    }
}

/// Returns the code of a subject as a number, if it could have been generated, as nearly all are.
fn short(subject: &Subject) -> Option<u64> {
    let Subject::Link(code) = subject else { return None };
    GeneratedCode::from_code(code).map(GeneratedCode::to_bits)
}

fn of_short(bits: u64) -> Option<Subject> {
    GeneratedCode::from_bits(bits).map(|code| Subject::Link(code.to_code()))
}

#[cfg(test)]
mod tests;
