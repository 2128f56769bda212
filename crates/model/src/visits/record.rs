//! The record of a single visit inside the visit log.
//!
//! The log's thread makes the record of the bytes that a core reports (`visits::raw`), removes what must not be stored
//! ([`VisitRecord::without_private`]), and encodes it. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use crate::clients::accept_language::LANGUAGE_LEN_MAX;
use crate::clients::locations::{Coordinates, GeoLocation};

/// Longest texts of a record, in bytes, in their order: host, path, query, referrer, user agent. Longer ones are cut.
pub(super) const TEXT_LENS: [usize; 5] = [255, 255, 1_024, 1_024, 512];

/// Longest destination of a record, in bytes: that of a link.
pub(super) const TARGET_LEN_MAX: usize = 2_048;

/// Longest texts of a location, in bytes, in their order: country, its name, region, city, time zone.
const LOCATION_LENS: [usize; 5] = [2, 80, 80, 80, 40];

/// Longest encoded location, in bytes.
const LOCATION_LEN_MAX: usize = 5 + 2 + 80 + 80 + 80 + 40 + 9;

/// Bytes of a record before its request part.
const HEAD_LEN: usize = 12;

/// Longest encoded record, in bytes.
const RECORD_LEN_MAX: usize = HEAD_LEN
    + (17 + 5 * 2 + 255 + 255 + 1_024 + 1_024 + 512 + 2 + LANGUAGE_LEN_MAX)
    + LOCATION_LEN_MAX
    + 1
    + CODE_KEY_LEN_MAX
    + TARGET_LEN_MAX;

const SECURE: u8 = 1;
const FORWARDS: u8 = 2;
const BOT: u8 = 4;
/// The record has a location behind its request part.
const LOCATED: u8 = 8;

/// Added to the length of the address if the request part ends with a language.
const SPEAKS: u8 = 0x80;

/// The kind of a visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoggedKind {
    /// A visit of a link.
    Link,
    /// An orphan visit: a request for the base URL of a domain.
    BaseUrl,
    /// An orphan visit: a request for a short code without a link.
    InvalidShortUrl,
    /// An orphan visit: a request for any other missing page.
    Regular404,
}

impl LoggedKind {
    pub(super) const ALL: [LoggedKind; 4] =
        [LoggedKind::Link, LoggedKind::BaseUrl, LoggedKind::InvalidShortUrl, LoggedKind::Regular404];

    /// The kinds of orphan visits.
    pub const ORPHANS: [LoggedKind; 3] = [LoggedKind::BaseUrl, LoggedKind::InvalidShortUrl, LoggedKind::Regular404];

    /// Returns the name that Shlink's API gives to an orphan visit of this kind.
    pub fn as_str(self) -> &'static str {
        match self {
            LoggedKind::Link => "link",
            LoggedKind::BaseUrl => "base_url",
            LoggedKind::InvalidShortUrl => "invalid_short_url",
            LoggedKind::Regular404 => "regular_404",
        }
    }
}

/// The part of client addresses that the log stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VisitAddresses {
    /// No address.
    None,
    /// The network: the first 24 bits of IPv4, 48 of IPv6.
    Network,
    /// The full address.
    Full,
}

impl VisitAddresses {
    /// All treatments.
    pub const ALL: [VisitAddresses; 3] = [VisitAddresses::None, VisitAddresses::Network, VisitAddresses::Full];

    /// Returns the name in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            VisitAddresses::None => "none",
            VisitAddresses::Network => "network",
            VisitAddresses::Full => "full",
        }
    }

    /// Returns the part of an address that is stored.
    fn cut(self, address: IpAddr) -> Option<IpAddr> {
        match (self, address) {
            (VisitAddresses::None, _) => None,
            (VisitAddresses::Full, address) => Some(address),
            (VisitAddresses::Network, IpAddr::V4(address)) => {
                let [a, b, c, _] = address.octets();
                Some(Ipv4Addr::new(a, b, c, 0).into())
            }
            (VisitAddresses::Network, IpAddr::V6(address)) => {
                let [a, b, c, ..] = address.segments();
                Some(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into())
            }
        }
    }
}

