//! Writes all links of a data directory as NDJSON, in the order of their codes.
//!
//! Threads read parts of the store and write lines into buffers; the caller's thread puts these in order and writes them
//! out. What is damaged is reported and left out.

use std::fmt;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use carom_shards::Code;

use super::ndjson;
use super::progress::{Progress, rate};
use crate::readable;
use crate::record::{self, LinkRef, RecordRef};
use crate::store::links::{Links, Part, StoreError, parts};

/// Bytes of lines that are handed over together.
const BUFFER_BYTES: usize = 512 * 1024;

/// Buffers of each thread that wait to be written.
const BUFFERS_WAITING: usize = 8;

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExportSummary {
    /// Links written.
    pub links: u64,
    /// Records or ranges of records that could not be read.
    pub damaged: u64,
    /// How long it took.
    pub time: Duration,
}

impl ExportSummary {
    /// Whether every link was written.
    pub fn is_complete(&self) -> bool {
        self.damaged == 0
    }
}

/// Why an export ended early.
#[derive(Debug)]
pub enum ExportError {
    /// The store cannot be read.
    Store(StoreError),
    /// The output takes no more.
    Output(io::Error),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportError::Store(error) => write!(f, "{error}"),
            ExportError::Output(error) => write!(f, "the export cannot be written: {error}"),
        }
    }
}

impl std::error::Error for ExportError {}

/// What a reading thread hands over.
enum Piece {
    Lines { bytes: Vec<u8>, links: u64 },
    Damaged(String),
    PartDone,
    Failed(StoreError),
}

/// Writes every link to `output`; reports, progress and the summary go to `messages`, progress only where that is a
/// terminal.
///
/// # Errors
/// [`ExportError`]; what was written up to then is whole lines.
pub fn export(
    links: &Links,
    threads: usize,
    output: &mut dyn Write,
    messages: &mut dyn Write,
    terminal: bool,
) -> Result<ExportSummary, ExportError> {
    let parts = parts();
    let threads = threads.clamp(1, parts.len());
    let mut summary = ExportSummary::default();
    let mut progress = Progress::new(terminal, None);
    std::thread::scope(|scope| {
        let queues: Vec<Receiver<Piece>> = (0..threads)
            .map(|first| {
                let (sender, receiver) = sync_channel(BUFFERS_WAITING);
                let own: Vec<Part> = parts.iter().copied().skip(first).step_by(threads).collect();
                scope.spawn(move || read_parts(links, &own, &sender));
                receiver
            })
            .collect();
        // Thread n has parts n, n + threads and so on: asking them in turn gives the parts in order.
        for part in 0..parts.len() {
            while let Ok(piece) = queues[part % threads].recv() {
                match piece {
                    Piece::Lines { bytes, links } => {
                        output.write_all(&bytes).map_err(ExportError::Output)?;
                        summary.links += links;
                        progress.tick(messages, summary.links, 0);
                    }
                    Piece::Damaged(what) => {
                        summary.damaged += 1;
                        progress.clear(messages);
                        let _ = writeln!(messages, "skipped: {what}");
                    }
                    Piece::PartDone => break,
                    Piece::Failed(error) => return Err(ExportError::Store(error)),
                }
            }
        }
        Ok(())
    })?;
    output.flush().map_err(ExportError::Output)?;
    summary.time = progress.elapsed();
    progress.clear(messages);
    let _ = writeln!(
        messages,
        "exported {} in {:.1} s ({}/s), {} damaged",
        readable::count(summary.links, "link"),
        summary.time.as_secs_f64(),
        rate(summary.links, summary.time),
        summary.damaged
    );
    Ok(summary)
}

/// Writes the line of a record, if it is of a link that is wanted; says whether it is.
///
/// # Errors
/// What is damaged.
pub(super) fn write_line(
    key: &[u8],
    value: &[u8],
    mut is_wanted: impl FnMut(&Code, &LinkRef<'_>) -> bool,
    lines: &mut Vec<u8>,
) -> Result<bool, String> {
    let code = Code::from_key(key).map_err(|error| format!("a key that {error}"))?;
    match record::decode(key, value).map_err(|error| format!("{code}: {error}"))? {
        RecordRef::Link(link) if is_wanted(&code, &link) => {
            ndjson::write(&code, &link, lines);
            Ok(true)
        }
        RecordRef::Link(_) | RecordRef::Tombstone(_) => Ok(false),
    }
}

/// Ends early when nobody takes the pieces any more.
fn read_parts(links: &Links, parts: &[Part], pieces: &SyncSender<Piece>) {
    for &part in parts {
        let mut lines = Vec::with_capacity(BUFFER_BYTES + 4_096);
        let mut count = 0;
        let result = links.scan(part, |key, value| {
            match write_line(key, value, |_, _| true, &mut lines) {
                Ok(is_link) => count += u64::from(is_link),
                Err(what) => return pieces.send(Piece::Damaged(what)).is_ok(),
            }
            if lines.len() < BUFFER_BYTES {
                return true;
            }
            let bytes = std::mem::replace(&mut lines, Vec::with_capacity(BUFFER_BYTES + 4_096));
            pieces.send(Piece::Lines { bytes, links: std::mem::take(&mut count) }).is_ok()
        });
        let _ = pieces.send(Piece::Lines { bytes: lines, links: count });
        match result {
            Ok(damaged) => {
                for range in damaged {
                    let _ = pieces.send(Piece::Damaged(range.to_string()));
                }
            }
            Err(error) => {
                let _ = pieces.send(Piece::Failed(error));
                return;
            }
        }
        if pieces.send(Piece::PartDone).is_err() {
            return;
        }
    }
}
