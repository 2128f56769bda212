//! Visits: counts by link, kind, time and referring host, and the log of single visits with its statistics.

mod counts;
mod locations;
mod log;
mod stats;
