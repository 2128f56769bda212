//! Events: what happened to a link, and visits, in the form in which a node stores them.
//!
//! An event is stored with the commit that makes it true. It carries the record of the link at that instant, so that a
//! reader can describe a link that is gone. The store gives each event its number. Pure.

use std::sync::Arc;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use crate::link::Link;
use crate::link::record::{self, NewerRecord, RecordRef, encode_link};
use crate::visits::record::{RequestPart, VisitRecord};

/// The type of an event. Its number is stored with each event, and is its place in [`EventType::ALL`]. So new variants
/// go to the end of both, and no variant moves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EventType {
    /// A link was created.
    LinkCreated,
    /// A link was changed.
    LinkChanged,
    /// A link was deleted, or has expired and was removed.
    LinkDeleted,
    /// A visit of a link, or of no link.
    Visit,
}

impl EventType {
    /// All types, in the order of their numbers.
    pub const ALL: [EventType; 4] =
        [EventType::LinkCreated, EventType::LinkChanged, EventType::LinkDeleted, EventType::Visit];

    /// Returns the name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            EventType::LinkCreated => "link.created",
            EventType::LinkChanged => "link.changed",
            EventType::LinkDeleted => "link.deleted",
            EventType::Visit => "visit",
        }
    }
}

/// The reason for which a link changed. Its number is stored with each event of a link. So new variants go to the end,
/// and no variant moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventCause {
    /// A request of a client.
    Request,
    /// The link has expired.
    Expiry,
    /// The deletion of the link was scheduled.
    Schedule,
}

impl EventCause {
    /// All causes, in the order of their numbers.
    const ALL: [EventCause; 3] = [EventCause::Request, EventCause::Expiry, EventCause::Schedule];

    /// Returns the name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            EventCause::Request => "request",
            EventCause::Expiry => "expiry",
            EventCause::Schedule => "schedule",
        }
    }
}

/// An event of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkEvent {
    /// The kind of an event.
    pub of: EventType,
    /// The instant of the commit, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// The code of the link.
    pub code: Code,
    /// The reason.
    pub cause: EventCause,
    /// The link after the event; for a deletion, before it. `None` if its record cannot be decoded, or the node does not
    /// have it.
    pub link: Option<Arc<Link>>,
    /// The fields that changed, as the JSON of [`crate::link::history`]; empty without any.
    pub changes: Vec<u8>,
}

/// A stored event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoredEvent<'a> {
    /// An event of a link.
    Link(LinkEvent),
    /// A visit of a link, or an orphan visit.
    Visit(VisitRecord<'a>),
}

/// The position of an event: the log that it is in, and its number there. Logs of different nodes, and of a store that
/// was replaced, have different names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventId {
    /// The random name of the log.
    pub log: u32,
    /// The number of the event, from 1.
    pub seq: u64,
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}-{}", self.log, self.seq)
    }
}

impl EventId {
    /// Parses an ID from its text; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<EventId> {
        let (log, seq) = text.split_once('-')?;
        let is_hex = log.len() == 8 && log.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_number = !seq.is_empty() && seq.bytes().all(|byte| byte.is_ascii_digit());
        let log = u32::from_str_radix(log, 16).ok().filter(|_| is_hex)?;
        Some(EventId { log, seq: seq.parse().ok().filter(|_| is_number)? })
    }
}

impl LinkEvent {
    /// Returns the event of the removal of a link that was due.
    pub fn removal(link: Arc<Link>, at_ms: u64, cause: EventCause) -> LinkEvent {
        let (of, code) = (EventType::LinkDeleted, link.code);
        LinkEvent { of, at_ms, code, cause, link: Some(link), changes: Vec::new() }
    }

    /// Encodes the stored form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.of as u8];
        out.extend_from_slice(&self.at_ms.to_le_bytes());
        out.push(self.cause as u8);
        let mut buffer = [0; CODE_KEY_LEN_MAX];
        let key = self.code.key(&mut buffer);
        out.push(u8::try_from(key.len()).expect("keys of codes are short"));
        out.extend_from_slice(key);
        out.extend_from_slice(&u32::try_from(self.changes.len()).expect("a link is short").to_le_bytes());
        out.extend_from_slice(&self.changes);
        if let Some(link) = &self.link {
            let mut record = Vec::new();
            encode_link(key, link, &mut record);
            out.extend_from_slice(&record);
        }
        out
    }
}

/// Encodes the stored form of a visit, given its encoded record.
pub fn encode_visit(record: &[u8]) -> Vec<u8> {
    [&[EventType::Visit as u8], record].concat()
}

/// The parts of the stored form of a link event, behind its type.
struct LinkEventParts<'a> {
    at_ms: u64,
    cause: u8,
    key: &'a [u8],
    changes: &'a [u8],
    /// The record of the link; empty without one.
    record: &'a [u8],
}

