//! The part of JSON Schema (2020-12) that the OpenAPI description uses. An unknown keyword or pattern fails the test,
//! so that no rule is skipped.

use carom_model::formats::dates;
use serde_json::{Map, Value};

/// Keywords that say something to people only.
const NOTES: &[&str] = &["description", "title", "default", "example", "examples", "deprecated"];

/// Follows a reference within the document.
pub(crate) fn resolve<'d>(document: &'d Value, object: &'d Value) -> &'d Value {
    let Some(reference) = object.get("$ref") else { return object };
    let pointer = reference.as_str().and_then(|text| text.strip_prefix('#')).expect("a reference within the document");
    let found = document.pointer(pointer).unwrap_or_else(|| panic!("{pointer} leads nowhere"));
    resolve(document, found)
}

/// The schemas of a document.
pub(crate) struct Schemas<'d>(pub(crate) &'d Value);

impl<'d> Schemas<'d> {
    /// Returns the violations of a schema by a value.
    pub(crate) fn faults(&self, schema: &'d Value, value: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        self.check(schema, value, "", &mut faults);
        faults
    }

    /// True if a schema allows a value.
    pub(crate) fn allow(&self, schema: &'d Value, value: &Value) -> bool {
        self.faults(schema, value).is_empty()
    }

    /// The fields of a value, wherever they stand, that no schema names. To allow them is good manners of clients; here
    /// they are what somebody forgot to describe.
    pub(crate) fn undescribed(&self, schema: &'d Value, value: &Value) -> Vec<String> {
        let mut parts = Vec::new();
        self.parts(schema, value, &mut parts);
        let mut found = Vec::new();
        match value {
            Value::Object(fields)
                if !parts.iter().any(|part| part.get("additionalProperties") == Some(&Value::Bool(true))) =>
            {
                for (name, value) in fields {
                    let mut named = parts.iter().filter_map(|part| part.get("properties")?.get(name)).peekable();
                    if named.peek().is_none() {
                        found.push(name.clone());
                    }
                    named.for_each(|schema| found.extend(self.undescribed(schema, value)));
                }
            }
            Value::Array(items) => {
                for schema in parts.iter().filter_map(|part| part.get("items")) {
                    items.iter().for_each(|item| found.extend(self.undescribed(schema, item)));
                }
            }
            _ => {}
        }
        found
    }

    /// A schema and all that it is made of, as far as they are about that value.
    fn parts(&self, schema: &'d Value, value: &Value, parts: &mut Vec<&'d Map<String, Value>>) {
        let schema = resolve(self.0, schema).as_object().expect("a schema is an object");
        parts.push(schema);
        let list = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
        list("allOf").for_each(|part| self.parts(part, value, parts));
        let choices = list("anyOf").chain(list("oneOf")).filter(|part| self.allow(part, value));
        choices.for_each(|part| self.parts(part, value, parts));
    }

    fn check(&self, schema: &'d Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        let rules = schema.as_object().unwrap_or_else(|| panic!("no schema: {schema}"));
        for (keyword, rule) in rules {
            let holds = match keyword.as_str() {
                "$ref" => {
                    self.check(resolve(self.0, schema), value, at, faults);
                    true
                }
                "allOf" => {
                    each(rule).for_each(|part| self.check(part, value, at, faults));
                    true
                }
                "anyOf" => each(rule).any(|part| self.allow(part, value)),
                "oneOf" => each(rule).filter(|part| self.allow(part, value)).count() == 1,
                "properties" => {
                    for (name, part) in rule.as_object().expect("an object of schemas") {
                        if let Some(value) = value.get(name) {
                            self.check(part, value, &format!("{at}/{name}"), faults);
                        }
                    }
                    true
                }
                "items" => {
                    let items = value.as_array().into_iter().flatten().enumerate();
                    items.for_each(|(place, item)| self.check(rule, item, &format!("{at}/{place}"), faults));
                    true
                }
                "additionalProperties" => {
                    let known = rules.get("properties").and_then(Value::as_object);
                    let is_known = |name: &String| known.is_some_and(|known| known.contains_key(name));
                    rule == &Value::Bool(true) || value.as_object().is_none_or(|fields| fields.keys().all(is_known))
                }
                _ => holds(keyword, rule, value),
            };
            if !holds {
                let shown: String = value.to_string().chars().take(200).collect();
                faults.push(format!("{at}: {keyword} {rule} does not hold for {shown}"));
            }
        }
    }
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().expect("a list").iter()
}

