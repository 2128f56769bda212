//! Kernel bypass between two network namespaces. Only root can make these; for other users each test prints that it is
//! skipped, and passes.

mod ends;
mod faults;
mod floods;
mod operate;
mod serving;
mod wires;