/// The properties of a visit that its request has: on a core as the head has them, in a record as the log stores them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestPart<'a> {
    /// The address of the client, if it is known and wanted.
    pub address: Option<IpAddr>,
    /// The host that the request named. A visit of a link may lack it: the code of the link says its domain.
    pub host: &'a [u8],
    /// The path of the request. A visit of a link may lack it: the code of the link says it.
    pub path: &'a [u8],
    /// The query of the request, without the question mark.
    pub query: &'a [u8],
    /// The value of `Referer`.
    pub referrer: &'a [u8],
    /// The value of `User-Agent`.
    pub agent: &'a [u8],
    /// The language of the client: on a core the first line of `Accept-Language`, in a record the first language in it.
    pub language: &'a [u8],
}

impl<'a> RequestPart<'a> {
    fn texts(&self) -> [&'a [u8]; 5] {
        [self.host, self.path, self.query, self.referrer, self.agent]
    }

    /// Appends the encoded part.
    fn encode(&self, into: &mut Vec<u8>) {
        let speaks = if self.language.is_empty() { 0 } else { SPEAKS };
        match self.address.map(|address| address.to_canonical()) {
            None => into.push(speaks),
            Some(IpAddr::V4(address)) => {
                into.push(4 | speaks);
                into.extend_from_slice(&address.octets());
            }
            Some(IpAddr::V6(address)) => {
                into.push(16 | speaks);
                into.extend_from_slice(&address.octets());
            }
        }
        for (text, len_max) in self.texts().into_iter().zip(TEXT_LENS) {
            push_text(text, len_max, into);
        }
        if speaks != 0 {
            push_text(self.language, LANGUAGE_LEN_MAX, into);
        }
    }

    /// Takes the request part from the front of a record.
    fn take(rest: &mut &'a [u8]) -> Option<RequestPart<'a>> {
        let &[head] = take_bytes(rest, 1)?.first_chunk()?;
        let address_len = head & !SPEAKS;
        let address = match (address_len, take_bytes(rest, usize::from(address_len))?) {
            (0, _) => None,
            (4, octets) => Some(IpAddr::from(*octets.first_chunk::<4>()?)),
            (16, octets) => Some(IpAddr::from(*octets.first_chunk::<16>()?)),
            _ => return None,
        };
        let mut text = || {
            let len = u16::from_le_bytes(*take_bytes(rest, 2)?.first_chunk()?);
            take_bytes(rest, usize::from(len))
        };
        let [host, path, query, referrer, agent] = [text()?, text()?, text()?, text()?, text()?];
        let language = if head & SPEAKS == 0 { &[][..] } else { text()? };
        Some(RequestPart { address, host, path, query, referrer, agent, language })
    }
}

/// A visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VisitRecord<'a> {
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
    /// The properties that the request has.
    pub request: RequestPart<'a>,
    /// The location of the client, if the log has a source of locations. The log's thread looks it up.
    pub location: Option<GeoLocation<'a>>,
    /// The code of the link; `None` for an orphan visit.
    pub code: Option<Code>,
    /// The destination of the link, or where the domain sends clients that find nothing; empty for a page.
    pub target: &'a [u8],
}

