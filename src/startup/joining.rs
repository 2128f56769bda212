//! The join of a node without links from a peer: by `carom join`, or at the start of a node with `fleet.join_from`.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use super::code_secret;
use super::data_dir::store_exit;
use crate::services::joins::transfer::{self, JOIN_FOLDER, JoinError, JoinPlan, JoinProgress, JoinSummary};
use carom_settings::exit::{Exit, Reason};
use carom_settings::{KeySource, Settings};
use carom_store::backup::Section;
use carom_store::links::StoreError;
use carom_telemetry::readable;

/// Names in a data directory that a node with links, or one that has served, leaves there.
const OF_OTHER_NODE: [&str; 5] = ["links", "links.new", "visits", "visit-log", "ids"];

/// Snapshots that one join may begin, if the peer restarts in between.
const SNAPSHOTS_TRIED_MAX: u32 = 3;

/// Interval between two lines of the log about the progress.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The part of a start before the store is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinAtStart {
    /// The node has links, or no peer to copy them from.
    Unneeded,
    /// The node has copied the links of a peer.
    Done,
    /// The process is to end before it has all of them.
    Stopped,
}

/// Fills the data directory of a node that has no links and the setting `fleet.join_from`. The caller holds the lock of
/// the directory. [`transfer::join`] says when it calls `should_stop`.
///
/// # Errors
/// The reason why the join failed, or a join by a command that is unfinished.
pub fn at_start(settings: &Settings, should_stop: &dyn Fn() -> bool) -> Result<JoinAtStart, Exit> {
    let unfinished = settings.data_dir.join(JOIN_FOLDER);
    if settings.data_dir.join("links").exists() {
        // A kill between the last steps of a join leaves the folder.
        remove_leftover(&unfinished);
        return Ok(JoinAtStart::Unneeded);
    }
    let peer = settings.fleet.join_from.as_deref().filter(|_| settings.fleet.redis.is_some());
    let Some(peer) = peer else {
        return if unfinished.exists() { Err(unfinished_exit(&unfinished)) } else { Ok(JoinAtStart::Unneeded) };
    };
    let fingerprint = prepare(settings)?;
    let key = settings.fleet.join_key_file.as_deref().map(read_key).transpose()?;
    tracing::info!(peer, "this node has no links yet and joins from a peer");
    let mut logged = Instant::now();
    let mut on_progress = |now: &JoinProgress| {
        let JoinProgress { links, records, total_records, bytes } = *now;
        if logged.elapsed() >= LOG_EVERY {
            logged = Instant::now();
            tracing::info!(links, records, total_records, bytes, "joining");
        }
    };
    match join(settings, (peer, key.as_deref()), &fingerprint, should_stop, &mut on_progress) {
        Ok(summary) => {
            let links = summary.counts.of(Section::Links);
            tracing::info!(links, bytes = summary.bytes, "the node has all links of the peer {}", summary.node);
            Ok(JoinAtStart::Done)
        }
        Err(JoinError::Stopped) => Ok(JoinAtStart::Stopped),
        Err(error) => Err(exit_of(&error, settings, peer)),
    }
}

fn remove_leftover(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(%error, "cannot remove {}, which is no longer needed", folder.display());
        }
        _ => {}
    }
}

fn unfinished_exit(folder: &Path) -> Exit {
    Exit::new(Reason::Usage, format!("{} is an unfinished join, so this node has no links yet", folder.display()))
        .with_remedy(
            "run `carom join` again, which continues, or set fleet.join_from; to start without links, remove the folder",
        )
}

