//! Dated backups below one directory, of which the newest are kept: `carom backup --keep N`.
//!
//! A deleted backup cannot be restored. So a directory is removed only if its name, its files and its manifest show
//! that `carom backup --keep` has written it, for the same code secret, and completed it. A backup whose files differ
//! from its manifest does not count among those to keep. It is not removed, and the command reports it.

use std::fs::{self, DirBuilder, DirEntry, File};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::backup_files::{FILES, check, is_being_written};
use crate::startup::code_secret;
use carom_model::formats::dates;
use carom_settings::exit::{Exit, Reason};
use carom_store::backup::manifest::Manifest;
use carom_store::backup::{MANIFEST_FILE, STORE_FILE};

/// Names that a directory of backups does not contain, because they belong to a single backup or to a data directory.
const FOREIGN: [&str; 4] = [STORE_FILE, MANIFEST_FILE, code_secret::FILE_NAME, "links"];

/// End of the name of a backup that is being removed. If the removal is interrupted, the next one continues it.
const REMOVED: &str = ".removed";

/// The form of the names, such as `2026-01-31T030500Z`: they sort by time, and need no quotes in a shell.
const NAME_FORM: &str = "%Y-%m-%dT%H%M%SZ";

/// The result of a removal of old backups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct OldBackups {
    /// The backups that were removed, oldest first.
    pub(super) removed: Vec<PathBuf>,
    /// The backups that are not whole, each with the reason. They do not count, and stay.
    pub(super) broken: Vec<(PathBuf, String)>,
}

/// The state of an entry beside a new backup.
enum OldEntry {
    /// A complete backup of the same code secret that `carom backup --keep` has written.
    Whole,
    /// A dated backup that is not whole, with the reason.
    Broken(String),
    /// Something else, or a backup that another command is writing.
    Other,
}

/// Returns the directory of a backup taken at `taken_ms`, below the directory of all backups.
///
/// # Errors
/// If `dir` is a single backup, a data directory, or no directory at all.
pub(super) fn place_of(dir: &Path, data_dir: &Path, taken_ms: u64) -> Result<PathBuf, Exit> {
    let refused = |what: String| {
        Exit::new(Reason::Usage, what)
            .with_remedy("with --keep, pass a directory that contains only dated backups, or that does not exist yet")
    };
    match fs::metadata(dir) {
        Ok(meta) if !meta.is_dir() => return Err(refused(format!("{} is not a directory", dir.display()))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(refused(format!("{}: {error}", dir.display())));
        }
        _ => {}
    }
    if let Some(name) = FOREIGN.into_iter().find(|name| dir.join(name).symlink_metadata().is_ok()) {
        let what = format!("{} contains {name}, so it is a backup or a data directory", dir.display());
        return Err(refused(what));
    }
    if is_inside(dir, data_dir) {
        return Err(refused(format!("{} is inside the data directory", dir.display())));
    }
    Ok(dir.join(name_of(taken_ms)))
}

/// Creates the directory of a new backup, which only this user can read. Two commands that start in the same second get
/// the same name, so the later one must fail before it can touch the files of the other.
///
/// # Errors
/// If the directory exists or cannot be created.
pub(super) fn make(new: &Path) -> Result<(), Exit> {
    let refused = |error: io::Error| Exit::new(Reason::DataNotWritable, format!("{}: {error}", new.display()));
    if let Some(all) = new.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(all).map_err(refused)?;
    }
    DirBuilder::new().mode(0o700).create(new).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Exit::new(Reason::Usage, format!("{} already exists", new.display()))
            .with_remedy("another backup started in the same second; run the command again"),
        _ => refused(error),
    })
}

/// True if a directory, which need not exist yet, is another one or a part of it.
fn is_inside(dir: &Path, other: &Path) -> bool {
    let existing =
        std::path::absolute(dir).ok().and_then(|dir| dir.ancestors().find_map(|ancestor| ancestor.canonicalize().ok()));
    existing.zip(other.canonicalize().ok()).is_some_and(|(dir, other)| dir.starts_with(other))
}

