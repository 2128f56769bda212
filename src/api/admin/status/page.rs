//! The status as a page for people, renewed each second by a script of a few lines, and without it by the browser. Here
//! its numbers become texts; `src/pages/templates/status.html` draws them.

use std::time::Duration;

use hyper::{StatusCode, header};
use serde::Serialize;
use serde_json::Value;

use super::cores::{CoreTable, cores, mebibytes, slowest};
use super::fleet::SILENT_TIME;
use super::plot::{Sparkline, sparkline};
use super::values::{grouped, instant, items, rounded, sum_of, tenths, text};
use crate::api::response::{ApiResponse, answer, with};
use crate::pages::Pages;
use carom_telemetry::readable;

/// Style sheet of the status page.
pub(in crate::api) const STYLE: &str =
    concat!(include_str!("../../console/web/tokens.css"), include_str!("status.css"));

/// Script that refreshes the status page.
pub(in crate::api) const SCRIPT: &str = include_str!("status.js");

/// Content security policy of the status page and of the runbook: they load files of this listener only, and nothing inline.
pub(in crate::api) const POLICY: &str = "default-src 'none'; style-src 'self'; font-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the status as a page that refreshes itself.
pub(in crate::api) fn page(pages: &Pages, status: &Value) -> ApiResponse {
    let answer = answer(StatusCode::OK, "text/html; charset=utf-8", pages.status(&StatusPage::of(status)));
    with(with(answer, header::CONTENT_SECURITY_POLICY, POLICY), header::REFERRER_POLICY, "no-referrer")
}

/// The contents of the page.
#[derive(Debug, Serialize)]
struct StatusPage<'a> {
    state: &'static str,
    /// The kind of the verdict, for its colour, and its text.
    verdict: [&'static str; 2],
    version: &'a str,
    uptime: String,
    /// Active ones.
    alarms: Vec<AlarmRow<'a>>,
    /// Resolved ones.
    past_alarms: Vec<AlarmRow<'a>>,
    now: Vec<Card>,
    plots: Vec<CorePlot>,
    since_start: Vec<Card>,
    /// Empty on a node with one core, whose numbers are those of the node.
    cores: Option<CoreTable>,
    storage: FoldedCards,
    /// Empty without a fleet.
    fleet: Option<Fleet>,
    limits: FoldedCards,
    /// Empty without TLS.
    certificates: Option<Vec<[String; 3]>>,
}

/// A number with what it is.
#[derive(Debug, Serialize)]
struct Card {
    number: String,
    label: &'static str,
    note: Option<String>,
}

/// Numbers of one kind. Those that are zero are left out.
#[derive(Debug, Serialize)]
struct FoldedCards {
    cards: Vec<Card>,
    /// True if no number is above zero.
    is_empty: bool,
}

/// The last two minutes of a core.
#[derive(Debug, Serialize)]
struct CorePlot {
    core: usize,
    now: String,
    /// The largest number that the plot shows.
    at_most: String,
    /// The plot in words.
    label: String,
    line: Sparkline,
}

/// The fleet, and its nodes by row.
#[derive(Debug, Serialize)]
struct Fleet {
    cards: Vec<Card>,
    /// The nodes whose counts are missing.
    lacks: Vec<String>,
    nodes: Vec<[String; 7]>,
}

/// An alarm.
#[derive(Debug, Serialize)]
struct AlarmRow<'a> {
    name: &'a str,
    since: String,
    resolved: Option<String>,
    /// Sentence about what has happened.
    message: &'a str,
    /// Sentence about the cause, if the alarm names one.
    cause: Option<&'a str>,
    /// Sentence about what to do, if the alarm says it.
    remedy: Option<&'a str>,
}

impl StatusPage<'_> {
    fn of(status: &Value) -> StatusPage<'_> {
        StatusPage {
            state: state(status),
            verdict: verdict(status),
            version: text(&status["version"]),
            uptime: readable::duration(status["uptimeSeconds"].as_u64().unwrap_or(0)),
            alarms: alarms(status, true),
            past_alarms: alarms(status, false),
            now: now(status),
            plots: plots(status),
            since_start: since_start(status),
            cores: cores(status),
            storage: storage(status),
            fleet: status["fleet"].is_object().then(|| fleet(status)),
            limits: limits(status),
            certificates: status["tls"]["certificates"].as_array().map(|all| all.iter().map(certificate).collect()),
        }
    }
}

