//! A connection to RabbitMQ that publishes events and waits until the server has confirmed them.
//!
//! A batch goes out in windows: the messages of a window are sent together, then all of them are confirmed, refused or
//! returned before the next window begins. `amqp` has the bytes, `broker` the socket with its deadline, `confirms` the
//! messages of a window.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use super::amqp::{self, AmqpCloseReason, Message, ServerFrame};
use super::broker::{BrokerAddress, BrokerDialer, BrokerStream};
use super::confirms::{Fate, Window};
use super::render::RenderedEvent;

/// Bytes after which a window ends. Servers send returned messages back, so that both sides may send at once: the
/// buffers of the sockets must hold a window.
const WINDOW_BYTES: usize = 128 * 1024;

/// Timeout of closing a connection in order.
const CLOSE_TIME: Duration = Duration::from_millis(200);

/// Reply codes of a server that closes a channel because of the content of a message: too large, failed precondition.
const REFUSALS: [u16; 2] = [311, 406];

/// An exchange of RabbitMQ, and the login. The `Debug` form hides the login.
#[derive(Clone)]
pub struct RabbitTerms {
    /// The server.
    pub address: BrokerAddress,
    /// The user name of the login.
    pub user: String,
    /// The password of the login.
    pub password: String,
    /// The virtual host, at most 255 bytes.
    pub vhost: String,
    /// The exchange, of the type topic, at most 255 bytes.
    pub exchange: String,
    /// True if an event counts as delivered only once a queue has it.
    pub mandatory: bool,
}

impl std::fmt::Debug for RabbitTerms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RabbitTerms({})", self.address)
    }
}

/// The reason why an event was not published, or is not known to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PublishFailure {
    /// The server has closed the connection without a reason.
    Ended,
    /// The connection failed, or the server has closed it or refuses something.
    Lost(String),
    /// The server did not answer in time.
    Late(String),
    /// The server did not take the event, and the connection works.
    Held(String),
    /// The server refuses the event, and would again.
    Refused(String),
}

impl PublishFailure {
    /// Returns the reason in words.
    pub(super) fn into_text(self) -> String {
        match self {
            PublishFailure::Ended => "the server closed the connection".to_owned(),
            PublishFailure::Lost(why)
            | PublishFailure::Late(why)
            | PublishFailure::Held(why)
            | PublishFailure::Refused(why) => why,
        }
    }
}

/// A connection with an open channel.
pub(super) struct Publisher {
    stream: BrokerStream,
    /// Received bytes that are not yet a whole frame.
    received: Vec<u8>,
    frame_max: usize,
    /// The number of the last message on the channel.
    last_tag: u64,
    /// The reason for which the server accepts no messages for now.
    blocked: Option<String>,
    exchange: String,
    mandatory: bool,
    /// The password. It must be hidden in texts of the server.
    hidden: Option<String>,
}

impl Publisher {
    /// Connects, logs in and declares the exchange. Blocks the thread until `deadline` at the latest.
    ///
    /// # Errors
    /// The reason why that was impossible.
    pub(super) fn open(
        dialer: &mut BrokerDialer,
        terms: &RabbitTerms,
        deadline: Instant,
    ) -> Result<Publisher, PublishFailure> {
        let stream = dialer.connect(deadline).map_err(|error| failure(&error))?;
        let mut publisher = Publisher {
            stream,
            received: Vec::new(),
            frame_max: amqp::FRAME_MAX as usize,
            last_tag: 0,
            blocked: None,
            exchange: terms.exchange.clone(),
            mandatory: terms.mandatory,
            // Such a password is no secret, and is part of plain texts.
            hidden: Some(terms.password.clone()).filter(|word| !word.is_empty() && *word != terms.user),
        };
        match publisher.greet(terms) {
            Ok(()) => Ok(publisher),
            Err(failure) => {
                publisher.abandon();
                Err(failure)
            }
        }
    }

