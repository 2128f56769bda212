//! Imports links from NDJSON into a store that no node has open.
//!
//! One thread cuts the input into chunks of whole lines. Several threads parse them, look up their codes and encode
//! records. The caller's thread alone decides, chunk by chunk in the order of the input. It collects and sorts new
//! records, and writes them as whole files of the store, past the journal. A line that matches a stored link counts as
//! unchanged, so an import that was cut off can be repeated.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carom_shards::code::CODE_KEY_LEN_MAX;
use carom_shards::{Code, CodeLength, CounterValue, GeneratedCode, Issuer, Segment};

use super::import_lines::{ImportItem, LineChunk, ParsedChunk, StoredState, cut, name_of, parse_all, same};
use super::import_report::{ImportFinding, ReportFile};
use super::import_setup::{ImportError, ImportSetup, ImportSummary};
use super::import_visits::{ImportedVisits, VisitImport};
use crate::services::maintenance::disk_guard::DiskGuard;
use crate::services::maintenance::index_builder::IndexEntries;
use crate::services::maintenance::progress::Progress;
use carom_limits::{IMPORT_CHUNK_BYTES, IMPORT_REPORTS_MAX, IMPORT_RUN_LEN, IMPORT_SORTED_BYTES};
use carom_model::link::Link;
use carom_model::link::record::{self, RecordRef};
use carom_model::replication::Partition;
use carom_model::visits::tally::VisitCounts;
use carom_store::links::{Links, StoreError};
use carom_telemetry::readable;
use xxhash_rust::xxh3::xxh3_64;

/// Interval between two updates of the progress while no chunk arrives, because the source of links is slow.
const TICK: Duration = Duration::from_millis(250);

/// Size of a generation, in bytes, if links arrive from an API: an interruption loses less of what was read.
const MOVED_SORTED_BYTES: usize = 4 * IMPORT_CHUNK_BYTES;

/// Number of chunks that wait between two stages.
const CHUNKS_WAITING: usize = 4;

/// Imports everything from `input`. Reports, progress and the summary go to `messages`, and all reports also to
/// `report`.
///
/// # Errors
/// [`ImportError`] if the import ended early. Refused lines are no error: the summary counts them.
pub fn import(
    setup: &ImportSetup,
    input: &mut (dyn Read + Send),
    messages: &mut dyn Write,
    report: Option<ReportFile>,
) -> Result<ImportSummary, ImportError> {
    if setup.of_fleet && !setup.dry_run {
        note_full_comparison(&setup.links)?;
    }
    let sorted_bytes = if setup.moving.is_some() { MOVED_SORTED_BYTES } else { IMPORT_SORTED_BYTES };
    import_by(sorted_bytes, setup, input, messages, report)
}

/// Notes, before the first link is imported, that everything must be compared with Redis when the node is started.
fn note_full_comparison(links: &Links) -> Result<(), StoreError> {
    let mut batch = links.batch();
    Partition::all().for_each(|partition| batch.set_compare(partition, true));
    links.commit(batch)?;
    links.sync()
}

/// Imports with generations of `sorted_bytes` bytes.
fn import_by(
    sorted_bytes: usize,
    setup: &ImportSetup,
    input: &mut (dyn Read + Send),
    messages: &mut dyn Write,
    report: Option<ReportFile>,
) -> Result<ImportSummary, ImportError> {
    let generation = AtomicU64::new(0);
    let mut committer = Committer::new(setup, &generation, sorted_bytes, report)?;
    let result = std::thread::scope(|scope| {
        let (chunks_in, chunks_out) = sync_channel::<LineChunk>(CHUNKS_WAITING);
        let (parsed_in, parsed_out) = sync_channel::<ParsedChunk>(CHUNKS_WAITING);
        let chunks_out = Arc::new(Mutex::new(chunks_out));
        let reader = scope.spawn(move || cut(input, &chunks_in));
        let parsers: Vec<_> = (0..setup.threads.max(1))
            .map(|_| {
                let (chunks_out, parsed_in, generation) = (Arc::clone(&chunks_out), parsed_in.clone(), &generation);
                scope.spawn(move || parse_all(setup, generation, &chunks_out, &parsed_in))
            })
            .collect();
        // Each stage alone holds its end of a channel, so that a stage notices the early end of its neighbour.
        drop((chunks_out, parsed_in));
        let result = committer.take_all(&parsed_out, messages);
        drop(parsed_out);
        for parser in parsers {
            parser.join().expect("panics abort");
        }
        let read = reader.join().expect("panics abort");
        result.and(read.map_err(ImportError::Input))
    });
    // The decisions so far are written, even after an error.
    let written = committer.write().and_then(|()| Ok(setup.links.sync()?));
    result.and(written)?;
    if !setup.dry_run {
        committer.progress.clear(messages);
        if generation.load(Ordering::Acquire) > 1 {
            let _ = writeln!(messages, "merging the tables of the store, so that the first redirects need not wait");
        }
        if let Err(error) = setup.links.merge_tables() {
            note_unmerged(&error, messages);
        }
    }
    committer.finish(messages)
}

