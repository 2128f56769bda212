//! carom
fn main() {}
