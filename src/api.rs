//! The REST API and the pages: every response that hyper sends, on the public and on the admin listener.
//!
//! * `public` and `admin` are the two routers. `auth` identifies the caller, and `browser` recognises requests that
//!   pages of other sites made a browser send.
//! * `rest` holds the REST API: `routes` is the table of public paths and `openapi` their description; `create` and
//!   `patch` check requests; `short_urls`, `list`, `tags`, `visits`, `domains` and `apps` serve one resource each;
//!   `bulk` and `export` carry many links at once, as `lines`, with bodies that are `streaming`.
//! * `compat` serves the APIs of other shorteners. `public_pages` serves the form, previews and QR codes. `console`
//!   serves the pages of the admin listener.
//! * `admin` also serves the status and the metrics. `problem` builds every error, and `page` every HTML response.
//!
//! Handlers run on the thread of a core. They ask the [`crate::bridge::handle::ServiceHandle`], and use neither rings nor
//! maps nor disks.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use self::auth::Caller;
use crate::bridge::handle::ServiceHandle;
use carom_limits::{BODY_LEN_MAX, ConnectionLimits};
use carom_model::destination::long_url::Authority;
use carom_model::link::creator_links::CreatorLinks;

pub mod admin;
mod auth;
mod browser;
mod compat;
mod console;
mod fields;
mod page;
mod problem;
pub mod public;
mod public_pages;
mod query;
mod rest;

/// The body of a response: either complete, or produced while hyper sends it.
pub type Content = Pin<Box<dyn Body<Data = Bytes, Error = Infallible>>>;

/// A response of the API or of a page.
pub type ApiResponse = Response<Content>;

/// The handler of all requests of one listener. It runs on the thread of the core that owns the connection.
pub type ApiService = Rc<dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = ApiResponse>>>>;

/// Starts the clock of the uptime that the status reports.
pub fn start_clock() {
    admin::status::started();
}

/// Facts about the service that handlers need. All cores share them.
#[derive(Debug)]
pub struct Site {
    /// Hosts and ports of this service, which no link may have as its destination.
    pub own: Vec<Authority>,
    /// Lifetime of a link that is created without an expiry date.
    pub default_ttl: Option<Duration>,
    /// Links that an app may create each second if its API key sets no other limit; 0: unlimited.
    pub app_creates: u32,
    /// Creates and verifies the addresses of the pages that show created links.
    pub receipts: CreatorLinks,
    /// True if links of other domains than the default one existed at start.
    pub has_other_domains: bool,
    /// True if `GET /` serves the form that creates links.
    pub has_form: bool,
    /// The APIs that the public listeners serve.
    pub interfaces: Interfaces,
    /// True if the admin listener grants every right without an API key.
    pub trusts_admin: bool,
    /// Host names of the admin listener, in lower case.
    pub admin_hosts: Vec<String>,
    /// The effective settings, in the form in which the console and the API may show them.
    pub settings: serde_json::Value,
}

/// Switches for the APIs that the public listeners serve.
#[derive(Clone, Copy, Debug)]
pub struct Interfaces {
    /// True if the REST API, which is that of Shlink, is on.
    pub shlink: bool,
    /// True if Bitly's API is on.
    pub bitly: bool,
    /// True if YOURLS's API is on.
    pub yourls: bool,
    /// True if YOURLS's API may answer with JSONP.
    pub yourls_jsonp: bool,
}

/// Everything that a handler works with, for one request.
#[derive(Clone, Debug)]
struct Context {
    services: Rc<ServiceHandle>,
    site: Arc<Site>,
    /// The caller of this request.
    caller: Rc<Caller>,
    /// QR codes that this core has rendered.
    pictures: Rc<RefCell<public_pages::qr::Pictures>>,
}

impl Context {
    /// Returns the context of a core, before a caller is known.
    fn of(services: Rc<ServiceHandle>, site: Arc<Site>) -> Context {
        Context { services, site, caller: Rc::new(Caller::everybody()), pictures: Rc::default() }
    }
}

/// Returns a response whose body has the content type `kind`.
fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> ApiResponse {
    answer_with(status, kind, Box::pin(Full::new(body.into())))
}

/// Returns a response with the body `content` of the content type `kind`.
fn answer_with(status: StatusCode, kind: &'static str, content: Content) -> ApiResponse {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// Returns a response without a body.
fn empty(status: StatusCode) -> ApiResponse {
    let mut answer = Response::new(Box::pin(Full::default()) as Content);
    *answer.status_mut() = status;
    answer
}

/// Returns a JSON response.
fn json(status: StatusCode, body: &impl serde::Serialize) -> ApiResponse {
    json_text(status, to_json(body))
}

/// Returns a response with JSON that is serialised already.
fn json_text(status: StatusCode, text: Vec<u8>) -> ApiResponse {
    answer(status, "application/json", text)
}

/// Serialises a value as JSON.
fn to_json(body: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("keys are strings, and nothing else can fail")
}

/// Adds a header to a response. A value that no header can carry is left out.
fn with(mut answer: ApiResponse, name: HeaderName, value: &str) -> ApiResponse {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
    answer
}

/// True if the `Accept` header names HTML.
fn accepts_html<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get_all(header::ACCEPT);
    accepted.iter().any(|value| carom_http::head::accepts_html(value.as_bytes()))
}

/// Returns the limit on the length of a request body, in bytes.
fn body_len_max<B>(request: &Request<B>) -> usize {
    request.extensions().get::<ConnectionLimits>().map_or(BODY_LEN_MAX, |limits| limits.body_len as usize)
}

/// True if a method only reads.
fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}
