//! The visits of a link: totals, a bar for each day, and the most frequent referrers, countries, browsers and so on.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::name::LinkName;
use super::text::visits;
use crate::commands::cli::LinkStatsArgs;
use crate::commands::node_api::{NodeApi, escaped};
use crate::commands::output::print;
use crate::commands::terminal::{fitted, json_text, plain, width};
use carom_model::formats::dates;
use carom_settings::exit::Exit;
use carom_telemetry::readable;

/// Days that are shown as bars, the last ones.
const DAYS_MAX: usize = 31;

/// Width of the page if standard output is not a terminal, in columns.
const WIDTH: usize = 80;

/// Widest bar, in columns.
const BAR_MAX: usize = 60;

/// Widest value in a list, in characters.
const VALUE_MAX: usize = 48;

const DAY_MS: u64 = 86_400_000;

/// Lists of the statistics, in the order of the page: the field of the API, and the title.
const LISTS: [(&str, &str); 10] = [
    ("referrers", "Referrers"),
    ("countries", "Countries"),
    ("cities", "Cities"),
    ("devices", "Devices"),
    ("browsers", "Browsers"),
    ("operatingSystems", "Operating systems"),
    ("languages", "Languages"),
    ("utmCampaigns", "Campaigns"),
    ("utmSources", "Campaign sources"),
    ("destinations", "Destinations"),
];

/// Period of the counts without `--since` and `--until`.
const ALL_TIME: &str = "all time";

/// Shows the visits of a link.
pub(super) fn stats(api: &NodeApi, name: &LinkName, arguments: &LinkStatsArgs) -> Result<(), Exit> {
    let mut period = String::new();
    for (parameter, date) in [("startDate", &arguments.since), ("endDate", &arguments.until)] {
        if let Some(date) = date {
            period.push_str(&format!("&{parameter}={}", escaped(date)));
        }
    }
    // One single visit at most: only the counts are needed.
    let counts = api.get(&name.path_below("/visits", &format!("itemsPerPage=1{period}")))?;
    let domain = name.parameter();
    let separator = if domain.is_empty() { "" } else { "&" };
    let bots = if arguments.no_bots { "&excludeBots=true" } else { "" };
    let details = api.get(&format!(
        "/rest/v3/visits/stats?shortCode={}&limit={}{bots}{period}{separator}{domain}",
        escaped(name.code()),
        arguments.limit
    ))?;
    if arguments.json {
        print(&json_text(&json!({"visits": counts["visits"], "visitStats": details["visitStats"]})));
        return Ok(());
    }
    print(&page(&counts["visits"], &details["visitStats"], arguments, width().unwrap_or(WIDTH)));
    Ok(())
}

/// Lays the visits out. The title of each part names its period.
fn page(counts: &Value, details: &Value, arguments: &LinkStatsArgs, width: usize) -> String {
    let period = period(arguments);
    let mut page = format!("Visits, {}: {}\n", period.as_deref().unwrap_or(ALL_TIME), visits(&counts["summary"]));
    let days = days(&counts["perDay"]);
    if let (Some((first, _)), Some((last, _))) = (days.first(), days.last()) {
        let shown = if first == last { first.clone() } else { format!("{first} to {last}") };
        let _ = writeln!(page, "\nBy day, {shown} (UTC)");
        write_bars(&mut page, &days, width);
    }
    let bots = if arguments.no_bots { ", without bots" } else { "" };
    let of_log = format!("{}{bots}", period.unwrap_or_else(|| whole_log(details)));
    let limit = usize::from(arguments.limit.get());
    let mut has_values = false;
    for (field, title) in LISTS {
        // Referrers are counted for every link, but not by day, so a period has none; all else needs the visit log.
        let (list, period) = match field {
            "referrers" if details["enabled"] == false => (&counts["referrers"], ALL_TIME),
            _ => (&details[field], &*of_log),
        };
        has_values |= write_list(&mut page, &format!("{title}, {period}"), list, limit, width);
    }
    if details["enabled"] == false {
        page.push_str("\nThe node keeps no visit log (visits.log), so nothing more is known about these visits.\n");
    } else if details["complete"] == false && has_values {
        page.push_str("\nThe lists are incomplete: some visits could not be read, or are missing from other nodes.\n");
    }
    page
}

