//! Backups of a live store: a snapshot of one moment, section by section.
//!
//! A node serves backups through the socket of its data directory. The store keeps replaced values until the backup has
//! been read, and no write waits for it. The thread runs at low priority, so that cores go first.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::services::maintenance::control_socket;
use crate::services::threads;
use crate::services::threads::priority::{PacedLoop, Priority, pause_if_due};
use crate::services::visit_log::copies as logged_visits;
use crate::services::visits::copies::view_with_logs;
use carom_store::backup::Section;
use carom_store::backup::frames::FrameWriter;
use carom_store::links::Links;

/// The command that asks for a backup.
pub const ASK_BACKUP: &str = "backup";

/// Longest command, in bytes.
const QUESTION_LEN_MAX: u64 = 256;

/// Timeout for a client that neither sends nor receives.
const CLIENT_TIME_MAX: Duration = Duration::from_secs(60);

/// Pause of the thread after an error.
const REST: Duration = Duration::from_millis(100);

/// Bytes of one write to the socket.
const BUFFER_LEN: usize = 512 * 1024;

/// Bytes of a count log that make one record.
const LOG_PIECE_LEN: usize = 128 * 1024;

/// Writes the current state of the store to `out`, as frames.
///
/// # Errors
/// If `out` cannot be written. An unreadable store, or `is_over`, is reported in the stream itself.
pub fn write_store(links: &Links, data_dir: &Path, out: impl Write, is_over: impl Fn() -> bool) -> io::Result<()> {
    let mut writer = FrameWriter::begin(out)?;
    let (view, logs) = match view_with_logs(links, data_dir) {
        Ok(seen) => seen,
        Err(error) => return writer.break_off(&format!("visits: {error}")),
    };
    let mut paced = PacedLoop::default();
    for section in Section::ALL {
        if section == Section::CountLogs {
            write_logs(&mut writer, &logs)?;
            continue;
        }
        if section == Section::VisitLog {
            if let Err(error) = write_logged_visits(&mut writer, data_dir, &is_over)? {
                return writer.break_off(&format!("{section}: {error}"));
            }
            continue;
        }
        let mut written = Ok(());
        let read = view.dump(section, |key, value| {
            paced.step();
            written = writer.add(section, key, value);
            written.is_ok() && !is_over()
        });
        written?;
        if let Err(error) = read {
            let why =
                format!("{section}: {error}; stop the node and run `carom export`, which exports all readable links");
            return writer.break_off(&why);
        }
        if is_over() {
            return writer.break_off("the node is shutting down");
        }
    }
    writer.end()?;
    Ok(())
}

/// Writes count logs, each in pieces.
fn write_logs(writer: &mut FrameWriter<impl Write>, logs: &[(u32, Vec<u8>)]) -> io::Result<()> {
    log_records(logs).try_for_each(|(key, piece)| writer.add(Section::CountLogs, &key, piece))
}

/// Iterates over the records of count logs in the order of their keys, each log in pieces.
pub(crate) fn log_records(logs: &[(u32, Vec<u8>)]) -> impl Iterator<Item = (Vec<u8>, &[u8])> {
    logs.iter().flat_map(|(seq, bytes)| {
        // An empty log is written as one empty piece, so that a restore sees no gap in the sequence.
        let pieces = bytes.chunks(LOG_PIECE_LEN).chain(bytes.is_empty().then_some(&[][..]));
        let key = move |number: usize| [seq.to_be_bytes(), (number as u32).to_be_bytes()].concat();
        pieces.enumerate().map(move |(number, piece)| (key(number), piece))
    })
}

/// Writes the files of the visit log, each in pieces. The inner error is that of the log.
fn write_logged_visits(
    writer: &mut FrameWriter<impl Write>,
    data_dir: &Path,
    is_over: &impl Fn() -> bool,
) -> io::Result<io::Result<()>> {
    let files = match logged_visits::open_files(data_dir) {
        Ok(files) => files,
        Err(error) => return Ok(Err(error)),
    };
    let mut piece = vec![0; LOG_PIECE_LEN];
    for file in files {
        for number in 0.. {
            let read = match file.read_piece(u64::from(number), &mut piece) {
                Ok(read) => read,
                Err(error) => return Ok(Err(error)),
            };
            if read.is_empty() {
                break;
            }
            pause_if_due();
            if is_over() {
                return Ok(Err(io::Error::other("the node is shutting down")));
            }
            writer.add(Section::VisitLog, &logged_visits::key_of(&file, number), read)?;
        }
    }
    Ok(Ok(()))
}

