//! End-to-end tests: each starts the real binary on free ports and speaks to it as its clients, its operator and its
//! enemies would.

mod crash;
mod http;
mod ledger;
mod node;
mod power_loss;
mod quickstart;
mod urls;
