//! The REST API and the pages: every response that hyper sends, on the public and on the admin listener.
//!
//! * `public` and `admin` are the two routers, and `public::routes` is the table of public paths; `extra_path` reads what of a path and query belongs to a link. `auth` identifies the `caller`, `browser` recognises requests that
//!   pages of other sites made a browser send, and `cors` lets pages call the REST API with a key. Handlers work with a `context` and build a `response`.
//! * `rest` holds the REST API: `openapi` is its description; `create` and
//!   `patch` check requests; `short_urls`, `list`, `tags`, `visits`, `domains` and `apps` serve one resource each;
//!   `bulk` and `export` carry many links at once, as `lines`, with bodies that are `streaming`.
//! * `compat` serves the APIs of other shorteners. `public_pages` serves the form, previews and QR codes. `console`
//!   serves the pages of the admin listener.
//! * `admin` also serves the status and the metrics. `problem` builds every error, and `page` every HTML response;
//!   `compression` packs long ones.
//!
//! Handlers run on the thread of a core. They ask the [`crate::bridge::handle::ServiceHandle`], and access no
//! ring, link map or disk directly.

use std::pin::Pin;
use std::rc::Rc;

use hyper::Request;
use hyper::body::Incoming;

pub use self::console::session::Sessions;
pub use self::context::{Interfaces, MercureHub, Site};
use self::response::ApiResponse;
pub use self::rest::events::{describe_link, describe_visit};

pub mod admin;
mod auth;
mod browser;
mod caller;
mod compat;
mod compression;
mod console;
mod context;
mod cors;
mod extra_path;
mod fields;
mod orphans;
mod page;
mod problem;
pub mod public;
mod public_pages;
mod query;
mod rate_limit;
mod request;
mod response;
mod rest;
mod uptime;

/// The handler of all requests of one listener. It runs on the thread of the core that owns the connection. A core
/// takes it as `HttpService` (`src/core/hyper_bridge.rs`, the same type); `src/node/cores.rs` passes it there.
pub type ApiService = Rc<dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = ApiResponse>>>>;

/// Starts the clock of the uptime that the status reports.
pub fn start_clock() {
    uptime::started();
}
