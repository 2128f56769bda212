//! Hosts of the destination rules that an admin has saved at run time, in place of those of the settings.
//!
//! A save replaces the hosts of both lists together, so that rules of two admins never mix. Copies on several nodes merge:
//! the latest save wins, in whatever order the copies meet. A save names the version that it replaces, so that no admin
//! replaces rules that they have not seen. The sources of the lists stay settings: they name files and addresses of one
//! machine. A save keeps the members that a later version has written. Pure: the time is passed in.

use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::hosts::HostPattern;
use crate::formats::json_file::{self, Malformed};
use crate::formats::later_members::LaterMembers;

/// The hosts of the allow list and of the block list, without those of their sources.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct RuleHosts {
    /// Hosts that new links may lead to.
    pub allow: Vec<HostPattern>,
    /// Hosts that no link leads to.
    pub block: Vec<HostPattern>,
}

impl RuleHosts {
    /// Returns the number of entries of both lists.
    pub fn len(&self) -> usize {
        self.allow.len() + self.block.len()
    }

    /// True if both lists are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn to_json(&self) -> Value {
        let texts = |list: &[HostPattern]| -> Vec<String> { list.iter().map(ToString::to_string).collect() };
        json!({"allow": texts(&self.allow), "block": texts(&self.block)})
    }
}

/// The last save of destination rules. Copies of it merge without conflicts. A copy that lacks the members of a later version
/// gives way to one that has them: a node of an earlier version may have dropped them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct SavedRules {
    /// Orders the saves: milliseconds since 1970 UTC, but later than the save that it replaces; 0 before the first save.
    stamp_ms: u64,
    /// The app whose key saved; empty without a key.
    by: String,
    /// The saved hosts; `None` if those of the settings apply.
    hosts: Option<RuleHosts>,
    /// Later members of the save.
    later: LaterMembers,
    /// Later members beside both lists; empty without saved hosts.
    later_lists: LaterMembers,
}

/// The members of a save that this version knows.
const MEMBERS: [&str; 3] = ["stampMs", "by", "hosts"];

/// The lists of a save that this version knows.
const LISTS: [&str; 2] = ["allow", "block"];

impl SavedRules {
    /// Returns the save that replaces this one at `now_ms`, in milliseconds since 1970 UTC. It is later than this one, even if
    /// the clock of the node that made this one is ahead. Without hosts, those of the settings apply again. With hosts, it keeps
    /// what a later version has beside both lists, because the admin has not seen that.
    #[must_use]
    pub fn replaced(&self, hosts: Option<RuleHosts>, by: &str, now_ms: u64) -> SavedRules {
        let stamp_ms = now_ms.max(self.stamp_ms.saturating_add(1));
        let later_lists = hosts.as_ref().map(|_| self.later_lists.clone()).unwrap_or_default();
        let next = SavedRules { stamp_ms, by: by.to_owned(), hosts, later: LaterMembers::default(), later_lists };
        assert!(*self < next, "a save is later than the one it replaces");
        next
    }

    /// Merges another copy. Returns true if anything changed.
    pub fn merge(&mut self, other: &SavedRules) -> bool {
        let is_later = *self < *other;
        if is_later {
            self.clone_from(other);
        }
        is_later
    }

    /// Returns the saved hosts; `None` if those of the settings apply.
    pub fn hosts(&self) -> Option<&RuleHosts> {
        self.hosts.as_ref()
    }

    /// Returns the hosts that apply, beside the hosts of the settings.
    pub fn or_settings<'a>(&'a self, settings: &'a RuleHosts) -> &'a RuleHosts {
        self.hosts.as_ref().unwrap_or(settings)
    }

    /// Returns the time of the last save, in milliseconds since 1970 UTC; `None` before the first.
    pub fn saved_ms(&self) -> Option<u64> {
        (self.stamp_ms > 0).then_some(self.stamp_ms)
    }

    /// Returns the time of the last save, in milliseconds since 1970 UTC, if its hosts apply.
    pub fn applied_ms(&self) -> Option<u64> {
        self.hosts.as_ref().and_then(|_| self.saved_ms())
    }

    /// Returns the app whose key saved; empty without a key.
    pub fn by(&self) -> &str {
        &self.by
    }

    /// Returns the version of the hosts that apply. It changes with every save. Without saved hosts, it also changes with those
    /// of the settings.
    pub fn version(&self, settings: &RuleHosts) -> String {
        let hosts = self.or_settings(settings).to_json().to_string();
        format!("{}-{:016x}", self.stamp_ms, xxh3_64(hosts.as_bytes()))
    }