/// Reports a failed merge. The import has succeeded: all links are durable, and a node merges the same tables itself.
fn note_unmerged(error: &StoreError, messages: &mut dyn Write) {
    let _ = writeln!(
        messages,
        "note: the tables of the store are not merged ({error}); all links are stored, and the node merges the tables after its start"
    );
}

/// The stage that decides and writes, on the caller's thread.
struct Committer<'s> {
    setup: &'s ImportSetup,
    /// Number of generations in the store. A generation is a collection of records that was written together.
    generation: &'s AtomicU64,
    disk: DiskGuard,
    issuer: Issuer,
    fresh: Vec<GeneratedCode>,
    /// The records of the next generation: taken, but not in the store yet.
    records: Vec<u8>,
    /// Size in bytes at which they make a generation.
    sorted_bytes: usize,
    /// The place of each of them in `records`.
    collected: HashMap<Code, Range<usize>>,
    /// The codes of the last generation.
    last: HashSet<Code>,
    /// The visits of the links in `records`.
    visits: Vec<ImportedVisits>,
    /// Stores visits; `None` if the store takes none from an import.
    visit_import: Option<VisitImport>,
    /// Links without their visits, for that reason.
    without_visits: u64,
    /// In a dry run, the hashes of the codes of earlier generations and of their records.
    tried: HashMap<u64, u64>,
    report: Option<ReportFile>,
    summary: ImportSummary,
    input_bytes: u64,
    progress: Progress,
}

