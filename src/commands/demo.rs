//! `carom demo`: a node with sample links and 90 days of visits, in a temporary directory that is removed at the end.
//!
//! The links are imported like those of any file. Their visits are stored as merged histories, the form that a node gives
//! to older visits itself, and one by one in the visit log.

mod story;
mod visitors;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use carom_shards::{Code, CodeSpace};

use self::story::{DAYS, Dice, Visited};
use super::cli::DemoArgs;
use super::data::import;
use super::data::import_setup::{ImportError, ImportSetup};
use super::terminal::say;
use crate::services::maintenance::index_builder;
use crate::services::visit_log::samples::SampleLog;
use crate::startup::data_dir::{OpenStore, lock, open_store, store_exit};
use crate::startup::domains::{domains_of, own_authorities};
use crate::startup::preflight;
use crate::startup::signals::{self, ProcessSignal};
use carom_model::visits::history::VisitHistory;
use carom_model::visits::tally::{Subject, name_of_day};
use carom_settings::exit::{Exit, Reason};
use carom_settings::{Flags, Settings};
use carom_store::links::{Links, RowPlace, StoreError};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::readable;

/// A node that is ready to be started, with its data.
pub struct DemoNode {
    /// The settings to start it with.
    pub settings: Settings,
    folder: DemoFolder,
}

impl DemoNode {
    /// Passes signals to the node, until `node` returns false. Before this call, a signal removes the directory and ends
    /// the process.
    pub fn hand_over_signals(&self, node: impl FnMut(ProcessSignal) -> bool + Send + 'static) {
        *self.folder.node.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(node));
    }
}

/// Names of directories that are tried.
const FOLDERS_MAX: usize = 100;

/// Attempts to remove the directory while it is being filled.
const REMOVALS: usize = 10;

/// Receives a signal. Returns false if it wants no more.
type SignalReceiver = Box<dyn FnMut(ProcessSignal) -> bool + Send>;

/// A directory that is removed when this is dropped, or when a signal ends the process before the node receives signals.
struct DemoFolder {
    path: PathBuf,
    /// Receiver of signals in the node, once there is one.
    node: Arc<Mutex<Option<SignalReceiver>>>,
}

impl DemoFolder {
    /// Creates an empty directory that only this user can read.
    fn create() -> io::Result<DemoFolder> {
        let path = new_folder()?;
        let node: Arc<Mutex<Option<SignalReceiver>>> = Arc::default();
        let folder = DemoFolder { path: path.clone(), node: Arc::clone(&node) };
        signals::watch(&ProcessSignal::ENDING, move |signal| {
            // Locked to the end of the process, so that no node starts in the directory meanwhile.
            let mut node = node.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(receive) = &mut *node {
                return receive(signal);
            }
            // The main thread may create another file meanwhile.
            let _ = (0..REMOVALS).find(|_| fs::remove_dir_all(&path).is_ok());
            signal.end_process()
        })?;
        Ok(folder)
    }
}

