//! Tests of requests for which Redis and this node have different links of one code.

use super::*;
use carom_model::access::AppName;
use carom_model::events::EventType;

fn app(name: &str) -> AppName {
    AppName::parse(name).unwrap()
}

/// A link of an app.
fn of_app(name: &str, rev: u32, claim: u64) -> State {
    let State::Link(link) = state(Origin::Custom, rev, claim) else { panic!("it is a link") };
    let mut link = Arc::unwrap_or_clone(link);
    link.labels.app = Some(app(name));
    State::Link(Arc::new(link))
}

/// A delete by the app `shop`, whose link Redis has deleted.
fn accepted_delete(gone: &State) -> WriterOrder {
    let (by, author) = (Scope::of_app(app("shop")), Author::default());
    let request = StoreRequest::Delete { code: code(), by, author, ticket: ticket(1) };
    WriterOrder::Client(request, FleetDecision::Accepted { state: gone.clone(), echo: echo(5) })
}

#[test]
fn delete_spares_a_link_that_its_client_may_not_delete() {
    let gone = of_app("shop", 1, 7).deleted(NOW);
    for (rev, kept_rev) in [(1, 3), (2, 3), (3, 3), (5, 5)] {
        let mine = of_app("blog", rev, 8);
        let kept = mine.with_version(Version { rev: kept_rev, ..mine.version() });
        let mut outbox = Outbox::default();
        let (answer, written) = decide(&mut outbox, &CodeState::Held(mine), accepted_delete(&gone));
        assert_eq!(answer, Some(DeleteAnswer::Deleted.into()), "revision {rev}");
        assert_eq!(written, Some(Some(kept.clone())), "revision {rev}");
        assert_eq!(outbox.take_deliveries().len(), 1, "Redis hears of it");
        assert_eq!(rules::offer(Some(&gone), &kept), Verdict::Accepted(kept), "revision {rev}");
    }
}

#[test]
fn delete_ends_both_links_of_its_client() {
    let gone = of_app("shop", 1, 7).deleted(NOW);
    for rev in [1, 2, 5] {
        let stored = CodeState::Held(of_app("shop", rev, 8));
        let (answer, written) = decide(&mut Outbox::default(), &stored, accepted_delete(&gone));
        assert_eq!(answer, Some(DeleteAnswer::Deleted.into()), "revision {rev}");
        let left = written.flatten().expect("a tombstone");
        assert_eq!((left.is_link(), left.version().claim), (false, 8), "revision {rev}");
    }
}

#[test]
fn delete_of_a_later_link_replaces_one_that_is_over() {
    let gone = of_app("shop", 3, 7).deleted(NOW);
    let stored = CodeState::Held(of_app("blog", 1, 8));
    let mut outbox = Outbox::default();
    let decided = decide(&mut outbox, &stored, accepted_delete(&gone));
    assert_eq!(decided, (Some(DeleteAnswer::Deleted.into()), Some(Some(gone))));
    assert!(outbox.take_deliveries().is_empty(), "the stream will show it");
}

#[test]
fn event_of_a_delete_has_no_link_that_stays() {
    let (gone, mine) = (of_app("shop", 1, 7).deleted(NOW), of_app("blog", 1, 8));
    let mut outbox = Outbox::default();
    let mut plan = CommitPlanner::new(&mut outbox, NOW).with_events(true);
    plan.add(accepted_delete(&gone), |_| CodeState::Held(mine.clone()));
    let (writes, _) = plan.finish();
    let events: Vec<_> = writes.events.iter().map(|event| (event.of, event.link.is_some())).collect();
    assert_eq!(events, [(EventType::LinkDeleted, false)]);
    assert!(writes.edits.is_empty(), "the link has not changed");
    assert!(writes.ended.is_empty(), "its visits go on");
}

#[test]
fn link_of_a_node_alone_is_not_the_one_that_a_fleet_has_deleted() {
    // Both come from nodes alone, which give links no claim.
    let gone = state(Origin::Custom, 0, 0).deleted(NOW);
    let stored = CodeState::Held(gone.clone());
    let (answer, written) = decide(&mut Outbox::default(), &stored, create("abc", Origin::Custom, 1));
    assert_eq!(answer, Some(CreateAnswer::Created.into()));
    let next = written.flatten().expect("a link");
    assert_eq!(rules::offer(Some(&gone), &next), Verdict::Accepted(next), "Redis would keep the tombstone");
}

/// The answer was once 404 if the code was used up, and 503 otherwise.
#[test]
fn delete_whose_end_comes_before_its_reply_is_confirmed() {
    for origin in [Origin::Issued, Origin::Custom] {
        let stored = CodeState::Held(state(origin, 1, 7).deleted(NOW));
        let order = delete_on(FleetDecision::NoReply { was_sent: true, may_decide_alone: true });
        let mut outbox = Outbox::default();
        let mut plan = CommitPlanner::new(&mut outbox, NOW);
        plan.add(order, |_| stored.clone());
        assert!(plan.confirms_existing(), "the answer waits for the sync of the tombstone");
        let (writes, effects) = plan.finish();
        assert_eq!(effects.first().and_then(answer_of), Some(DeleteAnswer::Deleted.into()), "{origin:?}");
        assert!(writes.states.is_empty(), "the tombstone stays");
    }
}
