//! Host lists: the allow list of hosts that new links may lead to, and the block list of hosts that no link leads to,
//! old or new. Each has a static part, which the settings or saved rules have ([`StaticHosts`]), and a dynamic part. A
//! thread polls the dynamic part from a file, from Redis, or from an HTTP address ([`source`]). Apollo reports changes of
//! the dynamic part ([`notifications`]), so the thread reads an allow list of Apollo less often.
//!
//! The dynamic part is a JSON object whose values are hosts, possibly wrapped by Apollo ([`apollo`]). A malformed allow
//! list counts as empty. A malformed block list is ignored and the last valid one kept, because a typing error must not
//! unblock hosts. If a source cannot be read, the last list stays in use, also after a restart: the data directory keeps
//! it. Each core gets every list as a whole. Only creates and changes of links check the allow list; redirects check the
//! block list, too.

pub mod apollo;
mod cache;
pub mod http_text;
mod kind;
pub mod notifications;
mod schedule;
pub mod source;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, path::PathBuf};

use serde_json::Value;

pub use self::kind::ListKind;
use self::notifications::PollState;
use self::schedule::ReadSchedule;
use self::source::{HostListSource, SourceName};
use crate::bridge::Mailboxes;
use crate::services::threads;
use crate::services::threads::priority::Priority;
use crate::services::versions::Versions;
use carom_model::destination::hosts::{HostPattern, HostSet};
use carom_model::destination::rules::RuleHosts;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Pause before a malformed list is read again.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Number of invalid entries that an alarm names.
const NAMED: usize = 3;

/// The inputs of a list.
pub struct HostListSetup {
    /// The kind of the list.
    pub kind: ListKind,
    /// The static part.
    pub hosts: Vec<HostPattern>,
    /// The source of the dynamic part; `None` if the list is static.
    pub source: Option<(HostListSource, SourceName)>,
    /// The data directory, which has the cache.
    pub data_dir: PathBuf,
    /// The mailboxes of the cores and of the admin listener, which create links.
    pub mailboxes: Mailboxes,
    /// The counters and alarms of the node.
    pub stats: Arc<NodeStats>,
}

/// A handle on the thread that reads the list.
pub struct HostList {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    reader: Arc<Mutex<ListReader>>,
}

/// The static parts of both lists, which can be replaced while the lists are in use.
pub struct StaticHosts {
    allow: Arc<Mutex<ListReader>>,
    block: Arc<Mutex<ListReader>>,
}

impl StaticHosts {
    /// Returns the static parts of an allow list and a block list.
    pub fn of(allow: &HostList, block: &HostList) -> StaticHosts {
        StaticHosts { allow: Arc::clone(&allow.reader), block: Arc::clone(&block.reader) }
    }

    /// Replaces both static parts, and calls `send` with the new allow list and the new block list. No other thread sends
    /// a list meanwhile, so each mailbox gets the lists in their order. Waits for no read of a source.
    pub fn replace(&self, hosts: RuleHosts, send: impl FnOnce(Option<Arc<HostSet>>, Option<Arc<HostSet>>)) {
        let (mut allow, mut block) = (lock(&self.allow), lock(&self.block));
        allow.hosts = hosts.allow;
        block.hosts = hosts.block;
        allow.build();
        block.build();
        send(allow.built.clone(), block.built.clone());
        allow.versions.sweep();
        block.versions.sweep();
    }
}

/// Locks a list. Only services wait here, and each holds it for as long as it takes to build a list.
fn lock(reader: &Mutex<ListReader>) -> MutexGuard<'_, ListReader> {
    reader.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HostList {
    /// Stops the thread and waits for it. A poll for notifications may continue; the end of the process ends it.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread {
            thread.thread().unpark();
            thread.join().expect("panics abort");
        }
    }
}

