//! Redirect rules as JSON, in the form in which requests and lines of imports have them. Pure.

use carom_limits::{REDIRECT_RULES_MAX, RULE_CONDITIONS_MAX};
use serde_json::{Map, Value};

use super::{ConditionError, ConditionType, RedirectCondition, RedirectRule, RedirectRules, RulesError};
use crate::destination::long_url::LongUrl;
use crate::link::fields::{FaultKind, FieldFault, LONG_URL, REDIRECT_RULES};

/// A field of rules that is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleFault {
    /// The path of the field, such as `redirectRules[0].longUrl`.
    pub field: String,
    /// The reason why the field is invalid, as a text that follows its name.
    pub reason: String,
    /// The kind of the fault; `None` if programs need not recognise it.
    pub kind: Option<FaultKind>,
}

/// The treatment of fields that rules do not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnknownRuleFields {
    /// The rules are invalid.
    Refused,
    /// The fields are left out: another program may have written them.
    Skipped,
}

/// Reads a list of rules. `long_url` reads a destination, or returns the reason why it is invalid.
///
/// # Errors
/// Every field that is invalid.
pub fn read(
    list: &Value,
    unknown: UnknownRuleFields,
    long_url: &dyn Fn(Option<&Value>) -> Result<LongUrl, FieldFault>,
) -> Result<RedirectRules, Vec<RuleFault>> {
    let mut reader = RulesReader { unknown, long_url, faults: Vec::new() };
    let rules = reader.rules(list);
    if !reader.faults.is_empty() {
        return Err(reader.faults);
    }
    let fault =
        |error: RulesError| RuleFault { field: REDIRECT_RULES.to_owned(), reason: error.to_string(), kind: None };
    RedirectRules::new(rules).map_err(|error| vec![fault(error)])
}

/// A reader of rules, with the faults that it has found.
struct RulesReader<'r> {
    unknown: UnknownRuleFields,
    long_url: &'r dyn Fn(Option<&Value>) -> Result<LongUrl, FieldFault>,
    faults: Vec<RuleFault>,
}

