//! Many links at once: one create a line, one result a line, in order, while the lines still come in.
//!
//! Lines are decided in chunks. A chunk goes to the store as single creates that one waiter collects; while it is on its way
//! to the disk the next ones are read, as many as [`BULK_LINES_WAITING`] and [`BULK_BYTES_WAITING`] allow. So the memory of
//! a request is bounded whatever its body, and whatever its client does: results that it does not read stop the reading.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};

use bytes::Bytes;
use carom_shards::Code;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Request, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use super::create::Create;
use super::describe::ShortUrl;
use super::lines::{Line, Lines};
use super::short_urls::{Shown, Wanted, refused};
use super::streaming::{Outlet, breathe, stream};
use crate::api::fields;
use crate::api::problem::{Invalid, Problem};
use crate::api::{Answer, Context, answer_with};
use crate::bridge::handle::{Desk, Gathered, LongKind, LongRequest};
use crate::bridge::{StoreAnswer, StoreRequest};
use carom_limits::{
    BULK_BYTES_WAITING, BULK_CHUNK_BYTES, BULK_CHUNK_LINES, BULK_LINES_WAITING, BULK_LINES_WAITING_MIN,
    BULK_QUEUE_SHARE, BULK_SLUGS_TRIED, IMPORT_LINE_MAX,
};
use carom_model::link::Reuse;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// One JSON object a line.
pub(in crate::api) const NDJSON: &str = "application/x-ndjson";

/// What such a body may be called.
const NDJSON_NAMES: &[&[u8]] = &[
    b"application/x-ndjson",
    b"application/ndjson",
    b"application/jsonl",
    b"application/x-jsonl",
    b"application/jsonlines",
];

/// Lines that are read or written before others of the core have their turn.
const LINES_PER_TURN: usize = 64;

/// What becomes of a line: a link, or nothing where none was to be made.
type Told = Result<Option<Shown>, Problem>;

/// What is said of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'t> {
    line: u64,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    short_url: Option<ShortUrl<'t>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Map<String, Value>>,
    /// Nothing was looked at from this line on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ended: bool,
}

/// What became of a line before the store was asked.
enum Read {
    /// It waits for the store, which was asked this.
    Asked(Asked),
    /// It is good, and that was all that was to be known.
    Good,
    /// It is not.
    Bad(Problem),
}

/// What the store was asked for a line.
enum Asked {
    Make(Wanted),
    /// Whether a slug is free; for a request that stores nothing.
    IsFree(Wanted),
}

/// Lines that are decided together.
struct Chunk {
    lines: Vec<(u64, Read)>,
    bytes: usize,
    answers: Gathered,
}

/// What a bulk request goes on with.
enum Event {
    /// More of the body.
    Bytes(Bytes),
    /// The body is over.
    BodyEnded,
    /// It broke off.
    BodyBroken,
    /// The oldest chunk is decided.
    Decided(Vec<StoreAnswer>),
    /// The node is on its way out.
    MustEnd,
}

/// Codes that were taken for a chunk and are not used yet. They go back when it is not sent.
struct Codes {
    desk: Rc<Desk>,
    codes: Vec<Code>,
}

impl Drop for Codes {
    fn drop(&mut self) {
        self.codes.drain(..).for_each(|code| self.desk.give_code_back(code));
    }
}

/// Counts as one of the node's bulk requests.
struct Share(Arc<NodeStats>);

impl Share {
    fn take(node: &Arc<NodeStats>) -> Share {
        node.bulks.fetch_add(1, Ordering::Relaxed);
        Share(Arc::clone(node))
    }

    /// Lines that may wait for the store now.
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

/// A request under way.
struct Bulk {
    context: Context,
    dry: bool,
    request: LongRequest,
    share: Share,
    body: Incoming,
    lines: Lines,
    /// Nothing more is read.
    is_over: bool,
    waiting: VecDeque<Chunk>,
    /// Hashes of slugs that lines before would have taken, where nothing is stored.
    tried: HashSet<u64>,
    hasher: RandomState,
}

impl Context {
    /// `POST /rest/v3/short-urls/bulk`
    pub(in crate::api) async fn create_bulk(&self, request: Request<Incoming>) -> Answer {
        match self.begin_bulk(request).await {
            Ok(answer) => answer,
            Err(problem) => problem.into_answer(),
        }
    }

