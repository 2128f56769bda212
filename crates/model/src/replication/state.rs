//! The state of a code, which is a link or a tombstone, and its form in Redis.
//!
//! That form has three parts: a letter for the kind, the version in hexadecimal digits, which scripts compare as text,
//! and a record as in the local store. The checksum of the record reveals damage on the way.

use std::sync::Arc;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use crate::link::record::unknown::UnknownFields;
use crate::link::record::{self, NewerRecord, RecordRef, Tombstone};
use crate::link::{Link, Origin, Version};

/// Bytes before the record: the kind, 8 digits of the revision, 16 of the claim, 8 of the number of changes.
pub const HEAD_LEN: usize = 1 + 8 + 16 + 8;

/// Bytes before the record in the form that older versions wrote, before links could be changed.
const OLD_HEAD_LEN: usize = 1 + 8 + 16;

/// Bytes by which two states of a code are compared: the head, and the version and checksum of the record.
pub const COMPARED_LEN: usize = HEAD_LEN + record::HEAD_LEN;

/// The state of a code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// The link that the code has.
    Link(Arc<Link>),
    /// The tombstone of a deleted link.
    Gone(Tombstone),
}

/// The reason for which text from Redis is no state of its code to this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoState {
    /// A later version wrote it: it is intact, and of a kind or format that this version does not know.
    Newer,
    /// A state that another program wrote, or that was damaged.
    Damaged,
}

/// The head of a state, which all versions can read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateHead {
    /// True for a link, false for a tombstone; `None` for a kind of a later version.
    pub is_link: Option<bool>,
    /// The version of the state.
    pub version: Version,
}

impl StateHead {
    /// Reads the head of a state. Returns `None` if the text does not begin with one.
    pub fn of(text: &[u8]) -> Option<StateHead> {
        let (head, _) = text.split_at_checked(HEAD_LEN)?;
        let is_link = match head[0] {
            b'I' | b'C' => Some(true),
            b'B' | b'F' => Some(false),
            kind => kind.is_ascii_alphabetic().then_some(None)?,
        };
        Some(StateHead { is_link, version: version_of(std::str::from_utf8(&head[1..]).ok()?)? })
    }

    /// Returns the head of the state in an intact record that only a later version can decode. If the record does not
    /// show its version, no state follows it.
    pub fn of_newer(value: &[u8]) -> StateHead {
        let last = Version { rev: u32::MAX, claim: u64::MAX, edit: u32::MAX };
        let unknown = StateHead { is_link: None, version: last };
        NewerRecord::of(value).map_or(unknown, |NewerRecord { is_link, version, .. }| StateHead { is_link, version })
    }

    /// Returns the head of the state in a value of the local store, if only a later version can decode it. Returns
    /// `None` if this version can, or if the value is damaged.
    pub fn if_newer(code: &Code, value: &[u8]) -> Option<StateHead> {
        let decoded = record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), value);
        decoded.is_err_and(|error| error.is_newer()).then(|| StateHead::of_newer(value))
    }
}

/// A state as it came from Redis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReceivedState {
    /// A state that this version can decode.
    Known(State),
    /// The text of a state that it cannot decode.
    Unread(Arc<[u8]>),
}

impl ReceivedState {
    /// Decodes the form of Redis, or keeps the text of a later version.
    ///
    /// # Errors
    /// [`NoState::Damaged`] if another program wrote the text, or it was damaged.
    pub fn from_text(code: Code, text: &[u8]) -> Result<ReceivedState, NoState> {
        match State::from_text(code, text) {
            Ok(state) => Ok(ReceivedState::Known(state)),
            Err(NoState::Newer) => Ok(ReceivedState::Unread(text.into())),
            Err(NoState::Damaged) => Err(NoState::Damaged),
        }
    }
}

impl State {
    /// Returns the version of this state.
    pub fn version(&self) -> Version {
        match self {
            State::Link(link) => link.version,
            State::Gone(gone) => gone.version,
        }
    }

    /// True for a link.
    pub fn is_link(&self) -> bool {
        matches!(self, State::Link(_))
    }

    /// True if both are states of one link, and neither is its end.
    pub fn is_same_link(&self, other: &State) -> bool {
        matches!((self, other), (State::Link(link), State::Link(other)) if link.is_same_link(other))
    }

    /// Returns how the link came, or had come, by its code.
    pub fn origin(&self) -> Origin {
        match self {
            State::Link(link) => link.origin,
            State::Gone(gone) => gone.origin,
        }
    }

    /// True if no link may have this code again.
    pub fn is_tombstone(&self) -> bool {
        matches!(self, State::Gone(Tombstone { origin: Origin::Issued, .. }))
    }

