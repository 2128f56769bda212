//! Signing in with an API key, and signing out: the form, the cookie, and the redirects before and after.

use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Request, StatusCode};

use super::admission::Admitted;
use super::assets::page;
use super::cookies::{cookie, cookie_name, tokens};
use super::session::SessionClient;
use crate::api::browser::is_foreign;
use crate::api::compat::form::read_form;
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::query::{Params, percent_encoded};
use crate::api::response::{ApiResponse, empty, with};
use crate::pages::SignIn;

/// Path of the first page of the console.
const HOME: &str = "/admin/";

/// Message while no API keys exist and other machines can reach the listener.
const NO_KEYS: &str =
    "No API keys yet. Create one on the server with “carom app add ops --role admin”, then sign in with it.";

/// Message for an invalid key on the sign-in page, as in `strings-shell.js`.
const INVALID: &str =
    "Invalid, expired or revoked key. Copy the whole key again, or ask your administrator for a new one.";
const TOO_MANY: &str = "Too many failed attempts from this address. Try again in a minute.";

/// Message while it is unknown whether API keys exist.
const UNSURE: &str = "Redis, which stores the API keys, does not answer. Try again in a minute.";

/// Redirects the request for a page to the sign-in form, which returns to that page.
pub(super) fn redirect_to_sign_in<B>(request: &Request<B>) -> ApiResponse {
    let path = request.uri().path_and_query().map_or(HOME, |path| path.as_str());
    go_to(&format!("/admin/sign-in?next={}", percent_encoded(path)))
}

fn go_to(path: &str) -> ApiResponse {
    with(with(empty(StatusCode::SEE_OTHER), header::LOCATION, path), header::CACHE_CONTROL, "no-store")
}

/// Returns the page to open after signing in: the requested page of the console, or the first page instead of any
/// other URL.
fn next_of(asked: &str) -> &str {
    let is_plain = asked.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_page = asked == "/admin" || asked.starts_with("/admin/") && !asked.starts_with("/admin/sign-in");
    if is_plain && is_page { asked } else { HOME }
}

impl Context {
    /// Handles `GET /admin/sign-in`: shows the sign-in form.
    pub(super) fn show_sign_in(&self, request: &Request<Incoming>) -> ApiResponse {
        let params = Params::of(request.uri().query());
        let next = next_of(params.text("next").unwrap_or_default());
        match self.admit(request) {
            Ok(_) => go_to(next),
            Err(_) => self.draw_sign_in(StatusCode::OK, next, None),
        }
    }

    fn draw_sign_in(&self, status: StatusCode, next: &str, wrong: Option<&str>) -> ApiResponse {
        let is_open = !self.services.keys().had_keys() && !self.services.keys().is_unsure();
        let html = self.pages().sign_in(&SignIn { next, notice: is_open.then_some(NO_KEYS), error: wrong });
        page(status, &html)
    }

    /// Handles `POST /admin/sign-in`: signs in with an API key.
    pub(super) async fn sign_in(&self, request: Request<Incoming>) -> ApiResponse {
        if is_foreign(&request) {
            return Problem::forbidden("This form was sent from another site.").into_answer();
        }
        let name = cookie_name(&request);
        let is_trusted = self.is_trusted(&request);
        let earlier: Vec<Vec<u8>> = tokens(request.headers()).map(|(_, token)| token.to_vec()).collect();
        let user_agent = request.headers().get(header::USER_AGENT).cloned();
        let (form, source) = match read_form(request).await {
            Ok(read) => read,
            Err(problem) => {
                let page = self.draw_sign_in(problem.status(), HOME, Some(&problem.detail()));
                return problem.add_headers(page);
            }
        };
        let next = next_of(form.get("next"));
        let key = form.get("key").trim();
        if !self.services.keys().had_keys() {
            return match (self.services.keys().is_unsure(), is_trusted) {
                (true, _) => self.draw_sign_in(StatusCode::SERVICE_UNAVAILABLE, next, Some(UNSURE)),
                (false, true) => go_to(next),
                (false, false) => self.draw_sign_in(StatusCode::UNAUTHORIZED, next, None),
            };
        }
        let known = self.identify(Some(key.as_bytes()), source, None);
        let context = match known {
            Ok(context) => context,
            Err(problem) => {
                let wrong = match problem.status() {
                    StatusCode::UNAUTHORIZED => INVALID.to_owned(),
                    StatusCode::TOO_MANY_REQUESTS => TOO_MANY.to_owned(),
                    _ => problem.detail(),
                };
                let page = self.draw_sign_in(problem.status(), next, Some(&wrong));
                return problem.add_headers(page);
            }
        };
        let app = context.caller.name().map(|name| name.as_str().to_owned()).unwrap_or_default();
        let hash = context.caller.key().expect("a caller found among the keys has sent one");
        let user_agent = user_agent.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
        let client = SessionClient::new(user_agent, source.map(|source| source.address));
        match self.site.sessions.begin(hash, &app, client, self.services.unix_ms()) {
            Ok(token) => {
                // A browser has one session, even if it reaches this node both directly and through a proxy: with
                // two cookies it would be unclear which one counts.
                earlier.iter().for_each(|token| _ = self.site.sessions.end_of_token(token));
                tracing::info!(app, key = hash.id(), "signed in at the console");
                with(go_to(next), header::SET_COOKIE, &cookie(&name, &token))
            }
            Err(_) => {
                Problem::unavailable("The operating system cannot provide random bytes for a session. Try again.")
                    .into_answer()
            }
        }
    }
}

impl Admitted {
    /// Handles `DELETE /admin/api/session`: signs out.
    pub(super) fn sign_out<B>(&self, request: &Request<B>) -> ApiResponse {
        // The cookie may have another name, from a sign-in over another path to this node. Cookies of other nodes
        // stay.
        let ended = tokens(request.headers()).filter(|(_, token)| self.context.site.sessions.end_of_token(token));
        let mut names: Vec<String> = ended.map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
        if names.is_empty() {
            names.push(cookie_name(request));
        }
        let mut answer = empty(StatusCode::NO_CONTENT);
        for name in names {
            let over = HeaderValue::from_str(&format!("{}; Max-Age=0", cookie(&name, "")));
            over.map(|over| answer.headers_mut().append(header::SET_COOKIE, over)).ok();
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_led_elsewhere_after_signing_in() {
        assert_eq!(next_of("/admin/links?searchTerm=a%20b"), "/admin/links?searchTerm=a%20b");
        for elsewhere in [
            "",
            "/",
            "//evil.example/admin/",
            "https://evil.example/admin/",
            "/admin\\evil",
            "/admin/\r\nA: b",
            "/adminx",
            "/admin/sign-in",
        ] {
            assert_eq!(next_of(elsewhere), HOME, "{elsewhere}");
        }
    }
}
