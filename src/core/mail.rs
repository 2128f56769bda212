//! The mail of a core: messages of services and other cores, and what the core does with each. A turn takes mail for a
//! bounded time.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::run_loop::{Core, CoreEvent};
use super::shard::Shard;
use crate::bridge::handle::ServiceHandle;
use crate::bridge::{Answer, AnswerOfLastCore, LentCodes, PublishedRules, ToCore, WriterReply};
use carom_limits::MAIL_TIME_PER_TURN;

/// Messages of the mailbox handled in one turn.
const MAIL_PER_TURN: usize = 64;

/// Short messages after which a core reads the clock. Each takes it a few microseconds at most.
const SHORT_MESSAGES_PER_CLOCK_READ: usize = 8;

/// The mail that a core has taken in one turn.
struct MailTurn {
    begin: Instant,
    /// Number of messages.
    taken: usize,
    /// True if the last message may have taken long.
    was_long: bool,
}

impl MailTurn {
    fn new(begin: Instant) -> MailTurn {
        MailTurn { begin, taken: 0, was_long: false }
    }

    /// Counts a message.
    fn count(&mut self, message: &ToCore) {
        self.taken += 1;
        self.was_long = is_long(message);
    }

    /// True if further messages wait for the next turn. Reads the clock after a long message, and after every
    /// [`SHORT_MESSAGES_PER_CLOCK_READ`] messages.
    fn is_over(&self, now: impl FnOnce() -> Instant) -> bool {
        let is_look_due = self.was_long || self.taken.is_multiple_of(SHORT_MESSAGES_PER_CLOCK_READ);
        self.taken >= MAIL_PER_TURN || is_look_due && now().duration_since(self.begin) >= MAIL_TIME_PER_TURN
    }
}

/// True if a message may take a core more than a few microseconds.
fn is_long(message: &ToCore) -> bool {
    matches!(
        message,
        ToCore::LoadBegin { .. }
            | ToCore::Load(_)
            | ToCore::LoadPage(_)
            | ToCore::LoadShared(_)
            | ToCore::LoadDone
            | ToCore::StoredCodes(_)
            | ToCore::ForgetLinks { .. }
            | ToCore::Report(_)
            | ToCore::Open
            | ToCore::Drain { .. }
    )
}

impl Core {
    /// Takes some of the mail, for [`MAIL_TIME_PER_TURN`] and the rest of the last message. Reads the clock with `now`.
    /// Returns true if there was any mail.
    ///
    /// # Errors
    /// If a listener cannot be opened.
    pub(super) fn take_mail(&mut self, now: fn() -> Instant) -> io::Result<bool> {
        let mut turn = None;
        while let Ok(message) = self.mail.try_recv() {
            let turn = turn.get_or_insert_with(|| MailTurn::new(now()));
            turn.count(&message);
            self.take_message(message)?;
            if turn.is_over(now) {
                break;
            }
        }
        Ok(turn.is_some())
    }

