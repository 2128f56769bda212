//! The API of redirect rules: read them, set them, and try them with the visitor that a request describes.

use std::net::IpAddr;
use std::sync::Arc;

use carom_shards::Code;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::{Map, Value, json};

use super::create::{RequestLimits, long_url};
use super::short_urls::{changed, read_object};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::response::{ApiResponse, json_text, to_json};
use crate::bridge::StoreRequest;
use crate::bridge::geo::source;
use carom_limits::CONDITIONS_WRITTEN_AT_ONCE;
use carom_model::access::Role;
use carom_model::clients::locations::{GeoLocation, GeoSource};
use carom_model::formats::dates;
use carom_model::link::Link;
use carom_model::link::fields::REDIRECT_RULES as RULES;
use carom_model::link::patch::Patch;
use carom_model::link::rules::json::{self as rules_json, RuleFault, UnknownRuleFields};
use carom_model::link::rules::{RedirectCondition, RedirectRules, RuleVisitor, VisitorPlace};

impl Context {
    /// Handles `GET /rest/v3/short-urls/{shortCode}/redirect-rules`: returns the rules of a link.
    pub(in crate::api) async fn redirect_rules(&self, code: &str, query: Option<&str>) -> ApiResponse {
        match self.find_in(code, query).await {
            Ok((link, _)) => {
                self.show_rules(link).await.unwrap_or_else(|reason| rules_unavailable(reason).into_answer())
            }
            Err(problem) => problem.into_answer(),
        }
    }

