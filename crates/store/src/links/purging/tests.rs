//! Tests of the removal of purged links: they read every file of the store.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::*;
use carom_model::events::{EventCause, EventType, LinkEvent};
use carom_model::link::earlier_visits::{EarlierVisits, EndedVisits};
use carom_model::link::history::{Author, Edit};
use carom_model::link::record::{encode_link, make_newer};
use carom_model::link::{Link, Origin, Version};
use carom_model::purge::{EndedLinks, EndedSelector};
use carom_model::replication::State;
use carom_model::testing::link;
use tempfile::TempDir;

/// Bytes of a marker that are looked for at once. A compressed block has shorter pieces of it as they are, too, unless
/// they occur twice.
const PIECE_LEN: usize = 12;

/// A text without repetitions, which no compression shortens.
const MARKER: &str = "q7Zt0vXk9LmB2sWc5RyH8pNe3JdF6uGa1TiO4xKhVbQfYzPlSwMgCrEjUnAoDI";

/// True if a file below a directory has a piece of the marker.
fn has_marker(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return has_marker(&path);
        }
        // The library may delete a file meanwhile.
        let bytes = fs::read(&path).unwrap_or_default();
        MARKER.as_bytes().chunks_exact(PIECE_LEN).any(|piece| memchr::memmem::find(&bytes, piece).is_some())
    })
}

fn marked(code: &str, created_ms: u64) -> Link {
    let target = format!("https://a.example/{MARKER}");
    Link { target, created_ms, ..link(code, Origin::Custom) }
}

/// Opens an empty store with an event log.
fn with_events() -> (TempDir, Links, EventLog) {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(dir.path(), "key").unwrap();
    let log = links.open_events().unwrap();
    (dir, links, log)
}

/// Puts a link, with an edit and events that name its destination.
fn put(links: &Links, link: &Link) {
    let mut batch = links.batch();
    let mut record = Vec::new();
    encode_link(link.code.key(&mut [0; CODE_KEY_LEN_MAX]), link, &mut record);
    batch.put(&link.code, &record);
    let before = Link { target: "https://b.example/".to_owned(), ..link.clone() };
    let edit = Edit::between(&before, Some(link), link.created_ms, &Author::default()).unwrap();
    links.add_edits(&mut batch, link.created_ms * 1_000_000, &[(link.code, edit)]).unwrap();
    let (of, cause, at_ms) = (EventType::LinkCreated, EventCause::Request, link.created_ms);
    let changes = format!("[{:?}]", link.target).into_bytes();
    batch.add_event(
        LinkEvent { of, at_ms, code: link.code, cause, link: Some(Arc::new(link.clone())), changes }.encode(),
    );
    links.commit(batch).unwrap();
}

fn remove(links: &Links, code: &Code) {
    let mut batch = links.batch();
    batch.remove(code);
    links.commit(batch).unwrap();
}

/// Deletes a link at 12 ms, with the edit of its history.
fn delete_at_12(links: &Links, link: &Link) {
    let mut batch = links.batch();
    batch.remove(&link.code);
    let deletion = Edit::between(link, None, 12, &Author::default()).unwrap();
    links.add_edits(&mut batch, 12_000_000, &[(link.code, deletion)]).unwrap();
    links.commit(batch).unwrap();
}

/// Returns for each event of a log whether it still has the marker.
fn whole_events(log: &EventLog) -> Vec<bool> {
    let events = log.page(0, 10, usize::MAX).unwrap().events;
    events.iter().map(|(_, bytes)| memchr::memmem::find(bytes, MARKER.as_bytes()).is_some()).collect()
}

fn purged(link: &Link) -> PurgedLink {
    PurgedLink::of(link)
}

