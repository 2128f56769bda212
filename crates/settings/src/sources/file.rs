//! The settings file: values with their lines, parsed from TOML.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::exit::Reason;
use crate::keys::{self, Key, SETTINGS};
use crate::problem::{SettingsProblem, ValueSource};
use crate::sources::suggest;
use crate::value::{SourcedValue, Written};

/// Longest settings file, in bytes. A settings file has a page; a much longer one is the wrong file, and need not be
/// read to its end.
const FILE_LEN_MAX: u64 = 1024 * 1024;

/// Maximum number of syntax errors that are reported. Further ones are mostly consequences of the first.
const SYNTAX_ERRORS_SHOWN: usize = 5;

/// Reads the file. Adds unreadable parts and unknown settings to `problems`.
pub(crate) fn read(path: &Path, problems: &mut Vec<SettingsProblem>) -> Vec<(Key, SourcedValue)> {
    let mut bytes = Vec::new();
    if let Err(error) = File::open(path).and_then(|file| file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes)) {
        let right = "pass a readable file";
        problems.push(problem(path, 1, None, format!("cannot be read: {error}"), right));
        return Vec::new();
    }
    if bytes.len() as u64 > FILE_LEN_MAX {
        problems.push(problem(path, 1, None, "is larger than 1 MiB".into(), "check that it is the settings file"));
        return Vec::new();
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => parse(path, text, problems),
        Err(error) => {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
            problems.push(problem(path, line, None, "is not UTF-8 text".into(), "save the file as UTF-8"));
            Vec::new()
        }
    }
}

/// Finds the settings in the text of the file.
pub(crate) fn parse(path: &Path, text: &str, problems: &mut Vec<SettingsProblem>) -> Vec<(Key, SourcedValue)> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors.iter().take(SYNTAX_ERRORS_SHOWN) {
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            problems.push(problem(path, line, None, error.message().to_owned(), "write it as TOML: key = value"));
        }
        // The parser recovers from syntax errors, but its guesses would only produce misleading messages.
        return Vec::new();
    }
    let mut reader = TableReader { path, text, problems: Vec::new(), found: Vec::new() };
    reader.table(table.get_ref());
    // The parser sorts by name; people read from the top.
    reader.problems.sort_by_key(|(line, _)| *line);
    problems.extend(reader.problems.into_iter().map(|(_, problem)| problem));
    reader.found
}

struct TableReader<'a> {
    path: &'a Path,
    text: &'a str,
    problems: Vec<(usize, SettingsProblem)>,
    found: Vec<(Key, SourcedValue)>,
}

impl TableReader<'_> {
    fn table(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let is_table = SETTINGS.iter().any(|setting| table_of(setting.name) == Some(name));
            match value.get_ref() {
                DeValue::Table(inner) if is_table => {
                    for (key, value) in inner {
                        self.setting(&format!("{name}.{}", key.get_ref()), key.span().start, value);
                    }
                }
                _ if is_table => {
                    let right = format!("write [{name}] and its keys on separate lines");
                    self.refuse(key.span().start, name, "is a table, not a value".into(), right);
                }
                _ => self.setting(name, key.span().start, value),
            }
        }
    }

    fn setting(&mut self, name: &str, place: usize, value: &Spanned<DeValue<'_>>) {
        match keys::by_name(name) {
            Some(setting) if setting.secret => {
                let file = format!("{name}_file");
                let right = match keys::by_name(&file) {
                    Some(_) => format!("store it in a file that only its owner can read, and set {file} to that file"),
                    None => {
                        format!(
                            "pass it in the environment variable {}, from a file that only its owner can read",
                            setting.env
                        )
                    }
                };
                self.refuse(place, name, "is a secret and must not be in the settings file".into(), right);
            }
            Some(setting) => {
                let written = self.written(value);
                let source = self.source(place);
                self.found.push((setting.key, SourcedValue { written, source }));
            }
            None => {
                let known = SETTINGS.iter().filter(|setting| !setting.secret).map(|setting| setting.name);
                let right = match suggest::nearest(name, known).or_else(|| moved(name)) {
                    Some(near) => format!("did you mean {near}?"),
                    None => "`carom config show` prints all settings".to_owned(),
                };
                self.refuse(place, name, "is not a known setting".into(), right);
            }
        }
    }

    fn written(&self, value: &Spanned<DeValue<'_>>) -> Written {
        match value.get_ref() {
            DeValue::String(text) => Written::Text(text.to_string()),
            DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
                Ok(decimal) => Written::Integer(decimal.to_string()),
                Err(_) => Written::Integer(number.to_string()),
            },
            DeValue::Boolean(truth) => Written::Bool(*truth),
            DeValue::Array(array) => {
                let element = |value: &Spanned<DeValue<'_>>| SourcedValue {
                    written: self.written(value),
                    source: self.source(value.span().start),
                };
                Written::List(array.iter().map(element).collect())
            }
            DeValue::Float(_) => Written::Other("a fractional number"),
            DeValue::Datetime(_) => Written::Other("a date"),
            DeValue::Table(_) => Written::Other("a table"),
        }
    }

    fn source(&self, place: usize) -> ValueSource {
        ValueSource::File { path: self.path.to_owned(), line: line_of(self.text, place) }
    }

    fn refuse(&mut self, place: usize, name: &str, reason: String, right: String) {
        let line = line_of(self.text, place);
        self.problems.push((line, problem(self.path, line, Some(name), reason, right)));
    }
}

