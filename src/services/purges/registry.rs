//! The purges that a node knows, and their files: one for each in the folder `purges` of the data directory. A file has
//! codes, instants and claims, and nothing else of a link.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::folder::PurgeFolder;
use crate::bridge::{PurgeNode, PurgeProgress, PurgeStep};
use carom_limits::{PURGE_LINKS_MAX, PURGES_KEPT, PURGES_KNOWN_MAX, PURGES_OPEN_MAX};
use carom_model::purge::{PurgeId, PurgeList, PurgedLink};

/// The folder in the data directory.
const FOLDER: &str = "purges";

/// Time that a request has to delete the links of its purge and to run it. After that, the client has disconnected, and the
/// thread `purges` runs the purge.
pub(super) const ABANDONED_AFTER: Duration = Duration::from_secs(120);

/// The progress of a purge on this node. The stages follow each other in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum PurgeStage {
    /// The links are being deleted.
    Open,
    /// The links are deleted, except those whose deletion has failed.
    Due,
    /// The list is final. Its links are deleted here, or the change of another node that deletes them is on its way.
    Settled,
    /// No file of this node contains the links.
    Erased,
    /// All nodes have carried the purge out, and the streams of visits in Redis are trimmed.
    Complete,
}

impl PurgeStage {
    /// All stages, in their order.
    const ALL: [PurgeStage; 5] =
        [PurgeStage::Open, PurgeStage::Due, PurgeStage::Settled, PurgeStage::Erased, PurgeStage::Complete];

    /// Returns the name in the file.
    fn as_str(self) -> &'static str {
        match self {
            PurgeStage::Open => "open",
            PurgeStage::Due => "due",
            PurgeStage::Settled => "settled",
            PurgeStage::Erased => "erased",
            PurgeStage::Complete => "complete",
        }
    }
}

/// A purge on this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PurgeEntry {
    pub(super) list: PurgeList,
    pub(super) stage: PurgeStage,
    /// The nodes that are known to have carried it out.
    pub(super) done: BTreeSet<String>,
    error: Option<String>,
    /// The instant at which this process began it, took it or read it.
    known: Instant,
}

/// The purges that this node knows.
#[derive(Debug)]
pub(super) struct PurgeRegistry {
    folder: PurgeFolder,
    /// The nodes of the fleet; none for a single node.
    members: Vec<String>,
    all: BTreeMap<PurgeId, PurgeEntry>,
    /// The present work on the purges that this node has not carried out.
    step: Option<PurgeStep>,
}

impl PurgeEntry {
    fn new(list: PurgeList, stage: PurgeStage) -> PurgeEntry {
        PurgeEntry { list, stage, done: BTreeSet::new(), error: None, known: Instant::now() }
    }

    /// True until the purge is complete.
    pub(super) fn is_open(&self) -> bool {
        self.stage < PurgeStage::Complete
    }
}

/// Returns the number of a new purge or selection.
///
/// # Errors
/// The reason, in words for the client, if the system provides no random bytes.
pub(super) fn new_id() -> Result<PurgeId, String> {
    getrandom::u64().map(PurgeId).map_err(|error| format!("no random number for the purge: {error}"))
}

/// Returns the date of the oldest purges and selections that are kept, in milliseconds since 1970 UTC.
pub(super) fn kept_since_ms(now_ms: u64) -> u64 {
    now_ms.saturating_sub(PURGES_KEPT.as_millis() as u64)
}