    async fn begin_bulk(&self, request: Request<Incoming>) -> Result<Answer, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        if !is_ndjson(kind) {
            return Err(Problem::not_lines());
        }
        let dry = is_dry(request.uri().query().unwrap_or_default()).map_err(|invalid| Problem::invalid(&[invalid]))?;
        let long = self.desk.begin_long(LongKind::Bulk, self.caller.name());
        let long = long.map_err(|too_many| Problem::too_many_long("bulk requests", too_many))?;
        let waits = request.headers().contains_key(header::EXPECT);
        let mut bulk = Bulk {
            share: Share::take(&self.desk.counters().node),
            context: self.clone(),
            dry,
            request: long,
            body: request.into_body(),
            lines: Lines::default(),
            is_over: false,
            waiting: VecDeque::new(),
            tried: HashSet::new(),
            hasher: RandomState::new(),
        };
        if waits {
            // It is told to go on when somebody reads, which must be before the answer begins.
            match bulk.body.frame().await {
                Some(Ok(frame)) => bulk.lines.push(&frame.into_data().unwrap_or_default()),
                Some(Err(_)) => return Err(Problem::body_broken()),
                None => {}
            }
        }
        Ok(answer_with(StatusCode::OK, NDJSON, stream(|outlet| bulk.run(outlet))))
    }

    /// Whether a slug can be had: what a create would be told, as far as this node knows.
    fn judge_slug(&self, wanted: &Wanted, answer: &StoreAnswer) -> Option<Problem> {
        let slug = wanted.link.code.as_slug().to_string();
        match answer {
            StoreAnswer::NotFound => None,
            StoreAnswer::Found(link, _)
                if wanted.reuse == Reuse::Any && link.is_like(&wanted.link) && !link.is_over(unix_ms()) =>
            {
                None
            }
            StoreAnswer::Found(..) | StoreAnswer::Damaged => Some(Problem::slug_taken(&slug)),
            other => Some(super::short_urls::failed(other, &slug)),
        }
    }
}

impl Bulk {
    async fn run(mut self, outlet: Outlet) {
        loop {
            if !self.is_over && !self.context.still_holds() {
                return self.break_off(&outlet, Problem::wrong_key()).await;
            }
            while self.has_room()
                && let Some(chunk) = self.next_chunk().await
            {
                self.waiting.push_back(chunk);
            }
            if self.is_over && self.waiting.is_empty() {
                return;
            }
            match poll_fn(|context| self.poll_event(context)).await {
                Event::Bytes(bytes) => self.lines.push(&bytes),
                Event::BodyEnded => {
                    self.is_over = true;
                    self.lines.end();
                }
                // Nobody is left who could be told.
                Event::BodyBroken => return,
                Event::Decided(answers) => {
                    if let Some(chunk) = self.waiting.pop_front() {
                        self.tell(chunk, answers, &outlet).await;
                    }
                }
                Event::MustEnd => {
                    let why = refused("the node is shutting down; this line and the following ones were not processed");
                    return self.break_off(&outlet, why).await;
                }
            }
        }
    }

    /// Whether more lines may be on their way to the store.
    fn has_room(&self) -> bool {
        let lines: usize = self.waiting.iter().map(|chunk| chunk.lines.len()).sum();
        let bytes: usize = self.waiting.iter().map(|chunk| chunk.bytes).sum();
        lines < self.share.lines() && bytes < BULK_BYTES_WAITING
    }

    fn poll_event(&mut self, context: &mut TaskContext<'_>) -> Poll<Event> {
        // What has come whole is finished in any case.
        if !self.is_over && self.request.must_end(context) {
            return Poll::Ready(Event::MustEnd);
        }
        if let Some(chunk) = self.waiting.front_mut()
            && let Poll::Ready(answers) = chunk.answers.poll(context)
        {
            return Poll::Ready(Event::Decided(answers));
        }
        if self.is_over || !self.has_room() {
            return Poll::Pending;
        }
        Pin::new(&mut self.body).poll_frame(context).map(|frame| match frame {
            Some(Ok(frame)) => Event::Bytes(frame.into_data().unwrap_or_default()),
            Some(Err(_)) => Event::BodyBroken,
            None => Event::BodyEnded,
        })
    }

