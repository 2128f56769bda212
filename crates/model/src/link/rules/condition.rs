//! A condition of a redirect rule: its type, its texts as the API has them, and the parsed test.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use carom_limits::CONDITION_TEXT_CHARS_MAX;

use super::countries;
use super::visitor::{self, RuleVisitor};
use crate::clients::networks::Network;
use crate::clients::query_parameters::{is_decoded, query_value};
use crate::clients::user_agent_browser::RuleBrowser;
use crate::clients::user_agent_device::Device;
use crate::formats::dates;
use crate::replication::formats::numbers::{BROWSERS, RULES};

/// The type of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConditionType {
    /// The class of the device.
    Device,
    /// A language that the visitor accepts.
    Language,
    /// A query parameter with a value.
    QueryParam,
    /// A query parameter with any value.
    AnyValueQueryParam,
    /// A query parameter without a value.
    ValuelessQueryParam,
    /// The address of the visitor.
    IpAddress,
    /// The country of the visitor.
    CountryCode,
    /// The city of the visitor.
    CityName,
    /// Before an instant.
    BeforeDate,
    /// From an instant on.
    AfterDate,
    /// A share of the visitors. Shlink has no such condition.
    Weight,
    /// The browser of the visitor, by its user agent.
    Browser,
}

impl ConditionType {
    /// All types with their names in the API. The places are the numbers of the stored form.
    pub const ALL: [(ConditionType, &'static str); 12] = [
        (ConditionType::Device, "device"),
        (ConditionType::Language, "language"),
        (ConditionType::QueryParam, "query-param"),
        (ConditionType::AnyValueQueryParam, "any-value-query-param"),
        (ConditionType::ValuelessQueryParam, "valueless-query-param"),
        (ConditionType::IpAddress, "ip-address"),
        (ConditionType::CountryCode, "geolocation-country-code"),
        (ConditionType::CityName, "geolocation-city-name"),
        (ConditionType::BeforeDate, "before-date"),
        (ConditionType::AfterDate, "after-date"),
        (ConditionType::Weight, "weight"),
        (ConditionType::Browser, "browser"),
    ];

    /// Returns the type of a name; `None` for any other text.
    pub fn named(name: &str) -> Option<ConditionType> {
        Self::ALL.into_iter().find(|(_, of)| *of == name).map(|(kind, _)| kind)
    }

    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        Self::ALL[usize::from(self.number())].1
    }

    pub(super) fn number(self) -> u8 {
        self as u8
    }

    pub(super) fn from_number(number: u8) -> Option<ConditionType> {
        Self::ALL.get(usize::from(number)).map(|(kind, _)| *kind)
    }

    /// Returns the first [format](crate::replication::formats) whose readers know the type.
    pub const fn format(self) -> u32 {
        match self {
            Self::Device
            | Self::Language
            | Self::QueryParam
            | Self::AnyValueQueryParam
            | Self::ValuelessQueryParam
            | Self::IpAddress
            | Self::CountryCode
            | Self::CityName
            | Self::BeforeDate
            | Self::AfterDate
            | Self::Weight => RULES,
            Self::Browser => BROWSERS,
        }
    }

    /// True if the condition names a query parameter.
    pub fn has_key(self) -> bool {
        matches!(self, Self::QueryParam | Self::AnyValueQueryParam | Self::ValuelessQueryParam)
    }

    /// True if the condition has a value.
    fn has_value(self) -> bool {
        !matches!(self, Self::AnyValueQueryParam | Self::ValuelessQueryParam)
    }
}

/// The reason for which a condition is invalid: in its key or its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConditionError {
    /// In `matchKey`.
    Key(&'static str),
    /// In `matchValue`.
    Value(String),
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConditionError::Key(reason) => f.write_str(reason),
            ConditionError::Value(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ConditionError {}

/// A condition of a redirect rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedirectCondition {
    kind: ConditionType,
    key: Option<Box<str>>,
    value: Option<Box<str>>,
    test: Test,
}

/// The parsed form of a condition. Texts that are compared as they are stay in the condition.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Test {
    Device(Device),
    Browser(RuleBrowser),
    Language,
    Query,
    Network(Network),
    /// Octets of an IPv4 address; `None` matches any.
    Octets([Option<u8>; 4]),
    Country,
    City,
    Before(u64),
    After(u64),
    /// The visitors whose draw is in the range of this length from `start` on, around the end at 100.
    Weight {
        start: u8,
        percent: u8,
    },
}

