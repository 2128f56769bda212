//! The parts of a request that redirect rules read. Everything is borrowed, and is parsed only if a condition asks.

use std::cell::Cell;
use std::net::IpAddr;

use carom_limits::{RULE_LANGUAGES_LEN_MAX, RULE_LANGUAGES_MAX};
use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::clients::locations::{GeoLocation, GeoSource};
use crate::clients::user_agent_browser::RuleBrowser;
use crate::clients::user_agent_device::{Platform, platform_of};

/// The lowest quality of a language that counts, in thousandths, as in Shlink.
const QUALITY_MIN: u32 = 900;

/// Seed of the draw of a visitor. It must never change: visitors would get another destination.
const DRAW_SEED: u64 = 0x7765_6967_6874_5f31;

/// A visitor as the conditions of rules see it.
#[derive(Clone, Debug, Default)]
pub struct RuleVisitor<'a> {
    /// The value of `User-Agent`.
    pub user_agent: &'a [u8],
    /// The values of `Accept-Language`, line by line: together they are one list (RFC 9110, section 5.3). Lines beyond
    /// [`RULE_LANGUAGES_MAX`] are not read.
    pub accept_language: &'a [&'a [u8]],
    /// The query string of the request, without the question mark.
    pub query: &'a [u8],
    /// The address of the client, if it is known.
    pub address: Option<IpAddr>,
    /// The source of the location.
    pub place: VisitorPlace<'a>,
    /// The time of the visit, in milliseconds since 1970 UTC.
    pub now_ms: u64,
    /// The code of the link.
    pub code: Option<&'a Code>,
    /// The platform, once it was asked for.
    pub known_platform: Cell<Option<Option<Platform>>>,
    /// The browser, once it was asked for.
    pub known_browser: Cell<Option<Option<RuleBrowser>>>,
    /// The location, once it was asked for.
    pub known_location: Cell<Option<Option<GeoLocation<'a>>>>,
}

/// The source of a visitor's location.
#[derive(Clone, Copy, Debug, Default)]
pub enum VisitorPlace<'a> {
    /// No location is known: conditions on locations match no visitor.
    #[default]
    Unknown,
    /// A location that does not depend on the address.
    Given(GeoLocation<'a>),
    /// A source that is asked for the location of the address, once a condition needs it.
    Of(&'a dyn GeoSource),
}

impl<'a> VisitorPlace<'a> {
    /// Returns the place of visitors whose addresses this source knows, if there is one.
    pub fn of(source: Option<&'a dyn GeoSource>) -> VisitorPlace<'a> {
        source.map_or(VisitorPlace::Unknown, VisitorPlace::Of)
    }
}

impl<'a> RuleVisitor<'a> {
    /// Returns the location of the visitor, if it is known.
    pub(super) fn location(&self) -> Option<GeoLocation<'a>> {
        if let Some(known) = self.known_location.get() {
            return known;
        }
        let location = match self.place {
            VisitorPlace::Unknown => None,
            VisitorPlace::Given(location) => Some(location),
            VisitorPlace::Of(source) => self.address.and_then(|address| source.location_of(address)),
        };
        self.known_location.set(Some(location));
        location
    }

    /// Returns the platform that the user agent names.
    pub(super) fn platform(&self) -> Option<Platform> {
        if let Some(known) = self.known_platform.get() {
            return known;
        }
        let platform = platform_of(self.user_agent);
        self.known_platform.set(Some(platform));
        platform
    }

    /// Returns the browser that the user agent names, if conditions can name it.
    pub(super) fn browser(&self) -> Option<RuleBrowser> {
        if let Some(known) = self.known_browser.get() {
            return known;
        }
        let browser = RuleBrowser::of(self.user_agent);
        self.known_browser.set(Some(browser));
        browser
    }

    /// Returns a number from 0 to 99 that a visitor keeps for a link: a hash of its address, or of its network for
    /// IPv6, and of the link. It is the same after a restart and on every node.
    pub fn draw(&self) -> u8 {
        let network = match self.address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => u64::from(u32::from(address)),
            // Clients change the lower half of their IPv6 address each day.
            Some(IpAddr::V6(address)) => (address.to_bits() >> 64) as u64,
            None => 0,
        };
        let key = &mut [0; CODE_KEY_LEN_MAX];
        let of_link = self.code.map_or(0, |code| xxh3_64(code.key(key)));
        (xxh3_64_with_seed(&network.to_le_bytes(), of_link ^ DRAW_SEED) % 100) as u8
    }
}

