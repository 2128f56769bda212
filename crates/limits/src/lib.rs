//! Limits of the server, each with the reason for its number.
//!
//! The crate has constants and assertions about how they relate. It uses no other crate. Settings may replace some of
//! these limits: the constant is then the default, or the bound of the setting.
//!
//! The files group limits by what they bound. Import all of them from the crate root: `carom_limits::HEAD_LEN_MAX`. A
//! limit that concerns one crate or module is beside its code: the lengths of codes and segments in `carom-shards`, the
//! defaults of the TCP/IP stack in `carom-net`, and the `RING_LEN`s of the rings.
//!
//! Read first: `connections` (what a client may cost), `requests` (what a request may ask for), `store` (what a commit
//! takes at once), and the assertions in this file.

mod codes;
mod connections;
mod events;
mod fleet;
mod lists;
mod memory;
mod purges;
mod requests;
mod store;
mod visits;

pub use codes::*;
pub use connections::*;
pub use events::*;
pub use fleet::*;
pub use lists::*;
pub use memory::*;
pub use purges::*;
pub use requests::*;
pub use store::*;
pub use visits::*;

const _: () = {
    assert!(CODES_LOW * 2 <= CODES_QUEUE_LEN);
    assert!(DESTINATION_LEN_MAX < HEAD_LEN_MAX);
    assert!(COMMIT_WRITES_MAX <= WRITE_QUEUE_LEN);
    assert!(IMPORT_LINE_MAX < IMPORT_CHUNK_BYTES);
    assert!(LOAD_BATCH_BYTES < LOAD_IN_FLIGHT_MAX);
};
