//! End-to-end tests: each starts the real binary on free ports and speaks to it as its clients, its operator and its
//! enemies would.

mod http;
mod node;
mod quickstart;
mod urls;
