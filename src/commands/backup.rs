//! The commands for backups: `carom backup`, `carom verify` and `carom restore`.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::commands::backup_files::{self, BackupFault, FILES, claim, in_use, is_being_written};
use crate::commands::cli::AppPlace;
use crate::commands::data::inspect::{Each, InspectReport, RecordSource, inspect};
use crate::commands::dated_backups;
use crate::commands::offline::settings_of;
use crate::commands::output::print;
use crate::commands::terminal::note;
use crate::services::api_keys::file as apps_file;
use crate::services::destination_rules::file as rules_file;
use crate::services::domain_redirects::file as domains_file;
use crate::services::maintenance::backup::{ask, write_store};
use crate::services::maintenance::last_backup;
use crate::services::maintenance::progress::{Progress, rate};
use crate::services::maintenance::restore::{RestoreError, pass_over_codes, restore as restore_store};
use crate::startup::code_secret;
use crate::startup::data_dir::{keys_exit, lock, open_store, store_exit};
use crate::startup::{home, preflight};
use carom_model::access::registry::Registry;
use carom_model::formats::dates;
use carom_settings::exit::{Exit, Reason};
use carom_settings::{KeySource, Settings};
use carom_store::backup::frames::{FrameError, FrameReader};
use carom_store::backup::manifest::{FileSum, Manifest};
use carom_store::backup::{MANIFEST_FILE, RecordCounts, STORE_FILE, Section};
use carom_store::links::catalog::View;
use carom_store::links::{Links, StoreError};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::readable;

/// Buffer size of reads and writes, in bytes.
const BUFFER_LEN: usize = 1024 * 1024;

/// Bytes written between two syncs. One big sync at the end would delay the syncs of a node on the same disk.
const SYNC_EVERY: u64 = 4 * 1024 * 1024;

/// Backs up a data directory into `dir`, with or without a running node on it. With `keep`, into a new directory below
/// `dir`, of which so many are kept.
///
/// # Errors
/// The reason for the failure. Files that the command has written are removed.
pub fn backup(dir: &Path, keep: Option<NonZeroU32>, place: AppPlace) -> Result<(), Exit> {
    let settings = settings_of(place.data_dir, place.config.as_deref())?;
    if !settings.data_dir.join("links").is_dir() {
        let what = format!("{} contains no links", settings.data_dir.display());
        return Err(Exit::new(Reason::Usage, what).with_remedy("pass the data directory of a node with --data-dir"));
    }
    let taken_ms = unix_ms();
    let (target, is_new) = match keep {
        Some(_) => {
            let target = dated_backups::place_of(dir, &settings.data_dir, taken_ms)?;
            dated_backups::make(&target)?;
            (target, true)
        }
        None => (dir.to_owned(), make_folder(dir)?),
    };
    let remove_new = || {
        if is_new {
            // Fails if another command has put files there.
            let _ = fs::remove_dir(&target);
        }
    };
    let store = claim(&target).inspect_err(|_| remove_new())?;
    let is_good = make_backup(&target, &store, &settings, taken_ms).inspect_err(|_| {
        // The folder was empty or new, and no other command writes there, so these files are all from this one. The store
        // file is the last one: without it, another command may begin.
        for name in FILES.into_iter().rev() {
            let _ = fs::remove_file(target.join(name));
        }
        remove_new();
    })?;
    record(&settings.data_dir, taken_ms);
    match keep {
        Some(keep) if is_good => {
            let kept = dated_backups::remove_oldest(dir, &target, keep)?;
            for path in kept.removed {
                print(&format!("removed the old backup {}\n", path.display()));
            }
            for (path, why) in kept.broken {
                let _ = writeln!(
                    io::stderr(),
                    "warning: {} is broken and does not count as a backup: {why}; it is kept until you remove it",
                    path.display()
                );
            }
        }
        Some(_) => note("note: all older backups are kept, because they may be undamaged"),
        None => {}
    }
    Ok(())
}

