//! The files that a run writes, and their formats.

use std::path::{Path, PathBuf};

/// Format of a result file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutputFormat {
    /// All figures as JSON.
    Json,
    /// The report with plots.
    Html,
    /// The table, as on the terminal.
    Text,
    /// The percentile distribution.
    Hgrm,
    /// A histogram for each second.
    Hlog,
}

impl OutputFormat {
    /// Returns the format that the suffix of a file stands for.
    ///
    /// # Errors
    /// A message with the known suffixes.
    pub(crate) fn of(path: &Path) -> Result<OutputFormat, String> {
        match path.extension().and_then(|suffix| suffix.to_str()) {
            Some("json") => Ok(OutputFormat::Json),
            Some("html" | "htm") => Ok(OutputFormat::Html),
            Some("txt") => Ok(OutputFormat::Text),
            Some("hgrm") => Ok(OutputFormat::Hgrm),
            Some("hlog") => Ok(OutputFormat::Hlog),
            _ => Err(format!("{}: unknown suffix; expected .json, .html, .txt, .hgrm or .hlog", path.display())),
        }
    }
}

/// A file to write after the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OutputFile {
    /// Format of the content.
    pub(crate) format: OutputFormat,
    /// Path of the file.
    pub(crate) path: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffix_says_the_format() {
        assert_eq!(OutputFormat::of(Path::new("a/run.1.json")), Ok(OutputFormat::Json));
        assert_eq!(OutputFormat::of(Path::new("report.htm")), Ok(OutputFormat::Html));
        for wrong in ["report", "report.csv", ".json"] {
            assert!(OutputFormat::of(Path::new(wrong)).unwrap_err().contains(".hlog"), "{wrong}");
        }
    }
}
