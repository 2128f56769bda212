//! Properties that hold for any bytes. The fuzz targets beside this file check them, and `tests/replay.rs` runs
//! them over the committed seeds and their mutations without a fuzzer.
#![allow(dead_code, reason = "each fuzz target uses one of these")]

use std::io::Write;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use carom_http::head::{self, HeadScan};
use carom_http::tls::{ReceiveState, TlsSession};
use carom_http::{Action, Bounds, Connection, RedirectRequest, Rejection};
use carom_limits::HEAD_LEN_MAX;
use carom_model::link::record::{self, RecordRef};
use carom_shards::{Code, GeneratedCode};
use carom_tls::identity::{Pair, Tickets, TlsIdentity};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Checks heads: neither the pieces of the input nor the number of passes affect a head, and an accepted head is sound.
pub(crate) fn check_head(input: &[u8]) {
    let whole = HeadScan::default().find_end(input, HEAD_LEN_MAX);
    let mut scan = HeadScan::default();
    let piecewise = (1..=input.len()).find_map(|len| match scan.find_end(&input[..len], HEAD_LEN_MAX) {
        Ok(None) => None,
        found => Some(found),
    });
    // Fewer bytes may cause the same rejection earlier, and no other outcome.
    match (whole, piecewise) {
        (Ok(Some(end)), found) => assert_eq!(found, Some(Ok(Some(end)))),
        (Ok(None), found) => assert_eq!(found, None),
        (Err(_), found) => assert!(matches!(found, Some(Err(_))), "{found:?}"),
    }
    // One pass over the bytes finds and parses the same head.
    let parsed = whole.and_then(|end| end.map(|end| head::parse(&input[..end]).map(|head| (head, end))).transpose());
    assert_eq!(HeadScan::default().parse(input, HEAD_LEN_MAX), parsed);
    if let Ok(Some(end)) = whole
        && let Ok(head) = head::parse(&input[..end])
    {
        assert!(head.target.iter().all(u8::is_ascii_graphic));
        assert!(head.is_http11 || head.body != head::Body::Chunked);
    }
}

/// An action of a connection in response to a stream.
#[derive(PartialEq, Eq, Debug)]
enum ConnectionAction {
    Asked(RedirectRequest),
    HandedOver,
    Passed(Vec<u8>),
    Rejected(Rejection),
    From(Option<IpAddr>),
    HungUp,
}

/// Checks connections: a stream causes the same actions as a whole and in the pieces that its first bytes choose.
pub(crate) fn check_connection(input: &[u8]) {
    let (cuts, stream) = input.split_at(input.len().min(4));
    // A body of any length is a mode of its own.
    let bounds =
        Bounds { stream_paths: &["/rest/v3/short-urls/bulk", "/rest/v3/short-urls/bulk/changes"], ..Bounds::default() };
    for begin in [Connection::for_redirects(), Connection::proxied()] {
        check_pieces(begin.within(bounds), cuts, stream);
    }
}

