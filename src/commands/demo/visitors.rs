//! The visitors of a demonstration, and their single visits for the visit log: the same on every run, apart from their
//! dates.

use carom_model::clients::locations::{Coordinates, GeoLocation};
use carom_model::visits::record::{LoggedKind, RequestPart, VisitRecord};
use carom_shards::Code;

use super::story::{Dice, HOUR_MS, REFERRERS, Visited};

/// User agents of people, each with its share. The last one has the rest.
const AGENTS: [(&str, f64); 10] = [
    (
        "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36",
        0.25,
    ),
    (
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1",
        0.22,
    ),
    (
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
        0.19,
    ),
    (
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15",
        0.09,
    ),
    (
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0",
        0.08,
    ),
    ("Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:145.0) Gecko/20100101 Firefox/145.0", 0.05),
    (
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
        0.04,
    ),
    (
        "Mozilla/5.0 (iPad; CPU OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1",
        0.03,
    ),
    ("Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0", 0.03),
    (
        "Mozilla/5.0 (Linux; Android 15; SM-S931B) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/29.0 Chrome/136.0.0.0 Mobile Safari/537.36",
        0.02,
    ),
];

/// User agents of bots, each with its share.
const BOT_AGENTS: [(&str, f64); 3] = [
    ("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", 0.5),
    ("Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)", 0.3),
    ("Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)", 0.2),
];

/// A place: country, its name, region, city, time zone, latitude and longitude in ten-thousandths of a degree, and the
/// language of most people there.
type Place = (&'static str, &'static str, &'static str, &'static str, &'static str, i32, i32, &'static str);

/// The places of visitors, each with its share.
const PLACES: [(Place, f64); 14] = [
    (("DE", "Germany", "Berlin", "Berlin", "Europe/Berlin", 525_200, 134_050, "de-DE"), 0.17),
    (("DE", "Germany", "Bavaria", "Munich", "Europe/Berlin", 481_374, 115_755, "de-DE"), 0.09),
    (("DE", "Germany", "Hamburg", "Hamburg", "Europe/Berlin", 535_753, 100_153, "de-DE"), 0.06),
    (("US", "United States", "New York", "New York", "America/New_York", 407_128, -740_060, "en-US"), 0.11),
    (("US", "United States", "California", "San Jose", "America/Los_Angeles", 373_382, -1_218_863, "en-US"), 0.08),
    (("GB", "United Kingdom", "England", "London", "Europe/London", 515_085, -1_257, "en-GB"), 0.11),
    (("FR", "France", "Ile-de-France", "Paris", "Europe/Paris", 488_534, 23_488, "fr-FR"), 0.08),
    (("AT", "Austria", "Vienna", "Vienna", "Europe/Vienna", 482_085, 163_721, "de-AT"), 0.06),
    (("CH", "Switzerland", "Zurich", "Zurich", "Europe/Zurich", 473_667, 85_500, "de-CH"), 0.05),
    (("NL", "Netherlands", "North Holland", "Amsterdam", "Europe/Amsterdam", 523_740, 48_897, "nl-NL"), 0.05),
    (("ES", "Spain", "Madrid", "Madrid", "Europe/Madrid", 404_165, -37_026, "es-ES"), 0.04),
    (("JP", "Japan", "Tokyo", "Tokyo", "Asia/Tokyo", 356_895, 1_396_917, "ja-JP"), 0.04),
    (("IN", "India", "Karnataka", "Bengaluru", "Asia/Kolkata", 129_716, 775_946, "en-IN"), 0.04),
    (("BR", "Brazil", "Sao Paulo", "Sao Paulo", "America/Sao_Paulo", -235_475, -466_361, "pt-BR"), 0.02),
];

/// Share of the visits of a link that come from its campaign.
const OF_CAMPAIGN: f64 = 0.6;