/// Asks the node that runs on a data directory for a backup, and returns the stream of frames.
///
/// # Errors
/// If no node answers at the socket.
pub fn ask(data_dir: &Path) -> io::Result<impl Read> {
    let mut stream = control_socket::connect(data_dir)?;
    stream.set_read_timeout(Some(CLIENT_TIME_MAX))?;
    writeln!(stream, "{ASK_BACKUP}")?;
    Ok(stream)
}

/// A handle on the thread that serves the socket.
pub struct BackupServer {
    data_dir: PathBuf,
    shared: Arc<BackupState>,
    thread: JoinHandle<()>,
}

/// The state that the thread shares with its handle.
struct BackupState {
    listener: UnixListener,
    is_over: AtomicBool,
    /// The client that is being served.
    client: Mutex<Option<UnixStream>>,
}

impl BackupState {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn client(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackupServer {
    /// Stops the thread. A backup in progress breaks off with an error in its stream.
    pub fn stop(self) {
        self.shared.is_over.store(true, Ordering::Release);
        // The thread may wait for a client, or for one to read; the shutdowns end both waits.
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
        if let Some(client) = &*self.shared.client() {
            let _ = client.shutdown(Shutdown::Both);
        }
        self.thread.join().expect("panics abort");
        let _ = std::fs::remove_file(self.data_dir.join(control_socket::SOCKET_FILE));
    }
}

/// Starts a thread that serves the socket of a data directory.
///
/// # Errors
/// If the socket cannot be created, or the operating system cannot start a thread.
pub fn start(links: Links, data_dir: &Path) -> io::Result<BackupServer> {
    let listener = control_socket::listen(data_dir)?;
    let shared = Arc::new(BackupState { listener, is_over: AtomicBool::new(false), client: Mutex::default() });
    let (of_thread, of_node) = (Arc::clone(&shared), data_dir.to_owned());
    let run = move || attend(&of_thread, &links, &of_node);
    let thread = threads::start(Priority::Long, "control", run)?;
    Ok(BackupServer { data_dir: data_dir.to_owned(), shared, thread })
}

/// Serves one client after the other.
fn attend(shared: &BackupState, links: &Links, data_dir: &Path) {
    while !shared.is_over() {
        let answered = shared.listener.accept().and_then(|(stream, _)| {
            *shared.client() = Some(stream.try_clone()?);
            if shared.is_over() {
                return Ok(());
            }
            answer(&stream, links, data_dir, || shared.is_over())
        });
        *shared.client() = None;
        match answered {
            Err(_) if shared.is_over() => {}
            Err(error) => {
                tracing::warn!(%error, "a client of control.sock got an incomplete response");
                // If the machine is out of file descriptors, an immediate retry would fail again.
                std::thread::sleep(REST);
            }
            Ok(()) => {}
        }
    }
}

fn answer(stream: &UnixStream, links: &Links, data_dir: &Path, is_over: impl Fn() -> bool) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIME_MAX))?;
    stream.set_write_timeout(Some(CLIENT_TIME_MAX))?;
    let mut question = String::new();
    BufReader::new(stream.take(QUESTION_LEN_MAX)).read_line(&mut question)?;
    let out = BufWriter::with_capacity(BUFFER_LEN, stream);
    match question.trim_end() {
        ASK_BACKUP => {
            tracing::info!("backup started");
            write_store(links, data_dir, out, is_over)?;
            tracing::info!("backup sent");
            Ok(())
        }
        // A probe that only checks for a listener.
        "" => Ok(()),
        other => FrameWriter::begin(out)?.break_off(&format!("this node does not know the command {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::{TestNode, sleeps_of};
    use carom_model::link::{Origin, record};
    use carom_model::testing::link;
    use carom_shards::Code;

    #[test]
    fn backups_pause_beside_cores() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        let mut batch = node.links.batch();
        for number in 0..500 {
            let (name, mut record) = (format!("c{number}"), Vec::new());
            record::encode_link(name.as_bytes(), &link(&name, Origin::Custom), &mut record);
            batch.put(&Code::parse(name.as_bytes()).unwrap(), &record);
        }
        node.links.commit(batch).unwrap();
        let (links, data_dir) = (node.links, dir.path().to_owned());
        let backup = move || write_store(&links, &data_dir, io::sink(), || false).unwrap();
        let sleeps = sleeps_of(Priority::Long, backup);
        assert!(sleeps >= 10, "{sleeps} for 500 links");
    }
}
