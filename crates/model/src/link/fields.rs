//! The fields of a link in JSON. Creates, changes, imports into a running service and imports into a data directory
//! read them here, so that a field has the same name and the same bounds in all of them.
//!
//! A reader of a value returns the reason why the value is invalid, as a text that follows the name of the field.
//! Slugs and domains have readers elsewhere, because settings and permissions decide on them. [`super::rules::json`]
//! reads redirect rules. Pure.

use std::num::NonZeroU32;

use carom_shards::RedirectStatus;
use serde_json::{Map, Value};

use crate::access::{APP_VERSION_LEN_MAX, AppName, is_app_version};
use crate::destination::long_url::{Authority, LongUrl, LongUrlError};
use crate::formats::dates;
use crate::link::earlier_visits::EarlierVisits;
use crate::link::labels::{self, Tags};
use crate::link::patch::Patch;

/// The name of the field with the destination.
pub const LONG_URL: &str = "longUrl";

/// The name of the field with the redirect rules.
pub const REDIRECT_RULES: &str = "redirectRules";

/// Upper limit of the seconds for which clients may cache a redirect: the largest that HTTP caches understand (RFC
/// 9111, section 1.2.2).
pub const CACHE_SECONDS_MAX: u64 = 2_147_483_647;

/// Longest invalid value that a reason repeats, in bytes of its JSON.
const VALUE_LEN_MAX: usize = 64;

/// Fields that lists of links have in `meta`, as Shlink does.
const META_FIELDS: [&str; 3] = ["validSince", "validUntil", "maxVisits"];

/// All optional fields of a link that both a create and a change may have.
pub const LINK_FIELDS: &[LinkField] = &[
    LinkField {
        name: "validSince",
        may_be_empty: true,
        read: |value, patch| optional(value, instant).map(|ms| patch.valid_since_ms = Some(ms)),
    },
    LinkField {
        name: "validUntil",
        may_be_empty: true,
        read: |value, patch| optional(value, instant).map(|ms| patch.valid_until_ms = Some(ms)),
    },
    LinkField {
        name: "redirectStatus",
        may_be_empty: false,
        read: |value, patch| or_default(value, redirect_status).map(|status| patch.status = Some(status)),
    },
    LinkField {
        name: "cacheSeconds",
        may_be_empty: false,
        read: |value, patch| optional(value, cache_seconds).map(|seconds| patch.cache_seconds = Some(seconds)),
    },
    LinkField {
        name: "title",
        may_be_empty: true,
        read: |value, patch| or_default(value, title).map(|title| patch.title = Some(title)),
    },
    LinkField {
        name: "tags",
        may_be_empty: false,
        read: |value, patch| or_default(value, tags).map(|tags| patch.tags = Some(tags)),
    },
    LinkField {
        name: "forwardQuery",
        may_be_empty: false,
        read: |value, patch| value.map_or(Ok(true), flag).map(|wanted| patch.forward_query = Some(wanted)),
    },
    LinkField {
        name: "archived",
        may_be_empty: false,
        read: |value, patch| or_default(value, flag).map(|wanted| patch.archived = Some(wanted)),
    },
    LinkField {
        name: "maxVisits",
        may_be_empty: true,
        read: |value, patch| optional(value, max_visits).map(|visits| patch.max_visits = Some(visits)),
    },
    LinkField {
        name: "crawlable",
        may_be_empty: false,
        read: |value, patch| or_default(value, flag).map(|wanted| patch.crawlable = Some(wanted)),
    },
];

/// The reason why the value of a field is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldFault {
    /// A text that follows the name of the field.
    pub reason: String,
    /// The kind of the fault; `None` if programs need not recognise it.
    pub kind: Option<FaultKind>,
}

/// A kind of faults that programs can recognise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// A relative URL, such as `example.org`, in a field for an absolute one.
    RelativeUrl,
}

impl FaultKind {
    /// Returns the name of the kind in the errors of the API.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::RelativeUrl => "relative-url",
        }
    }
}

impl From<String> for FieldFault {
    fn from(reason: String) -> FieldFault {
        FieldFault { reason, kind: None }
    }
}

impl From<&str> for FieldFault {
    fn from(reason: &str) -> FieldFault {
        FieldFault::from(reason.to_owned())
    }
}

impl From<LongUrlError> for FieldFault {
    fn from(error: LongUrlError) -> FieldFault {
        FieldFault { reason: error.to_string(), kind: error.is_relative().then_some(FaultKind::RelativeUrl) }
    }
}

/// An optional field of a link.
#[derive(Debug)]
pub struct LinkField {
    /// The name in JSON.
    pub name: &'static str,
    /// True if an empty string means the same as `null`: forms send it for a field that was left empty.
    may_be_empty: bool,
    /// Reads a value into a patch; `None` resets the field to the value of a new link.
    read: fn(Option<&Value>, &mut Patch) -> Result<(), String>,
}

