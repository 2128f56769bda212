//! A breakdown of visits by what they tell of their clients: the statistics of the visit log. Pure.

use std::collections::{BTreeMap, HashMap};

use carom_limits::VISIT_VALUES_COUNTED_MAX;
use carom_shards::Code;
use xxhash_rust::xxh3::xxh3_64;

use super::campaign::Campaign;
use super::host_of;
use super::record::VisitRecord;
use super::tally::VisitCounts;
use crate::clients::accept_language::primary_language;
use crate::clients::user_agent_browser::browser_of;
use crate::clients::user_agent_device::{DeviceKind, platform_of};

/// Number of user agents that a breakdown remembers. Most visits come from some dozens.
const AGENTS_REMEMBERED: usize = 4_096;

const DAY_MS: u64 = 86_400_000;

/// The properties of a client that its user agent names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgentTraits {
    /// The browser; empty if it is unknown.
    pub browser: &'static str,
    /// The operating system; empty if it is unknown.
    pub system: &'static str,
    /// The kind of device.
    pub device: DeviceKind,
}

impl AgentTraits {
    /// Reads a user agent.
    pub fn of(agent: &[u8], is_bot: bool) -> AgentTraits {
        let platform = platform_of(agent);
        AgentTraits {
            browser: browser_of(agent).unwrap_or_default(),
            system: platform.map_or("", |platform| platform.name()),
            device: DeviceKind::of(agent, platform, is_bot),
        }
    }
}

/// A property by which visits are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum VisitProperty {
    Country,
    City,
    Browser,
    OperatingSystem,
    Device,
    Language,
    Referrer,
    Destination,
    UtmSource,
    UtmMedium,
    UtmCampaign,
    UtmTerm,
    UtmContent,
}

impl VisitProperty {
    /// All properties, each with the name of its list in the API.
    pub const ALL: [(VisitProperty, &'static str); 13] = [
        (VisitProperty::Country, "countries"),
        (VisitProperty::City, "cities"),
        (VisitProperty::Browser, "browsers"),
        (VisitProperty::OperatingSystem, "operatingSystems"),
        (VisitProperty::Device, "devices"),
        (VisitProperty::Language, "languages"),
        (VisitProperty::Referrer, "referrers"),
        (VisitProperty::Destination, "destinations"),
        (VisitProperty::UtmSource, "utmSources"),
        (VisitProperty::UtmMedium, "utmMediums"),
        (VisitProperty::UtmCampaign, "utmCampaigns"),
        (VisitProperty::UtmTerm, "utmTerms"),
        (VisitProperty::UtmContent, "utmContents"),
    ];

    /// Returns the parameter by which the API selects the visits with one value of the property.
    pub const fn parameter(self) -> &'static str {
        match self {
            VisitProperty::Country => "country",
            VisitProperty::City => "city",
            VisitProperty::Browser => "browser",
            VisitProperty::OperatingSystem => "operatingSystem",
            VisitProperty::Device => "device",
            VisitProperty::Language => "language",
            VisitProperty::Referrer => "referrer",
            VisitProperty::Destination => "destination",
            VisitProperty::UtmSource => "utmSource",
            VisitProperty::UtmMedium => "utmMedium",
            VisitProperty::UtmCampaign => "utmCampaign",
            VisitProperty::UtmTerm => "utmTerm",
            VisitProperty::UtmContent => "utmContent",
        }
    }
}

/// A condition on visits: a property has this value, as breakdowns write it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VisitCondition {
    /// The property that is compared.
    pub property: VisitProperty,
    /// The value that a visit must have.
    pub value: Box<str>,
}

