//! The mail of a core: messages of services and other cores, and what the core does with each.

use std::io;
use std::sync::Arc;

use super::run_loop::{Core, CoreEvent};
use super::shard::Shard;
use crate::bridge::{LentCodes, ToCore, WriterReply};

/// Messages of the mailbox handled in one turn. A batch of a starting node takes a core some hundred microseconds.
const MAIL_PER_TURN: usize = 64;

impl Core {
    /// Takes some of the mail. Returns true if there was any.
    ///
    /// # Errors
    /// If a listener cannot be opened.
    pub(super) fn take_mail(&mut self) -> io::Result<bool> {
        let mut worked = false;
        for _ in 0..MAIL_PER_TURN {
            let Ok(message) = self.mail.try_recv() else { break };
            worked = true;
            self.take_message(message)?;
        }
        Ok(worked)
    }

    fn take_message(&mut self, message: ToCore) -> io::Result<()> {
        let (services, redirects) = (&self.work.services, &mut self.work.redirects);
        match message {
            ToCore::Apply { change, commit, notify } => {
                redirects.forget_missing_code(change.code());
                let done = match &mut redirects.data {
                    Some(data) => data.apply(&change, commit, notify),
                    None => notify,
                };
                self.acknowledge(done);
            }
            ToCore::CopyDropped { number } => {
                let done = redirects.data.as_mut().and_then(|data| data.confirm_dropped(number));
                self.acknowledge(done);
            }
            ToCore::Reply { token, reply } => services.deliver(token, reply),
            ToCore::LookedUp { code, token, found, is_allowance, absence } => {
                redirects.remember_missing(&code, absence, self.work.now.tick);
                self.work.take_look_up(&code, token, &found, is_allowance);
            }
            ToCore::LoadBegin { links } => self.with_shard(|shard| shard.begin_load(links)),
            ToCore::Load(batch) => self.with_shard(|shard| shard.load(&batch)),
            ToCore::LoadPage(loaded) => self.with_shard(|shard| shard.load_page(*loaded)),
            ToCore::LoadShared(loaded) => self.with_shard(|shard| shard.load_own(&loaded)),
            ToCore::LoadDamaged(ranges) => self.with_shard(|shard| shard.set_unreadable_ranges(ranges)),
            ToCore::StoredCodes(codes) => self.with_shard(|shard| shard.take_codes(codes)),
            ToCore::Fetched { code, link, as_of } => {
                self.with_shard(|shard| shard.keep(&code, link.as_ref(), as_of));
            }
            ToCore::ForgetLinks { commit } => {
                redirects.data.iter_mut().for_each(|data| data.forget_all(commit));
            }
            ToCore::LoadDone => {
                let core = services.core();
                self.with_shard(Shard::end_load);
                // The starter of the node may have given up by now.
                let _ = self.events.send(CoreEvent::Loaded(core));
            }
            ToCore::Fence(fence) => fence.pass(),
            ToCore::Hosts(hosts) => services.allow(hosts),
            ToCore::Blocked(hosts) => services.block(hosts),
            ToCore::Identity(identity) => self.work.tls.set_identity(identity),
            ToCore::Geo(geo) => services.take_geo(geo),
            ToCore::Keys(keys) => services.take_keys(keys),
            ToCore::DomainRedirects(published) => {
                redirects.domain_redirects = Arc::clone(&published.redirects);
                services.take_domain_redirects(Arc::clone(&published.redirects));
                if let Some((ticket, answer)) = published.pass() {
                    services.context().mailboxes.answer(ticket, answer);
                }
            }
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