    /// Describes the rules of a link.
    ///
    /// # Errors
    /// The reason for which no thread describes many rules.
    async fn show_rules(&self, link: Arc<Link>) -> Result<ApiResponse, &'static str> {
        let count = conditions_of(&link);
        let write = move || to_json(&described(&link));
        let text = self.services.write_document(count, CONDITIONS_WRITTEN_AT_ONCE, write).await?;
        Ok(json_text(StatusCode::OK, text))
    }

    /// Handles `POST /rest/v3/short-urls/{shortCode}/redirect-rules`: replaces the rules of a link.
    pub(in crate::api) async fn set_redirect_rules(&self, code: &str, request: Request<Incoming>) -> ApiResponse {
        match self.try_set_redirect_rules(code, request).await {
            Ok(link) => self.show_rules(link).await.unwrap_or_else(|reason| {
                Problem::in_doubt(format!("The redirect rules are set, but cannot be shown: {reason}.")).into_answer()
            }),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_set_redirect_rules(&self, code: &str, request: Request<Incoming>) -> Result<Arc<Link>, Problem> {
        let parsed = self.code_in(code, request.uri().query()).await?;
        // Shlink looks for the link before it reads the rules.
        let found = self.find(parsed).await;
        found.map_err(|problem| problem.on_domain(Params::of(request.uri().query()).text("domain")))?;
        let fields = read_object(&self.services, request).await?;
        let rules = self.bounded(|bounds| read(&fields, bounds)).map_err(|invalid| Problem::invalid(&invalid))?;
        self.require_readers_of(&rules)?;
        self.change_rules(parsed, rules).await
    }

    /// Checks that every node of the fleet can read these rules.
    ///
    /// # Errors
    /// 503 if a node cannot.
    pub(super) fn require_readers_of(&self, rules: &RedirectRules) -> Result<(), Problem> {
        let unread = rules.conditions().map(RedirectCondition::kind).find(|kind| !self.fleet_reads(kind.format()));
        let Some(kind) = unread else { return Ok(()) };
        let detail = format!(
            "A node of the fleet runs a version that cannot read redirect rules with conditions of the type {}. Upgrade all nodes first.",
            kind.name()
        );
        Err(Problem::unavailable(detail))
    }

    async fn change_rules(&self, code: Code, rules: RedirectRules) -> Result<Arc<Link>, Problem> {
        let patch = Box::new(Patch { rules: Some(rules), ..Patch::default() });
        let (by, author) = (self.caller.scope(), self.author());
        let answer = self.services.store(|ticket| StoreRequest::Change { code, patch, by, author, ticket }).await;
        changed(answer, &code.as_slug().to_string())
    }

    /// Handles `GET /rest/v3/short-urls/{shortCode}/redirect-rules/try`: returns the destination of a visitor, and
    /// which conditions match.
    pub(in crate::api) async fn try_redirect_rules(&self, code: &str, query: Option<&str>) -> ApiResponse {
        match self.tried_rules(code, query).await {
            Ok(text) => json_text(StatusCode::OK, text),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn tried_rules(&self, code: &str, query: Option<&str>) -> Result<Vec<u8>, Problem> {
        let tried = self.tried_visitor(query)?;
        let (link, _) = self.find_in(code, query).await?;
        self.write_decision(tried, link).await
    }

    /// Handles `POST /admin/api/try-rules/{shortCode}`: tries the rules of the body in place of those of the link.
    pub(in crate::api) async fn try_drafted_rules(&self, code: &str, request: Request<Incoming>) -> ApiResponse {
        match self.tried_draft(code, request).await {
            Ok(text) => json_text(StatusCode::OK, text),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn tried_draft(&self, code: &str, request: Request<Incoming>) -> Result<Vec<u8>, Problem> {
        // The check of a destination tells what the lists of hosts have.
        self.caller.require(Role::WriteOwn)?;
        let query = request.uri().query().map(str::to_owned);
        let tried = self.tried_visitor(query.as_deref())?;
        let (link, _) = self.find_in(code, query.as_deref()).await?;
        let fields = read_object(&self.services, request).await?;
        let rules = self.bounded(|bounds| read(&fields, bounds)).map_err(|invalid| Problem::invalid(&invalid))?;
        let mut draft = Link::clone(&link);
        draft.labels.rules = rules;
        self.write_decision(tried, Arc::new(draft)).await
    }

    /// Reads the visitor that a query describes.
    fn tried_visitor(&self, query: Option<&str>) -> Result<TriedVisitor, Problem> {
        TriedVisitor::read(query, self.services.unix_ms()).map_err(|invalid| Problem::invalid(&invalid))
    }

    async fn write_decision(&self, tried: TriedVisitor, link: Arc<Link>) -> Result<Vec<u8>, Problem> {
        let (geo, count) = (self.services.geo().clone(), conditions_of(&link));
        let write = move || to_json(&tried.decide(&link, source(&geo)));
        self.services.write_document(count, CONDITIONS_WRITTEN_AT_ONCE, write).await.map_err(rules_unavailable)
    }
}

/// Returns the number of conditions in the rules of a link.
fn conditions_of(link: &Link) -> usize {
    link.labels.rules.conditions().count()
}

/// Returns the 503 for rules that cannot be shown now.
fn rules_unavailable(reason: &str) -> Problem {
    Problem::unavailable(format!("The redirect rules cannot be shown: {reason}."))
}

/// Describes the rules of a link.
fn described(link: &Link) -> Value {
    json!({ "defaultLongUrl": link.target, RULES: link.labels.rules.to_json() })
}

/// Reads a list of rules.
///
/// # Errors
/// Every field that is invalid, by its path.
pub(super) fn read_list(list: Value, bounds: &RequestLimits<'_>) -> Result<RedirectRules, Vec<Invalid>> {
    read(&Map::from_iter([(RULES.to_owned(), list)]), bounds)
}

/// Reads the rules of a request.
///
/// # Errors
/// Every field that is invalid, by its path.
pub(in crate::api) fn read(
    fields: &Map<String, Value>,
    bounds: &RequestLimits<'_>,
) -> Result<RedirectRules, Vec<Invalid>> {
    let unknown = fields.keys().filter(|name| *name != RULES);
    let mut invalid: Vec<Invalid> = unknown.map(|name| Invalid::new(name, "is not a known field")).collect();
    let Some(list) = fields.get(RULES) else {
        invalid.push(Invalid::new(RULES, "is missing; expected a list of rules"));
        return Err(invalid);
    };
    match rules_json::read(list, UnknownRuleFields::Refused, &|value| long_url(value, bounds)) {
        Ok(rules) if invalid.is_empty() => Ok(rules),
        Ok(_) => Err(invalid),
        Err(faults) => {
            invalid.extend(faults.into_iter().map(|RuleFault { field, reason, kind }| Invalid { field, reason, kind }));
            Err(invalid)
        }
    }
}

/// A visitor that a request describes.
struct TriedVisitor {
    user_agent: String,
    accept_language: String,
    query: String,
    address: Option<IpAddr>,
    country: String,
    city: String,
    at_ms: u64,
}

impl TriedVisitor {
    fn read(query: Option<&str>, now_ms: u64) -> Result<TriedVisitor, Vec<Invalid>> {
        let params = Params::of(query);
        let text = |params: &Params, name: &str| params.text(name).unwrap_or_default().to_owned();
        let mut invalid = Vec::new();
        let address = params.text("ipAddress").filter(|text| !text.is_empty()).and_then(|text| {
            let parsed = text.parse();
            parsed.map_err(|_| invalid.push(Invalid::new("ipAddress", "is not an IP address"))).ok()
        });
        let at_ms = params.text("date").filter(|text| !text.is_empty()).map_or(now_ms, |text| {
            let parsed = dates::parse(text);
            parsed.map_err(|error| invalid.push(Invalid::new("date", error.to_string()))).unwrap_or(now_ms)
        });
        let tried = TriedVisitor {
            user_agent: text(&params, "userAgent"),
            accept_language: text(&params, "acceptLanguage"),
            query: text(&params, "query"),
            address,
            country: text(&params, "country"),
            city: text(&params, "city"),
            at_ms,
        };
        params.finish()?;
        if invalid.is_empty() { Ok(tried) } else { Err(invalid) }
    }

    /// Decides with the location that the request gives, or else with that of the address.
    fn decide(&self, link: &Link, geo: Option<&dyn GeoSource>) -> Value {
        let given = GeoLocation { country: &self.country, city: &self.city, ..GeoLocation::default() };
        let visitor = RuleVisitor {
            user_agent: self.user_agent.as_bytes(),
            accept_language: &[self.accept_language.as_bytes()],
            query: self.query.strip_prefix('?').unwrap_or(&self.query).as_bytes(),
            address: self.address,
            place: if given.is_empty() { VisitorPlace::of(geo) } else { VisitorPlace::Given(given) },
            now_ms: self.at_ms,
            code: Some(&link.code),
            ..RuleVisitor::default()
        };
        let mut rules = link.labels.rules.to_json();
        let mut chosen = None;
        for (place, rule) in link.labels.rules.as_slice().iter().enumerate() {
            let matches: Vec<bool> = rule.conditions.iter().map(|condition| condition.matches(&visitor)).collect();
            let is_match = matches.iter().all(|matches| *matches);
            rules[place]["matches"] = is_match.into();
            for (at, matches) in matches.into_iter().enumerate() {
                rules[place]["conditions"][at]["matches"] = matches.into();
            }
            if is_match && chosen.is_none() {
                chosen = Some(place);
            }
        }
        let destination = link.labels.rules.destination(&link.target, &visitor);
        json!({ "longUrl": destination, "priority": chosen.map(|place| place + 1), RULES: rules })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_limits::REDIRECT_RULES_MAX;

    fn invalid(body: &Value) -> Vec<String> {
        let read = read(body.as_object().unwrap(), &RequestLimits::default());
        read.err().unwrap_or_default().into_iter().map(|one| one.field).collect()
    }

    #[test]
    fn invalid_fields_are_named_by_their_path() {
        let rules = |rules: Value| json!({ "redirectRules": rules });
        let of_condition =
            |condition: Value| rules(json!([{"longUrl": "https://example.com", "conditions": [condition]}]));
        let at = "redirectRules[0].conditions[0]";
        for (body, expected) in [
            (json!({}), vec!["redirectRules".to_owned()]),
            (json!({"redirectRules": null}), vec!["redirectRules".to_owned()]),
            (json!({"redirectRules": [], "rules": []}), vec!["rules".to_owned()]),
            // The cases of Shlink's own tests.
            (rules(json!(["foo"])), vec!["redirectRules[0]".to_owned()]),
            (
                rules(json!([{"longUrl": "invalid"}])),
                vec!["redirectRules[0].longUrl".to_owned(), "redirectRules[0].conditions".to_owned()],
            ),
            (
                rules(json!([{"longUrl": "https://example.com", "conditions": "foo"}])),
                vec!["redirectRules[0].conditions".to_owned()],
            ),
            (
                rules(json!([{"longUrl": "https://example.com", "conditions": []}])),
                vec!["redirectRules[0].conditions".to_owned()],
            ),
            (
                of_condition(json!({"type": "invalid", "matchKey": null, "matchValue": "foo"})),
                vec![format!("{at}.type")],
            ),
            (
                of_condition(json!({"type": "device", "matchValue": "invalid-device", "matchKey": null})),
                vec![format!("{at}.matchValue")],
            ),
            (
                of_condition(json!({"type": "ip-address", "matchKey": null, "matchValue": "not an IP address"})),
                vec![format!("{at}.matchValue")],
            ),
            (
                of_condition(json!({"type": "geolocation-country-code", "matchValue": "not a country code"})),
                vec![format!("{at}.matchValue")],
            ),
            (of_condition(json!({"type": "any-value-query-param", "matchValue": "a"})), vec![format!("{at}.matchKey")]),
            (of_condition(json!({"type": "language", "matchValue": 1})), vec![format!("{at}.matchValue")]),
            (of_condition(json!({"type": "language", "matchValue": "en", "not": true})), vec![format!("{at}.not")]),
        ] {
            assert_eq!(invalid(&body), expected, "{body}");
        }
        let many = json!([{"longUrl": "https://a/", "conditions": [{"type": "device", "matchValue": "ios"}]}]);
        let many = vec![many[0].clone(); REDIRECT_RULES_MAX + 1];
        assert_eq!(invalid(&rules(many.into())), ["redirectRules"]);
    }
}
