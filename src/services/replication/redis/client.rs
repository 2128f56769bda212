//! The connection of one thread to the Redis of a fleet: its settings, keys and scripts, and how a request is sent.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use carom_redis::{Client, ClientSettings, RedisCommand, RedisError, RequestRoute, ServerAddress, Value, slot, text};
use carom_shards::Code;

use carom_model::replication::sites::SiteShare;
use carom_model::replication::{PARTITIONS, Partition};

/// Addresses and credentials of Redis, and the names of the fleet's keys there. The `Debug` form hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// The servers and how to log in.
    pub client: ClientSettings,
    /// The prefix of all keys.
    pub prefix: String,
    /// Approximate number of changes that the streams keep, in total.
    pub stream_len: u64,
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisSettings({}, prefix {})", self.client, self.prefix)
    }
}

/// A script that runs in Redis. [`carom_model::replication`] defines what they do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Script {
    Change,
    Lease,
    Beat,
    Reclaim,
    Recent,
    Allow,
    Trim,
    Expire,
    Relay,
    Notes,
    Complete,
    GiveUp,
    BeginSite,
    Purge,
    ReportGrants,
    Rewrite,
    UpdateFields,
}

/// The texts of the scripts, in the order of [`Script`].
const SCRIPTS: &[&str] = &[
    include_str!("change.lua"),
    concat!(include_str!("floor.lua"), include_str!("lease.lua")),
    concat!(include_str!("floor.lua"), include_str!("beat.lua")),
    include_str!("reclaim.lua"),
    include_str!("recent.lua"),
    concat!(include_str!("epoch.lua"), include_str!("allow.lua")),
    include_str!("trim.lua"),
    include_str!("expire.lua"),
    include_str!("relay.lua"),
    include_str!("notes.lua"),
    include_str!("complete.lua"),
    concat!(include_str!("floor.lua"), include_str!("give_up.lua")),
    include_str!("begin_site.lua"),
    include_str!("purge.lua"),
    concat!(include_str!("epoch.lua"), include_str!("report.lua")),
    include_str!("rewrite.lua"),
    include_str!("update_fields.lua"),
];

const _: () = assert!(SCRIPTS.len() == Script::UpdateFields as usize + 1, "each script has its text");

#[cfg(not(feature = "next-format"))]
fn scripts() -> &'static [&'static str] {
    SCRIPTS
}

/// Returns the scripts of the version that this process stands for.
#[cfg(feature = "next-format")]
fn scripts() -> &'static [&'static str] {
    use carom_model::replication::formats::next;
    static NEXT: std::sync::OnceLock<Vec<&'static str>> = std::sync::OnceLock::new();
    let leaked = || SCRIPTS.iter().map(|script| &*next::script(script).leak()).collect();
    if next::is_on() { NEXT.get_or_init(leaked).as_slice() } else { SCRIPTS }
}

impl Script {
    pub(super) fn call(self, keys: Vec<String>, arguments: Vec<Vec<u8>>) -> RedisCommand {
        debug_assert!(
            keys.iter()
                .all(|key| key.split_once('}').map(|(tag, _)| tag) == keys[0].split_once('}').map(|(tag, _)| tag)),
            "a cluster refuses a script whose keys are in several slots"
        );
        RedisCommand::Script(self as usize, keys, arguments)
    }
}

/// The subject of a request. All keys of one place are in one slot of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyGroup {
    /// The counters, leases and nodes.
    Space,
    /// The links and the stream of a partition.
    Partition(Partition),
}

/// The Redis of a fleet, from the view of one thread.
pub struct Redis {
    pub(super) client: Client,
    pub(super) settings: Arc<RedisSettings>,
    /// True if the master of the counters had replicas at the last lease.
    pub(super) has_replicas: bool,
    /// The time at which the server last refused to read several streams with one command.
    pub(super) together_refused: Option<Instant>,
    /// Time for which Redis keeps a state after its last change, in milliseconds; 0 for forever.
    state_ms: Arc<AtomicU64>,
    /// The counter values of this site; `None` for all of them.
    pub(super) share: Option<SiteShare>,
}

impl Redis {
    /// Prepares a client, which connects with its first request.
    ///
    /// # Errors
    /// A description of an unusable file of certificates, or of an error of the operating system.
    pub fn new(settings: Arc<RedisSettings>) -> Result<Redis, String> {
        let client = Client::new(settings.client.clone(), scripts())?;
        Ok(Redis {
            client,
            settings,
            has_replicas: false,
            together_refused: None,
            state_ms: Arc::default(),
            share: None,
        })
    }

    /// Lets states expire this time after their last change, in milliseconds, whenever it is not 0.
    #[must_use]
    pub fn with_retention(self, state_ms: Arc<AtomicU64>) -> Redis {
        Redis { state_ms, ..self }
    }

    /// Leases counter values of this share only; `None` stands for all of them.
    #[must_use]
    pub fn with_share(self, share: Option<SiteShare>) -> Redis {
        Redis { share, ..self }
    }

    /// Returns the time for which states are kept now, in milliseconds; 0 for forever.
    pub(super) fn state_ms(&self) -> u64 {
        self.state_ms.load(Ordering::Acquire)
    }

    /// Returns the hash tag that the keys of a place share.
    pub(super) fn tag(&self, place: KeyGroup) -> String {
        match place {
            KeyGroup::Partition(Partition(number)) => {
                assert!(number < PARTITIONS, "no node follows the partition");
                format!("{{{}:{number:02x}}}", self.settings.prefix)
            }
            KeyGroup::Space => format!("{{{}}}", self.settings.prefix),
        }
    }

    pub(super) fn route(&self, place: KeyGroup) -> RequestRoute {
        RequestRoute::Slot(slot(&self.tag(place)))
    }

    pub(super) fn ask_all(
        &mut self,
        questions: Vec<(KeyGroup, RedisCommand)>,
        within: Duration,
    ) -> Vec<Result<Value, RedisError>> {
        let routed: Vec<_> = questions.into_iter().map(|(place, question)| (self.route(place), question)).collect();
        let asked = routed.len();
        let answers = self.client.ask_all(routed, within);
        assert_eq!(answers.len(), asked, "the answer to one question would be taken for that to another");
        answers
    }

    pub(super) fn ask(
        &mut self,
        place: KeyGroup,
        question: RedisCommand,
        within: Duration,
    ) -> Result<Value, RedisError> {
        self.ask_all(vec![(place, question)], within).remove(0)
    }

    pub(super) fn key(&self, code: &Code) -> String {
        let place = KeyGroup::Partition(Partition::of(code));
        format!("{}:l:{code}", self.tag(place))
    }

    pub(super) fn stream(&self, partition: Partition) -> String {
        format!("{}:s", self.tag(KeyGroup::Partition(partition)))
    }

    pub(super) fn space(&self, name: &str) -> String {
        format!("{}:{name}", self.tag(KeyGroup::Space))
    }

    /// Returns the instant at which a connection was last lost or established again, or a master replaced; `None` if
    /// never.
    pub fn last_disturbance(&self) -> Option<Instant> {
        self.client.last_disturbance()
    }

    /// Returns the known servers, each with true if it is connected.
    pub fn servers(&self) -> Vec<(ServerAddress, bool)> {
        self.client.servers()
    }
}

pub(super) fn nonsense(of: &str) -> RedisError {
    RedisError::Refused(format!("unexpected answer for {of}"))
}

/// Returns the pairs of a flat list, such as those of a hash.
pub(super) fn pairs(value: &Value) -> Vec<(String, String)> {
    let Value::Array(parts) = value else { return Vec::new() };
    parts.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}
