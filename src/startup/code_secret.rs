//! The file with the code secret, which only its owner may read.
//!
//! The code secret decides which codes are issued. Links redirect without it. But a node with a new secret would issue
//! codes that are already taken, and notice each only when it tries it. So a secret is created once, on the first
//! start, and a missing one is an error as soon as links exist. `carom_shards` defines the use of the secret.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use carom_shards::CodeSecret;
use rustix::fs::OFlags;

use carom_settings::KeySource;
use carom_settings::exit::{Exit, Reason};

/// Name of the secret's file in a data directory.
pub const FILE_NAME: &str = "space.key";

/// Name of the file while it is being written.
const FILE_NAME_NEW: &str = "space.key.new";

/// Longest accepted file, in bytes. A key has 65 bytes; a much longer file is another one.
const FILE_LEN_MAX: u64 = 1024;

/// Draws a new code secret from the operating system's random generator.
///
/// # Errors
/// [`Reason::Incomplete`] if the system provides no random bytes.
pub fn generate() -> Result<CodeSecret, Exit> {
    let mut bytes = [0; 32];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(CodeSecret::from_bytes(bytes)),
        Err(error) => {
            Err(Exit::new(Reason::Incomplete, format!("the operating system cannot provide random bytes: {error}")))
        }
    }
}

/// Returns the code secret to serve with. On the first start, when the data directory has no links and the settings
/// name no other source, a secret is created and stored. The caller holds the lock of the data directory, so that two
/// processes cannot create two.
///
/// # Errors
/// [`Reason::CodeSecret`] if the secret is missing, malformed, or readable by other users; [`Reason::DataNotWritable`]
/// or [`Reason::DiskFull`] if a new one cannot be stored.
pub fn obtain(source: &KeySource, data_dir: &Path, holds_links: bool) -> Result<CodeSecret, Exit> {
    match source {
        KeySource::Given(key) => Ok(key.clone()),
        KeySource::File(path) => read(path)?.ok_or_else(|| absent(path)),
        KeySource::DataDir => {
            let path = data_dir.join(FILE_NAME);
            match read(&path)? {
                Some(key) => Ok(key),
                None if holds_links => Err(lost(&path)),
                None => {
                    let key = generate()?;
                    keep(&key, data_dir).map_err(|error| not_kept(&path, &error))?;
                    Ok(key)
                }
            }
        }
    }
}

/// Reads a code secret from a file; `None` if the file does not exist.
///
/// # Errors
/// [`Reason::CodeSecret`] if the file cannot be read, contains no key, or is readable by other users.
pub fn read(path: &Path) -> Result<Option<CodeSecret>, Exit> {
    // Without O_NONBLOCK, opening a pipe without a writer would block the start forever.
    let opened = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused(path, &format!("cannot be read: {error}"))),
    };
    // Checks the opened file rather than the name, which may point elsewhere a moment later.
    let meta = file.metadata().map_err(|error| refused(path, &format!("cannot be examined: {error}")))?;
    if !meta.is_file() {
        return Err(refused(path, "is not a regular file"));
    }
    if meta.mode() & 0o077 != 0 {
        let what = format!("can be read or written by other users than its owner (mode {:04o})", meta.mode() & 0o7777);
        let remedy = format!(
            "run `chmod 600 {}`; if other users may have read the code secret, treat it as compromised",
            path.display()
        );
        return Err(refused(path, &what).with_remedy(remedy));
    }
    let mut text = String::new();
    if let Err(error) = file.take(FILE_LEN_MAX).read_to_string(&mut text) {
        return Err(refused(path, &format!("cannot be read: {error}")));
    }
    match CodeSecret::from_hex(&text) {
        Ok(key) => Ok(Some(key)),
        Err(error) => Err(refused(path, &format!("contains no code secret: {error}"))),
    }
}

/// Writes the secret so that a crash leaves either the whole file or none.
fn keep(key: &CodeSecret, data_dir: &Path) -> io::Result<()> {
    let new = data_dir.join(FILE_NAME_NEW);
    // Left by an interrupted start. It may have any mode, so it is removed rather than overwritten.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(format!("{}\n", key.to_hex()).as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, data_dir.join(FILE_NAME))?;
    File::open(data_dir)?.sync_all()
}

