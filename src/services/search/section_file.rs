//! The section file keeps search sections over a restart: a file in the data directory with their signatures, as of a
//! position of the change log.
//!
//! The file is written aside and then renamed. Each section has its own checksum, so that damage costs only that
//! section. The file may be older than the store: the reader adds the links that changed since. Texts stay in the text
//! file ([`super::text_file`]), except those of sections that still take new links.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::recent_texts::TextsInMemory;
use super::section::{IndexSection, SIGNATURE_BYTES, Source};
use super::text_file::TextFile;
use crate::services::threads::priority::pause_if_due;
use carom_store::links::LogPosition;

/// Name of the file.
const NAME: &str = "search.sections";

/// Name of the new file until the rename.
const NEW_NAME: &str = "search.sections.new";

/// The last bytes of the file, which name its format.
const MAGIC: [u8; 8] = *b"caromS01";

/// Bytes after the directory: position, number of sections, checksum, format.
const TRAILER_LEN: usize = 32;

/// Bytes of a directory entry: the length of a section and its checksum.
const ENTRY_LEN: usize = 12;

/// Largest size of a section in bytes: its signature, its keys, and the texts of one that takes new links. A larger one
/// counts as damaged.
const SECTION_BYTES_MAX: usize = 64 << 20;

/// A section as of one moment, and the first key after it.
pub(super) type SectionImage = (IndexSection, Box<[u8]>);

/// Writes sections that include all changes up to a position.
///
/// # Errors
/// If the disk fails. The old file then stays.
pub(super) fn write(dir: &Path, position: LogPosition, sections: &[SectionImage]) -> io::Result<()> {
    let new = dir.join(NEW_NAME);
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let mut file = BufWriter::with_capacity(SIGNATURE_BYTES * 4, file);
    let (mut directory, mut bytes) = (Vec::with_capacity(sections.len() * ENTRY_LEN), Vec::new());
    for (section, end) in sections {
        pause_if_due();
        bytes.clear();
        encode(section, end, &mut bytes);
        file.write_all(&bytes)?;
        directory.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        directory.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
    }
    let mut trailer = [position.0.to_le_bytes(), (sections.len() as u64).to_le_bytes()].concat();
    let sum = checksum(&directory, &trailer);
    trailer.extend_from_slice(&sum.to_le_bytes());
    trailer.extend_from_slice(&MAGIC);
    file.write_all(&directory)?;
    file.write_all(&trailer)?;
    // No sync: whatever a power failure leaves of the file is verified before use.
    file.into_inner().map_err(io::IntoInnerError::into_error)?;
    std::fs::rename(&new, dir.join(NAME))
}

/// Removes the file, if it exists. An error harms only a purge: the file is verified before use.
///
/// # Errors
/// If the disk refuses.
pub(super) fn remove(dir: &Path) -> io::Result<()> {
    for name in [NAME, NEW_NAME] {
        match std::fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Reads the sections, which cover the index without gaps up to its end, and the position up to which they have all
/// changes. A damaged section comes back without texts and signature. Returns `None` if the file does not exist or none
/// of it is usable.
///
/// # Errors
/// If the disk fails.
pub(super) fn read(dir: &Path, texts: &Arc<TextFile>) -> io::Result<Option<(LogPosition, Vec<IndexSection>)>> {
    let mut file = match File::open(dir.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let Some((position, directory)) = read_directory(&mut file)? else { return Ok(None) };
    file.seek(SeekFrom::Start(0))?;
    let mut file = BufReader::with_capacity(SIGNATURE_BYTES * 4, file);
    let (mut sections, mut expected, mut bytes) = (Vec::new(), None::<Box<[u8]>>, Vec::new());
    for entry in directory.chunks_exact(ENTRY_LEN) {
        pause_if_due();
        let (len, sum) = (u32_of(&entry[..4]) as usize, u64_of(&entry[4..]));
        bytes.resize(len, 0);
        file.read_exact(&mut bytes)?;
        let decoded = (xxh3_64(&bytes) == sum).then(|| decode(&mut Bytes(&bytes), texts)).flatten();
        let Some((section, end)) = decoded else { continue };
        match expected.replace(end) {
            // A gap is filled with an unsigned section. What comes before the first section is signed like any other
            // range.
            Some(first) if first != section.first => sections.push(IndexSection::unsigned(&first)),
            _ => {}
        }
        sections.push(section);
    }
    match expected {
        None => return Ok(None),
        Some(first) if !first.is_empty() => sections.push(IndexSection::unsigned(&first)),
        Some(_) => {}
    }
    let in_order = sections.windows(2).all(|pair| pair[0].first < pair[1].first);
    Ok(in_order.then_some((position, sections)))
}

/// Reads the position and the directory; `None` if their checksum or format is wrong.
fn read_directory(file: &mut File) -> io::Result<Option<(LogPosition, Vec<u8>)>> {
    let len = file.metadata()?.len();
    let Some(trailer_at) = len.checked_sub(TRAILER_LEN as u64) else { return Ok(None) };
    file.seek(SeekFrom::Start(trailer_at))?;
    let mut trailer = [0; TRAILER_LEN];
    file.read_exact(&mut trailer)?;
    let (numbers, rest) = trailer.split_at(16);
    let (position, count) = (u64_of(&numbers[..8]), u64_of(&numbers[8..]));
    let directory_len = count.saturating_mul(ENTRY_LEN as u64);
    if rest[8..] != MAGIC || directory_len > trailer_at {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(trailer_at - directory_len))?;
    let mut directory = vec![0; directory_len as usize];
    file.read_exact(&mut directory)?;
    let sections_len = directory.chunks_exact(ENTRY_LEN).map(|entry| u64::from(u32_of(&entry[..4]))).sum::<u64>();
    let is_right = checksum(&directory, numbers) == u64_of(&rest[..8]) && sections_len == trailer_at - directory_len;
    Ok(is_right.then_some((LogPosition(position), directory)))
}

fn checksum(directory: &[u8], numbers: &[u8]) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(directory);
    sum.update(numbers);
    sum.digest()
}

fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("it has four bytes"))
}

fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("it has eight bytes"))
}

fn put(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn encode(section: &IndexSection, end: &[u8], out: &mut Vec<u8>) {
    put(&section.first, out);
    put(end, out);
    out.extend_from_slice(&section.len.to_le_bytes());
    let (first, last) = section.bounds.as_ref().map_or((&[][..], &[][..]), |(first, last)| (first, last));
    put(first, out);
    put(last, out);
    out.push(u8::from(section.signature.is_some()));
    if let Some(signature) = &section.signature {
        signature.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }
    out.extend_from_slice(&(section.late().len() as u32).to_le_bytes());
    section.late().iter().for_each(|key| put(key, out));
    match &section.texts {
        Source::None => out.push(0),
        Source::Stored(extent) => {
            out.push(1);
            extent.place().iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        }
        Source::Memory(held) => {
            out.push(2);
            let entries = held.chunks().iter().flat_map(|chunk| chunk.entries());
            entries.for_each(|entry| put(entry, out));
        }
    }
}

/// A cursor over the rest of an encoded section.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4).map(u32_of)
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let len = self.number()?;
        self.take(len as usize)
    }
}

fn decode(bytes: &mut Bytes<'_>, texts: &Arc<TextFile>) -> Option<SectionImage> {
    if bytes.0.len() > SECTION_BYTES_MAX {
        return None;
    }
    let first = bytes.bytes()?;
    let end = bytes.bytes()?;
    let mut section = IndexSection::unsigned(first);
    let len = bytes.number()?;
    let bounds = (bytes.bytes()?, bytes.bytes()?);
    section.bounds = (!bounds.0.is_empty()).then(|| (bounds.0.to_vec(), bounds.1.to_vec()));
    if bytes.take(1)? == [1] {
        let words = bytes.take(SIGNATURE_BYTES)?.chunks_exact(8).map(u64_of);
        section.sign(words.collect());
    }
    for _ in 0..bytes.number()? {
        section.add_late(bytes.bytes()?);
    }
    section.len = len;
    section.texts = match bytes.take(1)? {
        [0] => Source::None,
        [1] => {
            let mut numbers = [0; 4];
            for number in &mut numbers {
                *number = bytes.take(8).map(u64_of)?;
            }
            Source::Stored(Arc::new(texts.extent(numbers)?))
        }
        [2] => {
            let mut held = TextsInMemory::default();
            while !bytes.0.is_empty() {
                let entry = bytes.bytes()?;
                // An entry has at least the key that its first byte promises.
                entry.get(..=usize::from(*entry.first()?))?;
                held.push(entry);
            }
            Source::Memory(held)
        }
        _ => return None,
    };
    Some((section, end.into()))
}
