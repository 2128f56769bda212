//! The file of an image: a header and blocks of one size, each with a checksum. No threads, no policy.
//!
//! A block holds records as [`LoadBatch`] has them, so that it is read and checked by itself and blocks are read in
//! parallel. The checksum of a block covers its number and the position of the image: a block that turns up at another
//! place or comes from an older image is damaged.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::limits::IMAGE_BLOCK_BYTES;
use crate::mail::LoadBatch;
use crate::store::links::LogPosition;

/// The name of the file in a data directory.
pub const FILE_NAME: &str = "links.image";

const MAGIC: &[u8; 8] = b"caromimg";

/// The form of the file. An image of another form is not read.
const VERSION: u32 = 1;

const HEADER_LEN: usize = 4096;

/// Before the records of a block: checksum, length of the records, their number.
const BLOCK_HEAD_LEN: usize = 16;

/// Bytes that a record takes beside key and value.
const FRAME_LEN: usize = 6;

/// Why a file is no image that can be used. The store has everything that it had.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The operating system refused to read it.
    Io(io::Error),
    /// A program of another version made it.
    OtherVersion(u32),
    /// Some byte is not what was written.
    Damaged(String),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unusable::Io(error) => write!(f, "it cannot be read: {error}"),
            Unusable::OtherVersion(version) => write!(f, "found version {version}, expected {VERSION}"),
            Unusable::Damaged(what) => f.write_str(what),
        }
    }
}

/// An image that is open for reading.
#[derive(Debug)]
pub(crate) struct Image {
    file: File,
    /// The image has every change of links up to there.
    pub(crate) position: LogPosition,
    /// How many records it has.
    pub(crate) records: u64,
    /// How many blocks.
    pub(crate) blocks: u64,
}

impl Image {
    /// Opens an image and checks its header and length; `None` where there is no file.
    pub(crate) fn open(path: &Path) -> Result<Option<Image>, Unusable> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Unusable::Io(error)),
        };
        let mut header = [0; HEADER_LEN];
        file.read_exact_at(&mut header, 0).map_err(Unusable::Io)?;
        let number = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().expect("it is inside the header"));
        if &header[..8] != MAGIC || number(HEADER_LEN - 8) != xxh3_64_with_seed(&header[..HEADER_LEN - 8], 0) {
            return Err(Unusable::Damaged("its header is damaged".to_owned()));
        }
        if number(8) != u64::from(VERSION) {
            return Err(Unusable::OtherVersion(number(8) as u32));
        }
        let image = Image { position: LogPosition(number(16)), records: number(24), blocks: number(32), file };
        let len = image.file.metadata().map_err(Unusable::Io)?.len();
        match len == offset(image.blocks) {
            true => Ok(Some(image)),
            false => Err(Unusable::Damaged(format!("it has {len} bytes instead of {}", offset(image.blocks)))),
        }
    }

    /// Reads a block and checks it. The records are in `batch` afterwards, in the place of what it had.
    pub(crate) fn read(&self, number: u64, block: &mut [u8; IMAGE_BLOCK_BYTES]) -> Result<usize, Unusable> {
        self.file.read_exact_at(block, offset(number)).map_err(Unusable::Io)?;
        let damaged = || Unusable::Damaged(format!("its block {number} is damaged"));
        let word = |at: usize| u32::from_le_bytes(*block[at..].first_chunk().expect("it is inside the head"));
        if block[..8] != checksum(&block[8..], self.position, number).to_le_bytes() {
            return Err(damaged());
        }
        let len = word(8) as usize;
        if len > IMAGE_BLOCK_BYTES - BLOCK_HEAD_LEN { Err(damaged()) } else { Ok(len) }
    }

    /// The part of a block that has records, as [`LoadBatch::records_of`] reads them.
    pub(crate) fn records_of(block: &[u8; IMAGE_BLOCK_BYTES], len: usize) -> &[u8] {
        &block[BLOCK_HEAD_LEN..BLOCK_HEAD_LEN + len]
    }
}

/// Where a block begins.
fn offset(block: u64) -> u64 {
    HEADER_LEN as u64 + block * IMAGE_BLOCK_BYTES as u64
}

fn checksum(bytes: &[u8], LogPosition(position): LogPosition, block: u64) -> u64 {
    xxh3_64_with_seed(bytes, position.rotate_left(32) ^ block)
}

/// An image in the making, under another name until it is whole.
#[derive(Debug)]
pub(super) struct ImageWriter {
    file: File,
    path: PathBuf,
    unfinished: PathBuf,
    position: LogPosition,
    block: LoadBatch,
    records: u64,
    blocks: u64,
}

impl ImageWriter {
    /// Begins an image that will have every change up to a position.
    pub(super) fn begin(path: &Path, position: LogPosition) -> io::Result<ImageWriter> {
        let unfinished = path.with_extension("image.new");
        let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
        let path = path.to_owned();
        Ok(ImageWriter { file, path, unfinished, position, block: LoadBatch::default(), records: 0, blocks: 0 })
    }

    /// Adds a record. Returns whether a block was written for it.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        let room = IMAGE_BLOCK_BYTES - BLOCK_HEAD_LEN;
        let len = FRAME_LEN + key.len() + value.len();
        if len > room {
            return Err(io::Error::other(format!("the record of {} has {len} bytes", key.escape_ascii())));
        }
        let is_full = self.block.bytes.len() + len > room;
        if is_full {
            self.write_block()?;
        }
        self.block.push(key, value);
        self.records += 1;
        Ok(is_full)
    }

    fn write_block(&mut self) -> io::Result<()> {
        let records = &self.block.bytes;
        let mut block = Vec::with_capacity(IMAGE_BLOCK_BYTES);
        block.extend_from_slice(&[0; 8]);
        block.extend_from_slice(&(records.len() as u32).to_le_bytes());
        block.extend_from_slice(&self.block.records.to_le_bytes());
        block.extend_from_slice(records);
        block.resize(IMAGE_BLOCK_BYTES, 0);
        let sum = checksum(&block[8..], self.position, self.blocks);
        block[..8].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all_at(&block, offset(self.blocks))?;
        self.blocks += 1;
        self.block.bytes.clear();
        self.block.records = 0;
        Ok(())
    }

    /// Makes what was written so far durable, so that the disk is never given much at once.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.sync_data()
    }

    /// Ends the image and puts it in the place of an earlier one, durably. Returns its bytes.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        if self.block.records > 0 {
            self.write_block()?;
        }
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(MAGIC);
        let numbers = [u64::from(VERSION), self.position.0, self.records, self.blocks];
        for (place, number) in header[8..].chunks_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let sum = xxh3_64_with_seed(&header[..HEADER_LEN - 8], 0);
        header[HEADER_LEN - 8..].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all_at(&header, 0)?;
        self.file.sync_all()?;
        std::fs::rename(&self.unfinished, &self.path)?;
        let dir = self.path.parent().unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()?;
        Ok(offset(self.blocks))
    }

    /// Removes what was written.
    pub(super) fn abandon(self) {
        let _ = std::fs::remove_file(&self.unfinished);
    }
}
