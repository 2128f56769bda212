//! Work that is too long for a core: a thread does it, and the core hears of the result.

use std::any::Any;
use std::fmt;
use std::sync::mpsc::SyncSender;

use super::Ticket;

/// What a job has made. The task that handed it off knows its type.
pub type Made = Box<dyn Any + Send>;

/// A piece of work for a thread, and whom to tell of the result.
pub struct Job {
    /// Whom to tell.
    pub ticket: Ticket,
    /// The work.
    pub run: Box<dyn FnOnce() -> Made + Send>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job(for {:?})", self.ticket)
    }
}

/// The bounded ways to the threads that do such work, shared by all cores. Pictures have one of their own, so that a flood of
/// requests for them does not keep the API waiting.
#[derive(Clone, Debug)]
pub struct JobQueues {
    /// For QR codes.
    pub pictures: SyncSender<Job>,
    /// For long bodies of requests and answers.
    pub documents: SyncSender<Job>,
}

/// Which thread does a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobKind {
    /// Draws a QR code.
    Picture,
    /// Reads or writes a long body.
    Document,
}
