//! Settings, read from flags, environment and file, and checked all at once.
//!
//! [`Flags`], the environment and the file provide raw settings (`sources`). `check` turns them into checked
//! [`Settings`], or reports every mistake with its source. The registry defines each setting once, and [`keys`] looks
//! settings up in it.
//!
//! This crate prints nothing, opens no socket, and does not read the code secret: it only returns what was configured.
//! It knows no HTTP, reads no file but that of the settings, and asks the kernel only for the CPUs that it may use.
//!
//! Read first:
//!
//! 1. `registry::setting`, a row of the registry: names, default, kind and description of a setting;
//! 2. `registry::key`, the keys of all settings, and one of the tables in `registry`;
//! 3. `sources::raw`, the values as written, the strongest source first;
//! 4. `check::checker`, which parses each value and collects all mistakes;
//! 5. `check`, which compares settings that depend on each other;
//! 6. `value`, the parsers of values;
//! 7. [`Settings`], the result;
//! 8. [`ConfigErrors`], mistakes with their sources;
//! 9. [`help`], and [`Settings::describe`], settings as text;
//! 10. [`exit::Reason`], the reasons for which the process ends.

pub mod check;
mod describe;
pub mod exit;
pub mod help;
pub mod keys;
mod problem;
mod registry;
mod settings;
mod sources;
#[cfg(test)]
mod tests;
mod value;

use std::path::Path;

pub use describe::ShownSetting;
pub use problem::{ConfigErrors, SettingsProblem, ValueSource, Warning};
pub use settings::api::Api;
pub use settings::bypass::{BypassMode, BypassSettings, BypassTunnel};
pub use settings::pages::PageSettings;
pub use settings::{
    DomainSettings, ExpirySettings, FleetSettings, HostListSettings, KeySource, Limits, LinkHome, LinkPaths,
    ListSource, Residency, Settings, SiteSettings, Tls,
};
pub use settings::{access_log, events, visits};
pub use sources::raw::Flags;
pub use value::cpus::{Cores, CpuChoice};
pub use value::domains::BaseUrl;
pub use value::logs::{LogFormat, LogLevel};
pub use value::redis_url::{RedisUrl, SentinelService, is_name};
pub use value::secret::Secret;
pub use value::urls::AmqpUrl;
pub use value::{apollo, colour};

use check::checker::Checker;
use sources::raw::Raw;
use value::cpus;

impl Settings {
    /// Loads the settings of a node. Flags override the environment, which overrides the file, which overrides the
    /// defaults. `file` is the one named by `--config`; without it, `CAROM_CONFIG` may name one. On success the caller
    /// should show the warnings.
    ///
    /// # Errors
    /// Every mistake of every source.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        flags: Flags,
    ) -> Result<(Settings, Vec<Warning>), ConfigErrors> {
        load(file, env, flags, &cpus::allowed())
    }

    /// Returns the settings for people, each with its source, without secrets.
    pub fn shown(&self) -> Vec<ShownSetting> {
        describe::shown(self)
    }

    /// Returns the settings as commented TOML, each with its source, without secrets. It reads back as the same
    /// settings, apart from a code secret that came from the environment.
    pub fn describe(&self) -> String {
        describe::describe(self)
    }
}

/// Returns the environment of this process for [`Settings::load`]. Text that is not UTF-8 is converted lossily, so that
/// an invalid value is reported rather than ignored.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
}

fn load(
    file: Option<&Path>,
    env: impl Iterator<Item = (String, String)>,
    flags: Flags,
    allowed: &[usize],
) -> Result<(Settings, Vec<Warning>), ConfigErrors> {
    let mut problems = Vec::new();
    let mut warnings = Vec::new();
    let raw = Raw::collect(file, env, flags, &mut problems, &mut warnings);
    let mut checker = Checker::new(&raw, problems, warnings);
    match checker.settings(allowed) {
        Some(settings) => Ok((settings, checker.warnings)),
        None => Err(ConfigErrors::new(checker.problems)),
    }
}
