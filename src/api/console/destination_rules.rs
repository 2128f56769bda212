//! The rules for destinations: the rules in force, drafts as lists and as text, the check of a URL against a draft, and
//! saves. A save replaces the hosts of both lists without a restart; their sources stay settings. It names the version of
//! the rules that it replaces, so that it replaces no rules that its admin has not seen.

use std::collections::HashSet;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::{Map, Value, json};

use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json as json_answer, json_text, to_json};
use crate::api::rest::create::{Create, RequestLimits};
use crate::api::rest::short_urls::{read_object, refused, write_failed};
use crate::bridge::{DestinationRulesAnswer, JobKind, WriteFailure};
use carom_limits::SAVED_HOSTS_MAX;
use carom_model::access::AppName;
use carom_model::destination::hosts::{HostPattern, HostSet, host_of};
use carom_model::destination::long_url::LongUrl;
use carom_model::destination::rules::{RuleHosts, SavedRules};
use carom_model::formats::dates;
use carom_settings::check::{DraftFault, HostListDraft, RulesDraft, RulesInForce};

/// Field of a draft with its text.
const TEXT: &str = "toml";

/// Field of a save with the version that it replaces.
const VERSION: &str = "version";

/// Fields of a draft with its lists.
const LISTS: [&str; 2] = ["allow", "block"];

impl Context {
    /// Handles `GET /admin/api/destination-rules`: returns the rules in force, and whether they were saved.
    pub(super) async fn rules_in_force(&self) -> ApiResponse {
        let mut told = self.describe_in_force(self.services.saved_rules()).await;
        if !self.caller.manages() {
            hide_sources(&mut told);
        }
        json_answer(StatusCode::OK, &told)
    }

    /// Describes the rules in force on another thread: they may have many hosts.
    async fn describe_in_force(&self, saved: Arc<SavedRules>) -> Value {
        let (site, of_job) = (Arc::clone(&self.site), Arc::clone(&saved));
        let told = self.services.hand_off(JobKind::Document, move || in_force(&site.rules, &of_job)).await;
        // An admin must learn that the rules were saved, even if all threads are busy.
        told.unwrap_or_else(|_| in_force(&self.site.rules, &saved))
    }

    /// Handles `PUT /admin/api/destination-rules`: saves the hosts of a draft.
    pub(super) async fn save_rules(&self, request: Request<Incoming>) -> ApiResponse {
        answer_of(self.try_save_rules(request).await)
    }

    async fn try_save_rules(&self, request: Request<Incoming>) -> Result<Value, Problem> {
        let mut fields = read_object(&self.services, request).await?;
        let version = match fields.remove(VERSION) {
            Some(Value::String(version)) => version,
            _ => return Err(no_version()),
        };
        let site = Arc::clone(&self.site);
        let read = self.services.hand_off(JobKind::Document, move || read_hosts(&site.rules, &fields)).await;
        let hosts = read.map_err(refused)?.map_err(|invalid| Problem::invalid(&invalid))?;
        self.replace_rules(version, Some(hosts)).await
    }

    /// Handles `DELETE /admin/api/destination-rules`: removes the saved hosts, so that those of the settings apply again.
    pub(super) async fn apply_settings_again(&self, query: Option<&str>) -> ApiResponse {
        let params = Params::of(query);
        match params.text(VERSION) {
            Some(version) => answer_of(self.replace_rules(version.to_owned(), None).await),
            None => no_version().into_answer(),
        }
    }

    /// Replaces the rules of this version. Without hosts, those of the settings apply again.
    async fn replace_rules(&self, version: String, hosts: Option<RuleHosts>) -> Result<Value, Problem> {
        let by = self.caller.name().map_or("", AppName::as_str).to_owned();
        match self.services.save_rules(version, hosts, by).await {
            Ok(DestinationRulesAnswer::Saved(saved)) => Ok(self.describe_in_force(saved).await),
            Ok(DestinationRulesAnswer::Outdated(saved)) => {
                Err(Problem::rules_changed(self.describe_in_force(saved).await))
            }
            Ok(DestinationRulesAnswer::Refused(why)) => Err(refused(&why)),
            Ok(DestinationRulesAnswer::Failed(why)) => Err(Problem::rules_in_doubt(&why)),
            Err(WriteFailure::Unconfirmed(why)) => Err(Problem::rules_in_doubt(why)),
            Err(failure) => Err(write_failed(&failure)),
        }
    }

    /// Handles `POST /admin/api/destination-rules`: checks a draft, and returns it as lists and as text.
    pub(super) async fn draft_rules(&self, request: Request<Incoming>) -> ApiResponse {
        let draft = self.try_draft_rules(request).await;
        draft.map_or_else(Problem::into_answer, |text| json_text(StatusCode::OK, text))
    }

