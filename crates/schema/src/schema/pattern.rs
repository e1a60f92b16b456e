//! Regular expressions in Go's syntax, run by the `regex` crate.
//!
//! Both are RE2 dialects, but `\d`, `\w`, `\s` and `\b` mean ASCII in Go, `\<` is a plain character there,
//! and a character class of the `regex` crate supports set operations that Go reads literally. The
//! translation removes these differences, so that a pattern accepts what kube-apiserver accepts.

use regex::Regex;

/// A compiled pattern and its source, which messages quote.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) source: String,
    regex: Regex,
}

impl Pattern {
    pub(crate) fn compile(source: &str) -> Result<Pattern, String> {
        let regex = Regex::new(&translate(source)).map_err(|error| {
            // The library prints the pattern over several lines; its last line is the error.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim().trim_start_matches("error: ");
            let reason = match reason {
                "unclosed group" => "missing closing )",
                "unopened group" => "unexpected )",
                "unclosed character class" => "missing closing ]",
                "repetition operator missing expression" => "missing argument to repetition operator",
                other => other,
            };
            format!("error parsing regexp: {reason}: `{source}`")
        })?;
        Ok(Pattern { source: source.to_owned(), regex })
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

fn translate(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut characters = source.chars().peekable();
    let mut in_class = false;
    let mut class_start = false;
    while let Some(character) = characters.next() {
        let first_in_class = std::mem::take(&mut class_start);
        match character {
            '\\' => match characters.next() {
                Some(escaped) => out.push_str(&escape(escaped, in_class)),
                None => out.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                class_start = true;
                out.push('[');
                if characters.peek() == Some(&'^') {
                    characters.next();
                    out.push('^');
                }
            }
            '[' if characters.peek() == Some(&':') => {
                out.push('[');
                for inner in characters.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            ']' if in_class && first_in_class => out.push_str("\\]"),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '[' | '&' | '~' if in_class => {
                out.push('\\');
                out.push(character);
            }
            // A second dash would start a set difference.
            '-' if in_class && characters.peek() == Some(&'-') => out.push_str("\\-"),
            other => out.push(other),
        }
    }

    out
}

fn escape(escaped: char, in_class: bool) -> String {
    let class = match escaped {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => "\\t\\n\\x0C\\r ",
        'D' => return "[^0-9]".to_owned(),
        'W' => return "[^0-9A-Za-z_]".to_owned(),
        'S' => return "[^\\t\\n\\x0C\\r ]".to_owned(),
        'b' if !in_class => return "(?-u:\\b)".to_owned(),
        'B' if !in_class => return "(?-u:\\B)".to_owned(),
        '<' | '>' | '/' | '"' | '\'' | '`' | '!' | '@' | '%' | ',' | ':' | ';' | '=' | '_' => {
            return escaped.to_string();
        }
        other => return format!("\\{other}"),
    };
    if in_class { class.to_owned() } else { format!("[{class}]") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_as_in_go() {
        let cases = [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^[\w-]+$", "a_b-1", true),
            (r"^[\w.-]+$", "ü", false),
            (r"^a\/b$", "a/b", true),
            (r"^\<x\>$", "<x>", true),
            (r"^[a[]+$", "[a", true),
            (r"^[]a]+$", "]a", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^.{1,3}$", "äöü", true),
            (r"^\S+$", "a b", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(Pattern::compile(pattern).unwrap().matches(text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_pattern_that_go_rejects_is_rejected() {
        assert!(Pattern::compile("a(").is_err());
        assert!(Pattern::compile("(?=x)").is_err());
    }
}
