//! The view that a node has of its fleet. It decides whether a code that the node does not have gets 404 or 503.
//!
//! Threads of the fleet write it, cores and the look-up thread read it, all without locks.
//! [`carom_model::replication::absence`] has the rules.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use carom_shards::{Code, CodeLength, CodeSpace, GeneratedCode};

use super::slug_filter::SlugFilter;
use carom_limits::{FOLLOWED_KEPT, MARK_KEPT, SETTLE_TIME};
use carom_model::replication::absence::{self, CodeForm};

/// Returns the time since the machine was booted, including sleep. No clock setting affects it.
pub fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
}

/// Returns an instant since boot in milliseconds; 0 stands for never.
fn ms_of(at: Duration) -> u64 {
    at.as_millis() as u64
}

/// True if an instant was at most `kept` ago.
fn is_fresh(at_ms: u64, now: Duration, kept: Duration) -> bool {
    at_ms > 0 && ms_of(now).saturating_sub(at_ms) < ms_of(kept)
}

/// The knowledge of a node about its fleet. All instants are since the boot of the machine.
#[derive(Debug)]
pub struct FleetView {
    space: CodeSpace,
    /// The highest counter value of each length that the node has heard of.
    counter_marks: [AtomicU64; GeneratedCode::LEN_MAX + 1],
    /// The instant at which the last answered heartbeat was sent.
    heartbeat_ms: AtomicU64,
    /// The instant before which every change in the streams is in the memory of the cores.
    followed_ms: AtomicU64,
    /// The instant at which a connection to Redis was last lost or established again, or a master replaced.
    disturbed_ms: AtomicU64,
    /// True if another node with links of its own compares them with Redis, which may lack some, or has yet to do so.
    others_restore: AtomicBool,
    /// True if the node may have marked codes, which have a link although no core has them.
    has_marked_codes: AtomicBool,
    /// True if the node may lack links that Redis no longer has.
    is_behind: AtomicBool,
    /// The instant before which every acknowledged link of the fleet is in Redis.
    delivered_ms: AtomicU64,
    /// The instant before which every change in the streams has been passed by all other nodes.
    passed_ms: AtomicU64,
    /// The instant whose changes all nodes must pass before codes are recycled; 0 if none wait.
    awaited_ms: AtomicU64,
    /// True if codes of expired links may get another link, so that a tombstone is not final.
    recycles: AtomicBool,
    /// Number of questions that wait for confirmations of the other nodes.
    doubts: AtomicUsize,
    /// The heartbeat thread, which sends heartbeats more often while questions wait.
    heartbeat_thread: OnceLock<Thread>,
    /// The chosen slugs that look like generated codes; `None` on a node that stores all links.
    slugs: Option<SlugFilter>,
    /// True if the fleet has another site, which creates links without asking this one.
    has_other_site: bool,
    /// The highest counter value of each length that nodes of the other site were known to have leased.
    other_counter_marks: [AtomicU64; GeneratedCode::LEN_MAX + 1],
    /// The instant before which every change of the other site's streams is in the Redis of this site.
    other_ms: AtomicU64,
}

impl FleetView {
    /// Returns the view of a node that has heard of nothing.
    pub fn new(space: CodeSpace) -> FleetView {
        FleetView {
            space,
            counter_marks: Default::default(),
            heartbeat_ms: AtomicU64::new(0),
            followed_ms: AtomicU64::new(0),
            disturbed_ms: AtomicU64::new(0),
            others_restore: AtomicBool::new(false),
            has_marked_codes: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            delivered_ms: AtomicU64::new(0),
            passed_ms: AtomicU64::new(0),
            awaited_ms: AtomicU64::new(0),
            recycles: AtomicBool::new(false),
            doubts: AtomicUsize::new(0),
            heartbeat_thread: OnceLock::new(),
            slugs: None,
            has_other_site: false,
            other_counter_marks: Default::default(),
            other_ms: AtomicU64::new(0),
        }
    }

    /// Sets whether the fleet has another site. With one, codes are missing only while the relay brings its changes.
    #[must_use]
    pub fn with_other_site(self, has_other_site: bool) -> FleetView {
        FleetView { has_other_site, ..self }
    }