    fn greet(&mut self, terms: &RabbitTerms) -> Result<(), PublishFailure> {
        self.send(amqp::HEADER)?;
        match self.next()? {
            ServerFrame::Start(mechanisms) if mechanisms.split(' ').any(|name| name == "PLAIN") => {}
            ServerFrame::Start(_) => {
                return Err(PublishFailure::Lost("the server offers no login with a password (PLAIN)".to_owned()));
            }
            other => return Err(unexpected(&other)),
        }
        self.send(&amqp::start_ok(&terms.user, &terms.password))?;
        let limit = match self.next() {
            Ok(ServerFrame::Tune(limit)) => limit,
            Ok(other) => return Err(unexpected(&other)),
            // Some servers hang up instead of giving a reason.
            Err(PublishFailure::Ended) => {
                let why = "the server closed the connection after the login; check user and password";
                return Err(PublishFailure::Lost(why.to_owned()));
            }
            Err(failure) => return Err(failure),
        };
        let (tuned, frame_max) = amqp::tune_ok(limit);
        self.frame_max = frame_max;
        self.send(&[tuned, amqp::open(&terms.vhost)].concat())?;
        self.expect((10, 41))?;
        for (request, answer) in amqp::open_channel(&terms.exchange) {
            self.send(&request)?;
            self.expect(answer)?;
        }
        Ok(())
    }

    /// Sets the instant at which all that follows ends.
    pub(super) fn set_deadline(&mut self, deadline: Instant) {
        self.stream.set_deadline(deadline);
    }

    /// Publishes events in their order. Returns the number of those that the server has taken, and why it has not taken
    /// the next one. After a failure other than [`PublishFailure::Held`] the connection must not be used again.
    pub(super) fn publish(&mut self, events: &[RenderedEvent]) -> (usize, Result<(), PublishFailure>) {
        let mut taken = 0;
        while taken < events.len() {
            let (count, bytes) = self.encode(&events[taken..]);
            let sent = &events[taken..taken + count];
            let mut window = Window::new(self.last_tag + 1, count);
            self.last_tag += count as u64;
            let result = self.send(&bytes).and_then(|()| self.await_confirms(&mut window, sent));
            taken += window.taken();
            if let Err(failure) = result {
                return (taken, Err(failure));
            }
            if let Some(why) = window.held(sent, &self.exchange) {
                return (taken, Err(PublishFailure::Held(why)));
            }
        }
        (taken, Ok(()))
    }

    /// Returns the messages of the next window, and their number.
    fn encode(&self, events: &[RenderedEvent]) -> (usize, Vec<u8>) {
        let (mut count, mut bytes) = (0, Vec::new());
        for event in events {
            if bytes.len() >= WINDOW_BYTES {
                break;
            }
            let (id, body) = (event.id.to_string(), event.data.to_string());
            let message = Message {
                exchange: &self.exchange,
                key: event.of.as_str(),
                more_keys: &event.topics,
                mandatory: self.mandatory,
                id: &id,
                of: event.of.as_str(),
                seconds: event.at_ms / 1_000,
                body: body.as_bytes(),
            };
            amqp::publish(&message, self.frame_max, &mut bytes);
            count += 1;
        }
        (count, bytes)
    }

    /// Waits until the fate of each message of a window is known.
    fn await_confirms(&mut self, window: &mut Window, sent: &[RenderedEvent]) -> Result<(), PublishFailure> {
        let mut why_returned = None;
        while !window.is_settled() {
            let confirmed = match self.next()? {
                ServerFrame::Ack(tag, multiple) => window.settle(tag, multiple, Fate::Taken),
                ServerFrame::Nack(tag, multiple) => window.settle(tag, multiple, Fate::Refused),
                ServerFrame::Return(why) => {
                    why_returned = Some(self.shown(&why));
                    Ok(())
                }
                ServerFrame::ReturnedHeader(id) => {
                    let place = sent.iter().position(|event| id.as_ref() == Some(&event.id.to_string()));
                    window.give_back(place, why_returned.take())
                }
                ServerFrame::ReturnedBody => Ok(()),
                other => return Err(unexpected(&other)),
            };
            confirmed.map_err(|why| PublishFailure::Lost(why.to_owned()))?;
        }
        Ok(())
    }

