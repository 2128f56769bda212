//! Imports of links into a running service, one per line: `POST /rest/v3/short-urls/bulk/import`.
//!
//! An import sets what no other request can: when a link was created, by which app, and how many visits it had. So it
//! needs a key with the role `admin`, for all domains. The link and its visits are one record, and a line whose slug
//! leads to its destination already changes nothing. So a repeated line creates no link and counts no visit twice.

use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;

use super::body::BulkBody;
use super::import_line;
use super::report::push_link;
use super::tried_slugs::TriedSlugs;
use super::work::LineWork;
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::response::ApiResponse;
use crate::api::rest::short_urls::{parse_line, refused, unserved, write_failed};
use crate::bridge::{CreateAnswer, LinkAnswer, StoreRequest};
use carom_model::access::Role;
use carom_model::link::{Link, Reuse};
use carom_model::replication::formats;

/// The result of a link: true if it was there already.
type ImportOutcome = Result<bool, Problem>;

/// The work on imports.
struct BulkImport {
    dry: bool,
    tried: TriedSlugs,
}

impl Context {
    /// Handles `POST /rest/v3/short-urls/bulk/import`: stores the link of each line, with its creation date and visits.
    pub(in crate::api) async fn import_bulk(&self, request: Request<Incoming>) -> ApiResponse {
        self.begin_import(request).await.unwrap_or_else(Problem::into_answer)
    }

    async fn begin_import(&self, request: Request<Incoming>) -> Result<ApiResponse, Problem> {
        self.caller.require_on_all_domains(Role::Admin)?;
        let body = BulkBody::begin(self, request).await?;
        let work = BulkImport { dry: body.dry, tried: TriedSlugs::default() };
        Ok(self.answer_lines(body, work))
    }

    /// Reads the link of a line.
    async fn import_of(&self, line: &[u8]) -> Result<Arc<Link>, Problem> {
        let fields = parse_line(&self.services, line).await?;
        let now_ms = self.services.unix_ms();
        let link = self.bounded(|bounds| import_line::read(fields, bounds, now_ms));
        let link = link.map_err(|invalid| Problem::invalid(&invalid))?;
        self.require_readers_of(&link.labels.rules)?;
        if link.labels.earlier_visits.is_some() && !self.fleet_reads(formats::EARLIER_VISITS) {
            let detail = "A node of the fleet runs a version that cannot read the visits of imported links. Upgrade all nodes first.";
            return Err(Problem::unavailable(detail));
        }
        Ok(Arc::new(link))
    }

    /// Stores links in one batch. Returns the result of each.
    async fn import_all(&self, links: &[&Arc<Link>]) -> Vec<ImportOutcome> {
        let mut outcomes: Vec<ImportOutcome> = links.iter().map(|_| self.caller.take_create().map(|_| false)).collect();
        let asked: Vec<usize> = (0..links.len()).filter(|&at| outcomes[at].is_ok()).collect();
        let answers = self.services.store_all(asked.len(), |at, ticket| StoreRequest::Create {
            link: Arc::clone(links[asked[at]]),
            reuse: Reuse::Never,
            ticket,
        });
        let mut taken = Vec::new();
        for (&at, answer) in asked.iter().zip(answers.await) {
            outcomes[at] = match answer {
                CreateAnswer::Created => {
                    self.caller.count_created();
                    Ok(false)
                }
                CreateAnswer::Taken => {
                    taken.push(at);
                    continue;
                }
                CreateAnswer::Existing { link: existing, .. } | CreateAnswer::Repeated { link: existing } => {
                    compared(links[at], &existing)
                }
                CreateAnswer::Unserved => Err(unserved()),
                CreateAnswer::Failed(failure) => Err(write_failed(&failure)),
                CreateAnswer::OtherRequest | CreateAnswer::RepeatedGone | CreateAnswer::RepeatedDamaged => {
                    unreachable!("an import has no idempotency keys")
                }
            };
        }
        let answers = self.services.read_all(taken.len(), |at| links[taken[at]].code).await;
        for (at, answer) in taken.into_iter().zip(answers) {
            let gone = || Err(taken_by(links[at], "belonged to a deleted link and cannot be used again"));
            outcomes[at] = found(links[at], answer).unwrap_or_else(gone);
        }
        outcomes
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
    if existing.target == link.target { Ok(true) } else { Err(leads_elsewhere(link)) }
}

fn leads_elsewhere(link: &Link) -> Problem {
    taken_by(link, "already leads to another destination")
}

/// Returns the problem of a slug that another link has or had.
fn taken_by(link: &Link, why: &str) -> Problem {
    let slug = link.code.as_slug().to_string();
    Problem::slug_taken(&slug, link.labels.domain.as_ref()).because(format!("shortCode {why} (got \"{slug}\")"))
}

impl LineWork for BulkImport {
    type Item = Arc<Link>;
    type Outcome = ImportOutcome;

    async fn read(&self, context: &Context, _number: u64, line: &[u8]) -> Result<Arc<Link>, Problem> {
        context.import_of(line).await
    }

    async fn carry_out(&mut self, context: &Context, links: &[&Arc<Link>]) -> Vec<ImportOutcome> {
        if self.dry { self.check_all(context, links).await } else { context.import_all(links).await }
    }

    fn report(line: u64, link: &Arc<Link>, outcome: ImportOutcome, out: &mut Vec<u8>) {
        push_link(line, link.code, link.labels.domain.as_ref(), outcome, out);
    }
}

impl BulkImport {
    /// Returns the results that these links would have.
    async fn check_all(&mut self, context: &Context, links: &[&Arc<Link>]) -> Vec<ImportOutcome> {
        let answers = context.services.read_all(links.len(), |at| links[at].code).await;
        let check =
            |(link, answer): (&&Arc<Link>, LinkAnswer)| found(link, answer).unwrap_or_else(|| self.check_free(link));
        links.iter().zip(answers).map(check).collect()
    }

    /// Returns the result of a link whose slug is free, unless an earlier line of the dry run would have taken it.
    fn check_free(&mut self, link: &Link) -> ImportOutcome {
        match self.tried.take(link) {
            None => Ok(false),
            Some(true) => Ok(true),
            Some(false) => Err(leads_elsewhere(link)),
        }
    }
}
