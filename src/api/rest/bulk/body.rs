//! The body of a bulk request: one JSON object a line, read in batches while it arrives. [`super::lines`] splits it.

use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};

use super::lines::{BodyLine, LineBuffer};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::rest::short_urls::refused;
use crate::api::rest::streaming::TurnShare;
use crate::bridge::handle::LongKind;
use crate::bridge::handle::long::LongRequest;
use carom_limits::{BULK_CHUNK_BYTES, BULK_CHUNK_LINES, IMPORT_LINE_MAX};

/// Content type of a body with one JSON object a line.
pub(in crate::api) const NDJSON: &str = "application/x-ndjson";

/// Content types that such a body may carry.
const NDJSON_NAMES: &[&[u8]] = &[
    b"application/x-ndjson",
    b"application/ndjson",
    b"application/jsonl",
    b"application/x-jsonl",
    b"application/jsonlines",
];

/// The part of a bulk request that is read while it runs.
pub(super) struct BulkBody {
    /// True for a request that only says what it would do.
    pub(super) dry: bool,
    request: LongRequest,
    body: Incoming,
    lines: LineBuffer,
    is_over: bool,
}

/// The number of a line, and what it asks for, or else the problem with it.
pub(super) type ReadLine<T> = (u64, Result<T, Problem>);

/// Lines that are processed together, in order.
pub(super) struct LineBatch<T> {
    pub(super) lines: Vec<ReadLine<T>>,
    /// Length of the lines, in bytes.
    pub(super) bytes: usize,
}

/// An event that continues the reading.
pub(super) enum BodyEvent {
    /// A further part of the body has arrived, or its end.
    Arrived,
    /// The body broke off, because the client is gone.
    BrokenOff,
    /// The node shuts down.
    MustEnd,
}

impl BulkBody {
    /// Checks a request, takes one of the places for long requests, and sends "100 Continue" to a client that waits for
    /// it.
    ///
    /// # Errors
    /// The problem with the request, or that its app has too many long ones.
    pub(super) async fn begin(context: &Context, request: Request<Incoming>) -> Result<BulkBody, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        if !is_ndjson(kind) {
            return Err(Problem::not_lines());
        }
        let dry = is_dry(request.uri().query().unwrap_or_default()).map_err(|invalid| Problem::invalid(&[invalid]))?;
        let long = context.services.begin_long(LongKind::Bulk, context.caller.name());
        let long = long.map_err(|too_many| Problem::too_many_long("bulk requests", too_many))?;
        let waits = request.headers().contains_key(header::EXPECT);
        let (body, lines) = (request.into_body(), LineBuffer::default());
        let mut body = BulkBody { dry, request: long, body, lines, is_over: false };
        if waits {
            // hyper sends "100 Continue" with the first read, which must happen before the response begins.
            match body.body.frame().await {
                Some(Ok(frame)) => body.lines.push(&frame.into_data().unwrap_or_default()),
                Some(Err(_)) => return Err(Problem::body_broken()),
                None => {}
            }
        }
        Ok(body)
    }

    /// True once the whole body has arrived. It is then carried out to its end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// True if the node shuts down before the whole body has arrived. Otherwise the task is woken to ask again.
    pub(super) fn must_end(&self, context: &mut TaskContext<'_>) -> bool {
        !self.is_over && self.request.must_end(context)
    }

    /// Waits for more of the body, and takes it in.
    pub(super) fn poll_more(&mut self, context: &mut TaskContext<'_>) -> Poll<BodyEvent> {
        if self.must_end(context) {
            return Poll::Ready(BodyEvent::MustEnd);
        }
        Pin::new(&mut self.body).poll_frame(context).map(|frame| {
            match frame {
                Some(Ok(frame)) => self.lines.push(&frame.into_data().unwrap_or_default()),
                Some(Err(_)) => return BodyEvent::BrokenOff,
                None => {
                    self.is_over = true;
                    self.lines.end();
                }
            }
            BodyEvent::Arrived
        })
    }

    /// Reads lines that have arrived with `read`, at most as many as are processed together. Yields to the other tasks
    /// of the core between them.
    pub(super) async fn next_batch<T>(&mut self, read: impl AsyncFn(u64, &[u8]) -> Result<T, Problem>) -> LineBatch<T> {
        let mut batch = LineBatch { lines: Vec::new(), bytes: 0 };
        let mut share = TurnShare::default();
        while batch.lines.len() < BULK_CHUNK_LINES
            && batch.bytes < BULK_CHUNK_BYTES
            && let Some(line) = self.lines.next()
        {
            let (number, item, bytes) = match line {
                BodyLine::Whole(number, line) => (number, read(number, line).await, line.len()),
                BodyLine::TooLong(number) => (number, Err(Problem::line_too_long(IMPORT_LINE_MAX)), 0),
            };
            batch.lines.push((number, item));
            batch.bytes += bytes;
            share.take(bytes).await;
        }
        batch
    }

    /// Returns the number of the first line that was not read.
    pub(super) fn next_number(&self) -> u64 {
        self.lines.number() + 1
    }
}

/// Returns the problem of a line that comes after the node has begun to shut down.
pub(super) fn shutting_down() -> Problem {
    refused("the node is shutting down; this line and the following ones were not processed")
}

/// True if a content type means one JSON object a line.
fn is_ndjson(kind: &[u8]) -> bool {
    let media = kind.split(|&b| b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    NDJSON_NAMES.contains(&&media[..])
}

/// True if a query asks for a dry run.
///
/// # Errors
/// The parameter with the reason, if its value is neither true nor false.
fn is_dry(query: &str) -> Result<bool, Invalid> {
    let mut dry = false;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        if name == "dryRun" {
            dry = match value {
                "true" | "1" => true,
                "false" | "0" => false,
                _ => return Err(Invalid::new("dryRun", "must be true or false")),
            };
        }
    }
    Ok(dry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_bodies_and_dry_runs() {
        for kind in ["application/x-ndjson", "Application/NDJSON ; charset=utf-8", "application/jsonl"] {
            assert!(is_ndjson(kind.as_bytes()), "{kind}");
        }
        for kind in ["", "application/json", "text/plain", "application/x-ndjsonx"] {
            assert!(!is_ndjson(kind.as_bytes()), "{kind}");
        }
        for (query, dry) in [("", false), ("dryRun=true", true), ("a=b&dryRun", true), ("dryRun=1&dryRun=false", false)]
        {
            assert_eq!(is_dry(query), Ok(dry), "{query}");
        }
        assert_eq!(is_dry("dryRun=yes").unwrap_err().field, "dryRun");
    }
}
