//! The sink that adds events to a Redis stream, with Shlink's payloads.

use std::time::{Duration, Instant};

use super::render::RenderedEvent;
use super::sink::{Sink, SinkFailure};
use carom_redis::{Client, ClientSettings, RedisCommand, RedisError, RequestRoute, cmd, slot};
use carom_telemetry::stats::{NodeStats, SinkStats};

/// Timeout of a batch.
const REDIS_TIMEOUT: Duration = Duration::from_secs(5);

/// A Redis stream.
#[derive(Debug)]
pub struct RedisStreamTerms {
    /// The servers and how to log in.
    pub client: ClientSettings,
    /// The key of the stream.
    pub stream: String,
    /// Approximate number of entries that the stream keeps.
    pub entries: u64,
}

/// The connection to a Redis stream.
pub(super) struct RedisStream {
    client: Client,
    stream: String,
    entries: u64,
}

impl RedisStream {
    /// Returns a connection that is opened on first use.
    ///
    /// # Errors
    /// A description of unusable certificates, or of an error of the operating system.
    pub(super) fn new(terms: RedisStreamTerms) -> Result<RedisStream, String> {
        let RedisStreamTerms { client, stream, entries } = terms;
        Ok(RedisStream { client: Client::new(client, &[])?, stream, entries })
    }

    fn entry(&self, event: &RenderedEvent) -> RedisCommand {
        let mut command = cmd("XADD");
        command.arg(&self.stream).arg("MAXLEN").arg("~").arg(self.entries).arg("*");
        command.arg("id").arg(event.id.to_string()).arg("type").arg(event.of.as_str());
        command.arg("topic").arg(event.topics.first().map_or("", String::as_str));
        command.arg("payload").arg(event.data.to_string());
        RedisCommand::Plain(command)
    }
}

/// Returns the part of a key that decides its slot in a cluster: what its first braces enclose, or the whole key.
fn hash_tag(key: &str) -> &str {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

impl Sink for RedisStream {
    const NAME: &'static str = "redis";

    fn stats(stats: &NodeStats) -> &SinkStats {
        &stats.events.redis
    }

    /// Sends the events in one batch on one connection. If the answer is missing, Redis may have the events, and gets
    /// them again.
    fn deliver(&mut self, events: &[RenderedEvent]) -> (usize, Result<(), SinkFailure>) {
        let route = RequestRoute::Slot(slot(hash_tag(&self.stream)));
        let entries = events.iter().map(|event| self.entry(event)).collect();
        let deadline = Instant::now() + REDIS_TIMEOUT;
        let ticket = self.client.put(route, entries, deadline);
        match self.client.await_all(&[ticket], deadline).pop() {
            Some(Ok(_)) => (events.len(), Ok(())),
            // A full or misconfigured server: the operator must act, and the events are fine.
            Some(Err(RedisError::Refused(why) | RedisError::Unavailable { what: why, .. })) => {
                (0, Err(SinkFailure::Later(why, None)))
            }
            None => (0, Err(SinkFailure::Later("Redis did not answer".to_owned(), None))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_decide_the_slot() {
        for (key, tag) in [("a:b", "a:b"), ("a:{b}:c", "b"), ("{}a", "{}a"), ("a{b", "a{b"), ("{a}{b}", "a")] {
            assert_eq!(hash_tag(key), tag);
        }
    }
}
