//! The load of all links, or of the filters of their codes, at the start of a node.

use std::sync::Arc;

use super::base::Base;
use super::supervisor::thread_exit;
use crate::bridge::{StoredCodes, ToCore};
use crate::services::loader;
use crate::services::maintenance::code_filter::{self, CodeFilterSetup, FilterNode, FilterOrigin};
use crate::services::map_image::{self, ImageMaker, ImageSetup};
use crate::startup::data_dir::store_exit;
use carom_settings::exit::Exit;
use carom_settings::{Residency, Settings};

/// The part of a start that follows the load.
pub(super) enum AfterLoad {
    /// All links are in memory, and a thread makes the next image of the map.
    All(ImageMaker),
    /// The links in use are in memory, and a thread is to keep the filters of all codes.
    Hot(Box<CodeFilterSetup>),
    /// The links have a shared home, so there is nothing to load.
    Shared,
}

/// Loads all links, and starts the thread that makes the next image of the map. A node that keeps only the links in use
/// in memory loads the filters of all codes instead, if it has many links.
pub(super) fn load(settings: &Settings, base: &Base) -> Result<AfterLoad, Exit> {
    let Base { links, mailboxes, hasher, stats, .. } = base;
    let (data_dir, changes, cores) = (settings.data_dir.clone(), links.changes(), base.cores);
    if settings.home.is_shared() {
        begin_empty(base);
        return Ok(AfterLoad::Shared);
    }
    let is_hot = matches!(settings.residency, Residency::Hot { .. });
    let node = FilterNode {
        links: links.clone(),
        mailboxes: mailboxes.clone(),
        hasher: *hasher,
        cores,
        stats: Arc::clone(stats),
        data_dir: data_dir.clone(),
    };
    let hot = |origin| {
        let core_stats = Arc::clone(&base.core_stats);
        AfterLoad::Hot(Box::new(CodeFilterSetup { node: node.clone(), core_stats, origin, changes }))
    };
    if is_hot && code_filter::is_worthwhile(links) {
        map_image::remove_unused(&data_dir);
        let origin = code_filter::load(&node).map_err(|error| store_exit(&error))?;
        return Ok(hot(origin));
    }
    let report = loader::load(links, mailboxes, *hasher, cores, stats, (&data_dir, base.load_pace))
        .map_err(|error| store_exit(&error))?;
    if report.records > 0 {
        let (links, seconds) = (report.records, report.time.as_secs_f64());
        match report.replayed {
            Some(changed) => tracing::info!(links, changed, seconds, "links loaded from the image of the links"),
            None => tracing::info!(links, seconds, "links loaded from the store"),
        }
    }
    // Also on a node with few links: nothing has compared the file with the log, and links may be many again.
    code_filter::remove_unused(&data_dir);
    if is_hot {
        map_image::remove_unused(&data_dir);
        return Ok(hot(FilterOrigin::Scan));
    }
    let replayed = report.replayed.filter(|_| !report.is_of_other_cores);
    let setup = ImageSetup { links: links.clone(), hasher: *hasher, cores, data_dir, replayed, changes };
    map_image::start(setup).map(AfterLoad::All).map_err(|error| thread_exit("the image thread", &error))
}

/// Tells the cores that their load is complete, without any link. Every code may have a link with redirect rules.
fn begin_empty(base: &Base) {
    for mailbox in base.mailboxes.all() {
        mailbox.post(ToCore::StoredCodes(StoredCodes::Ruled(None)));
        mailbox.post(ToCore::LoadDone);
    }
}
