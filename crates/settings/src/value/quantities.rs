//! Parsers of sizes and durations, and their form in settings.

use std::time::Duration;

use super::{Written, text};
use crate::problem::{InvalidValue, quoted};
use carom_limits::SEARCH_MEMORY_MIN;

/// Units of sizes, binary and then decimal, each the largest first. The decimal ones are accepted as well, because
/// people often write them for the binary ones.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// Reads a size of at least `least` bytes.
pub(crate) fn size(written: &Written, least: u64) -> Result<u64, InvalidValue> {
    let right = || format!("write a size of at least {}, such as 512MiB or 8GiB", show_size(least));
    let text = match written {
        Written::Integer(digits) => digits,
        other => text(other)?,
    };
    let text = text.trim();
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(text.len() - digits);
    let unit = unit.trim();
    let factor = match unit {
        "" => Some(1),
        unit => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor),
    };
    let Some((number, factor)) = number.parse::<u64>().ok().zip(factor) else {
        return Err(InvalidValue::new(format!("{} is not a size", quoted(text)), right()));
    };
    match number.checked_mul(factor) {
        Some(bytes) if bytes >= least => Ok(bytes),
        Some(_) => Err(InvalidValue::new(format!("{} is too small", quoted(text)), right())),
        None => Err(InvalidValue::new(format!("{} is too large", quoted(text)), right())),
    }
}

/// Reads the memory for searches in bytes, or `off` for 0.
pub(crate) fn search_memory(written: &Written) -> Result<u64, InvalidValue> {
    match written {
        Written::Text(text) | Written::Word(text) if text.trim() == "off" => Ok(0),
        other => {
            let or_off = |wrong: InvalidValue| InvalidValue { right: format!("{}, or \"off\"", wrong.right), ..wrong };
            size(other, SEARCH_MEMORY_MIN).map_err(or_off)
        }
    }
}

/// Reads a size from `least` to `most` bytes.
pub(crate) fn size_within(written: &Written, least: u64, most: u64) -> Result<u64, InvalidValue> {
    match size(written, least)? {
        bytes if bytes <= most => Ok(bytes),
        bytes => Err(InvalidValue::new(
            format!("{} is too large", show_size(bytes)),
            format!("write a size of at most {}", show_size(most)),
        )),
    }
}

/// Formats a size so that [`size`] can read it.
pub(crate) fn show_size(bytes: u64) -> String {
    let binary = UNITS[..4].iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    binary.map_or_else(|| bytes.to_string(), |(name, factor)| format!("{}{name}", bytes / factor))
}

/// Units of times, each with its seconds.
const TIME_UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// Longest time in seconds: ten years, longer than anybody would wait.
const TIME_MAX: u64 = 3_650 * 86_400;

/// Parses a duration such as `90s` or `1d`, or `off`.
pub(crate) fn time_or_off(written: &Written) -> Result<Option<Duration>, InvalidValue> {
    time_or_word(written, "off")
}

/// Parses a duration such as `90s` or `1d`, or `forever`.
pub(crate) fn time_or_forever(written: &Written) -> Result<Option<Duration>, InvalidValue> {
    time_or_word(written, "forever")
}

/// Parses a duration from 0 to an hour.
pub(crate) fn time_up_to_hour(written: &Written) -> Result<Duration, InvalidValue> {
    const RIGHT: &str = "write a time from \"0s\" to \"1h\", such as \"10s\"";
    let time = time_or_word(written, "0s")
        .map_err(|wrong| InvalidValue { right: RIGHT.to_owned(), ..wrong })?
        .unwrap_or_default();
    match time.as_secs() {
        0..=3_600 => Ok(time),
        _ => Err(InvalidValue::new(format!("{} is more than an hour", quoted(&show_time(time))), RIGHT)),
    }
}

/// Shortest retention: nodes measure their lag once a second.
const RETENTION_MIN: Duration = Duration::from_secs(10);