/// Names the period that `--since` and `--until` set; `None` without them. Counts are those of whole days.
fn period(arguments: &LinkStatsArgs) -> Option<String> {
    let day = |instant: &str| instant.chars().take(10).collect::<String>();
    match (arguments.since.as_deref().map(day), arguments.until.as_deref().map(day)) {
        (None, None) => None,
        (Some(since), None) => Some(format!("since {since}")),
        (None, Some(until)) => Some(format!("until {until}")),
        (Some(since), Some(until)) => Some(format!("{since} to {until}")),
    }
}

/// Names the period of the visit log, which keeps a visit for a limited time.
fn whole_log(details: &Value) -> String {
    let since = details["since"].as_str().map(|since| plain(since).chars().take(10).collect::<String>());
    since.map_or("all logged visits".to_owned(), |since| format!("logged since {since}"))
}

/// Returns the last days, each with its visits, including days without any between two others.
fn days(per_day: &Value) -> Vec<(String, u64)> {
    let counted = per_day.as_array().map(Vec::as_slice).unwrap_or_default();
    let counted: Vec<(u64, u64)> = counted
        .iter()
        .filter_map(|day| {
            let ms = dates::parse(&format!("{}T00:00:00Z", day["date"].as_str()?)).ok()?;
            Some((ms, day["total"].as_u64()?))
        })
        .collect();
    let (Some((first_ms, _)), Some((last_ms, _))) = (counted.first(), counted.last()) else { return Vec::new() };
    let count = (last_ms.saturating_sub(*first_ms) / DAY_MS + 1).min(DAYS_MAX as u64);
    (0..count)
        .rev()
        .map(|before| {
            let ms = last_ms - before * DAY_MS;
            let total = counted.iter().find(|(day_ms, _)| *day_ms == ms).map_or(0, |(_, total)| *total);
            (dates::format(ms)[..10].to_owned(), total)
        })
        .collect()
}

fn write_bars(page: &mut String, days: &[(String, u64)], width: usize) {
    let most = days.iter().map(|(_, total)| *total).max().unwrap_or(0).max(1);
    let digits = readable::grouped(most).len();
    let room = width.saturating_sub(10 + digits + 4).clamp(10, BAR_MAX) as u64;
    for (day, total) in days {
        let len = match total {
            0 => 0,
            // A day with visits is seen as such.
            total => (u128::from(*total) * u128::from(room) / u128::from(most)).max(1) as usize,
        };
        let row = format!("{day}  {:>digits$}  {}", readable::grouped(*total), "█".repeat(len));
        let _ = writeln!(page, "{}", row.trim_end());
    }
}

/// Writes the most frequent values of a list. Returns false if there are none.
fn write_list(page: &mut String, title: &str, list: &Value, limit: usize, width: usize) -> bool {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<(String, u64)> = items.iter().take(limit).filter_map(item).collect();
    // A list of nothing but unknown values says nothing.
    if rows.iter().all(|(value, _)| value == UNKNOWN) {
        return false;
    }
    let _ = writeln!(page, "\n{title}");
    let digits = rows.iter().map(|(_, visits)| readable::grouped(*visits).len()).max().unwrap_or(0);
    for (value, visits) in rows {
        let value = fitted(&value, VALUE_MAX.min(width.saturating_sub(digits + 4)));
        let _ = writeln!(page, "  {:>digits$}  {value}", readable::grouped(visits));
    }
    true
}

/// Label of visits without a value.
const UNKNOWN: &str = "(unknown)";

