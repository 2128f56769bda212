//! Kernel bypass between two network namespaces. Only root can make these; for other users each test prints that it is
//! skipped, and passes.

mod ends;
mod faults;
mod floods;
mod hostile;
mod operate;
mod restarts;
mod serving;
mod tools;
mod wires;
