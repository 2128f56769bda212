//! Threads that read whole records for cores. Details of a link need more than a redirect does, and a core must not
//! wait for a disk.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use crate::bridge::{LinkAnswer, Mailboxes, ReadRequest, ReaderQueue, STORE_UNREADABLE, VisitsAnswer};
use crate::services::threads::pool;
use crate::services::threads::priority::Priority;
use crate::services::visits::VisitReader;
use carom_limits::{READ_QUEUE_LEN, READERS};
use carom_model::link::record::{self, RecordError, RecordRef};
use carom_model::link::{Link, Origin};
use carom_model::visits::tally::Subject;
use carom_store::links::{Links, StoreError};
use carom_telemetry::stats::NodeStats;

/// Starts the readers. They end when all senders are gone.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(
    links: &Links,
    mailboxes: &Mailboxes,
    stats: &Arc<NodeStats>,
    visits: &VisitReader,
) -> io::Result<(ReaderQueue, Vec<JoinHandle<()>>)> {
    let (links, mailboxes, stats, visits) = (links.clone(), mailboxes.clone(), Arc::clone(stats), visits.clone());
    pool::start(Priority::Urgent, "store-read", READERS, READ_QUEUE_LEN, move |request| {
        stats.store_selects.add_shared(1);
        match request {
            ReadRequest::Link { code, ticket } => mailboxes.answer(ticket, answer(&links, &stats, &visits, code)),
            ReadRequest::Visits { subject, exists, ticket } => {
                mailboxes.answer(ticket, answer_visits(&links, &stats, &visits, (subject, exists)));
            }
            ReadRequest::Edits { code, ticket } => {
                mailboxes.answer(ticket, links.edits_of(&code).map_err(|error| unreadable(&stats, &error)));
            }
        }
    })
}

/// The result of reading a code.
pub(crate) enum RecordRead {
    /// The link of the code.
    Link(Arc<Link>),
    /// No record. In a fleet, Redis may have a link that the writer has not stored yet.
    Nothing,
    /// The tombstone of a deleted link whose code has this origin. Only a custom code gets another link.
    Deleted(Origin),
    /// A record that cannot be decoded, or a block that cannot be read; and the reason.
    Damaged(String),
    /// The operating system refused to read. The error was counted and logged.
    Unreadable,
    /// The state of the code can only be decoded by a later version. With the reason if the store has the record; `None`
    /// if the code is marked, and Redis has the state.
    Newer(Option<RecordError>),
}

/// Reads the link of a code. Blocks for the disk.
pub(crate) fn read(links: &Links, stats: &NodeStats, code: &Code) -> RecordRead {
    match links.get(code) {
        Ok(None) => match links.unread(code) {
            Ok(None) => RecordRead::Nothing,
            Ok(Some(_)) => RecordRead::Newer(None),
            Err(error) => failed(stats, code, &error),
        },
        Ok(Some(value)) => match record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), &value) {
            Ok(RecordRef::Link(link)) => RecordRead::Link(Arc::new(link.to_link(*code))),
            Ok(RecordRef::Tombstone(tombstone)) => RecordRead::Deleted(tombstone.origin),
            Err(error) if error.is_newer() => RecordRead::Newer(Some(error)),
            Err(error) => RecordRead::Damaged(error.to_string()),
        },
        Err(StoreError::Damaged(text)) => RecordRead::Damaged(text),
        Err(error) => failed(stats, code, &error),
    }
}

fn failed(stats: &NodeStats, code: &Code, error: &StoreError) -> RecordRead {
    stats.store_errors.add_shared(1);
    tracing::error!(%error, %code, "a record could not be read");
    RecordRead::Unreadable
}