/// Records the time of a complete backup in the data directory, for the metrics of the node.
fn record(data_dir: &Path, taken_ms: u64) {
    // The backup is good without it. Monitoring then shows an older one, and alerts too early rather than too late.
    if let Err(error) = last_backup::write(data_dir, taken_ms) {
        let path = data_dir.join(last_backup::FILE_NAME);
        let _ = writeln!(
            io::stderr(),
            "warning: the time of the backup cannot be written to {} ({error}); the metrics show an older backup",
            path.display()
        );
    }
}

/// Creates a folder that only this user can read, or accepts an empty one. Returns true if it is new.
fn make_folder(dir: &Path) -> Result<bool, Exit> {
    let refused = |error: io::Error| Exit::new(Reason::DataNotWritable, format!("{}: {error}", dir.display()));
    match fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(false),
            Some(_) if is_being_written(dir) => Err(in_use(dir)),
            Some(_) => Err(Exit::new(Reason::Usage, format!("{} is not empty", dir.display()))
                .with_remedy("choose a directory that is empty or does not exist")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(refused)?;
            Ok(true)
        }
        Err(error) => Err(refused(error)),
    }
}

/// Writes a backup, whose store file is `store`. `taken_ms` is before the store is read: the backup holds all codes that
/// were issued earlier, and a restore passes over those that may have been issued since. Returns true if the store is
/// without damage.
fn make_backup(dir: &Path, store: &File, settings: &Settings, taken_ms: u64) -> Result<bool, Exit> {
    home::require_all_links(&settings.data_dir)?;
    let (counts, fingerprint) = copy_store(store, settings)?;
    let mut files = copy_small_files(dir, settings, &fingerprint)?;
    let bytes = fs::metadata(dir.join(STORE_FILE)).map_err(|error| incomplete(&error))?.len();
    files.insert(STORE_FILE.to_owned(), FileSum { bytes, sum: 0 });
    let has_key = files.contains_key(code_secret::FILE_NAME);
    let report = look(&mut BackupRecords(dir)).map_err(|error| incomplete(&error))?;
    let manifest = Manifest { taken_ms, fingerprint, files, counts };
    keep(dir, MANIFEST_FILE, manifest.to_text().as_bytes())?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| incomplete(&error))?;
    print(&format!(
        "backed up {}, {} in all, {}, as of {}, to {}\n",
        readable::count(counts.of(Section::Links), "link"),
        readable::count(counts.total(), "record"),
        readable::count(bytes, "byte"),
        dates::format(taken_ms),
        dir.display()
    ));
    if !has_key {
        let _ = writeln!(
            io::stderr(),
            "warning: the code secret (fingerprint {}) is outside the data directory and not in the backup; back it up as well",
            manifest.fingerprint
        );
    }
    log_report(&report);
    // The backup is kept: a backup of all readable records is better than none.
    if !report.is_good() {
        let _ =
            writeln!(io::stderr(), "warning: {report}: the store itself is damaged; see store_damaged in the runbook");
    }
    Ok(report.is_good())
}

/// Writes the store file of a backup. Returns the number of records by section, and the fingerprint of the code secret.
fn copy_store(store: &File, settings: &Settings) -> Result<(RecordCounts, String), Exit> {
    // A running node holds the lock, and streams its store itself.
    match lock(&settings.data_dir) {
        Ok(_lock) => {
            must_be_owner(&settings.data_dir)?;
            let links = open_store(settings)?.links;
            let (input, output) = io::pipe().map_err(|error| incomplete(&error))?;
            std::thread::scope(|scope| {
                let writing = scope.spawn(|| {
                    let output = BufWriter::with_capacity(BUFFER_LEN, output);
                    write_store(&links, &settings.data_dir, output, || false)
                });
                let kept = keep_store(input, store, settings);
                let _ = writing.join();
                kept
            })
        }
        Err(exit) if exit.reason == Reason::DataInUse => {
            let stream = ask(&settings.data_dir).map_err(|error| no_answer(&settings.data_dir, &error))?;
            keep_store(stream, store, settings)
        }
        Err(exit) => Err(exit),
    }
}

