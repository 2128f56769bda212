//! [`ServiceHandle`]: the interface through which the tasks of a core (API requests and pages) call services.
//!
//! A task asks for a fresh code, a look-up, or a change in the store. The core's loop, which alone touches the ring,
//! the map and the mailbox, brings the answer and wakes the task. Everything here stays on the thread of the core.
//! Tasks know nothing of rings and maps, and the loop knows nothing of routes and JSON.

mod batch_state;
pub mod batches;
mod changes;
mod destination_rules;
mod domain_redirects;
mod events;
mod jobs;
mod lending;
pub mod long;
mod long_slots;
mod lookups;
mod reads;
mod recorders;
pub(crate) mod recording;
mod requests;
mod visit_log;

use std::cell::{Cell, Ref, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::TrySendError;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use carom_shards::{Code, CoreId};

use self::batch_state::{Batches, LATE, is_of_batch};
use self::long_slots::LongRequests;
pub use self::long_slots::{LongKind, TooMany};
pub use self::recorders::{Recorders, count_response};
use crate::bridge::fleet_view::FleetView;
use crate::bridge::geo::GeoDatabase;
use crate::bridge::reply::{Pause, Waiting};
use crate::bridge::{
    AllowanceQueue, Answer, AppsAnswer, AppsOrder, AppsQueue, AppsRequest, ChangeAnswer, CreateAnswer, DeleteAnswer,
    DestinationRulesQueue, DomainRedirectsQueue, EditsAnswer, JobQueues, LinkAnswer, ListQueues, ListRequest,
    LookupQueue, LookupRequest, Mailboxes, Page, PageQueue, PageRequest, ReadRequest, ReaderQueue, Reply, TaskLookup,
    Ticket, ToCore, WriteFailure, WriterQueue,
};
use crate::pages::Pages;
use carom_limits::{ANSWER_TIME_MAX, CODE_WAIT_MAX, FETCH_TIME_MAX};
use carom_model::access::idempotency::{PendingCreate, PendingCreates};
use carom_model::access::miss_limiter::MissLimiter;
use carom_model::access::registry::Keyring;
use carom_model::access::usage::App;
use carom_model::destination::hosts::{HostSet, host_of};
use carom_model::destination::rules::SavedRules;
use carom_model::domains::Domains;
use carom_model::domains::redirects::{DomainRedirects, RedirectChanges};
use carom_model::link::{Link, Origin};
use carom_model::query::Filter;
use carom_model::redirect::{Lookup, Response};
use carom_telemetry::clock::{Clock, monotonic_micros};
use carom_telemetry::stats::{CoreStats, LatencySummary, NodeStats};

/// No fresh code was available in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoCode;

/// A source of fresh codes that never blocks: the reading end of the core's queue. It requests more by itself.
pub trait FreshCodes {
    /// Returns a fresh code, if one is available.
    fn take(&mut self) -> Option<Code>;
    /// Returns the number of available codes.
    fn remaining(&self) -> usize;
}

/// Queues, mailboxes, settings and counters, shared by all cores.
#[derive(Clone, Debug)]
pub struct NodeContext {
    /// The domains of the service.
    pub domains: Arc<Domains>,
    /// The pages for people.
    pub pages: Arc<Pages>,
    /// Queue to the writer of the store; in a fleet, to the gateway, which asks Redis before the writer.
    pub writer: WriterQueue,
    /// Queue to the readers of the store.
    pub reader: ReaderQueue,
    /// Queue to the thread that reads the store page by page.
    pub page_reader: PageQueue,
    /// Queues to the threads that answer list queries.
    pub lists: ListQueues,
    /// Queues to the threads for work that is too long for a core.
    pub jobs: JobQueues,
    /// Queue to the thread that looks up codes in Redis; `None` if the node is not in a fleet.
    pub redis_look_ups: Option<LookupQueue>,
    /// Queue to the thread that looks up codes of bulk requests in a shared home of links; `None` if this node stores all
    /// links.
    pub bulk_look_ups: Option<LookupQueue>,
    /// The knowledge about the fleet; `None` if the node is not in one.
    pub fleet_view: Option<Arc<FleetView>>,
    /// Queue to the thread that manages API keys.
    pub apps: AppsQueue,
    /// Queue to the thread that manages the redirects of domains.
    pub domain_redirects: DomainRedirectsQueue,
    /// Queue to the thread that manages saved destination rules.
    pub destination_rules: DestinationRulesQueue,
    /// The rate limit for misses and failed keys, which all cores share.
    pub miss_limiter: Arc<MissLimiter>,
    /// Queue to the thread that grants the visits of limited links.
    pub allowances: AllowanceQueue,
    /// Queue to the threads that read links which are not in memory; `None` if all are.
    pub store_look_ups: Option<LookupQueue>,
    /// The mailboxes of all cores.
    pub mailboxes: Mailboxes,
    /// The time of day for handlers.
    pub clock: Clock,
    /// Creates in flight that have an idempotency key.
    pub pending_creates: PendingCreates,
    /// The query parameter of requests that are no visits; empty for none.
    pub nostat: &'static str,
    /// Counters of each core, the admin core's last.
    pub cores: Arc<[Arc<CoreStats>]>,
    /// Counters and alarms of the node.
    pub node: Arc<NodeStats>,
}

/// A task that waits for an answer of type `A`. Dropping the guard removes the waiter.
struct WaiterGuard<'a, A: Answer> {
    services: &'a ServiceHandle,
    token: u64,
    answer: PhantomData<fn() -> A>,
}

