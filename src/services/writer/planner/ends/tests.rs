//! Tests of ends and of the reuse of codes, against a model of the store.

use super::*;
use crate::bridge::{
    ChangeAnswer, CreateAnswer, DeleteAnswer, FleetDecision, StoreRequest, StreamBatch, StreamChange, Ticket,
    WriterOrder,
};
use crate::services::testing::TestAnswer;
use crate::services::writer::planner::Writes;
use carom_model::access::Scope;
use carom_model::link::Reuse;
use carom_model::link::patch::Patch;
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::outbox::Outbox;
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{EntryId, Partition};
use carom_model::testing::link;
use carom_shards::{CoreId, Policy};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

const NOW: u64 = 1_700_000_000_000;

/// A model of the store and its index of ends.
#[derive(Clone, PartialEq, Debug)]
struct StoreModel {
    states: HashMap<Code, State>,
    ends: BTreeSet<DueEvent>,
    quarantined: BTreeSet<DueEvent>,
    deletions: BTreeSet<DueEvent>,
    now_ms: u64,
}

impl Default for StoreModel {
    fn default() -> StoreModel {
        let (states, ends, quarantined, deletions) = Default::default();
        StoreModel { states, ends, quarantined, deletions, now_ms: NOW }
    }
}

impl StoreModel {
    /// Makes one commit. Returns the report for the expiry thread, the answers, and the codes that owners must
    /// forget.
    fn commit(&mut self, orders: Vec<WriterOrder>) -> (Option<RemovalResult>, Vec<TestAnswer>, Vec<Code>) {
        let mut outbox = Outbox::default();
        let mut plan = CommitPlanner::new(&mut outbox, self.now_ms);
        for order in orders {
            plan.add(order, |code| self.states.get(code).cloned().map_or(CodeState::Absent, CodeState::Held));
        }
        let removal = plan.take_removal();
        let (Writes { states, ends, .. }, effects) = plan.finish();
        for (code, state) in states {
            match state {
                Some(state) => _ = self.states.insert(code, state),
                None => _ = self.states.remove(&code),
            }
        }
        let written: HashSet<(u8, DueEvent)> = ends.iter().map(|(of, due, _)| (*of as u8, *due)).collect();
        assert_eq!(written.len(), ends.len(), "a batch takes one write for each entry: {ends:?}");
        for (of, due, is_there) in ends {
            let index = match of {
                EndKind::Link => &mut self.ends,
                EndKind::Quarantine => &mut self.quarantined,
                EndKind::Deletion => &mut self.deletions,
            };
            if is_there {
                index.insert(due)
            } else {
                index.remove(&due)
            };
        }
        let (mut answers, mut removed) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                CommitEffect::Apply { change, answer, .. } => {
                    answers.extend(answer.map(|reply| TestAnswer::with_token(&reply).1));
                    removed.extend(if let LinkChange::Remove(code) = change { Some(code) } else { None });
                }
                CommitEffect::Answer(reply) => answers.push(TestAnswer::with_token(&reply).1),
            }
        }
        (removal, answers, removed)
    }

    fn put(&mut self, link: Link) {
        self.ends.extend(link.expiry());
        self.states.insert(link.code, State::Link(Arc::new(link)));
    }

    /// Checks that the index has exactly the entries of the links and of the quarantine.
    fn check(&self) {
        let end = |state: &State| if let State::Link(link) = state { link.expiry() } else { None };
        assert_eq!(self.ends, self.states.values().filter_map(end).collect());
        let deletion = |state: &State| if let State::Link(link) = state { link.deletion() } else { None };
        assert_eq!(self.deletions, self.states.values().filter_map(deletion).collect());
        for entry in &self.quarantined {
            let Some(State::Gone(gone)) = self.states.get(&entry.code) else { panic!("{entry:?} is empty") };
            assert_eq!((gone.deleted_ms, gone.origin), (entry.at_ms, Origin::Issued));
        }
    }
}

fn ticket<A>() -> Ticket<A> {
    Ticket::new(CoreId(0), 1)
}

fn code(text: &str) -> Code {
    Code::parse(text.as_bytes()).unwrap()
}

