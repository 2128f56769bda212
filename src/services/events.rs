//! The event log, its readers, and the sinks that deliver it.
//!
//! * `render`: describes stored events as JSON;
//! * `sink`: the thread of a sink, with its place in the log, its pauses and its alarm;
//! * `webhook`, `redis_stream`, `rabbitmq` and `mercure`: the sinks;
//! * `http_client`: the HTTP client of two of them;
//! * `publisher`, `confirms`, `amqp` and `broker`: the client of RabbitMQ, from its connection down to its socket.
//!
//! The writer adds events of links to the log in the commit that changes the links, and the visit log adds visits
//! ([`carom_store::links::events`]). The thread `events` syncs events that nobody waits for, removes old ones, and
//! answers requests of the API. Each sink has a thread of its own, so a slow receiver delays no other.

mod amqp;
mod broker;
mod confirms;
mod http_client;
mod mercure;
mod publisher;
mod rabbitmq;
mod redis_stream;
pub mod render;
mod sink;
mod webhook;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use self::broker::BrokerAddress;
use self::mercure::Mercure;
pub use self::mercure::MercureTerms;
pub use self::publisher::RabbitTerms;
use self::rabbitmq::Rabbit;
use self::redis_stream::RedisStream;
pub use self::redis_stream::RedisStreamTerms;
use self::render::{RenderedEvent, Renderer};
pub use self::sink::Sinks;
use self::webhook::Webhook;
pub use self::webhook::WebhookTerms;
use crate::bridge::Mailboxes;
use crate::bridge::events::{EventAnswer, EventQuery, EventQueue, EventRequest, EventsFound};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_limits::{DEAD_LETTERS_MAX, EVENTS_PAGE_BYTES, EVENTS_QUEUE_LEN};
use carom_model::events::EventId;
use carom_store::links::events::EventLog;
use carom_store::links::{Links, StoreError};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Interval between two syncs of events that no client waits for.
const SYNC_EVERY: Duration = Duration::from_millis(200);

/// Interval between two removals of old events.
const TRIM_EVERY: Duration = Duration::from_secs(5);

/// The parts of a node that the event log needs.
#[derive(Debug)]
pub struct EventSetup {
    /// The event log, which sinks read and the service trims.
    pub log: EventLog,
    /// The store that the log is in.
    pub links: Links,
    /// The describer of events.
    pub renderer: Renderer,
    /// Time for which events are kept; `None`: until the log is too large.
    pub keep: Option<Duration>,
    /// Bytes on disk above which the oldest events are removed.
    pub keep_bytes: u64,
    /// The mailboxes of the cores, for answers.
    pub mailboxes: Mailboxes,
    /// Counters and alarms of the node.
    pub stats: Arc<NodeStats>,
    /// The webhook, if there is one.
    pub webhook: Option<WebhookTerms>,
    /// The Redis stream, if there is one.
    pub redis: Option<RedisStreamTerms>,
    /// The exchange of RabbitMQ, if there is one.
    pub rabbitmq: Option<RabbitTerms>,
    /// The Mercure hub, if there is one.
    pub mercure: Option<MercureTerms>,
}

/// The running event log.
#[derive(Debug)]
pub struct StartedEvents {
    /// The queue of requests.
    pub queue: EventQueue,
    /// The thread that answers them. It ends when all senders are gone.
    pub reader: JoinHandle<()>,
    /// The threads of the sinks.
    pub sinks: Sinks,
}

/// Starts the reader of the log and the sinks.
///
/// # Errors
/// If a sink cannot be set up, or the operating system cannot start a thread.
pub fn start(setup: EventSetup) -> io::Result<StartedEvents> {
    let EventSetup { log, links, renderer, keep, keep_bytes, mailboxes, stats, webhook, redis, rabbitmq, mercure } =
        setup;
    let mut sinks = Sinks::new(&log, &renderer, &stats);
    if let Some(terms) = webhook {
        sinks.start(Webhook::new(terms))?;
    }
    if let Some(terms) = redis {
        sinks.start(RedisStream::new(terms).map_err(io::Error::other)?)?;
    }
    if let Some(terms) = rabbitmq {
        sinks.start(Rabbit::new(terms))?;
    }
    if let Some(terms) = mercure {
        sinks.start(Mercure::new(terms))?;
    }
    let (queue, requests) = sync_channel(EVENTS_QUEUE_LEN);
    let mut reader = EventLogReader {
        log,
        links,
        renderer,
        keep,
        keep_bytes,
        mailboxes,
        stats,
        synced: Instant::now(),
        trimmed: None,
    };
    let run = move || reader.run(&requests);
    let reader = threads::start(Priority::Locking, "events", run)?;
    Ok(StartedEvents { queue, reader, sinks })
}