impl<'a> VisitRecord<'a> {
    /// Appends the encoded record, which begins with its length in two bytes.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let begin = into.len();
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.is_secure, SECURE)
            | flag(self.forwards, FORWARDS)
            | flag(self.is_bot, BOT)
            | flag(self.location.is_some(), LOCATED);
        // The length, which is known in the end, the instant, the kind and the flags.
        let mut head = [0; HEAD_LEN];
        head[2..10].copy_from_slice(&self.at_ms.to_le_bytes());
        [head[10], head[11]] = [self.kind as u8, flags];
        into.extend_from_slice(&head);
        self.request.encode(into);
        if let Some(location) = &self.location {
            push_location(location, into);
        }
        let mut buffer = [0; CODE_KEY_LEN_MAX];
        let key = self.code.as_ref().map_or(&[][..], |code| code.key(&mut buffer));
        into.push(key.len() as u8);
        into.extend_from_slice(key);
        into.extend_from_slice(&self.target[..self.target.len().min(TARGET_LEN_MAX)]);
        let len = (into.len() - begin) as u16;
        into[begin..begin + 2].copy_from_slice(&len.to_le_bytes());
        debug_assert!(into.len() - begin <= RECORD_LEN_MAX, "a reader would refuse the record");
    }

    /// Takes the first record from the bytes; `None` if they are malformed or empty.
    pub fn take(bytes: &mut &'a [u8]) -> Option<VisitRecord<'a>> {
        let len = usize::from(u16::from_le_bytes(*bytes.first_chunk::<2>()?));
        let (record, behind) = bytes.split_at_checked(len)?;
        let mut rest = record.get(2..)?;
        let at_ms = u64::from_le_bytes(*take_bytes(&mut rest, 8)?.first_chunk()?);
        let &[kind, flags] = take_bytes(&mut rest, 2)?.first_chunk()?;
        let kind = *LoggedKind::ALL.get(usize::from(kind))?;
        let request = RequestPart::take(&mut rest)?;
        let location = if flags & LOCATED == 0 { None } else { Some(take_location(&mut rest)?) };
        let [key_len] = *take_bytes(&mut rest, 1)?.first_chunk()?;
        let key = take_bytes(&mut rest, usize::from(key_len))?;
        let code = if key.is_empty() { None } else { Some(Code::from_key(key).ok()?) };
        *bytes = behind;
        Some(VisitRecord {
            at_ms,
            kind,
            is_secure: flags & SECURE != 0,
            forwards: flags & FORWARDS != 0,
            is_bot: flags & BOT != 0,
            request,
            location,
            code,
            target: rest,
        })
    }

    /// Returns the record as it is stored: the address is cut, and the referrer has neither user, query nor fragment.
    #[must_use]
    pub fn without_private(self, addresses: VisitAddresses) -> VisitRecord<'a> {
        let address = self.request.address.and_then(|address| addresses.cut(address));
        let request = RequestPart { address, referrer: public_part(self.request.referrer), ..self.request };
        VisitRecord { request, ..self }
    }
}

/// Returns a referrer up to its query or fragment; nothing if it names a user.
fn public_part(referrer: &[u8]) -> &[u8] {
    let end = referrer.iter().position(|byte| b"?#".contains(byte)).unwrap_or(referrer.len());
    let public = &referrer[..end];
    if public.contains(&b'@') { &[] } else { public }
}

fn push_text(text: &[u8], len_max: usize, into: &mut Vec<u8>) {
    let text = &text[..text.len().min(len_max)];
    into.extend_from_slice(&(text.len() as u16).to_le_bytes());
    into.extend_from_slice(text);
}

/// Appends a location: five texts behind their lengths, and the coordinates behind a byte that says if they are known.
fn push_location(location: &GeoLocation<'_>, into: &mut Vec<u8>) {
    let GeoLocation { country, country_name, region, city, time_zone, coordinates } = *location;
    for (text, len_max) in [country, country_name, region, city, time_zone].into_iter().zip(LOCATION_LENS) {
        let mut end = text.len().min(len_max);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        into.push(end as u8);
        into.extend_from_slice(&text.as_bytes()[..end]);
    }
    into.push(u8::from(coordinates.is_some()));
    if let Some(Coordinates { latitude, longitude }) = coordinates {
        into.extend_from_slice(&latitude.to_le_bytes());
        into.extend_from_slice(&longitude.to_le_bytes());
    }
}

fn take_location<'a>(rest: &mut &'a [u8]) -> Option<GeoLocation<'a>> {
    let mut text = || {
        let [len] = *take_bytes(rest, 1)?.first_chunk()?;
        std::str::from_utf8(take_bytes(rest, usize::from(len))?).ok()
    };
    let [country, country_name, region, city, time_zone] = [text()?, text()?, text()?, text()?, text()?];
    let has_coordinates = take_bytes(rest, 1)?;
    let mut degrees = || Some(i32::from_le_bytes(*take_bytes(rest, 4)?.first_chunk()?));
    let coordinates = match has_coordinates {
        [0] => None,
        [1] => Some(Coordinates { latitude: degrees()?, longitude: degrees()? }),
        _ => return None,
    };
    Some(GeoLocation { country, country_name, region, city, time_zone, coordinates })
}

