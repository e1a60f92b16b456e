//! The protobuf wire format.

/// The data of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// A varint.
    Number(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes.
    Fixed32(u32),
    /// A string, a message or bytes.
    Bytes(&'a [u8]),
}

/// Reads fields in sequence.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

const CUT_SHORT: &str = "unexpected EOF";

impl<'a> Reader<'a> {
    /// Reads from the start.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn number(&mut self) -> Result<u64, String> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(CUT_SHORT)?;
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("proto: integer overflow".to_owned())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(CUT_SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Returns the next field; `None` at the end.
    pub fn field(&mut self) -> Result<Option<(u64, Data<'a>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let data = match tag & 7 {
            0 => Data::Number(self.number()?),
            1 => {
                let bytes: [u8; 8] = self.take(8)?.try_into().unwrap_or_default();
                Data::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = usize::try_from(self.number()?).map_err(|_| CUT_SHORT)?;
                Data::Bytes(self.take(length)?)
            }
            5 => {
                let bytes: [u8; 4] = self.take(4)?.try_into().unwrap_or_default();
                Data::Fixed32(u32::from_le_bytes(bytes))
            }
            other => return Err(format!("proto: illegal wireType {other}")),
        };

        Ok(Some((tag >> 3, data)))
    }

    /// Returns all fields.
    pub fn all(mut self) -> Result<Vec<(u64, Data<'a>)>, String> {
        let mut fields = Vec::new();
        while let Some(field) = self.field()? {
            fields.push(field);
        }
        Ok(fields)
    }
}