fn refused(path: &Path, what: &str) -> Exit {
    Exit::new(Reason::CodeSecret, format!("the code secret file {} {what}", path.display()))
}

fn absent(path: &Path) -> Exit {
    let remedy = format!(
        "correct space_key_file; if there are no links yet, generate a code secret with `(umask 077; carom key new > {})`",
        path.display()
    );
    refused(path, "does not exist").with_remedy(remedy)
}

fn lost(path: &Path) -> Exit {
    let remedy = format!(
        "copy {FILE_NAME} from a backup of the data directory to {} with mode 0600, or set space_key_file",
        path.display()
    );
    refused(path, "is missing, but the data directory contains links created with it").with_remedy(remedy)
}

fn not_kept(path: &Path, error: &io::Error) -> Exit {
    let reason = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Reason::DiskFull,
        _ => Reason::DataNotWritable,
    };
    Exit::new(reason, format!("a new code secret cannot be stored as {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_first_start_makes_a_key_and_later_ones_find_it() {
        let folder = tempfile::tempdir().unwrap();
        let made = obtain(&KeySource::DataDir, folder.path(), false).unwrap();
        let path = folder.path().join(FILE_NAME);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", made.to_hex()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        for holds_links in [false, true] {
            assert_eq!(obtain(&KeySource::DataDir, folder.path(), holds_links).unwrap(), made);
        }
        let elsewhere = tempfile::tempdir().unwrap();
        assert_ne!(obtain(&KeySource::DataDir, elsewhere.path(), false).unwrap(), made);
    }

    #[test]
    fn a_start_that_was_cut_short_does_not_stop_the_next() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join(FILE_NAME_NEW), "half a k", 0o644);
        obtain(&KeySource::DataDir, folder.path(), false).unwrap();
        assert_eq!(std::fs::metadata(folder.path().join(FILE_NAME)).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_missing_key_is_not_made_anew_when_there_are_links() {
        let folder = tempfile::tempdir().unwrap();
        let exit = obtain(&KeySource::DataDir, folder.path(), true).unwrap_err();
        assert_eq!(exit.reason, Reason::CodeSecret);
        assert!(exit.remedy().contains("backup"), "{exit}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_key_that_others_can_read_or_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let good = "0123456789abcdef".repeat(4);
        for mode in [0o640, 0o604, 0o620, 0o644] {
            write(&path, &good, mode);
            let exit = read(&path).unwrap_err();
            assert_eq!(exit.reason, Reason::CodeSecret);
            assert!(exit.remedy().contains("chmod 600"), "{exit}");
        }
        for text in ["", "abc", &good[1..], &"0".repeat(70_000), "\u{fffd}"] {
            write(&path, text, 0o600);
            let exit = read(&path).unwrap_err();
            assert_eq!(exit.reason, Reason::CodeSecret, "{exit}");
            assert!(text.is_empty() || !exit.to_string().contains(text), "a key must not be shown: {exit}");
        }
        std::fs::write(&path, b"\xff\xfe").unwrap();
        assert_eq!(read(&path).unwrap_err().reason, Reason::CodeSecret);
        assert_eq!(read(folder.path()).unwrap_err().reason, Reason::CodeSecret);
        write(&path, &format!("{good}\n"), 0o400);
        assert_eq!(read(&path).unwrap().unwrap().to_hex(), good);
    }

    #[test]
    fn a_key_from_elsewhere_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let key = generate().unwrap();
        assert_eq!(obtain(&KeySource::Given(key.clone()), folder.path(), true).unwrap(), key);
        let file = folder.path().join("mounted");
        let named = KeySource::File(file.clone());
        let exit = obtain(&named, folder.path(), false).unwrap_err();
        assert_eq!(exit.reason, Reason::CodeSecret);
        assert!(exit.remedy().contains("space_key_file"), "{exit}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        write(&file, &key.to_hex(), 0o600);
        assert_eq!(obtain(&named, folder.path(), true).unwrap(), key);
    }
}
