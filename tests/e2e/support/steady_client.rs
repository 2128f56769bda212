//! A client that follows a link at a steady rate and fails on any wrong answer.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::http::{Reply, Wire, request};

pub(crate) const TARGET: &str = "https://example.org/";

/// Time from the start of a connection to its first request, in which no node gives the connection up: less than half of
/// that between two looks of a node that drains.
const FIRST_REQUEST_WITHIN: Duration = Duration::from_millis(100);

/// True if a connection was closed before an answer began.
pub(crate) fn has_ended(error: &io::Error) -> bool {
    let is_end = matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    // An end within an answer says what there was of it.
    is_end && !error.to_string().contains("HTTP/1.1")
}

/// Asks for a path over a connection that a client began to open at `begin`. Returns nothing if the node has closed the
/// connection and need not have waited for the request, because the machine kept this client from sending it.
pub(crate) fn ask_first(wire: &mut Wire, path: &str, begin: Instant) -> io::Result<Option<Reply>> {
    let sent = wire.try_send(&request("GET", path, "", b""));
    let was_late = begin.elapsed() > FIRST_REQUEST_WITHIN;
    match sent.and_then(|()| wire.try_reply(false)) {
        Ok(reply) => Ok(Some(reply)),
        Err(error) if was_late && has_ended(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Follows a link to [`TARGET`] every two milliseconds, whatever became of the request before (one that is late is sent
/// at once), over connections that it keeps for as long as it may, fifty requests at most.
pub(crate) fn ask_until(open: impl Fn() -> Wire, path: &str, is_over: &AtomicBool, answered: &AtomicU64) {
    let mut next = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let mut wire = open();
        for number in 0..50 {
            let asked = match number {
                0 => ask_first(&mut wire, path, begin),
                _ => wire.try_ask("GET", path, "", b"").map(Some),
            };
            let reply = match asked {
                Ok(Some(reply)) => reply,
                Ok(None) => break,
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
