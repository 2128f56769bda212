//! The JSON form of a link: Shlink's fields, and those that only carom has.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde::Serialize;

use crate::api::context::Context;
use carom_model::access::AppName;
use carom_model::destination::hosts::{HostSet, host_of};
use carom_model::domains::{DomainName, Domains};
use carom_model::formats::dates;
use carom_model::link::Link;
use carom_model::visits::tally::VisitCounts;

/// A link in the form of its JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct ShortUrl<'a> {
    short_code: String,
    short_url: String,
    long_url: &'a str,
    date_created: String,
    visits_summary: VisitsSummary,
    tags: Vec<&'a str>,
    meta: Meta,
    domain: Option<&'a str>,
    title: Option<&'a str>,
    crawlable: bool,
    forward_query: bool,
    /// True if some visitors get another destination.
    has_redirect_rules: bool,
    redirect_status: u16,
    cache_seconds: Option<u32>,
    archived: bool,
    private: bool,
    blocked: bool,
    app: Option<&'a str>,
    app_version: Option<&'a str>,
    /// Instant at which an archived link is deleted, unless it is restored before.
    #[serde(skip_serializing_if = "Option::is_none")]
    deletes_at: Option<String>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct VisitsSummary {
    total: u64,
    non_bots: u64,
    bots: u64,
}

impl From<VisitCounts> for VisitsSummary {
    fn from(VisitCounts { total, bots }: VisitCounts) -> VisitsSummary {
        VisitsSummary { total, non_bots: total.saturating_sub(bots), bots }
    }
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    valid_since: Option<String>,
    valid_until: Option<String>,
    max_visits: Option<NonZeroU32>,
}

/// Describes links on any thread, with the domains and block list of its creation.
pub(in crate::api) struct Describer {
    domains: Arc<Domains>,
    blocked: Option<Arc<HostSet>>,
}

impl Describer {
    /// Describes a link with these visits.
    pub(in crate::api) fn describe<'a>(&self, link: &'a Link, visits: VisitCounts) -> ShortUrl<'a> {
        let blocked = self.blocked.as_ref().is_some_and(|hosts| hosts.has(host_of(link.target.as_bytes())));
        describe(link, visits, &self.domains, blocked)
    }
}

impl Context {
    /// Returns a describer with the current domains and block list of this core.
    pub(in crate::api) fn describer(&self) -> Describer {
        Describer { domains: Arc::clone(&self.services.context().domains), blocked: self.services.blocked().clone() }
    }

    /// Describes a link with these visits, on the thread of this core.
    pub(in crate::api) fn described<'a>(&self, link: &'a Link, visits: VisitCounts) -> ShortUrl<'a> {
        describe(link, visits, self.domains(), self.services.blocks(link.target.as_bytes()))
    }
}

pub(super) fn describe<'a>(link: &'a Link, visits: VisitCounts, domains: &Domains, blocked: bool) -> ShortUrl<'a> {
    let short_code = link.code.as_slug().to_string();
    let domain = link.labels.domain.as_ref();
    ShortUrl {
        short_url: [&*domains.base_url_of(domain), "/", &short_code].concat(),
        short_code,
        long_url: &link.target,
        // Clients of Shlink expect no milliseconds.
        date_created: dates::format(dates::whole_second(link.created_ms)),
        visits_summary: visits.into(),
        tags: link.labels.tags.iter().collect(),
        meta: Meta {
            valid_since: link.policy.valid_since_ms.map(dates::format),
            valid_until: link.policy.valid_until_ms.map(dates::format),
            max_visits: link.policy.max_visits,
        },
        domain: domain.map(DomainName::as_str),
        title: link.labels.title.as_deref(),
        crawlable: link.labels.crawlable,
        forward_query: link.policy.forward_query,
        has_redirect_rules: link.has_rules(),
        redirect_status: link.policy.status.number(),
        cache_seconds: link.policy.cache_seconds,
        archived: link.policy.archived,
        private: link.is_private(),
        blocked,
        app: link.labels.app.as_ref().map(AppName::as_str),
        app_version: link.labels.app_version.as_deref(),
        deletes_at: link.labels.delete_at_ms.map(dates::format),
    }
}
