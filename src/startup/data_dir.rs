//! A data directory on its way into use: its lock, its API keys, its store, and which reason to exit their errors are.

use std::path::Path;

use carom_model::access::registry::Registry;
use carom_model::destination::rules::SavedRules;
use carom_model::domains::redirects::RedirectChanges;
use carom_model::formats::dates;
use carom_settings::Settings;
use carom_settings::exit::{Exit, Reason};
use carom_shards::{Code, CodeSecret};
use carom_store::links::{Links, StoreError};
use carom_store::lock::{DataLock, LockError};
use carom_telemetry::readable;

use super::{code_secret, logging};
use crate::services::api_keys::file::{self, FILE_NAME, FileError};
use crate::services::destination_rules::file as rules_file;
use crate::services::domain_redirects::file as domains_file;
use crate::services::maintenance::index_builder;
use crate::services::whole_file::WholeFileError;

/// Reads all API keys of a data directory.
///
/// # Errors
/// If the file of keys cannot be read or is malformed.
pub fn api_keys(data_dir: &Path) -> Result<Registry, Exit> {
    file::read(data_dir).map_err(|error| keys_exit(data_dir, &error))
}

/// Turns an error of the file with the API keys into the reason why the process ends.
pub fn keys_exit(data_dir: &Path, error: &FileError) -> Exit {
    let what = format!("the API keys in {} cannot be used: {error}", data_dir.join(FILE_NAME).display());
    match error {
        FileError::Io(_) => Exit::new(Reason::DataNotWritable, what),
        FileError::Malformed(_) => Exit::new(Reason::StoreDamaged, what)
            .with_remedy(format!("restore {FILE_NAME} from a backup; deleting the file would lose all keys")),
    }
}

/// Reads the redirects of domains that the API has changed.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub fn domain_redirects(data_dir: &Path) -> Result<RedirectChanges, Exit> {
    domains_file::read(data_dir).map_err(|error| {
        let without = "domains then have the redirects of domains.serve";
        whole_file_exit(("redirects", without), &data_dir.join(domains_file::FILE_NAME), &error)
    })
}

/// Reads the destination rules that were saved at run time.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub fn saved_rules(data_dir: &Path) -> Result<SavedRules, Exit> {
    rules_file::read(data_dir).map_err(|error| {
        let without = "the hosts of allow.hosts and block.hosts then apply";
        whole_file_exit(("destination rules", without), &data_dir.join(rules_file::FILE_NAME), &error)
    })
}

/// Describes which destination rules apply, for commands that show settings; `None` if those of the settings do.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub fn saved_rules_note(data_dir: &Path) -> Result<Option<String>, Exit> {
    let saved = saved_rules(data_dir)?;
    let at = saved.saved_ms().map(dates::format).unwrap_or_default();
    let path = data_dir.join(rules_file::FILE_NAME);
    Ok(saved.hosts().map(|hosts| {
        format!(
            "the destination rules saved in the console at {at} apply instead of allow.hosts and block.hosts: {} and {} ({})",
            readable::count(hosts.allow.len() as u64, "allowed host"),
            readable::count(hosts.block.len() as u64, "blocked host"),
            path.display()
        )
    }))
}

/// Turns an error of a file into the reason why the process ends. `what` is in the file; `without` says what applies if the
/// file is deleted.
fn whole_file_exit((what, without): (&str, &str), path: &Path, error: &WholeFileError) -> Exit {
    let said = format!("the {what} in {} cannot be used: {error}", path.display());
    match error {
        WholeFileError::Io(_) => Exit::new(Reason::DataNotWritable, said),
        WholeFileError::Malformed(_) => {
            let name = path.file_name().unwrap_or_default().display();
            Exit::new(Reason::StoreDamaged, said)
                .with_remedy(format!("restore {name} from a backup, or delete it: {without}"))
        }
    }
}

/// Locks the data directory for this process.
///
/// # Errors
/// If another process has locked it, or the lock file cannot be used.
pub fn lock(data_dir: &Path) -> Result<DataLock, Exit> {
    DataLock::take(data_dir).map_err(|error| {
        let reason = match error {
            LockError::InUse(_) => Reason::DataInUse,
            LockError::Io { .. } => Reason::DataNotWritable,
        };
        Exit::new(reason, error.to_string())
    })
}

/// Turns an error of the store at start into the reason why the process ends.
pub fn store_exit(error: &StoreError) -> Exit {
    let reason = match error {
        StoreError::InUse => Reason::DataInUse,
        StoreError::OtherCodeSecret => Reason::CodeSecret,
        StoreError::Damaged(_) | StoreError::OtherFormat(_) => Reason::StoreDamaged,
        StoreError::Failed(_) | StoreError::Halted => Reason::DataNotWritable,
    };
    Exit::new(reason, error.to_string())
}

/// The store and the code space of a data directory.
#[derive(Debug)]
pub struct OpenStore {
    /// The store.
    pub links: Links,
    /// The code secret, which is the key of the code space.
    pub code_secret: CodeSecret,
    /// Damage in the journals of the store, as text for people.
    pub damage: Option<String>,
}

/// Opens the store and the code space of a data directory that this process has locked.
///
/// # Errors
/// If the code secret does not match the store, or the store cannot be read.
pub fn open_store(settings: &Settings) -> Result<OpenStore, Exit> {
    let folder = settings.data_dir.join("links");
    let code_secret = code_secret::obtain(&settings.space_key, &settings.data_dir, folder.exists())?;
    let open = || Links::open(&folder, &code_secret.fingerprint());
    let (links, repairs) = logging::end_on_panic(Reason::StoreDamaged, open).map_err(|error| store_exit(&error))?;
    for repair in &repairs {
        tracing::warn!("{repair}");
    }
    let damage: Vec<String> = repairs.iter().filter(|repair| repair.is_damage).map(ToString::to_string).collect();
    let damage = (!damage.is_empty()).then(|| damage.join("; "));
    let codes: Vec<Code> = repairs.into_iter().flat_map(|repair| repair.recovered_codes).collect();
    if !codes.is_empty() {
        index_builder::mend(&links, &codes).map_err(|error| store_exit(&error))?;
    }
    Ok(OpenStore { links, code_secret, damage })
}
