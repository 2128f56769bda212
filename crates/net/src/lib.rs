//! A user-space TCP/IP stack for one receive queue.
#![forbid(unsafe_code)]

mod address;
mod checksum;
mod counters;
mod encap;
mod ethernet;
mod ipv4;
mod ipv6;
mod next_hop;
mod options;
mod segment;
mod seq;

pub use counters::{DropReason, StackCounters};
pub use encap::Decapsulate;
pub use next_hop::{NextHop, NextHops, Reflect};
mod config;
mod congestion;
mod cookies;
mod flow_table;
mod held;
mod keys;
mod pool;
mod reassembly;
mod rtt;
mod sack;
mod wheel;
