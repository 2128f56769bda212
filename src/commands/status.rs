//! `carom status` and `carom health`: the state of a node, read from its admin listener.

mod bypass;
mod fleet;
pub(super) mod text;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use self::text::{alarm_texts, cores, count, grouped, number, plain, rate, span, write_table};
use crate::commands::cli::{AdminPlace, HealthArgs, NodeArgs, StatusArgs};
use crate::commands::output::print;
use crate::commands::terminal::width;
use crate::services::host_lists::http_text::HttpText;
use carom_settings::exit::{Exit, Reason};
use carom_settings::{Flags, Settings, environment};
use carom_telemetry::readable;

/// Interval between two requests.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// Timeout of a request.
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest accepted status, in bytes.
const LEN_MAX: u64 = 16 << 20;

/// Number of alarms shown, the newest ones.
const ALARMS: usize = 8;

/// The status of a node, and the instant at which it arrived.
pub(super) struct StatusSample {
    pub(super) status: Value,
    pub(super) at: Instant,
}

/// The admin listener of a node, and the API key for it.
pub(super) struct AdminEndpoint {
    url: String,
    http: HttpText,
}

/// Prints the status of a node once.
///
/// # Errors
/// [`Reason::Incomplete`] if the node does not answer, [`Reason::Usage`] for wrong settings or key files.
pub fn status(arguments: &StatusArgs) -> Result<(), Exit> {
    let mut node = AdminEndpoint::new(&arguments.node, "")?;
    if arguments.json {
        print(&format!("{:#}\n", node.ask()?.status));
        return Ok(());
    }
    // Rates need two samples.
    let before = node.ask()?;
    std::thread::sleep(EVERY.saturating_sub(before.at.elapsed()));
    let now = node.ask()?;
    print(&(render(&before.status, &now.status, now.at - before.at, &node.url, width()) + "\n"));
    Ok(())
}

/// Asks a node for /healthz or /readyz, which need no API key, and prints what it answered.
///
/// # Errors
/// [`Reason::Incomplete`] if the node does not answer 200, [`Reason::Usage`] for wrong settings.
pub fn health(arguments: &HealthArgs) -> Result<(), Exit> {
    let path = if arguments.ready { "readyz" } else { "healthz" };
    let url = format!("{}/{path}", admin_url(&arguments.place)?);
    match HttpText::of_node(&url, HTTP_TIMEOUT, LEN_MAX, None).read() {
        Ok(text) => print(&format!("{}\n", plain(String::from_utf8_lossy(&text).trim()))),
        Err(why) => {
            let remedy = if arguments.ready {
                "if the answer is 503, the node starts or drains; otherwise check that it runs, and that --admin is its address"
            } else {
                "check that the node runs, and that --admin is its address"
            };
            return Err(Exit::new(Reason::Incomplete, format!("{url}: {why}")).with_remedy(remedy));
        }
    }
    Ok(())
}

impl AdminEndpoint {
    /// Creates a client for the status. `query` is empty, or begins with a question mark.
    ///
    /// # Errors
    /// [`Reason::Usage`] for wrong settings or key files.
    pub(super) fn new(arguments: &NodeArgs, query: &str) -> Result<AdminEndpoint, Exit> {
        let url = format!("{}/status", admin_url(&arguments.place)?);
        let http = HttpText::of_node(&format!("{url}{query}"), HTTP_TIMEOUT, LEN_MAX, key_of(arguments)?);
        Ok(AdminEndpoint { url, http })
    }

    /// Returns the address of the status.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Asks for the status. Blocks for up to [`HTTP_TIMEOUT`].
    ///
    /// # Errors
    /// [`Reason::Incomplete`] if the node does not answer with a status.
    pub(super) fn ask(&mut self) -> Result<StatusSample, Exit> {
        let text = self.http.read().map_err(|why| no_answer(&self.url, &why))?;
        let status = serde_json::from_slice(&text).map_err(|error| no_answer(&self.url, &error))?;
        Ok(StatusSample { status, at: Instant::now() })
    }
}

/// Returns the URL of the admin listener, without a trailing slash.
///
/// # Errors
/// [`Reason::Usage`] for wrong settings.
pub(super) fn admin_url(place: &AdminPlace) -> Result<String, Exit> {
    let address = match &place.admin {
        Some(address) => address.clone(),
        None => {
            let (settings, _) = Settings::load(place.config.as_deref(), environment(), Flags::default())?;
            let mut address = settings.admin_listen;
            if address.ip().is_unspecified() {
                let own = if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
                address.set_ip(own);
            }
            address.to_string()
        }
    };
    let address = if address.contains("://") { address } else { format!("http://{address}") };
    Ok(address.trim_end_matches('/').to_owned())
}

