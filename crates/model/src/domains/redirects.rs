//! Redirects of domains for requests that find no link, and their changes at run time.
//!
//! Settings give each domain its redirects. A change replaces one of them, also on later starts. Changes merge: for each
//! redirect the latest change wins, so that copies on several nodes converge in whatever order they meet. What a later
//! version has written stays: members of changes, and changes of further kinds. Pure: the time is passed in.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{DomainIndex, DomainName, Domains, Targets, UnknownHost};
use crate::destination::long_url::LongUrl;
use crate::formats::json_file::{self, Malformed};
use crate::formats::later_members::LaterMembers;

/// The request that a redirect of a domain answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetKind {
    /// A request for `/`.
    Home,
    /// A request for a path that cannot be a short URL.
    Regular404,
    /// A request for a link that does not exist.
    InvalidShortUrl,
    /// A request for an expired link.
    Expired,
}

impl TargetKind {
    /// Every kind, in the order of the fields of the API.
    pub const ALL: [TargetKind; 4] =
        [TargetKind::Home, TargetKind::Regular404, TargetKind::InvalidShortUrl, TargetKind::Expired];

    /// Returns the name of the field in the API, which is that of Shlink for the first three.
    pub fn field(self) -> &'static str {
        match self {
            TargetKind::Home => "baseUrlRedirect",
            TargetKind::Regular404 => "regular404Redirect",
            TargetKind::InvalidShortUrl => "invalidShortUrlRedirect",
            TargetKind::Expired => "expiredShortUrlRedirect",
        }
    }
}

/// Returns the placeholder of Shlink's that the text of a redirect has, if any. carom fills in no placeholder, because
/// redirects are fixed before the request comes. Visitors would be sent to the placeholder itself.
pub fn placeholder_in(text: &str) -> Option<&'static str> {
    ["{DOMAIN}", "{ORIGINAL_PATH}"].into_iter().find(|placeholder| text.contains(placeholder))
}

impl Targets {
    /// Returns the redirect for a kind of requests.
    #[inline]
    pub fn of(&self, kind: TargetKind) -> Option<&str> {
        match kind {
            TargetKind::Home => &self.home,
            TargetKind::Regular404 => &self.regular_404,
            TargetKind::InvalidShortUrl => &self.invalid_short_url,
            TargetKind::Expired => &self.expired,
        }
        .as_deref()
    }

    /// Returns the place of the redirect for a kind of requests.
    pub fn of_mut(&mut self, kind: TargetKind) -> &mut Option<String> {
        match kind {
            TargetKind::Home => &mut self.home,
            TargetKind::Regular404 => &mut self.regular_404,
            TargetKind::InvalidShortUrl => &mut self.invalid_short_url,
            TargetKind::Expired => &mut self.expired,
        }
    }

    /// Takes the redirects that are missing here from the default domain.
    fn inherit(&mut self, default: &Targets) {
        for kind in TargetKind::ALL {
            let target = self.of_mut(kind);
            if target.is_none() {
                *target = default.of(kind).map(str::to_owned);
            }
        }
    }

    /// Returns the redirects as the API describes them.
    pub fn to_json(&self) -> Value {
        TargetKind::ALL.into_iter().map(|kind| (kind.field().to_owned(), json!(self.of(kind)))).collect()
    }
}

/// The redirects in effect for each domain of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DomainRedirects {
    unknown_host: UnknownHost,
    hides_expired: bool,
    /// The redirects in effect, by the index of the domain.
    targets: Vec<Targets>,
    /// The redirects that each domain has itself; `None` if no domain inherits any.
    own: Option<Vec<Targets>>,
}

impl DomainRedirects {
    /// Combines the redirects of the settings with their changes.
    pub fn of(domains: &Domains, changes: &RedirectChanges) -> DomainRedirects {
        let targets = domains.all().iter().map(|domain| {
            let mut targets = domain.targets.clone();
            changes.apply(&domain.name, &mut targets);
            targets
        });
        let (unknown_host, hides_expired) = (domains.unknown_host(), domains.hides_expired());
        let mut targets: Vec<Targets> = targets.collect();
        let own = domains.inherits_redirects().then(|| targets.clone());
        if let Some((default, others)) = targets.split_first_mut().filter(|_| own.is_some()) {
            others.iter_mut().for_each(|targets| targets.inherit(default));
        }
        DomainRedirects { unknown_host, hides_expired, targets, own }
    }

    /// True if expired links get the response of missing ones.
    pub fn hides_expired(&self) -> bool {
        self.hides_expired
    }

    /// Returns the response to requests for other hosts.
    #[inline]
    pub fn unknown_host(&self) -> UnknownHost {
        self.unknown_host
    }

    /// Returns the redirects in effect on a domain.
    #[inline]
    pub fn at(&self, domain: DomainIndex) -> &Targets {
        &self.targets[domain.index()]
    }

