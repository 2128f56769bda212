//! Threads for work that takes too long on a core: they draw QR codes, read and write long JSON
//! documents, and compress bodies.

use std::io;
use std::thread::JoinHandle;

use super::threads::pool;
use super::threads::priority::Priority;
use crate::bridge::{Job, JobDone, JobQueues, Mailboxes, PurgeQueue};
use carom_limits::{COMPRESSION_QUEUE_LEN, DOCUMENT_QUEUE_LEN, PICTURE_QUEUE_LEN};

/// Starts one thread for pictures, one for documents and one for compression. They end when all senders are gone.
/// Returns their queues, together with `purges`.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(mailboxes: &Mailboxes, purges: PurgeQueue) -> io::Result<(JobQueues, Vec<JoinHandle<()>>)> {
    let begin = |name: &str, queue_len: usize| {
        let mailboxes = mailboxes.clone();
        pool::start(Priority::Long, name, 1, queue_len, move |Job { ticket, run }| {
            run();
            mailboxes.answer(ticket, JobDone);
        })
    };
    let (pictures, mut threads) = begin("pictures", PICTURE_QUEUE_LEN)?;
    let (documents, others) = begin("documents", DOCUMENT_QUEUE_LEN)?;
    threads.extend(others);
    let (compression, others) = begin("compression", COMPRESSION_QUEUE_LEN)?;
    threads.extend(others);
    Ok((JobQueues { pictures, documents, compression, purges, snapshots: None, site: None }, threads))
}
