//! The description of the public API in OpenAPI 3.1, for clients and their authors.
//!
//! The file is written by hand. Tests compare it with the table of routes, with the fields that requests may have,
//! and with the responses of the real binary.

use hyper::StatusCode;

use crate::api::response::{ApiResponse, answer};

/// Text of the OpenAPI document, in JSON.
pub(super) const DOCUMENT: &str = include_str!("openapi.json");

/// Handles `GET /rest/v3/openapi.json`: returns the OpenAPI document.
pub(in crate::api) fn description() -> ApiResponse {
    answer(StatusCode::OK, "application/json", DOCUMENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::api::public::routes::{ROUTES, SINGLE_STEP_PATH};

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    #[test]
    fn it_describes_every_route_and_no_other() {
        let document = document();
        let described: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| {
                let methods = item.as_object().unwrap().keys().filter(|name| *name != "parameters");
                methods.map(|method| (path.clone(), method.to_uppercase()))
            })
            .collect();
        // HEAD is answered wherever GET is; the description says that once.
        let served: BTreeSet<(String, String)> = ROUTES
            .iter()
            .flat_map(|(path, allow)| allow.split(", ").map(|method| ((*path).to_owned(), method.to_owned())))
            .filter(|(_, method)| method != "HEAD")
            .collect();
        assert_eq!(described, served);
    }

    #[test]
    fn head_is_allowed_exactly_where_get_is() {
        // A HEAD must have no effect, and a GET of this path has one.
        for (path, allow) in ROUTES.iter().filter(|(path, _)| *path != SINGLE_STEP_PATH) {
            let has = |method| allow.split(", ").any(|allowed| allowed == method);
            assert_eq!(has("GET"), has("HEAD"), "{path}");
        }
    }

    #[test]
    fn its_version_is_that_of_the_program() {
        assert_eq!(document()["info"]["version"], env!("CARGO_PKG_VERSION"));
    }
}