    /// Returns the redirects that a domain has itself, without those that it inherits.
    pub fn own_at(&self, domain: DomainIndex) -> &Targets {
        &self.own.as_ref().unwrap_or(&self.targets)[domain.index()]
    }
}

/// A redirect that replaces the one of the settings; `None` inside for no redirect. A copy that lacks the members of a later
/// version gives way to one that has them: a node of an earlier version may have dropped them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct RedirectChange {
    /// Orders the changes of one redirect: milliseconds since 1970 UTC, but later than the change that it follows.
    stamp_ms: u64,
    target: Option<String>,
    /// Later members of the change. The next change replaces them, because they describe this one.
    later: LaterMembers,
}

/// The members of a change that this version knows.
const MEMBERS: [&str; 2] = ["stampMs", "url"];

/// The changes of redirects of one domain.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct DomainChanges {
    /// The change of each kind, in the order of [`TargetKind::ALL`].
    changes: [Option<RedirectChange>; TargetKind::ALL.len()],
    /// Changes of kinds that only a later version knows. They have stamps as well.
    later: LaterMembers,
}

impl DomainChanges {
    /// Merges another copy. Returns true if anything changed.
    fn merge(&mut self, other: &DomainChanges) -> bool {
        let mut is_more = self.later.merge(&other.later);
        for (mine, theirs) in self.changes.iter_mut().zip(&other.changes) {
            if *mine < *theirs {
                mine.clone_from(theirs);
                is_more = true;
            }
        }
        is_more
    }

    /// Returns the stored form.
    fn to_entry(&self) -> Value {
        let field = |(kind, change): (TargetKind, &Option<RedirectChange>)| {
            let change = change.as_ref()?;
            let mut value = json!({"stampMs": change.stamp_ms, "url": change.target});
            change.later.add_to(&mut value);
            Some((kind.field().to_owned(), value))
        };
        let mut entry: Value = TargetKind::ALL.into_iter().zip(&self.changes).filter_map(field).collect();
        self.later.add_to(&mut entry);
        entry
    }
}

/// Changes of redirects at run time, of all domains. Copies of it merge without conflicts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RedirectChanges(BTreeMap<DomainName, DomainChanges>);

impl RedirectChanges {
    /// Replaces a redirect of a domain at `now_ms`, in milliseconds since 1970 UTC. The change is later than all known
    /// ones of this redirect, even if the clock of the node that made them is ahead.
    pub fn set(&mut self, domain: &DomainName, kind: TargetKind, target: Option<LongUrl>, now_ms: u64) {
        let place = &mut self.0.entry(domain.clone()).or_default().changes[kind as usize];
        let after = place.as_ref().map_or(0, |change| change.stamp_ms.saturating_add(1));
        let (stamp_ms, target) = (now_ms.max(after), target.map(String::from));
        let change = RedirectChange { stamp_ms, target, later: LaterMembers::default() };
        assert!(place.as_ref().is_none_or(|before| *before < change), "a change is later than the one it replaces");
        *place = Some(change);
    }

    /// Merges another copy. Returns true if anything changed.
    pub fn merge(&mut self, other: &RedirectChanges) -> bool {
        let mut is_more = false;
        for (domain, theirs) in &other.0 {
            is_more |= self.0.entry(domain.clone()).or_default().merge(theirs);
        }
        is_more
    }

    /// Returns the domains of which another copy knows later changes, each with its changes here and there together.
    pub fn lacking(&self, other: &RedirectChanges) -> RedirectChanges {
        let mut both = self.clone();
        both.merge(other);
        both.0.retain(|domain, changes| self.0.get(domain) != Some(&*changes));
        both
    }

    /// True if nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies the changes of a domain to its redirects of the settings.
    pub fn apply(&self, domain: &DomainName, targets: &mut Targets) {
        let Some(of_domain) = self.0.get(domain) else { return };
        for (kind, change) in TargetKind::ALL.into_iter().zip(&of_domain.changes) {
            if let Some(change) = change {
                targets.of_mut(kind).clone_from(&change.target);
            }
        }
    }

    /// Returns the changes of each domain, in their stored form.
    pub fn to_entries(&self) -> Vec<(String, Value)> {
        self.0.iter().map(|(domain, changes)| (domain.to_string(), changes.to_entry())).collect()
    }

