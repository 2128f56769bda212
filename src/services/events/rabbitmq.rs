//! The sink that publishes events to a topic exchange of RabbitMQ, with Shlink's payloads.
//!
//! An event counts as delivered once the server has confirmed it: it is then on the disk of each durable queue that is
//! bound for it. `publisher` has the connection.

use std::time::{Duration, Instant};

use super::broker::BrokerDialer;
use super::publisher::{PublishFailure, Publisher, RabbitTerms};
use super::render::RenderedEvent;
use super::sink::{Sink, SinkFailure};
use carom_limits::{SINK_BATCH_MAX, SINK_TIME_MAX};
use carom_telemetry::stats::{NodeStats, SinkStats};

/// Idle time after which a connection is replaced: a firewall may have forgotten it by then, and there are no
/// heartbeats.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Time after which a batch ends that is sent event by event.
const ALONE_TIME: Duration = Duration::from_secs(2);

/// A sink that publishes to RabbitMQ.
pub(super) struct Rabbit {
    terms: RabbitTerms,
    dialer: BrokerDialer,
    publisher: Option<Publisher>,
    /// The instant at which the connection was last used.
    used: Instant,
    /// Number of events that are yet to be sent one by one.
    alone: usize,
}

impl Rabbit {
    /// Returns a sink that connects on first use.
    pub(super) fn new(terms: RabbitTerms) -> Rabbit {
        let dialer = BrokerDialer::new(terms.address.clone());
        Rabbit { terms, dialer, publisher: None, used: Instant::now(), alone: 0 }
    }

    /// Publishes events in their order. Returns the number of those that the server has taken, and why it has not taken
    /// the next one.
    fn publish(&mut self, events: &[RenderedEvent], deadline: Instant) -> (usize, Result<(), PublishFailure>) {
        if self.used.elapsed() > IDLE_MAX {
            self.close();
        }
        let was_open = self.publisher.is_some();
        let outcome = match self.attempt(events, deadline) {
            // The server may have restarted since the last batch, which is no failure yet.
            (0, Err(PublishFailure::Ended | PublishFailure::Lost(_))) if was_open => self.attempt(events, deadline),
            outcome => outcome,
        };
        self.used = Instant::now();
        outcome
    }

    fn attempt(&mut self, events: &[RenderedEvent], deadline: Instant) -> (usize, Result<(), PublishFailure>) {
        let mut publisher = match self.publisher.take() {
            Some(publisher) => publisher,
            None => match Publisher::open(&mut self.dialer, &self.terms, deadline) {
                Ok(publisher) => publisher,
                Err(failure) => return (0, Err(failure)),
            },
        };
        publisher.set_deadline(deadline);
        let (taken, result) = self.send(&mut publisher, events);
        match &result {
            Ok(()) => self.publisher = Some(publisher),
            Err(PublishFailure::Held(_)) => {
                self.publisher = Some(publisher);
                self.alone = SINK_BATCH_MAX;
            }
            Err(_) => publisher.abandon(),
        }
        (taken, result)
    }

    /// Sends events together. After the server has held one back, it may have taken later ones of the same batch, and
    /// gets all of them again. So the next events go one by one: otherwise a full queue would get the others over and
    /// over.
    fn send(&mut self, publisher: &mut Publisher, events: &[RenderedEvent]) -> (usize, Result<(), PublishFailure>) {
        let begun = Instant::now();
        let mut taken = 0;
        while self.alone > 0 && taken < events.len() {
            if let (_, Err(failure)) = publisher.publish(&events[taken..=taken]) {
                return (taken, Err(failure));
            }
            taken += 1;
            self.alone -= 1;
            if begun.elapsed() > ALONE_TIME {
                return (taken, Ok(()));
            }
        }
        let (more, result) = publisher.publish(&events[taken..]);
        (taken + more, result)
    }

    fn close(&mut self) {
        if let Some(publisher) = self.publisher.take() {
            publisher.close();
        }
    }
}

impl Sink for Rabbit {
    const NAME: &'static str = "rabbitmq";

    fn stats(stats: &NodeStats) -> &SinkStats {
        &stats.events.rabbitmq
    }

