//! Signs the links that the store had at the start, newest first, and signs sections again that many links have changed
//! in since.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::code::CODE_KEY_LEN_MAX;

use super::catalog::Catalog;
use super::ngram_filters::{FilterWork, divided};
use super::section::{IndexSection, SIGNATURE_BYTES, Source};
use super::section_store;
use super::text_chunk::{TextPart, entry_of};
use super::texts::Texts;
use crate::services::threads;
use crate::services::threads::priority::{Priority, pause_if_due};
use carom_model::link::record::{self, RecordRef};
use carom_store::links::catalog::{IndexKind, View, place_of};
use carom_store::links::{Links, StoreError, Value};

/// Pause between two sections. Client requests on the same CPU need it more.
const PAUSE: Duration = Duration::from_millis(1);

/// Pause after a section, as a multiple of the time it took. Constant changes keep the thread signing, but for a fifth
/// of its time.
const RESTS: u32 = 4;

/// Longest pause, and so the longest delay of a shutdown.
const REST_MAX: Duration = Duration::from_millis(100);

/// Links that are signed for the cost of replaying one change after a crash, which looks up a link by its code.
const SIGNED_PER_CHANGE: u32 = 16;

/// Starts the thread. It runs in the background, and ends when the catalog is stopped, or at once if signatures are
/// off.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(catalog: &Arc<Catalog>) -> io::Result<JoinHandle<()>> {
    let catalog = Arc::clone(catalog);
    threads::start(Priority::Background, "sign", move || {
        if !catalog.filters.is_on() {
            return;
        }
        catalog.filters.set_signer();
        let signed = sign_at_start(&catalog).and_then(|()| keep_signed(&catalog));
        if signed.is_ok() {
            section_store::save(&catalog, true);
        } else if let Err(error) = signed {
            // Otherwise new links would pile up in memory, waiting to be signed.
            catalog.filters.give_up();
            tracing::error!(%error, "cannot read links for the search index; until a restart, searches read every link");
        }
    })
}

/// Signs all links of a store that no node has open, and stores the sections in `dir` for the next start. Blocks the
/// calling thread: about 7 µs of CPU per link. Does nothing if `search_memory` is 0.
///
/// # Errors
/// The reason why sections are missing.
pub fn sign_once(links: &Links, search_memory: u64, dir: &Path) -> Result<(), String> {
    if search_memory == 0 {
        return Ok(());
    }
    let failed = |error: StoreError| format!("the search index: {error}");
    let catalog = Catalog::new(links.clone(), search_memory, dir).map_err(failed)?;
    section_store::restore(&catalog).map_err(failed)?;
    while work_once(&catalog, || {}).map_err(failed)? {}
    // Few links count as no change.
    catalog.unsaved.fetch_add(1, Ordering::Relaxed);
    section_store::save(&catalog, true);
    if catalog.texts.is_none() || catalog.is_unwritten.load(Ordering::Relaxed) {
        return Err(format!("the search index cannot be stored in {}", dir.display()));
    }
    Ok(())
}

/// Restores the sections that the last process stored, and signs all other links.
fn sign_at_start(catalog: &Catalog) -> Result<(), StoreError> {
    let start = Instant::now();
    let restored = section_store::restore(catalog)?;
    catalog.forgetting.note_restored();
    if let Some((links, changed)) = restored {
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(links, changed, seconds, "loaded the search index of the last run");
    }
    if sign_all(catalog, 0)? {
        log_completion(catalog, start);
        section_store::save(catalog, restored.is_none());
    }
    Ok(())
}

fn log_completion(catalog: &Catalog, start: Instant) {
    let (links, sections, is_all) = catalog.signatures().coverage();
    let (bytes, seconds) = (sections * SIGNATURE_BYTES, start.elapsed().as_secs_f64());
    if is_all {
        tracing::info!(links, bytes, seconds, "the search index is complete");
    } else {
        tracing::info!(
            links,
            bytes,
            seconds,
            "the search index contains the newest links; raise links.search_memory to include older ones"
        );
    }
}

