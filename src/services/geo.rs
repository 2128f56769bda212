//! The file with locations of addresses: read at the start and whenever it changes, checked as a whole, and passed to
//! every core and to the visit log. An invalid file leaves the last valid one in use.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::bridge::geo::{GeoDatabase, GeoSlot};
use crate::bridge::{Mailboxes, ToCore};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use crate::services::versions::Versions;
use carom_limits::GEO_FILE_LEN_MAX;
use carom_model::formats::dates;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::NodeStats;

/// Interval between two looks at the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The parts of a node that the service needs.
#[derive(Debug)]
pub struct GeoSetup {
    /// The path of the file with locations.
    pub file: PathBuf,
    /// The place of the database for services.
    pub slot: GeoSlot,
    /// The mailboxes of the cores.
    pub mailboxes: Mailboxes,
    /// The alarms of the node.
    pub stats: Arc<NodeStats>,
}

/// A handle on the thread that watches the file.
#[derive(Debug)]
pub struct GeoWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl GeoWatch {
    /// Stops the thread and waits for it.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// Reads the file, and starts to watch it. Blocks for the first read, so that the first redirect has locations.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: GeoSetup) -> io::Result<GeoWatch> {
    let mut watch = Watch { setup, tried: None, seen: None, versions: Versions::default() };
    watch.read();
    let stop = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&stop);
    let run = move || {
        while !until.load(Ordering::Acquire) {
            watch.look();
            watch.versions.sweep();
            std::thread::park_timeout(LOOK_EVERY);
        }
    };
    let thread = threads::start(Priority::Long, "geo", run)?;
    Ok(GeoWatch { stop, thread })
}

/// The marks by which another content of a file is noticed.
type FileMark = (u64, u64, [i64; 4]);

fn mark_of(metadata: &Metadata) -> FileMark {
    // A change of the permissions has its own time.
    let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
    (metadata.ino(), metadata.len(), times)
}

struct Watch {
    setup: GeoSetup,
    /// The file at the last read; `None` if there was none.
    tried: Option<FileMark>,
    /// The file at the last look.
    seen: Option<FileMark>,
    versions: Versions<GeoDatabase>,
}

impl Watch {
    /// Reads the file if it has changed and then stayed as it is for one interval: it may be half written before.
    fn look(&mut self) {
        let now = fs::metadata(&self.setup.file).ok().map(|metadata| mark_of(&metadata));
        let is_settled = now == self.seen;
        self.seen = now;
        if is_settled && now != self.tried {
            self.read();
        }
    }

    fn read(&mut self) {
        let GeoSetup { file, slot, mailboxes, stats } = &self.setup;
        let (mark, database) = match read(file) {
            Ok((mark, bytes)) => (Some(mark), GeoDatabase::parse(bytes)),
            Err(error) => (None, Err(format!("cannot be read ({error})"))),
        };
        // A file that cannot be opened is tried again once it changes.
        self.tried = mark.or_else(|| fs::metadata(file).ok().map(|metadata| mark_of(&metadata)));
        match database {
            Ok(geo) => {
                let (kind, built) = (geo.kind(), dates::format(geo.built_at().saturating_mul(1_000)));
                tracing::info!(file = %file.display(), kind, built, "locations of addresses are read");
                let geo = Arc::new(geo);
                self.versions.hold(&geo);
                slot.set(Arc::clone(&geo));
                mailboxes.all().iter().for_each(|mailbox| mailbox.post(ToCore::Geo(Arc::clone(&geo))));
                stats.alarms.clear(Alarm::GeoFileInvalid);
            }
            Err(why) => {
                let holds = match slot.get() {
                    Some(_) => "the last valid file stays in use",
                    None => "no address has a location",
                };
                let text =
                    format!("{} {why}; {holds}; replace it by an MMDB file with countries or cities", file.display());
                stats.alarms.raise(Alarm::GeoFileInvalid, text);
            }
        }
    }
}

fn read(path: &Path) -> io::Result<(FileMark, Vec<u8>)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.len() > GEO_FILE_LEN_MAX {
        let what = format!("it has {} bytes; at most {GEO_FILE_LEN_MAX} are allowed", metadata.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    file.take(GEO_FILE_LEN_MAX).read_to_end(&mut bytes)?;
    Ok((mark_of(&metadata), bytes))
}
