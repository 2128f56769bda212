//! The rules of two sites, each with nodes and a Redis of its own, that exchange states through a relay.
//!
//! Each Redis decides for its own site ([`super::rules`]). The relay of a site offers it each state of the other site, by
//! the same rule. Between two states that neither Redis prefers, [`settle`] decides, and decides alike at both sites. So
//! both sites end with one state of each code, in whatever order their states cross.
//!
//! The counter values of generated codes are dealt to the sites in blocks ([`SiteShare`]), so that creates never wait for the
//! other site.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carom_shards::Code;

use super::follow::StreamPosition;
use super::rules::Verdict;
use super::{Partition, State};

/// Counter values of one block. Longer than any lease, so that each lease is within one block.
pub const BLOCK: u64 = 8 << 20;

/// Number of looks that a node remembers.
const LOOKS_MAX: usize = 64;

/// Number of sites.
pub const SITES: u64 = 2;

/// The counter values of one site: every second block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SiteShare {
    /// The number of the site, 0 or 1: the order of the names of both sites.
    pub site: u64,
}

impl SiteShare {
    /// Returns the share of the site `name`, beside the site `other`. Both sites must have the same names for each other.
    pub fn of(name: &str, other: &str) -> SiteShare {
        SiteShare { site: u64::from(name > other) }
    }

    /// True if a counter value is in a block of this site.
    pub fn has(self, value: u64) -> bool {
        value / BLOCK % SITES == self.site
    }

    /// Returns the first value from `next` on at which `want` values are in one block of this site. The script of leases
    /// does the same.
    pub(super) fn first_run(self, next: u64, want: u64) -> u64 {
        assert!((1..=BLOCK).contains(&want), "a lease would reach into a block of the other site");
        if self.has(next) && next / BLOCK == (next + want - 1) / BLOCK {
            return next;
        }
        let following = next / BLOCK + 1;
        let own = if following % SITES == self.site { following } else { following + 1 };
        own * BLOCK
    }
}

/// The consequence of the verdict of this site's Redis on a state of the other site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Settlement {
    /// Nothing: this site has the state, or a later one of which the other site hears by its own relay.
    Done,
    /// The state replaces this one, which this site has of the code. A link that loses its code is reported here.
    Replace(State),
    /// The other site has to hear of this deletion once more: it had another link of the code when it first did.
    Return(State),
    /// A wait, since this version cannot decode the state that this site has.
    Wait,
}

/// Decides what follows from the verdict on an offered state of the other site.
///
/// If revisions and edits are equal, Redis keeps its own state by order of arrival alone. Then the first of these that
/// differs decides:
///
/// 1. a link stays, and not the tombstone of another link;
/// 2. the link that was created earlier stays, and of two tombstones the one that was deleted earlier;
/// 3. the smaller claim stays;
/// 4. of two changes of one link, the one stays whose encoded state is greater: neither is older.
pub fn settle(code: &Code, offered: &State, verdict: &Verdict) -> Settlement {
    let held = match verdict {
        Verdict::Held(held) => held,
        Verdict::HeldUnread(_) => return Settlement::Wait,
        Verdict::Accepted(_) | Verdict::Same | Verdict::Absent => return Settlement::Done,
    };
    let (old, new) = (held.version(), offered.version());
    if old.claim == new.claim && held.is_link() != offered.is_link() {
        return Settlement::Return(held.clone());
    }
    let is_tie = old.rev == new.rev && (old.claim != new.claim || old.edit == new.edit);
    if is_tie && precedence(code, offered) > precedence(code, held) {
        Settlement::Replace(held.clone())
    } else {
        Settlement::Done
    }
}

/// Returns the rank of a state among states with an equal revision.
fn precedence(code: &Code, state: &State) -> (bool, Reverse<u64>, Reverse<u64>, Vec<u8>) {
    let instant_ms = match state {
        State::Link(link) => link.created_ms,
        State::Gone(gone) => gone.deleted_ms,
    };
    (state.is_link(), Reverse(instant_ms), Reverse(state.version().claim), state.to_text(code))
}

/// Replaces `over` by a state of the other site, unless the code has changed since. The script in Redis does the same.
pub fn replace(stored: Option<&State>, over: &State, state: &State) -> Verdict {
    match stored {
        Some(stored) if stored != over => Verdict::Held(stored.clone()),
        _ => Verdict::Accepted(state.clone()),
    }
}