    /// Reads the lines that are there, as many as make a chunk, and asks the store about them.
    async fn next_chunk(&mut self) -> Option<Chunk> {
        let mut read = Vec::new();
        let mut bytes = 0;
        while read.len() < BULK_CHUNK_LINES && bytes < BULK_CHUNK_BYTES {
            let Some(line) = self.lines.next() else { break };
            read.push(match line {
                Line::Whole(number, line) => {
                    bytes += line.len();
                    let fields = fields::parse(line);
                    let create = fields.and_then(|fields| {
                        let create = self.context.bounded(|bounds| Create::read(&fields, bounds));
                        create.map_err(|invalid| Problem::invalid(&invalid))
                    });
                    (number, create)
                }
                Line::TooLong(number) => (number, Err(Problem::line_too_long(IMPORT_LINE_MAX))),
            });
            if read.len().is_multiple_of(LINES_PER_TURN) {
                breathe().await;
            }
        }
        if read.is_empty() { None } else { Some(self.ask(read, bytes).await) }
    }

    /// Asks the store about the lines of a chunk that are good.
    async fn ask(&self, read: Vec<(u64, Result<Create, Problem>)>, bytes: usize) -> Chunk {
        let desk = &self.context.desk;
        let is_refused = !self.dry && desk.counters().node.writes_refused.load(Ordering::Acquire);
        let mut codes = Codes { desk: Rc::clone(desk), codes: Vec::new() };
        let mut lacking = None;
        if !self.dry && !is_refused {
            let needs_code = |create: &Create| create.slug.is_none() && !create.private;
            let needed = read.iter().filter(|(_, create)| create.as_ref().is_ok_and(needs_code)).count();
            while codes.codes.len() < needed && lacking.is_none() {
                match self.context.fresh_code(false).await {
                    Ok(code) => codes.codes.push(code),
                    Err(problem) => lacking = Some(problem),
                }
            }
        }
        // From here on nothing waits, so every code is used or goes back.
        let mut decide = |create: Result<Create, Problem>| -> Result<Read, Problem> {
            let create = create?;
            if self.dry {
                return Ok(match create.slug {
                    Some(slug) => Read::Asked(Asked::IsFree(self.context.wanted(create, slug))),
                    None => Read::Good,
                });
            }
            if is_refused {
                return Err(refused("the store accepts no writes right now"));
            }
            self.context.caller.take_create()?;
            let code = match (create.slug, create.private) {
                (Some(slug), _) => slug,
                (None, true) => Context::private_code()?,
                (None, false) => codes.codes.pop().ok_or_else(|| lacking.clone().unwrap_or_else(Problem::no_code))?,
            };
            Ok(Read::Asked(Asked::Make(self.context.wanted(create, code))))
        };
        let lines: Vec<(u64, Read)> =
            read.into_iter().map(|(number, create)| (number, decide(create).unwrap_or_else(Read::Bad))).collect();
        let asked: Vec<&Asked> = lines
            .iter()
            .filter_map(|(_, read)| if let Read::Asked(asked) = read { Some(asked) } else { None })
            .collect();
        let answers = desk.store_all(asked.len(), |at, ticket| match asked[at] {
            Asked::Make(Wanted { link, reuse, .. }) => {
                StoreRequest::Create { link: Arc::clone(link), reuse: *reuse, ticket }
            }
            Asked::IsFree(wanted) => StoreRequest::Read { code: wanted.link.code, ticket },
        });
        Chunk { lines, bytes, answers }
    }

    /// Writes the results of a chunk.
    async fn tell(&mut self, chunk: Chunk, answers: Vec<StoreAnswer>, outlet: &Outlet) {
        let Chunk { lines, answers: gathered, .. } = chunk;
        drop(gathered);
        let mut answers = answers.into_iter();
        let mut results = Vec::with_capacity(lines.len());
        for (line, read) in lines {
            let result = match read {
                Read::Good => Ok(None),
                Read::Bad(problem) => Err(problem),
                Read::Asked(asked) => {
                    let answer = answers.next().unwrap_or(StoreAnswer::Refused("the store did not answer"));
                    match asked {
                        Asked::Make(wanted) => self.context.finish(wanted, answer).await.map(Some),
                        Asked::IsFree(wanted) => {
                            let problem =
                                self.context.judge_slug(&wanted, &answer).or_else(|| self.judge_again(&wanted));
                            problem.map_or(Ok(None), Err)
                        }
                    }
                }
            };
            results.push((line, result));
        }
        self.count_visits(&mut results).await;
        for results in results.chunks(LINES_PER_TURN) {
            let mut out = Vec::with_capacity(LINES_PER_TURN * 512);
            results.iter().for_each(|(line, result)| self.write(*line, result, &mut out));
            outlet.send(out).await;
        }
    }

