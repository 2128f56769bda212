//! Notifications of Apollo: a long poll that wakes the thread of a list when its namespace has changed.
//!
//! Apollo responds to `/notifications/v2` at once if the namespace has a later notification ID than the request.
//! Otherwise it holds the request until the namespace changes, and responds 304 after a minute. The poll runs on a
//! thread of its own that no other thread waits for, so a poll under way does not delay a shutdown.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use carom_settings::apollo::names_of;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;

use super::apollo::Signer;
use super::http_text::LongPollClient;
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_telemetry::clock::unix_ms;

/// The path of the poll.
const PATH: &str = "/notifications/v2";

/// Parameters of the list's address that the poll sends, too. Apollo selects a release by them.
const KEPT_PARAMETERS: [&str; 2] = ["ip=", "dataCenter="];

/// Notification ID of a client that knows no notification. Apollo responds with the current ID at once.
const UNKNOWN_ID: i64 = -1;

/// Timeout of a poll, as in Apollo's own clients: the minute of the server and half a minute more.
const POLL_TIME_MAX: Duration = Duration::from_secs(90);

/// Timeout of the connection of a poll.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// Largest size of a response in bytes. A response for one namespace has some hundred bytes.
const ANSWER_LEN_MAX: u64 = 64 * 1024;

/// Shortest interval between the starts of two polls. It bounds the load if a server holds no request.
const POLL_EVERY_MIN: Duration = Duration::from_secs(1);

/// Shortest time for which a server holds a request before it responds 304.
const HOLD_MIN: Duration = Duration::from_millis(500);

/// Pause after the first failure. Each further failure in a row doubles it.
const RETRY_MIN: Duration = Duration::from_secs(2);

/// Longest pause after a failure.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Bytes that are escaped in the value of a parameter: all but the unreserved ones of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The state of a poll, which its thread shares with the thread of the list.
#[derive(Debug, Default)]
pub(super) struct PollState {
    /// Number of notifications so far.
    changes: AtomicU64,
    /// True if the server has held and answered a poll, and no poll has failed since.
    is_held: AtomicBool,
}

impl PollState {
    /// Returns the number of notifications so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// True if notifications report every change. A proxy that ends held requests early makes polls fail, so only a
    /// held poll shows that the way to the server is suitable.
    pub(super) fn is_reliable(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }
}

/// A long poll for the notifications of one namespace.
#[derive(Debug)]
pub struct NotificationPoll {
    client: LongPollClient,
    namespace: WatchedNamespace,
    signer: Option<Signer>,
    /// The notification ID of the last response.
    id: i64,
}

impl NotificationPoll {
    /// Returns a poll for the namespace at an address of Apollo; `None` if the address is not Apollo's.
    pub(super) fn new(url: &str, signer: Option<Signer>) -> Option<NotificationPoll> {
        let namespace = WatchedNamespace::of(url)?;
        let client = LongPollClient::new(CONNECT_TIME_MAX, POLL_TIME_MAX, ANSWER_LEN_MAX);
        Some(NotificationPoll { client, namespace, signer, id: UNKNOWN_ID })
    }

    /// Starts the thread of the poll for a list. It unparks `reader` after each notification, and when notifications
    /// are no longer reliable. The thread is detached: it ends with the process, or after the poll during which `stop`
    /// becomes true.
    ///
    /// # Errors
    /// If the operating system cannot start a thread.
    pub(super) fn start(
        mut self,
        list: &'static str,
        state: Arc<PollState>,
        reader: Thread,
        stop: Arc<AtomicBool>,
    ) -> io::Result<()> {
        let run = move || {
            let mut failures: u32 = 0;
            while !stop.load(Ordering::Acquire) {
                let start = Instant::now();
                let result = self.ask(unix_ms()).and_then(|answer| held(answer, start.elapsed()));
                failures = if result.is_ok() { 0 } else { failures.saturating_add(1) };
                if self.apply(result, list, &state) {
                    reader.unpark();
                }
                std::thread::sleep(pause_after(failures, start.elapsed()));
            }
        };
        threads::start(Priority::Long, format!("{}-poll", list.replace(' ', "-")), run).map(drop)
    }

