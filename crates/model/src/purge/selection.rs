//! The terms of a purge that selects its links in a shared home. A node stores them until it has read all links.

use carom_shards::code::DOMAIN_ID_LEN;
use carom_shards::{Code, DomainId};
use serde_json::{Value, json};

use super::EndedSelector;
use crate::access::{AppName, Scope};
use crate::link::Link;

/// The links that a purge selects in a shared home, and how many of them it may delete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PurgeSelection {
    /// The property that selects the links.
    pub selector: EndedSelector,
    /// The links that the client may change.
    pub scope: Scope,
    /// The largest number of links to delete; `None` to count the links and delete none.
    pub confirmed: Option<u64>,
}

impl PurgeSelection {
    /// True if a link of this code may be selected.
    pub fn may_have(&self, code: &Code) -> bool {
        let is_of_domain = match &self.selector {
            EndedSelector::Domain(domain) => code.domain() == *domain,
            EndedSelector::App(_) | EndedSelector::Tag(_) | EndedSelector::Destination(_) => true,
        };
        is_of_domain && self.scope.has_domain(code.domain())
    }

    /// True if a link is selected.
    pub fn has(&self, link: &Link) -> bool {
        self.scope.has(link) && self.selector.has_link(link)
    }

    /// Returns the terms as JSON.
    pub fn to_json(&self) -> Value {
        let selector = match &self.selector {
            EndedSelector::Domain(domain) => json!({ "domain": domain_to_json(*domain) }),
            EndedSelector::App(app) => json!({ "app": app.as_str() }),
            EndedSelector::Tag(tag) => json!({ "tag": tag }),
            EndedSelector::Destination(prefixes) => json!({ "destination": prefixes }),
        };
        let within = |domains: &[Option<DomainId>]| domains.iter().map(|domain| domain_to_json(*domain)).collect();
        let domains: Option<Vec<Value>> = self.scope.domains().map(within);
        let app = self.scope.app().map(AppName::as_str);
        json!({ "selector": selector, "domains": domains, "app": app, "confirmed": self.confirmed })
    }

    /// Reads the terms from JSON; `None` if they are malformed. Other members are ignored.
    pub fn from_json(json: &Value) -> Option<PurgeSelection> {
        let (name, value) = json.get("selector")?.as_object()?.iter().next()?;
        let selector = match name.as_str() {
            "domain" => EndedSelector::Domain(domain_of_json(value)?),
            "app" => EndedSelector::App(AppName::parse(value.as_str()?).ok()?),
            "tag" => EndedSelector::Tag(value.as_str()?.to_owned()),
            "destination" => {
                let prefixes = value.as_array()?.iter().map(|prefix| prefix.as_str().map(str::to_owned));
                EndedSelector::Destination(prefixes.collect::<Option<_>>()?)
            }
            _ => return None,
        };
        let domains = nullable(json, "domains", |domains| {
            domains.as_array()?.iter().map(domain_of_json).collect::<Option<Vec<Option<DomainId>>>>()
        })?;
        let app = nullable(json, "app", |app| AppName::parse(app.as_str()?).ok())?;
        let confirmed = nullable(json, "confirmed", Value::as_u64)?;
        let mut scope = app.map_or(Scope::ALL, Scope::of_app);
        if let Some(domains) = domains {
            scope = scope.within(domains);
        }
        Some(PurgeSelection { selector, scope, confirmed })
    }
}

