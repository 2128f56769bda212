//! Messages between cores and services, and the mailboxes that carry them.
//!
//! Redirects between cores use the mesh instead (`core::mesh`); mail is the slow path for everything that may allocate.
//! A mailbox is a channel and a doorbell: a core sleeps in its ring and must be woken, while a thread just receives.

pub mod access_log;
mod answer;
mod apps;
mod byte_ring;
mod destination_rules;
mod domain_redirects;
pub mod events;
mod exchange_fence;
pub mod fleet_view;
pub mod geo;
pub mod handle;
mod jobs;
mod last_core;
mod lists;
mod load;
mod purges;
mod reading;
mod reply;
mod sites;
mod slug_filter;
mod snapshots;
mod ticket;
pub mod visit_log;
mod writer;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::time::{Duration, Instant};

use carom_shards::{Code, CoreId};

pub use self::answer::{
    ChangeAnswer, CreateAnswer, DeleteAnswer, EditsAnswer, LinkAnswer, Page, STORE_UNREADABLE, TaskLookup,
    VisitsAnswer, WriteFailure,
};
pub use self::apps::{AppsAnswer, AppsOrder, AppsRequest};
pub use self::destination_rules::{
    DestinationRulesAnswer, DestinationRulesOrder, DestinationRulesQueue, PublishedRules,
};
pub use self::domain_redirects::{
    DomainRedirectsAnswer, DomainRedirectsOrder, DomainRedirectsQueue, PublishedRedirects,
};
pub use self::exchange_fence::ExchangeFence;
pub use self::jobs::{Job, JobDone, JobKind, JobQueues, SnapshotQueue};
pub use self::last_core::AnswerOfLastCore;
pub use self::lists::{
    CountsAnswer, CrawlableAnswer, DomainsAnswer, EndedAnswer, GroupsAnswer, HostCounts, LinksAnswer, ListQueues,
    ListRequest, ReferrersAnswer, TagsAnswer,
};
pub use self::load::{
    ChangedCodes, FilterBlocks, LoadBatch, LoadCredit, LoadedPage, MEMORY_LIMIT_LOW, RULED_WORDS, RuledBits,
    StoredCodes, ruled_place,
};
pub use self::purges::{
    PurgeAnswer, PurgeFailure, PurgeNode, PurgeOrder, PurgeProgress, PurgeQueue, PurgeSite, PurgeStep,
    SelectionProgress,
};
pub use self::reading::{PageQueue, PageRequest, ReadRequest, ReaderQueue};
pub use self::reply::{Answer, LentCodes, Reply};
pub use self::sites::{GiveUpOrder, GiveUpOutcome, GiveUpReport, SiteOrders};
pub use self::snapshots::{JoinSnapshot, SnapshotProvider, SnapshotRefusal};
pub use self::ticket::Ticket;
pub use self::writer::{StoreRequest, WriterAnswer, WriterReply};

use self::fleet_view::FollowFence;
use self::geo::GeoDatabase;
use carom_limits::ALLOWANCE_QUEUE_LEN;
use carom_model::access::registry::Keyring;
use carom_model::access::usage::App;
use carom_model::destination::hosts::HostSet;
use carom_model::link::history::Author;
use carom_model::link::record::DamagedRange;
use carom_model::link::{DueEvent, Link, Version};
use carom_model::redirect::Lookup;
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::outbox::Delivery;
use carom_model::replication::rules::Verdict;
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{Echo, Partition, State};
use carom_telemetry::stats::{FleetStats, LatencySummary, NodeStats};
use carom_tls::identity::TlsIdentity;

/// Path of the bulk creation, whose requests may have bodies of any length.
pub const BULK_PATH: &str = "/rest/v3/short-urls/bulk";

/// Path of changes and deletions of many links, one a line.
pub const CHANGES_PATH: &str = "/rest/v3/short-urls/bulk/changes";

/// Path of imports, with one link a line.
pub const IMPORT_PATH: &str = "/rest/v3/short-urls/bulk/import";

/// Paths whose requests may have bodies of any length.
pub const STREAM_PATHS: &[&str] = &[BULK_PATH, CHANGES_PATH, IMPORT_PATH];

