//! The services of a core: the handle by which its tasks (API requests and pages) use services that take time.
//!
//! A task asks for a fresh code, a look-up, or a change in the store. The core's loop, which alone touches the ring,
//! the map and the mailbox, brings the answer and wakes the task. Everything here stays on the thread of the core.
//! Tasks know nothing of rings and maps, and the loop knows nothing of routes and JSON.

mod gather;
mod jobs;
mod lending;
mod long;
mod recording;

use std::cell::{Cell, Ref, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::TrySendError;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use carom_shards::{Code, CoreId};

pub use self::gather::Gathered;
use self::gather::Gathers;
use self::long::LongRequests;
pub use self::long::{LongKind, LongRequest, TooMany};
#[cfg(test)]
pub(crate) use self::recording::testing::recording_handle;
pub use self::recording::{Recorders, count_response};
use crate::bridge::{
    AllowanceQueue, AppsAnswer, AppsOrder, AppsQueue, AppsRequest, JobQueues, JobResult, ListQueues, LookupQueue,
    Mailboxes, Page, PageQueue, PageRequest, ReaderQueue, StoreAnswer, StoreRequest, Ticket, ToCore, WriterQueue,
};
use crate::pages::Pages;
use carom_limits::{ANSWER_TIME_MAX, CODE_WAIT_MAX, FETCH_TIME_MAX};
use carom_model::access::idempotency::{PendingCreate, PendingCreates};
use carom_model::access::miss_limiter::MissLimiter;
use carom_model::access::registry::Keyring;
use carom_model::access::usage::App;
use carom_model::destination::hosts::{HostSet, host_of};
use carom_model::domains::Domains;
use carom_model::link::{Link, Origin};
use carom_model::query::{Filter, ListAnswer, ListRequest};
use carom_model::redirect::{Lookup, OwnedLookup, Response};
use carom_telemetry::clock::monotonic_micros;
use carom_telemetry::stats::{CoreStats, LatencySummary, NodeStats};

/// An answer that a task waits for.
#[derive(Debug)]
enum Reply {
    Store(StoreAnswer),
    Looked(OwnedLookup),
    Latency(Box<LatencySummary>),
    Lent(Vec<Code>),
    Page(Page),
    Made(JobResult),
}

#[derive(Debug)]
struct Waiter {
    reply: Option<Reply>,
    waker: Option<Waker>,
    deadline: Instant,
}

/// No fresh code was available in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoCode;

/// A source of fresh codes that never blocks: the reading end of the core's segment. It requests more by itself.
pub trait Codes {
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
    /// Queue to the writer of the store.
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
    pub look_ups: Option<LookupQueue>,
    /// Queue to the thread that manages API keys.
    pub apps: AppsQueue,
    /// Misses per second that an address may cause on one core; 0 means no limit.
    pub misses_per_second: u32,
    /// Queue to the thread that grants the visits of limited links.
    pub allowances: AllowanceQueue,
    /// Queue to the threads that read links which are not in memory; `None` if all are.
    pub fetches: Option<LookupQueue>,
    /// The mailboxes of all cores.
    pub post: Mailboxes,
    /// Creates in flight that have an idempotency key.
    pub pending_creates: PendingCreates,
    /// NodeContext of each core.
    pub cores: Arc<[Arc<CoreStats>]>,
    /// NodeContext of the node.
    pub node: Arc<NodeStats>,
}

/// A task's place in the list of waiters. Dropping it removes the waiter.
struct WaiterGuard<'a> {
    services: &'a ServiceHandle,
    token: u64,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.services.waiters.borrow_mut().remove(&self.token);
    }
}

