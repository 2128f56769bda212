//! The console: pages on the admin listener. Operators run the service with them, and the users of other keys manage
//! links, as far as their roles allow.
//!
//! The pages are files in the binary (`src/api/console/web/`), whose modules `bundles` joins. They use the REST API under
//! the session of the signed-in user (`session`, `cookies`, `sign_in`), which `admission` checks, and endpoints of their
//! own. Those serve live activity (`events`, `watchers`, `latencies`), the use of all links (`usage`) and of one
//! (`link_visits`), the history of changes (`history`), and deletes that can be undone (`rest::deletes`). `facts` checks URLs
//! and shows the effective settings. Drafts of the rules for destinations (`destination_rules`) and redirect rules
//! (`rest::rules`) can be tried before they are saved.

mod admission;
mod assets;
mod bundles;
pub(super) mod cookies;
mod destination_rules;
mod events;
mod facts;
mod history;
mod latencies;
mod link_visits;
pub(super) mod session;
mod sign_in;
mod usage;
mod watchers;

use std::rc::Rc;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};

use self::admission::Admitted;
pub(super) use self::admission::Console;
use self::session::Session;
use super::context::Context;
use super::problem::Problem;
use super::query::percent_decoded;
use super::request::is_read;
use super::response::{ApiResponse, empty, json as json_answer};
use carom_model::access::key::ApiKeyHash;
use carom_model::access::{AppName, KeyDomains, KeyName, Role};
use carom_model::formats::dates;

impl Context {
    /// Answers a path below `/admin`.
    pub(super) async fn console(
        &self,
        console: &Rc<Console>,
        segments: &[&str],
        request: Request<Incoming>,
    ) -> ApiResponse {
        let allowed = match segments {
            ["sign-in"] => "GET, HEAD, POST",
            ["api", "session"] => "GET, HEAD, DELETE",
            ["api", "sessions"] | ["api", "sessions", _] => "DELETE",
            ["api", "check-url"] | ["api", "try-rules", _] => "POST",
            ["api", "destination-rules"] => "GET, HEAD, POST, PUT, DELETE",
            ["api", "links", _] => "DELETE",
            _ => "GET, HEAD",
        };
        let method = request.method().clone();
        if !allowed.split(", ").any(|name| name == method.as_str()) {
            return Problem::method(&method, allowed).into_answer();
        }
        match segments {
            ["assets", name] => assets::asset(name, None, request.headers()),
            ["assets", revision, name] => assets::asset(name, Some(*revision), request.headers()),
            ["sign-in"] if method == Method::POST => self.sign_in(request).await,
            ["sign-in"] => self.show_sign_in(&request),
            ["api", rest @ ..] => match self.admit(&request) {
                Ok(admitted) => admitted.answer(console, rest, request).await,
                Err(problem) => problem.into_answer(),
            },
            _ => match self.admit(&request) {
                Ok(admitted) => assets::shell(request.uri().path(), &admitted.described()),
                Err(_) => sign_in::redirect_to_sign_in(&request),
            },
        }
    }
}

/// Returns the role on the links of all domains that an endpoint requires; `None` if it checks the caller itself.
fn role_for(segments: &[&str], only_reads: bool) -> Option<Role> {
    match segments {
        // They apply to the links of all apps and domains.
        ["destination-rules"] if only_reads => Some(Role::ReadAll),
        ["events" | "settings" | "check-url" | "destination-rules"] => Some(Role::Admin),
        // The counts cover the links of all apps and domains.
        ["usage"] => Some(Role::ReadAll),
        _ => None,
    }
}

impl Admitted {
    /// Returns the key whose sessions the caller may list and end: its own; `None` for an admin, who may end all.
    fn only_key(&self) -> Option<ApiKeyHash> {
        self.context.caller.key().filter(|_| !self.context.caller.manages())
    }

