//! How links are used: visits of all of them in a period, the links that were followed most, and how many there are.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::super::describe::{VisitsSummary, describe};
use super::super::list::failed;
use super::super::problem::Problem;
use super::super::query::Params;
use super::super::visits::{self, HOUR_MS, Span};
use super::super::{Answer, Context, json as json_answer};
use crate::apps::{AppName, Scope};
use crate::dates::{self, INSTANT_MS_MAX};
use crate::domains::DomainName;
use crate::listing::{Filter, ListAnswer, ListRequest};
use crate::stats::unix_ms;
use crate::visits::tally::Subject;

const DAY_MS: u64 = 24 * HOUR_MS;

/// What is told where nobody says of which time.
const USUAL_MS: u64 = 30 * DAY_MS;

/// Days for which links are counted one by one.
const DAYS_MAX: u64 = 400;

/// Links that were followed most.
const TOP: usize = 25;

/// Apps and domains that are told by themselves.
const ROWS_MAX: usize = 100;

impl Context {
    /// `GET /admin/api/usage`
    pub(super) async fn usage(&self, query: Option<&str>) -> Answer {
        match self.try_usage(query).await {
            Ok(told) => json_answer(StatusCode::OK, &told),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_usage(&self, query: Option<&str>) -> Result<Value, Problem> {
        let now_ms = unix_ms();
        let mut params = Params::of(query);
        let end_ms = params.until_ms("endDate").unwrap_or(now_ms);
        let start_ms = params.since_ms("startDate").unwrap_or(end_ms.saturating_sub(USUAL_MS));
        if start_ms > end_ms {
            params.refuse("startDate", "must not be after endDate");
        }
        params.finish().map_err(|invalid| Problem::invalid(&invalid))?;
        let span = Span { start_ms, end_ms };
        let all = self.history(Subject::All, "").await?;
        let orphans = self.history(Subject::Orphans, "").await?;
        let mut notes = vec!["Referrers are those of all time."];
        if end_ms.min(now_ms).saturating_sub(start_ms) > DAYS_MAX * DAY_MS {
            notes.push("New links are told day by day for the last 400 days of the period.");
        }
        Ok(json!({
            "visits": visits::describe(&all, &span),
            "orphanVisits": visits::describe(&orphans, &span),
            "links": self.growth(&span, now_ms).await?,
            "topLinks": self.top_links(&span).await?,
            "notes": notes,
        }))
    }

    /// The links that were followed most in a time.
    async fn top_links(&self, span: &Span) -> Result<Vec<Value>, Problem> {
        let hour = |ms: u64| u32::try_from(ms / HOUR_MS).unwrap_or(u32::MAX);
        let (from_hour, to_hour) = (hour(span.start_ms), hour(span.end_ms).saturating_add(1));
        match self.ask_list(ListRequest::Top { from_hour, to_hour, count: TOP }).await? {
            ListAnswer::Links(page) => Ok(page
                .links
                .iter()
                .zip(&page.visits)
                .map(|(link, counts)| {
                    json!({"link": describe(link, *counts, self.domains()), "visits": VisitsSummary::from(*counts)})
                })
                .collect()),
            other => Err(failed(&other)),
        }
    }

    async fn ask_list(&self, request: ListRequest) -> Result<ListAnswer, Problem> {
        let asked = self.desk.list(request).await;
        asked.map_err(|reason| Problem::unavailable(format!("There is no list now: {reason}.")))
    }

    /// How many links there are, and were made in a time: in all, by day, by app and by domain.
    async fn growth(&self, span: &Span, now_ms: u64) -> Result<Value, Problem> {
        let (apps, domains) = (self.apps_known(), self.domains_served());
        let days = days_of(span, now_ms);
        let within = |scope: Scope, start_ms: u64, end_ms: u64| Filter {
            scope,
            since_ms: Some(start_ms),
            until_ms: Some(end_ms),
            ..Filter::default()
        };
        let scopes = [Scope::ALL].into_iter();
        let scopes = scopes.chain(apps.iter().map(|app| Scope::of_app(app.clone())));
        let scopes = scopes.chain(domains.iter().map(|domain| Scope::ALL.within([Some(domain.id())])));
        let of_scope = |scope: Scope| {
            let ever = Filter { scope: scope.clone(), ..Filter::default() };
            [ever, within(scope, span.start_ms, span.end_ms)]
        };
        let mut filters: Vec<Filter> = scopes.flat_map(of_scope).collect();
        let pairs = filters.len() / 2;
        filters.extend(days.iter().map(|day| within(Scope::ALL, *day, day + DAY_MS - 1)));
        let counts = match self.ask_list(ListRequest::Counts(filters)).await? {
            ListAnswer::Counts(counts) => counts,
            other => return Err(failed(&other)),
        };
        let pair = |at: usize| (counts[2 * at], counts[2 * at + 1]);
        let (all, made) = pair(0);
        let by_app = apps.iter().enumerate().map(|(at, app)| {
            let (links, created) = pair(1 + at);
            json!({"app": app.as_str(), "links": links, "created": created})
        });
        let of_domains: Vec<(Option<u64>, Option<u64>)> = (1 + apps.len()..pairs).map(pair).collect();
        // Whatever is of no other domain is of the default one.
        let rest = |all: Option<u64>, of: fn(&(Option<u64>, Option<u64>)) -> Option<u64>| {
            of_domains.iter().map(of).try_fold(all?, |left, some| Some(left.saturating_sub(some?)))
        };
        let default = json!({"domain": null, "links": rest(all, |pair| pair.0), "created": rest(made, |pair| pair.1)});
        let others = domains
            .iter()
            .zip(&of_domains)
            .map(|(domain, (links, created))| json!({"domain": domain.as_str(), "links": links, "created": created}));
        let by_domain: Vec<Value> = std::iter::once(default).chain(others).collect();
        let per_day = days.iter().zip(&counts[2 * pairs..]);
        Ok(json!({
            "total": all,
            "created": made,
            "perDay": per_day.map(|(ms, links)| json!({"date": &dates::format(*ms)[..10], "links": links})).collect::<Vec<_>>(),
            "byApp": by_app.collect::<Vec<_>>(),
            "byDomain": by_domain,
        }))
    }

    /// The apps that have keys, or had.
    fn apps_known(&self) -> Vec<AppName> {
        let keys = self.desk.keys();
        let mut apps: Vec<AppName> = keys.all().into_iter().map(|(entry, _)| entry.app.clone()).collect();
        apps.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        apps.dedup();
        apps.truncate(ROWS_MAX);
        apps
    }

    /// The domains that are served beside the default one.
    fn domains_served(&self) -> Vec<DomainName> {
        let domains = self.domains();
        let label = |name: &DomainName| domains.place_of(name).and_then(|place| domains.label_at(place));
        domains.all().iter().filter_map(|domain| label(&domain.name)).take(ROWS_MAX).collect()
    }
}

/// The first milliseconds of the days of a time that are counted one by one.
fn days_of(span: &Span, now_ms: u64) -> Vec<u64> {
    let last = span.end_ms.min(now_ms).min(INSTANT_MS_MAX) / DAY_MS;
    let first = (span.start_ms / DAY_MS).max((last + 1).saturating_sub(DAYS_MAX));
    (first..=last).map(|day| day * DAY_MS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_time_and_not_more_than_can_be_told() {
        let days = |start_ms, end_ms| days_of(&Span { start_ms, end_ms }, 1_000 * DAY_MS + 5);
        assert_eq!(days(10 * DAY_MS + 7, 12 * DAY_MS), [10, 11, 12].map(|day| day * DAY_MS));
        assert_eq!(days(0, u64::MAX).len() as u64, DAYS_MAX);
        assert_eq!(days(0, u64::MAX).last(), Some(&(1_000 * DAY_MS)));
        assert!(days(2_000 * DAY_MS, 3_000 * DAY_MS).is_empty());
    }
}
