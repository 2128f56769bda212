//! Counts of visits: of links by day, by hour and by referring host, and of all links. Single visits are in
//! `visit_lists`, and the days of several links in `visits_by_day`.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::describe::VisitsSummary;
use super::short_urls::refused;
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json as json_answer};
use carom_limits::REFERRERS_SHOWN_MAX;
use carom_model::access::Role;
use carom_model::dates;
use carom_model::visits::history::VisitHistory;
use carom_model::visits::tally::{Subject, VisitCounts};

pub(in crate::api) const HOUR_MS: u64 = 3_600_000;

impl Context {
    /// Handles `GET /rest/v3/visits`: returns the visits of all links and of missing links.
    pub(in crate::api) async fn all_visits(&self) -> ApiResponse {
        match self.try_all_visits().await {
            Ok(body) => json_answer(StatusCode::OK, &body),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_all_visits(&self) -> Result<Value, Problem> {
        // These counters cover the links of all apps and domains.
        self.caller.require_on_all_domains(Role::ReadAll)?;
        let (links, orphans) =
            (self.visit_history(Subject::All, "").await?, self.visit_history(Subject::Orphans, "").await?);
        let (links, orphans) = (links.all.counts, orphans.all.counts);
        Ok(json!({ "visits": {
            "nonOrphanVisits": VisitsSummary::from(links),
            "orphanVisits": VisitsSummary::from(orphans),
            "visitsCount": links.total,
            "orphanVisitsCount": orphans.total,
        }}))
    }

    /// Returns the visits of all links.
    pub(in crate::api) async fn visits_of_all(&self) -> Result<VisitCounts, Problem> {
        Ok(self.visit_history(Subject::All, "").await?.all.counts)
    }

    pub(in crate::api) async fn visit_history(
        &self,
        subject: Subject,
        code: &str,
    ) -> Result<Box<VisitHistory>, Problem> {
        let history = self.services.read_visits(subject).await.map_err(refused)?;
        history.ok_or_else(|| Problem::no_link(code))
    }
}

/// A time range that a request asks for, in milliseconds since 1970 UTC, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) struct Span {
    pub(in crate::api) start_ms: u64,
    pub(in crate::api) end_ms: u64,
}

impl Span {
    /// Reads the parameters `startDate` and `endDate`.
    pub(in crate::api) fn read(params: &mut Params) -> Span {
        let start_ms = params.since_ms("startDate").unwrap_or(0);
        Span { start_ms, end_ms: params.until_ms("endDate").unwrap_or(u64::MAX) }
    }

    /// True if the period that begins at `begin_ms` and lasts `len_ms` overlaps the range.
    fn meets(&self, begin_ms: u64, len_ms: u64) -> bool {
        begin_ms <= self.end_ms && begin_ms + len_ms > self.start_ms
    }

    fn is_everything(&self) -> bool {
        self.start_ms == 0 && self.end_ms == u64::MAX
    }
}

/// Returns the number of parts of a history, each of which [`describe`] looks at.
pub(in crate::api) fn parts_of(history: &VisitHistory) -> usize {
    history.days.len() + history.hours.len() + history.all.hosts.len()
}

/// Describes a history within a period. A core does this only for one of few parts
/// ([`carom_limits::HISTORY_WRITTEN_AT_ONCE`]).
pub(in crate::api) fn describe(history: &VisitHistory, span: &Span) -> Value {
    let within = |times: &BTreeMap<u32, VisitCounts>, len_ms: u64| -> Vec<(u64, VisitCounts)> {
        let times = times.iter().map(|(time, counts)| (u64::from(*time) * len_ms, *counts));
        times.filter(|(begin_ms, _)| span.meets(*begin_ms, len_ms)).collect()
    };
    let (days, hours) = (within(&history.days, 24 * HOUR_MS), within(&history.hours, HOUR_MS));
    let mut counts = history.all.counts;
    if !span.is_everything() {
        counts = VisitCounts::default();
        days.iter().for_each(|(_, of_day)| counts.add(*of_day));
    }
    let mut referrers = history.all.clone();
    referrers.sort_hosts();
    let summary = VisitsSummary::from(counts);
    json!({
        "summary": summary,
        "perDay": days.into_iter().map(|(ms, counts)| entry(&dates::format(ms)[..10], counts)).collect::<Vec<_>>(),
        "perHour": hours.into_iter().map(|(ms, counts)| entry(&dates::format(ms), counts)).collect::<Vec<_>>(),
        "referrers": described_hosts(&referrers.hosts),
    })
}

/// Describes the hosts with the most visits, at most [`REFERRERS_SHOWN_MAX`] of them.
pub(in crate::api) fn described_hosts(hosts: &[(Box<[u8]>, u64)]) -> Vec<Value> {
    let described = |(host, count): &(Box<[u8]>, u64)| json!({"host": String::from_utf8_lossy(host), "total": count});
    hosts.iter().take(REFERRERS_SHOWN_MAX).map(described).collect()
}

/// Describes the visits of a day or an hour.
pub(super) fn entry(date: &str, VisitCounts { total, bots }: VisitCounts) -> Value {
    json!({ "date": date, "total": total, "nonBots": total.saturating_sub(bots), "bots": bots })
}
