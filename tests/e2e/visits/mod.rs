//! Visits: counts by link, kind, time and referring host.

mod counts;