impl VisitCondition {
    /// True if a visit has the value.
    pub fn holds(&self, visit: &VisitRecord<'_>) -> bool {
        let value = &*self.value;
        let location = visit.location.unwrap_or_default();
        let agent = || AgentTraits::of(visit.request.agent, visit.is_bot);
        let campaign = || Campaign::of(visit.request.query);
        match self.property {
            VisitProperty::Country => location.country == value,
            VisitProperty::City => location.city == value,
            VisitProperty::Browser => agent().browser == value,
            VisitProperty::OperatingSystem => agent().system == value,
            VisitProperty::Device => agent().device.as_str() == value,
            VisitProperty::Language => primary_language(visit.request.language) == value,
            VisitProperty::Referrer => {
                let host = host_of(visit.request.referrer).to_ascii_lowercase();
                String::from_utf8_lossy(&host) == value
            }
            VisitProperty::Destination => String::from_utf8_lossy(visit.target) == value,
            VisitProperty::UtmSource => campaign().source == value,
            VisitProperty::UtmMedium => campaign().medium == value,
            VisitProperty::UtmCampaign => campaign().name == value,
            VisitProperty::UtmTerm => campaign().term == value,
            VisitProperty::UtmContent => campaign().content == value,
        }
    }
}

/// A value of a property, with its visits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueCount {
    /// The value; empty for visits without one.
    pub value: Box<str>,
    /// The name of a country, or the country of a city; empty for other properties.
    pub detail: Box<str>,
    /// The number of visits.
    pub visits: u64,
}

/// Counts by value, bounded in number.
#[derive(Clone, Debug, Default)]
struct ValueCounts(HashMap<Box<str>, (Box<str>, u64)>);

/// The counts of visits by every property, by day and by link.
#[derive(Clone, Debug)]
pub struct VisitBreakdown {
    total: u64,
    bots: u64,
    counts: [ValueCounts; VisitProperty::ALL.len()],
    /// By day, counted from 1970 UTC.
    days: BTreeMap<u64, VisitCounts>,
    links: HashMap<Code, VisitCounts>,
    /// False once rare values were left out, because there are too many values.
    is_exact: bool,
    agents: HashMap<u64, AgentTraits>,
}

impl Default for VisitBreakdown {
    fn default() -> VisitBreakdown {
        VisitBreakdown {
            total: 0,
            bots: 0,
            counts: Default::default(),
            days: BTreeMap::new(),
            links: HashMap::new(),
            is_exact: true,
            agents: HashMap::new(),
        }
    }
}

impl VisitBreakdown {
    /// Counts a visit.
    pub fn add(&mut self, visit: &VisitRecord<'_>) {
        self.total += 1;
        self.bots += u64::from(visit.is_bot);
        let agent = self.traits_of(visit.request.agent, visit.is_bot);
        let location = visit.location.unwrap_or_default();
        // Cities of two countries may have one name.
        let (city, city_country) = match location.city {
            "" => (String::new(), ""),
            city => ([location.country, city].join("/"), location.country),
        };
        let host = host_of(visit.request.referrer).to_ascii_lowercase();
        let campaign = Campaign::of(visit.request.query);
        let texts: [(&str, &str); VisitProperty::ALL.len()] = [
            (location.country, location.country_name),
            (&city, city_country),
            (agent.browser, ""),
            (agent.system, ""),
            (agent.device.as_str(), ""),
            (&primary_language(visit.request.language), ""),
            (&String::from_utf8_lossy(&host), ""),
            (&String::from_utf8_lossy(visit.target), ""),
            (&campaign.source, ""),
            (&campaign.medium, ""),
            (&campaign.name, ""),
            (&campaign.term, ""),
            (&campaign.content, ""),
        ];
        for (counts, (value, detail)) in self.counts.iter_mut().zip(texts) {
            self.is_exact &= counts.add(value, detail);
        }
        self.add_to_day_and_link(visit);
    }