#[test]
fn wiped_store_has_no_byte_of_a_purged_link() {
    let (dir, links, log) = with_events();
    let (gone, kept) = (marked("gone", 5), Link { created_ms: 6, ..link("kept", Origin::Custom) });
    put(&links, &gone);
    put(&links, &kept);
    let letter = format!(
        "{{\"event\": {{\"data\": {{\"shortUrl\": {{\"shortCode\": \"gone\", \"longUrl\": \"{MARKER}\"}}}}}}}}"
    );
    log.move_cursor("webhook", 1, &[(1, letter.clone().into_bytes()), (2, b"{}".to_vec())], 10).unwrap();
    // A letter whose event the log no longer has.
    log.move_cursor("mercure", 1, &[(77, letter.into_bytes())], 10).unwrap();
    // Some of it is in tables already.
    links.links.rotate_memtable_and_wait().unwrap();
    links.history.rotate_memtable_and_wait().unwrap();
    links.sync().unwrap();
    assert!(has_marker(dir.path()), "otherwise the test proves nothing");
    assert!(!links.is_gone(&purged(&gone)).unwrap());
    remove(&links, &gone.code);
    assert!(links.is_gone(&purged(&gone)).unwrap());
    links.purge_entries(&[purged(&gone)]).unwrap();
    assert!(has_marker(dir.path()), "a removal leaves the bytes on disk");
    assert!(links.wipe_removed(|| false).unwrap());
    assert!(!has_marker(dir.path()));
    let letters = log.dead_letters().unwrap();
    assert_eq!(letters.iter().map(|letter| letter.seq).collect::<Vec<u64>>(), [2]);
    assert_eq!(log.page(0, 10, usize::MAX).unwrap().events.len(), 2, "numbers stay");
    assert!(links.edits_of(&gone.code).unwrap().is_empty());
    drop((log, links));
    let (links, repairs) = Links::open(dir.path(), "key").unwrap();
    assert!(repairs.is_empty());
    assert!(links.get(&kept.code).unwrap().is_some());
    assert_eq!(links.edits_of(&kept.code).unwrap().len(), 1);
    assert!(!has_marker(dir.path()));
}

#[test]
fn earlier_visits_of_a_purged_link_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(dir.path(), "key").unwrap();
    let (gone, other) = (marked("gone", 5), marked("other", 6));
    let mut batch = links.batch();
    for (link, created_ms) in [(&gone, 5), (&other, 4)] {
        let visits = EarlierVisits::new(7, 0).unwrap();
        let ended = EndedVisits::new(created_ms, &link.target, visits, None);
        batch.put_ended_earlier(&Subject::Link(link.code).name(), &ended);
    }
    links.commit(batch).unwrap();
    links.purge_entries(&[purged(&gone), purged(&other)]).unwrap();
    let left = |link: &Link| links.ended_earlier(&Subject::Link(link.code).name()).unwrap().is_some();
    assert!(!left(&gone));
    assert!(left(&other), "the row is of an earlier link with the slug");
}

#[test]
fn next_link_with_the_slug_keeps_its_entries() {
    let (_dir, links, log) = with_events();
    let (first, second) = (marked("slug", 5), marked("slug", 9));
    put(&links, &first);
    remove(&links, &first.code);
    put(&links, &second);
    links.sync().unwrap();
    links.purge_entries(&[purged(&first)]).unwrap();
    assert_eq!(links.edits_of(&second.code).unwrap().len(), 1);
    assert_eq!(whole_events(&log), [false, true]);
    assert!(!links.is_gone(&purged(&second)).unwrap());
}

#[test]
fn link_created_during_a_purge_keeps_its_entries() {
    let (_dir, links, log) = with_events();
    let (first, next) = (marked("slug", 5), marked("slug", 9));
    put(&links, &first);
    remove(&links, &first.code);
    let gone = [purged(&first)];
    let bounds = || {
        let bounds = links.purge_bounds(&gone)?;
        assert_eq!(bounds[&first.code], u64::MAX, "the code has no link yet");
        put(&links, &next);
        links.sync().unwrap();
        Ok::<PurgeBounds, StoreError>(bounds)
    };
    links.purge_entries_before(&gone, bounds).unwrap();
    assert_eq!(links.edits_of(&next.code).unwrap().len(), 1);
    assert_eq!(whole_events(&log), [false, true]);
}

