//! Links as text for people.

use std::fmt::Write as _;

use serde_json::Value;

use crate::commands::terminal::{fitted, minute, padded, plain, text_width};
use carom_model::formats::dates;
use carom_telemetry::readable;

/// Narrowest column of URLs, in characters. On a terminal of fewer than 80 columns, it is a quarter of the width.
const URL_MIN: usize = 20;

/// Column of the visits in a table, after the short URL and the destination.
const VISITS: usize = 2;

/// Column of the date of creation.
const CREATED: usize = 3;

/// Column of the state.
const STATE: usize = 4;

/// Space between two columns.
const GAP: &str = "  ";

/// Returns a text of a link that a terminal does not interpret.
fn text_of(value: &Value) -> String {
    plain(value.as_str().unwrap_or_default())
}

/// Returns the instant of a field to the minute. Another text stays as it is.
fn instant_of(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    dates::parse(text).map_or_else(|_| plain(text), minute)
}

/// Describes a link in one line: where it leads, and until when.
pub(super) fn line(link: &Value) -> String {
    let until = match &link["meta"]["validUntil"] {
        Value::Null => String::new(),
        until => format!("  (expires {})", instant_of(until)),
    };
    format!("{}  →  {}{until}\n", text_of(&link["shortUrl"]), text_of(&link["longUrl"]))
}

/// Returns what keeps a link from redirecting; `None` if nothing does.
fn obstacle(link: &Value, now_ms: u64) -> Option<&'static str> {
    let meta = &link["meta"];
    let ms = |name: &str| meta[name].as_str().and_then(|text| dates::parse(text).ok());
    let total = link["visitsSummary"]["total"].as_u64().unwrap_or(0);
    let obstacles = [
        (link["deletesAt"].is_string(), "deleted"),
        (link["archived"] == true, "archived"),
        (link["blocked"] == true, "blocked"),
        (ms("validUntil").is_some_and(|ms| ms <= now_ms), "expired"),
        (ms("validSince").is_some_and(|ms| ms > now_ms), "scheduled"),
        (meta["maxVisits"].as_u64().is_some_and(|most| total >= most), "limit reached"),
    ];
    obstacles.into_iter().find(|(is_met, _)| *is_met).map(|(_, name)| name)
}

/// Lays links out as a table that fits a width; without a width, nothing is cut.
pub(super) fn table(links: &[Value], width: Option<usize>, now_ms: u64) -> String {
    if links.is_empty() {
        return String::new();
    }
    let mut rows = vec![["SHORT URL", "DESTINATION", "VISITS", "CREATED", "STATE"].map(str::to_owned)];
    for link in links {
        let visits = readable::grouped(link["visitsSummary"]["total"].as_u64().unwrap_or(0));
        let created = text_of(&link["dateCreated"]).chars().take(10).collect();
        let state = obstacle(link, now_ms).unwrap_or_default().to_owned();
        rows.push([text_of(&link["shortUrl"]), text_of(&link["longUrl"]), visits, created, state]);
    }
    let longest = |column: usize| rows.iter().map(|row| text_width(&row[column])).max().unwrap_or(0);
    let mut widths = [0, 1, VISITS, CREATED, STATE].map(longest);
    let mut columns = vec![0, 1, VISITS, CREATED, STATE];
    if rows[1..].iter().all(|row| row[STATE].is_empty()) {
        // Most links redirect, and then the column says nothing.
        columns.pop();
    }
    if let Some(width) = width {
        let url_min = URL_MIN.min(width / 4);
        let others = |columns: &[usize]| columns[2..].iter().map(|column| GAP.len() + widths[*column]).sum::<usize>();
        for dispensable in [CREATED, VISITS] {
            if 2 * url_min + GAP.len() + others(&columns) > width {
                columns.retain(|column| *column != dispensable);
            }
        }
        let others = GAP.len() + others(&columns);
        widths[0] = widths[0].min(width.saturating_sub(others + url_min).max(url_min));
        widths[1] = widths[1].min(width.saturating_sub(others + widths[0]).max(url_min));
    }
    // No text can be padded to more.
    let widths = widths.map(|width| width.min(usize::from(u16::MAX)));
    let mut table = String::new();
    for row in rows {
        let cells: Vec<String> = columns.iter().map(|&column| cell(&row[column], widths[column], column)).collect();
        let _ = writeln!(table, "{}", cells.join(GAP).trim_end());
    }
    table
}

