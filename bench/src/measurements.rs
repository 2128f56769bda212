//! The measurements, one for each subcommand. They start servers, put load on them with the client, and add to the results.

pub(crate) mod bypass;
pub(crate) mod compare;
pub(crate) mod fleet;
pub(crate) mod growth;
pub(crate) mod join;
pub(crate) mod shared_home;
