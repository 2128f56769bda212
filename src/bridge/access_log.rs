//! The access log between cores and its writer: entries in a ring of bytes, which a core fills without waiting.
//!
//! One service thread drains the rings. If a ring is full, the entry is dropped and counted, and the request proceeds.
//! Without an access log, each request only checks an `Option`.
//!
//! `carom_settings::access_log::terms` defines what an operator can choose, and `services::access_log::line` the text
//! of an entry. The writer is `services::access_log`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::byte_ring::{FrameReceiver, FrameSender, byte_ring};
use carom_model::visits::host_of;

/// Size of the ring of a core, in bytes: some ten thousand requests. The writer drains it up to fifty times a second.
const RING_LEN: usize = 2 << 20;

/// Longest text of an entry, in bytes. Longer texts are cut.
const TEXT_LEN_MAX: usize = 255;

/// Bytes of an entry before its texts.
const FIXED_LEN: usize = 2 + 8 + 4 + 2 + 1 + 1 + 16 + TEXTS;

/// Number of texts in an entry.
const TEXTS: usize = 5;

/// Longest entry in the ring, in bytes.
pub const ENTRY_LEN_MAX: usize = FIXED_LEN + TEXTS * TEXT_LEN_MAX;

/// Offset of the instant, the latency and the status, which are known last.
const OUTCOME_AT: usize = 2;

/// Flag of an entry whose connection is encrypted. The bits below it are the protocol.
const SECURE: u8 = 1 << 7;

/// The HTTP version of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// No version that the server understands.
    #[default]
    Unknown,
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
}

impl Protocol {
    const ALL: [Protocol; 4] = [Protocol::Unknown, Protocol::Http10, Protocol::Http11, Protocol::Http2];

    /// Returns the spelling in a log.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Unknown => "-",
            Protocol::Http10 => "HTTP/1.0",
            Protocol::Http11 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2.0",
        }
    }
}

/// The logged properties of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request<'a> {
    /// The address of the client, if known.
    pub address: Option<IpAddr>,
    /// True if the connection is encrypted.
    pub is_secure: bool,
    /// The HTTP version of the request.
    pub protocol: Protocol,
    /// The method, such as `GET`.
    pub method: &'a [u8],
    /// The host that the request named.
    pub host: &'a [u8],
    /// The requested path, without a query.
    pub path: &'a [u8],
    /// The host of the `Referer` field, in upper or lower case.
    pub referrer: &'a [u8],
    /// The `User-Agent` of the client.
    pub agent: &'a [u8],
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestOutcome {
    /// The instant of the response, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// The latency, in microseconds.
    pub micros: u32,
    /// The status of the response.
    pub status: u16,
}

/// A request and its outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AccessEntry<'a> {
    /// The logged properties of the request.
    pub request: Request<'a>,
    /// The outcome of the request.
    pub outcome: RequestOutcome,
}

impl<'a> Request<'a> {
    /// Builds a request without a body from its head, which holds at least a whole request line of HTTP/1.
    pub fn from_head(head: &'a [u8], host: &'a [u8], referer: &'a [u8], agent: &'a [u8]) -> Request<'a> {
        let start = head.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(head.len());
        let line = &head[start..];
        let line = &line[..memchr::memchr(b'\n', line).unwrap_or(line.len())];
        let mut words = line.trim_ascii_end().split(|&byte| byte == b' ');
        let mut word = || words.next().unwrap_or_default();
        let (method, target, version) = (word(), word(), word());
        let protocol = match version {
            b"HTTP/1.1" => Protocol::Http11,
            b"HTTP/1.0" => Protocol::Http10,
            _ => Protocol::Unknown,
        };
        let path = path_of(&target[..memchr::memchr2(b'?', b'#', target).unwrap_or(target.len())]);
        Request { protocol, method, host, path, referrer: host_of(referer), agent, ..Request::default() }
    }

    fn texts(&self) -> [&'a [u8]; TEXTS] {
        // A user name, and perhaps a password, precedes an @.
        let host = self.host.rsplit(|&byte| byte == b'@').next().unwrap_or_default();
        [self.method, host, self.path, self.referrer, self.agent].map(|text| text.get(..TEXT_LEN_MAX).unwrap_or(text))
    }

    /// Writes the request in the form of the ring, without an outcome. Returns its length in bytes.
    fn write(&self, into: &mut [u8; ENTRY_LEN_MAX]) -> usize {
        let texts = self.texts();
        let (kind, address) = match self.address.map(|address| address.to_canonical()) {
            None => (0, [0; 16]),
            Some(IpAddr::V4(address)) => (4, address.to_ipv6_mapped().octets()),
            Some(IpAddr::V6(address)) => (6, address.octets()),
        };
        let secure = if self.is_secure { SECURE } else { 0 };
        let mut at = OUTCOME_AT + 14;
        into[at] = self.protocol as u8 | secure;
        into[at + 1] = kind;
        into[at + 2..at + 18].copy_from_slice(&address);
        at += 18;
        for text in texts {
            into[at] = text.len() as u8;
            at += 1;
        }
        for text in texts {
            into[at..at + text.len()].copy_from_slice(text);
            at += text.len();
        }
        into[..2].copy_from_slice(&(at as u16).to_le_bytes());
        at
    }
}

