//! The links and visits of a demonstration: the same on every run, apart from their dates.

use carom_model::formats::dates;
use carom_model::visits::history::VisitHistory;
use carom_model::visits::tally::{TallyRow, VisitCounts};
use serde_json::{Value, json};

/// Days of visits.
pub(super) const DAYS: u32 = 90;

/// Milliseconds of an hour.
pub(super) const HOUR_MS: u64 = 3_600_000;

/// A link: code, destination, title, tags, age in days, and visits on a usual day.
type StoryLink = (&'static str, &'static str, &'static str, &'static [&'static str], f64, f64);

/// The links of the demonstration.
const LINKS: [StoryLink; 24] = [
    ("summer", "https://shop.example/sale/summer?utm_source=mail", "Summer sale", &["sale", "mail"], 88.0, 160.0),
    ("autumn", "https://shop.example/sale/autumn?utm_source=mail", "Autumn sale", &["sale", "mail"], 41.0, 210.0),
    ("jobs", "https://www.example/careers", "Open positions", &["hr"], 90.0, 35.0),
    ("docs", "https://docs.example/start", "Documentation", &["product"], 90.0, 120.0),
    ("pricing", "https://www.example/pricing", "Pricing", &["product"], 90.0, 75.0),
    ("demo", "https://app.example/demo", "Try it", &["product", "campaign"], 76.0, 95.0),
    ("app", "https://app.example/download", "Download the app", &["product", "print"], 83.0, 140.0),
    ("menu", "https://cafe.example/menu.pdf", "Menu on the tables", &["print"], 90.0, 60.0),
    ("wifi", "https://cafe.example/wifi", "Guest network", &["print"], 70.0, 25.0),
    ("talk24", "https://conf.example/2026/keynote", "Keynote", &["event"], 30.0, 90.0),
    ("slides", "https://conf.example/2026/slides.pdf", "Slides of the keynote", &["event"], 28.0, 55.0),
    ("meetup", "https://events.example/meetup/11", "Meetup in November", &["event"], 6.2, 30.0),
    ("news", "https://blog.example/newsletter", "Newsletter", &["mail"], 90.0, 45.0),
    ("v2", "https://blog.example/release-2-0", "Version 2.0", &["product", "news"], 52.0, 80.0),
    ("faq", "https://help.example/faq", "Questions and answers", &["support"], 90.0, 28.0),
    ("uptime", "https://status.example/", "Status page", &["support"], 90.0, 8.0),
    ("survey", "https://forms.example/survey/7", "Customer survey", &["mail", "campaign"], 3.6, 65.0),
    ("press", "https://www.example/press", "Press kit", &["news"], 11.6, 6.0),
    ("map", "https://maps.example/office", "The way to the office", &["print"], 90.0, 12.0),
    ("video", "https://video.example/watch/38", "Product tour", &["product", "social"], 16.4, 130.0),
    ("gift", "https://shop.example/gift-cards", "Gift cards", &["sale"], 0.2, 70.0),
    ("podcast", "https://radio.example/episode/12", "Podcast, episode 12", &["social"], 1.3, 40.0),
    ("contact", "https://www.example/contact", "Contact", &["support"], 90.0, 15.0),
    ("terms", "https://www.example/terms", "Terms of service", &["legal"], 90.0, 3.0),
];

/// Referring hosts, each with its share of the visits of people. The rest come without one.
pub(super) const REFERRERS: [(&str, f64); 8] = [
    ("www.google.com", 0.22),
    ("www.linkedin.com", 0.09),
    ("news.ycombinator.com", 0.07),
    ("www.instagram.com", 0.06),
    ("mail.example", 0.05),
    ("www.reddit.com", 0.04),
    ("blog.example", 0.03),
    ("duckduckgo.com", 0.03),
];

/// Share of visits by bots.
const BOTS: f64 = 0.08;

/// Share of a day's visits in each hour of it, in UTC; the sum is 1.
const HOURS: [f64; 24] = [
    0.010, 0.007, 0.005, 0.005, 0.007, 0.013, 0.025, 0.042, 0.058, 0.066, 0.068, 0.066, 0.064, 0.062, 0.060, 0.058,
    0.056, 0.056, 0.060, 0.064, 0.060, 0.046, 0.026, 0.016,
];

/// A link of the demonstration, with its visits.
pub(super) struct Visited {
    pub(super) code: &'static str,
    pub(super) long_url: &'static str,
    pub(super) tags: &'static [&'static str],
    /// The link as a line of an import.
    pub(super) line: Value,
    pub(super) history: VisitHistory,
}

/// Random numbers that are the same on every run.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// Returns a number from 0 up to 1.
    pub(super) fn roll(&mut self) -> f64 {
        // The multiplier and increment of Knuth's MMIX.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / (1_u64 << 31) as f64
    }

    /// Returns a whole number near an expected one: fractions become one more now and then.
    fn near(&mut self, expected: f64) -> u64 {
        let varied = expected * (0.7 + 0.6 * self.roll());
        varied as u64 + u64::from(self.roll() < varied.fract())
    }
}