impl LinkField {
    /// Returns the field with this name; `None` if links have no such field.
    pub fn named(name: &str) -> Option<&'static LinkField> {
        LINK_FIELDS.iter().find(|field| field.name == name)
    }

    /// Reads a value into a patch; `null` resets the field to the value of a new link.
    ///
    /// # Errors
    /// The reason why the value is invalid.
    pub fn read(&self, value: &Value, patch: &mut Patch) -> Result<(), String> {
        let is_absent = value.is_null() || self.may_be_empty && value == "";
        (self.read)(Some(value).filter(|_| !is_absent), patch)
    }
}

/// Adds a short value to the reason why it is invalid. A destination is left out, because it may have a password.
pub fn with_value(field: &str, reason: &str, value: &Value) -> String {
    let shown = value.to_string();
    if field != LONG_URL && shown.len() <= VALUE_LEN_MAX {
        format!("{reason} (got {shown})")
    } else {
        reason.to_owned()
    }
}

/// Moves the fields in `meta`, where lists of links have them, to the other fields, unless these have a value already.
pub fn unfold_meta(fields: &mut Map<String, Value>) {
    let mut meta = fields.remove("meta").unwrap_or_default();
    for name in META_FIELDS {
        if fields.get(name).is_none_or(Value::is_null)
            && let Some(value) = meta.get_mut(name)
        {
            fields.insert(name.to_owned(), value.take());
        }
    }
}

/// Reads a destination. `own` lists the authorities of the service itself, which are no destinations.
///
/// # Errors
/// The reason why it is invalid, or that it is missing.
pub fn destination(value: Option<&Value>, own: &[Authority]) -> Result<LongUrl, FieldFault> {
    match value {
        None | Some(Value::Null) => Err("is missing; expected the URL to shorten".into()),
        Some(value) => Ok(LongUrl::parse(text(value)?, own)?),
    }
}

/// Reads a string.
///
/// # Errors
/// The reason why it is invalid.
pub fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "must be a string".to_owned())
}

/// Reads true or false.
///
/// # Errors
/// The reason why it is invalid.
pub fn flag(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "must be true or false".to_owned())
}

/// Returns the integer that a JSON number stands for, also if it is written as `3.0`: JSON has one kind of numbers.
pub fn whole_number(value: &Value) -> Option<u64> {
    let is_whole = |number: &f64| number.fract() == 0.0 && (0.0..=u32::MAX as f64).contains(number);
    value.as_u64().or_else(|| value.as_f64().filter(is_whole).map(|number| number as u64))
}

/// Reads a date and time with an offset. Returns it in milliseconds since 1970 UTC.
///
/// # Errors
/// The reason why it is invalid.
pub fn instant(value: &Value) -> Result<u64, String> {
    let text = value.as_str().ok_or("must be a string such as \"2027-01-31T12:00:00+00:00\"")?;
    dates::parse(text).map_err(|error| error.to_string())
}

/// Reads the name of an app.
///
/// # Errors
/// The reason why it is invalid.
pub fn app_name(value: &Value) -> Result<AppName, String> {
    AppName::parse(text(value)?).map_err(|error| error.to_string())
}

/// Reads the version that an app reports of itself.
///
/// # Errors
/// The reason why it is invalid.
pub fn app_version(value: &Value) -> Result<String, String> {
    let text = value.as_str().filter(|text| is_app_version(text)).map(str::to_owned);
    text.ok_or_else(|| format!("must be a string of 1 to {APP_VERSION_LEN_MAX} printable ASCII characters"))
}

/// Reads the visits that a link had before its import; `None` if it had none.
///
/// # Errors
/// The reason why they are invalid.
pub fn earlier_visits(value: &Value) -> Result<Option<EarlierVisits>, String> {
    let number = |name: &str| match value.get(name) {
        None | Some(Value::Null) => Some(0),
        Some(number) => whole_number(number),
    };
    let counts = if value.is_object() { number("total").zip(number("bots")) } else { None };
    let (total, bots) = counts.ok_or("must be an object with total and bots, as whole numbers from 0")?;
    Ok(EarlierVisits::new(total, bots))
}

/// Reads a value, if there is one.
fn optional<T>(value: Option<&Value>, read: fn(&Value) -> Result<T, String>) -> Result<Option<T>, String> {
    value.map(read).transpose()
}

/// Reads a value, or returns the default without one.
fn or_default<T: Default>(value: Option<&Value>, read: fn(&Value) -> Result<T, String>) -> Result<T, String> {
    value.map_or_else(|| Ok(T::default()), read)
}

fn redirect_status(value: &Value) -> Result<RedirectStatus, String> {
    let number = whole_number(value).and_then(RedirectStatus::from_number);
    number.ok_or_else(|| "must be one of 301, 302, 303, 307, 308".to_owned())
}

