//! A single visit on its way from a core to the visit log, in a ring of bytes.
//!
//! The core copies bytes and interprets nothing. The log's thread makes a [`VisitRecord`] of them
//! ([`RawVisit::decode`]). No file has this form. Pure.

use std::net::IpAddr;

use carom_shards::code::{CODE_LEN_MAX, DOMAIN_ID_LEN};
use carom_shards::{Code, DomainId};

use super::record::{LoggedKind, RequestPart, TARGET_LEN_MAX, TEXT_LENS, VisitRecord, take_bytes};
use crate::clients::accept_language::first_language;

/// Longest `Accept-Language` that the core copies whole, in bytes: several times as many as browsers send. Of a longer
/// one, it copies the first language, because a cut at any place could make another language of it.
const LANGUAGES_LEN_MAX: usize = 128;

/// Number of texts of a request.
const TEXTS: usize = 6;

/// Bytes of a frame before its request: length, instant, kind, flags, units of the code, domain.
const HEAD_LEN: usize = 2 + 8 + 1 + 1 + 1 + DOMAIN_ID_LEN;

/// Bytes of an address, of which IPv4 takes the mapped form of IPv6.
const ADDRESS_LEN: usize = 16;

/// Bytes of a request before its address and texts: the length of the address, and those of the texts.
const LENS_LEN: usize = 1 + 2 * TEXTS;

const SECURE: u8 = 1;
const FORWARDS: u8 = 2;
const BOT: u8 = 4;

/// Longest frame of a visit, in bytes.
pub const RAW_LEN_MAX: usize = HEAD_LEN
    + LENS_LEN
    + ADDRESS_LEN
    + (TEXT_LENS[0] + TEXT_LENS[1] + TEXT_LENS[2] + TEXT_LENS[3] + TEXT_LENS[4] + LANGUAGES_LEN_MAX)
    + CODE_LEN_MAX * 6 / 8
    + TARGET_LEN_MAX;

/// Returns the texts of a request in their order, cut to their bounds.
#[inline]
fn texts<'a>(request: &RequestPart<'a>) -> [&'a [u8]; TEXTS] {
    let cut = |text: &'a [u8], len_max: usize| &text[..text.len().min(len_max)];
    let [host, path, query, referrer, agent] = TEXT_LENS;
    let languages = match request.language.len() {
        0..=LANGUAGES_LEN_MAX => request.language,
        _ => first_language(request.language),
    };
    [
        cut(request.host, host),
        cut(request.path, path),
        cut(request.query, query),
        cut(request.referrer, referrer),
        cut(request.agent, agent),
        languages,
    ]
}

/// Writes the lengths of the texts of a request, and its address. Returns the number of written bytes.
#[inline]
fn write_request_head(request: &RequestPart<'_>, texts: &[&[u8]; TEXTS], into: &mut [u8]) -> usize {
    for (text, len) in texts.iter().zip(into[1..LENS_LEN].chunks_exact_mut(2)) {
        len.copy_from_slice(&(text.len() as u16).to_le_bytes());
    }
    let octets = match request.address {
        None => return LENS_LEN,
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(address)) => address.octets(),
    };
    into[0] = ADDRESS_LEN as u8;
    into[LENS_LEN..LENS_LEN + ADDRESS_LEN].copy_from_slice(&octets);
    LENS_LEN + ADDRESS_LEN
}

/// Returns the bytes that a frame has of a request. Runs on the core.
pub fn encode_request(request: &RequestPart<'_>) -> Box<[u8]> {
    let texts = texts(request);
    let [host, path, query, referrer, agent, languages] = texts;
    let mut head = [0; LENS_LEN + ADDRESS_LEN];
    let len = write_request_head(request, &texts, &mut head);
    let bytes: Vec<u8> = [&head[..len], host, path, query, referrer, agent, languages].concat();
    bytes.into()
}

/// Takes a request from the front of the rest of a frame. Of its languages, it keeps the first.
fn take_request<'a>(rest: &mut &'a [u8]) -> Option<RequestPart<'a>> {
    let (&address_len, lens) = take_bytes(rest, LENS_LEN)?.split_first()?;
    let address = match take_bytes(rest, usize::from(address_len))? {
        [] => None,
        octets => Some(IpAddr::from(<[u8; ADDRESS_LEN]>::try_from(octets).ok()?).to_canonical()),
    };
    let mut lens = lens.chunks_exact(2);
    let mut text = || {
        let len = u16::from_le_bytes(*lens.next()?.first_chunk()?);
        take_bytes(rest, usize::from(len))
    };
    let [host, path, query, referrer, agent, languages] = [text()?, text()?, text()?, text()?, text()?, text()?];
    let language = first_language(languages);
    Some(RequestPart { address, host, path, query, referrer, agent, language })
}

