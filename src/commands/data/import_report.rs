//! The report of an import: each line that carom cannot take, or not as a whole, with the reason.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::Serialize;

/// A line of the input, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ImportFinding {
    /// The number of the line, or of the link in its source, counted from 1.
    pub line: u64,
    /// The name of the short URL; empty if it is unknown.
    pub name: String,
    /// The reason why the line, or a part of it, is not imported.
    pub reason: String,
    /// True if the link is imported all the same, without a part of it.
    pub is_taken: bool,
}

impl ImportFinding {
    /// Returns the finding for a rejected line.
    pub fn rejected(line: u64, name: String, reason: String) -> ImportFinding {
        ImportFinding { line, name, reason, is_taken: false }
    }

    /// Returns the text for people.
    pub fn to_text(&self) -> String {
        let ImportFinding { line, name, reason, is_taken } = self;
        let shown: String = name.chars().filter(|sign| !sign.is_control()).take(80).collect();
        let name = if shown.is_empty() { shown } else { format!(" ({shown})") };
        let taken = if *is_taken { "imported, but " } else { "" };
        format!("line {line}{name}: {taken}{reason}")
    }
}

/// A line of the report, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReportEntry<'f> {
    line: u64,
    short_url: Option<&'f str>,
    imported: bool,
    reason: &'f str,
}

/// The file of a report: one JSON object per line.
pub struct ReportFile(BufWriter<File>);

impl ReportFile {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path) -> io::Result<ReportFile> {
        File::create(path).map(|file| ReportFile(BufWriter::new(file)))
    }

    /// Adds a finding.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(&mut self, finding: &ImportFinding) -> io::Result<()> {
        let ImportFinding { line, name, reason, is_taken } = finding;
        let short_url = Some(name.as_str()).filter(|name| !name.is_empty());
        serde_json::to_writer(&mut self.0, &ReportEntry { line: *line, short_url, imported: *is_taken, reason })?;
        self.0.write_all(b"\n")
    }

    /// Writes everything to the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_told_and_written() {
        let (dir, reason) = (tempfile::tempdir().unwrap(), "longUrl is missing".to_owned());
        let path = dir.path().join("report.ndjson");
        let mut file = ReportFile::create(&path).unwrap();
        let rejected = ImportFinding::rejected(3, "go.example/a\u{7}".to_owned(), reason.clone());
        let taken = ImportFinding { line: 4, name: String::new(), reason, is_taken: true };
        assert_eq!(rejected.to_text(), "line 3 (go.example/a): longUrl is missing");
        assert_eq!(taken.to_text(), "line 4: imported, but longUrl is missing");
        [&rejected, &taken].into_iter().for_each(|finding| file.add(finding).unwrap());
        file.finish().unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        let expected = r#"{"line":3,"shortUrl":"go.example/a\u0007","imported":false,"reason":"longUrl is missing"}"#;
        assert_eq!(written.lines().next(), Some(expected));
        assert!(written.lines().nth(1).unwrap().starts_with(r#"{"line":4,"shortUrl":null,"imported":true"#));
    }
}