    fn add_to_day_and_link(&mut self, visit: &VisitRecord<'_>) {
        let one = VisitCounts { total: 1, bots: u64::from(visit.is_bot) };
        let day = visit.at_ms / DAY_MS;
        if self.days.len() < VISIT_VALUES_COUNTED_MAX || self.days.contains_key(&day) {
            self.days.entry(day).or_default().add(one);
        } else {
            self.is_exact = false;
        }
        let Some(code) = visit.code else { return };
        if self.links.len() >= VISIT_VALUES_COUNTED_MAX && !self.links.contains_key(&code) {
            keep_frequent(&mut self.links, |counts| counts.total);
            self.is_exact = false;
        }
        self.links.entry(code).or_default().add(one);
    }

    fn traits_of(&mut self, agent: &[u8], is_bot: bool) -> AgentTraits {
        if self.agents.len() >= AGENTS_REMEMBERED {
            self.agents.clear();
        }
        let key = xxh3_64(agent) ^ u64::from(is_bot);
        *self.agents.entry(key).or_insert_with(|| AgentTraits::of(agent, is_bot))
    }

    /// Returns the number of visits, and how many of them came from bots.
    pub fn totals(&self) -> (u64, u64) {
        (self.total, self.bots)
    }

    /// True if the counts have every value.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Returns the number of values, of all properties together, with the days and the links.
    pub fn len(&self) -> usize {
        let values: usize = self.counts.iter().map(|counts| counts.0.len()).sum();
        values + self.days.len() + self.links.len()
    }

    /// True if no visit was counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the values of a property with the most visits, most visited first and then by value.
    pub fn top(&self, property: VisitProperty, most: usize) -> Vec<ValueCount> {
        let mut found: Vec<(&str, &str, u64)> = self.counts[property as usize]
            .0
            .iter()
            .map(|(value, (detail, visits))| (&**value, &**detail, *visits))
            .collect();
        found.sort_by(|one, other| other.2.cmp(&one.2).then(one.0.cmp(other.0)));
        let of_city = |value: &str| value.split_once('/').map_or("", |(_, city)| city).to_owned();
        let count = |(value, detail, visits): (&str, &str, u64)| ValueCount {
            value: if property == VisitProperty::City { of_city(value).into() } else { value.into() },
            detail: detail.into(),
            visits,
        };
        found.into_iter().take(most).map(count).collect()
    }

    /// Returns the visits of each day that has any, counted from 1970 UTC.
    pub fn days(&self) -> &BTreeMap<u64, VisitCounts> {
        &self.days
    }

    /// Returns the links with the most visits, most visited first and then by code.
    pub fn top_links(&self, most: usize) -> Vec<(Code, VisitCounts)> {
        let mut found: Vec<(Code, VisitCounts)> = self.links.iter().map(|(code, counts)| (*code, *counts)).collect();
        found.sort_unstable_by(|one, other| other.1.total.cmp(&one.1.total).then(one.0.cmp(&other.0)));
        found.truncate(most);
        found
    }
}

/// Leaves out the rarer half of the values of a full map.
fn keep_frequent<K, V>(counts: &mut HashMap<K, V>, visits_of: impl Fn(&V) -> u64) {
    let mut visits: Vec<u64> = counts.values().map(&visits_of).collect();
    let (_, median, _) = visits.select_nth_unstable(VISIT_VALUES_COUNTED_MAX / 2);
    let least = *median;
    // Of values that are equally rare, as many stay as there is room for.
    let frequent = counts.values().filter(|&of| visits_of(of) > least).count();
    let mut room = (VISIT_VALUES_COUNTED_MAX / 2).saturating_sub(frequent);
    counts.retain(|_, of| {
        let visits = visits_of(of);
        let fits = visits == least && room > 0;
        room -= usize::from(fits);
        visits > least || fits
    });
}

