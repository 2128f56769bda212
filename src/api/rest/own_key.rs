//! The name and the rights of the API key of a request, for clients that say what a key may do before they use it.

use hyper::StatusCode;
use serde_json::json;

use crate::api::context::Context;
use crate::api::response::{ApiResponse, json as json_answer};
use carom_model::access::{AppName, KeyDomains, KeyName};

impl Context {
    /// Handles `GET /rest/v3/api-key`: returns the app, name, role and domains of the caller's key.
    pub(in crate::api) fn own_key(&self) -> ApiResponse {
        let (keys, now_ms) = (self.services.keys(), self.services.unix_ms());
        let entry = self.caller.key().and_then(|hash| keys.find_hash(hash, now_ms)).map(|(entry, _)| entry);
        let rights = json!({
            "required": keys.had_keys(),
            "app": self.caller.name().map(AppName::as_str),
            "name": entry.and_then(|entry| entry.name.as_ref()).map(KeyName::as_str),
            "role": self.caller.role.as_str(),
            "domains": self.caller.domains().map(KeyDomains::names),
        });
        json_answer(StatusCode::OK, &json!({ "apiKey": rights }))
    }
}