    /// Sends one poll at that time, in milliseconds since 1970. Blocks the thread for up to 90 seconds.
    ///
    /// # Errors
    /// The reason for the failure.
    fn ask(&self, now_ms: u64) -> Result<PollAnswer, String> {
        let path = self.namespace.path(self.id);
        let headers: Vec<(&'static str, String)> =
            self.signer.iter().flat_map(|signer| signer.headers_for(&path, now_ms)).collect();
        let (status, body) = self.client.get(&format!("{}{path}", self.namespace.origin), &headers)?;
        self.namespace.answer(self.id, status, &body)
    }

    /// Applies the result of a poll. Returns true if the thread of the list must look at the state.
    ///
    /// A failure resets the notification ID. A server that returns with a restored database may have a lower one, and
    /// would report nothing until it exceeds ours.
    fn apply(&mut self, result: Result<PollAnswer, String>, list: &str, state: &PollState) -> bool {
        match result {
            Ok(answer @ (PollAnswer::Changed(_) | PollAnswer::Repeated)) => {
                if let PollAnswer::Changed(id) = answer {
                    self.id = id;
                }
                state.changes.fetch_add(1, Ordering::Release);
                true
            }
            Ok(PollAnswer::Unchanged) => {
                if !state.is_held.swap(true, Ordering::AcqRel) {
                    tracing::info!("Apollo notifies carom of changes of the {list}");
                }
                false
            }
            Err(why) => {
                self.id = UNKNOWN_ID;
                let was_held = state.is_held.swap(false, Ordering::AcqRel);
                if was_held {
                    tracing::info!(
                        "Apollo sends no notifications of the {list} ({why}); carom reads it every two seconds"
                    );
                } else {
                    tracing::debug!("Apollo sends no notifications of the {list} ({why}); carom retries");
                }
                was_held
            }
        }
    }
}

/// Returns the pause before the next poll, after a number of failures in a row and a poll that took `elapsed`.
fn pause_after(failures: u32, elapsed: Duration) -> Duration {
    match failures {
        0 => POLL_EVERY_MIN.saturating_sub(elapsed),
        _ => RETRY_MIN.saturating_mul(1_u32 << failures.min(6).saturating_sub(1)).min(RETRY_MAX),
    }
}

/// Returns the response to a poll that took `elapsed`.
///
/// # Errors
/// If the response came too early: it shows that the server, or a cache in front of it, holds no request.
fn held(answer: PollAnswer, elapsed: Duration) -> Result<PollAnswer, String> {
    if elapsed >= HOLD_MIN {
        return Ok(answer);
    }
    match answer {
        PollAnswer::Changed(_) => Ok(answer),
        PollAnswer::Unchanged => Err("the server answered 304 at once".to_owned()),
        PollAnswer::Repeated => Err("the server answered at once with the same notification ID".to_owned()),
    }
}

/// The valid response to a poll.
#[derive(PartialEq, Debug)]
enum PollAnswer {
    /// The namespace has a new notification ID.
    Changed(i64),
    /// The namespace did not change while the server held the request.
    Unchanged,
    /// The server has reported the notification ID of the request.
    Repeated,
}

/// An element of a response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notification {
    namespace_name: String,
    notification_id: i64,
}

/// The namespace whose notifications are polled.
#[derive(Debug)]
struct WatchedNamespace {
    /// Scheme and authority of the server.
    origin: String,
    /// The path with all parameters except the notification ID.
    start: String,
    /// The name in requests and responses.
    name: String,
}

impl WatchedNamespace {
    /// Returns the namespace that an address of Apollo names; `None` if the address is not Apollo's.
    fn of(url: &str) -> Option<WatchedNamespace> {
        let url = url.split('#').next().unwrap_or(url);
        let [app, cluster, name] = names_of(url)?.map(decoded);
        // Apollo names a namespace of properties without its format, and all others with it.
        let name = name.strip_suffix(".properties").unwrap_or(&name).to_owned();
        if cluster.is_empty() || name.is_empty() {
            return None;
        }
        let (scheme, rest) = url.split_once("://")?;
        let (authority, rest) = rest.split_once('/')?;
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        let mut start = format!("{PATH}?appId={}&cluster={}", encoded(&app), encoded(&cluster));
        let is_kept = |pair: &&str| KEPT_PARAMETERS.iter().any(|name| pair.starts_with(name));
        for pair in query.split('&').filter(is_kept) {
            start.push('&');
            start.push_str(pair);
        }
        Some(WatchedNamespace { origin: format!("{scheme}://{authority}"), start, name })
    }

