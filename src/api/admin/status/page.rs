//! The status as a page for people: drawn here, renewed each second by a script of a few lines, and without it by the browser.

use std::fmt::Write;

use hyper::{StatusCode, header};
use serde_json::Value;

use super::plot::sparkline;
use crate::api::{Answer, answer, page as pages, with};
use carom_model::dates;
use carom_telemetry::readable;

/// The style of the page.
pub(in crate::api) const STYLE: &str = include_str!("status.css");

/// What renews it.
pub(in crate::api) const SCRIPT: &str = include_str!("status.js");

/// What the page may load: nothing from elsewhere, and nothing that stands in it.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The status as a page that renews itself.
pub(in crate::api) fn page(status: &Value) -> Answer {
    let answer = answer(StatusCode::OK, "text/html; charset=utf-8", render(status));
    with(with(answer, header::CONTENT_SECURITY_POLICY, POLICY), header::REFERRER_POLICY, "no-referrer")
}

fn render(status: &Value) -> String {
    let mut page = String::from(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Status - carom</title><link rel=\"icon\" href=\"/admin/assets/icon.svg\"><link rel=\"stylesheet\" href=\"/status.css\"><script src=\"/status.js\" defer></script>\
         <noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript></head><body><main>",
    );
    let (state, class) = match (status["ready"].as_bool(), status["draining"].as_bool()) {
        (_, Some(true)) => ("Draining", "bad"),
        (Some(true), _) => ("Ready", "good"),
        _ => ("Starting", "bad"),
    };
    let uptime = readable::duration(status["uptimeSeconds"].as_u64().unwrap_or(0));
    let _ = write!(
        page,
        "<header><h1>carom</h1><strong class=\"{class}\">{state}</strong><span class=\"soft\">version {} · up {uptime} · times in UTC</span><a href=\"/admin/\">Console</a></header>",
        escaped(&status["version"])
    );
    render_alarms(&mut page, status, true);
    render_now(&mut page, status);
    render_pulse(&mut page, status);
    render_cores(&mut page, status);
    render_store(&mut page, status);
    if status["fleet"].is_object() {
        render_fleet(&mut page, status);
    }
    render_limits(&mut page, status);
    render_certificates(&mut page, status);
    render_alarms(&mut page, status, false);
    page.push_str("</main></body></html>\n");
    page
}

/// The sum of a number over the cores, or over the apps.
fn sum_of(all: &Value, name: &str) -> u64 {
    all.as_array().into_iter().flatten().map(|one| one[name].as_u64().unwrap_or(0)).sum()
}

/// A row of numbers, each with what it is.
fn render_cards(page: &mut String, cards: &[(String, &str)]) {
    page.push_str("<div class=\"cards\">");
    for (number, label) in cards {
        let _ = write!(page, "<div class=\"card\"><b>{number}</b><span>{label}</span></div>");
    }
    page.push_str("</div>");
}

/// What it does at this moment.
fn render_now(page: &mut String, status: &Value) {
    let last_of = |numbers: &Value| numbers.as_array().and_then(|all| all.last()?.as_u64()).unwrap_or(0);
    let of_cores = |name: &str| {
        let cores = status["pulse"][name].as_array().into_iter().flatten();
        cores.map(last_of).sum::<u64>()
    };
    let worst = status["cores"].as_array().into_iter().flatten();
    let worst = worst.filter_map(|core| core["latencyMicros"]["p99"].as_f64()).fold(0.0, f64::max);
    let is_hot = status["residency"]["mode"] == "hot";
    let cards = [
        (readable::grouped(of_cores("redirects")), "Redirects/s"),
        (readable::grouped(of_cores("misses")), "Not found/s"),
        (readable::grouped(last_of(&status["pulse"]["changes"])), "Link writes/s"),
        (readable::grouped(sum_of(&status["cores"], "connections")), "Connections"),
        (if worst > 0.0 { readable::latency(worst) } else { "–".to_owned() }, "p99 since start, slowest core"),
        (grouped(&status["links"]), if is_hot { "Links in memory" } else { "Links" }),
        (lasting(status), "Slugs left"),
    ];
    render_cards(page, &cards);
}

/// Codes that are left, and for how long.
fn lasting(status: &Value) -> String {
    let left = rounded(&status["issuer"]["remaining"]);
    match status["issuer"]["lastsSeconds"].as_u64() {
        Some(seconds) => format!("{left}<small>run out in {} at the current rate</small>", readable::duration(seconds)),
        None => left,
    }
}