/// A visit without its request, as the core that answers it knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawVisit<'a> {
    /// The instant of the response, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// The kind of the visit.
    pub kind: LoggedKind,
    /// True if the connection is encrypted.
    pub is_secure: bool,
    /// True if the link adds the query of the request to its destination.
    pub forwards: bool,
    /// True if the user agent is a bot's.
    pub is_bot: bool,
    /// The code of the link; `None` for an orphan visit.
    pub code: Option<Code>,
    /// The destination of the link, or where the domain sends clients that find nothing; empty for a page.
    pub target: &'a [u8],
}

impl<'a> RawVisit<'a> {
    /// Passes the frame of the visit to `push`, in parts that follow each other, and returns its result.
    #[inline]
    pub fn encode<R>(&self, request: &RequestPart<'_>, push: impl FnOnce(&[&[u8]]) -> R) -> R {
        let texts = texts(request);
        let [host, path, query, referrer, agent, languages] = texts;
        let mut head = [0; HEAD_LEN + LENS_LEN + ADDRESS_LEN];
        let (own, of_request) = head.split_at_mut(HEAD_LEN);
        let head_len = write_request_head(request, &texts, of_request);
        let texts_len: usize = texts.iter().map(|text| text.len()).sum();
        let [packed, target] = self.write_head(head_len + texts_len, own);
        push(&[&head[..HEAD_LEN + head_len], host, path, query, referrer, agent, languages, packed, target])
    }

    /// Passes the frame of the visit to `push` like [`RawVisit::encode`]. `request` has the bytes of the request, from
    /// [`encode_request`].
    pub fn encode_noted<R>(&self, request: &[u8], push: impl FnOnce(&[&[u8]]) -> R) -> R {
        let mut head = [0; HEAD_LEN];
        let [packed, target] = self.write_head(request.len(), &mut head);
        push(&[&head[..], request, packed, target])
    }

    /// Writes the bytes before the request, which has `request_len` bytes. Returns the parts behind it.
    #[inline]
    fn write_head(&self, request_len: usize, into: &mut [u8]) -> [&[u8]; 2] {
        let packed = self.code.as_ref().map_or(&[][..], Code::packed);
        let target = &self.target[..self.target.len().min(TARGET_LEN_MAX)];
        let len = HEAD_LEN + request_len + packed.len() + target.len();
        debug_assert!(len <= RAW_LEN_MAX, "the log's thread has no room for the frame");
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let domain = self.code.as_ref().and_then(Code::domain).map_or([0; DOMAIN_ID_LEN], DomainId::to_bytes);
        into[..2].copy_from_slice(&(len as u16).to_le_bytes());
        into[2..10].copy_from_slice(&self.at_ms.to_le_bytes());
        into[10] = self.kind as u8;
        into[11] = flag(self.is_secure, SECURE) | flag(self.forwards, FORWARDS) | flag(self.is_bot, BOT);
        into[12] = self.code.as_ref().map_or(0, |code| code.sextets() as u8);
        into[13..HEAD_LEN].copy_from_slice(&domain);
        [packed, target]
    }

    /// Decodes the frame of a visit; `None` if it is malformed. Runs on the log's thread.
    pub fn decode(frame: &'a [u8]) -> Option<VisitRecord<'a>> {
        let (head, mut rest) = frame.split_first_chunk::<HEAD_LEN>()?;
        let at_ms = u64::from_le_bytes(*head[2..].first_chunk()?);
        let [kind, flags, sextets] = *head[10..].first_chunk()?;
        let domain = DomainId::from_bytes(*head.last_chunk()?);
        let kind = *LoggedKind::ALL.get(usize::from(kind))?;
        let request = take_request(&mut rest)?;
        let sextets = usize::from(sextets);
        let packed = take_bytes(&mut rest, (sextets * 6).div_ceil(8))?;
        let code = if sextets == 0 { None } else { Some(Code::from_packed(sextets, packed)?.within(domain)) };
        Some(VisitRecord {
            at_ms,
            kind,
            is_secure: flags & SECURE != 0,
            forwards: flags & FORWARDS != 0,
            is_bot: flags & BOT != 0,
            request,
            location: None,
            code,
            target: rest,
        })
    }
}

/// Copies the parts of a frame, one behind the other, to the room at the end of a ring and then to that at its
/// beginning. Together, both have at least as many bytes as the parts.
#[inline]
pub fn copy_parts<'r>(parts: &[&[u8]], (mut room, mut next_room): (&'r mut [u8], &'r mut [u8])) {
    // Most requests lack some of the texts.
    for part in parts.iter().filter(|part| !part.is_empty()) {
        // The end of the ring may split a part.
        let (fitting, rest) = part.split_at(part.len().min(room.len()));
        room = copy_to_front(room, fitting);
        if !rest.is_empty() {
            room = copy_to_front(std::mem::take(&mut next_room), rest);
        }
    }
}

