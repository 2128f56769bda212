//! Changes of many links: what a request may ask for, and how a batch of links gets it.
//!
//! [`super::changes`] takes one change per line, [`super::matching`] one for all links that match a filter. Both
//! send a batch to the writer, wait for its answers, and write one result for each link, so a request holds one batch in
//! memory. A repeated request finds the links as they are, so it continues one that ended early.

use carom_shards::Code;
use serde_json::{Map, Value};

use super::report::push_link;
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::rest::create::RequestLimits;
use crate::api::rest::patch;
use crate::api::rest::short_urls::{changed, starts_too_late, write_failed};
use crate::bridge::{ChangeAnswer, DeleteAnswer, StoreRequest};
use carom_model::domains::DomainName;
use carom_model::link::Link;
use carom_model::link::labels::Tags;
use carom_model::link::patch::{Patch, StartNotBeforeEnd, TagEdit};

/// A change that a request asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::api) enum BulkEdit {
    /// Delete the link.
    Delete,
    /// Change some fields, or add and remove tags.
    Change(Box<Patch>),
}

/// Fields of a change.
const EDIT_FIELDS: [&str; 4] = ["delete", "change", "addTags", "removeTags"];

/// A link to edit.
pub(in crate::api::rest) struct EditTarget {
    pub(in crate::api::rest) code: Code,
    pub(in crate::api::rest) domain: Option<DomainName>,
    pub(in crate::api::rest) edit: BulkEdit,
}

impl EditTarget {
    /// Returns the edit of a known link.
    pub(in crate::api::rest) fn of(link: &Link, edit: BulkEdit) -> EditTarget {
        EditTarget { code: link.code, domain: link.labels.domain.clone(), edit }
    }

    pub(in crate::api::rest) fn slug(&self) -> String {
        self.code.as_slug().to_string()
    }

    /// Appends the result of this link.
    pub(in crate::api::rest) fn report(&self, line: u64, result: Result<(), Problem>, out: &mut Vec<u8>) {
        push_link(line, self.code, self.domain.as_ref(), result.map(|()| false), out);
    }
}

impl BulkEdit {
    /// Reads a change from the fields of a request; other fields are for the caller.
    ///
    /// # Errors
    /// Every field that is invalid, with the reason.
    pub(in crate::api) fn read(
        fields: &Map<String, Value>,
        bounds: &RequestLimits<'_>,
    ) -> Result<BulkEdit, Vec<Invalid>> {
        let mut invalid = Vec::new();
        let mut patch = Patch::default();
        match fields.get("change") {
            None | Some(Value::Null) => {}
            Some(Value::Object(change)) => match patch::read(change, bounds) {
                Ok(read) => patch = read,
                Err(wrong) => invalid.extend(wrong),
            },
            Some(other) => invalid.push(Invalid::value("change", "must be an object with fields of a link", other)),
        }
        let mut edit = TagEdit::default();
        for (name, list) in [("addTags", &mut edit.added), ("removeTags", &mut edit.removed)] {
            match fields.get(name).filter(|value| !value.is_null()).map(tags_of) {
                None => {}
                Some(Ok(tags)) => *list = tags,
                Some(Err(reason)) => invalid.push(Invalid::new(name, reason)),
            }
        }
        patch.tag_edit = (!edit.added.is_empty() || !edit.removed.is_empty()).then_some(edit);
        let deletes = match fields.get("delete") {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Bool(true)) => true,
            Some(other) => {
                invalid.push(Invalid::value("delete", "must be true or false", other));
                false
            }
        };
        if deletes && EDIT_FIELDS[1..].iter().any(|name| fields.contains_key(*name)) {
            invalid.push(Invalid::new("delete", "excludes change, addTags and removeTags"));
        }
        if !EDIT_FIELDS.iter().any(|name| fields.contains_key(*name)) {
            invalid.push(Invalid::new("change", "is missing; expected change, addTags, removeTags or delete"));
        }
        match (invalid.is_empty(), deletes) {
            (false, _) => Err(invalid),
            (true, true) => Ok(BulkEdit::Delete),
            (true, false) => Ok(BulkEdit::Change(Box::new(patch))),
        }
    }

    /// Adds every field that is neither part of a change nor one of `others`.
    pub(in crate::api::rest) fn refuse_unknown(
        fields: &Map<String, Value>,
        others: &[&str],
        invalid: &mut Vec<Invalid>,
    ) {
        let is_known = |name: &str| EDIT_FIELDS.contains(&name) || others.contains(&name);
        let unknown = fields.keys().filter(|name| !is_known(name));
        invalid.extend(unknown.map(|name| Invalid::new(name, "is not a known field")));
    }

    fn is_delete(&self) -> bool {
        *self == BulkEdit::Delete
    }

    /// Returns the result that the edit of a link would have.
    ///
    /// # Errors
    /// The problem that it would meet.
    pub(in crate::api::rest) fn check(&self, link: &Link) -> Result<(), Problem> {
        let BulkEdit::Change(patch) = self else { return Ok(()) };
        match patch.apply(link) {
            Ok(link) if self.lacks_room(&link) => Err(Problem::no_room_for_tags(&link.code.as_slug().to_string())),
            Ok(_) => Ok(()),
            Err(StartNotBeforeEnd) => Err(starts_too_late()),
        }
    }

    /// True if the edit has not the effect that it names, because the tags of the link have no room.
    fn lacks_room(&self, link: &Link) -> bool {
        let BulkEdit::Change(patch) = self else { return false };
        let Some(edit) = &patch.tag_edit else { return false };
        edit.added.iter().any(|tag| !link.labels.tags.iter().any(|one| one == tag))
    }
}