    /// True if a new link may have this slug.
    pub fn is_free(&self) -> bool {
        matches!(self, State::Gone(Tombstone { origin: Origin::Custom, .. }))
    }

    /// Returns this state with another version.
    #[must_use]
    pub fn with_version(&self, version: Version) -> State {
        match self {
            State::Link(link) if link.version == version => self.clone(),
            State::Link(link) => State::Link(Arc::new(Link { version, ..Link::clone(link) })),
            State::Gone(gone) => State::Gone(Tombstone { version, ..gone.clone() }),
        }
    }

    /// Returns the tombstone that follows this state after a delete at `deleted_ms`, in milliseconds since 1970 UTC.
    #[must_use]
    pub fn deleted(&self, deleted_ms: u64) -> State {
        let Version { rev, claim, .. } = self.version();
        State::Gone(Tombstone {
            deleted_ms,
            origin: self.origin(),
            version: Version { rev: rev.saturating_add(1), claim, edit: 0 },
            unknown: UnknownFields::default(),
        })
    }

    /// Returns the *release* of the code of this tombstone: a later tombstone, which leaves the code free and which all nodes
    /// adopt. The next link of the code continues its revisions. `claim` is a random number, by which the releases of two
    /// nodes differ. `None` unless this is the tombstone of a generated code.
    #[must_use]
    pub fn released(&self, claim: u64) -> Option<State> {
        let State::Gone(gone) = self else { return None };
        if gone.origin != Origin::Issued {
            return None;
        }
        let version = Version { rev: gone.version.rev.checked_add(1)?, claim, edit: 0 };
        Some(State::Gone(Tombstone { origin: Origin::Custom, version, ..gone.clone() }))
    }

    /// Returns the state in a record of the local store.
    pub fn from_record(code: Code, record: &RecordRef<'_>) -> State {
        match record {
            RecordRef::Link(link) => State::Link(Arc::new(link.to_link(code))),
            RecordRef::Tombstone(tombstone) => State::Gone(tombstone.clone()),
        }
    }

    /// Decodes a value of the local store; `None` if it is damaged.
    pub fn from_value(code: Code, value: &[u8]) -> Option<State> {
        let record = record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), value).ok()?;
        Some(State::from_record(code, &record))
    }

    /// Appends the record of the local store to `out`.
    pub fn to_record(&self, code: &Code, out: &mut Vec<u8>) {
        let key = &mut [0; CODE_KEY_LEN_MAX];
        match self {
            State::Link(link) => record::encode_link(code.key(key), link, out),
            State::Gone(gone) => record::encode_tombstone(code.key(key), gone, out),
        }
    }

    /// Encodes the state in the form of Redis.
    pub fn to_text(&self, code: &Code) -> Vec<u8> {
        let kind = match (self, self.origin()) {
            (State::Link(_), Origin::Issued) => 'I',
            (State::Link(_), Origin::Custom) => 'C',
            (State::Gone(_), Origin::Issued) => 'B',
            (State::Gone(_), Origin::Custom) => 'F',
        };
        #[cfg(feature = "next-format")]
        let kind = crate::replication::formats::next::written_kind(
            kind,
            if let State::Link(link) = self { Some(link) } else { None },
        );
        let Version { rev, claim, edit } = self.version();
        let mut out = format!("{kind}{rev:08x}{claim:016x}{edit:08x}").into_bytes();
        // The record does not repeat the head: a script that buries a link knows its kind and version only there.
        match self.with_version(Version::default()) {
            State::Gone(gone) => State::Gone(Tombstone { origin: Origin::Issued, ..gone }).to_record(code, &mut out),
            link @ State::Link(_) => link.to_record(code, &mut out),
        }
        assert!(out.len() >= COMPARED_LEN, "nodes would compare less than the whole head");
        debug_assert_eq!(State::from_text(*code, &out).as_ref(), Ok(self), "another node would read another state");
        out
    }

    /// Decodes the form of Redis.
    ///
    /// # Errors
    /// [`NoState`] for anything that [`State::to_text`] did not write for this code.
    pub fn from_text(code: Code, text: &[u8]) -> Result<State, NoState> {
        Self::decode(code, text).ok_or_else(|| {
            let record = StateHead::of(text).map(|_| &text[HEAD_LEN..]);
            let is_intact = |record: &[u8]| record::is_intact(code.key(&mut [0; CODE_KEY_LEN_MAX]), record);
            if record.is_some_and(is_intact) { NoState::Newer } else { NoState::Damaged }
        })
    }

    fn decode(code: Code, text: &[u8]) -> Option<State> {
        // The old form has no number of changes here, but the first byte of the record: its version.
        let is_old = text.get(OLD_HEAD_LEN).is_some_and(|byte| !byte.is_ascii_hexdigit());
        let (head, body) = text.split_at_checked(if is_old { OLD_HEAD_LEN } else { HEAD_LEN })?;
        let digits = std::str::from_utf8(&head[1..]).ok()?;
        let version = if is_old { version_of(&[digits, "00000000"].concat()) } else { version_of(digits) };
        let version = version?;
        let state = State::from_value(code, body)?;
        let letter = head[0];
        #[cfg(feature = "next-format")]
        let letter = crate::replication::formats::next::read_kind(letter);
        let kind = match (letter, &state, state.origin()) {
            (b'I', State::Link(_), Origin::Issued) | (b'C', State::Link(_), Origin::Custom) => true,
            // A script turns a link into a tombstone, and knows its kind from the letter alone.
            (b'B' | b'F', State::Gone(_), _) => true,
            _ => false,
        };
        if !kind {
            return None;
        }
        let state = match state {
            State::Gone(gone) => {
                let origin = if head[0] == b'B' { Origin::Issued } else { Origin::Custom };
                State::Gone(Tombstone { origin, ..gone })
            }
            link @ State::Link(_) => link,
        };
        Some(state.with_version(version))
    }
}

