//! Bulk requests that carry out their lines batch by batch: changes, imports, and dry runs of creates.
//!
//! The kind of a request is its [`LineWork`]: what a line means, and what happens to a batch of them. This module does
//! the rest: it reads the batches and writes one result for each line, in order. Creates read ahead while the store
//! works, so [`super::creates`] drives itself.

use std::future::poll_fn;

use hyper::StatusCode;

use super::body::{BodyEvent, BulkBody, NDJSON, ReadLine, shutting_down};
use super::report::{push_early_end, push_problem};
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::response::{ApiResponse, answer_with};
use crate::api::rest::streaming::{Outlet, stream};

/// Work on the lines of a bulk request.
pub(super) trait LineWork {
    /// A valid line.
    type Item;

    /// The outcome of a line.
    type Outcome;

    /// Reads a line.
    ///
    /// # Errors
    /// The problem with the line.
    async fn read(&self, context: &Context, number: u64, line: &[u8]) -> Result<Self::Item, Problem>;

    /// Carries out the valid lines of a batch, in their order. Returns one outcome for each.
    async fn carry_out(&mut self, context: &Context, items: &[&Self::Item]) -> Vec<Self::Outcome>;

    /// Appends the result of a valid line.
    fn report(line: u64, item: &Self::Item, outcome: Self::Outcome, out: &mut Vec<u8>);
}

impl Context {
    /// Answers a bulk request with the results of its lines.
    pub(super) fn answer_lines(&self, body: BulkBody, work: impl LineWork + 'static) -> ApiResponse {
        let context = self.clone();
        answer_with(StatusCode::OK, NDJSON, stream(|outlet| run(context, body, work, outlet)))
    }
}

/// Carries out the lines of a body until its end, the end of the caller's key, or that of the node.
async fn run(context: Context, mut body: BulkBody, mut work: impl LineWork, outlet: Outlet) {
    let problem = loop {
        if !body.is_over() && !context.still_holds() {
            break Problem::wrong_key();
        }
        let batch = body.next_batch(async |number, line: &[u8]| work.read(&context, number, line).await).await;
        if !batch.lines.is_empty() {
            outlet.send(results(&context, &mut work, batch.lines).await).await;
            continue;
        }
        if body.is_over() {
            return;
        }
        match poll_fn(|context| body.poll_more(context)).await {
            BodyEvent::Arrived => {}
            BodyEvent::BrokenOff => return,
            BodyEvent::MustEnd => break shutting_down(),
        }
    };
    let mut out = Vec::new();
    push_early_end(body.next_number(), problem, &mut out);
    outlet.send(out).await;
}

/// Carries out a batch. Returns the results of all its lines.
async fn results<W: LineWork>(context: &Context, work: &mut W, lines: Vec<ReadLine<W::Item>>) -> Vec<u8> {
    let items: Vec<&W::Item> = lines.iter().filter_map(|(_, item)| item.as_ref().ok()).collect();
    let outcomes = work.carry_out(context, &items).await;
    assert_eq!(outcomes.len(), items.len(), "each valid line has one outcome");
    let mut outcomes = outcomes.into_iter();
    let mut out = Vec::with_capacity(lines.len() * 64);
    for (line, item) in lines {
        match item {
            Ok(item) => W::report(line, &item, outcomes.next().expect("counted above"), &mut out),
            Err(problem) => push_problem(line, problem, &mut out),
        }
    }
    out
}
