//! carom: a URL shortener and redirect appliance.
//!
//! `ARCHITECTURE.md` at the root of the repository explains how the parts hang together.

pub mod access_log;
pub mod api;
pub mod app_commands;
pub mod backup;
pub mod backup_commands;
pub mod cli;
pub mod control;
pub mod core;
pub mod desk;
pub mod logging;
pub mod mail;
pub mod node;
pub mod offline;
pub mod pages;
pub mod preflight;
pub mod qr;
pub mod space_key;
pub mod status_command;
pub mod store;
pub mod tls;
pub mod wire;