    /// Answers the endpoints that only pages of the console use.
    async fn answer(self, console: &Rc<Console>, segments: &[&str], request: Request<Incoming>) -> ApiResponse {
        let query = request.uri().query();
        let context = &self.context;
        if let Some(role) = role_for(segments, is_read(request.method()))
            && let Err(problem) = context.caller.require_on_all_domains(role)
        {
            return problem.into_answer();
        }
        let sessions = &context.site.sessions;
        match *segments {
            ["session"] if *request.method() == Method::DELETE => self.sign_out(&request),
            ["session"] => self.describe(),
            ["sessions"] => {
                let own = self.session.as_ref().map_or("", |session| &session.id);
                sessions.end_others(own, self.only_key());
                empty(StatusCode::NO_CONTENT)
            }
            ["sessions", id] => {
                if sessions.end(id, self.only_key()) {
                    empty(StatusCode::NO_CONTENT)
                } else {
                    Problem::no_route().because("This session does not exist, or has already ended.").into_answer()
                }
            }
            ["events"] => self.events(console),
            ["usage"] => context.usage(query).await,
            ["visits", code] => context.counts_of_link(&percent_decoded(code), query).await,
            ["history", code] => context.history_of_link(&percent_decoded(code), query).await,
            ["links", code] => context.delete_later(&percent_decoded(code), query).await,
            ["settings"] => context.settings_in_force(),
            ["check-url"] => context.check_url(request).await,
            ["destination-rules"] if *request.method() == Method::POST => context.draft_rules(request).await,
            ["destination-rules"] if *request.method() == Method::PUT => context.save_rules(request).await,
            ["destination-rules"] if *request.method() == Method::DELETE => context.apply_settings_again(query).await,
            ["destination-rules"] => context.rules_in_force().await,
            ["try-rules", code] => context.try_drafted_rules(&percent_decoded(code), request).await,
            _ => Problem::no_route().into_answer(),
        }
    }

    /// Handles `GET /admin/api/session`: describes the signed-in user and the service to the pages.
    fn describe(&self) -> ApiResponse {
        json_answer(StatusCode::OK, &self.described())
    }

    /// Returns the signed-in user and the service, as pages know them.
    fn described(&self) -> Value {
        let now_ms = self.context.services.unix_ms();
        let keys = self.context.services.keys();
        let only = self.only_key();
        let is_listed = |key: ApiKeyHash| only.is_none_or(|only| only.is(key)) && keys.find_hash(key, now_ms).is_some();
        let name_of = |key: ApiKeyHash| keys.find_hash(key, now_ms).and_then(|(entry, _)| entry.name.clone());
        let caller = &self.context.caller;
        let own = self.session.as_ref();
        let shown = |session: &Session| {
            json!({
                "id": session.id,
                "app": session.app,
                "keyId": session.key.id(),
                "keyName": name_of(session.key).as_ref().map(KeyName::as_str),
                "address": session.client.address,
                "userAgent": session.client.user_agent,
                "since": dates::format(session.life.since_ms()),
                "lastSeen": dates::format(session.life.seen_ms()),
                "current": own.is_some_and(|own| own.id == session.id),
            })
        };
        let sessions: Vec<_> = self.context.site.sessions.all(now_ms, is_listed).iter().map(shown).collect();
        json!({
            "app": caller.name().map(AppName::as_str),
            "keyId": caller.key().map(ApiKeyHash::id),
            "keyName": caller.key().and_then(name_of).as_ref().map(KeyName::as_str),
            "role": caller.role.as_str(),
            "domains": caller.domains().map(KeyDomains::names),
            "since": own.map(|session| dates::format(session.life.since_ms())),
            "ends": own.map(|session| dates::format(session.life.ends_ms())),
            "csrf": own.map(|session| &session.csrf),
            "open": !keys.had_keys(),
            "version": env!("CARGO_PKG_VERSION"),
            "title": self.context.pages().title(),
            "baseUrl": self.context.domains().base_url_of(None),
            "sharedHome": !self.context.services.stores_all_links(),
            "defaultLifetime": self.context.site.default_ttl.map(|ttl| ttl.as_secs()),
            "sessions": sessions,
        })
    }
}