/// Returns the links and their visits up to the last full hour.
pub(super) fn visited_links(now_ms: u64) -> Vec<Visited> {
    let mut dice = Dice(9);
    let visited = |(code, long_url, title, tags, age, usual): StoryLink| {
        let created_ms = now_ms - (age * 24.0 * HOUR_MS as f64) as u64;
        let line = json!({"shortCode": code, "longUrl": long_url, "title": title, "tags": tags,
            "dateCreated": dates::format(dates::whole_second(created_ms))});
        let hours = (created_ms / HOUR_MS) as u32 + 1..(now_ms / HOUR_MS) as u32;
        let mut history = VisitHistory::default();
        for hour in hours.clone() {
            let total = dice.near(expected(hour, hours.start, usual));
            let bots = (0..total).filter(|_| dice.roll() < BOTS).count() as u64;
            history.add(hour, &TallyRow::from(VisitCounts { total, bots }));
        }
        history.all.hosts = hosts(history.all.counts, &mut dice);
        history.all.sort_hosts();
        Visited { code, long_url, tags, line, history }
    };
    LINKS.into_iter().map(visited).collect()
}

/// Returns the visits that a link is expected to have in an hour: more on workdays and when it is new.
fn expected(hour: u32, first: u32, usual: f64) -> f64 {
    let (day, age_days) = (hour / 24, (hour - first) / 24);
    // 1970-01-01 was a Thursday.
    let of_weekday = if matches!((day + 3) % 7, 5 | 6) { 0.55 } else { 1.1 };
    let of_age = match age_days {
        0..=2 => 2.2,
        3..=9 => 1.4,
        _ => 1.0,
    };
    // A slow wave, so that weeks differ.
    let of_week = 1.0 + 0.15 * (f64::from(day) / 9.0).sin();
    usual * HOURS[(hour % 24) as usize] * of_weekday * of_age * of_week
}

/// Divides the visits of people among referring hosts.
fn hosts(counts: VisitCounts, dice: &mut Dice) -> Vec<(Box<[u8]>, u64)> {
    let people = (counts.total - counts.bots) as f64;
    let of = REFERRERS.map(|(host, share)| (Box::from(host.as_bytes()), dice.near(people * share)));
    of.into_iter().filter(|(_, visits)| *visits > 0).collect()
}

/// Divides the referring hosts of all links among the days, by the visits of each.
pub(super) fn referrers_by_day(all: &VisitHistory) -> Vec<(u32, VisitHistory)> {
    let total = all.all.counts.total.max(1) as f64;
    let of_day = |(day, counts): (&u32, &VisitCounts)| {
        let share = counts.total as f64 / total;
        let hosts = all.all.hosts.iter().map(|(host, visits)| (host.clone(), (*visits as f64 * share) as u64));
        let hosts = hosts.filter(|(_, visits)| *visits > 0).collect();
        (*day, VisitHistory { all: TallyRow { counts: *counts, hosts }, ..VisitHistory::default() })
    };
    all.days.iter().map(of_day).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stories_are_believable_and_the_same() {
        let now_ms = dates::parse("2026-11-26T12:00:00Z").unwrap();
        let (story, again) = (visited_links(now_ms), visited_links(now_ms));
        assert!(story.iter().zip(&again).all(|(one, other)| one.history == other.history));
        let docs = story.iter().find(|link| link.code == "docs").unwrap();
        let counts = docs.history.all.counts;
        assert!((7_000..16_000).contains(&counts.total), "{counts:?}");
        assert!(counts.bots > counts.total / 20, "{counts:?}");
        assert!(counts.bots < counts.total / 8, "{counts:?}");
        let hosts: u64 = docs.history.all.hosts.iter().map(|(_, visits)| visits).sum();
        assert!(hosts > 0, "{hosts} of {counts:?}");
        assert!(hosts < counts.total - counts.bots, "{hosts} of {counts:?}");
        // No visit is before the link, or to come.
        let last = (now_ms / HOUR_MS) as u32;
        assert!(docs.history.hours.keys().all(|hour| *hour < last));
        assert!((DAYS as usize..=DAYS as usize + 1).contains(&docs.history.days.len()));
        assert!((HOURS.iter().sum::<f64>() - 1.0).abs() < 0.001);
    }

    #[test]
    fn some_links_are_new() {
        let now_ms = dates::parse("2026-11-26T12:00:00Z").unwrap();
        let age = |link: &Visited| now_ms - dates::parse(link.line["dateCreated"].as_str().unwrap()).unwrap();
        let ages: Vec<u64> = visited_links(now_ms).iter().map(age).collect();
        let newer = |hours: u64| ages.iter().filter(|age| **age < hours * HOUR_MS).count();
        assert!(newer(6) > 0, "{ages:?}");
        assert!(newer(7 * 24) > 3, "{ages:?}");
        let newest = visited_links(now_ms).into_iter().min_by_key(age).unwrap();
        assert!(newest.history.all.counts.total > 0, "{:?}", newest.history.all.counts);
    }

    #[test]
    fn days_share_the_referrers() {
        let mut all = VisitHistory::default();
        all.add(24, &TallyRow::from(VisitCounts { total: 30, bots: 0 }));
        all.add(48, &TallyRow::from(VisitCounts { total: 10, bots: 0 }));
        all.all.hosts = vec![(Box::from(&b"a.example"[..]), 20)];
        let days = referrers_by_day(&all);
        let visits: Vec<(u32, u64)> = days.iter().map(|(day, row)| (*day, row.all.hosts[0].1)).collect();
        assert_eq!(visits, [(1, 15), (2, 5)]);
    }
}
