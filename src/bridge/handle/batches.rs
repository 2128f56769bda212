//! Batches of store requests that one task waits for together: one waiter, one wake-up.
//!
//! If a task stops waiting, its batch is dropped; codes in later answers are still returned. See [`super::batch_state`] for
//! the state of a batch.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use carom_shards::Code;

use super::batch_state::{AnswerSlot, BATCH_TOKEN, BatchAnswer, Batches, OpenBatch, PLACE_BITS};
use super::{ServiceHandle, fresh_code_of};
use crate::bridge::{
    ChangeAnswer, CreateAnswer, DeleteAnswer, FleetDecision, LinkAnswer, ReadRequest, StoreRequest, Ticket,
    WriterAnswer, WriterOrder,
};
use carom_limits::{ANSWER_TIME_MAX, REMOVED_WHILE_LOADING_MAX};
use carom_model::access::idempotency::PendingCreate;

/// A type of answers whose batches a handle holds.
pub trait Batched: BatchAnswer {
    /// Returns the batches of answers of this type.
    #[doc(hidden)]
    fn batches(services: &ServiceHandle) -> &RefCell<Batches<Self>>;
}

impl Batched for CreateAnswer {
    fn batches(services: &ServiceHandle) -> &RefCell<Batches<CreateAnswer>> {
        &services.creates
    }
}

impl Batched for ChangeAnswer {
    fn batches(services: &ServiceHandle) -> &RefCell<Batches<ChangeAnswer>> {
        &services.changes
    }
}

impl Batched for DeleteAnswer {
    fn batches(services: &ServiceHandle) -> &RefCell<Batches<DeleteAnswer>> {
        &services.deletes
    }
}

impl Batched for LinkAnswer {
    fn batches(services: &ServiceHandle) -> &RefCell<Batches<LinkAnswer>> {
        &services.reads
    }
}

/// A future of the answers to a batch of requests, in the order of the requests. A change without an answer at the
/// deadline is unconfirmed, and a read is refused. Codes that are not needed are taken back.
#[derive(Debug)]
pub struct AwaitedBatch<A: Batched> {
    services: Rc<ServiceHandle>,
    number: u64,
    answers: PhantomData<A>,
}

impl<A: Batched> Future for AwaitedBatch<A> {
    type Output = Vec<A>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Vec<A>> {
        let mut batches = A::batches(&self.services).borrow_mut();
        let batch = batches.by_number.get_mut(&self.number).expect("a batch stays open while a task awaits it");
        if batch.unanswered > 0 && Instant::now() < batch.deadline {
            batch.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.services.spare_codes.borrow_mut().extend(batch.slots.iter_mut().filter_map(AnswerSlot::take_spare));
        // Later answers still count, so their places stay.
        Poll::Ready(batch.slots.iter().map(|place| place.answer.clone().unwrap_or_else(A::late)).collect())
    }
}

impl<A: Batched> AwaitedBatch<A> {
    /// Keeps idempotency keys in use until all requests of the batch are answered, even if the task stops waiting.
    pub fn hold(&self, pending: Vec<Rc<PendingCreate>>) {
        if let Some(batch) = A::batches(&self.services).borrow_mut().by_number.get_mut(&self.number) {
            batch.pending = pending;
        }
    }
}

impl<A: Batched> Drop for AwaitedBatch<A> {
    fn drop(&mut self) {
        let mut batches = A::batches(&self.services).borrow_mut();
        let Some(batch) = batches.by_number.get_mut(&self.number) else { return };
        batch.abandoned = true;
        batch.waker = None;
        self.services.spare_codes.borrow_mut().extend(batch.slots.iter_mut().filter_map(AnswerSlot::take_spare));
        if batch.unanswered == 0 {
            batches.by_number.remove(&self.number);
        }
    }
}

impl ServiceHandle {
    /// Sends `count` requests of one kind to the store, at most [`carom_limits::BULK_CHUNK_LINES`]. `make` returns the request of each
    /// index.
    pub fn store_all<A: WriterAnswer + Batched>(
        self: &Rc<ServiceHandle>,
        count: usize,
        mut make: impl FnMut(usize, Ticket<A>) -> StoreRequest,
    ) -> AwaitedBatch<A> {
        self.send_batch(count, |at, ticket| {
            let request = make(at, ticket);
            let code = if let StoreRequest::Create { link, .. } = &request { fresh_code_of(link) } else { None };
            (self.send(request), code)
        })
    }

