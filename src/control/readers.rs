//! Threads that read whole records for cores: listings and details need more than a redirect does, and a core must not
//! wait for a disk.

use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use carom_shards::Code;
use carom_shards::code::CODE_LEN_MAX;

use crate::limits::{READ_QUEUE_LEN, READERS};
use crate::mail::{Post, ReaderQueue, StoreAnswer, StoreRequest};
use crate::record::{self, RecordRef};
use crate::stats::NodeStats;
use crate::store::links::{Links, StoreError};

/// Starts the readers. They end when all senders are gone.
///
/// # Errors
/// Where the operating system gives no thread.
pub fn start(links: &Links, post: &Post, stats: &Arc<NodeStats>) -> io::Result<(ReaderQueue, Vec<JoinHandle<()>>)> {
    let (sender, receiver) = sync_channel(READ_QUEUE_LEN);
    let receiver = Arc::new(Mutex::new(receiver));
    let mut threads = Vec::new();
    for number in 0..READERS {
        let (links, post, stats, receiver) = (links.clone(), post.clone(), Arc::clone(stats), Arc::clone(&receiver));
        let thread = std::thread::Builder::new()
            .name(format!("store-read-{number}"))
            .spawn(move || serve(&links, &post, &stats, &receiver))?;
        threads.push(thread);
    }
    Ok((sender, threads))
}

fn serve(links: &Links, post: &Post, stats: &NodeStats, receiver: &Mutex<Receiver<StoreRequest>>) {
    // One reader waits in the channel and the others for the lock: whoever comes first takes the next request.
    let next = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok(request) = next() {
        match request {
            StoreRequest::Read { code, ticket } => post.answer(ticket, read(links, stats, code)),
            StoreRequest::Create { ticket, .. } | StoreRequest::Delete { ticket, .. } => {
                post.answer(ticket, StoreAnswer::Refused("writes are not served by the readers"));
            }
        }
    }
}

fn read(links: &Links, stats: &NodeStats, code: Code) -> StoreAnswer {
    stats.store_selects.add_shared(1);
    match links.get(&code) {
        Ok(None) => StoreAnswer::NotFound,
        Ok(Some(value)) => match record::decode(code.ascii(&mut [0; CODE_LEN_MAX]), &value) {
            Ok(RecordRef::Link(link)) => StoreAnswer::Found(Arc::new(link.to_link(code))),
            Ok(RecordRef::Tombstone(_)) => StoreAnswer::NotFound,
            Err(_) => StoreAnswer::Damaged,
        },
        Err(StoreError::Damaged(_)) => StoreAnswer::Damaged,
        Err(error) => {
            stats.store_errors.add_shared(1);
            tracing::error!(%error, %code, "a record could not be read");
            StoreAnswer::Refused("the store cannot be read at present")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::plan::tests::link;
    use crate::control::testing::TestNode;
    use crate::link::Origin;
    use crate::mail::Ticket;
    use carom_shards::CoreId;

    #[test]
    fn each_kind_of_record_has_its_answer() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        let link = link("abc", Origin::Custom);
        let mut batch = node.links.batch();
        let mut record = Vec::new();
        record::encode_link(b"abc", &link, &mut record);
        batch.put(&link.code, &record);
        // The same record under another key is not that key's.
        batch.put(&Code::parse(b"moved").unwrap(), &record);
        record.clear();
        record::encode_tombstone(b"gone", &record::tests::a_tombstone(), &mut record);
        batch.put(&Code::parse(b"gone").unwrap(), &record);
        node.links.commit(batch).unwrap();

        let (queue, threads) = start(&node.links, &node.post, &node.stats).unwrap();
        for (token, code) in ["abc", "moved", "gone", "never"].iter().enumerate() {
            let ticket = Ticket { core: CoreId(0), token: token as u64 };
            queue.send(StoreRequest::Read { code: Code::parse(code.as_bytes()).unwrap(), ticket }).unwrap();
        }
        let answers = node.answers(4);
        assert_eq!(answers[&0], StoreAnswer::Found(Arc::new(link)));
        assert_eq!(answers[&1], StoreAnswer::Damaged);
        assert_eq!((&answers[&2], &answers[&3]), (&StoreAnswer::NotFound, &StoreAnswer::NotFound));
        drop(queue);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