/// True if a text can be a language of a condition: letters and digits, and `-` or `_` between subtags.
pub(super) fn is_language(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// True if `Accept-Language` has the language with a quality of at least 0.9. A wanted language without a region
/// matches with any.
pub(super) fn accepts(lines: &[&[u8]], wanted: &str) -> bool {
    let (language, region) = subtags(wanted.as_bytes());
    let mut left = RULE_LANGUAGES_LEN_MAX;
    let items = lines.iter().flat_map(|line| {
        let part = read_part(line, left);
        left = if part.len() < line.len() { 0 } else { left - part.len() };
        part.split(|&byte| byte == b',')
    });
    items.take(RULE_LANGUAGES_MAX).any(|item| {
        let (tag, parameters) = match memchr::memchr(b';', item) {
            Some(at) => (&item[..at], &item[at + 1..]),
            None => (item, &b""[..]),
        };
        let (of, place) = subtags(tag.trim_ascii());
        of.eq_ignore_ascii_case(language)
            && (region.is_empty() || place.eq_ignore_ascii_case(region))
            && quality(parameters) >= QUALITY_MIN
    })
}

/// Returns the part of a line of `Accept-Language` within `len_max` bytes. A language that is cut off is left out, because
/// it could become another one.
fn read_part(line: &[u8], len_max: usize) -> &[u8] {
    match line.get(..len_max) {
        Some(part) if part.len() < line.len() => &part[..memchr::memrchr(b',', part).unwrap_or_default()],
        _ => line,
    }
}

/// Returns the language and the second subtag, or an empty second subtag.
fn subtags(tag: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = tag.split(|byte| matches!(byte, b'-' | b'_'));
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// Returns the quality of a language in thousandths; zero if it is malformed.
fn quality(parameters: &[u8]) -> u32 {
    let text = parameters.trim_ascii();
    if text.is_empty() {
        return 1_000;
    }
    let Some(number) = text.strip_prefix(b"q=").or_else(|| text.strip_prefix(b"Q=")) else { return 0 };
    let (whole, fraction) = match number.split_first() {
        Some((whole, [])) => (whole, &b""[..]),
        Some((whole, [b'.', fraction @ ..])) if fraction.len() <= 3 => (whole, fraction),
        _ => return 0,
    };
    let digit = |byte: u8| char::from(byte).to_digit(10);
    let mut value = digit(*whole).map(|whole| whole * 1_000);
    for (byte, unit) in fraction.iter().zip([100, 10, 1]) {
        value = value.zip(digit(*byte)).map(|(value, digit)| value + digit * unit);
    }
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn languages_match_as_in_shlink() {
        for (header, wanted, expected) in [
            ("", "en", false),
            ("*", "en", false),
            ("en", "en", true),
            ("es, en,fr", "en", true),
            ("es, en-US,fr", "EN", true),
            ("es_ES", "es-ES", true),
            ("en-US,es-ES;q=0.6", "es-ES", false),
            ("en-US,es-ES;q=0.9", "es-ES", true),
            ("en-UK", "en-uk", true),
            ("en-UK", "en", true),
            ("es-AR", "en", false),
            ("fr", "fr-FR", false),
            ("fr ; q=1.0", "fr", true),
            ("fr;q=1", "fr", true),
            ("fr;q=0.899", "fr", false),
            ("fr;q=abc", "fr", false),
            ("fr;x=1", "fr", false),
            ("english", "en", false),
        ] {
            assert_eq!(accepts(&[header.as_bytes()], wanted), expected, "{header} {wanted}");
            assert_eq!(accepts(&[b"xx;q=1", header.as_bytes(), b""], wanted), expected, "{header} {wanted}");
        }
        let hundreds = "xx,".repeat(500);
        assert!(accepts(&[format!("en,{hundreds}").as_bytes()], "en"));
        assert!(!accepts(&[format!("{hundreds}en").as_bytes()], "en"), "only the first {RULE_LANGUAGES_MAX} count");
        assert!(!accepts(&[hundreds.as_bytes(), b"en"], "en"), "only the first {RULE_LANGUAGES_MAX} count");
        assert!(!accepts(&[], "en"));
    }

    #[test]
    fn long_lists_of_languages_are_cut() {
        let blanks = |count: usize| " ".repeat(count);
        let fits = format!("{}en", blanks(RULE_LANGUAGES_LEN_MAX - 2));
        assert!(accepts(&[fits.as_bytes()], "en"));
        assert!(!accepts(&[format!(" {fits}").as_bytes()], "en"));
        assert!(accepts(&[format!("en,{}", blanks(RULE_LANGUAGES_LEN_MAX)).as_bytes()], "en"));
        let cut = format!("fr,{}en-GB", blanks(RULE_LANGUAGES_LEN_MAX - 5));
        assert!(accepts(&[cut.as_bytes()], "fr"));
        assert!(!accepts(&[cut.as_bytes()], "en"), "its region is cut off");
        assert!(accepts(&[b"fr", &fits.as_bytes()[2..]], "en"));
        assert!(!accepts(&[b"fr", fits.as_bytes()], "en"), "all lines count");
    }

    #[test]
    fn the_draw_of_a_visitor_never_changes() {
        let draw = |address: &str, code: &[u8]| {
            let (address, code) = (address.parse().ok(), Code::parse(code).ok());
            RuleVisitor { address, code: code.as_ref(), ..RuleVisitor::default() }.draw()
        };
        assert_eq!([draw("192.0.2.1", b"abc"), draw("192.0.2.2", b"abc"), draw("192.0.2.1", b"abd")], [18, 66, 42]);
        assert_eq!(draw("2001:db8::1", b"abc"), draw("2001:db8::ffff:1", b"abc"));
        assert_eq!(draw("::ffff:192.0.2.1", b"abc"), draw("192.0.2.1", b"abc"));
    }

    proptest! {
        #[test]
        fn any_header_can_be_read(header in any::<Vec<u8>>(), text in any::<String>()) {
            let _ = accepts(&[&header], &text);
        }
    }
}