impl RedirectCondition {
    /// Checks and parses a condition. A text that its type does not use is dropped.
    ///
    /// # Errors
    /// [`ConditionError`] with the text that is missing or invalid.
    pub fn new(
        kind: ConditionType,
        key: Option<&str>,
        value: Option<&str>,
    ) -> Result<RedirectCondition, ConditionError> {
        let is_long = |text: Option<&str>| text.is_some_and(|text| text.chars().count() > CONDITION_TEXT_CHARS_MAX);
        let key = key.filter(|_| kind.has_key());
        if kind.has_key() && key.is_none_or(str::is_empty) {
            return Err(ConditionError::Key("is missing; expected the name of a query parameter"));
        }
        if is_long(key) {
            return Err(ConditionError::Key("is longer than 255 characters"));
        }
        let value = value.filter(|_| kind.has_value());
        let Some(text) = value.or((!kind.has_value()).then_some("")) else {
            return Err(ConditionError::Value("is missing; expected a string".to_owned()));
        };
        if is_long(value) {
            return Err(ConditionError::Value(format!("is longer than {CONDITION_TEXT_CHARS_MAX} characters")));
        }
        let test = test_of(kind, text).map_err(ConditionError::Value)?;
        Ok(RedirectCondition { kind, key: key.map(Into::into), value: value.map(Into::into), test })
    }

    /// Returns the type.
    pub fn kind(&self) -> ConditionType {
        self.kind
    }

    /// Returns the query parameter that the condition names.
    pub fn match_key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns the value as it was given.
    pub fn match_value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// Gives a weight the share of visitors that begins at `taken` percent. Returns where the next share begins.
    pub(super) fn place_weight(&mut self, taken: u8) -> u8 {
        match &mut self.test {
            Test::Weight { start, percent } => {
                *start = taken;
                (taken + *percent) % 100
            }
            _ => taken,
        }
    }

    /// True if the condition holds for a visitor.
    pub fn matches(&self, visitor: &RuleVisitor<'_>) -> bool {
        let (key, value) = (self.key.as_deref().unwrap_or_default(), self.value.as_deref().unwrap_or_default());
        match &self.test {
            Test::Device(device) => visitor.platform().is_some_and(|platform| device.has(platform)),
            Test::Browser(browser) => visitor.browser() == Some(*browser),
            Test::Language => visitor::accepts(visitor.accept_language, value),
            Test::Query => {
                let found = query_value(visitor.query, key);
                match self.kind {
                    ConditionType::QueryParam => found.is_some_and(|found| is_decoded(found, value)),
                    ConditionType::ValuelessQueryParam => found.is_some_and(<[u8]>::is_empty),
                    _ => found.is_some(),
                }
            }
            Test::Network(network) => visitor.address.is_some_and(|address| network.has(address)),
            Test::Octets(octets) => visitor.address.is_some_and(|address| have(octets, address)),
            Test::Country => visitor.location().is_some_and(|place| place.country.eq_ignore_ascii_case(value)),
            Test::City => visitor.location().is_some_and(|place| is_like(place.city, value)),
            Test::Before(ms) => visitor.now_ms < *ms,
            Test::After(ms) => visitor.now_ms >= *ms,
            Test::Weight { start, percent } => (visitor.draw() + 100 - start) % 100 < *percent,
        }
    }
}

/// True if two texts are equal but for the case of their letters.
fn is_like(text: &str, other: &str) -> bool {
    text.chars().flat_map(char::to_lowercase).eq(other.chars().flat_map(char::to_lowercase))
}

