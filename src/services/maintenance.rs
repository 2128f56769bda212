//! Upkeep of a node: backups and their restore, indexes built in the background, free disk space, the time of the last
//! backup, the filter of codes, the watch of kernel bypass, and the samples of recent activity.

pub mod activity_sampler;
pub mod backup;
mod bypass_watch;
pub mod code_filter;
pub mod control_socket;
pub mod data_dir_watch;
pub mod disk_guard;
pub mod index_builder;
pub mod last_backup;
pub mod progress;
pub mod restore;
