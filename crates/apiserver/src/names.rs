//! The names that Kubernetes accepts, and its messages for the others.

/// The format of the names of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameStyle {
    /// A DNS subdomain: most kinds.
    Subdomain,
    /// A DNS label: namespaces.
    Label,
    /// Anything that fits a path segment: RBAC.
    Segment,
}

impl NameStyle {
    /// Validates a name; returns no problems if it is valid.
    #[must_use]
    pub fn problems(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain => subdomain(name),
            Self::Label => label(name),
            Self::Segment => segment(name),
        }
    }

    /// Validates the prefix of a generated name.
    #[must_use]
    pub fn prefix_problems(self, prefix: &str) -> Vec<String> {
        match self {
            Self::Segment => segment(prefix),
            // A trailing dash is valid, because more characters follow.
            _ => match prefix.strip_suffix('-') {
                Some(rest) if !rest.is_empty() => self.problems(&format!("{rest}a")),
                _ => self.problems(prefix),
            },
        }
    }
}

/// Kubernetes counts bytes in both cases but calls them characters for names of objects.
fn too_long(limit: usize, unit: &str) -> String {
    format!("must be no more than {limit} {unit}")
}

fn with_regex(message: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().all(|byte| inner(byte) || byte == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().next_back().is_some_and(inner)
}

/// A DNS label.
#[must_use]
pub fn label(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push(too_long(63, "characters"));
    }
    if !is_label(name) {
        let message = if is_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            with_regex(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
                &["my-name", "123-abc"],
            )
        };
        problems.push(message);
    }
    problems
}

/// A DNS label that starts with a letter.
#[must_use]
pub fn start_label(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push(too_long(63, "characters"));
    }
    if !is_label(name) || !name.starts_with(|letter: char| letter.is_ascii_lowercase()) {
        problems.push(with_regex(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    problems
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

/// A DNS subdomain.
#[must_use]
pub fn subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push(too_long(253, "characters"));
    }
    if !is_subdomain(name) {
        problems.push(with_regex(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    problems
}

/// A name that fits one segment of a path.
#[must_use]
pub fn segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%']
        .into_iter()
        .filter(|bad| name.contains(*bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

fn is_name_part(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().next_back().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

fn name_part_message() -> String {
    with_regex(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
        &["MyName", "my.name", "123-abc"],
    )
}

/// Validates the key of a label or an annotation, or the name of a finalizer: `name` or `prefix/name`.
#[must_use]
pub fn qualified(key: &str) -> Vec<String> {
    let parts: Vec<&str> = key.split('/').collect();
    let mut problems = Vec::new();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems
                    .extend(subdomain(prefix).into_iter().map(|problem| format!("prefix part {problem}")));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                name_part_message()
            )];
        }
    };

    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", too_long(63, "bytes")));
    }

    if !is_name_part(name) {
        problems.push(format!("name part {}", name_part_message()));
    }
    problems
}

/// The value of a label.
#[must_use]
pub fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push(too_long(63, "bytes"));
    }
    if !value.is_empty() && !is_name_part(value) {
        problems.push(with_regex(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
             and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

/// The key of an entry of a ConfigMap or Secret.
#[must_use]
pub fn config_key(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push(too_long(253, "characters"));
    }

    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        problems.push(with_regex(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    } else if key == "." || key == ".." {
        problems.push(format!("must not be '{key}'"));
    } else if key.starts_with("..") {
        problems.push("must not start with '..'".to_owned());
    }

    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_validated_as_by_kubernetes() {
        let good = [
            (NameStyle::Subdomain, "a"),
            (NameStyle::Subdomain, "a.b-c.1"),
            (NameStyle::Label, "a-b"),
            (NameStyle::Segment, "system:node"),
        ];

        for (style, name) in good {
            assert!(style.problems(name).is_empty(), "{name}");
        }
        let bad = [
            (NameStyle::Subdomain, "A"),
            (NameStyle::Subdomain, "a..b"),
            (NameStyle::Subdomain, "-a"),
            (NameStyle::Subdomain, ""),
            (NameStyle::Label, "a.b"),
            (NameStyle::Segment, "a/b"),
            (NameStyle::Segment, ".."),
        ];

        for (style, name) in bad {
            assert!(!style.problems(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn a_prefix_may_end_with_a_dash() {
        assert!(NameStyle::Subdomain.prefix_problems("a-").is_empty());
        assert!(!NameStyle::Subdomain.prefix_problems("A-").is_empty());
        assert!(!NameStyle::Subdomain.prefix_problems("-").is_empty());
    }

    #[test]
    fn label_keys_may_have_a_prefix() {
        assert!(qualified("example.com/a_B.c").is_empty());
        for bad in ["/a", "a/", "a/b/c", "A!", "Ex/a", ""] {
            assert!(!qualified(bad).is_empty(), "{bad}");
        }
        assert!(label_value("").is_empty());
        assert!(!label_value("a b").is_empty());
        assert!(!config_key("a b").is_empty());
    }
}