/// Returns the table of a setting, unless it is at the top.
pub(crate) fn table_of(name: &str) -> Option<&str> {
    name.split_once('.').map(|(table, _)| table)
}

/// Returns the full name of a key that was written in the wrong table, or in none.
fn moved(name: &str) -> Option<&'static str> {
    let last = |name: &'_ str| name.rsplit('.').next().unwrap_or_default().to_owned();
    SETTINGS.iter().find(|setting| !setting.secret && last(setting.name) == last(name)).map(|setting| setting.name)
}

fn line_of(text: &str, place: usize) -> usize {
    1 + text.bytes().take(place).filter(|&byte| byte == b'\n').count()
}

fn problem(path: &Path, line: usize, key: Option<&str>, reason: String, right: impl Into<String>) -> SettingsProblem {
    SettingsProblem {
        source: ValueSource::File { path: path.to_owned(), line },
        key: key.map(str::to_owned),
        reason,
        right: right.into(),
        exit: Reason::Usage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        parse(Path::new("c.toml"), text, &mut problems);
        problems.iter().map(SettingsProblem::to_string).collect()
    }

    #[test]
    fn values_keep_their_lines() {
        let mut problems = Vec::new();
        let text = "\nlisten = [\n  '127.0.0.1:1',\n  '127.0.0.1:2',\n]\n[links]\ncode_length = 0x8\n";
        let found = parse(Path::new("c.toml"), text, &mut problems);
        assert_eq!(problems, []);
        let line = |found: &SourcedValue| match found.source {
            ValueSource::File { line, .. } => line,
            _ => 0,
        };
        let (_, listen) = found.iter().find(|(key, _)| *key == Key::Listen).unwrap();
        let Written::List(list) = &listen.written else { panic!("{listen:?}") };
        assert_eq!(list.iter().map(line).collect::<Vec<_>>(), [3, 4]);
        let (_, length) = found.iter().find(|(key, _)| *key == Key::LinksCodeLength).unwrap();
        assert_eq!((line(length), &length.written), (7, &Written::Integer("8".into())));
    }

    #[test]
    fn unknown_keys_are_all_named_with_a_suggestion_in_the_order_of_lines() {
        let text = "kangaroo = 'x'\nlisen = 'x'\ncode_length = 7\nlimits = 3\n[links]\ncode_lenght = 7\n[links.kangaroo]\nx = 1\n";
        assert_eq!(
            messages(text),
            [
                "c.toml:1: kangaroo: is not a known setting (`carom config show` prints all settings)",
                "c.toml:2: lisen: is not a known setting (did you mean listen?)",
                "c.toml:3: code_length: is not a known setting (did you mean links.code_length?)",
                "c.toml:4: limits: is a table, not a value (write [limits] and its keys on separate lines)",
                "c.toml:6: links.code_lenght: is not a known setting (did you mean links.code_length?)",
                "c.toml:7: links.kangaroo: is not a known setting (`carom config show` prints all settings)",
            ]
        );
    }

    #[test]
    fn syntax_errors_have_a_line() {
        let messages = messages("listen = '127.0.0.1:1'\ncores = = 3\n");
        assert!(messages[0].starts_with("c.toml:2: "), "{messages:?}");
        let twice = super::tests::messages("open = true\nopen = true\n");
        assert!(twice[0].starts_with("c.toml:2: "), "{twice:?}");
    }

    #[test]
    fn a_secret_in_the_file_is_refused_and_not_repeated() {
        let messages = messages("space_key = 'deadbeef'\n");
        assert_eq!(messages.len(), 1);
        assert!(messages[0].contains("space_key_file"), "{messages:?}");
        assert!(!messages[0].contains("deadbeef"), "{messages:?}");
    }

    #[test]
    fn unreadable_files_are_problems() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [("latin", b"open = true\n# \xfc".to_vec()), ("long", vec![b'\n'; 1024 * 1024 + 1])] {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let mut problems = Vec::new();
            read(&path, &mut problems);
            assert_eq!(problems.len(), 1, "{name}");
        }
        let mut problems = Vec::new();
        read(&folder.path().join("absent"), &mut problems);
        assert!(problems[0].reason.starts_with("cannot be read"), "{problems:?}");
    }
}