/// The state of a node, which it says of itself or to its fleet.
fn state(of: &Value) -> &'static str {
    match (of["draining"].as_bool(), of["ready"].as_bool()) {
        (Some(true), _) => "Draining",
        (_, Some(true)) => "Ready",
        _ => "Starting",
    }
}

/// The verdict on a node in one sentence, as on the overview of the console, after its kind.
fn verdict(status: &Value) -> [&'static str; 2] {
    let active = items(&status["alarms"]).filter(|alarm| alarm["cleared"].is_null()).count();
    if status["draining"] == true {
        ["warn", "Draining: the node finishes its requests, then stops."]
    } else if status["ready"] != true {
        ["warn", "Starting: the node loads its links and does not serve redirects yet."]
    } else if active == 1 {
        ["bad", "The alarm below needs attention."]
    } else if active > 1 {
        ["bad", "The alarms below need attention."]
    } else if status["store"]["writable"] == false {
        ["bad", "Redirects are served, but links cannot be created or changed."]
    } else {
        ["good", "All systems working. Redirects are served, and links can be created and changed."]
    }
}

/// The state of a node of the fleet, as the node `me` knows it. Nodes hear of each other through Redis.
fn state_in_fleet(node: &Value, me: &Value, is_connected: bool) -> &'static str {
    let silent = Duration::from_millis(node["silentMillis"].as_u64().unwrap_or(0));
    if !is_connected && node["node"] != *me {
        "Unknown"
    } else if node["about"]["stopped"] == true {
        "Stopped"
    } else if is_connected && silent >= SILENT_TIME {
        "Silent"
    } else {
        state(&node["about"])
    }
}