/// Builds a list, and starts to read its dynamic part. The cached part is used at once; without one, this call blocks for
/// the first read. The cores get the first list from [`StaticHosts::replace`], together with the other list.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: HostListSetup) -> io::Result<HostList> {
    let stop = Arc::new(AtomicBool::new(false));
    let HostListSetup { kind, hosts, source, data_dir, mailboxes, stats } = setup;
    let reader = ListReader {
        kind,
        hosts,
        has_source: source.is_some(),
        valid: None,
        is_malformed: false,
        is_kept: false,
        parts: None,
        built: None,
        versions: Versions::default(),
        data_dir,
        mailboxes,
        stats,
    };
    let reader = Arc::new(Mutex::new(reader));
    let Some((mut source, named)) = source else {
        lock(&reader).build();
        return Ok(HostList { stop, thread: None, reader });
    };
    let poll = source.take_poll();
    lock(&reader).load_cached(&named);
    let mut schedule = ReadSchedule::default();
    let is_cached = lock(&reader).valid.is_some();
    if !is_cached {
        let is_current = renew(&reader, &mut source, &named);
        schedule.record_read(is_current, Instant::now());
    }
    lock(&reader).build();
    let (until, state) = (Arc::clone(&stop), Arc::new(PollState::default()));
    let (polled, shared) = (Arc::clone(&state), Arc::clone(&reader));
    let run = move || {
        while !until.load(Ordering::Acquire) {
            lock(&shared).versions.sweep();
            // A block list is read as often as without notifications: a lost one must not keep a host unblocked.
            let is_notified = kind == ListKind::Allow && polled.is_reliable();
            let wait = schedule.wait(polled.changes(), is_notified, Instant::now());
            if wait > Duration::ZERO {
                std::thread::park_timeout(wait);
                continue;
            }
            let is_current = renew(&shared, &mut source, &named);
            lock(&shared).publish();
            schedule.record_read(is_current, Instant::now());
        }
    };
    let thread = threads::start(Priority::Long, kind.name().replace(' ', "-"), run)?;
    if let Some(poll) = poll {
        poll.start(kind.name(), state, thread.thread().clone(), Arc::clone(&stop))?;
    }
    Ok(HostList { stop, thread: Some(thread), reader })
}

/// Reads a list. A malformed text may be half written, so it is read again a moment later. Returns true if the list is
/// valid and saved. The list is not locked while its source is read.
fn renew(reader: &Mutex<ListReader>, source: &mut HostListSource, named: &SourceName) -> bool {
    let text = source.read();
    let (mut result, was_malformed) = {
        let reader = lock(reader);
        (reader.classify(text), reader.is_malformed)
    };
    if matches!(result, ReadResult::Malformed(_)) && !was_malformed {
        std::thread::sleep(READ_AGAIN_AFTER);
        let text = source.read();
        result = lock(reader).classify(text);
    }
    let is_valid = matches!(result, ReadResult::Same | ReadResult::New(_));
    let mut reader = lock(reader);
    reader.take(result, named);
    is_valid && reader.is_kept
}

/// A valid dynamic part.
#[derive(PartialEq, Debug)]
struct ValidList {
    text: Vec<u8>,
    patterns: Vec<HostPattern>,
    /// Entries that are no valid hosts, with the reason.
    wrong: Vec<String>,
}

/// The result of reading the dynamic part.
enum ReadResult {
    /// The last valid text again, which is the usual case.
    Same,
    New(ValidList),
    Malformed(String),
    Unreadable(String),
}

struct ListReader {
    kind: ListKind,
    /// The static part.
    hosts: Vec<HostPattern>,
    /// True if the list has a dynamic part.
    has_source: bool,
    /// The last valid dynamic part.
    valid: Option<ValidList>,
    /// True if the source is malformed at present.
    is_malformed: bool,
    /// True if the cache has the last valid dynamic part.
    is_kept: bool,
    /// The static and the dynamic part of the last list that was built; `None` if the cores have no list.
    parts: Option<(Vec<HostPattern>, Vec<HostPattern>)>,
    /// The last list that was built, which is sent to the cores.
    built: Option<Arc<HostSet>>,
    versions: Versions<HostSet>,
    data_dir: PathBuf,
    mailboxes: Mailboxes,
    stats: Arc<NodeStats>,
}