impl<A: Answer> Drop for WaiterGuard<'_, A> {
    fn drop(&mut self) {
        A::waiters(&mut self.services.waiting.borrow_mut()).remove(self.token);
    }
}

impl<A: Answer> WaiterGuard<'_, A> {
    /// Returns the ticket by which a service answers.
    fn ticket(&self) -> Ticket<A> {
        Ticket::new(self.services.me, self.token)
    }

    /// Returns the token of the waiter, which the caller must remove.
    fn into_token(self) -> u64 {
        let token = self.token;
        std::mem::forget(self);
        token
    }

    /// Waits for the answer; `None` when the deadline has passed.
    async fn answer(self) -> Option<A> {
        poll_fn(|context: &mut Context<'_>| {
            let mut waiting = self.services.waiting.borrow_mut();
            A::waiters(&mut waiting).poll(self.token, self.services.is_closed.get(), context)
        })
        .await
    }
}

/// The interface of one core to the services.
pub struct ServiceHandle {
    me: CoreId,
    context: NodeContext,
    waiting: RefCell<Waiting>,
    /// Batches of creates, of changes, of deletes, and of reads.
    creates: RefCell<Batches<CreateAnswer>>,
    changes: RefCell<Batches<ChangeAnswer>>,
    deletes: RefCell<Batches<DeleteAnswer>>,
    reads: RefCell<Batches<LinkAnswer>>,
    /// Creates with an idempotency key that the store has not answered, by token.
    pending_creates: RefCell<HashMap<u64, Rc<PendingCreate>>>,
    /// Exports and bulk requests in flight.
    long_requests: RefCell<LongRequests>,
    next_token: Cell<u64>,
    /// Look-ups that the loop has not started yet.
    look_ups: RefCell<VecDeque<(u64, Code)>>,
    /// Requests for a visit of a limited link that the loop has not passed on yet.
    visits: RefCell<VecDeque<(u64, Code)>>,
    /// Durations of finished look-ups, each with true if no link was found. The loop counts them.
    look_up_times: RefCell<Vec<(Duration, bool)>>,
    /// Connections whose stream has something for the loop.
    notified: RefCell<Vec<u32>>,
    codes: RefCell<Box<dyn FreshCodes>>,
    /// Recorders of visits and of the access log.
    recorders: RefCell<Recorders>,
    /// The hosts that new links may lead to; `None` if any host is allowed.
    allowed: RefCell<Option<Arc<HostSet>>>,
    /// The hosts on the block list; `None` if it is empty.
    blocked: RefCell<Option<Arc<HostSet>>>,
    /// The locations of addresses; `None` without a file.
    geo: RefCell<Option<Arc<GeoDatabase>>>,
    /// The API keys.
    keys: RefCell<Arc<Keyring<App>>>,
    /// The redirects of domains for requests that find no link.
    domain_redirects: RefCell<Arc<DomainRedirects>>,
    /// The last save of destination rules.
    saved_rules: RefCell<Arc<SavedRules>>,
    /// Fresh codes that creates have taken and not used: at most as many as links are created at once.
    spare_codes: RefCell<Vec<Code>>,
    code_waiters: RefCell<Vec<Waker>>,
    code_batch: Cell<u64>,
    /// The core to borrow codes from next, if this one has no queue of its own.
    next_lender: Cell<usize>,
    /// True if tasks have left something for the loop since it last looked.
    has_loop_work: Cell<bool>,
    /// True once the core ends, so that replies have no recipient.
    is_closed: Cell<bool>,
}