/// True if a keyword without schemas in it holds. Those for other types say nothing.
fn holds(keyword: &str, rule: &Value, value: &Value) -> bool {
    let bound = || rule.as_f64().expect("a number");
    let size_holds =
        |size: Option<usize>, is_right: fn(f64, f64) -> bool| size.is_none_or(|size| is_right(size as f64, bound()));
    let chars = value.as_str().map(|text| text.chars().count());
    let items = value.as_array().map(Vec::len);
    match keyword {
        _ if NOTES.contains(&keyword) => true,
        "type" => match rule {
            Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind, value)),
            kind => is_of(kind, value),
        },
        "const" => rule == value,
        "enum" => each(rule).any(|one| one == value),
        "required" => value
            .as_object()
            .is_none_or(|fields| each(rule).all(|name| fields.contains_key(name.as_str().expect("a name")))),
        "minLength" => size_holds(chars, |size, bound| size >= bound),
        "maxLength" => size_holds(chars, |size, bound| size <= bound),
        "minItems" => size_holds(items, |size, bound| size >= bound),
        "maxItems" => size_holds(items, |size, bound| size <= bound),
        "minimum" => value.as_f64().is_none_or(|number| number >= bound()),
        "maximum" => value.as_f64().is_none_or(|number| number <= bound()),
        "pattern" => value.as_str().is_none_or(|text| matches(rule.as_str().expect("a text"), text)),
        "format" => value.as_str().is_none_or(|text| has_format(rule.as_str().expect("a text"), text)),
        _ => panic!("the keyword {keyword} is not known here"),
    }
}

fn is_of(kind: &Value, value: &Value) -> bool {
    match kind.as_str().expect("the name of a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

fn has_format(format: &str, text: &str) -> bool {
    match format {
        // RFC 3339 is the part of what the service reads that begins like this and ends with an offset.
        "date-time" => {
            let shape =
                "^[0-9]{4}-[01][0-9]-[0-3][0-9][Tt][0-2][0-9]:[0-5][0-9]:[0-6][0-9][.0-9]{0,10}[Zz+-][0-9:]{0,5}$";
            matches(shape, text) && dates::parse(text).is_ok()
        }
        "date" => matches("^[0-9-]{10}$", text) && dates::parse(&format!("{text}T00:00:00Z")).is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "uri" => url::Url::parse(text).is_ok_and(|url| url.as_str() == text),
        "uri-reference" => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()),
        other => panic!("{other} is no format that is known here"),
    }
}

/// A piece of a pattern: characters, and how many of them.
struct Piece {
    ranges: Vec<(char, char)>,
    least: usize,
    most: usize,
}

/// True if a text matches a pattern of characters and classes of characters, each perhaps with a number behind it. It
/// begins with `^`, perhaps followed by alternatives in parentheses, and may end with `$`. `^$|` in front of it allows
/// the empty text.
fn matches(pattern: &str, text: &str) -> bool {
    if let Some(others) = pattern.strip_prefix("^$|") {
        return text.is_empty() || matches(others, text);
    }
    let inner = pattern.strip_prefix('^').expect("patterns begin at the beginning");
    if let Some((choices, rest)) = inner.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
        return choices.split('|').any(|choice| matches(&format!("^{choice}{rest}"), text));
    }
    let (inner, is_whole) = inner.strip_suffix('$').map_or((inner, false), |inner| (inner, true));
    let text: Vec<char> = text.chars().collect();
    match_pieces(&pieces(inner), &text, is_whole)
}

fn match_pieces(pieces: &[Piece], text: &[char], is_whole: bool) -> bool {
    let Some((piece, rest)) = pieces.split_first() else { return text.is_empty() || !is_whole };
    let is_in = |c: &&char| piece.ranges.iter().any(|(first, last)| (first..=last).contains(c));
    let count = text.iter().take(piece.most).take_while(is_in).count();
    (piece.least..=count).rev().any(|count| match_pieces(rest, &text[count..], is_whole))
}

fn pieces(pattern: &str) -> Vec<Piece> {
    let mut chars = pattern.chars().peekable();
    let mut pieces = Vec::new();
    while let Some(c) = chars.next() {
        let ranges = match c {
            '[' => {
                let class: String = chars.by_ref().take_while(|c| *c != ']').collect();
                class_ranges(&class)
            }
            '(' | ')' | '|' | '\\' | '.' | '^' | '$' => panic!("{c} in {pattern} is not known here"),
            c => vec![(c, c)],
        };
        let (least, most) = match chars.peek() {
            Some('*') => (0, usize::MAX),
            Some('+') => (1, usize::MAX),
            Some('?') => (0, 1),
            Some('{') => {
                let numbers: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                let (least, most) = numbers.split_once(',').unwrap_or((&numbers, &numbers));
                pieces.push(Piece {
                    ranges,
                    least: least.parse().expect("a number"),
                    most: most.parse().expect("a number"),
                });
                continue;
            }
            _ => {
                pieces.push(Piece { ranges, least: 1, most: 1 });
                continue;
            }
        };
        chars.next();
        pieces.push(Piece { ranges, least, most });
    }
    pieces
}

