//! `carom config`: a check of the settings, the effective ones, and a first file of settings.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::commands::cli::{ConfigCommand, ConfigPlace, FileOrStdio};
use crate::commands::output::print;
use crate::commands::terminal::{note, say};
use crate::startup::bypass;
use crate::startup::data_dir::{api_keys, saved_rules_note};
use crate::startup::files;
use carom_settings::exit::{Exit, Reason};
use carom_settings::{Flags, Settings, Warning, environment};
use carom_xdp::preflight::{Finding, FindingSeverity, FindingSubject};

/// The settings that the Debian package installs, in which every line but one is commented out.
const TEMPLATE: &str = include_str!("../../deploy/debian/carom.toml");

/// The data directory in the template.
const DATA_DIR_OF_PACKAGE: &str = "/var/lib/carom";

/// The file of settings in the template.
const FILE_OF_PACKAGE: &str = "/etc/carom/carom.toml";

/// Runs a command on settings.
///
/// # Errors
/// Every mistake in the settings, or [`Reason::Usage`] and [`Reason::DataNotWritable`] for a file that cannot be created.
pub fn run(command: &ConfigCommand) -> Result<(), Exit> {
    match command {
        ConfigCommand::Check(place) => {
            checked(place.path(), place.data_dir.clone())?;
            print(&format!("{}: the settings are valid\n", source(place)));
            Ok(())
        }
        ConfigCommand::Show(place) => {
            let settings = loaded(place.path(), place.data_dir.clone())?;
            print(&settings.describe());
            say_saved_rules(&settings.data_dir);
            Ok(())
        }
        ConfigCommand::Init { file, data_dir } => init(file, data_dir),
    }
}

/// Checks the settings and prints the effective ones, as `carom check-config` does.
///
/// # Errors
/// Every mistake in the settings, and what keeps this machine from a kernel bypass that they require.
pub fn check_config(file: Option<&Path>) -> Result<(), Exit> {
    print(&checked(file, None)?.describe());
    Ok(())
}

/// Says if saved destination rules apply instead of those of the settings.
fn say_saved_rules(data_dir: &Path) {
    match saved_rules_note(data_dir) {
        Ok(note) => note.iter().for_each(|note| say(&format!("note: {note}"))),
        // The user of this command may not be that of the node.
        Err(exit) => say(&format!("note: saved destination rules may apply; {}", exit.what)),
    }
}

/// Names the source of settings.
fn source(place: &ConfigPlace) -> String {
    place.path().map_or("environment and defaults".to_owned(), |path| path.display().to_string())
}

fn loaded(file: Option<&Path>, data_dir: Option<String>) -> Result<Settings, Exit> {
    let (settings, warnings) = Settings::load(file, environment(), Flags { data_dir, ..Flags::default() })?;
    for Warning(warning) in warnings {
        say(&format!("warning: {warning}"));
    }
    Ok(settings)
}

/// Loads settings, and checks what they name: files, keys and kernel bypass.
fn checked(file: Option<&Path>, data_dir: Option<String>) -> Result<Settings, Exit> {
    let settings = loaded(file, data_dir)?;
    if !api_keys(&settings.data_dir)?.had_keys() && settings.fleet.redis.is_none() {
        settings.may_go_without_keys()?;
    }
    let mistakes = files::mistakes(&settings);
    if let Some(first) = mistakes.first() {
        let all: Vec<&str> = mistakes.iter().map(|mistake| &*mistake.what).collect();
        return Err(Exit::new(first.reason, all.join("\n")));
    }
    check_bypass(&settings)?;
    Ok(settings)
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

/// Writes a file of settings, with a comment for each of the common ones. Never replaces a file.
fn init(file: &FileOrStdio, data_dir: &str) -> Result<(), Exit> {
    let path = match file {
        FileOrStdio::Standard => None,
        FileOrStdio::File(path) => Some(path),
    };
    let text = template(data_dir, path.map_or("carom.toml".to_owned(), |path| path.display().to_string()).as_str())?;
    let Some(path) = path else {
        print(&text);
        return Ok(());
    };
    let made = OpenOptions::new().write(true).create_new(true).mode(0o640).open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    made.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Exit::new(Reason::Usage, format!("{} exists already", path.display()))
            .with_remedy("pass the name of a new file, or - to print the settings"),
        _ => Exit::new(Reason::DataNotWritable, format!("cannot write {}: {error}", path.display()))
            .with_remedy("pass a file in a directory that you can write to"),
    })?;
    let shown = path.display();
    note(&format!(
        "{shown}: written; edit it, then run `carom config check {shown}` and `carom serve --config {shown}`"
    ));
    Ok(())
}

/// Returns the template for a data directory and a file.
fn template(data_dir: &str, file: &str) -> Result<String, Exit> {
    if [data_dir, file].iter().any(|path| path.is_empty() || path.contains(char::is_control)) {
        return Err(Exit::new(Reason::Usage, "a path is empty, or has a control character"));
    }
    // A string of JSON is one of TOML, too.
    let (setting, new) = (format!("data_dir = \"{DATA_DIR_OF_PACKAGE}\"\n"), serde_json::json!(data_dir));
    let text = TEMPLATE
        .replacen(
            "# The settings of carom, as the package installs them: /etc/carom/carom.toml.\n",
            "# The settings of carom.\n",
            1,
        )
        .replacen(&setting, "data_dir = @DATA_DIR@\n", 1)
        .replace("sudo -u carom ", "")
        .replace(DATA_DIR_OF_PACKAGE, data_dir)
        .replace(FILE_OF_PACKAGE, file);
    Ok(text.replacen("@DATA_DIR@", &new.to_string(), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_is_valid_and_names_the_data_directory() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["data", "with \"quotes\" and \\"] {
            let data_dir = folder.path().join(name);
            let file = folder.path().join(format!("{}.toml", name.len()));
            let text = template(data_dir.to_str().unwrap(), file.to_str().unwrap()).unwrap();
            assert!(!text.contains(DATA_DIR_OF_PACKAGE), "{text}");
            assert!(!text.contains("as the package installs"), "{text}");
            std::fs::write(&file, text).unwrap();
            let (settings, warnings) = Settings::load(Some(&file), std::iter::empty(), Flags::default()).unwrap();
            assert_eq!((settings.data_dir, warnings.len()), (data_dir, 0));
        }
        assert!(template("a\nb", "f").is_err());
        assert!(template("", "f").is_err());
    }

    #[test]
    fn files_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("carom.toml");
        let file = FileOrStdio::File(path.clone());
        init(&file, "d").unwrap();
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(init(&file, "d").unwrap_err().reason, Reason::Usage);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
