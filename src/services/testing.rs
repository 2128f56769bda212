//! A node without cores, for tests of the services: the test itself reads the mailboxes.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use carom_shards::{CodeHasher, CoreCount, CoreId};

use super::readers::link_fetchers::FetcherSetup;
use super::replication::redis::{RedisSettings, ServerAddress};
use super::search::Catalog;
use super::threads;
use super::threads::priority::Priority;
use super::writer::WriterSetup;
use crate::bridge::{
    AllowanceQueue, ChangeAnswer, CreateAnswer, DeleteAnswer, FleetDecision, Mailbox, Mailboxes, Reply, StoreRequest,
    Ticket, ToCore, WriterOrder, WriterReply,
};
use carom_model::access::Scope;
use carom_model::link::history::Author;
use carom_model::link::{Link, Reuse};
use carom_redis::ClientSettings;
use carom_store::links::Links;
use carom_telemetry::stats::NodeStats;

/// The fingerprint that tests open stores with.
pub(crate) const KEY: &str = "0123456789abcdef";

/// Returns the settings of a Redis that refuses connections.
pub(crate) fn unreachable_redis() -> Arc<RedisSettings> {
    let client = ClientSettings::plain(ServerAddress { host: "127.0.0.1".to_owned(), port: 1 });
    Arc::new(RedisSettings { client, prefix: "c".to_owned(), stream_len: 1_000 })
}

/// Does some work on a thread of this priority. Returns how often the thread slept.
pub(crate) fn sleeps_of(priority: Priority, work: impl FnOnce() + Send + 'static) -> u64 {
    let sleeps = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        count.trim().parse::<u64>().unwrap()
    };
    let run = move || {
        let before = sleeps();
        work();
        sleeps() - before
    };
    threads::start(priority, "sleeps", run).unwrap().join().unwrap()
}

/// A node's mail, and the state that services share.
pub(crate) struct TestNode {
    pub(crate) links: Links,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) mail: Vec<Receiver<ToCore>>,
    pub(crate) hasher: CodeHasher,
    pub(crate) cores: CoreCount,
    pub(crate) stats: Arc<NodeStats>,
}

impl TestNode {
    /// Returns a node of `cores` cores and the admin core, with its store in `data_dir`.
    pub(crate) fn new(data_dir: &Path, cores: usize) -> TestNode {
        let (links, _) = Links::open(&data_dir.join("links"), KEY).unwrap();
        let bell = Arc::new(File::options().write(true).open("/dev/null").unwrap());
        let (boxes, mail) = (0..=cores).map(|_| Mailbox::new(Arc::clone(&bell))).unzip();
        TestNode {
            links,
            mailboxes: Mailboxes::new(boxes),
            mail,
            hasher: CodeHasher::new(1),
            cores: CoreCount::new(cores).unwrap(),
            stats: Arc::default(),
        }
    }

    pub(crate) fn writer_setup(&self, data_dir: &Path) -> WriterSetup {
        WriterSetup {
            links: self.links.clone(),
            catalog: Arc::new(Catalog::new(self.links.clone(), 0, data_dir).expect("it can be read")),
            mailboxes: self.mailboxes.clone(),
            hasher: self.hasher,
            cores: self.cores,
            stats: Arc::clone(&self.stats),
            data_dir: data_dir.to_owned(),
            dedupe: None,
            home: None,
            deliveries: None,
            allowances: AllowanceQueue::new().0,
            ended: std::sync::mpsc::channel().0,
            expiry: std::sync::mpsc::channel().0,
            #[cfg(feature = "faults")]
            faults: super::faults::Faults::default(),
        }
    }

    pub(crate) fn fetcher_setup(&self) -> FetcherSetup {
        FetcherSetup {
            links: self.links.clone(),
            mailboxes: self.mailboxes.clone(),
            hasher: self.hasher,
            cores: self.cores,
            stats: Arc::clone(&self.stats),
            redis: None,
        }
    }

    /// Takes the mail of every core, and passes the fences of exchanges in it. The node must not be ready before the last
    /// core has passed them.
    pub(crate) fn pass_exchange_fences(&self) {
        for mail in &self.mail {
            assert!(!self.stats.is_ready(), "a core may lack what the exchange has brought");
            for message in mail.try_iter() {
                if let ToCore::ExchangeFence(fence) = message {
                    fence.pass();
                }
            }
        }
    }