impl<'a> LinkEventParts<'a> {
    fn of(bytes: &'a [u8]) -> Option<LinkEventParts<'a>> {
        let (at_ms, rest) = bytes.split_first_chunk::<8>()?;
        let (&[cause, key_len], rest) = rest.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at_checked(usize::from(key_len))?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (changes, record) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some(LinkEventParts { at_ms: u64::from_le_bytes(*at_ms), cause, key, changes, record })
    }
}

impl<'a> StoredEvent<'a> {
    /// Decodes the stored form; `None` if it is malformed.
    pub fn decode(bytes: &'a [u8]) -> Option<StoredEvent<'a>> {
        let (&of, rest) = bytes.split_first()?;
        let of = *EventType::ALL.get(usize::from(of))?;
        if of == EventType::Visit {
            let mut rest = rest;
            let visit = VisitRecord::take(&mut rest)?;
            return rest.is_empty().then_some(StoredEvent::Visit(visit));
        }
        let LinkEventParts { at_ms, cause, key, changes, record } = LinkEventParts::of(rest)?;
        let code = Code::from_key(key).ok()?;
        let link = match record::decode(key, record) {
            Ok(RecordRef::Link(link)) => Some(Arc::new(link.to_link(code))),
            _ => None,
        };
        let cause = *EventCause::ALL.get(usize::from(cause))?;
        Some(StoredEvent::Link(LinkEvent { of, at_ms, code, cause, link, changes: changes.to_vec() }))
    }

    /// Returns the code of an event of a link whose record only a later version can decode, and what this version can read of
    /// the record. `None` for any other event.
    pub fn newer_record(bytes: &[u8]) -> Option<(Code, Option<NewerRecord>)> {
        let (&of, rest) = bytes.split_first()?;
        if of == EventType::Visit as u8 {
            return None;
        }
        let LinkEventParts { key, record, .. } = LinkEventParts::of(rest)?;
        let is_newer = record::decode(key, record).is_err_and(|error| error.is_newer());
        is_newer.then_some((Code::from_key(key).ok()?, NewerRecord::of(record)))
    }

    /// Returns the type of the event.
    pub fn of(&self) -> EventType {
        match self {
            StoredEvent::Link(event) => event.of,
            StoredEvent::Visit(_) => EventType::Visit,
        }
    }

    /// Returns the code that the event is about; `None` for an orphan visit.
    pub fn code(&self) -> Option<Code> {
        match self {
            StoredEvent::Link(event) => Some(event.code),
            StoredEvent::Visit(visit) => visit.code,
        }
    }

    /// Returns the stored form of the event without what a purge removes. A link event keeps its type, its code, its
    /// instant and its cause. A visit keeps its instant and its code.
    pub fn purged(&self) -> Vec<u8> {
        match self {
            StoredEvent::Link(event) => LinkEvent { link: None, changes: Vec::new(), ..event.clone() }.encode(),
            StoredEvent::Visit(visit) => {
                let request = RequestPart::default();
                let mut record = Vec::new();
                VisitRecord { request, location: None, target: &[], ..*visit }.encode(&mut record);
                encode_visit(&record)
            }
        }
    }

    /// Returns the instant of the event, in milliseconds since 1970 UTC.
    pub fn at_ms(&self) -> u64 {
        match self {
            StoredEvent::Link(event) => event.at_ms,
            StoredEvent::Visit(visit) => visit.at_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::any_link;
    use crate::visits::record::LoggedKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_are_read_back(link in any_link(), at_ms in any::<u64>(), has_link in any::<bool>(), of in 0..3usize) {
            let event = LinkEvent {
                of: EventType::ALL[of],
                at_ms,
                code: link.code,
                cause: EventCause::ALL[of],
                link: has_link.then(|| Arc::new(link)),
                changes: b"[]".to_vec(),
            };
            let bytes = event.encode();
            let stored = StoredEvent::decode(&bytes).unwrap();
            prop_assert_eq!((stored.of(), stored.at_ms()), (EventType::ALL[of], at_ms));
            prop_assert_eq!(stored, StoredEvent::Link(event));
        }

        #[test]
        fn purged_events_keep_no_destination(link in any_link(), at_ms in any::<u64>(), of in 0..3usize) {
            let (code, of, cause) = (link.code, EventType::ALL[of], EventCause::Request);
            let changes = format!("[{:?}]", link.target).into_bytes();
            let bytes = LinkEvent { of, at_ms, code, cause, link: Some(Arc::new(link)), changes }.encode();
            let purged = StoredEvent::decode(&bytes).unwrap().purged();
            let left = LinkEvent { of, at_ms, code, cause, link: None, changes: Vec::new() };
            prop_assert_eq!(StoredEvent::decode(&purged), Some(StoredEvent::Link(left)));
            prop_assert_eq!(StoredEvent::decode(&purged).unwrap().purged(), purged, "a second purge changes nothing");
        }

        #[test]
        fn reading_an_event_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..80), text in any::<String>()) {
            let _ = (StoredEvent::decode(&bytes), StoredEvent::newer_record(&bytes), EventId::parse(&text));
        }

        #[test]
        fn ids_are_read_back(log in any::<u32>(), seq in any::<u64>()) {
            let id = EventId { log, seq };
            prop_assert_eq!(EventId::parse(&id.to_string()), Some(id));
        }
    }

    #[test]
    fn a_visit_is_an_event() {
        let request = RequestPart { agent: b"x", ..RequestPart::default() };
        let code = Code::parse(b"abc").ok();
        let (kind, target) = (LoggedKind::Link, &b"https://a.example/"[..]);
        let visit = VisitRecord {
            at_ms: 5,
            kind,
            is_secure: false,
            forwards: false,
            is_bot: false,
            request,
            code,
            target,
            location: None,
        };
        let mut record = Vec::new();
        visit.encode(&mut record);
        let bytes = encode_visit(&record);
        assert_eq!(StoredEvent::decode(&bytes), Some(StoredEvent::Visit(visit)));
        assert_eq!(StoredEvent::decode(&bytes[..bytes.len() - 1]), None);
        let purged = StoredEvent::Visit(visit).purged();
        let request = RequestPart::default();
        let left = StoredEvent::Visit(VisitRecord { request, target: b"", ..visit });
        assert_eq!(StoredEvent::decode(&purged), Some(left));
    }

    #[test]
    fn ids_are_strict() {
        for text in ["", "-", "0000000-1", "0000000g-1", "0000000A-1", "00000001-", "00000001-+1", "00000001--1"] {
            assert_eq!(EventId::parse(text), None, "{text}");
        }
    }
}