impl<'s> Committer<'s> {
    fn new(
        setup: &'s ImportSetup,
        generation: &'s AtomicU64,
        sorted_bytes: usize,
        report: Option<ReportFile>,
    ) -> Result<Committer<'s>, ImportError> {
        let mut marks = Vec::new();
        for length in CodeLength::MIN.and_longer() {
            marks.push((length, CounterValue(setup.links.high_water(length.get())?)));
        }
        Ok(Committer {
            setup,
            generation,
            disk: DiskGuard::new(setup.data_dir.clone()),
            issuer: Issuer::new(setup.length, marks),
            fresh: Vec::new(),
            records: Vec::with_capacity(sorted_bytes),
            sorted_bytes,
            collected: HashMap::new(),
            last: HashSet::new(),
            visits: Vec::new(),
            visit_import: VisitImport::of(&setup.links)?,
            without_visits: 0,
            tried: HashMap::new(),
            report,
            summary: ImportSummary::default(),
            input_bytes: 0,
            progress: Progress::new(setup.terminal, setup.total_bytes),
        })
    }

    /// Takes chunks in the order of the input.
    fn take_all(&mut self, parsed: &Receiver<ParsedChunk>, messages: &mut dyn Write) -> Result<(), ImportError> {
        let mut early = BTreeMap::new();
        let mut next = 0;
        loop {
            let chunk = match parsed.recv_timeout(TICK) {
                Ok(chunk) => chunk,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(moving) = &self.setup.moving {
                        let links = moving.links.load(Ordering::Relaxed);
                        self.progress.tick(messages, links, self.input_bytes);
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            early.insert(chunk.number, chunk);
            while let Some(chunk) = early.remove(&next) {
                self.take(chunk, messages)?;
                next += 1;
            }
        }
    }

    fn take(&mut self, mut chunk: ParsedChunk, messages: &mut dyn Write) -> Result<(), ImportError> {
        if let Some(error) = chunk.failure.take() {
            return Err(error.into());
        }
        if !self.disk.has_room(self.records.len() as u64) {
            return Err(ImportError::DiskFull);
        }
        let mut findings = std::mem::take(&mut chunk.findings);
        for item in &chunk.items {
            if let Err(reason) = self.decide(&chunk, item)? {
                let name = if self.setup.moving.is_some() { name_of(&chunk, item) } else { String::new() };
                findings.push(ImportFinding::rejected(item.line, name, reason.to_owned()));
            }
        }
        findings.extend(self.setup.moving.iter().flat_map(|moving| moving.take_findings()));
        if self.records.len() + IMPORT_CHUNK_BYTES > self.sorted_bytes {
            self.write()?;
        }
        findings.sort();
        self.report(&findings, messages)?;
        self.input_bytes += chunk.input_bytes;
        self.progress.tick(messages, self.summary.taken + self.summary.unchanged, self.input_bytes);
        Ok(())
    }

    /// Writes the collected records to the store, and begins a new generation.
    fn write(&mut self) -> Result<(), ImportError> {
        let mut sorted: Vec<_> = self.collected.iter().map(|(code, range)| (CodeSortKey::new(code), range)).collect();
        sorted.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        if self.setup.dry_run {
            let hash = |bytes: &[u8]| xxh3_64(bytes);
            let tried = sorted.iter().map(|(key, range)| (hash(key.bytes()), hash(&self.records[(*range).clone()])));
            self.tried.extend(tried);
        } else if !sorted.is_empty() {
            if let Some(import) = &self.visit_import {
                import.store(&self.setup.links, &self.visits)?;
            }
            let records = || sorted.iter().map(|(key, range)| (key.bytes(), &self.records[(*range).clone()]));
            // Index entries are written before links. After a crash every link then has its entries, and entries
            // without a link do no harm.
            let mut entries = IndexEntries::default();
            records().for_each(|(key, record)| entries.add(key, record));
            entries.ingest(&self.setup.links)?;
            self.setup.links.ingest(records())?;
        }
        self.last = self.collected.drain().map(|(code, _)| code).collect();
        self.records.clear();
        self.visits.clear();
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Decides one line: collects its record, or returns the reason for refusing it.
    fn decide(&mut self, chunk: &ParsedChunk, item: &ImportItem) -> Result<Result<(), &'static str>, ImportError> {
        let Some((code, range)) = &item.coded else {
            if self.setup.of_fleet {
                return Ok(Err("has no shortCode; in a fleet, create such links through the API"));
            }
            self.issue(item)?;
            return Ok(Ok(()));
        };
        let record = &chunk.records[range.clone()];
        let found = match self.collected.get(code) {
            Some(before) => same(code, &self.records[before.clone()], item, record),
            None if self.may_have_changed(chunk, code) => {
                self.setup.links.get(code)?.map_or(StoredState::Absent, |stored| same(code, &stored, item, record))
            }
            None => item.found,
        };
        let found = match found {
            StoredState::Absent if self.setup.dry_run => self.found_by_dry_run(code, record),
            found => found,
        };
        Ok(match found {
            StoredState::Absent => {
                self.collect(*code, record, item.visits);
                Ok(())
            }
            StoredState::Same => {
                self.summary.unchanged += 1;
                Ok(())
            }
            StoredState::Other => Err("shortCode belongs to another link"),
            StoredState::Tombstone | StoredState::Freed { .. } => {
                Err("shortCode belonged to a deleted link and cannot be reused")
            }
            StoredState::Damaged => Err("shortCode has a record in the store that this version cannot read"),
        })
    }

    /// Returns what an earlier generation of a dry run would have stored under a code.
    fn found_by_dry_run(&self, code: &Code, record: &[u8]) -> StoredState {
        match self.tried.get(&xxh3_64(CodeSortKey::new(code).bytes())) {
            None => StoredState::Absent,
            Some(hash) if *hash == xxh3_64(record) => StoredState::Same,
            Some(_) => StoredState::Other,
        }
    }

    fn collect(&mut self, code: Code, record: &[u8], visits: VisitCounts) {
        if visits.total > 0
            && let Ok(RecordRef::Link(link)) = record::decode(CodeSortKey::new(&code).bytes(), record)
        {
            self.summary.visits += visits.total;
            match &self.visit_import {
                Some(_) => self.visits.extend(ImportedVisits::of(code, &link, visits)),
                None => self.without_visits += 1,
            }
        }
        let start = self.records.len();
        self.records.extend_from_slice(record);
        self.collected.insert(code, start..self.records.len());
        self.summary.taken += 1;
    }

    /// True if the code may have been stored since this chunk looked it up.
    fn may_have_changed(&self, chunk: &ParsedChunk, code: &Code) -> bool {
        match self.generation.load(Ordering::Relaxed) - chunk.generation {
            0 => false,
            1 => self.last.contains(code),
            _ => true,
        }
    }

    /// Gives a line without a code a new one.
    fn issue(&mut self, item: &ImportItem) -> Result<(), ImportError> {
        let link = item.link.as_deref().expect("a line without a code keeps its link");
        if self.setup.dry_run {
            self.summary.taken += 1;
            return Ok(());
        }
        loop {
            let code = self.next_code()?.within(link.labels.domain_id());
            // After the counter was set back it repeats codes, so each code is looked up.
            if self.collected.contains_key(&code) || self.setup.links.get(&code)?.is_some() {
                continue;
            }
            let link = Link { code, ..link.clone() };
            let mut record = Vec::with_capacity(link.target.len() + 64);
            record::encode_link(code.key(&mut [0; CODE_KEY_LEN_MAX]), &link, &mut record);
            self.collect(code, &record, item.visits);
            return Ok(());
        }
    }

    fn next_code(&mut self) -> Result<Code, ImportError> {
        while self.fresh.is_empty() {
            let want = IMPORT_RUN_LEN.min(self.issuer.remaining());
            let run = self.issuer.issue(want).ok_or(ImportError::NoCodes)?;
            // The mark is durable before any link that depends on it.
            let mut mark = self.setup.links.batch();
            mark.set_high_water(run.length.get(), run.end().0);
            self.setup.links.commit(mark)?;
            self.setup.links.sync()?;
            let mut seed = [0; 16];
            getrandom::fill(&mut seed).map_err(|error| StoreError::Failed(error.to_string()))?;
            self.fresh = Segment::prepare(&self.setup.space, run, seed).into_codes();
        }
        Ok(self.fresh.pop().expect("it was just filled").to_code())
    }

    fn report(&mut self, findings: &[ImportFinding], messages: &mut dyn Write) -> Result<(), ImportError> {
        for finding in findings {
            *(if finding.is_taken { &mut self.summary.cut } else { &mut self.summary.refused }) += 1;
            if let Some(report) = &mut self.report {
                report.add(finding).map_err(ImportError::Report)?;
            }
            match self.summary.refused + self.summary.cut {
                1..=IMPORT_REPORTS_MAX => {
                    self.progress.clear(messages);
                    let _ = writeln!(messages, "{}", finding.to_text());
                }
                count if count == IMPORT_REPORTS_MAX + 1 => {
                    self.progress.clear(messages);
                    let _ = writeln!(messages, "further rejected lines are counted but not listed");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends the import, after everything is written.
    fn finish(mut self, messages: &mut dyn Write) -> Result<ImportSummary, ImportError> {
        // A source that ends with links that cannot be moved has no chunk after them.
        let findings = self.setup.moving.iter().flat_map(|moving| moving.take_findings()).collect::<Vec<_>>();
        self.report(&findings, messages)?;
        if let Some(report) = &mut self.report {
            report.finish().map_err(ImportError::Report)?;
        }
        self.summary.time = self.progress.elapsed();
        self.progress.clear(messages);
        let remark = self.setup.moving.as_ref().and_then(|moving| moving.remark());
        if let Some(remark) = remark {
            let _ = writeln!(messages, "note: {remark}");
        }
        if self.without_visits > 0 {
            let links = readable::count(self.without_visits, "link");
            let _ = writeln!(
                messages,
                "note: {links} without their visits: the node counts visits together with its fleet"
            );
        }
        let _ = writeln!(messages, "{}", self.summary.to_text(self.setup.dry_run));
        Ok(self.summary)
    }
}

/// The key of a code, in the order of the store.
struct CodeSortKey {
    bytes: [u8; CODE_KEY_LEN_MAX],
    len: usize,
}

impl CodeSortKey {
    fn new(code: &Code) -> CodeSortKey {
        let mut bytes = [0; CODE_KEY_LEN_MAX];
        let len = code.key(&mut bytes).len();
        CodeSortKey { bytes, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn cmp(&self, other: &CodeSortKey) -> std::cmp::Ordering {
        self.bytes().cmp(other.bytes())
    }
}

#[cfg(test)]
mod tests;