    /// Records that the Redis of this site has every change that the streams of the other site had at the instant `at`,
    /// since boot. `marks` are the counter values that the other site had leased.
    pub fn note_other_site(&self, marks: impl IntoIterator<Item = (CodeLength, u64)>, at: Duration) {
        for (length, mark) in marks {
            self.other_counter_marks[length.get()].fetch_max(mark, Ordering::Relaxed);
        }
        self.other_ms.fetch_max(ms_of(at), Ordering::Release);
    }

    /// True if the relay has brought the changes of the other site lately, or the fleet has one site.
    pub fn hears_other_site(&self) -> bool {
        self.hears_other_site_at(since_boot())
    }

    fn hears_other_site_at(&self, now: Duration) -> bool {
        !self.has_other_site || is_fresh(self.other_ms.load(Ordering::Acquire), now, MARK_KEPT)
    }

    /// Returns the view of a node whose links have a shared home.
    #[must_use]
    pub fn with_shared_home(self) -> FleetView {
        FleetView { slugs: Some(SlugFilter::default()), ..self }
    }

    /// True if this node stores all links; false if Redis is their shared home.
    pub fn stores_all_links(&self) -> bool {
        self.slugs.is_none()
    }

    /// Returns the filter of chosen slugs, on a node whose links have a shared home.
    pub fn slugs(&self) -> Option<&SlugFilter> {
        self.slugs.as_ref()
    }

    /// Records the answer to a heartbeat that was sent at `sent`.
    pub fn note_heartbeat(
        &self,
        marks: impl IntoIterator<Item = (CodeLength, u64)>,
        others_restore: bool,
        sent: Duration,
    ) {
        for (length, mark) in marks {
            self.counter_marks[length.get()].fetch_max(mark, Ordering::Relaxed);
        }
        self.others_restore.store(others_restore, Ordering::Relaxed);
        self.heartbeat_ms.fetch_max(ms_of(sent), Ordering::Release);
    }

    /// Records that every change that was in the streams at that instant is in the memory of the cores.
    pub fn note_followed(&self, at: Duration) {
        self.followed_ms.fetch_max(ms_of(at), Ordering::Release);
    }

