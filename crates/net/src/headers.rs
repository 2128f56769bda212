//! The bytes of a frame before its payload, pure: Ethernet, IPv4 and IPv6, tunnel headers of balancers, TCP with its
//! options, and checksums. The stack parses them from received frames, and builds them in those that it sends.

pub(crate) mod address;
pub(crate) mod checksum;
pub(crate) mod ethernet;
pub(crate) mod ipv4;
pub(crate) mod ipv6;
pub(crate) mod options;
pub(crate) mod segment;
pub(crate) mod tunnel;