/// True if the Redis of the other site may have expired or lost states before this site read them. Its stream no longer
/// has the position of the relay. `read_ms` is the result of [`missing_since`], by the clock of that Redis. If it is 0, the
/// relay has never read everything, and the nodes of this site are copies of nodes of the other one.
pub fn may_have_missed(read_ms: u64, now_ms: u64, retention_ms: u64) -> bool {
    read_ms > 0 && retention_ms > 0 && now_ms.saturating_sub(read_ms) > retention_ms / 2
}

/// Returns the time since which this site may have missed states: `read_ms`, the time of the last read, or `met_ms`, the
/// time of the first contact, if nothing was read yet. At the first contact, the other Redis and the copies had everything.
pub fn missing_since(read_ms: u64, met_ms: u64) -> u64 {
    if read_ms > 0 { read_ms } else { met_ms }
}

/// The time of a read so long ago that any gap since counts as long. Not 0, which would say that nothing can have been
/// missed.
pub const READ_LONG_AGO_MS: u64 = 1;

/// Returns the time of the last read that a relay notes at the end of a pass. A site that may lack states has not read
/// everything, however often its relay passes. If Redis loses the mark, the gap that follows counts as long and sets it
/// again.
pub fn read_of_pass(now_ms: u64, may_lack: bool) -> u64 {
    if may_lack { READ_LONG_AGO_MS } else { now_ms }
}

/// The time at which a relay last read everything of the other site, as a node remembers it in case that Redis loses it. In
/// milliseconds since 1970 UTC by the clock of the other Redis; 0 for never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LastRead {
    /// The time.
    pub at_ms: u64,
    /// The relay whose notes were last heard.
    relay: u64,
    /// The number of passes that this relay had ended.
    passes: u64,
}

impl LastRead {
    /// Takes the notes of a relay: the number of passes that it has ended, and the time of the last one. A later pass of the
    /// same relay has the later time, also if the clock was set back since the one before. Otherwise the greater time counts,
    /// since Redis may have lost some notes.
    pub fn hear(&mut self, relay: u64, passes: u64, at_ms: u64) {
        let is_later = relay > 0 && relay == self.relay && passes > self.passes;
        self.at_ms = if is_later { at_ms } else { self.at_ms.max(at_ms) };
        (self.relay, self.passes) = (relay, passes);
    }

    /// Takes the present time by the same clock. A time after it is from before the clock was set back: no gap would count as
    /// long until the clock is there again.
    pub fn hear_clock(&mut self, now_ms: u64) {
        self.at_ms = self.at_ms.min(now_ms);
    }
}

/// True if a site that reaches the other one for the first time must be filled with copies of the nodes there, because
/// states may have expired there before. `expiring_ms` is the time at which states began to expire, by the clock of
/// that Redis, and 0 if they have not. The nodes of this site have `seen` counter values if they are copies, or had
/// links before.
pub fn needs_copies(expiring_ms: u64, now_ms: u64, retention_ms: u64, seen: u64) -> bool {
    seen == 0 && may_have_missed(expiring_ms, now_ms, retention_ms)
}

/// The counts of passes of the relay that a node has read. By them, it knows up to when its site has the changes of the
/// other one, without a comparison of two clocks.
#[derive(Clone, Debug, Default)]
pub struct Hearing {
    /// Looks: the instant at which each began, the relay, and the number of passes that the relay had ended.
    looks: VecDeque<(Duration, u64, u64)>,
}

impl Hearing {
    /// Notes a look that began at `at` and found that a relay has ended that many passes. Returns the last instant of which
    /// it proves that every state of the other site's streams is here. A pass that was under way at an instant may have read
    /// some streams before it. The next pass of this relay began later.
    pub fn look(&mut self, at: Duration, relay: u64, passes: u64) -> Option<Duration> {
        let is_earlier = |(_, of, before): &&(Duration, u64, u64)| *of == relay && before.saturating_add(2) <= passes;
        let heard = self.looks.iter().rev().find(is_earlier).map(|(at, _, _)| *at);
        self.looks.push_back((at, relay, passes));
        if self.looks.len() > LOOKS_MAX {
            self.looks.pop_front();
        }
        heard
    }
}

/// The positions of a relay that are not stored yet. A failover may take back states that the Redis of its site had accepted
/// just before and, in a cluster, not the positions. So the relay stores a position some time after the states before it.
#[derive(Clone, Debug, Default)]
pub struct HeldPositions {
    /// Positions, and the instant by which Redis had decided on every state before them. The earliest is first.
    moves: VecDeque<(Duration, Vec<(Partition, StreamPosition)>)>,
}

