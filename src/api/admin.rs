//! The router of the admin listener: health, readiness and status. Not for the public.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use hyper::header;
use hyper::{Request, StatusCode};

use super::problem::Problem;
use super::{Answer, Service, accepts_html, answer, is_read, json, status, with};
use crate::desk::Desk;

/// What answers the requests of the admin listener.
pub fn service(desk: Rc<Desk>) -> Service {
    Rc::new(move |request| {
        let desk = Rc::clone(&desk);
        Box::pin(async move { route(&desk, &request).await })
    })
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
        "/status.css" => answer(StatusCode::OK, "text/css; charset=utf-8", status::STYLE),
        "/" => with(text(StatusCode::SEE_OTHER, "The status is at /status.\n"), header::LOCATION, "/status"),
        _ => text(StatusCode::NOT_FOUND, "Here are /healthz, /readyz and /status.\n"),
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
