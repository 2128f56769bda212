//! The description of a setting: a row of the registry.

use super::key::Key;
use super::shown::Shown;
use crate::settings::Settings;

/// The public description of a setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The setting.
    pub key: Key,
    /// The name in the TOML file, with a dot between table and key.
    pub name: &'static str,
    /// The environment variable.
    pub env: &'static str,
    /// The flag of `carom serve`.
    pub flag: Option<&'static str>,
    /// The form of its values, for people.
    pub kind: &'static str,
    /// The value if no source sets one, written as in the environment.
    pub default: Option<&'static str>,
    /// True if the value is a secret. Secrets are never shown, and are accepted neither in the file nor from a flag.
    pub secret: bool,
    /// The effect of the setting.
    pub doc: &'static str,
    /// Returns the value of checked settings, as it may be shown to people.
    pub(crate) show: fn(&Settings) -> Shown,
}
