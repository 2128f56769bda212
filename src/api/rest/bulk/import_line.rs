//! A line of an import: the fields of a create, and those that only an import may set.
//!
//! A line has the form of `carom import` and of exports. Its slug is `shortCode`, and it may say when the link was
//! created, by which app, and how many visits it had.

use carom_shards::Code;
use serde_json::{Map, Value};

use crate::api::problem::Invalid;
use crate::api::rest::create::{Create, RequestLimits, RequestedSlug, describes_link};
use crate::api::rest::rules;
use carom_model::link::fields::{REDIRECT_RULES, app_name, earlier_visits, flag, instant, unfold_meta};
use carom_model::link::rules::RedirectRules;
use carom_model::link::{Link, Origin, Version};

/// The field with the slug.
const SLUG: &str = "shortCode";

/// Reads the link of a line. Links without a creation date get `now_ms`, in milliseconds since 1970 UTC. The slug counts
/// as chosen by a client, even if another node has generated it.
///
/// # Errors
/// Every field that is invalid, with the reason.
pub(super) fn read(
    mut fields: Map<String, Value>,
    bounds: &RequestLimits<'_>,
    now_ms: u64,
) -> Result<Link, Vec<Invalid>> {
    let mut invalid = Vec::new();
    unfold_meta(&mut fields);
    let mut take = |name: &str| fields.remove(name).filter(|value| !value.is_null());
    let (slug, created, visits) = (take(SLUG), take("dateCreated"), take("visitsSummary"));
    let (rules, app, default_end) = (take(REDIRECT_RULES), take("app"), take("defaultEnd"));
    // Other fields are skipped, so that links can be read as any API of carom or Shlink returns them.
    fields.retain(|name, _| describes_link(name));
    let created_ms = checked("dateCreated", created, |value| past(value, now_ms), &mut invalid);
    let earlier_visits = checked("visitsSummary", visits, earlier_visits, &mut invalid).flatten();
    let rules = rules.map_or(Ok(RedirectRules::default()), |rules| rules::read_list(rules, bounds));
    let rules = rules.map_err(|wrong| invalid.extend(wrong)).unwrap_or_default();
    let app = checked("app", app, app_name, &mut invalid);
    let default_expiry = checked("defaultEnd", default_end, flag, &mut invalid).unwrap_or_default();
    let is_named = slug.as_ref().is_some_and(|slug| slug != "");
    match slug.filter(|_| is_named) {
        Some(slug) => _ = fields.insert("customSlug".to_owned(), slug),
        None => invalid.push(Invalid::new(SLUG, "is missing; expected the slug of the link")),
    }
    let create = Create::read(&fields, bounds).map_err(|wrong| invalid.extend(wrong.into_iter().map(renamed))).ok();
    let Some((Create { target, policy, mut labels, .. }, code)) =
        create.and_then(chosen).filter(|_| invalid.is_empty())
    else {
        return Err(invalid);
    };
    labels.default_expiry = default_expiry && policy.valid_until_ms.is_some();
    (labels.app, labels.rules, labels.earlier_visits) = (app, rules, earlier_visits);
    let code = code.within(labels.domain_id());
    let (created_ms, version) = (created_ms.unwrap_or(now_ms), Version::default());
    Ok(Link { code, policy, target: target.into(), created_ms, origin: Origin::Custom, version, labels })
}

/// Returns a create with the slug that the line chose; `None` if it chose none.
fn chosen(create: Create) -> Option<(Create, Code)> {
    match create.slug {
        Some(RequestedSlug::Chosen(code)) => Some((create, code)),
        Some(RequestedSlug::Random(_)) | None => None,
    }
}

/// Reads a field, if the line has it. Adds a field that is invalid to the list.
fn checked<T>(
    name: &str,
    value: Option<Value>,
    read: impl FnOnce(&Value) -> Result<T, String>,
    invalid: &mut Vec<Invalid>,
) -> Option<T> {
    let value = value?;
    read(&value).map_err(|reason| invalid.push(Invalid::value(name, &reason, &value))).ok()
}

/// Names the slug as the line does.
fn renamed(invalid: Invalid) -> Invalid {
    match invalid.field.as_str() {
        "customSlug" => Invalid { field: SLUG.to_owned(), ..invalid },
        _ => invalid,
    }
}