/// Returns a cell of a table, cut or padded to a width: numbers are at the right.
fn cell(text: &str, width: usize, column: usize) -> String {
    let text = fitted(text, width);
    if column == VISITS { format!("{text:>width$}") } else { padded(&text, width) }
}

/// Describes a link with all its properties, one on each line.
pub(super) fn card(link: &Value, now_ms: u64) -> String {
    let mut card = String::new();
    let mut add = |name: &str, value: &str| {
        if !value.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(card, "{name:<13} {value}");
        }
    };
    let meta = &link["meta"];
    add("Short URL", &text_of(&link["shortUrl"]));
    add("Destination", &text_of(&link["longUrl"]));
    add("State", obstacle(link, now_ms).unwrap_or("active"));
    add("Title", &text_of(&link["title"]));
    let tags = link["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
    add("Tags", &tags.iter().map(text_of).collect::<Vec<_>>().join(", "));
    add("Visits", &visits(&link["visitsSummary"]));
    add("Visit limit", &meta["maxVisits"].as_u64().map_or(String::new(), readable::grouped));
    add("Starts", &instant_of(&meta["validSince"]));
    add("Expires", &instant_of(&meta["validUntil"]));
    add("Redirect", &redirect(link));
    let by = match link["app"].as_str() {
        Some(app) => format!(" by {}", plain(app)),
        None => String::new(),
    };
    add("Created", &format!("{}{by}", instant_of(&link["dateCreated"])));
    add("Deleted on", &instant_of(&link["deletesAt"]));
    card
}

/// Describes counts of visits.
pub(super) fn visits(summary: &Value) -> String {
    let number = |name: &str| summary[name].as_u64().unwrap_or(0);
    let total = readable::grouped(number("total"));
    match number("bots") {
        0 => total,
        bots => {
            format!("{total} ({} by people, {} by bots)", readable::grouped(number("nonBots")), readable::grouped(bots))
        }
    }
}

