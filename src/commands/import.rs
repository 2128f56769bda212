//! The command `carom import`: opens the source of the links and the data directory, and imports one into the other.
//! With `--to`, the links go to a running node.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use carom_shards::{CodeSpace, CoreCount};

use super::cli::{FileOrStdio, ImportArgs};
use super::data::import;
use super::data::import_report::ReportFile;
use super::data::import_setup::{ImportError, ImportSetup};
use super::import_online;
use super::import_source::{Input, moving_source, open_input, outcome};
use super::moving::lines::MovingLines;
use super::moving::moved_link::MovedDomains;
use super::offline::settings_of;
use super::terminal::note;
use crate::services::first_start::StartFiles;
use crate::services::maintenance::index_builder;
use crate::startup::data_dir::{OpenStore, lock, open_store, store_exit};
use crate::startup::domains::{domains_of, own_authorities};
use crate::startup::{home, preflight};
use carom_settings::exit::{Exit, Reason};
use carom_settings::{Residency, Settings};
use carom_store::links::Links;

/// A directory that is removed in the end: the stand-in for a data directory that does not exist yet.
struct Scratch(Option<PathBuf>);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(dir) = &self.0 {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// Imports links into a data directory, or sends them to a running node.
///
/// # Errors
/// The reason why the import stopped, or a note that lines were skipped.
pub fn run(arguments: ImportArgs) -> Result<(), Exit> {
    if arguments.to.is_some() {
        return import_online::run(arguments);
    }
    let ImportArgs { place, from, url, key_file, map_domains, dry_run, report, file, .. } = arguments;
    let is_named = place.data_dir.is_some();
    let mut settings = settings_of(place.data_dir, place.config.as_deref())?;
    let domains = domains_of(&settings, settings.listen[0]);
    let usage = |what: String| Exit::new(Reason::Usage, what);
    // Everything that can be wrong with the arguments comes before the data directory.
    let (mut input, total_bytes, moving): (Input, _, _) = match from {
        None => {
            let (input, len) = open_input(file.as_ref().unwrap_or(&FileOrStdio::Standard))?;
            (input, len, None)
        }
        Some(shortener) => {
            let domains = MovedDomains::new(domains.clone(), &map_domains).map_err(usage)?;
            let file = file.as_ref().map(open_input).transpose()?.map(|(input, _)| input);
            let source = moving_source(shortener, file, url.as_deref(), key_file.as_deref())?;
            let (lines, progress) = MovingLines::new(source, domains);
            // The share of a document that is read says little about the lines.
            (Box::new(lines), None, Some(progress))
        }
    };
    let report_file = report.as_deref().map(|path| {
        ReportFile::create(path).map_err(|error| usage(format!("cannot write {}: {error}", path.display())))
    });
    let report_file = report_file.transpose()?;
    if !is_named && !dry_run {
        note(&destination(&settings.data_dir));
    }
    let _scratch = if dry_run { stand_in(&mut settings)? } else { Scratch(None) };
    preflight::data_dir(&settings.data_dir)?;
    home::require_all_links(&settings.data_dir)?;
    let _lock = lock(&settings.data_dir)?;
    let OpenStore { links, code_secret, .. } = open_store(&settings)?;
    if !dry_run {
        index_builder::ensure(&links).map_err(|error| store_exit(&error))?;
    }
    let setup = ImportSetup {
        of_fleet: links.has_joined_fleet().map_err(|error| store_exit(&error))?,
        links,
        data_dir: settings.data_dir.clone(),
        space: CodeSpace::new(&code_secret),
        length: settings.code_length,
        dry_run,
        moving,
        own: own_authorities(&domains, &settings.listen),
        domains,
        threads: settings.cores.cpus.len(),
        total_bytes,
        terminal: io::stderr().is_terminal(),
    };
    let summary = import::import(&setup, &mut *input, &mut io::stderr().lock(), report_file).map_err(exit_of)?;
    if !dry_run {
        prepare_start(&settings, &setup.links, summary.taken);
    }
    outcome(setup.moving.as_deref(), &summary, report.as_deref())
}

/// Writes the files that a start reads instead of the store, if many of the links are new. A failure is only a note,
/// because the node can write them as well.
fn prepare_start(settings: &Settings, links: &Links, taken: u64) {
    let (Ok(seed), Some(cores)) = (getrandom::u64(), CoreCount::new(settings.cores.cpus.len())) else { return };
    let files = StartFiles {
        links,
        data_dir: &settings.data_dir,
        cores,
        is_hot: matches!(settings.residency, Residency::Hot { .. }),
        search_memory: settings.search_memory,
        seed,
    };
    if !files.are_due(taken) {
        return;
    }
    note("writing the files that the next start reads, so that the node is ready sooner");
    for why in files.write().err().unwrap_or_default() {
        note(&format!("note: {why}; all links are stored, and the node writes this file after its start"));
    }
}

/// Names the data directory that the settings chose. The default one depends on the working directory.
fn destination(data_dir: &Path) -> String {
    let shown = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    let state = if data_dir.join("links").is_dir() { "" } else { ", which has no links yet" };
    format!("importing into {}{state}; --data-dir names another directory", shown.display())
}

fn exit_of(error: ImportError) -> Exit {
    match error {
        ImportError::Store(error) => store_exit(&error),
        ImportError::DiskFull => Exit::new(Reason::DiskFull, "the disk of the data directory is full"),
        error => Exit::new(Reason::Incomplete, error.to_string()),
    }
}

/// Lets a dry run use an empty directory of its own if the data directory has no links, or this user cannot see them. Says
/// then that slugs are not checked, and why.
fn stand_in(settings: &mut Settings) -> Result<Scratch, Exit> {
    let found = fs::metadata(settings.data_dir.join("links")).map(|about| about.is_dir());
    let Some(remark) = unchecked(&settings.data_dir, found) else { return Ok(Scratch(None)) };
    note(&remark);
    let dir = std::env::temp_dir().join(format!("carom-dry-run-{}", std::process::id()));
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .map_err(|error| Exit::new(Reason::DataNotWritable, format!("cannot create {}: {error}", dir.display())))?;
    settings.data_dir.clone_from(&dir);
    Ok(Scratch(Some(dir)))
}

/// Returns why a dry run cannot compare slugs with the links of a data directory; `None` if it can. `found` is true if the
/// folder of the links exists.
fn unchecked(data_dir: &Path, found: io::Result<bool>) -> Option<String> {
    let dir = data_dir.display();
    match found {
        Ok(true) => None,
        Err(error) if error.kind() != ErrorKind::NotFound => Some(format!(
            "note: this dry run does not check whether slugs are taken, because this user cannot read the links in {dir}: {error}; run it as the user that owns them, such as with `sudo -u carom`"
        )),
        _ => Some(format!("note: this dry run does not check whether slugs are taken, because {dir} has no links")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_that_are_not_checked_are_told() {
        let dir = Path::new("/var/lib/carom");
        assert_eq!(unchecked(dir, Ok(true)), None);
        let denied = unchecked(dir, Err(ErrorKind::PermissionDenied.into())).unwrap();
        assert!(denied.contains("cannot read the links in /var/lib/carom: permission denied"), "{denied}");
        let absent = unchecked(dir, Err(ErrorKind::NotFound.into())).unwrap();
        assert!(absent.ends_with("because /var/lib/carom has no links"), "{absent}");
        assert_eq!(unchecked(dir, Ok(false)), Some(absent));
    }
}
