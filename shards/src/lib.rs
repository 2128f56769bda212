//! The pure core of carom: what a code is, which core owns it, where codes come from, and how a core keeps its links.
//!
//! Nothing here does I/O, reads a clock, draws randomness of its own or knows of threads, sockets or glommio: time,
//! seeds and bytes are passed in. The crate uses no other crate of the workspace. A core, a service and a benchmark use
//! it alike.
//!
//! Read first:
//!
//! 1. [`code`], the path of a short URL, packed to six bits a character;
//! 2. [`mod@owner`], the one function that decides which core owns a code;
//! 3. [`space`], from a counter value to a code and back, through the cipher in [`permutation`];
//! 4. [`segment`], runs of counter values, shuffled before any is used;
//! 5. [`link`], what a core keeps of a link;
//! 6. [`map`], the link map of one core, and `map::record`, an entry as bytes;
//! 7. `map::index` and `map::pages`, how a map of all links finds and frees memory;
//! 8. `map::cached` and `map::ghosts`, a map under a limit in bytes;
//! 9. [`map::sealed`](PageBuffer), records outside a map, for images;
//! 10. [`filter`], an approximate set of the codes that exist.

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
