//! The part of AMQP 0-9-1 that a publisher with confirms needs: bytes in, bytes out. No socket, no clock.
//!
//! A server is not trusted: its bytes are bounded and checked, and whatever it sends, reading them ends with a frame or
//! an error. `publisher` decides what follows from a frame.

/// The first bytes of a connection.
pub(super) const HEADER: &[u8] = b"AMQP\0\0\x09\x01";

/// The channel of all messages.
const CHANNEL: u16 = 1;

/// Bytes of a frame besides its payload.
const FRAME_OVERHEAD: usize = 8;

/// The last byte of a frame.
const FRAME_END: u8 = 0xce;

/// Largest frame that is sent or accepted, in bytes: the default of servers.
pub(super) const FRAME_MAX: u32 = 131_072;

/// Smallest frame size that a server may ask for, by the standard.
const FRAME_MIN: u32 = 4_096;

/// The types of frames.
const METHOD: u8 = 1;
const CONTENT_HEADER: u8 = 2;
const CONTENT_BODY: u8 = 3;
const HEARTBEAT: u8 = 8;

/// The class of messages.
const BASIC: u16 = 60;

/// Longest short text of the protocol, in bytes: the name of an exchange or virtual host, a routing key, an ID.
const SHORT_TEXT_MAX: usize = 255;

/// The abilities of the client. With the first, a server says why it refuses a login, instead of hanging up.
const CAPABILITIES: [&str; 4] =
    ["authentication_failure_close", "basic.nack", "connection.blocked", "publisher_confirms"];

/// The content of a frame that a server sends to a publisher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ServerFrame {
    /// The beginning of the handshake, with the mechanisms of the login, separated by spaces.
    Start(String),
    /// The largest frame in bytes; 0 for no limit.
    Tune(u32),
    /// The confirmation of a request: its class and number.
    Ok(u16, u16),
    /// The server has a message, and all before it if true.
    Ack(u64, bool),
    /// The server could not take a message, and all before it if true.
    Nack(u64, bool),
    /// No queue takes a mandatory message, with the reason. Its header and its body follow, and later its confirmation.
    Return(String),
    /// The header of a returned message, with its ID.
    ReturnedHeader(Option<String>),
    /// A part of the body of a returned message.
    ReturnedBody,
    /// The server accepts no messages for now, and says why.
    Blocked(String),
    /// The server accepts messages again.
    Unblocked,
    /// The server ends the connection or the channel.
    Close(AmqpCloseReason),
    /// A heartbeat, which only shows that the server is there.
    Heartbeat,
}

/// The reason for which a server ends a connection or a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AmqpCloseReason {
    /// True if the connection ends, false if only the channel ends.
    pub(super) is_connection: bool,
    /// The number of the reason.
    pub(super) code: u16,
    /// The reason in words.
    pub(super) text: String,
    /// True if a message is at fault.
    pub(super) is_of_message: bool,
}

/// A frame, without its beginning and end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    kind: u8,
    payload: Vec<u8>,
}

/// A message to publish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message<'a> {
    /// The name of the exchange that gets the message.
    pub(super) exchange: &'a str,
    /// The routing key.
    pub(super) key: &'a str,
    /// Routing keys besides the first (RabbitMQ's header `CC`). A queue that several keys match gets the message once.
    pub(super) more_keys: &'a [String],
    /// True if the server returns a message that no queue takes.
    pub(super) mandatory: bool,
    /// The ID of the message.
    pub(super) id: &'a str,
    /// The type of the message.
    pub(super) of: &'a str,
    /// The instant of the message, in seconds since 1970 UTC.
    pub(super) seconds: u64,
    /// The body, which is JSON.
    pub(super) body: &'a [u8],
}

/// Takes the first whole frame from received bytes; `None` if it is not there yet.
///
/// # Errors
/// If the bytes are not a frame, or one that is too long.
pub(super) fn take_frame(bytes: &mut Vec<u8>) -> Result<Option<Frame>, &'static str> {
    match bytes.first() {
        None => return Ok(None),
        Some(&(METHOD | CONTENT_HEADER | CONTENT_BODY | HEARTBEAT)) => {}
        // A server that does not speak this version answers with a header of its own.
        Some(b'A') => return Err("the server speaks another version of AMQP than 0-9-1"),
        Some(_) => return Err("the server does not speak AMQP 0-9-1; it may expect TLS, or not (amqps:// or amqp://)"),
    }
    let Some(&[kind, _, _, a, b, c, d]) = bytes.first_chunk::<7>() else { return Ok(None) };
    let len = u32::from_be_bytes([a, b, c, d]);
    if len > FRAME_MAX {
        return Err("the server sent a frame that is too long");
    }
    let whole = len as usize + FRAME_OVERHEAD;
    match bytes.get(whole - 1) {
        None => Ok(None),
        Some(&FRAME_END) => {
            let payload = bytes[7..whole - 1].to_vec();
            bytes.drain(..whole);
            Ok(Some(Frame { kind, payload }))
        }
        Some(_) => Err("the server sent a frame without its end"),
    }
}

