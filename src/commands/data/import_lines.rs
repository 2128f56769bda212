//! The first stages of an import. They cut the input into chunks of whole lines, turn lines into records, and look up
//! what the store has under their codes. They decide nothing; see [`super::import`].

use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use serde::Deserialize;

use super::import_report::ImportFinding;
use super::import_setup::ImportSetup;
use crate::services::readers::ndjson::{self, Line};
use carom_limits::{IMPORT_CHUNK_BYTES, IMPORT_LINE_MAX};
use carom_model::access::AppName;
use carom_model::domains::DomainName;
use carom_model::link::labels::LinkLabels;
use carom_model::link::record::{self, LinkRef, RecordRef};
use carom_model::link::{Link, Origin, Version};
use carom_model::replication::rules;
use carom_model::visits::tally::VisitCounts;
use carom_store::links::{Links, StoreError};
use carom_telemetry::clock::unix_ms;

/// Whole lines of the input.
pub(super) struct LineChunk {
    pub(super) number: u64,
    pub(super) first_line: u64,
    pub(super) bytes: Vec<u8>,
    /// The number of a line after this chunk that was too long and skipped.
    pub(super) too_long: Option<u64>,
}

/// Cuts the input into chunks. Ends early once the receivers are gone.
pub(super) fn cut(input: &mut dyn Read, chunks: &SyncSender<LineChunk>) -> io::Result<()> {
    let mut rest = Vec::new();
    let (mut number, mut line, mut skipping) = (0, 1, false);
    loop {
        let mut bytes = std::mem::take(&mut rest);
        let before = bytes.len();
        let room = (IMPORT_CHUNK_BYTES - before) as u64;
        let ended = Read::take(&mut *input, room).read_to_end(&mut bytes)? < room as usize;
        if skipping {
            // The rest of a line that was too long.
            let end = memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |at| at + 1);
            skipping = end == bytes.len() && !ended;
            bytes.drain(..end);
        }
        let mut too_long = None;
        if !ended {
            let end = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
            rest = bytes.split_off(end);
        }
        let first_line = line;
        line += memchr::memchr_iter(b'\n', &bytes).count() as u64;
        if rest.len() > IMPORT_LINE_MAX {
            rest.clear();
            too_long = Some(line);
            line += 1;
            skipping = true;
        }
        if chunks.send(LineChunk { number, first_line, bytes, too_long }).is_err() || ended {
            return Ok(());
        }
        number += 1;
    }
}

/// The link of a line, ready for the decision.
pub(super) struct ImportItem {
    pub(super) line: u64,
    /// The code, and the place of its record in the chunk's buffer; `None` if the link needs a new code.
    pub(super) coded: Option<(Code, Range<usize>)>,
    /// The link in full, if it is needed. Its code is a stand-in if the link needs a new one.
    pub(super) link: Option<Box<Link>>,
    /// The result of the look-up.
    pub(super) found: StoredState,
    /// The visits of the link before the import.
    pub(super) visits: VisitCounts,
}

/// The fields of a line that name its short URL.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    short_code: Option<String>,
    domain: Option<String>,
}

impl Named {
    fn to_name(&self) -> String {
        let slug = self.short_code.as_deref().unwrap_or_default();
        self.domain.as_ref().map_or(slug.to_owned(), |domain| format!("{domain}/{slug}"))
    }
}

/// Returns the name of an item's short URL for reports.
pub(super) fn name_of(chunk: &ParsedChunk, item: &ImportItem) -> String {
    let Some((code, range)) = &item.coded else { return String::new() };
    let slug = code.as_slug().to_string();
    match record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), &chunk.records[range.clone()]) {
        Ok(RecordRef::Link(LinkRef { domain: Some(domain), .. })) => format!("{domain}/{slug}"),
        _ => slug,
    }
}

/// The stored state of a code, compared with the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StoredState {
    Absent,
    Same,
    Other,
    Tombstone,
    /// The free slug of a fleet, with the version of its tombstone.
    Freed {
        gone: Version,
    },
    Damaged,
}

/// A parsed chunk.
pub(super) struct ParsedChunk {
    pub(super) number: u64,
    /// Number of generations in the store before the codes were looked up. A generation is a batch of records that the
    /// import writes to the store at once.
    pub(super) generation: u64,
    pub(super) records: Vec<u8>,
    pub(super) items: Vec<ImportItem>,
    pub(super) findings: Vec<ImportFinding>,
    pub(super) input_bytes: u64,
    pub(super) failure: Option<StoreError>,
}

pub(super) fn parse_all(
    setup: &ImportSetup,
    generation: &AtomicU64,
    chunks: &Mutex<Receiver<LineChunk>>,
    out: &SyncSender<ParsedChunk>,
) {
    let next = || chunks.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok(chunk) = next() {
        if out.send(parse_chunk(setup, generation, &chunk)).is_err() {
            return;
        }
    }
}