    fn deliver(&mut self, events: &[RenderedEvent]) -> (usize, Result<(), SinkFailure>) {
        let (taken, result) = self.publish(events, Instant::now() + SINK_TIME_MAX);
        let failure = |failure: PublishFailure| {
            let is_refused = matches!(failure, PublishFailure::Refused(_));
            let why = format!("{}: {}", self.dialer.address(), failure.into_text());
            if is_refused { SinkFailure::Refused(why) } else { SinkFailure::Later(why, None) }
        };
        (taken, result.map_err(failure))
    }
}

impl Drop for Rabbit {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use serde_json::json;

    use super::*;
    use crate::services::events::BrokerAddress;
    use carom_model::events::{EventId, EventType};

    fn event(seq: u64) -> RenderedEvent {
        let id = EventId { log: 1, seq };
        RenderedEvent { id, of: EventType::LinkCreated, at_ms: 0, data: json!({}), topics: Vec::new() }
    }

    fn sink(port: u16) -> Rabbit {
        Rabbit::new(RabbitTerms {
            address: BrokerAddress { host: "127.0.0.1".to_owned(), port, tls: None },
            user: "guest".to_owned(),
            password: "guest".to_owned(),
            vhost: "/".to_owned(),
            exchange: "carom.events".to_owned(),
            mandatory: false,
        })
    }

    fn frame(payload: &[u8]) -> Vec<u8> {
        [&[1, 0, 1, 0, 0, 0, payload.len() as u8][..], payload, &[0xce]].concat()
    }

    /// The answers of a server until the channel is ready.
    fn greeting() -> Vec<u8> {
        let start = [&[0, 10, 0, 10, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5][..], b"PLAIN", &[0; 4]].concat();
        let mut bytes = [frame(&start), frame(&[0, 10, 0, 30, 0, 0, 0, 2, 0, 0, 0, 0])].concat();
        for name in [[10, 41], [20, 11], [40, 11], [85, 11]] {
            bytes.extend(frame(&[0, name[0], 0, name[1]]));
        }
        bytes
    }

    fn confirm(number: u8, tag: u8) -> Vec<u8> {
        frame(&[0, 60, 0, number, 0, 0, 0, 0, 0, 0, 0, tag, 0])
    }

    /// Listens, and sends one of these to each client after the other. A client that hangs up makes room for the next.
    fn server(sessions: Vec<Vec<u8>>) -> (Rabbit, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            for bytes in sessions {
                let (mut tcp, _) = listener.accept().unwrap();
                let _ = tcp.write_all(&bytes);
                let _ = tcp.shutdown(std::net::Shutdown::Write);
                let _ = tcp.read_to_end(&mut Vec::new());
            }
        });
        (sink(port), thread)
    }

    #[test]
    fn lost_connection_is_replaced_at_once() {
        let once = [greeting(), confirm(80, 1)].concat();
        let (mut sink, thread) = server(vec![once.clone(), once]);
        assert_eq!(sink.deliver(&[event(1)]), (1, Ok(())));
        // By now the server has closed the connection.
        assert_eq!(sink.deliver(&[event(2)]), (1, Ok(())));
        drop(sink);
        thread.join().unwrap();
    }

    #[test]
    fn failures_name_the_server() {
        let (mut sink, thread) = server(vec![Vec::new()]);
        let (count, result) = sink.deliver(&[event(1)]);
        let Err(SinkFailure::Later(why, None)) = result else { panic!("{result:?}") };
        assert!(count == 0, "{why}");
        assert!(why.starts_with("127.0.0.1:"), "{why}");
        assert!(why.ends_with("the server closed the connection"), "{why}");
        thread.join().unwrap();
    }

    #[test]
    fn events_go_one_by_one_after_one_was_held_back() {
        let (nack, ack) = (|tag| confirm(120, tag), |tag| confirm(80, tag));
        // Two events together, of which the server takes the second one; then each of them alone.
        let answers = [greeting(), nack(1), ack(2), ack(3), ack(4)].concat();
        let (mut sink, thread) = server(vec![answers]);
        let (count, result) = sink.deliver(&[event(1), event(2)]);
        assert!(count == 0, "{result:?}");
        assert!(matches!(&result, Err(SinkFailure::Later(why, None)) if why.contains("nack")), "{result:?}");
        assert_eq!(sink.alone, SINK_BATCH_MAX);
        assert_eq!(sink.deliver(&[event(1), event(2)]), (2, Ok(())));
        assert_eq!(sink.alone, SINK_BATCH_MAX - 2);
        drop(sink);
        thread.join().unwrap();
    }
}
