//! The messages between cores and control threads, and the mailboxes that carry them.
//!
//! Redirects between cores do not come this way (see `core::mesh`); this is the slow road for everything that may
//! allocate. A mailbox is a channel and a doorbell: a core sleeps in its ring and must be rung, a thread just receives.

mod answer;
mod apps;
mod jobs;
mod load;

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::time::{Duration, Instant};

use carom_shards::{Code, CoreId};

pub use self::answer::StoreAnswer;
pub use self::apps::{AppsAnswer, AppsOrder, AppsRequest};
pub use self::jobs::{Job, JobKind, JobQueues, Made};
pub use self::load::{ChangedCodes, LoadBatch, LoadCredit, LoadedPage, StoredCodes};

use crate::apps::Scope;
use crate::apps::registry::Keyring;
use crate::apps::usage::App;
use crate::fleet::follow::Position;
use crate::fleet::outbox::Delivery;
use crate::fleet::rules::Verdict;
use crate::fleet::{Echo, Partition, State};
use crate::history::Author;
use crate::hosts::Hosts;
use crate::limits::ALLOWANCE_QUEUE_LEN;
use crate::link::{Due, Link, Reuse, Version};
use crate::listing::{Filter, ListRequest};
use crate::patch::Patch;
use crate::record::DamagedRange;
use crate::redirect::Lookup;
use crate::stats::LatencySummary;
use crate::tls::Identity;
use crate::visits::tally::Subject;

/// Who waits for an answer: a core (the one that serves the admin listener counts as one more) and the number it gave to
/// the waiting task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The mailbox to answer to.
    pub core: CoreId,
    /// The core's own number for what waits.
    pub token: u64,
}

/// What a core asks of the store. Sent to the writer or to a reader.
#[derive(Debug)]
pub enum StoreRequest {
    /// Insert a link if its code is not taken, or answer with one like it.
    Create {
        /// The link to keep.
        link: Arc<Link>,
        /// Which links that are there already may be the answer.
        reuse: Reuse,
        /// Whom to tell.
        ticket: Ticket,
    },
    /// Change some fields of the link of a code.
    Change {
        /// Its code.
        code: Code,
        /// Which, and to what.
        patch: Box<Patch>,
        /// Whose links whoever asks may change: another one is not there.
        by: Scope,
        /// Who that is.
        author: Author,
        /// Whom to tell.
        ticket: Ticket,
    },
    /// Remove the link of a code.
    Delete {
        /// Its code.
        code: Code,
        /// Whose links whoever asks may delete: another one is not there.
        by: Scope,
        /// Who that is.
        author: Author,
        /// Whom to tell.
        ticket: Ticket,
    },
    /// Read all that is known of visits: of the link of a code, or of all links (without a code) and of none.
    ReadVisits {
        /// What they are counted for.
        subject: Subject,
        /// Whom to tell.
        ticket: Ticket,
    },
    /// Read what was done to the links of a code.
    ReadEdits {
        /// The code.
        code: Code,
        /// Whom to tell.
        ticket: Ticket,
    },
    /// Read the whole record of a code.
    Read {
        /// Its code.
        code: Code,
        /// Whom to tell.
        ticket: Ticket,
    },
}

impl StoreRequest {
    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        use StoreRequest::{Read, ReadEdits, ReadVisits};
        matches!(self, Read { .. } | ReadVisits { .. } | ReadEdits { .. })
    }
}

/// What Redis has said to a request before the store decides it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ground {
    /// There is nobody to ask: this node has its code space for itself.
    Alone,
    /// It has accepted: this is the state of the code now, and it will come by there.
    Accepted {
        /// The state, with its version.
        state: State,
        /// Where it will come by.
        echo: Echo,
    },
    /// It holds this, and that stays.
    Held(State),
    /// It knows of nothing to delete.
    Absent,
    /// It need not be asked: this link is the answer, if it is still there.
    Existing {
        /// The code of the link.
        code: Code,
        /// Its state in Redis, where this node does not have it yet.
        found: Option<State>,
        /// Whether nobody has heard of the code that the request has brought.
        spare: bool,
    },
    /// It has not answered.
    Unheard {
        /// Whether it was asked, so that it may have done what it did not confirm.
        asked: bool,
        /// Whether this node may go on alone with what it can decide.
        alone: bool,
    },
}

