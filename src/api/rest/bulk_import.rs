//! Imports of links into a running service, one per line: `POST /rest/v3/short-urls/bulk/import`.
//!
//! An import sets what no other request can: when a link was created, by which app, and how many visits it had. So it
//! needs a key with the role `admin`, for all domains. The link and its visits are one record, and a line whose slug
//! leads to its destination already changes nothing. So a repeated line creates no link and counts no visit twice.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use super::bulk_body::{BulkBody, LineBatches, NDJSON, run};
use super::bulk_edit::{no_answer, push_import, push_refusal};
use super::import_line;
use super::lines::Line;
use super::short_urls::{parse_line, refused, unserved, write_failed};
use super::streaming::{Outlet, TurnShare, stream};
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::response::{ApiResponse, answer_with};
use crate::bridge::{CreateAnswer, LinkAnswer, StoreRequest};
use carom_limits::{BULK_CHUNK_BYTES, BULK_CHUNK_LINES, BULK_SLUGS_TRIED, IMPORT_LINE_MAX};
use carom_model::access::Role;
use carom_model::link::{Link, Reuse};
use carom_model::replication::formats;

/// A line that was read.
type ReadLine = (u64, Result<Arc<Link>, Problem>);

/// The result of a link: true if it was there already.
type ImportOutcome = Result<bool, Problem>;

/// State of a running import.
struct BulkImport {
    context: Context,
    body: BulkBody,
    /// Hashes of the slugs that earlier lines of a dry run would have taken, and of their destinations.
    tried: HashMap<u64, u64>,
    hasher: RandomState,
}

impl Context {
    /// Handles `POST /rest/v3/short-urls/bulk/import`: stores the link of each line, with its creation date and visits.
    pub(in crate::api) async fn import_bulk(&self, request: Request<Incoming>) -> ApiResponse {
        match self.begin_import(request).await {
            Ok(answer) => answer,
            Err(problem) => problem.into_answer(),
        }
    }

    async fn begin_import(&self, request: Request<Incoming>) -> Result<ApiResponse, Problem> {
        self.caller.needs_all(Role::Admin)?;
        let import = BulkImport {
            context: self.clone(),
            body: BulkBody::begin(self, request).await?,
            tried: HashMap::new(),
            hasher: RandomState::new(),
        };
        Ok(answer_with(StatusCode::OK, NDJSON, stream(|outlet| run(import, outlet))))
    }

    /// Reads the link of a line.
    async fn import_of(&self, line: &[u8]) -> Result<Arc<Link>, Problem> {
        let fields = parse_line(&self.services, line).await?;
        let now_ms = self.services.unix_ms();
        let link = self.bounded(|bounds| import_line::read(fields, bounds, now_ms));
        let link = link.map_err(|invalid| Problem::invalid(&invalid))?;
        self.needs_readers_of(&link.labels.rules)?;
        if link.labels.earlier_visits.is_some() && !self.fleet_reads(formats::EARLIER_VISITS) {
            let detail = "A node of the fleet runs a version that cannot read the visits of imported links. Upgrade all nodes first.";
            return Err(Problem::unavailable(detail));
        }
        Ok(Arc::new(link))
    }

    /// Stores links in one batch. Returns the result of each.
    async fn import_all(&self, links: &[Arc<Link>]) -> Vec<ImportOutcome> {
        let limited = |_: &Arc<Link>| self.caller.take_create().err().map(Err);
        let mut outcomes: Vec<Option<ImportOutcome>> = links.iter().map(limited).collect();
        let asked: Vec<usize> = (0..links.len()).filter(|&at| outcomes[at].is_none()).collect();
        let mut answers = self.services.store_all(asked.len(), |at, ticket| StoreRequest::Create {
            link: Arc::clone(&links[asked[at]]),
            reuse: Reuse::Never,
            ticket,
        });
        let answers: Vec<CreateAnswer> = poll_fn(|context| answers.poll(context)).await;
        let mut taken = Vec::new();
        for (&at, answer) in asked.iter().zip(answers) {
            outcomes[at] = match answer {
                CreateAnswer::Created => {
                    self.caller.count_created();
                    Some(Ok(false))
                }
                CreateAnswer::Taken => {
                    taken.push(at);
                    None
                }
                CreateAnswer::Existing { link: existing, .. } | CreateAnswer::Repeated { link: existing } => {
                    Some(compared(&links[at], &existing))
                }
                CreateAnswer::Unserved => Some(Err(unserved())),
                CreateAnswer::Failed(failure) => Some(Err(write_failed(&failure))),
                // An import has no idempotency keys.
                CreateAnswer::OtherRequest | CreateAnswer::RepeatedGone | CreateAnswer::RepeatedDamaged => None,
            };
        }
        let mut answers = self.services.read_all(taken.len(), |at| links[taken[at]].code);
        let answers: Vec<LinkAnswer> = poll_fn(|context| answers.poll(context)).await;
        for (&at, answer) in taken.iter().zip(answers) {
            let gone = || Err(taken_by(&links[at], "belonged to a deleted link and cannot be used again"));
            outcomes[at] = Some(found(&links[at], answer).unwrap_or_else(gone));
        }
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(no_answer()))).collect()
    }
}