    /// Adds a domain from its stored form.
    ///
    /// # Errors
    /// [`Malformed`] with a description.
    pub fn add_entry(&mut self, domain: &str, entry: &Value) -> Result<(), Malformed> {
        let wrong = |what: String| Malformed(format!("{what} at the domain {domain:?}"));
        let name = DomainName::from_normal(domain).ok_or_else(|| wrong("the name is not a domain".to_owned()))?;
        let fields = entry.as_object().ok_or_else(|| wrong("the value is not an object".to_owned()))?;
        let later = LaterMembers::of(fields, &TargetKind::ALL.map(TargetKind::field));
        let mut of_domain = DomainChanges { later, ..DomainChanges::default() };
        for (kind, place) in TargetKind::ALL.into_iter().zip(&mut of_domain.changes) {
            let Some(value) = fields.get(kind.field()) else { continue };
            let change = read_change(value).ok_or_else(|| wrong(format!("{} is not a change", kind.field())))?;
            *place = Some(change);
        }
        self.merge(&RedirectChanges(BTreeMap::from([(name, of_domain)])));
        Ok(())
    }

    /// Returns the content of the file with all changes.
    pub fn to_text(&self) -> String {
        let domains: Map<String, Value> = self.to_entries().into_iter().collect();
        json_file::to_text(&json!({"version": 1, "domains": domains}))
    }

    /// Parses text from [`RedirectChanges::to_text`].
    ///
    /// # Errors
    /// [`Malformed`] with a description.
    pub fn from_text(text: &[u8]) -> Result<RedirectChanges, Malformed> {
        let value = json_file::from_text(text)?;
        let domains = value.get("domains").and_then(Value::as_object);
        let domains = domains.ok_or_else(|| Malformed("the object \"domains\" is missing".to_owned()))?;
        let mut changes = RedirectChanges::default();
        domains.iter().try_for_each(|(domain, entry)| changes.add_entry(domain, entry))?;
        Ok(changes)
    }
}

