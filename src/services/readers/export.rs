//! Exports all links of a data directory as NDJSON, in the order of their codes.
//!
//! Threads read parts of the store and write lines into buffers. The caller's thread puts the buffers in order and
//! writes them out. Records that are damaged, or that only a later version can decode, are reported and skipped.

use std::fmt;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use carom_shards::Code;

use super::ndjson;
use crate::services::maintenance::progress::{Progress, rate};
use carom_model::link::record::{self, LinkRef, RecordRef};
use carom_store::links::{KeyRange, Links, StoreError, key_ranges};
use carom_telemetry::readable;

/// Bytes of lines in one buffer.
const BUFFER_BYTES: usize = 512 * 1024;

/// Number of buffers of each thread that may wait for the output.
const BUFFERS_WAITING: usize = 8;

/// The result of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExportSummary {
    /// Number of links written.
    pub links: u64,
    /// Number of records, or ranges of records, that could not be read.
    pub damaged: u64,
    /// Duration of the export.
    pub time: Duration,
}

impl ExportSummary {
    /// True if every link was written.
    pub fn is_complete(&self) -> bool {
        self.damaged == 0
    }
}

/// Reasons why an export ended early.
#[derive(Debug)]
pub enum ExportError {
    /// The store cannot be read.
    Store(StoreError),
    /// Writing to the output failed.
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

/// A message from a reading thread.
enum ExportMessage {
    Lines { bytes: Vec<u8>, links: u64 },
    Damaged(String),
    PartDone,
    Failed(StoreError),
}

/// Writes every link to `output`. Reports, progress and the summary go to `messages`; progress only if that is a
/// terminal.
///
/// # Errors
/// [`ExportError`]. The lines written up to then are whole.
pub fn export(
    links: &Links,
    threads: usize,
    output: &mut dyn Write,
    messages: &mut dyn Write,
    terminal: bool,
) -> Result<ExportSummary, ExportError> {
    let parts = key_ranges();
    let threads = threads.clamp(1, parts.len());
    let mut summary = ExportSummary::default();
    let mut progress = Progress::new(terminal, None);
    std::thread::scope(|scope| {
        let queues: Vec<Receiver<ExportMessage>> = (0..threads)
            .map(|first| {
                let (sender, receiver) = sync_channel(BUFFERS_WAITING);
                let own: Vec<KeyRange> = parts.iter().copied().skip(first).step_by(threads).collect();
                scope.spawn(move || read_parts(links, &own, &sender));
                receiver
            })
            .collect();
        // Thread n reads parts n, n + threads and so on, so asking the threads in turn yields the parts in order.
        for part in 0..parts.len() {
            while let Ok(piece) = queues[part % threads].recv() {
                match piece {
                    ExportMessage::Lines { bytes, links } => {
                        output.write_all(&bytes).map_err(ExportError::Output)?;
                        summary.links += links;
                        progress.tick(messages, summary.links, 0);
                    }
                    ExportMessage::Damaged(what) => {
                        summary.damaged += 1;
                        progress.clear(messages);
                        let _ = writeln!(messages, "skipped: {what}");
                    }
                    ExportMessage::PartDone => break,
                    ExportMessage::Failed(error) => return Err(ExportError::Store(error)),
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
        "exported {} in {:.1} s ({}/s), {} unreadable",
        readable::count(summary.links, "link"),
        summary.time.as_secs_f64(),
        rate(summary.links, summary.time),
        summary.damaged
    );
    Ok(summary)
}

/// Writes the line of a record, if it is a link that `is_wanted`. Returns true if it wrote one.
///
/// # Errors
/// A description of the damage, if the record cannot be read.
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

/// Reads parts of the store and sends their lines. Ends early once the receiver is gone.
fn read_parts(links: &Links, parts: &[KeyRange], pieces: &SyncSender<ExportMessage>) {
    for &part in parts {
        let mut lines = Vec::with_capacity(BUFFER_BYTES + 4_096);
        let mut count = 0;
        let result = links.scan(part, |key, value| {
            match write_line(key, value, |_, _| true, &mut lines) {
                Ok(is_link) => count += u64::from(is_link),
                Err(what) => return pieces.send(ExportMessage::Damaged(what)).is_ok(),
            }
            if lines.len() < BUFFER_BYTES {
                return true;
            }
            let bytes = std::mem::replace(&mut lines, Vec::with_capacity(BUFFER_BYTES + 4_096));
            pieces.send(ExportMessage::Lines { bytes, links: std::mem::take(&mut count) }).is_ok()
        });
        let _ = pieces.send(ExportMessage::Lines { bytes: lines, links: count });
        match result {
            Ok(damaged) => {
                for range in damaged {
                    let _ = pieces.send(ExportMessage::Damaged(range.to_string()));
                }
            }
            Err(error) => {
                let _ = pieces.send(ExportMessage::Failed(error));
                return;
            }
        }
        if pieces.send(ExportMessage::PartDone).is_err() {
            return;
        }
    }
}
