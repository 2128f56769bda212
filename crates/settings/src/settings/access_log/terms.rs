//! The settings of the access log.

use std::path::PathBuf;

/// The name that stands for standard output.
pub(crate) const STANDARD_OUTPUT: &str = "-";

/// The settings of the access log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessLog {
    /// The destination; `None` disables the log.
    pub place: Option<LogPlace>,
    /// The format of a line.
    pub format: AccessFormat,
    /// Sampling: one request in this many is logged, chosen at random; 1 logs every request.
    pub one_in: u32,
    /// The treatment of client addresses.
    pub addresses: Addresses,
}

/// The destination of log lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogPlace {
    /// A file, to which lines are appended.
    File(PathBuf),
    /// Standard output.
    StandardOutput,
}

/// The format of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessFormat {
    /// A JSON object.
    Json,
    /// The "combined" format of Apache and nginx.
    Combined,
}

/// The treatment of client addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addresses {
    /// The network of the address: the first 24 bits of IPv4, 48 of IPv6.
    Shortened,
    /// The full address.
    Full,
    /// No address.
    Off,
}

impl AccessFormat {
    /// All formats.
    pub const ALL: [AccessFormat; 2] = [AccessFormat::Json, AccessFormat::Combined];

    /// Returns the name in the settings.
    pub fn as_str(self) -> &'static str {
        if self == AccessFormat::Json { "json" } else { "combined" }
    }
}

impl Addresses {
    /// All treatments.
    pub const ALL: [Addresses; 3] = [Addresses::Shortened, Addresses::Full, Addresses::Off];

    /// Returns the name in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Addresses::Shortened => "shortened",
            Addresses::Full => "full",
            Addresses::Off => "off",
        }
    }
}