    /// Checks that the first exchange with Redis, which `share` tries, makes this node of a fleet ready, even if Redis does
    /// not answer. The node must not wait for anything else.
    pub(crate) fn assert_ready_after_exchange(&self, mut share: impl FnMut() -> bool) {
        let fleet = &self.stats.fleet;
        self.stats.ready.store(true, Ordering::Release);
        fleet.configured.store(true, Ordering::Release);
        assert!(!share(), "it may be the Redis of another fleet");
        fleet.has_caught_up.store(true, Ordering::Release);
        assert!(!self.stats.is_ready());
        fleet.same_code_secret.store(true, Ordering::Release);
        assert!(share());
        self.pass_exchange_fences();
        assert!(self.stats.is_ready(), "Redis does not answer");
    }

    /// Waits for the next message for core 0.
    pub(crate) fn next_mail(&self) -> ToCore {
        self.mail[0].recv_timeout(Duration::from_secs(10)).unwrap()
    }

    /// Waits until `count` tickets are answered and returns the answers by token. Like a core, gives the answer of an
    /// applied change to its ticket.
    pub(crate) fn answers(&self, count: usize) -> HashMap<u64, TestAnswer> {
        let mut answers = HashMap::new();
        for _ in 0..10_000 {
            for mail in &self.mail {
                while let Ok(message) = mail.try_recv() {
                    let (token, answer) = match message {
                        ToCore::Apply { answer: Some(reply), .. } => TestAnswer::with_token(&reply),
                        ToCore::Reply { token, reply } => (token, TestAnswer::from(reply)),
                        other => panic!("unexpected mail {other:?}"),
                    };
                    assert!(answers.insert(token, answer).is_none(), "ticket {token} was answered twice");
                }
            }
            if answers.len() >= count {
                return answers;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{} of {count} answers after ten seconds", answers.len());
    }
}

/// An answer of the writer without its ticket, to be compared with the answer to one kind of request.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum TestAnswer {
    Create(CreateAnswer),
    Change(ChangeAnswer),
    Delete(DeleteAnswer),
}

impl TestAnswer {
    /// Returns the number of the ticket, and the answer.
    pub(crate) fn with_token(reply: &WriterReply) -> (u64, TestAnswer) {
        let (_, token, reply) = reply.clone().into_parts();
        (token, TestAnswer::from(reply))
    }
}

impl From<Reply> for TestAnswer {
    fn from(reply: Reply) -> TestAnswer {
        match reply {
            Reply::Created(answer) => TestAnswer::Create(answer),
            Reply::Changed(answer) => TestAnswer::Change(answer),
            Reply::Deleted(answer) => TestAnswer::Delete(answer),
            other => panic!("not of the writer: {other:?}"),
        }
    }
}

macro_rules! test_answers {
    ($($answer:ident, $kind:ident;)*) => {
        $(impl From<$answer> for TestAnswer {
            fn from(answer: $answer) -> TestAnswer {
                TestAnswer::$kind(answer)
            }
        }

        impl PartialEq<$answer> for TestAnswer {
            fn eq(&self, answer: &$answer) -> bool {
                matches!(self, TestAnswer::$kind(mine) if mine == answer)
            }
        })*
    };
}

test_answers! {
    CreateAnswer, Create;
    ChangeAnswer, Change;
    DeleteAnswer, Delete;
}

/// Returns the order to create a link, for the ticket of `token` at core 0.
pub(crate) fn create(link: Link, token: u64) -> WriterOrder {
    let ticket = Ticket::new(CoreId(0), token);
    let request = StoreRequest::Create { link: Arc::new(link), reuse: Reuse::Never, ticket };
    WriterOrder::Client(request, FleetDecision::Alone)
}

/// Returns the order to delete a link, for the ticket of `token` at core 0.
pub(crate) fn delete(code: &str, token: u64) -> WriterOrder {
    let code = carom_shards::Code::parse(code.as_bytes()).unwrap();
    let request =
        StoreRequest::Delete { code, by: Scope::ALL, author: Author::default(), ticket: Ticket::new(CoreId(0), token) };
    WriterOrder::Client(request, FleetDecision::Alone)
}
