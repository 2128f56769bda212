//! The manifest of a backup, in two lines: its content as JSON, and the checksum of that line.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use super::{RecordCounts, Section};
use carom_model::formats::dates;

/// The format version that this program writes, and the only one that it reads.
const FORMAT: u64 = 1;

/// The size and checksum of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSum {
    /// The length in bytes.
    pub bytes: u64,
    /// The checksum (XXH3, 128 bits) of the whole file; zero for the store, whose frames have their own.
    pub sum: u128,
}

impl FileSum {
    /// Computes the sum of a small file.
    pub fn of(bytes: &[u8]) -> FileSum {
        FileSum { bytes: bytes.len() as u64, sum: xxh3_128(bytes) }
    }
}

/// The content of a backup. [`Manifest::parse`] fails if a field is missing, so a new field must be optional: otherwise
/// older backups cannot be restored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// An instant just before the snapshot, in milliseconds since 1970 UTC.
    pub taken_ms: u64,
    /// The fingerprint of the code secret, which identifies it without revealing it.
    pub fingerprint: String,
    /// The files of the backup except the manifest, by name.
    pub files: BTreeMap<String, FileSum>,
    /// Number of records of the store, by section.
    pub counts: RecordCounts,
}

/// A defect of a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManifestError(String);

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ManifestError {}

impl Manifest {
    /// Returns the text of the manifest file.
    pub fn to_text(&self) -> String {
        let files: BTreeMap<&String, Value> = self
            .files
            .iter()
            .map(|(name, file)| (name, json!({"bytes": file.bytes, "xxh3": format!("{:032x}", file.sum)})))
            .collect();
        let records: BTreeMap<&str, u64> =
            Section::ALL.into_iter().map(|section| (section.name(), self.counts.of(section))).collect();
        let list = json!({
            "format": FORMAT,
            "carom": env!("CARGO_PKG_VERSION"),
            "taken": dates::format(self.taken_ms),
            "takenMillis": self.taken_ms,
            "keyFingerprint": self.fingerprint,
            "files": files,
            "records": records,
        })
        .to_string();
        let text = format!("{list}\nxxh3 {:032x}\n", xxh3_128(list.as_bytes()));
        debug_assert_eq!(Manifest::parse(text.as_bytes()).as_ref(), Ok(self), "a restore would refuse the backup");
        text
    }

    /// Parses the text of a manifest file.
    ///
    /// # Errors
    /// [`ManifestError`] with a description of the defect.
    pub fn parse(text: &[u8]) -> Result<Manifest, ManifestError> {
        let wrong = |what: &str| ManifestError(what.to_owned());
        let text = std::str::from_utf8(text)
            .map_err(|error| wrong(&format!("at byte {}: not UTF-8 text", error.valid_up_to())))?;
        let (list, sum) = text.split_once('\n').ok_or_else(|| wrong("the second line, the checksum, is missing"))?;
        if sum != format!("xxh3 {:032x}\n", xxh3_128(list.as_bytes())) {
            return Err(wrong("the file is damaged: the checksum in the second line does not match"));
        }
        let list: Value = serde_json::from_str(list).map_err(|error| wrong(&error.to_string()))?;
        match list["format"].as_u64() {
            Some(FORMAT) => {}
            Some(other) => {
                return Err(ManifestError(format!(
                    "unsupported format {other}, expected {FORMAT}; use carom {}",
                    list["carom"].as_str().unwrap_or("of the version that wrote it")
                )));
            }
            None => return Err(wrong("the format is missing")),
        }
        let read = || {
            let mut counts = RecordCounts::default();
            for section in Section::ALL {
                counts.add(section, list["records"][section.name()].as_u64()?);
            }
            let mut files = BTreeMap::new();
            for (name, file) in list["files"].as_object()? {
                let sum = u128::from_str_radix(file["xxh3"].as_str()?, 16).ok()?;
                files.insert(name.clone(), FileSum { bytes: file["bytes"].as_u64()?, sum });
            }
            let fingerprint = list["keyFingerprint"].as_str()?.to_owned();
            Some(Manifest { taken_ms: list["takenMillis"].as_u64()?, fingerprint, files, counts })
        };
        read().ok_or_else(|| wrong("a field is missing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_no_byte_can_be_changed() {
        let mut counts = RecordCounts::default();
        counts.add(Section::Links, 7);
        let files = BTreeMap::from([("space.key".to_owned(), FileSum::of(b"secret"))]);
        let manifest = Manifest { taken_ms: 1_700_000_000_123, fingerprint: "abc".to_owned(), files, counts };
        let text = manifest.to_text().into_bytes();
        assert_eq!(Manifest::parse(&text), Ok(manifest));
        assert!(!String::from_utf8_lossy(&text).contains("secret"));
        for at in 0..text.len() {
            for bit in [1, 0x20, 0x80] {
                let mut bad = text.clone();
                bad[at] ^= bit;
                assert!(Manifest::parse(&bad).is_err(), "{at}");
            }
            assert!(Manifest::parse(&text[..at]).is_err(), "{at}");
        }
    }
}
