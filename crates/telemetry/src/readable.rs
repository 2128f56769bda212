//! Numbers and durations for people, in the terminal, on the status page, and in reports of the load generator. The
//! console has the same formats in `format.js`.

/// Seconds of a minute, an hour, and a day.
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Seconds of an average year.
const YEAR: u64 = 31_557_600;

/// Seconds of 100 years. Nobody plans for the end of what lasts longer.
const CENTURY: u64 = 100 * YEAR;

/// Seconds from which on a duration is shown in years.
const YEARS_FROM: u64 = 400 * DAY;

/// Formats an integer with commas between thousands: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 link`, `1,234 links`.
pub fn count(number: u64, one: &str) -> String {
    format!("{} {one}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// A latency of so many microseconds, with about three digits: `4.59 µs`, `160 µs`, `1.2 ms`.
pub fn latency(micros: f64) -> String {
    let (scaled, unit) = match micros {
        micros if micros < 1e3 => (micros, "µs"),
        micros if micros < 1e6 => (micros / 1e3, "ms"),
        micros => (micros / 1e6, "s"),
    };
    let text = match scaled {
        scaled if scaled < 10.0 => format!("{scaled:.2}"),
        scaled if scaled < 100.0 => format!("{scaled:.1}"),
        scaled => return format!("{scaled:.0} {unit}"),
    };
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A latency in microseconds as text with two significant digits: `9.9 µs`, `160 µs`, `1.2 ms`, `15 ms`.
pub fn rounded_latency(micros: f64) -> String {
    if micros < 0.1 {
        return "0 µs".to_owned();
    }
    let digit = 10_f64.powf(micros.log10().floor() - 1.0);
    // Rounded first: 999 µs are 1 ms.
    let (scaled, unit) = match (micros / digit).round() * digit {
        micros if micros < 999.5 => (micros, "µs"),
        micros if micros < 999.5e3 => (micros / 1e3, "ms"),
        micros => (micros / 1e6, "s"),
    };
    let text = format!("{scaled:.*}", usize::from(scaled < 9.95));
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

/// Formats a duration in its two largest units: `59 s`, `1 d 2 h`, `3 years`.
pub fn duration(seconds: u64) -> String {
    if seconds >= YEARS_FROM {
        let years = (seconds + YEAR / 2) / YEAR;
        return format!("{} {}", grouped(years), if years == 1 { "year" } else { "years" });
    }
    let units = [("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", 1)];
    let largest = units.iter().position(|(_, size)| seconds >= *size).unwrap_or(units.len() - 1);
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (name, size) in units.iter().skip(largest).take(2) {
        let times = rest / size;
        rest %= size;
        if times > 0 || parts.is_empty() {
            parts.push(format!("{times} {name}"));
        }
    }
    parts.join(" ")
}

/// Formats the time for which something lasts: a duration, or `more than 100 years`.
pub fn at_most_century(seconds: u64) -> String {
    if seconds >= CENTURY { "more than 100 years".to_owned() } else { duration(seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn nouns_agree_with_their_number() {
        for (number, text) in [(0, "0 links"), (1, "1 link"), (2, "2 links"), (1_000, "1,000 links")] {
            assert_eq!(count(number, "link"), text);
        }
    }

    #[test]
    fn latencies_have_about_three_digits() {
        for (micros, text) in [
            (0.0, "0 µs"),
            (4.587, "4.59 µs"),
            (16.4, "16.4 µs"),
            (160.2, "160 µs"),
            (1_200.0, "1.2 ms"),
            (99_940.0, "99.9 ms"),
            (2_000_000.0, "2 s"),
        ] {
            assert_eq!(latency(micros), text);
        }
    }

    #[test]
    fn rounded_latencies_have_two_digits() {
        for (micros, text) in [
            (0.0, "0 µs"),
            (0.52, "0.5 µs"),
            (4.0, "4 µs"),
            (9.94, "9.9 µs"),
            (9.96, "10 µs"),
            (89.6, "90 µs"),
            (512.4, "510 µs"),
            (994.0, "990 µs"),
            (996.0, "1 ms"),
            (1_249.0, "1.2 ms"),
            (15_466.5, "15 ms"),
            (999_000.0, "1 s"),
            (2_340_000.0, "2.3 s"),
        ] {
            assert_eq!(rounded_latency(micros), text);
        }
    }

    #[test]
    fn ends_after_a_century_have_no_number() {
        assert_eq!(at_most_century(86_400), "1 d");
        assert_eq!(at_most_century(CENTURY - 1), "100 years");
        for seconds in [CENTURY, u64::MAX] {
            assert_eq!(at_most_century(seconds), "more than 100 years");
        }
    }

    #[test]
    fn times_have_their_two_largest_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (3_605, "1 h"),
            (90_000, "1 d 1 h"),
            (400 * DAY - 1, "399 d 23 h"),
            (400 * DAY, "1 year"),
            (320_000_000_000, "10,140 years"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
