//! The checks of the access log.

use super::checker::Checker;
use crate::keys::Key;
use crate::problem::{InvalidValue, Warning, quoted};
use crate::settings::access_log::terms::{AccessFormat, AccessLog, Addresses, LogPlace, STANDARD_OUTPUT};
use crate::value::{self, Written, one_of};

/// Largest sampling interval: at least one request in this many is logged.
const ONE_IN_MAX: u64 = 1_000_000;

impl Checker<'_> {
    /// Returns the settings of the access log; `None` if one of them is invalid.
    pub(super) fn access_log(&mut self) -> Option<AccessLog> {
        let place = self.one(Key::AccessLogFile, place);
        let format = self.one(Key::AccessLogFormat, |written| {
            one_of(written, "json or combined", &AccessFormat::ALL, AccessFormat::as_str)
        });
        let one_in = self.one(Key::AccessLogOneIn, |written| value::integer(written, 1, ONE_IN_MAX));
        let addresses = self.one(Key::AccessLogAddresses, |written| {
            one_of(written, "shortened, full or off", &Addresses::ALL, Addresses::as_str)
        });
        let others = [Key::AccessLogFormat, Key::AccessLogOneIn, Key::AccessLogAddresses];
        for key in others {
            if place.is_some() || !self.is_set(key) {
                continue;
            }
            let name = key.setting().name;
            self.warnings.push(Warning(format!("{name} has no effect, because access_log.file is not set")));
        }
        let (format, one_in, addresses) = (format?, u32::try_from(one_in?).ok()?, addresses?);
        Some(AccessLog { place, format, one_in, addresses })
    }
}

/// Reads the destination of log lines.
fn place(written: &Written) -> Result<LogPlace, InvalidValue> {
    let path = value::path(written)?;
    let right = "name a file, or - for standard output";
    match path.to_string_lossy().trim() {
        STANDARD_OUTPUT => Ok(LogPlace::StandardOutput),
        "" => Err(InvalidValue::new("is blank", right)),
        text if path.is_dir() => Err(InvalidValue::new(format!("{} is a directory", quoted(text)), right)),
        _ => Ok(LogPlace::File(path)),
    }
}