impl Ground {
    /// Whether Redis has done what was asked of it, or may have.
    pub fn may_be_done(&self) -> bool {
        matches!(self, Ground::Accepted { .. } | Ground::Unheard { asked: true, .. })
    }
}

/// Entries of the stream of one partition, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Followed {
    /// Which partition.
    pub partition: Partition,
    /// The entries in their order; one that only marks a place, or that nobody can decode, tells nothing.
    pub entries: Vec<(Position, Option<Told>)>,
    /// Where the node stands after them.
    pub to: Position,
}

/// What an entry of a stream tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// The code that has changed.
    pub code: Code,
    /// Its state from then on.
    pub state: State,
    /// The link that lost the code to it.
    pub displaced: Option<Version>,
}

/// What Redis has said to something from the outbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivered {
    /// Which entry.
    pub delivery: Delivery,
    /// What was brought.
    pub sent: State,
    /// What Redis made of it.
    pub verdict: Verdict,
    /// Where it comes by, or an entry behind that.
    pub echo: Option<Echo>,
}

/// What the writer is told to do.
#[derive(Debug)]
pub enum Order {
    /// Something that a client asked for.
    Client(StoreRequest, Ground),
    /// What other nodes did.
    Followed(Followed),
    /// States that were found in Redis while everything was compared, or that it holds against what was offered then.
    Found(Vec<(Code, State)>),
    /// States that were found in Redis when somebody asked for their codes.
    LookedUp(Vec<(Code, State)>),
    /// What Redis has said to the outbox.
    Delivered(Vec<Delivered>),
    /// The place in a stream is gone. The node stands at the end now, and must compare everything of that partition.
    Gap {
        /// Which partition.
        partition: Partition,
        /// The end of its stream.
        at: Position,
    },
    /// Everything of a partition has been compared.
    Compared(Partition),
    /// Remove those of these links whose end is still that one. Answered with [`Swept`].
    Expire {
        /// What the index of ends says of them.
        ends: Vec<Due>,
        /// Links that ended later stay, in milliseconds since 1970 UTC.
        until_ms: u64,
        /// Whether their codes may be given to others some time.
        recycles: bool,
    },
    /// Delete those of these links that are still to be deleted at that very instant, if it is over. Answered with [`Swept`].
    Discard {
        /// What the index of ends says of them, and who has asked for it.
        deletions: Vec<(Due, Author)>,
        /// Links that are to be deleted later stay, in milliseconds since 1970 UTC.
        until_ms: u64,
    },
    /// Forget these codes, if nothing has happened to them since their links were removed. Answered with [`Swept`].
    Unearth {
        /// Where they lie, and since when.
        graves: Vec<Due>,
        /// Those that lie there since later stay, in milliseconds since 1970 UTC.
        until_ms: u64,
    },
    /// Some seconds have gone by.
    Tick,
    /// Whoever follows the streams has read again where the node stands, after something was left out.
    Resume,
}

/// What became of an order to remove links, or to free codes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Whether it was carried out. If not, the store takes no writes at present.
    pub is_done: bool,
    /// How many links were removed.
    pub expired: u64,
    /// Codes that nobody has any more but who is told: that is durable.
    pub codes: Vec<Code>,
}

/// A code to look up that a core does not have in memory: in the store, in Redis, or in one after the other. Whoever asks is
/// answered with [`ToCore::LookedUp`].
#[derive(Clone, Copy, Debug)]
pub struct LookUp {
    /// The code.
    pub code: Code,
    /// Who asks.
    pub core: CoreId,
    /// The core's own number for what waits.
    pub token: u64,
    /// When the client began to wait.
    pub since: Instant,
    /// Whether the store could not say if it has the code: then nobody may say that there is none.
    pub in_doubt: bool,
    /// Whether Redis did not know it a moment ago.
    pub was_unknown: bool,
}

/// A redirect of a link that may be followed only so often: whether this one is allowed is answered with
/// [`ToCore::LookedUp`].
#[derive(Clone, Copy, Debug)]
pub struct VisitAsked {
    /// The code.
    pub code: Code,
    /// Who asks.
    pub core: CoreId,
    /// The core's own number for what waits.
    pub token: u64,
    /// When the client began to wait.
    pub since: Instant,
}