/// Parses a dynamic part.
///
/// # Errors
/// A description of what is wrong with it as a whole.
fn parse(text: Vec<u8>) -> Result<ValidList, String> {
    let value: Value = serde_json::from_slice(&text).map_err(|error| format!("is not valid JSON ({error})"))?;
    let Value::Object(object) = value else { return Err("is not a JSON object".to_owned()) };
    let object = apollo::unwrapped(object)?;
    let mut valid = ValidList { text, patterns: Vec::new(), wrong: Vec::new() };
    for (id, value) in object {
        let Value::String(host) = value else { return Err(format!("has a value other than a string at {id:?}")) };
        match HostPattern::parse(&host) {
            Ok(pattern) => valid.patterns.push(pattern),
            Err(error) => valid.wrong.push(format!("{host:?} at {id:?} {error}")),
        }
    }
    Ok(valid)
}

impl ListReader {
    /// Loads the cached dynamic part, which is in use until the first read.
    fn load_cached(&mut self, source: &SourceName) {
        match cache::read(&self.data_dir, self.kind.file_name(), source) {
            Ok(text) => self.valid = text.and_then(|text| parse(text).ok()),
            Err(error) => {
                tracing::warn!("the saved {} cannot be read ({error}); carom reads its source again", self.kind.name());
            }
        }
    }

    fn classify(&self, read: Result<Vec<u8>, String>) -> ReadResult {
        match (read, &self.valid) {
            (Err(why), _) => ReadResult::Unreadable(why),
            (Ok(text), Some(valid)) if valid.text == text => ReadResult::Same,
            (Ok(text), _) => parse(text).map_or_else(ReadResult::Malformed, ReadResult::New),
        }
    }

    /// Handles the result of a read.
    fn take(&mut self, result: ReadResult, source: &SourceName) {
        self.is_malformed = matches!(result, ReadResult::Malformed(_));
        if !self.is_malformed {
            self.stats.alarms.clear(self.kind.alarms().malformed);
        }
        if !matches!(result, ReadResult::Unreadable(_)) {
            self.stats.alarms.clear(self.kind.alarms().unreadable);
        }
        match result {
            ReadResult::Same => self.accept(source),
            ReadResult::New(mut valid) => {
                self.report_wrong(&valid.wrong, source);
                if self.kind == ListKind::Block && !valid.wrong.is_empty() {
                    // An invalid entry may be a misspelt host of the last list, so hosts of that stay blocked.
                    let before = self.valid.take().map_or(Vec::new(), |before| before.patterns);
                    valid.patterns.extend(
                        before.into_iter().filter(|pattern| !valid.patterns.contains(pattern)).collect::<Vec<_>>(),
                    );
                }
                (self.valid, self.is_kept) = (Some(valid), false);
                self.accept(source);
            }
            ReadResult::Malformed(why) => {
                let holds = match self.kind {
                    ListKind::Allow => "counts as empty, so only hosts from the settings are allowed",
                    ListKind::Block => "is ignored, so the last valid list is used",
                };
                let text = format!(
                    "the {} of {source} {why} and {holds}; make it a JSON object of hosts, such as {{\"1\": \"shop.example\"}}",
                    self.kind.name()
                );
                self.stats.alarms.raise(self.kind.alarms().malformed, text);
            }
            ReadResult::Unreadable(why) => {
                let holds = match &self.valid {
                    Some(_) => "the last valid list is used",
                    None => "it was never read, so only the hosts from the settings apply",
                };
                let text = format!("the {} of {source} cannot be read ({why}); {holds}", self.kind.name());
                self.stats.alarms.raise(self.kind.alarms().unreadable, text);
            }
        }
    }

    fn accept(&mut self, source: &SourceName) {
        self.kind.stats(&self.stats).read_ms.set(unix_ms());
        self.write_cache(source);
    }

    fn report_wrong(&self, wrong: &[String], source: &SourceName) {
        if wrong.is_empty() {
            return self.stats.alarms.clear(self.kind.alarms().entries);
        }
        let (some, count) = (wrong[..wrong.len().min(NAMED)].join("; "), wrong.len());
        let text =
            format!("entries of the {} of {source} that are not hosts are ignored: {count} ({some})", self.kind.name());
        self.stats.alarms.happened(self.kind.alarms().entries, text);
    }