fn due(at_ms: u64, text: &str) -> DueEvent {
    DueEvent { at_ms, code: code(text) }
}

fn ending(text: &str, origin: Origin, end_ms: u64) -> Link {
    Link { policy: Policy { valid_until_ms: Some(end_ms), ..Policy::default() }, ..link(text, origin) }
}

fn expire(ends: &[DueEvent], until_ms: u64) -> WriterOrder {
    WriterOrder::Expire { ends: ends.to_vec(), until_ms, recycles: true }
}

fn release_codes(quarantined: &[DueEvent], until_ms: u64) -> WriterOrder {
    WriterOrder::ReleaseCodes { quarantined: quarantined.to_vec(), until_ms }
}

fn extend(text: &str, end_ms: Option<u64>) -> WriterOrder {
    let patch = Box::new(Patch { valid_until_ms: Some(end_ms), ..Patch::default() });
    WriterOrder::Client(
        StoreRequest::Change { code: code(text), patch, by: Scope::ALL, author: Author::default(), ticket: ticket() },
        FleetDecision::Alone,
    )
}

fn delete(text: &str) -> WriterOrder {
    WriterOrder::Client(
        StoreRequest::Delete { code: code(text), by: Scope::ALL, author: Author::default(), ticket: ticket() },
        FleetDecision::Alone,
    )
}

fn create(link: Link) -> WriterOrder {
    let request = StoreRequest::Create { link: Arc::new(link), reuse: Reuse::Never, ticket: ticket() };
    WriterOrder::Client(request, FleetDecision::Alone)
}

fn change(text: &str, patch: Patch) -> WriterOrder {
    let (code, patch, author) = (code(text), Box::new(patch), Author::default());
    WriterOrder::Client(
        StoreRequest::Change { code, patch, by: Scope::ALL, author, ticket: ticket() },
        FleetDecision::Alone,
    )
}

fn schedule(text: &str, at_ms: u64) -> WriterOrder {
    change(text, Patch { archived: Some(true), delete_at_ms: Some(at_ms), ..Patch::default() })
}

fn delete_scheduled(deletions: &[DueEvent], until_ms: u64) -> WriterOrder {
    let deletions = deletions.iter().map(|due| (*due, Author::default())).collect();
    WriterOrder::DeleteScheduled { deletions, until_ms }
}

#[test]
fn a_scheduled_deletion_is_carried_out_unless_it_is_called_off() {
    let mut model = StoreModel::default();
    for text in ["issued1", "slug", "back", "noted", "again"] {
        model.put(link(text, if text == "issued1" { Origin::Issued } else { Origin::Custom }));
    }
    model.commit(["issued1", "slug", "back", "noted", "again"].map(|text| schedule(text, 100)).into());
    model.check();
    assert_eq!(model.deletions.len(), 5);
    let title = Patch { title: Some(Some("T".to_owned())), ..Patch::default() };
    let archived = |archived| Patch { archived: Some(archived), ..Patch::default() };
    model.commit(vec![change("back", archived(false)), change("noted", title), schedule("again", 300)]);
    model.check();
    let due: Vec<DueEvent> = ["issued1", "slug", "back", "noted", "again"].map(|text| due(100, text)).into();
    // Before its time, nothing is deleted.
    let (removal, ..) = model.commit(vec![delete_scheduled(&due, 99)]);
    assert_eq!((removal.unwrap().is_done, model.deletions.len()), (true, 4));
    let (removal, _, mut removed) = model.commit(vec![delete_scheduled(&due, 100)]);
    removed.sort();
    let mut expected = ["issued1", "slug", "noted"].map(code);
    expected.sort();
    assert_eq!((removal.unwrap().expired, removed), (0, expected.to_vec()));
    assert!(model.states[&code("issued1")].is_tombstone(), "its code is given to nobody");
    assert!(model.quarantined.is_empty(), "its code is given to nobody");
    assert!(model.states[&code("back")].is_link());
    assert!(model.states[&code("again")].is_link());
    model.check();
    // The deletion is cancelled, or scheduled again for the same instant, in the commit that would have carried it
    // out.
    let later = DueEvent { at_ms: 300, code: code("again") };
    model.commit(vec![change("again", archived(true)), delete_scheduled(&[later], 300)]);
    assert!(model.states[&code("again")].is_link());
    assert!(model.deletions.is_empty());
    model.commit(vec![schedule("again", 300), change("again", archived(true)), schedule("again", 300)]);
    model.check();
    let (.., removed) = model.commit(vec![delete_scheduled(&[later], 300), create(link("again", Origin::Custom))]);
    assert_eq!(removed, [code("again")]);
    assert!(model.states[&code("again")].is_link(), "another link has the slug");
    assert!(model.deletions.is_empty(), "another link has the slug");
    model.check();
}

