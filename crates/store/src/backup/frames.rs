//! The store as a stream: a title, then frames of some records each, and a last frame with the number of records. A
//! running node can write the stream to a file or socket.
//!
//! A frame is a head of 32 bytes and a payload. The head has a mark, the section, the number of the frame, the number
//! of records, and the length of the payload. Its last field is a checksum over all of that and the payload. A record
//! is the lengths of its key and its value, seven bits a byte, then both.

use std::fmt;
use std::io::{self, Read, Write};

use xxhash_rust::xxh3::Xxh3;

use super::{RecordCounts, Section};
use carom_model::visits::tally::{push_number, take_bytes};

/// The first bytes of a stream, which name its format.
const TITLE: &[u8; 16] = b"carom store 1\n\n\n";

/// The first bytes of a frame.
const MARK: [u8; 4] = *b"FRAM";

const HEAD_LEN: usize = 32;

/// Approximate size of the records in a frame, in bytes.
const PAYLOAD_LEN: usize = 256 * 1024;

/// Longest payload that is accepted, in bytes. A single long record may exceed the usual size, but never this one.
const PAYLOAD_LEN_MAX: usize = 64 * 1024 * 1024;

/// Section number of the last frame, whose payload has the number of records by section.
const LAST: u8 = 255;

/// Section number of a frame that reports why the writer failed.
const BROKEN: u8 = 254;

/// A defect of a stream, and its position.
#[derive(Debug)]
pub enum FrameError {
    /// The stream cannot be read or written.
    Io(io::Error),
    /// The stream is damaged.
    Damaged {
        /// The offset of the damaged frame, in bytes.
        at: u64,
        /// A description of the damage.
        what: String,
    },
    /// The writer of the stream failed, with its reason.
    Broken(String),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Io(error) => write!(f, "{error}"),
            FrameError::Damaged { at, what } => write!(f, "at byte {at}: {what}"),
            FrameError::Broken(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for FrameError {}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> FrameError {
        FrameError::Io(error)
    }
}

/// A writer of a stream.
#[derive(Debug)]
pub struct FrameWriter<W> {
    out: W,
    number: u32,
    section: Section,
    records: u32,
    payload: Vec<u8>,
    counts: RecordCounts,
}

/// A place between two frames of a stream, at which a writer continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FramePlace {
    number: u32,
    section: Section,
    counts: RecordCounts,
}

impl<W: Write> FrameWriter<W> {
    /// Begins a stream.
    ///
    /// # Errors
    /// The error of the output.
    pub fn begin(mut out: W) -> io::Result<FrameWriter<W>> {
        out.write_all(TITLE)?;
        let payload = Vec::with_capacity(2 * PAYLOAD_LEN);
        Ok(FrameWriter { out, number: 0, section: Section::Meta, records: 0, payload, counts: RecordCounts::default() })
    }

    /// Continues a stream whose earlier frames are elsewhere.
    pub fn resume(out: W, place: FramePlace) -> FrameWriter<W> {
        let FramePlace { number, section, counts } = place;
        FrameWriter { out, number, section, records: 0, payload: Vec::with_capacity(2 * PAYLOAD_LEN), counts }
    }

    /// Ends the present frame. Returns the output, and the place at which [`FrameWriter::resume`] continues.
    ///
    /// # Errors
    /// The error of the output.
    pub fn pause(mut self) -> io::Result<(W, FramePlace)> {
        self.flush()?;
        let place = FramePlace { number: self.number, section: self.section, counts: self.counts };
        Ok((self.out, place))
    }

    /// Adds a record. The records of a section are adjacent, in the order of their keys.
    ///
    /// # Errors
    /// The error of the output.
    pub fn add(&mut self, section: Section, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert!(section >= self.section, "a restore expects the sections in their order");
        if self.payload.len() >= PAYLOAD_LEN || self.section != section {
            self.flush()?;
            self.section = section;
        }
        push_number(key.len() as u64, &mut self.payload);
        self.payload.extend_from_slice(key);
        push_number(value.len() as u64, &mut self.payload);
        self.payload.extend_from_slice(value);
        self.records += 1;
        self.counts.add(section, 1);
        Ok(())
    }