/// Reads the API key from `--key-file`.
///
/// # Errors
/// [`Reason::Usage`] for a file without a key.
pub(super) fn key_of(arguments: &NodeArgs) -> Result<Option<String>, Exit> {
    let Some(file) = &arguments.key_file else { return Ok(None) };
    let wrong = |what: &str| Exit::new(Reason::Usage, format!("{}: {what}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
    match text.trim() {
        key if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(key.to_owned())),
        _ => Err(wrong("the file does not contain an API key; create one with `carom app add NAME --role admin`")),
    }
}

fn no_answer(url: &str, why: &dyn std::fmt::Display) -> Exit {
    Exit::new(Reason::Incomplete, format!("{url}: {why}")).with_remedy(
        "check that the node runs, and that --admin is its address; if it answers 401 or 403, pass an admin key with --key-file",
    )
}

/// Renders a page for a terminal of that width. Rates are averages over `time`, between the two samples.
fn render(before: &Value, now: &Value, time: Duration, url: &str, width: Option<usize>) -> String {
    let mut page = String::new();
    let state = match (now["draining"].as_bool(), now["ready"].as_bool()) {
        (Some(true), _) => "draining",
        (_, Some(true)) => "ready",
        _ => "starting",
    };
    let rate = |pointer: &str| rate(number(before, pointer), number(now, pointer), time);
    let sum = |status: &Value, name: &str| cores(status).iter().map(|core| number(core, name)).sum::<f64>();
    let sum_rate = |name: &str| self::rate(sum(before, name), sum(now, name), time);
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "carom {}   {state}   up {}   {url}\n",
        now["version"].as_str().unwrap_or("?"),
        span(number(now, "/uptimeSeconds"))
    );
    let _ = writeln!(
        page,
        "links {}   redirects {}/s   not found {}/s   link writes {}/s   connections {}\n",
        grouped(number(now, "/links")),
        grouped(sum_rate("/redirects")),
        grouped(sum_rate("/misses")),
        grouped(rate("/store/update")),
        grouped(sum(now, "/connections")),
    );
    render_cores(&mut page, before, now, time, width);
    bypass::render_cores(&mut page, before, now, time, width);
    render_node(&mut page, now, width);
    render_alarms(&mut page, now);
    page
}

fn render_cores(page: &mut String, before: &Value, now: &Value, time: Duration, width: Option<usize>) {
    let titles = [
        "core",
        "CPU",
        "links",
        "memory (MiB)",
        "connections",
        "redirects/s",
        "not found/s",
        "lookups sent/s",
        "codes ready",
        "p50 (µs)",
        "p99 (µs)",
        "max (µs)",
    ];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    let earlier = cores(before);
    for (index, core) in cores(now).iter().enumerate() {
        let rate = |pointer: &str| {
            let was = earlier.get(index).map_or(0.0, |core| number(core, pointer));
            grouped(rate(was, number(core, pointer), time))
        };
        let latency = |pointer: &str| match core.pointer(pointer).and_then(Value::as_f64) {
            Some(micros) => format!("{micros:.1}"),
            None => "–".to_owned(),
        };
        rows.push(
            [
                grouped(number(core, "/core")),
                grouped(number(core, "/cpu")),
                grouped(number(core, "/links")),
                format!("{:.1}", number(core, "/mapBytes") / f64::from(1 << 20)),
                grouped(number(core, "/connections")),
                rate("/redirects"),
                rate("/misses"),
                rate("/forwardedOut"),
                grouped(number(core, "/codes/remaining")),
                latency("/latencyMicros/p50"),
                latency("/latencyMicros/p99"),
                latency("/latencyMicros/max"),
            ]
            .to_vec(),
        );
    }
    write_table(page, &rows, width);
}