/// The last two minutes of each core.
fn render_pulse(page: &mut String, status: &Value) {
    let series = |name: &str, core: usize| -> Vec<u64> {
        let numbers = status["pulse"][name][core].as_array().into_iter().flatten();
        numbers.map(|number| number.as_u64().unwrap_or(0)).collect()
    };
    page.push_str("<h2>Redirects/s per core, last two minutes</h2><div class=\"pulses\">");
    let cores = status["cores"].as_array().map_or(0, Vec::len);
    let all: Vec<Vec<u64>> = (0..cores).map(|core| series("redirects", core)).collect();
    // All on one scale: a core that differs is seen.
    let most = all.iter().flatten().copied().max().unwrap_or(0);
    for (core, redirects) in all.iter().enumerate() {
        let now = redirects.last().copied().unwrap_or(0);
        let label = format!(
            "Core {core}: {} redirects/s now, maximum {}",
            readable::grouped(now),
            readable::grouped(redirects.iter().copied().max().unwrap_or(0))
        );
        let _ = write!(
            page,
            "<figure class=\"card\"><figcaption>Core {core}<b>{}</b></figcaption>{}</figure>",
            readable::grouped(now),
            sparkline(redirects, most, &label)
        );
    }
    page.push_str("</div>");
}

fn render_cores(page: &mut String, status: &Value) {
    page.push_str(
        "<h2>Cores</h2><div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Cores\"><table><thead><tr><th>Core</th><th>CPU</th><th>Links</th><th>Memory (MiB)</th><th>Connections</th>\
         <th>Redirects</th><th>Not found</th><th>Lookups sent</th><th>Served from copies</th><th>Lookups answered</th><th>Slugs ready</th><th>p50 (µs)</th><th>p99 (µs)</th><th>Max (µs)</th></tr></thead><tbody>",
    );
    for core in status["cores"].as_array().into_iter().flatten() {
        let latency =
            |name: &str| core["latencyMicros"][name].as_f64().map_or("–".to_owned(), |micros| format!("{micros:.1}"));
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            core["core"],
            core["cpu"],
            grouped(&core["links"]),
            core["mapBytes"].as_f64().unwrap_or(0.0) / 1_048_576.0,
            grouped(&core["connections"]),
            grouped(&core["redirects"]),
            grouped(&core["misses"]),
            grouped(&core["forwardedOut"]),
            grouped(&core["hotHits"]),
            grouped(&core["forwardedIn"]),
            grouped(&core["codes"]["remaining"]),
            latency("p50"),
            latency("p99"),
            latency("max"),
        );
    }
    page.push_str("</tbody></table></div>");
}

fn render_store(page: &mut String, status: &Value) {
    let store = &status["store"];
    let has_commits = store["commits"].as_u64().unwrap_or(0) > 0;
    let micros = |name: &str| match store[name].as_f64().filter(|_| has_commits) {
        Some(micros) => readable::latency(micros),
        None => "–".to_owned(),
    };
    let residency = &status["residency"];
    let cards = [
        (if store["writable"] == true { "Accepting" } else { "Refusing" }.to_owned(), "Writes"),
        (micros("commitMicrosMean"), "Mean commit"),
        (micros("syncMicrosMean"), "Mean sync"),
        (grouped(&store["commitsSlow"]), "Commits over 100 ms"),
        (grouped(&store["queue"]), "Queued writes"),
        (grouped(&store["update"]), "Link writes"),
        (grouped(&store["damaged"]), "Damaged records"),
        (grouped(&residency["fetched"]), "Links read from disk"),
        (grouped(&status["expiry"]["expired"]), "Expired links removed"),
        (grouped(&status["expiry"]["waiting"]), "Expired links to remove"),
        (grouped(&status["visits"]["dropped"]), "Visits not counted"),
        (grouped(&status["accessLog"]["dropped"]), "Access log lines dropped"),
    ];
    page.push_str("<h2>Storage</h2>");
    render_cards(page, &cards);
}

/// Refused connections and requests, by reason.
fn render_limits(page: &mut String, status: &Value) {
    let sum = |name: &str| readable::grouped(sum_of(&status["cores"], name));
    let of_apps = |name: &str| readable::grouped(sum_of(&status["apps"], name));
    let cards = [
        (sum("shed"), "Connections refused"),
        (sum("evicted"), "Idle connections evicted"),
        (sum("untrusted"), "Connections from untrusted proxies"),
        (sum("throttled"), "Requests rate-limited"),
        (sum("badRequests"), "Requests rejected"),
        (sum("timedOut"), "Rejected: timed out"),
        (sum("tooLong"), "Rejected: too large"),
        (sum("handshakeFailures"), "TLS handshakes failed"),
        (of_apps("limited"), "Creates rate-limited"),
        (of_apps("forbidden"), "Requests denied"),
    ];
    page.push_str("<h2>Refused traffic</h2>");
    render_cards(page, &cards);
}

