//! Numbers as people write them: `20ms`, `40k`, `1.5M`.

use std::time::Duration;

/// Parses a duration: a number followed by `us`, `ms`, `s`, `m` or `h`.
///
/// # Errors
/// A message with the expected form.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let number_len = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(number_len);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(format!("`{text}` is not a time such as 500us, 20ms, 1.5s, 2m or 1h")),
    };
    let value: f64 = number.parse().map_err(|_| format!("`{number}` in `{text}` is not a number"))?;
    Duration::try_from_secs_f64(value * seconds).map_err(|_| format!("`{text}` is too long"))
}

/// Parses a number above zero; the suffixes `k` and `M` stand for thousands and millions, and `_` may separate
/// digits.
///
/// # Errors
/// A message with the expected form.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not a number above zero such as 800, 40k, 40_000 or 1.5M");
    let plain = text.replace('_', "");
    let (digits, factor) = match plain.as_bytes().last() {
        Some(b'k') => (&plain[..plain.len() - 1], 1e3),
        Some(b'M') => (&plain[..plain.len() - 1], 1e6),
        _ => (plain.as_str(), 1.0),
    };
    let value = digits.parse::<f64>().map_err(|_| wrong())? * factor;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(wrong()) }
}

/// Parses a whole number above zero, with the suffixes and separators of [`number`].
///
/// # Errors
/// A message with the expected form.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let value = number(text)?;
    if value.fract() == 0.0 && value <= 1e15 {
        Ok(value as u64)
    } else {
        Err(format!("`{text}` is not a whole number above zero such as 800 or 40k"))
    }
}

/// Formats microseconds in the unit that a person would choose.
pub(crate) fn show_micros(micros: f64) -> String {
    match micros {
        m if m < 1.0 => format!("{:.0} ns", m * 1e3),
        m if m < 1e3 => format!("{m:.0} µs"),
        m if m < 1e4 => format!("{:.2} ms", m / 1e3),
        m if m < 1e6 => format!("{:.1} ms", m / 1e3),
        m => format!("{:.2} s", m / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["20", "ms", "-1s", "1 s", "1d", "nans", ""] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_read_with_their_factor() {
        assert_eq!((number("40k"), number("1.5M"), count("40_000")), (Ok(40e3), Ok(1.5e6), Ok(40_000)));
        for wrong in ["0", "-1", "x", "", "k", "inf", "NaN"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
        assert!(count("0.5").is_err());
    }

    #[test]
    fn what_is_shown_is_short() {
        assert_eq!(show_micros(0.25), "250 ns");
        assert_eq!(show_micros(812.4), "812 µs");
        assert_eq!(show_micros(1_234.0), "1.23 ms");
        assert_eq!(show_micros(2_500_000.0), "2.50 s");
    }
}
