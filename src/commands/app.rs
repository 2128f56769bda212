//! The commands that manage apps and their keys. They work with or without a running node on the data directory. A
//! running node applies their changes within a second.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bridge::{AppsAnswer, AppsRequest};
use crate::commands::cli::{AppCommand, AppPlace};
use crate::commands::offline::settings_of;
use crate::commands::output::print;
use crate::commands::terminal::{minute, note, padded, text_width};
use crate::services::api_keys::file;
use crate::startup::data_dir::{api_keys, keys_exit};
use crate::startup::domains::domains_of;
use crate::startup::preflight;
use carom_model::access::registry::{Grant, KeyEntry, Registry};
use carom_model::access::{KeyDomains, KeyName};
use carom_model::formats::dates;
use carom_settings::Settings;
use carom_settings::exit::{Exit, Reason};
use carom_telemetry::clock::unix_ms;

/// Runs an app command.
///
/// # Errors
/// The reason for the failure: wrong settings, a data directory that does not exist or cannot be written, or an invalid
/// change.
pub fn run(command: AppCommand) -> Result<(), Exit> {
    match command {
        AppCommand::Add { app, key_name, role, expires, creates_per_second, domains, place } => {
            let settings = settings_of(place.data_dir, place.config.as_deref())?;
            let domains = key_domains(&domains, &settings)?;
            preflight::data_dir(&settings.data_dir)?;
            let (name, expires_ms, creates) = (key_name, expires, creates_per_second);
            let grant = Grant { app, name, role, expires_ms, creates, domains };
            change(&settings.data_dir, AppsRequest::Add(grant))
        }
        AppCommand::List { json, place } => list(&existing(place)?, json),
        AppCommand::Revoke { app, key, place } => change(&existing(place)?, AppsRequest::Revoke { app, id: key }),
        AppCommand::Rotate { app, key, grace, place } => {
            change(&existing(place)?, AppsRequest::Rotate { app, id: key, grace })
        }
    }
}

/// Parses the domains that a key is limited to; `None` for a key without such a limit.
fn key_domains(names: &[String], settings: &Settings) -> Result<Option<KeyDomains>, Exit> {
    if names.is_empty() {
        return Ok(None);
    }
    let served = domains_of(settings, settings.listen[0]);
    let wrong = |reason| {
        Exit::new(Reason::Usage, format!("--domain {reason}"))
            .with_remedy("add the domain to domains.serve, or pass the right settings file with --config")
    };
    KeyDomains::read(names.iter().map(String::as_str), &served).map(Some).map_err(wrong)
}

/// Returns the data directory, or an error if it does not exist.
fn existing(place: AppPlace) -> Result<std::path::PathBuf, Exit> {
    let data_dir = settings_of(place.data_dir, place.config.as_deref())?.data_dir;
    if data_dir.is_dir() {
        return Ok(data_dir);
    }
    let what = format!("the data directory {} does not exist", data_dir.display());
    Err(Exit::new(Reason::Usage, what).with_remedy("pass the data directory of a node with --data-dir"))
}

fn change(data_dir: &Path, request: AppsRequest) -> Result<(), Exit> {
    let asked = request.clone();
    let now_ms = unix_ms();
    let done = file::update(data_dir, false, |registry| request.apply(registry, now_ms)).map(|(done, _)| done);
    match (done.map_err(|error| keys_exit(data_dir, &error))?, asked) {
        (AppsAnswer::Key { key, id, .. }, AppsRequest::Add(grant)) => {
            note(&format!("created key {id} of {} with role {}; it is shown only now:", grant.app, grant.role));
            print(&format!("{key}\n"));
        }
        (AppsAnswer::Key { key, id, follows }, AppsRequest::Rotate { app, grace, .. }) => {
            let old = follows.unwrap_or_default();
            let end = match grace {
                Duration::ZERO => "is no longer valid".to_owned(),
                grace => format!("stays valid until {}", minute(now_ms + grace.as_millis() as u64)),
            };
            note(&format!("created key {id} of {app}; key {old} {end}. The new key is shown only now:"));
            print(&format!("{key}\n"));
        }
        (AppsAnswer::Revoked(ids), _) => note(&format!("revoked: {}", ids.join(", "))),
        (AppsAnswer::Refused(refusal), _) => {
            let remedy = "see `carom app list` for the apps and their keys";
            return Err(Exit::new(Reason::Usage, refusal.to_string()).with_remedy(remedy));
        }
        (AppsAnswer::Failed(why), _) => return Err(Exit::new(Reason::DataNotWritable, why)),
        (AppsAnswer::Key { .. }, AppsRequest::Revoke { .. }) => {}
    }
    Ok(())
}

