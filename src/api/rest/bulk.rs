//! Bulk creation of links: one create a line, one result a line, in order, while lines still arrive.
//!
//! Lines are decided in chunks. A chunk goes to the store as single creates whose replies one waiter collects.
//! While the store syncs it, the next chunks are read, as many as [`BULK_LINES_WAITING`] and [`BULK_BYTES_WAITING`]
//! allow. A client that stops reading its results stops the reading of its body. So the memory of a request is
//! bounded.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};

use carom_shards::Code;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use super::bulk_body::{BodyEvent, BulkBody, NDJSON, shutting_down};
use super::create::{Create, Slug};
use super::describe::ShortUrl;
use super::lines::Line;
use super::short_urls::{NewLink, Shown, idempotency_key, parse_line, refused, taken};
use super::streaming::{LINES_PER_TURN, Outlet, TurnShare, stream};
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::response::{ApiResponse, answer_with};
use crate::bridge::handle::ServiceHandle;
use crate::bridge::handle::batches::AwaitedBatch;
use crate::bridge::{CreateAnswer, LinkAnswer, StoreRequest, WriteFailure};
use carom_limits::{
    BULK_BYTES_WAITING, BULK_CHUNK_BYTES, BULK_CHUNK_LINES, BULK_LINES_WAITING, BULK_LINES_WAITING_MIN,
    BULK_QUEUE_SHARE, BULK_SLUGS_TRIED, IMPORT_LINE_MAX,
};
use carom_model::access::idempotency::IdempotencyKey;
use carom_model::link::Reuse;
use carom_telemetry::stats::NodeStats;

/// The reason for a line without an answer.
const NO_ANSWER: &str = "the store did not answer";

/// Outcome of a line: a link, or `None` in a dry run.
type LineResult = Result<Option<Shown>, Problem>;

/// The result of a line: its number, its outcome, and true if the link was created by an earlier request.
type Told = (u64, LineResult, bool);

/// Result of a line, in the form of its JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LineReport<'t> {
    line: u64,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    short_url: Option<ShortUrl<'t>>,
    /// True if an earlier request with the same idempotency key has created the link.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Map<String, Value>>,
    /// True on the last result of a request that stopped early: this line and all later ones were not processed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ended: bool,
}

/// State of a line before the store has replied.
enum Read {
    /// The store was asked for this link, and its reply is due.
    Asked(NewLink),
    /// The line is valid, and needs no reply of the store.
    Good,
    /// The line is invalid.
    Bad(Problem),
}

/// The answers that a chunk waits for: of creates, or in a dry run, whether slugs are free.
enum Answers {
    Created(AwaitedBatch<CreateAnswer>),
    Found(AwaitedBatch<LinkAnswer>),
}

impl Answers {
    fn poll(&mut self, context: &mut TaskContext<'_>) -> Poll<Decided> {
        match self {
            Answers::Created(answers) => answers.poll(context).map(Decided::Created),
            Answers::Found(answers) => answers.poll(context).map(Decided::Found),
        }
    }
}

/// The answers to a chunk, of either kind.
enum Decided {
    Created(Vec<CreateAnswer>),
    Found(Vec<LinkAnswer>),
}

/// Lines that are decided together.
struct Chunk {
    lines: Vec<(u64, Read)>,
    bytes: usize,
    answers: Answers,
}

/// An event that continues a bulk request.
enum Event {
    /// The body goes on, or ends.
    Body(BodyEvent),
    /// The store has replied to the oldest chunk.
    Decided(Decided),
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
struct Share(Arc<NodeStats>);

impl Share {
    fn take(node: &Arc<NodeStats>) -> Share {
        node.bulks.fetch_add(1, Ordering::Relaxed);
        Share(Arc::clone(node))
    }

