//! Compatible APIs: clients of other shorteners.

mod sdk;
mod shorteners;
