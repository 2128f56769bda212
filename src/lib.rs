//! carom: a URL shortener and redirect appliance.
//!
//! `ARCHITECTURE.md` at the root of the repository explains how the parts hang together.

pub mod access_log;
pub mod api;
pub mod app_commands;
pub mod backup_commands;
pub mod cli;
pub mod control;
pub mod core;
pub mod desk;
pub mod http_text;
pub mod logging;
pub mod mail;
pub mod node;
pub mod offline;
pub mod pages;
pub mod preflight;
pub mod qr;
pub mod redis;
pub mod socket;
pub mod space_key;
pub mod status_command;
pub mod wire;