    /// Returns how many lines may wait for the store now.
    fn lines(&self) -> usize {
        let bulks = self.0.bulks.load(Ordering::Relaxed).max(1);
        (BULK_QUEUE_SHARE / bulks).clamp(BULK_LINES_WAITING_MIN, BULK_LINES_WAITING)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.bulks.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State of a running bulk request.
struct Bulk {
    context: Context,
    body: BulkBody,
    /// Key of the whole request, from which each line without a key of its own gets one.
    key: Option<IdempotencyKey>,
    share: Share,
    waiting: VecDeque<Chunk>,
    /// Hashes of slugs that earlier lines of a dry run would have taken.
    tried: HashSet<u64>,
    hasher: RandomState,
}

impl Context {
    /// Handles `POST /rest/v3/short-urls/bulk`: creates a link for each line of the body.
    pub(in crate::api) async fn create_bulk(&self, request: Request<Incoming>) -> ApiResponse {
        match self.begin_bulk(request).await {
            Ok(answer) => answer,
            Err(problem) => problem.into_answer(),
        }
    }

    async fn begin_bulk(&self, request: Request<Incoming>) -> Result<ApiResponse, Problem> {
        let key = idempotency_key(request.headers())?;
        let bulk = Bulk {
            body: BulkBody::begin(self, request).await?,
            share: Share::take(&self.services.context().node),
            context: self.clone(),
            key,
            waiting: VecDeque::new(),
            tried: HashSet::new(),
            hasher: RandomState::new(),
        };
        Ok(answer_with(StatusCode::OK, NDJSON, stream(|outlet| bulk.run(outlet))))
    }

    /// Returns the error that a create with this slug would get, as far as this node knows; `None` if the slug is
    /// available.
    fn judge_slug(&self, new: &NewLink, answer: &LinkAnswer) -> Option<Problem> {
        match answer {
            LinkAnswer::NotFound => None,
            LinkAnswer::Found(link, _)
                if new.reuse == Reuse::OfSlug
                    && link.is_like(&new.link)
                    && !link.is_expired(self.services.unix_ms()) =>
            {
                None
            }
            LinkAnswer::Found(..) | LinkAnswer::Damaged => Some(taken(&new.link)),
            LinkAnswer::Refused(reason) => Some(refused(reason)),
        }
    }
}

impl Context {
    /// Reads a line. `key` is the idempotency key of the whole request.
    async fn create_of(&self, number: u64, line: &[u8], key: Option<&IdempotencyKey>) -> Result<Create, Problem> {
        let mut fields = parse_line(&self.services, line).await?;
        self.keyed_create(&mut fields, || key.map(|key| key.of_line(number)))
    }
}

impl Bulk {
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
                Event::Body(BodyEvent::Arrived) => {}
                Event::Body(BodyEvent::BrokenOff) => return,
                Event::Body(BodyEvent::MustEnd) => return self.break_off(&outlet, shutting_down()).await,
                Event::Decided(answers) => {
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

    fn poll_event(&mut self, context: &mut TaskContext<'_>) -> Poll<Event> {
        if self.body.must_end(context) {
            return Poll::Ready(Event::Body(BodyEvent::MustEnd));
        }
        if let Some(chunk) = self.waiting.front_mut()
            && let Poll::Ready(answers) = chunk.answers.poll(context)
        {
            return Poll::Ready(Event::Decided(answers));
        }
        if self.body.is_over() || !self.has_room() {
            return Poll::Pending;
        }
        self.body.poll_more(context).map(Event::Body)
    }

    /// Reads the lines that have arrived, at most a chunk, and asks the store about them.
    async fn next_chunk(&mut self) -> Option<Chunk> {
        let mut read = Vec::new();
        let (mut bytes, mut share) = (0, TurnShare::default());
        while read.len() < BULK_CHUNK_LINES && bytes < BULK_CHUNK_BYTES {
            let Some(line) = self.body.next() else { break };
            let before = bytes;
            read.push(match line {
                Line::Whole(number, line) => {
                    bytes += line.len();
                    (number, self.context.create_of(number, line, self.key.as_ref()).await)
                }
                Line::TooLong(number) => (number, Err(Problem::line_too_long(IMPORT_LINE_MAX))),
            });
            share.take(bytes - before).await;
        }
        if read.is_empty() { None } else { Some(self.ask(read, bytes).await) }
    }

    /// Asks the store about the valid lines of a chunk.
    async fn ask(&self, read: Vec<(u64, Result<Create, Problem>)>, bytes: usize) -> Chunk {
        let services = &self.context.services;
        let is_refused = !self.body.dry && services.context().node.writes_refused.load(Ordering::Acquire);
        let mut codes = Codes { services: Rc::clone(services), codes: Vec::new() };
        let mut lacking = None;
        if !self.body.dry && !is_refused {
            let needs_code = |create: &Create| create.slug.is_none() && !create.private;
            let needed = read.iter().filter(|(_, create)| create.as_ref().is_ok_and(needs_code)).count();
            while codes.codes.len() < needed && lacking.is_none() {
                match self.context.fresh_code(false).await {
                    Ok(code) => codes.codes.push(code),
                    Err(problem) => lacking = Some(problem),
                }
            }
        }
        // No await follows, so every code is either used or returned.
        let mut decide = |create: Result<Create, Problem>| -> Result<Read, Problem> {
            let create = create?;
            if self.body.dry {
                return Ok(match create.slug {
                    Some(Slug::Chosen(code)) => Read::Asked(self.context.new_link(create, code)),
                    Some(Slug::Random(_)) | None => Read::Good,
                });
            }
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
            Ok(Read::Asked(NewLink { pending, ..self.context.new_link(create, code) }))
        };
        let lines: Vec<(u64, Read)> =
            read.into_iter().map(|(number, create)| (number, decide(create).unwrap_or_else(Read::Bad))).collect();
        let asked: Vec<&NewLink> =
            lines.iter().filter_map(|(_, read)| if let Read::Asked(new) = read { Some(new) } else { None }).collect();
        let answers = if self.body.dry {
            Answers::Found(services.read_all(asked.len(), |at| asked[at].link.code))
        } else {
            let answers = services.store_all(asked.len(), |at, ticket| {
                let NewLink { link, reuse, .. } = asked[at];
                StoreRequest::Create { link: Arc::clone(link), reuse: *reuse, ticket }
            });
            answers.hold(asked.iter().filter_map(|new| new.pending.clone()).collect());
            Answers::Created(answers)
        };
        Chunk { lines, bytes, answers }
    }

    /// Writes the results of a chunk.
    async fn write_results(&mut self, chunk: Chunk, answers: Decided, outlet: &Outlet) {
        match answers {
            Decided::Created(answers) => self.tell_created(chunk, answers, outlet).await,
            Decided::Found(answers) => self.tell_found(chunk, answers, outlet).await,
        }
    }

    /// Writes the results of a chunk of creates.
    async fn tell_created(&mut self, chunk: Chunk, answers: Vec<CreateAnswer>, outlet: &Outlet) {
        let Chunk { lines, answers: awaited, .. } = chunk;
        drop(awaited);
        let mut answers = answers.into_iter();
        let mut results = Vec::with_capacity(lines.len());
        for (line, read) in lines {
            let mut replayed = false;
            let result = match read {
                Read::Good => Ok(None),
                Read::Bad(problem) => Err(problem),
                Read::Asked(new) => {
                    let answer = answers.next().unwrap_or_else(|| WriteFailure::Refused(NO_ANSWER).into());
                    replayed = matches!(answer, CreateAnswer::Repeated { .. });
                    self.context.finish(new, answer).await.map(Some)
                }
            };
            results.push((line, result, replayed));
        }
        self.count_visits(&mut results).await;
        self.send(&results, outlet).await;
    }

    /// Writes the results of a chunk of a dry run.
    async fn tell_found(&mut self, chunk: Chunk, answers: Vec<LinkAnswer>, outlet: &Outlet) {
        let mut answers = answers.into_iter();
        let mut results = Vec::with_capacity(chunk.lines.len());
        for (line, read) in chunk.lines {
            let result = match read {
                Read::Good => Ok(None),
                Read::Bad(problem) => Err(problem),
                Read::Asked(new) => {
                    let answer = answers.next().unwrap_or(LinkAnswer::Refused(NO_ANSWER));
                    let problem = self.context.judge_slug(&new, &answer).or_else(|| self.judge_again(&new));
                    problem.map_or(Ok(None), Err)
                }
            };
            results.push((line, result, false));
        }
        self.send(&results, outlet).await;
    }

    async fn send(&self, results: &[Told], outlet: &Outlet) {
        for results in results.chunks(LINES_PER_TURN) {
            let mut out = Vec::with_capacity(LINES_PER_TURN * 512);
            results.iter().for_each(|told| self.write(told, &mut out));
            outlet.send(out).await;
        }
    }

    /// Returns the error for a slug that an earlier line of a dry run would have taken. Remembers at most
    /// [`BULK_SLUGS_TRIED`] slugs.
    fn judge_again(&mut self, new: &NewLink) -> Option<Problem> {
        let hash = self.hasher.hash_one(new.link.code);
        let is_taken = self.tried.contains(&hash);
        if !is_taken && self.tried.len() < BULK_SLUGS_TRIED {
            self.tried.insert(hash);
        }
        // A request for a similar link may get the link of the earlier line.
        (is_taken && new.reuse != Reuse::OfSlug).then(|| taken(&new.link))
    }

    /// Reads the visits of the reused links among these results.
    async fn count_visits(&self, results: &mut [Told]) {
        let unknown = results.iter_mut().filter_map(|(_, told, _)| match told {
            Ok(Some((link, counts @ None))) => Some((link.code, counts)),
            _ => None,
        });
        let unknown: Vec<_> = unknown.collect();
        if unknown.is_empty() {
            return;
        }
        let mut answers = self.context.services.read_all(unknown.len(), |at| unknown[at].0);
        let answers = poll_fn(|context| answers.poll(context)).await;
        for ((_, counts), answer) in unknown.into_iter().zip(answers) {
            *counts = if let LinkAnswer::Found(_, known) = answer { Some(known) } else { None };
        }
    }

    fn write(&self, (line, result, replayed): &Told, out: &mut Vec<u8>) {
        let (line, replayed) = (*line, *replayed);
        match result {
            Ok(shown) => {
                let short_url =
                    shown.as_ref().map(|(link, counts)| self.context.described(link, counts.unwrap_or_default()));
                push_line(&LineReport { line, status: 200, short_url, replayed, error: None, ended: false }, out);
            }
            Err(problem) => push_problem(line, problem.clone(), false, out),
        }
    }

    /// Writes the results that the store still owes, then reports that later lines are not processed.
    async fn break_off(mut self, outlet: &Outlet, problem: Problem) {
        while let Some(mut chunk) = self.waiting.pop_front() {
            let answers = poll_fn(|context| chunk.answers.poll(context)).await;
            self.write_results(chunk, answers, outlet).await;
        }
        let mut out = Vec::new();
        push_problem(self.body.next_number(), problem, true, &mut out);
        outlet.send(out).await;
    }
}

/// Writes a problem as the result of a line.
fn push_problem(line: u64, problem: Problem, ended: bool, out: &mut Vec<u8>) {
    let (status, members) = problem.into_parts();
    let (status, error) = (status.as_u16(), Some(members));
    push_line(&LineReport { line, status, short_url: None, replayed: false, error, ended }, out);
}

fn push_line(entry: &LineReport<'_>, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, entry).expect("keys are strings, and nothing else can fail");
    out.push(b'\n');
}
