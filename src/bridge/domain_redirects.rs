//! Orders to the thread that manages the redirects of domains, its answers, and what it sends to the cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;

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

/// New redirects on their way to all cores, and the answer to the task that has changed them.
#[derive(Debug)]
pub struct PublishedRedirects {
    /// The redirects.
    pub redirects: Arc<DomainRedirects>,
    /// The answer, which the last core sends.
    answer: Option<(Ticket<DomainRedirectsAnswer>, Targets)>,
    /// Number of cores that do not have them yet.
    left: AtomicUsize,
}

impl PublishedRedirects {
    /// Returns new redirects for that number of mailboxes.
    pub fn new(
        redirects: Arc<DomainRedirects>,
        answer: Option<(Ticket<DomainRedirectsAnswer>, Targets)>,
        mailboxes: usize,
    ) -> PublishedRedirects {
        assert!(mailboxes > 0, "nobody would send the answer");
        PublishedRedirects { redirects, answer, left: AtomicUsize::new(mailboxes) }
    }

    /// Records that a core has them. Returns the answer to send if all others had them before.
    pub fn pass(&self) -> Option<(Ticket<DomainRedirectsAnswer>, DomainRedirectsAnswer)> {
        let left = self.left.fetch_sub(1, Ordering::AcqRel);
        assert!(left > 0, "a core counts twice, so another does not have the redirects");
        let (ticket, targets) = self.answer.as_ref().filter(|_| left == 1)?;
        Some((*ticket, DomainRedirectsAnswer::Changed(targets.clone())))
    }
}
