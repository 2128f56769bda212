//! Counters, histograms, alarms and recent activity: everything that carom tells about itself.
//!
//! Cores and service threads write these values, and the admin listener reads them. A writer never waits: counters have
//! one writing thread each and need no locked instruction, and the few mutexes guard lists that change rarely.
//!
//! This crate knows neither links nor sockets nor settings. It names every alarm ([`alarms::Alarm`]); the runbook has a
//! section for each. It does not know the metric families: their names and help are in the server, beside `/metrics`.
//! The load generator uses [`panics`] and [`readable`].
//!
//! Read first:
//!
//! 1. [`counter::Counter`], a counter with one writer;
//! 2. [`stats::CoreStats`] and [`stats::NodeStats`], the values of one core and of the node;
//! 3. [`durations`], durations in buckets;
//! 4. [`alarms::Alarm`], the closed list of alarms;
//! 5. [`activity`], one sample for each of the last seconds;
//! 6. [`exposition`], the Prometheus text format.

pub mod activity;
pub mod alarms;
pub mod bypass;
pub mod clock;
pub mod counter;
pub mod durations;
pub mod exposition;
pub mod grants;
pub mod panics;
pub mod readable;
pub mod sites;
pub mod stats;
