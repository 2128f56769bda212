//! The API of apps and API keys on the admin listener: list, add, rotate, revoke.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::{Map, Value, json};

use super::list::no_list;
use super::short_urls::{read_object, write_failed};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::percent_decoded;
use crate::api::request::is_read;
use crate::api::response::{ApiResponse, json as json_answer, json_text, to_json};
use crate::bridge::{AppsAnswer, AppsRequest, WriteFailure};
use carom_limits::{APP_CREATES_MAX, KEY_GRACE_MAX, KEYS_WRITTEN_AT_ONCE};
use carom_model::access::registry::{Grant, Keyring, Refusal};
use carom_model::access::usage::App;
use carom_model::access::{AppName, KEY_NAME_LEN_MAX, KeyDomains, KeyName, Role};
use carom_model::domains::Domains;
use carom_model::formats::dates;
use carom_model::link::fields::{app_name, instant};

/// Returns the methods that a path below `/apps` allows; `None` if no such path exists.
pub(in crate::api) fn methods_at(segments: &[&str]) -> Option<&'static str> {
    match segments {
        [] => Some("GET, HEAD, POST"),
        [_] | [_, "keys", _] => Some("DELETE"),
        [_, "rotate"] => Some("POST"),
        _ => None,
    }
}

/// Answers a request for a path below `/apps` that [`methods_at`] knows.
pub(in crate::api) async fn serve(context: &Context, segments: &[&str], request: Request<Incoming>) -> ApiResponse {
    if segments.is_empty() && is_read(request.method()) {
        return list(context).await;
    }
    let names: Vec<String> = segments.iter().map(|segment| percent_decoded(segment)).collect();
    match try_serve(context, &names, request).await {
        Ok((status, body)) => json_answer(status, &body),
        Err(problem) => problem.into_answer(),
    }
}

async fn try_serve(
    context: &Context,
    names: &[String],
    request: Request<Incoming>,
) -> Result<(StatusCode, Value), Problem> {
    let method = request.method().clone();
    let app = names.first().map(|name| app_named(name)).transpose()?;
    let wanted = match (app, &names[names.len().min(1)..]) {
        (None, _) => {
            let fields = read_object(&context.services, request).await?;
            let grant = read_grant(&fields, context.domains(), context.services.unix_ms());
            AppsRequest::Add(grant.map_err(|invalid| Problem::invalid(&invalid))?)
        }
        (Some(app), []) => AppsRequest::Revoke { app, id: None },
        (Some(app), [_, id]) => AppsRequest::Revoke { app, id: Some(id.clone()) },
        (Some(app), [..]) => {
            let (id, grace) =
                read_rotation(&read_object(&context.services, request).await?).map_err(|it| Problem::invalid(&it))?;
            AppsRequest::Rotate { app, id, grace }
        }
    };
    debug_assert!(method == Method::POST || method == Method::DELETE);
    let asked = wanted.clone();
    let unconfirmed = |why: &str| {
        Problem::in_doubt(format!(
            "The API keys may or may not have been changed: {why}. List them before you try again."
        ))
    };
    let changed = context.services.change_apps(wanted).await.map_err(|failure| match failure {
        WriteFailure::Unconfirmed(reason) => unconfirmed(reason),
        failure => write_failed(&failure),
    });
    match changed? {
        AppsAnswer::Key { key, id, follows } => {
            Ok((StatusCode::CREATED, describe_new_key(&asked, &key, &id, follows.as_deref())))
        }
        AppsAnswer::Revoked(ids) => Ok((StatusCode::OK, json!({"revoked": ids}))),
        AppsAnswer::Refused(refusal) => Err(refused(&refusal)),
        AppsAnswer::Failed(why) => Err(unconfirmed(&why)),
    }
}

fn app_named(name: &str) -> Result<AppName, Problem> {
    AppName::parse(name).map_err(|_| Problem::no_app(name))
}

fn refused(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::NoApp(app) => Problem::no_app(app.as_str()),
        Refusal::NoKey(app, _) => Problem::no_app(app.as_str()).because(refusal.to_string()),
        Refusal::Which(..) => Problem::invalid(&[Invalid::new("id", format!("is missing: {refusal}"))]),
        Refusal::Full | Refusal::NoRandom => Problem::unavailable(format!("No key was created: {refusal}.")),
    }
}

