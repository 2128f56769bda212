//! The desk of a core: where its tasks (requests to the API, pages) ask for what takes time, and wait for it.
//!
//! A task asks for a fresh code, a look-up, or a change in the store; the core's loop, which alone touches the ring, the
//! map and the mailbox, brings the answer and wakes the task. All of it stays on one thread. Tasks know nothing of rings
//! and maps, the loop nothing of routes and JSON.

mod gather;
mod jobs;
mod lending;
mod long;
mod told;

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
pub use self::told::Tellers;
#[cfg(test)]
pub(crate) use self::told::testing::recording_desk;
use crate::apps::registry::Keyring;
use crate::apps::usage::App;
use crate::domains::Domains;
use crate::guard::Guard;
use crate::hosts::{Hosts, host_of};
use crate::idempotency::{PendingCreate, PendingCreates};
use crate::limits::{ANSWER_TIME_MAX, CODE_WAIT_MAX, FETCH_TIME_MAX};
use crate::link::{Link, Origin};
use crate::listing::{Filter, ListAnswer, ListRequest};
use crate::mail::{
    AllowanceQueue, AppsAnswer, AppsOrder, AppsQueue, AppsRequest, JobQueues, ListQueues, LookUpQueue, Made, Page,
    PageQueue, PageRequest, Post, ReaderQueue, StoreAnswer, StoreRequest, Ticket, ToCore, WriterQueue,
};
use crate::pages::Pages;
use crate::redirect::{Lookup, OwnedLookup, Response};
use crate::stats::{CoreStats, LatencySummary, NodeStats};

/// An answer that a task waits for.
#[derive(Debug)]
enum Reply {
    Store(StoreAnswer),
    Looked(OwnedLookup),
    Latency(Box<LatencySummary>),
    Lent(Vec<Code>),
    Page(Page),
    Made(Made),
}

#[derive(Debug)]
struct Waiter {
    reply: Option<Reply>,
    waker: Option<Waker>,
    deadline: Instant,
}

/// Why a fresh code is not to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoCode;

/// A source of codes that never blocks: the reading end of the core's segment. It asks for more by itself.
pub trait Codes {
    /// A fresh code, if one is there.
    fn take(&mut self) -> Option<Code>;
    /// How many are there.
    fn remaining(&self) -> usize;
}

/// Where a desk's requests go, shared by all cores.
#[derive(Clone, Debug)]
pub struct Counters {
    /// The domains of the service.
    pub domains: Arc<Domains>,
    /// The pages that people see.
    pub pages: Arc<Pages>,
    /// The writer of the store.
    pub writer: WriterQueue,
    /// The readers of the store.
    pub reader: ReaderQueue,
    /// Who reads the store page by page.
    pub page_reader: PageQueue,
    /// Who makes lists.
    pub lists: ListQueues,
    /// Who does what is too long for a core.
    pub jobs: JobQueues,
    /// Who looks up codes that a core does not know; nobody where a node is alone.
    pub look_ups: Option<LookUpQueue>,
    /// Who keeps the API keys.
    pub apps: AppsQueue,
    /// How often a second an address may ask a core for what is not there; 0: any number.
    pub misses_per_second: u32,
    /// Who gives out the visits of limited links.
    pub allowances: AllowanceQueue,
    /// Who reads links that are not in memory; nobody where all are.
    pub fetches: Option<LookUpQueue>,
    /// The mailboxes of all cores.
    pub post: Post,
    /// Creates under way that have an idempotency key.
    pub pending_creates: PendingCreates,
    /// What each core counts.
    pub cores: Arc<[Arc<CoreStats>]>,
    /// What the node counts.
    pub node: Arc<NodeStats>,
}

/// A task's place in the list of those that wait. A task that is dropped takes it with it.
struct Place<'a> {
    desk: &'a Desk,
    token: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.desk.waiters.borrow_mut().remove(&self.token);
    }
}

