//! The result of a check.

use carom_settings::exit::Exit;

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CheckSeverity {
    Ok,
    Warning,
    Error,
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CheckResult {
    pub(super) health: CheckSeverity,
    pub(super) text: String,
    /// The remedy; empty if nothing is to be done.
    pub(super) remedy: String,
}

impl CheckResult {
    pub(super) fn ok(text: impl Into<String>) -> CheckResult {
        CheckResult { health: CheckSeverity::Ok, text: text.into(), remedy: String::new() }
    }

    pub(super) fn warning(text: impl Into<String>, remedy: impl Into<String>) -> CheckResult {
        CheckResult { health: CheckSeverity::Warning, text: text.into(), remedy: remedy.into() }
    }

    pub(super) fn error(text: impl Into<String>, remedy: impl Into<String>) -> CheckResult {
        CheckResult { health: CheckSeverity::Error, text: text.into(), remedy: remedy.into() }
    }

    /// Returns the finding of a check that a start makes, too.
    pub(super) fn of(checked: Result<String, Exit>) -> CheckResult {
        match checked {
            Ok(text) => CheckResult::ok(text),
            Err(exit) => CheckResult::error(exit.what.clone(), exit.remedy()),
        }
    }
}
