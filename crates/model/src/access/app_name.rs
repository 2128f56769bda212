//! The name of an app, and the version that it reports of itself.

use std::fmt;
use std::sync::Arc;

/// Longest name of an app, in characters.
pub const APP_NAME_LEN_MAX: usize = 64;

/// Longest version that an app may report of itself, in characters.
pub const APP_VERSION_LEN_MAX: usize = 64;

/// The name of an app: 1 to 64 characters of `a-z0-9`, and `.`, `_` and `-` after the first. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AppName(Arc<str>);

/// The text is not a valid name of an app. A retry cannot succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameError;

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "is not a valid app name: 1 to {APP_NAME_LEN_MAX} characters of a-z and 0-9, and . _ - after the first"
        )
    }
}

impl std::error::Error for NameError {}

impl AppName {
    /// Parses a name.
    ///
    /// # Errors
    /// [`NameError`] unless the text is a valid name.
    pub fn parse(text: &str) -> Result<AppName, NameError> {
        if AppName::is_name(text) { Ok(AppName(text.into())) } else { Err(NameError) }
    }

    /// True if a text is a valid name.
    pub fn is_name(text: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        text.len() <= APP_NAME_LEN_MAX
            && text.bytes().next().is_some_and(is_plain)
            && text.bytes().all(|byte| is_plain(byte) || matches!(byte, b'.' | b'_' | b'-'))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AppName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// True if a text is a valid version of an app: 1 to 64 printable ASCII characters.
pub fn is_app_version(text: &str) -> bool {
    (1..=APP_VERSION_LEN_MAX).contains(&text.len()) && text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
}
