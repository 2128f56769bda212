//! The steps before a node or an offline command can work: the log, the signals, the checks of the machine and of kernel
//! bypass, the code secret, the join of a new node from a peer, and the data directory with its lock, its API keys and
//! its store.
//!
//! Everything here runs on the main thread, and every failure is an [`Exit`](carom_settings::exit::Exit) with its
//! number.

pub(crate) mod brand;
pub(crate) mod bypass;
pub mod code_secret;
pub mod data_dir;
pub mod domains;
pub mod files;
pub mod home;
pub mod joining;
pub mod logging;
pub mod preflight;
pub(crate) mod redis;
pub mod signals;