#[test]
fn bounds_tell_of_a_next_link_that_the_store_lacks() {
    let (_dir, links, log) = with_events();
    let (first, next) = (marked("slug", 5), marked("slug", 9));
    put(&links, &first);
    put(&links, &next);
    // As in a shared home, once Redis has kept the link for a while.
    remove(&links, &next.code);
    links.sync().unwrap();
    let bounds = || Ok::<PurgeBounds, StoreError>(PurgeBounds::from([(next.code, 9)]));
    links.purge_entries_before(&[purged(&first)], bounds).unwrap();
    assert_eq!(whole_events(&log), [false, true]);
    links.purge_entries(&[purged(&first)]).unwrap();
    assert_eq!(whole_events(&log), [false, false], "the store alone does not know of the link");
}

#[test]
fn link_with_a_date_ahead_keeps_its_events() {
    let (_dir, links, log) = with_events();
    let (first, next) = (marked("slug", 5), marked("slug", 9));
    put(&links, &first);
    remove(&links, &first.code);
    put(&links, &next);
    // A change on a node whose clock is behind that of the node that created the link.
    let (of, cause, changes) = (EventType::LinkChanged, EventCause::Request, b"[\"longUrl\"]".to_vec());
    let change = LinkEvent { of, at_ms: 8, code: next.code, cause, link: Some(Arc::new(next)), changes };
    let mut batch = links.batch();
    batch.add_event(change.encode());
    links.commit(batch).unwrap();
    links.sync().unwrap();
    links.purge_entries(&[purged(&first)]).unwrap();
    assert_eq!(whole_events(&log), [false, true, true]);
}

#[test]
fn next_link_in_a_newer_record_keeps_its_entries() {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(dir.path(), "key").unwrap();
    let (first, second) = (marked("slug", 5), marked("slug", 9));
    put(&links, &second);
    let mut batch = links.batch();
    batch.put(&second.code, &carom_model::testing::newer_record(&second));
    links.commit(batch).unwrap();
    links.purge_entries(&[purged(&first)]).unwrap();
    assert_eq!(links.edits_of(&second.code).unwrap().len(), 1, "this version knows when the link was created");
    assert!(links.is_gone(&purged(&first)).unwrap());
    assert!(!links.is_gone(&purged(&second)).unwrap());
}

#[test]
fn link_that_is_imported_again_keeps_its_entries() {
    let (_dir, links, log) = with_events();
    let claimed = |claim| Link { version: Version { rev: 1, claim, edit: 0 }, ..marked("slug", 5) };
    let (first, second) = (claimed(7), claimed(8));
    put(&links, &first);
    delete_at_12(&links, &first);
    // Its date is that of the first link, so it is known by its claim alone.
    put(&links, &second);
    let before = Link { target: "https://b.example/".to_owned(), ..second.clone() };
    let change = Edit::between(&before, Some(&second), 13, &Author::default()).unwrap();
    let mut batch = links.batch();
    links.add_edits(&mut batch, 13_000_000, &[(second.code, change.clone())]).unwrap();
    links.commit(batch).unwrap();
    links.sync().unwrap();
    assert!(links.is_gone(&purged(&first)).unwrap(), "a purge would wait for ever");
    assert!(!links.is_gone(&purged(&second)).unwrap());
    assert!(!links.is_gone(&PurgedLink { claim: None, ..purged(&first) }).unwrap());
    links.purge_entries(&[purged(&first)]).unwrap();
    assert_eq!(links.edits_of(&second.code).unwrap(), [change]);
    assert_eq!(whole_events(&log), [false, true]);
}