    /// Ends the stream, and returns the output.
    ///
    /// # Errors
    /// The error of the output.
    pub fn end(mut self) -> io::Result<W> {
        self.flush()?;
        assert!(self.payload.is_empty(), "records would be read as counts");
        for section in Section::ALL {
            self.payload.extend_from_slice(&self.counts.of(section).to_le_bytes());
        }
        self.write_frame(LAST)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Ends the stream with the reason why it is incomplete.
    ///
    /// # Errors
    /// The error of the output.
    pub fn break_off(mut self, why: &str) -> io::Result<()> {
        self.payload.clear();
        self.records = 0;
        self.payload.extend_from_slice(why.as_bytes());
        self.write_frame(BROKEN)?;
        self.out.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.records == 0 {
            return Ok(());
        }
        self.write_frame(self.section as u8)
    }

    fn write_frame(&mut self, section: u8) -> io::Result<()> {
        assert!(section >= BROKEN || self.records > 0, "a frame without records has no place");
        assert!(section < BROKEN || self.records == 0, "the last frame has counts and no records");
        let head = head(section, self.number, self.records, &self.payload);
        self.out.write_all(&head)?;
        self.out.write_all(&self.payload)?;
        self.number += 1;
        self.records = 0;
        self.payload.clear();
        Ok(())
    }
}

/// Builds the head of a frame.
fn head(section: u8, number: u32, records: u32, payload: &[u8]) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..4].copy_from_slice(&MARK);
    head[4] = section;
    head[8..12].copy_from_slice(&number.to_le_bytes());
    head[12..16].copy_from_slice(&records.to_le_bytes());
    head[16..24].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    let sum = sum(&head[..24], payload);
    head[24..].copy_from_slice(&sum.to_le_bytes());
    head
}

fn sum(head: &[u8], payload: &[u8]) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(head);
    sum.update(payload);
    sum.digest()
}

/// A frame that a [`FrameReader`] has read, and whose records are yet to be passed on.
#[derive(Clone, Copy, Debug)]
pub struct ReadFrame {
    /// The section of all its records.
    pub section: Section,
    records: u32,
    /// The offset of the frame.
    at: u64,
}

/// A reader of a stream, which can copy every byte to another writer.
#[derive(Debug)]
pub struct FrameReader<R, C = io::Sink> {
    input: R,
    copy: C,
    /// Bytes read so far.
    at: u64,
    number: u32,
    payload: Vec<u8>,
    counts: RecordCounts,
}

impl<R: Read> FrameReader<R> {
    /// Begins to read a stream.
    ///
    /// # Errors
    /// [`FrameError`] if the input cannot be read, or is not such a stream.
    pub fn begin(input: R) -> Result<FrameReader<R>, FrameError> {
        FrameReader::copying(input, io::sink())
    }
}

impl<R: Read, C: Write> FrameReader<R, C> {
    /// Begins to read a stream, and copies every byte to `copy`.
    ///
    /// # Errors
    /// [`FrameError`] if the input cannot be read or copied, or is not such a stream.
    pub fn copying(mut input: R, mut copy: C) -> Result<FrameReader<R, C>, FrameError> {
        let mut title = [0; TITLE.len()];
        read_all(&mut input, &mut title, 0)?;
        if title != *TITLE {
            return Err(damaged(0, "not the store of a backup, or a newer version wrote it"));
        }
        copy.write_all(&title)?;
        let at = TITLE.len() as u64;
        Ok(FrameReader { input, copy, at, number: 0, payload: Vec::new(), counts: RecordCounts::default() })
    }