/// Signs all sections that are due, and pauses after each for `rests` times as long as it took. Returns false if the
/// catalog was stopped first.
fn sign_all(catalog: &Catalog, rests: u32) -> Result<bool, StoreError> {
    loop {
        let start = Instant::now();
        if !work_once(catalog, || {})? {
            return Ok(true);
        }
        if catalog.stopping.load(Ordering::Acquire) {
            return Ok(false);
        }
        section_store::save(catalog, false);
        let rest = if catalog.signatures().is_pressed() { PAUSE } else { start.elapsed() * rests };
        std::thread::sleep(rest.clamp(PAUSE, REST_MAX));
    }
}

/// Signs sections whenever some are due, until the catalog is stopped.
fn keep_signed(catalog: &Catalog) -> Result<(), StoreError> {
    while !catalog.stopping.load(Ordering::Acquire) {
        let is_any_due = catalog.signatures().work().is_some();
        if !is_any_due && !catalog.forgetting.is_due() {
            // Returns at once if the thread was woken since it last slept.
            std::thread::park();
        } else if sign_all(catalog, RESTS)? {
            // Nothing may have been signed.
            section_store::save(catalog, false);
        }
    }
    Ok(())
}

/// Makes the next section. Calls `between` once it is made, before it is in use. Returns false if none was due.
///
/// # Errors
/// If links cannot be read. The caller must then give up the signatures, because the begun work stays unfinished.
pub(super) fn work_once(catalog: &Catalog, between: impl FnOnce()) -> Result<bool, StoreError> {
    let mut signatures = catalog.signatures();
    let work = signatures.work();
    if let Some(FilterWork::Divide(range, _) | FilterWork::Sign(range)) = &work {
        signatures.begin(range);
    }
    drop(signatures);
    let (mut made, range) = match work {
        None => return Ok(false),
        Some(FilterWork::Divide(range, parts)) => (divided(&range, &parts), range),
        Some(FilterWork::Sign(range)) => {
            // Opened after `begin`, so it has every link whose texts came before. The filters keep those that come later.
            let view = catalog.links.view();
            (vec![section_of(&view, &range.0, &range.1, &catalog.lacks_newer)?], range)
        }
    };
    let links: u32 = made.iter().map(|section| section.len).sum();
    catalog.unsaved.fetch_add(u64::from(links / SIGNED_PER_CHANGE), Ordering::Relaxed);
    made.iter_mut().for_each(|section| section.save(|part| save(catalog, part)));
    between();
    _ = catalog.signatures().end(made, &range);
    Ok(true)
}

/// Writes texts to the text file, and returns their place.
fn save(catalog: &Catalog, part: &TextPart) -> Source {
    let Some(file) = &catalog.texts else { return Source::None };
    pause_if_due();
    match file.write(part) {
        Ok(extent) => {
            catalog.is_unwritten.store(false, Ordering::Relaxed);
            Source::Stored(Arc::new(extent))
        }
        Err(error) => {
            // Logged once, until a write succeeds again.
            if !catalog.is_unwritten.swap(true, Ordering::Relaxed) {
                tracing::info!(%error, "cannot store link texts for the search index; searches take longer");
            }
            Source::None
        }
    }
}

/// Makes a section of the last links in a range. Notes in `lacks_newer` if it lacks one that only a later version can
/// decode.
fn section_of(view: &View, from: &[u8], to: &[u8], lacks_newer: &AtomicBool) -> Result<IndexSection, StoreError> {
    let mut section = IndexSection::new(from);
    let (mut small, mut ascii) = (Vec::new(), [0; CODE_KEY_LEN_MAX]);
    for key in view.keys(IndexKind::Dates, from, to).rev() {
        pause_if_due();
        let key: Value = key?;
        // A key without a valid place was not written by this program.
        let Some(place) = place_of(&key, 0) else { continue };
        let stored = match view.get(&place.code) {
            Ok(Some(stored)) => stored,
            Ok(None) | Err(StoreError::Damaged(_)) => continue,
            Err(error) => return Err(error),
        };
        match record::decode(place.code.key(&mut ascii), &stored) {
            Ok(RecordRef::Link(link)) => {
                section.add(&entry_of(&key, &Texts::of_record(&place.code, &link), &mut small));
            }
            // Lists have no damaged links.
            Ok(RecordRef::Tombstone(_)) => continue,
            Err(error) => {
                lacks_newer.fetch_or(error.is_newer(), Ordering::Relaxed);
                continue;
            }
        }
        if section.is_full(usize::MAX) {
            section.begin_at(&key);
            break;
        }
    }
    Ok(section)
}