    /// Records whether the node may lack links that Redis no longer has. While it does, no code counts as missing.
    pub fn set_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Ordering::Release);
    }

    /// True if the node may lack links that Redis no longer has.
    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire)
    }

    /// Returns the instant before which every change in the streams is in the memory of the cores; `None` before the first.
    pub fn followed_at(&self) -> Option<Duration> {
        Some(self.followed_ms.load(Ordering::Acquire)).filter(|at_ms| *at_ms > 0).map(Duration::from_millis)
    }

    /// True if Redis has lost nothing lately that another node may be about to bring back.
    pub fn trusts_redis(&self) -> bool {
        self.is_settled(since_boot())
    }

    /// Records that a connection to Redis was lost or established again, or a master replaced, at that instant.
    pub fn note_disturbance(&self, at: Duration) {
        self.disturbed_ms.fetch_max(ms_of(at), Ordering::Release);
    }

    /// Returns the instant of the last disturbance ([`FleetView::note_disturbance`]), in milliseconds since boot; 0 before the
    /// first one.
    pub fn disturbed_ms(&self) -> u64 {
        self.disturbed_ms.load(Ordering::Acquire)
    }

    /// Records that a code is about to be marked. From then on, only Redis can deny a code.
    pub fn note_marked_code(&self) {
        self.has_marked_codes.store(true, Ordering::Release);
    }

    /// True if the node may have marked codes.
    pub fn has_marked_codes(&self) -> bool {
        self.has_marked_codes.load(Ordering::Acquire)
    }

    /// Records that no code has been marked since that instant, and that the cores have all changes of the streams up
    /// to then ([`FleetView::has_followed`]). Does nothing while a core may still use an earlier look-up.
    pub fn forget_marked_codes(&self, since: Duration) {
        if !is_fresh(ms_of(since), since_boot(), FOLLOWED_KEPT) {
            self.has_marked_codes.store(false, Ordering::Release);
        }
    }

    /// True if every change that was in the streams at some instant after this one is in the memory of the cores.
    pub fn has_followed(&self, at: Duration) -> bool {
        self.followed_ms.load(Ordering::Acquire) > ms_of(at)
    }

    /// Records that every link of the fleet that was acknowledged before that instant is in Redis.
    pub fn confirm_delivered(&self, at: Duration) {
        self.delivered_ms.fetch_max(ms_of(at), Ordering::Release);
    }

    /// True if every link that was acknowledged before that instant is in Redis. A later answer of Redis can deny others.
    pub fn is_delivered(&self, asked: Duration) -> bool {
        self.delivered_ms.load(Ordering::Acquire) > ms_of(asked)
    }

    /// True if all other nodes have confirmed a delivery within that time, so that they are likely to do so again.
    pub fn confirms_within(&self, time: Duration) -> bool {
        is_fresh(self.delivered_ms.load(Ordering::Acquire), since_boot(), time)
    }

    /// Records that codes of expired links may get another link.
    pub fn set_recycling(&self) {
        self.recycles.store(true, Ordering::Release);
    }

    /// True if codes of expired links may get another link, so that a tombstone is not final.
    pub fn recycles(&self) -> bool {
        self.recycles.load(Ordering::Acquire)
    }

    /// True if the tombstone of a generated code in the store of this node proves that the code has no link. Where codes are
    /// recycled, a node that has not just read the streams may lack the next link. Call it before you read the store.
    pub fn trusts_tombstones(&self) -> bool {
        let now = since_boot();
        let has_followed = || is_fresh(self.followed_ms.load(Ordering::Acquire), now, FOLLOWED_KEPT);
        !self.recycles() || has_followed() && self.is_settled(now)
    }

    /// Records that all other nodes have passed every change that was in the streams at that instant.
    pub fn note_passed(&self, at: Duration) {
        self.passed_ms.fetch_max(ms_of(at), Ordering::Release);
    }

    /// True if all nodes, this one among them, have passed every change that was in the streams at that instant.
    pub fn have_all_passed(&self, at: Duration) -> bool {
        self.passed_ms.load(Ordering::Acquire) > ms_of(at) && self.has_followed(at)
    }

    /// Sets the instant whose changes all nodes must pass before codes are recycled; `None` if no codes wait.
    pub fn await_passing(&self, at: Option<Duration>) {
        self.awaited_ms.store(at.map_or(0, ms_of), Ordering::Release);
    }

    /// Returns the instant whose changes all nodes must pass before codes are recycled; `None` if no codes wait.
    pub fn awaited(&self) -> Option<Duration> {
        Some(self.awaited_ms.load(Ordering::Acquire)).filter(|at_ms| *at_ms > 0).map(Duration::from_millis)
    }

    /// True if Redis has answered a heartbeat that was sent after an instant since boot.
    pub fn has_heartbeat_since(&self, at: Duration) -> bool {
        self.heartbeat_ms.load(Ordering::Acquire) > ms_of(at)
    }

    /// Sets the thread to wake once questions wait.
    pub fn set_heartbeat_thread(&self, thread: Thread) {
        // Only the first start of the thread counts, and there is no other.
        let _ = self.heartbeat_thread.set(thread);
    }

    /// Replaces the number of questions of one thread that wait for confirmations of the other nodes: `before` by
    /// `now`. The first question of all threads wakes the heartbeat thread.
    pub fn count_doubts(&self, before: usize, now: usize) {
        if now < before {
            self.doubts.fetch_sub(before - now, Ordering::AcqRel);
        } else if now > before && self.doubts.fetch_add(now - before, Ordering::AcqRel) == 0 {
            self.wake_heartbeat();
        }
    }

    /// Has the heartbeat thread send a heartbeat now.
    pub fn wake_heartbeat(&self) {
        if let Some(thread) = self.heartbeat_thread.get() {
            thread.unpark();
        }
    }

    /// True if questions wait for confirmations of the other nodes.
    pub fn has_doubts(&self) -> bool {
        self.doubts.load(Ordering::Acquire) > 0
    }

    /// Returns the instant up to which all streams were followed. Read it before the code is looked up in memory.
    pub fn followed(&self) -> FollowedMark {
        FollowedMark(self.followed_ms.load(Ordering::Acquire))
    }

    /// Returns the form of a code.
    pub fn form(&self, code: &Code) -> CodeForm {
        CodeForm::of(code, &self.space)
    }

    /// Returns the first counter value that no node can have leased, for the length of a code; `None` if it is unknown.
    fn bound(&self, form: CodeForm, now: Duration) -> Option<u64> {
        let CodeForm::Counted(length, _) = form else { return None };
        let heartbeat_ms = self.heartbeat_ms.load(Ordering::Acquire);
        let mark = self.counter_marks[length.get()].load(Ordering::Relaxed);
        if !is_fresh(heartbeat_ms, now, MARK_KEPT) || !self.hears_other_site_at(now) {
            return None;
        }
        if !self.has_other_site {
            return Some(absence::bound(length, mark));
        }
        let other_mark = self.other_counter_marks[length.get()].load(Ordering::Relaxed);
        Some(absence::bound_of_sites(length, mark, other_mark))
    }

    /// True if a code that is not in memory is certainly on no node. `mark` was read before the look-up.
    pub fn is_absent(&self, code: &Code, mark: FollowedMark) -> bool {
        // Before `now` is read: once no code is marked, a look-up from the time of a mark is too old.
        if self.has_marked_codes() {
            return false;
        }
        let now = since_boot();
        if !is_fresh(mark.0, now, FOLLOWED_KEPT) || !self.is_settled(now) || !self.hears_other_site_at(now) {
            return false;
        }
        let form = self.form(code);
        let may_be_slug = || self.slugs.as_ref().is_some_and(|slugs| slugs.may_have(code));
        absence::is_absent(form, self.bound(form, now), true) && !may_be_slug()
    }

    /// True if a code is certainly on no node, after Redis has said that it has no link. `is_delivered` if Redis had,
    /// before it was asked, all links that were acknowledged before the question ([`FleetView::is_delivered`]).
    pub fn is_denied(&self, code: &Code, is_delivered: bool) -> bool {
        let (now, form) = (since_boot(), self.form(code));
        let is_settled = self.is_settled(now) && self.hears_other_site_at(now);
        // Nodes of the other site confirm nothing here.
        let is_delivered = is_delivered && !self.has_other_site;
        absence::is_denied(form, self.bound(form, now), is_settled, is_delivered)
    }

    /// True if Redis has lost nothing lately that another node may be about to bring back.
    fn is_settled(&self, now: Duration) -> bool {
        let hears = is_fresh(self.heartbeat_ms.load(Ordering::Acquire), now, MARK_KEPT);
        let is_disturbed = is_fresh(self.disturbed_ms.load(Ordering::Acquire), now, SETTLE_TIME);
        hears
            && !is_disturbed
            && !self.others_restore.load(Ordering::Relaxed)
            && !self.is_behind.load(Ordering::Acquire)
    }

    /// Returns true if a code has the form of a generated one that was never leased; `None` while the highest counter
    /// value is unknown.
    pub fn is_never_leased(&self, code: &Code) -> Option<bool> {
        let form = self.form(code);
        let CodeForm::Counted(..) = form else { return Some(false) };
        self.bound(form, since_boot()).map(|bound| absence::is_never_generated(form, Some(bound)))
    }

    /// True if a node may have generated the code.
    pub fn may_be_generated(&self, code: &Code) -> bool {
        let form = self.form(code);
        !absence::is_never_generated(form, self.bound(form, since_boot()))
    }
}

