//! Changes and deletions of many links, one per line: `POST /rest/v3/short-urls/bulk/changes`.
//!
//! Lines are carried out in their order, in batches of one kind: a deletion waits for the changes before it.

use std::future::poll_fn;

use carom_shards::Code;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::{Map, Value};

use super::bulk_body::{BulkBody, LineBatches, NDJSON, run};
use super::bulk_edit::{BulkEdit, EditTarget, no_answer, push_refusal, push_result};
use super::lines::Line;
use super::short_urls::{parse_line, refused};
use super::streaming::{Outlet, TurnShare, stream};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::response::{ApiResponse, answer_with};
use crate::bridge::LinkAnswer;
use carom_limits::{BULK_CHUNK_BYTES, BULK_CHUNK_LINES, IMPORT_LINE_MAX};
use carom_model::domains::DomainName;

/// A line that was read.
type ReadLine = (u64, Result<EditTarget, Problem>);

/// State of a running request.
struct Edits {
    context: Context,
    body: BulkBody,
    /// A line of another kind than those before it.
    next: Option<ReadLine>,
}

impl Context {
    /// Handles `POST /rest/v3/short-urls/bulk/changes`: changes or deletes the link of each line.
    pub(in crate::api) async fn change_bulk(&self, request: Request<Incoming>) -> ApiResponse {
        match self.begin_changes(request).await {
            Ok(answer) => answer,
            Err(problem) => problem.into_answer(),
        }
    }

    async fn begin_changes(&self, request: Request<Incoming>) -> Result<ApiResponse, Problem> {
        let body = BulkBody::begin(self, request).await?;
        let edits = Edits { context: self.clone(), body, next: None };
        Ok(answer_with(StatusCode::OK, NDJSON, stream(|outlet| run(edits, outlet))))
    }

    /// Reads a line of a request.
    async fn edit_of(&self, number: u64, line: &[u8]) -> Result<EditTarget, Problem> {
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
            None => (self.caller.domain_meant().map(DomainName::id), self.caller.domain_meant().cloned()),
            Some(name) => {
                let id = self.domain_named(name).ok_or_else(no_link)?;
                (id, id.and(DomainName::parse(name).ok()))
            }
        };
        Ok(EditTarget { line: number, code: code.within(id), domain, edit })
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

impl LineBatches for Edits {
    type Line = ReadLine;

    fn context(&self) -> &Context {
        &self.context
    }

    fn body(&mut self) -> &mut BulkBody {
        &mut self.body
    }

    /// Reads lines that have arrived, until the next one is of another kind.
    async fn next_batch(&mut self) -> Vec<ReadLine> {
        let mut batch: Vec<ReadLine> = Vec::new();
        let mut deletes = None;
        let (mut bytes, mut share) = (0, TurnShare::default());
        while batch.len() < BULK_CHUNK_LINES && bytes < BULK_CHUNK_BYTES {
            let before = bytes;
            let read = match self.next.take() {
                Some(read) => read,
                None => match self.body.next() {
                    Some(Line::Whole(number, line)) => {
                        bytes += line.len();
                        (number, self.context.edit_of(number, line).await)
                    }
                    Some(Line::TooLong(number)) => (number, Err(Problem::line_too_long(IMPORT_LINE_MAX))),
                    None => break,
                },
            };
            if let Ok(target) = &read.1 {
                let is_delete = target.edit == BulkEdit::Delete;
                if *deletes.get_or_insert(is_delete) != is_delete {
                    self.next = Some(read);
                    break;
                }
            }
            batch.push(read);
            share.take(bytes - before).await;
        }
        batch
    }

    async fn carry_out(&mut self, batch: Vec<ReadLine>, outlet: &Outlet) {
        let mut order = Vec::with_capacity(batch.len());
        let mut targets = Vec::with_capacity(batch.len());
        for (line, read) in batch {
            match read {
                Ok(target) => {
                    order.push(None);
                    targets.push(target);
                }
                Err(problem) => order.push(Some((line, problem))),
            }
        }
        let results =
            if self.body.dry { self.judge_all(&targets).await } else { self.context.edit_all(&targets).await };
        let mut told = targets.iter().zip(results.into_iter().chain(std::iter::repeat_with(|| Err(no_answer()))));
        let mut out = Vec::with_capacity(order.len() * 64);
        for refusal in order {
            match refusal {
                Some((line, problem)) => push_refusal(line, problem, false, &mut out),
                None => told.next().into_iter().for_each(|(target, result)| push_result(target, &result, &mut out)),
            }
        }
        outlet.send(out).await;
    }

    fn next_number(&mut self) -> u64 {
        self.next.as_ref().map_or(self.body.next_number(), |(line, _)| *line)
    }
}

impl Edits {
    /// Returns the results that these lines would have, one by one.
    async fn judge_all(&self, targets: &[EditTarget]) -> Vec<Result<(), Problem>> {
        let scope = self.context.caller.scope();
        let mut answers = self.context.services.read_all(targets.len(), |at| targets[at].code);
        let answers = poll_fn(|context| answers.poll(context)).await;
        let judge = |(target, answer): (&EditTarget, LinkAnswer)| {
            let slug = target.code.as_slug().to_string();
            match answer {
                LinkAnswer::Found(link, _) if scope.has(&link) => target.edit.judge(&link),
                LinkAnswer::Damaged if scope.is_all() => Err(Problem::damaged(&slug)),
                LinkAnswer::Found(..) | LinkAnswer::NotFound | LinkAnswer::Damaged => Err(Problem::no_link(&slug)),
                LinkAnswer::Refused(reason) => Err(refused(reason)),
            }
        };
        targets.iter().zip(answers).map(judge).collect()
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