/// Locks the purges or the selections of a node.
pub(super) fn locked<T>(registry: &Mutex<T>) -> MutexGuard<'_, T> {
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PurgeRegistry {
    /// Reads the purges of a data directory. A purge whose request the end of the process interrupted is due: it leaves out
    /// the links that still exist.
    ///
    /// # Errors
    /// If the folder or a file in it cannot be read. A malformed file is logged and skipped.
    pub(super) fn open(data_dir: &Path) -> io::Result<PurgeRegistry> {
        let malformed = "a purge cannot be read, and is not carried out";
        let (folder, all) = PurgeFolder::open(data_dir.join(FOLDER), parsed, malformed)?;
        Ok(PurgeRegistry { folder, members: Vec::new(), all, step: None })
    }

    /// Adds a purge of this node.
    ///
    /// # Errors
    /// The reason why it cannot begin, in words for the client.
    pub(super) fn begin(&mut self, id: PurgeId, list: PurgeList) -> Result<(), String> {
        let open = self.open_len();
        if open >= PURGES_OPEN_MAX {
            return Err(format!("{open} purges have not ended yet; try again when some have"));
        }
        self.check_known()?;
        self.put(id, list, PurgeStage::Open).map_err(|error| format!("the purge cannot be stored: {error}"))
    }

    /// Checks whether this node may know one more purge.
    ///
    /// # Errors
    /// The reason why it may not, in words for the client.
    pub(super) fn check_known(&self) -> Result<(), String> {
        let known = self.all.len();
        if known < PURGES_KNOWN_MAX {
            return Ok(());
        }
        Err(format!(
            "{known} purges have begun in the last 30 days, and nodes know at most {PURGES_KNOWN_MAX}; purge up to {PURGE_LINKS_MAX} links with one request, and try again when the oldest are forgotten"
        ))
    }

    /// Returns the number of purges that are not complete.
    pub(super) fn open_len(&self) -> usize {
        self.all.values().filter(|entry| entry.is_open()).count()
    }

    /// Returns the number of links that a purge has settled on; `None` before that. A purge that this node does not know has
    /// none.
    pub(super) fn settled_len(&self, id: PurgeId) -> Option<usize> {
        let Some(entry) = self.all.get(&id) else { return Some(0) };
        (entry.stage >= PurgeStage::Settled).then_some(entry.list.links.len())
    }

    /// True if this node knows a purge that is not complete.
    pub(super) fn is_open(&self, id: PurgeId) -> bool {
        self.all.get(&id).is_some_and(PurgeEntry::is_open)
    }

    /// Returns the links of all purges that are not complete.
    pub(super) fn open_links(&self) -> impl Iterator<Item = &PurgedLink> {
        self.all.values().filter(|entry| entry.is_open()).flat_map(|entry| &entry.list.links)
    }

    /// Adds a purge of another node.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub(super) fn take(&mut self, id: PurgeId, list: PurgeList) -> io::Result<()> {
        if self.all.contains_key(&id) { Ok(()) } else { self.put(id, list, PurgeStage::Settled) }
    }

    fn put(&mut self, id: PurgeId, list: PurgeList, stage: PurgeStage) -> io::Result<()> {
        self.replace(id, PurgeEntry::new(list, stage))
    }

    /// Stores a purge, durably. If that fails, the former one stays.
    fn replace(&mut self, id: PurgeId, entry: PurgeEntry) -> io::Result<()> {
        let mut json = entry.list.to_json();
        json["stage"] = json!(entry.stage.as_str());
        self.folder.write(id, &json, !self.all.contains_key(&id))?;
        self.all.insert(id, entry);
        Ok(())
    }

    /// Moves a purge to a later stage, durably.
    ///
    /// # Errors
    /// If its file cannot be written. It stays at its stage then.
    pub(super) fn advance(&mut self, id: PurgeId, stage: PurgeStage) -> io::Result<()> {
        let Some(entry) = self.all.get(&id).filter(|entry| entry.stage < stage) else { return Ok(()) };
        let entry = PurgeEntry { stage, error: None, ..entry.clone() };
        self.replace(id, entry)
    }

    /// Returns the purges that began longer ago than this, and that no request has run.
    pub(super) fn abandoned(&self, after: Duration, now: Instant) -> Vec<PurgeId> {
        let is_old = |entry: &PurgeEntry| now.saturating_duration_since(entry.known) > after;
        self.ids(|_, entry| entry.stage == PurgeStage::Open && is_old(entry))
    }

    /// Settles a purge on the links that were deleted.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub(super) fn settle(&mut self, id: PurgeId, links: Vec<PurgedLink>) -> io::Result<()> {
        let Some(entry) = self.all.get(&id).filter(|entry| entry.stage == PurgeStage::Due) else { return Ok(()) };
        let list = PurgeList { at_ms: entry.list.at_ms, links };
        self.put(id, list, PurgeStage::Settled)
    }

    /// Notes why this node could not carry out a purge. It tries again. Returns true if the last attempt failed for another
    /// reason, or was the first one.
    pub(super) fn fail(&mut self, id: PurgeId, why: &str) -> bool {
        let Some(entry) = self.all.get_mut(&id) else { return false };
        entry.error.replace(why.to_owned()).as_deref() != Some(why)
    }

    /// Forgets why an earlier attempt failed: the purge waits for something else now.
    pub(super) fn forget_failure(&mut self, id: PurgeId) {
        if let Some(entry) = self.all.get_mut(&id) {
            entry.error = None;
        }
    }

    /// Notes the work on the purges that this node has not carried out, and when it began; `None` for no work.
    pub(super) fn set_step(&mut self, what: Option<&'static str>, now_ms: u64) {
        self.step = what.map(|what| {
            let before = self.step.filter(|before| before.what == what);
            before.unwrap_or(PurgeStep { what, since_ms: now_ms })
        });
    }

    /// Returns the purges at a stage, with their lists. Nodes keep purges for weeks, so this is for early stages.
    pub(super) fn at_stage(&self, stage: PurgeStage) -> Vec<(PurgeId, PurgeList)> {
        self.lists(|_, entry| entry.stage == stage)
    }

    /// Returns the lists of the purges that this node has carried out.
    pub(super) fn erased(&self) -> Vec<PurgeList> {
        self.lists(|_, entry| entry.stage >= PurgeStage::Erased).into_iter().map(|(_, list)| list).collect()
    }

    /// Iterates over the settled purges that Redis lacks. Leaves out those older than [`PURGES_KEPT`], which other nodes
    /// would remove again.
    fn lacking(
        &self,
        is_lacking: impl Fn(PurgeId) -> bool,
        now_ms: u64,
    ) -> impl Iterator<Item = (PurgeId, &PurgeList)> {
        let since_ms = kept_since_ms(now_ms);
        let is_shared = move |entry: &PurgeEntry| entry.stage >= PurgeStage::Settled && entry.list.at_ms >= since_ms;
        let lists = self.all.iter().filter(move |(id, entry)| is_shared(entry) && is_lacking(**id));
        lists.map(|(id, entry)| (*id, &entry.list))
    }

    /// True if Redis lacks a settled purge.
    pub(super) fn has_unshared(&self, is_lacking: impl Fn(PurgeId) -> bool, now_ms: u64) -> bool {
        self.lacking(is_lacking, now_ms).next().is_some()
    }

    /// Returns at most so many of the settled purges that Redis lacks and may have now, with their lists.
    pub(super) fn unshared(
        &self,
        is_lacking: impl Fn(PurgeId) -> bool,
        may_have: impl Fn(&PurgeList) -> bool,
        now_ms: u64,
        most: usize,
    ) -> Vec<(PurgeId, PurgeList)> {
        let due = self.lacking(is_lacking, now_ms).filter(|(_, list)| may_have(list));
        due.take(most).map(|(id, list)| (id, list.clone())).collect()
    }

    /// Returns the purges that match, with their lists.
    fn lists(&self, matches: impl Fn(PurgeId, &PurgeEntry) -> bool) -> Vec<(PurgeId, PurgeList)> {
        let matching = self.all.iter().filter(|(id, entry)| matches(**id, entry));
        matching.map(|(id, entry)| (*id, entry.list.clone())).collect()
    }

    /// Returns the IDs of the purges that match.
    pub(super) fn ids(&self, matches: impl Fn(PurgeId, &PurgeEntry) -> bool) -> Vec<PurgeId> {
        self.all.iter().filter(|(id, entry)| matches(**id, entry)).map(|(id, _)| *id).collect()
    }

    /// Returns all purges.
    pub(super) fn all(&self) -> &BTreeMap<PurgeId, PurgeEntry> {
        &self.all
    }

    /// Sets the nodes of the fleet, none of which are known before the first heartbeat, and those that have carried out each
    /// purge.
    pub(super) fn update_fleet(&mut self, members: Vec<String>, done: &BTreeMap<PurgeId, BTreeSet<String>>) {
        self.members = members;
        // The nodes of a complete purge no longer matter, and there may be many.
        for (id, entry) in self.all.iter_mut().filter(|(_, entry)| entry.is_open()) {
            entry.done.extend(done.get(id).into_iter().flatten().cloned());
        }
    }

    /// True if all nodes of the fleet have carried out a purge. Before the first heartbeat, no node is known.
    pub(super) fn is_done_everywhere(&self, id: PurgeId) -> bool {
        let is_done = |entry: &PurgeEntry| self.members.iter().all(|node| entry.done.contains(node));
        !self.members.is_empty() && self.all.get(&id).is_some_and(is_done)
    }

    /// Returns the purges that all nodes of the fleet have carried out.
    pub(super) fn done_everywhere(&self) -> Vec<PurgeId> {
        self.ids(|id, entry| match entry.stage {
            PurgeStage::Complete => true,
            PurgeStage::Erased => self.is_done_everywhere(id),
            _ => false,
        })
    }

    /// Removes the purges that are older than [`PURGES_KEPT`] and that this node has carried out. Returns their IDs.
    pub(super) fn forget_old(&mut self, now_ms: u64) -> Vec<PurgeId> {
        let since_ms = kept_since_ms(now_ms);
        let old = self.ids(|_, entry| entry.stage >= PurgeStage::Erased && entry.list.at_ms < since_ms);
        for id in &old {
            self.all.remove(id);
            // If this fails, the next start reads the purge again, and it is removed then.
            let _ = self.folder.remove(*id);
        }
        old
    }

    /// Returns the progress of a purge; `None` if there is no such purge.
    pub(super) fn progress(&self, id: PurgeId) -> Option<PurgeProgress> {
        let entry = self.all.get(&id)?;
        let is_complete = entry.stage == PurgeStage::Complete;
        let is_done = |node: &String| is_complete || entry.done.contains(node);
        let of = |node: &String| PurgeNode { node: node.clone(), is_complete: is_done(node), silent_since_ms: None };
        let nodes = self.members.iter().map(of).collect();
        let (at_ms, links, error) = (entry.list.at_ms, entry.list.links.len(), entry.error.clone());
        let step = self.step.filter(|_| entry.stage < PurgeStage::Erased);
        Some(PurgeProgress { id, at_ms, links, is_complete, nodes, sites: Vec::new(), step, error, selection: None })
    }
}