impl std::fmt::Debug for ServiceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServiceHandle(core {})", self.me)
    }
}

/// Reason that clients get for a list, if the links have a shared home.
const NO_LISTS: &str = "this node does not store all links, because its setting links.home is \"shared\"";

/// The refusal of a write while links are loaded and too many deletes must be remembered until the end of the load.
const LOADING: &str = "too many links were deleted while the node loads its links; try again when it is ready";

/// Returns the reason why a queue refused a request.
fn refusal<T>(error: &TrySendError<T>) -> &'static str {
    match error {
        TrySendError::Full(_) => "too many requests are waiting for the disk",
        TrySendError::Disconnected(_) => "the node is shutting down",
    }
}

/// Returns the code of a link if it came from a core's queue of fresh codes, so that it may go to another link if this
/// one is not created.
fn fresh_code_of(link: &Link) -> Option<Code> {
    (link.origin == Origin::Issued && !link.is_private()).then(|| link.code.within(None))
}

/// Returns the rate limit for misses and failed keys of a node; 0 misses a second means no limit.
pub fn miss_limiter(misses_per_second: u32) -> Arc<MissLimiter> {
    // The random seed keeps clients from choosing addresses that share a set.
    Arc::new(MissLimiter::new(misses_per_second, RandomState::new().hash_one(0), monotonic_micros))
}

impl ServiceHandle {
    /// Returns the handle of core `me`.
    pub fn new(me: CoreId, context: NodeContext, codes: Box<dyn FreshCodes>, recorders: Recorders) -> ServiceHandle {
        let redirects = DomainRedirects::of(&context.domains, &RedirectChanges::default());
        ServiceHandle {
            me,
            context,
            blocked: RefCell::default(),
            geo: RefCell::default(),
            keys: RefCell::default(),
            domain_redirects: RefCell::new(Arc::new(redirects)),
            saved_rules: RefCell::default(),
            waiting: RefCell::default(),
            creates: RefCell::default(),
            changes: RefCell::default(),
            deletes: RefCell::default(),
            reads: RefCell::default(),
            pending_creates: RefCell::default(),
            long_requests: RefCell::default(),
            next_token: Cell::new(0),
            look_ups: RefCell::default(),
            visits: RefCell::default(),
            look_up_times: RefCell::default(),
            notified: RefCell::default(),
            codes: RefCell::new(codes),
            recorders: RefCell::new(recorders),
            allowed: RefCell::default(),
            spare_codes: RefCell::default(),
            code_waiters: RefCell::default(),
            code_batch: Cell::new(0),
            next_lender: Cell::new(0),
            has_loop_work: Cell::new(false),
            is_closed: Cell::new(false),
        }
    }

    /// Returns the core of this handle.
    pub fn core(&self) -> CoreId {
        self.me
    }

    /// True for the handle of the admin listener, whose core is the last one.
    pub fn is_of_admin(&self) -> bool {
        self.me.index() + 1 == self.context.cores.len()
    }

    /// Returns the counters, queues and mailboxes that all cores share.
    pub fn context(&self) -> &NodeContext {
        &self.context
    }

