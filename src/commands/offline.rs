//! The commands that work without a running node: export and keys.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use crate::commands::cli::{AppPlace, FileOrStdio, KeyPlace};
use crate::commands::output::{self, print};
use crate::services::readers::export::{self, ExportError};
use crate::startup::code_secret;
use crate::startup::data_dir::{lock, open_store, store_exit};
use crate::startup::{home, logging};
use carom_settings::exit::{Exit, Reason};
use carom_settings::{Flags, KeySource, LogFormat, Settings, environment};
use carom_telemetry::readable;

/// Exports every link of a data directory.
///
/// # Errors
/// The reason for which the export stopped, or a note that records could not be read.
pub fn export(place: AppPlace, file: &FileOrStdio) -> Result<(), Exit> {
    let settings = settings_of(place.data_dir, place.config.as_deref())?;
    let folder = settings.data_dir.join("links");
    if !folder.is_dir() {
        let what = format!("{} contains no links", settings.data_dir.display());
        return Err(Exit::new(Reason::Usage, what).with_remedy("pass the data directory of a node with --data-dir"));
    }
    home::require_all_links(&settings.data_dir)?;
    let _lock = lock(&settings.data_dir)?;
    let links = open_store(&settings)?.links;
    let mut output = open_output(file)?;
    let messages = &mut io::stderr().lock();
    let terminal = io::stderr().is_terminal();
    let summary = match export::export(&links, settings.cores.cpus.len(), &mut *output, messages, terminal) {
        Ok(summary) => summary,
        Err(ExportError::Store(error)) => return Err(store_exit(&error)),
        Err(ExportError::Output(error)) if *file == FileOrStdio::Standard => {
            output::keep(Err(error));
            return Ok(());
        }
        Err(error) => return Err(Exit::new(Reason::Incomplete, error.to_string())),
    };
    if summary.is_complete() {
        return Ok(());
    }
    Err(incomplete(summary.damaged, "unreadable record", ["was not exported", "were not exported"]))
}

/// Prints a new code secret.
///
/// # Errors
/// [`Reason::Incomplete`] if the system provides no random bytes.
pub fn new_key() -> Result<(), Exit> {
    print(&format!("{}\n", code_secret::generate()?.to_hex()));
    Ok(())
}

/// Prints the fingerprint of a code secret: of a file, of a data directory, or of the node with these settings.
///
/// # Errors
/// [`Reason::CodeSecret`] if the file does not exist, or other users can read it.
pub fn show_fingerprint(place: KeyPlace) -> Result<(), Exit> {
    let existing = |path: &Path| {
        code_secret::read(path)?
            .ok_or_else(|| Exit::new(Reason::CodeSecret, format!("{} does not exist", path.display())))
    };
    let KeyPlace { space_key_file, place: AppPlace { data_dir, config } } = place;
    let key = if let Some(file) = space_key_file {
        existing(&file)?
    } else {
        let names_data_dir = data_dir.is_some();
        let settings = settings_of(data_dir, config.as_deref())?;
        match settings.space_key {
            KeySource::Given(key) if !names_data_dir => key,
            KeySource::File(file) if !names_data_dir => existing(&file)?,
            _ => existing(&settings.data_dir.join(code_secret::FILE_NAME))?,
        }
    };
    print(&format!("{}\n", key.fingerprint()));
    Ok(())
}

/// Loads the settings of a command without listeners: an optional data directory from the command line, the rest from
/// the file and the environment.
pub(crate) fn settings_of(data_dir: Option<String>, file: Option<&Path>) -> Result<Settings, Exit> {
    let flags = Flags { data_dir, ..Flags::default() };
    let (settings, warnings) = Settings::load(file, environment(), flags)?;
    logging::start(settings.log_level.as_str(), settings.log_format == LogFormat::Json);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(settings)
}

fn open_output(file: &FileOrStdio) -> Result<Box<dyn Write>, Exit> {
    match file {
        FileOrStdio::Standard => Ok(Box::new(io::stdout())),
        FileOrStdio::File(path) => match File::create(path) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(Exit::new(Reason::Usage, format!("cannot write {}: {error}", path.display()))),
        },
    }
}

/// Returns the exit of a command that has processed only a part: the number of lines or records that it left out, their
/// noun, and what happened to one of them or to several.
pub(crate) fn incomplete(count: u64, one: &str, [to_one, to_several]: [&str; 2]) -> Exit {
    let what = if count == 1 { to_one } else { to_several };
    Exit::new(Reason::Incomplete, format!("{} {what}", readable::count(count, one)))
        .with_remedy("each message above names a line or record and the reason; all others were processed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_no_plural() {
        let what = |count: u64| incomplete(count, "line", ["was rejected", "were rejected"]).what;
        assert_eq!(what(1), "1 line was rejected");
        assert_eq!(what(1_200), "1,200 lines were rejected");
    }
}
