//! The `format` keyword: which formats are checked and how.

// From core: addresses are only parsed here, a pure crate opens no sockets.
use core::net::{Ipv4Addr, Ipv6Addr};

use super::{native, node::Type};

/// A format that is checked; any other is ignored, as in kube-apiserver.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    /// The name in the schema, for messages.
    pub(crate) name: String,
    pub(crate) check: Check,
}

/// What a format requires of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Int32,
    Int64,
    Float,
    Double,
    /// A free-form string, with a format for documentation only (`password`).
    Text,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    /// The hexadecimal digit of the required version, if any.
    Uuid(Option<u8>),
    HexColor,
    RgbColor,
    ObjectId,
    Byte,
    Quantity,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
    SocialSecurity,
    CreditCard,
    Isbn10,
    Isbn13,
    Isbn,
}

/// Returns the format with this name if it applies to the type.
pub(crate) fn find(name: &str, kind: Type, int_or_string: bool) -> Option<Format> {
    // Quantities may also be written as numbers.
    if int_or_string && name != native::QUANTITY {
        return None;
    }
    let check = match (kind, name) {
        (Type::Integer, "int32") => Check::Int32,
        (Type::Integer, "int64") => Check::Int64,
        (Type::Number, "float") => Check::Float,
        (Type::Number, "double") => Check::Double,
        (Type::String | Type::Any, _) => text_check(&name.replace('-', ""))?,
        _ => return None,
    };
    Some(Format { name: name.to_owned(), check })
}

fn text_check(normalized: &str) -> Option<Check> {
    Some(match normalized {
        "bsonobjectid" => Check::ObjectId,
        "uri" => Check::Uri,
        "email" => Check::Email,
        "hostname" => Check::Hostname,
        "ipv4" => Check::Ipv4,
        "ipv6" => Check::Ipv6,
        "cidr" => Check::Cidr,
        "mac" => Check::Mac,
        "uuid" => Check::Uuid(None),
        "uuid3" => Check::Uuid(Some(b'3')),
        "uuid4" => Check::Uuid(Some(b'4')),
        "uuid5" => Check::Uuid(Some(b'5')),
        "isbn" => Check::Isbn,
        "isbn10" => Check::Isbn10,
        "isbn13" => Check::Isbn13,
        "creditcard" => Check::CreditCard,
        "ssn" => Check::SocialSecurity,
        "hexcolor" => Check::HexColor,
        "rgbcolor" => Check::RgbColor,
        "byte" => Check::Byte,
        native::QUANTITY => Check::Quantity,
        "password" => Check::Text,
        "date" => Check::Date,
        "duration" => Check::Duration,
        "datetime" => Check::DateTime,
        "k8sshortname" => Check::ShortName,
        "k8slongname" => Check::LongName,
        _ => return None,
    })
}

impl Check {
    /// Whether the check applies to strings; the others check the range of a number.
    pub(crate) fn is_text(self) -> bool {
        !matches!(self, Check::Int32 | Check::Int64 | Check::Float | Check::Double)
    }

    pub(crate) fn accepts(self, text: &str) -> bool {
        match self {
            Check::Int32 | Check::Int64 | Check::Float | Check::Double | Check::Text => true,
            Check::Uri => is_uri(text),
            Check::Email => is_email(text),
            Check::Hostname => is_hostname(text),
            Check::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Check::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Check::Cidr => is_cidr(text),
            Check::Mac => is_mac(text),
            Check::Uuid(version) => is_uuid(text, version),
            Check::HexColor => {
                let digits = text.strip_prefix('#').unwrap_or(text);
                matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            }
            Check::RgbColor => is_rgb(text),
            Check::ObjectId => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
            Check::Byte => is_base64(text),
            Check::Quantity => is_quantity(text),
            Check::Date => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
            Check::Duration => is_duration(text),
            Check::DateTime => is_date_time(text),
            Check::ShortName => is_label(text, 63),
            Check::LongName => text.len() <= 253 && text.split('.').all(|part| is_label(part, 253)),
            Check::SocialSecurity => {
                let digits = text.bytes().filter(u8::is_ascii_digit).count();
                digits == 9 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-' || byte == b' ')
            }
            Check::CreditCard => is_credit_card(text),
            Check::Isbn10 => is_isbn10(text),
            Check::Isbn13 => is_isbn13(text),
            Check::Isbn => is_isbn10(text) || is_isbn13(text),
        }
    }
}