/// Writes the files of a backup beside its store: the code secret, if it is that of the store, and those of apps, domains
/// and destination rules, if there are any. Returns their lengths and checksums.
fn copy_small_files(dir: &Path, settings: &Settings, fingerprint: &str) -> Result<BTreeMap<String, FileSum>, Exit> {
    let mut files = BTreeMap::new();
    if let Some(key) = key_of(settings, fingerprint)? {
        keep_file(dir, code_secret::FILE_NAME, format!("{key}\n").as_bytes(), &mut files)?;
    }
    for name in [apps_file::FILE_NAME, domains_file::FILE_NAME, rules_file::FILE_NAME] {
        let path = settings.data_dir.join(name);
        match fs::read(&path) {
            Ok(text) => keep_file(dir, name, &text, &mut files)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(incomplete(&format!("{}: {error}", path.display()))),
        }
    }
    Ok(files)
}

/// Writes `input` to the store file of a backup and checks all of it. Returns the number of records by section, and the
/// fingerprint of the code secret.
fn keep_store(input: impl Read, file: &File, settings: &Settings) -> Result<(RecordCounts, String), Exit> {
    let copy = BufWriter::with_capacity(BUFFER_LEN, file);
    let mut fingerprint = String::new();
    let mut progress = Progress::new(io::stderr().is_terminal(), None);
    let mut errors = io::stderr().lock();
    let mut synced = 0;
    let read = || -> Result<RecordCounts, FrameError> {
        let mut reader = FrameReader::copying(BufReader::with_capacity(BUFFER_LEN, input), copy)?;
        while reader.next_frame(|section, key, value| {
            if section == Section::Meta && key == b"key_fingerprint" {
                fingerprint = String::from_utf8_lossy(value).into_owned();
            }
            Ok::<_, FrameError>(())
        })? {
            progress.tick(&mut errors, reader.counts().of(Section::Links), reader.position());
            if reader.position() - synced >= SYNC_EVERY {
                synced = reader.position();
                file.sync_data()?;
            }
        }
        Ok(*reader.counts())
    };
    let counts = read().map_err(|error| incomplete(&format!("{}: {error}", settings.data_dir.display())));
    progress.clear(&mut errors);
    let counts = counts?;
    file.sync_all().map_err(|error| incomplete(&error))?;
    Ok((counts, fingerprint))
}

/// Returns the code secret of a store as text, if it is available and matches the fingerprint.
fn key_of(settings: &Settings, fingerprint: &str) -> Result<Option<String>, Exit> {
    let in_data_dir = code_secret::read(&settings.data_dir.join(code_secret::FILE_NAME))?;
    let elsewhere = match &settings.space_key {
        KeySource::Given(key) => Some(key.clone()),
        KeySource::File(path) => code_secret::read(path)?,
        KeySource::DataDir => None,
    };
    let fits = [in_data_dir, elsewhere].into_iter().flatten().find(|key| key.fingerprint() == fingerprint);
    Ok(fits.map(|key| key.to_hex()))
}

/// Checks every record of a backup, or of a data directory that no node uses.
///
/// # Errors
/// A summary of the problems that were found, or the reason why nothing could be read.
pub fn verify(dir: &Path, config: Option<&Path>) -> Result<(), Exit> {
    let is_there = |name: &str| {
        dir.join(name).try_exists().map_err(|error| Exit::new(Reason::Usage, format!("{}: {error}", dir.display())))
    };
    let report = if is_there(MANIFEST_FILE)? || is_there(STORE_FILE)? {
        verify_backup(dir)?
    } else if is_there("links")? {
        verify_data(dir, config)?
    } else {
        let what = format!("{} is neither a backup nor a data directory", dir.display());
        return Err(Exit::new(Reason::Usage, what)
            .with_remedy("pass a directory written by `carom backup`, or the data directory of a node"));
    };
    log_report(&report);
    if !report.is_good() {
        return Err(not_good(dir, &report));
    }
    print(&format!(
        "{}: {}, {} in all; all {}records are readable, and the indexes match them\n",
        dir.display(),
        readable::count(report.links, "link"),
        readable::count(report.counts.total(), "record"),
        if report.newer > 0 { "other " } else { "" }
    ));
    Ok(())
}

