//! The pure core of carom: what a code is, which core owns it, where codes come from, and how a core keeps its links.
//!
//! Nothing here does I/O, reads a clock, draws randomness of its own or knows of threads, sockets or glommio: time,
//! seeds and bytes are passed in. Read [`code`] first, then [`mod@owner`], [`space`], [`segment`], [`map`] and
//! [`filter`].

#![forbid(unsafe_code)]

pub mod code;
pub mod filter;
pub mod link;
pub mod map;
mod mix;
pub mod owner;
pub mod permutation;
pub mod segment;
pub mod space;

pub use code::{CODE_KEY_LEN_MAX, CODE_LEN_MAX, Code, CodeError, CodeHash, CodeHasher, DomainId, GeneratedCode};
pub use filter::CodeFilter;
pub use link::{LinkPhase, MapEntry, Policy, RedirectStatus};
pub use map::sealed::{PageBuffer, SealedPage};
pub use map::{CachedLinks, LinkMap, MapFull, Put};
pub use owner::{CoreCount, CoreId, owner};
pub use segment::{Issuer, Offer, Run, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN, Segment, SegmentSizer};
pub use space::{CodeLength, CodeSecret, CodeSecretError, CodeSpace, CounterValue};