impl Place<'_> {
    /// Keeps the place. Its owner takes the waiter out.
    fn keep(self) -> u64 {
        let token = self.token;
        std::mem::forget(self);
        token
    }

    /// Waits for the reply; `None` when its time is over.
    async fn reply(self) -> Option<Reply> {
        poll_fn(|context: &mut Context<'_>| {
            let mut waiters = self.desk.waiters.borrow_mut();
            let waiter = waiters.get_mut(&self.token).expect("the place keeps its waiter");
            match waiter.reply.take() {
                Some(reply) => Poll::Ready(Some(reply)),
                None if self.desk.is_closed.get() || Instant::now() >= waiter.deadline => Poll::Ready(None),
                None => {
                    waiter.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// The desk of one core.
pub struct Desk {
    me: CoreId,
    counters: Counters,
    waiters: RefCell<HashMap<u64, Waiter>>,
    gathers: RefCell<Gathers>,
    /// Creates with an idempotency key that the store has not answered, by token.
    pending_creates: RefCell<HashMap<u64, Rc<PendingCreate>>>,
    /// Exports and bulk requests under way.
    long_requests: RefCell<LongRequests>,
    next_token: Cell<u64>,
    /// Look-ups that the loop has not started yet.
    look_ups: RefCell<VecDeque<(u64, Code)>>,
    /// How long the look-ups that have ended took; the loop adds them to the core's latencies.
    look_up_times: RefCell<Vec<Duration>>,
    /// Connections whose stream has something for the loop.
    kicks: RefCell<Vec<u32>>,
    codes: RefCell<Box<dyn Codes>>,
    /// To whom it tells of requests.
    told: RefCell<Tellers>,
    /// The hosts that new links may lead to, if not any.
    allowed: RefCell<Option<Arc<Hosts>>>,
    /// The hosts that no link leads to, if there are any.
    blocked: RefCell<Option<Arc<Hosts>>>,
    /// The API keys.
    keys: RefCell<Arc<Keyring<App>>>,
    /// Who asks too often for what is not there.
    guard: Guard,
    /// Codes that were taken, and are not needed after all. There are never more than links that are made at once.
    spare_codes: RefCell<Vec<Code>>,
    code_waiters: RefCell<Vec<Waker>>,
    code_batch: Cell<u64>,
    /// Whom it asks for codes next, if it has none of its own.
    next_lender: Cell<usize>,
    /// Whether tasks have left something for the loop since it last looked.
    called: Cell<bool>,
    /// Whether nobody is there any more for whom something is waited for.
    is_closed: Cell<bool>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Desk(core {})", self.me)
    }
}

/// Told to clients whose change would have to be remembered until all links are loaded, beside too many others.
const LOADING: &str = "too many links were deleted while the node loads its links; try again when it is ready";

/// Why a queue did not take a request.
fn refusal<T>(error: &TrySendError<T>) -> &'static str {
    match error {
        TrySendError::Full(_) => "too many requests are waiting for the disk",
        TrySendError::Disconnected(_) => "the node is shutting down",
    }
}

/// The code of a link, if it came from the segment of a core and may go to another link should this one not be made.
fn fresh_code_of(link: &Link) -> Option<Code> {
    (link.origin == Origin::Issued && !link.is_private()).then(|| link.code.within(None))
}

/// The answer to a request that was sent and not answered in time: a write may yet be carried out.
fn late(is_read: bool) -> StoreAnswer {
    let reason = "the store did not answer in time";
    if is_read { StoreAnswer::Refused(reason) } else { StoreAnswer::Unconfirmed(reason) }
}

impl Desk {
    /// The desk of core `me`.
    pub fn new(me: CoreId, counters: Counters, codes: Box<dyn Codes>, told: Tellers) -> Desk {
        // Nobody can choose addresses that share a place.
        let guard = Guard::new(counters.misses_per_second, RandomState::new().hash_one(me.index()));
        Desk {
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
            kicks: RefCell::default(),
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

    /// The core it belongs to.
    pub fn core(&self) -> CoreId {
        self.me
    }

    /// Whether it is that of the admin listener, the last one.
    pub fn is_of_admin(&self) -> bool {
        self.me.index() + 1 == self.counters.cores.len()
    }

    /// Counters, queues and mailboxes that all cores share.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// This core's own counters.
    fn stats(&self) -> &CoreStats {
        &self.counters.cores[self.me.index()]
    }

    // For tasks.

    /// Makes a change in the store and waits until it is durable and visible, or reads a record.
    pub async fn store(&self, request: impl FnOnce(Ticket) -> StoreRequest) -> StoreAnswer {
        self.store_pending(None, request).await
    }

    /// Makes a change like [`Desk::store`]. `pending` is kept until the store has answered, also where nobody waits for that any
    /// more.
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

    /// Asks for a list.
    ///
    /// # Errors
    /// Why it cannot be made now, fit for the client's eyes.
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

    /// Takes a fresh code from the core's segment; waits a bounded time for the replenisher when it is empty.
    ///
    /// # Errors
    /// [`NoCode`] when none came in time.
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

    /// Waits so long, or some milliseconds longer.
    pub async fn rest(&self, time: Duration) {
        self.expect_reply_within(time).reply().await;
    }

    /// Gives back the code that a create has brought in vain: it came to nothing before anyone heard of that code.
    pub fn give_back_unused(&self, link: &Link, answer: &StoreAnswer) {
        self.spare_codes.borrow_mut().extend(fresh_code_of(link).filter(|_| answer.frees_code()));
    }

    /// Gives back a code that nobody has heard of.
    pub fn give_code_back(&self, code: Code) {
        self.spare_codes.borrow_mut().push(code);
    }

    /// Reads a page of the store: what there is behind a key of those links. `None` when nobody answered in time.
    pub async fn page(&self, behind: Vec<u8>, filter: Arc<Filter>) -> Option<Page> {
        let place = self.expect_reply_within(ANSWER_TIME_MAX);
        let request = PageRequest { behind, filter, ticket: Ticket { core: self.me, token: place.token } };
        self.counters.page_reader.try_send(request).ok()?;
        match place.reply().await {
            Some(Reply::Page(page)) => Some(page),
            _ => None,
        }
    }

    /// Asks every core but the admin's for its latency quantiles; `None` for one that does not answer in time.
    pub async fn latencies(&self, within: Duration) -> Vec<Option<LatencySummary>> {
        let cores = self.counters.cores.len() - 1;
        let places: Vec<Place<'_>> = (0..cores).map(|_| self.expect_reply_within(within)).collect();
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

    /// Tells the loop that a connection's stream has something for it.
    pub fn kick(&self, slot: u32) {
        self.kicks.borrow_mut().push(slot);
        self.call_loop();
    }

    fn expect_reply_within(&self, within: Duration) -> Place<'_> {
        let token = self.next_token.get();
        self.next_token.set(token + 1);
        let waiter = Waiter { reply: None, waker: None, deadline: Instant::now() + within };
        self.waiters.borrow_mut().insert(token, waiter);
        Place { desk: self, token }
    }

    fn call_loop(&self) {
        self.called.set(true);
    }

    /// The hosts that links may lead to; nothing where that is any host. Not to be held while something is waited for.
    pub fn allowed(&self) -> Ref<'_, Option<Arc<Hosts>>> {
        self.allowed.borrow()
    }

    /// The hosts that no link leads to. Not to be held while something is waited for.
    pub fn blocked(&self) -> Ref<'_, Option<Arc<Hosts>>> {
        self.blocked.borrow()
    }

    /// Changes apps or keys.
    ///
    /// # Errors
    /// Why that cannot be done now, fit for the client's eyes.
    pub async fn change_apps(&self, request: AppsRequest) -> Result<AppsAnswer, &'static str> {
        let place = self.expect_reply_within(ANSWER_TIME_MAX);
        let ticket = Ticket { core: self.me, token: place.token };
        self.counters.apps.try_send(AppsOrder { request, ticket }).map_err(|error| refusal(&error))?;
        match place.reply().await {
            Some(Reply::Store(StoreAnswer::Apps(answer))) => Ok(*answer),
            _ => Err("the keys were not stored in time"),
        }
    }

    /// The API keys.
    pub fn keys(&self) -> Arc<Keyring<App>> {
        Arc::clone(&self.keys.borrow())
    }

    // For both.

    /// Who asks too often for what is not there.
    #[inline]
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Counts the response to a request for a code that a task has answered.
    pub fn note_response(&self, response: &Response<'_>) {
        self.stats().count_response(response);
    }

    /// Counts a request that is told nothing.
    pub fn note_throttled(&self) {
        self.stats().throttled.add(1);
    }

    /// Whether nobody is to be led to that target.
    #[inline]
    pub fn blocks(&self, target: &[u8]) -> bool {
        self.blocked.borrow().as_ref().is_some_and(|hosts| hosts.has(host_of(target)))
    }

    // For the loop.

    /// From now on new links may lead to these hosts alone.
    pub fn allow(&self, hosts: Arc<Hosts>) {
        self.allowed.replace(Some(hosts));
    }

    /// From now on nobody is led to these hosts.
    pub fn block(&self, hosts: Arc<Hosts>) {
        self.blocked.replace(Some(hosts).filter(|hosts| !hosts.is_empty()));
    }

    /// From now on these keys hold.
    pub fn take_keys(&self, keys: Arc<Keyring<App>>) {
        self.keys.replace(keys);
    }

    /// How many codes are ready.
    pub fn codes_remaining(&self) -> usize {
        self.codes.borrow().remaining() + self.spare_codes.borrow().len()
    }

    /// Whether tasks wait for the loop right now.
    pub fn has_calls(&self) -> bool {
        self.called.get()
    }

    /// Forgets the calls: the loop looks at everything now.
    pub fn take_calls(&self) {
        self.called.set(false);
    }

    /// The next look-up to start.
    pub fn next_look_up(&self) -> Option<(u64, Code)> {
        self.look_ups.borrow_mut().pop_front()
    }

    /// How long the look-ups took that have ended since the last call.
    pub fn take_look_up_times(&self, mut take: impl FnMut(Duration)) {
        self.look_up_times.borrow_mut().drain(..).for_each(&mut take);
    }

    /// The connections whose streams have something for the loop. Some may be named twice, or be gone.
    pub fn take_kicks(&self, into: &mut Vec<u32>) {
        into.append(&mut self.kicks.borrow_mut());
    }

    /// Brings the answer of the store.
    pub fn bring_stored(&self, token: u64, answer: StoreAnswer) {
        if Gathers::is_of(token) {
            let spare = self.gathers.borrow_mut().bring(token, answer);
            self.spare_codes.borrow_mut().extend(spare);
        } else {
            self.pending_creates.borrow_mut().remove(&token);
            self.bring(token, Reply::Store(answer));
        }
    }

    /// Brings a page of the store.
    pub fn bring_page(&self, token: u64, page: Page) {
        self.bring(token, Reply::Page(page));
    }

    /// Brings what a look-up found.
    pub fn bring_looked(&self, token: u64, looked: OwnedLookup) {
        self.bring(token, Reply::Looked(looked));
    }

    /// Brings another core's quantiles.
    pub fn bring_latency(&self, token: u64, latency: Box<LatencySummary>) {
        self.bring(token, Reply::Latency(latency));
    }

    /// Lets tasks that wait for a code look again.
    pub fn bring_codes(&self) {
        self.code_batch.set(self.code_batch.get() + 1);
        self.code_waiters.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// The core ends: whoever waits has waited in vain.
    pub fn close(&self) {
        self.is_closed.set(true);
        self.waiters.borrow_mut().values_mut().filter_map(|waiter| waiter.waker.take()).for_each(Waker::wake);
        self.gathers.borrow_mut().close();
        self.code_waiters.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Wakes the tasks whose time is over.
    pub fn expire(&self, now: Instant) {
        for waiter in self.waiters.borrow_mut().values_mut().filter(|waiter| waiter.deadline <= now) {
            waiter.waker.take().into_iter().for_each(Waker::wake);
        }
        self.gathers.borrow_mut().expire(now);
        self.code_waiters.borrow_mut().drain(..).for_each(Waker::wake);
    }

    fn bring(&self, token: u64, reply: Reply) {
        // Nobody waits any more when the task was dropped or its time was over.
        if let Some(waiter) = self.waiters.borrow_mut().get_mut(&token) {
            waiter.reply = Some(reply);
            waiter.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}
