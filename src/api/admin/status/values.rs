//! Values of the status as texts for people.

use serde_json::Value;

use carom_model::formats::dates;
use carom_telemetry::readable;

/// The items of a list; none where it is no list.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns the sum of a number over all cores, or over all apps.
pub(super) fn sum_of(all: &Value, name: &str) -> u64 {
    items(all).map(|one| one[name].as_u64().unwrap_or(0)).sum()
}

/// A text of the status.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Formats an instant of the status as other pages do: `23 Nov 2026, 14:05`, in UTC.
pub(super) fn instant(value: &Value) -> String {
    let seconds = value.as_str().and_then(|text| dates::parse(text).ok());
    seconds.map_or_else(|| text(value).to_owned(), |ms| dates::format_as(ms / 1_000, "%-d %b %Y, %H:%M"))
}

/// Formats a number with separated thousands.
pub(super) fn grouped(value: &Value) -> String {
    readable::grouped(value.as_u64().unwrap_or(0))
}

/// Formats a number with one decimal and separated thousands; `number` is at least 0.
pub(super) fn tenths(number: f64) -> String {
    let tenths = (number * 10.0).round() as u64;
    format!("{}.{}", readable::grouped(tenths / 10), tenths % 10)
}

/// Formats a number that may be too long for its card: three digits and a word.
pub(super) fn rounded(value: &Value) -> String {
    let number = value.as_u64().unwrap_or(0) as f64;
    match number {
        1e15.. => format!("{:.1} quadrillion", number / 1e15),
        1e12.. => format!("{:.2} trillion", number / 1e12),
        1e9.. => format!("{:.1} billion", number / 1e9),
        _ => grouped(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_and_texts_are_fit_for_people_and_browsers() {
        assert_eq!(grouped(&json!(1_234_567)), "1,234,567");
        assert_eq!(grouped(&json!(999)), "999");
        assert_eq!(tenths(15_532.04), "15,532.0");
        assert_eq!(rounded(&json!(3_521_614_586_208_u64)), "3.52 trillion");
    }
}
