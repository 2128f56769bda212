//! The place of the load generator: an open-loop client that reports what every request waited. Not built yet.

fn main() {}
