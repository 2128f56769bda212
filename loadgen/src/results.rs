//! The results of a run, pure: which responses are correct (`check`), counts and latencies (`record`), and whether they
//! meet the objectives (`verdict`). `report` shows them.

pub(crate) mod check;
pub(crate) mod record;
pub(crate) mod verdict;