/// What is told to whoever gives out the visits of limited links.
#[derive(Debug)]
pub enum AllowanceOrder {
    /// Somebody wants to follow one.
    Ask(VisitAsked),
    /// The links of these codes are not what they were, or have ended. Told before anybody else hears of that.
    Changed(Vec<(Code, bool)>),
}

/// The way to whoever gives out the visits of limited links. What asks is bounded, what tells of changes is not.
#[derive(Clone, Debug)]
pub struct AllowanceQueue {
    sender: Sender<AllowanceOrder>,
    waiting: Arc<AtomicUsize>,
}

impl AllowanceQueue {
    /// The queue, and the end that is read.
    pub fn new() -> (AllowanceQueue, Receiver<AllowanceOrder>) {
        let (sender, receiver) = channel();
        (AllowanceQueue { sender, waiting: Arc::default() }, receiver)
    }

    /// How many ask; whoever takes one counts it out.
    pub fn waiting(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.waiting)
    }

    /// Asks for a visit. `false`: too many do.
    pub fn ask(&self, visit: VisitAsked) -> bool {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < ALLOWANCE_QUEUE_LEN
            && self.sender.send(AllowanceOrder::Ask(visit)).is_ok()
        {
            return true;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// Tells that the links of these codes are not what they were, or have ended.
    pub fn changed(&self, codes: Vec<(Code, bool)>) {
        // Without a receiver the node is on its way out, and nobody follows anything any more.
        let _ = self.sender.send(AllowanceOrder::Changed(codes));
    }
}

/// Asks for a page of an export. Whoever asks is answered with [`ToCore::Page`].
#[derive(Debug)]
pub struct PageRequest {
    /// The key behind which it begins; empty for the first.
    pub behind: Vec<u8>,
    /// Which links.
    pub filter: Arc<Filter>,
    /// Whom to tell.
    pub ticket: Ticket,
}

/// Some links of the store, in the order of their codes.
#[derive(Debug, Default)]
pub struct Page {
    /// Their lines.
    pub lines: Vec<u8>,
    /// What could not be read.
    pub damaged: Vec<String>,
    /// The last key of it; none where nothing follows.
    pub last: Option<Vec<u8>>,
    /// The store could not be read; the page is what came before.
    pub failed: bool,
}

/// A change that is durable and must now become visible.
#[derive(Debug)]
pub enum Change {
    /// Keep this link, in place of any other of that code.
    Put(Arc<Link>),
    /// Forget this code.
    Remove(Code),
}

/// A message to a core.
#[derive(Debug)]
pub enum ToCore {
    /// A durable change of a code that the core owns: apply it, then give the answer to the ticket of who asked for it.
    Apply {
        /// The change.
        change: Change,
        /// The number of the commit, see [`crate::store::links::Links::commits`].
        commit: u64,
        /// Whom to tell what when it is applied; nobody where another node made the change.
        notify: Option<(Ticket, StoreAnswer)>,
    },
    /// The answer to something that a task of the core asked.
    Answer {
        /// The number that the core gave to the task.
        token: u64,
        /// What became of it.
        answer: StoreAnswer,
    },
    /// A page of an export that a task of the core asked for.
    Page {
        /// The number that the core gave to the task.
        token: u64,
        /// The page.
        page: Page,
    },
    /// The result of a job that a task of the core handed off.
    Made {
        /// The number that the core gave to the task.
        token: u64,
        /// The result.
        made: Made,
    },
    /// About so many links will be read back; comes before the first of them.
    LoadBegin {
        /// Links of this core.
        links: usize,
    },
    /// Codes that the store has, for another filter of them.
    StoredCodes(StoredCodes),
    /// Another core has dropped its copy of a link that this core is changing.
    Dropped {
        /// The number of the recall.
        number: u64,
    },
    /// Links of the core, read back at start.
    Load(LoadBatch),
    /// Links of the core, from an image of the map.
    LoadPage(Box<LoadedPage>),
    /// Links of all cores, from an image that was made by another number of cores. Each core takes its own.
    LoadShared(Arc<LoadedPage>),
    /// These records cannot be read back.
    LoadDamaged(Arc<[DamagedRange]>),
    /// All links have been read back.
    LoadDone,
    /// What a look-up has found.
    LookedUp {
        /// The code.
        code: Code,
        /// The number that the core gave to it.
        token: u64,
        /// What there is. The validity period of a link is yet to be applied.
        found: Lookup<Arc<Link>>,
        /// True for the answer to a [`VisitAsked`]: a link that was found may be followed once more, which is counted already.
        is_allowance: bool,
    },
    /// What was read from the store for a code of the core, for its memory.
    Fetched {
        /// The code.
        code: Code,
        /// Its link; none where its record is damaged.
        link: Option<Arc<Link>>,
        /// How many commits had ended when it was read.
        as_of: u64,
    },
    /// Fresh codes are in the core's queue: tasks that wait for one should look again.
    CodesReady,
    /// Give some fresh codes to one that has none of its own: the admin listener.
    Lend(Ticket),
    /// Codes that were lent; none where the other core needs its own.
    Lent {
        /// The number that the core gave to the task.
        token: u64,
        /// The codes.
        codes: Vec<Code>,
    },
    /// Report the latency quantiles to a ticket.
    Report(Ticket),
    /// Latency quantiles that the core asked another for.
    Reported {
        /// The number that the core gave to the task.
        token: u64,
        /// Who reports.
        core: CoreId,
        /// The quantiles.
        latency: Box<LatencySummary>,
    },
    /// The hosts that new links may lead to, from now on.
    Hosts(Arc<Hosts>),
    /// The hosts that nobody is led to, from now on.
    Blocked(Arc<Hosts>),
    /// Who the service is from now on to clients that speak TLS.
    Identity(Identity),
    /// The API keys that hold from now on.
    Keys(Arc<Keyring<App>>),
    /// All cores have their links: let clients in.
    Open,
    /// Stop accepting, finish what is in flight, then end.
    Drain {
        /// How long requests in flight may take; then what is left is broken.
        within: Duration,
    },
}

/// The sending end of a core's mailbox. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Mailbox {
    sender: Sender<ToCore>,
    bell: Arc<File>,
}