#[test]
fn purge_without_a_claim_keeps_events_of_an_import() {
    let (_dir, links, log) = with_events();
    let claimed = |claim| Link { version: Version { rev: 1, claim, edit: 0 }, ..marked("slug", 5) };
    let (first, second) = (claimed(7), claimed(8));
    put(&links, &first);
    delete_at_12(&links, &first);
    put(&links, &second);
    links.sync().unwrap();
    // The search index knew the first link, whose claim it does not have.
    let of_texts = PurgedLink { claim: None, ended_ms: Some(5), ..purged(&first) };
    links.purge_entries(&[of_texts]).unwrap();
    assert_eq!(whole_events(&log), [false, true]);
}

#[test]
fn letter_of_a_purged_event_has_no_content() {
    let (_dir, links, log) = with_events();
    let (gone, kept) = (marked("gone", 5), marked("kept", 6));
    put(&links, &gone);
    put(&links, &kept);
    links.sync().unwrap();
    remove(&links, &gone.code);
    links.purge_entries(&[purged(&gone)]).unwrap();
    // A sink has read both events before, and its receiver has refused them since.
    let as_stored = |event: &[u8]| Ok(Some(event.to_vec()));
    for seq in [1, 2, 77] {
        log.give_up("webhook", seq, 10, as_stored).unwrap();
        assert_eq!(log.cursor("webhook").unwrap(), Some(seq));
    }
    let has_content = |content: &[u8]| memchr::memmem::find(content, MARKER.as_bytes()).is_some();
    let letters = log.dead_letters().unwrap();
    let shown: Vec<(u64, bool)> = letters.iter().map(|letter| (letter.seq, has_content(&letter.content))).collect();
    assert_eq!(shown, [(1, false), (2, true)], "the log has no event 77");
}

#[test]
fn next_link_of_a_slug_keeps_its_letters() {
    let (_dir, links, log) = with_events();
    let (gone, next) = (marked("slug", 5), Link { target: "https://next.example/".to_owned(), ..marked("slug", 9) });
    put(&links, &gone);
    remove(&links, &gone.code);
    put(&links, &next);
    links.sync().unwrap();
    let letter = b"{\"event\": {\"data\": {\"shortUrl\": {\"shortCode\": \"slug\"}}}}";
    for seq in [1, 2, 77] {
        log.give_up("webhook", seq, 10, |_| Ok(Some(letter.to_vec()))).unwrap();
    }
    // The log no longer has the event of this one.
    log.move_cursor("mercure", 1, &[(77, letter.to_vec())], 10).unwrap();
    links.purge_entries(&[PurgedLink { ended_ms: Some(7), ..purged(&gone) }]).unwrap();
    let letters = log.dead_letters().unwrap();
    assert_eq!(letters.iter().map(|letter| letter.seq).collect::<Vec<u64>>(), [2]);
}

#[test]
fn events_of_a_purged_link_are_purged_despite_clocks() {
    let (_dir, links, log) = with_events();
    let (first, second) = (marked("slug", 5), marked("slug", 9));
    put(&links, &first);
    let mut batch = links.batch();
    batch.remove(&first.code);
    let deletion = LinkEvent::removal(Arc::new(first.clone()), 12, EventCause::Request);
    batch.add_event(deletion.encode());
    links.commit(batch).unwrap();
    // The clock of its node is behind that of this one.
    put(&links, &second);
    links.sync().unwrap();
    links.purge_entries(&[purged(&first)]).unwrap();
    let events = log.page(0, 10, usize::MAX).unwrap().events;
    let whole: Vec<bool> =
        events.iter().map(|(_, bytes)| memchr::memmem::find(bytes, MARKER.as_bytes()).is_some()).collect();
    assert_eq!(whole, [false, false, true]);
}