    /// Whether a line before would have taken a slug that is free. Of a great many lines the first are remembered.
    fn judge_again(&mut self, wanted: &Wanted) -> Option<Problem> {
        let hash = self.hasher.hash_one(wanted.link.code);
        let is_taken = self.tried.contains(&hash);
        if !is_taken && self.tried.len() < BULK_SLUGS_TRIED {
            self.tried.insert(hash);
        }
        // What is like the link before may be that.
        (is_taken && wanted.reuse != Reuse::Any).then(|| Problem::slug_taken(&wanted.link.code.as_slug().to_string()))
    }

    /// Asks how often the links were followed that were there before.
    async fn count_visits(&self, results: &mut [(u64, Told)]) {
        let unknown = results.iter_mut().filter_map(|(_, told)| match told {
            Ok(Some((link, counts @ None))) => Some((link.code, counts)),
            _ => None,
        });
        let unknown: Vec<_> = unknown.collect();
        if unknown.is_empty() {
            return;
        }
        let read = |at: usize, ticket| StoreRequest::Read { code: unknown[at].0, ticket };
        let mut answers = self.context.desk.store_all(unknown.len(), read);
        let answers = poll_fn(|context| answers.poll(context)).await;
        for ((_, counts), answer) in unknown.into_iter().zip(answers) {
            *counts = if let StoreAnswer::Found(_, known) = answer { Some(known) } else { None };
        }
    }

    fn write(&self, line: u64, told: &Told, out: &mut Vec<u8>) {
        match told {
            Ok(shown) => {
                let short_url =
                    shown.as_ref().map(|(link, counts)| self.context.described(link, counts.unwrap_or_default()));
                push_line(&Entry { line, status: 200, short_url, error: None, ended: false }, out);
            }
            Err(problem) => push_problem(line, problem.clone(), false, out),
        }
    }

    /// Tells what the store still says of lines that it was asked about, and that no more are looked at.
    async fn break_off(mut self, outlet: &Outlet, problem: Problem) {
        while let Some(mut chunk) = self.waiting.pop_front() {
            let answers = poll_fn(|context| chunk.answers.poll(context)).await;
            self.tell(chunk, answers, outlet).await;
        }
        let mut out = Vec::new();
        push_problem(self.lines.number() + 1, problem, true, &mut out);
        outlet.send(out).await;
    }
}

/// Writes a problem as the result of a line.
fn push_problem(line: u64, problem: Problem, ended: bool, out: &mut Vec<u8>) {
    let (status, members) = problem.into_parts();
    push_line(&Entry { line, status: status.as_u16(), short_url: None, error: Some(members), ended }, out);
}

fn push_line(entry: &Entry<'_>, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, entry).expect("keys are strings, and nothing else can fail");
    out.push(b'\n');
}

fn is_ndjson(kind: &[u8]) -> bool {
    let media = kind.split(|&b| b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    NDJSON_NAMES.contains(&&media[..])
}

/// Whether a query asks to store nothing.
fn is_dry(query: &str) -> Result<bool, Invalid> {
    let mut dry = false;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        if name == "dryRun" {
            dry = match value {
                "true" | "1" => true,
                "false" | "0" => false,
                _ => return Err(Invalid::new("dryRun", "must be true or false")),
            };
        }
    }
    Ok(dry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_bodies_and_dry_runs() {
        for kind in ["application/x-ndjson", "Application/NDJSON ; charset=utf-8", "application/jsonl"] {
            assert!(is_ndjson(kind.as_bytes()), "{kind}");
        }
        for kind in ["", "application/json", "text/plain", "application/x-ndjsonx"] {
            assert!(!is_ndjson(kind.as_bytes()), "{kind}");
        }
        for (query, dry) in [("", false), ("dryRun=true", true), ("a=b&dryRun", true), ("dryRun=1&dryRun=false", false)]
        {
            assert_eq!(is_dry(query), Ok(dry), "{query}");
        }
        assert_eq!(is_dry("dryRun=yes").unwrap_err().field, "dryRun");
    }
}