impl RequestOutcome {
    fn write(self, into: &mut [u8]) {
        into[OUTCOME_AT..OUTCOME_AT + 8].copy_from_slice(&self.at_ms.to_le_bytes());
        into[OUTCOME_AT + 8..OUTCOME_AT + 12].copy_from_slice(&self.micros.to_le_bytes());
        into[OUTCOME_AT + 12..OUTCOME_AT + 14].copy_from_slice(&self.status.to_le_bytes());
    }
}

/// Returns the path of a request target without a query. The target may be a whole URL or the name of a host; the text
/// before an @ in it may be a password.
fn path_of(target: &[u8]) -> &[u8] {
    if target.starts_with(b"/") {
        return target;
    }
    let authority = memchr::memmem::find(target, b"://").map_or(target, |at| &target[at + 3..]);
    match memchr::memchr(b'/', authority) {
        Some(slash) => &authority[slash..],
        None => authority.rsplit(|&byte| byte == b'@').next().unwrap_or_default(),
    }
}

/// Decodes an entry; `None` for malformed bytes.
fn read(bytes: &[u8]) -> Option<AccessEntry<'_>> {
    let (fixed, mut texts) = bytes.split_first_chunk::<FIXED_LEN>()?;
    let outcome = RequestOutcome {
        at_ms: u64::from_le_bytes(*fixed[OUTCOME_AT..].first_chunk()?),
        micros: u32::from_le_bytes(*fixed[OUTCOME_AT + 8..].first_chunk()?),
        status: u16::from_le_bytes(*fixed[OUTCOME_AT + 12..].first_chunk()?),
    };
    let [flags, kind, rest @ ..] = fixed[OUTCOME_AT + 14..].first_chunk::<{ 2 + 16 + TEXTS }>()?;
    let address = Ipv6Addr::from(*rest.first_chunk::<16>()?);
    let mut take = |len: u8| {
        let (text, behind) = texts.split_at_checked(usize::from(len))?;
        texts = behind;
        Some(text)
    };
    let lens = rest.last_chunk::<TEXTS>()?;
    let request = Request {
        address: match kind {
            0 => None,
            4 => Some(address.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED).into()),
            _ => Some(address.into()),
        },
        is_secure: flags & SECURE != 0,
        protocol: Protocol::ALL[usize::from(flags & 3)],
        method: take(lens[0])?,
        host: take(lens[1])?,
        path: take(lens[2])?,
        referrer: take(lens[3])?,
        agent: take(lens[4])?,
    };
    Some(AccessEntry { request, outcome })
}

/// A request that is logged when it is answered.
#[derive(Debug)]
pub struct PendingEntry(Box<[u8]>);

impl PendingEntry {
    /// Copies the logged properties of a request.
    pub fn new(request: &Request<'_>) -> PendingEntry {
        let mut bytes = [0; ENTRY_LEN_MAX];
        let len = request.write(&mut bytes);
        PendingEntry(bytes[..len].into())
    }
}

/// A core's end of its ring.
pub struct AccessSender {
    ring: FrameSender,
    one_in: u32,
    /// True if the log contains addresses, even shortened ones.
    pub wants_addresses: bool,
    chance: Pcg32,
}

impl std::fmt::Debug for AccessSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessSender")
    }
}

/// The service thread's end of a ring.
pub struct AccessReceiver(FrameReceiver);

impl std::fmt::Debug for AccessReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessReceiver")
    }
}

/// Creates the ring of a core, which samples one request in `one_in`. Cores with the same `seed` sample alike.
pub fn ring(one_in: u32, wants_addresses: bool, seed: u64) -> (AccessSender, AccessReceiver) {
    let (ring, receiver) = byte_ring(RING_LEN);
    (AccessSender { ring, one_in, wants_addresses, chance: Pcg32::new(seed, seed) }, AccessReceiver(receiver))
}

impl AccessSender {
    /// Returns true if this request is in the sample, and thus logged.
    pub fn samples_request(&mut self) -> bool {
        // The upper half of the product is below `one_in`, and each value is equally likely.
        self.one_in == 1 || (u64::from(self.chance.next_u32()) * u64::from(self.one_in)) >> 32 == 0
    }

    /// Adds an entry to the ring. Returns false if the ring is full.
    pub fn send(&mut self, entry: &AccessEntry<'_>) -> bool {
        let mut bytes = [0; ENTRY_LEN_MAX];
        let len = entry.request.write(&mut bytes);
        entry.outcome.write(&mut bytes);
        self.ring.push(&bytes[..len])
    }

