//! Visits: counts by link, kind, time and referring host, and the log of single visits.

mod counts;
mod log;
