//! The redirect rules of a link: other destinations for some of its visitors, as in Shlink.
//!
//! Rules are checked in their order. A rule matches if all of its conditions do, and the first rule that matches gives
//! the destination. If none does, the visitor gets the destination of the link. [`RedirectRules`] is complete: it was
//! checked when it was made, and its conditions are parsed once ([`condition`]). [`visitor`] is what a condition sees
//! of a request, and [`mod@json`] reads the rules of a request. No I/O and no clock.

pub mod condition;
pub mod countries;
pub mod json;
pub mod visitor;

use std::fmt;
use std::sync::Arc;

use carom_limits::{REDIRECT_RULES_LEN_MAX, REDIRECT_RULES_MAX, RULE_CONDITIONS_MAX};
use serde_json::{Value, json};

pub use self::condition::{ConditionError, ConditionType, RedirectCondition};
pub use self::visitor::{RuleVisitor, VisitorPlace};

/// The first byte of the stored form. Another number is a form of a later version.
const FORM: u8 = 1;

/// A rule of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedirectRule {
    /// The destination: a URL as the `url` crate serialises it, 1 to [`carom_limits::DESTINATION_LEN_MAX`] bytes.
    pub long_url: Box<str>,
    /// The conditions, at least one. All of them must match.
    pub conditions: Box<[RedirectCondition]>,
}

/// The rules of a link in the order of their priority. Most links have none, which takes no memory beside the pointer.
#[derive(Clone, Default)]
pub struct RedirectRules(Option<Arc<RuleSet>>);

struct RuleSet {
    rules: Box<[RedirectRule]>,
    /// The stored form.
    encoded: Box<[u8]>,
}

/// The reason for which rules cannot be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RulesError {
    /// The number of rules is above [`REDIRECT_RULES_MAX`].
    TooMany,
    /// A rule without conditions, or with more than [`RULE_CONDITIONS_MAX`].
    Conditions,
    /// The stored form takes more than [`REDIRECT_RULES_LEN_MAX`] bytes.
    TooLong,
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RulesError::TooMany => write!(f, "are too many; a link has at most {REDIRECT_RULES_MAX} rules"),
            RulesError::Conditions => write!(f, "must have 1 to {RULE_CONDITIONS_MAX} conditions"),
            RulesError::TooLong => {
                write!(f, "are too long; all rules of a link take at most {REDIRECT_RULES_LEN_MAX} bytes")
            }
        }
    }
}

impl std::error::Error for RulesError {}

impl RedirectRules {
    /// Returns these rules in this order.
    ///
    /// # Errors
    /// [`RulesError`] if a bound is exceeded.
    pub fn new(mut rules: Vec<RedirectRule>) -> Result<RedirectRules, RulesError> {
        if rules.is_empty() {
            return Ok(RedirectRules(None));
        }
        if rules.len() > REDIRECT_RULES_MAX {
            return Err(RulesError::TooMany);
        }
        if rules.iter().any(|rule| !(1..=RULE_CONDITIONS_MAX).contains(&rule.conditions.len())) {
            return Err(RulesError::Conditions);
        }
        assert!(
            rules.iter().all(|rule| super::target::is_target(rule.long_url.as_bytes())),
            "a destination was not checked"
        );
        // Each weight takes the share of the visitors behind the shares of the weights before it.
        let mut taken = 0;
        for condition in rules.iter_mut().flat_map(|rule| rule.conditions.iter_mut()) {
            taken = condition.place_weight(taken);
        }
        let encoded = encode(&rules);
        if encoded.len() > REDIRECT_RULES_LEN_MAX {
            return Err(RulesError::TooLong);
        }
        debug_assert_eq!(decode(&encoded).as_deref(), Some(&rules[..]), "the rules would be read as others");
        Ok(RedirectRules(Some(Arc::new(RuleSet { rules: rules.into(), encoded: encoded.into() }))))
    }

    /// Reads the stored form; `None` if no program with this form wrote it.
    pub fn from_encoded(bytes: &[u8]) -> Option<RedirectRules> {
        let rules = RedirectRules::new(decode(bytes)?).ok()?;
        (rules.encoded() == bytes).then_some(rules)
    }