fn is_uri(text: &str) -> bool {
    // A request URI: absolute with a scheme, or a rooted path, without control characters.
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f || byte == b' ') {
        return false;
    }
    if text.starts_with('/') || text == "*" {
        return true;
    }
    let Some((scheme, _)) = text.split_once(':') else { return false };
    let mut bytes = scheme.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

fn is_email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.strip_suffix('>')) {
        (Some(start), Some(inner)) => inner.get(start + 1..).unwrap_or_default(),
        _ => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    !local.is_empty()
        && !domain.is_empty()
        && !address.bytes().any(|byte| byte <= b' ' || matches!(byte, b'<' | b'>' | b'(' | b')' | b','))
        && !domain.starts_with('.')
        && !domain.ends_with('.')
        && !local.contains("..")
}

/// A single label may have a dash only after its first character; of several labels, the last has letters
/// only. Odd, but kube-apiserver accepts exactly this.
fn is_hostname(text: &str) -> bool {
    let is_plain = |character: char| character.is_alphanumeric();
    let labels: Vec<&str> = text.split('.').collect();
    if let [label] = labels.as_slice() {
        let Some(rest) = label.strip_prefix(is_plain) else { return false };
        return label.len() <= 64 && rest.strip_prefix('-').unwrap_or(rest).chars().all(is_plain);
    }

    let Some((last, others)) = labels.split_last() else { return false };
    text.len() <= 255
        && (2..=63).contains(&last.chars().count())
        && last.chars().all(char::is_alphabetic)
        && others.iter().all(|label| {
            (1..=63).contains(&label.len())
                && label.starts_with(is_plain)
                && label.ends_with(is_plain)
                && label.chars().all(|character| is_plain(character) || character == '-')
        })
}

fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    if prefix.is_empty() || prefix.len() > 3 || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let Ok(bits) = prefix.parse::<u8>() else { return false };
    if address.parse::<Ipv4Addr>().is_ok() {
        bits <= 32
    } else {
        address.parse::<Ipv6Addr>().is_ok() && bits <= 128
    }
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('.') {
        '.'
    } else if text.contains('-') {
        '-'
    } else {
        ':'
    };
    let width = if separator == '.' { 4 } else { 2 };
    let groups: Vec<&str> = text.split(separator).collect();
    let bytes = groups.len() * width / 2;
    matches!(bytes, 6 | 8 | 20)
        && groups
            .iter()
            .all(|group| group.len() == width && group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let groups: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let dashes_right = match text.len() {
        32 => true,
        _ => text.split('-').map(str::len).eq([8, 4, 4, 4, 12]),
    };

    dashes_right
        && groups.len() == 32
        && groups.iter().all(u8::is_ascii_hexdigit)
        && version.is_none_or(|version| groups.get(12) == Some(&version))
        && match version {
            Some(b'4' | b'5') => {
                groups.get(16).is_some_and(|byte| matches!(byte, b'8' | b'9' | b'a' | b'b' | b'A' | b'B'))
            }
            _ => true,
        }
}

fn is_rgb(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u8>().is_ok())
}

/// A quantity: digits, and a suffix or exponent.
fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end =
        unsigned.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at(end);
    digits.parse::<f64>().is_ok()
        && match suffix.strip_prefix(['e', 'E']) {
            Some(exponent) if !exponent.is_empty() && exponent != "i" => exponent.parse::<i32>().is_ok(),
            _ => matches!(
                suffix,
                "" | "n"
                    | "u"
                    | "m"
                    | "k"
                    | "M"
                    | "G"
                    | "T"
                    | "P"
                    | "E"
                    | "Ki"
                    | "Mi"
                    | "Gi"
                    | "Ti"
                    | "Pi"
                    | "Ei"
            ),
        }
}

fn is_base64(text: &str) -> bool {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

/// Go durations (`1h30m`, `-1.5s`), and the form with a space between number and unit (`22 ns`).
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 37] = [
        "ns",
        "us",
        "µs",
        "μs",
        "ms",
        "s",
        "m",
        "h",
        "d",
        "w",
        "nano",
        "nanosecond",
        "nanoseconds",
        "nanos",
        "micro",
        "micros",
        "microsecond",
        "microseconds",
        "milli",
        "millis",
        "millisecond",
        "milliseconds",
        "sec",
        "secs",
        "second",
        "seconds",
        "min",
        "mins",
        "minute",
        "minutes",
        "hr",
        "hour",
        "hours",
        "day",
        "days",
        "week",
        "weeks",
    ];

    if is_go_duration(text) {
        return true;
    }
    let number_end = text.find(|character: char| !character.is_ascii_digit() && character != '.');
    let Some(end) = number_end else { return false };
    let (number, unit) = text.split_at(end);
    !number.is_empty() && UNITS.contains(&unit.trim().to_lowercase().as_str())
}