impl Frame {
    /// Returns the content of the frame.
    ///
    /// # Errors
    /// If a publisher cannot expect such a frame, or it is malformed.
    pub(super) fn decode(&self) -> Result<ServerFrame, String> {
        match self.kind {
            METHOD => {
                let mut rest = &self.payload[..];
                let name = (take_u16(&mut rest), take_u16(&mut rest));
                let (Some(class), Some(number)) = name else { return Err("the server sent a cut-off method".into()) };
                method(class, number, rest)
                    .ok_or_else(|| format!("the server sent an unexpected or malformed method ({class}, {number})"))
            }
            CONTENT_HEADER => Ok(ServerFrame::ReturnedHeader(message_id(&self.payload))),
            CONTENT_BODY => Ok(ServerFrame::ReturnedBody),
            _ => Ok(ServerFrame::Heartbeat),
        }
    }
}

/// Returns a method with these arguments; `None` if a publisher cannot expect it, or an argument is missing.
fn method(class: u16, number: u16, mut rest: &[u8]) -> Option<ServerFrame> {
    let rest = &mut rest;
    Some(match (class, number) {
        (10, 10) => {
            // The version, and the properties of the server.
            take(rest, 2)?;
            take_long(rest)?;
            ServerFrame::Start(printable(take_long(rest)?))
        }
        (10, 30) => {
            // The most channels.
            take(rest, 2)?;
            ServerFrame::Tune(take_u32(rest)?)
        }
        (10, 41) | (20 | 40 | 85, 11) => ServerFrame::Ok(class, number),
        (10, 50) | (20, 40) => {
            let (code, text) = (take_u16(rest)?, printable(take_short(rest)?));
            let is_of_message = (take_u16(rest)?, take_u16(rest)?) == (BASIC, 40);
            ServerFrame::Close(AmqpCloseReason { is_connection: class == 10, code, text, is_of_message })
        }
        (10, 60) => ServerFrame::Blocked(printable(take_short(rest)?)),
        (10, 61) => ServerFrame::Unblocked,
        (BASIC, 50) => {
            let code = take_u16(rest)?;
            ServerFrame::Return(format!("{code} {}", printable(take_short(rest)?)))
        }
        (BASIC, 80 | 120) => {
            let tag = u64::from_be_bytes(*take(rest, 8)?.first_chunk()?);
            let multiple = take(rest, 1)?[0] & 1 == 1;
            if number == 80 { ServerFrame::Ack(tag, multiple) } else { ServerFrame::Nack(tag, multiple) }
        }
        _ => return None,
    })
}

/// Returns the ID of a message from its header; `None` if it has none.
fn message_id(mut header: &[u8]) -> Option<String> {
    let rest = &mut header;
    // The class, a reserved number and the length of the body.
    take(rest, 12)?;
    let flags = take_u16(rest)?;
    let has = |bit: u16| flags >> bit & 1 == 1;
    // The properties before the ID, in their order.
    for bit in (8..16).rev().filter(|bit| has(*bit)) {
        match bit {
            13 => _ = take_long(rest)?,
            11 | 12 => _ = take(rest, 1)?,
            _ => _ = take_short(rest)?,
        }
    }
    if has(7) { take_short(rest).map(printable) } else { None }
}

/// Returns the login with the mechanism PLAIN.
pub(super) fn start_ok(user: &str, password: &str) -> Vec<u8> {
    let mut capabilities = Vec::new();
    for name in CAPABILITIES {
        push_short(name, &mut capabilities);
        capabilities.extend_from_slice(b"t\x01");
    }
    let mut properties = Vec::new();
    let texts = [("product", "carom"), ("version", env!("CARGO_PKG_VERSION")), ("connection_name", "carom events")];
    for (name, text) in texts {
        push_short(name, &mut properties);
        properties.push(b'S');
        push_long(text.as_bytes(), &mut properties);
    }
    push_short("capabilities", &mut properties);
    properties.push(b'F');
    push_long(&capabilities, &mut properties);
    let mut arguments = Vec::new();
    push_long(&properties, &mut arguments);
    push_short("PLAIN", &mut arguments);
    push_long(format!("\0{user}\0{password}").as_bytes(), &mut arguments);
    push_short("en_US", &mut arguments);
    request(0, (10, 11), &arguments)
}

