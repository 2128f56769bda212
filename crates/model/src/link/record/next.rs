//! A stand-in for the records of the next version, in builds with the feature `next-format` only.
//!
//! `replication::formats::next` switches it on: the process then reads records of [`VERSION_NEXT`]. Once the next format
//! is in use, it writes them for links with the tag [`RECORD_TAG`].

use std::sync::atomic::{AtomicBool, Ordering};

use super::form::VERSION_RULES;

/// The tag of links whose records have [`VERSION_NEXT`].
pub const RECORD_TAG: &str = "next-record";

/// The version of records that this version cannot read.
pub const VERSION_NEXT: u8 = VERSION_RULES + 1;

static READS: AtomicBool = AtomicBool::new(false);
static WRITES: AtomicBool = AtomicBool::new(false);

/// Lets this process read records of the next version.
pub(crate) fn read() {
    READS.store(true, Ordering::Release);
}

/// Sets whether this process writes records of the next version.
pub(crate) fn write(is_on: bool) {
    WRITES.store(is_on, Ordering::Release);
}

/// True if this process reads records of this version, besides those of the present one.
pub(super) fn reads(version: u8) -> bool {
    version == VERSION_NEXT && READS.load(Ordering::Acquire)
}

/// Returns the version in which a record with this version and these joined tags is written.
pub(super) fn written(version: u8, tags: &str) -> u8 {
    let is_new = version != VERSION_RULES && tags.split('\n').any(|tag| tag == RECORD_TAG);
    if is_new && WRITES.load(Ordering::Acquire) { VERSION_NEXT } else { version }
}
