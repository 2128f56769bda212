//! Compatible APIs: clients of other shorteners.

mod shorteners;
