//! The place of the benchmarks, which run carom beside its peers. Not built yet.

fn main() {}