    /// Reads the records of `count` codes, at most [`carom_limits::BULK_CHUNK_LINES`]. `code` returns the code of each index.
    pub fn read_all(self: &Rc<ServiceHandle>, count: usize, code: impl Fn(usize) -> Code) -> AwaitedBatch<LinkAnswer> {
        self.send_batch(count, |at, ticket| (self.send_link_read(code(at), ticket), None))
    }

    /// Sends a batch of requests. `send` sends the one of each index, and returns the code that it brings, if that can
    /// go to another link.
    fn send_batch<A: Batched>(
        self: &Rc<ServiceHandle>,
        count: usize,
        mut send: impl FnMut(usize, Ticket<A>) -> (Result<(), &'static str>, Option<Code>),
    ) -> AwaitedBatch<A> {
        let mut batches = A::batches(self).borrow_mut();
        batches.last += 1;
        let number = batches.last;
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        let slots = Vec::with_capacity(count);
        let mut batch =
            OpenBatch { slots, unanswered: 0, waker: None, deadline, abandoned: false, pending: Vec::new() };
        for at in 0..count {
            let token = BATCH_TOKEN | number << PLACE_BITS | at as u64;
            let (sent, code) = send(at, Ticket::new(self.me, token));
            batch.unanswered += usize::from(sent.is_ok());
            batch.slots.push(AnswerSlot { answer: sent.err().map(A::refused), code });
        }
        debug_assert!(batch.unanswered <= batch.slots.len(), "each request has one place");
        batches.by_number.insert(number, batch);
        AwaitedBatch { services: Rc::clone(self), number, answers: PhantomData }
    }

    /// Puts a change into the queue of the writer. In a fleet, this is the queue of the gateway, which replaces
    /// [`FleetDecision::Alone`] with its own decision.
    pub(super) fn send(&self, request: StoreRequest) -> Result<(), &'static str> {
        if self.removed_while_loading() >= REMOVED_WHILE_LOADING_MAX {
            return Err(super::LOADING);
        }
        let order = WriterOrder::Client(request, FleetDecision::Alone);
        self.context.writer.try_send(order).map_err(|error| super::refusal(&error))
    }

    /// Puts a read into the queue of the readers.
    pub(super) fn send_read(&self, request: ReadRequest) -> Result<(), &'static str> {
        self.context.reader.try_send(request).map_err(|error| super::refusal(&error))
    }

