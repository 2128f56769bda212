//! Renames and removals of tags: `PUT` and `DELETE /rest/v3/tags`.
//!
//! A tag is part of each link that has it, so a request changes many links. It reads them in batches from the index of
//! tags, and the writer changes each in the ordinary way, against its current tags. A request that ends early, because
//! of its time limit, a restart or an error, has changed some links and not others. The client repeats it to continue.

use std::future::poll_fn;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::{Map, Value};

use super::short_urls::{changed, read_object};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, empty};
use crate::bridge::handle::LongKind;
use crate::bridge::{ChangeAnswer, StoreRequest};
use carom_limits::{RETAG_BATCH_LEN, RETAG_TIME_MAX};
use carom_model::access::Role;
use carom_model::link::labels::Tags;
use carom_model::link::patch::{Patch, Retag};
use carom_model::query::{Cursor, Filter, ListPage};

/// A checked request to rename a tag.
#[derive(PartialEq, Eq, Debug)]
struct Renaming {
    old: String,
    new: String,
    /// True if links may have the new tag already.
    merge: bool,
}

/// Results of the changes so far.
#[derive(Default)]
struct Retagged {
    /// Links that have changed.
    changed: u64,
    /// Links that keep the old tag, because the new one does not fit.
    kept: u64,
}

impl Context {
    /// Handles `PUT /rest/v3/tags`: renames a tag.
    pub(in crate::api) async fn rename_tag(&self, request: Request<Incoming>) -> ApiResponse {
        answer(self.try_rename_tag(request).await)
    }

    async fn try_rename_tag(&self, request: Request<Incoming>) -> Result<(), Problem> {
        self.caller.require_on_all_domains(Role::WriteAll).map_err(Problem::of_tags)?;
        let fields = read_object(&self.services, request).await?;
        let Renaming { old, new, merge } = read(&fields).map_err(|invalid| Problem::invalid(&invalid))?;
        if !self.has_tag(&old).await? {
            return Err(Problem::no_tag(&old));
        }
        if old == new {
            return Ok(());
        }
        if !merge && self.has_tag(&new).await? {
            return Err(Problem::tag_conflict(&old, &new));
        }
        let retagged = self.retag(Retag { removed: vec![old], added: Some(new.clone()) }).await?;
        if retagged.kept > 0 { Err(Problem::tag_too_long(retagged.kept, &new)) } else { Ok(()) }
    }

    /// Handles `DELETE /rest/v3/tags`: removes tags from all links. Unknown tags are ignored, as in Shlink.
    pub(in crate::api) async fn delete_tags(&self, query: Option<&str>) -> ApiResponse {
        answer(self.try_delete_tags(query).await)
    }

    async fn try_delete_tags(&self, query: Option<&str>) -> Result<(), Problem> {
        self.caller.require_on_all_domains(Role::WriteAll).map_err(Problem::of_tags)?;
        let params = Params::of(query);
        let invalid = |reason: String| Problem::invalid(&[Invalid::new("tags", reason)]);
        let tags = Tags::of(params.list("tags")).map_err(|error| invalid(error.to_string()))?;
        let removed: Vec<String> = tags.iter().map(str::to_owned).collect();
        if removed.is_empty() {
            return Err(invalid("is missing; expected the tags to delete".to_owned()));
        }
        self.retag(Retag { removed, added: None }).await.map(|_| ())
    }

    /// True if a link that the caller may see has the tag.
    ///
    /// # Errors
    /// 503 if the links cannot be listed now.
    pub(super) async fn has_tag(&self, tag: &str) -> Result<bool, Problem> {
        self.tagged(&[tag.to_owned()], 1, None).await.map(|page| !page.links.is_empty())
    }

    /// Returns links with any of these tags, the oldest first.
    async fn tagged(&self, tags: &[String], per_page: usize, cursor: Option<Cursor>) -> Result<ListPage, Problem> {
        let filter = Filter { scope: self.caller.scope(), tags: tags.to_vec(), ..Filter::default() };
        self.matching(filter, per_page, cursor).await
    }

