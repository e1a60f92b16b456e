//! Software versions of providers.

use std::{fmt, str::FromStr};

use super::{InvalidValue, text_value};

const FIX: &str = "must be a version of two or three numbers, such as 1.36.3 or v1.8.2";

/// The maximum length of a version.
const MAX_LENGTH: usize = 64;

/// A semantic version, with an optional leading `v` and an optional patch number. Prints as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    text: String,
    parsed: semver::Version,
}

impl FromStr for Version {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        if text.len() > MAX_LENGTH {
            return Err(InvalidValue::new(text, FIX));
        }
        let numbers = text.strip_prefix('v').unwrap_or(text);
        semver::Version::parse(numbers)
            .or_else(|_| semver::Version::parse(&format!("{numbers}.0")))
            .map(|parsed| Self { text: text.to_owned(), parsed })
            .map_err(|_| InvalidValue::new(text, FIX))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The text breaks ties between two notations of one version, so that equal means identical.
        self.parsed.cmp(&other.parsed).then_with(|| self.text.cmp(&other.text))
    }
}

text_value!(
    Version,
    max_length = MAX_LENGTH,
    rule = "self.matches('^v?[0-9]+[.][0-9]+([.][0-9]+([-+][0-9A-Za-z.+-]+)?)?$')",
    fix = FIX
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_the_crd_would_reject_is_not_a_version() {
        assert!("1.8.2-rc.1".parse::<Version>().is_ok());
        assert!(format!("1.8.2-{}", "a".repeat(100)).parse::<Version>().is_err());
    }

    #[test]
    fn versions_are_ordered_by_number_not_by_text() {
        let read = |text: &str| text.parse::<Version>().unwrap();
        assert!(read("v1.9.0") < read("v1.10.0"));
        assert!(read("1.8.2-rc.1") < read("1.8.2"));
        assert!(read("1.36") < read("1.36.1"));
        assert_eq!(read("v1.8.2").to_string(), "v1.8.2");
    }

    #[test]
    fn an_invalid_version_is_rejected_with_the_fix() {
        for text in ["", "latest", "1", "1.2.3.4", "v", "1.x"] {
            let error = text.parse::<Version>().unwrap_err().to_string();
            assert!(error.contains("such as 1.36.3"), "{error}");
        }
    }
}
