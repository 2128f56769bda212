//! The commands that work without a running node: export, keys, and the check of settings.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use crate::commands::cli::{FileOrStdio, KeyPlace};
use crate::services::readers::export::{self, ExportError};
use crate::startup::bypass;
use crate::startup::code_secret;
use crate::startup::data_dir::{api_keys, lock, open_store, store_exit};
use crate::startup::files;
use crate::startup::logging;
use carom_settings::exit::{Exit, Reason};
use carom_settings::{Flags, LogFormat, Settings, Warning, environment};
use carom_xdp::preflight::{Finding, FindingSeverity, FindingSubject};

/// Exports every link of a data directory.
///
/// # Errors
/// The reason for which the export stopped, or a note that records could not be read.
pub fn export(data_dir: String, file: &FileOrStdio) -> Result<(), Exit> {
    let settings = settings_of(Some(data_dir), None)?;
    let folder = settings.data_dir.join("links");
    if !folder.is_dir() {
        let what = format!("{} contains no links", settings.data_dir.display());
        return Err(Exit::new(Reason::Usage, what).with_remedy("pass the data directory of a node with --data-dir"));
    }
    let _lock = lock(&settings.data_dir)?;
    let links = open_store(&settings)?.links;
    let mut output = open_output(file)?;
    let messages = &mut io::stderr().lock();
    let terminal = io::stderr().is_terminal();
    let summary = export::export(&links, settings.cores.cpus.len(), &mut *output, messages, terminal).map_err(
        |error| match error {
            ExportError::Store(error) => store_exit(&error),
            error => Exit::new(Reason::Incomplete, error.to_string()),
        },
    )?;
    if summary.is_complete() { Ok(()) } else { Err(incomplete(summary.damaged, "damaged records were not exported")) }
}

/// Prints a new code secret.
///
/// # Errors
/// [`Reason::Incomplete`] if the system provides no random bytes.
pub fn new_key() -> Result<(), Exit> {
    print(&format!("{}\n", code_secret::generate()?.to_hex()));
    Ok(())
}

/// Prints the fingerprint of a code secret.
///
/// # Errors
/// [`Reason::CodeSecret`] if the file does not exist, or other users can read it.
pub fn show_fingerprint(place: &KeyPlace) -> Result<(), Exit> {
    let path = place.file(code_secret::FILE_NAME);
    let key = code_secret::read(&path)?
        .ok_or_else(|| Exit::new(Reason::CodeSecret, format!("{} does not exist", path.display())))?;
    print(&format!("{}\n", key.fingerprint()));
    Ok(())
}

/// Checks the settings and prints the effective ones.
///
/// # Errors
/// Every mistake in the settings, and what keeps this machine from a kernel bypass that they require.
pub fn check_config(file: Option<&Path>) -> Result<(), Exit> {
    let (settings, warnings) = Settings::load(file, environment(), Flags::default())?;
    for Warning(warning) in warnings {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    if !api_keys(&settings.data_dir)?.had_keys() && settings.fleet.redis.is_none() {
        settings.may_go_without_keys()?;
    }
    let mistakes = files::mistakes(&settings);
    if let Some(first) = mistakes.first() {
        let all: Vec<&str> = mistakes.iter().map(|mistake| &*mistake.what).collect();
        return Err(Exit::new(first.reason, all.join("\n")));
    }
    check_bypass(&settings)?;
    print(&settings.describe());
    Ok(())
}

/// Prints the obstacles to kernel bypass on this machine, each with its remedy.
///
/// # Errors
/// [`Reason::Bypass`] if bypass is required, and the machine or the interface cannot have it. The rights of this
/// process and an attached program are no errors: the service may have other rights, and the program may be its own.
fn check_bypass(settings: &Settings) -> Result<(), Exit> {
    let Some(plan) = bypass::plan(settings) else { return Ok(()) };
    let found = bypass::findings(&plan)
        .map_err(|error| Exit::new(Reason::Bypass, format!("the capabilities of this process are unknown: {error}")))?;
    let mut obstacles = Vec::new();
    for Finding { severity, subject, problem, remedy } in found {
        let text = if remedy.is_empty() { problem } else { format!("{problem}; {remedy}") };
        let _ = match (severity, subject) {
            (FindingSeverity::Error, FindingSubject::Machine) if settings.bypass.is_required => {
                obstacles.push(text);
                Ok(())
            }
            (FindingSeverity::Error, FindingSubject::Process) => {
                writeln!(
                    io::stderr(),
                    "warning: kernel bypass: {text} (of this command; the service has its own rights)"
                )
            }
            (FindingSeverity::Error, FindingSubject::Program) => {
                writeln!(io::stderr(), "warning: kernel bypass: {text} (unless it is that of a running carom)")
            }
            (FindingSeverity::Error, FindingSubject::Machine) => {
                writeln!(io::stderr(), "warning: kernel bypass is not possible: {text}")
            }
            (FindingSeverity::Warning, _) => writeln!(io::stderr(), "warning: kernel bypass: {text}"),
            (FindingSeverity::Note, _) => writeln!(io::stderr(), "note: kernel bypass: {text}"),
        };
    }
    if obstacles.is_empty() {
        return Ok(());
    }
    Err(Exit::new(
        Reason::Bypass,
        format!("kernel bypass on {} is not possible: {}", plan.interface, obstacles.join(". ")),
    ))
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

/// Returns the exit of a command that has processed only a part.
pub(crate) fn incomplete(count: u64, what: &str) -> Exit {
    Exit::new(Reason::Incomplete, format!("{count} {what}"))
        .with_remedy("each message above names a line or record and the reason; all others were processed")
}

/// Writes to standard output. A closed standard output is not an error.
pub(crate) fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}