#[test]
fn what_is_over_goes_and_nothing_else_does() {
    let mut model = StoreModel::default();
    model.put(ending("issued1", Origin::Issued, 100));
    model.put(ending("slug", Origin::Custom, 100));
    model.put(ending("abcdefghijklmnop", Origin::Issued, 100));
    model.put(ending("later11", Origin::Issued, 101));
    model.put(ending("moved11", Origin::Issued, 5_000));
    model.put(link("endless", Origin::Issued));
    let ends = ["issued1", "slug", "abcdefghijklmnop", "moved11", "endless", "nobody1"].map(|text| due(100, text));
    let ends = [&ends[..], &[due(101, "later11")]].concat();
    model.ends.extend(&ends);
    let (removal, _, mut removed) = model.commit(vec![expire(&ends, 100)]);
    assert_eq!(removal, Some(RemovalResult { is_done: true, expired: 3, codes: vec![] }));
    removed.sort();
    let mut expected = ["issued1", "slug", "abcdefghijklmnop"].map(code);
    expected.sort();
    assert_eq!(removed, expected);
    let at = |text: &str| model.states.get(&code(text));
    assert!(at("issued1").is_some_and(State::is_tombstone));
    assert!(at("abcdefghijklmnop").is_some_and(State::is_tombstone));
    assert_eq!(at("slug"), None, "anybody may choose it");
    assert!(["later11", "moved11", "endless"].iter().all(|text| at(text).is_some_and(State::is_link)));
    assert_eq!(model.quarantined, BTreeSet::from([due(NOW, "issued1")]), "a private code is nobody else's");
    // Entries that do not match their links are gone.
    model.check();
}

#[test]
fn whatever_comes_first_in_a_commit_counts() {
    let start = |origin| {
        let mut model = StoreModel::default();
        model.put(ending("abcdefg", origin, 100));
        model
    };
    let (over, long) = (expire(&[due(100, "abcdefg")], 100), || extend("abcdefg", Some(9_000)));
    let again = || expire(&[due(100, "abcdefg")], 100);
    let mut model = start(Origin::Issued);
    let (removal, answers, _) = model.commit(vec![long(), over]);
    assert!(matches!(answers[..], [TestAnswer::Change(ChangeAnswer::Changed(_))]));
    assert_eq!(removal.unwrap().expired, 0, "its end was moved just before");
    model.check();
    assert_eq!(model.ends, BTreeSet::from([due(9_000, "abcdefg")]));
    // The end is moved and moved back in one commit: the link is due as before.
    let mut model = start(Origin::Issued);
    let (removal, ..) = model.commit(vec![long(), again(), extend("abcdefg", Some(100))]);
    assert_eq!((removal.unwrap().expired, model.ends.len()), (0, 1));
    model.check();
    let mut model = start(Origin::Issued);
    let (removal, answers, _) = model.commit(vec![again(), long()]);
    assert_eq!((removal.unwrap().expired, &answers[..]), (1, &[ChangeAnswer::NotFound.into()][..]));
    model.check();
    // A code whose link a person deleted has no quarantine entry: it is never reused.
    let mut model = start(Origin::Issued);
    let (removal, ..) = model.commit(vec![delete("abcdefg"), again()]);
    assert_eq!((removal.unwrap().expired, model.quarantined.len()), (0, 0));
    model.check();
    // A slug expires and is taken again in the same commit, with the same end or another one.
    for end_ms in [100, 300] {
        let mut model = start(Origin::Custom);
        let next = Link { target: "https://example.org/next".to_owned(), ..ending("abcdefg", Origin::Custom, end_ms) };
        let (removal, answers, _) = model.commit(vec![again(), create(next.clone())]);
        assert_eq!((removal.unwrap().expired, &answers[..]), (1, &[CreateAnswer::Created.into()][..]));
        assert_eq!(model.states.get(&next.code), Some(&State::Link(Arc::new(next))));
        model.check();
    }
}

