//! How requests are written down: what an operator can choose.

use std::path::PathBuf;

/// How requests are written down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessLog {
    /// Where to; `None`: not at all.
    pub place: Option<LogPlace>,
    /// How a line looks.
    pub format: AccessFormat,
    /// One request in so many is written down, chosen by chance; 1: every one.
    pub one_in: u32,
    /// What is written of addresses.
    pub addresses: Addresses,
}

/// Where lines go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogPlace {
    /// To the end of a file.
    File(PathBuf),
    /// To standard output.
    StandardOutput,
}

/// How a line of the access log looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessFormat {
    /// A JSON object.
    Json,
    /// The "combined" lines of Apache and nginx.
    Combined,
}

/// What is written of the addresses of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addresses {
    /// The network alone: the first 24 bits of IPv4, 48 of IPv6.
    Shortened,
    /// All of it.
    Full,
    /// Nothing.
    Off,
}

impl AccessFormat {
    /// All of them.
    pub const ALL: [AccessFormat; 2] = [AccessFormat::Json, AccessFormat::Combined];

    /// Its name in the settings.
    pub fn as_str(self) -> &'static str {
        if self == AccessFormat::Json { "json" } else { "combined" }
    }
}

impl Addresses {
    /// All of them.
    pub const ALL: [Addresses; 3] = [Addresses::Shortened, Addresses::Full, Addresses::Off];

    /// Its name in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Addresses::Shortened => "shortened",
            Addresses::Full => "full",
            Addresses::Off => "off",
        }
    }
}