/// Returns the purge in a file; `None` if it is malformed.
fn parsed(bytes: &[u8]) -> Option<PurgeEntry> {
    let json: Value = serde_json::from_slice(bytes).ok()?;
    let name = json.get("stage")?.as_str()?;
    let stage = PurgeStage::ALL.into_iter().find(|stage| stage.as_str() == name)?;
    Some(PurgeEntry::new(PurgeList::from_json(&json)?, stage.max(PurgeStage::Due)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_shards::Code;

    fn links(codes: &[&str]) -> Vec<PurgedLink> {
        let link = |code: &&str| {
            let code = Code::parse(code.as_bytes()).unwrap();
            PurgedLink { code, created_ms: 5, claim: Some(7), ended_ms: Some(6) }
        };
        codes.iter().map(link).collect()
    }

    fn list(codes: &[&str]) -> PurgeList {
        PurgeList { at_ms: 1_000, links: links(codes) }
    }

    #[test]
    fn stages_outlive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let open = || PurgeRegistry::open(dir.path()).unwrap();
        let mut registry = open();
        registry.begin(PurgeId(1), list(&["a", "b"])).unwrap();
        registry.begin(PurgeId(2), list(&["c"])).unwrap();
        assert!(registry.at_stage(PurgeStage::Due).is_empty(), "the links are being deleted");
        let (after, now) = (Duration::from_secs(60), Instant::now());
        assert!(registry.abandoned(after, now).is_empty());
        assert_eq!(registry.abandoned(after, now + after * 2), [PurgeId(1), PurgeId(2)], "whatever the clock says");
        registry.advance(PurgeId(1), PurgeStage::Due).unwrap();
        assert_eq!(registry.settled_len(PurgeId(1)), None);
        registry.settle(PurgeId(1), links(&["b"])).unwrap();
        let mut registry = open();
        assert_eq!([PurgeId(1), PurgeId(9)].map(|id| registry.settled_len(id)), [Some(1), Some(0)]);
        assert_eq!(
            registry.at_stage(PurgeStage::Due),
            [(PurgeId(2), list(&["c"]))],
            "nobody deletes its links any more"
        );
        assert_eq!(registry.at_stage(PurgeStage::Settled), [(PurgeId(1), list(&["b"]))]);
        registry.settle(PurgeId(1), links(&["x"])).unwrap();
        registry.advance(PurgeId(1), PurgeStage::Erased).unwrap();
        registry.advance(PurgeId(1), PurgeStage::Due).unwrap();
        assert_eq!(open().at_stage(PurgeStage::Erased), [(PurgeId(1), list(&["b"]))], "no stage comes twice");
        std::fs::write(registry.folder.path_of(PurgeId(3)), "{}").unwrap();
        assert_eq!(open().all().len(), 2);
    }

    #[test]
    fn refused_purge_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = PurgeRegistry::open(dir.path()).unwrap();
        registry.begin(PurgeId(2), list(&["b"])).unwrap();
        let paths = [1, 2].map(|id| registry.folder.path_of(PurgeId(id)));
        // The file has got its name, and the write fails after that.
        std::fs::write(&paths[0], "{}").unwrap();
        paths.iter().for_each(|path| std::fs::create_dir(path.with_extension("json.new")).unwrap());
        assert!(registry.begin(PurgeId(1), list(&["a"])).is_err());
        assert!(registry.advance(PurgeId(2), PurgeStage::Due).is_err());
        assert_eq!(paths.map(|path| path.exists()), [false, true], "the next start carries out what has a file");
    }

    #[test]
    fn purges_end_when_all_nodes_have_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = PurgeRegistry::open(dir.path()).unwrap();
        registry.take(PurgeId(1), list(&["a"])).unwrap();
        let done =
            |nodes: &[&str]| BTreeMap::from([(PurgeId(1), nodes.iter().map(|node| (*node).to_owned()).collect())]);
        let members = || vec!["a".to_owned(), "b".to_owned()];
        assert!(!registry.is_done_everywhere(PurgeId(1)), "no node is known yet");
        registry.update_fleet(members(), &done(&["a"]));
        assert!(!registry.is_done_everywhere(PurgeId(1)));
        let progress = registry.progress(PurgeId(1)).unwrap();
        let shown: Vec<(&str, bool)> = progress.nodes.iter().map(|of| (of.node.as_str(), of.is_complete)).collect();
        assert_eq!(shown, [("a", true), ("b", false)]);
        assert!(!progress.is_complete);
        registry.update_fleet(members(), &done(&["b"]));
        assert!(registry.is_done_everywhere(PurgeId(1)));
        assert_eq!(registry.done_everywhere(), [], "this node has not");
        registry.advance(PurgeId(1), PurgeStage::Erased).unwrap();
        assert_eq!(registry.done_everywhere(), [PurgeId(1)]);
        registry.advance(PurgeId(1), PurgeStage::Complete).unwrap();
        assert_eq!(registry.done_everywhere(), [PurgeId(1)]);
        assert!(registry.progress(PurgeId(1)).unwrap().is_complete);
        assert_eq!(registry.progress(PurgeId(2)), None);
    }

    #[test]
    fn only_another_reason_of_a_failure_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = PurgeRegistry::open(dir.path()).unwrap();
        registry.take(PurgeId(1), list(&["a"])).unwrap();
        registry.take(PurgeId(2), list(&["b"])).unwrap();
        assert!(registry.fail(PurgeId(1), "full"));
        assert!(!registry.fail(PurgeId(1), "full"));
        assert!(registry.fail(PurgeId(1), "damaged"));
        assert_eq!(registry.progress(PurgeId(1)).unwrap().error.as_deref(), Some("damaged"));
        assert_eq!(registry.progress(PurgeId(2)).unwrap().error, None);
        assert!(!registry.fail(PurgeId(3), "unknown"));
        registry.forget_failure(PurgeId(1));
        assert_eq!(registry.progress(PurgeId(1)).unwrap().error, None);
    }

    #[test]
    fn steps_say_when_they_began() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = PurgeRegistry::open(dir.path()).unwrap();
        registry.take(PurgeId(1), list(&["a"])).unwrap();
        let step = |registry: &PurgeRegistry| registry.progress(PurgeId(1)).unwrap().step;
        assert_eq!(step(&registry), None);
        registry.set_step(Some("reading"), 5);
        registry.set_step(Some("reading"), 7);
        assert_eq!(step(&registry), Some(PurgeStep { what: "reading", since_ms: 5 }), "it goes on");
        registry.set_step(Some("compacting"), 9);
        assert_eq!(step(&registry), Some(PurgeStep { what: "compacting", since_ms: 9 }));
        registry.advance(PurgeId(1), PurgeStage::Erased).unwrap();
        assert_eq!(step(&registry), None, "the work is for other purges");
        registry.take(PurgeId(2), list(&["b"])).unwrap();
        registry.set_step(None, 11);
        assert_eq!(registry.progress(PurgeId(2)).unwrap().step, None);
    }

    #[test]
    fn purges_that_redis_lacks_are_put_back_while_known() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = PurgeRegistry::open(dir.path()).unwrap();
        registry.begin(PurgeId(1), list(&["a"])).unwrap();
        registry.take(PurgeId(2), list(&["b"])).unwrap();
        registry.take(PurgeId(3), list(&["c"])).unwrap();
        let kept_ms = PURGES_KEPT.as_millis() as u64;
        let is_lacking = |id: PurgeId| id != PurgeId(3);
        let unshared = |registry: &PurgeRegistry, now_ms| registry.unshared(is_lacking, |_| true, now_ms, 9);
        assert_eq!(unshared(&registry, 1_000 + kept_ms), [(PurgeId(2), list(&["b"]))], "the first one is not final");
        assert!(registry.has_unshared(is_lacking, 1_000 + kept_ms));
        assert!(unshared(&registry, 1_001 + kept_ms).is_empty(), "all nodes remove it from Redis");
        assert!(!registry.has_unshared(is_lacking, 1_001 + kept_ms));
    }

    #[test]
    fn purges_are_put_back_some_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = PurgeRegistry::open(dir.path()).unwrap();
        (0..6).for_each(|number| registry.take(PurgeId(number), list(&["a", "b"])).unwrap());
        registry.take(PurgeId(6), list(&["c"])).unwrap();
        let ids = |may_have: &dyn Fn(&PurgeList) -> bool, most| {
            let put = registry.unshared(|id| id != PurgeId(0), may_have, 1_000, most);
            put.into_iter().map(|(id, _)| id.0).collect::<Vec<u64>>()
        };
        assert_eq!(ids(&|_| true, 3), [1, 2, 3]);
        assert_eq!(ids(&|_| true, 9), [1, 2, 3, 4, 5, 6]);
        assert_eq!(ids(&|list| list.links.len() == 1, 3), [6], "purges that have to wait keep no others waiting");
    }

    #[test]
    fn old_purges_are_forgotten_once_carried_out() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = PurgeRegistry::open(dir.path()).unwrap();
        registry.take(PurgeId(1), list(&["a"])).unwrap();
        registry.take(PurgeId(2), list(&["b"])).unwrap();
        registry.advance(PurgeId(2), PurgeStage::Erased).unwrap();
        let kept_ms = PURGES_KEPT.as_millis() as u64;
        assert!(registry.forget_old(1_000 + kept_ms).is_empty());
        assert_eq!(registry.forget_old(1_001 + kept_ms), [PurgeId(2)]);
        assert_eq!(PurgeRegistry::open(dir.path()).unwrap().all().len(), 1);
    }

    #[test]
    fn too_many_open_purges_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = PurgeRegistry::open(dir.path()).unwrap();
        for number in 0..PURGES_OPEN_MAX as u64 {
            registry.begin(PurgeId(number), list(&[])).unwrap();
        }
        assert!(registry.begin(PurgeId(7_777), list(&[])).unwrap_err().contains("have not ended"));
        registry.advance(PurgeId(0), PurgeStage::Complete).unwrap();
        assert_eq!(registry.begin(PurgeId(7_777), list(&[])), Ok(()));
    }

    #[test]
    fn too_many_purges_of_the_last_weeks_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = PurgeRegistry::open(dir.path()).unwrap();
        let ended = PurgeEntry::new(list(&["a"]), PurgeStage::Complete);
        registry.all.extend((0..PURGES_KNOWN_MAX as u64).map(|number| (PurgeId(number), ended.clone())));
        let one_more = PurgeId(PURGES_KNOWN_MAX as u64);
        assert!(registry.begin(one_more, list(&["b"])).unwrap_err().contains("last 30 days"));
        registry.take(one_more, list(&["b"])).unwrap();
        assert!(registry.all().contains_key(&one_more), "the purge of another node is carried out");
    }
}
