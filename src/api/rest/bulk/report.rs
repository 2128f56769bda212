//! The results of bulk requests: one JSON object for each line, in order.

use carom_shards::Code;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::problem::Problem;
use crate::api::rest::describe::ShortUrl;
use carom_model::domains::DomainName;

/// The result of a line, in the form of its JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LineReport<'r> {
    line: u64,
    status: u16,
    /// The link of a create.
    #[serde(skip_serializing_if = "Option::is_none")]
    short_url: Option<ShortUrl<'r>>,
    /// The slug of a change or import.
    #[serde(skip_serializing_if = "Option::is_none")]
    short_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<&'r str>,
    /// True if an imported link was there already.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unchanged: bool,
    /// True if an earlier request with the same idempotency key has created the link.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Map<String, Value>>,
    /// True on the last result of a request that ended early: this line and all later ones were not processed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ended: bool,
}

impl<'r> LineReport<'r> {
    /// Returns the report of a line that names no link.
    fn of(line: u64, problem: Option<Problem>) -> LineReport<'r> {
        let (status, error) = match problem.map(Problem::into_parts) {
            None => (200, None),
            Some((status, members)) => (status.as_u16(), Some(members)),
        };
        LineReport {
            line,
            status,
            short_url: None,
            short_code: None,
            domain: None,
            unchanged: false,
            replayed: false,
            error,
            ended: false,
        }
    }
}

/// Appends the result of a create. `short_url` is `None` in a dry run.
pub(super) fn push_create(line: u64, short_url: Option<ShortUrl<'_>>, replayed: bool, out: &mut Vec<u8>) {
    push(&LineReport { short_url, replayed, ..LineReport::of(line, None) }, out);
}

/// Appends the result of the change or import of a link: true for an imported link that was there already.
pub(super) fn push_link(
    line: u64,
    code: Code,
    domain: Option<&DomainName>,
    outcome: Result<bool, Problem>,
    out: &mut Vec<u8>,
) {
    let (unchanged, problem) = match outcome {
        Ok(unchanged) => (unchanged, None),
        Err(problem) => (false, Some(problem)),
    };
    let (short_code, domain) = (Some(code.as_slug().to_string()), domain.map(DomainName::as_str));
    push(&LineReport { short_code, domain, unchanged, ..LineReport::of(line, problem) }, out);
}

/// Appends the problem of a line that names no link.
pub(super) fn push_problem(line: u64, problem: Problem, out: &mut Vec<u8>) {
    push(&LineReport::of(line, Some(problem)), out);
}

/// Appends the last result of a request that ends early: `line` and all later ones were not processed.
pub(super) fn push_early_end(line: u64, problem: Problem, out: &mut Vec<u8>) {
    push(&LineReport { ended: true, ..LineReport::of(line, Some(problem)) }, out);
}

/// Appends the last line of a request by filter that reached its end.
pub(super) fn push_totals(changed: u64, failed: u64, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct BulkTotals {
        complete: bool,
        changed: u64,
        failed: u64,
    }
    push(&BulkTotals { complete: true, changed, failed }, out);
}

fn push(report: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, report).expect("keys are strings, and nothing else can fail");
    out.push(b'\n');
}
