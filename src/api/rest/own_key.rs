//! The rights of the API key of a request, for clients that say what a key may do before they use it.

use hyper::StatusCode;
use serde_json::json;

use crate::api::context::Context;
use crate::api::response::{ApiResponse, json as json_answer};
use carom_model::access::{AppName, KeyDomains};

impl Context {
    /// Handles `GET /rest/v3/api-key`: returns the app, role and domains of the caller.
    pub(in crate::api) fn own_key(&self) -> ApiResponse {
        let rights = json!({
            "required": self.services.keys().had_keys(),
            "app": self.caller.name().map(AppName::as_str),
            "role": self.caller.role.as_str(),
            "domains": self.caller.domains().map(KeyDomains::names),
        });
        json_answer(StatusCode::OK, &json!({ "apiKey": rights }))
    }
}