#[test]
fn edits_up_to_the_deletion_of_a_purged_link_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(dir.path(), "key").unwrap();
    // The second link was imported, with its date.
    let (first, second) = (marked("slug", 5), Link { created_ms: 3, ..link("slug", Origin::Custom) });
    put(&links, &first);
    delete_at_12(&links, &first);
    let mut batch = links.batch();
    let mut record = Vec::new();
    encode_link(second.code.key(&mut [0; CODE_KEY_LEN_MAX]), &second, &mut record);
    batch.put(&second.code, &record);
    links.commit(batch).unwrap();
    let before = Link { target: "https://b.example/".to_owned(), ..second.clone() };
    let change = Edit::between(&before, Some(&second), 13, &Author::default()).unwrap();
    let mut batch = links.batch();
    links.add_edits(&mut batch, 13_000_000, &[(second.code, change.clone())]).unwrap();
    links.commit(batch).unwrap();
    assert_eq!(links.last_end_ms(&first.code).unwrap(), Some(12));
    links.purge_entries(&[purged(&first)]).unwrap();
    assert_eq!(links.edits_of(&second.code).unwrap(), [change]);
    assert_eq!(links.last_end_ms(&first.code).unwrap(), None);
}

#[test]
fn wipe_waits_for_views_that_see_removed_data() {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(dir.path(), "key").unwrap();
    let gone = marked("gone", 5);
    put(&links, &gone);
    let view = links.view();
    remove(&links, &gone.code);
    let looks = std::cell::Cell::new(0);
    let stops = || looks.replace(looks.get() + 1) > 2;
    assert!(!links.wipe_removed(stops).unwrap(), "the view is open");
    assert!(view.get(&gone.code).unwrap().is_some());
    drop(view);
    let later = links.view();
    links.purge_entries(&[purged(&gone)]).unwrap();
    drop(later);
    assert!(links.wipe_removed(|| false).unwrap());
    assert!(!has_marker(dir.path()));
}

#[test]
fn wipe_waits_for_iterators_that_see_removed_data() {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(dir.path(), "key").unwrap();
    let gone = marked("gone", 5);
    put(&links, &gone);
    // As a slow reader of a page has it: such an iterator is not listed as a view.
    let open = links.links.iter();
    remove(&links, &gone.code);
    links.purge_entries(&[purged(&gone)]).unwrap();
    let looks = std::cell::Cell::new(0);
    let stops = || looks.replace(looks.get() + 1) > 8;
    assert!(!links.wipe_removed(stops).unwrap(), "the iterator is open");
    drop(open);
    assert!(links.wipe_removed(|| false).unwrap());
    assert!(!has_marker(dir.path()));
}

#[test]
fn idempotency_keys_of_purged_links_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(dir.path(), "key").unwrap();
    let keys = [1, 2].map(|byte| carom_model::access::idempotency::IdempotencyHash([byte; 16]));
    let codes = ["gone", "kept"].map(|code| Code::parse(code.as_bytes()).unwrap());
    let mut batch = links.batch();
    keys.iter().zip(&codes).for_each(|(key, code)| batch.note_idempotency(key, 5, code));
    links.commit(batch).unwrap();
    links.purge_entries(&[PurgedLink { code: codes[0], created_ms: 5, claim: None, ended_ms: None }]).unwrap();
    assert_eq!(links.created_with(&keys[0], 6).unwrap(), None);
    assert_eq!(links.created_with(&keys[1], 6).unwrap(), Some(codes[1]));
}

#[test]
fn events_of_a_log_that_is_off_are_purged_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Links::open(dir.path(), "key").unwrap().0;
    let gone = marked("gone", 5);
    let links = open();
    links.open_events().unwrap();
    put(&links, &gone);
    drop(links);
    let links = open();
    links.suspend_events().unwrap();
    remove(&links, &gone.code);
    links.purge_entries(&[purged(&gone)]).unwrap();
    assert!(links.wipe_removed(|| false).unwrap());
    assert!(!has_marker(dir.path()));
}

