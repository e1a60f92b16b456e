//! The namespaces that operators work in.

use std::{collections::BTreeSet, fmt, str::FromStr};

use crate::{InvalidValue, check::is_dns_name};

/// The length of the longest name of a namespace.
const MAX_LENGTH: usize = 63;

/// The namespaces that the operators of a process watch and act in: all, or those that are listed.
///
/// What is in another namespace is not known. It must not be taken for absent: ask [`WatchedNamespaces::contains`] first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedNamespaces(Option<BTreeSet<String>>);

impl WatchedNamespaces {
    /// Every namespace.
    pub const ALL: Self = Self(None);

    /// Whether a namespace is watched.
    #[must_use]
    pub fn contains(&self, namespace: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(namespace))
    }

    /// The names that are listed; none if every namespace is watched.
    #[must_use]
    pub fn listed(&self) -> Option<&BTreeSet<String>> {
        self.0.as_ref()
    }

    /// The names, as in the setting; none if every namespace is watched.
    #[must_use]
    pub fn to_setting(&self) -> Option<String> {
        let names: Vec<&str> = self.0.as_ref()?.iter().map(String::as_str).collect();
        Some(names.join(","))
    }
}

impl fmt::Display for WatchedNamespaces {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.to_setting().as_deref().unwrap_or("all"))
    }
}

impl FromStr for WatchedNamespaces {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FIX: &str = "is not the name of a namespace: list names that are separated by commas, such as team-a,team-b, or omit the setting to watch all namespaces";
        let names = text.split(',').map(|name| {
            let is_valid = name.len() <= MAX_LENGTH && is_dns_name(name, false);
            if is_valid { Ok(name.to_owned()) } else { Err(InvalidValue::new(name, FIX)) }
        });
        names.collect::<Result<_, _>>().map(|names| Self(Some(names)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_once_and_in_order() {
        let watched: WatchedNamespaces = "team-b,team-a,team-b".parse().unwrap();
        assert_eq!(watched.to_string(), "team-a,team-b");
        assert!(watched.contains("team-a") && !watched.contains("team-c") && !watched.contains(""));
        assert_eq!(watched.to_string().parse(), Ok(watched));
    }

    #[test]
    fn without_a_list_every_namespace_is_watched() {
        assert!(WatchedNamespaces::ALL.contains("anything"));
        assert_eq!(WatchedNamespaces::default(), WatchedNamespaces::ALL);
        assert_eq!(WatchedNamespaces::ALL.to_setting(), None);
    }

    #[test]
    fn a_name_that_is_empty_or_not_valid_is_refused() {
        let long = "a".repeat(64);
        for text in ["", "a,,b", "a,", ",a", "a b", "A", "-a", "a-", "a.b", "a/b", "*", "a,\u{1b}[2J", &long]
        {
            let error = text.parse::<WatchedNamespaces>().unwrap_err().to_string();
            assert!(error.contains("is not the name of a namespace"), "{text:?}: {error}");
        }
        assert!("a".repeat(63).parse::<WatchedNamespaces>().is_ok());
    }
}