impl WaiterGuard<'_> {
    /// Keeps the waiter. The caller must remove it.
    fn keep(self) -> u64 {
        let token = self.token;
        std::mem::forget(self);
        token
    }

    /// Waits for the reply; `None` when the deadline has passed.
    async fn reply(self) -> Option<Reply> {
        poll_fn(|context: &mut Context<'_>| {
            let mut waiters = self.services.waiters.borrow_mut();
            let waiter = waiters.get_mut(&self.token).expect("the place keeps its waiter");
            match waiter.reply.take() {
                Some(reply) => Poll::Ready(Some(reply)),
                None if self.services.is_closed.get() || Instant::now() >= waiter.deadline => Poll::Ready(None),
                None => {
                    waiter.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// The handle of one core on the services.
pub struct ServiceHandle {
    me: CoreId,
    counters: NodeContext,
    waiters: RefCell<HashMap<u64, Waiter>>,
    gathers: RefCell<Gathers>,
    /// Creates with an idempotency key that the store has not answered, by token.
    pending_creates: RefCell<HashMap<u64, Rc<PendingCreate>>>,
    /// Exports and bulk requests in flight.
    long_requests: RefCell<LongRequests>,
    next_token: Cell<u64>,
    /// Look-ups that the loop has not started yet.
    look_ups: RefCell<VecDeque<(u64, Code)>>,
    /// Durations of finished look-ups. The loop adds them to the core's latencies.
    look_up_times: RefCell<Vec<Duration>>,
    /// Connections whose stream has something for the loop.
    notified: RefCell<Vec<u32>>,
    codes: RefCell<Box<dyn Codes>>,
    /// Recorders of visits and of the access log.
    told: RefCell<Recorders>,
    /// The hosts that new links may lead to; `None` if any host is allowed.
    allowed: RefCell<Option<Arc<HostSet>>>,
    /// The hosts on the block list; `None` if it is empty.
    blocked: RefCell<Option<Arc<HostSet>>>,
    /// The API keys.
    keys: RefCell<Arc<Keyring<App>>>,
    /// The rate limit for misses and failed keys.
    guard: MissLimiter,
    /// Codes that were taken, and are not needed after all. There are never more than links that are created at once.
    spare_codes: RefCell<Vec<Code>>,
    code_waiters: RefCell<Vec<Waker>>,
    code_batch: Cell<u64>,
    /// The core to borrow codes from next, if this one has no segment of its own.
    next_lender: Cell<usize>,
    /// True if tasks have left something for the loop since it last looked.
    called: Cell<bool>,
    /// True once the core ends, so that replies have no recipient.
    is_closed: Cell<bool>,
}

impl std::fmt::Debug for ServiceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServiceHandle(core {})", self.me)
    }
}

/// The refusal of a write while links are loaded and too many deletes must be remembered until the end of the load.
const LOADING: &str = "too many links were deleted while the node loads its links; try again when it is ready";

/// Returns the reason why a queue refused a request.
fn refusal<T>(error: &TrySendError<T>) -> &'static str {
    match error {
        TrySendError::Full(_) => "too many requests are waiting for the disk",
        TrySendError::Disconnected(_) => "the node is shutting down",
    }
}

/// Returns the code of a link if it came from a core's segment, so that it may go to another link if this one is not
/// created.
fn fresh_code_of(link: &Link) -> Option<Code> {
    (link.origin == Origin::Issued && !link.is_private()).then(|| link.code.within(None))
}

/// Returns the answer to a request that was sent and not answered in time. A write may still be carried out.
fn late(is_read: bool) -> StoreAnswer {
    let reason = "the store did not answer in time";
    if is_read { StoreAnswer::Refused(reason) } else { StoreAnswer::Unconfirmed(reason) }
}

impl ServiceHandle {
    /// Returns the handle of core `me`.
    pub fn new(me: CoreId, counters: NodeContext, codes: Box<dyn Codes>, told: Recorders) -> ServiceHandle {
        // The random seed keeps clients from choosing addresses that share a set.
        let guard =
            MissLimiter::new(counters.misses_per_second, RandomState::new().hash_one(me.index()), monotonic_micros);
        ServiceHandle {
            me,
            counters,
            guard,
            blocked: RefCell::default(),
            keys: RefCell::default(),
            waiters: RefCell::default(),
            gathers: RefCell::default(),
            pending_creates: RefCell::default(),
            long_requests: RefCell::default(),
            next_token: Cell::new(0),
            look_ups: RefCell::default(),
            look_up_times: RefCell::default(),
            notified: RefCell::default(),
            codes: RefCell::new(codes),
            told: RefCell::new(told),
            allowed: RefCell::default(),
            spare_codes: RefCell::default(),
            code_waiters: RefCell::default(),
            code_batch: Cell::new(0),
            next_lender: Cell::new(0),
            called: Cell::new(false),
            is_closed: Cell::new(false),
        }
    }

    /// Returns the core of this handle.
    pub fn core(&self) -> CoreId {
        self.me
    }

    /// True for the handle of the admin listener, whose core is the last one.
    pub fn is_of_admin(&self) -> bool {
        self.me.index() + 1 == self.counters.cores.len()
    }

    /// Returns the counters, queues and mailboxes that all cores share.
    pub fn counters(&self) -> &NodeContext {
        &self.counters
    }

    /// Returns this core's own counters.
    fn stats(&self) -> &CoreStats {
        &self.counters.cores[self.me.index()]
    }

    // For tasks.

    /// Sends a request to the store and waits for its answer: until a change is durable and visible, or a record is
    /// read.
    pub async fn store(&self, request: impl FnOnce(Ticket) -> StoreRequest) -> StoreAnswer {
        self.store_pending(None, request).await
    }

    /// Sends a request like [`ServiceHandle::store`]. `pending` is kept until the store has answered, even if the task stops
    /// waiting.
    pub async fn store_pending(
        &self,
        pending: Option<&Rc<PendingCreate>>,
        request: impl FnOnce(Ticket) -> StoreRequest,
    ) -> StoreAnswer {
        let place = self.expect_reply_within(ANSWER_TIME_MAX);
        let request = request(Ticket { core: self.me, token: place.token });
        let is_read = request.is_read();
        if let Err(reason) = self.send(request) {
            return StoreAnswer::Refused(reason);
        }
        if let Some(pending) = pending {
            self.pending_creates.borrow_mut().insert(place.token, Rc::clone(pending));
        }
        match place.reply().await {
            Some(Reply::Store(answer)) => answer,
            _ => late(is_read),
        }
    }

    /// Runs a list query.
    ///
    /// # Errors
    /// The reason why it cannot be answered now, in words for the client.
    pub async fn list(&self, request: ListRequest) -> Result<ListAnswer, &'static str> {
        let place = self.expect_reply_within(ANSWER_TIME_MAX);
        let ticket = Ticket { core: self.me, token: place.token };
        let ListQueues { pages, searches } = &self.counters.lists;
        let queue = if request.may_take_long() { searches } else { pages };
        queue.try_send((request, ticket)).map_err(|error| refusal(&error))?;
        match place.reply().await {
            Some(Reply::Store(StoreAnswer::Listed(answer))) => Ok(*answer),
            _ => Err("the store did not answer in time"),
        }
    }

    /// Looks a code up in the memory of its owner, and behind that where not all is there. [`Lookup::NotResident`] when
    /// nobody answered in time.
    pub async fn look_up(&self, code: Code) -> OwnedLookup {
        let place = self.expect_reply_within(FETCH_TIME_MAX);
        self.look_ups.borrow_mut().push_back((place.token, code));
        self.call_loop();
        let begin = Instant::now();
        let reply = place.reply().await;
        self.look_up_times.borrow_mut().push(begin.elapsed());
        match reply {
            Some(Reply::Looked(looked)) => looked,
            _ => Lookup::NotResident,
        }
    }

    /// Takes a fresh code from the core's segment. Waits a bounded time for the replenisher if the segment is empty.
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

    /// Sleeps for `time`. The wake-up may come later: the loop expires waiters once per second.
    pub async fn rest(&self, time: Duration) {
        self.expect_reply_within(time).reply().await;
    }

    /// Takes back the fresh code of a failed create. No client has seen that code.
    pub fn give_back_unused(&self, link: &Link, answer: &StoreAnswer) {
        self.spare_codes.borrow_mut().extend(fresh_code_of(link).filter(|_| answer.frees_code()));
    }

    /// Takes back a code that no client has seen.
    pub fn give_code_back(&self, code: Code) {
        self.spare_codes.borrow_mut().push(code);
    }

    /// Reads a page of the store: the links of `filter` behind the key `behind`. `None` when no answer came in time.
    pub async fn page(&self, behind: Vec<u8>, filter: Arc<Filter>) -> Option<Page> {
        let place = self.expect_reply_within(ANSWER_TIME_MAX);
        let request = PageRequest { behind, filter, ticket: Ticket { core: self.me, token: place.token } };
        self.counters.page_reader.try_send(request).ok()?;
        match place.reply().await {
            Some(Reply::Page(page)) => Some(page),
            _ => None,
        }
    }

    /// Asks every core but the admin's for its latency quantiles; `None` for each one that does not answer within
    /// `within`.
    pub async fn latencies(&self, within: Duration) -> Vec<Option<LatencySummary>> {
        let cores = self.counters.cores.len() - 1;
        let places: Vec<WaiterGuard<'_>> = (0..cores).map(|_| self.expect_reply_within(within)).collect();
        for (mailbox, place) in self.counters.post.all().iter().zip(&places) {
            mailbox.post(ToCore::Report(Ticket { core: self.me, token: place.token }));
        }
        let mut latencies = Vec::with_capacity(cores);
        for place in places {
            latencies.push(match place.reply().await {
                Some(Reply::Latency(latency)) => Some(*latency),
                _ => None,
            });
        }
        latencies
    }

    /// Notifies the loop that a connection's stream has something for it.
    pub fn notify_loop(&self, slot: u32) {
        self.notified.borrow_mut().push(slot);
        self.call_loop();
    }

    fn expect_reply_within(&self, within: Duration) -> WaiterGuard<'_> {
        let token = self.next_token.get();
        self.next_token.set(token + 1);
        let waiter = Waiter { reply: None, waker: None, deadline: Instant::now() + within };
        self.waiters.borrow_mut().insert(token, waiter);
        WaiterGuard { services: self, token }
    }

    fn call_loop(&self) {
        self.called.set(true);
    }

    /// Returns the hosts that links may lead to; `None` if any host is allowed. Must not be held across an `await`.
    pub fn allowed(&self) -> Ref<'_, Option<Arc<HostSet>>> {
        self.allowed.borrow()
    }

    /// Returns the hosts on the block list; `None` if it is empty. Must not be held across an `await`.
    pub fn blocked(&self) -> Ref<'_, Option<Arc<HostSet>>> {
        self.blocked.borrow()
    }

    /// Changes apps or keys.
    ///
    /// # Errors
    /// The reason why that cannot be done now, in words for the client.
    pub async fn change_apps(&self, request: AppsRequest) -> Result<AppsAnswer, &'static str> {
        let place = self.expect_reply_within(ANSWER_TIME_MAX);
        let ticket = Ticket { core: self.me, token: place.token };
        self.counters.apps.try_send(AppsOrder { request, ticket }).map_err(|error| refusal(&error))?;
        match place.reply().await {
            Some(Reply::Store(StoreAnswer::Apps(answer))) => Ok(*answer),
            _ => Err("the keys were not stored in time"),
        }
    }

    /// Returns the API keys.
    pub fn keys(&self) -> Arc<Keyring<App>> {
        Arc::clone(&self.keys.borrow())
    }

    // For both.

    /// Returns the rate limit for misses and failed keys.
    #[inline]
    pub fn guard(&self) -> &MissLimiter {
        &self.guard
    }

    /// Counts the response to a request for a code that a task has answered.
    pub fn note_response(&self, response: &Response<'_>) {
        recording::count_response(self.stats(), response);
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
    pub fn allow(&self, hosts: Arc<HostSet>) {
        self.allowed.replace(Some(hosts));
    }

    /// Replaces the block list.
    pub fn block(&self, hosts: Arc<HostSet>) {
        self.blocked.replace(Some(hosts).filter(|hosts| !hosts.is_empty()));
    }

    /// Replaces the API keys.
    pub fn take_keys(&self, keys: Arc<Keyring<App>>) {
        self.keys.replace(keys);
    }

    /// Returns the number of available codes.
    pub fn codes_remaining(&self) -> usize {
        self.codes.borrow().remaining() + self.spare_codes.borrow().len()
    }

    /// True if tasks have left something for the loop.
    pub fn has_calls(&self) -> bool {
        self.called.get()
    }

    /// Clears the flag of [`ServiceHandle::has_calls`], because the loop is about to look at everything.
    pub fn take_calls(&self) {
        self.called.set(false);
    }

    /// Returns the next look-up to start.
    pub fn next_look_up(&self) -> Option<(u64, Code)> {
        self.look_ups.borrow_mut().pop_front()
    }

    /// Passes the durations of the look-ups that have ended since the last call to `take`.
    pub fn take_look_up_times(&self, mut take: impl FnMut(Duration)) {
        self.look_up_times.borrow_mut().drain(..).for_each(&mut take);
    }

    /// Appends the connections whose streams have something for the loop. Some may appear twice, or be gone.
    pub fn take_notified(&self, into: &mut Vec<u32>) {
        into.append(&mut self.notified.borrow_mut());
    }

    /// Delivers the answer of the store.
    pub fn bring_stored(&self, token: u64, answer: StoreAnswer) {
        if Gathers::is_of(token) {
            let spare = self.gathers.borrow_mut().bring(token, answer);
            self.spare_codes.borrow_mut().extend(spare);
        } else {
            self.pending_creates.borrow_mut().remove(&token);
            self.bring(token, Reply::Store(answer));
        }
    }

    /// Delivers a page of the store.
    pub fn bring_page(&self, token: u64, page: Page) {
        self.bring(token, Reply::Page(page));
    }

    /// Delivers the result of a look-up.
    pub fn bring_looked(&self, token: u64, looked: OwnedLookup) {
        self.bring(token, Reply::Looked(looked));
    }

    /// Delivers another core's latency quantiles.
    pub fn bring_latency(&self, token: u64, latency: Box<LatencySummary>) {
        self.bring(token, Reply::Latency(latency));
    }

    /// Wakes the tasks that wait for a code, because new codes are available.
    pub fn bring_codes(&self) {
        self.code_batch.set(self.code_batch.get() + 1);
        self.code_waiters.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Closes the handle, because the core ends. All waiting tasks wake without a reply.
    pub fn close(&self) {
        self.is_closed.set(true);
        self.waiters.borrow_mut().values_mut().filter_map(|waiter| waiter.waker.take()).for_each(Waker::wake);
        self.gathers.borrow_mut().close();
        self.code_waiters.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Wakes the tasks whose deadline has passed.
    pub fn expire(&self, now: Instant) {
        for waiter in self.waiters.borrow_mut().values_mut().filter(|waiter| waiter.deadline <= now) {
            waiter.waker.take().into_iter().for_each(Waker::wake);
        }
        self.gathers.borrow_mut().expire(now);
        self.code_waiters.borrow_mut().drain(..).for_each(Waker::wake);
    }

    fn bring(&self, token: u64, reply: Reply) {
        // A task that was dropped, or whose deadline has passed, has no waiter.
        if let Some(waiter) = self.waiters.borrow_mut().get_mut(&token) {
            waiter.reply = Some(reply);
            waiter.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}