impl ValueCounts {
    /// Counts a value. Returns false if that left out the rarer half of the values.
    fn add(&mut self, value: &str, detail: &str) -> bool {
        if let Some((_, visits)) = self.0.get_mut(value) {
            *visits += 1;
            return true;
        }
        let is_full = self.0.len() >= VISIT_VALUES_COUNTED_MAX;
        if is_full {
            keep_frequent(&mut self.0, |(_, visits)| *visits);
        }
        self.0.insert(value.into(), (detail.into(), 1));
        !is_full
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{LoggedKind, RequestPart};
    use super::*;
    use crate::clients::locations::GeoLocation;

    const BROWSER: &[u8] = b"Mozilla/5.0 (X11; Linux x86_64) Chrome/142.0.0.0 Safari/537.36";

    fn visit<'a>(request: RequestPart<'a>, city: &'a str, is_bot: bool) -> VisitRecord<'a> {
        let country_name = if city.is_empty() { "" } else { "Germany" };
        let country = if city.is_empty() { "" } else { "DE" };
        VisitRecord {
            at_ms: 1,
            kind: LoggedKind::Link,
            is_secure: false,
            forwards: false,
            is_bot,
            request,
            location: Some(GeoLocation { country, country_name, city, ..GeoLocation::default() }),
            code: Code::parse(b"abc").ok(),
            target: b"https://example.org/",
        }
    }

    #[test]
    fn visits_are_counted_by_each_property() {
        let mut breakdown = VisitBreakdown::default();
        let browser = RequestPart {
            agent: BROWSER,
            language: b"de-CH",
            referrer: b"https://News.example/a",
            query: b"utm_source=mail&utm_medium=x",
            ..RequestPart::default()
        };
        breakdown.add(&visit(browser, "Berlin", false));
        breakdown.add(&visit(RequestPart { language: b"DE", ..browser }, "Köln", false));
        breakdown.add(&visit(RequestPart { agent: b"curl/8.5.0", ..RequestPart::default() }, "", true));
        assert_eq!((breakdown.totals(), breakdown.is_exact()), ((3, 1), true));
        let top = |property, most| {
            let values = breakdown.top(property, most).into_iter();
            values
                .map(|count| (String::from(count.value), String::from(count.detail), count.visits))
                .collect::<Vec<_>>()
        };
        let row = |value: &str, detail: &str, visits| (value.to_owned(), detail.to_owned(), visits);
        for (property, expected) in [
            (VisitProperty::Country, [row("DE", "Germany", 2), row("", "", 1)]),
            (VisitProperty::Browser, [row("Chrome", "", 2), row("", "", 1)]),
            (VisitProperty::OperatingSystem, [row("Linux", "", 2), row("", "", 1)]),
            (VisitProperty::Device, [row("desktop", "", 2), row("bot", "", 1)]),
            (VisitProperty::Language, [row("de", "", 2), row("", "", 1)]),
            (VisitProperty::Referrer, [row("news.example", "", 2), row("", "", 1)]),
            (VisitProperty::UtmSource, [row("mail", "", 2), row("", "", 1)]),
            (VisitProperty::UtmMedium, [row("x", "", 2), row("", "", 1)]),
        ] {
            assert_eq!(top(property, 10), expected, "{property:?}");
            assert_eq!(top(property, 1), expected[..1]);
        }
        // Two of each of the properties above, three cities, one of each other property, a day and a link.
        assert_eq!(breakdown.len(), 8 * 2 + 3 + 4 + 2);
        assert!(!breakdown.is_empty());
        assert!(VisitBreakdown::default().is_empty());
        assert_eq!(top(VisitProperty::City, 9), [row("", "", 1), row("Berlin", "DE", 1), row("Köln", "DE", 1)]);
        assert_eq!(top(VisitProperty::Destination, 9), [row("https://example.org/", "", 3)]);
        assert_eq!(top(VisitProperty::UtmCampaign, 9), [row("", "", 3)]);
    }

    #[test]
    fn values_are_bounded_and_frequent_ones_stay() {
        let mut breakdown = VisitBreakdown::default();
        let count = VISIT_VALUES_COUNTED_MAX as u64 + 500;
        for number in 0..count {
            let often = format!("https://h{}.example/", number % 3);
            let once = format!("utm_source={number}");
            let request = RequestPart { referrer: often.as_bytes(), query: once.as_bytes(), ..RequestPart::default() };
            breakdown.add(&visit(request, "", false));
        }
        assert!(!breakdown.is_exact());
        assert_eq!(breakdown.totals().0, count);
        let sources = breakdown.top(VisitProperty::UtmSource, usize::MAX).len();
        assert!((VISIT_VALUES_COUNTED_MAX / 2..=VISIT_VALUES_COUNTED_MAX).contains(&sources), "{sources}");
        let referrers: u64 = breakdown.top(VisitProperty::Referrer, 500).iter().map(|count| count.visits).sum();
        assert_eq!(referrers, count);
    }

    #[test]
    fn days_and_links_are_counted_and_bounded() {
        let mut breakdown = VisitBreakdown::default();
        let request = RequestPart::default();
        let day = |number: u64| VisitRecord { at_ms: number * DAY_MS + 7, ..visit(request, "", number == 3) };
        for number in [3, 2, 3] {
            breakdown.add(&day(number));
        }
        let other = Code::parse(b"other").unwrap();
        breakdown.add(&VisitRecord { code: Some(other), ..day(2) });
        breakdown.add(&VisitRecord { code: None, ..day(2) });
        let counts = |total, bots| VisitCounts { total, bots };
        assert_eq!(*breakdown.days(), BTreeMap::from([(2, counts(3, 0)), (3, counts(2, 2))]));
        let often = Code::parse(b"abc").unwrap();
        assert_eq!(breakdown.top_links(9), [(often, counts(3, 2)), (other, counts(1, 0))]);
        assert_eq!(breakdown.top_links(1).len(), 1);
        assert!(breakdown.is_exact());
        let count = VISIT_VALUES_COUNTED_MAX as u64 + 500;
        for number in 0..count {
            let code = Code::parse(format!("c{number}").as_bytes()).ok();
            breakdown.add(&VisitRecord { code, ..day(number) });
        }
        assert!(!breakdown.is_exact());
        assert_eq!(breakdown.days().len(), VISIT_VALUES_COUNTED_MAX);
        let links = breakdown.top_links(usize::MAX);
        assert!(links.len() <= VISIT_VALUES_COUNTED_MAX, "{}", links.len());
        assert_eq!(links[0], (often, counts(3, 2)));
    }

    #[test]
    fn conditions_select_what_is_counted() {
        let query = b"utm_source=mail&utm_medium=x&utm_campaign=May&utm_term=a%20b&utm_content=c";
        let browser = RequestPart {
            agent: BROWSER,
            language: b"de-CH",
            referrer: b"https://News.example/a",
            query,
            ..RequestPart::default()
        };
        let visits = [
            visit(browser, "Berlin", false),
            visit(RequestPart { query: b"", ..browser }, "", false),
            visit(RequestPart { agent: b"curl/8.5.0", ..RequestPart::default() }, "", true),
        ];
        let mut breakdown = VisitBreakdown::default();
        visits.iter().for_each(|visit| breakdown.add(visit));
        for (property, _) in VisitProperty::ALL {
            for ValueCount { value, visits: counted, .. } in breakdown.top(property, usize::MAX) {
                let condition = VisitCondition { property, value };
                let selected = visits.iter().filter(|visit| condition.holds(visit)).count();
                assert_eq!(selected as u64, counted, "{condition:?}");
            }
            let other = VisitCondition { property, value: "other than all".into() };
            assert!(!visits.iter().any(|visit| other.holds(visit)), "{property:?}");
        }
        let names: std::collections::HashSet<&str> =
            VisitProperty::ALL.into_iter().map(|(property, _)| property.parameter()).collect();
        assert_eq!(names.len(), VisitProperty::ALL.len());
    }

    #[test]
    fn properties_have_their_places() {
        for (place, (property, _)) in VisitProperty::ALL.into_iter().enumerate() {
            assert_eq!(property as usize, place);
        }
    }
}