#[test]
fn a_code_is_given_again_after_its_time_and_only_if_it_lay_unused() {
    let mut model = StoreModel::default();
    for text in ["abcdefg", "expired"] {
        model.put(ending(text, Origin::Issued, 100));
    }
    model.put(link("deleted", Origin::Issued));
    model.commit(vec![expire(&[due(100, "abcdefg")], 100)]);
    model.now_ms += 1;
    model.commit(vec![expire(&[due(100, "expired")], 100), delete("deleted")]);
    let taken = |model: &mut StoreModel| model.commit(vec![create(link("abcdefg", Origin::Issued))]).1;
    assert_eq!(taken(&mut model), [CreateAnswer::Taken], "it is buried");
    let quarantined = [due(NOW, "abcdefg"), due(NOW + 1, "expired"), due(NOW + 1, "deleted")];
    model.quarantined.insert(quarantined[2]);
    let (removal, ..) = model.commit(vec![release_codes(&quarantined[..2], NOW - 1)]);
    assert_eq!(removal.unwrap().codes, [], "not yet");
    let mut outbox = Outbox::default();
    let mut plan = CommitPlanner::new(&mut outbox, NOW);
    plan.add(release_codes(&quarantined[..2], NOW), |code| CodeState::Held(model.states[code].clone()));
    assert!(plan.needs_sync(), "it must be durable before anybody uses the code");
    let (removal, ..) = model.commit(vec![release_codes(&quarantined[..2], NOW)]);
    assert_eq!(removal.unwrap().codes, [code("abcdefg")]);
    assert_eq!((model.states.get(&code("abcdefg")), model.quarantined.len()), (None, 2));
    assert_eq!(taken(&mut model), [CreateAnswer::Created]);
    // The same quarantine entry appears again, as after a power failure, and the code has a link by now.
    for _ in 0..2 {
        model.quarantined.insert(quarantined[0]);
        let (removal, ..) = model.commit(vec![release_codes(&quarantined[..1], u64::MAX)]);
        assert_eq!(removal.unwrap().codes, []);
        assert!(!model.quarantined.contains(&quarantined[0]));
        // Then one whose link a person has deleted.
        model.now_ms += 1;
        model.commit(vec![delete("abcdefg")]);
    }
}

/// Follows these states of a code in one commit. Returns the writes of quarantine entries.
fn follow(stored: &State, states: &[&State], keep_ms: Option<u64>) -> Vec<(DueEvent, bool)> {
    let to = StreamPosition { id: EntryId { ms: 1, seq: 9 }, check: 0 };
    let code = code("abcdefg");
    let told = |state: &State| StreamChange { code, state: ReceivedState::Known(state.clone()), displaced: None };
    let entries = states.iter().map(|state| (to, Some(told(state)))).collect();
    let batch = StreamBatch { partition: Partition::of(&code), entries, is_newer: false, to };
    let mut outbox = Outbox::default();
    let mut plan = CommitPlanner::new(&mut outbox, NOW).with_recycling(keep_ms);
    plan.add(WriterOrder::Followed(batch), |_| CodeState::Held(stored.clone()));
    let writes = plan.finish().0.ends.into_iter().filter(|(of, ..)| *of == EndKind::Quarantine);
    writes.map(|(_, entry, is_there)| (entry, is_there)).collect()
}