fn list(data_dir: &Path, as_json: bool) -> Result<(), Exit> {
    let registry = api_keys(data_dir)?;
    let now_ms = unix_ms();
    if as_json {
        let keys: Vec<Value> = registry.entries().into_iter().map(|entry| as_value(entry, now_ms)).collect();
        print(&format!("{:#}\n", json!({ "keys": keys })));
    } else if registry.is_empty() {
        let why =
            if registry.had_keys() { "no keys: all of them expired or were revoked long ago" } else { "no apps yet" };
        note(&format!("{why}; create one with `carom app add NAME`"));
    } else {
        print(&table(&registry, now_ms));
    }
    Ok(())
}

fn as_value(entry: &KeyEntry, now_ms: u64) -> Value {
    let mut value = entry.describe(now_ms);
    value["app"] = json!(entry.app.as_str());
    value
}

fn table(registry: &Registry, now_ms: u64) -> String {
    let head = ["APP", "KEY", "NAME", "ROLE", "DOMAINS", "CREATED", "STATE"].map(str::to_owned);
    let rows = registry.entries().into_iter().map(|entry| {
        let day = |ms: u64| dates::format(ms)[..10].to_owned();
        let state = match (entry.revoked_ms, entry.expires_ms) {
            (Some(ms), _) => format!("revoked {}", day(ms)),
            (None, Some(ms)) if ms <= now_ms => format!("expired {}", day(ms)),
            (None, Some(ms)) => format!("valid until {}", minute(ms)),
            (None, None) => "valid".to_owned(),
        };
        let domains = entry.domains.as_ref().map_or("all".to_owned(), |domains| domains.names().join(","));
        let name = entry.name.as_ref().map_or("-", KeyName::as_str).to_owned();
        [entry.app.to_string(), entry.id(), name, entry.role.to_string(), domains, day(entry.created_ms), state]
    });
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(rows).collect();
    let widths: Vec<usize> = (0..6).map(|at| rows.iter().map(|row| text_width(&row[at])).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "{}  ", padded(cell, *width));
        }
        text.push_str(&row[6]);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::access::{AppName, Role};

    #[test]
    fn wide_names_keep_the_columns() {
        let app = AppName::parse("shop").unwrap();
        let grant = |name: Option<&str>| Grant {
            app: app.clone(),
            name: name.and_then(KeyName::parse),
            role: Role::Read,
            expires_ms: None,
            creates: None,
            domains: None,
        };
        let mut registry = Registry::default();
        for name in [None, Some("月次報告")] {
            registry.add(grant(name), 0).unwrap();
        }
        let text = table(&registry, 1);
        let cell = |name: &str, spaces: usize| format!("  {name}{}read  ", " ".repeat(spaces));
        assert!(text.contains(&cell("-", 9)), "{text}");
        assert!(text.contains(&cell("月次報告", 2)), "{text}");
    }

    #[test]
    fn the_table_says_what_holds() {
        let mut registry = Registry::default();
        let app = AppName::parse("shop").unwrap();
        let grant = |expires_ms| Grant {
            app: app.clone(),
            name: None,
            role: Role::Read,
            expires_ms,
            creates: None,
            domains: None,
        };
        registry.add(grant(None), 0).unwrap();
        registry.add(grant(Some(86_400_000)), 1).unwrap();
        let valid = table(&registry, 2);
        assert!(valid.contains("valid until 1970-01-02 00:00 UTC\n"), "{valid}");
        let text = table(&registry, 90_000_000);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("APP   KEY           NAME  ROLE  DOMAINS  CREATED     STATE"), "{text}");
        assert!(lines[1].ends_with("1970-01-01  valid"), "{text}");
        assert!(lines[2].ends_with("expired 1970-01-02"), "{text}");
    }
}