    /// Changes the tags of all links that have one of the removed tags.
    ///
    /// # Errors
    /// 503 if some links have not changed. A retry continues.
    async fn retag(&self, retag: Retag) -> Result<Retagged, Problem> {
        let long = self.services.begin_long(LongKind::Bulk, self.caller.name());
        let long = long.map_err(|too_many| Problem::too_many_long("bulk requests", too_many))?;
        let began_ms = self.services.unix_ms();
        let mut retagged = Retagged::default();
        let mut cursor = None;
        loop {
            let page = self.tagged(&retag.removed, RETAG_BATCH_LEN, cursor).await;
            let page = page.map_err(|problem| Problem::tags_half_changed(retagged.changed, &problem.detail()))?;
            self.retag_page(&retag, &page, &mut retagged).await?;
            // A link that is created with the tag meanwhile is younger, so it comes later.
            cursor = page.next;
            if cursor.is_none() {
                return Ok(retagged);
            }
            let is_late = self.services.unix_ms().saturating_sub(began_ms) > RETAG_TIME_MAX.as_millis() as u64;
            let must_end = poll_fn(|context| std::task::Poll::Ready(long.must_end(context))).await;
            if is_late || must_end || !self.still_holds() {
                let why = if is_late { "the time limit of one request has passed" } else { "the request had to end" };
                return Err(Problem::tags_half_changed(retagged.changed, why));
            }
        }
    }

    /// Changes the tags of the links of a page, in one batch.
    async fn retag_page(&self, retag: &Retag, page: &ListPage, retagged: &mut Retagged) -> Result<(), Problem> {
        let (by, author) = (self.caller.scope(), self.author());
        let answers = self.services.store_all(page.links.len(), |at, ticket| {
            let patch = Box::new(Patch { retag: Some(retag.clone()), ..Patch::default() });
            StoreRequest::Change { code: page.links[at].code, patch, by: by.clone(), author: author.clone(), ticket }
        });
        let mut first_failure = None;
        for (link, answer) in page.links.iter().zip(answers.await) {
            // The link has been deleted meanwhile.
            if answer == ChangeAnswer::NotFound {
                continue;
            }
            match changed(answer, &link.code.as_slug().to_string()) {
                Ok(link) if retag.affects(&link.labels.tags) => retagged.kept += 1,
                Ok(_) => retagged.changed += 1,
                Err(problem) => _ = first_failure.get_or_insert_with(|| problem.detail()),
            }
        }
        match first_failure {
            Some(why) => Err(Problem::tags_half_changed(retagged.changed, why.trim_end_matches('.'))),
            None => Ok(()),
        }
    }
}

fn answer(result: Result<(), Problem>) -> ApiResponse {
    result.map_or_else(Problem::into_answer, |()| empty(StatusCode::NO_CONTENT))
}

/// Reads the fields of a rename.
///
/// # Errors
/// Every field that is invalid, with the reason.
fn read(fields: &Map<String, Value>) -> Result<Renaming, Vec<Invalid>> {
    let mut invalid = Vec::new();
    let mut tag = |name: &str| {
        let text = match fields.get(name) {
            None | Some(Value::Null) => Err("is missing; expected the name of a tag".to_owned()),
            Some(value) => value.as_str().ok_or_else(|| "must be a string".to_owned()),
        };
        let tags = text.and_then(|text| Tags::of([text]).map_err(|error| error.to_string()));
        match tags {
            Ok(tags) => Some(tags.joined().to_owned()),
            Err(reason) => {
                invalid.push(Invalid::new(name, reason));
                None
            }
        }
    };
    let (old, new) = (tag("oldName"), tag("newName"));
    let merge = match fields.get("merge") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(merge)) => *merge,
        Some(other) => {
            invalid.push(Invalid::value("merge", "must be true or false", other));
            false
        }
    };
    let known = ["oldName", "newName", "merge"];
    let unknown = fields.keys().filter(|name| !known.contains(&name.as_str()));
    invalid.extend(unknown.map(|name| Invalid::new(name, "is not a known field")));
    match (old, new) {
        (Some(old), Some(new)) if invalid.is_empty() => Ok(Renaming { old, new, merge }),
        _ => Err(invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read_value(body: &Value) -> Result<Renaming, Vec<String>> {
        read(body.as_object().unwrap()).map_err(|invalid| invalid.into_iter().map(|one| one.field).collect())
    }

    #[test]
    fn renames_are_read_strictly() {
        let (old, new) = ("old-one".to_owned(), "new".to_owned());
        let plain = read_value(&json!({"oldName": "Old one", "newName": " NEW "}));
        assert_eq!(plain, Ok(Renaming { old: old.clone(), new: new.clone(), merge: false }));
        let merged = read_value(&json!({"oldName": "old-one", "newName": "new", "merge": true}));
        assert_eq!(merged, Ok(Renaming { old, new, merge: true }));
        let wrong = read_value(&json!({"oldName": 1, "newName": " ", "merge": 1, "colour": "red"}));
        assert_eq!(wrong.unwrap_err(), ["oldName", "newName", "merge", "colour"]);
        assert_eq!(read_value(&json!({})).unwrap_err(), ["oldName", "newName"]);
    }
}
