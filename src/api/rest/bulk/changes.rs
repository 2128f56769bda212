//! Changes and deletions of many links, one per line, in their order: `POST /rest/v3/short-urls/bulk/changes`.

use carom_shards::Code;
use hyper::Request;
use hyper::body::Incoming;
use serde_json::{Map, Value};

use super::body::BulkBody;
use super::edit::{BulkEdit, EditTarget};
use super::work::LineWork;
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::response::ApiResponse;
use crate::api::rest::short_urls::{parse_line, refused};
use crate::bridge::LinkAnswer;
use carom_model::domains::DomainName;

/// The work on changes.
struct BulkChanges {
    dry: bool,
}

impl Context {
    /// Handles `POST /rest/v3/short-urls/bulk/changes`: changes or deletes the link of each line.
    pub(in crate::api) async fn change_bulk(&self, request: Request<Incoming>) -> ApiResponse {
        match BulkBody::begin(self, request).await {
            Ok(body) => {
                let work = BulkChanges { dry: body.dry };
                self.answer_lines(body, work)
            }
            Err(problem) => problem.into_answer(),
        }
    }

    /// Reads a line of a request.
    async fn edit_of(&self, line: &[u8]) -> Result<EditTarget, Problem> {
        let fields = parse_line(&self.services, line).await?;
        let mut invalid = Vec::new();
        BulkEdit::refuse_unknown(&fields, &["shortCode", "domain"], &mut invalid);
        let edit = self.bounded(|bounds| BulkEdit::read(&fields, bounds));
        let edit = edit.map_err(|wrong| invalid.extend(wrong)).ok();
        let code = code_of(&fields).map_err(|wrong| invalid.push(wrong)).ok();
        let domain = match fields.get("domain") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(name)) => Ok(Some(name)),
            Some(other) => Err(Invalid::value("domain", "must be a string", other)),
        };
        let domain = domain.map_err(|wrong| invalid.push(wrong)).unwrap_or_default();
        let (Some(code), Some(edit), true) = (code, edit, invalid.is_empty()) else {
            return Err(Problem::invalid(&invalid));
        };
        let no_link = || Problem::no_link(&code.as_slug().to_string());
        let (id, domain) = match domain {
            None => (self.caller.implied_domain().map(DomainName::id), self.caller.implied_domain().cloned()),
            Some(name) => {
                let id = self.domain_named(name).ok_or_else(no_link)?;
                (id, id.and(DomainName::parse(name).ok()))
            }
        };
        Ok(EditTarget { code: code.within(id), domain, edit })
    }

    /// Returns the results that these edits would have, one by one.
    async fn check_edits(&self, targets: &[&EditTarget]) -> Vec<Result<(), Problem>> {
        let scope = self.caller.scope();
        let answers = self.services.read_all(targets.len(), |at| targets[at].code).await;
        let check = |(target, answer): (&&EditTarget, LinkAnswer)| match answer {
            LinkAnswer::Found(link, _) if scope.has(&link) => target.edit.check(&link),
            LinkAnswer::Damaged if scope.is_all() => Err(Problem::damaged(&target.slug())),
            LinkAnswer::Found(..) | LinkAnswer::NotFound | LinkAnswer::Damaged => Err(Problem::no_link(&target.slug())),
            LinkAnswer::Refused(reason) => Err(refused(reason)),
        };
        targets.iter().zip(answers).map(check).collect()
    }
}

/// Returns the slug of a line.
fn code_of(fields: &Map<String, Value>) -> Result<Code, Invalid> {
    let text = match fields.get("shortCode") {
        None | Some(Value::Null) => return Err(Invalid::new("shortCode", "is missing; expected the slug of a link")),
        Some(Value::String(text)) => text,
        Some(other) => return Err(Invalid::value("shortCode", "must be a string", other)),
    };
    Code::from_slug(text.as_bytes()).map_err(|error| Invalid::new("shortCode", error.to_string()))
}

impl LineWork for BulkChanges {
    type Item = EditTarget;
    type Outcome = Result<(), Problem>;

    async fn read(&self, context: &Context, _number: u64, line: &[u8]) -> Result<EditTarget, Problem> {
        context.edit_of(line).await
    }

    async fn carry_out(&mut self, context: &Context, targets: &[&EditTarget]) -> Vec<Result<(), Problem>> {
        if self.dry { context.check_edits(targets).await } else { context.edit_all(targets).await }
    }

    fn report(line: u64, target: &EditTarget, result: Result<(), Problem>, out: &mut Vec<u8>) {
        target.report(line, result, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_slug_of_a_line_is_checked() {
        let code = |body: Value| code_of(body.as_object().unwrap()).map_err(|invalid| invalid.reason);
        assert_eq!(code(json!({"shortCode": "abc"})), Ok(Code::parse(b"abc").unwrap()));
        assert!(code(json!({})).unwrap_err().contains("missing"));
        assert!(code(json!({"shortCode": 1})).unwrap_err().contains("(got 1)"));
        assert!(code(json!({"shortCode": ""})).is_err());
    }
}
