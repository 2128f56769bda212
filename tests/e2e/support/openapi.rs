//! Checks of responses against the OpenAPI description of a node.

use serde_json::{Value, json};

use crate::support::http::Reply;
use crate::support::node::Node;
use crate::support::schema::{Schemas, resolve};

pub(crate) const DESCRIPTION: &str = "/rest/v3/openapi.json";

pub(crate) fn description(node: &Node) -> Value {
    let reply = node.wire().get(DESCRIPTION);
    assert_eq!((reply.status, reply.field("content-type")), (200, Some("application/json")));
    reply.json()
}

/// Methods that a path may have.
pub(crate) const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "patch", "trace"];

/// Each operation: path, method in small letters, and what is said of it.
pub(crate) fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().expect("paths").iter();
    paths.flat_map(|(path, item)| {
        let methods = item.as_object().expect("a path is an object").iter();
        let methods = methods.filter(|(name, _)| METHODS.contains(&name.as_str()));
        methods.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    })
}

/// Checks an answer against the operation that made it.
pub(crate) fn conforms(document: &Value, operation: &Value, reply: &Reply) {
    let responses = &operation["responses"];
    let status = reply.status.to_string();
    let response = match responses.get(&status) {
        Some(response) => response,
        // Only what every operation may answer stands there.
        None if reply.status >= 400 => &responses["default"],
        None => panic!("{} never answers {status}", operation["operationId"]),
    };
    conforms_to(document, response, reply);
}

pub(crate) fn conforms_to(document: &Value, response: &Value, reply: &Reply) {
    let schemas = Schemas(document);
    let response = resolve(document, response);
    for (name, header) in response["headers"].as_object().into_iter().flatten() {
        let header = resolve(document, header);
        match reply.field(&name.to_ascii_lowercase()) {
            Some(text) => assert_eq!(schemas.faults(&header["schema"], &json!(text)), Vec::<String>::new(), "{name}"),
            None => assert_ne!(header.get("required"), Some(&json!(true)), "{name} is missing: {reply:?}"),
        }
    }
    let Some(described) = response.get("content") else {
        assert_eq!(reply.body, b"", "a body is not described");
        return;
    };
    let kind = reply.field("content-type").expect("a body has a kind");
    let kind = kind.split(';').next().unwrap_or_default();
    let schema = described[kind].get("schema").unwrap_or_else(|| panic!("{kind} is not described: {reply:?}"));
    let bodies = match kind {
        "application/x-ndjson" => reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        kind if kind.ends_with("json") => vec![reply.json()],
        _ => vec![json!(reply.text())],
    };
    for body in bodies {
        assert_eq!(schemas.faults(schema, &body), Vec::<String>::new(), "{body}");
        assert_eq!(schemas.undescribed(schema, &body), Vec::<String>::new(), "{body}");
        if kind == "application/problem+json" {
            assert_eq!(body["status"], json!(reply.status));
        }
    }
}

/// Checks an answer against what the node describes.
pub(crate) fn is_described(node: &Node, method: &str, path: &str, reply: &Reply) {
    let document = description(node);
    conforms(&document, &document["paths"][path][method], reply);
}