/// Reads a list of tags into their normal form.
fn tags_of(value: &Value) -> Result<Vec<String>, String> {
    let texts = value.as_array().and_then(|items| items.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    let texts = texts.ok_or_else(|| "must be an array of strings".to_owned())?;
    let tags = Tags::of(texts).map_err(|error| error.to_string())?;
    Ok(tags.iter().map(str::to_owned).collect())
}

impl Context {
    /// Edits links in their order. Returns the result of each. Neighbours with the same kind of change are one batch,
    /// so a deletion waits for the changes before it.
    pub(in crate::api::rest) async fn edit_all(&self, targets: &[&EditTarget]) -> Vec<Result<(), Problem>> {
        let mut results = Vec::with_capacity(targets.len());
        for batch in targets.chunk_by(|one, next| one.edit.is_delete() == next.edit.is_delete()) {
            results.extend(match batch[0].edit {
                BulkEdit::Delete => self.delete_batch(batch).await,
                BulkEdit::Change(_) => self.change_batch(batch).await,
            });
        }
        results
    }

    async fn delete_batch(&self, targets: &[&EditTarget]) -> Vec<Result<(), Problem>> {
        let (by, author) = (self.caller.scope(), self.author());
        let answers = self.services.store_all(targets.len(), |at, ticket| StoreRequest::Delete {
            code: targets[at].code,
            by: by.clone(),
            author: author.clone(),
            ticket,
        });
        let result = |(target, answer): (&&EditTarget, DeleteAnswer)| match answer {
            DeleteAnswer::Deleted => Ok(()),
            DeleteAnswer::NotFound => Err(Problem::no_link(&target.slug())),
            DeleteAnswer::Failed(failure) => Err(write_failed(&failure)),
        };
        targets.iter().zip(answers.await).map(result).collect()
    }

    async fn change_batch(&self, targets: &[&EditTarget]) -> Vec<Result<(), Problem>> {
        let (by, author) = (self.caller.scope(), self.author());
        let answers = self.services.store_all(targets.len(), |at, ticket| {
            let patch = match &targets[at].edit {
                BulkEdit::Change(patch) => patch.clone(),
                BulkEdit::Delete => Box::default(),
            };
            StoreRequest::Change { code: targets[at].code, patch, by: by.clone(), author: author.clone(), ticket }
        });
        let result = |(target, answer): (&&EditTarget, ChangeAnswer)| {
            let link = changed(answer, &target.slug())?;
            if target.edit.lacks_room(&link) { Err(Problem::no_room_for_tags(&target.slug())) } else { Ok(()) }
        };
        targets.iter().zip(answers.await).map(result).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(body: &Value) -> Result<BulkEdit, Vec<String>> {
        let read = BulkEdit::read(body.as_object().unwrap(), &RequestLimits::default());
        read.map_err(|invalid| invalid.into_iter().map(|one| one.field).collect())
    }

    #[test]
    fn changes_tags_and_deletes_are_read() {
        assert_eq!(read(&json!({"delete": true})), Ok(BulkEdit::Delete));
        let Ok(BulkEdit::Change(patch)) =
            read(&json!({"change": {"title": "T"}, "addTags": ["New one", "b"], "removeTags": ["C"], "delete": false}))
        else {
            panic!("refused")
        };
        let edit = TagEdit { added: vec!["b".into(), "new-one".into()], removed: vec!["c".into()] };
        let expected = Patch { title: Some(Some("T".into())), tag_edit: Some(edit), ..Patch::default() };
        assert_eq!(*patch, expected);
        let nothing = BulkEdit::Change(Box::default());
        assert_eq!(read(&json!({"change": {}, "addTags": [], "removeTags": null, "delete": false})), Ok(nothing));
    }

    #[test]
    fn contradictions_are_named() {
        for (body, fields) in [
            (json!({}), &["change"][..]),
            (json!({"delete": true, "addTags": ["a"]}), &["delete"]),
            (json!({"delete": 1, "change": [1], "addTags": "a"}), &["change", "addTags", "delete"]),
            (json!({"change": {"customSlug": "a", "colour": 1}}), &["colour", "customSlug"]),
        ] {
            let mut wrong = read(&body).unwrap_err();
            wrong.sort_by_key(|name| fields.iter().position(|field| field == name));
            assert_eq!(wrong, fields, "{body}");
        }
        let mut invalid = Vec::new();
        let fields = json!({"shortCode": "a", "delete": true, "colour": 1});
        BulkEdit::refuse_unknown(fields.as_object().unwrap(), &["shortCode"], &mut invalid);
        assert_eq!(invalid.into_iter().map(|one| one.field).collect::<Vec<_>>(), ["colour"]);
    }

    proptest! {
        #[test]
        fn any_values_are_taken_or_refused(
            name in proptest::sample::select(EDIT_FIELDS.to_vec()),
            value in proptest::sample::select(vec![json!(null), json!(true), json!([]), json!([null]), json!(["a", 1]),
                json!({}), json!({"title": 1}), json!(["\u{0}"]), json!(-1), json!(["a"])]),
        ) {
            let _ = read(&json!({name: value, "addTags": ["z"]}));
            let _ = read(&json!({name: value}));
        }
    }
}
