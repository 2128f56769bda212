//! The result of a check.

use carom_settings::exit::Exit;

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    Ok,
    Warning,
    Error,
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Finding {
    pub(super) health: Health,
    pub(super) text: String,
    /// The remedy; empty if nothing is to be done.
    pub(super) remedy: String,
}

impl Finding {
    pub(super) fn ok(text: impl Into<String>) -> Finding {
        Finding { health: Health::Ok, text: text.into(), remedy: String::new() }
    }

    pub(super) fn warning(text: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { health: Health::Warning, text: text.into(), remedy: remedy.into() }
    }

    pub(super) fn error(text: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { health: Health::Error, text: text.into(), remedy: remedy.into() }
    }

    /// Returns the finding of a check that a start makes, too.
    pub(super) fn of(checked: Result<String, Exit>) -> Finding {
        match checked {
            Ok(text) => Finding::ok(text),
            Err(exit) => Finding::error(exit.what.clone(), exit.remedy()),
        }
    }
}
