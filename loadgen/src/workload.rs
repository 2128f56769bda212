//! The workload of a run: when requests are sent (`schedule`), of which kind (`traffic`) and for which of the `links`
//! (`popularity`). A seed reproduces all of it (`random`). Only `links` reads a file.

pub(crate) mod links;
pub(crate) mod popularity;
pub(crate) mod random;
pub(crate) mod schedule;
pub(crate) mod traffic;