    /// Adds a request that was noted before. Returns false if the ring is full.
    pub fn send_pending(&mut self, mut noted: PendingEntry, outcome: RequestOutcome) -> bool {
        outcome.write(&mut noted.0);
        self.ring.push(&noted.0)
    }
}

impl AccessReceiver {
    /// Passes the entries of the ring to `take`, and returns their bytes. Entries that arrive meanwhile wait for the
    /// next call.
    pub fn drain(&mut self, mut take: impl FnMut(&AccessEntry<'_>)) -> usize {
        let mut bytes = [0; ENTRY_LEN_MAX];
        self.0.drain(&mut bytes, |bytes| read(bytes).iter().for_each(&mut take))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Texts = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);

    fn any_entry() -> impl Strategy<Value = (Option<IpAddr>, bool, u8, Texts, (u64, u32, u16))> {
        let text = || proptest::collection::vec(any::<u8>(), 0..300);
        (
            any::<Option<IpAddr>>(),
            any::<bool>(),
            0..4u8,
            (text(), text(), text(), text(), text()),
            any::<(u64, u32, u16)>(),
        )
    }

    proptest! {
        #[test]
        fn what_is_told_is_heard_in_order(all in proptest::collection::vec(any_entry(), 0..40)) {
            let (mut sender, mut receiver) = ring(1, true, 7);
            let entries: Vec<AccessEntry<'_>> = all
                .iter()
                .map(|(address, is_secure, protocol, (method, host, path, referrer, agent), (at_ms, micros, status))| {
                    let request = Request {
                        address: *address,
                        is_secure: *is_secure,
                        protocol: Protocol::ALL[usize::from(*protocol)],
                        method,
                        host,
                        path,
                        referrer,
                        agent,
                    };
                    AccessEntry { request, outcome: RequestOutcome { at_ms: *at_ms, micros: *micros, status: *status } }
                })
                .collect();
            for (index, entry) in entries.iter().enumerate() {
                let sent = match index % 2 {
                    0 => sender.send(entry),
                    _ => sender.send_pending(PendingEntry::new(&entry.request), entry.outcome),
                };
                prop_assert!(sent);
            }
            let mut received = 0;
            receiver.drain(|entry| {
                let sent = &entries[received];
                assert_eq!(entry.outcome, sent.outcome);
                assert_eq!(entry.request.texts(), sent.request.texts());
                assert_eq!(entry.request.address, sent.request.address.map(|address| address.to_canonical()));
                assert_eq!(
                    (entry.request.is_secure, entry.request.protocol),
                    (sent.request.is_secure, sent.request.protocol)
                );
                received += 1;
            });
            prop_assert_eq!(received, entries.len());
            prop_assert_eq!(receiver.drain(|_| ()), 0);
        }

        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }

    #[test]
    fn a_full_ring_takes_nothing_by_halves() {
        let (mut sender, mut receiver) = ring(1, true, 7);
        let entry = AccessEntry { request: Request { path: b"/abc", ..Request::default() }, ..AccessEntry::default() };
        let mut sent = 0;
        while sender.send(&entry) {
            sent += 1;
        }
        let mut received = 0;
        receiver.drain(|entry| received += usize::from(entry.request.path == b"/abc"));
        assert_eq!((received, sent > 10_000), (sent, true));
        assert!(sender.send(&entry));
    }

    #[test]
    fn the_share_that_is_picked_is_the_one_that_was_asked_for() {
        for one_in in [1, 2, 10, 1_000] {
            let (mut sender, _receiver) = ring(one_in, true, 3);
            let picked = (0..100_000).filter(|_| sender.samples_request()).count();
            let expected = 100_000 / one_in as usize;
            assert!(picked.abs_diff(expected) <= expected / 4, "one in {one_in}: {picked}");
        }
    }

    #[test]
    fn of_a_head_its_query_is_left_out() {
        let head = b"\r\nGET /abc?key=secret&a=b HTTP/1.1\r\nHost: go.example\r\n\r\n";
        let request = Request::from_head(head, b"go.example", b"https://User:word@News.example/a?q=secret", b"curl/8");
        assert_eq!((request.method, request.path), (&b"GET"[..], &b"/abc"[..]));
        assert_eq!((request.protocol, request.referrer), (Protocol::Http11, &b"News.example"[..]));
        for (target, path) in
            [("http://me:word@a/b", "/b"), ("me:word@a:443", "a:443"), ("*", "*"), ("http://me:word@a", "a")]
        {
            let head = format!("GET {target} HTTP/1.1\r\n");
            assert_eq!(Request::from_head(head.as_bytes(), b"", b"", b"").path, path.as_bytes(), "{target}");
        }
        let odd = Request::from_head(b"x", b"", b"", b"");
        assert_eq!((odd.method, odd.path, odd.protocol), (&b"x"[..], &b""[..], Protocol::Unknown));
    }
}
