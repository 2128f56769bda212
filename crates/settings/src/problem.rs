//! Mistakes in the settings, with their sources.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use crate::exit::{Exit, Reason};

/// The source of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueSource {
    /// No source: the setting has its default.
    Default,
    /// The settings file.
    File {
        /// The path of the file, as it was given.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable with this name.
    Env(String),
    /// A flag on the command line.
    Flag(&'static str),
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::Default => f.write_str("default"),
            ValueSource::File { path, line } => write!(f, "{}:{line}", path.display()),
            ValueSource::Env(name) => write!(f, "environment {name}"),
            ValueSource::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// The reason for which a value is invalid, and a description of valid ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InvalidValue {
    pub(super) reason: String,
    pub(super) right: String,
}

impl InvalidValue {
    pub(super) fn new(reason: impl Into<String>, right: impl Into<String>) -> InvalidValue {
        InvalidValue { reason: reason.into(), right: right.into() }
    }
}

/// One mistake in the settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsProblem {
    /// The source of the value.
    pub source: ValueSource,
    /// The key as in the file; `None` if no key is at fault, as in a syntax error.
    pub key: Option<String>,
    /// The reason for which the value is invalid.
    pub reason: String,
    /// A description of valid values.
    pub right: String,
    /// The exit code for this mistake.
    pub exit: Reason,
}

impl fmt::Display for SettingsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.source)?;
        if let Some(key) = &self.key {
            write!(f, "{}: ", printable(key))?;
        }
        write!(f, "{} ({})", printable(&self.reason), printable(&self.right))
    }
}

/// A setting that is valid but probably not intended. For the log or standard error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning(pub String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

/// All mistakes of all sources, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigErrors {
    /// The mistakes, those of flags first, then of the environment, then of the file from its top.
    pub problems: Vec<SettingsProblem>,
}

impl ConfigErrors {
    /// Sorts the mistakes in the order in which people look for them.
    pub(super) fn new(mut problems: Vec<SettingsProblem>) -> ConfigErrors {
        problems.sort_by_key(|problem| match problem.source {
            ValueSource::Flag(_) => (0, 0),
            ValueSource::Env(_) => (1, 0),
            ValueSource::File { line, .. } => (2, line),
            ValueSource::Default => (3, 0),
        });
        ConfigErrors { problems }
    }

    /// Returns the exit code: that of all mistakes if they agree, else [`Reason::Usage`].
    pub fn reason(&self) -> Reason {
        match self.problems.first() {
            Some(first) if self.problems.iter().all(|problem| problem.exit == first.exit) => first.exit,
            _ => Reason::Usage,
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.problems.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigErrors> for Exit {
    fn from(errors: ConfigErrors) -> Exit {
        Exit::new(errors.reason(), errors.to_string())
    }
}

/// Escapes control characters of a user's text, which a terminal would interpret.
fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// Quotes a value for a message. Shortens it, because a value can be as long as the file. Hides the text before an `@`,
/// which in an address is a user name and a password.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    let text = match text.rsplit_once('@') {
        Some((before, behind)) => {
            let scheme = before.find("://").map_or("", |at| &before[..at + "://".len()]);
            Cow::Owned(format!("{scheme}...@{behind}"))
        }
        None => Cow::Borrowed(text),
    };
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("`{}...`", &text[..end]),
        None => format!("`{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(exit: Reason) -> SettingsProblem {
        let source = ValueSource::File { path: "carom.toml".into(), line: 3 };
        SettingsProblem {
            source,
            key: Some("cores".into()),
            reason: "`\u{1b}x` is no count".into(),
            right: "a count".into(),
            exit,
        }
    }

    #[test]
    fn a_problem_names_place_key_reason_and_what_is_right() {
        assert_eq!(problem(Reason::Usage).to_string(), "carom.toml:3: cores: `\\u{1b}x` is no count (a count)");
    }

    #[test]
    fn the_exit_code_is_special_only_if_nothing_else_is_wrong() {
        let public = problem(Reason::PublicWithoutOpen);
        let alone = ConfigErrors { problems: vec![public.clone(), public.clone()] };
        assert_eq!(alone.reason(), Reason::PublicWithoutOpen);
        let mixed = ConfigErrors { problems: vec![public, problem(Reason::Usage)] };
        assert_eq!(mixed.reason(), Reason::Usage);
        assert_eq!(Exit::from(mixed).what.lines().count(), 2);
    }

    #[test]
    fn long_values_are_quoted_short() {
        assert_eq!(quoted("abc"), "`abc`");
        assert_eq!(quoted("https://me:p@ss/w:rd@go.example:x/"), "`https://...@go.example:x/`");
        assert_eq!(quoted("me:secret@go.example"), "`...@go.example`");
        assert_eq!(quoted(&"ü".repeat(100)).chars().count(), 85);
    }
}
