//! The fields of a message: a tag, a length, a value.

use std::{fmt, net::IpAddr, net::SocketAddr};

use zeroize::{Zeroize, Zeroizing};

use crate::Address;

/// A reader may skip unknown fields with this bit in their tag.
const MAY_SKIP: u8 = 0x80;

/// Names and values.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The state of a TLS connection: keys, record numbers, bytes that were read. Only the driver can read it.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsState(pub Zeroizing<Vec<u8>>);

impl fmt::Debug for TlsState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The whole state is secret.
        f.write_str("TlsState")
    }
}

/// A frame that can't be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadFrame {
    /// The frame ends in the middle of a field.
    Short,
    /// The frame is longer than allowed.
    Long,
    /// The frame's kind is not known.
    Kind(u8),
    /// The frame has an unknown field that must not be skipped.
    Unknown(u8),
    /// A field is missing.
    Missing(u8),
    /// A field's value is invalid.
    Value(u8),
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("a frame ends early"),
            Self::Long => f.write_str("a frame is too long"),
            Self::Kind(kind) => write!(f, "a frame of the unknown kind {kind}"),
            Self::Unknown(tag) => write!(f, "a field with the unknown tag {tag}"),
            Self::Missing(tag) => write!(f, "the field with tag {tag} is missing"),
            Self::Value(tag) => write!(f, "the field with tag {tag} has no possible value"),
        }
    }
}

impl std::error::Error for BadFrame {}

/// Writes fields.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn bytes(&mut self, tag: u8, value: &[u8]) -> &mut Self {
        self.bytes.push(tag);
        // No value is near 4 GB: frames are bounded far below.
        self.bytes
            .extend_from_slice(&(value.len() as u32).to_be_bytes());
        self.bytes.extend_from_slice(value);
        self
    }

    /// Writes a secret value: when the buffer grows, the memory that the value leaves is overwritten.
    pub(super) fn secret(&mut self, tag: u8, value: &[u8]) -> &mut Self {
        let more = value.len() + 5;
        if self.bytes.capacity() - self.bytes.len() < more {
            let mut larger = Vec::with_capacity(self.bytes.len() + 2 * more);
            larger.extend_from_slice(&self.bytes);
            self.bytes.zeroize();
            self.bytes = larger;
        }
        self.bytes(tag, value)
    }

    pub(super) fn number(&mut self, tag: u8, value: u64) -> &mut Self {
        self.bytes(tag, &value.to_be_bytes())
    }

    pub(super) fn flag(&mut self, tag: u8, value: bool) -> &mut Self {
        self.bytes(tag, &[u8::from(value)])
    }

    /// Writes a field whose value consists of fields.
    pub(super) fn nested(&mut self, tag: u8, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inside = Self::default();
        fill(&mut inside);
        self.bytes(tag, &inside.bytes)
    }

    /// Writes a field with pairs of a name and a value, one after the other.
    pub(super) fn pairs(&mut self, tag: u8, pairs: &[(Vec<u8>, Vec<u8>)]) -> &mut Self {
        self.nested(tag, |inside| {
            for (name, value) in pairs {
                inside.bytes(NAME, name).bytes(VALUE, value);
            }
        })
    }

    pub(super) fn address(&mut self, tag: u8, address: Address) -> &mut Self {
        match address {
            Address::Unix => self.bytes(tag, b""),
            Address::Tcp(address) => {
                let mut value = match address.ip() {
                    IpAddr::V4(ip) => ip.octets().to_vec(),
                    IpAddr::V6(ip) => ip.octets().to_vec(),
                };
                value.extend_from_slice(&address.port().to_be_bytes());
                self.bytes(tag, &value)
            }
        }
    }
}

const NAME: u8 = 1;
const VALUE: u8 = 2;

/// A field that was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'b> {
    pub(super) tag: u8,
    pub(super) value: &'b [u8],
}

/// An iterator over fields.
pub(super) struct Fields<'b>(pub(super) &'b [u8]);

impl<'b> Iterator for Fields<'b> {
    type Item = Result<Field<'b>, BadFrame>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&tag, rest) = self.0.split_first()?;
        let split = rest.split_first_chunk::<4>().and_then(|(len, rest)| {
            let len = u32::from_be_bytes(*len) as usize;
            rest.split_at_checked(len)
        });
        Some(match split {
            Some((value, rest)) => {
                self.0 = rest;
                Ok(Field { tag, value })
            }
            None => {
                self.0 = &[];
                Err(BadFrame::Short)
            }
        })
    }
}

impl<'b> Field<'b> {
    /// Skips an unknown field, or fails if it must not be skipped.
    pub(super) fn unknown(self) -> Result<(), BadFrame> {
        match self.tag & MAY_SKIP {
            0 => Err(BadFrame::Unknown(self.tag)),
            _ => Ok(()),
        }
    }

    pub(super) fn number<N: TryFrom<u64>>(self) -> Result<N, BadFrame> {
        let bytes: [u8; 8] = self.value.try_into().map_err(|_| self.bad())?;
        N::try_from(u64::from_be_bytes(bytes)).map_err(|_| self.bad())
    }

    pub(super) fn flag(self) -> Result<bool, BadFrame> {
        match self.value {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(self.bad()),
        }
    }

    pub(super) fn text(self) -> Result<String, BadFrame> {
        String::from_utf8(self.value.to_vec()).map_err(|_| self.bad())
    }

    pub(super) fn tls_state(self) -> TlsState {
        TlsState(Zeroizing::new(self.value.to_vec()))
    }

    pub(super) fn array<const N: usize>(self) -> Result<[u8; N], BadFrame> {
        self.value.try_into().map_err(|_| self.bad())
    }

    pub(super) fn pairs(self) -> Result<Pairs, BadFrame> {
        let mut pairs = Vec::new();
        let mut name = None;
        for field in Fields(self.value) {
            let field = field?;
            match (field.tag, name.take()) {
                (NAME, None) => name = Some(field.value.to_vec()),
                (VALUE, Some(name)) => pairs.push((name, field.value.to_vec())),
                _ => return Err(self.bad()),
            }
        }
        match name {
            None => Ok(pairs),
            Some(_) => Err(self.bad()),
        }
    }

    pub(super) fn address(self) -> Result<Address, BadFrame> {
        let Some((ip, port)) = self.value.split_last_chunk::<2>() else {
            return match self.value {
                [] => Ok(Address::Unix),
                _ => Err(self.bad()),
            };
        };
        let ip = match ip.len() {
            4 => <[u8; 4]>::try_from(ip).map(IpAddr::from),
            _ => <[u8; 16]>::try_from(ip).map(IpAddr::from),
        };
        let ip = ip.map_err(|_| self.bad())?;
        Ok(Address::Tcp(SocketAddr::new(ip, u16::from_be_bytes(*port))))
    }

    pub(super) fn bad(self) -> BadFrame {
        BadFrame::Value(self.tag)
    }
}
