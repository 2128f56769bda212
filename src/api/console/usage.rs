//! Use of links in a period: visits of all links, the most visited links, and the number of links.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::api::admin::status;
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json_text, to_json};
use crate::api::rest::describe::VisitsSummary;
use crate::api::rest::list::{failed, unreadable};
use crate::api::rest::short_urls::refused;
use crate::api::rest::visits::{self, HOUR_MS, TimeRange};
use crate::bridge::ListRequest;
use carom_limits::{HISTORY_WRITTEN_AT_ONCE, REFERRERS_SHOWN_MAX};
use carom_model::access::{AppName, Scope};
use carom_model::domains::DomainName;
use carom_model::formats::dates::{self, INSTANT_MS_MAX};
use carom_model::link::Link;
use carom_model::query::{Filter, GroupCounts, UnreadableIndex};
use carom_model::visits::history::VisitHistory;
use carom_model::visits::tally::{Subject, VisitCounts, VisitGroup};

const DAY_MS: u64 = 24 * HOUR_MS;

/// Default period, in milliseconds.
const USUAL_MS: u64 = 30 * DAY_MS;

/// Days for which links are counted one by one.
const DAYS_MAX: u64 = 400;

/// Length of the list of the most visited links.
const TOP: usize = 25;

/// Apps that are listed individually.
const ROWS_MAX: usize = 100;