    /// Returns path and query of a poll by a client that knows the notification `id`.
    fn path(&self, id: i64) -> String {
        let notifications = json!([{"namespaceName": self.name, "notificationId": id}]).to_string();
        format!("{}&notifications={}", self.start, encoded(&notifications))
    }

    /// Parses the response to a poll that sent the notification ID `sent`.
    ///
    /// # Errors
    /// The reason why the response is not valid.
    fn answer(&self, sent: i64, status: u16, body: &[u8]) -> Result<PollAnswer, String> {
        match status {
            200 => {}
            304 => return Ok(PollAnswer::Unchanged),
            status => return Err(format!("the server answered {status}")),
        }
        // An error of serde_json may quote the response, which may be long.
        let all: Vec<Notification> =
            serde_json::from_slice(body).map_err(|_| "the response is not a list of notifications".to_owned())?;
        let own = all.iter().filter(|one| one.namespace_name.eq_ignore_ascii_case(&self.name));
        match own.map(|one| one.notification_id).max() {
            None => Err("the response does not name the namespace".to_owned()),
            // Another instance of Apollo may notice a release later, and report its ID once more.
            Some(id) if id == sent => Ok(PollAnswer::Repeated),
            Some(id) => Ok(PollAnswer::Changed(id)),
        }
    }
}

