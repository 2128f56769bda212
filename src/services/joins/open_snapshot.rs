//! A snapshot of the store that a joining node reads, and the pieces of it.
//!
//! A snapshot has the backup format. It leaves out what is only right for this node: the visits that were granted to
//! it, the time of its last contact, and its positions in the change log by time. That contact proves the leases of
//! this node. A snapshot also lacks the visit log, of which Redis has the part that all nodes get. A piece ends between
//! two frames, and the snapshot remembers where, so that it writes each piece again byte for byte.

use std::io;
use std::path::Path;

use crate::bridge::{JoinSnapshot, SnapshotRefusal};
use crate::services::maintenance::backup::log_records;
use crate::services::threads::priority::PacedLoop;
use crate::services::visits::copies::view_with_logs;
use carom_store::backup::Section;
use carom_store::backup::frames::{FramePlace, FrameWriter};
use carom_store::backup::pieces::{PIECE_HEAD_LEN, PIECE_LEN, PieceChain};
use carom_store::links::catalog::View;
use carom_store::links::{Links, value_for_joining_node};

/// Sections that stay with this node. [`Section::Allowances`] has visits that Redis has granted to this node alone. Of
/// [`Section::VisitLog`], Redis has the part that all nodes get.
const KEPT_HERE: [Section; 2] = [Section::Allowances, Section::VisitLog];

/// The place at which a piece begins.
#[derive(Clone, Debug)]
struct PieceStart {
    /// The pieces before it.
    chain: PieceChain,
    /// The place in the stream; `None` at its beginning.
    frames: Option<FramePlace>,
    /// The index of its first section in [`Section::ALL`].
    section: usize,
    /// The key of that section behind which its records begin; empty for all.
    behind: Vec<u8>,
}

/// A snapshot of the store.
pub(super) struct OpenSnapshot {
    /// The description for the joining node.
    pub(super) about: JoinSnapshot,
    view: View,
    /// Count logs that the view lacks.
    logs: Vec<(u32, Vec<u8>)>,
    /// The starts of all pieces that were written, and of the next one.
    starts: Vec<PieceStart>,
    /// The number of the piece that was returned last, and how often it was. A client that did not get it asks again.
    last: Option<(u32, u32)>,
    /// The piece behind it with its number, written before anyone asks for it.
    ahead: Option<(u32, Vec<u8>)>,
}

impl OpenSnapshot {
    /// Takes a snapshot. `about` gets its numbers of links, records and bytes.
    ///
    /// # Errors
    /// If the counts of visits cannot be read.
    pub(super) fn open(links: &Links, data_dir: &Path, about: JoinSnapshot) -> io::Result<OpenSnapshot> {
        let (view, logs) = view_with_logs(links, data_dir)?;
        let sent = Section::ALL.into_iter().filter(|section| !KEPT_HERE.contains(section));
        let records = sent.map(|section| view.approximate_records(section)).sum();
        let about = JoinSnapshot {
            links: view.approximate_records(Section::Links),
            records,
            bytes: links.disk_bytes(),
            ..about
        };
        let chain = PieceChain::begin(about.id);
        let starts = vec![PieceStart { chain, frames: None, section: 0, behind: Vec::new() }];
        Ok(OpenSnapshot { about, view, logs, starts, last: None, ahead: None })
    }

    /// Returns a piece.
    ///
    /// # Errors
    /// [`SnapshotRefusal::NoPiece`] for the number of no piece, or of one whose predecessor was not written;
    /// [`SnapshotRefusal::Failed`] if the store cannot be read.
    pub(super) fn piece(&mut self, number: u32) -> Result<Vec<u8>, SnapshotRefusal> {
        let piece = match self.ahead.take_if(|(ahead, _)| *ahead == number) {
            Some((_, piece)) => piece,
            None => self.written(number)?,
        };
        let before = self.last.filter(|(last, _)| *last == number).map_or(0, |(_, times)| times);
        self.last = Some((number, before.saturating_add(1)));
        Ok(piece)
    }

    /// Writes the piece behind the one that was returned last, so that a client that asks for it need not wait for the
    /// store. Does nothing if this piece is there already, or before the first piece and behind the last one.
    pub(super) fn write_ahead(&mut self) {
        let Some(number) = self.last.map(|(last, _)| last + 1) else { return };
        if self.ahead.as_ref().is_none_or(|(ahead, _)| *ahead != number) {
            // A failure shows when the client asks for the piece.
            self.ahead = self.written(number).ok().map(|piece| (number, piece));
        }
    }

    /// True if the piece behind the one that was returned last is written.
    #[cfg(test)]
    pub(super) fn is_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Reads the store and returns a piece.
    fn written(&mut self, number: u32) -> Result<Vec<u8>, SnapshotRefusal> {
        let start = self.starts.get(number as usize).filter(|start| !start.chain.is_complete());
        let start = start.ok_or(SnapshotRefusal::NoPiece)?.clone();
        let (piece, next) = self.write(start).map_err(SnapshotRefusal::Failed)?;
        if self.starts.len() == number as usize + 1 {
            self.starts.push(next);
        }
        Ok(piece)
    }