    fn expect(&mut self, answer: (u16, u16)) -> Result<(), PublishFailure> {
        match self.next()? {
            ServerFrame::Ok(class, number) if (class, number) == answer => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), PublishFailure> {
        self.stream.send(bytes).map_err(|error| self.sent_in_vain(&error))
    }

    /// Returns why bytes could not be sent: the reason that the server gave before it closed the connection, if any.
    fn sent_in_vain(&mut self, error: &io::Error) -> PublishFailure {
        if matches!(failure(error), PublishFailure::Ended) {
            while self.stream.receive(&mut self.received).is_ok() && self.received.len() <= amqp::FRAME_MAX as usize {}
            while let Ok(Some(frame)) = amqp::take_frame(&mut self.received) {
                if let Ok(ServerFrame::Close(reason)) = frame.decode() {
                    return self.closed(&reason);
                }
            }
        }
        self.failed(error)
    }

    /// Returns the next frame that is meant for the caller.
    fn next(&mut self) -> Result<ServerFrame, PublishFailure> {
        loop {
            let Some(frame) =
                amqp::take_frame(&mut self.received).map_err(|why| PublishFailure::Lost(why.to_owned()))?
            else {
                if let Err(error) = self.stream.receive(&mut self.received) {
                    return Err(self.failed(&error));
                }
                continue;
            };
            match frame.decode().map_err(PublishFailure::Lost)? {
                ServerFrame::Heartbeat => {}
                ServerFrame::Blocked(why) => self.blocked = Some(self.shown(&why)),
                ServerFrame::Unblocked => self.blocked = None,
                ServerFrame::Close(reason) => {
                    // The server waits for it, and may be gone already.
                    let _ = self.stream.send(&amqp::close_ok(reason.is_connection));
                    return Err(self.closed(&reason));
                }
                other => return Ok(other),
            }
        }
    }

    fn closed(&self, reason: &AmqpCloseReason) -> PublishFailure {
        let why = format!("the server refuses: {} {}", reason.code, self.shown(&reason.text));
        let is_content = reason.is_of_message && REFUSALS.contains(&reason.code);
        if is_content { PublishFailure::Refused(why) } else { PublishFailure::Lost(why) }
    }

    fn failed(&self, error: &io::Error) -> PublishFailure {
        match (&self.blocked, failure(error)) {
            (Some(why), PublishFailure::Late(_)) => {
                PublishFailure::Late(format!("the server accepts no messages for now: {why}"))
            }
            (_, failure) => failure,
        }
    }

    /// Returns a text of the server without the password, which a server might repeat.
    fn shown(&self, text: &str) -> String {
        match &self.hidden {
            Some(password) => text.replace(password.as_str(), "(hidden)"),
            None => text.to_owned(),
        }
    }

    /// Closes the connection in order.
    pub(super) fn close(mut self) {
        self.stream.set_deadline(Instant::now() + CLOSE_TIME);
        match self.stream.send(&amqp::close()) {
            Ok(()) => self.stream.finish(),
            Err(_) => self.stream.abandon(),
        }
    }

    /// Ends the connection after a failure.
    pub(super) fn abandon(self) {
        self.stream.abandon();
    }
}

fn failure(error: &io::Error) -> PublishFailure {
    match error.kind() {
        ErrorKind::TimedOut => PublishFailure::Late(error.to_string()),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => PublishFailure::Ended,
        // Its words do not say that they are about TLS: a certificate, or a server that does not speak it.
        ErrorKind::InvalidData => PublishFailure::Lost(format!("TLS failed: {error}")),
        _ => PublishFailure::Lost(error.to_string()),
    }
}

fn unexpected(frame: &ServerFrame) -> PublishFailure {
    // Texts of a server may repeat anything.
    let name = match frame {
        ServerFrame::Start(_) => "Start",
        ServerFrame::Tune(_) => "Tune",
        ServerFrame::Ok(..) => "a confirmation of another request",
        ServerFrame::Ack(..) | ServerFrame::Nack(..) => "a confirmation of a message",
        _ => "a message",
    };
    PublishFailure::Lost(format!("the server sent {name}, which nothing asked for"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread::JoinHandle;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use carom_model::events::{EventId, EventType};

    const PASSWORD: &str = "geheim";

    /// A frame that a server sends.
    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let len = (payload.len() as u32).to_be_bytes();
        [&[kind, 0, 1][..], &len, payload, &[0xce]].concat()
    }

    /// A short text.
    fn short(text: &str) -> Vec<u8> {
        [&[text.len() as u8][..], text.as_bytes()].concat()
    }

    fn start() -> Vec<u8> {
        frame(1, &[&[0, 10, 0, 10, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5][..], b"PLAIN", &[0; 4]].concat())
    }

    /// The answers of a server until the channel is ready.
    fn greeting() -> Vec<u8> {
        let mut bytes = [start(), frame(1, &[0, 10, 0, 30, 7, 255, 0, 2, 0, 0, 0, 60])].concat();
        for name in [[10, 41], [20, 11], [40, 11], [85, 11]] {
            bytes.extend(frame(1, &[0, name[0], 0, name[1]]));
        }
        bytes
    }

    fn confirm(number: u8, tag: u8, multiple: u8) -> Vec<u8> {
        frame(1, &[0, 60, 0, number, 0, 0, 0, 0, 0, 0, 0, tag, multiple])
    }

    fn close(class: u8, number: u8, text: &str, of: [u8; 4]) -> Vec<u8> {
        frame(1, &[&[0, class, 0, number, 1, 150][..], &short(text), &of].concat())
    }

    /// A server that sends these bytes to one client, without waiting for requests, and then reads or closes.
    fn server(bytes: Vec<u8>, closes: bool) -> (BrokerDialer, JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let (mut tcp, _) = listener.accept().unwrap();
            let _ = tcp.write_all(&bytes);
            if closes {
                let _ = tcp.shutdown(std::net::Shutdown::Write);
            }
            let mut received = Vec::new();
            let _ = tcp.read_to_end(&mut received);
            received
        });
        (BrokerDialer::new(address(port)), thread)
    }