impl HeldPositions {
    /// Adds positions. At the instant `at`, Redis had decided on every state before them.
    pub fn add(&mut self, at: Duration, moved: Vec<(Partition, StreamPosition)>) {
        self.moves.push_back((at, moved));
    }

    /// Returns the positions that are to be stored at the instant `now`, since they were held for that time: the last one of
    /// each stream. The number is the one to [forget](HeldPositions::forget) once they are stored.
    pub fn due(&self, now: Duration, held_for: Duration) -> (usize, Vec<(Partition, StreamPosition)>) {
        let is_due = |(at, _): &&(Duration, Vec<_>)| now.saturating_sub(*at) >= held_for;
        let count = self.moves.iter().take_while(is_due).count();
        let moved = self.moves.iter().take(count).flat_map(|(_, moved)| moved.iter().copied());
        (count, moved.collect::<BTreeMap<_, _>>().into_iter().collect())
    }

    /// Forgets the first `count` additions, whose positions are stored.
    pub fn forget(&mut self, count: usize) {
        self.moves.drain(..count);
    }
}

/// Encodes a position in a stream of the other site, for the Redis of this one.
pub fn encode_position(position: &StreamPosition) -> String {
    format!("{} {:016x}", position.id, position.check)
}

/// Decodes a position; `None` for any other text.
pub fn decode_position(text: &str) -> Option<StreamPosition> {
    let (id, check) = text.split_once(' ')?;
    Some(StreamPosition { id: id.parse().ok()?, check: u64::from_str_radix(check, 16).ok()? })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::link::{Link, Origin, Version};
    use crate::replication::EntryId;
    use crate::replication::rules::{self, tests::link};
    use proptest::prelude::*;

    fn code() -> Code {
        Code::parse(b"abc").unwrap()
    }

    #[test]
    fn site_that_may_lack_states_has_not_read_them() {
        let mut read = LastRead::default();
        read.hear(7, 1, read_of_pass(900_000, false));
        assert!(!may_have_missed(read.at_ms, 900_100, 400));
        read.hear(7, 2, read_of_pass(900_100, true));
        read.hear(0, 0, 0);
        assert!(may_have_missed(read.at_ms, 900_200, 400), "Redis has lost the mark and all notes");
        read.hear(8, 1, read_of_pass(900_300, false));
        assert!(!may_have_missed(read.at_ms, 900_400, 400), "an operator has brought the states");
    }

    #[test]
    fn the_last_read_follows_a_clock_that_was_set_back() {
        let mut read = LastRead::default();
        read.hear(7, 1, 900_000);
        read.hear(7, 2, 900_500);
        assert_eq!(read.at_ms, 900_500);
        read.hear(7, 1, 900_000);
        assert_eq!(read.at_ms, 900_500, "Redis has lost some notes");
        read.hear(0, 0, 0);
        assert_eq!(read.at_ms, 900_500, "Redis has lost all notes");
        read.hear(8, 0, 1_000);
        read.hear(8, 1, 2_000);
        assert_eq!(read.at_ms, 2_000, "a later pass, by a clock that was set back");
        assert!(may_have_missed(read.at_ms, 2_201, 400));
        // The clock was set back, and no pass has ended since.
        read.hear_clock(1_000);
        assert_eq!(read.at_ms, 1_000);
        assert!(!may_have_missed(read.at_ms, 1_200, 400));
        assert!(may_have_missed(read.at_ms, 1_201, 400));
        read.hear_clock(5_000);
        assert_eq!(read.at_ms, 1_000);
    }

    #[test]
    fn first_contact_counts_until_a_pass_has_ended() {
        assert!(!may_have_missed(missing_since(0, 900_000), 900_200, 400));
        assert!(may_have_missed(missing_since(0, 900_000), 900_201, 400), "the first comparison was broken off");
        assert!(!may_have_missed(missing_since(900_100, 900_000), 900_300, 400));
        assert!(may_have_missed(missing_since(READ_LONG_AGO_MS, 900_000), 900_001, 400), "the site is marked");
    }

    fn created(created_ms: u64, claim: u64) -> State {
        let State::Link(of) = link(Origin::Custom, 1, claim) else { panic!("a link") };
        State::Link(Arc::new(Link { created_ms, ..Link::clone(&of) }))
    }

    /// Offers a state to a site as its relay does. Returns the state that the other site must hear of.
    fn relay(stored: &mut Option<State>, offered: &State) -> (bool, Option<State>) {
        let verdict = rules::offer(stored.as_ref(), offered);
        if let Verdict::Accepted(state) = &verdict {
            *stored = Some(state.clone());
            return (true, None);
        }
        match settle(&code(), offered, &verdict) {
            Settlement::Replace(over) => {
                assert_eq!(replace(stored.as_ref(), &over, offered), Verdict::Accepted(offered.clone()));
                assert!(rules::adopts(Some(&over), offered), "nodes would keep what Redis no longer has");
                *stored = Some(offered.clone());
                (true, None)
            }
            Settlement::Return(gone) => (false, Some(gone)),
            Settlement::Done | Settlement::Wait => (false, None),
        }
    }

    /// Two sites with one code: the state and the stream of each Redis, and how far each relay has read the other one.
    #[derive(Default)]
    struct Sites {
        stored: [Option<State>; 2],
        streams: [Vec<State>; 2],
        places: [usize; 2],
        claims: u64,
    }

    impl Sites {
        fn accept(&mut self, site: usize, state: State) {
            self.streams[site].push(state.clone());
            self.stored[site] = Some(state);
        }

        /// Lets the relay of a site read one entry. Returns false at the end of the stream.
        fn cross(&mut self, site: usize) -> bool {
            let Some(offered) = self.streams[1 - site].get(self.places[site]).cloned() else { return false };
            self.places[site] += 1;
            let (is_new, returned) = relay(&mut self.stored[site], &offered);
            if is_new {
                self.streams[site].extend(self.stored[site].clone());
            }
            if let Some(gone) = returned
                && let Verdict::Accepted(state) = rules::offer(self.stored[1 - site].as_ref(), &gone)
            {
                self.accept(1 - site, state);
            }
            true
        }

        /// Has a client of a site claim, delete or change the link.
        fn change(&mut self, site: usize, kind: u8, instant_ms: u64) {
            let before = self.stored[site].clone();
            let version = before.as_ref().map(State::version).unwrap_or_default();
            let verdict = match (kind, &before) {
                (0 | 1, _) => {
                    self.claims += 1;
                    let new = created(instant_ms, self.claims);
                    let version = Version { rev: version.rev + 1, ..new.version() };
                    rules::claim(before.as_ref(), &new.with_version(version))
                }
                (2, _) => rules::remove(before.as_ref(), version.claim, instant_ms),
                (_, Some(State::Link(of))) => {
                    let target = format!("https://example.org/{site}/{instant_ms}");
                    let changed = Link { version: version.edited(), target, ..Link::clone(of) };
                    rules::offer(before.as_ref(), &State::Link(Arc::new(changed)))
                }
                _ => Verdict::Same,
            };
            if let Verdict::Accepted(state) = verdict {
                self.accept(site, state);
            }
        }
    }

    #[test]
    fn the_earlier_link_stays_at_both_sites() {
        let (early, late) = (created(5, 9), created(6, 3));
        let (mut here, mut there) = (Some(early.clone()), Some(late.clone()));
        assert_eq!(relay(&mut here, &late), (false, None));
        assert_eq!(relay(&mut there, &early), (true, None));
        assert!(here == there);
        assert!(here == Some(early.clone()));
        assert_eq!(rules::displaced(Some(&late), &early), Some(late.version()), "its loss is reported");
        // Of two that were created in one millisecond, the claim decides.
        let (one, other) = (created(5, 1), created(5, 2));
        let (mut here, mut there) = (Some(one.clone()), Some(other.clone()));
        relay(&mut here, &other);
        relay(&mut there, &one);
        assert!(here == there);
        assert!(here == Some(one));
    }

    #[test]
    fn a_later_life_of_a_slug_stays() {
        let again = link(Origin::Custom, 3, 9);
        let (mut here, mut there) = (Some(created(5, 1)), Some(again.clone()));
        relay(&mut there, &created(5, 1));
        relay(&mut here, &again);
        assert!(here == there);
        assert!(here == Some(again));
    }

    #[test]
    fn a_state_of_a_later_version_is_waited_for() {
        let verdict = Verdict::HeldUnread(b"Z".as_slice().into());
        assert_eq!(settle(&code(), &created(5, 1), &verdict), Settlement::Wait);
    }

    #[test]
    fn a_changed_code_is_not_replaced() {
        let (over, next, since) = (created(6, 3), created(5, 9), created(6, 3).deleted(9));
        assert_eq!(replace(Some(&since), &over, &next), Verdict::Held(since));
        assert_eq!(replace(None, &over, &next), Verdict::Accepted(next));
    }

    #[test]
    fn positions_round_trip() {
        let position = StreamPosition { id: EntryId { ms: 17, seq: 3 }, check: 0xfe };
        assert_eq!(decode_position(&encode_position(&position)), Some(position));
        for text in ["", "17-3", "17 fe", "17-3 xyz"] {
            assert_eq!(decode_position(text), None, "{text}");
        }
    }

    #[test]
    fn a_long_separation_may_have_lost_states() {
        assert!(!may_have_missed(0, 1_000, 100), "the nodes are copies");
        assert!(!may_have_missed(950, 1_000, 100));
        assert!(may_have_missed(949, 1_000, 100));
        assert!(!may_have_missed(1, 1_000, 0), "Redis keeps everything");
        assert!(needs_copies(900, 1_000, 100, 0));
        assert!(!needs_copies(960, 1_000, 100, 0));
        assert!(!needs_copies(900, 1_000, 100, 7), "the nodes are copies");
    }

    #[test]
    fn a_pass_that_was_under_way_proves_nothing() {
        let (mut hearing, second) = (Hearing::default(), Duration::from_secs);
        assert_eq!(hearing.look(second(1), 7, 5), None);
        assert_eq!(hearing.look(second(2), 7, 6), None, "that pass may have begun before the first look");
        assert_eq!(hearing.look(second(3), 7, 7), Some(second(1)));
        assert_eq!(hearing.look(second(4), 7, 8), Some(second(2)));
        assert_eq!(hearing.look(second(5), 8, 90), None, "another relay counts by itself");
        assert_eq!(hearing.look(second(6), 8, 93), Some(second(5)));
    }

    #[test]
    fn positions_are_stored_some_time_after_their_states() {
        let position = |ms: u64| StreamPosition { id: EntryId { ms, seq: 0 }, check: 1 };
        let (mut held, second, held_for) = (HeldPositions::default(), Duration::from_secs, Duration::from_secs(10));
        held.add(second(1), vec![(Partition(3), position(1)), (Partition(5), position(2))]);
        held.add(second(2), vec![(Partition(3), position(7))]);
        held.add(second(5), vec![(Partition(5), position(9))]);
        assert_eq!(held.due(second(10), held_for), (0, Vec::new()));
        assert_eq!(held.due(second(11), held_for).1.len(), 2);
        let due = held.due(second(14), held_for);
        assert_eq!(due, (2, vec![(Partition(3), position(7)), (Partition(5), position(2))]), "the last of each stream");
        assert_eq!(held.due(second(14), held_for), due, "they are not stored yet");
        held.forget(2);
        assert_eq!(held.due(second(14), held_for), (0, Vec::new()));
        assert_eq!(held.due(second(15), held_for), (1, vec![(Partition(5), position(9))]));
    }

    #[test]
    fn both_sites_know_their_shares() {
        assert_eq!((SiteShare::of("a", "b").site, SiteShare::of("b", "a").site), (0, 1));
    }

    proptest! {
        /// Leases of the sites never overlap, and none of them reaches into a block of the other.
        #[test]
        fn shares_do_not_overlap(wants in proptest::collection::vec((0..2u64, 1..=BLOCK), 1..40), from in 0..4 * BLOCK) {
            let mut next = [from, from];
            let mut leased: Vec<(u64, u64)> = Vec::new();
            for (site, want) in wants {
                let share = SiteShare { site };
                let start = share.first_run(next[site as usize], want);
                prop_assert!(start >= next[site as usize]);
                prop_assert!(start < next[site as usize] + 2 * BLOCK);
                prop_assert!(share.has(start));
                prop_assert!(share.has(start + want - 1));
                prop_assert!(leased.iter().all(|(from, len)| start + want <= *from || from + len <= start));
                leased.push((start, want));
                next[site as usize] = start + want;
            }
        }

        /// Both sites end with one state, whatever their clients do and however late the relays are.
        #[test]
        fn sites_agree_in_the_end(steps in proptest::collection::vec((0..2usize, 0..8u8, 0..4u64), 1..40)) {
            let mut sites = Sites::default();
            for (site, kind, instant_ms) in steps {
                match kind {
                    5.. => _ = sites.cross(site),
                    _ => sites.change(site, kind, instant_ms),
                }
            }
            let mut left = 1_000;
            loop {
                let crossed = [sites.cross(0), sites.cross(1)];
                if crossed == [false, false] {
                    break;
                }
                left -= 1;
                prop_assert!(left > 0, "states circle between the sites");
            }
            prop_assert_eq!(&sites.stored[0], &sites.stored[1]);
        }
    }
}
