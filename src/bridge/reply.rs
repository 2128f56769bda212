//! One-shot replies: a service answers a [`Ticket`](super::Ticket), and only with the type of answer that its task
//! waits for.
//!
//! A request carries the ticket of its task. [`Mailboxes::answer`](super::Mailboxes::answer) takes a ticket and an
//! answer of the same type, and the core of the ticket gets a [`Reply`] by mail. There it goes to the waiters of that
//! type (see [`Waiting`]), so no task has to look at an answer that it did not ask for.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::answer::{
    ChangeAnswer, CreateAnswer, DeleteAnswer, EditsAnswer, LinkAnswer, Page, TaskLookup, VisitsAnswer,
};
use super::apps::AppsAnswer;
use super::destination_rules::DestinationRulesAnswer;
use super::domain_redirects::DomainRedirectsAnswer;
use super::events::EventAnswer;
use super::jobs::JobDone;
use super::lists::{
    CountsAnswer, CrawlableAnswer, DomainsAnswer, EndedAnswer, GroupsAnswer, LinksAnswer, ReferrersAnswer, TagsAnswer,
};
use super::purges::PurgeAnswer;
use super::visit_log::{VisitLogAnswer, VisitStatisticsAnswer};
use carom_telemetry::stats::LatencySummary;

/// Codes that a core lends to the core of the admin listener; none if it needs its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LentCodes(pub Vec<Code>);

/// The answer that never comes, for tasks that wait until a time or for the end of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {}

/// A type of answers that tasks wait for.
pub trait Answer: Sized {
    /// Wraps the answer for the mailbox of a core.
    fn into_reply(self) -> Reply;
    /// Returns the waiters for answers of this type.
    fn waiters(waiting: &mut Waiting) -> &mut Waiters<Self>;
}

/// Tasks that wait for answers of one type, by token.
#[derive(Debug)]
pub struct Waiters<A>(HashMap<u64, Waiter<A>>);

#[derive(Debug)]
struct Waiter<A> {
    answer: Option<A>,
    waker: Option<Waker>,
    /// The instant at which the task began to wait.
    since: Instant,
    deadline: Instant,
}

impl<A> Default for Waiters<A> {
    fn default() -> Waiters<A> {
        Waiters(HashMap::new())
    }
}

impl<A> Waiters<A> {
    /// Adds a waiter with this timeout, which is to be removed again with [`Waiters::remove`].
    pub(super) fn insert(&mut self, token: u64, within: Duration) {
        let since = Instant::now();
        let before = self.0.insert(token, Waiter { answer: None, waker: None, since, deadline: since + within });
        debug_assert!(before.is_none(), "each token is given out once");
    }

    /// Returns the instant at which a waiter began to wait; `None` once it is gone.
    pub(super) fn waits_since(&self, token: u64) -> Option<Instant> {
        self.0.get(&token).map(|waiter| waiter.since)
    }

    /// Removes a waiter. A later answer reaches nobody.
    pub(super) fn remove(&mut self, token: u64) {
        self.0.remove(&token);
    }

    /// Returns the answer for a waiter; `None` inside once its deadline has passed, or the core `is_closed`.
    pub(super) fn poll(&mut self, token: u64, is_closed: bool, context: &Context<'_>) -> Poll<Option<A>> {
        let waiter = self.0.get_mut(&token).expect("a task polls while it has its place");
        if let Some(answer) = waiter.answer.take() {
            return Poll::Ready(Some(answer));
        }
        if is_closed || Instant::now() >= waiter.deadline {
            return Poll::Ready(None);
        }
        waiter.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Registers the task to be woken at its deadline.
    pub(super) fn watch(&mut self, token: u64, context: &Context<'_>) {
        if let Some(waiter) = self.0.get_mut(&token) {
            waiter.waker = Some(context.waker().clone());
        }
    }

    fn deliver(&mut self, token: u64, answer: A) {
        // A task that was dropped, or whose deadline has passed, has no waiter.
        if let Some(waiter) = self.0.get_mut(&token) {
            waiter.answer = Some(answer);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    fn wake(&mut self, is_over: impl Fn(Instant) -> bool) {
        for waiter in self.0.values_mut().filter(|waiter| is_over(waiter.deadline)) {
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }
}

macro_rules! answers {
    ($($(#[$doc:meta])* $variant:ident($answer:ty), $field:ident;)*) => {
        /// An answer on its way to the task that waits for it.
        #[derive(Debug)]
        pub enum Reply {
            $($(#[$doc])* $variant($answer),)*
        }

        /// The waiting tasks of a core, by the type of the answer that they wait for.
        #[derive(Debug, Default)]
        pub struct Waiting {
            $($field: Waiters<$answer>,)*
        }

        $(impl Answer for $answer {
            fn into_reply(self) -> Reply {
                Reply::$variant(self)
            }

            fn waiters(waiting: &mut Waiting) -> &mut Waiters<$answer> {
                &mut waiting.$field
            }
        })*

        impl Waiting {
            /// Brings a reply to its waiter, and wakes the task.
            pub(super) fn deliver(&mut self, token: u64, reply: Reply) {
                match reply {
                    $(Reply::$variant(answer) => self.$field.deliver(token, answer),)*
                }
            }

            /// Wakes the tasks whose deadline `is_over`.
            pub(super) fn wake(&mut self, is_over: impl Fn(Instant) -> bool) {
                $(self.$field.wake(&is_over);)*
            }
        }
    };
}

answers! {
    /// The result of a create.
    Created(CreateAnswer), creates;
    /// The result of a change of a link.
    Changed(ChangeAnswer), changes;
    /// The result of a delete.
    Deleted(DeleteAnswer), deletes;
    /// The record of a code.
    Link(LinkAnswer), links;
    /// Visit statistics.
    Visits(VisitsAnswer), visits;
    /// Visits of the log, or the end of their deletion.
    VisitLog(VisitLogAnswer), logged;
    /// Events, or dead letters of their sinks.
    Events(EventAnswer), events;
    /// Statistics of the visits of the log.
    VisitStatistics(VisitStatisticsAnswer), visit_statistics;
    /// The edit history of a code.
    Edits(EditsAnswer), edits;
    /// A page of links.
    Links(LinksAnswer), link_pages;
    /// A page of tags.
    Tags(TagsAnswer), tags;
    /// Lines of a `robots.txt`.
    Crawlable(CrawlableAnswer), crawlable;
    /// Numbers of links.
    Counts(CountsAnswer), counts;
    /// Referring hosts.
    Referrers(ReferrersAnswer), referrers;
    /// Domains with links.
    Domains(DomainsAnswer), domains;
    /// Links that were deleted before.
    Ended(EndedAnswer), ended_links;
    /// Visits by app and domain.
    Groups(GroupsAnswer), groups;
    /// The result of a change of apps or keys.
    Apps(AppsAnswer), apps;
    /// The result of a change of domain redirects.
    DomainRedirects(DomainRedirectsAnswer), domain_redirects;
    /// The result of a save of destination rules.
    DestinationRules(DestinationRulesAnswer), destination_rules;
    /// The progress of a purge.
    Purges(PurgeAnswer), purges;
    /// A page of an export.
    Page(Page), pages;
    /// The latency quantiles of a core.
    Latency(Box<LatencySummary>), latencies;
    /// Codes of another core.
    Lent(LentCodes), lent;
    /// The end of a job.
    JobDone(JobDone), jobs;
    /// The result of a look-up.
    Lookup(TaskLookup), lookups;
    /// No answer: a pause has none.
    Paused(Pause), pauses;
}