#[test]
fn writes_that_a_crash_cut_off_leave_no_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let links = Links::open(dir.path(), "key").unwrap().0;
    // As the start after a crash leaves them.
    for name in ["0.torn-7", "1.torn-8", "1.cut", "1.repair"] {
        fs::write(dir.path().join(name), MARKER).unwrap();
    }
    fs::write(dir.path().join("0.damaged-7"), "acknowledged").unwrap();
    assert!(links.wipe_removed(|| false).unwrap());
    assert!(!has_marker(dir.path()));
    assert!(dir.path().join("0.damaged-7").exists(), "its records may be missed");
}

#[test]
fn deleted_links_are_found_by_their_history() {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(dir.path(), "key").unwrap();
    let [gone, other, again, later] = ["gone", "other", "again", "later"].map(|code| marked(code, 5));
    for link in [&gone, &again, &later] {
        put(&links, link);
        delete_at_12(&links, link);
    }
    put(&links, &again);
    put(&links, &other);
    put(&links, &Link { created_ms: 20, ..later.clone() });
    let ended = |link: &Link| PurgedLink { ended_ms: Some(12), ..purged(link) };
    let expected = vec![ended(&gone), ended(&later)];
    let selector = EndedSelector::Destination(vec![gone.target]);
    let found = links.ended_links(&[], 100, &selector).unwrap();
    assert_eq!(found, EndedLinks { links: expected.clone(), behind: None }, "the other ones exist");
    // In pieces, each with all edits of a code.
    let (mut pieces, mut behind, mut all) = (0, Vec::new(), Vec::new());
    loop {
        let found = links.ended_links(&behind, 1, &selector).unwrap();
        (pieces, all) = (pieces + 1, [all, found.links].concat());
        match found.behind {
            Some(next) => behind = next,
            None => break,
        }
    }
    assert_eq!((pieces, all), (4, expected.clone()));
    links.purge_entries(&expected).unwrap();
    assert_eq!(links.ended_links(&[], 100, &selector).unwrap(), EndedLinks::default());
}

#[test]
fn links_are_found_by_the_events_of_their_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(dir.path(), "key").unwrap();
    let selector = EndedSelector::Destination(vec![marked("a", 1).target]);
    assert_eq!(links.ended_in_events(0, 9, &selector).unwrap(), (vec![], None), "there is no log");
    let log = links.open_events().unwrap();
    let [gone, again, kept] = ["gone", "again", "kept"].map(|code| marked(code, 5));
    let other = Link { target: "https://other.example/".to_owned(), ..marked("other", 5) };
    [&gone, &again, &kept, &other].into_iter().for_each(|link| put(&links, link));
    for link in [&gone, &again, &other] {
        let mut batch = links.batch();
        batch.remove(&link.code);
        batch.add_event(LinkEvent::removal(Arc::new(link.clone()), 12, EventCause::Expiry).encode());
        links.commit(batch).unwrap();
    }
    // The same date and claim, as after an import.
    put(&links, &again);
    let ended = PurgedLink { ended_ms: Some(12), ..purged(&gone) };
    assert_eq!(links.ended_in_events(0, 9, &selector).unwrap(), (vec![ended], Some(8)));
    assert_eq!(links.ended_in_events(8, 9, &selector).unwrap(), (vec![], None));
    // In pieces.
    let (mut all, mut after) = (Vec::new(), 0);
    while let (some, Some(next)) = links.ended_in_events(after, 2, &selector).unwrap() {
        (all, after) = ([all, some].concat(), next);
    }
    assert_eq!((all, after), (vec![ended], log.last()));
    links.purge_entries(&[ended]).unwrap();
    assert_eq!(links.ended_in_events(0, 9, &selector).unwrap().0, []);
    assert_eq!(links.ended_in_events(0, 9, &EndedSelector::Domain(None)).unwrap().0.len(), 1, "one has no marker");
}