/// Passes each visit of a link to `each`, hour by hour, as many as its history has.
///
/// # Errors
/// The error of `each`, which ends the visits.
pub(super) fn each_visit<E>(
    link: &Visited,
    dice: &mut Dice,
    mut each: impl FnMut(&VisitRecord<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let code = Code::parse(link.code.as_bytes()).expect("the story has short codes");
    let campaign = campaign_of(link);
    for (hour, counts) in &link.history.hours {
        for number in 0..counts.total {
            let is_bot = number < counts.bots;
            let agent = *chosen(if is_bot { &BOT_AGENTS[..] } else { &AGENTS[..] }, dice.roll());
            let place = chosen(&PLACES, dice.roll());
            let referrer = if is_bot { String::new() } else { referrer_of(dice.roll()) };
            let query = if !is_bot && dice.roll() < OF_CAMPAIGN { &*campaign } else { "" };
            let request = RequestPart {
                query: query.as_bytes(),
                referrer: referrer.as_bytes(),
                agent: agent.as_bytes(),
                language: if is_bot { b"" } else { place.7.as_bytes() },
                ..RequestPart::default()
            };
            each(&VisitRecord {
                at_ms: u64::from(*hour) * HOUR_MS + (dice.roll() * HOUR_MS as f64) as u64,
                kind: LoggedKind::Link,
                is_secure: true,
                forwards: false,
                is_bot,
                request,
                location: Some(location_of(place)),
                code: Some(code),
                target: link.long_url.as_bytes(),
            })?;
        }
    }
    Ok(())
}

/// Returns the value that a number from 0 up to 1 selects by the shares. The last value has the rest.
fn chosen<T>(choices: &[(T, f64)], mut at: f64) -> &T {
    let (last, others) = choices.split_last().expect("a table has values");
    for (value, share) in others {
        if at < *share {
            return value;
        }
        at -= share;
    }
    &last.0
}

fn location_of(place: &Place) -> GeoLocation<'static> {
    let (country, country_name, region, city, time_zone, latitude, longitude, _) = *place;
    GeoLocation {
        country,
        country_name,
        region,
        city,
        time_zone,
        coordinates: Some(Coordinates { latitude, longitude }),
    }
}

/// Returns the page that a person comes from; empty for a person who typed or scanned the URL.
fn referrer_of(mut at: f64) -> String {
    for (host, share) in REFERRERS {
        if at < share {
            return format!("https://{host}/");
        }
        at -= share;
    }
    String::new()
}

/// Returns the query of the visits that come from the campaign of a link; empty for a link without one.
fn campaign_of(link: &Visited) -> String {
    let has = |tag: &str| link.tags.contains(&tag);
    let (source, medium) = if has("mail") {
        ("newsletter", "email")
    } else if has("social") {
        ("linkedin", "social")
    } else if has("print") {
        ("poster", "qr")
    } else if has("campaign") {
        ("partner", "referral")
    } else {
        return String::new();
    };
    format!("utm_source={source}&utm_medium={medium}&utm_campaign={}", link.code)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::commands::demo::story::visited_links;
    use carom_model::formats::dates;
    use carom_model::visits::breakdown::{VisitBreakdown, VisitProperty};

    #[test]
    fn visits_agree_with_the_counts_and_are_varied() {
        let story = visited_links(dates::parse("2026-11-26T12:00:00Z").unwrap());
        let link = story.iter().find(|link| link.code == "summer").unwrap();
        let mut breakdown = VisitBreakdown::default();
        let mut dice = Dice(1);
        let each = |visit: &VisitRecord<'_>| {
            breakdown.add(visit);
            Ok::<(), Infallible>(())
        };
        each_visit(link, &mut dice, each).unwrap();
        let counts = link.history.all.counts;
        assert_eq!(breakdown.totals(), (counts.total, counts.bots));
        for (property, least) in [
            (VisitProperty::Country, 10),
            (VisitProperty::City, 14),
            (VisitProperty::Browser, 5),
            (VisitProperty::OperatingSystem, 5),
            (VisitProperty::Device, 4),
            (VisitProperty::Language, 7),
            (VisitProperty::Referrer, 9),
            (VisitProperty::UtmCampaign, 2),
        ] {
            let values = breakdown.top(property, 50);
            assert!(values.len() >= least, "{property:?}: {values:?}");
        }
        assert_eq!(&*breakdown.top(VisitProperty::Country, 1)[0].value, "DE");
    }

    #[test]
    fn shares_are_whole() {
        let sums = [
            AGENTS.iter().map(|(_, share)| share).sum::<f64>(),
            BOT_AGENTS.iter().map(|(_, share)| share).sum(),
            PLACES.iter().map(|(_, share)| share).sum(),
        ];
        assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 0.001), "{sums:?}");
    }
}
