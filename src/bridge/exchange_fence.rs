//! The end of the wait for an exchange with Redis: a node is ready only once every core has what the exchange brought.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use carom_telemetry::stats::{FleetStats, NodeStats};

/// A marker that a service sends to all cores behind the API keys or destination rules of its first exchange with Redis.
/// Once all cores have passed it, they have these, and the node no longer waits for the exchange.
#[derive(Debug)]
pub struct ExchangeFence {
    stats: Arc<NodeStats>,
    /// Selects the flag that ends the wait.
    has_exchanged: fn(&FleetStats) -> &AtomicBool,
    /// Number of cores that have not passed the fence.
    remaining_cores: AtomicUsize,
}

impl ExchangeFence {
    /// Returns a fence for that number of mailboxes. `has_exchanged` selects the flag that ends the wait. `None` if the
    /// node no longer waits.
    pub fn new(
        stats: &Arc<NodeStats>,
        has_exchanged: fn(&FleetStats) -> &AtomicBool,
        mailboxes: usize,
    ) -> Option<ExchangeFence> {
        assert!(mailboxes > 0, "no core would pass the fence");
        let waits = !has_exchanged(&stats.fleet).load(Ordering::Acquire);
        let (stats, remaining_cores) = (Arc::clone(stats), AtomicUsize::new(mailboxes));
        waits.then_some(ExchangeFence { stats, has_exchanged, remaining_cores })
    }

    /// Records that a core has passed the fence.
    pub fn pass(&self) {
        let remaining_cores = self.remaining_cores.fetch_sub(1, Ordering::AcqRel);
        assert!(remaining_cores > 0, "a core passes the fence twice, so another has not passed it");
        if remaining_cores == 1 {
            (self.has_exchanged)(&self.stats.fleet).store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::{Mailbox, Mailboxes, ToCore};
    use std::fs::File;

    #[test]
    fn wait_ends_once_every_core_has_the_mail_before_the_fence() {
        let bell = Arc::new(File::options().write(true).open("/dev/null").unwrap());
        let (boxes, mail): (Vec<_>, Vec<_>) = (0..3).map(|_| Mailbox::new(Arc::clone(&bell))).unzip();
        let (mailboxes, stats) = (Mailboxes::new(boxes), Arc::<NodeStats>::default());
        mailboxes.all().iter().for_each(|mailbox| mailbox.post(ToCore::CodesReady));
        mailboxes.post_exchange_fence(&stats, |fleet| &fleet.has_keys);
        for core in &mail {
            assert!(matches!(core.try_recv(), Ok(ToCore::CodesReady)), "it came before");
            assert!(!stats.fleet.has_keys.load(Ordering::Acquire), "a core has not passed the fence");
            let Ok(ToCore::ExchangeFence(fence)) = core.try_recv() else { panic!("a core gets no fence") };
            fence.pass();
        }
        assert!(stats.fleet.has_keys.load(Ordering::Acquire));
        assert!(!stats.fleet.has_rules.load(Ordering::Acquire), "that is another exchange");
        mailboxes.post_exchange_fence(&stats, |fleet| &fleet.has_keys);
        assert!(mail.iter().all(|core| core.try_recv().is_err()), "the wait is over");
    }
}
