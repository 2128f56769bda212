//! Calls of the REST API by web pages of other origins (CORS, Fetch section 3.2): the answers to preflight requests,
//! and the headers that let scripts read responses.
//!
//! Only the public listener uses this. Responses never allow credentials, so no page can use the cookies of the console.

use hyper::header::{self, HeaderValue};
use hyper::{Request, StatusCode};

use super::auth::shows_key;
use super::context::Context;
use super::public::routes;
use super::query::Params;
use super::response::{ApiResponse, empty, with};
use carom_model::access::origins::{CorsOrigins, OriginGrant};

/// Request headers that pages may send.
const SENT: &str = "X-Api-Key, Authorization, Content-Type, Idempotency-Key, X-App-Version";

/// Response headers that scripts may read beside the usual ones.
const READABLE: &str =
    "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, Idempotent-Replayed, Allow";

/// Seconds for which browsers may reuse the answer to a preflight request: the most that any of them accepts is a day,
/// and a change of the settings should show sooner.
const PREFLIGHT_SECONDS: &str = "7200";

impl Context {
    /// Decides whether scripts of the page that sent a request may read its response.
    pub(super) fn grant_of<B>(&self, request: &Request<B>) -> OriginGrant {
        let origin = request.headers().get(header::ORIGIN).map(HeaderValue::to_str);
        let Some(Ok(origin)) = origin.filter(|_| self.site.interfaces.shlink) else { return OriginGrant::Refused };
        let is_preflight = request.method() == hyper::Method::OPTIONS;
        self.site.cors.grant(origin, is_preflight || shows_key(request.headers()) || has_key_in_query(request))
    }

    /// Answers `OPTIONS` for a path of the REST API. A path that does not exist gets the methods of all paths, so that
    /// the page can read the 404 of its request.
    pub(super) fn rest_options(&self, path: &str, grant: &OriginGrant) -> ApiResponse {
        let mut methods = routes::methods_at(path);
        if methods.is_empty() {
            methods = routes::all_methods();
        } else {
            methods.push("OPTIONS");
        }
        let methods = methods.join(", ");
        let answer = with(empty(StatusCode::NO_CONTENT), header::ALLOW, &methods);
        if *grant == OriginGrant::Refused {
            return answer;
        }
        let answer = with(answer, header::ACCESS_CONTROL_ALLOW_METHODS, &methods);
        let answer = with(answer, header::ACCESS_CONTROL_ALLOW_HEADERS, SENT);
        with(answer, header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS)
    }

    /// Adds the headers of a grant to a response.
    pub(super) fn with_grant(&self, answer: ApiResponse, grant: &OriginGrant) -> ApiResponse {
        // The response of a listed origin differs from that of any other.
        let answer = match &self.site.cors {
            CorsOrigins::Listed(_) => with(answer, header::VARY, "Origin"),
            CorsOrigins::Own | CorsOrigins::Any => answer,
        };
        let allowed = match grant {
            OriginGrant::Refused => return answer,
            OriginGrant::Everyone => "*",
            OriginGrant::Only(origin) => origin,
        };
        let answer = with(answer, header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        with(answer, header::ACCESS_CONTROL_EXPOSE_HEADERS, READABLE)
    }
}

/// True if a request carries an API key in its query, which only the creation with one `GET` reads.
fn has_key_in_query<B>(request: &Request<B>) -> bool {
    let uri = request.uri();
    uri.path() == routes::SINGLE_STEP_PATH && Params::of(uri.query()).text("apiKey").is_some()
}
