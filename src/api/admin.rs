//! The router of the admin listener: health, readiness, status, metrics, apps with their keys, snapshots for new nodes of
//! a fleet, orders about its sites, and the console with the REST API under its sessions. It must not be reachable from
//! the Internet.

mod fleet;
pub mod metrics;
mod runbook;
mod snapshots;
pub(in crate::api) mod status;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Buf;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Request, StatusCode};

use super::ApiService;
use super::browser::{is_foreign, is_of_foreign_page};
use super::compression::Compression;
use super::console::Console;
use super::context::{Context, Site};
use super::problem::{Invalid, Problem};
use super::public::routes;
use super::query::Params;
use super::request::{accepts_html, is_read};
use super::response::{ApiResponse, answer, json, with};
use super::rest::apps;
use super::rest::parameters::{self, ParameterGroup};
use crate::bridge::handle::ServiceHandle;
use carom_model::access::Role;

/// Returns the handler for the requests of the admin listener.
pub fn service(services: Rc<ServiceHandle>, site: Arc<Site>) -> ApiService {
    let context = Context::of(services, site);
    let console: Rc<Console> = Rc::default();
    Rc::new(move |request| {
        let (context, console) = (context.clone(), Rc::clone(&console));
        Box::pin(async move {
            let request = context.at_route(request);
            let compression = Compression::of(&request);
            let answer = context.serve_admin(&console, request).await;
            context.compressed(compression, answer).await
        })
    })
}

/// Headers in which proxies describe the client, besides those that begin with [`X_FORWARDED`].
const FORWARDED: [&str; 6] = ["forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"];

/// Prefix of the headers that proxies used before there was a standard.
const X_FORWARDED: &str = "x-forwarded-";

const NOT_FOUND: &str =
    "Not found. The admin listener serves /admin/, /healthz, /readyz, /status, /metrics, /runbook/ALARM and /apps.\n";

const FOREIGN: &str = "Cross-site browser requests are refused on the admin listener.";

impl Context {
    async fn serve_admin(&self, console: &Rc<Console>, request: Request<Incoming>) -> ApiResponse {
        let path = request.uri().path().to_owned();
        // Load balancers check health under any host name, and the response reveals nothing.
        if !["/healthz", "/readyz"].contains(&&*path)
            && let Err(problem) = self.require_own_host(&request)
        {
            return problem.into_answer();
        }
        if let Some(answer) = routes::without_path(request.method(), request.uri()) {
            return answer;
        }
        match path.split('/').skip(1).collect::<Vec<_>>()[..] {
            ["admin", ref rest @ ..] => self.console(console, rest, request).await,
            ["rest", ref rest @ ..] => self.api_of_console(&path, rest, request).await,
            ["apps", ref rest @ ..] => route_apps(self, rest, request).await,
            ["snapshots", ref rest @ ..] => route_snapshots(self, rest, request).await,
            ["fleet", ref rest @ ..] => route_fleet(self, rest, request).await,
            ["status" | "shorturl_status" | "metrics"] => match self.may_manage(&request) {
                Ok(()) => route(&self.services, &request).await,
                Err(problem) => problem.into_answer(),
            },
            _ => route(&self.services, &request).await,
        }
    }

    /// Refuses requests that a page of another site made a browser send: under its own host name that resolves to
    /// this address, or across origins. In both cases the host or the origin is foreign.
    ///
    /// # Errors
    /// 403 if the host or the origin is foreign.
    fn require_own_host<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        let host = request.headers().get(header::HOST).map(HeaderValue::as_bytes).unwrap_or_default();
        if !self.site.is_admin_host(host) {
            let why =
                "Unknown host name for the admin listener. Use its IP address, or add the host name to admin.hosts.";
            return Err(Problem::forbidden(why));
        }
        let origin = request.headers().get(header::ORIGIN).map(HeaderValue::as_bytes);
        // A proxy in front of this listener may terminate TLS.
        let is_own = |origin: &[u8]| {
            let own = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
            own.is_some_and(|own| own.eq_ignore_ascii_case(host))
        };
        // A link on another site may lead here, but not to the path that creates a link with `GET`.
        let is_led_to_change = request.uri().path() == routes::SINGLE_STEP_PATH && is_foreign(request);
        match origin {
            Some(origin) if !is_own(origin) => Err(Problem::forbidden(FOREIGN)),
            None if is_of_foreign_page(request) || is_led_to_change => Err(Problem::forbidden(FOREIGN)),
            _ => Ok(()),
        }
    }

    /// True if a request needs no key: only this machine reaches the listener, and no proxy forwarded the request
    /// from another one.
    pub(super) fn is_trusted<B>(&self, request: &Request<B>) -> bool {
        let says_so = |name: &str| FORWARDED.contains(&name) || name.starts_with(X_FORWARDED);
        let is_passed_on = request.headers().keys().any(|name| says_so(name.as_str()));
        self.site.trusts_admin && !is_passed_on
    }

    /// Allows the status and the management of apps to trusted requests, to admin keys, and to browsers that are
    /// signed in at the console with one. Being signed in with another key is no way to be trusted.
    ///
    /// # Errors
    /// 403 for callers without the role admin for all domains. Otherwise the errors of [`Context::admit`].
    fn may_manage<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        if self.is_trusted(request) && self.signed_in(request.headers()).is_none() {
            return Ok(());
        }
        self.admit(request)?.context.caller.require_on_all_domains(Role::Admin)
    }

    /// Serves the REST API to the console. Its paths are those of the public listener, but the caller must be
    /// admitted to this one.
    async fn api_of_console(&self, path: &str, segments: &[&str], request: Request<Incoming>) -> ApiResponse {
        let (methods, method) = (routes::methods_at(path), request.method());
        if !methods.is_empty() && !methods.contains(&method.as_str()) {
            return Problem::method(method, methods.join(", ")).into_answer();
        }
        match self.admit(&request) {
            Ok(admitted) => admitted.context.route_api(segments, request).await,
            Err(problem) => problem.into_answer(),
        }
    }
}