/// Reads a member that may be null; `None` if it is missing or malformed. A missing member would widen the selection.
fn nullable<T>(json: &Value, name: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<Option<T>> {
    match json.get(name)? {
        Value::Null => Some(None),
        value => read(value).map(Some),
    }
}

/// Returns the bytes of the ID of a domain; null for the default domain.
fn domain_to_json(domain: Option<DomainId>) -> Value {
    json!(domain.map(DomainId::to_bytes))
}

/// Returns the domain with this ID; `None` if it is malformed.
fn domain_of_json(json: &Value) -> Option<Option<DomainId>> {
    if json.is_null() {
        return Some(None);
    }
    let byte = |byte: &Value| u8::try_from(byte.as_u64()?).ok();
    let bytes: Vec<u8> = json.as_array()?.iter().map(byte).collect::<Option<_>>()?;
    let bytes: [u8; DOMAIN_ID_LEN] = bytes.try_into().ok()?;
    DomainId::from_bytes(bytes).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Origin;
    use crate::link::labels::Tags;
    use crate::testing::link;

    fn domain(number: u8) -> Option<DomainId> {
        DomainId::from_bytes([number; DOMAIN_ID_LEN])
    }

    fn app(name: &str) -> AppName {
        AppName::parse(name).unwrap()
    }

    #[test]
    fn terms_are_read_back() {
        let of_domains = Scope::ALL.within([None, domain(7)]);
        let scopes = [Scope::ALL, of_domains, Scope::of_app(app("shop")), Scope::ALL.within([])];
        let selectors = [
            EndedSelector::Domain(None),
            EndedSelector::Domain(domain(3)),
            EndedSelector::App(app("shop")),
            EndedSelector::Tag("a \"b\"".to_owned()),
            EndedSelector::Destination(vec!["https://a.example/".to_owned(), "https://A.example/".to_owned()]),
        ];
        for scope in scopes {
            for selector in &selectors {
                for confirmed in [None, Some(0), Some(u64::MAX)] {
                    let terms = PurgeSelection { selector: selector.clone(), scope: scope.clone(), confirmed };
                    let text = terms.to_json().to_string();
                    let read = PurgeSelection::from_json(&serde_json::from_str(&text).unwrap());
                    assert_eq!(read, Some(terms), "{text}");
                }
            }
        }
    }

    #[test]
    fn malformed_terms_are_refused() {
        let whole = json!({"selector": {"tag": "a"}, "domains": null, "app": null, "confirmed": 1});
        assert!(PurgeSelection::from_json(&whole).is_some());
        for member in ["selector", "domains", "app", "confirmed"] {
            let mut part = whole.clone();
            part.as_object_mut().unwrap().remove(member);
            assert_eq!(PurgeSelection::from_json(&part), None, "a purge without {member} may take more links");
        }
        for (member, value) in [
            ("selector", json!({"colour": "red"})),
            ("selector", json!({"destination": [1]})),
            ("domains", json!([[1, 2]])),
            ("domains", json!([[0, 0, 0, 0, 0, 0]])),
            ("domains", json!([[1, 2, 3, 4, 5, 256]])),
            ("app", json!("Shop")),
            ("confirmed", json!(-1)),
        ] {
            let mut other = whole.clone();
            other[member] = value;
            assert_eq!(PurgeSelection::from_json(&other), None, "{other}");
        }
    }

    #[test]
    fn scope_and_selector_select_together() {
        let mut of_domain = link("ab", Origin::Custom);
        of_domain.code = of_domain.code.within(domain(3));
        of_domain.labels.tags = Tags::of(["old"]).unwrap();
        let terms = |selector: EndedSelector, scope: Scope| PurgeSelection { selector, scope, confirmed: None };
        let tagged = |scope| terms(EndedSelector::Tag("old".to_owned()), scope);
        assert!(tagged(Scope::ALL).has(&of_domain));
        assert!(tagged(Scope::ALL.within([domain(3)])).has(&of_domain));
        assert!(!tagged(Scope::ALL.within([None])).has(&of_domain), "the key has no access to the domain");
        assert!(!tagged(Scope::ALL.within([None])).may_have(&of_domain.code));
        assert!(!terms(EndedSelector::Tag("other".to_owned()), Scope::ALL).has(&of_domain));
        let of_default = terms(EndedSelector::Domain(None), Scope::ALL);
        assert!(!of_default.may_have(&of_domain.code), "its state need not be read");
        assert!(of_default.may_have(&link("ab", Origin::Custom).code));
    }
}
