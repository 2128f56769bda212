//! Compatible APIs: clients of other shorteners.

mod cors;
mod rest;
mod sdk;
mod shorteners;
