//! Makes the signatures of the links that a store had at the start, the newest first, and makes those anew into whose section
//! many links have come since.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::code::CODE_KEY_LEN_MAX;

use super::Catalog;
use super::part::{Part, entry_of};
use super::section::{SIGNATURE_BYTES, Section, Source};
use super::signatures::{Range, Work, divided};
use super::texts::Texts;
use crate::control::priority::let_cores_go_first;
use crate::link::Link;
use crate::listing::Place;
use crate::record::{self, RecordRef};
use crate::store::links::catalog::{Shelf, View, place_of};
use crate::store::links::{StoreError, Value};

/// Between two sections. Whoever serves clients on the same CPU needs it more.
const PAUSE: Duration = Duration::from_millis(1);

/// Starts the thread. It ends when the catalog is stopped, or at once where there are no signatures.
///
/// # Errors
/// Where the operating system gives no thread.
pub fn start(catalog: &Arc<Catalog>) -> io::Result<JoinHandle<()>> {
    let catalog = Arc::clone(catalog);
    std::thread::Builder::new().name("sign".to_owned()).spawn(move || {
        let_cores_go_first();
        if !catalog.signatures().is_on() {
            return;
        }
        let start = Instant::now();
        let signed = sign_all(&catalog).map(|is_whole| {
            if is_whole {
                tell(&catalog, start);
            }
        });
        let signed = signed.and_then(|()| keep_signed(&catalog));
        if let Err(error) = signed {
            // New links would wait for ever, in memory, to be signed.
            catalog.signatures().give_up();
            tracing::error!(%error, "links cannot be read: searches go through them one by one until the next start");
        }
    })
}

fn tell(catalog: &Catalog, start: Instant) {
    let (links, sections, is_all) = catalog.signatures().coverage();
    let (bytes, seconds) = (sections * SIGNATURE_BYTES, start.elapsed().as_secs_f64());
    match is_all {
        true => tracing::info!(links, bytes, seconds, "links are signed for searches"),
        false => tracing::info!(
            links,
            bytes,
            seconds,
            "the newest links are signed for searches; with more search.memory, older ones would be as well"
        ),
    }
}

/// Signs whatever there is to sign now. Returns whether it came to the end.
fn sign_all(catalog: &Catalog) -> Result<bool, StoreError> {
    while work_once(catalog, || {})? {
        if catalog.stopping.load(Ordering::Acquire) {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(true)
}

/// Does so whenever there is something again.
fn keep_signed(catalog: &Catalog) -> Result<(), StoreError> {
    loop {
        let mut signatures = catalog.signatures();
        loop {
            if catalog.stopping.load(Ordering::Acquire) {
                return Ok(());
            }
            if signatures.work().is_some() {
                break;
            }
            signatures = catalog.unsigned.wait(signatures).unwrap_or_else(PoisonError::into_inner);
        }
        drop(signatures);
        sign_all(catalog)?;
    }
}

/// Does what is next, and calls `between` when that is done and not in use yet. Returns whether there was anything to do.
pub(super) fn work_once(catalog: &Catalog, between: impl FnOnce()) -> Result<bool, StoreError> {
    // Nothing is committed between the view and the beginning.
    let (view, work) = catalog.look(|_| {
        let mut signatures = catalog.signatures();
        let work = signatures.work();
        if matches!(work, Some(Work::Sign(_) | Work::Divide(..))) {
            signatures.begin();
        }
        work
    });
    match work {
        None => return Ok(false),
        Some(Work::Divide(range, parts)) => {
            let made = divided(&range, &parts);
            put(catalog, made, &range, between);
        }
        Some(Work::Sign(range)) => match section_of(&view, &range.0, &range.1) {
            Ok(section) => put(catalog, vec![section], &range, between),
            Err(error) => {
                catalog.signatures().abandon();
                return Err(error);
            }
        },
    }
    Ok(true)
}

/// Puts sections to use when their texts are written.
fn put(catalog: &Catalog, mut made: Vec<Section>, range: &Range, between: impl FnOnce()) {
    made.iter_mut().for_each(|section| section.save(|part| save(catalog, part)));
    between();
    catalog.signatures().end(made, range);
}

/// Writes texts to the file.
fn save(catalog: &Catalog, part: &Part) -> Source {
    let Some(file) = &catalog.texts else { return Source::None };
    match file.write(part) {
        Ok(extent) => {
            catalog.is_unwritten.store(false, Ordering::Relaxed);
            Source::Stored(Arc::new(extent))
        }
        Err(error) => {
            // Said once, until it goes well again.
            if !catalog.is_unwritten.swap(true, Ordering::Relaxed) {
                tracing::info!(%error, "texts of links cannot be kept for searches, which take longer without them");
            }
            Source::None
        }
    }
}

/// What is kept of a link for searches.
pub(super) fn entry(link: &Link) -> Vec<u8> {
    let place = Place::new(link.created_ms, link.code);
    entry_of(&place.to_bytes(), &Texts::of_link(link), &mut Vec::new())
}

/// The last section of a range.
fn section_of(view: &View, from: &[u8], to: &[u8]) -> Result<Section, StoreError> {
    let mut section = Section::new(from);
    let (mut small, mut ascii) = (Vec::new(), [0; CODE_KEY_LEN_MAX]);
    for key in view.keys(Shelf::Dates, from, to).rev() {
        let key: Value = key?;
        // What is no place was not written by this program.
        let Some(place) = place_of(&key, 0) else { continue };
        let stored = match view.get(&place.code) {
            Ok(Some(stored)) => stored,
            Ok(None) | Err(StoreError::Damaged(_)) => continue,
            Err(error) => return Err(error),
        };
        // What is damaged is no link, for lists.
        let Ok(RecordRef::Link(link)) = record::decode(place.code.key(&mut ascii), &stored) else { continue };
        section.add(&entry_of(&key, &Texts::of_record(&place.code, &link), &mut small));
        if section.is_full() {
            section.begin_at(&key);
            break;
        }
    }
    Ok(section)
}
