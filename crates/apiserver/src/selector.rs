//! Label and field selectors.

#[cfg(test)]
mod fuzz;

use std::collections::BTreeSet;

use serde_json::Value;
use snafu::Snafu;

use crate::{names, status::Failure};

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    Missing(String),
    Above(String, i64),
    Below(String, i64),
}

/// A label selector; the empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),h,!i,j>3`.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let mut parser = Parser { tokens: tokens(text), position: 0 };
        parser.selector().map(|requirements| Self { requirements }).map_err(Failure::bad_request)
    }

    /// Whether an object's labels match.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object.get("metadata")?.get("labels")?.get(key)?.as_str();
        self.requirements.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => label(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => label(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Missing(key) => label(key).is_none(),
            Requirement::Above(key, limit) => number(label(key)).is_some_and(|value| value > *limit),
            Requirement::Below(key, limit) => number(label(key)).is_some_and(|value| value < *limit),
        })
    }

    /// Whether it matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

fn number(text: Option<&str>) -> Option<i64> {
    text?.parse().ok()
}

/// The tokens of a label selector: special characters, keywords, and the identifiers between them.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            ' ' | '\t' | '\r' | '\n' => {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            '=' if rest.starts_with("==") => 2,
            '!' if rest.starts_with("!=") => 2,
            '=' | '!' | '(' | ')' | ',' | '<' | '>' => 1,
            _ => rest.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '<', '>']).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token.to_owned());
        rest = after;
    }

    tokens
}

struct Parser {
    tokens: Vec<String>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> &str {
        self.tokens.get(self.position).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        let token = self.peek().to_owned();
        self.position += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        if self.peek().is_empty() {
            return Ok(requirements);
        }

        loop {
            if !is_identifier(self.peek()) && self.peek() != "!" {
                let found = self.peek();
                return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
            }
            let requirement =
                self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
            requirements.push(requirement);
            match self.next().as_str() {
                "" => return Ok(requirements),
                "," => {
                    if !is_identifier(self.peek()) && self.peek() != "!" {
                        return Err(format!("found '{}', expected: identifier after ','", self.peek()));
                    }
                }
                other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == "!";
        if negated {
            self.position += 1;
        }

        let key = self.next();
        if !is_identifier(&key) {
            return Err(format!("found '{key}', expected: identifier"));
        }

        if let Some(problem) = names::qualified(&key).first() {
            return Err(format!("<nil>: Invalid value: \"{key}\": {problem}"));
        }
        if negated {
            return Ok(Requirement::Missing(key));
        }

        match self.peek() {
            "" | "," => return Ok(Requirement::Exists(key)),
            _ => {}
        }

        match self.next().as_str() {
            "=" | "==" => Ok(Requirement::In(key.clone(), self.value(&key)?)),
            "!=" => Ok(Requirement::NotIn(key.clone(), self.value(&key)?)),
            "in" => Ok(Requirement::In(key.clone(), self.values(&key)?)),
            "notin" => Ok(Requirement::NotIn(key.clone(), self.values(&key)?)),
            ">" => Ok(Requirement::Above(key.clone(), self.integer(&key)?)),
            "<" => Ok(Requirement::Below(key.clone(), self.integer(&key)?)),
            other => Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn value(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        let value = match self.peek() {
            // No value means the empty value.
            "" | "," => String::new(),
            _ => self.next(),
        };
        if !value.is_empty() && !is_identifier(&value) {
            return Err(format!("found '{value}', expected: identifier"));
        }
        checked(key, &value)?;
        Ok(BTreeSet::from([value]))
    }

    fn integer(&mut self, key: &str) -> Result<i64, String> {
        let value = self.value(key)?.pop_first().unwrap_or_default();
        value.parse().map_err(|_| {
            format!("values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer")
        })
    }

    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        let open = self.next();
        if open != "(" {
            return Err(format!("found '{open}' expected: '('"));
        }

        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek() {
                "," | ")" => String::new(),
                token if is_identifier(token) => self.next(),
                other => return Err(format!("found '{other}', expected: ',', ')' or identifier")),
            };
            checked(key, &value)?;
            values.insert(value);
            match self.next().as_str() {
                "," => {}
                ")" => return Ok(values),
                other => return Err(format!("found '{other}', expected: ',' or ')'")),
            }
        }
    }
}

fn checked(key: &str, value: &str) -> Result<(), String> {
    match names::label_value(value).first() {
        Some(problem) => Err(format!("values[0][{key}]: Invalid value: \"{value}\": {problem}")),
        None => Ok(()),
    }
}

fn is_identifier(token: &str) -> bool {
    !matches!(token, "" | "=" | "==" | "!=" | "!" | "(" | ")" | "," | "<" | ">")
}

/// Indicates that a field selector is not valid, worded as Kubernetes does.
#[derive(Debug, PartialEq, Eq, Snafu)]
pub enum SelectorError {
    /// The field does not support selection.
    #[snafu(display("field label not supported: {field}"))]
    FindField {
        /// The field.
        field: String,
    },
    /// A term cannot be parsed.
    #[snafu(display("invalid selector: '{selector}'; can't understand '{term}'"))]
    ReadTerm {
        /// The whole selector.
        selector: String,
        /// The term.
        term: String,
    },
}

/// A field selector: all terms must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<(String, String, bool)>,
}

impl FieldSelector {
    /// Parses `metadata.name=a,spec.color!=red`; only `supported` fields are allowed.
    pub fn parse(text: &str, supported: &[String]) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in split_terms(text).iter().filter(|part| !part.is_empty()) {
            let (field, value, equal) = split_term(part)
                .ok_or_else(|| SelectorError::ReadTerm { selector: text.to_owned(), term: part.clone() })?;
            if !supported.iter().any(|known| known == field) {
                return Err(SelectorError::FindField { field: field.to_owned() });
            }
            terms.push((field.to_owned(), unescape(value), equal));
        }
        Ok(Self { terms })
    }