/// Checks that a data directory may be filled: it has no links, and the code secret of the fleet is there. Returns the
/// fingerprint of the secret.
///
/// # Errors
/// [`Reason::Usage`] if the directory belongs to a node already, [`Reason::CodeSecret`] without a secret.
pub fn prepare(settings: &Settings) -> Result<String, Exit> {
    let data_dir = &settings.data_dir;
    // A kill between the last steps of a join leaves count logs, which the next attempt replaces.
    let is_unfinished = data_dir.join(JOIN_FOLDER).exists();
    let mut others = OF_OTHER_NODE.iter().filter(|name| !(is_unfinished && **name == "visits"));
    if let Some(name) = others.find(|name| data_dir.join(name).exists()) {
        let what = format!("{} already exists; nothing was changed", data_dir.join(name).display());
        return Err(Exit::new(Reason::Usage, what)
            .with_remedy("join with an empty data directory, which may have the code secret and API keys"));
    }
    let own = data_dir.join(code_secret::FILE_NAME);
    let secret = match &settings.space_key {
        KeySource::Given(secret) => Some(secret.clone()),
        KeySource::File(path) => code_secret::read(path)?,
        KeySource::DataDir => code_secret::read(&own)?,
    };
    let missing = || {
        let remedy = format!("copy {} of another node to {} with mode 0600", code_secret::FILE_NAME, own.display());
        Exit::new(Reason::CodeSecret, "this node has no code secret yet").with_remedy(remedy)
    };
    Ok(secret.ok_or_else(missing)?.fingerprint())
}

/// Reads the API key for the peer.
///
/// # Errors
/// [`Reason::Usage`] if the file cannot be read, or is not one key of printable characters.
fn read_key(file: &Path) -> Result<String, Exit> {
    let wrong = |what: &str| {
        Exit::new(Reason::Usage, format!("fleet.join_key_file: {}: {what}", file.display()))
            .with_remedy("name a file with nothing but an admin key; `carom app add NAME --role admin` prints one")
    };
    let text = fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
    match text.trim() {
        key if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(key.to_owned()),
        _ => Err(wrong("this is not an API key")),
    }
}

/// Fills the data directory from a peer, given by its URL and the API key for it. If the peer restarts meanwhile, the
/// join begins with another snapshot. The caller holds the lock of the directory, and has called [`prepare`].
///
/// # Errors
/// [`JoinError`].
pub fn join(
    settings: &Settings,
    (peer, key): (&str, Option<&str>),
    fingerprint: &str,
    should_stop: &dyn Fn() -> bool,
    on_progress: &mut dyn FnMut(&JoinProgress),
) -> Result<JoinSummary, JoinError> {
    let (data_dir, node) = (&*settings.data_dir, settings.fleet.node.as_deref());
    let plan = JoinPlan { peer, key, data_dir, fingerprint, node };
    for _ in 1..SNAPSHOTS_TRIED_MAX {
        match transfer::join(&plan, should_stop, on_progress) {
            Err(JoinError::Gone) => tracing::warn!("{}; starting with a new snapshot", JoinError::Gone),
            joined => return joined,
        }
    }
    transfer::join(&plan, should_stop, on_progress)
}