/// The answer of Redis to a request, before the store decides it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FleetDecision {
    /// Redis was not asked. Handlers send each request so; in a fleet, the gateway asks Redis and replaces this.
    Alone,
    /// Redis has accepted the change. This is now the state of the code, and it will appear in the stream.
    Accepted {
        /// The state, with its version.
        state: State,
        /// The entry of the stream in which it will appear.
        echo: Echo,
    },
    /// Redis has kept this state, and refused the change.
    Held(State),
    /// Redis has no link to delete.
    Absent,
    /// Redis need not be asked: this existing link is the answer, if it still exists.
    Existing {
        /// The code of the link.
        code: Code,
        /// The link's state in Redis, if this node does not have it yet.
        found: Option<State>,
        /// True if no client has seen the code that the request brings, so that the code is free.
        spare: bool,
    },
    /// Redis has not decided: it did not answer, or nothing was asked.
    NoReply {
        /// True if the request was sent to Redis, which may have made the change without confirming it.
        was_sent: bool,
        /// True if this node may carry out deletes, and creates with generated codes, without Redis.
        may_decide_alone: bool,
    },
}

impl FleetDecision {
    /// True if Redis has made the change, or may have.
    pub fn may_be_done(&self) -> bool {
        matches!(self, FleetDecision::Accepted { .. } | FleetDecision::NoReply { was_sent: true, .. })
    }
}

/// Entries of the stream of one partition, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamBatch {
    /// The partition whose stream has the entries.
    pub partition: Partition,
    /// The entries in their order. An entry without a change is `None`.
    pub entries: Vec<(StreamPosition, Option<StreamChange>)>,
    /// True if an entry without a code has a field of a later version that a reader must understand.
    pub is_newer: bool,
    /// The node's position in the stream after them.
    pub to: StreamPosition,
}

/// The content of an entry of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamChange {
    /// The code that has changed.
    pub code: Code,
    /// The state of the code from this entry on.
    pub state: ReceivedState,
    /// The link that lost the code to this state.
    pub displaced: Option<Version>,
}

/// The answer of Redis to an entry of the outbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutboxReply {
    /// The entry.
    pub delivery: Delivery,
    /// The state that was sent.
    pub sent: State,
    /// The decision of Redis.
    pub verdict: Verdict,
    /// The entry of the stream in which the change appears, or a later one.
    pub echo: Option<Echo>,
}

/// An order to the writer.
#[derive(Debug)]
pub enum WriterOrder {
    /// A client's request, with the answer of Redis.
    Client(StoreRequest, FleetDecision),
    /// Changes of other nodes, from a stream.
    Followed(StreamBatch),
    /// States that were found in Redis by a full comparison or for a marked code, or that Redis kept against an offer.
    ComparedStates(Vec<(Code, State)>),
    /// States in Redis that this version cannot decode.
    Unread(Vec<(Code, Arc<[u8]>)>),
    /// States that Redis had when a look-up found them, or when a code was marked. Until the stream shows them, Redis may
    /// lose them.
    LookedUpStates(Vec<(Code, State)>),
    /// Codes of the outbox whose records cannot be sent, and of which Redis has no state.
    NotInRedis(Vec<Code>),
    /// The answers of Redis to the outbox.
    Delivered(Vec<OutboxReply>),
    /// The position in a stream is lost. The node continues at the end of the stream, and must compare the partition.
    PositionLost {
        /// The partition to compare.
        partition: Partition,
        /// The end of the partition's stream.
        at: StreamPosition,
    },
    /// The comparison of a partition is complete.
    Compared(Partition),
    /// Compare these partitions once more after an upgrade: the store has records of them that only a later version can
    /// decode, and Redis may lack those states.
    CompareAfterUpgrade(BTreeSet<Partition>),
    /// Everything that the streams had at one instant was sent before this. The fence goes to all cores.
    Fence(Arc<FollowFence>),
    /// Remove those of these links whose end is unchanged. Answered with [`RemovalResult`].
    Expire {
        /// The links and their ends, from the index of ends.
        ends: Vec<DueEvent>,
        /// Links with a later end stay. In milliseconds since 1970 UTC.
        until_ms: u64,
        /// True if the codes may be recycled later.
        recycles: bool,
    },
    /// Delete those of these links whose scheduled deletion is unchanged, if it is due. Answered with
    /// [`RemovalResult`].
    DeleteScheduled {
        /// The scheduled deletions, from the index of ends, and the authors who requested them.
        deletions: Vec<(DueEvent, Author)>,
        /// Links with a later deletion stay. In milliseconds since 1970 UTC.
        until_ms: u64,
    },
    /// Release these quarantined codes, unless something has happened to them since their links were removed. Answered
    /// with [`RemovalResult`].
    ReleaseCodes {
        /// The codes, and the instants from which they are in quarantine.
        quarantined: Vec<DueEvent>,
        /// Codes with a later instant stay. In milliseconds since 1970 UTC.
        until_ms: u64,
    },
    /// Drop all links from the memory of the cores: some may come from a former master of the shared home. The writer
    /// carries this out also while it refuses changes.
    ForgetLinks,
    /// Send changes again that have waited for some seconds for their stream entry.
    Tick,
    /// The follower of the streams has read the node's positions again, after it skipped something.
    Resumed,
}