#[test]
fn nodes_of_a_fleet_note_codes_until_their_release() {
    let link = State::Link(Arc::new(ending("abcdefg", Origin::Issued, 100)));
    let gone = link.deleted(NOW);
    let released = gone.released(7).unwrap();
    let entry = due(NOW, "abcdefg");
    let keep_ms = Some(50);
    assert_eq!(follow(&link, &[&gone], keep_ms), [(entry, true)]);
    assert_eq!(follow(&link, &[&gone], None), [], "codes are never recycled");
    assert_eq!(follow(&link, &[&link.deleted(149)], keep_ms), [], "a person deleted it while it was kept");
    let late_ms = ending("abcdefg", Origin::Issued, 100).deletion_ms(NOW, keep_ms);
    assert_eq!(follow(&link, &[&link.deleted(late_ms)], keep_ms), [], "or before the expiry thread came to it");
    assert_eq!(follow(&gone, &[&released], keep_ms), [(entry, false)]);
    assert_eq!(follow(&link, &[&gone, &released], keep_ms), [(entry, false)]);
    let slug = State::Link(Arc::new(ending("abcdefg", Origin::Custom, 100)));
    assert_eq!(follow(&slug, &[&slug.deleted(NOW)], keep_ms), []);
}

proptest! {
    /// Checks, for any orders in any groups, that the index matches the links. No link is removed before its end,
    /// and no code is freed that has a link or whose link a person deleted.
    #[test]
    fn the_index_is_what_the_links_are(
        steps in proptest::collection::vec((0usize..7, 0usize..4, 0u64..6, any::<bool>()), 1..60),
        split in 1usize..8,
    ) {
        const CODES: [&str; 4] = ["aaaaaaa", "bbbbbbb", "ccccccc", "ddddddd"];
        let mut model = StoreModel::default();
        let mut deleted = HashSet::new();
        for chunk in steps.chunks(split) {
            model.now_ms += 1;
            let before = model.clone();
            let orders: Vec<WriterOrder> = chunk.iter().map(|&(kind, at, end, custom)| {
                let (text, end_ms) = (CODES[at], model.now_ms - 3 + end);
                let origin = if custom { Origin::Custom } else { Origin::Issued };
                match kind {
                    0 | 1 => create(ending(text, origin, end_ms)),
                    2 => extend(text, (end > 0).then_some(end_ms)),
                    3 => delete(text),
                    4 | 5 => expire(&model.ends.iter().copied().collect::<Vec<_>>(), model.now_ms),
                    _ => release_codes(&model.quarantined.iter().copied().collect::<Vec<_>>(), model.now_ms - 2),
                }
            }).collect();
            let is_alone = chunk.len() == 1;
            let (removal, answers, removed) = model.commit(orders);
            model.check();
            if is_alone
                && let (3, at, ..) = chunk[0]
                && answers == [DeleteAnswer::Deleted]
                && before.states[&code(CODES[at])].origin() == Origin::Issued
            {
                deleted.insert(code(CODES[at]));
            }
            for code in removal.iter().flat_map(|removal| &removal.codes) {
                assert!(before.states.get(code).is_some_and(State::is_tombstone), "{code} was not unused");
                assert!(!deleted.contains(code), "{code} was deleted by a person");
            }
            if is_alone && removal.is_some() {
                for code in removed {
                    let Some(State::Link(link)) = before.states.get(&code) else { panic!("{code} was no link") };
                    assert!(link.is_expired(before.now_ms), "{link:?} was removed before its end");
                }
            }
        }
    }
}

/// Time for which a code of the model stays unused, in milliseconds.
const AFTER_MS: u64 = 5;

/// A model of a node that reuses codes, and of what each kind of crash takes from it.
#[derive(Default, Debug)]
struct Recycling {
    model: StoreModel,
    /// The synced part of the store.
    synced: StoreModel,
    /// Codes that only the expiry thread knows.
    gathered: Vec<Code>,
    /// The id table: rows with their cursors.
    rows: Vec<(Vec<Code>, usize)>,
    /// An earlier state of the id table: its library promises nothing after a power failure.
    older_rows: Vec<(Vec<Code>, usize)>,
    /// The codes in the queue of the core.
    queue: Vec<Code>,
    /// Acknowledged links without an end; codes whose link a person deleted; and the time when each expired link
    /// was removed.
    lasting: BTreeSet<Code>,
    deleted: HashSet<Code>,
    removed: HashMap<Code, u64>,
    again: usize,
}

impl Recycling {
    fn new() -> Recycling {
        let codes: Vec<Code> = (0..8).map(|number| code(&format!("code{number:03}"))).collect();
        let rows = vec![(codes, 0)];
        Recycling { older_rows: rows.clone(), rows, ..Recycling::default() }
    }

