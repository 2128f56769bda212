//! One change or the deletion of all links that match a filter: `POST /rest/v3/short-urls/bulk/matching`.
//!
//! A first request counts the links and shows some of them. A second one names that count in `confirm`, and is refused
//! if more links match by then: it edits no more links than its client has agreed to. Fewer links are fine, because a
//! repeated request finds those of an interrupted one deleted already.

use std::future::poll_fn;
use std::task::Poll;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::Serialize;

use super::body::NDJSON;
use super::edit::{BulkEdit, EditTarget};
use super::report::{push_early_end, push_totals};
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::query::Params;
use crate::api::response::{ApiResponse, answer_with, json as json_answer};
use crate::api::rest::describe::ShortUrl;
use crate::api::rest::list::filter_within;
use crate::api::rest::short_urls::{read_object, refused};
use crate::api::rest::streaming::{Outlet, stream};
use crate::bridge::handle::LongKind;
use crate::bridge::handle::long::LongRequest;
use carom_limits::{BULK_CHUNK_LINES, BULK_COUNT_TIME_MAX, LIST_PER_PAGE_MAX};
use carom_model::query::{Filter, ListPage};

/// The largest number that clients in JavaScript can confirm exactly.
pub(in crate::api::rest) const CONFIRMED_MAX: u64 = (1 << 53) - 1;

/// Links that a request without `confirm` shows.
pub(in crate::api::rest) const SAMPLE_LEN: usize = 10;

/// Answer to a request without `confirm`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::api::rest) struct MatchingLinks<'a> {
    /// Links that match.
    pub(in crate::api::rest) count: u64,
    /// The oldest of them.
    pub(in crate::api::rest) sample: Vec<ShortUrl<'a>>,
}

impl Context {
    /// Handles `POST /rest/v3/short-urls/bulk/matching`: counts the links of a filter, or edits them.
    pub(in crate::api) async fn edit_matching(&self, request: Request<Incoming>) -> ApiResponse {
        self.try_edit_matching(request).await.unwrap_or_else(Problem::into_answer)
    }

    async fn try_edit_matching(&self, request: Request<Incoming>) -> Result<ApiResponse, Problem> {
        let mut params = Params::of(request.uri().query());
        let narrowed = |name: &str, scope| self.narrowed(scope, name);
        let (filter, has_any) = filter_within(&mut params, &self.caller.scope(), narrowed, self.domains());
        let confirmed = params.read("confirm", |text| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|number| is_number && *number <= CONFIRMED_MAX);
            number.ok_or_else(|| format!("must be a whole number from 0 to {CONFIRMED_MAX}"))
        });
        params.finish().map_err(|invalid| Problem::invalid(&invalid))?;
        let fields = read_object(&self.services, request).await?;
        let mut invalid = Vec::new();
        BulkEdit::refuse_unknown(&fields, &[], &mut invalid);
        let edit = self.bounded(|bounds| BulkEdit::read(&fields, bounds)).map_err(|wrong| invalid.extend(wrong)).ok();
        let Some(edit) = edit.filter(|_| invalid.is_empty()) else { return Err(Problem::invalid(&invalid)) };
        let (count, page) = if has_any { self.count_matching(&filter).await? } else { (0, None) };
        let Some(confirmed) = confirmed else {
            let describer = self.describer();
            let page = page.iter().flat_map(|page| page.links.iter().zip(&page.visits)).take(SAMPLE_LEN);
            let sample = page.map(|(link, visits)| describer.describe(link, *visits)).collect();
            return Ok(json_answer(StatusCode::OK, &MatchingLinks { count, sample }));
        };
        if count > confirmed {
            return Err(Problem::more_links_match(confirmed, count));
        }
        let long = self.services.begin_long(LongKind::Bulk, self.caller.name());
        let long = long.map_err(|too_many| Problem::too_many_long("bulk requests", too_many))?;
        let context = self.clone();
        let run = move |outlet: Outlet| async move {
            // A domain or app without links has nothing to edit.
            let left = if has_any { confirmed } else { 0 };
            context.edit_each(&filter, &edit, left, &long, &outlet).await;
        };
        Ok(answer_with(StatusCode::OK, NDJSON, stream(run)))
    }

    /// Counts the links of a filter. Also returns the first page of them.
    async fn count_matching(&self, filter: &Filter) -> Result<(u64, Option<ListPage>), Problem> {
        let began_ms = self.services.unix_ms();
        let mut first = None;
        let mut cursor = None;
        loop {
            let page = self.matching(filter.clone(), LIST_PER_PAGE_MAX, cursor).await?;
            let (total, next) = (page.total, page.next.clone());
            let is_complete = page.complete || next.is_none();
            first.get_or_insert(page);
            if is_complete {
                return Ok((total, first));
            }
            if self.services.unix_ms().saturating_sub(began_ms) > BULK_COUNT_TIME_MAX.as_millis() as u64 {
                return Err(Problem::unavailable(format!(
                    "The links of this filter could not be counted within {} s. Narrow it with tags[], startDate and endDate.",
                    BULK_COUNT_TIME_MAX.as_secs()
                )));
            }
            cursor = next;
        }
    }

    /// Edits the links of a filter, at most `left`, and writes a result for each.
    async fn edit_each(&self, filter: &Filter, edit: &BulkEdit, left: u64, long: &LongRequest, outlet: &Outlet) {
        let mut left = left;
        let (mut line, mut changed) = (0, 0);
        let mut cursor = None;
        while left > 0 {
            let must_end = poll_fn(|context| Poll::Ready(long.must_end(context))).await;
            let page = if !self.still_holds() {
                Err(Problem::wrong_key())
            } else if must_end {
                Err(refused("the node is shutting down; send the request again to continue"))
            } else {
                self.matching(filter.clone(), BULK_CHUNK_LINES, cursor).await
            };
            let page = match page {
                Ok(page) => page,
                Err(problem) => {
                    let mut out = Vec::new();
                    push_early_end(line + 1, problem, &mut out);
                    return outlet.send(out).await;
                }
            };
            let links = page.links.iter().take(usize::try_from(left).unwrap_or(usize::MAX));
            let targets: Vec<EditTarget> = links.map(|link| EditTarget::of(link, edit.clone())).collect();
            let results = self.edit_all(&targets.iter().collect::<Vec<&EditTarget>>()).await;
            let mut out = Vec::with_capacity(targets.len() * 64);
            for (target, result) in targets.iter().zip(results) {
                line += 1;
                changed += u64::from(result.is_ok());
                target.report(line, result, &mut out);
            }
            left -= targets.len() as u64;
            outlet.send(out).await;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let mut out = Vec::new();
        push_totals(changed, line - changed, &mut out);
        outlet.send(out).await;
    }
}
