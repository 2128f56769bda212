//! The loads of the comparison.

use crate::client::Scenario;

/// Names of the scenarios that figures refer to.
pub(super) const SATURATED: &str = "64 connections";
pub(super) const MANY: &str = "1,024 connections";
pub(super) const STEADY: &str = "open loop, 40,000/s";
pub(super) const RENEWED: &str = "a connection for each request";
pub(super) const WITH_TLS: &str = "64 connections with TLS";

/// Scenarios of the comparison, in the order of reports.
pub(super) const SCENARIOS: [Scenario; 5] = [
    Scenario { name: SATURATED, connections: 64, pipeline: 1, renew: None, rate: None, zipf: None },
    Scenario { name: MANY, connections: 1_024, pipeline: 1, renew: None, rate: None, zipf: None },
    Scenario { name: STEADY, connections: 64, pipeline: 1, renew: None, rate: Some(40_000.0), zipf: None },
    Scenario { name: RENEWED, connections: 64, pipeline: 1, renew: Some(1), rate: None, zipf: None },
    Scenario { name: WITH_TLS, connections: 64, pipeline: 1, renew: None, rate: None, zipf: None },
];