    /// Makes one commit, and syncs it if its result is told to anybody.
    fn commit(&mut self, order: WriterOrder, told: bool) -> (Option<RemovalResult>, Vec<TestAnswer>, Vec<Code>) {
        let done = self.model.commit(vec![order]);
        if told {
            self.synced = self.model.clone();
        }
        done
    }

    fn step(&mut self, step: usize, number: usize) {
        self.model.now_ms += 1;
        let now_ms = self.model.now_ms;
        match step {
            0..=3 => self.create(step.is_multiple_of(2)),
            4 => {
                let ends: Vec<DueEvent> = self.model.ends.iter().copied().collect();
                let (_, _, removed) = self.commit(expire(&ends, now_ms), false);
                self.removed.extend(removed.into_iter().map(|code| (code, now_ms)));
            }
            5 | 6 => {
                let quarantined: Vec<DueEvent> = self.model.quarantined.iter().copied().collect();
                let (removal, ..) = self.commit(release_codes(&quarantined, now_ms - AFTER_MS), true);
                self.gathered.extend(removal.unwrap().codes);
            }
            7 if !self.gathered.is_empty() => {
                self.older_rows = self.rows.clone();
                self.rows.push((std::mem::take(&mut self.gathered), 0));
            }
            8 | 9 => {
                // The cursor is on disk ahead of the codes.
                if let Some((codes, cursor)) = self.rows.iter_mut().find(|(codes, cursor)| *cursor < codes.len()) {
                    let end = (*cursor + 2).min(codes.len());
                    self.queue.extend(&codes[*cursor..end]);
                    *cursor = end;
                }
            }
            10 => {
                let Some(&code) = self.lasting.iter().cycle().nth(number) else { return };
                let (_, answers, _) = self.commit(delete(&code.to_string()), true);
                assert_eq!(answers, [DeleteAnswer::Deleted]);
                self.lasting.remove(&code);
                self.deleted.insert(code);
            }
            // A kill loses the memory. A power failure loses unsynced data too, and may set the table back.
            11 | 12 => {
                (self.gathered, self.queue) = (Vec::new(), Vec::new());
                if step == 12 {
                    self.model = StoreModel { now_ms, ..self.synced.clone() };
                    self.rows = self.older_rows.clone();
                }
            }
            _ => {}
        }
        self.model.check();
    }

    /// Creates a link with the core's next code: one that expires at once, or one without an end.
    fn create(&mut self, ends: bool) {
        let (now_ms, Some(code)) = (self.model.now_ms, self.queue.pop()) else { return };
        let end_ms = if ends { now_ms } else { u64::MAX >> 16 };
        let (_, answers, _) = self.commit(create(ending(&code.to_string(), Origin::Issued, end_ms)), true);
        if answers == [CreateAnswer::Taken] {
            return;
        }
        assert_eq!(answers, [CreateAnswer::Created]);
        assert!(!self.lasting.contains(&code), "{code} has a link");
        assert!(!self.deleted.contains(&code), "{code} was deleted by a person");
        if let Some(removed_ms) = self.removed.get(&code) {
            assert!(removed_ms + AFTER_MS <= now_ms, "{code} was removed a moment ago");
            self.again += 1;
        }
        if !ends {
            self.lasting.insert(code);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// Checks the reuse of codes with a kill or a power failure at any step. No code may get two links, be reused
    /// before its time, or be reused after a person has deleted its link.
    #[test]
    fn a_crash_anywhere_gives_no_code_twice(steps in proptest::collection::vec((0usize..13, 0usize..7), 1..200)) {
        let mut node = Recycling::new();
        for (step, number) in steps {
            node.step(step, number);
            for code in &node.lasting {
                prop_assert!(node.model.states.get(code).is_some_and(State::is_link), "{code} is lost");
            }
        }
    }
}

#[test]
fn codes_come_back_in_the_model() {
    let mut node = Recycling::new();
    for step in 0..2_000 {
        node.step([8, 0, 2, 4, 5, 7, 9][step % 7], step);
    }
    assert!(node.again > 100, "{}", node.again);
}
