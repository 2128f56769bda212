//! The one rule for conflicts over a code, as Redis and every node apply it.
//!
//! Redis takes four requests. A **claim** takes a code for a new link, if the code is free. A **removal** deletes the
//! link that it names. An **expiry** deletes a link only in the very state that the requester has. An **offer** brings
//! a state that exists already: one that was decided while Redis was away, or that Redis has forgotten. An offer
//! follows the rule for conflicts:
//!
//! 1. of two states of one link, the deleted one stays, whatever else was changed;
//! 2. otherwise the later revision stays, and of one link the state that was changed more often;
//! 3. of two that are equal in that, the one that Redis has stays.
//!
//! The scripts in `services/replication/redis` implement the same rule in Lua. A test compares them on a real server.

use std::sync::Arc;

use carom_shards::code::CODE_KEY_LEN_MAX;
use xxhash_rust::xxh3::xxh3_64;

use crate::link::{Link, Version};
use crate::replication::State;
use crate::replication::state::StateHead;

/// The decision of Redis on a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Redis accepted this state. The code has it from now on.
    Accepted(State),
    /// The code had that state already.
    Same,
    /// The code keeps this state.
    Held(State),
    /// The code keeps this state, which only a later version can decode.
    HeldUnread(Arc<[u8]>),
    /// The code has no state to remove.
    Absent,
}

/// Returns the state that a claim, removal or expiry applies to: the one in Redis or, if Redis has none, `mine`, the one
/// of the requesting node. A state that has not changed for the [`retention`](super::retention) is only on the nodes. A
/// claim also prefers `mine` to an earlier tombstone, which a node may have delivered late.
pub fn present<'s>(stored: Option<&'s State>, mine: Option<&'s State>, is_claim: bool) -> Option<&'s State> {
    let (Some(old), Some(new)) = (stored, mine) else { return stored.or(mine) };
    let is_of_ended_link = new.is_link() && new.version().claim == old.version().claim;
    let is_earlier = is_claim && old.is_free() && old.version().rev < new.version().rev && !is_of_ended_link;
    Some(if is_earlier { new } else { old })
}

/// Claims a code for a new link. A slug that is free again continues its revisions.
pub fn claim(stored: Option<&State>, link: &State) -> Verdict {
    match stored {
        None => Verdict::Accepted(link.clone()),
        // The request comes twice, or late: the link exists, or it is over.
        Some(stored) if stored.version().claim == link.version().claim => match stored {
            State::Link(_) => Verdict::Accepted(stored.clone()),
            State::Gone(_) => Verdict::Held(stored.clone()),
        },
        Some(stored) if stored.is_free() => {
            let rev = stored.version().rev.saturating_add(1).max(link.version().rev);
            accepted(stored, link.with_version(Version { rev, ..link.version() }))
        }
        Some(stored) => Verdict::Held(stored.clone()),
    }
}

/// Returns the version of the next link of a slug that is free since `gone`, for a node that decides alone, or for an import.
/// The link keeps a claim of its own. A link without one gets a claim by its code, date and revision, so two nodes that import
/// one line after tombstones of one revision agree. It never has the claim zero: another node may still have a tombstone with
/// the claim zero, from an earlier link of the slug, and a tombstone ends every link of its claim.
pub fn version_after(gone: Version, link: &Link) -> Version {
    let (rev, claim) = (gone.rev.saturating_add(1), link.version.claim);
    if claim != 0 && claim != gone.claim {
        return Version { rev, ..link.version };
    }
    let mut key = [0; CODE_KEY_LEN_MAX];
    let of_link = [link.code.key(&mut key), &link.created_ms.to_be_bytes(), &rev.to_be_bytes()].concat();
    let derived = xxh3_64(&of_link).max(1);
    let claim = if derived == gone.claim { derived.wrapping_add(1).max(1) } else { derived };
    Version { rev, claim, ..link.version }
}

