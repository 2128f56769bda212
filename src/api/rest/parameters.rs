//! The table of the query parameters of the REST API. A request with any other parameter is refused: a filter that is
//! ignored would return more links than the client asked for.
//!
//! A test compares the table with the description for clients (`openapi.json`).

use hyper::Method;

use crate::api::problem::Invalid;
use crate::api::public::routes::{MATCHING_PATH, SINGLE_STEP_PATH, route_of};
use crate::api::query::pairs;
use crate::bridge::{BULK_PATH, CHANGES_PATH, IMPORT_PATH};
use carom_model::visits::breakdown::VisitProperty;

/// Parameters that several requests have in common.
pub(in crate::api) type ParameterGroup = &'static [&'static str];

/// Parameters that select links.
const OF_LINKS: ParameterGroup = &[
    "searchTerm",
    "tags[]",
    "tagsMode",
    "excludeTags[]",
    "excludeTagsMode",
    "startDate",
    "endDate",
    "domain",
    "excludeMaxVisitsReached",
    "excludePastValidUntil",
    "state",
    "app",
    "apiKeyName",
];

/// Parameters that select visits by time and by kind of visitor.
const OF_VISITS: ParameterGroup = &["startDate", "endDate", "excludeBots"];

/// Parameters that each select the visits with one value of a property.
const PROPERTIES: [&str; VisitProperty::ALL.len()] = {
    let mut names = [""; VisitProperty::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = VisitProperty::ALL[at].0.parameter();
        at += 1;
    }
    names
};

/// Parameters that select the page of a list.
const PAGE: ParameterGroup = &["page", "itemsPerPage"];

/// Paths and methods of the REST API, each with its query parameters, in groups. `[]` marks a list.
const PARAMETERS: &[(&str, &str, &[ParameterGroup])] = &[
    ("/rest/v3/short-urls", "GET", &[PAGE, OF_LINKS, &["orderBy", "cursor"]]),
    ("/rest/v3/short-urls", "POST", &[&["format"]]),
    (BULK_PATH, "POST", &[&["dryRun"]]),
    (CHANGES_PATH, "POST", &[&["dryRun"]]),
    (IMPORT_PATH, "POST", &[&["dryRun"]]),
    (MATCHING_PATH, "POST", &[OF_LINKS, &["confirm"]]),
    ("/rest/v3/short-urls/export", "GET", &[OF_LINKS]),
    (SINGLE_STEP_PATH, "GET", &[&["apiKey", "longUrl", "format"]]),
    ("/rest/v3/short-urls/{shortCode}", "GET", &[&["domain"]]),
    ("/rest/v3/short-urls/{shortCode}", "PATCH", &[&["domain"]]),
    ("/rest/v3/short-urls/{shortCode}", "DELETE", &[&["domain", "purge", "after"]]),
    ("/rest/v3/short-urls/{shortCode}/redirect-rules", "GET", &[&["domain"]]),
    ("/rest/v3/short-urls/{shortCode}/redirect-rules", "POST", &[&["domain"]]),
    (
        "/rest/v3/short-urls/{shortCode}/redirect-rules/try",
        "GET",
        &[&["domain", "userAgent", "acceptLanguage", "query", "ipAddress", "country", "city", "date"]],
    ),
    ("/rest/v3/short-urls/{shortCode}/visits", "GET", &[&["domain"], OF_VISITS, PAGE, &PROPERTIES]),
    ("/rest/v3/short-urls/{shortCode}/visits", "DELETE", &[&["domain"]]),
    ("/rest/v3/tags/{tag}/visits", "GET", &[&["domain", "app"], OF_VISITS, PAGE, &PROPERTIES]),
    ("/rest/v3/domains/{domain}/visits", "GET", &[OF_VISITS, PAGE]),
    ("/rest/v3/visits/non-orphan", "GET", &[&["domain", "app"], OF_VISITS, PAGE, &PROPERTIES]),
    ("/rest/v3/visits/stats", "GET", &[&["shortCode", "domain", "tag", "app"], OF_VISITS, &["limit"], &PROPERTIES]),
    ("/rest/v3/visits/per-day", "GET", &[&["shortCodes[]", "domain", "startDate", "endDate"]]),
    ("/rest/v3/visits/orphan", "GET", &[&["type", "domain"], OF_VISITS, PAGE]),
    ("/rest/v3/short-urls/{shortCode}/qr", "GET", &[&["domain", "format", "size", "margin", "correction"]]),
    ("/rest/v3/tags", "GET", &[PAGE, &["searchTerm", "orderBy", "withStats"]]),
    ("/rest/v3/tags", "DELETE", &[&["tags[]"]]),
    ("/rest/v3/tags/stats", "GET", &[PAGE, &["searchTerm", "orderBy"]]),
    ("/rest/v3/events", "GET", &[&["after", "limit", "type"]]),
];