fn read_change(value: &Value) -> Option<RedirectChange> {
    let stamp_ms = json_file::stamp_ms(value)?;
    let target = match value.get("url")? {
        Value::Null => None,
        url => Some(LongUrl::parse(url.as_str()?, &[]).ok()?.into()),
    };
    Some(RedirectChange { stamp_ms, target, later: LaterMembers::of(value.as_object()?, &MEMBERS) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::three_domains;
    use proptest::prelude::*;

    fn name(text: &str) -> DomainName {
        DomainName::parse(text).unwrap()
    }

    fn url(text: &str) -> Option<LongUrl> {
        Some(LongUrl::parse(text, &[]).unwrap())
    }

    fn any_changes() -> impl Strategy<Value = RedirectChanges> {
        let url = proptest::option::of(proptest::sample::select(vec!["https://a.example/", "https://b.example/x"]));
        let domain = proptest::sample::select(vec!["go.test", "s.test"]);
        proptest::collection::vec((domain, 0..6usize, url, 0..4u64), 0..6).prop_map(|all| {
            let mut changes = RedirectChanges::default();
            for (domain, kind, target, now_ms) in all {
                if let Some(kind) = TargetKind::ALL.get(kind) {
                    let target = target.map(|target| LongUrl::parse(target, &[]).unwrap());
                    changes.set(&name(domain), *kind, target, now_ms);
                } else {
                    let of_later_version = json!({"stampMs": now_ms, "url": target, "status": 301 + kind});
                    let field = ["expiredShortUrlRedirect", "botRedirect"][kind % 2];
                    changes.add_entry(domain, &json!({field: of_later_version})).unwrap();
                }
            }
            changes
        })
    }

    fn merged(one: &RedirectChanges, other: &RedirectChanges) -> RedirectChanges {
        let mut both = one.clone();
        both.merge(other);
        both
    }

    proptest! {
        #[test]
        fn copies_converge_in_any_order(a in any_changes(), b in any_changes(), c in any_changes()) {
            prop_assert_eq!(merged(&a, &b), merged(&b, &a));
            prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
            let both = merged(&a, &b);
            prop_assert!(!both.clone().merge(&a));
            prop_assert!(!both.clone().merge(&b));
            // What a copy lacks is what makes it complete.
            prop_assert!(both.lacking(&a).is_empty());
            prop_assert_eq!(merged(&a, &a.lacking(&b)), both);
        }

        #[test]
        fn stored_text_is_read_back(changes in any_changes()) {
            prop_assert_eq!(RedirectChanges::from_text(changes.to_text().as_bytes()), Ok(changes));
        }

        #[test]
        fn reading_is_total(text in any::<Vec<u8>>()) {
            let _ = RedirectChanges::from_text(&text);
        }
    }

    #[test]
    fn a_change_replaces_the_setting_until_the_next_change() {
        let domains = three_domains();
        let place = domains.named("go.test").unwrap();
        let mut changes = RedirectChanges::default();
        let seen = |changes: &RedirectChanges| DomainRedirects::of(&domains, changes).at(place).home.clone();
        assert_eq!(seen(&changes), None);
        // The clock of the node that makes the first change is an hour ahead.
        changes.set(&name("go.test"), TargetKind::Home, url("https://a.example/"), 3_600_000);
        assert_eq!(seen(&changes).as_deref(), Some("https://a.example/"));
        changes.set(&name("go.test"), TargetKind::Home, None, 1);
        assert_eq!(seen(&changes), None);
        changes.set(&name("s.test"), TargetKind::Home, url("https://b.example/"), 1);
        assert_eq!(seen(&changes), None, "of another domain");
    }

    #[test]
    fn missing_redirects_are_inherited_on_demand() {
        let mut changes = RedirectChanges::default();
        changes.set(&name("s.test"), TargetKind::Home, url("https://home.example/"), 1);
        changes.set(&name("s.test"), TargetKind::Regular404, url("https://lost.example/"), 1);
        changes.set(&name("go.test"), TargetKind::Home, url("https://own.example/"), 1);
        for inherits in [false, true] {
            let domains = three_domains().inheriting_redirects(inherits);
            let redirects = DomainRedirects::of(&domains, &changes);
            let place = domains.named("go.test").unwrap();
            let lost = inherits.then_some("https://lost.example/");
            assert_eq!(redirects.at(place).of(TargetKind::Home), Some("https://own.example/"));
            assert_eq!(redirects.at(place).of(TargetKind::Regular404), lost);
            assert_eq!(redirects.at(place).of(TargetKind::InvalidShortUrl), None);
            assert_eq!(redirects.own_at(place).of(TargetKind::Regular404), None);
            assert_eq!(redirects.own_at(DomainIndex::default()), redirects.at(DomainIndex::default()));
        }
    }

    /// A domain with members and a kind of a later version, and the same domain without them.
    fn of_a_later_version() -> (Value, RedirectChanges) {
        let home = json!({"stampMs": 7, "url": "https://a.example/", "status": 301});
        let entry = json!({"baseUrlRedirect": home, "botRedirect": {"stampMs": 8, "url": "https://bots.example/"}});
        let mut without = RedirectChanges::default();
        without.set(&name("go.test"), TargetKind::Home, url("https://a.example/"), 7);
        (entry, without)
    }

    fn read(entry: &Value) -> RedirectChanges {
        let mut changes = RedirectChanges::default();
        changes.add_entry("go.test", entry).unwrap();
        changes
    }

    fn written(changes: &RedirectChanges) -> Value {
        let entries = changes.to_entries();
        assert_eq!(entries.len(), 1);
        entries[0].1.clone()
    }

    #[test]
    fn members_of_a_later_version_are_kept() {
        let (entry, without) = of_a_later_version();
        let changes = read(&entry);
        assert_eq!(written(&changes), entry);
        let of_file = RedirectChanges::from_text(changes.to_text().as_bytes()).unwrap();
        assert_eq!(written(&of_file), entry);
        // A node of a version that dropped them has the other copy.
        assert_eq!(written(&merged(&without, &changes)), entry);
        assert_eq!(written(&merged(&changes, &without)), entry);
        assert_eq!(written(&without.lacking(&changes)), entry);
    }

    #[test]
    fn a_change_replaces_only_the_members_of_its_redirect() {
        let (entry, _) = of_a_later_version();
        let mut changes = read(&entry);
        changes.set(&name("go.test"), TargetKind::Home, None, 9);
        let home = json!({"stampMs": 9, "url": null});
        assert_eq!(written(&changes), json!({"baseUrlRedirect": home, "botRedirect": entry["botRedirect"]}));
        // An earlier change of a kind that this version does not know does not replace a later one.
        let earlier = json!({"botRedirect": {"stampMs": 6, "url": "https://old.example/"}});
        changes.add_entry("go.test", &earlier).unwrap();
        assert_eq!(written(&changes)["botRedirect"], entry["botRedirect"]);
    }

    #[test]
    fn malformed_files_are_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"version": 2, "domains": {}}"#,
            r#"{"version": 1}"#,
            r#"{"version": 1, "domains": {"Go.Test": {}}}"#,
            r#"{"version": 1, "domains": {"go.test": []}}"#,
            r#"{"version": 1, "domains": {"go.test": {"baseUrlRedirect": {"stampMs": 1}}}}"#,
            r#"{"version": 1, "domains": {"go.test": {"baseUrlRedirect": {"stampMs": 1, "url": "ftp://a"}}}}"#,
            r#"{"version": 1, "domains": {"go.test": {"baseUrlRedirect": {"stampMs": -1, "url": null}}}}"#,
            // A later change adds one.
            r#"{"version": 1, "domains": {"go.test": {"baseUrlRedirect": {"stampMs": 18446744073709551615, "url": null}}}}"#,
        ] {
            assert!(RedirectChanges::from_text(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(RedirectChanges::from_text(br#"{"version": 1, "domains": {}}"#), Ok(RedirectChanges::default()));
    }
}