/// Creates a directory with the first name that is free. A killed process with the same number may have left one: in a
/// container, each has the number 1.
fn new_folder() -> io::Result<PathBuf> {
    let name = format!("carom-demo-{}", std::process::id());
    let mut path = std::env::temp_dir().join(&name);
    for number in 2..=FOLDERS_MAX {
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                path.set_file_name(format!("{name}-{number}"));
            }
            created => return created.map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Makes a directory with links and visits, and says how to use the node that is then started.
///
/// # Errors
/// [`Reason::Usage`] for wrong addresses, [`Reason::DataNotWritable`] if the directory cannot be written, and what keeps a
/// store from being opened.
pub fn prepare(arguments: &DemoArgs) -> Result<DemoNode, Exit> {
    let folder = DemoFolder::create().map_err(|error| {
        let place = std::env::temp_dir();
        Exit::new(Reason::DataNotWritable, format!("cannot create a directory in {}: {error}", place.display()))
            .with_remedy("set TMPDIR to a directory that you can write to")
    })?;
    let path = folder.path.clone();
    let flags = Flags {
        data_dir: Some(path.display().to_string()),
        listen: vec![arguments.listen.clone()],
        admin_listen: Some(arguments.admin_listen.clone()),
        ..Flags::default()
    };
    // Without the environment: a demonstration joins no fleet, and depends on nothing.
    let own = [("CAROM_VISITS_LOG".to_owned(), "on".to_owned())];
    let (settings, _) = Settings::load(None, own.into_iter(), flags)?;
    preflight::data_dir(&settings.data_dir)?;
    let now_ms = unix_ms();
    let visited = story::visited_links(now_ms);
    let _lock = lock(&settings.data_dir)?;
    let links = import_links(&settings, &visited)?;
    store_visits(&links, &visited).map_err(|error| store_exit(&error))?;
    log_visits(&settings.data_dir, &visited).map_err(|error| {
        Exit::new(Reason::DataNotWritable, format!("the visits cannot be written to {}: {error}", path.display()))
            .with_remedy("free space in that directory, or set TMPDIR to another one")
    })?;
    let total: u64 = visited.iter().map(|link| link.history.all.counts.total).sum();
    say(&format!(
        "{} with {} of {DAYS} days, in {} until this ends.\n\
         Open http://{}/admin/. In another terminal, try `carom link list --url http://{}` or `carom top --admin {}`. \
         Ctrl-C ends it and removes the data.",
        readable::count(visited.len() as u64, "link"),
        readable::count(total, "visit"),
        path.display(),
        arguments.admin_listen,
        arguments.listen,
        arguments.admin_listen,
    ));
    Ok(DemoNode { settings, folder })
}

/// Imports the links into an empty store, and returns it.
fn import_links(settings: &Settings, visited: &[Visited]) -> Result<Links, Exit> {
    let OpenStore { links, code_secret, .. } = open_store(settings)?;
    index_builder::ensure(&links).map_err(|error| store_exit(&error))?;
    let domains = domains_of(settings, settings.listen[0]);
    let setup = ImportSetup {
        links,
        data_dir: settings.data_dir.clone(),
        space: CodeSpace::new(&code_secret),
        of_fleet: false,
        length: settings.code_length,
        dry_run: false,
        moving: None,
        own: own_authorities(&domains, &settings.listen),
        domains,
        threads: 1,
        total_bytes: None,
        terminal: false,
    };
    let lines: String = visited.iter().map(|link| link.line.to_string() + "\n").collect();
    let summary =
        import::import(&setup, &mut lines.as_bytes(), &mut io::sink(), None).map_err(|error| match error {
            ImportError::Store(error) => store_exit(&error),
            error => Exit::new(Reason::Incomplete, error.to_string()),
        })?;
    assert!(summary.is_complete(), "every link of the story can be imported: {summary:?}");
    Ok(setup.links)
}

/// Stores the visits of the links, of all links together, and the referring hosts of each day.
fn store_visits(links: &Links, visited: &[Visited]) -> Result<(), StoreError> {
    let origins = links.visit_origins()?.unwrap_or_default();
    let place = RowPlace::merged(origins.own_slot(), origins.own().since);
    let mut batch = links.batch();
    let mut put = |name: &[u8], history: &VisitHistory| {
        let mut value = Vec::new();
        history.encode(&mut value);
        batch.put_visits(name, place, &value);
    };
    let mut all = VisitHistory::default();
    for link in visited {
        let code = Code::parse(link.code.as_bytes()).expect("the story has short codes");
        put(&Subject::Link(code).name(), &link.history);
        all.merge(&link.history);
    }
    put(&Subject::All.name(), &all);
    for (day, row) in story::referrers_by_day(&all) {
        put(&name_of_day(day), &row);
    }
    links.commit(batch)?;
    links.sync()
}

/// Writes the visits of the links one by one, for the lists and statistics of visits.
fn log_visits(data_dir: &Path, visited: &[Visited]) -> io::Result<()> {
    let mut log = SampleLog::create(data_dir)?;
    let mut dice = Dice(24);
    for link in visited {
        visitors::each_visit(link, &mut dice, |visit| log.add(visit))?;
    }
    log.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_left_behind_are_no_obstacle() {
        let (first, second) = (new_folder().unwrap(), new_folder().unwrap());
        assert_ne!(first, second);
        for folder in [first, second] {
            fs::remove_dir(folder).unwrap();
        }
    }

    #[test]
    fn folder_is_filled_and_removed() {
        let arguments = DemoArgs { listen: "127.0.0.1:0".to_owned(), admin_listen: "127.0.0.1:0".to_owned() };
        let demo = prepare(&arguments).unwrap();
        let data_dir = demo.settings.data_dir.clone();
        let OpenStore { links, .. } = open_store(&demo.settings).unwrap();
        let rows = links.visits_of(&Subject::All.name()).unwrap();
        let all = VisitHistory::decode(&rows[0].value).unwrap();
        assert!(rows.len() == 1, "{:?}", all.all.counts);
        assert!(all.all.counts.total > 1_000, "{:?}", all.all.counts);
        assert!(all.days.len() > 80, "{:?}", all.all.counts);
        drop(links);
        let segments =
            fs::read_dir(data_dir.join("visit-log")).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
        let bytes: u64 = segments.map(|file| file.len()).sum();
        assert!(demo.settings.visits.is_on, "{bytes} bytes of visits");
        assert!(bytes > 10 * all.all.counts.total, "{bytes} bytes of visits");
        drop(demo);
        assert!(!data_dir.exists());
    }
}
