//! The router of the admin listener: health, readiness, status, and apps with their keys. Not for the public.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::body::Incoming;
use hyper::header;
use hyper::{Request, StatusCode};

use super::problem::Problem;
use super::{Answer, Context, Service, Site, accepts_html, answer, apps, is_read, json, metrics, status, with};
use crate::apps::Role;
use crate::desk::Desk;

/// What answers the requests of the admin listener.
pub fn service(desk: Rc<Desk>, site: Arc<Site>) -> Service {
    let context = Context::of(desk, site);
    Rc::new(move |request| {
        let context = context.clone();
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            match path.split('/').skip(1).collect::<Vec<_>>()[..] {
                ["apps", ref rest @ ..] => route_apps(&context, rest, request).await,
                ["status" | "shorturl_status" | "metrics"] => match context.may_read_status(&request) {
                    Ok(()) => route(&context.desk, &request).await,
                    Err(problem) => problem.into_answer(),
                },
                _ => route(&context.desk, &request).await,
            }
        })
    })
}

impl Context {
    /// Whether whoever asks may know how the node is: where other machines can ask and keys are asked for, with one for all.
    fn may_read_status<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        match self.site.is_open || self.desk.keys().is_empty() {
            true => Ok(()),
            false => self.may_manage(request),
        }
    }

    /// Whether whoever asks may manage apps: on loopback everybody, elsewhere who shows a key for it.
    fn may_manage<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        match self.site.trusts_admin {
            true => Ok(()),
            false if self.desk.keys().is_empty() => Err(Problem::no_key()),
            false => self.authenticate(request)?.caller.needs_all(Role::Admin),
        }
    }
}

/// Lets whoever may manage apps do so.
async fn route_apps(context: &Context, segments: &[&str], request: Request<Incoming>) -> Answer {
    let Some(methods) = apps::methods_at(segments) else { return Problem::no_route().into_answer() };
    if !methods.split(", ").any(|method| method == request.method().as_str()) {
        return Problem::method(request.method(), methods).into_answer();
    }
    match context.may_manage(&request) {
        Ok(()) => apps::serve(context, segments, request).await,
        Err(problem) => problem.into_answer(),
    }
}

async fn route<B>(desk: &Desk, request: &Request<B>) -> Answer {
    if !is_read(request.method()) {
        return Problem::method(request.method(), "GET, HEAD").into_answer();
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" => readiness(desk),
        "/status" | "/shorturl_status" => {
            let status = status::gather(desk).await;
            let answer = if accepts_html(request) { status::page(&status) } else { json(StatusCode::OK, &status) };
            with(answer, header::VARY, "Accept")
        }
        "/metrics" => metrics::page(desk).await,
        "/status.css" => answer(StatusCode::OK, "text/css; charset=utf-8", status::STYLE),
        "/" => with(text(StatusCode::SEE_OTHER, "The status is at /status.\n"), header::LOCATION, "/status"),
        _ => text(StatusCode::NOT_FOUND, "Here are /healthz, /readyz, /status, /metrics and /apps.\n"),
    }
}

fn readiness(desk: &Desk) -> Answer {
    let node = &desk.counters().node;
    if node.draining.load(Ordering::Relaxed) {
        text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else if node.ready.load(Ordering::Relaxed) {
        text(StatusCode::OK, "ready\n")
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, "starting\n")
    }
}

fn text(status: StatusCode, text: &'static str) -> Answer {
    answer(status, "text/plain; charset=utf-8", text)
}