fn check_pieces(begin: Connection, cuts: &[u8], stream: &[u8]) {
    let whole = drive(begin, [stream].into_iter());
    let mut pieces = Vec::new();
    let mut rest = stream;
    for &cut in cuts.iter().cycle().take(if cuts.is_empty() { 0 } else { 64 }) {
        let (piece, behind) = rest.split_at((usize::from(cut) + 1).min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces.push(rest);
    assert_eq!(drive(begin, pieces.into_iter()), whole);
    assert_eq!(drive(begin, stream.chunks(1)), whole);
}

fn drive<'a>(mut connection: Connection, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<ConnectionAction> {
    let mut unconsumed = Vec::new();
    let mut seen = Vec::new();
    for piece in pieces {
        unconsumed.extend_from_slice(piece);
        loop {
            let step = connection.step(&unconsumed);
            let mut taken: Vec<u8> = unconsumed.drain(..step.consumed).collect();
            match step.action {
                Action::Read => break,
                Action::Lookup(ask) => seen.push(ConnectionAction::Asked(ask)),
                Action::HandOver => seen.push(ConnectionAction::HandedOver),
                action @ (Action::Pass | Action::PassAsHttp11 { .. }) => {
                    if let Action::PassAsHttp11 { minor } = action {
                        assert!(taken[..=minor].ends_with(&[b"HTTP/1.", &taken[minor..=minor]].concat()));
                        taken[minor] = b'1';
                    }
                    match seen.last_mut() {
                        Some(ConnectionAction::Passed(bytes)) => bytes.extend(taken),
                        _ => seen.push(ConnectionAction::Passed(taken)),
                    }
                }
                Action::Reject(rejection) => {
                    seen.push(ConnectionAction::Rejected(rejection));
                    return seen;
                }
                Action::From(client) => seen.push(ConnectionAction::From(client)),
                Action::HangUp => {
                    seen.push(ConnectionAction::HungUp);
                    return seen;
                }
            }
        }
    }
    seen
}

/// Checks records: the decoder never panics, and it accepts the encoding of each record that it has decoded.
pub(crate) fn check_record(input: &[u8]) {
    // The record belongs to the default domain, or to another one, whose key is longer.
    let len = if input.first().is_some_and(|first| first % 2 == 1) { 16 } else { 7 };
    let (key, value) = input.split_at(input.len().min(len));
    if let (Ok(RecordRef::Link(link)), Ok(code)) = (record::decode(key, value), Code::from_key(key)) {
        let mut again = Vec::new();
        record::encode_link(key, &link.to_link(code), &mut again);
        assert_eq!(record::decode(key, &again), Ok(RecordRef::Link(link)));
    }
}

/// Checks codes: parsing never panics, and an accepted code is formatted as its input.
pub(crate) fn check_code(input: &[u8]) {
    if let Ok(code) = Code::parse(input) {
        assert_eq!(code.to_string().as_bytes(), input);
        assert_eq!(Code::from_packed(code.sextets(), code.packed()), Some(code));
    }
    if let Ok(code) = Code::from_slug(input) {
        assert_eq!(code.as_slug().to_string().as_bytes(), input);
        assert_eq!(Code::from_packed(code.sextets(), code.packed()), Some(code));
    }
    if let Ok(code) = Code::from_key(input) {
        assert_eq!(code.to_string().as_bytes(), input);
        assert_eq!(code.within(None).within(code.domain()), code);
    }
    if let Some(bits) = input.first_chunk::<8>()
        && let Some(code) = GeneratedCode::from_bits(u64::from_le_bytes(*bits))
    {
        assert_eq!(Code::parse(code.to_code().to_string().as_bytes()), Ok(code.to_code()));
    }
}

/// Checks TLS sessions. The pieces of the input do not affect whether it is accepted, and input that is not TLS
/// yields no plaintext. Sealed bytes are opened unchanged, and bytes that were changed on the way are refused.
pub(crate) fn check_tls(input: &[u8]) {
    let (identity, terms) = both();
    let mut whole = TlsSession::new(identity).expect("memory");
    let heard = receive(&mut whole, input.chunks(input.len().max(1)));
    let mut piecewise = TlsSession::new(identity).expect("memory");
    assert_eq!(receive(&mut piecewise, input.chunks(1)), heard);
    assert!(heard.1.is_empty(), "nobody has agreed on a key");

    let [cut, at, flip, message @ ..] = input else { return };
    let (mut client, mut session) = agreed(identity, terms);
    client.writer().write_all(message).expect("a buffer of memory");
    let mut sealed = written(&mut client);
    // The first five bytes of a record are its head, whose version both sides ignore.
    let harmed_at = 5 + usize::from(*at);
    let is_harmed = *flip != 0 && harmed_at < sealed.len();
    if is_harmed {
        sealed[harmed_at] ^= flip;
    }
    let (heard, plain) = receive(&mut session, sealed.chunks(usize::from(*cut) + 1));
    if is_harmed {
        assert!(heard == ReceiveState::Broken);
        assert!(plain.len() < message.len());
        assert!(message.starts_with(&plain));
    } else {
        assert!(heard == ReceiveState::Open);
        assert!(plain == message);
        assert!(!session.has_part());
    }
}

/// Feeds bytes to a session until it refuses more. Returns its state and the plaintext.
fn receive<'a>(session: &mut TlsSession, pieces: impl Iterator<Item = &'a [u8]>) -> (ReceiveState, Vec<u8>) {
    let mut plain = Vec::new();
    for piece in pieces {
        match session.receive(piece, &mut plain) {
            ReceiveState::Open => {}
            heard => return (heard, plain),
        }
    }
    (ReceiveState::Open, plain)
}

/// Returns the bytes that a client wants to send.
fn written(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("a buffer of memory");
    }
    bytes
}

/// Returns a client and a service after their handshake.
fn agreed(identity: &TlsIdentity, terms: &Arc<ClientConfig>) -> (ClientConnection, TlsSession) {
    let name = ServerName::try_from("go.example").expect("a name");
    let mut client = ClientConnection::new(Arc::clone(terms), name).expect("terms that are possible");
    let mut session = TlsSession::new(identity).expect("memory");
    while client.is_handshaking() || session.is_handshaking() {
        assert_eq!(receive(&mut session, [&written(&mut client)[..]].into_iter()), (ReceiveState::Open, Vec::new()));
        let mut sealed = Vec::new();
        session.seal(&[], false, &mut sealed);
        let mut rest = &sealed[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("a buffer of memory");
            client.process_new_packets().expect("what a service says is understood");
        }
    }
    (client, session)
}

/// Returns the identity of a service, and the settings of clients that trust it. Created once, because each key is
/// random.
fn both() -> &'static (TlsIdentity, Arc<ClientConfig>) {
    static BOTH: OnceLock<(TlsIdentity, Arc<ClientConfig>)> = OnceLock::new();
    BOTH.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(["go.example".to_owned()]).expect("a key");
        let pair =
            Pair { certificates: made.cert.pem().into_bytes(), key: made.signing_key.serialize_pem().into_bytes() };
        let tickets = Tickets::new().expect("random bytes");
        let identity = TlsIdentity::new(&[pair], &tickets, true).expect("a pair that fits");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a certificate");
        let terms = ClientConfig::builder_with_provider(carom_tls::provider())
            .with_safe_default_protocol_versions()
            .expect("the provider can do both versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        (identity, Arc::new(terms))
    })
}