/// The instant up to which all streams were followed when it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FollowedMark(u64);

/// A marker that the follower sends through the writer to all cores, after the changes that it has read from the
/// streams. Once all cores have passed it, these changes are in their memory.
#[derive(Debug)]
pub struct FollowFence {
    view: Arc<FleetView>,
    /// The instant at which the streams were read.
    at: Duration,
    /// Number of cores that have not passed the fence.
    remaining_cores: AtomicUsize,
    is_refused: AtomicBool,
}

impl FollowFence {
    /// Returns a fence behind a reading that began at `at`, for that number of mailboxes.
    pub fn new(view: Arc<FleetView>, at: Duration, mailboxes: usize) -> FollowFence {
        assert!(mailboxes > 0, "no core would pass the fence");
        FollowFence { view, at, remaining_cores: AtomicUsize::new(mailboxes), is_refused: AtomicBool::new(false) }
    }

    /// Records that a core has passed the fence.
    pub fn pass(&self) {
        let remaining_cores = self.remaining_cores.fetch_sub(1, Ordering::AcqRel);
        assert!(remaining_cores > 0, "a core passes the fence twice, so another has not passed it");
        if remaining_cores == 1 {
            self.view.note_followed(self.at);
        }
    }

    /// Records that the writer has left out a change before it, so it will never pass.
    pub fn refuse(&self) {
        self.is_refused.store(true, Ordering::Release);
    }