/// The thread that reads the log for the API, and keeps it durable and small.
struct EventLogReader {
    log: EventLog,
    links: Links,
    renderer: Renderer,
    keep: Option<Duration>,
    keep_bytes: u64,
    mailboxes: Mailboxes,
    stats: Arc<NodeStats>,
    synced: Instant,
    trimmed: Option<Instant>,
}

impl EventLogReader {
    fn run(&mut self, requests: &Receiver<EventRequest>) {
        loop {
            match requests.recv_timeout(SYNC_EVERY) {
                Ok(EventRequest::Page(query, ticket)) => {
                    let page = self.page(query).map_err(|error| self.unreadable(&error));
                    self.mailboxes.answer(ticket, EventAnswer(page));
                }
                Ok(EventRequest::DeadLetters(ticket)) => {
                    let letters = self.dead_letters().map_err(|error| self.unreadable(&error));
                    self.mailboxes.answer(ticket, EventAnswer(letters));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.sync();
            self.trim();
        }
    }

    fn unreadable(&self, error: &StoreError) -> &'static str {
        self.stats.store_errors.add_shared(1);
        tracing::error!(%error, "the event log could not be read");
        "the event log cannot be read right now"
    }

    /// Makes events readable that came without a sync: visits, and removals of links that were due.
    fn sync(&mut self) {
        if self.synced.elapsed() < SYNC_EVERY {
            return;
        }
        self.synced = Instant::now();
        self.stats.events.last.set(self.log.synced());
        // After a failed sync the writer refuses writes, and raises the alarm.
        if self.log.synced() < self.log.last() && self.links.sync().is_ok() {
            self.stats.events.last.set(self.log.synced());
        }
    }

    fn trim(&mut self) {
        if self.trimmed.is_some_and(|trimmed| trimmed.elapsed() < TRIM_EVERY) {
            return;
        }
        self.trimmed = Some(Instant::now());
        let until_ms = self.keep.map_or(0, |keep| unix_ms().saturating_sub(keep.as_millis() as u64));
        if let Err(error) = self.log.trim(until_ms, self.keep_bytes) {
            tracing::warn!(%error, "old events could not be removed");
        }
        self.stats.events.bytes.set(self.log.disk_bytes());
    }

    fn page(&self, query: EventQuery) -> Result<EventsFound, StoreError> {
        let (first, synced) = (self.log.first()?, self.log.synced());
        let (restart, latest) = (self.log.id(first - 1), self.log.id(synced));
        let after = query.after.unwrap_or(restart);
        if after.log != restart.log || after.seq < restart.seq {
            return Ok(EventsFound::Gone { restart, latest });
        }
        if after.seq > synced {
            return Ok(EventsFound::Ahead { latest });
        }
        let page = self.log.page(after.seq, query.limit, EVENTS_PAGE_BYTES)?;
        let next = EventId { seq: page.up_to, ..restart };
        let rendered = self.renderer.render(&page.events)?;
        let wanted = rendered.iter().filter(|event| query.of.is_none_or(|of| event.of == of));
        let data: Vec<Value> = wanted.map(RenderedEvent::envelope).collect();
        let shown = json!({
            "events": {
                "data": data,
                "next": next.to_string(),
                "latest": latest.to_string(),
                "restart": restart.to_string(),
            }
        });
        Ok(EventsFound::Document(shown.to_string().into_bytes()))
    }

    fn dead_letters(&self) -> Result<EventsFound, StoreError> {
        let letters = self.log.dead_letters()?;
        let newest = letters.iter().rev().take(DEAD_LETTERS_MAX);
        let data: Vec<Value> = newest
            .filter_map(|letter| {
                let mut shown: Value = serde_json::from_slice(&letter.content).ok()?;
                shown["sink"] = json!(letter.sink);
                Some(shown)
            })
            .collect();
        Ok(EventsFound::Document(json!({ "deadLetters": { "data": data } }).to_string().into_bytes()))
    }
}