impl RulesReader<'_> {
    fn refuse(&mut self, field: impl Into<String>, fault: impl Into<FieldFault>) {
        let FieldFault { reason, kind } = fault.into();
        self.faults.push(RuleFault { field: field.into(), reason, kind });
    }

    fn refuse_unknown(&mut self, at: &str, fields: &Map<String, Value>, known: &[&str]) {
        if self.unknown == UnknownRuleFields::Skipped {
            return;
        }
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            self.refuse(format!("{at}.{name}"), "is not a known field");
        }
    }

    fn rules(&mut self, list: &Value) -> Vec<RedirectRule> {
        let Some(list) = list.as_array() else {
            self.refuse(REDIRECT_RULES, "must be a list of rules");
            return Vec::new();
        };
        if list.len() > REDIRECT_RULES_MAX {
            self.refuse(REDIRECT_RULES, RulesError::TooMany.to_string());
            return Vec::new();
        }
        let mut rules = Vec::with_capacity(list.len());
        for (place, value) in list.iter().enumerate() {
            rules.extend(self.rule(&format!("{REDIRECT_RULES}[{place}]"), value));
        }
        rules
    }

    fn rule(&mut self, at: &str, value: &Value) -> Option<RedirectRule> {
        let Some(fields) = value.as_object() else {
            self.refuse(at, "must be an object with longUrl and conditions");
            return None;
        };
        self.refuse_unknown(at, fields, &[LONG_URL, "conditions", "priority"]);
        // The order of the list decides, as in Shlink, so other programs may write anything here.
        let is_number = |priority: &Value| priority.is_null() || priority.is_number();
        if self.unknown == UnknownRuleFields::Refused && !fields.get("priority").is_none_or(is_number) {
            self.refuse(format!("{at}.priority"), "must be a number");
        }
        let url = (self.long_url)(fields.get(LONG_URL));
        let url = url.map_err(|fault| self.refuse(format!("{at}.{LONG_URL}"), fault)).ok();
        let conditions_at = format!("{at}.conditions");
        let Some(list) = fields.get("conditions").and_then(Value::as_array) else {
            self.refuse(conditions_at, "must be a list of conditions");
            return None;
        };
        if !(1..=RULE_CONDITIONS_MAX).contains(&list.len()) {
            self.refuse(conditions_at, RulesError::Conditions.to_string());
            return None;
        }
        let mut conditions = Vec::with_capacity(list.len());
        for (place, value) in list.iter().enumerate() {
            conditions.push(self.condition(&format!("{conditions_at}[{place}]"), value));
        }
        let conditions: Vec<RedirectCondition> = conditions.into_iter().collect::<Option<_>>()?;
        Some(RedirectRule { long_url: String::from(url?).into(), conditions: conditions.into() })
    }

    fn condition(&mut self, at: &str, value: &Value) -> Option<RedirectCondition> {
        let Some(fields) = value.as_object() else {
            self.refuse(at, "must be an object with type, matchKey and matchValue");
            return None;
        };
        self.refuse_unknown(at, fields, &["type", "matchKey", "matchValue"]);
        let Some(kind) = fields.get("type").and_then(Value::as_str).and_then(ConditionType::named) else {
            let names = ConditionType::ALL.map(|(_, name)| name).join(", ");
            self.refuse(format!("{at}.type"), format!("must be one of {names}"));
            return None;
        };
        let (key, value) = (self.text(at, "matchKey", fields), self.text(at, "matchValue", fields));
        match RedirectCondition::new(kind, key?, value?) {
            Ok(condition) => Some(condition),
            Err(error) => {
                let name = if matches!(error, ConditionError::Key(_)) { "matchKey" } else { "matchValue" };
                self.refuse(format!("{at}.{name}"), error.to_string());
                None
            }
        }
    }

    /// Reads a text that may be missing; `None` if it is invalid.
    fn text<'v>(&mut self, at: &str, name: &str, fields: &'v Map<String, Value>) -> Option<Option<&'v str>> {
        match fields.get(name) {
            None | Some(Value::Null) => Some(None),
            Some(Value::String(text)) => Some(Some(text)),
            Some(_) => {
                self.refuse(format!("{at}.{name}"), "must be a string or null");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::fields::destination;
    use serde_json::json;

    fn read_as(unknown: UnknownRuleFields, list: &Value) -> Result<RedirectRules, Vec<RuleFault>> {
        read(list, unknown, &|value| destination(value, &[]))
    }

    #[test]
    fn rules_are_read_as_they_are_shown() {
        let list = json!([{"longUrl": "https://a.example/", "priority": 1,
            "conditions": [{"type": "device", "matchKey": null, "matchValue": "ios"}]}]);
        let rules = read_as(UnknownRuleFields::Refused, &list).unwrap();
        assert_eq!(read_as(UnknownRuleFields::Refused, &rules.to_json()).unwrap().encoded(), rules.encoded());
        assert_eq!(rules.as_slice().len(), 1);
    }

    #[test]
    fn unknown_fields_are_refused_or_skipped() {
        let list = json!([{"longUrl": "https://a.example/", "colour": "red", "priority": "1",
            "conditions": [{"type": "device", "matchValue": "ios", "not": true}]}]);
        let faults = read_as(UnknownRuleFields::Refused, &list).unwrap_err();
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        let expected = ["redirectRules[0].colour", "redirectRules[0].priority", "redirectRules[0].conditions[0].not"];
        assert_eq!(fields, expected);
        assert!(read_as(UnknownRuleFields::Skipped, &list).is_ok());
    }

    #[test]
    fn faults_say_where_they_are() {
        let faults = read_as(UnknownRuleFields::Skipped, &json!([{"conditions": [{"type": "x"}]}])).unwrap_err();
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["redirectRules[0].longUrl", "redirectRules[0].conditions[0].type"]);
        assert!(faults[0].reason.starts_with("is missing"), "{faults:?}");
        let relative = read_as(UnknownRuleFields::Skipped, &json!([{"longUrl": "a.example", "conditions": []}]));
        let kinds: Vec<Option<FaultKind>> = relative.unwrap_err().iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds, [Some(FaultKind::RelativeUrl), None]);
    }
}