    fn address(port: u16) -> BrokerAddress {
        BrokerAddress { host: "127.0.0.1".to_owned(), port, tls: None }
    }

    fn terms(dialer: &BrokerDialer) -> RabbitTerms {
        RabbitTerms {
            address: dialer.address().clone(),
            user: "carom".to_owned(),
            password: PASSWORD.to_owned(),
            vhost: "/".to_owned(),
            exchange: "carom.events".to_owned(),
            mandatory: true,
        }
    }

    fn open(dialer: &mut BrokerDialer, within: Duration) -> Result<Publisher, PublishFailure> {
        let terms = terms(dialer);
        Publisher::open(dialer, &terms, Instant::now() + within)
    }

    fn event(seq: u64, text: &str) -> RenderedEvent {
        let topics = vec!["https://shlink.io/new-short-url".to_owned()];
        RenderedEvent { id: EventId { log: 1, seq }, of: EventType::LinkCreated, at_ms: 0, data: json!(text), topics }
    }

    /// Publishes three events to a server that answers so after the greeting.
    fn publish(answers: &[Vec<u8>]) -> (usize, Result<(), PublishFailure>) {
        let (mut dialer, thread) = server([greeting(), answers.concat()].concat(), false);
        let mut publisher = open(&mut dialer, Duration::from_secs(10)).unwrap();
        let outcome = publisher.publish(&[event(1, "a"), event(2, "b"), event(3, "c")]);
        publisher.close();
        let received = thread.join().unwrap();
        assert!(received.starts_with(amqp::HEADER));
        outcome
    }

    #[test]
    fn events_count_once_they_are_confirmed() {
        assert_eq!(publish(&[confirm(80, 3, 1)]), (3, Ok(())));
        let (ack, beat) = (|tag| confirm(80, tag, 0), frame(8, b""));
        assert_eq!(publish(&[ack(2), beat, ack(1), ack(3)]), (3, Ok(())));
        assert_eq!(publish(&[confirm(80, 0, 1)]), (3, Ok(())));
        let (count, result) = publish(&[ack(1), confirm(120, 2, 0), ack(3)]);
        let Err(PublishFailure::Held(why)) = result else { panic!("{result:?}") };
        assert!(count == 1, "{why}");
        assert!(why.contains("event 00000001-2 (nack)"), "{why}");
        for wrong in [confirm(80, 4, 0), confirm(80, 0, 0), frame(1, &[0, 85, 0, 11])] {
            assert!(matches!(publish(&[ack(1), wrong]), (1, Err(PublishFailure::Lost(_)))));
        }
    }

