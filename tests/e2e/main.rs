//! End-to-end tests: each starts the real binary on free ports and speaks to it as its clients, its operator and its
//! enemies would.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "helpers of tests, which the lint does not take for tests"
)]

mod access_log;
mod admin;
mod alarms;
mod allow;
mod apps;
mod backup;
mod bad_input;
mod balancers;
mod block;
mod browser;
mod bulk;
mod changes;
mod console;
mod console_in_a_browser;
mod copies;
mod crash;
mod crowd;
mod deploy;
mod disk_fault_tests;
mod domains;
mod edge;
mod endings;
mod expiry;
mod exports;
mod faults;
mod fields;
mod fleet;
mod flips;
mod floods;
mod guesses;
mod hostile;
mod http;
mod http2;
mod idempotency;
mod images;
mod key_registry;
mod ledger;
mod lifecycle;
mod limited;
mod lists;
mod loading;
mod metrics;
mod node;
mod openapi;
mod package;
mod pages;
mod pages_in_a_browser;
mod power_loss;
mod pressure;
mod quickstart;
mod refusals;
mod residency;
mod restarts;
mod reuse;
mod schema;
mod screens;
mod searches;
mod shims;
mod tls;
mod unread;
mod urls;
mod visits;