/// The ranges of a class, which may begin with `^` and have escapes of the form `\u0020`.
fn class_ranges(class: &str) -> Vec<(char, char)> {
    let mut parts = class.split("\\u");
    let mut chars: Vec<char> = parts.next().unwrap_or_default().chars().collect();
    for part in parts {
        let (digits, rest) = part.split_at(4);
        chars.push(u32::from_str_radix(digits, 16).ok().and_then(char::from_u32).expect("a character"));
        chars.extend(rest.chars());
    }
    match chars.split_first() {
        Some(('^', rest)) => complement(ranges(rest)),
        _ => ranges(&chars),
    }
}

/// The ranges of all other characters.
fn complement(mut ranges: Vec<(char, char)>) -> Vec<(char, char)> {
    ranges.sort_unstable();
    let mut others = Vec::new();
    let mut next = Some('\0');
    for (first, last) in ranges {
        if let Some(next) = next
            && next < first
        {
            others.extend((next..first).next_back().map(|end| (next, end)));
        }
        next = (last..=char::MAX).nth(1);
    }
    others.extend(next.map(|next| (next, char::MAX)));
    others
}

/// The ranges of a class; a hyphen at its end stands for itself.
fn ranges(class: &[char]) -> Vec<(char, char)> {
    assert!(!class.contains(&'\\'), "{class:?} is not known here");
    match class {
        [] => vec![],
        [first, '-', last, rest @ ..] => [vec![(*first, *last)], ranges(rest)].concat(),
        [one, rest @ ..] => [vec![(*one, *one)], ranges(rest)].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_keyword_rejects_a_violation() {
        let root = json!({"defs": {"short": {"maxLength": 2}}});
        let schemas = Schemas(&root);
        for (schema, right, wrong) in [
            (json!({"$ref": "#/defs/short"}), json!("ab"), json!("abc")),
            (json!({"type": "integer"}), json!(-1), json!(1.5)),
            (json!({"type": ["string", "null"]}), json!(null), json!(false)),
            (json!({"const": "a"}), json!("a"), json!("b")),
            (json!({"enum": [1, null]}), json!(null), json!(2)),
            (json!({"required": ["a"]}), json!({"a": 1}), json!({"b": 1})),
            (json!({"properties": {"a": {"type": "null"}}}), json!({"b": 1}), json!({"a": 1})),
            (json!({"properties": {"a": {}}, "additionalProperties": false}), json!({"a": 1}), json!({"b": 1})),
            (json!({"items": {"type": "null"}}), json!([null]), json!([null, 1])),
            (json!({"minLength": 2}), json!("éé"), json!("é")),
            (json!({"minItems": 1}), json!([1]), json!([])),
            (json!({"maxItems": 1}), json!([1]), json!([1, 2])),
            (json!({"minimum": 1}), json!(1), json!(0)),
            (json!({"maximum": 1}), json!(1), json!(1.5)),
            (json!({"allOf": [{"minimum": 1}, {"maximum": 2}]}), json!(2), json!(3)),
            (json!({"anyOf": [{"const": 1}, {"const": 2}]}), json!(2), json!(3)),
            (json!({"oneOf": [{"minimum": 1}, {"minimum": 2}]}), json!(1), json!(2)),
            (json!({"format": "date-time"}), json!("2026-01-02T03:04:05.678+01:00"), json!("2026-01-02")),
            (json!({"format": "uri"}), json!("http://a/"), json!("http://a b/")),
        ] {
            assert_eq!(schemas.faults(&schema, &right), Vec::<String>::new(), "{schema}");
            assert_eq!(schemas.faults(&schema, &wrong).len(), 1, "{schema}");
        }
    }

    #[test]
    fn patterns_match_their_syntax() {
        for (pattern, right, wrong) in [
            ("^[0-9A-Za-z_-]{1,3}$", vec!["a", "_-9"], vec!["", "abcd", "a b", "é"]),
            ("^ *[Hh]s?:", vec!["h:", "  Hs:x"], vec!["hss:", "x h:"]),
            ("^(19[7-9]|[2-9][0-9]{2})[0-9]-", vec!["1970-", "9999-12"], vec!["1969-", "0381-12", "970-"]),
            ("^[^\\u0000-\\u0020a]+$", vec!["b", "é\u{10ffff}"], vec!["", "a", "b ", "\0"]),
            ("^3[.]1[.][0-9]+$", vec!["3.1.0"], vec!["3.1.", "3x1.0", "3.1.0x"]),
        ] {
            assert!(right.iter().all(|text| matches(pattern, text)), "{pattern}");
            assert!(!wrong.iter().any(|text| matches(pattern, text)), "{pattern}");
        }
    }

    #[test]
    fn undescribed_fields_are_found() {
        let root = json!({"defs": {"base": {"properties": {"a": {}}}}});
        let schema =
            json!({"allOf": [{"$ref": "#/defs/base"}], "properties": {"b": {"items": {"properties": {"c": {}}}}}});
        let found = Schemas(&root).undescribed(&schema, &json!({"a": 1, "b": [{"c": 1}, {"d": 1}], "e": 1}));
        assert_eq!(found, ["d", "e"]);
    }
}
