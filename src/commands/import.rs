//! The command `carom import`: opens the source of the links and the data directory, and imports one into the other.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use carom_shards::CodeSpace;

use super::cli::{FileOrStdio, ImportArgs};
use super::data::import;
use super::data::import_report::ReportFile;
use super::data::import_setup::{ImportError, ImportSetup, ImportSummary};
use super::moving::api;
use super::moving::documents::Documents;
use super::moving::lines::MovingLines;
use super::moving::moved_link::MovedDomains;
use super::moving::shorteners::Shortener;
use super::moving::source::MovingSource;
use super::moving::sql_dump::SqlDump;
use super::moving::tables::Table;
use super::offline::{incomplete, settings_of};
use crate::services::maintenance::index_builder;
use crate::startup::data_dir::{OpenStore, lock, open_store, store_exit};
use crate::startup::domains::{domains_of, own_authorities};
use crate::startup::preflight;
use carom_settings::Settings;
use carom_settings::exit::{Exit, Reason};
use carom_settings::keys::IMPORT_KEY_ENV;

/// Words that an SQL dump may begin with.
const SQL_WORDS: [&[u8]; 8] = [b"--", b"/*", b"SET", b"INSERT", b"CREATE", b"DROP", b"LOCK", b"START"];

/// A directory that is removed in the end: the stand-in for a data directory that does not exist yet.
struct Scratch(Option<PathBuf>);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(dir) = &self.0 {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// The input of an import.
type Input = (Box<dyn Read + Send>, Option<u64>);

/// Imports links into a data directory.
///
/// # Errors
/// The reason why the import stopped, or a note that lines were skipped.
pub fn run(arguments: ImportArgs) -> Result<(), Exit> {
    let ImportArgs { data_dir, config, from, url, key_file, map_domains, dry_run, report, file } = arguments;
    let mut settings = settings_of(Some(data_dir), config.as_deref())?;
    let domains = domains_of(&settings, settings.listen[0]);
    let usage = |what: String| Exit::new(Reason::Usage, what);
    // Everything that can be wrong with the arguments comes before the data directory.
    let (mut input, total_bytes, moving): (Box<dyn Read + Send>, _, _) = match from {
        None => {
            let (input, len) = open_input(file.as_ref().unwrap_or(&FileOrStdio::Standard))?;
            (input, len, None)
        }
        Some(shortener) => {
            let domains = MovedDomains::new(domains.clone(), &map_domains).map_err(usage)?;
            let (source, len) = match &file {
                Some(file) => source_of_file(shortener, file)?,
                None => {
                    let key = key_of(key_file.as_deref())?;
                    (api::source(shortener, url.as_deref(), &key).map_err(usage)?, None)
                }
            };
            let (lines, progress) = MovingLines::new(source, domains);
            (Box::new(lines), len, Some(progress))
        }
    };
    let report_file = report.as_deref().map(|path| {
        ReportFile::create(path).map_err(|error| usage(format!("cannot write {}: {error}", path.display())))
    });
    let report_file = report_file.transpose()?;
    let _scratch = if dry_run { stand_in(&mut settings)? } else { Scratch(None) };
    preflight::data_dir(&settings.data_dir)?;
    let _lock = lock(&settings.data_dir)?;
    let OpenStore { links, key, .. } = open_store(&settings)?;
    if !dry_run {
        index_builder::ensure(&links).map_err(|error| store_exit(&error))?;
    }
    let setup = ImportSetup {
        of_fleet: links.is_of_fleet().map_err(|error| store_exit(&error))?,
        links,
        data_dir: settings.data_dir.clone(),
        space: CodeSpace::new(&key),
        length: settings.code_length,
        dry_run,
        moving,
        own: own_authorities(&domains, &settings.listen),
        domains,
        threads: settings.cores.cpus.len(),
        // The share of a document that is read says little about the lines.
        total_bytes: total_bytes.filter(|_| from.is_none()),
        terminal: io::stderr().is_terminal(),
    };
    let summary = import::import(&setup, &mut *input, &mut io::stderr().lock(), report_file).map_err(exit_of)?;
    finish(&setup, &summary, report.as_deref())
}

/// Returns the exit for the result of an import.
fn finish(setup: &ImportSetup, summary: &ImportSummary, report: Option<&Path>) -> Result<(), Exit> {
    if let Some(failure) = setup.moving.as_ref().and_then(|moving| moving.failure()) {
        return Err(Exit::new(Reason::Incomplete, format!("not all links could be read: {failure}"))
            .with_remedy("the links before that are imported; run the same command again to continue"));
    }
    if summary.is_complete() {
        return Ok(());
    }
    let exit = match summary.refused {
        0 => incomplete(summary.cut, "links were imported without a part of them"),
        refused => incomplete(refused, "lines were rejected"),
    };
    Err(match report {
        Some(path) => exit.with_remedy(format!("{} names each of them and the reason", path.display())),
        None => exit,
    })
}

fn exit_of(error: ImportError) -> Exit {
    match error {
        ImportError::Store(error) => store_exit(&error),
        ImportError::DiskFull => Exit::new(Reason::DiskFull, "the disk of the data directory is full"),
        error => Exit::new(Reason::Incomplete, error.to_string()),
    }
}

/// Lets a dry run use an empty directory of its own if the data directory does not exist.
fn stand_in(settings: &mut Settings) -> Result<Scratch, Exit> {
    if settings.data_dir.join("links").is_dir() {
        return Ok(Scratch(None));
    }
    let dir = std::env::temp_dir().join(format!("carom-dry-run-{}", std::process::id()));
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .map_err(|error| Exit::new(Reason::DataNotWritable, format!("cannot create {}: {error}", dir.display())))?;
    settings.data_dir.clone_from(&dir);
    Ok(Scratch(Some(dir)))
}

/// Returns the key of a shortener's API, from a file or the environment.
fn key_of(file: Option<&Path>) -> Result<String, Exit> {
    let wrong = |what: String| Exit::new(Reason::Usage, what);
    let (text, place) = match file {
        Some(file) => {
            let text = fs::read_to_string(file).map_err(|error| wrong(format!("{}: {error}", file.display())))?;
            (text, file.display().to_string())
        }
        None => match std::env::var(IMPORT_KEY_ENV) {
            Ok(text) => (text, IMPORT_KEY_ENV.to_owned()),
            Err(_) => {
                let what = format!("the key of the API is missing; pass --key-file, or set {IMPORT_KEY_ENV}");
                return Err(wrong(what));
            }
        },
    };
    match text.trim() {
        key if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(key.to_owned()),
        _ => Err(wrong(format!("{place} does not contain a key of printable characters"))),
    }
}

/// Returns the links of a file. Its first bytes tell whether it is JSON, SQL or CSV.
fn source_of_file(shortener: Shortener, file: &FileOrStdio) -> Result<(Box<dyn MovingSource>, Option<u64>), Exit> {
    let (input, len) = open_input(file)?;
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
    Ok((source, len))
}

fn open_input(file: &FileOrStdio) -> Result<Input, Exit> {
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