    /// Returns the stored form.
    pub fn to_entry(&self) -> Value {
        let mut hosts = self.hosts.as_ref().map_or(Value::Null, RuleHosts::to_json);
        self.later_lists.add_to(&mut hosts);
        let mut entry = json!({"stampMs": self.stamp_ms, "by": self.by, "hosts": hosts});
        self.later.add_to(&mut entry);
        entry
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`Malformed`] with a description.
    pub fn from_entry(entry: &Value) -> Result<SavedRules, Malformed> {
        let wrong = |what: &str| Malformed(format!("{what} of the saved rules is missing or invalid"));
        let stamp_ms = json_file::stamp_ms(entry).ok_or_else(|| wrong("the number \"stampMs\""))?;
        let by = entry.get("by").and_then(Value::as_str).ok_or_else(|| wrong("the text \"by\""))?.to_owned();
        let (hosts, later_lists) = match entry.get("hosts") {
            Some(Value::Null) => (None, LaterMembers::default()),
            Some(Value::Object(lists)) => {
                let list = |name: &str| read_list(lists, name).ok_or_else(|| wrong(&format!("the list {name:?}")));
                let hosts = RuleHosts { allow: list("allow")?, block: list("block")? };
                (Some(hosts), LaterMembers::of(lists, &LISTS))
            }
            _ => return Err(wrong("the object \"hosts\"")),
        };
        let later = entry.as_object().map(|members| LaterMembers::of(members, &MEMBERS)).unwrap_or_default();
        Ok(SavedRules { stamp_ms, by, hosts, later, later_lists })
    }

    /// Returns the content of the file.
    pub fn to_text(&self) -> String {
        json_file::to_text(&json!({"version": 1, "saved": self.to_entry()}))
    }

    /// Parses text from [`SavedRules::to_text`].
    ///
    /// # Errors
    /// [`Malformed`] with a description.
    pub fn from_text(text: &[u8]) -> Result<SavedRules, Malformed> {
        let file = json_file::from_text(text)?;
        let saved = file.get("saved").ok_or_else(|| Malformed("the object \"saved\" is missing".to_owned()))?;
        SavedRules::from_entry(saved)
    }
}