/// Returns the limits of the connection: one channel, and no heartbeats, since a sink speaks only when it has events.
/// Returns the largest frame as well, which is the server's if that is usual.
pub(super) fn tune_ok(frame_max: u32) -> (Vec<u8>, usize) {
    let frame_max = if frame_max == 0 { FRAME_MAX } else { frame_max.clamp(FRAME_MIN, FRAME_MAX) };
    let arguments = [&CHANNEL.to_be_bytes()[..], &frame_max.to_be_bytes(), &[0; 2]].concat();
    (request(0, (10, 31), &arguments), frame_max as usize)
}

/// Returns the request for a virtual host.
pub(super) fn open(vhost: &str) -> Vec<u8> {
    let mut arguments = Vec::new();
    push_short(vhost, &mut arguments);
    arguments.extend_from_slice(&[0; 2]);
    request(0, (10, 40), &arguments)
}

/// Returns the requests for the channel, for the durable exchange of topics, and for confirms, each with the name of
/// its confirmation.
pub(super) fn open_channel(exchange: &str) -> [(Vec<u8>, (u16, u16)); 3] {
    const DURABLE: u8 = 2;
    let mut arguments = vec![0; 2];
    push_short(exchange, &mut arguments);
    push_short("topic", &mut arguments);
    arguments.push(DURABLE);
    push_long(&[], &mut arguments);
    [
        (request(CHANNEL, (20, 10), &[0]), (20, 11)),
        (request(CHANNEL, (40, 10), &arguments), (40, 11)),
        (request(CHANNEL, (85, 10), &[0]), (85, 11)),
    ]
}

/// Returns the end of the connection.
pub(super) fn close() -> Vec<u8> {
    const DONE: u16 = 200;
    let mut arguments = DONE.to_be_bytes().to_vec();
    push_short("done", &mut arguments);
    arguments.extend_from_slice(&[0; 4]);
    request(0, (10, 50), &arguments)
}

/// Returns the answer to a server that ends the connection or the channel.
pub(super) fn close_ok(is_connection: bool) -> Vec<u8> {
    if is_connection { request(0, (10, 51), &[]) } else { request(CHANNEL, (20, 41), &[]) }
}

/// Appends a message that the server keeps on disk, in frames of at most `frame_max` bytes.
pub(super) fn publish(message: &Message<'_>, frame_max: usize, into: &mut Vec<u8>) {
    assert!(frame_max > FRAME_OVERHEAD, "no frame could hold a part of a body");
    let mut arguments = vec![0; 2];
    push_short(message.exchange, &mut arguments);
    push_short(message.key, &mut arguments);
    arguments.push(u8::from(message.mandatory));
    into.extend_from_slice(&request(CHANNEL, (BASIC, 40), &arguments));
    let mut head = Vec::new();
    head.extend_from_slice(&BASIC.to_be_bytes());
    head.extend_from_slice(&[0; 2]);
    head.extend_from_slice(&(message.body.len() as u64).to_be_bytes());
    // Content type, headers, delivery mode, message ID, timestamp, type and application.
    let flags: u16 = 1 << 15 | 1 << 13 | 1 << 12 | 1 << 7 | 1 << 6 | 1 << 5 | 1 << 3;
    head.extend_from_slice(&flags.to_be_bytes());
    push_short("application/json", &mut head);
    push_long(&headers(message.more_keys), &mut head);
    head.push(2);
    push_short(message.id, &mut head);
    head.extend_from_slice(&message.seconds.to_be_bytes());
    push_short(message.of, &mut head);
    push_short("carom", &mut head);
    push_frame(CONTENT_HEADER, CHANNEL, &head, into);
    for piece in message.body.chunks(frame_max - FRAME_OVERHEAD) {
        push_frame(CONTENT_BODY, CHANNEL, piece, into);
    }
}

/// Returns the table of headers with further routing keys.
fn headers(more_keys: &[String]) -> Vec<u8> {
    let (mut keys, mut table) = (Vec::new(), Vec::new());
    for key in more_keys {
        keys.push(b'S');
        push_long(key.as_bytes(), &mut keys);
    }
    if !keys.is_empty() {
        push_short("CC", &mut table);
        table.push(b'A');
        push_long(&keys, &mut table);
    }
    table
}

