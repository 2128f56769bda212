//! Compatible APIs: clients of other shorteners.

mod cors;
mod lists;
mod modes;
mod rest;
mod sdk;
mod shorteners;
mod slugs;
mod web_client;