impl Context {
    /// Handles `GET /admin/api/usage`: returns the use of links in a period.
    pub(super) async fn usage(&self, query: Option<&str>) -> ApiResponse {
        match self.try_usage(query).await {
            Ok(text) => json_text(StatusCode::OK, text),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_usage(&self, query: Option<&str>) -> Result<Vec<u8>, Problem> {
        let now_ms = self.services.unix_ms();
        let mut params = Params::of(query);
        let end_ms = params.until_ms("endDate").unwrap_or(now_ms);
        let start_ms = params.since_ms("startDate").unwrap_or(end_ms.saturating_sub(USUAL_MS));
        if start_ms > end_ms {
            params.refuse("startDate", "must not be after endDate");
        }
        params.finish().map_err(|invalid| Problem::invalid(&invalid))?;
        let span = TimeRange { start_ms, end_ms };
        let all = self.visit_history(Subject::All, "").await?;
        let orphans = self.visit_history(Subject::Orphans, "").await?;
        let mut notes = Vec::new();
        if end_ms.min(now_ms).saturating_sub(start_ms) > DAYS_MAX * DAY_MS {
            notes.push("New links and referrers are known only for the last 400 days of the period.");
        }
        let referrers = self.referrers(&span, now_ms).await?;
        // A node that does not store all links cannot count them, and knows few of those that were visited.
        let has_all = self.services.stores_all_links();
        let (links, knows_apps) =
            if has_all { self.growth(&span, now_ms, &all).await? } else { (uncounted_links(), true) };
        let top_links = if has_all { self.top_links(&span).await? } else { Vec::new() };
        if !knows_apps {
            notes.push(
                "Visits by app may be up to an hour old: with this many links, they are assigned to apps once an hour.",
            );
        }
        let sources = status::sources(&self.services.context().node, now_ms);
        let parts = visits::parts_of(&all) + visits::parts_of(&orphans);
        let write = move || {
            let mut of_links = visits::describe(&all, &span);
            of_links["referrers"] = referrers.into();
            let of_orphans = visits::describe(&orphans, &span);
            to_json(&json!({
                "visits": of_links,
                "orphanVisits": of_orphans,
                "links": links,
                "topLinks": top_links,
                "sources": sources,
                "notes": notes,
            }))
        };
        self.services.write_document(parts, HISTORY_WRITTEN_AT_ONCE, write).await.map_err(refused)
    }

    /// Returns the most visited links of a period.
    async fn top_links(&self, span: &TimeRange) -> Result<Vec<Value>, Problem> {
        let hour = |ms: u64| u32::try_from(ms / HOUR_MS).unwrap_or(u32::MAX);
        let (from_hour, to_hour) = (hour(span.start_ms), hour(span.end_ms).saturating_add(1));
        let page = self.ask_list(|ticket| ListRequest::Top { from_hour, to_hour, count: TOP, ticket }).await?;
        let page = page.map_err(failed)?;
        let described = |(link, counts): (&Arc<Link>, &VisitCounts)| json!({"link": self.described(link, *counts), "visits": VisitsSummary::from(*counts)});
        Ok(page.links.iter().zip(&page.visits).map(described).collect())
    }

    /// Returns the hosts that referred most visits in a period, rounded to whole days and cut to the last
    /// [`DAYS_MAX`] days.
    async fn referrers(&self, span: &TimeRange, now_ms: u64) -> Result<Vec<Value>, Problem> {
        let day = |ms: u64| u32::try_from(ms / DAY_MS).unwrap_or(u32::MAX);
        let to_day = day(span.end_ms.min(now_ms));
        let from_day = day(span.start_ms).max(to_day.saturating_sub(DAYS_MAX as u32 - 1));
        let count = REFERRERS_SHOWN_MAX;
        let hosts = self.ask_list(|ticket| ListRequest::Referrers { from_day, to_day, count, ticket }).await?;
        Ok(visits::described_hosts(&hosts.map_err(|UnreadableIndex| unreadable())?))
    }

    /// Counts links: existing ones, and those created in a period, in total, by day, by app and by domain, the
    /// latter two with visits. `all` is the history of all visits. The flag is false if visits of some apps are
    /// missing.
    async fn growth(&self, span: &TimeRange, now_ms: u64, all: &VisitHistory) -> Result<(Value, bool), Problem> {
        let (apps, domains) = (self.apps_known(), self.domains_known().await?);
        let (visits, knows_apps) = self.visits_by_group(&apps, &domains, span, all).await?;
        let days = days_of(span, now_ms);
        let of_apps = apps.iter().map(|app| Scope::of_app(app.clone()));
        let of_domains = domains.iter().map(|domain| Scope::ALL.within([Some(domain.id())]));
        let scopes: Vec<Scope> = std::iter::once(Scope::ALL).chain(of_apps).chain(of_domains).collect();
        let ever = scopes.iter().map(|scope| Filter { scope: scope.clone(), ..Filter::default() });
        let then = scopes.iter().map(|scope| within(scope.clone(), span.start_ms, span.end_ms));
        // The first and the last day count only as far as they lie in the period.
        let of_day = |day: &u64| within(Scope::ALL, span.start_ms.max(*day), span.end_ms.min(day + DAY_MS - 1));
        let by_day = days.iter().map(of_day);
        let filters = ever.chain(then).chain(by_day).collect();
        let counts = self.ask_list(|ticket| ListRequest::Counts(filters, ticket)).await?;
        let counts = counts.map_err(|UnreadableIndex| unreadable())?;
        let (ever, rest) = counts.split_at(scopes.len());
        let (then, by_day) = rest.split_at(scopes.len());
        let known = ever.iter().zip(then).zip(visits);
        let known = known.map(|((links, created), visits)| Known { links: *links, created: *created, visits });
        let known: Vec<Known> = known.collect();
        let (of_apps, of_domains) = known[1..].split_at(apps.len());
        let default = of_domains.iter().fold(known[0], Known::without);
        let names = domains.iter().map(|domain| Some(domain.as_str()));
        let of_all_domains = std::iter::once(None).chain(names).zip(std::iter::once(&default).chain(of_domains));
        let per_day = days.iter().zip(by_day);
        let body = json!({
            "total": known[0].links,
            "created": known[0].created,
            "perDay": per_day.map(|(ms, links)| json!({"date": &dates::format(*ms)[..10], "links": links})).collect::<Vec<_>>(),
            "byApp": apps.iter().zip(of_apps).map(|(app, known)| known.describe("app", Some(app.as_str()))).collect::<Vec<_>>(),
            "byDomain": of_all_domains.map(|(domain, known)| known.describe("domain", domain)).collect::<Vec<_>>(),
        });
        Ok((body, knows_apps))
    }

    /// Returns the visits of all links, of each app and of each domain in a period, in this order. Those of all
    /// links are rounded to whole days like the others. The flag is false if visits of some apps are missing.
    async fn visits_by_group(
        &self,
        apps: &[AppName],
        domains: &[DomainName],
        span: &TimeRange,
        all: &VisitHistory,
    ) -> Result<(Vec<VisitCounts>, bool), Problem> {
        let of_apps = apps.iter().map(|app| VisitGroup::App(app.as_str().into()));
        let groups = of_apps.chain(domains.iter().map(|domain| VisitGroup::Domain(domain.id()))).collect();
        let hour = |day: u64| u32::try_from(day.saturating_mul(24)).unwrap_or(u32::MAX);
        let (from_hour, to_hour) = (hour(span.start_ms / DAY_MS), hour(span.end_ms / DAY_MS + 1));
        let hours = Some(from_hour..to_hour);
        let found = self.ask_list(|ticket| ListRequest::Groups { groups, hours, ticket }).await?;
        let GroupCounts { counts, is_whole } = found.map_err(|UnreadableIndex| unreadable())?;
        let all = all.within(from_hour..to_hour);
        Ok((std::iter::once(all).chain(counts).collect(), is_whole))
    }

    /// Returns the apps that have or had API keys, in the order of their names, at most [`ROWS_MAX`].
    fn apps_known(&self) -> Vec<AppName> {
        let keys = self.services.keys();
        let mut apps: Vec<AppName> = keys.each().map(|(entry, _)| entry.app.clone()).collect();
        apps.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        apps.dedup();
        apps.truncate(ROWS_MAX);
        apps
    }
}

/// Returns the counts of a node that does not store all links.
fn uncounted_links() -> Value {
    json!({"total": null, "created": null, "perDay": [], "byApp": [], "byDomain": []})
}

/// Counts for a group of links: existing, created and visited in a period; `None` if a count is unknown yet.
#[derive(Clone, Copy)]
struct Known {
    links: Option<u64>,
    created: Option<u64>,
    visits: VisitCounts,
}

impl Known {
    /// Subtracts the counts of other domains, which leaves those of the default domain.
    fn without(self, some: &Known) -> Known {
        let less = |all: Option<u64>, some: Option<u64>| Some(all?.saturating_sub(some?));
        let visits = VisitCounts {
            total: self.visits.total.saturating_sub(some.visits.total),
            bots: self.visits.bots.saturating_sub(some.visits.bots),
        };
        Known { links: less(self.links, some.links), created: less(self.created, some.created), visits }
    }

    fn describe(&self, what: &str, name: Option<&str>) -> Value {
        json!({what: name, "links": self.links, "created": self.created, "visits": VisitsSummary::from(self.visits)})
    }
}

/// Returns the filter for links that were created in a period.
fn within(scope: Scope, start_ms: u64, end_ms: u64) -> Filter {
    Filter { scope, since_ms: Some(start_ms), until_ms: Some(end_ms), ..Filter::default() }
}

/// Returns the first milliseconds of the days of a period that are counted one by one.
fn days_of(span: &TimeRange, now_ms: u64) -> Vec<u64> {
    let last = span.end_ms.min(now_ms).min(INSTANT_MS_MAX) / DAY_MS;
    let first = (span.start_ms / DAY_MS).max((last + 1).saturating_sub(DAYS_MAX));
    (first..=last).map(|day| day * DAY_MS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_time_and_not_more_than_can_be_told() {
        let days = |start_ms, end_ms| days_of(&TimeRange { start_ms, end_ms }, 1_000 * DAY_MS + 5);
        assert_eq!(days(10 * DAY_MS + 7, 12 * DAY_MS), [10, 11, 12].map(|day| day * DAY_MS));
        assert_eq!(days(0, u64::MAX).len() as u64, DAYS_MAX);
        assert_eq!(days(0, u64::MAX).last(), Some(&(1_000 * DAY_MS)));
        assert!(days(2_000 * DAY_MS, 3_000 * DAY_MS).is_empty());
    }
}
