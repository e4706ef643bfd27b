//! The description of a statement that a client has received: its parameters and result columns.

use std::hash::{BuildHasher, Hasher};

use pgweir_wire::{Body, Malformed};

/// The bytes of a column's fixed part in RowDescription, without the format, which belongs to the portal.
const COLUMN_LEN: usize = 16;

/// The last description of a statement's parameters and columns that a client has received, as digests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StatementDescription {
    /// The digest of ParameterDescription; `None` if the client has not received it.
    pub params: Option<u64>,
    /// The digest of RowDescription or NoData; `None` if the client has not received it.
    pub columns: Option<u64>,
    /// Whether the statement's result has changed since the client received its description: the statement fails for
    /// the client until the client prepares it again.
    pub stale: bool,
    /// The schema number for which the description was valid ([`Catalog::schema`](crate::Catalog::schema)).
    pub schema: u32,
}

impl StatementDescription {
    /// Returns the value for a statement whose description the client has not received.
    #[must_use]
    pub fn not_described(schema: u32) -> Self {
        Self {
            schema,
            ..Self::default()
        }
    }
}

/// Returns a digest of the body of a RowDescription, regardless of the formats.
///
/// # Errors
/// The body is malformed.
pub(super) fn of_columns(hasher: &impl BuildHasher, body: &[u8]) -> Result<u64, Malformed> {
    let mut digest = hasher.build_hasher();
    let mut body = Body::new(body);
    let count = body.bytes(2)?;
    digest.write(count);
    for _ in 0..u16::from_be_bytes([count[0], count[1]]) {
        let name = body.cstr()?;
        digest.write_usize(name.len());
        digest.write(name);
        digest.write(body.bytes(COLUMN_LEN)?);
        body.bytes(2)?;
    }
    body.end()?;
    Ok(digest.finish())
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;

    fn column(name: &[u8], of_type: u8, format: u8) -> Vec<u8> {
        let mut bytes = vec![0, 1];
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&[0; 7]);
        bytes.extend_from_slice(&[0, 0, 0, of_type, 0, 4, 255, 255, 255, 255, 0, format]);
        bytes
    }

    #[test]
    fn formats_do_not_count() {
        let hasher = RandomState::new();
        let of = |body: &[u8]| of_columns(&hasher, body).unwrap();
        assert_eq!(of(&column(b"a", 23, 0)), of(&column(b"a", 23, 1)));
        assert_ne!(of(&column(b"a", 23, 0)), of(&column(b"a", 20, 0)));
        assert_ne!(of(&column(b"a", 23, 0)), of(&column(b"b", 23, 0)));
        assert_ne!(of(&column(b"a", 23, 0)), of(&[0, 0]));
        assert!(of_columns(&hasher, &column(b"a", 23, 0)[..20]).is_err());
    }
}
