//! Drafts of the rules for destinations: the tables `allow` and `block` while somebody edits them, before they are saved or
//! written into the settings file.
//!
//! The parser of the settings file reads a draft, and the same parsers check its values. A draft changes nothing.

use std::collections::HashSet;
use std::path::Path;

use carom_model::destination::hosts::HostPattern;
use carom_model::destination::rules::RuleHosts;

use super::checker::read_items;
use crate::keys::Key;
use crate::problem::{InvalidValue, SettingsProblem, ValueSource};
use crate::registry::shown::{self, Shown};
use crate::settings::{HostListSettings, ListSource, Settings};
use crate::sources::file;
use crate::value::hosts::{host, list_source};
use crate::value::{SourcedValue, Written};

/// A draft of one list of hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostListDraft {
    /// The entries, each once.
    pub hosts: Vec<HostPattern>,
    /// The source of further entries, as in the settings file.
    pub source: Option<String>,
}

/// A draft of the allow list and the block list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RulesDraft {
    /// The table `allow`.
    pub allow: HostListDraft,
    /// The table `block`.
    pub block: HostListDraft,
}

/// A mistake in the text of a draft.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DraftFault {
    /// The line, from 1.
    pub line: usize,
    /// The reason, with a description of what is valid.
    pub reason: String,
}

/// The rules for destinations in force, from which a draft starts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RulesInForce {
    /// The rules. A source that must stay hidden is left out.
    pub rules: RulesDraft,
    /// True if the allow list has a source that must stay hidden, because the query of its URL may contain a secret.
    pub hides_allow_source: bool,
    /// True if the block list has such a source.
    pub hides_block_source: bool,
    /// True if the setting `redis` is set, which the source `redis` needs.
    pub has_redis: bool,
}

impl RulesInForce {
    /// Returns the rules of these settings.
    pub fn of(settings: &Settings) -> RulesInForce {
        let (allow, hides_allow_source) = list_of(&settings.allow);
        let (block, hides_block_source) = list_of(&settings.block);
        RulesInForce {
            rules: RulesDraft { allow, block },
            hides_allow_source,
            hides_block_source,
            has_redis: settings.fleet.redis.is_some(),
        }
    }

    /// Returns these rules with saved hosts in place of those of the settings. The sources stay those of the settings.
    #[must_use]
    pub fn with_saved(&self, hosts: &RuleHosts) -> RulesInForce {
        let list = |hosts: &[HostPattern], list: &HostListDraft| HostListDraft {
            hosts: hosts.to_vec(),
            source: list.source.clone(),
        };
        let allow = list(&hosts.allow, &self.rules.allow);
        let block = list(&hosts.block, &self.rules.block);
        RulesInForce { rules: RulesDraft { allow, block }, ..*self }
    }

    /// Parses a draft in the syntax of the settings file.
    ///
    /// # Errors
    /// Every mistake, from the top of the text.
    pub fn parse(&self, text: &str) -> Result<RulesDraft, Vec<DraftFault>> {
        let mut problems = Vec::new();
        let mut draft = RulesDraft::default();
        for (key, found) in file::parse(Path::new(""), text, &mut problems) {
            match key {
                Key::AllowHosts => draft.allow.hosts = hosts(key, &found, &mut problems),
                Key::BlockHosts => draft.block.hosts = hosts(key, &found, &mut problems),
                Key::AllowSource => draft.allow.source = self.source(key, &found, &mut problems),
                Key::BlockSource => draft.block.source = self.source(key, &found, &mut problems),
                _ => {
                    let right = "leave it in the settings file; write only the tables allow and block here";
                    let wrong = InvalidValue::new("does not belong to the destination rules", right);
                    problems.push(SettingsProblem::of(found.source, key, wrong));
                }
            }
        }
        if problems.is_empty() {
            return Ok(draft);
        }
        let mut faults: Vec<DraftFault> = problems.into_iter().map(DraftFault::of).collect();
        faults.sort_by_key(|fault| fault.line);
        Err(faults)
    }

    /// Checks the source of a list.
    ///
    /// # Errors
    /// The reason for which it is invalid.
    pub fn check_source(&self, text: &str) -> Result<String, String> {
        let read = self.read_source(&Written::Text(text.trim().to_owned()));
        read.map_err(|InvalidValue { reason, right }| format!("{reason} ({right})"))
    }

    fn source(&self, key: Key, found: &SourcedValue, problems: &mut Vec<SettingsProblem>) -> Option<String> {
        let read = self.read_source(&found.written);
        read.map_err(|wrong| problems.push(SettingsProblem::of(found.source.clone(), key, wrong))).ok()
    }

    fn read_source(&self, written: &Written) -> Result<String, InvalidValue> {
        match list_source(written)? {
            ListSource::Redis if !self.has_redis => Err(InvalidValue::new(
                "is redis, but the setting redis is not set",
                "write a file or a URL, or first set redis",
            )),
            source => Ok(source.to_string()),
        }
    }
}

impl RulesDraft {
    /// Returns the hosts of both lists.
    pub fn hosts(&self) -> RuleHosts {
        RuleHosts { allow: self.allow.hosts.clone(), block: self.block.hosts.clone() }
    }

    /// Returns the tables as text for the settings file, with one entry on a line; empty without any rule.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for (name, HostListDraft { hosts, source }) in [("allow", &self.allow), ("block", &self.block)] {
            if hosts.is_empty() && source.is_none() {
                continue;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&format!("[{name}]\n"));
            if !hosts.is_empty() {
                let line = |host: &HostPattern| format!("  {},\n", shown::quote(&host.to_string()));
                let lines: String = hosts.iter().map(line).collect();
                text.push_str(&format!("hosts = [\n{lines}]\n"));
            }
            if let Some(source) = source {
                text.push_str(&format!("source = {}\n", shown::quote(source)));
            }
        }
        text
    }
}

