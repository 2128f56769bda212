//! The command `carom join`: fills the data directory of a new node from a running node of its fleet.

use std::io::{self, IsTerminal};

use super::backup::must_be_owner;
use super::cli::JoinArgs;
use super::offline::settings_of;
use super::output::print;
use super::profile::{can_ask, checked_key, read_key};
use super::terminal::{ask_secret, note};
use crate::services::joins::transfer::{JoinError, JoinProgress, JoinSummary};
use crate::services::maintenance::progress::Progress;
use crate::startup::data_dir::lock;
use crate::startup::{home, joining, preflight};
use carom_model::formats::dates;
use carom_settings::Settings;
use carom_settings::exit::{Exit, Reason};
use carom_store::backup::Section;
use carom_telemetry::readable;

/// Fills an empty data directory with all links of a running node.
///
/// # Errors
/// The reason why the data directory has no links. Unless it says otherwise, the same command continues.
pub fn run(arguments: &JoinArgs) -> Result<(), Exit> {
    let JoinArgs { from, key_file, place } = arguments;
    let settings = settings_of(place.data_dir.clone(), place.config.as_deref())?;
    let usage = |what: String| Exit::new(Reason::Usage, what);
    let peer = from.as_deref().or(settings.fleet.join_from.as_deref());
    let peer = peer.ok_or_else(|| usage("no node to join from; pass --from, or set fleet.join_from".to_owned()))?;
    if !peer.starts_with("http://") && !peer.starts_with("https://") {
        return Err(usage(format!("invalid value for --from: {peer}; expected an http:// or https:// address")));
    }
    let key_file = key_file.as_deref().or(settings.fleet.join_key_file.as_deref());
    let key = key_file.map(read_key).transpose()?;
    preflight::data_dir(&settings.data_dir)?;
    must_be_owner(&settings.data_dir)?;
    home::require_all_links(&settings.data_dir)?;
    let _lock = lock(&settings.data_dir)?;
    let fingerprint = joining::prepare(&settings)?;
    let mut joined = join(&settings, (peer, key.as_deref()), &fingerprint);
    if matches!(joined, Err(JoinError::Key(_))) && key.is_none() && can_ask() {
        let key = asked_key(peer)?;
        joined = join(&settings, (peer, Some(&key)), &fingerprint);
    }
    let summary = joined.map_err(|error| joining::exit_of(&error, &settings, peer))?;
    report(&summary, &settings);
    Ok(())
}

/// Joins, and shows the progress at a terminal.
fn join(settings: &Settings, peer: (&str, Option<&str>), fingerprint: &str) -> Result<JoinSummary, JoinError> {
    let mut errors = io::stderr();
    let is_terminal = errors.is_terminal();
    let mut progress = None;
    let mut on_progress = |now: &JoinProgress| {
        let progress = progress.get_or_insert_with(|| Progress::new(is_terminal, Some(now.total_records)));
        progress.tick_transfer(&mut errors, now.links, now.records, now.bytes);
    };
    let joined = joining::join(settings, peer, fingerprint, &|| false, &mut on_progress);
    if let Some(progress) = progress {
        progress.clear(&mut errors);
    }
    joined
}

fn report(summary: &JoinSummary, settings: &Settings) {
    let kept = match summary.kept_bytes {
        0 => String::new(),
        kept => format!(", {} of them from an earlier attempt", readable::count(kept, "byte")),
    };
    print(&format!(
        "{} has {}, tombstones included, and {} in all, as of {}, from {}: {}{kept}\n",
        settings.data_dir.display(),
        readable::count(summary.counts.of(Section::Links), "link"),
        readable::count(summary.counts.total(), "record"),
        dates::format(summary.taken_ms),
        summary.node,
        readable::count(summary.bytes, "byte"),
    ));
    note(
        "start the node now: it reads later changes from Redis, which keeps about fleet.stream_entries of them, for fleet.retention",
    );
}

fn asked_key(peer: &str) -> Result<String, Exit> {
    let missing = |what: String| {
        Exit::new(Reason::Usage, what).with_remedy("pass --key-file with a file that contains nothing but the key")
    };
    let typed = ask_secret(&format!("API key for {peer} (not shown): ")).map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => missing("interrupted".to_owned()),
        _ => missing(format!("the key cannot be read: {error}")),
    })?;
    checked_key(typed.trim()).ok_or_else(|| missing("the typed text is not an API key".to_owned()))
}
