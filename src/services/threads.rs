//! Pools of threads that serve one queue, and the priority of threads beside the cores.

pub(crate) mod pool;
pub mod priority;
