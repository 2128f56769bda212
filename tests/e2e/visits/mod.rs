//! Visits: counts by link, kind, time and referring host, and the visit log with its statistics.

mod counts;
mod locations;
mod log;
mod stats;
