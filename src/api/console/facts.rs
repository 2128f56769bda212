//! Facts about the service for the console: the effective settings, and the check of a URL.

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::{Map, Value, json};

use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::response::{ApiResponse, json as json_answer};
use crate::api::rest::create::Create;
use crate::api::rest::short_urls::read_object;
use carom_model::destination::hosts::{HostSet, host_of};
use carom_model::destination::long_url::LongUrl;

impl Context {
    /// Handles `GET /admin/api/settings`: returns the effective settings.
    pub(super) fn settings_in_force(&self) -> ApiResponse {
        json_answer(StatusCode::OK, &json!({"settings": self.site.settings}))
    }

    /// Handles `POST /admin/api/check-url`: says whether a URL would be accepted as a destination.
    pub(super) async fn check_url(&self, request: Request<Incoming>) -> ApiResponse {
        match self.try_check_url(request).await {
            Ok(facts) => json_answer(StatusCode::OK, &facts),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_check_url(&self, request: Request<Incoming>) -> Result<Value, Problem> {
        let fields = read_object(&self.services, request).await?;
        if let Some(other) = fields.keys().find(|name| *name != "longUrl") {
            return Err(Problem::invalid(&[Invalid::new(other, "is not a known field")]));
        }
        Ok(self.predict(&fields))
    }

    /// Predicts the result of a request to shorten that URL.
    fn predict(&self, fields: &Map<String, Value>) -> Value {
        let read = self.bounded(|bounds| Create::read(fields, bounds));
        let text = fields.get("longUrl").and_then(Value::as_str).unwrap_or_default();
        // The URL as it would be stored, even if a list forbids it.
        let url = LongUrl::parse(text, &[]).ok().map(String::from);
        let on = |list: Option<&HostSet>, yes: &'static str, no: &'static str| match (list, &url) {
            (None, _) => "no list",
            (Some(list), Some(url)) if list.has(host_of(url.as_bytes())) => yes,
            (Some(_), _) => no,
        };
        let reasons: Vec<String> = match &read {
            Ok(_) => Vec::new(),
            Err(invalid) => invalid.iter().map(|one| format!("{} {}", one.field, one.reason)).collect(),
        };
        json!({
            "accepted": read.is_ok(),
            "longUrl": url,
            "reasons": reasons,
            "allowList": on(self.services.allowed().as_deref(), "allowed", "not allowed"),
            "blockList": on(self.services.blocked().as_deref(), "blocked", "not blocked"),
        })
    }
}