#[test]
fn events_name_links_of_any_type_of_event() {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(dir.path(), "key").unwrap();
    let found = |after, of| links.links_in_events(after, 9, |event, _| event == of).unwrap();
    assert_eq!(found(0, EventType::LinkCreated), LinksInEvents::default(), "there is no log");
    let log = links.open_events().unwrap();
    let [first, second] = ["first", "second"].map(|code| marked(code, 5));
    put(&links, &first);
    put(&links, &second);
    let mut batch = links.batch();
    batch.remove(&first.code);
    batch.add_event(LinkEvent::removal(Arc::new(first.clone()), 12, EventCause::Expiry).encode());
    links.commit(batch).unwrap();
    let of_links = |found: Vec<PurgedLink>| found.into_iter().map(|link| link.code).collect::<Vec<_>>();
    let created = found(0, EventType::LinkCreated);
    assert_eq!((of_links(created.links), created.last), (vec![first.code, second.code], Some(log.last())));
    let ended = PurgedLink { ended_ms: Some(12), ..purged(&first) };
    assert_eq!(found(0, EventType::LinkDeleted).links, [ended]);
    let of_other = links.links_in_events(0, 9, |_, link| link.target == "https://other.example/").unwrap();
    assert_eq!(of_other.links, []);
}

#[test]
fn events_name_links_of_a_later_version() {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(dir.path(), "key").unwrap();
    let log = links.open_events().unwrap();
    let version = Version { rev: 1, claim: 7, edit: 0 };
    let [newer, known] = ["newer", "known"].map(|code| Link { version, ..marked(code, 5) });
    put(&links, &newer);
    let seq = log.last();
    put(&links, &known);
    let event = LinkEvent::removal(Arc::new(newer.clone()), 12, EventCause::Expiry);
    let (mut bytes, from) = (event.encode(), LinkEvent { link: None, ..event }.encode().len());
    make_newer(newer.code.key(&mut [0; CODE_KEY_LEN_MAX]), &mut bytes[from..]);
    log.replace(seq, &bytes);
    let found = || links.links_in_events(0, 9, |_, _| true).unwrap();
    assert_eq!(found().links.iter().map(|link| link.code).collect::<Vec<_>>(), [known.code]);
    assert_eq!(found().newer, [(newer.code, Some(7))]);
    bytes[from] = 0;
    log.replace(seq, &bytes);
    assert_eq!(found().newer, [], "it is damaged");
}

#[test]
fn codes_that_cannot_be_read_are_not_taken_for_free() {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(dir.path(), "key").unwrap();
    let [damaged, in_redis, ended, gone] = ["damaged", "in-redis", "ended", "gone"].map(|code| marked(code, 5));
    [&damaged, &in_redis, &ended, &gone].into_iter().for_each(|link| put(&links, link));
    let text = |state: &State, kind: u8| {
        let mut text = state.to_text(&in_redis.code);
        text[0] = kind;
        text
    };
    let state = State::Link(Arc::new(in_redis.clone()));
    let mut batch = links.batch();
    batch.put(&damaged.code, b"no record at all");
    [&in_redis, &ended, &gone].into_iter().for_each(|link| batch.remove(&link.code));
    batch.mark_unread(&in_redis.code, &text(&state, b'Z'));
    batch.mark_unread(&ended.code, &text(&state.deleted(9), b'B'));
    links.commit(batch).unwrap();
    let found = links.ended_links(&[], 100, &EndedSelector::Destination(vec![gone.target.clone()])).unwrap();
    let codes: Vec<Code> = found.links.iter().map(|link| link.code).collect();
    assert_eq!(codes, [ended.code, gone.code], "the other ones may have links");
    // The marked link is known by its date.
    assert!(!links.is_gone(&purged(&in_redis)).unwrap());
    links.purge_entries(&[PurgedLink { created_ms: 1, ..purged(&in_redis) }]).unwrap();
    assert_eq!(links.edits_of(&in_redis.code).unwrap().len(), 1);
}