/// Parses the version in the digits of a head.
pub fn version_of(digits: &str) -> Option<Version> {
    let (rev, rest) = digits.split_at_checked(8)?;
    let (claim, edit) = rest.split_at_checked(16)?;
    let small = |digits: &str| (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok())?;
    Some(Version { rev: small(rev)?, claim: u64::from_str_radix(claim, 16).ok()?, edit: small(edit)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::any_link;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn states_round_trip(link in any_link(), deleted_ms in any::<u64>()) {
            let code = link.code;
            let state = State::Link(Arc::new(link));
            prop_assert_eq!(State::from_text(code, &state.to_text(&code)), Ok(state.clone()));
            let gone = state.deleted(deleted_ms);
            prop_assert_eq!(State::from_text(code, &gone.to_text(&code)), Ok(gone.clone()));
            prop_assert!(gone.is_tombstone() != gone.is_free());
            prop_assert_eq!(state.released(9), None);
            let is_last = gone.version().rev == u32::MAX;
            prop_assert_eq!(gone.released(9).is_some(), gone.is_tombstone() && !is_last);
            if let Some(released) = gone.released(9) {
                prop_assert!(released.is_free());
                prop_assert!(released.version().rev == gone.version().rev + 1);
                prop_assert_eq!(State::from_text(code, &released.to_text(&code)), Ok(released));
            }
            let mut record = Vec::new();
            gone.to_record(&code, &mut record);
            let read = record::decode(code.to_string().as_bytes(), &record).unwrap();
            prop_assert_eq!(State::from_record(code, &read), gone);
        }

        #[test]
        fn a_state_of_an_unknown_kind_is_newer(link in any_link(), at in any::<prop::sample::Index>()) {
            let (code, version) = (link.code, link.version);
            let mut text = State::Link(Arc::new(link)).to_text(&code);
            text[0] = b'Z';
            prop_assert_eq!(State::from_text(code, &text), Err(NoState::Newer));
            prop_assert_eq!(StateHead::of(&text), Some(StateHead { is_link: None, version }));
            // Behind the head, a checksum tells a later version from damage.
            let at = HEAD_LEN + at.index(text.len() - HEAD_LEN);
            text[at] ^= 1;
            prop_assert_eq!(State::from_text(code, &text), Err(NoState::Damaged));
        }

        #[test]
        fn the_head_of_a_newer_record_is_that_of_its_state(link in any_link()) {
            let (code, version) = (link.code, link.version);
            let mut value = Vec::new();
            State::Link(Arc::new(link)).to_record(&code, &mut value);
            prop_assert_eq!(StateHead::if_newer(&code, &value), None);
            record::make_newer(code.key(&mut [0; CODE_KEY_LEN_MAX]), &mut value);
            prop_assert_eq!(State::from_value(code, &value), None);
            prop_assert_eq!(StateHead::if_newer(&code, &value), Some(StateHead { is_link: Some(true), version }));
            *value.last_mut().unwrap() ^= 1;
            prop_assert_eq!(StateHead::if_newer(&code, &value), None, "it is damaged");
        }

        #[test]
        fn any_bytes_are_a_state_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = State::from_text(Code::parse(b"abc").unwrap(), &bytes);
        }
    }
}
