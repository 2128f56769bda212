//! The part of kernel bypass that touches Linux: the XDP program and its loader, AF_XDP sockets, next hops, facts of
//! interfaces, and the checks that say why bypass can or cannot be had.
//!
//! The crate gives its caller frames as bytes, and takes frames as bytes. It must not know HTTP, how cores work, or TCP
//! beyond what the XDP program matches. It reads no clock: time is passed in.
//!
//! Read in this order: the comment at the top of `bpf/bypass.c`; [`program`], its loader; the states of a frame at the
//! top of [`socket`]; [`next_hops`]. `docs/src/internals/xdp.md` follows a frame through all of it.
//!
//! ```no_run
//! # use carom_xdp::{config::SocketConfig, program::{AttachMode, Decapsulation, XdpProgram}, socket::XdpSocket};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let to = ["192.0.2.7:80".parse()?];
//! let mut program = XdpProgram::attach(2, AttachMode::Auto, &to, Decapsulation::None)?;
//! let mut socket = XdpSocket::open(&SocketConfig::new(2, 0))?;
//! program.register(&socket)?;
//! while let Some(received) = socket.receive() {
//!     let bytes = &socket.bytes(received.frame)[received.offset as usize..][..received.len as usize];
//!     assert!(bytes.len() >= 14);
//!     socket.free(received.frame);
//! }
//! socket.refill();
//! socket.kick()?;
//! # Ok(())
//! # }
//! ```

pub mod config;
pub mod features;
pub mod interface;
mod netlink;
pub mod next_hops;
pub mod preflight;
pub mod program;
pub mod socket;
mod sys;
