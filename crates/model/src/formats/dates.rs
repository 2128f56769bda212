//! Dates in the form of the API and of import and export files: ISO 8601 with an offset, between 1970 and 9999.
//!
//! Inside the server, an instant is a number of milliseconds since 1970 UTC. This module reads no clock.

use std::fmt;

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};

/// The last instant of the year 9999, in milliseconds since 1970 UTC.
pub const INSTANT_MS_MAX: u64 = 253_402_300_799_999;

/// The reason for which a text is not a date. The client must correct it: a retry cannot succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DateError {
    /// The text is not an ISO 8601 date and time with an offset.
    Unreadable,
    /// Before 1970 or after 9999.
    OutOfRange,
}

impl fmt::Display for DateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DateError::Unreadable => {
                "is not an ISO 8601 date and time with an offset from UTC, such as 2026-01-02T03:04:05+00:00"
            }
            DateError::OutOfRange => "is before 1970 or after 9999",
        })
    }
}

impl std::error::Error for DateError {}

/// Parses a date and time with an offset. Fractions of a millisecond are cut off.
///
/// # Errors
/// [`DateError`] if the text has another form, or names an instant out of range.
pub fn parse(text: &str) -> Result<u64, DateError> {
    if let Some(ms) = parse_plain(text.as_bytes()) {
        return Ok(ms);
    }
    // The library also accepts annotations such as `[Europe/Berlin]`, which ISO 8601 lacks.
    if text.contains('[') {
        return Err(DateError::Unreadable);
    }
    let ms = match text.parse::<Timestamp>() {
        Ok(instant) => instant.as_millisecond(),
        Err(_) => years_earlier(text).ok_or(DateError::Unreadable)?.as_millisecond() + CYCLE_MS,
    };
    u64::try_from(ms).ok().filter(|&ms| ms <= INSTANT_MS_MAX).ok_or(DateError::OutOfRange)
}

/// Milliseconds in 400 years, the period of the calendar.
const CYCLE_MS: i64 = 146_097 * 86_400_000;

/// Parses a date 400 years earlier. The library's range ends a day before ours, and this leaves room for every offset.
fn years_earlier(text: &str) -> Option<Timestamp> {
    text.strip_prefix("9999").and_then(|rest| format!("9599{rest}").parse().ok())
}

