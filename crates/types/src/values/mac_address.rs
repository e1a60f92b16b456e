//! MAC addresses of network interfaces.

use std::{fmt, str::FromStr};

use super::{InvalidValue, text_value};

const FIX: &str =
    "must be a unicast MAC address, six hexadecimal pairs joined by colons, such as 52:54:00:12:34:56";

/// A unicast MAC address. Prints in lowercase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// The six octets, in order.
    #[must_use]
    pub fn octets(self) -> [u8; 6] {
        self.0
    }
}

fn parse(text: &str) -> Option<[u8; 6]> {
    let mut octets = [0; 6];
    let mut pairs = text.split(':');
    for octet in &mut octets {
        let pair = pairs.next()?;
        if pair.len() != 2 || !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *octet = u8::from_str_radix(pair, 16).ok()?;
    }

    let is_multicast = octets.first()? & 1 == 1;
    let is_zero = octets == [0; 6];
    (pairs.next().is_none() && !is_multicast && !is_zero).then_some(octets)
}

impl FromStr for MacAddress {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        parse(text).map(Self).ok_or_else(|| InvalidValue::new(text, FIX))
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.0.map(|octet| format!("{octet:02x}"));
        formatter.write_str(&pairs.join(":"))
    }
}

text_value!(
    MacAddress,
    max_length = 17,
    rule = "self.matches('^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$') && self != '00:00:00:00:00:00'",
    fix = FIX
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_prints_in_lowercase() {
        assert_eq!("52:54:00:AB:cd:0F".parse::<MacAddress>().unwrap().to_string(), "52:54:00:ab:cd:0f");
    }

    #[test]
    fn an_invalid_address_is_rejected_with_the_fix() {
        for text in [
            "",
            "zz:54:00:12:34:56",
            "52:54:00:12:34",
            "52:54:00:12:34:56:78",
            "52-54-00-12-34-56",
            "01:00:5e:00:00:01",
            "00:00:00:00:00:00",
            "5:54:00:12:34:56",
            "+5:54:00:12:34:56",
        ] {
            let error = text.parse::<MacAddress>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("such as 52:54"), "{error}");
        }
    }
}