/// Returns the result of a line, given the stored state of its slug; `None` if there is no such link.
fn found(link: &Link, answer: LinkAnswer) -> Option<ImportOutcome> {
    match answer {
        LinkAnswer::Found(existing, _) => Some(compared(link, &existing)),
        LinkAnswer::NotFound => None,
        LinkAnswer::Damaged => Some(Err(Problem::damaged(&link.code.as_slug().to_string()))),
        LinkAnswer::Refused(reason) => Some(Err(refused(reason))),
    }
}

/// Compares the link of a line with the one that has its slug.
fn compared(link: &Link, existing: &Link) -> ImportOutcome {
    if existing.target == link.target {
        return Ok(true);
    }
    Err(taken_by(link, "already leads to another destination"))
}

/// Returns the problem of a slug that another link has or had.
fn taken_by(link: &Link, why: &str) -> Problem {
    let slug = link.code.as_slug().to_string();
    Problem::slug_taken(&slug, link.labels.domain.as_ref()).because(format!("shortCode {why} (got \"{slug}\")"))
}

impl LineBatches for BulkImport {
    type Line = ReadLine;

    fn context(&self) -> &Context {
        &self.context
    }

    fn body(&mut self) -> &mut BulkBody {
        &mut self.body
    }

    async fn next_batch(&mut self) -> Vec<ReadLine> {
        let mut batch: Vec<ReadLine> = Vec::new();
        let (mut bytes, mut share) = (0, TurnShare::default());
        while batch.len() < BULK_CHUNK_LINES && bytes < BULK_CHUNK_BYTES {
            let before = bytes;
            batch.push(match self.body.next() {
                Some(Line::Whole(number, line)) => {
                    bytes += line.len();
                    (number, self.context.import_of(line).await)
                }
                Some(Line::TooLong(number)) => (number, Err(Problem::line_too_long(IMPORT_LINE_MAX))),
                None => break,
            });
            share.take(bytes - before).await;
        }
        batch
    }

    async fn carry_out(&mut self, batch: Vec<ReadLine>, outlet: &Outlet) {
        let links: Vec<Arc<Link>> = batch.iter().filter_map(|(_, read)| read.as_ref().ok().cloned()).collect();
        let outcomes = if self.body.dry { self.judge_all(&links).await } else { self.context.import_all(&links).await };
        let mut outcomes = outcomes.into_iter();
        let mut out = Vec::with_capacity(batch.len() * 64);
        for (line, read) in batch {
            match read {
                Ok(link) => {
                    let outcome = outcomes.next().unwrap_or_else(|| Err(no_answer()));
                    push_import(line, &link, outcome, &mut out);
                }
                Err(problem) => push_refusal(line, problem, false, &mut out),
            }
        }
        outlet.send(out).await;
    }
}

impl BulkImport {
    /// Returns the results that these links would have.
    async fn judge_all(&mut self, links: &[Arc<Link>]) -> Vec<ImportOutcome> {
        let mut answers = self.context.services.read_all(links.len(), |at| links[at].code);
        let answers: Vec<LinkAnswer> = poll_fn(|context| answers.poll(context)).await;
        let judge =
            |(link, answer): (&Arc<Link>, LinkAnswer)| found(link, answer).unwrap_or_else(|| self.judge_again(link));
        links.iter().zip(answers).map(judge).collect()
    }

    /// Returns the result of a link whose slug is free, unless an earlier line of the dry run would have taken it.
    /// Remembers at most [`BULK_SLUGS_TRIED`] slugs.
    fn judge_again(&mut self, link: &Link) -> ImportOutcome {
        let (slug, target) = (self.hasher.hash_one(link.code), self.hasher.hash_one(&link.target));
        match self.tried.get(&slug) {
            Some(earlier) if *earlier == target => Ok(true),
            Some(_) => Err(taken_by(link, "already leads to another destination")),
            None => {
                if self.tried.len() < BULK_SLUGS_TRIED {
                    self.tried.insert(slug, target);
                }
                Ok(false)
            }
        }
    }
}
