//! Compatible APIs: clients of other shorteners.

mod cors;
mod sdk;
mod shorteners;