/// Copies bytes to the front of a slice, and returns the part behind them.
#[inline]
fn copy_to_front<'r>(room: &'r mut [u8], bytes: &[u8]) -> &'r mut [u8] {
    let (front, behind) = room.split_at_mut(bytes.len());
    front.copy_from_slice(bytes);
    behind
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the bytes that the log's thread gets.
    fn frame(visit: &RawVisit<'_>, request: &RequestPart<'_>) -> Vec<u8> {
        visit.encode(request, |parts| parts.concat())
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..300)
    }

    proptest! {
        #[test]
        fn a_frame_is_read_as_the_record_of_the_log(
            times in any::<(u64, bool, bool, bool)>(),
            kind in 0..4usize,
            address in any::<Option<IpAddr>>(),
            texts in (text(), text(), text(), text(), text(), text()),
            accept_language in "[ a-zA-Z_-]{0,50}[,;]?[ a-z,;=0-9.*-]{0,200}",
            link in ("[0-9A-Za-z_-]{1,64}|[a-z]{1,9}/[a-z]{1,9}", any::<u8>()),
        ) {
            let (at_ms, is_secure, forwards, is_bot) = times;
            let (host, path, query, referrer, agent, target) = &texts;
            let kind = LoggedKind::ALL[kind];
            let domain = DomainId::from_bytes([link.1; DOMAIN_ID_LEN]);
            let code = Code::from_slug(link.0.as_bytes()).unwrap().within(domain);
            let code = (kind == LoggedKind::Link).then_some(code);
            let language = accept_language.as_bytes();
            let request = RequestPart { address, host, path, query, referrer, agent, language };
            let visit = RawVisit { at_ms, kind, is_secure, forwards, is_bot, code, target };
            let frame = frame(&visit, &request);
            prop_assert_eq!(frame[..2].to_vec(), (frame.len() as u16).to_le_bytes().to_vec());
            let noted: Vec<u8> = visit.encode_noted(&encode_request(&request), |parts| parts.concat());
            prop_assert_eq!(&noted, &frame);
            // The record cuts the same texts when it is encoded.
            let request = RequestPart { language: first_language(language), ..request };
            let location = None;
            let record = VisitRecord { at_ms, kind, is_secure, forwards, is_bot, request, location, code, target };
            let mut stored = Vec::new();
            record.encode(&mut stored);
            prop_assert_eq!(RawVisit::decode(&frame), VisitRecord::take(&mut &stored[..]));
        }

        #[test]
        fn any_frame_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = RawVisit::decode(&bytes);
        }
    }

    #[test]
    fn parts_continue_at_the_beginning_of_a_ring() {
        let parts: [&[u8]; 4] = [b"abc", b"", b"defg", b"h"];
        for first_len in 0..=8 {
            let mut ring = [0; 8];
            let (first, next) = ring.split_at_mut(first_len);
            copy_parts(&parts, (first, next));
            assert_eq!(&ring, b"abcdefgh");
        }
    }

    #[test]
    fn hostile_heads_fill_a_frame_to_its_bound() {
        let long = [b'x'; 9_000];
        let (host, path, query, referrer, agent) = (&long[..], &long[..], &long[..], &long[..], &long[..]);
        let address = Some(IpAddr::from([9; 16]));
        let (kind, code, target) = (LoggedKind::Link, Code::parse(&long[..64]).ok(), &long[..]);
        let visit = RawVisit { at_ms: 1, kind, is_secure: true, forwards: true, is_bot: true, code, target };
        for (languages_len, frame_len) in [(128, RAW_LEN_MAX), (129, RAW_LEN_MAX - 128), (9_000, RAW_LEN_MAX - 128)] {
            let language = &long[..languages_len];
            let request = RequestPart { address, host, path, query, referrer, agent, language };
            let frame = frame(&visit, &request);
            assert_eq!(frame.len(), frame_len);
            let read = RawVisit::decode(&frame).unwrap();
            assert_eq!((read.request.agent.len(), read.target.len()), (TEXT_LENS[4], TARGET_LEN_MAX));
            assert_eq!((read.code, read.request.language), (code, &b""[..]));
        }
    }

    #[test]
    fn a_long_list_of_languages_keeps_its_first() {
        let visit = RawVisit {
            at_ms: 1,
            kind: LoggedKind::BaseUrl,
            is_secure: false,
            forwards: false,
            is_bot: false,
            code: None,
            target: b"",
        };
        for (languages, language) in [
            (format!("de-CH,{}", "fr;q=0.1,".repeat(50)), "de-CH"),
            (format!("de{},fr", " ".repeat(200)), "de"),
            // A cut would leave a language.
            (format!("de{}x,fr", " ".repeat(200)), ""),
        ] {
            let request = RequestPart { language: languages.as_bytes(), ..RequestPart::default() };
            let frame = frame(&visit, &request);
            assert_eq!(RawVisit::decode(&frame).unwrap().request.language, language.as_bytes(), "{languages}");
        }
    }
}
