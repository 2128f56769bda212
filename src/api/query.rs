//! The query of a URL, as forms and clients of Shlink write it: names and values with percent escapes, `+` for a
//! space, and lists as `tags[]=a&tags[]=b`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::problem::Invalid;
use carom_model::formats::dates::{self, DateError, INSTANT_MS_MAX};

/// Length of a day, in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// The parameters of a query. Handlers ignore unknown ones; `rest::parameters` refuses them before.
#[derive(Debug)]
pub(super) struct Params {
    pairs: Vec<(String, String)>,
    invalid: Vec<Invalid>,
}

impl Params {
    pub(super) fn of(query: Option<&str>) -> Params {
        Params { pairs: pairs(query.unwrap_or_default()).collect(), invalid: Vec::new() }
    }

    /// Returns parameters with one name and value.
    pub(super) fn single(name: &str, value: &str) -> Params {
        Params { pairs: vec![(name.to_owned(), value.to_owned())], invalid: Vec::new() }
    }

    /// Returns the last value with that name; `None` if it is missing or empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let of_name = self.pairs.iter().rev().find(|(of_pair, _)| of_pair == name);
        of_name.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns all values with that name as a list: `name[]`, `name[0]`, or `name` alone.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        self.items(name).filter(|value| !value.is_empty()).collect()
    }

    /// Returns the length of the list with that name, empty values included.
    pub(super) fn list_len(&self, name: &str) -> usize {
        self.items(name).count()
    }

    fn items(&self, name: &str) -> impl Iterator<Item = &str> {
        let is_of_list = move |of_pair: &str| {
            let Some(rest) = of_pair.strip_prefix(name) else { return false };
            let number = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            rest.is_empty() || number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
        };
        self.pairs.iter().filter(move |(of_pair, _)| is_of_list(of_pair)).map(|(_, value)| value.as_str())
    }

    /// Parses the value with that name. Records an error if `read` refuses it, and returns `None`.
    pub(super) fn read<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(name)?;
        match read(text) {
            Ok(value) => Some(value),
            Err(reason) => {
                let wrong = Invalid::value(name, &reason, &text.into());
                self.invalid.push(wrong);
                None
            }
        }
    }

    /// Parses `itemsPerPage`: a whole number from 1 to `most`, or -1 for as many as a page may have.
    pub(super) fn per_page(&mut self, most: usize) -> Option<usize> {
        self.read("itemsPerPage", |text| {
            let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
            let number = if text == "-1" { Some(most) } else { number };
            let right = || format!("must be a whole number from 1 to {most}, or -1 for {most}");
            number.filter(|number| (1..=most).contains(number)).ok_or_else(right)
        })
    }

    /// Parses a whole number from `least` to `most`.
    pub(super) fn number(&mut self, name: &str, least: u64, most: u64) -> Option<u64> {
        self.read(name, |text| {
            // Signs are refused, which `parse` would accept.
            let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
            number.filter(|number| (least..=most).contains(number)).ok_or_else(|| match most {
                u64::MAX => format!("must be a whole number of at least {least}"),
                most => format!("must be a whole number from {least} to {most}"),
            })
        })
    }

    /// Parses a switch: `true` or `false`, as in Shlink, or 1 or 0. A missing one is off.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        let read = |text: &str| match text {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err("must be true or false".to_owned()),
        };
        self.read(name, read).unwrap_or(false)
    }

    /// Parses a switch that its name alone turns on, like `excludeBots` in Shlink. `false` and 0 turn it off, and so does
    /// its absence.
    pub(super) fn switch(&mut self, name: &str) -> bool {
        let last = self.pairs.iter().rev().find(|(of_pair, _)| of_pair == name);
        last.is_some_and(|(_, value)| value.is_empty()) || self.flag(name)
    }

    /// Parses the start of a range, in milliseconds since 1970 UTC: a date and time, or a day.
    pub(super) fn since_ms(&mut self, name: &str) -> Option<u64> {
        self.read(name, |text| instant(text, false))
    }

    /// Parses the end of a range, in milliseconds since 1970 UTC: a date and time, or a day; a second or a day
    /// is included whole.
    pub(super) fn until_ms(&mut self, name: &str) -> Option<u64> {
        self.read(name, |text| instant(text, true))
    }

    /// Records that a value is invalid.
    pub(super) fn refuse(&mut self, name: &str, reason: impl Into<String>) {
        self.invalid.push(Invalid::new(name, reason));
    }

    /// Ends the parsing of a query.
    ///
    /// # Errors
    /// Every invalid value, with the reason.
    pub(super) fn finish(self) -> Result<(), Vec<Invalid>> {
        if self.invalid.is_empty() { Ok(()) } else { Err(self.invalid) }
    }
}

/// Parses a date and time, or a day: returns the first millisecond of the second or the day, or its last for `is_end`. A
/// time with milliseconds is exact.
fn instant(text: &str, is_end: bool) -> Result<u64, String> {
    if text.len() == "2026-01-02".len() {
        match dates::parse(&format!("{text}T00:00:00+00:00")) {
            Ok(ms) => return Ok(if is_end { ms.saturating_add(DAY_MS - 1).min(INSTANT_MS_MAX) } else { ms }),
            Err(DateError::OutOfRange) => return Err(DateError::OutOfRange.to_string()),
            Err(DateError::Unreadable) => {}
        }
    }
    // An unescaped plus has become a space by now.
    let ms = dates::parse(&text.replace(' ', "+")).map_err(|error| error.to_string())?;
    let is_second = is_end && ms == dates::whole_second(ms);
    Ok(if is_second { ms.saturating_add(999).min(INSTANT_MS_MAX) } else { ms })
}