impl Site {
    /// True if a host, with or without a port, names the admin listener. Addresses do: nobody else can define them.
    fn is_admin_host(&self, host: &[u8]) -> bool {
        let Ok(host) = std::str::from_utf8(host) else { return false };
        if let Some(rest) = host.strip_prefix('[') {
            return rest.split_once(']').is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok());
        }
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
        name.parse::<Ipv4Addr>().is_ok() || self.admin_hosts.contains(&name)
    }
}

/// Serves the API of apps to callers that may manage apps.
async fn route_apps(context: &Context, segments: &[&str], request: Request<Incoming>) -> ApiResponse {
    let Some(methods) = apps::methods_at(segments) else { return Problem::no_route().into_answer() };
    if !methods.split(", ").any(|method| method == request.method().as_str()) {
        return Problem::method(request.method(), methods).into_answer();
    }
    match context.may_manage(&request).and_then(|()| has_only(&[], &request)) {
        Ok(()) => apps::serve(context, segments, request).await,
        Err(problem) => problem.into_answer(),
    }
}

/// Serves snapshots of the store to callers that may manage apps: they could give themselves a key to read every link.
async fn route_snapshots(context: &Context, segments: &[&str], mut request: Request<Incoming>) -> ApiResponse {
    let Some(methods) = snapshots::methods_at(segments) else { return Problem::no_route().into_answer() };
    if !methods.split(", ").any(|method| method == request.method().as_str()) {
        return Problem::method(request.method(), methods).into_answer();
    }
    match may_order(context, &mut request, &[]).await {
        Ok(()) => snapshots::serve(context, segments, request.method()).await,
        Err(problem) => problem.into_answer(),
    }
}

/// Serves orders about the fleet to callers that may manage apps.
async fn route_fleet(context: &Context, segments: &[&str], mut request: Request<Incoming>) -> ApiResponse {
    let Some(methods) = fleet::methods_at(segments) else { return Problem::no_route().into_answer() };
    if request.method().as_str() != methods {
        return Problem::method(request.method(), methods).into_answer();
    }
    let known = fleet::parameters_at(segments);
    match may_order(context, &mut request, known).await {
        Ok(()) => fleet::serve(context, segments, request.uri().query()).await,
        Err(problem) => problem.into_answer(),
    }
}

/// Refuses a request with other query parameters than these: without them, an order means something else.
fn has_only<B>(known: &[ParameterGroup], request: &Request<B>) -> Result<(), Problem> {
    parameters::check_names(request.uri().query(), known).map_err(|invalid| Problem::invalid(&invalid))
}

/// Allows an order to callers that may manage apps, with these parameters and no body.
async fn may_order(
    context: &Context,
    request: &mut Request<Incoming>,
    known: &[ParameterGroup],
) -> Result<(), Problem> {
    context.may_manage(request)?;
    has_only(known, request)?;
    has_no_body(request).await
}

/// Refuses a request with a body where none is read, so that no field of it is ignored. Some clients send a body of no
/// bytes in chunks, which counts as none.
async fn has_no_body<B: Body + Unpin>(request: &mut Request<B>) -> Result<(), Problem> {
    while let Some(frame) = request.body_mut().frame().await {
        if frame.map_or(true, |frame| frame.data_ref().is_some_and(Buf::has_remaining)) {
            let reason = "is not part of this request; send its parameters in the query";
            return Err(Problem::invalid(&[Invalid::new("body", reason)]));
        }
    }
    Ok(())
}

async fn route<B>(services: &ServiceHandle, request: &Request<B>) -> ApiResponse {
    if !is_read(request.method()) {
        return Problem::method(request.method(), "GET, HEAD").into_answer();
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" => readiness(services),
        "/status" | "/shorturl_status" => {
            // Only a live view needs every latency.
            let has_steps = Params::of(request.uri().query()).text("latencies") == Some("all");
            let status =
                if has_steps { status::gather_with_steps(services).await } else { status::gather(services).await };
            let answer = if accepts_html(request) {
                status::page(&services.context().pages, &status)
            } else {
                json(StatusCode::OK, &status)
            };
            with(answer, header::VARY, "Accept")
        }
        "/metrics" => metrics::page(services).await,
        "/status.css" => answer(StatusCode::OK, "text/css; charset=utf-8", status::STYLE),
        "/status.js" => answer(StatusCode::OK, "text/javascript; charset=utf-8", status::SCRIPT),
        "/runbook.js" => answer(StatusCode::OK, "text/javascript; charset=utf-8", runbook::SCRIPT),
        "/" => with(text(StatusCode::SEE_OTHER, "The console is at /admin/.\n"), header::LOCATION, "/admin/"),
        path => {
            let section = path.strip_prefix("/runbook/");
            let page = section.and_then(|name| runbook::page(&services.context().pages, name));
            page.unwrap_or_else(|| text(StatusCode::NOT_FOUND, NOT_FOUND))
        }
    }
}

fn readiness(services: &ServiceHandle) -> ApiResponse {
    let node = &services.context().node;
    if node.draining.load(Ordering::Relaxed) {
        text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else if node.is_ready() {
        text(StatusCode::OK, "ready\n")
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, "starting\n")
    }
}

fn text(status: StatusCode, text: &'static str) -> ApiResponse {
    answer(status, "text/plain; charset=utf-8", text)
}