/// Removes the oldest complete backups of `dir`, so that `keep` of them are left. The new backup is always one of these.
/// Waits while another command removes backups there.
///
/// # Errors
/// If the directory cannot be read, a backup cannot be removed, or another command has removed the new one.
pub(super) fn remove_oldest(dir: &Path, new: &Path, keep: NonZeroU32) -> Result<OldBackups, Exit> {
    let failed = |path: &Path, error: &io::Error| {
        let what = format!("the backup is complete, but an old one could not be removed: {}: {error}", path.display());
        Exit::new(Reason::Incomplete, what).with_remedy("remove old backups by hand, before their disk is full")
    };
    let all = File::open(dir).map_err(|error| failed(dir, &error))?;
    // Of commands that end together, each would remove the backup of the other. A file system without locks is no obstacle.
    let _ = all.lock();
    let manifest = match manifest_of(new) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let what = format!("another `carom backup --keep` ended first, and removed {}", new.display());
            return Err(Exit::new(Reason::Incomplete, what).with_remedy("run one backup to this directory at a time"));
        }
        read => read.map_err(|error| failed(new, &error))?,
    };
    // A power failure must not leave the removals on disk without the new backup.
    all.sync_all().map_err(|error| failed(dir, &error))?;
    let (mut old, mut broken) = (Vec::new(), Vec::new());
    let entries = fs::read_dir(dir).map_err(|error| failed(dir, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| failed(dir, &error))?;
        if is_leftover(&entry) {
            remove(&entry.path()).map_err(|error| failed(&entry.path(), &error))?;
        } else if entry.path() != new {
            match classify(&entry, &manifest) {
                OldEntry::Whole => old.push(entry.path()),
                OldEntry::Broken(why) => broken.push((entry.path(), why)),
                OldEntry::Other => {}
            }
        }
    }
    // The names sort by time.
    old.sort();
    broken.sort();
    let others_kept = keep.get() as usize - 1;
    old.truncate(old.len().saturating_sub(others_kept));
    for path in &old {
        // From here on, the name is not that of a backup.
        let renamed = path.with_extension(&REMOVED[1..]);
        or_gone(fs::rename(path, &renamed)).and_then(|()| remove(&renamed)).map_err(|error| failed(path, &error))?;
    }
    Ok(OldBackups { removed: old, broken })
}

fn name_of(taken_ms: u64) -> String {
    dates::format_as(taken_ms / 1_000, NAME_FORM)
}

/// Returns the state of an entry beside the backup `new`.
fn classify(entry: &DirEntry, new: &Manifest) -> OldEntry {
    let (name, path) = (entry.file_name(), entry.path());
    let Some(name) = name.to_str().filter(|name| is_dated(name) && has_only_files_of_backups(entry)) else {
        return OldEntry::Other;
    };
    match manifest_of(&path) {
        Ok(old) if name != name_of(old.taken_ms) || old.fingerprint != new.fingerprint => OldEntry::Other,
        Ok(old) => check(&path, &old).map_or_else(|fault| OldEntry::Broken(fault.to_string()), |()| OldEntry::Whole),
        Err(_) if is_being_written(&path) => OldEntry::Other,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            OldEntry::Broken(format!("{MANIFEST_FILE}, which is written last, is missing"))
        }
        Err(error) => OldEntry::Broken(format!("{MANIFEST_FILE}: {error}")),
    }
}

/// True if an entry is the rest of a backup whose removal was interrupted.
fn is_leftover(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let dated = name.to_str().and_then(|name| name.strip_suffix(REMOVED));
    dated.is_some_and(is_dated) && has_only_files_of_backups(entry)
}

/// True if a name has the form of [`name_of`].
fn is_dated(name: &str) -> bool {
    let with_colons = |time: &str| Some(format!("{}:{}:{}", time.get(..2)?, time.get(2..4)?, time.get(4..)?));
    let parsed = name.split_once('T').and_then(|(date, time)| {
        let instant = format!("{date}T{}", with_colons(time)?);
        dates::parse(&instant).ok()
    });
    parsed.is_some_and(|ms| name_of(ms) == name)
}

