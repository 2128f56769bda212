//! Jobs that take too long for a core: a thread runs each, and then wakes its task.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::purges::PurgeQueue;
use super::sites::SiteOrders;
use super::snapshots::SnapshotProvider;
use super::ticket::Ticket;

/// The end of a job that a task handed off. The task has the other end of the channel with its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobDone;

/// A piece of work for a thread, and the task that waits for its result.
pub struct Job {
    /// The task that waits for the end of the job.
    pub ticket: Ticket<JobDone>,
    /// The work. It leaves its result in a channel to the task.
    pub run: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job(for {:?})", self.ticket)
    }
}

/// The bounded queues to the threads that run jobs, shared by all cores. Pictures have a thread of their own, so that a
/// flood of requests for them does not delay the API.
#[derive(Clone, Debug)]
pub struct JobQueues {
    /// Queue for QR codes.
    pub pictures: SyncSender<Job>,
    /// Queue for long bodies of requests and answers.
    pub documents: SyncSender<Job>,
    /// Queue for bodies to compress. Documents have a queue of their own, because they have no other way to be written.
    pub compression: SyncSender<Job>,
    /// Queue to the thread that keeps purges.
    pub purges: PurgeQueue,
    /// Queue for snapshots of the store; `None` if the node is not in a fleet.
    pub snapshots: Option<SnapshotQueue>,
    /// The mark of this site, which an operator can remove; `None` if the fleet has one site.
    pub site: Option<Arc<dyn SiteOrders>>,
}

/// The bounded queue to the thread that reads snapshots for joining nodes, and the snapshots.
#[derive(Clone, Debug)]
pub struct SnapshotQueue {
    /// The snapshots, for the jobs.
    pub provider: Arc<dyn SnapshotProvider>,
    /// The queue.
    pub jobs: SyncSender<Job>,
}

/// The kind of a job, which decides its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobKind {
    /// Draws a QR code.
    Picture,
    /// Reads or writes a long body.
    Document,
    /// Compresses a body.
    Compression,
}
