//! Facts about the service for the console: the effective settings, and the check of a URL.

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::{Map, Value, json};

use super::destination_rules::{Listed, answer_of, prediction, stored_url};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::response::{ApiResponse, json as json_answer};
use crate::api::rest::create::Create;
use crate::api::rest::short_urls::read_object;
use carom_model::destination::hosts::{HostSet, host_of};
use carom_model::formats::dates;

impl Context {
    /// Handles `GET /admin/api/settings`: returns the effective settings, and the time at which destination rules were saved that
    /// apply instead of `allow.hosts` and `block.hosts`.
    pub(super) fn settings_in_force(&self) -> ApiResponse {
        let saved = self.services.saved_rules();
        let at = saved.applied_ms().map(dates::format);
        json_answer(StatusCode::OK, &json!({"settings": self.site.settings, "rulesSaved": at}))
    }

    /// Handles `POST /admin/api/check-url`: says whether a URL would be accepted as a destination, by the rules in force or by
    /// the draft in `rules`.
    pub(super) async fn check_url(&self, request: Request<Incoming>) -> ApiResponse {
        answer_of(self.try_check_url(request).await)
    }

    async fn try_check_url(&self, request: Request<Incoming>) -> Result<Value, Problem> {
        let mut fields = read_object(&self.services, request).await?;
        let draft = fields.remove("rules");
        if let Some(other) = fields.keys().find(|name| *name != "longUrl") {
            return Err(Problem::invalid(&[Invalid::new(other, "is not a known field")]));
        }
        match draft {
            Some(rules) => self.predict_with(&fields, rules).await,
            None => Ok(self.predict(&fields)),
        }
    }

    /// Predicts the result of a request to shorten that URL.
    fn predict(&self, fields: &Map<String, Value>) -> Value {
        let read = self.bounded(|bounds| Create::read(fields, bounds));
        let url = stored_url(fields);
        let place_in = |list: Option<&HostSet>| match (list, &url) {
            (None, _) => Listed::NoList,
            (Some(list), Some(url)) if list.has(host_of(url.as_bytes())) => Listed::Yes,
            (Some(_), _) => Listed::No,
        };
        let allow = place_in(self.services.allowed().as_deref());
        let block = place_in(self.services.blocked().as_deref());
        prediction(&read, url.as_deref(), allow, block)
    }
}
