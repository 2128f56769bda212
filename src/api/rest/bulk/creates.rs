//! Bulk creation of links: one create a line, one result a line, in order, while lines still arrive.
//!
//! Lines are decided in chunks. A chunk goes to the store as single creates whose replies one waiter collects.
//! While the store syncs it, the next chunks are read, as many as [`BULK_LINES_WAITING`] and [`BULK_BYTES_WAITING`]
//! allow. A client that stops reading its results stops the reading of its body. So the memory of a request is
//! bounded.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};

use carom_shards::Code;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use super::body::{BodyEvent, BulkBody, LineBatch, NDJSON, ReadLine, shutting_down};
use super::dry_run::DryCreates;
use super::report::{push_create, push_early_end, push_problem};
use super::tried_slugs::TriedSlugs;
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::response::{ApiResponse, answer_with};
use crate::api::rest::create::Create;
use crate::api::rest::short_urls::{NewLink, ShownLink, idempotency_key, refused};
use crate::api::rest::streaming::{LINES_PER_TURN, Outlet, stream};
use crate::bridge::handle::ServiceHandle;
use crate::bridge::handle::batches::AwaitedBatch;
use crate::bridge::{CreateAnswer, LinkAnswer, StoreRequest};
use carom_limits::{BULK_BYTES_WAITING, BULK_LINES_WAITING, BULK_LINES_WAITING_MIN, BULK_QUEUE_SHARE};
use carom_model::access::idempotency::IdempotencyKey;
use carom_telemetry::stats::NodeStats;

/// The result of a line.
struct LineResult {
    line: u64,
    link: Result<ShownLink, Problem>,
    /// True if an earlier request with the same idempotency key has created the link.
    replayed: bool,
}

/// Lines that are decided together.
struct PendingChunk {
    /// The links that the store was asked for, between the problems of other lines.
    lines: Vec<ReadLine<NewLink>>,
    bytes: usize,
    answers: AwaitedBatch<CreateAnswer>,
}

/// An event that continues a bulk request.
enum BulkEvent {
    /// The body goes on, or ends.
    Body(BodyEvent),
    /// The store has replied to the oldest chunk.
    Decided(Vec<CreateAnswer>),
}

/// Codes that were reserved for a chunk and are unused so far. Dropping this returns them to the core.
struct Codes {
    services: Rc<ServiceHandle>,
    codes: Vec<Code>,
}

impl Drop for Codes {
    fn drop(&mut self) {
        self.codes.drain(..).for_each(|code| self.services.give_code_back(code));
    }
}

/// A slot among the bulk requests that the node counts, held until it is dropped.
struct BulkSlot(Arc<NodeStats>);

impl BulkSlot {
    fn take(node: &Arc<NodeStats>) -> BulkSlot {
        node.bulks.fetch_add(1, Ordering::Relaxed);
        BulkSlot(Arc::clone(node))
    }

    /// Returns how many lines may wait for the store now.
    fn lines(&self) -> usize {
        let bulks = self.0.bulks.load(Ordering::Relaxed).max(1);
        (BULK_QUEUE_SHARE / bulks).clamp(BULK_LINES_WAITING_MIN, BULK_LINES_WAITING)
    }
}

