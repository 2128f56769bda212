//! Threads that share one bounded queue.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::priority::Priority;

/// Starts `threads` threads, named with their numbers. Each calls `work` for each item it takes from a queue of
/// `queue_len` items. They end when all senders are gone.
///
/// # Errors
/// If the operating system cannot start a thread.
pub(crate) fn start<T: Send + 'static>(
    priority: Priority,
    name: &str,
    threads: usize,
    queue_len: usize,
    work: impl Fn(T) + Clone + Send + 'static,
) -> io::Result<(SyncSender<T>, Vec<JoinHandle<()>>)> {
    let (sender, receiver) = sync_channel(queue_len);
    let receiver = Arc::new(Mutex::new(receiver));
    let start = |number: usize| {
        let (work, receiver) = (work.clone(), Arc::clone(&receiver));
        super::start(priority, format!("{name}-{number}"), move || serve(&receiver, work))
    };
    let threads = (0..threads).map(start).collect::<io::Result<_>>()?;
    Ok((sender, threads))
}

fn serve<T>(receiver: &Mutex<Receiver<T>>, work: impl Fn(T)) {
    // One thread waits in the channel and the others for the lock; the next to get in takes the next item.
    let next = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok(item) = next() {
        work(item);
    }
}
