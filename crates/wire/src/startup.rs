//! The packets that open a connection, which have a length but no tag.

use std::fmt;

use crate::{Body, Malformed};

const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;

/// A protocol version, such as 3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProtocolVersion {
    /// 3
    pub major: u16,
    /// 0 or 2; others are negotiated down.
    pub minor: u16,
}

impl ProtocolVersion {
    /// The version of PostgreSQL 7.4 to 17.
    pub const V3_0: Self = Self { major: 3, minor: 0 };
    /// The version of PostgreSQL 18: longer cancel keys.
    pub const V3_2: Self = Self { major: 3, minor: 2 };

    /// The version as its code in a startup packet.
    #[must_use]
    pub fn to_code(self) -> u32 {
        u32::from(self.major) << 16 | u32::from(self.minor)
    }
}

/// The newest version that pgweir supports.
pub const LATEST: ProtocolVersion = ProtocolVersion::V3_2;

/// A client's first packet.
#[derive(Debug, Clone, Copy)]
pub enum Startup<'a> {
    /// The client asks for TLS.
    SslRequest,
    /// The client asks for GSSAPI encryption.
    GssEncRequest,
    /// The client asks to cancel the query of the client with this key.
    Cancel {
        /// The process id that the client received.
        pid: u32,
        /// The secret that the client received: 4 bytes in 3.0, up to 256 in 3.2.
        secret: &'a [u8],
    },
    /// The client logs in.
    Login {
        /// The requested version: major is 3, minor anything.
        version: ProtocolVersion,
        /// `user`, `database` and settings.
        parameters: StartupParameters<'a>,
    },
}

/// Name-value pairs of a startup packet, checked to be complete.
#[derive(Debug, Clone, Copy)]
pub struct StartupParameters<'a> {
    pairs: &'a [u8],
}

/// The reason why a first packet is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartupError {
    /// The length is impossible or above the limit.
    Length(i32),
    /// The fields don't fit the length.
    Layout,
    /// The major version is not supported.
    Version(ProtocolVersion),
    /// A known request with a wrong length.
    Request,
}

impl<'a> Startup<'a> {
    /// Reads the packet at the start of `bytes`. Returns the packet and its length, or `None` while the packet is
    /// incomplete.
    ///
    /// # Errors
    /// See [`StartupError`]; `limit` is the largest length of a packet in bytes.
    pub fn parse(bytes: &'a [u8], limit: usize) -> Result<Option<(Self, usize)>, StartupError> {
        let Some(len) = Self::length(bytes, limit)? else {
            return Ok(None);
        };
        Ok(Some((Self::parse_packet(&bytes[4..len])?, len)))
    }

    /// Returns the length of the packet at the start of `bytes`, or `None` while the packet is incomplete. The packet
    /// itself is not read.
    ///
    /// # Errors
    /// [`StartupError::Length`]; `limit` is the largest length of a packet in bytes.
    pub fn length(bytes: &[u8], limit: usize) -> Result<Option<usize>, StartupError> {
        let Some((length, _)) = bytes.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*length);
        let Ok(len) = usize::try_from(length) else {
            return Err(StartupError::Length(length));
        };
        if len < 8 || len > limit {
            return Err(StartupError::Length(length));
        }
        Ok((len <= bytes.len()).then_some(len))
    }

    fn parse_packet(packet: &'a [u8]) -> Result<Self, StartupError> {
        let mut body = Body::new(packet);
        let code = body.i32()? as u32;
        let request = match code {
            SSL_REQUEST => Self::SslRequest,
            GSSENC_REQUEST => Self::GssEncRequest,
            CANCEL_REQUEST => {
                let pid = body.i32().map_err(|_| StartupError::Request)? as u32;
                let secret = body.rest();
                if secret.len() < 4 || secret.len() > 256 {
                    return Err(StartupError::Request);
                }
                return Ok(Self::Cancel { pid, secret });
            }
            _ => {
                let version = ProtocolVersion {
                    major: (code >> 16) as u16,
                    minor: code as u16,
                };
                if version.major != 3 {
                    return Err(StartupError::Version(version));
                }
                return Ok(Self::Login {
                    version,
                    parameters: StartupParameters::check(body.rest())?,
                });
            }
        };
        body.end().map_err(|_| StartupError::Request)?;
        Ok(request)
    }
}

impl<'a> StartupParameters<'a> {
    fn check(pairs: &'a [u8]) -> Result<Self, StartupError> {
        let mut body = Body::new(pairs);
        loop {
            let name = body.cstr()?;
            if name.is_empty() {
                body.end()?;
                return Ok(Self { pairs });
            }
            body.cstr()?;
        }
    }