pub(crate) fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }

    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.');
        let Some(end) = end.filter(|end| *end > 0) else { return false };
        let (number, after) = rest.split_at(end);
        if number == "." || number.matches('.').count() > 1 {
            return false;
        }
        let unit = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"].iter().find(|unit| {
            after.strip_prefix(**unit).is_some_and(|next| {
                next.is_empty()
                    || next.starts_with(|character: char| character.is_ascii_digit() || character == '.')
            })
        });
        let Some(unit) = unit else { return false };
        rest = after.strip_prefix(*unit).unwrap_or_default();
    }

    true
}

fn is_date_time(text: &str) -> bool {
    // RFC 3339 requires a time zone; the parser would accept a date alone.
    let bytes = text.as_bytes();
    bytes.len() >= 20
        && bytes.get(4) == Some(&b'-')
        && matches!(bytes.get(10), Some(b'T' | b't'))
        && text.parse::<jiff::Timestamp>().is_ok()
}

pub(crate) fn is_label(text: &str, limit: usize) -> bool {
    !text.is_empty()
        && text.len() <= limit
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|character| character.to_digit(10)).collect();
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, digit)| match index % 2 {
            0 => *digit,
            _ => (digit * 2) / 10 + (digit * 2) % 10,
        })
        .sum();
    (12..=19).contains(&digits.len()) && sum.is_multiple_of(10)
}

fn is_isbn10(text: &str) -> bool {
    let digits: Vec<char> = text.chars().filter(|character| *character != '-' && *character != ' ').collect();
    let sum: Option<u32> = digits
        .iter()
        .zip((1..=10).rev())
        .map(|(character, weight)| match character {
            'X' if weight == 1 => Some(10),
            other => other.to_digit(10).map(|digit| digit * weight),
        })
        .sum();
    digits.len() == 10 && sum.is_some_and(|sum| sum.is_multiple_of(11))
}

fn is_isbn13(text: &str) -> bool {
    let digits: Option<Vec<u32>> = text
        .chars()
        .filter(|character| *character != '-' && *character != ' ')
        .map(|character| character.to_digit(10))
        .collect();
    digits.is_some_and(|digits| {
        let sum: u32 =
            digits.iter().enumerate().map(|(index, digit)| digit * if index % 2 == 0 { 1 } else { 3 }).sum();
        digits.len() == 13 && sum.is_multiple_of(10)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_checked_against_its_format() {
        let cases = [
            ("date-time", "2024-01-02T03:04:05Z", true),
            ("date-time", "2024-01-02T03:04:05.123+02:00", true),
            ("date-time", "2024-01-02", false),
            ("date", "2024-02-30", false),
            ("date", "2024-02-29", true),
            ("duration", "1h30m", true),
            ("duration", "22 ns", true),
            ("duration", "1x", false),
            ("ipv4", "10.0.0.1", true),
            ("ipv4", "10.0.0.256", false),
            ("ipv6", "::1", true),
            ("cidr", "10.0.0.0/8", true),
            ("cidr", "10.0.0.0/33", false),
            ("mac", "02:42:ac:11:00:02", true),
            ("mac", "02:42:ac:11:00", false),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", true),
            ("uuid", "123e4567", false),
            ("uri", "https://a.example/x", true),
            ("uri", "not a uri", false),
            ("hostname", "a-b.example", true),
            ("hostname", "-a", false),
            ("byte", "aGk=", true),
            ("byte", "a", false),
            ("email", "a@b.example", true),
            ("email", "a", false),
            ("k8s-short-name", "Abc", false),
        ];
        for (name, text, expected) in cases {
            let format = find(name, Type::String, false).unwrap();
            assert_eq!(format.check.accepts(text), expected, "{name}: {text}");
        }
    }

    #[test]
    fn an_unknown_format_is_ignored() {
        assert!(find("color-of-the-day", Type::String, false).is_none());
        assert!(find("int32", Type::String, false).is_none());
    }
}