    /// Returns the present instant in milliseconds since 1970 UTC.
    pub fn unix_ms(&self) -> u64 {
        self.context.clock.unix_ms()
    }

    /// Returns this core's own counters.
    fn stats(&self) -> &CoreStats {
        &self.context.cores[self.me.index()]
    }

    // For tasks.

    /// Returns the look-up of the record of a code in Redis, for a task or a batch that waits from now on.
    fn record_look_up(&self, code: Code, token: u64) -> LookupRequest {
        LookupRequest { is_for_record: true, ..LookupRequest::new(code, self.me, token, Instant::now()) }
    }

    /// Reads the edit history of a code, newest first.
    ///
    /// # Errors
    /// The reason why it cannot be read now, in words for the client.
    pub async fn read_edits(&self, code: Code) -> EditsAnswer {
        self.read(|ticket| ReadRequest::Edits { code, ticket }).await?
    }

    async fn read<A: Answer>(&self, request: impl FnOnce(Ticket<A>) -> ReadRequest) -> Result<A, &'static str> {
        self.ask_thread(&self.context.reader, request).await?.ok_or(LATE)
    }

    /// Runs a list query.
    ///
    /// # Errors
    /// The reason why it cannot be answered now, in words for the client.
    pub async fn list<A: Answer>(&self, request: impl FnOnce(Ticket<A>) -> ListRequest) -> Result<A, &'static str> {
        let waiter = self.add_waiter(ANSWER_TIME_MAX);
        let request = request(waiter.ticket());
        if request.needs_all_links() && !self.stores_all_links() {
            return Err(NO_LISTS);
        }
        let ListQueues { pages, searches, orders, .. } = &self.context.lists;
        if request.is_unindexed() {
            orders.try_send((Instant::now(), request)).map_err(|error| refusal(&error))?;
        } else {
            let queue = if request.may_take_long() { searches } else { pages };
            queue.try_send(request).map_err(|error| refusal(&error))?;
        }
        waiter.answer().await.ok_or(LATE)
    }

    async fn wait_for_lookup(&self, calls: &RefCell<VecDeque<(u64, Code)>>, code: Code) -> TaskLookup {
        let waiter = self.add_waiter::<TaskLookup>(FETCH_TIME_MAX);
        calls.borrow_mut().push_back((waiter.token, code));
        self.flag_loop_work();
        let begin = Instant::now();
        let looked = waiter.answer().await.unwrap_or(TaskLookup::Plain(Lookup::NotResident));
        // Only in a fleet do such look-ups wait for others.
        let may_wait = self.context.redis_look_ups.is_some();
        let is_absent = may_wait && matches!(looked, TaskLookup::Plain(Lookup::Missing | Lookup::Unconfirmed));
        self.look_up_times.borrow_mut().push((begin.elapsed(), is_absent));
        looked
    }

    /// Takes a fresh code from the core's queue. Waits a bounded time for the replenisher if the queue is empty.
    ///
    /// # Errors
    /// [`NoCode`] if no code came in time.
    pub async fn take_code(&self) -> Result<Code, NoCode> {
        let deadline = Instant::now() + CODE_WAIT_MAX;
        let mut waited = false;
        loop {
            let batch = self.code_batch.get();
            let spare = self.spare_codes.borrow_mut().pop();
            if let Some(code) = spare.or_else(|| self.codes.borrow_mut().take()) {
                return Ok(code);
            }
            if !std::mem::replace(&mut waited, true) {
                self.stats().code_waits.add(1);
            }
            if self.is_closed.get() || Instant::now() >= deadline {
                self.stats().code_wait_errors.add(1);
                return Err(NoCode);
            }
            if self.is_of_admin() {
                self.borrow_codes(deadline).await;
                continue;
            }
            poll_fn(|context| {
                if self.code_batch.get() != batch || self.is_closed.get() || Instant::now() >= deadline {
                    return Poll::Ready(());
                }
                self.code_waiters.borrow_mut().push(context.waker().clone());
                Poll::Pending
            })
            .await;
        }
    }

    /// Sleeps for `time`, or up to a second longer, because the loop wakes waiters once a second.
    pub async fn sleep(&self, time: Duration) {
        self.add_waiter::<Pause>(time).answer().await;
    }

    /// Takes back the fresh code of a failed create. No client has seen that code.
    pub fn give_back_unused(&self, link: &Link, answer: &CreateAnswer) {
        self.spare_codes.borrow_mut().extend(fresh_code_of(link).filter(|_| answer.frees_code()));
    }

    /// Takes back a code that no client has seen.
    pub fn give_code_back(&self, code: Code) {
        self.spare_codes.borrow_mut().push(code);
    }

    /// Reads a page of the store: the links of `filter` behind the key `behind`. `None` when no answer came in time.
    pub async fn page(&self, behind: Vec<u8>, filter: Arc<Filter>) -> Option<Page> {
        let waiter = self.add_waiter(ANSWER_TIME_MAX);
        let request = PageRequest { behind, filter, ticket: waiter.ticket() };
        self.context.page_reader.try_send(request).ok()?;
        waiter.answer().await
    }

    /// Asks every core but the admin's for its latency quantiles; `None` for each one that does not answer within
    /// `within`.
    pub async fn latencies(&self, within: Duration) -> Vec<Option<LatencySummary>> {
        let cores = self.context.cores.len() - 1;
        let waiters: Vec<WaiterGuard<'_, _>> = (0..cores).map(|_| self.add_waiter(within)).collect();
        for (mailbox, waiter) in self.context.mailboxes.all().iter().zip(&waiters) {
            mailbox.post(ToCore::Report(waiter.ticket()));
        }
        let mut latencies = Vec::with_capacity(cores);
        for waiter in waiters {
            latencies.push(waiter.answer().await.map(|latency| *latency));
        }
        latencies
    }

    /// Notifies the loop that a connection's stream has something for it.
    pub fn notify_loop(&self, slot: u32) {
        self.notified.borrow_mut().push(slot);
        self.flag_loop_work();
    }

    fn add_waiter<A: Answer>(&self, within: Duration) -> WaiterGuard<'_, A> {
        let token = self.new_token();
        A::waiters(&mut self.waiting.borrow_mut()).insert(token, within);
        WaiterGuard { services: self, token, answer: PhantomData }
    }

    /// Returns the number of a new waiter.
    fn new_token(&self) -> u64 {
        self.next_token.replace(self.next_token.get() + 1)
    }

    fn flag_loop_work(&self) {
        self.has_loop_work.set(true);
    }

    /// Returns the hosts that links may lead to; `None` if any host is allowed. Must not be held across an `await`.
    pub fn allowed(&self) -> Ref<'_, Option<Arc<HostSet>>> {
        self.allowed.borrow()
    }

    /// Returns the hosts on the block list; `None` if it is empty. Must not be held across an `await`.
    pub fn blocked(&self) -> Ref<'_, Option<Arc<HostSet>>> {
        self.blocked.borrow()
    }

    /// Returns the locations of addresses; `None` without a file. Must not be held across an `await`.
    pub fn geo(&self) -> Ref<'_, Option<Arc<GeoDatabase>>> {
        self.geo.borrow()
    }

    /// Changes apps or keys.
    ///
    /// # Errors
    /// The reason why that was not done, or not for certain.
    pub async fn change_apps(&self, request: AppsRequest) -> Result<AppsAnswer, WriteFailure> {
        let order = |ticket| AppsOrder { request, ticket };
        let answer = self.ask_thread(&self.context.apps, order).await.map_err(WriteFailure::Refused)?;
        answer.ok_or(WriteFailure::Unconfirmed("the keys were not stored in time"))
    }

    /// Returns the API keys.
    pub fn keys(&self) -> Arc<Keyring<App>> {
        Arc::clone(&self.keys.borrow())
    }

    // For tasks and the loop.

    /// Returns the rate limit for misses and failed keys.
    #[inline]
    pub fn miss_limiter(&self) -> &MissLimiter {
        &self.context.miss_limiter
    }

    /// Counts the response to a request for a code that a task has answered.
    pub fn note_response(&self, response: &Response<'_>) {
        recorders::count_response(self.stats(), response);
    }

    /// Counts a request that was answered with 429.
    pub fn note_throttled(&self) {
        self.stats().throttled.add(1);
    }

    /// True if the host of a destination is on the block list.
    #[inline]
    pub fn blocks(&self, target: &[u8]) -> bool {
        self.blocked.borrow().as_ref().is_some_and(|hosts| hosts.has(host_of(target)))
    }

    // For the loop.

    /// Restricts new links to these hosts from now on.
    pub fn set_allowed(&self, hosts: Option<Arc<HostSet>>) {
        self.allowed.replace(hosts);
    }

    /// Replaces the block list.
    pub fn set_blocked(&self, hosts: Option<Arc<HostSet>>) {
        self.blocked.replace(hosts.filter(|hosts| !hosts.is_empty()));
    }

    /// Replaces the locations of addresses.
    pub fn set_geo(&self, geo: Arc<GeoDatabase>) {
        self.geo.replace(Some(geo));
    }

    /// Replaces the API keys.
    pub fn set_keys(&self, keys: Arc<Keyring<App>>) {
        self.keys.replace(keys);
    }

    /// Returns the number of available codes.
    pub fn codes_remaining(&self) -> usize {
        self.codes.borrow().remaining() + self.spare_codes.borrow().len()
    }

    /// True if tasks have left something for the loop.
    pub fn has_loop_work(&self) -> bool {
        self.has_loop_work.get()
    }

    /// Clears the flag of [`ServiceHandle::has_loop_work`], because the loop is about to look at everything.
    pub fn clear_loop_work(&self) {
        self.has_loop_work.set(false);
    }

    /// Appends the connections whose streams have something for the loop. Some may appear twice, or be gone.
    pub fn take_notified(&self, into: &mut Vec<u32>) {
        into.append(&mut self.notified.borrow_mut());
    }

    /// Delivers an answer.
    pub fn deliver(&self, token: u64, reply: Reply) {
        match reply {
            Reply::Created(answer) if is_of_batch(token) => {
                let spare = self.creates.borrow_mut().deliver(token, answer);
                self.spare_codes.borrow_mut().extend(spare);
            }
            Reply::Changed(answer) if is_of_batch(token) => _ = self.changes.borrow_mut().deliver(token, answer),
            Reply::Deleted(answer) if is_of_batch(token) => _ = self.deletes.borrow_mut().deliver(token, answer),
            Reply::Link(answer) if is_of_batch(token) => _ = self.reads.borrow_mut().deliver(token, answer),
            reply => {
                if let Reply::Created(_) = reply {
                    self.pending_creates.borrow_mut().remove(&token);
                }
                self.waiting.borrow_mut().deliver(token, reply);
            }
        }
    }

    /// Wakes the tasks that wait for a code, because new codes are available.
    pub fn wake_code_waiters(&self) {
        self.code_batch.set(self.code_batch.get() + 1);
        self.code_waiters.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Closes the handle, because the core ends. All waiting tasks wake without a reply.
    pub fn close(&self) {
        self.is_closed.set(true);
        self.waiting.borrow_mut().wake(|_| true);
        let now = Instant::now();
        self.creates.borrow_mut().close(now);
        self.changes.borrow_mut().close(now);
        self.deletes.borrow_mut().close(now);
        self.reads.borrow_mut().close(now);
        self.code_waiters.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Wakes the tasks whose deadline has passed.
    pub fn expire(&self, now: Instant) {
        self.waiting.borrow_mut().wake(|deadline| deadline <= now);
        self.creates.borrow_mut().expire(now);
        self.changes.borrow_mut().expire(now);
        self.deletes.borrow_mut().expire(now);
        self.reads.borrow_mut().expire(now);
        self.code_waiters.borrow_mut().drain(..).for_each(Waker::wake);
    }
}