/// Parses the form that [`format`] writes without milliseconds, in UTC. Imports consist of such dates.
fn parse_plain(text: &[u8]) -> Option<u64> {
    let (text, offset) = text.split_at_checked(19)?;
    if (offset != b"+00:00" && offset != b"Z")
        || [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')].iter().any(|&(at, sign)| text[at] != sign)
    {
        return None;
    }
    let number = |from: usize, to: usize| {
        text[from..to]
            .iter()
            .try_fold(0u64, |number, &digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u64::from(leap),
        1..=12 => 31,
        _ => return None,
    };
    if year < 1970 || !(1..=month_days).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some((((days_to(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * 1_000)
}

/// Returns the days from 1970-01-01 to a date in or after 1970 (Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
fn days_to(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let year_day = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let (era, era_year) = (year / 400, year % 400);
    era * 146_097 + era_year * 365 + era_year / 4 - era_year / 100 + year_day - 719_468
}

/// The instant 0, 1970-01-01 00:00:00 UTC.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Formats a second since 1970 UTC with a strftime pattern. Later instants are written as
/// [`INSTANT_MS_MAX`].
pub fn format_as(second: u64, form: &str) -> String {
    let second = second.min(INSTANT_MS_MAX / 1_000) as i64;
    // Without a zone, since the last day of 9999 is beyond the library's range of instants.
    let instant = EPOCH.checked_add(SignedDuration::from_secs(second)).unwrap_or(DateTime::MAX);
    instant.strftime(form).to_string()
}

/// Returns the beginning of the second that an instant is in.
pub const fn whole_second(ms: u64) -> u64 {
    ms / 1_000 * 1_000
}

/// Formats an instant in UTC, with milliseconds only if they are not zero. Later instants are written as
/// [`INSTANT_MS_MAX`]; no client can have sent them.
pub fn format(ms: u64) -> String {
    let mut out = Vec::with_capacity(29);
    push(ms, &mut out);
    String::from_utf8(out).expect("digits and signs are ASCII")
}

/// Appends what [`format`] returns to `out`.
pub fn push(ms: u64, out: &mut Vec<u8>) {
    let ms = ms.min(INSTANT_MS_MAX);
    let (days, second_of_day) = (ms / 86_400_000, ms / 1_000 % 86_400);
    let (year, month, day) = date_of(days);
    push_digits(year, 4, out);
    for (sign, number) in [
        (b'-', month),
        (b'-', day),
        (b'T', second_of_day / 3_600),
        (b':', second_of_day / 60 % 60),
        (b':', second_of_day % 60),
    ] {
        out.push(sign);
        push_digits(number, 2, out);
    }
    if !ms.is_multiple_of(1_000) {
        out.push(b'.');
        push_digits(ms % 1_000, 3, out);
    }
    out.extend_from_slice(b"+00:00");
}

fn push_digits(number: u64, places: u32, out: &mut Vec<u8>) {
    for place in (0..places).rev() {
        out.push(b'0' + (number / 10u64.pow(place) % 10) as u8);
    }
}

/// Returns year, month and day, from days since 1970-01-01 (Hinnant, as above).
fn date_of(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, era_day) = (shifted / 146_097, shifted % 146_097);
    let era_year = (era_day - era_day / 1_460 + era_day / 36_524 - era_day / 146_096) / 365;
    let year_day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
    let month_from_march = (5 * year_day + 2) / 153;
    let day = year_day - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + era_year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn dates_round_trip(ms in 0..=INSTANT_MS_MAX) {
            prop_assert_eq!(parse(&format(ms)), Ok(ms));
            let whole = ms / 1_000 * 1_000;
            prop_assert_eq!(parse_plain(format(whole).as_bytes()), Some(whole));
        }

        #[test]
        fn reading_is_total(text in any::<String>(), near in "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:.]{2,12}([+-][0-9:]{2,6}|Z)?") {
            for text in [text, near] {
                if let Ok(ms) = parse(&text) {
                    prop_assert!(ms <= INSTANT_MS_MAX);
                }
            }
        }

        /// The fast path agrees with the library, on valid and invalid dates.
        #[test]
        fn the_short_way_agrees(y in 1960u32..2110, mo in 0u32..14, d in 0u32..33, h in 0u32..25, s in 0u32..60) {
            let text = format!("{y:04}-{mo:02}-{d:02}T{h:02}:30:{s:02}+00:00");
            let library = text.parse::<Timestamp>().ok().map(|instant| instant.as_millisecond());
            let library = library.and_then(|ms| u64::try_from(ms).ok());
            prop_assert_eq!(parse_plain(text.as_bytes()), library, "{}", text);
        }
    }

    #[test]
    fn offsets_count_and_are_needed() {
        assert_eq!(parse("1970-01-01T01:00:00+01:00"), Ok(0));
        assert_eq!(parse("2026-01-02T03:04:05+00:00"), Ok(1_767_323_045_000));
        assert_eq!(parse("2026-01-02T03:04:05.678Z"), Ok(1_767_323_045_678));
        assert_eq!(parse("2026-01-02T05:04:05+02:00"), Ok(1_767_323_045_000));
        for text in [
            "",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "tomorrow",
            "2026-13-02T03:04:05Z",
            "2026-02-29T00:00:00Z",
            "2026-01-02T03:04:05+01:00[Europe/Berlin]",
        ] {
            assert_eq!(parse(text), Err(DateError::Unreadable), "{text}");
        }
    }

    #[test]
    fn the_range_ends_in_1970_and_9999() {
        assert_eq!(parse("1969-12-31T23:59:59+00:00"), Err(DateError::OutOfRange));
        assert_eq!(parse("1970-01-01T00:59:59+01:00"), Err(DateError::OutOfRange));
        assert_eq!(parse("9999-12-31T23:59:59-10:00"), Err(DateError::OutOfRange));
        assert_eq!(parse("9999-12-31T23:59:59.999Z"), Ok(INSTANT_MS_MAX));
        assert_eq!(parse("9999-12-31T14:00:00-09:59"), Ok(INSTANT_MS_MAX - 59_999));
        assert_eq!(format_as(INSTANT_MS_MAX / 1_000, "%-d %b %Y, %H:%M"), "31 Dec 9999, 23:59");
        assert_eq!(format_as(u64::MAX, "%Y"), "9999");
        assert_eq!(format_as(1_767_323_045, "%Y-%m-%d %H:%M:%S"), "2026-01-02 03:04:05");
        assert_eq!(parse("9999-12-31T23:59:59+00:00"), Ok(INSTANT_MS_MAX - 999));
    }

    #[test]
    fn milliseconds_are_written_where_there_are_some() {
        assert_eq!(format(1_767_323_045_000), "2026-01-02T03:04:05+00:00");
        assert_eq!(format(1_767_323_045_078), "2026-01-02T03:04:05.078+00:00");
        assert_eq!(format(0), "1970-01-01T00:00:00+00:00");
    }
}
