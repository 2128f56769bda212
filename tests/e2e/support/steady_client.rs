//! A client that follows a link at a steady rate and fails on any wrong answer.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::http::Wire;

pub(crate) const TARGET: &str = "https://example.org/";

/// True if a connection was closed before an answer began.
pub(crate) fn has_ended(error: &std::io::Error) -> bool {
    let is_end = matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    // An end within an answer says what there was of it.
    is_end && !error.to_string().contains("HTTP/1.1")
}

/// Follows a link to [`TARGET`] every two milliseconds, whatever became of the request before (one that is late is sent
/// at once), over connections that it keeps for as long as it may, fifty requests at most.
pub(crate) fn ask_until(open: impl Fn() -> Wire, path: &str, is_over: &AtomicBool, answered: &AtomicU64) {
    let mut next = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        let mut wire = open();
        for number in 0..50 {
            let reply = match wire.try_ask("GET", path, "", b"") {
                Ok(reply) => reply,
                // A kept connection may end while nothing is asked, if this thread was asleep for long; then HTTP lets
                // a client ask again.
                Err(error) if number > 0 && has_ended(&error) => break,
                Err(error) => panic!("request {number} of a connection: {error}"),
            };
            assert_eq!(reply.location(), TARGET);
            answered.fetch_add(1, Ordering::Relaxed);
            if reply.field("connection").is_some() || is_over.load(Ordering::Relaxed) {
                break;
            }
            next += Duration::from_millis(2);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// Ends the clients of a test when it is dropped, also after a failed assertion.
pub(crate) struct EndsClients<'a>(pub(crate) &'a AtomicBool);

impl Drop for EndsClients<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