    /// Returns the number of deleted codes that all cores remember until all links are loaded.
    fn removed_while_loading(&self) -> u64 {
        self.context.cores.iter().map(|core| core.removed_while_loading.get()).sum()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bridge::WriteFailure;
    use crate::bridge::handle::{FreshCodes, NodeContext, Recorders, miss_limiter};
    use crate::bridge::{AllowanceQueue, JobQueues, ListQueues, Mailboxes, Reply};
    use crate::pages::Pages;
    use carom_model::access::idempotency::PendingCreates;
    use carom_model::domains::{Domains, UnknownHost};
    use carom_model::link::labels::LinkLabels;
    use carom_model::link::{Criteria, Link, Origin, Reuse, Version};
    use carom_shards::{CoreId, Policy};
    use carom_telemetry::clock::Clock;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::task::Waker;

    pub(in crate::bridge::handle) struct NoCodes;

    impl FreshCodes for NoCodes {
        fn take(&mut self) -> Option<Code> {
            None
        }

        fn remaining(&self) -> usize {
            0
        }
    }

    /// Returns a handle whose writer is the test, with a queue of `len` requests.
    pub(in crate::bridge::handle) fn services(len: usize) -> (Rc<ServiceHandle>, Receiver<WriterOrder>) {
        handle_of(CoreId(0), Box::new(NoCodes), Mailboxes::new(Vec::new()), len)
    }

    /// Returns a handle like [`services`], of a core (0, or 1 for the admin listener), with these codes and mailboxes.
    pub(in crate::bridge::handle) fn handle_of(
        core: CoreId,
        codes: Box<dyn FreshCodes>,
        mailboxes: Mailboxes,
        len: usize,
    ) -> (Rc<ServiceHandle>, Receiver<WriterOrder>) {
        let (writer, orders) = sync_channel(len);
        let domains = Domains::new("https://s.test", &[], false, UnknownHost::NotFound);
        let context = NodeContext {
            domains: Arc::new(domains),
            writer,
            reader: sync_channel(1).0,
            pages: Arc::new(Pages::plain()),
            page_reader: sync_channel(1).0,
            lists: ListQueues {
                pages: sync_channel(1).0,
                searches: sync_channel(1).0,
                orders: sync_channel(1).0,
                visits: None,
                events: None,
            },
            jobs: JobQueues {
                pictures: sync_channel(1).0,
                documents: sync_channel(1).0,
                compression: sync_channel(1).0,
                purges: sync_channel(1).0,
                snapshots: None,
                site: None,
            },
            redis_look_ups: None,
            bulk_look_ups: None,
            fleet_view: None,
            allowances: AllowanceQueue::new().0,
            store_look_ups: None,
            apps: sync_channel(1).0,
            domain_redirects: sync_channel(1).0,
            destination_rules: sync_channel(1).0,
            miss_limiter: miss_limiter(0),
            mailboxes,
            clock: Clock::SYSTEM,
            pending_creates: PendingCreates::default(),
            nostat: "",
            cores: Arc::new([Arc::default(), Arc::default()]),
            node: Arc::default(),
        };
        (Rc::new(ServiceHandle::new(core, context, codes, Recorders::default())), orders)
    }

    fn link(at: usize, origin: Origin) -> Arc<Link> {
        let code = Code::parse(format!("c{at}").as_bytes()).unwrap();
        let (policy, labels, version) = (Policy::default(), LinkLabels::default(), Version::default());
        Arc::new(Link { code, policy, target: "http://a/".to_owned(), created_ms: 1, origin, version, labels })
    }

    fn ask(services: &Rc<ServiceHandle>, count: usize) -> AwaitedBatch<CreateAnswer> {
        let origin = |at: usize| if at == 0 { Origin::Custom } else { Origin::Issued };
        let make =
            |at, ticket| StoreRequest::Create { link: link(at, origin(at)), reuse: Reuse::Any(Criteria::NONE), ticket };
        services.store_all(count, make)
    }

    fn answer(services: &ServiceHandle, orders: &Receiver<WriterOrder>, spare: bool) {
        let Ok(WriterOrder::Client(StoreRequest::Create { link, ticket, .. }, FleetDecision::Alone)) =
            orders.try_recv()
        else {
            panic!("no request")
        };
        services.deliver(ticket.token, Reply::Created(CreateAnswer::Existing { link, spare }));
    }

    fn poll<A: Batched>(awaited: &mut AwaitedBatch<A>) -> Option<Vec<A>> {
        match Pin::new(awaited).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answers) => Some(answers),
            Poll::Pending => None,
        }
    }

    #[test]
    fn all_answers_come_together_and_codes_that_are_not_needed_go_back() {
        let (services, orders) = services(9);
        let mut awaited = ask(&services, 3);
        for spare in [false, true, false] {
            assert_eq!(poll(&mut awaited), None);
            answer(&services, &orders, spare);
        }
        let expected = |at, origin| CreateAnswer::Existing { link: link(at, origin), spare: false };
        let expected = [expected(0, Origin::Custom), expected(1, Origin::Issued), expected(2, Origin::Issued)];
        assert_eq!(poll(&mut awaited).unwrap(), expected);
        drop(awaited);
        assert_eq!(*services.spare_codes.borrow(), [link(1, Origin::Issued).code]);
        assert!(services.creates.borrow().by_number.is_empty());
    }

    #[test]
    fn what_nobody_waits_for_any_more_leaves_nothing_behind() {
        // Answers before and after the task has stopped waiting.
        for before in 0..=4 {
            let (services, orders) = services(9);
            let awaited = ask(&services, 4);
            (0..before).for_each(|_| answer(&services, &orders, true));
            drop(awaited);
            (before..4).for_each(|_| answer(&services, &orders, true));
            let mut codes = services.spare_codes.borrow().clone();
            codes.sort();
            let issued = [1, 2, 3].map(|at| link(at, Origin::Issued).code);
            assert_eq!(codes, issued, "the slug is nobody's, the others are free");
            assert!(services.creates.borrow().by_number.is_empty());
        }
    }

    #[test]
    fn while_links_are_loaded_only_so_many_may_be_deleted() {
        let (services, orders) = services(9);
        services.context().cores[1].removed_while_loading.set(REMOVED_WHILE_LOADING_MAX);
        let answers = poll(&mut ask(&services, 1)).unwrap();
        assert_eq!(answers, [CreateAnswer::Failed(WriteFailure::Refused(super::super::LOADING))]);
        assert!(orders.try_recv().is_err());
        // All links are loaded.
        services.context().cores[1].removed_while_loading.set(0);
        assert_eq!(poll(&mut ask(&services, 1)), None);
    }

    #[test]
    fn what_finds_no_place_in_the_queue_is_refused_with_its_code_free() {
        let (services, orders) = services(2);
        let mut awaited = ask(&services, 4);
        (0..2).for_each(|_| answer(&services, &orders, false));
        let answers = poll(&mut awaited).unwrap();
        assert!(
            matches!(
                answers[..],
                [.., CreateAnswer::Failed(WriteFailure::Refused(_)), CreateAnswer::Failed(WriteFailure::Refused(_))]
            ),
            "{answers:?}"
        );
        drop(awaited);
        assert_eq!(
            *services.spare_codes.borrow(),
            [2, 3].map(|at| link(at, Origin::Issued).code),
            "each code is free once"
        );
    }

    #[test]
    fn a_refused_create_frees_its_code_and_an_unconfirmed_one_does_not() {
        for (answer, is_free) in [
            (CreateAnswer::Failed(WriteFailure::Refused("the disk is full")), true),
            (CreateAnswer::Failed(WriteFailure::NeedsRedis { was_sent: false }), true),
            (CreateAnswer::Failed(WriteFailure::NeedsRedis { was_sent: true }), false),
            (CreateAnswer::Failed(WriteFailure::Unconfirmed("the disk is slow")), false),
            (CreateAnswer::Created, false),
            (CreateAnswer::Taken, false),
        ] {
            let (services, orders) = services(9);
            let mut awaited = ask(&services, 2);
            while let Ok(WriterOrder::Client(StoreRequest::Create { ticket, .. }, _)) = orders.try_recv() {
                services.deliver(ticket.token, Reply::Created(answer.clone()));
            }
            assert_eq!(poll(&mut awaited).unwrap(), [answer.clone(), answer.clone()]);
            drop(awaited);
            let link = link(1, Origin::Issued);
            let free = if is_free { vec![link.code] } else { Vec::new() };
            assert_eq!(*services.spare_codes.borrow(), free, "{answer:?}");
            services.give_back_unused(&link, &answer);
            assert_eq!(services.spare_codes.borrow().len(), 2 * free.len(), "{answer:?}");
        }
    }

    #[test]
    fn a_write_that_is_late_cannot_be_confirmed_and_a_late_read_is_refused() {
        let (services, _orders) = services(9);
        let mut writes = ask(&services, 1);
        let code = link(0, Origin::Custom).code;
        let mut reads = services.read_all(1, |_| code);
        services.reads.borrow_mut().close(Instant::now());
        services.creates.borrow_mut().close(Instant::now());
        assert!(matches!(poll(&mut writes).unwrap()[..], [CreateAnswer::Failed(WriteFailure::Unconfirmed(_))]));
        assert!(matches!(poll(&mut reads).unwrap()[..], [LinkAnswer::Refused(_)]));
    }
}
