//! The part of AMQP 0-9-1 that a publisher with confirms needs: bytes in, bytes out. No socket, no clock.

/// The first bytes of a connection.
pub(super) const HEADER: &[u8] = b"AMQP\0\0\x09\x01";

/// The channel of all messages.
const CHANNEL: u16 = 1;

/// Bytes of a frame besides its payload.
const FRAME_OVERHEAD: usize = 8;

/// The last byte of a frame.
const FRAME_END: u8 = 0xce;

/// Largest frame that is accepted, in bytes: what servers offer by default.
pub(super) const FRAME_MAX: u32 = 131_072;

/// Smallest frame size that a server may ask for, by the standard.
const FRAME_MIN: u32 = 4_096;

/// A method that a server sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Method {
    /// The beginning of the handshake, with the mechanisms of the login.
    Start(String),
    /// The limits of the connection.
    Tune {
        /// Most channels; 0 for no limit.
        channels: u16,
        /// Largest frame in bytes; 0 for no limit.
        frame_max: u32,
    },
    /// The confirmation of a request: its class and number.
    Ok(u16, u16),
    /// The server has a message, and all before it if true.
    Ack(u64, bool),
    /// The server could not take a message, and all before it if true.
    Nack(u64, bool),
    /// The server ends the channel or the connection, and says why.
    Close(String),
}

/// A frame, without its beginning and end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    kind: u8,
    payload: Vec<u8>,
}

/// What a message is about, besides its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message<'a> {
    /// The exchange.
    pub(super) exchange: &'a str,
    /// The routing key.
    pub(super) key: &'a str,
    /// The ID of the message.
    pub(super) id: &'a str,
    /// The type of the message.
    pub(super) of: &'a str,
    /// The instant of the message, in seconds since 1970 UTC.
    pub(super) seconds: u64,
    /// The body, which is JSON.
    pub(super) body: &'a [u8],
}

/// Takes the first whole frame from received bytes; `None` if there is none yet.
///
/// # Errors
/// If the bytes are no frame, or one that is too long.
pub(super) fn take_frame(bytes: &mut Vec<u8>) -> Result<Option<Frame>, &'static str> {
    let Some(&[kind, _, _, a, b, c, d]) = bytes.first_chunk::<7>() else { return Ok(None) };
    // A server that does not speak this version answers with its own header.
    if bytes.starts_with(b"AMQP") {
        return Err("the server speaks another version of AMQP");
    }
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
        Some(_) => Err("the server does not speak AMQP"),
    }
}

impl Frame {
    /// Returns the method of the frame; `None` for a heartbeat or a method that a publisher does not need.
    pub(super) fn method(&self) -> Option<Method> {
        if self.kind != 1 {
            return None;
        }
        let mut rest = &self.payload[..];
        let (class, number) = (take_u16(&mut rest)?, take_u16(&mut rest)?);
        Some(match (class, number) {
            (10, 10) => {
                rest = rest.get(2..)?;
                take_long(&mut rest)?;
                Method::Start(String::from_utf8_lossy(take_long(&mut rest)?).into_owned())
            }
            (10, 30) => Method::Tune { channels: take_u16(&mut rest)?, frame_max: take_u32(&mut rest)? },
            (10 | 20, 11) | (10, 41) | (40 | 85, 11) => Method::Ok(class, number),
            (60, 80 | 120) => {
                let tag = u64::from_be_bytes(*rest.first_chunk()?);
                let multiple = rest.get(8)? & 1 == 1;
                if number == 80 { Method::Ack(tag, multiple) } else { Method::Nack(tag, multiple) }
            }
            (10, 50) | (20, 40) => {
                let code = take_u16(&mut rest)?;
                let len = usize::from(*rest.first()?);
                let text = String::from_utf8_lossy(rest.get(1..=len)?).into_owned();
                Method::Close(format!("{code} {text}"))
            }
            _ => return None,
        })
    }
}

/// Returns the login.
pub(super) fn start_ok(user: &str, password: &str) -> Vec<u8> {
    let mut arguments = Vec::new();
    // No properties of the client.
    push_long(&[], &mut arguments);
    push_short("PLAIN", &mut arguments);
    push_long(format!("\0{user}\0{password}").as_bytes(), &mut arguments);
    push_short("en_US", &mut arguments);
    method(0, (10, 11), &arguments)
}

/// Returns the limits of the connection, without heartbeats: a connection is in use or about to be replaced. Returns
/// the largest frame as well.
pub(super) fn tune_ok(channels: u16, frame_max: u32) -> (Vec<u8>, u32) {
    let frame_max = if frame_max == 0 { FRAME_MAX } else { frame_max.clamp(FRAME_MIN, FRAME_MAX) };
    let arguments = [&channels.to_be_bytes()[..], &frame_max.to_be_bytes(), &[0; 2]].concat();
    (method(0, (10, 31), &arguments), frame_max)
}

/// Returns the request for a virtual host.
pub(super) fn open(vhost: &str) -> Vec<u8> {
    let mut arguments = Vec::new();
    push_short(vhost, &mut arguments);
    arguments.extend_from_slice(&[0; 2]);
    method(0, (10, 40), &arguments)
}

/// Returns the requests for the channel, for the exchange of topics, and for confirms.
pub(super) fn open_channel(exchange: &str) -> [Vec<u8>; 3] {
    const DURABLE: u8 = 2;
    let mut arguments = vec![0; 2];
    push_short(exchange, &mut arguments);
    push_short("topic", &mut arguments);
    arguments.push(DURABLE);
    push_long(&[], &mut arguments);
    [method(CHANNEL, (20, 10), &[0]), method(CHANNEL, (40, 10), &arguments), method(CHANNEL, (85, 10), &[0])]
}