/// Prints the findings.
fn log_report(report: &InspectReport) {
    for wrong in &report.wrong {
        let _ = writeln!(io::stderr(), "error: {wrong}");
    }
    for name in &report.missing {
        note(&format!("note: {name} does not exist yet; the next start creates it"));
    }
    if report.newer > 0 {
        note(&format!(
            "note: records that only a newer version of carom can read: {}; they stay as they are",
            report.newer
        ));
    }
    if report.surplus > 0 {
        note(&format!("note: index entries without a link: {}; this is harmless", report.surplus));
    }
}

fn not_good(dir: &Path, report: &InspectReport) -> Exit {
    Exit::new(Reason::Incomplete, format!("{}: {report}", dir.display()))
        .with_remedy("the other records are usable; see store_damaged in the runbook")
}

/// Refuses to open the store of another user. Opening writes files, and files of this user would lock the node out.
pub(super) fn must_be_owner(data_dir: &Path) -> Result<(), Exit> {
    let owner = fs::metadata(data_dir).map(|meta| meta.uid());
    let me = rustix::process::geteuid();
    match owner {
        Ok(owner) if me.is_root() && owner != me.as_raw() => {
            let what = format!("{} belongs to user {owner}, but this command runs as root", data_dir.display());
            Err(Exit::new(Reason::Usage, what).with_remedy("run it as that user: sudo -u carom carom ..."))
        }
        _ => Ok(()),
    }
}

/// The records of a data directory that this process has locked.
struct StoreRecords(View);

impl RecordSource for StoreRecords {
    type Error = StoreError;

    fn each(&mut self, each: Each<'_>) -> Result<(), StoreError> {
        Section::ALL.into_iter().try_for_each(|section| {
            self.0.dump(section, |key, value| {
                each(section, key, value);
                true
            })
        })
    }
}

/// The records in the store file of a backup.
struct BackupRecords<'d>(&'d Path);

impl RecordSource for BackupRecords<'_> {
    type Error = FrameError;

    fn each(&mut self, each: Each<'_>) -> Result<(), FrameError> {
        let file = File::open(self.0.join(STORE_FILE))?;
        let mut reader = FrameReader::begin(BufReader::with_capacity(BUFFER_LEN, file))?;
        while reader.next_frame(|section, key, value| {
            each(section, key, value);
            Ok::<_, FrameError>(())
        })? {}
        Ok(())
    }
}

fn verify_data(dir: &Path, config: Option<&Path>) -> Result<InspectReport, Exit> {
    let settings = settings_of(Some(dir.display().to_string()), config)?;
    must_be_owner(dir)?;
    let _lock = lock(&settings.data_dir)?;
    let links = open_store(&settings)?.links;
    look(&mut StoreRecords(links.view())).map_err(|error| store_exit(&error))
}

fn verify_backup(dir: &Path) -> Result<InspectReport, Exit> {
    let manifest = read_manifest(dir)?;
    let damaged = |name: &str, what: &dyn std::fmt::Display| {
        Exit::new(Reason::StoreDamaged, format!("{}: {what}", dir.join(name).display()))
            .with_remedy("use another backup")
    };
    backup_files::check(dir, &manifest).map_err(|BackupFault { file, what }| damaged(&file, &what))?;
    let report = look(&mut BackupRecords(dir)).map_err(|error| damaged(STORE_FILE, &error))?;
    if report.counts != manifest.counts {
        return Err(damaged(STORE_FILE, &format!("the records differ from {MANIFEST_FILE}")));
    }
    Ok(report)
}

fn look<R: RecordSource>(records: &mut R) -> Result<InspectReport, R::Error> {
    let mut progress = Progress::new(io::stderr().is_terminal(), None);
    let mut errors = io::stderr().lock();
    let report = inspect(records, |counts| progress.tick(&mut errors, counts.of(Section::Links), 0));
    progress.clear(&mut errors);
    report
}