/// Deletes the link of a code that has this claim. The request may come twice, or late, when the code belongs to
/// another link.
pub fn remove(stored: Option<&State>, claim: u64, now_ms: u64) -> Verdict {
    match stored {
        None => Verdict::Absent,
        Some(stored) if stored.is_link() && stored.version().claim == claim => accepted(stored, stored.deleted(now_ms)),
        Some(stored) => Verdict::Held(stored.clone()),
    }
}

/// Deletes the link of a code that has expired, if its state is still `mine`: its end may have been moved.
pub fn expire(stored: Option<&State>, mine: &State, now_ms: u64) -> Verdict {
    match stored {
        None => Verdict::Absent,
        Some(stored) if stored.is_link() && stored == mine => accepted(stored, stored.deleted(now_ms)),
        Some(stored) => Verdict::Held(stored.clone()),
    }
}

/// Returns the verdict that Redis has another state from now on.
fn accepted(stored: &State, state: State) -> Verdict {
    debug_assert!(adopts(Some(stored), &state), "nodes that follow would keep the state that Redis no longer has");
    Verdict::Accepted(state)
}

/// Offers a state that exists already.
pub fn offer(stored: Option<&State>, state: &State) -> Verdict {
    let Some(stored) = stored else { return Verdict::Accepted(state.clone()) };
    if stored == state {
        return Verdict::Same;
    }
    let (old, new) = (stored.version(), state.version());
    if old.claim == new.claim && stored.is_link() != state.is_link() {
        if stored.is_link() {
            let rev = new.rev.max(old.rev.saturating_add(1));
            return accepted(stored, state.with_version(Version { rev, ..new }));
        }
    } else if new.rev > old.rev || (new.rev == old.rev && new.claim == old.claim && new.edit > old.edit) {
        return accepted(stored, state.clone());
    }
    Verdict::Held(stored.clone())
}

/// True if a script that does not know the kind of the stored state replaces it by an offered one. To such a script, the
/// stored state is neither a link nor free.
pub fn replaces_unread(stored: &StateHead, offered: &State) -> bool {
    let (old, new) = (stored.version, offered.version());
    let is_same_link = new.claim == old.claim;
    !(is_same_link && offered.is_link())
        && (new.rev > old.rev || (new.rev == old.rev && is_same_link && new.edit > old.edit))
}

/// Returns the link that an accepted state takes the code from, if that is another link: its client got the code in
/// vain. Only Redis can tell, and only at this time. It reports the version in the stream, beside the state.
pub fn displaced(stored: Option<&State>, accepted: &State) -> Option<Version> {
    let stored = stored.filter(|stored| stored.is_link()).map(State::version);
    stored.filter(|version| version.claim != accepted.version().claim)
}

/// True if a node that holds `mine` adopts a state that came through the stream or a scan. A node that reads both may
/// see an outdated state again, and must tell only that.
pub fn adopts(mine: Option<&State>, theirs: &State) -> bool {
    let Some(mine) = mine else { return true };
    let (old, new) = (mine.version(), theirs.version());
    if old.claim == new.claim && mine.is_link() != theirs.is_link() {
        return mine.is_link();
    }
    !is_earlier(new, old) && theirs != mine
}

/// True if a node that holds `mine` gives it up for a state that it cannot decode. Without a head, nothing but the order
/// of the stream can tell which is newer.
pub fn gives_way(mine: Option<&State>, theirs: Option<&StateHead>) -> bool {
    let (Some(mine), Some(theirs)) = (mine, theirs) else { return true };
    match theirs.is_link {
        Some(is_link) if theirs.version.claim == mine.version().claim && is_link != mine.is_link() => mine.is_link(),
        _ => !is_earlier(theirs.version, mine.version()),
    }
}

/// Decides like [`gives_way`], for a node whose record only a later version can decode. Returns false if the record may
/// be the other state itself.
pub fn record_gives_way(mine: &StateHead, theirs: &StateHead) -> bool {
    match (mine.is_link, theirs.is_link) {
        (Some(is_link), Some(others)) if mine.version.claim == theirs.version.claim && is_link != others => is_link,
        _ => theirs.version != mine.version && !is_earlier(theirs.version, mine.version),
    }
}

