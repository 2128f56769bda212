//! The load of all links at the start of a node.

use carom_shards::CodeHasher;

use super::cores::core_count;
use super::supervisor::thread_exit;
use crate::bridge::Mailboxes;
use crate::services::loader;
use crate::services::map_image::{self, ImageMaker, ImageSetup};
use crate::startup::data_dir::store_exit;
use carom_settings::Settings;
use carom_settings::exit::Exit;
use carom_store::links::Links;
use carom_telemetry::stats::NodeStats;

/// Loads all links, and starts the thread that makes the next image of the map.
pub(super) fn load(
    settings: &Settings,
    links: &Links,
    mailboxes: &Mailboxes,
    hasher: CodeHasher,
    stats: &NodeStats,
) -> Result<ImageMaker, Exit> {
    let (data_dir, changes) = (settings.data_dir.clone(), links.changes());
    let report = loader::load(links, mailboxes, hasher, core_count(settings), stats, &data_dir)
        .map_err(|error| store_exit(&error))?;
    if report.records > 0 {
        let (links, seconds) = (report.records, report.time.as_secs_f64());
        match report.replayed {
            Some(changed) => tracing::info!(links, changed, seconds, "links loaded from the image of the links"),
            None => tracing::info!(links, seconds, "links loaded from the store"),
        }
    }
    let (links, cores) = (links.clone(), core_count(settings));
    let replayed = report.replayed.filter(|_| !report.is_of_other_cores);
    map_image::start(ImageSetup { links, hasher, cores, data_dir, replayed, changes })
        .map_err(|error| thread_exit("the image thread", &error))
}
