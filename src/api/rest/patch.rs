//! Reads a request to change a link. Absent fields keep their values; `null` removes a value, but keeps the
//! destination.

use serde_json::{Map, Value};

use super::create::{self, Bounds, cache_seconds, flag, instant, long_url, max_visits, redirect_status, tags, title};
use crate::api::problem::Invalid;
use carom_model::link::labels::Tags;
use carom_model::link::patch::Patch;

/// Fields that only a create may set.
const LASTING: &[&str] = &["customSlug", "shortCode", "private", "findIfExists", "dateCreated", "domain"];

/// Reads the fields of the body.
///
/// # Errors
/// Every field that is invalid, with the reason.
pub(in crate::api) fn read(fields: &Map<String, Value>, bounds: &Bounds<'_>) -> Result<Patch, Vec<Invalid>> {
    let mut patch = Patch::default();
    let mut invalid = bounds.refused_by_shared_home(fields);
    for (name, value) in fields {
        if let Err(reason) = take(&mut patch, name, value, bounds) {
            invalid.push(if create::is_known(name) && !LASTING.contains(&name.as_str()) {
                Invalid::value(name, &reason, value)
            } else {
                Invalid::new(name, reason)
            });
        }
    }
    if invalid.is_empty() { Ok(patch) } else { Err(invalid) }
}

fn take(patch: &mut Patch, name: &str, value: &Value, bounds: &Bounds<'_>) -> Result<(), String> {
    // Forms send an empty string for a cleared field.
    let is_empty = value.is_null() || value == "";
    match name {
        "longUrl" if value.is_null() => {}
        "longUrl" => patch.target = Some(long_url(Some(value), bounds)?.into()),
        "redirectStatus" if value.is_null() => patch.status = Some(Default::default()),
        "redirectStatus" => patch.status = Some(redirect_status(value)?),
        "cacheSeconds" if value.is_null() => patch.cache_seconds = Some(None),
        "cacheSeconds" => patch.cache_seconds = Some(Some(cache_seconds(value)?)),
        "validSince" if is_empty => patch.valid_since_ms = Some(None),
        "validSince" => patch.valid_since_ms = Some(Some(instant(value)?)),
        "validUntil" if is_empty => patch.valid_until_ms = Some(None),
        "validUntil" => patch.valid_until_ms = Some(Some(instant(value)?)),
        "maxVisits" if is_empty => patch.max_visits = Some(None),
        "maxVisits" => patch.max_visits = Some(Some(max_visits(value)?)),
        "crawlable" if value.is_null() => patch.crawlable = Some(false),
        "crawlable" => patch.crawlable = Some(flag(value)?),
        "title" if is_empty => patch.title = Some(None),
        "title" => patch.title = Some(title(value)?),
        "tags" if value.is_null() => patch.tags = Some(Tags::default()),
        "tags" => patch.tags = Some(tags(value)?),
        "forwardQuery" if value.is_null() => patch.forward_query = Some(true),
        "forwardQuery" => patch.forward_query = Some(flag(value)?),
        "archived" if value.is_null() => patch.archived = Some(false),
        "archived" => patch.archived = Some(flag(value)?),
        "domain" if is_empty => {}
        _ if LASTING.contains(&name) => {
            return Err("cannot be changed; create another link".to_owned());
        }
        _ => create::neutral(name, value)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: &Value) -> Result<Patch, Vec<String>> {
        super::read(body.as_object().unwrap(), &Bounds::default())
            .map_err(|invalid| invalid.into_iter().map(|one| one.field).collect())
    }

    #[test]
    fn fields_are_changed_taken_away_or_left() {
        assert_eq!(read(&json!({})), Ok(Patch::default()));
        let some =
            read(&json!({"longUrl": "HTTP://B", "validSince": null, "title": "", "tags": ["X"], "archived": true,
            "maxVisits": null}));
        let expected = Patch {
            target: Some("http://b/".to_owned()),
            valid_since_ms: Some(None),
            title: Some(None),
            tags: Some(Tags::of(["x"]).unwrap()),
            archived: Some(true),
            max_visits: Some(None),
            ..Patch::default()
        };
        assert_eq!(some, Ok(expected));
        // As in Shlink, which does not take these fields away.
        let none = read(&json!({"longUrl": null, "crawlable": null, "forwardQuery": null, "archived": null}));
        let flags = Patch { crawlable: Some(false), forward_query: Some(true), ..Patch::default() };
        let expected = Patch { archived: Some(false), ..flags };
        assert_eq!(none, Ok(expected));
    }

    #[test]
    fn every_wrong_field_is_named() {
        let wrong = read(&json!({"longUrl": 7, "customSlug": "a", "private": true, "archived": "", "tags": "a",
            "validUntil": "x", "colour": 1, "maxVisits": 0, "domain": "a"}));
        let fields =
            ["archived", "colour", "customSlug", "domain", "longUrl", "maxVisits", "private", "tags", "validUntil"];
        assert_eq!(wrong.unwrap_err(), fields);
    }
}