/// Names of Shlink's that mean the same as a parameter of the table.
const ALIASES: &[(&str, &str)] = &[("errorCorrection", "correction")];

/// Checks the names of the query parameters of a request.
///
/// # Errors
/// Every unknown parameter, with those that the path knows.
pub(in crate::api) fn check(path: &str, method: &Method, query: Option<&str>) -> Result<(), Vec<Invalid>> {
    check_names(query, known_at(path, if *method == Method::HEAD { "GET" } else { method.as_str() }))
}

/// Checks that a query has only parameters of these groups.
///
/// # Errors
/// Every unknown parameter, with the known ones.
pub(in crate::api) fn check_names(query: Option<&str>, known: &[ParameterGroup]) -> Result<(), Vec<Invalid>> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(()) };
    let mut invalid: Vec<Invalid> = Vec::new();
    for (name, value) in pairs(query) {
        let is_empty = name.is_empty() && value.is_empty();
        if is_empty || is_known(&name, known) || invalid.iter().any(|one| one.field == name) {
            continue;
        }
        let reason = match known {
            [] => "is not a parameter of this request, which has none".to_owned(),
            _ => format!("is not a parameter of this request; expected one of {}", known.concat().join(", ")),
        };
        invalid.push(Invalid::new(name, reason));
    }
    if invalid.is_empty() { Ok(()) } else { Err(invalid) }
}

/// Returns the parameters of a path and method, in groups.
fn known_at(path: &str, method: &str) -> &'static [ParameterGroup] {
    let route = route_of(path);
    let known = PARAMETERS.iter().find(|(known, of, _)| Some(*known) == route && *of == method);
    known.map_or(&[], |(_, _, groups)| groups)
}

/// True if a parameter is known, by its name, an alias, or as an item of a list.
fn is_known(name: &str, known: &[ParameterGroup]) -> bool {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    known.iter().copied().flatten().any(|known| match known.strip_suffix("[]") {
        None => name == *known,
        Some(list) => name.strip_prefix(list).is_some_and(|rest| {
            let index = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            rest.is_empty() || index.is_some_and(|index| index.bytes().all(|byte| byte.is_ascii_digit()))
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::rest::openapi::DOCUMENT;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn unknown(method: &Method, path: &str, query: &str) -> Vec<String> {
        let invalid = check(path, method, Some(query)).err().unwrap_or_default();
        invalid.into_iter().map(|one| one.field).collect()
    }

    #[test]
    fn unknown_parameters_are_refused_by_name() {
        let list = "/rest/v3/short-urls";
        let none: [&str; 0] = [];
        let known = "tags[]=a&tags%5B%5D=b&tags[7]=c&tags=d&excludeTags[]=e&page=1&domain=";
        assert_eq!(unknown(&Method::GET, list, known), none);
        assert_eq!(unknown(&Method::HEAD, list, known), none);
        let wrong = "tagz[]=a&page[]=1&tags[x]=b&excludeBots=true&excludeBots=false&=&=x";
        assert_eq!(unknown(&Method::GET, list, wrong), ["tagz[]", "page[]", "tags[x]", "excludeBots", ""]);
        assert_eq!(unknown(&Method::POST, list, "page=1"), ["page"]);
        assert_eq!(unknown(&Method::GET, "/rest/v3/domains", "page=1"), ["page"]);
        assert_eq!(unknown(&Method::PATCH, "/rest/v3/short-urls/a%62c", "domain=a&x"), ["x"]);
        assert_eq!(unknown(&Method::GET, "/rest/v3/short-urls/abc/qr", "size=9&errorCorrection=H"), none);
        assert_eq!(unknown(&Method::POST, BULK_PATH, "dryRun=true"), none);
    }

    #[test]
    fn the_description_has_the_same_parameters() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let named = |parameters: &Value| -> BTreeSet<String> {
            let of = parameters.as_array().into_iter().flatten().map(|parameter| match parameter["$ref"].as_str() {
                Some(place) => document.pointer(&place[1..]).unwrap(),
                None => parameter,
            });
            of.filter(|it| it["in"] == "query").map(|it| it["name"].as_str().unwrap().to_owned()).collect()
        };
        let paths = document["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/rest/"));
        for (path, item) in paths {
            for (method, operation) in item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters") {
                let mut described = named(&item["parameters"]);
                described.extend(named(&operation["parameters"]));
                let known = PARAMETERS.iter().find(|(of, by, _)| of == path && by.eq_ignore_ascii_case(method));
                let known = known.map_or(&[][..], |(_, _, groups)| groups).iter().copied().flatten();
                let known = known.map(|name| (*name).to_owned());
                assert_eq!(described, known.collect(), "{method} {path}");
            }
        }
    }
}
