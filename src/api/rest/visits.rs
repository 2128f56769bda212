//! Counts of visits: of links by day, by hour and by referring host, and of all links. Single visits are in
//! `visit_lists`, and the days of several links in `visits_by_day`.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::describe::VisitsSummary;
use super::list::unreadable;
use super::short_urls::refused;
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json as json_answer};
use crate::bridge::{Answer, ListRequest, Ticket};
use carom_limits::REFERRERS_SHOWN_MAX;
use carom_model::access::{Role, Scope};
use carom_model::domains::DomainName;
use carom_model::formats::dates;
use carom_model::query::{GroupCounts, UnreadableIndex};
use carom_model::visits::history::VisitHistory;
use carom_model::visits::tally::{Subject, VisitCounts, VisitGroup};

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
        let scope = self.caller.scope();
        let (links, orphans) = if scope.is_all() {
            (self.visits_of_all().await?, self.visit_history(Subject::Orphans, "").await?.all.counts)
        } else {
            // Orphan visits belong to no app and no domain, so only a key for all links counts them.
            (self.visits_within(&scope).await?, VisitCounts::default())
        };
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

    /// Returns the visits of the links of an app or of some domains.
    ///
    /// # Errors
    /// 403 if the scope is limited by both: visits are counted by app and by domain, and not by both together.
    async fn visits_within(&self, scope: &Scope) -> Result<VisitCounts, Problem> {
        let (groups, is_rest) = match (scope.app(), scope.domains()) {
            (Some(app), None) => (vec![VisitGroup::App(app.as_str().into())], false),
            (None, Some(domains)) if domains.contains(&None) => {
                // Visits of the default domain are those that no other domain has.
                let others = self.domains_known().await?.into_iter().map(|name| name.id());
                let others = others.filter(|id| !domains.contains(&Some(*id)));
                (others.map(VisitGroup::Domain).collect(), true)
            }
            (None, Some(domains)) => (domains.iter().flatten().map(|id| VisitGroup::Domain(*id)).collect(), false),
            (Some(_), Some(_)) | (None, None) => {
                self.caller.require_on_all_domains(Role::ReadAll)?;
                return self.visits_of_all().await;
            }
        };
        self.require_all_links("Visits by app or domain")?;
        let request = |ticket| ListRequest::Groups { groups, hours: None, ticket };
        let GroupCounts { counts, .. } = self.ask_list(request).await?.map_err(|UnreadableIndex| unreadable())?;
        let mut sum = VisitCounts::default();
        counts.into_iter().for_each(|of_group| sum.add(of_group));
        if !is_rest {
            return Ok(sum);
        }
        let all = self.visits_of_all().await?;
        Ok(VisitCounts { total: all.total.saturating_sub(sum.total), bots: all.bots.saturating_sub(sum.bots) })
    }

    /// Returns the domains besides the default one: those that are served, and those that have links although they
    /// are no longer served.
    pub(in crate::api) async fn domains_known(&self) -> Result<Vec<DomainName>, Problem> {
        let domains = self.domains();
        let label = |name: &DomainName| domains.place_of(name).and_then(|place| domains.label_at(place));
        let mut known: Vec<DomainName> = domains.all().iter().filter_map(|domain| label(&domain.name)).collect();
        let with_links = self.ask_list(ListRequest::Domains).await?.map_err(|UnreadableIndex| unreadable())?;
        let former: Vec<DomainName> = with_links.into_iter().filter(|name| !known.contains(name)).collect();
        known.extend(former);
        Ok(known)
    }

    /// Asks the list threads for counts.
    ///
    /// # Errors
    /// 503 if they do not answer now.
    pub(in crate::api) async fn ask_list<A: Answer>(
        &self,
        request: impl FnOnce(Ticket<A>) -> ListRequest,
    ) -> Result<A, Problem> {
        let asked = self.services.list(request).await;
        asked.map_err(|reason| Problem::unavailable(format!("Statistics are unavailable: {reason}.")))
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
pub(in crate::api) struct TimeRange {
    pub(in crate::api) start_ms: u64,
    pub(in crate::api) end_ms: u64,
}

impl TimeRange {
    /// Reads the parameters `startDate` and `endDate`.
    pub(in crate::api) fn read(params: &mut Params) -> TimeRange {
        let start_ms = params.since_ms("startDate").unwrap_or(0);
        TimeRange { start_ms, end_ms: params.until_ms("endDate").unwrap_or(u64::MAX) }
    }

    /// True if the period that begins at `begin_ms` and lasts `len_ms` overlaps the range.
    fn meets(&self, begin_ms: u64, len_ms: u64) -> bool {
        begin_ms <= self.end_ms && begin_ms + len_ms > self.start_ms
    }

    /// True if the range covers all time.
    pub(in crate::api) fn is_everything(&self) -> bool {
        self.start_ms == 0 && self.end_ms == u64::MAX
    }
}

/// Returns the number of parts of a history, each of which [`describe`] looks at.
pub(in crate::api) fn parts_of(history: &VisitHistory) -> usize {
    history.days.len() + history.hours.len() + history.all.hosts.len()
}

/// Describes a history within a period. A core does this only for one of few parts
/// ([`carom_limits::HISTORY_WRITTEN_AT_ONCE`]).
pub(in crate::api) fn describe(history: &VisitHistory, span: &TimeRange) -> Value {
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