    /// True if the writer has refused the fence.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }

    /// True if all cores have passed the fence.
    pub fn is_passed(&self) -> bool {
        self.remaining_cores.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_shards::{CodeSecret, CounterValue};

    const LENGTH: CodeLength = CodeLength::DEFAULT;

    fn view() -> FleetView {
        FleetView::new(CodeSpace::new(&CodeSecret::from_bytes([7; 32])))
    }

    fn generated(view: &FleetView, value: u64) -> Code {
        view.space.code(LENGTH, CounterValue(value)).to_code()
    }

    #[test]
    fn a_guess_is_absent_while_counter_and_streams_are_fresh() {
        let view = view();
        let (issued, beyond) = (generated(&view, 500), generated(&view, LENGTH.codes() - 1));
        view.note_followed(since_boot());
        assert!(!view.is_absent(&beyond, view.followed()), "nothing is known of the counter");
        view.note_heartbeat([(LENGTH, 1_000)], false, since_boot());
        assert!(view.is_absent(&beyond, view.followed()));
        assert!(!view.is_absent(&issued, view.followed()), "another node may have it");
        assert!(!view.is_absent(&beyond, FollowedMark::default()), "the streams were not read when it was looked up");
        let slug = Code::parse(b"my-slug").unwrap();
        assert!(!view.is_absent(&slug, view.followed()), "only Redis can deny it");
    }

    #[test]
    fn tombstones_count_while_streams_are_followed() {
        let view = view();
        assert!(view.trusts_tombstones(), "codes are never recycled");
        view.set_recycling();
        view.note_heartbeat([], false, since_boot());
        assert!(!view.trusts_tombstones(), "the next link may be in the streams");
        view.note_followed(since_boot());
        assert!(view.trusts_tombstones());
        view.note_disturbance(since_boot());
        assert!(!view.trusts_tombstones(), "Redis may have lost the next link");
    }

    #[test]
    fn doubts_of_all_threads_count() {
        let view = view();
        view.count_doubts(0, 2);
        view.count_doubts(0, 1);
        view.count_doubts(2, 0);
        assert!(view.has_doubts(), "a question of the other thread waits");
        view.count_doubts(1, 0);
        assert!(!view.has_doubts());
    }

    #[test]
    fn this_node_passes_changes_as_well() {
        let view = view();
        let at = since_boot();
        let later = at + Duration::from_millis(5);
        view.note_passed(later);
        assert!(!view.have_all_passed(at), "this node has not read the streams");
        view.note_followed(later);
        assert!(view.have_all_passed(at));
        assert!(!view.have_all_passed(later));
        view.await_passing(Some(later));
        assert_eq!(view.awaited().map(ms_of), Some(ms_of(later)));
        view.await_passing(None);
        assert_eq!(view.awaited(), None);
    }

    #[test]
    fn marks_are_forgotten_once_cores_have_what_replaced_them() {
        let view = view();
        let guess = generated(&view, LENGTH.codes() - 1);
        let follow = || {
            view.note_heartbeat([(LENGTH, 1_000)], false, since_boot());
            view.note_followed(since_boot());
        };
        view.note_marked_code();
        follow();
        assert!(!view.is_absent(&guess, view.followed()), "a marked code has a link");
        view.forget_marked_codes(since_boot());
        assert!(view.has_marked_codes(), "a core may not have found a link that it has by now");
        let before = since_boot().saturating_sub(2 * FOLLOWED_KEPT);
        assert!(view.has_followed(before));
        assert!(!view.has_followed(since_boot() + FOLLOWED_KEPT));
        view.forget_marked_codes(before);
        follow();
        assert!(!view.has_marked_codes());
        assert!(view.is_absent(&guess, view.followed()));
    }

    #[test]
    fn redis_denies_what_nobody_creates_alone() {
        let view = view();
        let slug = Code::parse(b"my-slug").unwrap();
        let (issued, beyond) = (generated(&view, 500), generated(&view, LENGTH.codes() - 1));
        assert!(!view.is_denied(&slug, false), "nothing was heard of the other nodes");
        view.note_heartbeat([(LENGTH, 1_000)], false, since_boot());
        assert!(view.is_denied(&slug, false));
        assert!(view.is_denied(&beyond, false));
        assert!(!view.is_denied(&issued, false));
        view.note_heartbeat([(LENGTH, 1_000)], true, since_boot());
        assert!(!view.is_denied(&slug, false), "another node may have it, and compares");
        view.note_heartbeat([], false, since_boot());
        assert!(view.is_denied(&slug, false));
        view.note_disturbance(since_boot());
        assert!(!view.is_denied(&slug, false), "a new master may have lost it");
    }

    #[test]
    fn nothing_is_missing_on_a_node_that_is_behind() {
        let view = view();
        let (slug, guess) = (Code::parse(b"my-slug").unwrap(), generated(&view, LENGTH.codes() - 1));
        view.note_heartbeat([(LENGTH, 1_000)], false, since_boot());
        view.note_followed(since_boot());
        view.set_behind(true);
        assert!(view.is_behind());
        assert!(!view.is_denied(&slug, true), "the state may have expired in Redis");
        assert!(!view.is_absent(&guess, view.followed()));
        view.set_behind(false);
        assert!(view.is_denied(&slug, false));
        assert!(view.is_absent(&guess, view.followed()));
    }

    #[test]
    fn redis_denies_a_leased_code_once_all_confirmed() {
        let view = view();
        let (issued, asked) = (generated(&view, 500), since_boot());
        view.note_heartbeat([(LENGTH, 1_000)], false, asked);
        view.confirm_delivered(asked);
        assert!(!view.is_delivered(asked), "a link may have been acknowledged in the same millisecond");
        view.confirm_delivered(asked + Duration::from_millis(1));
        assert!(view.is_delivered(asked));
        assert!(view.confirms_within(Duration::from_secs(60)));
        assert!(view.is_denied(&issued, true));
        assert!(!view.is_denied(&issued, false));
        view.note_disturbance(since_boot());
        assert!(!view.is_denied(&issued, true), "a new master may have lost it");
    }

    #[test]
    fn nothing_is_missing_while_the_other_site_is_silent() {
        let view = view().with_other_site(true);
        let (slug, guess) = (Code::parse(b"my-slug").unwrap(), generated(&view, LENGTH.codes() - 1));
        let (early, late) = (generated(&view, 500), generated(&view, 600 << 20));
        view.note_heartbeat([(LENGTH, 1_000)], false, since_boot());
        view.note_followed(since_boot());
        assert!(!view.is_denied(&slug, true), "nothing was heard of it");
        assert!(!view.is_absent(&guess, view.followed()), "nothing was heard of it");
        view.note_other_site([(LENGTH, 1_000)], since_boot().saturating_sub(MARK_KEPT));
        assert!(!view.hears_other_site(), "that is too long ago");
        assert!(!view.is_denied(&slug, true), "that is too long ago");
        view.note_other_site([(LENGTH, 1_000)], since_boot());
        view.note_followed(since_boot());
        assert!(view.hears_other_site());
        assert!(view.is_denied(&slug, false));
        assert!(view.is_absent(&guess, view.followed()));
        assert!(view.is_absent(&late, view.followed()));
        view.note_other_site([(LENGTH, 300 << 20)], since_boot());
        assert!(!view.is_absent(&late, view.followed()), "a node of that site may have it");
        assert!(!view.is_denied(&early, true), "nodes of that site confirm nothing here");
    }

    #[test]
    fn a_fence_counts_once_all_cores_have_passed() {
        let view = Arc::new(view());
        let fence = FollowFence::new(Arc::clone(&view), Duration::from_millis(77), 2);
        fence.pass();
        assert!(!fence.is_passed());
        assert_eq!(view.followed(), FollowedMark(0));
        fence.pass();
        assert!(fence.is_passed());
        assert!(!fence.is_refused());
        assert_eq!(view.followed(), FollowedMark(77));
        let later = FollowFence::new(Arc::clone(&view), Duration::from_millis(99), 2);
        later.refuse();
        assert!(later.is_refused());
        assert!(!later.is_passed());
        assert_eq!(view.followed(), FollowedMark(77));
    }
}
