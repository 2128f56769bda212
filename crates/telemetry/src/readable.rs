//! Numbers and durations for people, the same in the terminal and on the status page. The console has the same formats
//! in `format.js`.

/// Seconds of a minute, an hour, and a day.
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Seconds of an average year.
const YEAR: u64 = 31_557_600;

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