/// True if a node that has marked a code for a state that it cannot decode adopts a state that it can: not one that
/// comes before.
pub fn follows(marked: Option<&StateHead>, theirs: &State) -> bool {
    let Some(marked) = marked else { return true };
    match marked.is_link {
        Some(is_link) if marked.version.claim == theirs.version().claim && is_link != theirs.is_link() => is_link,
        _ => !is_earlier(theirs.version(), marked.version),
    }
}

/// True if a node restores in Redis a state that it has kept without decoding it, with its text: Redis has no state, or one
/// that comes before. A tombstone of the same link stays. The kept state may be of that link before its end.
pub fn restores(marked: &StateHead, stored: Option<&StateHead>) -> bool {
    let Some(stored) = stored else { return true };
    let is_same_link = stored.version.claim == marked.version.claim;
    let is_ended = is_same_link && stored.is_link == Some(false) && marked.is_link != Some(false);
    !is_ended && is_earlier(stored.version, marked.version)
}

/// True if a state of one version comes before a state of another one.
pub fn is_earlier(new: Version, old: Version) -> bool {
    new.rev < old.rev || (new.rev == old.rev && new.claim == old.claim && new.edit < old.edit)
}

/// Returns the newest state of a code, given those of a node and of Redis. A change begins with it.
pub fn newest(mine: Option<State>, theirs: Option<State>) -> Option<State> {
    match (mine, theirs) {
        (Some(mine), Some(theirs)) if !adopts(Some(&mine), &theirs) => Some(mine),
        (mine, theirs) => theirs.or(mine),
    }
}

/// True if a node that holds `mine` knows that the link of `theirs` is gone, which other nodes still have.
pub fn is_over(mine: &State, theirs: &State) -> bool {
    let (gone, link) = (mine.version(), theirs.version());
    !mine.is_link() && (gone.claim == link.claim || gone.rev >= link.rev)
}

/// True if two states of one code are different links, so that a client got an acknowledgement for a link that is lost.
pub fn is_conflict(mine: &State, theirs: &State) -> bool {
    let (State::Link(link), old, new) = (mine, mine.version(), theirs.version()) else { return false };
    if old.claim == new.claim {
        // A later revision is a change of this link. Links from before the fleet have no claims.
        let differs =
            |other: &Link| (&link.target, link.policy, &link.labels) != (&other.target, other.policy, &other.labels);
        let is_later = (new.rev, new.edit) > (old.rev, old.edit);
        // Those are distinguished by their time of creation, which no change touches.
        let is_another = |other: &Link| old.claim == 0 && link.created_ms != other.created_ms;
        return matches!(theirs, State::Link(other) if differs(other) && (!is_later || is_another(other)));
    }
    // A delete of the one and a claim of the other may have come between.
    new.rev < old.rev.saturating_add(2)
}

