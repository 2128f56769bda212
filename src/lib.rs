//! carom: a URL shortener and redirect appliance.
//!
//! `ARCHITECTURE.md` at the root of the repository explains how the parts hang together.

pub mod access_log;
pub mod allowance;
pub mod api;
pub mod app_commands;
pub mod apps;
pub mod backup;
pub mod backup_commands;
pub mod cli;
pub mod config;
pub mod control;
pub mod core;
pub mod dates;
pub mod desk;
pub mod domains;
pub mod exit;
pub mod fleet;
pub mod forwarded;
pub mod guard;
pub mod history;
pub mod hosts;
pub mod idempotency;
pub mod labels;
pub mod link;
pub mod listing;
pub mod logging;
pub mod long_url;
pub mod mail;
pub mod networks;
pub mod node;
pub mod offline;
pub mod pages;
pub mod patch;
pub mod preflight;
pub mod private_code;
pub mod qr;
pub mod receipts;
pub mod record;
pub mod space_key;
pub mod status_command;
pub mod store;
pub mod tls;
pub mod visits;
pub mod wire;
