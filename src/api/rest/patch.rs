//! Reads a request to change a link. Absent fields keep their values; `null` removes a value, but keeps the
//! destination.

use serde_json::{Map, Value};

use super::create::{self, RequestLimits, long_url};
use crate::api::problem::Invalid;
use carom_model::link::fields::{FieldFault, LONG_URL, LinkField};
use carom_model::link::patch::Patch;

/// Fields that a link keeps as its create set them.
const LASTING: &[&str] = &["customSlug", "shortCode", "private", "findIfExists", "dateCreated", "domain"];

/// Reads the fields of the body.
///
/// # Errors
/// Every field that is invalid, with the reason.
pub(in crate::api) fn read(fields: &Map<String, Value>, bounds: &RequestLimits<'_>) -> Result<Patch, Vec<Invalid>> {
    let mut patch = Patch::default();
    let mut invalid = bounds.refused_by_shared_home(fields);
    for (name, value) in fields {
        if let Err(fault) = take(&mut patch, name, value, bounds) {
            invalid.push(if create::is_known(name) && !LASTING.contains(&name.as_str()) {
                Invalid::value(name, &fault.reason, value)
            } else {
                Invalid::fault(name, fault)
            });
        }
    }
    if invalid.is_empty() { Ok(patch) } else { Err(invalid) }
}

fn take(patch: &mut Patch, name: &str, value: &Value, bounds: &RequestLimits<'_>) -> Result<(), FieldFault> {
    if let Some(field) = LinkField::named(name) {
        return Ok(field.read(value, patch)?);
    }
    match name {
        LONG_URL if value.is_null() => Ok(()),
        LONG_URL => long_url(Some(value), bounds).map(|url| patch.target = Some(url.into())),
        // Forms send an empty string for a cleared field.
        "domain" if value.is_null() || value == "" => Ok(()),
        _ if LASTING.contains(&name) => Err("cannot be changed; create another link".into()),
        _ => Ok(create::require_neutral(name, value)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::link::labels::Tags;
    use serde_json::json;

    fn read(body: &Value) -> Result<Patch, Vec<String>> {
        super::read(body.as_object().unwrap(), &RequestLimits::default())
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