fn render_certificates(page: &mut String, status: &Value) {
    let Some(certificates) = status["tls"]["certificates"].as_array() else { return };
    page.push_str("<h2>Certificates</h2><div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Certificates\"><table><thead><tr><th>Names</th><th>Expires</th><th>File</th></tr></thead><tbody>");
    for certificate in certificates {
        let names = certificate["names"].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(Value::as_str).collect();
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            pages::escaped(&names.join(", ")),
            instant(&certificate["validUntil"]),
            escaped(&certificate["file"])
        );
    }
    page.push_str("</tbody></table></div>");
}

fn render_fleet(page: &mut String, status: &Value) {
    let (fleet, redis) = (&status["fleet"], &status["redis"]);
    let connected = redis["connected"] == true;
    let cards = [
        (if connected { "Connected" } else { "Disconnected" }.to_owned(), "Redis"),
        (grouped(&fleet["outbox"]), "Unsynced changes"),
        (grouped(&fleet["followed"]), "Changes received"),
        (grouped(&fleet["comparing"]), "Partitions to compare"),
        (grouped(&fleet["lookUpHits"]), "Found via Redis"),
        (grouped(&fleet["conflicts"]), "Conflicts"),
    ];
    page.push_str("<h2>Fleet</h2><div class=\"cards\">");
    for (number, label) in cards {
        let _ = write!(page, "<div class=\"card\"><b>{number}</b><span>{label}</span></div>");
    }
    page.push_str(
        "</div><div class=\"wide below\" tabindex=\"0\" role=\"region\" aria-label=\"Nodes of the fleet\"><table><thead><tr><th>Node</th><th>Version</th><th>State</th><th>Unsynced</th>\
         <th>Lag (ms)</th><th>Last heartbeat (s ago)</th></tr></thead><tbody>",
    );
    for node in fleet["nodes"].as_array().into_iter().flatten() {
        let about = &node["about"];
        let state = match (about["draining"].as_bool(), about["ready"].as_bool()) {
            (Some(true), _) => "Draining",
            (_, Some(true)) => "Ready",
            _ => "Starting",
        };
        let me = if node["node"] == fleet["node"] { " (this node)" } else { "" };
        let _ = write!(
            page,
            "<tr><td>{}{me}</td><td>{}</td><td>{state}</td><td>{}</td><td>{}</td><td>{:.1}</td></tr>",
            escaped(&node["node"]),
            escaped(&about["version"]),
            grouped(&about["outbox"]),
            grouped(&about["lagMillis"]),
            node["silentMillis"].as_f64().unwrap_or(0.0) / 1_000.0,
        );
    }
    page.push_str("</tbody></table></div>");
}

/// Alarms: active ones above everything else, resolved ones at the end.
fn render_alarms(page: &mut String, status: &Value, on: bool) {
    let alarms = status["alarms"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut shown = alarms.iter().rev().filter(|alarm| alarm["cleared"].is_null() == on).peekable();
    match (shown.peek(), on) {
        (None, true) => return,
        (None, false) => {
            let text = if alarms.is_empty() { "No alarms since start." } else { "No past alarms since start." };
            let _ = write!(page, "<h2>Past alarms</h2><p class=\"soft\">{text}</p>");
            return;
        }
        (Some(_), true) => page.push_str("<section class=\"alarms\"><h2>Alarms</h2><ul>"),
        (Some(_), false) => page.push_str("<section><h2>Past alarms</h2><ul>"),
    }
    for alarm in shown {
        let _ = write!(
            page,
            "<li><strong class=\"{}\">{}</strong> <span class=\"soft\">since {}{}</span><br>{}</li>",
            if on { "bad" } else { "soft" },
            escaped(&alarm["name"]),
            instant(&alarm["since"]),
            if on { String::new() } else { format!(", resolved {}", instant(&alarm["cleared"])) },
            escaped(&alarm["text"]),
        );
    }
    page.push_str("</ul></section>");
}

/// A text of the status, fit for HTML.
fn escaped(value: &Value) -> String {
    pages::escaped(value.as_str().unwrap_or_default())
}

/// An instant of the status as on other pages: `23 Nov 2026, 14:05`, in UTC.
fn instant(value: &Value) -> String {
    let seconds = value.as_str().and_then(|text| dates::parse(text).ok());
    seconds.map_or_else(|| escaped(value), |ms| dates::format_as(ms / 1_000, "%-d %b %Y, %H:%M"))
}

/// A number with its thousands apart.
fn grouped(value: &Value) -> String {
    readable::grouped(value.as_u64().unwrap_or(0))
}

/// A number that may be too long for its place: three digits and a word.
fn rounded(value: &Value) -> String {
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
        assert_eq!(rounded(&json!(3_521_614_586_208_u64)), "3.52 trillion");
        assert_eq!(escaped(&json!("<b>\"&")), "&lt;b&gt;&quot;&amp;");
    }
}