/// Bytes that [`percent_encoded`] escapes.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Escapes a text for use as a value in a query.
pub(super) fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Returns the names and values of an encoded form.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    form_urlencoded::parse(text.as_bytes()).into_owned()
}

/// Text without its percent escapes. A malformed escape stays as it is; a byte sequence that is not UTF-8 becomes U+FFFD.
pub(super) fn percent_decoded(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_are_taken_out_once() {
        assert_eq!(percent_decoded("a%62c"), "abc");
        assert_eq!(percent_decoded("%2561"), "%61");
        assert_eq!(percent_decoded("100%"), "100%");
        assert_eq!(percent_decoded("%zz%f"), "%zz%f");
        assert_eq!(percent_decoded("%+f%e4%C3%A4"), "%+f\u{fffd}\u{e4}");
    }

    #[test]
    fn what_stands_in_a_query_is_escaped() {
        assert_eq!(percent_encoded("/admin/a-b_c~d.e?f=g h&\u{e4}+"), "/admin/a-b_c~d.e%3Ff%3Dg%20h%26%C3%A4%2B");
    }

    #[test]
    fn parameters_are_read_as_forms_write_them() {
        let params =
            Params::of(Some("a=1&a=2&b=x+y%2Bz&tags[]=p&tags%5B%5D=q%20r&tags[7]=s&tags=t&tags[]=&c&&=&tagsMode=u"));
        assert_eq!((params.text("a"), params.text("b"), params.text("c")), (Some("2"), Some("x y+z"), None));
        assert_eq!(params.list("tags"), ["p", "q r", "s", "t"]);
        assert_eq!(params.list_len("tags"), 5);
        assert!(Params::of(None).list("tags").is_empty());
        let odd: Vec<(String, String)> = pairs("=x&a%=b%2&%ff=%+f&a=b=c").collect();
        let expected = [("", "x"), ("a%", "b%2"), ("\u{fffd}", "% f"), ("a", "b=c")];
        assert_eq!(odd, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn what_is_wrong_is_noted_by_its_name() {
        let mut params = Params::of(Some("page=+1&itemsPerPage=-1&x=0&y=18446744073709551616&flag=yes&on=1&off="));
        for (name, most) in [("page", u64::MAX), ("itemsPerPage", 9), ("x", 9), ("y", u64::MAX)] {
            assert_eq!(params.number(name, 1, most), None);
        }
        assert!(!params.flag("flag"));
        assert!(params.flag("on"));
        assert!(!params.flag("off"));
        let wrong: Vec<String> = params.finish().unwrap_err().into_iter().map(|one| one.field).collect();
        assert_eq!(wrong, ["page", "itemsPerPage", "x", "y", "flag"]);
    }

    #[test]
    fn name_alone_turns_a_switch_on() {
        for (query, is_on) in [
            ("", false),
            ("excludeBots", true),
            ("excludeBots=", true),
            ("excludeBots=true", true),
            ("excludeBots=0", false),
            ("excludeBots&excludeBots=false", false),
        ] {
            assert_eq!(Params::of(Some(query)).switch("excludeBots"), is_on, "{query}");
        }
        let mut params = Params::of(Some("excludeBots=yes"));
        assert!(!params.switch("excludeBots"));
        assert!(params.finish().is_err());
    }

    #[test]
    fn days_and_seconds_count_whole() {
        let query = "a=2026-01-02&b=2026-01-02T03:04:05+01:00&c=2026-01-02T03:04:05%2B01:00&d=9999-12-31&e=2026-02-30&f=soon&g=2026-01-02T03:04:05.006%2B01:00";
        let mut params = Params::of(Some(query));
        let midnight = 1_767_312_000_000;
        assert_eq!((params.since_ms("a"), params.until_ms("a")), (Some(midnight), Some(midnight + DAY_MS - 1)));
        let instant = Some(midnight + (2 * 60 + 4) * 60_000 + 5_000);
        for name in ["b", "c"] {
            let end = instant.map(|ms| ms + 999);
            assert_eq!((params.since_ms(name), params.until_ms(name)), (instant, end), "{name}");
        }
        assert_eq!(params.until_ms("g"), instant.map(|ms| ms + 6));
        assert_eq!(params.until_ms("d"), Some(INSTANT_MS_MAX));
        assert_eq!((params.since_ms("e"), params.until_ms("f"), params.until_ms("h")), (None, None, None));
        let wrong: Vec<String> = params.finish().unwrap_err().into_iter().map(|one| one.field).collect();
        assert_eq!(wrong, ["e", "f"]);
    }

    #[test]
    fn a_day_before_1970_is_called_out_of_range() {
        let mut params = Params::of(Some("startDate=0381-12-12"));
        assert_eq!(params.since_ms("startDate"), None);
        assert_eq!(params.finish().unwrap_err()[0].reason, "is before 1970 or after 9999 (got \"0381-12-12\")");
    }

    proptest! {
        #[test]
        fn reading_is_total(query in any::<String>()) {
            let mut params = Params::of(Some(&query));
            params.number("page", 1, 9);
            params.list("tags");
        }
    }
}
