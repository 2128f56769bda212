//! Tests of the writer.

use super::*;
use crate::bridge::{CreateAnswer, DeleteAnswer, Reply, WriteFailure};
use crate::services::testing::{KEY, TestAnswer, TestNode, create, delete};
use carom_model::link::Origin;
use carom_model::testing::link;
use carom_shards::Code;

#[test]
fn answers_come_and_links_stay() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::new(dir.path(), 2);
    let (queue, thread) = start(node.writer_setup(dir.path())).unwrap();
    for number in 0..200 {
        queue.send(create(link(&format!("code{number}"), Origin::Issued), number)).unwrap();
    }
    assert!(node.answers(200).values().all(|answer| *answer == CreateAnswer::Created));
    queue.send(create(link("code7", Origin::Custom), 1)).unwrap();
    queue.send(create(link("slug", Origin::Custom), 2)).unwrap();
    queue.send(delete("code7", 3)).unwrap();
    queue.send(delete("slug", 4)).unwrap();
    queue.send(create(link("code7", Origin::Custom), 5)).unwrap();
    queue.send(create(link("slug", Origin::Custom), 6)).unwrap();
    let answers = node.answers(6);
    for (token, answer) in [(1, CreateAnswer::Taken), (2, CreateAnswer::Created), (5, CreateAnswer::Taken)] {
        assert_eq!(answers[&token], answer, "{token}");
    }
    assert_eq!([&answers[&3], &answers[&4]], [&TestAnswer::from(DeleteAnswer::Deleted); 2]);
    assert_eq!(answers[&6], CreateAnswer::Created);
    drop(queue);
    thread.join().unwrap();
    // Neither slugs nor deletes use up a code.
    assert_eq!(node.stats.links_issued.get(), 200);
    assert!(node.stats.store_updates.get() > 200);
    drop(node);
    let (links, repairs) = Links::open(&dir.path().join("links"), KEY).unwrap();
    assert!(repairs.is_empty());
    let stats = NodeStats::default();
    let at = |code: &str| look_up(&links, &stats, &Code::parse(code.as_bytes()).unwrap());
    let state = |code: &str| at(code).state().cloned().expect("a state");
    assert!(state("code7").is_tombstone());
    assert_eq!((state("slug").is_link(), state("slug").origin()), (true, Origin::Custom));
    assert_eq!((state("code8").is_link(), state("code8").origin()), (true, Origin::Issued));
}

#[test]
fn applies_go_to_the_owner_and_answers_to_who_asked() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::new(dir.path(), 3);
    let (queue, _thread) = start(node.writer_setup(dir.path())).unwrap();
    let link = link("abc", Origin::Custom);
    let owning = owner(node.hasher.hash(&link.code), node.cores);
    queue.send(create(link.clone(), 1)).unwrap();
    let first = node.mail[owning.index()].recv().unwrap();
    assert!(matches!(first, ToCore::Apply { answer: Some(WriterReply::Create(_, CreateAnswer::Created)), .. }));
    queue.send(create(link, 2)).unwrap();
    let second = node.mail[0].recv().unwrap();
    assert!(matches!(second, ToCore::Reply { token: 2, reply: Reply::Created(CreateAnswer::Taken) }));
}

#[test]
fn a_damaged_record_counts_as_taken() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::new(dir.path(), 1);
    let link = link("abc", Origin::Custom);
    let mut batch = node.links.batch();
    batch.put(&link.code, b"not a record");
    node.links.commit(batch).unwrap();
    let (queue, _thread) = start(node.writer_setup(dir.path())).unwrap();
    queue.send(create(link, 1)).unwrap();
    assert_eq!(node.answers(1)[&1], CreateAnswer::Taken);
    assert_eq!(node.stats.store_damaged.get(), 1);
}

#[test]
fn after_a_failed_write_all_is_refused_and_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::new(dir.path(), 1);
    let mut writer = Writer::new(node.writer_setup(dir.path())).unwrap();
    writer.fail(&StoreError::Failed("no space left".to_owned()));
    writer.fail(&StoreError::Halted);
    let (sender, receiver) = sync_channel(8);
    for token in 1..=3 {
        sender.send(create(link("abc", Origin::Custom), token)).unwrap();
    }
    drop(sender);
    writer.run(&receiver);
    assert!(node.answers(3).values().all(|answer| *answer == CreateAnswer::Failed(WriteFailure::Refused(FAILED))));
    assert!(node.stats.writes_refused.load(Ordering::Relaxed));
    assert_eq!(node.stats.alarms.list().len(), 1);
    assert_eq!(node.stats.syncs.spread().count(), 0);
}

#[test]
fn links_are_forgotten_after_a_failed_write() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::new(dir.path(), 2);
    let mut writer = Writer::new(node.writer_setup(dir.path())).unwrap();
    writer.fail(&StoreError::Halted);
    let (sender, receiver) = sync_channel(8);
    for _ in 0..2 {
        sender.send(WriterOrder::ForgetLinks).unwrap();
    }
    drop(sender);
    writer.run(&receiver);
    for mail in &node.mail {
        assert!(matches!(mail.try_recv(), Ok(ToCore::ForgetLinks { .. })));
        assert!(mail.try_recv().is_err(), "one message is enough for both orders");
    }
    assert_eq!(node.stats.fleet.orders_dropped.get(), 0, "the streams need not be read again");
}
