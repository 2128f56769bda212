//! The harness: nodes, clients, a browser, Redis, and fixtures that several themes use. No test of the server is here.

pub(crate) mod alarms;
pub(crate) mod api_client;
pub(crate) mod browser;
pub(crate) mod bulk;
pub(crate) mod bypass;
pub(crate) mod cluster;
pub(crate) mod console;
pub(crate) mod domains;
pub(crate) mod fleet;
pub(crate) mod fleet_clients;
pub(crate) mod http;
pub(crate) mod ledger;
pub(crate) mod links;
pub(crate) mod memory;
pub(crate) mod node;
pub(crate) mod openapi;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod resp;
pub(crate) mod schema;
pub(crate) mod sentinel;
pub(crate) mod sessions;
pub(crate) mod steady_client;
pub(crate) mod store;
pub(crate) mod tls;
pub(crate) mod wire;