    /// Whether an object matches.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|(field, value, equal)| (field_text(object, field) == *value) == *equal)
    }

    /// Whether it matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

fn field_text(object: &Value, field: &str) -> String {
    let value = field.split('.').try_fold(object, |value, name| value.get(name));
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        // The source of an event is its reporting component.
        Some(Value::Object(source)) if field == "source" => {
            let reporter = [source.get("component"), object.get("reportingComponent")];
            let mut names = reporter.into_iter().flatten().filter_map(Value::as_str);
            names.find(|name| !name.is_empty()).unwrap_or_default().to_owned()
        }
        _ => String::new(),
    }
}

fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for character in text.chars() {
        match (character, terms.last_mut()) {
            (',', _) if !escaped => terms.push(String::new()),
            (_, Some(term)) => term.push(character),
            _ => {}
        }
        escaped = character == '\\' && !escaped;
    }
    terms
}

fn split_term(part: &str) -> Option<(&str, &str, bool)> {
    let at = part.find(['=', '!'])?;
    let (field, rest) = part.split_at(at);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, value, false));
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some((field, value, true))
}

fn unescape(text: &str) -> String {
    let mut escaped = false;
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if character == '\\' && !escaped {
            escaped = true;
        } else {
            plain.push(character);
            escaped = false;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_match() {
        let object = json!({"metadata": {"labels": {"a": "b", "n": "5", "e": ""}}});
        let rows = [
            ("", true),
            ("a=b", true),
            ("a==b", true),
            ("a!=b", false),
            ("x!=b", true),
            ("a in (b,c)", true),
            ("a notin (b)", false),
            ("a", true),
            ("!a", false),
            ("!x,a", true),
            ("n>4", true),
            ("n<5", false),
            ("e=", true),
            ("a=b,x", false),
            ("in=b", false),
        ];

        for (text, expected) in rows {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(&object), expected, "{text}");
        }
    }

    #[test]
    fn invalid_label_selectors_are_rejected_as_by_kubernetes() {
        let rows = [
            ("a===b", "unable to parse requirement: found '=', expected: identifier"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a=b,", "found '', expected: identifier after ','"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ];
        for (text, expected) in rows {
            assert_eq!(LabelSelector::parse(text).unwrap_err().message, expected, "{text}");
        }
    }

    #[test]
    fn field_selectors_match() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"n": 3, "t": "x,y"}});
        let supported: Vec<String> =
            ["metadata.name", "spec.n", "spec.t"].into_iter().map(str::to_owned).collect();
        let rows = [
            ("metadata.name=a", true),
            ("metadata.name!=a", false),
            ("spec.n==3", true),
            ("spec.t=x\\,y", true),
        ];

        for (text, expected) in rows {
            assert_eq!(FieldSelector::parse(text, &supported).unwrap().matches(&object), expected, "{text}");
        }
        let bad = FieldSelector::parse("spec.x=1", &supported).unwrap_err();
        assert_eq!(bad.to_string(), "field label not supported: spec.x");
        assert!(FieldSelector::parse("metadata.name", &supported).is_err());
    }
}