    /// True if the last piece counts against the rate. The first repetition does not: the client has not got the response
    /// that was counted, because it stopped waiting for it.
    pub(super) fn is_charged(&self) -> bool {
        self.last.is_none_or(|(_, times)| times != 2)
    }

    /// Writes the piece that begins at a place. Returns the place behind it.
    fn write(&self, start: PieceStart) -> Result<(Vec<u8>, PieceStart), String> {
        let failed = |error: io::Error| error.to_string();
        let PieceStart { mut chain, frames, mut section, mut behind } = start;
        let mut out = Vec::with_capacity(PIECE_LEN + PIECE_LEN / 8);
        out.resize(PIECE_HEAD_LEN, 0);
        let mut writer = match frames {
            None => FrameWriter::begin(out).map_err(failed)?,
            Some(place) => FrameWriter::resume(out, place),
        };
        let mut len = 0;
        while let Some(of) = Section::ALL.get(section) {
            let (mut written, mut last) = (Ok(()), None);
            self.each_behind(*of, &behind, |key, value| {
                let sent = if *of == Section::Fleet { value_for_joining_node(key, value) } else { Some(value) };
                let Some(value) = sent else { return true };
                written = writer.add(*of, key, value);
                len += key.len() + value.len();
                if len >= PIECE_LEN {
                    last = Some(key.to_vec());
                }
                written.is_ok() && last.is_none()
            })?;
            written.map_err(failed)?;
            if let Some(last) = last {
                behind = last;
                break;
            }
            (section, behind) = (section + 1, Vec::new());
        }
        let (mut piece, frames) = if section == Section::ALL.len() {
            (writer.end().map_err(failed)?, None)
        } else {
            let (piece, place) = writer.pause().map_err(failed)?;
            (piece, Some(place))
        };
        chain.seal(&mut piece, section == Section::ALL.len());
        Ok((piece, PieceStart { chain, frames, section, behind }))
    }

