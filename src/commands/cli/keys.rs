//! The grammar of the commands on API keys and code secrets, and the place of a data directory.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::days::DAY_END;
use carom_limits::{APP_CREATES_MAX, KEY_GRACE_MAX};
use carom_model::access::{APP_NAME_LEN_MAX, AppName, KEY_NAME_LEN_MAX, KeyName, Role};
use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;

/// The subcommands of `carom app`.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum AppCommand {
    /// Create an API key for a new or existing app. It is printed only this once.
    Add {
        /// Name of the app: a-z, 0-9, and . _ - after the first character
        #[arg(value_name = "NAME", value_parser = app_name)]
        app: AppName,
        /// Name by which people recognise the key, such as a person or a device [default: none]
        #[arg(long = "name", value_name = "TEXT", value_parser = key_name)]
        key_name: Option<KeyName>,
        /// Role of the key: read, read-all, write-own, write-all or admin
        #[arg(long, value_name = "ROLE", default_value = "write-own", value_parser = role)]
        role: Role,
        /// Expiry of the key: a date such as 2030-01-31 (until its end in UTC), or a date and time [default: never]
        #[arg(long, value_name = "DATE", value_parser = end)]
        expires: Option<u64>,
        /// Links that the app may create per second on all nodes together [default: limits.creates_per_second]
        #[arg(long, value_name = "N", value_parser = rate)]
        creates_per_second: Option<NonZeroU32>,
        /// Limit the key to a domain of domains.serve, or to DEFAULT, the default domain; can be repeated [default:
        /// all]
        #[arg(long = "domain", value_name = "HOST")]
        domains: Vec<String>,
        /// The data directory.
        #[command(flatten)]
        place: AppPlace,
    },
    /// List all apps and their keys.
    List {
        /// JSON output.
        #[arg(long)]
        json: bool,
        /// The data directory.
        #[command(flatten)]
        place: AppPlace,
    },
    /// Revoke all keys of an app, or one of them. This cannot be undone.
    Revoke {
        /// Name of the app.
        #[arg(value_name = "NAME", value_parser = app_name)]
        app: AppName,
        /// ID of the key, as shown by `carom app list` [default: all keys]
        #[arg(long, value_name = "ID")]
        key: Option<String>,
        /// The data directory.
        #[command(flatten)]
        place: AppPlace,
    },
    /// Replace a key with a new one; the old key stays valid for a while.
    Rotate {
        /// Name of the app.
        #[arg(value_name = "NAME", value_parser = app_name)]
        app: AppName,
        /// ID of the key, as shown by `carom app list` [default: the only key]
        #[arg(long, value_name = "ID")]
        key: Option<String>,
        /// Time for which the old key stays valid, such as 0, 30m, 24h or 7d
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = grace)]
        grace: Duration,
        /// The data directory.
        #[command(flatten)]
        place: AppPlace,
    },
}

/// The data directory of a node, and its settings file.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct AppPlace {
    /// Data directory of the node [default: CAROM_DATA_DIR, or ./carom-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Settings file of the node, with its data directory and domains [default: CAROM_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The subcommands of `carom key`.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum KeyCommand {
    /// Print a new random code secret.
    New,
    /// Print the fingerprint of a code secret, which identifies it without revealing it.
    ShowFingerprint(KeyPlace),
}

/// The source of a code secret: a file, a data directory, or the settings.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct KeyPlace {
    /// File with the code secret [default: that of the settings, or of the data directory]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "config"])]
    pub space_key_file: Option<PathBuf>,
    /// The data directory.
    #[command(flatten)]
    pub place: AppPlace,
}

/// Parses the name of an app.
fn app_name(text: &str) -> Result<AppName, String> {
    AppName::parse(text)
        .map_err(|_| format!("expected 1 to {APP_NAME_LEN_MAX} characters of a-z and 0-9, and . _ - after the first"))
}

/// Parses the name of a key.
fn key_name(text: &str) -> Result<KeyName, String> {
    KeyName::parse(text).ok_or_else(|| {
        format!(
            "expected 1 to {KEY_NAME_LEN_MAX} characters, with no white space at either end and none that are hidden"
        )
    })
}

/// Parses a role.
fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| format!("expected one of {}", Role::names()))
}

/// Parses an expiry: the end of a date, or a date and time, to milliseconds since 1970 UTC.
fn end(text: &str) -> Result<u64, String> {
    let is_day = text.len() == 10;
    let ms = dates::parse(&if is_day { format!("{text}{DAY_END}") } else { text.to_owned() });
    match ms.map_err(|_| "expected a date such as 2030-01-31 or 2030-01-31T12:00:00Z".to_owned())? {
        ms if ms <= unix_ms() => Err("this date has passed; expected a date in the future".to_owned()),
        ms => Ok(ms),
    }
}

/// Parses a rate of creates, per second.
pub(super) fn rate(text: &str) -> Result<NonZeroU32, String> {
    let most = APP_CREATES_MAX;
    let number = text.parse::<NonZeroU32>().ok().filter(|number| number.get() <= most);
    number.ok_or_else(|| format!("expected a whole number from 1 to {most}"))
}

/// Parses the grace period of an old key, such as `0`, `30m`, `24h` or `7d`.
fn grace(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, &text[number.len()..]),
        None if text == "0" => ("0", "s"),
        None => ("", ""),
    };
    let seconds = match unit {
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => 1,
    };
    let time = number.parse::<u32>().ok().map(|number| Duration::from_secs(u64::from(number) * seconds));
    time.filter(|time| *time <= KEY_GRACE_MAX)
        .ok_or_else(|| "expected a time of at most a year, such as 0, 30m, 24h or 7d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, seconds) in [("0", 0), ("90s", 90), ("30m", 1_800), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(grace(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "h", "5", "-1h", "1.5h", "400d", "é", "9999999999d"] {
            assert!(grace(wrong).is_err(), "{wrong}");
        }
        assert_eq!(end("9000-01-01"), end("9000-01-01T23:59:59Z"));
        assert!(end("2020-01-01").is_err());
        assert!(end("soon").is_err());
        assert!(key_name("Anna’s phone").is_ok());
        assert!(key_name(" ").is_err());
        assert!(rate("0").is_err());
        assert!(rate("5") == Ok(NonZeroU32::new(5).unwrap()));
    }
}