    fn take_message(&mut self, message: ToCore) -> io::Result<()> {
        let (services, redirects) = (&self.work.services, &mut self.work.redirects);
        match message {
            ToCore::Apply { change, commit, answer } => {
                redirects.forget_missing_code(change.code(), self.work.now.tick);
                let done = match &mut redirects.data {
                    Some(data) => data.apply(&change, commit, answer),
                    None => answer,
                };
                self.acknowledge(done);
            }
            ToCore::CopyDropped { number } => {
                let done = redirects.data.as_mut().and_then(|data| data.confirm_dropped(number));
                self.acknowledge(done);
            }
            ToCore::Reply { token, reply } => services.deliver(token, reply),
            ToCore::LookupDone { code, token, found, is_allowance, absence } => {
                redirects.remember_missing(&code, absence, self.work.now.tick);
                self.work.deliver_look_up(&code, token, &found, is_allowance);
            }
            ToCore::LoadBegin { links } => self.with_shard(|shard| shard.begin_load(links)),
            ToCore::Load(batch) => self.with_shard(|shard| shard.load(&batch)),
            ToCore::LoadPage(loaded) => self.with_shard(|shard| shard.load_page(*loaded)),
            ToCore::LoadShared(loaded) => self.with_shard(|shard| shard.load_own(&loaded)),
            ToCore::LoadDamaged(ranges) => self.with_shard(|shard| shard.set_unreadable_ranges(ranges)),
            ToCore::StoredCodes(codes) => self.with_shard(|shard| shard.take_codes(codes)),
            ToCore::CacheLink { code, link, as_of } => {
                self.with_shard(|shard| shard.keep(&code, link.as_ref(), as_of));
            }
            ToCore::ForgetLinks { commit } => {
                if let Some(data) = &mut redirects.data {
                    services.free_elsewhere(data.forget_all(commit));
                }
            }
            ToCore::LoadDone => {
                let core = services.core();
                self.with_shard(Shard::end_load);
                // The starter of the node may have given up by now.
                let _ = self.events.send(CoreEvent::Loaded(core));
            }
            ToCore::Fence(fence) => fence.pass(),
            ToCore::ExchangeFence(fence) => fence.pass(),
            ToCore::Hosts(hosts) => services.set_allowed(hosts),
            ToCore::Blocked(hosts) => services.set_blocked(hosts),
            ToCore::Identity(identity) => self.work.tls.set_identity(identity),
            ToCore::Geo(geo) => services.set_geo(geo),
            ToCore::Keys(keys) => services.set_keys(keys),
            ToCore::DomainRedirects(published) => {
                redirects.domain_redirects = Arc::clone(&published.redirects);
                services.set_domain_redirects(Arc::clone(&published.redirects));
                answer_if_last(services, &published.answer);
            }
            ToCore::DestinationRules(published) => take_rules(services, &published),
            ToCore::CodesReady => services.wake_code_waiters(),
            ToCore::Lend(ticket) => services.context().mailboxes.answer(ticket, LentCodes(services.lend_codes())),
            ToCore::Report(ticket) => {
                services.context().mailboxes.answer(ticket, Box::new(redirects.latencies.summary()));
            }
            ToCore::Open => self.open()?,
            ToCore::Drain { within } => self.begin_drain(within),
        }
        Ok(())
    }

    /// Runs a step of the load on the links of the core. The core of the admin listener has none.
    fn with_shard(&mut self, step: impl FnOnce(&mut Shard)) {
        if let Some(data) = &mut self.work.redirects.data {
            step(&mut data.shard);
        }
    }

    /// Confirms to the requester of a change that the change is durable and visible on every core.
    fn acknowledge(&mut self, done: Option<WriterReply>) {
        let Some(done) = done else { return };
        let services = &self.work.services;
        let (core, token, reply) = done.into_parts();
        if core == services.core() {
            services.deliver(token, reply);
        } else {
            services.context().mailboxes.to(core).post(ToCore::Reply { token, reply });
        }
    }
}

/// Replaces both lists of hosts and the saved rules together.
fn take_rules(services: &ServiceHandle, published: &PublishedRules) {
    services.set_allowed(published.allow.clone());
    services.set_blocked(published.block.clone());
    services.set_saved_rules(Arc::clone(&published.saved));
    answer_if_last(services, &published.answer);
}

/// Records that this core has a change. If all others had it before, answers the task that has made it.
fn answer_if_last<A: Answer + Clone>(services: &ServiceHandle, answer: &AnswerOfLastCore<A>) {
    if let Some((ticket, answer)) = answer.pass() {
        services.context().mailboxes.answer(ticket, answer);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    /// Takes the same message again and again, each time for `time`, until the turn is over. Returns how many messages were
    /// taken, and how often the clock was read.
    fn turn_of(message: &ToCore, time: Duration) -> (usize, usize) {
        let (begin, looks) = (Instant::now(), Cell::new(0));
        let mut turn = MailTurn::new(begin);
        loop {
            turn.count(message);
            let now = || {
                looks.set(looks.get() + 1);
                begin + time * turn.taken as u32
            };
            if turn.is_over(now) {
                return (turn.taken, looks.get());
            }
        }
    }

    #[test]
    fn a_turn_takes_mail_for_a_bounded_time() {
        let forget = ToCore::ForgetLinks { commit: 1 };
        assert_eq!(turn_of(&forget, MAIL_TIME_PER_TURN * 2 / 5), (3, 3), "each long message may be the last");
        assert_eq!(turn_of(&forget, MAIL_TIME_PER_TURN * 9), (1, 1));
        let short = ToCore::CodesReady;
        assert_eq!(
            turn_of(&short, MAIL_TIME_PER_TURN),
            (SHORT_MESSAGES_PER_CLOCK_READ, 1),
            "short messages that take long"
        );
        let looks = MAIL_PER_TURN / SHORT_MESSAGES_PER_CLOCK_READ - 1;
        assert_eq!(turn_of(&short, Duration::from_micros(1)), (MAIL_PER_TURN, looks), "few looks at the clock");
    }
}