fn answer(links: &Links, stats: &NodeStats, visits: &VisitReader, code: Code) -> LinkAnswer {
    match read(links, stats, &code) {
        RecordRead::Link(link) => match visits.counts(&[code]) {
            Ok(counts) => LinkAnswer::Found(link, counts.first().copied().unwrap_or_default()),
            Err(error) => LinkAnswer::Refused(unreadable(stats, &error)),
        },
        RecordRead::Nothing | RecordRead::Deleted(_) => LinkAnswer::NotFound,
        RecordRead::Damaged(_) => LinkAnswer::Damaged,
        RecordRead::Unreadable => LinkAnswer::Refused(STORE_UNREADABLE),
        RecordRead::Newer(_) => LinkAnswer::Refused(NEWER),
    }
}

/// Returns the visits of a link, or of all links. Unless the link is known to exist, the store must have it.
fn answer_visits(
    links: &Links,
    stats: &NodeStats,
    visits: &VisitReader,
    (subject, exists): (Subject, bool),
) -> VisitsAnswer {
    if let (Subject::Link(code), false) = (subject, exists) {
        match read(links, stats, &code) {
            RecordRead::Link(_) | RecordRead::Damaged(_) => {}
            RecordRead::Nothing | RecordRead::Deleted(_) => return Ok(None),
            RecordRead::Unreadable => return Err(STORE_UNREADABLE),
            RecordRead::Newer(_) => return Err(NEWER),
        }
    }
    let history = visits.history(subject).map_err(|error| unreadable(stats, &error))?;
    Ok(Some(Box::new(history)))
}

const NEWER: &str = "a newer version of carom has changed the link; upgrade this node";

/// Counts and logs an error, and returns the reason for the client.
fn unreadable(stats: &NodeStats, error: &StoreError) -> &'static str {
    stats.store_errors.add_shared(1);
    tracing::error!(%error, "the details of a link could not be read");
    STORE_UNREADABLE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::{Reply, Ticket, ToCore};
    use crate::services::testing::TestNode;
    use carom_model::link::Origin;
    use carom_model::testing::link;
    use carom_model::visits::tally::VisitCounts;
    use carom_shards::CoreId;
    use std::collections::HashMap;

    #[test]
    fn each_kind_of_record_has_its_answer() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        let link = link("abc", Origin::Custom);
        let mut batch = node.links.batch();
        let mut record = Vec::new();
        record::encode_link(b"abc", &link, &mut record);
        batch.put(&link.code, &record);
        // A record is valid only under its own key.
        batch.put(&Code::parse(b"moved").unwrap(), &record);
        record.clear();
        record::encode_tombstone(b"gone", &carom_model::testing::tombstone(), &mut record);
        batch.put(&Code::parse(b"gone").unwrap(), &record);
        let newer = carom_model::testing::link("newer", Origin::Custom);
        batch.put(&newer.code, &carom_model::testing::newer_record(&newer));
        node.links.commit(batch).unwrap();

        let counted = crate::services::visits::start(dir.path(), &node.links, Vec::new(), &node.stats, None).unwrap();
        let (queue, threads) = start(&node.links, &node.mailboxes, &node.stats, &counted.visits).unwrap();
        for (token, code) in ["abc", "moved", "gone", "never", "newer"].iter().enumerate() {
            let (code, ticket) = (Code::parse(code.as_bytes()).unwrap(), Ticket::new(CoreId(0), token as u64));
            queue.send(ReadRequest::Link { code, ticket }).unwrap();
        }
        let mut answers = HashMap::new();
        for _ in 0..5 {
            let ToCore::Reply { token, reply: Reply::Link(answer) } = node.next_mail() else { panic!("no link") };
            answers.insert(token, answer);
        }
        assert_eq!(answers[&0], LinkAnswer::Found(Arc::new(link), VisitCounts::default()));
        assert_eq!(answers[&1], LinkAnswer::Damaged);
        assert_eq!((&answers[&2], &answers[&3]), (&LinkAnswer::NotFound, &LinkAnswer::NotFound));
        assert_eq!(answers[&4], LinkAnswer::Refused(NEWER));
        drop(queue);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