/// The result of an order to remove links or to release codes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RemovalResult {
    /// True if the order was carried out. Otherwise the store accepts no writes at present.
    pub is_done: bool,
    /// Number of links removed.
    pub expired: u64,
    /// Codes that were released, durably. Only the receiver of this message may issue them.
    pub codes: Vec<Code>,
}

/// A look-up of a code that a core does not have in memory: in the store, in Redis, or in one after the other. The
/// answer is [`ToCore::LookupDone`].
#[derive(Clone, Copy, Debug)]
pub struct LookupRequest {
    /// The code to look up.
    pub code: Code,
    /// The core that asks.
    pub core: CoreId,
    /// The core's own number for the waiting task or connection.
    pub token: u64,
    /// The instant at which the client began to wait.
    pub since: Instant,
    /// True if the store may have the code, but could not be read. Then the answer is never "missing".
    pub may_be_stored: bool,
    /// True if the code had no link a moment ago and will never get one.
    pub absence_is_final: bool,
    /// True if a task waits for the record: the answer is a [`LinkAnswer`].
    pub is_for_record: bool,
}

impl LookupRequest {
    /// Returns a look-up for a client of a core that waits since that instant.
    pub fn new(code: Code, core: CoreId, token: u64, since: Instant) -> LookupRequest {
        LookupRequest { code, core, token, since, may_be_stored: false, absence_is_final: false, is_for_record: false }
    }
}

/// A request to visit a link with a visit limit. The answer is [`ToCore::LookupDone`].
#[derive(Clone, Copy, Debug)]
pub struct VisitRequest {
    /// The code of the link to visit.
    pub code: Code,
    /// The core that asks.
    pub core: CoreId,
    /// The core's own number for the waiting task or connection.
    pub token: u64,
    /// The instant at which the client began to wait.
    pub since: Instant,
}

/// A message to the thread that grants the visits of links with `maxVisits`.
#[derive(Debug)]
pub enum AllowanceOrder {
    /// A client wants to visit a limited link.
    Ask(VisitRequest),
    /// The links of these codes have changed or ended. The writer sends this before any other notice of the change. The
    /// flag is true if the link has ended.
    Changed(Vec<(Code, bool)>),
}

/// The queue to the thread that grants the visits of limited links. Requests are bounded; changes are not.
#[derive(Clone, Debug)]
pub struct AllowanceQueue {
    sender: Sender<AllowanceOrder>,
    waiting: Arc<AtomicUsize>,
}

impl AllowanceQueue {
    /// Returns the queue and its receiving end.
    pub fn new() -> (AllowanceQueue, Receiver<AllowanceOrder>) {
        let (sender, receiver) = channel();
        (AllowanceQueue { sender, waiting: Arc::default() }, receiver)
    }