fn read_list(lists: &Map<String, Value>, name: &str) -> Option<Vec<HostPattern>> {
    let texts = lists.get(name)?.as_array()?;
    texts.iter().map(|text| HostPattern::parse(text.as_str()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hosts(allow: &[&str], block: &[&str]) -> RuleHosts {
        let list = |texts: &[&str]| texts.iter().map(|text| HostPattern::parse(text).unwrap()).collect();
        RuleHosts { allow: list(allow), block: list(block) }
    }

    fn any_saved() -> impl Strategy<Value = SavedRules> {
        let host = proptest::sample::select(vec!["a.example", "*.b.example", "192.0.2.1"]);
        let list = proptest::collection::vec(host, 0..3);
        let saved = (proptest::option::of((list.clone(), list)), "[a-c]?", 0..4u64);
        proptest::collection::vec(saved, 0..3).prop_map(|saves| {
            saves.into_iter().fold(SavedRules::default(), |last, (lists, by, now_ms)| {
                last.replaced(lists.map(|(allow, block)| hosts(&allow, &block)), &by, now_ms)
            })
        })
    }

    fn merged(one: &SavedRules, other: &SavedRules) -> SavedRules {
        let mut both = one.clone();
        both.merge(other);
        both
    }

    proptest! {
        #[test]
        fn copies_converge_in_any_order(a in any_saved(), b in any_saved(), c in any_saved()) {
            prop_assert_eq!(merged(&a, &b), merged(&b, &a));
            prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
            let mut both = merged(&a, &b);
            prop_assert!(!both.clone().merge(&a));
            prop_assert!(!both.merge(&b));
        }

        #[test]
        fn stored_text_is_read_back(saved in any_saved()) {
            prop_assert_eq!(SavedRules::from_text(saved.to_text().as_bytes()), Ok(saved));
        }

        #[test]
        fn reading_is_total(text in any::<Vec<u8>>()) {
            let _ = SavedRules::from_text(&text);
        }
    }

    #[test]
    fn saved_hosts_apply_until_they_are_removed() {
        let settings = hosts(&["file.example"], &[]);
        let first = SavedRules::default();
        assert_eq!(first.or_settings(&settings), &settings);
        assert_eq!(first.saved_ms(), None);
        // The clock of the node that saves first is an hour ahead.
        let saved = first.replaced(Some(hosts(&[], &["bad.example"])), "ops", 3_600_000);
        assert_eq!(saved.or_settings(&settings), &hosts(&[], &["bad.example"]));
        assert_eq!((saved.saved_ms(), saved.by()), (Some(3_600_000), "ops"));
        let removed = saved.replaced(None, "", 1);
        assert_eq!(removed.or_settings(&settings), &settings);
        assert_eq!(merged(&removed, &saved), removed, "an older copy brings nothing back");
    }

    /// A save with members of a later version, and the same save without them.
    fn of_a_later_version() -> (Value, SavedRules) {
        let lists = json!({"allow": [], "block": ["bad.example"], "warn": ["odd.example"]});
        let entry = json!({"stampMs": 7, "by": "ops", "hosts": lists, "reason": {"text": "phishing", "case": 1.5}});
        (entry, SavedRules::default().replaced(Some(hosts(&[], &["bad.example"])), "ops", 7))
    }

    #[test]
    fn members_of_a_later_version_are_kept() {
        let (entry, without) = of_a_later_version();
        let saved = SavedRules::from_entry(&entry).unwrap();
        assert_eq!(saved.to_entry(), entry);
        let of_file = SavedRules::from_text(saved.to_text().as_bytes()).unwrap();
        assert_eq!(of_file.to_entry(), entry);
        assert_eq!(saved.hosts(), without.hosts());
        assert_eq!(saved.version(&RuleHosts::default()), without.version(&RuleHosts::default()));
        // A node of a version that dropped them has the other copy.
        assert_eq!(merged(&without, &saved).to_entry(), entry);
        assert_eq!(merged(&saved, &without).to_entry(), entry);
    }

    #[test]
    fn a_save_replaces_only_lists_that_its_admin_has_seen() {
        let saved = SavedRules::from_entry(&of_a_later_version().0).unwrap();
        let next = saved.replaced(Some(hosts(&["shop.example"], &[])), "", 8);
        let lists = json!({"allow": ["shop.example"], "block": [], "warn": ["odd.example"]});
        assert_eq!(next.to_entry(), json!({"stampMs": 8, "by": "", "hosts": lists}), "the reason was that of the save");
        assert_eq!(next.replaced(None, "", 9).to_entry(), json!({"stampMs": 9, "by": "", "hosts": null}));
    }

    #[test]
    fn versions_tell_saves_and_settings_apart() {
        let (settings, others) = (hosts(&["a.example"], &[]), hosts(&[], &["a.example"]));
        let first = SavedRules::default();
        assert_eq!(first.version(&settings), first.version(&hosts(&["a.example"], &[])));
        assert_ne!(first.version(&settings), first.version(&others));
        let saved = first.replaced(Some(settings.clone()), "", 5);
        assert_ne!(saved.version(&settings), first.version(&settings));
        assert_eq!(saved.version(&settings), saved.version(&others), "settings do not apply");
        // Two sites may save at one instant.
        let elsewhere = first.replaced(Some(others), "", 5);
        assert_ne!(saved.version(&settings), elsewhere.version(&settings));
        assert_ne!(saved.replaced(Some(settings.clone()), "", 5).version(&settings), saved.version(&settings));
    }

    #[test]
    fn malformed_files_are_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"version": 2, "saved": {"stampMs": 1, "by": "", "hosts": null}}"#,
            r#"{"version": 1}"#,
            r#"{"version": 1, "saved": {"stampMs": -1, "by": "", "hosts": null}}"#,
            r#"{"version": 1, "saved": {"stampMs": 18446744073709551615, "by": "", "hosts": null}}"#,
            r#"{"version": 1, "saved": {"stampMs": 1, "hosts": null}}"#,
            r#"{"version": 1, "saved": {"stampMs": 1, "by": ""}}"#,
            r#"{"version": 1, "saved": {"stampMs": 1, "by": "", "hosts": {"allow": []}}}"#,
            r#"{"version": 1, "saved": {"stampMs": 1, "by": "", "hosts": {"allow": ["a b"], "block": []}}}"#,
        ] {
            assert!(SavedRules::from_text(text.as_bytes()).is_err(), "{text}");
        }
        let none = br#"{"version": 1, "saved": {"stampMs": 0, "by": "", "hosts": null}}"#;
        assert_eq!(SavedRules::from_text(none), Ok(SavedRules::default()));
    }
}
