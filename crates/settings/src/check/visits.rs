//! The checks of the visit log, and of the parameter of requests that are no visits.

use super::checker::Checker;
use crate::keys::Key;
use crate::problem::{InvalidValue, Warning, quoted};
use crate::settings::visits::VisitSettings;
use crate::value::{self, Written, one_of, quantities};
use carom_model::visits::record::VisitAddresses;

/// Smallest size of the log on disk, in bytes: a few segments.
const KEEP_BYTES_MIN: u64 = 64 << 20;

/// Longest name of a query parameter, in characters.
const PARAMETER_LEN_MAX: usize = 32;

/// Reads the name of a query parameter; empty for `off`.
pub(super) fn parameter(written: &Written) -> Result<String, InvalidValue> {
    let name = value::text(written)?.trim();
    if name == "off" {
        return Ok(String::new());
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=PARAMETER_LEN_MAX).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(name.to_owned());
    }
    let right = format!("write off, or a name of at most {PARAMETER_LEN_MAX} letters, digits and -_.");
    Err(InvalidValue::new(format!("{} is not the name of a parameter", quoted(name)), right))
}

/// Reads a switch.
fn on_or_off(written: &Written) -> Result<bool, InvalidValue> {
    one_of(written, "on or off", &[true, false], |is_on| if is_on { "on" } else { "off" })
}

impl Checker<'_> {
    /// Returns the settings of the visit log; `None` if one of them is invalid.
    pub(super) fn visits(&mut self) -> Option<VisitSettings> {
        let (is_on, is_shared) = (self.one(Key::VisitsLog, on_or_off), self.one(Key::VisitsShareLog, on_or_off));
        let keep = self.one(Key::VisitsKeep, quantities::time_or_forever);
        let keep_bytes = self.one(Key::VisitsKeepBytes, |written| quantities::size(written, KEEP_BYTES_MIN));
        let addresses = self.one(Key::VisitsAddresses, |written| {
            one_of(written, "none, network or full", &VisitAddresses::ALL, VisitAddresses::as_str)
        });
        for key in [Key::VisitsShareLog, Key::VisitsKeep, Key::VisitsKeepBytes, Key::VisitsAddresses] {
            if is_on == Some(false) && self.is_set(key) {
                let name = key.setting().name;
                self.warnings.push(Warning(format!("{name} has no effect, because visits.log is off")));
            }
        }
        let (is_on, is_shared, keep, keep_bytes, addresses) = (is_on?, is_shared?, keep?, keep_bytes?, addresses?);
        Some(VisitSettings { is_on, is_shared, keep, keep_bytes, addresses })
    }
}