fn item(item: &Value) -> Option<(String, u64)> {
    let text = |name: &str| item[name].as_str().map(plain).filter(|text| !text.is_empty());
    let value = text("label").or_else(|| text("value")).or_else(|| text("host"));
    let value = match (value, text("country")) {
        (Some(value), Some(country)) => format!("{value}, {country}"),
        (value, _) => value.unwrap_or_else(|| UNKNOWN.to_owned()),
    };
    let visits = item["visits"].as_u64().or_else(|| item["total"].as_u64())?;
    Some((value, visits))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::commands::cli::{ApiPlace, LinkPlace};

    fn asked(since: Option<&str>, until: Option<&str>) -> LinkStatsArgs {
        LinkStatsArgs {
            link: LinkPlace { link: "abc".to_owned(), domain: None },
            since: since.map(str::to_owned),
            until: until.map(str::to_owned),
            no_bots: false,
            limit: NonZeroU16::new(5).unwrap(),
            json: false,
            place: ApiPlace::default(),
        }
    }

    #[test]
    fn pages_show_days_and_the_most_frequent_values() {
        let day = |date: &str, total: u64| json!({"date": date, "total": total, "nonBots": total, "bots": 0});
        let counts = json!({"summary": {"total": 1_100, "nonBots": 1_000, "bots": 100},
            "perDay": [day("2026-01-30", 1_000), day("2026-02-01", 1)], "referrers": [{"host": "news.example", "total": 7}]});
        let details = json!({"enabled": true, "complete": true, "since": "2025-12-24T00:00:00+00:00",
            "referrers": [{"value": "", "visits": 9}, {"value": "a\u{1b}.example", "visits": 3}],
            "countries": [{"value": "DE", "label": "Germany", "visits": 4}], "cities": [],
            "utmCampaigns": [{"value": "spring", "visits": 5}],
            "languages": [{"value": "", "visits": 2}]});
        let page = page(&counts, &details, &asked(None, None), 80);
        for part in [
            "Visits, all time: 1,100 (1,000 by people, 100 by bots)\n",
            &format!("By day, 2026-01-30 to 2026-02-01 (UTC)\n2026-01-30  1,000  {}\n", "█".repeat(60)),
            "2026-01-31      0\n2026-02-01      1  █\n",
            "Referrers, logged since 2025-12-24\n  9  (unknown)\n  3  a.example\n",
            "Countries, logged since 2025-12-24\n  4  Germany\n",
            "Campaigns, logged since 2025-12-24\n  5  spring\n",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        for absent in ["Languages", "Cities", "news.example", "visits.log"] {
            assert!(!page.contains(absent), "{absent}: {page}");
        }
    }

    #[test]
    fn pages_without_a_log_have_the_counted_referrers() {
        let mut counts = json!({"summary": {"total": 0, "nonBots": 0, "bots": 0}, "perDay": [],
            "referrers": [{"host": "news.example", "total": 7}]});
        let details = json!({"enabled": false, "referrers": []});
        let page = page(&counts, &details, &asked(None, None), 40);
        assert!(page.contains("Referrers, all time\n  7  news.example\n"), "{page}");
        assert!(page.contains("visits.log"), "{page}");
        // The counted referrers are those since the creation, so a period has none.
        counts["referrers"] = Value::Null;
        let page = super::page(&counts, &details, &asked(Some("2026-01-30T00:00:00+00:00"), None), 40);
        assert!(page.starts_with("Visits, since 2026-01-30: 0\n"), "{page}");
        assert!(!page.contains("Referrers"), "{page}");
        let empty = super::page(&Value::Null, &Value::Null, &asked(None, None), 80);
        assert!(empty.starts_with("Visits, all time: 0\n"), "{empty}");
    }

    #[test]
    fn titles_name_the_period_of_the_options() {
        let (since, until) = (Some("2026-01-30T12:00:00+00:00"), Some("2026-02-01T23:59:59+00:00"));
        let details = json!({"enabled": true, "since": "2025-12-24T00:00:00+00:00",
            "countries": [{"value": "DE", "label": "Germany", "visits": 4}]});
        let mut arguments = asked(since, until);
        arguments.no_bots = true;
        let page = page(&Value::Null, &details, &arguments, 80);
        assert!(page.starts_with("Visits, 2026-01-30 to 2026-02-01: 0\n"), "{page}");
        assert!(page.contains("Countries, 2026-01-30 to 2026-02-01, without bots\n"), "{page}");
        assert_eq!(period(&asked(None, until)).as_deref(), Some("until 2026-02-01"));
    }

    #[test]
    fn long_periods_end_with_the_last_days() {
        let per_day = json!([{"date": "2020-01-01", "total": 5}, {"date": "2026-01-01", "total": 6}]);
        let days = days(&per_day);
        assert_eq!((days.len(), &*days[0].0, days[30].1), (DAYS_MAX, "2025-12-02", 6));
    }
}