    /// Returns the stored form; empty for a link without rules.
    pub fn encoded(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |set| &set.encoded)
    }

    /// True for a link without rules.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the rules, the first one with the highest priority.
    pub fn as_slice(&self) -> &[RedirectRule] {
        self.0.as_ref().map_or(&[], |set| &set.rules)
    }

    /// Iterates over the conditions of all rules.
    pub fn conditions(&self) -> impl Iterator<Item = &RedirectCondition> {
        self.as_slice().iter().flat_map(|rule| rule.conditions.iter())
    }

    /// Returns the rules in the form of the API.
    pub fn to_json(&self) -> Value {
        let condition = |condition: &RedirectCondition| {
            json!({
                "type": condition.kind().name(),
                "matchKey": condition.match_key(),
                "matchValue": condition.match_value(),
            })
        };
        let rule = |(place, rule): (usize, &RedirectRule)| {
            let conditions: Vec<Value> = rule.conditions.iter().map(condition).collect();
            json!({"longUrl": rule.long_url, "priority": place + 1, "conditions": conditions})
        };
        self.as_slice().iter().enumerate().map(rule).collect()
    }

    /// Returns the first rule that matches a visitor; `None` if the visitor gets the destination of the link.
    pub fn find(&self, visitor: &RuleVisitor<'_>) -> Option<&RedirectRule> {
        self.as_slice().iter().find(|rule| rule.conditions.iter().all(|condition| condition.matches(visitor)))
    }

    /// Returns the destination of a visitor. `default` is that of the link.
    pub fn destination<'r>(&'r self, default: &'r str, visitor: &RuleVisitor<'_>) -> &'r str {
        self.find(visitor).map_or(default, |rule| &rule.long_url)
    }
}

impl PartialEq for RedirectRules {
    fn eq(&self, other: &RedirectRules) -> bool {
        self.encoded() == other.encoded()
    }
}

impl Eq for RedirectRules {}

impl fmt::Debug for RedirectRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// Writes the form number and the number of rules, then for each its URL, the number of its conditions, and these.
fn encode(rules: &[RedirectRule]) -> Vec<u8> {
    let mut out = vec![FORM, rules.len() as u8];
    for rule in rules {
        push_text(&mut out, Some(&rule.long_url));
        out.push(rule.conditions.len() as u8);
        for condition in &rule.conditions {
            out.push(condition.kind().number());
            push_text(&mut out, condition.match_key());
            push_text(&mut out, condition.match_value());
        }
    }
    out
}

fn decode(bytes: &[u8]) -> Option<Vec<RedirectRule>> {
    let (&[form, count], mut rest) = bytes.split_first_chunk()?;
    if form != FORM || count == 0 {
        return None;
    }
    let mut rules = Vec::with_capacity(usize::from(count).min(REDIRECT_RULES_MAX));
    let mut taken = 0;
    for _ in 0..count {
        let long_url = take_text(&mut rest)?.filter(|url| super::target::is_target(url.as_bytes()))?;
        let mut conditions = Vec::new();
        for _ in 0..take_byte(&mut rest)? {
            let kind = ConditionType::from_number(take_byte(&mut rest)?)?;
            let (key, value) = (take_text(&mut rest)?, take_text(&mut rest)?);
            let mut condition = RedirectCondition::new(kind, key, value).ok()?;
            taken = condition.place_weight(taken);
            conditions.push(condition);
        }
        rules.push(RedirectRule { long_url: long_url.into(), conditions: conditions.into() });
    }
    rest.is_empty().then_some(rules)
}

/// Appends a text behind its length plus one; zero stands for none.
fn push_text(out: &mut Vec<u8>, text: Option<&str>) {
    let len = text.map_or(0, |text| text.len() + 1);
    out.extend_from_slice(&u16::try_from(len).expect("texts of rules are short").to_le_bytes());
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
}

fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, behind) = rest.split_first()?;
    *rest = behind;
    Some(byte)
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a str>> {
    let (len, behind) = rest.split_first_chunk::<2>()?;
    let Some(len) = usize::from(u16::from_le_bytes(*len)).checked_sub(1) else {
        *rest = behind;
        return Some(None);
    };
    let (text, behind) = behind.split_at_checked(len)?;
    *rest = behind;
    Some(Some(std::str::from_utf8(text).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::any_rules;
    use proptest::prelude::*;

    fn rule(url: &str, conditions: &[(&str, Option<&str>, Option<&str>)]) -> RedirectRule {
        let condition = |&(kind, key, value): &(&str, Option<&str>, Option<&str>)| {
            RedirectCondition::new(ConditionType::named(kind).unwrap(), key, value).unwrap()
        };
        RedirectRule { long_url: url.into(), conditions: conditions.iter().map(condition).collect() }
    }

    proptest! {
        #[test]
        fn rules_are_read_back(rules in any_rules()) {
            let read = RedirectRules::from_encoded(rules.encoded());
            if rules.is_empty() {
                prop_assert_eq!(read, None);
            } else {
                prop_assert_eq!(read.as_ref().map(RedirectRules::as_slice), Some(rules.as_slice()));
            }
        }

        #[test]
        fn any_bytes_are_rules_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = RedirectRules::from_encoded(&bytes);
            let _ = RedirectRules::from_encoded(&[&[FORM, 1], &bytes[..]].concat());
        }

        #[test]
        fn changed_bytes_are_other_rules_or_none(
            rules in any_rules(), at in any::<prop::sample::Index>(), flip in 1u8..
        ) {
            let mut bytes = rules.encoded().to_vec();
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= flip;
            }
            prop_assert!(RedirectRules::from_encoded(&bytes).is_none_or(|read| read != rules));
        }
    }

    #[test]
    fn the_first_rule_whose_conditions_all_match_decides() {
        let rules = RedirectRules::new(vec![
            rule("https://a/", &[("device", None, Some("android")), ("language", None, Some("fr"))]),
            rule("https://b/", &[("device", None, Some("android"))]),
            rule("https://c/", &[("device", None, Some("mobile"))]),
        ])
        .unwrap();
        let at = |user_agent: &str, accept_language: &str| {
            let visitor = RuleVisitor {
                user_agent: user_agent.as_bytes(),
                accept_language: &[accept_language.as_bytes()],
                ..RuleVisitor::default()
            };
            rules.destination("https://d/", &visitor).to_owned()
        };
        assert_eq!(at("Android", "fr"), "https://a/");
        assert_eq!(at("Android", "en"), "https://b/");
        assert_eq!(at("iPhone", "fr"), "https://c/");
        assert_eq!(at("Windows", "fr"), "https://d/");
    }

    #[test]
    fn conditions_of_all_rules_are_found() {
        let rules = RedirectRules::new(vec![
            rule("https://a/", &[("device", None, Some("android"))]),
            rule("https://b/", &[("language", None, Some("fr")), ("browser", None, Some("edge"))]),
        ])
        .unwrap();
        let types: Vec<ConditionType> = rules.conditions().map(RedirectCondition::kind).collect();
        assert_eq!(types, [ConditionType::Device, ConditionType::Language, ConditionType::Browser]);
        assert_eq!(RedirectRules::default().conditions().count(), 0);
    }

    #[test]
    fn rules_are_bounded() {
        let one = rule("https://a/", &[("device", None, Some("ios"))]);
        assert!(RedirectRules::new(vec![one.clone(); REDIRECT_RULES_MAX]).is_ok());
        assert_eq!(RedirectRules::new(vec![one.clone(); REDIRECT_RULES_MAX + 1]), Err(RulesError::TooMany));
        let many = vec![one.conditions[0].clone(); RULE_CONDITIONS_MAX + 1];
        for conditions in [Box::default(), many.into()] {
            let rule = RedirectRule { conditions, ..one.clone() };
            assert_eq!(RedirectRules::new(vec![rule]), Err(RulesError::Conditions));
        }
        let long = RedirectRule { long_url: format!("https://a/{}", "x".repeat(2_000)).into(), ..one };
        assert_eq!(RedirectRules::new(vec![long; 9]), Err(RulesError::TooLong));
        assert!(RedirectRules::new(Vec::new()).unwrap().is_empty());
    }

    #[test]
    fn weights_share_the_visitors_of_a_link() {
        let weight = |url: &str, percent: &str| rule(url, &[("weight", None, Some(percent))]);
        let rules = RedirectRules::new(vec![weight("https://a/", "30"), weight("https://b/", "20")]).unwrap();
        let code = carom_shards::Code::parse(b"abc").unwrap();
        let mut counts = [0u32; 3];
        for number in 0..20_000u32 {
            let address = Some(std::net::Ipv4Addr::from(0x0b00_0000 + number).into());
            let visitor = RuleVisitor { address, code: Some(&code), ..RuleVisitor::default() };
            let destination = rules.destination("https://c/", &visitor);
            assert_eq!(destination, rules.destination("https://c/", &visitor));
            counts[["https://a/", "https://b/", "https://c/"].iter().position(|url| *url == destination).unwrap()] += 1;
        }
        for (count, expected) in counts.into_iter().zip([6_000, 4_000, 10_000]) {
            assert!(count.abs_diff(expected) < 300, "{counts:?}");
        }
    }
}