impl DraftFault {
    fn of(problem: SettingsProblem) -> DraftFault {
        let line = if let ValueSource::File { line, .. } = problem.source { line } else { 1 };
        let key = problem.key.map_or_else(String::new, |key| format!("{key} "));
        DraftFault { line, reason: format!("{key}{} ({})", problem.reason, problem.right) }
    }
}

/// Returns a list as a draft has it, and true if its source must stay hidden.
fn list_of(list: &HostListSettings) -> (HostListDraft, bool) {
    let is_hidden = matches!(shown::source(list), Shown::Hidden);
    let source = list.source.as_ref().filter(|_| !is_hidden).map(ToString::to_string);
    (HostListDraft { hosts: distinct(&list.hosts), source }, is_hidden)
}

/// Reads the entries of a list, each once.
fn hosts(key: Key, found: &SourcedValue, problems: &mut Vec<SettingsProblem>) -> Vec<HostPattern> {
    let right = "write at least one host, or remove the line";
    let read = read_items(key, found, right, host, problems);
    distinct(read.iter().map(|(entry, _)| entry))
}

/// Returns entries without repetitions, in their order.
fn distinct<'a>(entries: impl IntoIterator<Item = &'a HostPattern>) -> Vec<HostPattern> {
    let mut known = HashSet::new();
    entries.into_iter().filter(|entry| known.insert(*entry)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(texts: &[&str]) -> Vec<HostPattern> {
        texts.iter().map(|text| HostPattern::parse(text).unwrap()).collect()
    }

    fn faults(text: &str) -> Vec<(usize, String)> {
        let faults = RulesInForce::default().parse(text).unwrap_err();
        faults.into_iter().map(|fault| (fault.line, fault.reason)).collect()
    }

    #[test]
    fn drafts_read_back_as_they_were_written() {
        let draft = RulesDraft {
            allow: HostListDraft { hosts: entries(&["shop.example", "*.shop.example"]), source: None },
            block: HostListDraft { hosts: Vec::new(), source: Some("/etc/carom/\"blocked\".json".to_owned()) },
        };
        let text = draft.to_toml();
        let start = "[allow]\nhosts = [\n  \"shop.example\",\n  \"*.shop.example\",\n]\n\n[block]\n";
        assert!(text.starts_with(start), "{text}");
        assert_eq!(RulesInForce::default().parse(&text), Ok(draft));
        assert_eq!(RulesDraft::default().to_toml(), "");
        assert_eq!(RulesInForce::default().parse(""), Ok(RulesDraft::default()));
    }

    #[test]
    fn comments_and_repeated_entries_are_left_out() {
        let text = "# Partners\n[allow]\nhosts = ['Shop.example', # the shop\n 'shop.example.']\n";
        let draft = RulesInForce::default().parse(text).unwrap();
        assert_eq!(draft.allow.hosts, entries(&["shop.example"]));
    }

    #[test]
    fn mistakes_have_their_lines() {
        let hosts = "hosts = [\n 'good.example',\n 'https://bad.example',\n]\n";
        let text = format!("[block]\nsource = 'redis'\n{hosts}[log]\nlevel = 'warn'\n");
        let found = faults(&text);
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 5, 8]);
        assert!(found[0].1.starts_with("block.source is redis, but"), "{found:?}");
        assert!(found[1].1.contains("contains more than a host"), "{found:?}");
        assert!(found[2].1.starts_with("log.level does not belong"), "{found:?}");
        assert_eq!(faults("[allow]\nhosts = []\n")[0].0, 2);
        assert_eq!(faults("[allow\n")[0].0, 1);
    }

    #[test]
    fn hidden_sources_are_left_out() {
        let with = |source: &str| {
            let source = Some(ListSource::Http(source.to_owned()));
            list_of(&HostListSettings { source, ..HostListSettings::default() })
        };
        assert_eq!(with("https://a.example/?token=1"), (HostListDraft::default(), true));
        let (draft, is_hidden) = with("https://a.example/hosts");
        assert_eq!((draft.source.as_deref(), is_hidden), (Some("https://a.example/hosts"), false));
    }

    #[test]
    fn saved_hosts_replace_those_of_the_settings() {
        let list =
            |hosts: &[&str], source: &str| HostListDraft { hosts: entries(hosts), source: Some(source.to_owned()) };
        let rules = RulesDraft { allow: list(&["a.example"], "/allow"), block: list(&["b.example"], "/block") };
        let settings = RulesInForce { rules, has_redis: true, ..RulesInForce::default() };
        assert_eq!(settings.with_saved(&settings.rules.hosts()), settings);
        let saved = RuleHosts { allow: Vec::new(), block: entries(&["c.example"]) };
        let in_force = settings.with_saved(&saved);
        assert_eq!(in_force.rules.hosts(), saved);
        assert_eq!(in_force.rules.allow.source.as_deref(), Some("/allow"));
        assert!(in_force.has_redis);
    }

    #[test]
    fn sources_are_checked_alone() {
        let without = RulesInForce::default();
        assert_eq!(without.check_source(" /etc/hosts.json "), Ok("/etc/hosts.json".to_owned()));
        for wrong in ["", "redis", "ftp://a.example/"] {
            assert!(without.check_source(wrong).is_err(), "{wrong:?}");
        }
        let with = RulesInForce { has_redis: true, ..RulesInForce::default() };
        assert_eq!(with.check_source("redis"), Ok("redis".to_owned()));
    }
}
