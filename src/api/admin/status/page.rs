//! The status page, rendered here. A short script refreshes it each second; without scripts the browser reloads it.

use std::fmt::Write;

use hyper::{StatusCode, header};
use serde_json::Value;

use super::plot::sparkline;
use crate::api::{Answer, answer, page as pages, with};
use carom_model::dates;
use carom_telemetry::readable;

/// Style sheet of the status page.
pub(in crate::api) const STYLE: &str = include_str!("status.css");

/// Script that refreshes the status page.
pub(in crate::api) const SCRIPT: &str = include_str!("status.js");

/// Content security policy of the status page: it loads files of this listener only, and nothing inline.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the status as a page that refreshes itself.
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

/// Returns the sum of a number over all cores, or over all apps.
fn sum_of(all: &Value, name: &str) -> u64 {
    all.as_array().into_iter().flatten().map(|one| one[name].as_u64().unwrap_or(0)).sum()
}

/// Renders a row of numbers, each with its label.
fn render_cards(page: &mut String, cards: &[(String, &str)]) {
    page.push_str("<div class=\"cards\">");
    for (number, label) in cards {
        let _ = write!(page, "<div class=\"card\"><b>{number}</b><span>{label}</span></div>");
    }
    page.push_str("</div>");
}

/// Renders the current load.
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
        (format!("{worst:.0} µs"), "p99 since start (slowest core)"),
        (grouped(&status["links"]), if is_hot { "Links in memory" } else { "Links" }),
        (lasting(status), "Slugs left"),
    ];
    render_cards(page, &cards);
}

/// Formats how many short codes are left, and for how long they last.
fn lasting(status: &Value) -> String {
    let left = rounded(&status["issuer"]["remaining"]);
    match status["issuer"]["lastsSeconds"].as_u64() {
        Some(seconds) => format!("{left}<small>run out in {} at this rate</small>", readable::duration(seconds)),
        None => left,
    }
}

/// Renders the last two minutes of each core.
fn render_pulse(page: &mut String, status: &Value) {
    let series = |name: &str, core: usize| -> Vec<u64> {
        let numbers = status["pulse"][name][core].as_array().into_iter().flatten();
        numbers.map(|number| number.as_u64().unwrap_or(0)).collect()
    };
    page.push_str("<h2>Redirects/s per core, last two minutes</h2><div class=\"pulses\">");
    let cores = status["cores"].as_array().map_or(0, Vec::len);
    let all: Vec<Vec<u64>> = (0..cores).map(|core| series("redirects", core)).collect();
    // All plots have one scale, so that a core that differs stands out.
    let most = all.iter().flatten().copied().max().unwrap_or(0);
    for (core, redirects) in all.iter().enumerate() {
        let now = redirects.last().copied().unwrap_or(0);
        let label = format!(
            "Core {core}: {} redirects/s now, {} at most",
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
        "<h2>Cores</h2><div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Cores\"><table><thead><tr><th>Core</th><th>CPU</th><th>Links</th><th>MiB</th><th>Connections</th>\
         <th>Redirects</th><th>Not found</th><th>Lookups sent</th><th>From copies</th><th>Lookups answered</th><th>Slugs ready</th><th>p50 µs</th><th>p99 µs</th><th>Max µs</th></tr></thead><tbody>",
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
    let micros = |name: &str| format!("{:.2} ms", store[name].as_f64().unwrap_or(0.0) / 1_000.0);
    let residency = &status["residency"];
    let cards = [
        (if store["writable"] == true { "Accepting" } else { "Refused" }.to_owned(), "Writes"),
        (micros("commitMicrosMean"), "Mean commit"),
        (micros("syncMicrosMean"), "Mean sync"),
        (grouped(&store["commitsSlow"]), "Commits over 100 ms"),
        (grouped(&store["queue"]), "Queued writes"),
        (grouped(&store["update"]), "Link writes"),
        (grouped(&store["damaged"]), "Damaged records"),
        (grouped(&residency["fetched"]), "Redirects from disk"),
        (grouped(&status["expiry"]["expired"]), "Expired links removed"),
        (grouped(&status["expiry"]["waiting"]), "Expired links waiting"),
        (grouped(&status["visits"]["dropped"]), "Visits not counted"),
        (grouped(&status["accessLog"]["dropped"]), "Access log lines dropped"),
    ];
    page.push_str("<h2>Storage</h2>");
    render_cards(page, &cards);
}

/// Renders refused connections and requests, by reason.
fn render_limits(page: &mut String, status: &Value) {
    let sum = |name: &str| readable::grouped(sum_of(&status["cores"], name));
    let of_apps = |name: &str| readable::grouped(sum_of(&status["apps"], name));
    let cards = [
        (sum("shed"), "Refused connections"),
        (sum("evicted"), "Idle connections evicted"),
        (sum("untrusted"), "Untrusted proxy connections"),
        (sum("throttled"), "Rate-limited requests"),
        (sum("badRequests"), "Malformed requests"),
        (sum("timedOut"), "Malformed: too slow"),
        (sum("tooLong"), "Malformed: too long"),
        (sum("handshakeFailures"), "Failed TLS handshakes"),
        (of_apps("limited"), "Rate-limited creates"),
        (of_apps("forbidden"), "Denied requests"),
    ];
    page.push_str("<h2>Limits</h2>");
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
         <th>Lag, ms</th><th>Last heard, s</th></tr></thead><tbody>",
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

/// Renders alarms: active ones at the top of the page, resolved ones at its end.
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

/// Returns a text of the status, escaped for HTML.
fn escaped(value: &Value) -> String {
    pages::escaped(value.as_str().unwrap_or_default())
}

/// Formats an instant of the status as other pages do: `23 Nov 2026, 14:05`, in UTC.
fn instant(value: &Value) -> String {
    let seconds = value.as_str().and_then(|text| dates::parse(text).ok());
    seconds.map_or_else(|| escaped(value), |ms| dates::format_as(ms / 1_000, "%-d %b %Y, %H:%M"))
}

/// Formats a number with separated thousands.
fn grouped(value: &Value) -> String {
    readable::grouped(value.as_u64().unwrap_or(0))
}

/// Formats a number that may be too long for its card: three digits and a word.
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
