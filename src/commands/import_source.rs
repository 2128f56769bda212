//! The source of an import, and its exit: shared by imports into a data directory and into a running node.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::cli::FileOrStdio;
use super::data::import_setup::ImportSummary;
use super::moving::api;
use super::moving::documents::Documents;
use super::moving::lines::MovingProgress;
use super::moving::shorteners::Shortener;
use super::moving::source::MovingSource;
use super::moving::sql_dump::SqlDump;
use super::moving::tables::Table;
use super::offline::incomplete;
use carom_settings::exit::{Exit, Reason};
use carom_settings::keys::IMPORT_KEY_ENV;

/// Words that an SQL dump may begin with.
const SQL_WORDS: [&[u8]; 8] = [b"--", b"/*", b"SET", b"INSERT", b"CREATE", b"DROP", b"LOCK", b"START"];

/// The input of an import.
pub(super) type Input = Box<dyn Read + Send>;

/// Opens the input of an import. Also returns its length in bytes, if it is known.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn open_input(file: &FileOrStdio) -> Result<(Input, Option<u64>), Exit> {
    match file {
        FileOrStdio::Standard => Ok((Box::new(io::stdin()), None)),
        FileOrStdio::File(path) => {
            let refused =
                |error: io::Error| Exit::new(Reason::Usage, format!("cannot read {}: {error}", path.display()));
            let opened = File::open(path).map_err(refused)?;
            let meta = opened.metadata().map_err(refused)?;
            if meta.is_dir() {
                return Err(Exit::new(
                    Reason::Usage,
                    format!("{} is a directory, not a file of links", path.display()),
                ));
            }
            Ok((Box::new(BufReader::new(opened)), meta.is_file().then_some(meta.len())))
        }
    }
}

/// Returns the links of a shortener, from a file or, without one, from its API.
///
/// # Errors
/// If the file, the key or the address of the API is missing or wrong.
pub(super) fn moving_source(
    shortener: Shortener,
    file: Option<Input>,
    url: Option<&str>,
    key_file: Option<&Path>,
) -> Result<Box<dyn MovingSource>, Exit> {
    if let Some(input) = file {
        return source_of_file(shortener, input);
    }
    let usage = |what: String| Exit::new(Reason::Usage, what);
    let missing = || usage(format!("the key of the API is missing; pass --key-file, or set {IMPORT_KEY_ENV}"));
    let key = key_from(key_file, IMPORT_KEY_ENV)?.ok_or_else(missing)?;
    api::source(shortener, url, &key).map_err(usage)
}

/// Returns a key from a file or the environment; `None` if there is neither.
///
/// # Errors
/// If the file cannot be read, or has no key.
pub(super) fn key_from(file: Option<&Path>, variable: &str) -> Result<Option<String>, Exit> {
    let wrong = |what: String| Exit::new(Reason::Usage, what);
    let (text, place) = match file {
        Some(file) => {
            let text = fs::read_to_string(file).map_err(|error| wrong(format!("{}: {error}", file.display())))?;
            (text, file.display().to_string())
        }
        None => match std::env::var(variable) {
            Ok(text) => (text, variable.to_owned()),
            Err(_) => return Ok(None),
        },
    };
    match text.trim() {
        key if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(key.to_owned())),
        _ => Err(wrong(format!("{place} does not contain a key of printable characters"))),
    }
}

/// Returns the links of a file. Its first bytes tell whether it is JSON, SQL or CSV.
fn source_of_file(shortener: Shortener, input: Input) -> Result<Box<dyn MovingSource>, Exit> {
    let mut input = BufReader::new(input);
    let begin = input.fill_buf().map_err(|error| Exit::new(Reason::Usage, format!("cannot read the file: {error}")))?;
    let text = begin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(begin);
    let mark = begin.len() - text.len();
    let text = text.trim_ascii_start();
    let is_json = text.starts_with(b"{") || text.starts_with(b"[");
    let is_sql =
        SQL_WORDS.iter().any(|word| text.get(..word.len()).is_some_and(|text| text.eq_ignore_ascii_case(word)));
    let source: Box<dyn MovingSource> = match shortener {
        Shortener::Yourls if is_sql => Box::new(SqlDump::new(input)),
        Shortener::Csv => Box::new(Table::new(input)),
        _ if is_json => {
            input.consume(mark);
            Box::new(Documents::new(shortener, input))
        }
        _ => Box::new(Table::new(input)),
    };
    Ok(source)
}

/// Returns the exit for the result of an import.
///
/// # Errors
/// [`Reason::Incomplete`] if the source ended early, or not all links were imported as a whole.
pub(super) fn outcome(
    moving: Option<&MovingProgress>,
    summary: &ImportSummary,
    report: Option<&Path>,
) -> Result<(), Exit> {
    if let Some(failure) = moving.and_then(MovingProgress::failure) {
        return Err(Exit::new(Reason::Incomplete, format!("not all links could be read: {failure}"))
            .with_remedy("the links before that are imported; run the same command again to continue"));
    }
    if summary.is_complete() {
        return Ok(());
    }
    let exit = match summary.refused {
        0 => {
            let what = ["was imported without a part of it", "were imported without a part of them"];
            incomplete(summary.cut, "link", what)
        }
        refused => incomplete(refused, "line", ["was rejected", "were rejected"]),
    };
    Err(match report {
        Some(path) => exit.with_remedy(format!("{} names each of them and the reason", path.display())),
        None => exit,
    })
}
