//! Lists of tags in Shlink's shape: `GET /rest/v3/tags` and `GET /rest/v3/tags/stats`.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::describe::VisitsSummary;
use super::list::{Pagination, counting, direction, no_list, search_term, unreadable};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json_text, to_json};
use crate::bridge::ListRequest;
use carom_limits::{TAGS_COUNTED_MAX, TAGS_PER_PAGE_MAX, TAGS_SORTED_LINKS_MAX, TAGS_WRITTEN_AT_ONCE};
use carom_model::access::Scope;
use carom_model::query::{TagField, TagQuery, TagsFailure};

impl Context {
    /// Handles `GET /rest/v3/tags`: lists the tags.
    pub(in crate::api) async fn tags(&self, query: Option<&str>) -> ApiResponse {
        let with_stats = Params::of(query).flag("withStats");
        self.tag_page(query, with_stats, move |tags, stats| {
            if with_stats { json!({"data": tags, "stats": stats}) } else { json!({"data": tags}) }
        })
        .await
    }

    /// Handles `GET /rest/v3/tags/stats`: lists the tags with their links and visits.
    pub(in crate::api) async fn tag_stats(&self, query: Option<&str>) -> ApiResponse {
        self.tag_page(query, true, |_, stats| json!({"data": stats})).await
    }

    async fn tag_page(
        &self,
        query: Option<&str>,
        with_visits: bool,
        show: impl FnOnce(Vec<Value>, Vec<Value>) -> Value + Send + 'static,
    ) -> ApiResponse {
        let asked = match read(query) {
            Ok(asked) => TagQuery { scope: self.caller.scope(), with_visits, ..asked },
            Err(invalid) => return Problem::invalid(&invalid).into_answer(),
        };
        let (page, per_page) = (asked.page, asked.per_page);
        match self.services.list(|ticket| ListRequest::Tags(Box::new(asked), ticket)).await {
            Ok(Ok(found)) => {
                let count = found.tags.len();
                let write = move || {
                    let tags: Vec<Value> = found.tags.iter().map(|(tag, _)| json!(**tag)).collect();
                    let stats = found.tags.iter().zip(&found.visits).map(|((tag, count), visits)| {
                        let summary = visits.map(VisitsSummary::from);
                        json!({"tag": **tag, "shortUrlsCount": count, "visitsSummary": summary})
                    });
                    let mut shown = show(tags, stats.collect());
                    shown["pagination"] = json!(Pagination::of(page, per_page, found.tags.len(), found.total));
                    to_json(&json!({"tags": shown}))
                };
                let text = self.services.write_document(count, TAGS_WRITTEN_AT_ONCE, write).await;
                text.map_or_else(no_list, |text| json_text(StatusCode::OK, text))
            }
            Ok(Err(failure)) => failed(failure).into_answer(),
            Err(reason) => no_list(reason),
        }
    }
}

/// Returns the error for tags that could not be listed.
fn failed(failure: TagsFailure) -> Problem {
    match failure {
        TagsFailure::TooManyTags => Problem::too_many_tags(TAGS_COUNTED_MAX),
        TagsFailure::TooManyToSort => {
            let reason = format!(
                "cannot sort these tags: they must have at most {TAGS_SORTED_LINKS_MAX} links together. Narrow them with searchTerm, or use tag or shortUrlsCount"
            );
            Problem::invalid(&[Invalid::new("orderBy", reason)])
        }
        TagsFailure::Counting => counting(),
        TagsFailure::Unreadable => unreadable(),
    }
}

fn read(query: Option<&str>) -> Result<TagQuery, Vec<Invalid>> {
    let mut params = Params::of(query);
    let (field, descending) = params.read("orderBy", order).unwrap_or((TagField::Tag, false));
    let asked = TagQuery {
        scope: Scope::ALL,
        term: params.read("searchTerm", search_term).flatten(),
        field,
        descending,
        page: params.number("page", 1, u64::MAX).unwrap_or(1),
        per_page: params.per_page(TAGS_PER_PAGE_MAX).unwrap_or(TAGS_PER_PAGE_MAX),
        with_visits: false,
    };
    params.flag("withStats");
    params.finish()?;
    Ok(asked)
}

fn order(text: &str) -> Result<(TagField, bool), String> {
    let (field, descending) = direction(text);
    match field {
        "tag" => Ok((TagField::Tag, descending)),
        "shortUrlsCount" => Ok((TagField::Links, descending)),
        "visits" => Ok((TagField::Visits, descending)),
        "nonBotVisits" => Ok((TagField::NonBotVisits, descending)),
        _ => {
            Err("must be one of tag, shortUrlsCount, visits, nonBotVisits, optionally followed by -ASC or -DESC"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read() {
        let asked =
            read(Some("orderBy=shortUrlsCount-DESC&searchTerm=A&page=2&itemsPerPage=5&withStats=true")).unwrap();
        let (term, field) = (Some("a".to_owned()), TagField::Links);
        let expected =
            TagQuery { scope: Scope::ALL, term, field, descending: true, page: 2, per_page: 5, with_visits: false };
        assert_eq!(asked, expected);
        let wrong = read(Some("orderBy=title&page=x&itemsPerPage=10001&withStats=7")).unwrap_err();
        let wrong: Vec<String> = wrong.into_iter().map(|one| one.field).collect();
        assert_eq!(wrong, ["orderBy", "page", "itemsPerPage", "withStats"]);
        let all = read(Some("orderBy=nonBotVisits-DESC&itemsPerPage=-1")).unwrap();
        assert_eq!((all.field, all.descending, all.per_page), (TagField::NonBotVisits, true, TAGS_PER_PAGE_MAX));
    }
}
