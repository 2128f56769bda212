//! A user-space TCP/IP stack for one receive queue, without I/O: frames and time in, frames and events out.
//!
//! carom uses the stack for kernel bypass. It suits a server of short answers. It opens no connections itself. An
//! answer carries the acknowledgement of its request, and the frame of an answer is its retransmission buffer.
//!
//! The crate knows no sockets, no rings of a NIC, no clock, no threads, and nothing of HTTP. ARP, NDP and ICMP stay with
//! the kernel. A driver passes each received frame to the stack ([`Stack::receive`]), sends answers ([`Stack::send`]),
//! ends its turn ([`Stack::flush`]) and runs timers ([`Stack::poll`]). The stack sends from the memory of a [`FramePool`].
//!
//! Reading order: `pool.rs` (the two owners of a frame), `events.rs`, `headers.rs` (the bytes of frames), `stack.rs` (from
//! a frame to its connection), `stack/handshake.rs`, `connection.rs` (states and variables), `connection/receive.rs`,
//! `connection/acknowledge.rs`, `connection/transmit.rs`, `connection/timers.rs`. A rule that comes from an RFC names the
//! section.
#![forbid(unsafe_code)]

mod config;
mod connection;
mod counters;
mod events;
mod headers;
mod next_hop;
mod pool;
mod seq;
mod stack;

pub use config::{NetFaults, StackConfig};
pub use counters::{DropReason, StackCounters};
pub use events::{CloseReason, ConnectionId, Events};
pub use headers::segment::peek_payload;
pub use headers::tunnel::Decapsulate;
pub use next_hop::{NextHop, NextHops, Reflect};
pub use pool::{FRAME_LEN, FramePool, MemoryPool};
pub use stack::Stack;