/// True if a link cannot be right beside another state of its code, as in [`is_conflict`], if this version can decode one
/// of the two at most.
pub fn is_conflict_by_head(mine: &StateHead, theirs: Version) -> bool {
    // A delete of the one and a claim of the other may have come between. A state of an unknown kind may be a tombstone:
    // then only a claim.
    let between = match mine.is_link {
        Some(true) => 2,
        None => 1,
        Some(false) => return false,
    };
    mine.version.claim != theirs.claim && theirs.rev < mine.version.rev.saturating_add(between)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::link::labels::LinkLabels;
    use crate::link::record::Tombstone;
    use crate::link::{Link, Origin};
    use carom_shards::{Code, Policy};
    use proptest::prelude::*;
    use std::sync::Arc;

    #[test]
    fn next_link_without_a_claim_is_another_one() {
        // A node alone deletes a link, or imports one, without a claim.
        let first = link(Origin::Custom, 0, 0);
        let gone = first.deleted(9);
        let next = |created_ms: u64| {
            let State::Link(of) = &first else { panic!("it is a link") };
            let of = Link { created_ms, ..Link::clone(of) };
            State::Link(Arc::new(Link { version: version_after(gone.version(), &of), ..of }))
        };
        assert_eq!(offer(Some(&gone), &next(5)), Verdict::Accepted(next(5)));
        assert!(adopts(Some(&gone), &next(5)), "other nodes would keep the tombstone");
        assert_eq!(next(5), next(5), "two nodes import one line");
        assert_ne!(next(5).version().claim, next(6).version().claim);
        // A claim of its own tells the two apart.
        let State::Link(of) = link(Origin::Custom, 1, 7) else { panic!("it is a link") };
        let version = |rev, claim| Version { rev, claim, edit: 0 };
        assert_eq!(version_after(version(4, 0), &of), version(5, 7));
        assert_ne!(version_after(version(4, 7), &of).claim, 7);
    }

    #[test]
    fn earlier_tombstone_without_a_claim_ends_no_later_link() {
        let State::Link(of) = link(Origin::Custom, 0, 0) else { panic!("it is a link") };
        let after = |gone: &State| {
            State::Link(Arc::new(Link { version: version_after(gone.version(), &of), ..Link::clone(&of) }))
        };
        // Another node has missed everything since this tombstone.
        let earlier = State::Link(Arc::clone(&of)).deleted(9);
        let by_fleet = link(Origin::Custom, 2, 7).deleted(9);
        let again = after(&earlier).deleted(9);
        for gone in [&earlier, &by_fleet, &again] {
            let next = after(gone);
            assert_ne!(next.version().claim, gone.version().claim, "{gone:?}");
            assert_eq!(offer(Some(&next), &earlier), Verdict::Held(next.clone()), "{gone:?}");
            assert_eq!(offer(Some(&earlier), &next), Verdict::Accepted(next.clone()), "{gone:?}");
            assert!(adopts(Some(&earlier), &next), "{gone:?}");
        }
        // Two nodes import one line. One of them has missed that the fleet used the slug.
        let rev = by_fleet.version().rev;
        assert_eq!(after(&by_fleet), after(&earlier.with_version(Version { rev, ..earlier.version() })));
    }

    #[test]
    fn a_state_that_cannot_be_decoded_gives_way_like_any_other() {
        let head = |is_link, rev, claim, edit| StateHead { is_link, version: Version { rev, claim, edit } };
        let mine = link(Origin::Custom, 2, 7).with_version(Version { rev: 2, claim: 7, edit: 3 });
        for (theirs, gives, returns) in [
            (head(Some(true), 2, 7, 4), true, false),
            (head(Some(true), 2, 7, 2), false, true),
            (head(None, 2, 7, 3), true, true),
            (head(None, 1, 8, 9), false, true),
            (head(Some(false), 1, 7, 0), true, false),
            (head(Some(true), 3, 8, 0), true, false),
        ] {
            assert_eq!(gives_way(Some(&mine), Some(&theirs)), gives, "{theirs:?}");
            assert_eq!(follows(Some(&theirs), &mine), returns, "{theirs:?}");
        }
        assert!(gives_way(None, None));
        assert!(gives_way(Some(&mine), None));
        assert!(follows(None, &mine));
        // Of one link, the deleted state stays.
        assert!(!gives_way(Some(&mine.deleted(1)), Some(&head(Some(true), 9, 7, 9))));
        assert!(follows(Some(&head(Some(true), 9, 7, 9)), &mine.deleted(1)));
    }

    #[test]
    fn lost_state_that_cannot_be_decoded_is_restored() {
        let head = |is_link, rev, claim, edit| StateHead { is_link, version: Version { rev, claim, edit } };
        let marked = head(None, 3, 8, 1);
        assert!(restores(&marked, None));
        for (stored, restored) in [
            // The link before a delete, and that delete.
            (head(Some(true), 1, 7, 9), true),
            (head(Some(false), 2, 7, 0), true),
            // The same link, before and after its last change.
            (head(Some(true), 3, 8, 0), true),
            (head(Some(true), 3, 8, 1), false),
            (head(None, 3, 8, 0), true),
            (head(None, 3, 8, 2), false),
            // The end of the link, at the revision of which Redis knew after a loss.
            (head(Some(false), 2, 8, 0), false),
            // Another link of the same revision, and a later one.
            (head(Some(true), 3, 9, 0), false),
            (head(Some(true), 5, 9, 0), false),
        ] {
            assert_eq!(restores(&marked, Some(&stored)), restored, "{stored:?}");
        }
        assert!(restores(&head(Some(false), 3, 8, 0), Some(&head(Some(false), 2, 8, 0))), "both are tombstones");
    }

    #[test]
    fn heads_of_two_links_tell_a_conflict() {
        for (is_link, rev, claim, conflicts) in [
            (Some(true), 1, 8, true),
            (Some(true), 2, 8, true),
            (Some(true), 3, 8, false),
            (Some(true), 1, 7, false),
            (Some(false), 1, 8, false),
            (None, 1, 8, true),
            (None, 2, 8, false),
        ] {
            let mine = StateHead { is_link, version: Version { rev: 1, claim: 7, edit: 0 } };
            let theirs = Version { rev, claim, edit: 0 };
            assert_eq!(is_conflict_by_head(&mine, theirs), conflicts, "{mine:?}, {theirs:?}");
        }
    }

    #[test]
    fn older_script_replaces_an_unknown_kind_by_what_comes_later() {
        let stored = StateHead { is_link: None, version: Version { rev: 2, claim: 7, edit: 1 } };
        let edited = |rev, claim, edit| link(Origin::Custom, rev, claim).with_version(Version { rev, claim, edit });
        for (offered, replaces) in [
            (edited(9, 7, 9), false),
            (edited(2, 7, 0).deleted(1), true),
            (edited(1, 7, 0).deleted(1), false),
            (edited(2, 8, 9), false),
            (edited(3, 8, 0), true),
        ] {
            assert_eq!(replaces_unread(&stored, &offered), replaces, "{offered:?}");
        }
    }

    pub(crate) fn link(origin: Origin, rev: u32, claim: u64) -> State {
        State::Link(Arc::new(Link {
            code: Code::parse(b"abc").unwrap(),
            policy: Policy::default(),
            target: format!("https://example.org/{claim}/{rev}"),
            created_ms: 1,
            origin,
            version: Version { rev, claim, edit: 0 },
            labels: LinkLabels::default(),
        }))
    }

    #[test]
    fn edits_count_among_states_of_one_link_alone() {
        let edited = |rev, claim, edit| link(Origin::Custom, rev, claim).with_version(Version { rev, claim, edit });
        let gone = edited(1, 7, 2).deleted(1);
        for (stored, offered, wins) in [
            (edited(1, 7, 1), edited(1, 7, 2), true),
            (edited(1, 7, 2), edited(1, 7, 1), false),
            // A node that has changed it often may not know of its end, or of the next link.
            (gone.clone(), edited(1, 7, 9), false),
            (edited(3, 8, 0), edited(1, 7, 9), false),
            (edited(1, 8, 0), edited(1, 7, 9), false),
            (edited(1, 7, 9), gone, true),
        ] {
            let accepted = matches!(offer(Some(&stored), &offered), Verdict::Accepted(_));
            assert_eq!(accepted, wins, "{offered:?} over {stored:?}");
        }
        // Redis's state wins over one of the same revision, and not over a later edit of the same link.
        assert!(adopts(Some(&edited(1, 8, 9)), &edited(1, 7, 0)));
        assert!(!adopts(Some(&edited(1, 7, 2)), &edited(1, 7, 1)));
    }

    #[test]
    fn a_change_is_no_conflict_and_another_link_is_one() {
        let with = |created_ms, title: &str, version: Version| {
            let State::Link(link) = link(Origin::Custom, 0, 0) else { panic!("a link") };
            let labels = LinkLabels { title: Some(title.to_owned()), ..LinkLabels::default() };
            State::Link(Arc::new(Link { created_ms, labels, version, ..Link::clone(&link) }))
        };
        for claim in [0, 7] {
            let version = Version { rev: 1, claim, edit: 1 };
            let mine = with(1, "mine", version);
            assert!(!is_conflict(&mine, &mine));
            assert!(!is_conflict(&mine, &with(1, "later", version.edited())), "it was changed");
            assert!(is_conflict(&mine, &with(1, "theirs", version)), "two changes of one version");
            // Two nodes had a link of this slug before they shared anything, and one of the two was changed.
            assert_eq!(is_conflict(&mine, &with(2, "later", version.edited())), claim == 0);
        }
    }

    pub(crate) fn any_state() -> impl Strategy<Value = State> {
        (0..4u8, 0..4u32, 0..3u64, 0..2u64, 0..3u32).prop_map(|(kind, rev, claim, deleted_ms, edit)| {
            let origin = if kind % 2 == 0 { Origin::Issued } else { Origin::Custom };
            match kind {
                0 | 1 => link(origin, rev, claim).with_version(Version { rev, claim, edit }),
                _ => State::Gone(Tombstone {
                    deleted_ms,
                    origin,
                    version: Version { rev, claim, edit: 0 },
                    ..crate::testing::tombstone()
                }),
            }
        })
    }

    #[test]
    fn a_code_is_claimed_once_and_a_freed_slug_again() {
        let (mine, theirs) = (link(Origin::Custom, 1, 7), link(Origin::Custom, 1, 8));
        assert_eq!(claim(None, &mine), Verdict::Accepted(mine.clone()));
        assert_eq!(claim(Some(&mine), &theirs), Verdict::Held(mine.clone()));
        assert_eq!(claim(Some(&mine), &mine), Verdict::Accepted(mine.clone()), "it was asked for twice");
        let freed = mine.deleted(5);
        let again = theirs.with_version(Version { rev: 3, claim: 8, edit: 0 });
        assert_eq!(claim(Some(&freed), &theirs), Verdict::Accepted(again));
        let buried = link(Origin::Issued, 1, 7).deleted(5);
        assert_eq!(claim(Some(&buried), &theirs), Verdict::Held(buried));
    }

    #[test]
    fn a_delete_ends_its_link_and_earlier_ones() {
        let mine = link(Origin::Custom, 2, 7);
        let (gone, later) = (mine.deleted(5), link(Origin::Custom, 4, 8));
        assert!(is_over(&gone, &mine));
        assert!(is_over(&gone, &link(Origin::Custom, 3, 8)));
        assert!(!is_over(&gone, &later));
        assert!(!is_over(&later, &mine));
    }

    #[test]
    fn a_removal_leaves_a_tombstone_once() {
        let mine = link(Origin::Issued, 4, 7);
        let Verdict::Accepted(gone) = remove(Some(&mine), 7, 9) else { panic!("a link can be removed") };
        assert_eq!((gone.version(), gone.is_tombstone()), (Version { rev: 5, claim: 7, edit: 0 }, true));
        assert_eq!(remove(Some(&mine), 8, 9), Verdict::Held(mine), "that was asked for of another link");
        assert_eq!(remove(Some(&gone), 7, 10), Verdict::Held(gone));
        assert_eq!(remove(None, 7, 10), Verdict::Absent);
    }

    #[test]
    fn a_link_expires_as_it_is_known_or_not_at_all() {
        let mine = link(Origin::Custom, 4, 7);
        let Verdict::Accepted(gone) = expire(Some(&mine), &mine, 9) else { panic!("it is that very link") };
        assert_eq!((gone.version(), gone.is_free()), (Version { rev: 5, claim: 7, edit: 0 }, true));
        let extended = mine.with_version(mine.version().edited());
        // After a loss two changes may have the same version.
        let State::Link(other) = &mine else { panic!("a link") };
        let other = State::Link(Arc::new(Link { created_ms: 2, ..Link::clone(other) }));
        for stored in [extended, other, link(Origin::Custom, 4, 8), gone.clone()] {
            assert_eq!(expire(Some(&stored), &mine, 9), Verdict::Held(stored));
        }
        assert_eq!(expire(Some(&gone), &gone, 9), Verdict::Held(gone));
        assert_eq!(expire(None, &mine, 9), Verdict::Absent);
    }

    #[test]
    fn an_expired_state_is_known_to_nodes() {
        let (mine, next) = (link(Origin::Custom, 3, 7), link(Origin::Custom, 1, 9));
        assert_eq!(claim(present(None, Some(&mine), true), &next), Verdict::Held(mine.clone()));
        assert!(matches!(remove(present(None, Some(&mine), false), 7, 9), Verdict::Accepted(State::Gone(_))));
        assert!(matches!(expire(present(None, Some(&mine), false), &mine, 9), Verdict::Accepted(State::Gone(_))));
        // A freed slug continues its revisions, or nodes would keep its tombstone.
        let Verdict::Accepted(state) = claim(present(None, Some(&mine.deleted(1)), true), &next) else {
            panic!("the slug is free")
        };
        assert!(adopts(Some(&mine.deleted(1)), &state));
        let issued = link(Origin::Issued, 1, 7).deleted(1);
        assert_eq!(claim(present(None, Some(&issued), true), &next), Verdict::Held(issued), "no code is used twice");
    }

    #[test]
    fn a_late_tombstone_frees_no_later_link() {
        let (earlier, mine) = (link(Origin::Custom, 1, 7).deleted(1), link(Origin::Custom, 3, 8));
        assert_eq!(present(Some(&earlier), Some(&mine), true), Some(&mine));
        assert_eq!(present(Some(&earlier), Some(&mine), false), Some(&earlier));
        let ended = link(Origin::Custom, 9, 7);
        assert_eq!(present(Some(&earlier), Some(&ended), true), Some(&earlier), "that link was deleted");
        let later = link(Origin::Custom, 1, 9);
        assert_eq!(present(Some(&later), Some(&mine), true), Some(&later), "only a free slug is given away");
        assert_eq!(present(None, None, true), None);
    }

    #[test]
    fn a_delete_wins_over_changes_of_the_same_link() {
        let (old, new) = (link(Origin::Custom, 1, 7), link(Origin::Custom, 9, 7));
        let Verdict::Accepted(gone) = offer(Some(&new), &old.deleted(1)) else { panic!("a delete wins") };
        assert_eq!(gone.version(), Version { rev: 10, claim: 7, edit: 0 });
        assert_eq!(offer(Some(&old.deleted(1)), &new), Verdict::Held(old.deleted(1)));
        // That link is over; the slug belongs to another.
        let next = link(Origin::Custom, 3, 8);
        assert_eq!(offer(Some(&next), &old.deleted(1)), Verdict::Held(next));
    }

    proptest! {
        /// Nodes that decode a restored state adopt it, and Redis would have accepted it from them.
        #[test]
        fn restored_states_are_those_that_win(stored in any_state(), kept in any_state(), is_known in any::<bool>()) {
            let head = |state: &State| StateHead { is_link: Some(state.is_link()), version: state.version() };
            let marked = if is_known { head(&kept) } else { StateHead { is_link: None, ..head(&kept) } };
            if restores(&marked, Some(&head(&stored))) {
                prop_assert!(adopts(Some(&stored), &kept));
                prop_assert!(matches!(offer(Some(&stored), &kept), Verdict::Accepted(_)));
                prop_assert!(!follows(Some(&marked), &stored), "the node would adopt the state that it replaces");
            }
        }

        /// However often and in whatever order states are offered, the nodes that offer them end with the state of
        /// Redis.
        #[test]
        fn offers_converge(states in proptest::collection::vec(any_state(), 1..8)) {
            let mut stored: Option<State> = None;
            for state in states.iter().chain(&states) {
                match offer(stored.as_ref(), state) {
                    Verdict::Accepted(next) => {
                        if let Some(stored) = &stored {
                            prop_assert!(adopts(Some(stored), &next), "followers must take {next:?} over {stored:?}");
                        }
                        stored = Some(next);
                    }
                    Verdict::Same => {}
                    Verdict::Held(held) => prop_assert_eq!(Some(held), stored.clone()),
                    Verdict::HeldUnread(_) => prop_assert!(false, "this version knows its own states"),
                    Verdict::Absent => prop_assert!(false, "an offer removes nothing"),
                }
            }
            let last = stored.unwrap();
            prop_assert_eq!(offer(Some(&last), &last), Verdict::Same);
        }
    }
}
