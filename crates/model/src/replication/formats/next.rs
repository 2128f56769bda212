//! A stand-in for the next version, in builds with the feature `next-format` only: tests run it beside this version.
//!
//! Once [`enable`] was called, the process reads the next format. Once all live nodes read it, the process writes what
//! this version does not know: a field of records, and entries of visit counts in the next format. Links with certain
//! tags get more: states of a new kind ([`KIND_TAG`]), stream entries with a field that a reader must understand
//! ([`ENTRY_TAG`]), and records of a later version ([`RECORD_TAG`](crate::link::record::next::RECORD_TAG)).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::numbers::{FIRST, NEWEST};
use crate::link::Link;
use crate::link::record::next as records;
use crate::link::record::unknown::UnknownFields;

/// The tag of links whose states are of the new kind.
pub const KIND_TAG: &str = "next-kind";

/// The tag of links whose stream entries have the new field.
pub const ENTRY_TAG: &str = "next-entry";

/// The new field of records.
pub const FIELD: u8 = 200;

static IS_ON: AtomicBool = AtomicBool::new(false);
static AGREED: AtomicU32 = AtomicU32::new(FIRST);

/// Makes this process one of the next version.
pub fn enable() {
    IS_ON.store(true, Ordering::Release);
    records::read();
}

/// True in a process of the next version.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Acquire)
}

/// Sets the format that all live nodes read.
pub fn agree(format: u32) {
    AGREED.store(format, Ordering::Release);
    records::write(writes());
}

/// True if this process writes the next format.
pub fn writes() -> bool {
    is_on() && AGREED.load(Ordering::Acquire) > NEWEST
}

/// Adds the new field to a new link.
pub fn extend(link: &mut Link) {
    if writes() {
        link.labels.unknown = UnknownFields::of(FIELD, b"of the next version");
    }
}

/// Returns the letter in which a link with this letter is written.
pub(crate) fn written_kind(letter: char, link: Option<&Link>) -> char {
    let is_new = link.is_some_and(|link| link.labels.tags.joined().split('\n').any(|tag| tag == KIND_TAG));
    match letter {
        'C' if is_new && writes() => 'X',
        'I' if is_new && writes() => 'Y',
        letter => letter,
    }
}

/// Returns the letter of this version that a letter stands for.
pub(crate) fn read_kind(letter: u8) -> u8 {
    match letter {
        b'X' if is_on() => b'C',
        b'Y' if is_on() => b'I',
        letter => letter,
    }
}

/// Returns a script that knows the new kind, and writes entries with the new field.
pub fn script(text: &str) -> String {
    text.replace(
        "kind(state) == 'I' or kind(state) == 'C'",
        "string.find('ICXY', kind(state), 1, true) ~= nil",
    )
    .replace("kind(old) == 'I' and", "(kind(old) == 'I' or kind(old) == 'Y') and")
    .replace(
        "    -- The stream first:",
        "    if string.find(state, 'next-entry', 1, true) then told[#told + 1] = 'N' told[#told + 1] = '1' end\n    -- The stream first:",
    )
}
