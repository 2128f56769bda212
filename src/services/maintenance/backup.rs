//! Backups of a store: as it is at one moment, section by section, while it goes on being written to.
//!
//! A node gives one to whoever asks for it through the socket of its data directory. The store keeps what is replaced meanwhile
//! until the backup is out; nobody waits for it. The thread that reads is one of low priority: cores go first.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::services::maintenance::control_socket;
use crate::services::threads::priority::let_cores_go_first;
use crate::services::visits::copies::view_with_logs;
use carom_store::backup::Section;
use carom_store::backup::frames::FrameWriter;
use carom_store::links::Links;

/// What a command asks for.
pub const ASK_BACKUP: &str = "backup";

/// Longest question, bytes.
const QUESTION_LEN_MAX: u64 = 256;

/// How long somebody who asks may take to take what he gets.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the thread rests after somebody could not be answered.
const REST: Duration = Duration::from_millis(100);

/// Bytes that are written at once.
const BUFFER_LEN: usize = 512 * 1024;

/// Bytes of a log of visits that are one record.
const LOG_PIECE_LEN: usize = 128 * 1024;

/// Writes the store as it is now.
///
/// # Errors
/// If it cannot be written. That the store cannot be read, or `is_over`, is written to the stream.
pub fn write_store(links: &Links, data_dir: &Path, out: impl Write, is_over: impl Fn() -> bool) -> io::Result<()> {
    let mut writer = FrameWriter::begin(out)?;
    let (view, logs) = match view_with_logs(links, data_dir) {
        Ok(seen) => seen,
        Err(error) => return writer.break_off(&format!("visits: {error}")),
    };
    for section in Section::ALL {
        if section == Section::VisitLogs {
            write_logs(&mut writer, &logs)?;
            continue;
        }
        let mut written = Ok(());
        let read = view.dump(section, |key, value| {
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

/// Writes logs of visits, each in pieces.
fn write_logs(writer: &mut FrameWriter<impl Write>, logs: &[(u32, Vec<u8>)]) -> io::Result<()> {
    for (seq, bytes) in logs {
        // One without anything in it is there, too: whoever restores it finds no gap.
        let pieces = bytes.chunks(LOG_PIECE_LEN).chain(bytes.is_empty().then_some(&[][..]));
        for (number, piece) in pieces.enumerate() {
            writer.add(Section::VisitLogs, &[seq.to_be_bytes(), (number as u32).to_be_bytes()].concat(), piece)?;
        }
    }
    Ok(())
}

/// Asks the node that runs on a data directory for its store, as a stream of frames.
///
/// # Errors
/// If nobody answers there.
pub fn ask(data_dir: &Path) -> io::Result<impl Read> {
    let mut stream = control_socket::connect(data_dir)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{ASK_BACKUP}")?;
    Ok(stream)
}

/// The thread that answers at the socket.
pub struct Attendant {
    data_dir: PathBuf,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// What its end needs to know of it.
struct Shared {
    listener: UnixListener,
    is_over: AtomicBool,
    /// Who is being answered.
    client: Mutex<Option<UnixStream>>,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn client(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attendant {
    /// Ends it. A backup that is under way is cut off, and told so.
    pub fn stop(self) {
        self.shared.is_over.store(true, Ordering::Release);
        // It waits for somebody to come, or for somebody to take what he asked for.
        let _ = rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Both);
        if let Some(client) = &*self.shared.client() {
            let _ = client.shutdown(Shutdown::Both);
        }
        self.thread.join().expect("panics abort");
        let _ = std::fs::remove_file(self.data_dir.join(control_socket::SOCKET_FILE));
    }
}

/// Answers at the socket of a data directory from now on.
///
/// # Errors
/// If the socket cannot be made, or the operating system cannot start a thread.
pub fn start(links: Links, data_dir: &Path) -> io::Result<Attendant> {
    let listener = control_socket::listen(data_dir)?;
    let shared = Arc::new(Shared { listener, is_over: AtomicBool::new(false), client: Mutex::default() });
    let (of_thread, of_node) = (Arc::clone(&shared), data_dir.to_owned());
    let run = move || attend(&of_thread, &links, &of_node);
    let thread = std::thread::Builder::new().name("control".to_owned()).spawn(run)?;
    Ok(Attendant { data_dir: data_dir.to_owned(), shared, thread })
}

/// Answers one after the other.
fn attend(shared: &Shared, links: &Links, data_dir: &Path) {
    let_cores_go_first();
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
                // Where the machine has no descriptors left, it has none at once again.
                std::thread::sleep(REST);
            }
            Ok(()) => {}
        }
    }
}

fn answer(stream: &UnixStream, links: &Links, data_dir: &Path, is_over: impl Fn() -> bool) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
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
        // Whoever looks whether somebody listens.
        "" => Ok(()),
        other => FrameWriter::begin(out)?.break_off(&format!("this node does not know the command {other:?}")),
    }
}