/// True if an entry is a directory, not a link to one, that contains files of backups and nothing else.
fn has_only_files_of_backups(entry: &DirEntry) -> bool {
    let is_file_of_backup = |file: io::Result<DirEntry>| {
        file.is_ok_and(|file| {
            file.file_type().is_ok_and(|kind| kind.is_file())
                && file.file_name().to_str().is_some_and(|name| FILES.contains(&name))
        })
    };
    entry.file_type().is_ok_and(|kind| kind.is_dir())
        && fs::read_dir(entry.path()).is_ok_and(|mut files| files.all(is_file_of_backup))
}

fn manifest_of(dir: &Path) -> io::Result<Manifest> {
    let text = fs::read(dir.join(MANIFEST_FILE))?;
    Manifest::parse(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Removes the files of a backup by their names, and then its empty directory.
fn remove(dir: &Path) -> io::Result<()> {
    for name in FILES {
        or_gone(fs::remove_file(dir.join(name)))?;
    }
    or_gone(fs::remove_dir(dir))
}

/// Accepts that a path no longer exists: two backups that end together remove the same old ones.
fn or_gone(removal: io::Result<()>) -> io::Result<()> {
    match removal {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Barrier;

    use super::*;
    use crate::services::api_keys::file as apps_file;
    use carom_store::backup::RecordCounts;
    use carom_store::backup::manifest::FileSum;

    const DAY_MS: u64 = 86_400_000;
    const START_MS: u64 = 1_769_828_700_000;

    /// Writes the files of a backup without records, as old as its number of days after [`START_MS`].
    fn write(dir: &Path, day: u64, fingerprint: &str) -> PathBuf {
        let taken_ms = START_MS + day * DAY_MS + 123;
        let path = dir.join(name_of(taken_ms));
        fs::create_dir_all(&path).unwrap();
        let counts = RecordCounts::default();
        let files = BTreeMap::from([(STORE_FILE.to_owned(), FileSum { bytes: 1, sum: 0 })]);
        let manifest = Manifest { taken_ms, fingerprint: fingerprint.to_owned(), files, counts };
        fs::write(path.join(MANIFEST_FILE), manifest.to_text()).unwrap();
        fs::write(path.join(STORE_FILE), "x").unwrap();
        path
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn keep(count: u32) -> NonZeroU32 {
        NonZeroU32::new(count).unwrap()
    }

    #[test]
    fn names_are_dates_that_sort() {
        assert_eq!(name_of(START_MS), "2026-01-31T030500Z");
        assert!(is_dated("2026-01-31T030500Z"));
        for wrong in ["2026-01-31", "2026-01-31T030500", "2026-13-31T030500Z", "2026-01-31T03:05:00Z", "é", "T", ""] {
            assert!(!is_dated(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_oldest_complete_backups_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let all: Vec<PathBuf> = (0..5).map(|day| write(dir.path(), day, "f")).collect();
        assert_eq!(remove_oldest(dir.path(), &all[4], keep(9)).unwrap(), OldBackups::default());
        assert_eq!(remove_oldest(dir.path(), &all[4], keep(3)).unwrap().removed, all[..2]);
        assert_eq!(names(dir.path()).len(), 3);
        // A clock that was wrong does not cost the new backup.
        assert_eq!(remove_oldest(dir.path(), &all[2], keep(1)).unwrap().removed, all[3..]);
        assert!(all[2].is_dir());
    }

    #[test]
    fn backups_that_end_together_leave_one() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            let all: Vec<PathBuf> = (0..4).map(|day| write(dir.path(), day, "f")).collect();
            let (dir, start) = (dir.path(), &Barrier::new(all.len()));
            let ended = std::thread::scope(|scope| {
                let commands: Vec<_> = all
                    .iter()
                    .map(|new| {
                        scope.spawn(move || {
                            start.wait();
                            remove_oldest(dir, new, keep(1)).is_ok()
                        })
                    })
                    .collect();
                commands.into_iter().filter_map(|command| command.join().unwrap().then_some(())).count()
            });
            assert_eq!((names(dir).len(), ended), (1, 1));
        }
    }

    #[test]
    fn a_broken_backup_takes_no_place_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let all: Vec<PathBuf> = (0..6).map(|day| write(dir.path(), day, "f")).collect();
        fs::write(all[3].join(STORE_FILE), "").unwrap();
        fs::remove_file(all[4].join(MANIFEST_FILE)).unwrap();
        let kept = remove_oldest(dir.path(), &all[5], keep(2)).unwrap();
        assert_eq!(kept.removed, all[..2], "the newest whole one beside the new one is kept");
        let reasons: Vec<&str> = kept.broken.iter().map(|(_, why)| why.as_str()).collect();
        assert_eq!(
            reasons,
            ["store.carom: has 0 bytes instead of 1", "backup.json, which is written last, is missing"]
        );
        assert!(all[2..].iter().all(|path| path.is_dir()));
        // A backup that another command is writing is not broken.
        let other = File::options().write(true).open(all[4].join(STORE_FILE)).unwrap();
        other.lock().unwrap();
        assert_eq!(remove_oldest(dir.path(), &all[5], keep(2)).unwrap().broken.len(), 1);
    }

    #[test]
    fn nothing_else_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let changed = |day: u64, change: &dyn Fn(&Path)| change(&write(dir.path(), day, "f"));
        changed(0, &|path| fs::remove_file(path.join(MANIFEST_FILE)).unwrap());
        changed(1, &|path| fs::write(path.join(MANIFEST_FILE), "{}\n").unwrap());
        changed(2, &|path| fs::write(path.join("notes"), "mine").unwrap());
        changed(3, &|path| fs::create_dir(path.join(apps_file::FILE_NAME)).unwrap());
        changed(4, &|path| fs::rename(path, dir.path().join("before-the-upgrade")).unwrap());
        changed(5, &|path| {
            fs::rename(path, dir.path().join("elsewhere")).unwrap();
            std::os::unix::fs::symlink("elsewhere", path).unwrap();
        });
        write(dir.path(), 6, "of another code secret");
        fs::write(dir.path().join("a-file"), "x").unwrap();
        fs::create_dir(dir.path().join("a-folder.removed")).unwrap();
        let new = write(dir.path(), 7, "f");
        let before = names(dir.path());
        let kept = remove_oldest(dir.path(), &new, keep(1)).unwrap();
        assert_eq!((kept.removed.len(), kept.broken.len()), (0, 2), "{kept:?}");
        assert_eq!(names(dir.path()), before);
    }

    #[test]
    fn an_interrupted_removal_is_continued() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (write(dir.path(), 0, "f"), write(dir.path(), 1, "f"));
        let renamed = dir.path().join(format!("{}{REMOVED}", name_of(START_MS)));
        fs::rename(old, &renamed).unwrap();
        fs::remove_file(renamed.join(STORE_FILE)).unwrap();
        remove_oldest(dir.path(), &new, keep(5)).unwrap();
        assert_eq!(names(dir.path()), [name_of(START_MS + DAY_MS)]);
    }

    #[test]
    fn a_backup_gets_a_directory_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("all").join(name_of(START_MS));
        make(&new).unwrap();
        fs::write(new.join(STORE_FILE), "x").unwrap();
        // The same second again, even if the other command has not written anything yet.
        assert_eq!(make(&new).unwrap_err().reason, Reason::Usage);
        fs::remove_file(new.join(STORE_FILE)).unwrap();
        assert_eq!(make(&new).unwrap_err().reason, Reason::Usage);
    }

    #[test]
    fn a_backup_that_is_gone_counts_as_removed() {
        let dir = tempfile::tempdir().unwrap();
        let old = write(dir.path(), 0, "f");
        remove(&old).unwrap();
        remove(&old).unwrap();
        assert_eq!(names(dir.path()), [] as [String; 0]);
    }

    #[test]
    fn odd_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        fs::create_dir_all(data_dir.join("links")).unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        let backup = write(dir.path(), 0, "f");
        for odd in [&data_dir, &backup, &dir.path().join("file"), &data_dir.join("not/yet")] {
            let refused = place_of(odd, &data_dir, START_MS).unwrap_err();
            assert_eq!(refused.reason, Reason::Usage, "{}", odd.display());
        }
        let new = dir.path().join("new");
        assert_eq!(place_of(&new, &data_dir, START_MS).unwrap(), new.join("2026-01-31T030500Z"));
    }
}