    /// Returns the number of waiting requests. The receiver decrements it for each request that it takes.
    pub fn waiting(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.waiting)
    }

    /// Requests a visit. Returns false if too many requests wait.
    pub fn ask(&self, visit: VisitRequest) -> bool {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < ALLOWANCE_QUEUE_LEN
            && self.sender.send(AllowanceOrder::Ask(visit)).is_ok()
        {
            return true;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// Reports that the links of these codes have changed or ended.
    pub fn changed(&self, codes: Vec<(Code, bool)>) {
        // Without a receiver the node is about to stop, and visits are over.
        let _ = self.sender.send(AllowanceOrder::Changed(codes));
    }
}

/// A durable change that must become visible.
#[derive(Debug)]
pub enum LinkChange {
    /// Set this link, in place of any other of its code.
    Put(Arc<Link>),
    /// Remove the link of this code.
    Remove(Code),
}

impl LinkChange {
    /// Returns the code whose link changes.
    pub fn code(&self) -> &Code {
        match self {
            LinkChange::Put(link) => &link.code,
            LinkChange::Remove(code) => code,
        }
    }
}

/// The time for which a code stays missing after a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absence {
    /// The look-up cannot tell. Another service is asked.
    Unknown,
    /// The fleet had no link a moment ago, and may have one now.
    Recent,
    /// The code had its only link: a generated code is used once.
    Final,
}

/// A message to a core.
#[derive(Debug)]
pub enum ToCore {
    /// Apply a durable change of a code that the core owns, and then answer.
    Apply {
        /// The change, which the store has already.
        change: LinkChange,
        /// The number of the commit, see [`carom_store::links::Links::commits`].
        commit: u64,
        /// The answer to send once the change is applied; `None` if another node made the change.
        answer: Option<WriterReply>,
    },
    /// The answer to a request of one of the core's tasks.
    Reply {
        /// The number that the core gave to the task.
        token: u64,
        /// The answer.
        reply: Reply,
    },
    /// The load begins with about this many links. Comes before the first of them.
    LoadBegin {
        /// Number of links of this core.
        links: usize,
    },
    /// Codes of the store, for a filter of them.
    StoredCodes(StoredCodes),
    /// Another core has dropped its copy of a link that this core is changing. The recall went through the mesh, where
    /// it stays behind older answers; the order of its confirmation does not matter.
    CopyDropped {
        /// The number of the recall.
        number: u64,
    },
    /// Links of the core, read from the store at start.
    Load(LoadBatch),
    /// Links of the core, from an image of the map.
    LoadPage(Box<LoadedPage>),
    /// Links of all cores, from an image that was made by another number of cores. Each core takes its own.
    LoadShared(Arc<LoadedPage>),
    /// Key ranges of records that cannot be read at start.
    LoadDamaged(Arc<[DamagedRange]>),
    /// The load is complete.
    LoadDone,
    /// A fence behind changes from the streams.
    Fence(Arc<FollowFence>),
    /// A fence behind the API keys or destination rules of the first exchange with Redis.
    ExchangeFence(Arc<ExchangeFence>),
    /// The result of a look-up.
    LookupDone {
        /// The code that was looked up.
        code: Code,
        /// The number that the core gave to the look-up.
        token: u64,
        /// The result. The validity period of a link is yet to be applied.
        found: Lookup<Arc<Link>>,
        /// True for the answer to a [`VisitRequest`]: a link that was found may be visited once more, which is counted
        /// already.
        is_allowance: bool,
        /// The time for which a missing code stays missing.
        absence: Absence,
    },
    /// A link of the core that was read from the store, for its memory.
    CacheLink {
        /// The code of the link, which the core owns.
        code: Code,
        /// The link; `None` if its record is damaged.
        link: Option<Arc<Link>>,
        /// The number of commits that had ended when it was read.
        as_of: u64,
    },
    /// Drop all links and copies: the node may have missed a change of any of them, or read a link before its change. Links
    /// are fetched again from their shared home.
    ForgetLinks {
        /// The number of commits that had ended. Links that were read before are not kept.
        commit: u64,
    },
    /// Fresh codes are in the core's queue, so tasks that wait for one should try again.
    CodesReady,
    /// Lend some fresh codes to the core of the admin listener, which has none of its own.
    Lend(Ticket<LentCodes>),
    /// Report the latency quantiles to a task.
    Report(Ticket<Box<LatencySummary>>),
    /// The new list of hosts that new links may lead to; `None` if any host is allowed.
    Hosts(Option<Arc<HostSet>>),
    /// The new block list of hosts; `None` if no host is blocked.
    Blocked(Option<Arc<HostSet>>),
    /// The new certificates for TLS.
    Identity(TlsIdentity),
    /// The new locations of addresses.
    Geo(Arc<GeoDatabase>),
    /// The new API keys.
    Keys(Arc<Keyring<App>>),
    /// The new redirects of domains.
    DomainRedirects(Arc<PublishedRedirects>),
    /// The last save of destination rules, with both lists that follow from it.
    DestinationRules(Arc<PublishedRules>),
    /// All cores have their links: accept clients.
    Open,
    /// Stop accepting, finish the requests in flight, then end.
    Drain {
        /// Time that requests in flight may take. Then the rest is broken off.
        within: Duration,
    },
}