fn past(value: &Value, now_ms: u64) -> Result<u64, String> {
    // A visit before the creation of a link belongs to an earlier link with its slug.
    instant(value).and_then(|ms| if ms <= now_ms { Ok(ms) } else { Err("is in the future".to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::access::AppName;
    use carom_model::link::earlier_visits::EarlierVisits;
    use proptest::prelude::*;
    use serde_json::json;

    const NOW_MS: u64 = 1_800_000_000_000;

    fn line(body: &Value) -> Result<Link, Vec<String>> {
        let read = read(body.as_object().unwrap().clone(), &RequestLimits::default(), NOW_MS);
        read.map_err(|invalid| invalid.into_iter().map(|one| one.field).collect())
    }

    #[test]
    fn what_a_shortener_tells_is_kept() {
        let rule = json!({"longUrl": "https://b.example/", "priority": 1,
            "conditions": [{"type": "device", "matchKey": null, "matchValue": "ios"}]});
        let link = line(&json!({"shortCode": "sale", "longUrl": "https://a.example/", "dateCreated": "2025-06-01T12:00:00.123Z",
            "visitsSummary": {"total": 12, "nonBots": 9, "bots": 3}, "app": "shop", "origin": "issued", "tags": ["b", "a"],
            "redirectRules": [rule], "maxVisits": 20, "validUntil": null, "defaultEnd": null, "domain": null}))
        .unwrap();
        assert_eq!((link.code, link.origin), (Code::parse(b"sale").unwrap(), Origin::Custom));
        assert_eq!(link.created_ms, 1_748_779_200_123);
        assert_eq!(link.labels.earlier_visits, EarlierVisits::new(12, 3));
        assert_eq!((link.labels.app, link.labels.tags.joined()), (AppName::parse("shop").ok(), "a\nb"));
        assert!(!link.labels.rules.is_empty());
        assert!(link.policy.forward_query);
        let plain = line(&json!({"shortCode": "a", "longUrl": "http://a/", "visitsSummary": {"total": 0.0}})).unwrap();
        assert_eq!((plain.created_ms, plain.labels.earlier_visits, plain.labels.app), (NOW_MS, None, None));
    }

    #[test]
    fn every_wrong_field_of_a_line_is_named() {
        for (body, wrong) in [
            (json!({"longUrl": "http://a/"}), &["shortCode"][..]),
            (json!({"longUrl": "http://a/", "shortCode": ""}), &["shortCode"]),
            (json!({"longUrl": "http://a/", "shortCode": "a/b"}), &["shortCode"]),
            (
                json!({"longUrl": "http://a/", "shortCode": "a", "dateCreated": "2100-01-01T00:00:00Z"}),
                &["dateCreated"],
            ),
            (json!({"longUrl": "http://a/", "shortCode": "a", "visitsSummary": 3}), &["visitsSummary"]),
            (json!({"longUrl": "http://a/", "shortCode": "a", "visitsSummary": {"total": -1}}), &["visitsSummary"]),
            (json!({"longUrl": "http://a/", "shortCode": "a", "visitsSummary": {"total": 1.5}}), &["visitsSummary"]),
            (
                json!({"shortCode": "a", "app": "A b", "redirectRules": 1, "title": 2}),
                &["redirectRules", "app", "longUrl", "title"],
            ),
        ] {
            assert_eq!(line(&body).unwrap_err(), wrong, "{body}");
        }
    }

    #[test]
    fn links_of_lists_are_read_and_other_fields_skipped() {
        let link =
            line(&json!({"shortCode": "a", "shortUrl": "https://s.test/a", "longUrl": "http://a/", "colour": "red",
            "meta": {"validSince": null, "validUntil": "2030-01-01T00:00:00Z", "maxVisits": 7}, "maxVisits": 9,
            "private": false, "findIfExists": true}))
            .unwrap();
        assert_eq!(link.policy.valid_until_ms, Some(1_893_456_000_000));
        assert_eq!(link.policy.max_visits.map(u32::from), Some(9));
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(
            name in proptest::sample::select(vec!["shortCode", "dateCreated", "visitsSummary", "app", "redirectRules", "origin"]),
            value in proptest::sample::select(vec![json!(null), json!(true), json!([]), json!({}), json!("x"), json!(-1), json!(1e300)]),
        ) {
            let _ = line(&json!({"longUrl": "http://a/", "shortCode": "a", name: value}));
        }
    }
}
