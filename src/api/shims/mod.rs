//! Other shorteners' interfaces, for callers that exist already: what they send is read as a request of our own, and what
//! they are told is written as they know it.

mod bitly;
mod form;
mod yourls;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Context;
use super::create::Create;
use super::problem::Problem;
use super::short_urls::Made;
use crate::link::Link;
use crate::visits::tally::Counts;

impl Context {
    /// Makes a link of fields of our own, or finds one like it.
    async fn make_of(&self, fields: &Map<String, Value>) -> Result<Made, Problem> {
        let create = self.bounded(|bounds| Create::read(fields, bounds));
        self.make(create.map_err(|invalid| Problem::invalid(&invalid))?).await
    }

    /// The link that a caller calls by its code, by a short URL, or by one without its scheme.
    async fn find_called(&self, name: &str) -> Result<(Arc<Link>, Counts), Problem> {
        self.find(code_in(name)).await
    }
}

/// The code in a short URL: what stands behind its last slash, before a query.
fn code_in(name: &str) -> &str {
    let end = name.find(['?', '#']).unwrap_or(name.len());
    let path = name[..end].trim_end_matches('/');
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_many_names() {
        for name in [
            "abc",
            "go.example/abc",
            "https://go.example:8080/abc",
            "http://go.example/abc/?x=/y#z",
            "go.example/a/abc",
        ] {
            assert_eq!(code_in(name), "abc", "{name}");
        }
        assert_eq!((code_in(""), code_in("/"), code_in("?")), ("", "", ""));
    }
}