    #[test]
    fn event_without_a_queue_is_not_delivered() {
        let returned = frame(1, &[&[0, 60, 0, 50, 1, 56][..], &short("NO_ROUTE"), &short("e"), &short("k")].concat());
        let header = |id: &str| frame(2, &[&[0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 128][..], &short(id)].concat());
        let body = frame(3, b"{}");
        let answers = [returned.clone(), header("00000001-1"), body, confirm(80, 3, 1)];
        let (count, result) = publish(&answers);
        let Err(PublishFailure::Held(why)) = result else { panic!("{result:?}") };
        assert_eq!(count, 0);
        assert!(why.contains("312 NO_ROUTE"), "{why}");
        assert!(why.contains("carom.events with the key link.created"), "{why}");
        assert!(matches!(publish(&[returned, header("00000001-9")]), (0, Err(PublishFailure::Lost(_)))));
        assert!(matches!(publish(&[header("00000001-1")]), (0, Err(PublishFailure::Lost(_)))));
    }

    #[test]
    fn reasons_of_the_server_are_told_without_the_password() {
        let text = format!("PRECONDITION_FAILED - too large for {PASSWORD}");
        let (_, result) = publish(&[close(20, 40, &text, [0, 60, 0, 40])]);
        let Err(PublishFailure::Refused(why)) = result else { panic!("{result:?}") };
        assert!(why.contains("406 PRECONDITION_FAILED - too large for (hidden)"), "{why}");
        // The connection ends, and no message is at fault.
        let (_, result) = publish(&[close(10, 50, "CONNECTION_FORCED", [0; 4])]);
        assert!(matches!(&result, Err(PublishFailure::Lost(why)) if why.contains("CONNECTION_FORCED")), "{result:?}");
    }

    #[test]
    fn refused_login_and_other_servers_are_named() {
        let within = Duration::from_secs(10);
        let refused = close(10, 50, "ACCESS_REFUSED", [0; 4]);
        for (bytes, word) in [
            ([start(), refused].concat(), "ACCESS_REFUSED"),
            (start(), "after the login"),
            (frame(1, &[&[0, 10, 0, 10, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5][..], b"OAUTH", &[0; 4]].concat()), "PLAIN"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "does not speak AMQP"),
            (b"AMQP\0\x01\0\0".to_vec(), "another version"),
            (Vec::new(), "closed the connection"),
        ] {
            let (mut dialer, thread) = server(bytes, true);
            let why = open(&mut dialer, within).map(|_| ()).unwrap_err().into_text();
            assert!(why.contains(word), "{why}");
            thread.join().unwrap();
        }
    }

    #[test]
    fn server_that_only_beats_gains_no_time() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let (mut tcp, _) = listener.accept().unwrap();
            let _ = tcp.write_all(&start());
            // Until the client hangs up.
            while tcp.write_all(&frame(8, b"")).is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let result = open(&mut BrokerDialer::new(address(port)), Duration::from_secs(3)).map(|_| ());
        assert!(matches!(result, Err(PublishFailure::Late(_))), "{result:?}");
        thread.join().unwrap();
    }

    #[test]
    fn blocked_server_says_why() {
        let blocked = frame(1, &[&[0, 10, 0, 60][..], &short("low on disk")].concat());
        let (mut dialer, thread) = server([greeting(), blocked].concat(), false);
        let mut publisher = open(&mut dialer, Duration::from_secs(10)).unwrap();
        // Long enough to read what has come, also if the machine stands still.
        publisher.set_deadline(Instant::now() + Duration::from_secs(3));
        let (_, result) = publisher.publish(&[event(1, "a")]);
        assert!(matches!(&result, Err(PublishFailure::Late(why)) if why.contains("low on disk")), "{result:?}");
        publisher.abandon();
        thread.join().unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn garbage_is_an_error(keeps in 0_usize..160, garbage in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = greeting();
            bytes.truncate(keeps);
            bytes.extend(garbage);
            let (mut dialer, thread) = server(bytes, true);
            if let Ok(mut publisher) = open(&mut dialer, Duration::from_secs(10)) {
                let (count, _) = publisher.publish(&[event(1, "a")]);
                prop_assert!(count <= 1);
                publisher.abandon();
            }
            thread.join().unwrap();
        }
    }
}