/// Parses a duration of at least ten seconds, or `forever`.
pub(crate) fn retention(written: &Written) -> Result<Option<Duration>, InvalidValue> {
    match time_or_forever(written)? {
        Some(time) if time < RETENTION_MIN => Err(InvalidValue::new(
            format!("{} is too short", quoted(&show_time(time))),
            "write \"forever\", or a time of at least \"10s\", such as \"7d\"",
        )),
        time => Ok(time),
    }
}

/// Reads a time, or a word for no limit.
fn time_or_word(written: &Written, word: &str) -> Result<Option<Duration>, InvalidValue> {
    let right = format!("write \"{word}\", or a time such as \"90s\", \"30m\", \"12h\" or \"1d\"");
    let text = match written {
        Written::Integer(digits) => return Err(InvalidValue::new(format!("{} has no unit", quoted(digits)), right)),
        written => text(written).map_err(|wrong| InvalidValue { right: right.clone(), ..wrong })?.trim(),
    };
    if text.eq_ignore_ascii_case(word) {
        return Ok(None);
    }
    let unit = |(unit, seconds)| text.strip_suffix(unit).map(|number| (number, seconds));
    let Some((number, unit)) = TIME_UNITS.into_iter().find_map(unit) else {
        return Err(InvalidValue::new(format!("{} is not a time", quoted(text)), right));
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(seconds @ 1..=TIME_MAX) => Ok(Some(Duration::from_secs(seconds))),
        Some(0) => Err(InvalidValue::new(format!("{} is zero", quoted(text)), right)),
        Some(_) => Err(InvalidValue::new(format!("{} is longer than ten years", quoted(text)), right)),
        None => Err(InvalidValue::new(format!("{} is not a time", quoted(text)), right)),
    }
}

/// Formats a duration as in settings.
pub(crate) fn show_time(time: Duration) -> String {
    let seconds = time.as_secs();
    let fits = TIME_UNITS.into_iter().find(|(_, unit)| seconds.is_multiple_of(*unit));
    let (unit, in_seconds) = fits.unwrap_or(('s', 1));
    format!("{}{unit}", seconds / in_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Written {
        Written::Word(text.to_owned())
    }

    #[test]
    fn sizes_have_units() {
        for (written, bytes) in
            [("1048576", 1 << 20), ("1MiB", 1 << 20), (" 2 gib ", 2 << 30), ("3GB", 3_000_000_000), ("700kB", 700_000)]
        {
            assert_eq!(size(&word(written), 1).unwrap(), bytes, "{written}");
            assert_eq!(size(&word(&show_size(bytes)), 1).unwrap(), bytes);
        }
        for wrong in ["", "MiB", "-1", "1.5GiB", "5 parsecs", "0", "18446744073709551616"] {
            assert!(size(&word(wrong), 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn windows_have_units() {
        for (written, seconds) in [("off", None), ("OFF", None), ("90s", Some(90)), ("30m", Some(1_800))]
            .into_iter()
            .chain([("12h", Some(43_200)), ("1d", Some(86_400)), ("3650d", Some(TIME_MAX)), ("61m", Some(3_660))])
        {
            let read = time_or_off(&word(written)).unwrap();
            assert_eq!(read.map(|time| time.as_secs()), seconds, "{written}");
            let text = read.map_or("off".to_owned(), show_time);
            assert_eq!(time_or_off(&Written::Text(text)).unwrap(), read);
        }
        assert_eq!(show_time(Duration::from_secs(90 * 60)), "90m");
        for wrong in ["", "0s", "d", "1", "1w", "-1d", "1.5h", "1 d", "99999999999999999d", "3651d", "1ä", "1dd"] {
            assert!(time_or_off(&word(wrong)).is_err(), "{wrong}");
        }
        assert!(time_or_off(&Written::Integer("5".into())).unwrap_err().reason.contains("no unit"));
        assert!(time_or_off(&Written::Bool(false)).is_err());
    }

    #[test]
    fn retention_is_longer_than_a_few_heartbeats() {
        assert_eq!(retention(&word("forever")).unwrap(), None);
        assert_eq!(retention(&word("10s")).unwrap(), Some(RETENTION_MIN));
        assert!(retention(&word("9s")).unwrap_err().reason.contains("too short"));
        assert!(retention(&word("off")).is_err());
    }
}