fn cache_seconds(value: &Value) -> Result<u32, String> {
    let seconds = whole_number(value).filter(|&seconds| seconds <= CACHE_SECONDS_MAX).map(|seconds| seconds as u32);
    seconds.ok_or_else(|| format!("must be a whole number from 0 to {CACHE_SECONDS_MAX}"))
}

fn max_visits(value: &Value) -> Result<NonZeroU32, String> {
    let visits = whole_number(value).and_then(|visits| u32::try_from(visits).ok()).and_then(NonZeroU32::new);
    visits.ok_or_else(|| format!("must be a whole number from 1 to {}", u32::MAX))
}

fn title(value: &Value) -> Result<Option<String>, String> {
    labels::title(text(value)?).map_err(|error| error.to_string())
}

fn tags(value: &Value) -> Result<Tags, String> {
    let list = value.as_array().map(|list| list.iter().map(Value::as_str).collect::<Option<Vec<&str>>>());
    let list = list.flatten().ok_or("must be a list of strings")?;
    Tags::of(list).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::labels::LinkLabels;
    use carom_shards::Policy;
    use serde_json::json;

    /// A value of each field that a new link does not have.
    fn values() -> Map<String, Value> {
        let values = json!({
            "validSince": "2026-01-31T12:00:00+01:00", "validUntil": "2027-01-31T12:00:00+01:00", "redirectStatus": 308,
            "cacheSeconds": 60, "title": " T ", "tags": ["b", "A"], "forwardQuery": false, "archived": true,
            "maxVisits": 7, "crawlable": true,
        });
        values.as_object().unwrap().clone()
    }

    /// Returns the policy and labels of a new link with these fields.
    fn new_link(patch: &Patch) -> (Policy, LinkLabels) {
        let (mut policy, mut labels) = (Policy { forward_query: true, ..Policy::default() }, LinkLabels::default());
        patch.set_fields(&mut policy, &mut labels);
        (policy, labels)
    }

    #[test]
    fn each_field_is_read_and_reset() {
        let mut all = Patch::default();
        for field in LINK_FIELDS {
            let mut patch = Patch::default();
            field.read(&values()[field.name], &mut patch).unwrap();
            assert_ne!(new_link(&patch), new_link(&Patch::default()), "{}", field.name);
            field.read(&values()[field.name], &mut all).unwrap();
            field.read(&Value::Null, &mut patch).unwrap();
            assert_ne!(patch, Patch::default(), "{}", field.name);
            assert_eq!(new_link(&patch), new_link(&Patch::default()), "{}", field.name);
        }
        let (policy, labels) = new_link(&all);
        assert_eq!((policy.valid_since_ms, policy.valid_until_ms), (Some(1_769_857_200_000), Some(1_801_393_200_000)));
        assert_eq!((policy.status, policy.cache_seconds), (RedirectStatus::PermanentRedirect, Some(60)));
        assert_eq!((policy.forward_query, policy.archived, policy.max_visits), (false, true, NonZeroU32::new(7)));
        assert_eq!((labels.title.as_deref(), labels.tags.joined(), labels.crawlable), (Some("T"), "a\nb", true));
    }

    #[test]
    fn an_empty_string_resets_fields_of_forms_only() {
        let taken = LINK_FIELDS.iter().filter(|field| field.read(&json!(""), &mut Patch::default()).is_ok());
        let names: Vec<&str> = taken.map(|field| field.name).collect();
        assert_eq!(names, ["validSince", "validUntil", "title", "maxVisits"]);
    }

    #[test]
    fn fields_in_meta_yield_to_the_others() {
        let mut fields = json!({"maxVisits": 9, "validUntil": null,
            "meta": {"validSince": null, "validUntil": "2030-01-01T00:00:00Z", "maxVisits": 7, "colour": "red"}});
        unfold_meta(fields.as_object_mut().unwrap());
        assert_eq!(fields, json!({"maxVisits": 9, "validUntil": "2030-01-01T00:00:00Z", "validSince": null}));
        let mut fields = json!({"meta": "text"});
        unfold_meta(fields.as_object_mut().unwrap());
        assert_eq!(fields, json!({}));
    }

    #[test]
    fn short_values_are_repeated_and_destinations_never() {
        assert_eq!(with_value("maxVisits", "is wrong", &json!(-1)), "is wrong (got -1)");
        assert_eq!(with_value("title", "is wrong", &json!("x".repeat(63))), "is wrong");
        assert_eq!(with_value(LONG_URL, "is wrong", &json!("http://me:word@a/")), "is wrong");
    }

    #[test]
    fn earlier_visits_are_whole_numbers() {
        assert_eq!(earlier_visits(&json!({"total": 12, "nonBots": 9, "bots": 3})), Ok(EarlierVisits::new(12, 3)));
        assert_eq!(earlier_visits(&json!({"total": 0.0, "bots": null})), Ok(None));
        for wrong in [json!(3), json!({"total": -1}), json!({"total": 1.5}), json!([])] {
            assert!(earlier_visits(&wrong).is_err(), "{wrong}");
        }
    }
}
