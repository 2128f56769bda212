//! The reference page of the HTTP API, generated from its OpenAPI description.

use serde_json::{Map, Value};

use crate::reference::{GENERATED, cell};

/// The description of the API, which the server sends at `/rest/v3/openapi.json`.
const DESCRIPTION: &str = include_str!("../../src/api/rest/openapi.json");

/// Methods in the order in which the page lists them.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// Returns the page.
pub(crate) fn page() -> String {
    let api: Value = serde_json::from_str(DESCRIPTION).expect("the description is JSON");
    let mut page = format!(
        "# HTTP API\n\n{GENERATED}\n\nEvery endpoint of the public listener, with its parameters and responses. Source: \
         `src/api/rest/openapi.json`, which a node serves at `/rest/v3/openapi.json` (OpenAPI 3.1) with full schemas and examples. \
         [The API by task](../guides/api.md) shows how to use it.\n\nSend the API key as `X-Api-Key`. Errors are problem details \
         (`application/problem+json`). Besides the statuses listed, any request can get 400, 404, 405, 408, 417, 431, 501 or 505 \
         if its path, method or HTTP syntax is wrong, or if it does not arrive in time.\n"
    );
    let tags = api["tags"].as_array().cloned().unwrap_or_default();
    for tag in &tags {
        page.push_str(&format!("\n## {}\n", text(&tag["name"])));
        for (path, method, operation) in operations(&api) {
            if operation["tags"].as_array().is_some_and(|tags| tags.contains(&tag["name"])) {
                page.push_str(&section(&api, path, method, operation));
            }
        }
    }
    page.push_str("\n## Objects\n");
    for name in ["CreateShortUrl", "EditShortUrl", "ShortUrl", "Problem"] {
        page.push_str(&object(&api, name));
    }
    page
}

fn operations(api: &Value) -> Vec<(&str, &str, &Value)> {
    let Some(paths) = api["paths"].as_object() else { return vec![] };
    let mut found = Vec::new();
    for (path, item) in paths {
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                found.push((path.as_str(), method, operation));
            }
        }
    }
    found
}

fn section(api: &Value, path: &str, method: &str, operation: &Value) -> String {
    let mut out = format!("\n### {} {path}\n\n{}.\n", method.to_uppercase(), sentence(&operation["summary"]));
    if let Some(description) = operation["description"].as_str() {
        out.push_str(&format!("\n{}\n", cell(description)));
    }
    let shared = api["paths"][path]["parameters"].as_array().into_iter().flatten();
    let own = operation["parameters"].as_array().into_iter().flatten();
    let parameters: Vec<&Value> = shared.chain(own).map(|parameter| resolved(api, parameter)).collect();
    if !parameters.is_empty() {
        out.push_str("\n| parameter | in | value | meaning |\n|---|---|---|---|\n");
        for parameter in parameters {
            let (name, place) = (text(&parameter["name"]), text(&parameter["in"]));
            let meaning = cell(text(&parameter["description"]));
            out.push_str(&format!("| `{name}` | {place} | {} | {meaning} |\n", value(api, &parameter["schema"])));
        }
    }
    out.push_str(&body(operation));
    out.push_str("\n| status | meaning |\n|---|---|\n");
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let meaning = cell(text(&resolved(api, response)["description"]));
        // The default response is the same everywhere: the introduction has it.
        if status != "default" {
            out.push_str(&format!("| {status} | {meaning} |\n"));
        }
    }
    out
}

fn body(operation: &Value) -> String {
    let Some(content) = operation["requestBody"]["content"].as_object() else { return String::new() };
    let kinds: Vec<String> = content
        .iter()
        .map(|(kind, media)| {
            let schema = media["schema"]["$ref"].as_str().and_then(|name| name.rsplit('/').next());
            schema.map_or(format!("`{kind}`"), |name| format!("`{kind}` (`{name}`)"))
        })
        .collect();
    format!("\nBody: {}.\n", kinds.join(" or "))
}

fn object(api: &Value, name: &str) -> String {
    let schema = &api["components"]["schemas"][name];
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut out = format!("\n### {name}\n\n| field | value | meaning |\n|---|---|---|\n");
    for (field, schema) in schema["properties"].as_object().unwrap_or(&Map::new()) {
        let star =
            if name != "ShortUrl" && required.contains(&Value::from(field.as_str())) { " (required)" } else { "" };
        let meaning = cell(text(&schema["description"]));
        out.push_str(&format!("| `{field}`{star} | {} | {meaning} |\n", value(api, schema)));
    }
    out
}

/// Describes the values that a schema allows in a few words.
fn value(api: &Value, schema: &Value) -> String {
    let schema = resolved(api, schema);
    if schema["maxLength"] == 0 {
        return "empty".to_owned();
    }
    if let Some(values) = schema["enum"].as_array() {
        let shown: Vec<String> =
            values.iter().filter(|value| **value != "").map(|value| format!("`{}`", bare(value))).collect();
        return shown.join(", ");
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let mut shown: Vec<String> = choices.iter().map(|choice| value(api, choice)).collect();
        shown.dedup();
        return shown.join(", or ");
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(text).collect::<Vec<_>>().join(" or "),
        kind => schema["format"].as_str().unwrap_or(text(kind)).to_owned(),
    };
    let bounds = match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
        (Some(low), Some(high)) => format!(", {low} to {high}"),
        (Some(low), None) => format!(", at least {low}"),
        _ => String::new(),
    };
    let length = schema["maxLength"].as_u64().map_or(String::new(), |most| format!(", at most {most} characters"));
    let default = schema.get("default").map_or(String::new(), |value| format!("; default `{}`", bare(value)));
    format!("{kinds}{bounds}{length}{default}")
}

fn resolved<'a>(api: &'a Value, value: &'a Value) -> &'a Value {
    let Some(place) = value["$ref"].as_str() else { return value };
    api.pointer(place.trim_start_matches('#')).expect("a reference leads somewhere")
}

fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn sentence(value: &Value) -> String {
    cell(text(value).trim_end_matches('.'))
}
