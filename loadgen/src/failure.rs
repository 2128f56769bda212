//! The reasons to end without a verdict, and their exit codes.

/// Exit code for invalid options or files.
const USAGE: u8 = 2;

/// Exit code for an unreachable target.
pub(crate) const UNREACHABLE: u8 = 4;

/// Exit code for a signal before there was a result.
pub(crate) const INTERRUPTED: u8 = 130;

/// A reason to end, with its exit code.
pub(crate) struct Failure {
    /// Exit code of the process.
    pub(crate) code: u8,
    /// Reason, for the user.
    pub(crate) text: String,
}

impl Failure {
    /// Returns the failure of an invalid option or file.
    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure { code: USAGE, text: text.into() }
    }
}