/// Appends a message that the server keeps on disk.
pub(super) fn publish(message: &Message<'_>, frame_max: u32, into: &mut Vec<u8>) {
    let mut arguments = vec![0; 2];
    push_short(message.exchange, &mut arguments);
    push_short(message.key, &mut arguments);
    arguments.push(0);
    into.extend_from_slice(&method(CHANNEL, (60, 40), &arguments));
    let mut head = Vec::new();
    head.extend_from_slice(&60_u16.to_be_bytes());
    head.extend_from_slice(&[0; 2]);
    head.extend_from_slice(&(message.body.len() as u64).to_be_bytes());
    // Content type, delivery mode, message ID, timestamp and type.
    head.extend_from_slice(&(1_u16 << 15 | 1 << 12 | 1 << 7 | 1 << 6 | 1 << 5).to_be_bytes());
    push_short("application/json", &mut head);
    head.push(2);
    push_short(message.id, &mut head);
    head.extend_from_slice(&message.seconds.to_be_bytes());
    push_short(message.of, &mut head);
    push_frame(2, CHANNEL, &head, into);
    for piece in message.body.chunks(frame_max as usize - FRAME_OVERHEAD) {
        push_frame(3, CHANNEL, piece, into);
    }
}

fn method(channel: u16, (class, number): (u16, u16), arguments: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let payload = [&class.to_be_bytes()[..], &number.to_be_bytes(), arguments].concat();
    push_frame(1, channel, &payload, &mut out);
    out
}

fn push_frame(kind: u8, channel: u16, payload: &[u8], into: &mut Vec<u8>) {
    into.push(kind);
    into.extend_from_slice(&channel.to_be_bytes());
    into.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    into.extend_from_slice(payload);
    into.push(FRAME_END);
}

/// Appends a text of up to 255 bytes. A longer one is cut.
fn push_short(text: &str, into: &mut Vec<u8>) {
    let text = &text.as_bytes()[..text.len().min(255)];
    into.push(text.len() as u8);
    into.extend_from_slice(text);
}

/// Appends a long text, or an encoded table.
fn push_long(bytes: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    into.extend_from_slice(bytes);
}

fn take_u16(rest: &mut &[u8]) -> Option<u16> {
    let (bytes, behind) = rest.split_first_chunk::<2>()?;
    *rest = behind;
    Some(u16::from_be_bytes(*bytes))
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (bytes, behind) = rest.split_first_chunk::<4>()?;
    *rest = behind;
    Some(u32::from_be_bytes(*bytes))
}

fn take_long<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take_u32(rest)? as usize;
    let (bytes, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_frame(1, 0, payload, &mut bytes);
        bytes
    }

    #[test]
    fn frames_are_taken_whole() {
        let mut bytes = [frame(b"one"), frame(b"two")].concat();
        let rest = bytes.split_off(15);
        assert_eq!(take_frame(&mut bytes).unwrap().unwrap().payload, b"one");
        assert_eq!(take_frame(&mut bytes), Ok(None));
        bytes.extend(rest);
        assert_eq!(take_frame(&mut bytes).unwrap().unwrap().payload, b"two");
        assert!(take_frame(&mut b"AMQP\0\0\x09\x01".to_vec()).is_err());
        assert!(take_frame(&mut b"HTTP/1.1 400 Bad\r\n".to_vec()).is_err());
        assert!(take_frame(&mut [1, 0, 0, 0, 0, 0, 1, 7, 8].to_vec()).is_err());
    }

    #[test]
    fn methods_are_read() {
        let read = |payload: &[u8]| Frame { kind: 1, payload: payload.to_vec() }.method();
        assert_eq!(read(&[0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 7, 1]), Some(Method::Ack(7, true)));
        assert_eq!(read(&[0, 60, 0, 120, 0, 0, 0, 0, 0, 0, 0, 7, 0]), Some(Method::Nack(7, false)));
        assert_eq!(read(&[0, 85, 0, 11]), Some(Method::Ok(85, 11)));
        assert_eq!(
            read(&[0, 10, 0, 30, 7, 255, 0, 2, 0, 0, 0, 60]),
            Some(Method::Tune { channels: 2_047, frame_max: 131_072 })
        );
        let close = [&[0, 10, 0, 50, 1, 147][..], &[6], b"denied", &[0; 4]].concat();
        assert_eq!(read(&close), Some(Method::Close("403 denied".to_owned())));
        let start = [&[0, 10, 0, 10, 0, 9][..], &[0; 4], &[0, 0, 0, 5], b"PLAIN", &[0, 0, 0, 0]].concat();
        assert_eq!(read(&start), Some(Method::Start("PLAIN".to_owned())));
    }

    #[test]
    fn long_bodies_take_several_frames() {
        let body = vec![b'x'; 10_000];
        let message = Message { exchange: "e", key: "k", id: "1", of: "t", seconds: 1, body: &body };
        let mut bytes = Vec::new();
        publish(&message, FRAME_MIN, &mut bytes);
        let mut lens = Vec::new();
        while let Some(frame) = take_frame(&mut bytes).unwrap() {
            lens.push((frame.kind, frame.payload.len()));
        }
        assert_eq!(lens[2..], [(3, 4_088), (3, 4_088), (3, 1_824)]);
        assert!(bytes.is_empty() && lens[0].0 == 1 && lens[1].0 == 2);
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Frame { kind: 1, payload: bytes.clone() }.method();
            let _ = take_frame(&mut bytes);
        }
    }
}