/// Describes a new API key. Only this response ever contains the key.
fn describe_new_key(asked: &AppsRequest, key: &str, id: &str, follows: Option<&str>) -> Value {
    let app = match asked {
        AppsRequest::Add(grant) => &grant.app,
        AppsRequest::Revoke { app, .. } | AppsRequest::Rotate { app, .. } => app,
    };
    json!({"app": app.as_str(), "id": id, "key": key, "follows": follows})
}

/// Returns all apps, with their keys and their use of this node.
async fn list(context: &Context) -> ApiResponse {
    let (keys, now_ms) = (context.services.keys(), context.services.unix_ms());
    let count = keys.each().count();
    let write = move || to_json(&described(&keys, now_ms));
    match context.services.write_document(count, KEYS_WRITTEN_AT_ONCE, write).await {
        Ok(text) => json_text(StatusCode::OK, text),
        Err(reason) => no_list(reason),
    }
}

/// Describes all apps, with their keys and their use of this node.
fn described(keys: &Keyring<App>, now_ms: u64) -> Value {
    let mut apps: BTreeMap<&str, (&Arc<App>, Vec<Value>)> = BTreeMap::new();
    for (entry, app) in keys.all() {
        apps.entry(app.name.as_str()).or_insert_with(|| (app, Vec::new())).1.push(entry.describe(now_ms));
    }
    let shown = apps.into_values().map(|(app, keys)| {
        let mut shown = describe(app);
        shown["keys"] = json!(keys);
        shown
    });
    json!({"apps": shown.collect::<Vec<_>>()})
}

/// Describes the use of an app on this node since the node started.
pub(in crate::api) fn describe(app: &App) -> Value {
    let seen_ms = Some(app.seen_ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0);
    json!({
        "app": app.name.as_str(),
        "requests": app.requests.load(Ordering::Relaxed),
        "creates": app.creates.load(Ordering::Relaxed),
        "limited": app.limited.load(Ordering::Relaxed),
        "forbidden": app.forbidden.load(Ordering::Relaxed),
        "lastSeen": seen_ms.map(dates::format),
        "appVersion": app.version(),
    })
}

/// Reads the properties of a new API key. `now_ms` is the present instant, in milliseconds since 1970 UTC.
fn read_grant(fields: &Map<String, Value>, served: &Domains, now_ms: u64) -> Result<Grant, Vec<Invalid>> {
    let mut invalid = Vec::new();
    let (mut app, mut key_name, mut role) = (None, None, Role::WriteOwn);
    let (mut expires_ms, mut creates, mut domains) = (None, None, None);
    for (name, value) in fields {
        let read = match name.as_str() {
            "name" | "role" | "expires" | "createsPerSecond" | "domains" if value.is_null() => Ok(()),
            "app" => app_name(value).map(|name| app = Some(name)),
            "name" => key_name_of(value).map(|name| key_name = Some(name)),
            "role" => role_of(value).map(|named| role = named),
            "expires" => expiry_of(value, now_ms).map(|ms| expires_ms = Some(ms)),
            "createsPerSecond" => creates_of(value).map(|number| creates = number),
            "domains" => domains_of(value, served).map(|named| domains = Some(named)),
            _ => Err("is not a known field".to_owned()),
        };
        if let Err(reason) = read {
            invalid.push(match name.as_str() {
                "app" | "name" | "role" | "expires" | "createsPerSecond" => Invalid::value(name, &reason, value),
                _ => Invalid::new(name, reason),
            });
        }
    }
    if !fields.contains_key("app") {
        invalid.push(Invalid::new("app", "is missing; expected the name of the app"));
    }
    match app {
        Some(app) if invalid.is_empty() => Ok(Grant { app, name: key_name, role, expires_ms, creates, domains }),
        _ => Err(invalid),
    }
}

fn key_name_of(value: &Value) -> Result<KeyName, String> {
    let name = value.as_str().and_then(KeyName::parse);
    name.ok_or_else(|| format!("must be 1 to {KEY_NAME_LEN_MAX} characters, with none that are hidden"))
}

fn role_of(value: &Value) -> Result<Role, String> {
    value.as_str().and_then(Role::parse).ok_or_else(|| format!("must be one of {}", Role::names()))
}

fn expiry_of(value: &Value, now_ms: u64) -> Result<u64, String> {
    let ms = instant(value)?;
    if ms > now_ms { Ok(ms) } else { Err("must be in the future".to_owned()) }
}