impl Drop for BulkSlot {
    fn drop(&mut self) {
        self.0.bulks.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State of a running bulk request.
struct BulkCreates {
    context: Context,
    body: BulkBody,
    /// Key of the whole request, from which each line without a key of its own gets one.
    key: Option<IdempotencyKey>,
    share: BulkSlot,
    waiting: VecDeque<PendingChunk>,
}

impl Context {
    /// Handles `POST /rest/v3/short-urls/bulk`: creates a link for each line of the body.
    pub(in crate::api) async fn create_bulk(&self, request: Request<Incoming>) -> ApiResponse {
        self.begin_bulk(request).await.unwrap_or_else(Problem::into_answer)
    }

    async fn begin_bulk(&self, request: Request<Incoming>) -> Result<ApiResponse, Problem> {
        let key = idempotency_key(request.headers())?;
        let body = BulkBody::begin(self, request).await?;
        if body.dry {
            return Ok(self.answer_lines(body, DryCreates { key, tried: TriedSlugs::default() }));
        }
        let share = BulkSlot::take(&self.services.context().node);
        let creates = BulkCreates { context: self.clone(), body, key, share, waiting: VecDeque::new() };
        Ok(answer_with(StatusCode::OK, NDJSON, stream(|outlet| creates.run(outlet))))
    }
}

impl BulkCreates {
    async fn run(mut self, outlet: Outlet) {
        loop {
            if !self.body.is_over() && !self.context.still_holds() {
                return self.break_off(&outlet, Problem::wrong_key()).await;
            }
            while self.has_room()
                && let Some(chunk) = self.next_chunk().await
            {
                self.waiting.push_back(chunk);
            }
            if self.body.is_over() && self.waiting.is_empty() {
                return;
            }
            match poll_fn(|context| self.poll_event(context)).await {
                BulkEvent::Body(BodyEvent::Arrived) => {}
                BulkEvent::Body(BodyEvent::BrokenOff) => return,
                BulkEvent::Body(BodyEvent::MustEnd) => return self.break_off(&outlet, shutting_down()).await,
                BulkEvent::Decided(answers) => {
                    if let Some(chunk) = self.waiting.pop_front() {
                        self.write_results(chunk, answers, &outlet).await;
                    }
                }
            }
        }
    }

    /// True if more lines may be sent to the store.
    fn has_room(&self) -> bool {
        let lines: usize = self.waiting.iter().map(|chunk| chunk.lines.len()).sum();
        let bytes: usize = self.waiting.iter().map(|chunk| chunk.bytes).sum();
        lines < self.share.lines() && bytes < BULK_BYTES_WAITING
    }

    fn poll_event(&mut self, context: &mut TaskContext<'_>) -> Poll<BulkEvent> {
        if self.body.must_end(context) {
            return Poll::Ready(BulkEvent::Body(BodyEvent::MustEnd));
        }
        if let Some(chunk) = self.waiting.front_mut()
            && let Poll::Ready(answers) = Pin::new(&mut chunk.answers).poll(context)
        {
            return Poll::Ready(BulkEvent::Decided(answers));
        }
        if self.body.is_over() || !self.has_room() {
            return Poll::Pending;
        }
        self.body.poll_more(context).map(BulkEvent::Body)
    }

    /// Reads the lines that have arrived, at most a chunk, and asks the store about them.
    async fn next_chunk(&mut self) -> Option<PendingChunk> {
        let (context, key) = (&self.context, self.key.as_ref());
        let batch = self.body.next_batch(async |number, line: &[u8]| context.create_of(number, line, key).await).await;
        if batch.lines.is_empty() { None } else { Some(self.ask(batch).await) }
    }

    /// Asks the store for the links of a batch.
    async fn ask(&self, LineBatch { lines, bytes }: LineBatch<Create>) -> PendingChunk {
        let services = &self.context.services;
        let is_refused = services.context().node.writes_refused.load(Ordering::Acquire);
        let mut codes = Codes { services: Rc::clone(services), codes: Vec::new() };
        let mut lacking = None;
        if !is_refused {
            let needs_code = |create: &Create| create.slug.is_none() && !create.private;
            let needed = lines.iter().filter(|(_, create)| create.as_ref().is_ok_and(needs_code)).count();
            while codes.codes.len() < needed && lacking.is_none() {
                match self.context.fresh_code(false).await {
                    Ok(code) => codes.codes.push(code),
                    Err(problem) => lacking = Some(problem),
                }
            }
        }
        // No await follows, so every code is either used or returned.
        let mut link_of = |create: Create| -> Result<NewLink, Problem> {
            if is_refused {
                return Err(refused("the store accepts no writes right now"));
            }
            let pending = self.context.begin_keyed(&create)?;
            self.context.caller.take_create()?;
            let code = match (&create.slug, create.private) {
                (Some(slug), _) => self.context.code_of(slug)?,
                (None, true) => Context::private_code()?,
                (None, false) => codes.codes.pop().ok_or_else(|| lacking.clone().unwrap_or_else(Problem::no_code))?,
            };
            Ok(NewLink { pending, ..self.context.new_link(create, code) })
        };
        let lines: Vec<ReadLine<NewLink>> =
            lines.into_iter().map(|(number, create)| (number, create.and_then(&mut link_of))).collect();
        let asked: Vec<&NewLink> = lines.iter().filter_map(|(_, new)| new.as_ref().ok()).collect();
        let answers = services.store_all(asked.len(), |at, ticket| {
            let NewLink { link, reuse, .. } = asked[at];
            StoreRequest::Create { link: Arc::clone(link), reuse: *reuse, ticket }
        });
        answers.hold(asked.iter().filter_map(|new| new.pending.clone()).collect());
        PendingChunk { lines, bytes, answers }
    }

    /// Writes the results of a chunk.
    async fn write_results(&self, chunk: PendingChunk, answers: Vec<CreateAnswer>, outlet: &Outlet) {
        let PendingChunk { lines, answers: awaited, .. } = chunk;
        drop(awaited);
        let mut answers = answers.into_iter();
        let mut results = Vec::with_capacity(lines.len());
        for (line, new) in lines {
            let mut replayed = false;
            let link = match new {
                Ok(new) => {
                    let answer = answers.next().expect("the store was asked for each of these links");
                    replayed = matches!(answer, CreateAnswer::Repeated { .. });
                    self.context.finish(new, answer).await
                }
                Err(problem) => Err(problem),
            };
            results.push(LineResult { line, link, replayed });
        }
        self.count_visits(&mut results).await;
        for results in results.chunks(LINES_PER_TURN) {
            let mut out = Vec::with_capacity(LINES_PER_TURN * 512);
            results.iter().for_each(|result| self.write(result, &mut out));
            outlet.send(out).await;
        }
    }

    /// Reads the visits of the reused links among these results.
    async fn count_visits(&self, results: &mut [LineResult]) {
        let unknown = results.iter_mut().filter_map(|result| match &mut result.link {
            Ok((link, counts @ None)) => Some((link.code, counts)),
            _ => None,
        });
        let unknown: Vec<_> = unknown.collect();
        if unknown.is_empty() {
            return;
        }
        let answers = self.context.services.read_all(unknown.len(), |at| unknown[at].0).await;
        for ((_, counts), answer) in unknown.into_iter().zip(answers) {
            *counts = if let LinkAnswer::Found(_, known) = answer { Some(known) } else { None };
        }
    }

    fn write(&self, LineResult { line, link, replayed }: &LineResult, out: &mut Vec<u8>) {
        match link {
            Ok((link, counts)) => {
                let short_url = self.context.described(link, counts.unwrap_or_default());
                push_create(*line, Some(short_url), *replayed, out);
            }
            Err(problem) => push_problem(*line, problem.clone(), out),
        }
    }

    /// Writes the results that the store still owes, then reports that later lines are not processed.
    async fn break_off(mut self, outlet: &Outlet, problem: Problem) {
        while let Some(mut chunk) = self.waiting.pop_front() {
            let answers = (&mut chunk.answers).await;
            self.write_results(chunk, answers, outlet).await;
        }
        let mut out = Vec::new();
        push_early_end(self.body.next_number(), problem, &mut out);
        outlet.send(out).await;
    }
}
