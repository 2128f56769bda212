//! The REST API and the pages: everything that hyper answers, on the public and on the admin listener.
//!
//! `auth` says who asks, `browser` whether a page of somebody else made it ask, `apps` manages who may. `public` and `admin` are the two routers, `routes` the table of what the public one serves and `openapi` its description;
//! `short_urls` the API of links, `list` and `tags` that of lists; `create` what a request to shorten may say; `bulk` and
//! `export` many links at once, as `lines`, with answers that are `streaming`; `visits` how often links were followed;
//! `domains` which domain a request means; `home` the form for people, `preview` where a link leads, `qr` its short URL as a picture; `shims` the interfaces of other shorteners; `status` what the admin listener tells, `metrics` the same for Prometheus; `problem` every error; `page` the pages for people. Handlers ask the
//! [`crate::bridge::handle::Desk`] and know nothing of rings, maps or disks.

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
use crate::bridge::handle::Desk;
use carom_limits::{BODY_LEN_MAX, ConnectionLimits};
use carom_model::destination::long_url::Authority;
use carom_model::link::creator_links::Receipts;

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

/// The body of an answer: whole, or made while it is sent.
pub type Content = Pin<Box<dyn Body<Data = Bytes, Error = Infallible>>>;

/// An answer.
pub type Answer = Response<Content>;

/// What answers the requests of one listener's connections: the form that a core takes.
pub type Service = Rc<dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = Answer>>>>;

/// Begins to count the uptime that the status tells.
pub fn start_clock() {
    admin::status::started();
}

/// What handlers must know of the service that they speak for. The same on all cores.
#[derive(Debug)]
pub struct Site {
    /// Hosts and ports of this service: no link may lead to them.
    pub own: Vec<Authority>,
    /// How long a link lives that is made without an end.
    pub default_ttl: Option<Duration>,
    /// Links that an app may make a second, where its key says nothing else; 0: any number.
    pub app_creates: u32,
    /// Where links are shown to who has made them by hand.
    pub receipts: Receipts,
    /// Whether there were links of other domains than the default one at the start.
    pub has_other_domains: bool,
    /// Whether there is a form at the root.
    pub has_form: bool,
    /// The programming interfaces that the public listeners serve.
    pub interfaces: Interfaces,
    /// Whether whoever reaches the admin listener may do everything there, without a key.
    pub trusts_admin: bool,
    /// Names by which people reach the admin listener, in small letters.
    pub admin_hosts: Vec<String>,
    /// The settings that hold, as they may be shown.
    pub settings: serde_json::Value,
}

/// The programming interfaces that the public listeners serve.
#[derive(Clone, Copy, Debug)]
pub struct Interfaces {
    /// The REST API, which is that of Shlink.
    pub shlink: bool,
    /// Bitly's API.
    pub bitly: bool,
    /// The API of YOURLS.
    pub yourls: bool,
    /// Whether YOURLS's answers JSONP.
    pub yourls_jsonp: bool,
}

/// What a handler works with.
#[derive(Clone, Debug)]
struct Context {
    desk: Rc<Desk>,
    site: Arc<Site>,
    /// Whose request it is.
    caller: Rc<Caller>,
    /// QR codes that were drawn.
    pictures: Rc<RefCell<public_pages::qr::Pictures>>,
}

impl Context {
    /// That of a core. Whose requests it gets is not known yet.
    fn of(desk: Rc<Desk>, site: Arc<Site>) -> Context {
        Context { desk, site, caller: Rc::new(Caller::everybody()), pictures: Rc::default() }
    }
}

/// An answer with a body of the given kind.
fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    answer_with(status, kind, Box::pin(Full::new(body.into())))
}

/// An answer with that body of the given kind.
fn answer_with(status: StatusCode, kind: &'static str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// An answer without a body.
fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Box::pin(Full::default()) as Content);
    *answer.status_mut() = status;
    answer
}

/// A JSON answer.
fn json(status: StatusCode, body: &impl serde::Serialize) -> Answer {
    json_text(status, to_json(body))
}

/// A JSON answer that is written already.
fn json_text(status: StatusCode, text: Vec<u8>) -> Answer {
    answer(status, "application/json", text)
}

/// A value as JSON.
fn to_json(body: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("keys are strings, and nothing else can fail")
}

/// The same answer with one more field.
fn with(mut answer: Answer, name: HeaderName, value: &str) -> Answer {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
    answer
}

/// Whether the client names HTML among what it accepts.
fn accepts_html<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get_all(header::ACCEPT);
    accepted.iter().any(|value| crate::wire::head::accepts_html(value.as_bytes()))
}

/// How many bytes the body of a request may have.
fn body_len_max<B>(request: &Request<B>) -> usize {
    request.extensions().get::<ConnectionLimits>().map_or(BODY_LEN_MAX, |limits| limits.body_len as usize)
}

/// Whether a method only reads.
fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}