pub(super) fn take_bytes<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..200)
    }

    proptest! {
        #[test]
        fn records_are_read_back(
            times in any::<(u64, bool, bool, bool)>(),
            kind in 0..4usize,
            address in any::<Option<IpAddr>>(),
            texts in (text(), text(), text(), text(), text(), text()),
            language in proptest::collection::vec(any::<u8>(), 0..LANGUAGE_LEN_MAX),
            place in proptest::option::of(("[A-Z]{2}", "\\PC{0,20}", "\\PC{0,20}", any::<Option<(i32, i32)>>())),
        ) {
            let (at_ms, is_secure, forwards, is_bot) = times;
            let (host, path, query, referrer, agent, target) = &texts;
            let location = place.as_ref().map(|(country, name, city, degrees)| GeoLocation {
                country,
                country_name: name,
                region: "",
                city,
                time_zone: "Europe/Berlin",
                coordinates: degrees.map(|(latitude, longitude)| Coordinates { latitude, longitude }),
            });
            let kind = LoggedKind::ALL[kind];
            let code = (kind == LoggedKind::Link).then(|| Code::parse(b"abc").unwrap());
            let address = address.map(|address| address.to_canonical());
            let request = RequestPart { address, host, path, query, referrer, agent, language: &language };
            let record = VisitRecord { at_ms, kind, is_secure, forwards, is_bot, request, location, code, target };
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            record.encode(&mut bytes);
            let mut rest = &bytes[..];
            prop_assert_eq!(VisitRecord::take(&mut rest), Some(record));
            prop_assert_eq!(VisitRecord::take(&mut rest), Some(record));
            prop_assert!(rest.is_empty());
            prop_assert!(VisitRecord::take(&mut rest).is_none());
        }

        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut framed = ((bytes.len() + 2) as u16).to_le_bytes().to_vec();
            framed.extend_from_slice(&bytes);
            let _ = (VisitRecord::take(&mut &bytes[..]), VisitRecord::take(&mut &framed[..]));
        }
    }

    #[test]
    fn longest_record_fits_its_bound() {
        let long = [b'x'; 5_000];
        let (host, path, query, referrer, agent) = (&long[..], &long[..], &long[..], &long[..], &long[..]);
        let address = Some(IpAddr::from([9; 16]));
        let request = RequestPart { address, host, path, query, referrer, agent, language: &long };
        let name = "ü".repeat(500);
        let [country, country_name, region, city, time_zone] = [&name[..]; 5];
        let coordinates = Some(Coordinates::default());
        let location = Some(GeoLocation { country, country_name, region, city, time_zone, coordinates });
        let (kind, code) = (LoggedKind::InvalidShortUrl, Code::parse(&long[..64]).ok());
        let record = VisitRecord {
            at_ms: 1,
            kind,
            is_secure: true,
            forwards: false,
            is_bot: true,
            request,
            location,
            code,
            target: &long,
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert!(bytes.len() <= RECORD_LEN_MAX, "{}", bytes.len());
        let read = VisitRecord::take(&mut &bytes[..]).unwrap();
        assert_eq!((read.target.len(), read.request.language.len()), (TARGET_LEN_MAX, LANGUAGE_LEN_MAX));
        assert_eq!(read.location.unwrap().city, "ü".repeat(40));
    }

    #[test]
    fn private_parts_are_cut() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (treatment, v4, v6) in [
            (VisitAddresses::None, None, None),
            (VisitAddresses::Network, Some("192.0.2.0"), Some("2001:db8:1::")),
            (VisitAddresses::Full, Some("192.0.2.77"), Some("2001:db8:1:2::3")),
        ] {
            assert_eq!(treatment.cut(address("192.0.2.77")), v4.map(address));
            assert_eq!(treatment.cut(address("2001:db8:1:2::3")), v6.map(address));
        }
        for (referrer, stored) in [
            ("https://a.example/b?c=d#e", "https://a.example/b"),
            ("https://a.example/#e", "https://a.example/"),
            ("https://me:word@a.example/", ""),
            ("", ""),
        ] {
            assert_eq!(public_part(referrer.as_bytes()), stored.as_bytes());
        }
    }
}