impl Mailbox {
    /// A mailbox that rings the given eventfd, and the end that the core reads.
    pub fn new(bell: Arc<File>) -> (Mailbox, Receiver<ToCore>) {
        let (sender, receiver) = channel();
        (Mailbox { sender, bell }, receiver)
    }

    /// Posts a message and wakes the core. A core that has ended takes no more mail; that is no error for the sender.
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
pub struct Post {
    boxes: Arc<[Mailbox]>,
}

impl Post {
    /// The post office of these mailboxes, in the order of the cores.
    pub fn new(boxes: Vec<Mailbox>) -> Post {
        Post { boxes: boxes.into() }
    }

    /// The mailbox of a core.
    pub fn to(&self, core: CoreId) -> &Mailbox {
        &self.boxes[core.index()]
    }

    /// Every mailbox, in the order of the cores.
    pub fn all(&self) -> &[Mailbox] {
        &self.boxes
    }

    /// Gives an answer to the task that waits for it.
    pub fn answer(&self, ticket: Ticket, answer: StoreAnswer) {
        self.to(ticket.core).post(ToCore::Answer { token: ticket.token, answer });
    }
}

/// The bounded way to the writer, shared by all cores.
pub type WriterQueue = SyncSender<Order>;

/// The bounded way to who looks up codes, shared by all cores.
pub type LookUpQueue = SyncSender<LookUp>;

/// The bounded way to who keeps the API keys, shared by all cores.
pub type AppsQueue = SyncSender<AppsOrder>;

/// The ways to those who make lists, shared by all cores.
#[derive(Clone, Debug)]
pub struct ListQueues {
    /// For what is found at once.
    pub pages: SyncSender<(ListRequest, Ticket)>,
    /// For what may take long.
    pub searches: SyncSender<(ListRequest, Ticket)>,
}

/// The way to the readers, shared by all cores.
pub type ReaderQueue = SyncSender<StoreRequest>;

/// The way to who reads the store page by page, shared by all cores.
pub type PageQueue = SyncSender<PageRequest>;