    /// Returns the dynamic part in effect. The block list keeps the last valid one, even while its source is malformed.
    fn dynamic(&self) -> &[HostPattern] {
        let is_lost = self.is_malformed && self.kind == ListKind::Allow;
        self.valid.as_ref().filter(|_| !is_lost).map_or(&[], |valid| &valid.patterns)
    }

    /// Writes the last valid dynamic part to the cache, if it is not there yet.
    fn write_cache(&mut self, source: &SourceName) {
        let Some(valid) = self.valid.as_ref().filter(|_| !self.is_kept) else { return };
        match cache::write(&self.data_dir, self.kind.file_name(), source, &valid.text) {
            Ok(()) => {
                self.is_kept = true;
                self.stats.alarms.clear(self.kind.alarms().unkept);
            }
            Err(error) => {
                let text = format!(
                    "the {} cannot be saved ({error}); a restart would lose it; carom retries",
                    self.kind.name()
                );
                self.stats.alarms.raise(self.kind.alarms().unkept, text);
            }
        }
    }

    /// Sends the list to the cores, if it has changed.
    fn publish(&mut self) {
        if self.build() {
            let message = || self.kind.message(self.built.clone());
            self.mailboxes.all().iter().for_each(|mailbox| mailbox.post(message()));
        }
    }

