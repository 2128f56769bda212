//! Tests with a pair of virtual interfaces between two network namespaces, which only root can make. For other users
//! each test prints that it is skipped, and passes.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "these files are tests, with their helpers")]

mod facts;
mod faults;
mod frames;
mod next_hops;
mod pair;
mod passing;
mod redirecting;
mod sending;
