//! Operation: status, metrics, alarms, logs, backups, packages, and the reasons not to start.

mod access_log;
mod admin;
mod affinity;
mod alarms;
mod backup;
mod compose;
mod config;
mod demo;
mod deploy;
mod doctor;
mod link;
mod login;
mod metrics;
mod output;
mod package;
mod purge;
mod release;
mod startup;
mod terminal;
mod threads;
mod top;
mod watchdog;
