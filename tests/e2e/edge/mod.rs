//! The edge: HTTP, TLS and PROXY protocol, limits, floods, drains and restarts.

mod admission;
mod balancers;
mod drain;
mod floods;
mod fronts;
mod handover;
mod http2;
mod hyper;
mod malformed;
mod miss_limits;
mod pipelining;
mod proxy;
mod tls;
mod unread;