impl ToCore {
    /// Wraps the answer for a ticket, for the mailbox of the ticket's core.
    pub fn reply<A: Answer>(ticket: Ticket<A>, answer: A) -> ToCore {
        ToCore::Reply { token: ticket.token, reply: answer.into_reply() }
    }
}

/// The sending end of a core's mailbox. Cheap to clone, and usable on any thread.
#[derive(Clone, Debug)]
pub struct Mailbox {
    sender: Sender<ToCore>,
    bell: Arc<File>,
}

impl Mailbox {
    /// Returns a mailbox that rings the given eventfd, and the end that the core reads.
    pub fn new(bell: Arc<File>) -> (Mailbox, Receiver<ToCore>) {
        let (sender, receiver) = channel();
        (Mailbox { sender, bell }, receiver)
    }

    /// Posts a message and wakes the core. A core that has ended drops the message, which is no error for the sender.
    pub fn post(&self, message: ToCore) {
        if self.sender.send(message).is_ok() {
            self.ring();
        }
    }

    /// Posts several messages and wakes the core once.
    pub fn post_all(&self, messages: impl IntoIterator<Item = ToCore>) {
        let mut posted = false;
        for message in messages {
            posted |= self.sender.send(message).is_ok();
        }
        if posted {
            self.ring();
        }
    }

    /// Wakes the core without a message.
    pub fn ring(&self) {
        // An eventfd write of 1 can only fail with EAGAIN, when the counter is full: then the core is awake anyway.
        let _ = (&*self.bell).write(&1u64.to_ne_bytes());
    }
}

/// The mailboxes of all cores of a node, the admin core's last.
#[derive(Clone, Debug)]
pub struct Mailboxes {
    boxes: Arc<[Mailbox]>,
}

impl Mailboxes {
    /// Wraps these mailboxes, which are in the order of the cores.
    pub fn new(boxes: Vec<Mailbox>) -> Mailboxes {
        Mailboxes { boxes: boxes.into() }
    }

    /// Returns the mailbox of a core.
    pub fn to(&self, core: CoreId) -> &Mailbox {
        &self.boxes[core.index()]
    }

    /// Returns every mailbox, in the order of the cores.
    pub fn all(&self) -> &[Mailbox] {
        &self.boxes
    }

    /// Sends a fence to all cores, behind the earlier mail of this thread, if the node still waits for an exchange with
    /// Redis. `has_exchanged` selects the flag that ends this wait.
    pub fn post_exchange_fence(&self, stats: &Arc<NodeStats>, has_exchanged: fn(&FleetStats) -> &AtomicBool) {
        let Some(fence) = ExchangeFence::new(stats, has_exchanged, self.boxes.len()).map(Arc::new) else { return };
        for mailbox in self.all() {
            mailbox.post(ToCore::ExchangeFence(Arc::clone(&fence)));
        }
    }

    /// Sends an answer to the task that waits for it.
    pub fn answer<A: Answer>(&self, ticket: Ticket<A>, answer: A) {
        self.to(ticket.core).post(ToCore::reply(ticket, answer));
    }
}

/// The bounded queue to the writer, shared by all cores.
pub type WriterQueue = SyncSender<WriterOrder>;

/// A bounded queue to threads that look up codes, shared by all cores.
pub type LookupQueue = SyncSender<LookupRequest>;

/// The bounded queue to the thread that manages API keys, shared by all cores.
pub type AppsQueue = SyncSender<AppsOrder>;
