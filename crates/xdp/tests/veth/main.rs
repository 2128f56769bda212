//! Tests with a pair of virtual interfaces between two network namespaces, which only root can make. For other users
//! each test prints that it is skipped, and passes.

mod facts;
mod faults;
mod frames;
mod next_hops;
mod pair;
mod passing;
mod redirecting;
mod sending;