fn read_manifest(dir: &Path) -> Result<Manifest, Exit> {
    let path = dir.join(MANIFEST_FILE);
    let text = fs::read(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Exit::new(
            Reason::StoreDamaged,
            format!("{} is an incomplete backup: {MANIFEST_FILE}, which is written last, is missing", dir.display()),
        )
        .with_remedy("use another backup"),
        _ => Exit::new(Reason::Usage, format!("{}: {error}", path.display())),
    })?;
    Manifest::parse(&text).map_err(|error| {
        Exit::new(Reason::StoreDamaged, format!("{}: {error}", path.display())).with_remedy("use another backup")
    })
}

/// Names that a restore creates in a data directory, and which must not exist before.
const RESTORED: [&str; 8] = [
    "links",
    "links.new",
    "visits",
    "visit-log",
    apps_file::FILE_NAME,
    domains_file::FILE_NAME,
    rules_file::FILE_NAME,
    code_secret::FILE_NAME,
];

/// Restores a backup into a data directory; with `revoke_keys`, all its API keys are revoked.
///
/// # Errors
/// The reason for the failure; files that the command has written are removed. Or a note that some of the backup was
/// unreadable: the rest is restored.
pub fn restore(dir: &Path, revoke_keys: bool, place: AppPlace) -> Result<(), Exit> {
    let settings = settings_of(place.data_dir, place.config.as_deref())?;
    let data_dir = &settings.data_dir;
    let manifest = read_manifest(dir)?;
    if manifest.taken_ms > unix_ms() {
        let what = format!(
            "the backup was taken at {}, but this machine's clock shows an earlier time",
            dates::format(manifest.taken_ms)
        );
        return Err(Exit::new(Reason::Usage, what).with_remedy(
            "correct the clock; carom derives from it how many codes may have been issued since the backup",
        ));
    }
    preflight::data_dir(data_dir)?;
    // With the mark, the restored links would count as those that Redis may lack.
    home::require_all_links(data_dir)?;
    let _lock = lock(data_dir)?;
    for name in RESTORED {
        if data_dir.join(name).exists() {
            let what = format!("{} already exists; nothing was changed", data_dir.join(name).display());
            return Err(
                Exit::new(Reason::Usage, what).with_remedy("choose a data directory that is empty or does not exist")
            );
        }
    }
    // The whole backup is verified first: a changed backup never becomes a data directory.
    let report = verify_backup(dir)?;
    if report.is_disordered {
        log_report(&report);
        return Err(Exit::new(Reason::StoreDamaged, format!("{}: {report}", dir.display()))
            .with_remedy("use another backup; this one contains no usable store"));
    }
    let made = make_data(dir, &settings, &manifest, &report).and_then(|()| log_keys(data_dir, revoke_keys, &manifest));
    if made.is_err() {
        for name in RESTORED {
            let path = data_dir.join(name);
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
        return made;
    }
    log_report(&report);
    if report.is_good() { Ok(()) } else { Err(not_good(dir, &report)) }
}

/// Revokes the restored API keys with `revoke_keys`; otherwise warns that keys revoked since the backup are valid
/// again.
fn log_keys(data_dir: &Path, revoke_keys: bool, manifest: &Manifest) -> Result<(), Exit> {
    if !manifest.files.contains_key(apps_file::FILE_NAME) {
        return Ok(());
    }
    let now_ms = unix_ms();
    let change =
        |registry: &mut Registry| if revoke_keys { registry.revoke_all(now_ms) } else { registry.valid(now_ms) };
    let changed = apps_file::update(data_dir, false, change).map_err(|error| keys_exit(data_dir, &error))?;
    let text = match (revoke_keys, changed.0) {
        (_, 0) => return Ok(()),
        (true, count) => {
            format!(
                "revoked {} of the backup; create new ones with `carom app add`",
                readable::count(count as u64, "valid API key")
            )
        }
        (false, count) => format!(
            "warning: restored {}, including any that were revoked after {}; revoke those with `carom app revoke` (see `carom app list`), or restore with --revoke-keys",
            readable::count(count as u64, "valid API key"),
            dates::format(manifest.taken_ms)
        ),
    };
    let _ = writeln!(io::stderr(), "{text}");
    Ok(())
}

fn make_data(dir: &Path, settings: &Settings, manifest: &Manifest, report: &InspectReport) -> Result<(), Exit> {
    let data_dir = &settings.data_dir;
    let new = &data_dir.join("links.new");
    let file = File::open(dir.join(STORE_FILE)).map_err(|error| incomplete(&error))?;
    let mut progress = Progress::new(io::stderr().is_terminal(), None);
    let mut errors = io::stderr().lock();
    let input = BufReader::with_capacity(BUFFER_LEN, file);
    let counts = restore_store(input, new, data_dir, |counts| progress.tick(&mut errors, counts.of(Section::Links), 0));
    progress.clear(&mut errors);
    let counts = counts.map_err(|error| match error {
        RestoreError::Store(error) => store_exit(&error),
        RestoreError::Backup(error) => {
            Exit::new(Reason::StoreDamaged, format!("{}: {error}", dir.join(STORE_FILE).display()))
        }
    })?;
    let age = unix_ms().saturating_sub(manifest.taken_ms) / 1_000;
    let raised = {
        let (links, _) = Links::open(new, &manifest.fingerprint).map_err(|error| store_exit(&error))?;
        // The next start rebuilds incomplete indexes.
        links.mark_indexes_incomplete(&report.incomplete).map_err(|error| store_exit(&error))?;
        pass_over_codes(&links, age).map_err(|error| store_exit(&error))?
    };
    // The key comes last: an interrupted restore has no key, and no node starts without one.
    fs::rename(new, data_dir.join("links")).map_err(|error| incomplete(&error))?;
    for name in [apps_file::FILE_NAME, domains_file::FILE_NAME, rules_file::FILE_NAME, code_secret::FILE_NAME] {
        if manifest.files.contains_key(name) {
            let bytes = fs::read(dir.join(name)).map_err(|error| incomplete(&error))?;
            keep(data_dir, name, &bytes)?;
        }
    }
    File::open(data_dir).and_then(|dir| dir.sync_all()).map_err(|error| incomplete(&error))?;
    let time = progress.elapsed();
    print(&format!(
        "restored {} as of {} to {}, in {:.1} s ({}/s)\n",
        readable::count(counts.of(Section::Links), "link"),
        dates::format(manifest.taken_ms),
        data_dir.display(),
        time.as_secs_f64(),
        rate(counts.total(), time),
    ));
    let _ = writeln!(
        errors,
        "skipped {} of each length, because the old node may have issued them since the backup",
        readable::count(raised, "code")
    );
    if !manifest.files.contains_key(code_secret::FILE_NAME) {
        let _ = writeln!(
            errors,
            "next: copy the code secret with the fingerprint {} to {} (mode 0600), or set space_key_file",
            manifest.fingerprint,
            data_dir.join(code_secret::FILE_NAME).display()
        );
    }
    Ok(())
}

/// Creates a new file that only this user can read.
fn create(dir: &Path, name: &str) -> Result<File, Exit> {
    let path = dir.join(name);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| Exit::new(Reason::DataNotWritable, format!("{}: {error}", path.display())))
}

/// Writes a small file and syncs it.
fn keep(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), Exit> {
    let mut file = create(dir, name)?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(|error| incomplete(&format!("{}: {error}", dir.join(name).display())))
}

fn keep_file(dir: &Path, name: &str, bytes: &[u8], files: &mut BTreeMap<String, FileSum>) -> Result<(), Exit> {
    files.insert(name.to_owned(), FileSum::of(bytes));
    keep(dir, name, bytes)
}

fn incomplete(what: &dyn std::fmt::Display) -> Exit {
    Exit::new(Reason::Incomplete, what.to_string())
}

fn no_answer(data_dir: &Path, error: &io::Error) -> Exit {
    let what = format!("the process that uses {} does not respond: {error}", data_dir.display());
    Exit::new(Reason::DataInUse, what).with_remedy(
        "run this command as the user of the node; if the node is starting, try again in a moment; if it runs a version without control.sock, stop it first",
    )
}
