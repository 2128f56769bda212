//! Whether requests are written down, and how.

use super::check::Checker;
use super::keys::Key;
use super::problem::{Wrong, quoted};
use super::value::{self, Written};
use crate::access_log::terms::{AccessFormat, AccessLog, Addresses, LogPlace};

/// One request in so many at the least.
const ONE_IN_MAX: u64 = 1_000_000;

/// What stands for standard output where a file is named.
pub(super) const STANDARD_OUTPUT: &str = "-";

impl Checker<'_> {
    /// Whether requests are to be written down, and how. The outer one is missing where a setting is wrong.
    pub(super) fn access_log(&mut self) -> Option<Option<AccessLog>> {
        let place = self.one(Key::AccessLogFile, value::path).map(|path| match path.as_os_str() == STANDARD_OUTPUT {
            true => LogPlace::StandardOutput,
            false => LogPlace::File(path),
        });
        let format = self.one(Key::AccessLogFormat, |written| {
            one_of(written, "json or combined", &AccessFormat::ALL, AccessFormat::as_str)
        });
        let one_in = self.one(Key::AccessLogOneIn, |written| value::integer(written, 1, ONE_IN_MAX));
        let addresses = self.one(Key::AccessLogAddresses, |written| {
            one_of(written, "shortened, full or off", &Addresses::ALL, Addresses::as_str)
        });
        let (format, one_in, addresses) = (format?, u32::try_from(one_in?).ok()?, addresses?);
        Some(place.map(|place| AccessLog { place, format, one_in, addresses }))
    }
}

/// The one of several values that is named.
fn one_of<T: Copy>(
    written: &Written,
    right: &'static str,
    all: &[T],
    name_of: impl Fn(T) -> &'static str,
) -> Result<T, Wrong> {
    let name = value::text(written)?.trim();
    let known = all.iter().copied().find(|known| name_of(*known).eq_ignore_ascii_case(name));
    known.ok_or_else(|| Wrong::new(format!("{} is none of these", quoted(name)), format!("write {right}")))
}
