//! Orders to the thread that manages the redirects of domains, its answers, and its messages to the cores.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::last_core::AnswerOfLastCore;
use super::ticket::Ticket;
use carom_model::destination::long_url::LongUrl;
use carom_model::domains::redirects::{DomainRedirects, TargetKind};
use carom_model::domains::{DomainName, Targets};

/// An order to change redirects of a domain.
#[derive(Debug)]
pub struct DomainRedirectsOrder {
    /// A domain of the service.
    pub domain: DomainName,
    /// The redirects to replace; `None` for no redirect.
    pub changes: Vec<(TargetKind, Option<LongUrl>)>,
    /// The task that waits for the answer.
    pub ticket: Ticket<DomainRedirectsAnswer>,
}

/// The result of a [`DomainRedirectsOrder`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DomainRedirectsAnswer {
    /// The change is stored, and all cores redirect accordingly. These are the redirects of the domain.
    Changed(Targets),
    /// The change may not have been stored, with the reason.
    Failed(String),
}

/// The queue to the thread that manages the redirects of domains, shared by all cores.
pub type DomainRedirectsQueue = SyncSender<DomainRedirectsOrder>;

/// New redirects on their way to all cores.
#[derive(Debug)]
pub struct PublishedRedirects {
    /// The redirects of all domains.
    pub redirects: Arc<DomainRedirects>,
    /// The answer to the task that has changed them, which the last core sends.
    pub answer: AnswerOfLastCore<DomainRedirectsAnswer>,
}
