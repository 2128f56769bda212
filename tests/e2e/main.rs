//! End-to-end tests: each starts the real binary on free ports and speaks to it as clients, operators and attackers
//! would.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "helpers of tests, which the lint does not take for tests"
)]

mod access;
mod bypass;
mod compat;
mod console;
mod durability;
mod edge;
mod events;
mod fleet;
mod links;
mod lists;
mod operate;
mod pages;
mod redirects;
mod support;
mod visits;