    /// Returns the pairs in the client's order.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut body = Body::new(self.pairs);
        std::iter::from_fn(move || {
            let name = body.cstr().ok()?;
            let value = body.cstr().ok()?;
            (!name.is_empty()).then_some((name, value))
        })
    }
}

/// Appends a startup packet (version 3.0).
pub fn startup_packet<'p>(
    out: &mut Vec<u8>,
    parameters: impl Iterator<Item = (&'p [u8], &'p [u8])>,
) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&ProtocolVersion::V3_0.to_code().to_be_bytes());
    for (name, value) in parameters {
        for text in [name, value] {
            out.extend(text.iter().copied().filter(|&byte| byte != 0));
            out.push(0);
        }
    }
    out.push(0);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends an SSLRequest.
pub fn ssl_request(out: &mut Vec<u8>) {
    out.extend_from_slice(&8_u32.to_be_bytes());
    out.extend_from_slice(&SSL_REQUEST.to_be_bytes());
}

/// Returns whether these first bytes of a connection, of which eight suffice, begin a CancelRequest.
#[must_use]
pub fn is_cancel_request(head: &[u8]) -> bool {
    head.get(4..8) == Some(&CANCEL_REQUEST.to_be_bytes())
}

/// Appends a CancelRequest.
pub fn cancel_request(out: &mut Vec<u8>, pid: u32, secret: &[u8]) {
    out.extend_from_slice(&(12 + secret.len() as u32).to_be_bytes());
    out.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
    out.extend_from_slice(&pid.to_be_bytes());
    out.extend_from_slice(secret);
}

impl From<Malformed> for StartupError {
    fn from(_: Malformed) -> Self {
        Self::Layout
    }
}

impl fmt::Display for StartupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "invalid length of startup packet: {length}"),
            Self::Layout => {
                f.write_str("invalid startup packet layout: expected terminator as last byte")
            }
            Self::Version(ProtocolVersion { major, minor }) => write!(
                f,
                "unsupported frontend protocol {major}.{minor}: server supports 3.0 to {}.{}",
                LATEST.major, LATEST.minor
            ),
            Self::Request => f.write_str("invalid length of special request packet"),
        }
    }
}

impl std::error::Error for StartupError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, rest: &[u8]) -> Vec<u8> {
        let mut out = (8 + rest.len() as u32).to_be_bytes().to_vec();
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(rest);
        out
    }

    #[test]
    fn login_round_trip_and_every_cut() {
        let mut bytes = Vec::new();
        startup_packet(
            &mut bytes,
            [(&b"user"[..], &b"u"[..]), (b"database", b"d")].into_iter(),
        );
        for end in 0..bytes.len() {
            assert!(
                matches!(Startup::parse(&bytes[..end], 10_000), Ok(None)),
                "cut at {end}"
            );
        }
        let Ok(Some((
            Startup::Login {
                version,
                parameters,
            },
            len,
        ))) = Startup::parse(&bytes, 10_000)
        else {
            panic!("no login")
        };
        assert_eq!((version, len), (ProtocolVersion::V3_0, bytes.len()));
        let pairs: Vec<_> = parameters.iter().collect();
        assert_eq!(pairs, [(&b"user"[..], &b"u"[..]), (b"database", b"d")]);
    }

    #[test]
    fn wrong_packets() {
        let check = |bytes: &[u8], expect| {
            assert_eq!(Startup::parse(bytes, 100).err(), Some(expect), "{bytes:?}")
        };
        check(&[0, 0, 0, 7], StartupError::Length(7));
        check(&[0xff; 4], StartupError::Length(-1));
        check(&[0, 0, 0, 101], StartupError::Length(101));
        check(&packet(3 << 16, b"user\0u\0"), StartupError::Layout);
        check(&packet(3 << 16, b"user\0u\0\0x"), StartupError::Layout);
        check(
            &packet(2 << 16, b"\0"),
            StartupError::Version(ProtocolVersion { major: 2, minor: 0 }),
        );
        check(&packet(SSL_REQUEST, b"x"), StartupError::Request);
        check(
            &packet(CANCEL_REQUEST, b"\0\0\0\x01\0\0\0"),
            StartupError::Request,
        );
    }

    #[test]
    fn cancel_round_trip() {
        let mut bytes = Vec::new();
        cancel_request(&mut bytes, 7, b"abcd");
        assert!(is_cancel_request(&bytes) && is_cancel_request(&bytes[..8]));
        assert!(!is_cancel_request(&bytes[..7]));
        assert!(!is_cancel_request(&packet(SSL_REQUEST, b"")));
        assert!(matches!(
            Startup::parse(&bytes, 100),
            Ok(Some((
                Startup::Cancel {
                    pid: 7,
                    secret: b"abcd"
                },
                16
            )))
        ));
    }
}