fn redirect(link: &Value) -> String {
    let mut parts = vec![link["redirectStatus"].as_u64().map_or(String::new(), |status| status.to_string())];
    if link["hasRedirectRules"] == true {
        parts.push("with redirect rules".to_owned());
    }
    if let Some(seconds) = link["cacheSeconds"].as_u64() {
        parts.push(format!("cached for {}", readable::duration(seconds)));
    }
    if link["forwardQuery"] == false {
        parts.push("without the query".to_owned());
    }
    if link["crawlable"] == true {
        parts.push("crawlable".to_owned());
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn link(long_url: &str, more: &Value) -> Value {
        let mut link = json!({"shortUrl": "https://go.example/abc", "longUrl": long_url, "dateCreated": "2026-01-31T12:00:00+00:00",
            "visitsSummary": {"total": 1_234, "nonBots": 1_000, "bots": 234}, "tags": ["a", "b"], "title": "T\u{1b}[1m",
            "meta": {"validSince": null, "validUntil": null, "maxVisits": null}, "archived": false, "blocked": false,
            "redirectStatus": 302, "cacheSeconds": null, "forwardQuery": true, "hasRedirectRules": false, "app": "shop"});
        link.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        link
    }

    #[test]
    fn tables_fit_the_terminal() {
        let long = format!("https://example.com/{}", "x".repeat(200));
        let links = [link(&long, &Value::Null), link("https://example.com/", &Value::Null)];
        let cut = table(&links, Some(80), 0);
        assert!(cut.lines().all(|line| line.chars().count() <= 80), "{cut}");
        assert!(cut.contains('…'), "{cut}");
        assert!(!cut.contains("STATE"), "{cut}");
        assert!(cut.contains("1,234  2026-01-31"), "{cut}");
        let whole = table(&links, None, 0);
        assert!(whole.contains(&long), "{whole}");
        let archived = table(&[link("https://example.com/", &json!({"archived": true}))], Some(100), 0);
        assert!(archived.lines().next().unwrap().ends_with("STATE"));
        assert!(archived.trim_end().ends_with("archived"));
        assert_eq!(table(&[], Some(80), 0), "");
        let both = [link(&long, &json!({"archived": true})), link("https://example.com/", &Value::Null)];
        for width in [40, 50, 60, 72] {
            for links in [&links, &both] {
                let narrow = table(links, Some(width), 0);
                assert!(narrow.lines().all(|line| line.chars().count() <= width), "{width}: {narrow}");
            }
        }
        assert!(table(&links, Some(60), 0).contains("CREATED"));
        assert!(!table(&links, Some(40), 0).contains("CREATED"));
        assert!(table(&links, Some(40), 0).contains("1,234"));
        assert!(table(&both, Some(40), 0).contains("archived"));
    }

    #[test]
    fn lines_name_the_minute_of_the_expiry() {
        let expiring = |until: Value| line(&link("https://example.com/", &json!({"meta": {"validUntil": until}})));
        let url = "https://go.example/abc  →  https://example.com/";
        assert_eq!(expiring(Value::Null), format!("{url}\n"));
        let until = expiring(json!("2026-02-01T00:59:59+01:00"));
        assert_eq!(until, format!("{url}  (expires 2026-01-31 23:59 UTC)\n"));
        assert_eq!(expiring(json!("soon\u{1b}")), format!("{url}  (expires soon)\n"));
    }

    #[test]
    fn cards_have_every_property_that_is_set() {
        let meta = json!({"validSince": null, "validUntil": "2026-02-01T00:00:00+00:00", "maxVisits": 5_000});
        let more = json!({"meta": meta, "cacheSeconds": 60, "forwardQuery": false});
        let card = card(&link("https://example.com/", &more), dates::parse("2027-01-01T00:00:00Z").unwrap());
        for part in [
            "State         expired\n",
            "Title         T[1m\n",
            "Tags          a, b\n",
            "Visits        1,234 (1,000 by people, 234 by bots)\n",
            "Visit limit   5,000\n",
            "Redirect      302, cached for 1 min",
            ", without the query\n",
            "Expires       2026-02-01 00:00 UTC\n",
            "Created       2026-01-31 12:00 UTC by shop\n",
        ] {
            assert!(card.contains(part), "{part}: {card}");
        }
        assert!(!card.contains("Starts"), "{card}");
        assert!(!card.contains('\u{1b}'), "{card}");
    }

    #[test]
    fn states_are_the_first_obstacle() {
        let now_ms = dates::parse("2026-06-01T00:00:00Z").unwrap();
        let meta = |name: &str, value: Value| {
            let mut meta = json!({"validSince": null, "validUntil": null, "maxVisits": null});
            meta[name] = value;
            json!({ "meta": meta })
        };
        for (more, state) in [
            (json!({}), None),
            (json!({"archived": true, "blocked": true}), Some("archived")),
            (json!({"blocked": true}), Some("blocked")),
            (meta("validUntil", json!("2026-05-31T00:00:00+00:00")), Some("expired")),
            (meta("validSince", json!("2026-06-02T00:00:00+00:00")), Some("scheduled")),
            (meta("maxVisits", json!(1_234)), Some("limit reached")),
            (meta("maxVisits", json!(1_235)), None),
        ] {
            assert_eq!(obstacle(&link("https://example.com/", &more), now_ms), state, "{more}");
        }
    }
}