/// Numbers, each with what it is.
fn cards(cards: impl IntoIterator<Item = (String, &'static str)>) -> Vec<Card> {
    cards.into_iter().map(|(number, label)| Card { number, label, note: None }).collect()
}

/// Returns numbers without those that are zero, since most numbers of errors are.
fn folded<const COUNT: usize>(all: [(String, &'static str); COUNT]) -> FoldedCards {
    let others: Vec<_> = all.into_iter().filter(|(number, _)| number != "0").collect();
    FoldedCards { is_empty: others.is_empty(), cards: cards(others) }
}

/// Renders the current load.
fn now(status: &Value) -> Vec<Card> {
    let last_of = |numbers: &Value| numbers.as_array().and_then(|all| all.last()?.as_u64()).unwrap_or(0);
    let of_cores = |name: &str| items(&status["pulse"][name]).map(last_of).sum::<u64>();
    let is_hot = status["residency"]["mode"] == "hot";
    let mut all = cards([
        (readable::grouped(of_cores("redirects")), "Redirects/s"),
        (readable::grouped(of_cores("misses")), "Not found/s"),
        (readable::grouped(last_of(&status["pulse"]["changes"])), "Link writes/s"),
        (readable::grouped(sum_of(&status["cores"], "connections")), "Connections"),
        (slowest(status, "p99"), "p99 latency"),
        (grouped(&status["links"]), if is_hot { "Links in memory" } else { "Links" }),
    ]);
    let of_slowest = if items(&status["cores"]).count() > 1 { "since start, slowest core" } else { "since start" };
    if let Some(p99) = all.iter_mut().find(|card| card.label == "p99 latency" && card.number != "–") {
        p99.note = Some(of_slowest.to_owned());
    }
    all.push(Card {
        number: rounded(&status["issuer"]["remaining"]),
        label: "Slugs left",
        note: status["issuer"]["lasts"].as_str().map(|lasts| format!("last for {lasts} at the current rate")),
    });
    all
}

/// Renders the last two minutes of each core.
fn plots(status: &Value) -> Vec<CorePlot> {
    let series = |core: usize| -> Vec<u64> {
        items(&status["pulse"]["redirects"][core]).map(|number| number.as_u64().unwrap_or(0)).collect()
    };
    let all: Vec<Vec<u64>> = (0..items(&status["cores"]).count()).map(series).collect();
    // All plots have one scale, so that a core that differs stands out.
    let most = all.iter().flatten().copied().max().unwrap_or(0);
    let plot = |(core, redirects): (usize, &Vec<u64>)| {
        let now = readable::grouped(redirects.last().copied().unwrap_or(0));
        let at_most = readable::grouped(redirects.iter().copied().max().unwrap_or(0));
        let label = format!("Core {core}: {now} redirects/s now, maximum {at_most}");
        CorePlot { core, now, at_most, label, line: sparkline(redirects, most) }
    };
    all.iter().enumerate().map(plot).collect()
}

/// Renders the numbers since the start, and what the cores hold.
fn since_start(status: &Value) -> Vec<Card> {
    let sum = |name: &str| readable::grouped(sum_of(&status["cores"], name));
    let ready: u64 = items(&status["cores"]).map(|core| core["codes"]["remaining"].as_u64().unwrap_or(0)).sum();
    cards([
        (sum("redirects"), "Redirects"),
        (sum("misses"), "Not found"),
        (slowest(status, "p50"), "p50 latency"),
        (slowest(status, "max"), "Longest latency"),
        (format!("{} MiB", mebibytes(sum_of(&status["cores"], "mapBytes"))), "Memory of links"),
        (readable::grouped(ready), "Slugs ready"),
    ])
}

fn storage(status: &Value) -> FoldedCards {
    let store = &status["store"];
    let has_commits = store["commits"].as_u64().unwrap_or(0) > 0;
    let micros = |name: &str| match store[name].as_f64().filter(|_| has_commits) {
        Some(micros) => readable::rounded_latency(micros),
        None => "–".to_owned(),
    };
    let residency = &status["residency"];
    folded([
        (if store["writable"] == true { "Accepting" } else { "Refusing" }.to_owned(), "Writes"),
        (micros("commitMicrosMean"), "Mean commit"),
        (micros("syncMicrosMean"), "Mean sync"),
        (grouped(&store["commitsSlow"]), "Commits over 100 ms"),
        (grouped(&store["queue"]), "Writes in this commit"),
        (grouped(&store["update"]), "Link writes"),
        (grouped(&store["damaged"]), "Damaged records"),
        (grouped(&store["newer"]), "Records of a newer version"),
        (grouped(&residency["fetched"]), "Links read from disk"),
        (grouped(&status["expiry"]["expired"]), "Expired links removed"),
        (grouped(&status["expiry"]["waiting"]), "Expired links to remove"),
        (grouped(&status["visits"]["dropped"]), "Visits not counted"),
        (grouped(&status["accessLog"]["dropped"]), "Access log lines dropped"),
    ])
}

/// Renders refused connections and requests, by reason.
fn limits(status: &Value) -> FoldedCards {
    let sum = |name: &str| readable::grouped(sum_of(&status["cores"], name));
    let of_apps = |name: &str| readable::grouped(sum_of(&status["apps"], name));
    folded([
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
    ])
}

/// The row of a certificate.
fn certificate(certificate: &Value) -> [String; 3] {
    let names: Vec<&str> = items(&certificate["names"]).filter_map(Value::as_str).collect();
    [names.join(", "), instant(&certificate["validUntil"]), text(&certificate["file"]).to_owned()]
}

fn fleet(status: &Value) -> Fleet {
    let (fleet, redis) = (&status["fleet"], &status["redis"]);
    let connected = redis["connected"] == true;
    let mut cards = cards([
        (if connected { "Connected" } else { "Disconnected" }.to_owned(), "Redis"),
        (grouped(&fleet["totals"]["redirectsPerSecond"]), "Redirects/s of all nodes"),
        (grouped(&fleet["outbox"]), "Unsynced changes"),
        (grouped(&fleet["followed"]), "Changes received"),
        (grouped(&fleet["comparing"]), "Partitions to compare"),
        (grouped(&fleet["lookUpHits"]), "Found via Redis"),
        (grouped(&fleet["conflicts"]), "Conflicts"),
    ]);
    cards.extend(other_site(&fleet["site"]));
    let node = |node: &Value| {
        let about = &node["about"];
        let me = if node["node"] == fleet["node"] { " (this node)" } else { "" };
        [
            format!("{}{me}", text(&node["node"])),
            text(&about["version"]).to_owned(),
            about["formats"]["writes"].as_u64().map_or_else(|| "–".to_owned(), |format| format.to_string()),
            state_in_fleet(node, &fleet["node"], connected).to_owned(),
            grouped(&about["outbox"]),
            grouped(&about["lagMillis"]),
            tenths(node["silentMillis"].as_f64().unwrap_or(0.0) / 1_000.0),
        ]
    };
    let lacks =
        |of: &Value| format!("Counts of {} are missing since {} UTC.", text(&of["node"]), instant(&of["since"]));
    Fleet {
        cards,
        lacks: items(&fleet["totals"]["lacks"]).map(lacks).collect(),
        nodes: items(&fleet["nodes"]).map(node).collect(),
    }
}

/// The contact to the other site; `None` for a fleet of one site.
fn other_site(site: &Value) -> Option<Card> {
    let other = site["other"].as_str()?;
    let contact = match (site["mayLack"] == true, site["current"] == true) {
        (true, _) => "May lack links",
        (false, true) => "Current",
        (false, false) => "No contact",
    };
    Some(Card { number: contact.to_owned(), label: "Other site", note: Some(other.to_owned()) })
}

/// The alarms that are active, or those that are resolved, the newest first.
fn alarms(status: &Value, are_active: bool) -> Vec<AlarmRow<'_>> {
    let all = status["alarms"].as_array().map(Vec::as_slice).unwrap_or_default();
    let wanted = all.iter().rev().filter(|alarm| alarm["cleared"].is_null() == are_active);
    wanted.map(alarm).collect()
}

fn alarm(alarm: &Value) -> AlarmRow<'_> {
    AlarmRow {
        name: text(&alarm["name"]),
        since: instant(&alarm["since"]),
        resolved: (!alarm["cleared"].is_null()).then(|| instant(&alarm["cleared"])),
        message: text(&alarm["message"]),
        cause: alarm["cause"].as_str(),
        remedy: alarm["remedy"].as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn node_with_one_core_has_no_table_of_cores() {
        let core = |number: u64| json!({"core": number, "mapBytes": 3 << 20, "latencyMicros": {"p50": 8.96, "p99": 89.6, "max": 15_466.5}});
        let page = |cores: Value| Pages::plain().status(&StatusPage::of(&json!({"ready": true, "cores": cores})));
        let single = page(json!([core(0)]));
        for part in [
            "<h2>Redirects/s, last two",
            "<b>90 µs<small>since start</small></b>",
            "<b>15 ms</b><span>Longest",
            "<b>3.0 MiB</b><span>Memory",
        ] {
            assert!(single.contains(part), "{part} is missing in {single}");
        }
        assert!(!single.contains("<table>"), "{single}");
        let both = page(json!([core(0), core(1)]));
        assert!(both.contains("<details><summary>Numbers of each core</summary>"), "{both}");
    }

    #[test]
    fn every_part_is_drawn_and_no_text_is_markup() {
        let evil = "\"><script>alert(1)</script>";
        let alarm = |cleared: Value| json!({"name": evil, "message": evil, "cause": evil, "remedy": evil, "since": evil, "cleared": cleared});
        let about = json!({"ready": true, "version": evil, "outbox": 1_234, "lagMillis": 5});
        let status = json!({
            "version": evil, "ready": true, "uptimeSeconds": 61, "links": 1_234_567,
            "alarms": [alarm(Value::Null), alarm(json!("2026-11-23T14:05:00+00:00"))],
            "issuer": {"remaining": 3_521_614_586_208_u64, "lasts": "1 d"},
            "pulse": {"redirects": [[0, 5, 10], []], "misses": [[1], [2]], "changes": [7]},
            "cores": [{"core": 0, "cpu": 3, "links": 5, "latencyMicros": {"p99": 12.34}}, {"core": 1, "cpu": 4}],
            "tls": {"certificates": [{"names": [evil, "b"], "validUntil": "2027-01-02T03:04:05+00:00", "file": evil}]},
            "fleet": {
                "node": evil, "nodes": [{"node": evil, "about": about, "silentMillis": 1_500}],
                "totals": {"redirectsPerSecond": 7_654, "lacks": [{"node": evil, "since": "2026-11-23T14:05:00+00:00"}]},
            },
            "redis": {"connected": true},
        });
        let page = Pages::plain().status(&StatusPage::of(&status));
        assert_eq!(page.matches("<script").count(), 1, "{page}");
        for part in [
            "<strong class=\"soft\">Ready</strong>",
            "up 1 min 1 s",
            "resolved 23 Nov 2026, 14:05 UTC</p>",
            "<small>since start, slowest core</small></b><span>p99 latency</span>",
            "<b>3</b><span>Not found&#x2f;s</span>",
            "<b>3.52 trillion<small>last for 1 d at the current rate</small></b>",
            "<path class=\"line\" d=\"M117 40.0L118 20.5L119 1.0\"/>",
            "d=\"M117 40.0L118 20.5L119 1.0L119 40L117 40Z\"/>",
            r#"<td data-label="Core">0</td><td data-label="CPU">3</td><td data-label="Links">5</td>"#,
            "<span class=\"most\">Max 10</span><b>10</b>",
            "(this node)</td>",
            r#">Ready</td><td data-label="Unsynced">1,234</td><td data-label="Lag (ms)">5</td>"#,
            "<b>7,654</b><span>Redirects&#x2f;s of all nodes</span>",
            " are missing since 23 Nov 2026, 14:05 UTC.</p>",
            r#", b</td><td data-label="Expires">2 Jan 2027, 03:04</td>"#,
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
    }

    #[test]
    fn zeros_are_left_out() {
        let store = json!({"writable": true, "damaged": 2, "newer": 3});
        let page = Pages::plain().status(&StatusPage::of(&json!({"ready": true, "store": store})));
        for part in [
            "<p class=\"well good\">All systems working",
            "<b>Accepting</b><span>Writes</span>",
            "<b>2</b><span>Damaged records</span>",
            "<b>3</b><span>Records of a newer version</span>",
            "<p class=\"soft zeros\">Nothing refused since start.</p>",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        assert!(!page.contains("<span>Commits over 100 ms</span>"), "{page}");
    }

    #[test]
    fn verdict_names_the_first_problem() {
        let alarm = json!([{"name": "disk_full", "cleared": null}]);
        let of = |status: Value| verdict(&status)[0];
        assert_eq!(of(json!({"ready": true, "alarms": []})), "good");
        assert_eq!(of(json!({"ready": true, "alarms": alarm})), "bad");
        assert_eq!(of(json!({"ready": true, "store": {"writable": false}})), "bad");
        assert_eq!(of(json!({"ready": true, "draining": true, "alarms": alarm})), "warn");
        assert_eq!(of(json!({"ready": false})), "warn");
        let of_two = verdict(&json!({"ready": true, "alarms": [{"cleared": null}, {"cleared": null}]}))[1];
        assert!(of_two.starts_with("The alarms below need attention"), "{of_two}");
    }

    #[test]
    fn other_site_has_a_card() {
        let number = |site: Value| other_site(&site).map(|card| (card.number, card.note.unwrap()));
        let shown = |number: &str| Some((number.to_owned(), "lisbon".to_owned()));
        assert_eq!(number(json!({"other": "lisbon", "current": true, "mayLack": false})), shown("Current"));
        assert_eq!(number(json!({"other": "lisbon", "current": false, "mayLack": false})), shown("No contact"));
        assert_eq!(number(json!({"other": "lisbon", "current": false, "mayLack": true})), shown("May lack links"));
        assert_eq!(number(Value::Null), None);
    }

    #[test]
    fn killed_node_is_silent_and_not_ready() {
        let state = |node: &str, silent: u64, stopped: bool, is_connected: bool| {
            let about = json!({"ready": true, "stopped": stopped});
            let node = json!({"node": node, "silentMillis": silent, "about": about});
            state_in_fleet(&node, &json!("n0"), is_connected)
        };
        assert_eq!((state("n1", 4_999, false, true), state("n1", 5_000, false, true)), ("Ready", "Silent"));
        assert_eq!(state("n1", 9_000, true, true), "Stopped");
        assert_eq!((state("n1", 9_000, false, false), state("n0", 9_000, false, false)), ("Unknown", "Ready"));
    }

    #[test]
    fn what_is_not_there_is_not_drawn() {
        let page = Pages::plain().status(&StatusPage::of(&json!({"draining": true, "ready": true})));
        assert!(page.contains("<strong class=\"bad\">Draining</strong>"));
        assert!(page.contains("No alarms since start."));
        for part in ["Fleet", "Certificates", "<h2>Alarms</h2>", "<path", "<small>"] {
            assert!(!page.contains(part), "{part} stands in {page}");
        }
    }
}