fn have(octets: &[Option<u8>; 4], address: IpAddr) -> bool {
    let IpAddr::V4(address) = address.to_canonical() else { return false };
    octets.iter().zip(address.octets()).all(|(wanted, octet)| wanted.is_none_or(|wanted| wanted == octet))
}

fn test_of(kind: ConditionType, text: &str) -> Result<Test, String> {
    match kind {
        ConditionType::Device => {
            let names = Device::ALL.map(|(_, name)| name).join(", ");
            Device::named(text).map(Test::Device).ok_or_else(|| format!("must be one of {names}"))
        }
        ConditionType::Language if visitor::is_language(text) => Ok(Test::Language),
        ConditionType::Language => Err("must be a language such as en or en-GB".to_owned()),
        ConditionType::QueryParam | ConditionType::AnyValueQueryParam | ConditionType::ValuelessQueryParam => {
            Ok(Test::Query)
        }
        ConditionType::IpAddress => address_test(text).ok_or_else(|| {
            "must be an IP address, a network such as 10.0.0.0/8, or a pattern such as 10.0.*.*".to_owned()
        }),
        ConditionType::CountryCode if countries::is_country(text) => Ok(Test::Country),
        ConditionType::CountryCode => {
            Err("must be a country code of ISO 3166-1 in capital letters, such as FR".to_owned())
        }
        ConditionType::CityName if !text.is_empty() => Ok(Test::City),
        ConditionType::CityName => Err("must be the name of a city".to_owned()),
        ConditionType::BeforeDate => dates::parse(text).map(Test::Before).map_err(|error| error.to_string()),
        ConditionType::AfterDate => dates::parse(text).map(Test::After).map_err(|error| error.to_string()),
        ConditionType::Weight => {
            let is_number = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
            let percent = text.parse().ok().filter(|percent| is_number && (1..=100).contains(percent));
            percent
                .map(|percent| Test::Weight { start: 0, percent })
                .ok_or_else(|| "must be a whole number of percent from 1 to 100".to_owned())
        }
        ConditionType::Browser => {
            let names = RuleBrowser::ALL.map(|(_, name)| name).join(", ");
            RuleBrowser::named(text).map(Test::Browser).ok_or_else(|| format!("must be one of {names}"))
        }
    }
}

/// Parses an address, a network, or a pattern of IPv4 octets. Bits behind the prefix of a network are ignored, as in
/// Shlink.
fn address_test(text: &str) -> Option<Test> {
    if text.contains('*') {
        let mut octets = [None; 4];
        let mut parts = text.split('.');
        for octet in &mut octets {
            *octet = match parts.next()? {
                "*" => None,
                // The parser of addresses refuses signs and leading zeros.
                part => Some(format!("{part}.0.0.0").parse::<Ipv4Addr>().ok()?.octets()[0]),
            };
        }
        return parts.next().is_none().then_some(Test::Octets(octets));
    }
    let network = match text.split_once('/') {
        Some((address, bits)) => Network::around(address.parse().ok()?, bits),
        None => Network::parse(text).ok(),
    };
    network.map(Test::Network)
}

#[cfg(test)]
mod tests {
    use super::super::VisitorPlace;
    use super::*;
    use crate::clients::locations::{GeoLocation, GeoSource};
    use crate::replication::formats::NEWEST;

    /// A source that knows one address.
    #[derive(Debug)]
    struct OneAddress(IpAddr);