    async fn try_draft_rules(&self, request: Request<Incoming>) -> Result<Vec<u8>, Problem> {
        let fields = read_object(&self.services, request).await?;
        self.read_draft(fields, |base, draft| to_json(&described(base, &draft))).await
    }

    /// Reads a draft on another thread, where `then` turns it into the result. It may have as many hosts as a settings file.
    /// `then` also gets the rules of the settings.
    async fn read_draft<T: Send + 'static>(
        &self,
        fields: Map<String, Value>,
        then: impl FnOnce(&RulesInForce, RulesDraft) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let site = Arc::clone(&self.site);
        let read = move || read(&site.rules, &fields).map(|draft| then(&site.rules, draft));
        let read = self.services.hand_off(JobKind::Document, read).await;
        let read = read.map_err(|reason| Problem::unavailable(format!("The rules could not be read: {reason}.")))?;
        read.map_err(|invalid| Problem::invalid(&invalid))
    }

    /// Predicts the result of a request to shorten a URL with a draft in place of the rules.
    pub(super) async fn predict_with(&self, fields: &Map<String, Value>, rules: Value) -> Result<Value, Problem> {
        let Value::Object(rules) = rules else {
            return Err(Problem::invalid(&[Invalid::new("rules", "must be an object with the lists allow and block")]));
        };
        let url = stored_url(fields);
        let host = url.as_deref().map(|url| host_of(url.as_bytes()).to_owned()).unwrap_or_default();
        let current: [Option<Arc<HostSet>>; 2] = [self.services.allowed().clone(), self.services.blocked().clone()];
        let sought = host.clone();
        let places = move |base: &RulesInForce, draft: RulesDraft| {
            let RulesInForce { rules: settings, hides_allow_source, hides_block_source, .. } = base;
            let [allowed, blocked] = &current;
            let allow = listed(&draft.allow, (&settings.allow, *hides_allow_source), allowed.as_deref(), &sought);
            let block = listed(&draft.block, (&settings.block, *hides_block_source), blocked.as_deref(), &sought);
            (allow, block)
        };
        let (allow, block) = self.read_draft(rules, places).await?;
        let allowed = match allow {
            Listed::NoList | Listed::Unknown => None,
            Listed::Yes => Some(alone(&host)),
            Listed::No => Some(HostSet::default()),
        };
        let blocked = (block == Listed::Yes).then(|| alone(&host));
        let read = self.bounded(|bounds| {
            Create::read(fields, &RequestLimits { allowed: allowed.as_ref(), blocked: blocked.as_ref(), ..*bounds })
        });
        Ok(prediction(&read, url.as_deref(), allow, block))
    }
}

/// Returns the response with a result.
pub(super) fn answer_of(told: Result<Value, Problem>) -> ApiResponse {
    told.map_or_else(Problem::into_answer, |told| json_answer(StatusCode::OK, &told))
}

/// Returns the destination of a request as it would be stored, even if a list forbids it.
pub(super) fn stored_url(fields: &Map<String, Value>) -> Option<String> {
    let text = fields.get("longUrl").and_then(Value::as_str).unwrap_or_default();
    LongUrl::parse(text, &[]).ok().map(String::from)
}

/// Describes whether a request to shorten `url` would be accepted. `read` is the result of reading the request, and `allow`
/// and `block` are the places of its host in both lists.
pub(super) fn prediction<T>(read: &Result<T, Vec<Invalid>>, url: Option<&str>, allow: Listed, block: Listed) -> Value {
    let reasons: Vec<String> = match read {
        Ok(_) => Vec::new(),
        Err(invalid) => invalid.iter().map(|one| format!("{} {}", one.field, one.reason)).collect(),
    };
    let is_known = allow != Listed::Unknown && block != Listed::Unknown;
    json!({
        "accepted": (is_known || !reasons.is_empty()).then(|| read.is_ok()),
        "longUrl": url,
        "reasons": reasons,
        "allowList": allow.named("allowed", "not allowed"),
        "blockList": block.named("blocked", "not blocked"),
    })
}

fn no_version() -> Problem {
    Problem::invalid(&[Invalid::new(VERSION, "is missing; send the version of the rules that you have read")])
}