fn creates_of(value: &Value) -> Result<Option<NonZeroU32>, String> {
    let number = value.as_u64().filter(|number| (1..=u64::from(APP_CREATES_MAX)).contains(number));
    let number = number.ok_or_else(|| format!("must be a whole number from 1 to {APP_CREATES_MAX}"))?;
    Ok(NonZeroU32::new(number as u32))
}

fn domains_of(value: &Value, served: &Domains) -> Result<KeyDomains, String> {
    let names = value.as_array().and_then(|all| all.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    KeyDomains::read(names.ok_or("must be a list of strings")?, served)
}

/// Reads the id of the key to replace, and for how long the old key stays valid.
fn read_rotation(fields: &Map<String, Value>) -> Result<(Option<String>, Duration), Vec<Invalid>> {
    let mut invalid = Vec::new();
    let (mut id, mut grace) = (None, Duration::ZERO);
    for (name, value) in fields {
        let reason = match name.as_str() {
            "id" | "graceSeconds" if value.is_null() => continue,
            "id" => match value.as_str() {
                Some(text) => {
                    id = Some(text.to_owned());
                    continue;
                }
                None => "must be a string".to_owned(),
            },
            "graceSeconds" => match value.as_u64().filter(|seconds| *seconds <= KEY_GRACE_MAX.as_secs()) {
                Some(seconds) => {
                    grace = Duration::from_secs(seconds);
                    continue;
                }
                None => format!("must be a whole number from 0 to {}", KEY_GRACE_MAX.as_secs()),
            },
            _ => "is not a known field".to_owned(),
        };
        invalid.push(Invalid::new(name, reason));
    }
    if invalid.is_empty() { Ok((id, grace)) } else { Err(invalid) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::testing::three_domains;

    /// An instant in 2023.
    const NOW_MS: u64 = 1_700_000_000_000;

    fn grant(value: &Value) -> Result<Grant, Vec<String>> {
        read_grant(value.as_object().unwrap(), &three_domains(), NOW_MS)
            .map_err(|all| all.into_iter().map(|one| one.field).collect())
    }

    #[test]
    fn grants_are_read_strictly() {
        let app = AppName::parse("shop").unwrap();
        let plain = Grant {
            app: app.clone(),
            name: None,
            role: Role::WriteOwn,
            expires_ms: None,
            creates: None,
            domains: None,
        };
        assert_eq!(grant(&json!({"app": "shop", "role": null})), Ok(plain));
        let full = json!({"app": "shop", "name": "Anna", "role": "admin", "expires": "9000-01-01T00:00:00Z", "createsPerSecond": 5, "domains": ["go.test"]});
        let domains = KeyDomains::from_names(["go.test"]);
        let (name, creates) = (KeyName::parse("Anna"), NonZeroU32::new(5));
        let expires_ms = Some(221_845_392_000_000);
        assert_eq!(grant(&full), Ok(Grant { app, name, role: Role::Admin, expires_ms, creates, domains }));
        let wrong = json!({"app": "A B", "name": "a\n", "role": "root", "expires": "2020-01-01T00:00:00Z", "createsPerSecond": 0, "domains": ["other.test"], "x": 1});
        let mut fields = grant(&wrong).unwrap_err();
        fields.sort();
        assert_eq!(fields, ["app", "createsPerSecond", "domains", "expires", "name", "role", "x"]);
        for domains in [json!("go.test"), json!([]), json!([1]), json!(["a b"])] {
            assert_eq!(
                grant(&json!({"app": "shop", "domains": domains})),
                Err(vec!["domains".to_owned()]),
                "{domains}"
            );
        }
        assert_eq!(grant(&json!({})), Err(vec!["app".to_owned()]));
        assert_eq!(grant(&json!({"app": 1, "expires": "1969-01-01T00:00:00Z"})).unwrap_err().len(), 2);
    }

    #[test]
    fn rotations_are_read_strictly() {
        let read = |value: Value| read_rotation(value.as_object().unwrap());
        assert_eq!(read(json!({})), Ok((None, Duration::ZERO)));
        assert_eq!(read(json!({"id": "a", "graceSeconds": 60})), Ok((Some("a".to_owned()), Duration::from_secs(60))));
        assert_eq!(read(json!({"id": 1, "graceSeconds": -1, "x": 1})).unwrap_err().len(), 3);
    }
}
