//! The commands that a person can type: one file for each family, and their work on a data directory.
//!
//! Import, export, verify and restore open stores through [`crate::startup`] and `carom-store`, without a running node.
//! `status`, `top`, `health` and `fleet` ask the admin listener of a node; `top` draws each answer. `backup` asks the
//! control socket of a running node, or opens the store itself. `join` fills a new data directory from the admin listener
//! of another node. `app` changes the file of API keys, with or without a node. The commands for links are clients of the
//! REST API ([`node_api`]) of any node, with the [`login`] of the user.

pub mod app;
pub mod backup;
mod backup_files;
pub mod cli;
pub mod config;
pub mod data;
mod dated_backups;
pub mod demo;
pub mod doctor;
pub mod fleet;
pub mod import;
mod import_online;
mod import_source;
pub mod join;
pub mod link;
pub mod login;
pub mod moving;
mod node_api;
pub mod offline;
pub mod output;
mod profile;
pub mod purge;
pub mod status;
pub mod terminal;
pub mod top;