/// Describes the rules in force: those of the settings, with saved hosts if there are any.
fn in_force(settings: &RulesInForce, saved: &SavedRules) -> Value {
    let of_settings = settings.rules.hosts();
    let base = settings.with_saved(saved.or_settings(&of_settings));
    let at = saved.applied_ms().map(dates::format);
    let mut told = described(&base, &base.rules);
    told[VERSION] = saved.version(&of_settings).into();
    told["saved"] = at.map_or(Value::Null, |at| json!({"at": at, "by": saved.by()}));
    told
}

/// Hides the sources, which name files and addresses of the machine.
fn hide_sources(told: &mut Value) {
    for list in LISTS {
        if told[list]["source"].take().is_string() {
            told[list]["hidesSource"] = true.into();
        }
    }
    // The text has them as well.
    told[TEXT] = Value::Null;
}

/// Reads the hosts of a draft that is to be saved.
///
/// # Errors
/// Every field that is invalid, by its path.
fn read_hosts(settings: &RulesInForce, fields: &Map<String, Value>) -> Result<RuleHosts, Vec<Invalid>> {
    let draft = read(settings, fields)?;
    let lists = [(&draft.allow, &settings.rules.allow), (&draft.block, &settings.rules.block)];
    let mut invalid = Vec::new();
    for (name, (list, known)) in LISTS.into_iter().zip(lists) {
        if list.source.is_some() && list.source != known.source {
            let reason = "cannot be saved, because it names a file or an address for one machine; change it in the settings file";
            invalid.push(Invalid::new(format!("{name}.source"), reason));
        }
    }
    let hosts = draft.hosts();
    if hosts.len() > SAVED_HOSTS_MAX {
        let longer = usize::from(hosts.block.len() > hosts.allow.len());
        let reason = format!(
            "is too long: both lists have {} hosts, and a save can have {SAVED_HOSTS_MAX}; move some to the source of the list",
            hosts.len()
        );
        invalid.push(Invalid::new(format!("{}.hosts", LISTS[longer]), reason));
    }
    if invalid.is_empty() { Ok(hosts) } else { Err(invalid) }
}

/// The place of a host in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Listed {
    /// There is no such list.
    NoList,
    /// An entry covers the host.
    Yes,
    /// No entry covers the host.
    No,
    /// The list is that of a draft with another source, which carom has not read.
    Unknown,
}

impl Listed {
    fn named(self, yes: &'static str, no: &'static str) -> &'static str {
        match self {
            Listed::NoList => "no list",
            Listed::Yes => yes,
            Listed::No => no,
            Listed::Unknown => "unknown",
        }
    }
}

/// Finds a host in a list of a draft. `base` is the list of the settings, with true if that has a hidden source. `current`
/// is the list in force, with the entries of its source.
fn listed(draft: &HostListDraft, base: (&HostListDraft, bool), current: Option<&HostSet>, host: &str) -> Listed {
    let (settings, hides_source) = base;
    if draft.hosts.iter().any(|entry| entry.covers(host)) {
        return Listed::Yes;
    }
    let keeps_source = draft.source == settings.source;
    match (&draft.source, keeps_source) {
        (Some(_), false) => Listed::Unknown,
        (None, _) if draft.hosts.is_empty() && !(keeps_source && hides_source) => Listed::NoList,
        (_, true) if current.is_some_and(|list| list.source_has(host)) => Listed::Yes,
        _ => Listed::No,
    }
}

/// Returns a list with one host; an empty one if the text is not a host.
fn alone(host: &str) -> HostSet {
    HostPattern::parse(host).into_iter().collect()
}

/// Describes a draft as lists and as text.
fn described(base: &RulesInForce, draft: &RulesDraft) -> Value {
    let list = |list: &HostListDraft, hides_source: bool| {
        let hosts: Vec<String> = list.hosts.iter().map(ToString::to_string).collect();
        json!({"hosts": hosts, "source": list.source, "hidesSource": hides_source && list.source.is_none()})
    };
    json!({
        "allow": list(&draft.allow, base.hides_allow_source),
        "block": list(&draft.block, base.hides_block_source),
        TEXT: draft.to_toml(),
    })
}

/// Reads a draft: either its text, or its lists.
///
/// # Errors
/// Every field that is invalid, by its path.
fn read(base: &RulesInForce, fields: &Map<String, Value>) -> Result<RulesDraft, Vec<Invalid>> {
    let names: &[&str] = if fields.contains_key(TEXT) { &[TEXT] } else { &LISTS };
    let unknown = fields.keys().filter(|name| !names.contains(&name.as_str()));
    let mut invalid: Vec<Invalid> = unknown.map(|name| Invalid::new(name, "is not a known field")).collect();
    let draft = match fields.get(TEXT) {
        Some(Value::String(text)) => base.parse(text).unwrap_or_else(|faults| {
            let of_text = |DraftFault { line, reason }| Invalid::new(TEXT, format!("line {line}: {reason}"));
            invalid.extend(faults.into_iter().map(of_text));
            RulesDraft::default()
        }),
        Some(_) => {
            invalid.push(Invalid::new(TEXT, "must be a string"));
            RulesDraft::default()
        }
        None => {
            let [allow, block] = LISTS.map(|name| read_list(base, name, fields.get(name), &mut invalid));
            RulesDraft { allow, block }
        }
    };
    if invalid.is_empty() { Ok(draft) } else { Err(invalid) }
}