fn parse_chunk(setup: &ImportSetup, generation: &AtomicU64, chunk: &LineChunk) -> ParsedChunk {
    let mut parsed = ParsedChunk {
        number: chunk.number,
        generation: generation.load(Ordering::Acquire),
        records: Vec::with_capacity(chunk.bytes.len()),
        items: Vec::with_capacity(chunk.bytes.len() / 128),
        findings: Vec::new(),
        input_bytes: chunk.bytes.len() as u64,
        failure: None,
    };
    let now_ms = unix_ms();
    let mut rest = &chunk.bytes[..];
    if chunk.number == 0 {
        rest = rest.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rest);
    }
    let mut line = chunk.first_line;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let text = rest[..end].trim_ascii();
        rest = rest.get(end + 1..).unwrap_or_default();
        if !text.is_empty() {
            match ndjson::read(text, &setup.own, &setup.domains) {
                Ok(read) => {
                    if let Err(error) = parsed.add(setup, line, read, now_ms) {
                        parsed.failure = Some(error);
                        return parsed;
                    }
                }
                Err(error) => {
                    let is_moved = setup.moving.is_some();
                    let named = if is_moved { serde_json::from_slice::<Named>(text).ok() } else { None };
                    let name = named.map(|named| named.to_name()).unwrap_or_default();
                    parsed.findings.push(ImportFinding::rejected(line, name, error.to_string()));
                }
            }
        }
        line += 1;
    }
    if let Some(line) = chunk.too_long {
        let reason = format!("is longer than {IMPORT_LINE_MAX} bytes");
        parsed.findings.push(ImportFinding::rejected(line, String::new(), reason));
    }
    parsed
}

impl ParsedChunk {
    fn add(&mut self, setup: &ImportSetup, line: u64, read: Line, now_ms: u64) -> Result<(), StoreError> {
        let Line { code, target, policy, created_ms, origin, labels, visits } = read;
        let is_missing = (created_ms.is_none(), origin.is_none());
        let created_ms = created_ms.unwrap_or(now_ms);
        let Some(code) = code else {
            let version = Version::default();
            let code = Code::parse(b"-").expect("a character of the alphabet");
            let (target, origin) = (target.into(), Origin::Issued);
            let link = Link { code, policy, target, created_ms, origin, version, labels };
            let link = Some(Box::new(link));
            self.items.push(ImportItem { line, coded: None, link, found: StoredState::Absent, visits });
            return Ok(());
        };
        let origin = origin.unwrap_or(Origin::Custom);
        let version = Version::default();
        let mut link = Link { code, policy, target: target.into(), created_ms, origin, version, labels };
        let mut found = compare(&setup.links, &link, is_missing)?;
        if let StoredState::Freed { gone } = found {
            link.version = rules::version_after(gone, &link);
            found = StoredState::Absent;
        }
        let start = self.records.len();
        record::encode_link(code.key(&mut [0; CODE_KEY_LEN_MAX]), &link, &mut self.records);
        let range = start..self.records.len();
        // The full link is needed only for a line without a date or origin, if it is compared again, which is rare.
        let link = (is_missing.0 || is_missing.1).then(|| Box::new(link));
        self.items.push(ImportItem { line, coded: Some((code, range)), link, found, visits });
        Ok(())
    }
}

/// Compares a link with the stored state of its code. A date or origin that the line does not have matches any.
fn compare(links: &Links, link: &Link, (any_date, any_origin): (bool, bool)) -> Result<StoredState, StoreError> {
    let stored = match links.get(&link.code) {
        Ok(Some(stored)) => stored,
        Ok(None) => return Ok(StoredState::Absent),
        Err(StoreError::Damaged(_)) => return Ok(StoredState::Damaged),
        Err(error) => return Err(error),
    };
    Ok(match record::decode(link.code.key(&mut [0; CODE_KEY_LEN_MAX]), &stored) {
        Ok(RecordRef::Link(stored)) => {
            let same = says_the_same(&stored, link)
                && (any_date || stored.created_ms == link.created_ms)
                && (any_origin || stored.origin == link.origin);
            if same { StoredState::Same } else { StoredState::Other }
        }
        Ok(RecordRef::Tombstone(gone)) if gone.origin == Origin::Custom => StoredState::Freed { gone: gone.version },
        Ok(RecordRef::Tombstone(_)) => StoredState::Tombstone,
        Err(_) => StoredState::Damaged,
    })
}

/// True if a stored link has the same destination, policy and labels.
fn says_the_same(stored: &LinkRef<'_>, link: &Link) -> bool {
    let LinkLabels {
        title,
        tags,
        crawlable,
        default_expiry,
        app,
        app_version,
        domain,
        delete_at_ms: _,
        idempotency: _,
        rules,
        // Visits do not tell links apart: an import adds them to new links only.
        earlier_visits: _,
        unknown: _,
    } = &link.labels;
    let is_labelled = stored.title == title.as_deref() && stored.tags == tags.joined();
    let is_noted = stored.crawlable == *crawlable && stored.default_expiry == *default_expiry;
    let is_noted = is_noted && stored.rules == rules.encoded();
    let is_owned = stored.app == app.as_ref().map(AppName::as_str) && stored.app_version == app_version.as_deref();
    let is_owned = is_owned && stored.domain == domain.as_ref().map(DomainName::as_str);
    stored.policy == link.policy && stored.target == link.target && is_labelled && is_noted && is_owned
}

/// Compares a line with a record that was stored or collected after the look-up of its chunk.
pub(super) fn same(code: &Code, stored: &[u8], item: &ImportItem, record: &[u8]) -> StoredState {
    if stored == record {
        return StoredState::Same;
    }
    let key = &mut [0; CODE_KEY_LEN_MAX];
    match (record::decode(code.key(key), stored), &item.link) {
        (Ok(RecordRef::Link(stored)), Some(link)) if says_the_same(&stored, link) => StoredState::Same,
        (Ok(RecordRef::Link(_)), _) => StoredState::Other,
        // The version of the record follows it since the look-up.
        (Ok(RecordRef::Tombstone(gone)), _) if gone.origin == Origin::Custom => StoredState::Absent,
        (Ok(RecordRef::Tombstone(_)), _) => StoredState::Tombstone,
        (Err(_), _) => StoredState::Damaged,
    }
}