fn request(channel: u16, (class, number): (u16, u16), arguments: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let payload = [&class.to_be_bytes()[..], &number.to_be_bytes(), arguments].concat();
    push_frame(METHOD, channel, &payload, &mut out);
    out
}

fn push_frame(kind: u8, channel: u16, payload: &[u8], into: &mut Vec<u8>) {
    into.push(kind);
    into.extend_from_slice(&channel.to_be_bytes());
    push_long(payload, into);
    into.push(FRAME_END);
}

/// Appends a short text.
///
/// # Panics
/// If it is too long. The settings bound the names of users, and all other texts are short.
fn push_short(text: &str, into: &mut Vec<u8>) {
    assert!(text.len() <= SHORT_TEXT_MAX, "the server would take the rest of the text for other arguments");
    into.push(text.len() as u8);
    into.extend_from_slice(text.as_bytes());
}

/// Appends a long text, an encoded table, or the payload of a frame.
fn push_long(bytes: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(&u32::try_from(bytes.len()).expect("events are shorter than 4 GiB").to_be_bytes());
    into.extend_from_slice(bytes);
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (bytes, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(bytes)
}

fn take_u16(rest: &mut &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*take(rest, 2)?.first_chunk()?))
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*take(rest, 4)?.first_chunk()?))
}

fn take_short<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take(rest, 1)?[0];
    take(rest, usize::from(len))
}

fn take_long<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take_u32(rest)?;
    take(rest, len as usize)
}