    /// Passes the records of a section behind a key to `each`, until it returns false; none of [`KEPT_HERE`].
    fn each_behind(
        &self,
        section: Section,
        behind: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), String> {
        if KEPT_HERE.contains(&section) {
            return Ok(());
        }
        if section == Section::CountLogs {
            let mut left = log_records(&self.logs).skip_while(|(key, _)| !behind.is_empty() && key[..] <= *behind);
            let _ = left.all(|(key, piece)| each(&key, piece));
            return Ok(());
        }
        let mut paced = PacedLoop::default();
        let paced_each = |key: &[u8], value: &[u8]| {
            paced.step();
            each(key, value)
        };
        self.view.dump_after(section, behind, paced_each).map_err(|error| format!("{section}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::KEY;
    use carom_model::link::LinkIdentity;
    use carom_model::replication::follow::StreamPosition;
    use carom_model::replication::{EntryId, Partition};
    use carom_model::visits::allowance::StoredAllowance;
    use carom_shards::Code;
    use carom_store::backup::RecordCounts;
    use carom_store::backup::frames::{FrameError, FrameReader};
    use std::time::Duration;

    const PLACE: StreamPosition = StreamPosition { id: EntryId { ms: 7, seq: 8 }, check: 9 };

    fn about() -> JoinSnapshot {
        let (node, fingerprint) = ("n1".to_owned(), KEY.to_owned());
        JoinSnapshot { id: 5, node, fingerprint, taken_ms: 1, links: 0, records: 0, bytes: 0 }
    }

    /// Returns a store with so many records of a kilobyte, and a place in a stream.
    fn store(dir: &Path, records: usize) -> Links {
        let (links, _) = Links::open(&dir.join("links"), KEY).unwrap();
        let mut batch = links.batch();
        for number in 0..records {
            batch.put(&Code::parse(format!("c{number:06}").as_bytes()).unwrap(), &[7; 1_000]);
        }
        batch.set_last_contact("boot", Duration::from_secs(1));
        batch.set_position(Partition(3), &PLACE);
        links.commit(batch).unwrap();
        links
    }

    /// Reads all pieces, and returns the stream.
    fn stream(snapshot: &mut OpenSnapshot) -> Vec<u8> {
        let mut chain = PieceChain::begin(5);
        let mut stream = Vec::new();
        while !chain.is_complete() {
            let piece = snapshot.piece(chain.next()).unwrap();
            stream.extend_from_slice(chain.open(&piece).unwrap());
        }
        assert_eq!(snapshot.piece(chain.next()), Err(SnapshotRefusal::NoPiece));
        stream
    }

    fn counts(stream: &[u8]) -> RecordCounts {
        let mut reader = FrameReader::begin(stream).unwrap();
        while reader.next_frame(|_, _, _| Ok::<_, FrameError>(())).unwrap() {}
        *reader.counts()
    }

    #[test]
    fn pieces_are_one_stream() {
        let dir = tempfile::tempdir().unwrap();
        let links = store(dir.path(), 10_000);
        let mut snapshot = OpenSnapshot::open(&links, dir.path(), about()).unwrap();
        let stream = stream(&mut snapshot);
        assert_eq!(snapshot.starts.len(), 4, "10 MB are three pieces");
        let counts = counts(&stream);
        assert_eq!((counts.of(Section::Links), counts.of(Section::Fleet)), (10_000, 2));
        assert_eq!(snapshot.about.links, 10_000);
    }

    #[test]
    fn piece_can_be_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let links = store(dir.path(), 10_000);
        let mut snapshot = OpenSnapshot::open(&links, dir.path(), about()).unwrap();
        assert_eq!(snapshot.piece(1), Err(SnapshotRefusal::NoPiece), "the first piece comes first");
        let first = snapshot.piece(0).unwrap();
        assert_eq!(snapshot.piece(0).unwrap(), first);
        let second = snapshot.piece(1).unwrap();
        // Later changes are not in the snapshot.
        let mut batch = links.batch();
        batch.put(&Code::parse(b"c000001").unwrap(), b"changed");
        batch.put(&Code::parse(b"c000001a").unwrap(), b"new");
        links.commit(batch).unwrap();
        assert_eq!(snapshot.piece(0).unwrap(), first);
        assert_eq!(snapshot.piece(1).unwrap(), second);
        assert_eq!(counts(&stream(&mut snapshot)).of(Section::Links), 10_000);
    }

    #[test]
    fn next_piece_is_written_ahead() {
        let dir = tempfile::tempdir().unwrap();
        let links = store(dir.path(), 10_000);
        let mut snapshot = OpenSnapshot::open(&links, dir.path(), about()).unwrap();
        let ahead = |snapshot: &OpenSnapshot| snapshot.ahead.as_ref().map(|(number, _)| *number);
        snapshot.write_ahead();
        assert_eq!(ahead(&snapshot), None, "nobody reads yet");
        let pieces: Vec<Vec<u8>> = (0..3)
            .map(|number| {
                let piece = snapshot.piece(number).unwrap();
                assert_eq!(ahead(&snapshot), None);
                snapshot.write_ahead();
                assert_eq!(ahead(&snapshot), Some(number + 1).filter(|next| *next < 3));
                piece
            })
            .collect();
        // The pieces are those that a client without this head start gets.
        let mut again = OpenSnapshot::open(&links, dir.path(), about()).unwrap();
        assert!((0..3).all(|number| again.piece(number).unwrap() == pieces[number as usize]));
        // A client that begins again gets its own piece, and then the one behind it.
        assert_eq!(snapshot.piece(0).unwrap(), pieces[0]);
        snapshot.write_ahead();
        assert_eq!(snapshot.piece(1).unwrap(), pieces[1]);
    }

    #[test]
    fn leases_and_grants_stay_with_their_node() {
        let dir = tempfile::tempdir().unwrap();
        let links = store(dir.path(), 1);
        let (code, of) = (Code::parse(b"c000000").unwrap(), LinkIdentity { created_ms: 1, claim: 2 });
        let mut batch = links.batch();
        batch.set_allowance(&code, &StoredAllowance { of, taken: 3, parked: 4 });
        batch.set_log_time(5, links.log_position());
        links.commit(batch).unwrap();
        let mut snapshot = OpenSnapshot::open(&links, dir.path(), about()).unwrap();
        let stream = stream(&mut snapshot);
        let mut reader = FrameReader::begin(&stream[..]).unwrap();
        let mut fleet = Vec::new();
        while reader
            .next_frame(|section, key, value| {
                if section == Section::Fleet {
                    fleet.push((key.to_vec(), value.to_vec()));
                }
                assert!(![Section::Allowances, Section::VisitLog].contains(&section));
                Ok::<_, FrameError>(())
            })
            .unwrap()
        {}
        let heard = fleet.iter().find(|(key, _)| key == b"heard").unwrap();
        assert!(heard.1.is_empty());
        assert!(!fleet.iter().any(|(key, _)| key[0] == b't'), "the other node has a change log of its own");
        assert!(fleet.iter().any(|(key, value)| key[..] == [b'p', 3] && value.len() == 32));
    }

    #[test]
    fn empty_store_is_one_piece() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(&dir.path().join("links"), KEY).unwrap();
        let mut snapshot = OpenSnapshot::open(&links, dir.path(), about()).unwrap();
        assert!(counts(&stream(&mut snapshot)).of(Section::Meta) > 0);
        assert_eq!(snapshot.starts.len(), 2);
    }
}