/// Escapes the value of a parameter.
fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Returns a segment of a path without its escapes.
fn decoded(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://apollo.example:8080/configs/shop/default/carom.json?token=secret&ip=10.0.0.1#part";

    fn namespace() -> WatchedNamespace {
        WatchedNamespace::of(URL).unwrap()
    }

    #[test]
    fn query_names_the_namespace() {
        let namespace = namespace();
        assert_eq!(namespace.origin, "http://apollo.example:8080");
        let start = "/notifications/v2?appId=shop&cluster=default&ip=10.0.0.1&notifications=";
        let list =
            |id: &str| format!("%5B%7B%22namespaceName%22%3A%22carom.json%22%2C%22notificationId%22%3A{id}%7D%5D");
        assert_eq!(namespace.path(UNKNOWN_ID), format!("{start}{}", list("-1")));
        assert_eq!(namespace.path(101), format!("{start}{}", list("101")));
    }

    #[test]
    fn names_are_escaped_once() {
        let url = "https://a.example/configfiles/json/a%20b/c&d%26/%C3%A4+\"x.properties";
        let namespace = WatchedNamespace::of(url).unwrap();
        assert_eq!(namespace.start, "/notifications/v2?appId=a%20b&cluster=c%26d%26");
        assert_eq!(namespace.name, "\u{e4}+\"x");
        assert!(namespace.path(1).contains("%22%C3%A4%2B%5C%22x%22%2C"), "{}", namespace.path(1));
        for other in
            ["https://a.example/hosts.json", "https://a.example/configs/a//b", "https://a.example/configs/a/b/"]
        {
            assert!(WatchedNamespace::of(other).is_none(), "{other}");
        }
    }

    #[test]
    fn answers_report_new_ids_of_the_namespace() {
        let namespace = namespace();
        let answer = |body: &str| namespace.answer(101, 200, body.as_bytes());
        let own = r#"{"namespaceName": "Carom.json", "notificationId": 102, "messages": {"details": {"a+b+c": 102}}}"#;
        let other = r#"{"namespaceName": "application", "notificationId": 103}"#;
        assert_eq!(answer(&format!("[{own}]")), Ok(PollAnswer::Changed(102)));
        assert_eq!(answer(&format!("[{other}, {own}, {other}]")), Ok(PollAnswer::Changed(102)));
        assert_eq!(answer(&format!("[{}{own}]", format!("{other},").repeat(1_000))), Ok(PollAnswer::Changed(102)));
        assert_eq!(namespace.answer(102, 304, b""), Ok(PollAnswer::Unchanged));
        // A lower ID, after a restore of the server.
        assert_eq!(namespace.answer(103, 200, format!("[{own}]").as_bytes()), Ok(PollAnswer::Changed(102)));
        assert_eq!(namespace.answer(102, 200, format!("[{own}]").as_bytes()), Ok(PollAnswer::Repeated));
        assert!(answer(&format!("[{other}]")).unwrap_err().contains("does not name"));
    }

    #[test]
    fn malformed_answers_are_failures() {
        let huge = format!("[{}", "[".repeat(ANSWER_LEN_MAX as usize));
        let number = r#"[{"namespaceName": "carom.json", "notificationId": 99999999999999999999}]"#;
        for body in ["", "{}", "[1]", "[{}]", r#"[{"namespaceName": "carom.json"}]"#, "\u{1}", number, &huge] {
            let wrong = namespace().answer(101, 200, body.as_bytes()).unwrap_err();
            assert!(wrong.contains("is not a list"), "{wrong}");
            assert!(wrong.len() < 100, "{wrong}");
        }
        assert!(namespace().answer(101, 200, b"[]").unwrap_err().contains("does not name"));
        assert_eq!(namespace().answer(101, 404, b"").unwrap_err(), "the server answered 404");
    }

    /// The signature was computed with another implementation of HMAC-SHA1.
    #[test]
    fn signature_covers_path_and_query_of_the_poll() {
        let signer = Signer::new(URL, "df23df3f59884980844ff3dada30fa97").unwrap();
        let [timestamp, signature] = signer.headers_for(&namespace().path(UNKNOWN_ID), 1_576_478_257_344);
        assert_eq!(timestamp.1, "1576478257344");
        assert_eq!(signature.1, "Apollo shop:C0+ZyZoRdxMCJud56QoPfL4y4SQ=");
        let poll = NotificationPoll::new(URL, Some(signer)).unwrap();
        let shown = format!("{poll:?}");
        assert!(!shown.contains("df23df3f"), "{shown}");
        assert!(!poll.namespace.path(1).contains("token"), "{shown}");
    }

    #[test]
    fn results_change_the_state() {
        let (mut poll, state) = (NotificationPoll::new(URL, None).unwrap(), PollState::default());
        let mut apply = |result: Result<PollAnswer, &str>| {
            let wakes = poll.apply(result.map_err(str::to_owned), "allow list", &state);
            (wakes, poll.id, state.changes(), state.is_reliable())
        };
        assert_eq!(apply(Err("404")), (false, -1, 0, false));
        assert_eq!(apply(Ok(PollAnswer::Changed(101))), (true, 101, 1, false));
        assert_eq!(apply(Ok(PollAnswer::Unchanged)), (false, 101, 1, true));
        assert_eq!(apply(Ok(PollAnswer::Changed(102))), (true, 102, 2, true));
        assert_eq!(apply(Ok(PollAnswer::Repeated)), (true, 102, 3, true));
        assert_eq!(apply(Err("away")), (true, -1, 3, false));
        assert_eq!(apply(Err("away")), (false, -1, 3, false));
    }

    #[test]
    fn server_must_hold_a_poll_without_a_change() {
        assert_eq!(held(PollAnswer::Changed(1), Duration::ZERO), Ok(PollAnswer::Changed(1)));
        assert_eq!(held(PollAnswer::Unchanged, HOLD_MIN), Ok(PollAnswer::Unchanged));
        assert_eq!(held(PollAnswer::Repeated, HOLD_MIN), Ok(PollAnswer::Repeated));
        for early in [PollAnswer::Unchanged, PollAnswer::Repeated] {
            assert!(held(early, Duration::ZERO).is_err());
        }
    }

    #[test]
    fn failures_lengthen_the_pause() {
        let seconds = |failures| pause_after(failures, Duration::from_secs(90)).as_secs();
        assert_eq!([0, 1, 2, 3, 5, 6, u32::MAX].map(seconds), [0, 2, 4, 8, 32, 60, 60]);
        assert_eq!(pause_after(0, Duration::from_millis(300)), Duration::from_millis(700));
    }
}