    /// Returns the number of bytes read so far.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Passes the records of the next frame to `each`. Returns false after the last frame, if its counts match.
    ///
    /// # Errors
    /// The defect of the stream, or the error of `each`. Earlier records have been passed on by then.
    pub fn next_frame<E: From<FrameError>>(
        &mut self,
        mut each: impl FnMut(Section, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let Some(frame) = self.read()? else { return Ok(false) };
        let section = frame.section;
        self.each_record(frame, |key, value| each(section, key, value))?;
        Ok(true)
    }

    /// Reads the next frame, whose records [`FrameReader::each_record`] then passes on. Returns `None` after the last
    /// frame, if its counts match.
    ///
    /// # Errors
    /// The defect of the stream.
    pub fn read(&mut self) -> Result<Option<ReadFrame>, FrameError> {
        let at = self.at;
        match self.read_frame()? {
            (Some(section), records) => Ok(Some(ReadFrame { section, records, at })),
            (None, _) => self.check_end(at).map(|()| None),
        }
    }

    /// Passes the records of the frame that was read last to `each`, without a copy.
    ///
    /// # Errors
    /// The defect of the frame, or the error of `each`. Earlier records have been passed on by then.
    pub fn each_record<E: From<FrameError>>(
        &mut self,
        frame: ReadFrame,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let ReadFrame { section, records, at } = frame;
        let mut rest = &self.payload[..];
        for _ in 0..records {
            let record = take_bytes(&mut rest).and_then(|key| Some((key, take_bytes(&mut rest)?)));
            let Some((key, value)) = record else {
                return Err(damaged(at, "a record of the frame is truncated").into());
            };
            each(key, value)?;
        }
        if !rest.is_empty() {
            return Err(damaged(at, "the frame has data after its records").into());
        }
        self.counts.add(section, u64::from(records));
        Ok(())
    }

    /// Returns the number of records so far, by section.
    pub fn counts(&self) -> &RecordCounts {
        &self.counts
    }

    /// Reads a frame into the payload buffer. Returns its section and number of records; no section for the last frame.
    fn read_frame(&mut self) -> Result<(Option<Section>, u32), FrameError> {
        let at = self.at;
        let mut head = [0; HEAD_LEN];
        read_all(&mut self.input, &mut head, at)?;
        let number = |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
        let len = u64::from(number(16)) | u64::from(number(20)) << 32;
        let len = usize::try_from(len).ok().filter(|len| *len <= PAYLOAD_LEN_MAX);
        let Some(len) = len.filter(|_| head[..4] == MARK) else {
            return Err(damaged(at, "expected the start of a frame"));
        };
        self.payload.resize(len, 0);
        read_all(&mut self.input, &mut self.payload, at)?;
        if sum(&head[..24], &self.payload).to_le_bytes() != head[24..] {
            return Err(damaged(at, format!("the frame of {len} bytes is damaged: its checksum does not match")));
        }
        if number(8) != self.number {
            return Err(damaged(at, format!("found frame {}, expected frame {}", number(8), self.number)));
        }
        self.number += 1;
        self.at += (HEAD_LEN + len) as u64;
        debug_assert_eq!(self.payload.len(), len, "the copy would lack bytes that were checked");
        self.copy.write_all(&head)?;
        self.copy.write_all(&self.payload)?;
        match head[4] {
            LAST => Ok((None, 0)),
            BROKEN => Err(FrameError::Broken(String::from_utf8_lossy(&self.payload).into_owned())),
            section => match Section::ALL.get(usize::from(section)) {
                Some(section) => Ok((Some(*section), number(12))),
                None => Err(damaged(
                    at,
                    format!("the frame belongs to the unknown section {section}; a newer version may have written it"),
                )),
            },
        }
    }

    /// Compares the counts of the last frame with the records that were read.
    fn check_end(&mut self, at: u64) -> Result<(), FrameError> {
        let mut said = RecordCounts::default();
        for (section, count) in Section::ALL.into_iter().zip(self.payload.chunks(8)) {
            said.add(section, count.try_into().map_or(0, u64::from_le_bytes));
        }
        if said != self.counts {
            return Err(damaged(at, "the number of records differs from the total in the last frame"));
        }
        self.copy.flush()?;
        if self.input.read(&mut [0])? > 0 {
            return Err(damaged(self.at, "there is data after the last frame"));
        }
        Ok(())
    }
}

fn damaged(at: u64, what: impl Into<String>) -> FrameError {
    FrameError::Damaged { at, what: what.into() }
}

fn read_all(input: &mut impl Read, into: &mut [u8], at: u64) -> Result<(), FrameError> {
    input.read_exact(into).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(at, "the file ends within the frame that starts here"),
        _ => FrameError::Io(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Vec<u8> {
        let mut writer = FrameWriter::begin(Vec::new()).unwrap();
        for number in 0..40_000_u32 {
            writer.add(Section::Links, &number.to_be_bytes(), &[7; 20]).unwrap();
        }
        writer.add(Section::Fleet, b"", b"").unwrap();
        writer.end().unwrap()
    }

    type Seen = Vec<(Section, Vec<u8>, Vec<u8>)>;

    fn read(bytes: &[u8]) -> Result<Seen, FrameError> {
        let mut copied = Vec::new();
        let mut reader = FrameReader::copying(bytes, &mut copied)?;
        let mut seen = Vec::new();
        while reader.next_frame(|section, key, value| {
            seen.push((section, key.to_vec(), value.to_vec()));
            Ok::<_, FrameError>(())
        })? {}
        assert_eq!((reader.counts().total(), reader.position()), (seen.len() as u64, bytes.len() as u64));
        assert_eq!(copied, bytes);
        Ok(seen)
    }

    #[test]
    fn what_was_written_is_read() {
        let seen = read(&stream()).unwrap();
        assert_eq!(seen.len(), 40_001);
        assert_eq!(seen[258], (Section::Links, vec![0, 0, 1, 2], vec![7; 20]));
        assert_eq!(seen[40_000], (Section::Fleet, vec![], vec![]));
        assert!(read(&FrameWriter::begin(Vec::new()).unwrap().end().unwrap()).unwrap().is_empty());
    }

    #[test]
    fn paused_stream_is_one_stream() {
        let mut parts = Vec::new();
        let mut place = None;
        for part in 0..5_u32 {
            let mut writer = match place {
                None => FrameWriter::begin(Vec::new()).unwrap(),
                Some(place) => FrameWriter::resume(Vec::new(), place),
            };
            for number in 0..3_000_u32 {
                writer.add(Section::Links, &(part * 3_000 + number).to_be_bytes(), &[7; 20]).unwrap();
            }
            let (bytes, next) = writer.pause().unwrap();
            parts.extend(bytes);
            place = Some(next);
        }
        let last = FrameWriter::resume(Vec::new(), place.unwrap()).end().unwrap();
        let seen = read(&[parts, last].concat()).unwrap();
        assert_eq!(seen.len(), 15_000);
        assert!(seen.is_sorted());
    }

    #[test]
    fn no_byte_can_be_changed_lost_or_added() {
        let good = stream();
        // Errors report the offset of the frame.
        let places = (0..good.len()).step_by(997).chain(0..80).chain(good.len() - 120..good.len());
        for at in places {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            let error = read(&bad).unwrap_err();
            let FrameError::Damaged { at: said, .. } = error else { panic!("{error}") };
            assert!(said <= at as u64, "{at} {said}");
            assert!(at as u64 - said <= 300_000, "{at} {said}");
        }
        for len in [0, 10, 16, 40, 100, good.len() / 2, good.len() - 1] {
            assert!(matches!(read(&good[..len]), Err(FrameError::Damaged { .. })), "{len}");
        }
        assert!(read(&[&good[..], b"x"].concat()).is_err());
        // A frame that is missing, or duplicated.
        let first = 16 + HEAD_LEN + u32::from_le_bytes(good[32..36].try_into().unwrap()) as usize;
        assert!(read(&[&good[..16], &good[first..]].concat()).is_err());
        assert!(read(&[&good[..first], &good[16..]].concat()).is_err());
    }

    #[test]
    fn whoever_cannot_go_on_says_so() {
        let mut out = Vec::new();
        let mut writer = FrameWriter::begin(&mut out).unwrap();
        writer.add(Section::Links, b"a", b"b").unwrap();
        writer.break_off("the node ends").unwrap();
        assert!(matches!(read(&out), Err(FrameError::Broken(why)) if why == "the node ends"));
    }
}