fn render_node(page: &mut String, now: &Value, width: Option<usize>) {
    let writable = if now["store"]["writable"] == true { "accepting writes" } else { "REFUSING WRITES" };
    let _ = writeln!(
        page,
        "store   {writable}, {}, mean {} (sync {}), {} queued",
        count(number(now, "/store/commits"), "commit"),
        readable::latency(number(now, "/store/commitMicrosMean")),
        readable::latency(number(now, "/store/syncMicrosMean")),
        count(number(now, "/store/queue"), "write"),
    );
    if now["dataDir"].is_object() {
        let gib = |pointer: &str| number(now, pointer) / f64::from(1 << 30);
        let _ = writeln!(
            page,
            "disk    {:.1} of {:.1} GiB free, last backup {}",
            gib("/dataDir/freeBytes"),
            gib("/dataDir/sizeBytes"),
            now["dataDir"]["lastBackup"].as_str().map_or("never".to_owned(), plain),
        );
    }
    let left = number(now, "/issuer/remaining");
    let lasts = match now["issuer"]["lasts"].as_str() {
        Some(lasts) => format!(", for {} at the current rate", plain(lasts)),
        None => String::new(),
    };
    let length = number(now, "/issuer/codeLength");
    let _ = writeln!(page, "codes   {} with {length} characters left{lasts}", grouped(left));
    fleet::render(page, now, width);
    bypass::render_node(page, now);
    let origin = if now["destinationRules"]["saved"].is_string() { "saved" } else { "from the settings" };
    for (name, list) in [("allow", "allowList"), ("block", "blockList")] {
        if now[list].is_object() {
            let (fixed, dynamic) = (number(&now[list], "/static"), number(&now[list], "/dynamic"));
            let _ = writeln!(page, "{name}   {} {origin}, {} from the source", count(fixed, "host"), grouped(dynamic));
        }
    }
}

fn render_alarms(page: &mut String, now: &Value) {
    let alarms = now["alarms"].as_array().map(Vec::as_slice).unwrap_or_default();
    let on = alarms.iter().filter(|alarm| alarm["cleared"].is_null()).count();
    let _ = writeln!(page, "alarms  {}", if on == 0 { "none".to_owned() } else { format!("{on} ACTIVE") });
    for alarm in alarms.iter().rev().take(ALARMS) {
        let text = |name: &str| plain(alarm[name].as_str().unwrap_or_default());
        let until = if alarm["cleared"].is_null() { String::new() } else { format!(", resolved {}", text("cleared")) };
        let _ = writeln!(page, "  {} since {}{until}", text("name"), text("since"));
        for part in alarm_texts(alarm) {
            let _ = writeln!(page, "    {part}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn codes_last_as_long_as_the_node_says() {
        let page = |lasts: Value| {
            let now = json!({"store": {"update": 90}, "issuer": {"remaining": 5, "codeLength": 7, "lasts": lasts}});
            let before = json!({"store": {"update": 10}});
            render(&before, &now, Duration::from_secs(1), "", None)
        };
        for (lasts, text) in [
            (json!(null), "characters left\n"),
            (json!("1 d"), "characters left, for 1 d at the current rate\n"),
            (json!("more than 100 years"), "characters left, for more than 100 years at the current rate\n"),
        ] {
            let page = page(lasts);
            assert!(page.contains(text), "{text}: {page}");
        }
    }

    #[test]
    fn a_page_has_rates_and_what_is_wrong() {
        let core = |redirects: u64| json!({"core": 0, "cpu": 2, "links": 1_500, "mapBytes": 3 << 20, "connections": 7, "redirects": redirects});
        let before = json!({"cores": [core(1_000)], "store": {"update": 10}});
        let now = json!({
            "version": "9.9.9", "ready": true, "uptimeSeconds": 61, "links": 1_500, "cores": [core(21_000)],
            "store": {"update": 30, "writable": false}, "issuer": {"remaining": 864_000, "codeLength": 7, "lasts": "1 d"},
            "dataDir": {"freeBytes": 3_u64 << 30, "sizeBytes": 8_u64 << 30, "lastBackup": "2026-01-01T03:05:00Z"},
            "alarms": [
                {"name": "old", "since": "2025-01-01T00:00:00Z", "cleared": null, "text": "of an older version"},
                {
                    "name": "store_failed", "since": "2026-01-01T00:00:00Z", "cleared": null, "text": "the whole",
                    "message": "The disk\u{1b}[31m is gone.", "cause": null, "remedy": "Check it.",
                },
            ],
        });
        let page = render(&before, &now, Duration::from_secs(2), "http://127.0.0.1:1/status", None);
        for part in [
            "carom 9.9.9   ready   up 1 min 1 s",
            "links 1,500   redirects 10,000/s",
            "link writes 10/s   connections 7",
            "REFUSING WRITES",
            "disk    3.0 of 8.0 GiB free, last backup 2026-01-01T03:05:00Z",
            "864,000 with 7 characters left, for 1 d at the current rate",
            "alarms  2 ACTIVE\n  store_failed since 2026-01-01T00:00:00Z\n    The disk[31m is gone.\n    Check it.\n",
            "  old since 2025-01-01T00:00:00Z\n    of an older version\n",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains('\u{1b}'));
        // A node that restarted, or that sends few fields, is rendered, too.
        assert!(render(&now, &json!({}), Duration::ZERO, "", None).contains("redirects 0/s"));
    }
}