    /// Builds the list if it has changed, and returns true then.
    fn build(&mut self) -> bool {
        let is_list = self.has_source || !self.hosts.is_empty();
        let known = self.kind.stats(&self.stats);
        known.configured.store(is_list, Ordering::Relaxed);
        known.fixed.set(self.hosts.len() as u64);
        let dynamic = self.dynamic();
        known.dynamic.set(dynamic.len() as u64);
        let is_built = match &self.parts {
            Some((fixed, built)) => is_list && *fixed == self.hosts && built == dynamic,
            None => !is_list,
        };
        if is_built {
            return false;
        }
        let parts = is_list.then(|| (self.hosts.clone(), dynamic.to_vec()));
        let hosts: Option<Arc<HostSet>> =
            parts.as_ref().map(|(fixed, dynamic)| Arc::new(HostSet::of_list(fixed, dynamic)));
        hosts.iter().for_each(|hosts| self.versions.hold(hosts));
        self.built = hosts;
        let count = parts.as_ref().map_or(0, |(_, dynamic)| dynamic.len());
        if std::mem::replace(&mut self.parts, parts).is_some() {
            tracing::info!(fixed = self.hosts.len(), dynamic = count, "the {} has changed", self.kind.name());
        }
        true
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::services::testing::TestNode;
    use carom_telemetry::alarms::Alarm;

    /// Returns an allow list and a block list of a node, both without hosts and without a source.
    pub(in crate::services) fn empty_lists(dir: &std::path::Path, node: &TestNode) -> [HostList; 2] {
        static_lists(dir, node, &[])
    }

    /// Returns an allow list and a block list of a node, both with these hosts and without a source.
    fn static_lists(dir: &std::path::Path, node: &TestNode, hosts: &[HostPattern]) -> [HostList; 2] {
        [ListKind::Allow, ListKind::Block].map(|kind| {
            let setup = HostListSetup {
                kind,
                hosts: hosts.to_vec(),
                source: None,
                data_dir: dir.to_owned(),
                mailboxes: node.mailboxes.clone(),
                stats: Arc::clone(&node.stats),
            };
            start(setup).unwrap()
        })
    }

    fn reader(dir: &std::path::Path) -> ListReader {
        let node = TestNode::new(dir, 1);
        ListReader {
            kind: ListKind::Allow,
            hosts: vec![HostPattern::parse("static.example").unwrap()],
            has_source: true,
            valid: None,
            is_malformed: false,
            is_kept: false,
            parts: None,
            built: None,
            versions: Versions::default(),
            data_dir: dir.to_owned(),
            mailboxes: node.mailboxes,
            stats: Arc::default(),
        }
    }

    fn named(name: &str) -> SourceName {
        SourceName::new(name.to_owned(), name)
    }

    fn take(reader: &mut ListReader, read: Result<&[u8], &str>) {
        let result = reader.classify(read.map(<[u8]>::to_vec).map_err(str::to_owned));
        reader.take(result, &named("a file"));
    }

    fn holding(reader: &ListReader) -> Vec<String> {
        reader.dynamic().iter().map(ToString::to_string).collect()
    }

    fn on(reader: &ListReader) -> Vec<Alarm> {
        let alarms = reader.stats.alarms.list();
        alarms.iter().filter(|alarm| alarm.cleared_ms.is_none()).map(|alarm| alarm.alarm).collect()
    }

    #[test]
    fn only_an_object_of_texts_is_a_list() {
        assert_eq!(parse(b"{}".to_vec()).unwrap().patterns, []);
        let valid = parse(br#"{"1": "a.example", "2": "*.b.example", "3": "c d", "4": ""}"#.to_vec()).unwrap();
        assert_eq!((valid.patterns.len(), valid.wrong.len()), (2, 2));
        for wrong in
            ["", "[]", "\"a.example\"", "null", r#"{"1": 1}"#, r#"{"1": null}"#, r#"{"1": ["a"]}"#, "{", "{} {}"]
        {
            assert!(parse(wrong.as_bytes().to_vec()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_good_one_holds_while_none_is_to_be_read_and_none_while_it_is_malformed() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = reader(dir.path());
        take(&mut first, Err("gone"));
        assert_eq!((holding(&first), on(&first)), (vec![], vec![Alarm::AllowListUnreadable]));
        take(&mut first, Ok(br#"{"1": "a.example", "2": "?"}"#));
        assert_eq!((holding(&first), on(&first)), (vec!["a.example".to_owned()], vec![Alarm::AllowListEntries]));
        take(&mut first, Ok(b"[]"));
        assert!(holding(&first).is_empty());
        assert!(on(&first).contains(&Alarm::AllowListMalformed));
        take(&mut first, Err("gone"));
        assert_eq!(holding(&first), ["a.example"]);
        assert!(!on(&first).contains(&Alarm::AllowListMalformed));
        // Another process.
        let mut second = reader(dir.path());
        second.load_cached(&named("a file"));
        take(&mut second, Err("gone"));
        assert_eq!(holding(&second), ["a.example"]);
        take(&mut second, Ok(b"{}"));
        assert!(holding(&second).is_empty());
        assert!(on(&second).is_empty());
        let mut third = reader(dir.path());
        third.load_cached(&named("a file"));
        assert_eq!(third.valid.map(|valid| valid.patterns), Some(Vec::new()), "an empty list is one, too");
        // A cache of another source is ignored.
        let mut other = reader(dir.path());
        other.load_cached(&named("another file"));
        assert_eq!(other.valid, None);
    }

    #[test]
    fn replaced_lists_are_freed_by_a_sweep() {
        let dir = tempfile::tempdir().unwrap();
        let mut reader = reader(dir.path());
        for text in [br#"{"1": "a.example"}"#, br#"{"1": "b.example"}"#] {
            take(&mut reader, Ok(text));
            reader.publish();
        }
        // The mailboxes of this node are closed, so no core has a list. It is freed only now.
        assert_eq!(reader.versions.held(), 2);
        reader.versions.sweep();
        assert_eq!(reader.versions.held(), 1, "the last one is in use");
    }

    #[test]
    fn lists_are_first_sent_together() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        let hosts = vec![HostPattern::parse("a.example").unwrap()];
        let [allow, block] = static_lists(dir.path(), &node, &hosts);
        assert!(node.mail.iter().all(|mail| mail.try_recv().is_err()), "the cores would get the list twice");
        let mut sent = None;
        let both = RuleHosts { allow: hosts.clone(), block: hosts };
        StaticHosts::of(&allow, &block).replace(both, |allow, block| sent = Some((allow, block)));
        assert!(matches!(sent, Some((Some(_), Some(_)))));
        allow.stop();
        block.stop();
    }

    #[test]
    fn replaced_static_parts_are_sent_together() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        let [allow, block] = empty_lists(dir.path(), &node);
        let lists = StaticHosts::of(&allow, &block);
        let entry = |text: &str| vec![HostPattern::parse(text).unwrap()];
        let replaced = |allow: Vec<HostPattern>, block: Vec<HostPattern>| {
            let mut sent = None;
            lists.replace(RuleHosts { allow, block }, |allow, block| sent = Some((allow, block)));
            sent.expect("both lists")
        };
        let (allowed, blocked) = replaced(entry("a.example"), entry("b.example"));
        assert!(allowed.is_some_and(|hosts| hosts.has("a.example")));
        assert!(blocked.is_some_and(|hosts| hosts.has("b.example")));
        assert!(node.stats.allow_list.configured.load(Ordering::Relaxed));
        let (allowed, blocked) = replaced(Vec::new(), entry("b.example"));
        assert_eq!(allowed, None, "every host is allowed again");
        assert!(blocked.is_some_and(|hosts| hosts.has("b.example")), "the other list stays");
        assert!(!node.stats.allow_list.configured.load(Ordering::Relaxed));
        assert!(node.mail.iter().all(|mail| mail.try_recv().is_err()), "no list comes alone");
        allow.stop();
        block.stop();
    }

    #[test]
    fn replaced_static_part_keeps_the_dynamic_one() {
        let dir = tempfile::tempdir().unwrap();
        let block = Arc::new(Mutex::new(ListReader { kind: ListKind::Block, ..reader(dir.path()) }));
        let mut reader = reader(dir.path());
        take(&mut reader, Ok(br#"{"1": "a.example"}"#));
        reader.publish();
        let allow = Arc::new(Mutex::new(reader));
        let lists = StaticHosts { allow: Arc::clone(&allow), block };
        lists.replace(RuleHosts::default(), |_, _| {});
        let reader = lock(&allow);
        assert_eq!(holding(&reader), ["a.example"]);
        let (fixed, dynamic) = reader.parts.as_ref().expect("a list with a source stays");
        assert_eq!((fixed.len(), dynamic.len()), (0, 1));
    }

    #[test]
    fn what_is_blocked_stays_so_while_the_list_makes_no_sense() {
        let dir = tempfile::tempdir().unwrap();
        let mut reader = ListReader { kind: ListKind::Block, ..reader(dir.path()) };
        take(&mut reader, Ok(br#"{"1": "a.example"}"#));
        take(&mut reader, Ok(b"[]"));
        assert_eq!((holding(&reader), on(&reader)), (vec!["a.example".to_owned()], vec![Alarm::BlockListMalformed]));
        take(&mut reader, Ok(br#"{"1": "a.exam ple", "2": "b.example"}"#));
        assert_eq!(holding(&reader), ["b.example", "a.example"], "a typing error lets nobody through");
        take(&mut reader, Ok(b"{}"));
        assert!(holding(&reader).is_empty());
        assert!(on(&reader).is_empty());
        // The two lists have separate caches.
        assert!(cache::read(dir.path(), ListKind::Allow.file_name(), &named("a file")).unwrap().is_none());
        assert!(cache::read(dir.path(), ListKind::Block.file_name(), &named("a file")).unwrap().is_some());
    }

    #[test]
    fn what_could_not_be_kept_is_kept_later() {
        let dir = tempfile::tempdir().unwrap();
        let mut reader = reader(dir.path());
        reader.data_dir = dir.path().join("later");
        let text = br#"{"1": "a.example"}"#;
        take(&mut reader, Ok(text));
        assert_eq!((holding(&reader), on(&reader)), (vec!["a.example".to_owned()], vec![Alarm::AllowListUnkept]));
        std::fs::create_dir(&reader.data_dir).unwrap();
        take(&mut reader, Ok(text));
        assert!(on(&reader).is_empty());
        assert!(cache::read(&reader.data_dir, ListKind::Allow.file_name(), &named("a file")).unwrap().is_some());
    }
}