    impl GeoSource for OneAddress {
        fn location_of(&self, address: IpAddr) -> Option<GeoLocation<'_>> {
            (address == self.0).then(|| GeoLocation { country: "US", city: "Los Angeles", ..GeoLocation::default() })
        }
    }

    fn parsed(kind: &str, key: Option<&str>, value: Option<&str>) -> Result<RedirectCondition, ConditionError> {
        RedirectCondition::new(ConditionType::named(kind).unwrap(), key, value)
    }

    /// True if a condition matches a visitor.
    fn holds(kind: &str, key: Option<&str>, value: Option<&str>, visitor: &RuleVisitor<'_>) -> bool {
        parsed(kind, key, value).unwrap().matches(visitor)
    }

    #[test]
    fn names_and_numbers_belong_to_one_type() {
        for (number, (kind, name)) in ConditionType::ALL.into_iter().enumerate() {
            assert_eq!((ConditionType::named(name), kind.name()), (Some(kind), name));
            assert_eq!(ConditionType::from_number(number as u8), Some(kind));
            assert_eq!(usize::from(kind.number()), number, "the stored form would mean another type");
            assert!((RULES..=NEWEST).contains(&kind.format()), "no version reads conditions of the type {name}");
        }
        let beyond = ConditionType::from_number(ConditionType::ALL.len() as u8);
        assert_eq!((ConditionType::named("invalid"), beyond), (None, None));
    }

    // The tables of Shlink's tests of its conditions.

    #[test]
    fn query_parameters_match_as_in_shlink() {
        let with = |query: &'static str| RuleVisitor { query: query.as_bytes(), ..RuleVisitor::default() };
        for (query, key, value, matches) in [
            ("foo=bar", "nop", "", false),
            ("foo=bar", "foo", "not-bar", false),
            ("foo=bar", "foo", "bar", true),
            ("a&foo=bar&b=", "foo", "bar", true),
            ("foo=bar&foo=baz", "foo", "bar", false),
            ("foo=bar&foo=baz", "foo", "baz", true),
            ("f%6fo=b%20a+r%C3%A9", "foo", "b a ré", true),
            ("foo", "foo", "", true),
            ("foo=%zz", "foo", "%zz", true),
            ("xfoo=bar", "foo", "bar", false),
        ] {
            assert_eq!(holds("query-param", Some(key), Some(value), &with(query)), matches, "{query} {key} {value}");
        }
        for (query, any, valueless) in [
            ("", false, false),
            ("foo=bar", true, false),
            ("foo=", true, true),
            ("foo", true, true),
            ("nop=foo", false, false),
        ] {
            assert_eq!(holds("any-value-query-param", Some("foo"), None, &with(query)), any, "{query}");
            assert_eq!(holds("valueless-query-param", Some("foo"), None, &with(query)), valueless, "{query}");
        }
    }

    #[test]
    fn addresses_match_as_in_shlink() {
        for (address, pattern, matches) in [
            (None, "1.2.3.4", false),
            (Some("1.2.3.4"), "1.2.3.4", true),
            (Some("4.3.2.1"), "1.2.3.4", false),
            (Some("192.168.1.35"), "192.168.1.0/24", true),
            (Some("192.168.1.35"), "192.168.1.7/24", true),
            (Some("1.2.3.4"), "192.168.1.0/24", false),
            (Some("192.168.1.35"), "192.168.1.*", true),
            (Some("1.2.3.4"), "192.168.1.*", false),
            (Some("1.2.9.4"), "1.2.*.4", true),
            (Some("1.2.9.5"), "1.2.*.4", false),
            (Some("::ffff:1.2.3.4"), "1.2.*.*", true),
            (Some("::ffff:1.2.3.4"), "1.2.3.4", true),
            (Some("2001:db8::7"), "2001:db8::/32", true),
            (Some("2001:db9::7"), "2001:db8::/32", false),
            (Some("2001:db9::7"), "*.*.*.*", false),
        ] {
            let visitor = RuleVisitor { address: address.map(|text| text.parse().unwrap()), ..RuleVisitor::default() };
            assert_eq!(holds("ip-address", None, Some(pattern), &visitor), matches, "{address:?} {pattern}");
        }
        for invalid in
            ["", "invalid", "456.2.385.4", "1.2.3", "1.2.*", "1.2.*.+4", "1.2.*.256", "1.2.3.4/33", "1.2.3.4/+8", "*"]
        {
            assert!(parsed("ip-address", None, Some(invalid)).is_err(), "{invalid}");
        }
    }

    #[test]
    fn locations_match_in_any_case_and_never_without_a_source() {
        let [known, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let source = OneAddress(known);
        let at = |address| {
            let place = VisitorPlace::of(Some(&source));
            RuleVisitor { address: Some(address), place, ..RuleVisitor::default() }
        };
        let place = VisitorPlace::Given(source.location_of(known).unwrap());
        let given = RuleVisitor { place, ..RuleVisitor::default() };
        for (kind, value, matches) in [
            ("geolocation-country-code", "US", true),
            ("geolocation-country-code", "ES", false),
            ("geolocation-city-name", "los angeles", true),
            ("geolocation-city-name", "Los Angele", false),
            ("geolocation-city-name", "New York", false),
        ] {
            assert_eq!(holds(kind, None, Some(value), &given), matches, "{value}");
            assert_eq!(holds(kind, None, Some(value), &at(known)), matches, "{value}");
            assert!(!holds(kind, None, Some(value), &at(other)));
            assert!(!holds(kind, None, Some(value), &RuleVisitor::default()));
        }
        assert!(is_like("Zürich", "ZÜRICH"));
        assert!(!is_like("Zürich", "Zurich"));
    }

    #[test]
    fn browsers_match_by_their_names() {
        let firefox =
            RuleVisitor { user_agent: b"Mozilla/5.0 (X11; rv:120.0) Firefox/120.0", ..RuleVisitor::default() };
        assert!(holds("browser", None, Some("firefox"), &firefox));
        assert!(!holds("browser", None, Some("safari"), &firefox));
        assert!(!holds("browser", None, Some("firefox"), &RuleVisitor::default()));
    }

    #[test]
    fn dates_divide_time() {
        let at = |now_ms| RuleVisitor { now_ms, ..RuleVisitor::default() };
        let date = Some("2026-01-02T03:04:05+01:00");
        let ms = 1_767_319_445_000;
        for (now_ms, is_before) in [(ms - 1, true), (ms, false), (ms + 1, false)] {
            assert_eq!(holds("before-date", None, date, &at(now_ms)), is_before);
            assert_eq!(holds("after-date", None, date, &at(now_ms)), !is_before);
        }
    }

    #[test]
    fn invalid_texts_are_named() {
        for (kind, key, value, is_key) in [
            ("device", None, Some("invalid-device"), false),
            ("device", None, None, false),
            ("language", None, Some(""), false),
            ("language", None, Some("en us"), false),
            ("query-param", None, Some("a"), true),
            ("query-param", Some(""), Some("a"), true),
            ("query-param", Some("a"), None, false),
            ("any-value-query-param", None, Some("a"), true),
            ("geolocation-country-code", None, Some("not a country code"), false),
            ("geolocation-country-code", None, Some("us"), false),
            ("geolocation-country-code", None, Some("XX"), false),
            ("geolocation-city-name", None, Some(""), false),
            ("before-date", None, Some("tomorrow"), false),
            ("after-date", None, Some("2026-01-02"), false),
            ("weight", None, Some("0"), false),
            ("weight", None, Some("101"), false),
            ("weight", None, Some("+50"), false),
            ("weight", None, Some("050"), false),
            ("weight", None, Some("12.5"), false),
            ("browser", None, Some("Chrome"), false),
            ("browser", None, None, false),
        ] {
            let error = parsed(kind, key, value).unwrap_err();
            assert_eq!(matches!(error, ConditionError::Key(_)), is_key, "{kind} {key:?} {value:?}: {error}");
        }
        let long = "x".repeat(256);
        assert!(matches!(parsed("query-param", Some(&long), Some("a")), Err(ConditionError::Key(_))));
        assert!(matches!(parsed("query-param", Some("a"), Some(&long)), Err(ConditionError::Value(_))));
    }

    #[test]
    fn texts_that_a_type_does_not_use_are_dropped() {
        let condition = parsed("any-value-query-param", Some("a"), Some("b")).unwrap();
        assert_eq!((condition.match_key(), condition.match_value()), (Some("a"), None));
        let condition = parsed("device", Some("a"), Some("ios")).unwrap();
        assert_eq!((condition.match_key(), condition.match_value()), (None, Some("ios")));
    }
}