/// Returns the exit for a join that failed.
pub fn exit_of(error: &JoinError, settings: &Settings, peer: &str) -> Exit {
    let data_dir = settings.data_dir.display();
    match error {
        JoinError::NoAnswer(why) => Exit::new(Reason::Incomplete, why.clone()).with_remedy(
            "check that the node runs, and that the URL is that of its admin listener; run the same command again to continue",
        ),
        JoinError::Key(why) => Exit::new(Reason::Usage, why.clone()).with_remedy(
            "pass a file with an admin key of the fleet (--key-file, fleet.join_key_file); if the message is about the host name, add it to admin.hosts of the peer",
        ),
        JoinError::Unable(why) => Exit::new(Reason::Incomplete, why.clone()).with_remedy(
            "pass the URL of the admin listener of a node of the fleet; if it runs an older version, upgrade it, or start the new node without joining: it then reads all links from Redis",
        ),
        JoinError::Gone => Exit::new(Reason::Incomplete, format!("{peer}: {error}"))
            .with_remedy("run the same command again; it starts from the beginning"),
        JoinError::Damaged(_) => Exit::new(Reason::Incomplete, format!("{peer}: {error}; the data directory has no links"))
            .with_remedy("check the network and the memory of both machines, and run the same command again"),
        JoinError::OtherCodeSecret(_) => Exit::new(Reason::CodeSecret, format!("{peer}: {error}")).with_remedy(
            "use the code secret of the fleet: space.key of another node; `carom key show-fingerprint` identifies it",
        ),
        JoinError::SameNode(_) => Exit::new(Reason::Usage, format!("{peer}: {error}"))
            .with_remedy("set another fleet.node, which is unique in the fleet"),
        JoinError::DiskFull { needed, free } => {
            let (needed, free) = (readable::count(*needed, "byte"), readable::count(*free, "byte"));
            let what = format!("the links of {peer} take {needed} on its disk, but {data_dir} has {free} left");
            Exit::new(Reason::DiskFull, what).with_remedy("make room for about twice as much, and run the command again")
        }
        JoinError::Disk(error) => {
            let reason = match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Reason::DiskFull,
                _ => Reason::DataNotWritable,
            };
            Exit::new(reason, format!("{data_dir}: {error}"))
                .with_remedy("correct that, and run the same command again: it continues")
        }
        JoinError::Store(error) => store_of(error),
        JoinError::Stopped => Exit::new(Reason::Incomplete, error.to_string()),
    }
}

/// Returns the exit for a store that cannot be filled. The library tells a full disk by its text only.
fn store_of(error: &StoreError) -> Exit {
    match error {
        StoreError::Failed(what) if what.contains("No space left") || what.contains("os error 28") => {
            Exit::new(Reason::DiskFull, error.to_string()).with_remedy("make room, and run the same command again")
        }
        error => store_exit(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn failures_have_their_reasons() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let reason = |error: JoinError| exit_of(&error, &settings, "http://a").reason;
        assert_eq!(reason(JoinError::Key("no".to_owned())), Reason::Usage);
        assert_eq!(reason(JoinError::Gone), Reason::Incomplete);
        assert_eq!(reason(JoinError::OtherCodeSecret("f".to_owned())), Reason::CodeSecret);
        assert_eq!(reason(JoinError::DiskFull { needed: 2, free: 1 }), Reason::DiskFull);
        assert_eq!(reason(JoinError::Disk(io::ErrorKind::StorageFull.into())), Reason::DiskFull);
        assert_eq!(reason(JoinError::Disk(io::ErrorKind::PermissionDenied.into())), Reason::DataNotWritable);
        let full = StoreError::Failed("No space left on device (os error 28)".to_owned());
        assert_eq!(reason(JoinError::Store(full)), Reason::DiskFull);
    }

    fn settings(data_dir: &Path) -> Settings {
        let flags = carom_settings::Flags { data_dir: Some(data_dir.display().to_string()), ..Default::default() };
        Settings::load(None, std::iter::empty(), flags).unwrap().0
    }

    #[test]
    fn data_directory_must_be_empty() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        assert_eq!(prepare(&settings).unwrap_err().reason, Reason::CodeSecret);
        for name in OF_OTHER_NODE {
            fs::create_dir(dir.path().join(name)).unwrap();
            let exit = prepare(&settings).unwrap_err();
            assert!(exit.reason == Reason::Usage, "{exit}");
            assert!(exit.what.contains(name), "{exit}");
            fs::remove_dir(dir.path().join(name)).unwrap();
        }
    }

    #[test]
    fn unfinished_join_is_no_start() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        assert_eq!(at_start(&settings, &|| false).unwrap(), JoinAtStart::Unneeded);
        let folder = dir.path().join(JOIN_FOLDER);
        fs::create_dir(&folder).unwrap();
        let exit = at_start(&settings, &|| false).unwrap_err();
        assert!(exit.what.contains("unfinished join"), "{exit}");
        // Complete but for the last step.
        fs::create_dir(dir.path().join("links")).unwrap();
        assert_eq!(at_start(&settings, &|| false).unwrap(), JoinAtStart::Unneeded);
        assert!(!folder.exists());
    }
}
