//! Codes for the admin listener. It has no queue of fresh codes, and borrows a few at once from a core.

use std::time::Instant;

use carom_shards::{Code, CoreId};

use super::ServiceHandle;
use crate::bridge::{LentCodes, ToCore};
use carom_limits::{CODE_LOAN_PAUSE, CODES_LENT};

impl ServiceHandle {
    /// Asks a core for some of its codes. Pauses if the core has none to lend; the next call asks the next core.
    pub(super) async fn borrow_codes(&self, deadline: Instant) {
        let cores = self.context.cores.len() - 1;
        let lender = self.next_lender.get() % cores;
        self.next_lender.set(lender + 1);
        let waiter = self.add_waiter(deadline.saturating_duration_since(Instant::now()));
        self.context.mailboxes.to(CoreId(lender as u16)).post(ToCore::Lend(waiter.ticket()));
        let LentCodes(codes) = waiter.answer().await.unwrap_or_default();
        if codes.is_empty() {
            self.sleep(CODE_LOAN_PAUSE).await;
        }
        self.spare_codes.borrow_mut().extend(codes);
    }

    /// Returns codes for another core, as long as enough are left.
    pub fn lend_codes(&self) -> Vec<Code> {
        let spare = self.codes_remaining().saturating_sub(CODES_LENT).min(CODES_LENT);
        let mut codes = self.codes.borrow_mut();
        (0..spare).map_while(|_| codes.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::bridge::handle::FreshCodes;
    use crate::bridge::handle::batches::tests::handle_of;
    use crate::bridge::{Mailbox, Mailboxes, Reply};

    /// A queue with this many codes.
    struct Few(usize);

    impl FreshCodes for Few {
        fn take(&mut self) -> Option<Code> {
            self.0 = self.0.checked_sub(1)?;
            Code::parse(format!("c{}", self.0).as_bytes()).ok()
        }

        fn remaining(&self) -> usize {
            self.0
        }
    }

    fn lender(codes: usize) -> usize {
        let (services, _) = handle_of(CoreId(0), Box::new(Few(codes)), Mailboxes::new(Vec::new()), 1);
        services.lend_codes().len()
    }

    #[test]
    fn a_core_keeps_some_for_itself() {
        assert_eq!(lender(CODES_LENT), 0);
        assert_eq!(lender(CODES_LENT + 3), 3);
        assert_eq!(lender(10 * CODES_LENT), CODES_LENT);
    }

    /// A core may be short of codes until its queue is filled again. The borrower gets one as soon as the core has it.
    #[test]
    fn a_core_that_has_none_to_lend_is_asked_again() {
        let bell = tempfile::tempfile().unwrap();
        let (mailbox, mail) = Mailbox::new(Arc::new(bell));
        let (services, _) = handle_of(CoreId(1), Box::new(Few(0)), Mailboxes::new(vec![mailbox]), 1);
        let mut code = pin!(services.take_code());
        let mut context = Context::from_waker(Waker::noop());
        let mut asked = || loop {
            assert!(code.as_mut().poll(&mut context).is_pending());
            match mail.try_recv() {
                Ok(ToCore::Lend(ticket)) => return ticket.token,
                _ => std::thread::yield_now(),
            }
        };
        for _ in 0..3 {
            let token = asked();
            services.deliver(token, Reply::Lent(LentCodes::default()));
        }
        let token = asked();
        let lent = Code::parse(b"lent").unwrap();
        services.deliver(token, Reply::Lent(LentCodes(vec![lent])));
        let Poll::Ready(Ok(taken)) = code.as_mut().poll(&mut context) else { panic!("no code") };
        assert_eq!(taken, lent);
    }
}