/// Returns a text of a server for alarms and the log.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MESSAGE: Message<'_> = Message {
        exchange: "e",
        key: "k",
        more_keys: &[],
        mandatory: false,
        id: "5f-1",
        of: "t",
        seconds: 1,
        body: b"{}",
    };

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_frame(METHOD, 0, payload, &mut bytes);
        bytes
    }

    fn published(message: &Message<'_>, frame_max: usize) -> Vec<Frame> {
        let mut bytes = Vec::new();
        publish(message, frame_max, &mut bytes);
        let frames = std::iter::from_fn(|| take_frame(&mut bytes).unwrap()).collect();
        assert!(bytes.is_empty());
        frames
    }

    fn read(payload: &[u8]) -> Result<ServerFrame, String> {
        Frame { kind: METHOD, payload: payload.to_vec() }.decode()
    }

    #[test]
    fn frames_are_taken_whole() {
        let mut bytes = [frame(b"one"), frame(b"two")].concat();
        let rest = bytes.split_off(15);
        assert_eq!(take_frame(&mut bytes).unwrap().unwrap().payload, b"one");
        assert_eq!(take_frame(&mut bytes), Ok(None));
        bytes.extend(rest);
        assert_eq!(take_frame(&mut bytes).unwrap().unwrap().payload, b"two");
    }

    #[test]
    fn other_protocols_are_noticed_at_once() {
        let tls_alert = [21, 3, 3, 0, 2];
        for wrong in
            [HEADER, b"HTTP/1.1 400 Bad\r\n", b"A", &tls_alert, &[1, 0, 0, 0, 0, 0, 1, 7, 8], &[1, 0, 0, 1, 0, 0, 0]]
        {
            // The last one says that its frame is as long as 16 MiB.
            assert!(take_frame(&mut wrong.to_vec()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn methods_are_read() {
        assert_eq!(read(&[0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 7, 1]), Ok(ServerFrame::Ack(7, true)));
        assert_eq!(read(&[0, 60, 0, 120, 0, 0, 0, 0, 0, 0, 0, 7, 0]), Ok(ServerFrame::Nack(7, false)));
        assert_eq!(read(&[0, 85, 0, 11]), Ok(ServerFrame::Ok(85, 11)));
        assert_eq!(read(&[0, 10, 0, 30, 7, 255, 0, 2, 0, 0, 0, 60]), Ok(ServerFrame::Tune(131_072)));
        let close = [&[0, 20, 0, 40, 1, 150][..], &[7], b"no\ngood", &[0, 60, 0, 40]].concat();
        let reason =
            AmqpCloseReason { is_connection: false, code: 406, text: "no good".to_owned(), is_of_message: true };
        assert_eq!(read(&close), Ok(ServerFrame::Close(reason)));
        let start = [&[0, 10, 0, 10, 0, 9][..], &[0; 4], &[0, 0, 0, 5], b"PLAIN", &[0, 0, 0, 0]].concat();
        assert_eq!(read(&start), Ok(ServerFrame::Start("PLAIN".to_owned())));
        assert_eq!(read(&[0, 10, 0, 60, 3, b'l', b'o', b'w']), Ok(ServerFrame::Blocked("low".to_owned())));
        let returned = [&[0, 60, 0, 50, 1, 56, 8][..], b"NO_ROUTE", &[1, b'e', 1, b'k']].concat();
        assert_eq!(read(&returned), Ok(ServerFrame::Return("312 NO_ROUTE".to_owned())));
        // Cut off, and nothing that a publisher has asked for.
        for wrong in [&[0, 60, 0, 80, 0][..], &[0, 10, 0, 10], &[0, 50, 0, 11], &[0], &[]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn long_bodies_take_several_frames() {
        let body = vec![b'x'; 10_000];
        let (_, frame_max) = tune_ok(FRAME_MIN);
        let frames = published(&Message { body: &body, ..MESSAGE }, frame_max);
        let lens: Vec<(u8, usize)> = frames.iter().map(|frame| (frame.kind, frame.payload.len())).collect();
        assert_eq!(lens[2..], [(3, 4_088), (3, 4_088), (3, 1_824)]);
        assert_eq!((lens[0].0, lens[1].0), (METHOD, CONTENT_HEADER));
        // A server without a limit, and one with a useless limit.
        assert_eq!((tune_ok(0).1, tune_ok(7).1, tune_ok(u32::MAX).1), (131_072, 4_096, 131_072));
    }

    #[test]
    fn returned_messages_are_known_by_their_id() {
        let keys = ["https://shlink.io/new-visit".to_owned()];
        let with_keys = Message { more_keys: &keys, mandatory: true, ..MESSAGE };
        for message in [MESSAGE, with_keys] {
            let frames = published(&message, FRAME_MAX as usize);
            let decoded = frames[1].decode();
            assert_eq!(decoded, Ok(ServerFrame::ReturnedHeader(Some("5f-1".to_owned()))));
            assert_eq!(frames[2].decode(), Ok(ServerFrame::ReturnedBody));
            assert_eq!(frames[0].payload.last(), Some(&u8::from(message.mandatory)));
        }
        let table = headers(&keys);
        assert_eq!(&table[..4], b"\x02CCA");
        assert_eq!(table.len(), 4 + 4 + 5 + keys[0].len());
        assert!(headers(&[]).is_empty());
    }

    #[test]
    fn login_is_that_of_the_standard() {
        let login = start_ok("me", "secret");
        let response = [&[0, 0, 0, 10][..], b"\0me\0secret", &[5], b"en_US", &[FRAME_END]].concat();
        assert!(login.ends_with(&response));
        let capability = [&[28][..], b"authentication_failure_close", b"t\x01"].concat();
        assert!(login.windows(capability.len()).any(|part| part == capability));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(
            kind in prop_oneof![Just(METHOD), Just(CONTENT_HEADER), Just(HEARTBEAT), any::<u8>()],
            class in prop_oneof![Just(10_u16), Just(20), Just(40), Just(60), Just(85), any::<u16>()],
            number in prop_oneof![0_u16..130, any::<u16>()],
            arguments in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let payload = [&class.to_be_bytes()[..], &number.to_be_bytes(), &arguments].concat();
            let _ = Frame { kind, payload }.decode();
            let _ = Frame { kind, payload: arguments.clone() }.decode();
            let mut bytes = arguments;
            let len = bytes.len();
            // Each frame takes some bytes, so reading ends.
            while let Ok(Some(_)) = take_frame(&mut bytes) {}
            prop_assert!(bytes.len() <= len);
        }

        #[test]
        fn frames_may_come_in_pieces(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..6),
            step in 1_usize..40,
        ) {
            let sent: Vec<u8> = payloads.iter().flat_map(|payload| frame(payload)).collect();
            let (mut received, mut taken) = (Vec::new(), Vec::new());
            for piece in sent.chunks(step) {
                received.extend_from_slice(piece);
                while let Some(frame) = take_frame(&mut received).unwrap() {
                    taken.push(frame.payload);
                }
            }
            prop_assert_eq!(taken, payloads);
            prop_assert!(received.is_empty());
        }

        #[test]
        fn messages_are_split_without_loss(
            body in proptest::collection::vec(any::<u8>(), 1..20_000), frame_max in 4_096_usize..9_000,
        ) {
            let frames = published(&Message { body: &body, ..MESSAGE }, frame_max);
            let parts: Vec<u8> = frames[2..].iter().flat_map(|frame| frame.payload.clone()).collect();
            prop_assert_eq!(parts, body);
            prop_assert!(frames.iter().all(|frame| frame.payload.len() + FRAME_OVERHEAD <= frame_max));
        }
    }
}
