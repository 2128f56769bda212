//! Answers a create with an existing link.

use std::cmp::Reverse;
use std::sync::Arc;

use carom_shards::Code;

use super::writes::entry_of;
use super::{CodeState, CommitEffect, CommitPlanner, LookedUpCode};
use crate::bridge::{CreateAnswer, FleetDecision, LinkChange, Ticket, WriterAnswer};
use crate::services::writer::similar_urls::{ReuseCandidates, ReuseQuery};
use carom_limits::ALIKE_LOOKED_AT;
use carom_model::link::{Link, Origin, Reuse, UrlEntry, UrlKey};
use carom_model::replication::State;
use carom_store::links::UrlUse;

impl CommitPlanner<'_> {
    /// Answers a create with an existing link, if one exists that the request allows. Returns true if it did.
    pub(super) fn answer_existing(
        &mut self,
        query: ReuseQuery<'_>,
        ticket: Ticket<CreateAnswer>,
        decision: &FleetDecision,
        look_up: impl Fn(&Code) -> CodeState,
        similar: impl Fn(UrlKey, ReuseCandidates) -> Vec<UrlUse>,
    ) -> bool {
        let ReuseQuery { link, reuse } = query;
        let existing = match decision {
            FleetDecision::Existing { code, found, .. } => {
                if let Some(state) = found {
                    let before = self.current_state(code, &look_up);
                    self.handle_held(*code, state.clone(), &before);
                }
                self.live_match(code, query, &look_up)
            }
            // An earlier request has created exactly this link.
            FleetDecision::Held(state) if matches!(reuse, Reuse::OfSlug(_)) => {
                let before = self.current_state(&link.code, &look_up);
                self.handle_held(link.code, state.clone(), &before);
                self.live_match(&link.code, query, &look_up)
            }
            FleetDecision::Alone => self.find_similar(query, &look_up, similar),
            _ => None,
        };
        let Some(existing) = existing else { return false };
        // A create without a window does not renew the window of a link.
        if self.window_ms.is_some() && reuse == Reuse::Recent {
            self.used.insert(existing.code);
        }
        debug_assert!(
            query.is_answered_by(&State::Link(Arc::clone(&existing)), self.now_ms),
            "another link would answer"
        );
        self.confirms_existing = true;
        let spare = match decision {
            FleetDecision::Existing { spare, .. } => *spare,
            _ => true,
        };
        // Only generated codes go to other links.
        let spare = spare && link.origin == Origin::Issued;
        // The answer goes through the owner, which may not have the link yet.
        let change = LinkChange::Put(Arc::clone(&existing));
        let answer = Some(CreateAnswer::Existing { link: Arc::clone(&existing), spare }.to(ticket));
        self.effects.push(CommitEffect::Apply { code: existing.code, change, answer });
        true
    }

    /// Finds an existing link for a create, on a single node.
    fn find_similar(
        &mut self,
        query: ReuseQuery<'_>,
        look_up: impl Fn(&Code) -> CodeState,
        similar: impl Fn(UrlKey, ReuseCandidates) -> Vec<UrlUse>,
    ) -> Option<Arc<Link>> {
        let ReuseQuery { link, reuse } = query;
        let which = match (reuse, self.window_ms) {
            (Reuse::OfSlug(_), _) => return self.live_match(&link.code, query, look_up),
            (Reuse::Any(_), _) => ReuseCandidates::All,
            (Reuse::Recent, Some(window_ms)) if link.origin == Origin::Issued => {
                ReuseCandidates::UsedSince(self.now_ms.saturating_sub(window_ms).saturating_add(1))
            }
            (Reuse::Never | Reuse::Recent, _) => return None,
        };
        let key = link.url_key();
        let mut found: Vec<UrlEntry> = similar(key, which).into_iter().map(|(entry, _)| entry).collect();
        // As many as the index would return: a commit may put thousands of links of one destination.
        let puts = self.puts.get(&key.destination()).map(Vec::as_slice).unwrap_or_default().iter().rev();
        found.extend(puts.clone().filter(|put| put.key == key).take(ALIKE_LOOKED_AT));
        found.extend(puts.filter(|put| put.key != key && which.covers(key, put.key)).take(ALIKE_LOOKED_AT));
        found.sort_unstable_by_key(|entry| Reverse((entry.created_ms, entry.code)));
        let admitted = |found: &Arc<Link>| which.admits(found.origin);
        found.into_iter().find_map(|entry| self.live_match(&entry.code, query, &look_up).filter(admitted))
    }

    /// Returns the link of a code, if it may answer the create and has not expired.
    fn live_match(
        &mut self,
        code: &Code,
        query: ReuseQuery<'_>,
        look_up: impl FnOnce(&Code) -> CodeState,
    ) -> Option<Arc<Link>> {
        match self.current_state(code, look_up) {
            CodeState::Held(state) if query.is_answered_by(&state, self.now_ms) => match state {
                State::Link(found) => Some(found),
                State::Gone(_) => None,
            },
            _ => None,
        }
    }

    /// Returns the changes to the index of destinations: each entry, with the time of its last use or `None` to remove it.
    pub(super) fn url_writes(&self) -> Vec<(UrlEntry, Option<u64>)> {
        let mut writes = Vec::new();
        for (code, LookedUpCode { before, after, entry, must_write, .. }) in &self.codes {
            let is_used = self.used.contains(code);
            if !must_write && !is_used {
                continue;
            }
            let (old, new) = (entry_of(before), if *must_write { *entry } else { entry_of(after) });
            writes.extend(old.filter(|_| old != new).map(|old| (old, None)));
            if let Some(new) = new.filter(|_| old != new || is_used) {
                // Creating a link uses it. The creation may be long past if another node created the link.
                let made_ms = new.created_ms.min(self.now_ms);
                writes.push((new, Some(if is_used { self.now_ms } else { made_ms })));
            }
        }
        writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::{DeleteAnswer, StoreRequest, WriterOrder};
    use crate::services::testing::TestAnswer;
    use carom_model::access::Scope;
    use carom_model::link::history::Author;
    use carom_model::link::{Criteria, Criterion, Version};
    use carom_model::replication::outbox::Outbox;
    use carom_model::testing::link;
    use carom_shards::{CoreId, Policy};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap};
    use std::num::NonZeroU32;

    const WINDOW: u64 = 2_000;

    /// A create that names no property.
    const ANY: Reuse = Reuse::Any(Criteria::NONE);

    /// A create that names a slug and no property.
    const OF_SLUG: Reuse = Reuse::OfSlug(Criteria::NONE);

    /// A model of the store and its index of destinations.
    #[derive(Clone, PartialEq, Default, Debug)]
    struct StoreModel {
        states: HashMap<Code, State>,
        urls: BTreeMap<UrlEntry, u64>,
        now_ms: u64,
    }

    type Answers = Vec<(u64, TestAnswer)>;

    impl StoreModel {
        fn commit(&mut self, outbox: &mut Outbox, orders: Vec<WriterOrder>) -> (Answers, bool) {
            let mut plan = CommitPlanner::new(outbox, self.now_ms).with_window(Some(WINDOW));
            for order in orders {
                let look_up = |code: &Code| self.states.get(code).cloned().map_or(CodeState::Absent, CodeState::Held);
                plan.decide(order, look_up, |key, which| self.similar(key, which));
            }
            let confirms_existing = plan.confirms_existing();
            let (writes, effects) = plan.finish();
            for (code, state) in writes.states {
                match state {
                    Some(state) => _ = self.states.insert(code, state),
                    None => _ = self.states.remove(&code),
                }
            }
            for (entry, used_ms) in writes.urls {
                match used_ms {
                    Some(used_ms) => _ = self.urls.insert(entry, used_ms),
                    None => _ = self.urls.remove(&entry).expect("what is removed was there"),
                }
            }
            let answers = effects.iter().filter_map(CommitEffect::answer);
            (answers.map(TestAnswer::with_token).collect(), confirms_existing)
        }

        fn similar(&self, key: UrlKey, which: ReuseCandidates) -> Vec<UrlUse> {
            let covered = self.urls.iter().filter(|(entry, _)| which.covers(key, entry.key));
            let mut uses: Vec<UrlUse> = covered.map(|(entry, used)| (*entry, *used)).collect();
            if let ReuseCandidates::UsedSince(since) = which {
                uses.retain(|(_, used)| *used >= since);
            }
            uses.sort_unstable_by_key(|(entry, _)| Reverse((entry.created_ms, entry.code)));
            uses
        }

        /// Makes a commit of one request and returns the answer.
        fn one(&mut self, order: WriterOrder) -> TestAnswer {
            self.commit(&mut Outbox::default(), vec![order]).0.remove(0).1
        }

        /// Creates a link. Returns the code of the answer, and true if it existed before.
        fn create(&mut self, code: &str, url: &str, reuse: Reuse) -> (String, bool) {
            let link = Link { created_ms: self.now_ms, ..wanted(code, url) };
            match self.one(create(link, reuse, FleetDecision::Alone, 1)) {
                TestAnswer::Create(CreateAnswer::Created) => (code.to_owned(), false),
                TestAnswer::Create(CreateAnswer::Existing { link, .. }) => (link.code.to_string(), true),
                other => panic!("{other:?}"),
            }
        }
    }

    fn wanted(code: &str, url: &str) -> Link {
        Link { target: url.to_owned(), ..link(code, Origin::Issued) }
    }

    fn create(link: Link, reuse: Reuse, decision: FleetDecision, token: u64) -> WriterOrder {
        let ticket = Ticket::new(CoreId(0), token);
        WriterOrder::Client(StoreRequest::Create { link: Arc::new(link), reuse, ticket }, decision)
    }

    fn delete(code: &str) -> WriterOrder {
        let code = Code::parse(code.as_bytes()).unwrap();
        WriterOrder::Client(
            StoreRequest::Delete {
                code,
                by: Scope::ALL,
                author: Author::default(),
                ticket: Ticket::new(CoreId(0), 99),
            },
            FleetDecision::Alone,
        )
    }

    fn model() -> StoreModel {
        StoreModel { now_ms: 1_700_000_000_500, ..StoreModel::default() }
    }

    fn was(code: &str) -> (String, bool) {
        (code.to_owned(), true)
    }

    fn new(code: &str) -> (String, bool) {
        (code.to_owned(), false)
    }

    #[test]
    fn each_use_restarts_the_window() {
        let mut model = model();
        assert_eq!(model.create("a", "http://x/", Reuse::Recent), new("a"));
        for code in ["b", "c", "d"] {
            model.now_ms += WINDOW - 1;
            assert_eq!(model.create(code, "http://x/", Reuse::Recent), was("a"));
        }
        model.now_ms += WINDOW;
        assert_eq!(model.create("e", "http://x/", Reuse::Recent), new("e"));
        model.now_ms += 1;
        assert_eq!(model.create("f", "http://x/", Reuse::Recent), was("e"));
        // Without a window: the newest link, and its last use stays as it was.
        assert_eq!(model.create("g", "http://x/", ANY), was("e"));
        model.now_ms += WINDOW;
        assert_eq!(model.create("h", "http://x/", Reuse::Recent), new("h"));
        assert_eq!(model.create("i", "http://x/", Reuse::Never), new("i"));
        assert_eq!(model.create("j", "http://y/", ANY), new("j"));
    }

    #[test]
    fn equal_requests_of_one_commit_get_one_code() {
        for reuse in [Reuse::Recent, ANY] {
            let mut model = model();
            let orders = ["a", "b", "c"].iter().zip(0..);
            let orders =
                orders.map(|(code, token)| create(wanted(code, "http://x/"), reuse, FleetDecision::Alone, token));
            let (answers, confirms_existing) = model.commit(&mut Outbox::default(), orders.collect());
            assert_eq!(answers[0], (0, CreateAnswer::Created.into()));
            for (_, answer) in &answers[1..] {
                let TestAnswer::Create(CreateAnswer::Existing { link, spare: true }) = answer else {
                    panic!("{answer:?}")
                };
                assert_eq!(link.code.to_string(), "a");
            }
            assert!(confirms_existing);
            assert!(model.states.len() == 1);
            assert!(model.urls.len() == 1);
        }
    }

    #[test]
    fn an_ended_or_unlike_link_is_no_answer() {
        let mut model = model();
        for reuse in [Reuse::Recent, Reuse::Any(Criteria::NONE.with(Criterion::ValidUntil))] {
            model = StoreModel { now_ms: model.now_ms, ..StoreModel::default() };
            model.create("a", "http://x/", reuse);
            // Deleted and created again in one commit, then in the next one.
            let orders =
                vec![delete("a"), create(wanted("b", "http://x/"), reuse, FleetDecision::Alone, 1), delete("b")];
            assert_eq!(model.commit(&mut Outbox::default(), orders).0[1].1, CreateAnswer::Created);
            assert_eq!(model.create("c", "http://x/", reuse), new("c"));
            assert_eq!(model.urls.len(), 1, "entries go with their links");
            // The same URL with other policies, each of which gets a link of its own.
            let later = Policy { valid_until_ms: Some(model.now_ms + 10), ..Policy::default() };
            let dated = |code| Link { policy: later, ..wanted(code, "http://x/") };
            assert_eq!(model.one(create(dated("d"), reuse, FleetDecision::Alone, 1)), CreateAnswer::Created);
            for _ in 0..3 {
                assert_eq!(model.create("e", "http://x/", reuse), was("c"));
                let answer = model.one(create(dated("e"), reuse, FleetDecision::Alone, 1));
                assert!(
                    matches!(answer, TestAnswer::Create(CreateAnswer::Existing { link, .. }) if link.code == dated("d").code)
                );
            }
            model.now_ms += 10;
            assert_eq!(
                model.one(create(dated("e"), reuse, FleetDecision::Alone, 1)),
                CreateAnswer::Created,
                "its time is over"
            );
        }
    }

    #[test]
    fn another_url_with_the_same_hash_is_no_answer() {
        let mut model = model();
        model.create("a", "http://other/", Reuse::Recent);
        let (entry, used) = model.urls.pop_first().unwrap();
        let key = wanted("b", "http://x/").url_key();
        model.urls.insert(UrlEntry { key, ..entry }, used);
        assert_eq!(model.create("b", "http://x/", Reuse::Recent), new("b"));
        assert_eq!(model.create("c", "http://x/", ANY), was("b"));
    }

    #[test]
    fn a_chosen_code_is_found_by_itself_alone() {
        let mut model = model();
        model.create("issued", "http://x/", Reuse::Recent);
        let slug = |code: &str, url: &str, reuse| {
            let link = Link { origin: Origin::Custom, ..wanted(code, url) };
            create(link, reuse, FleetDecision::Alone, 1)
        };
        assert_eq!(model.one(slug("slug", "http://x/", OF_SLUG)), CreateAnswer::Created);
        let again = model.one(slug("slug", "http://x/", OF_SLUG));
        assert!(
            matches!(again, TestAnswer::Create(CreateAnswer::Existing { link, spare: false }) if link.code.to_string() == "slug")
        );
        for (url, reuse) in [("http://y/", OF_SLUG), ("http://x/", Reuse::Never), ("http://x/", Reuse::Recent)] {
            assert_eq!(model.one(slug("slug", url, reuse)), CreateAnswer::Taken);
        }
        assert_eq!(model.one(delete("slug")), DeleteAnswer::Deleted);
        assert_eq!(model.one(slug("slug", "http://x/", OF_SLUG)), CreateAnswer::Created);
        // A free slug that now leads to another URL leaves no entry for the first one.
        assert_eq!(model.one(delete("slug")), DeleteAnswer::Deleted);
        assert_eq!(model.one(slug("slug", "http://z/", Reuse::Never)), CreateAnswer::Created);
        assert_eq!(model.urls.len(), 2);
    }

    #[test]
    fn a_drawn_slug_gives_way_to_the_newest_link() {
        let mut model = model();
        model.create("first", "http://x/", Reuse::Never);
        model.now_ms += 5_000;
        model.create("second", "http://x/", Reuse::Never);
        let drawn = Link { origin: Origin::Custom, ..wanted("drawn", "http://x/") };
        let answer = model.one(create(drawn, ANY, FleetDecision::Alone, 1));
        let TestAnswer::Create(CreateAnswer::Existing { link, spare: false }) = answer else { panic!("{answer:?}") };
        assert_eq!(link.code.to_string(), "second");
        let drawn = Link { origin: Origin::Custom, ..wanted("drawn", "http://y/") };
        assert_eq!(model.one(create(drawn, ANY, FleetDecision::Alone, 1)), CreateAnswer::Created);
        // A chosen or drawn slug never becomes a generated code of another link.
        let code = Code::parse(b"second").unwrap();
        let chosen = Link { origin: Origin::Custom, ..wanted("second", "http://x/") };
        let decision = FleetDecision::Existing { code, found: None, spare: true };
        let answer = model.one(create(chosen, OF_SLUG, decision, 1));
        assert!(matches!(answer, TestAnswer::Create(CreateAnswer::Existing { spare: false, .. })), "{answer:?}");
    }

    #[test]
    fn the_newest_link_with_the_named_properties_answers() {
        let of_visits = Reuse::Any(Criteria::NONE.with(Criterion::MaxVisits));
        let limited = |code: &str, created_ms| {
            let policy = Policy { max_visits: NonZeroU32::new(3), ..Policy::default() };
            create(Link { policy, created_ms, ..wanted(code, "http://x/") }, Reuse::Never, FleetDecision::Alone, 1)
        };
        let mut model = model();
        assert_eq!(model.create("plain", "http://x/", Reuse::Never), new("plain"));
        model.now_ms += 500;
        let order = limited("limited", model.now_ms);
        assert_eq!(model.one(order), CreateAnswer::Created);
        model.now_ms += 500;
        assert_eq!(model.create("a", "http://x/", ANY), was("limited"), "it is the newest");
        assert_eq!(model.create("b", "http://x/", of_visits), was("plain"), "it has no limit either");
        assert_eq!(model.create("c", "http://x/", Reuse::Recent), was("plain"));
        assert_eq!(model.create("limited", "http://x/", OF_SLUG), was("limited"));
        // The links of the same commit count, too.
        let orders = vec![
            limited("newest", model.now_ms),
            create(wanted("d", "http://x/"), ANY, FleetDecision::Alone, 2),
            create(wanted("e", "http://x/"), of_visits, FleetDecision::Alone, 3),
        ];
        let answers = model.commit(&mut Outbox::default(), orders).0;
        let found = |at: usize| match &answers[at].1 {
            TestAnswer::Create(CreateAnswer::Existing { link, .. }) => link.code.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!([found(1), found(2)], ["newest", "plain"]);
    }

    #[test]
    fn creates_of_a_large_commit_try_few_of_its_links() {
        let with = |code: &str, policy: Policy, reuse| {
            create(Link { policy, ..wanted(code, "http://x/") }, reuse, FleetDecision::Alone, 1)
        };
        let first = Policy { cache_seconds: Some(1), ..Policy::default() };
        let mut orders = vec![with("first", first, Reuse::Never)];
        for number in (1_u32..).take(ALIKE_LOOKED_AT) {
            let policy = Policy { max_visits: NonZeroU32::new(number), ..Policy::default() };
            orders.push(with(&format!("c{number}"), policy, Reuse::Never));
        }
        let named = Reuse::Any(Criteria::NONE.with(Criterion::CacheSeconds));
        orders.push(with("equal", first, named));
        // It would otherwise compare all links that the commit puts.
        orders.push(with("other", Policy { forward_query: !first.forward_query, ..first }, named));
        let answers = model().commit(&mut Outbox::default(), orders).0;
        let [.., (_, equal), (_, other)] = &answers[..] else { panic!("too few answers") };
        let TestAnswer::Create(CreateAnswer::Existing { link, .. }) = equal else { panic!("{equal:?}") };
        assert_eq!(link.code.to_string(), "first", "an equivalent link is always tried");
        assert_eq!(*other, CreateAnswer::Created);
    }

    #[test]
    fn a_slug_does_not_take_a_window_over() {
        let mut model = model();
        assert_eq!(model.create("a", "http://x/", Reuse::Recent), new("a"));
        let slug = Link { origin: Origin::Custom, created_ms: model.now_ms, ..wanted("slug", "http://x/") };
        assert_eq!(model.one(create(slug, Reuse::Recent, FleetDecision::Alone, 1)), CreateAnswer::Created);
        assert_eq!(model.create("b", "http://x/", Reuse::Recent), was("a"));
    }

    #[test]
    fn what_redis_names_is_looked_at_once_more() {
        let mut model = model();
        let mut outbox = Outbox::default();
        let named = |found, code: &str| FleetDecision::Existing { code: wanted(code, "").code, found, spare: false };
        let theirs = Link { version: Version { rev: 1, claim: 5, edit: 0 }, created_ms: 1, ..wanted("t", "http://x/") };
        let mut ask = |model: &mut StoreModel, decision| {
            let order = create(wanted("mine", "http://x/"), Reuse::Recent, decision, 1);
            model.commit(&mut outbox, vec![order]).0.pop().unwrap().1
        };
        assert_eq!(ask(&mut model, named(None, "t")), CreateAnswer::Taken, "it is not there");
        let state = State::Link(Arc::new(theirs.clone()));
        let existing = CreateAnswer::Existing { link: Arc::new(theirs.clone()), spare: false };
        assert_eq!(ask(&mut model, named(Some(state.clone()), "t")), existing);
        assert_eq!(model.states.get(&theirs.code), Some(&state), "this node has it now");
        assert_eq!(model.urls, BTreeMap::from([(theirs.url_entry(), model.now_ms)]));
        assert_eq!(ask(&mut model, named(None, "t")), existing);
        model.states.insert(theirs.code, state.deleted(1));
        assert_eq!(ask(&mut model, named(None, "t")), CreateAnswer::Taken, "it was deleted meanwhile");
    }

    #[test]
    fn a_link_that_comes_late_was_used_when_it_was_made() {
        let mut model = model();
        let old = Link { created_ms: model.now_ms - 1_000_000, ..wanted("a", "http://x/") };
        let state = State::Link(Arc::new(Link { version: Version { rev: 1, claim: 5, edit: 0 }, ..old.clone() }));
        model.commit(&mut Outbox::default(), vec![WriterOrder::ComparedStates(vec![(old.code, state)])]);
        assert_eq!(model.urls, BTreeMap::from([(old.url_entry(), old.created_ms)]));
        assert_eq!(model.create("b", "http://x/", Reuse::Recent), new("b"));
        assert_eq!(model.create("c", "http://x/", ANY), was("b"));
    }

    proptest! {
        /// Checks, for any requests in any groups, that the index has each link once and nothing else. A commit of many
        /// requests must do what one commit for each of them does.
        #[test]
        fn the_index_is_what_the_links_are(
            requests in proptest::collection::vec((0usize..6, 0usize..3, 0usize..5, any::<bool>()), 1..40),
            split in 1usize..40,
        ) {
            let run = |group: usize| {
                let (mut model, mut outbox, mut all) = (model(), Outbox::default(), Vec::new());
                for chunk in requests.chunks(group) {
                    let orders = chunk.iter().map(|&(code, url, kind, custom)| {
                        let (code, url) = (["a", "b", "c", "d", "e", "f"][code], ["http://1/", "http://2/", "http://3/"][url]);
                        let origin = if custom { Origin::Custom } else { Origin::Issued };
                        let link = Link { origin, ..wanted(code, url) };
                        match kind {
                            0 | 1 => delete(code),
                            2 => create(link, Reuse::Never, FleetDecision::Alone, 1),
                            3 => create(link, Reuse::Recent, FleetDecision::Alone, 1),
                            _ => create(link, ANY, FleetDecision::Alone, 1),
                        }
                    });
                    all.extend(model.commit(&mut outbox, orders.collect()).0);
                    let entry = |state: &State| if let State::Link(link) = state { Some(link.url_entry()) } else { None };
                    let mut expected: Vec<UrlEntry> = model.states.values().filter_map(entry).collect();
                    expected.sort();
                    assert_eq!(model.urls.keys().copied().collect::<Vec<_>>(), expected);
                }
                (model, all)
            };
            prop_assert_eq!(run(1), run(split));
        }
    }
}
