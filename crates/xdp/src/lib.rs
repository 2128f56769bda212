//! The part of kernel bypass that touches Linux: the XDP program and its loader, AF_XDP sockets, next hops, facts of
//! interfaces, and the checks that say why bypass can or cannot be had.
//!
//! It gives its caller frames as bytes, and takes frames as bytes. It must not know TCP, beyond what the XDP program
//! matches, nor HTTP, nor how cores work. It reads no clock: time is passed in.

pub mod config;
pub mod interface;
mod netlink;
pub mod next_hops;
pub mod preflight;
pub mod program;
pub mod socket;
mod sys;
