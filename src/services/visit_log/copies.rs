//! Copies of the visit log in backups: its files, in pieces. They are read while the log is in use.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::outgoing::OUTGOING;
use super::segment::{self, ACTIVE, SEALED, whole_blocks};
use super::{FOLDER, deletions, sharing};

/// Attempts to open the active segment before it is sealed. Seals are minutes apart.
const TRIES: usize = 10;

/// An open file of the log, which stays readable after its removal.
#[derive(Debug)]
pub struct LogFile {
    name: String,
    file: File,
    len: u64,
}

impl LogFile {
    /// Reads a piece into the buffer, whose length is that of all pieces but the last one. Empty behind the end.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_piece<'b>(&self, number: u64, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let at = number * buffer.len() as u64;
        let len = self.len.saturating_sub(at).min(buffer.len() as u64) as usize;
        self.file.read_exact_at(&mut buffer[..len], at)?;
        Ok(&buffer[..len])
    }
}

/// Opens every file of the log in a data directory, as of one moment. Visits of the last half second are not in files
/// yet.
///
/// # Errors
/// If a file cannot be opened.
pub fn open_files(data_dir: &Path) -> io::Result<Vec<LogFile>> {
    let dir = data_dir.join(FOLDER);
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    for _ in 0..TRIES {
        let mut names = Vec::new();
        for entry in fs::read_dir(&dir)? {
            names.extend(entry?.file_name().to_str().filter(|name| is_name(name)).map(str::to_owned));
        }
        // The active segments first: once one is open, it does not matter if it is sealed. The positions in the logs of other
        // nodes before them: those that are too low are also in the active segment.
        names.sort_by_cached_key(|name| (name != sharing::FILE, name.clone()));
        let mut files = Vec::new();
        let mut is_sealed_meanwhile = false;
        for name in names {
            match open(&dir, name) {
                Ok(file) => files.push(file),
                Err((name, error)) if error.kind() == io::ErrorKind::NotFound => {
                    is_sealed_meanwhile |= name.starts_with(ACTIVE);
                }
                Err((_, error)) => return Err(error),
            }
        }
        if !is_sealed_meanwhile {
            return Ok(files);
        }
    }
    Err(io::Error::other("segments were sealed while they were being opened; try again"))
}

fn open(dir: &Path, name: String) -> Result<LogFile, (String, io::Error)> {
    let opened = File::open(dir.join(&name)).and_then(|file| {
        let len = file.metadata()?.len();
        // The last block may be half written.
        let len = if name.starts_with(ACTIVE) { whole_blocks(&file, len)? } else { len };
        Ok((file, len))
    });
    match opened {
        Ok((file, len)) => Ok(LogFile { name, file, len }),
        Err(error) => Err((name, error)),
    }
}

/// Returns the key of a piece in a backup.
pub fn key_of(file: &LogFile, number: u32) -> Vec<u8> {
    [file.name.as_bytes(), &[0], &number.to_be_bytes()].concat()
}

/// Returns the file that a key of a backup belongs to; `None` if the log has no such files.
pub fn file_of(key: &[u8]) -> Option<&str> {
    let (name, _) = key.split_at_checked(key.len().checked_sub(5)?)?;
    std::str::from_utf8(name).ok().filter(|name| is_name(name))
}

/// True if the log may have a file with this name.
fn is_name(name: &str) -> bool {
    let is_segment = |prefix: &str| {
        let number = name.strip_prefix(prefix);
        number.is_some_and(|number| number.len() == segment::DIGITS && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_file = [deletions::FILE, sharing::FILE].contains(&name);
    is_file || [ACTIVE, OUTGOING, SEALED].into_iter().any(is_segment)
}

/// Appends a piece to a file of the log in a data directory that no node has open.
///
/// # Errors
/// If it cannot be written.
pub fn put_piece(data_dir: &Path, name: &str, piece: &[u8]) -> io::Result<()> {
    let dir = data_dir.join(FOLDER);
    fs::create_dir_all(&dir)?;
    OpenOptions::new().create(true).append(true).open(dir.join(name))?.write_all(piece)
}

/// Makes the files of the log in a data directory durable.
///
/// # Errors
/// If the disk fails.
pub fn sync(data_dir: &Path) -> io::Result<()> {
    let dir = data_dir.join(FOLDER);
    for entry in fs::read_dir(&dir)? {
        File::open(entry?.path())?.sync_all()?;
    }
    File::open(&dir)?.sync_all()?;
    File::open(data_dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_log_are_restored() {
        for name in ["deletions", "exchange", "active-0000000001", "outgoing-0000000001", "segment-1234567890"] {
            let key = [name.as_bytes(), &[0, 0, 0, 0, 7]].concat();
            assert_eq!(file_of(&key), Some(name));
        }
        for name in
            ["", "deletions2", "active-1", "segment-00000000012", "segment-000000000x", "../deletions", "/deletions"]
        {
            assert_eq!(file_of(&[name.as_bytes(), &[0, 0, 0, 0, 7]].concat()), None, "{name}");
        }
        assert_eq!(file_of(b"dele"), None);
    }

    #[test]
    fn copies_have_whole_blocks_and_are_written_back() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(open_files(from.path()).unwrap().is_empty());
        let mut active = Vec::new();
        segment::push_block(&[7; 5_000], &mut active);
        segment::push_block(&[8; 100], &mut active);
        let whole = active.len();
        active.extend_from_slice(&[9; 30]);
        let dir = from.path().join(FOLDER);
        fs::create_dir_all(&dir).unwrap();
        let sealed: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        for (name, bytes) in [("active-0000000002", &active), ("segment-0000000001", &sealed), ("other", &sealed)] {
            fs::write(dir.join(name), bytes).unwrap();
        }
        let mut buffer = vec![0; 300];
        for file in open_files(from.path()).unwrap() {
            let mut number = 0;
            while let piece = file.read_piece(u64::from(number), &mut buffer).unwrap()
                && !piece.is_empty()
            {
                let key = key_of(&file, number);
                put_piece(to.path(), file_of(&key).unwrap(), piece).unwrap();
                number += 1;
            }
        }
        sync(to.path()).unwrap();
        let read = |name| fs::read(to.path().join(FOLDER).join(name)).ok();
        assert_eq!(read("active-0000000002"), Some(active[..whole].to_vec()));
        assert_eq!((read("segment-0000000001"), read("other")), (Some(sealed), None));
    }
}