/// Reads a list of a draft. A missing one is empty.
fn read_list(base: &RulesInForce, name: &str, value: Option<&Value>, invalid: &mut Vec<Invalid>) -> HostListDraft {
    const FIELDS: [&str; 2] = ["hosts", "source"];
    let mut list = HostListDraft::default();
    let fields = match value {
        None | Some(Value::Null) => return list,
        Some(Value::Object(fields)) => fields,
        Some(_) => {
            invalid.push(Invalid::new(name, "must be an object with hosts and source"));
            return list;
        }
    };
    let unknown = fields.keys().filter(|field| !FIELDS.contains(&field.as_str()));
    invalid.extend(unknown.map(|field| Invalid::new(format!("{name}.{field}"), "is not a known field")));
    let path = format!("{name}.source");
    match fields.get("source") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => match base.check_source(text) {
            Ok(source) => list.source = Some(source),
            Err(reason) => invalid.push(Invalid::new(path, reason)),
        },
        Some(_) => invalid.push(Invalid::new(path, "must be a string or null")),
    }
    let empty = Vec::new();
    let hosts = match fields.get("hosts") {
        None | Some(Value::Null) => &empty,
        Some(Value::Array(hosts)) => hosts,
        Some(_) => {
            invalid.push(Invalid::new(format!("{name}.hosts"), "must be a list of hosts"));
            &empty
        }
    };
    let mut known = HashSet::new();
    for (place, host) in hosts.iter().enumerate() {
        let read = match host.as_str().map(HostPattern::parse) {
            Some(Ok(entry)) if known.insert(entry.clone()) => Ok(entry),
            Some(Ok(_)) => Err("is already on the list".to_owned()),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("must be a string such as \"shop.example\"".to_owned()),
        };
        match read {
            Ok(entry) => list.hosts.push(entry),
            Err(reason) => invalid.push(Invalid::new(format!("{name}.hosts[{place}]"), reason)),
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(body: &Value) -> Vec<String> {
        let read = read(&RulesInForce::default(), body.as_object().unwrap());
        read.err().unwrap_or_default().into_iter().map(|one| one.field).collect()
    }

    fn entries(texts: &[&str]) -> Vec<HostPattern> {
        texts.iter().map(|text| HostPattern::parse(text).unwrap()).collect()
    }

    #[test]
    fn invalid_parts_of_a_draft_are_named_by_their_path() {
        let twice = json!(["a.example", "A.example", "b c", 7]);
        for (body, expected) in [
            (json!({}), vec![]),
            (json!({"allow": {"hosts": ["a.example"], "source": null}, "block": null}), vec![]),
            (json!({"allow": {"hosts": twice}}), vec!["allow.hosts[1]", "allow.hosts[2]", "allow.hosts[3]"]),
            (json!({"block": {"source": "redis", "host": []}}), vec!["block.host", "block.source"]),
            (json!({"block": [], "rules": {}}), vec!["rules", "block"]),
            (json!({"allow": {"hosts": {}, "source": 1}}), vec!["allow.source", "allow.hosts"]),
            (json!({"toml": 1}), vec!["toml"]),
            (json!({"toml": "", "allow": {}}), vec!["allow"]),
            (json!({"toml": "[allow]\nhosts = ['a b', 'c d']\n"}), vec!["toml", "toml"]),
        ] {
            assert_eq!(invalid(&body), expected, "{body}");
        }
    }

    #[test]
    fn a_draft_is_described_as_lists_and_as_text() {
        let base = RulesInForce { hides_block_source: true, ..RulesInForce::default() };
        let draft = read(&base, json!({"allow": {"hosts": ["*.Shop.example"]}}).as_object().unwrap());
        let text = "[allow]\nhosts = [\n  \"*.shop.example\",\n]\n";
        let expected = json!({
            "allow": {"hosts": ["*.shop.example"], "source": null, "hidesSource": false},
            "block": {"hosts": [], "source": null, "hidesSource": true},
            "toml": text,
        });
        assert_eq!(described(&base, &draft.unwrap()), expected);
        let by_text = read(&base, json!({ "toml": text }).as_object().unwrap());
        assert_eq!(described(&base, &by_text.unwrap()), expected);
    }

    #[test]
    fn saves_have_hosts_and_no_other_sources() {
        let source = Some("/hosts.json".to_owned());
        let rules = RulesDraft { allow: HostListDraft { hosts: Vec::new(), source }, block: HostListDraft::default() };
        let settings = RulesInForce { rules, ..RulesInForce::default() };
        let read = |body: Value| {
            let hosts = read_hosts(&settings, body.as_object().unwrap());
            hosts.map_err(|invalid| invalid.into_iter().map(|one| one.field).collect::<Vec<_>>())
        };
        let saved = RuleHosts { allow: entries(&["a.example"]), block: Vec::new() };
        for source in [json!(null), json!("/hosts.json")] {
            assert_eq!(read(json!({"allow": {"hosts": ["a.example"], "source": source}})), Ok(saved.clone()));
        }
        assert_eq!(read(json!({"toml": "[allow]\nhosts = ['a.example']\n"})), Ok(saved));
        let other = json!({"allow": {"source": "/other.json"}, "block": {"source": "/hosts.json"}});
        assert_eq!(read(other), Err(vec!["allow.source".to_owned(), "block.source".to_owned()]));
        let many: Vec<String> = (0..=SAVED_HOSTS_MAX).map(|number| format!("host-{number}.example")).collect();
        assert!(read(json!({"block": {"hosts": many[1..]}})).is_ok());
        assert_eq!(read(json!({"block": {"hosts": many}})), Err(vec!["block.hosts".to_owned()]));
    }

    #[test]
    fn rules_in_force_say_whether_they_were_saved() {
        let block = HostListDraft { hosts: entries(&["a.example"]), source: Some("redis".to_owned()) };
        let rules = RulesDraft { allow: HostListDraft::default(), block };
        let settings = RulesInForce { rules, has_redis: true, ..RulesInForce::default() };
        let first = SavedRules::default();
        let told = in_force(&settings, &first);
        assert_eq!(told["block"], json!({"hosts": ["a.example"], "source": "redis", "hidesSource": false}));
        assert_eq!(told["saved"], Value::Null);
        assert_eq!(told["version"], first.version(&settings.rules.hosts()));
        let saved = first.replaced(Some(RuleHosts::default()), "ops", 1_000);
        let mut told = in_force(&settings, &saved);
        assert_eq!(told["block"], json!({"hosts": [], "source": "redis", "hidesSource": false}));
        assert_eq!(told["saved"], json!({"at": dates::format(1_000), "by": "ops"}));
        hide_sources(&mut told);
        assert_eq!(told["block"], json!({"hosts": [], "source": null, "hidesSource": true}));
        assert_eq!(told["allow"], json!({"hosts": [], "source": null, "hidesSource": false}));
        assert!(!told.to_string().contains("redis"), "{told}");
        assert_eq!(in_force(&settings, &saved.replaced(None, "", 2_000))["saved"], Value::Null);
    }

    #[test]
    fn hosts_are_looked_up_in_the_draft_and_in_a_source_that_stays() {
        let list = |hosts: &[&str], source: Option<&str>| HostListDraft {
            hosts: entries(hosts),
            source: source.map(str::to_owned),
        };
        let settings = list(&["old.example"], Some("/hosts.json"));
        let current = HostSet::of_list(&settings.hosts, &entries(&["read.example"]));
        let find = |draft: HostListDraft, host: &str| listed(&draft, (&settings, false), Some(&current), host);
        let kept = || list(&["new.example"], Some("/hosts.json"));
        assert_eq!(find(kept(), "new.example"), Listed::Yes);
        assert_eq!(find(kept(), "read.example"), Listed::Yes);
        assert_eq!(find(kept(), "old.example"), Listed::No);
        let other = || list(&["new.example"], Some("redis"));
        assert_eq!(find(other(), "new.example"), Listed::Yes);
        assert_eq!(find(other(), "read.example"), Listed::Unknown);
        assert_eq!(find(list(&["new.example"], None), "read.example"), Listed::No);
        assert_eq!(find(list(&[], None), "read.example"), Listed::NoList);
        // A hidden source stays if the draft names no other one.
        let hidden = list(&[], None);
        let find = |draft: HostListDraft, host: &str| listed(&draft, (&hidden, true), Some(&current), host);
        assert_eq!(find(list(&[], None), "read.example"), Listed::Yes);
        assert_eq!(find(list(&[], None), "other.example"), Listed::No);
    }
}
