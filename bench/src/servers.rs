//! The servers under test: their commands and settings (`peers`), their processes (`process`), and two minimal servers that
//! show the cost of the kernel (`floors`).

pub(crate) mod floors;
pub(crate) mod peers;
pub(crate) mod process;
