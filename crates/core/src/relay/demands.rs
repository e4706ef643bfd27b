//! What a request asks of a prepared statement that is made anew before it is repeated.

use pgweir_wire::{Body, HEADER_LEN, Header, Malformed, tag::frontend};

use super::named::Named;
use crate::backend::Demands;

/// The formats in a Bind.
struct Formats {
    /// How many parameters there are, if some come in binary; else 0.
    binary: u16,
    /// For how many columns there is one.
    of_columns: u16,
}

/// The name of the statement that these messages use first, and what they ask of it; `None` if
/// they begin with something else.
pub(super) fn read(bytes: &[u8]) -> Option<(&[u8], Demands)> {
    let (tag, body) = messages(bytes).next()?;
    let first = match read_one(tag, body) {
        Named::Bind { name, .. } | Named::Describe(name) => name,
        _ => return None,
    };
    let mut demands = Demands::default();
    // Portals of the statement that were not described yet.
    let mut bound: Vec<&[u8]> = Vec::new();
    let mut is_described = false;
    for (tag, body) in messages(bytes) {
        match read_one(tag, body) {
            Named::Bind { portal, name } => {
                bound.retain(|&bound| bound != portal);
                if name == first {
                    let formats = Formats::read(&body[portal.len() + name.len() + 2..]).ok()?;
                    demands.params = demands.params.max(formats.binary);
                    demands.columns |= formats.of_columns > 1;
                    if !is_described {
                        bound.push(portal);
                    }
                }
            }
            Named::Describe(name) if name == first => {
                is_described = true;
                bound.clear();
            }
            Named::Nothing => {
                let portal = match tag {
                    frontend::DESCRIBE => Body::new(body.get(1..)?).cstr().ok()?,
                    frontend::EXECUTE => Body::new(body).cstr().ok()?,
                    _ => continue,
                };
                demands.columns |= tag == frontend::EXECUTE && bound.contains(&portal);
                bound.retain(|&bound| bound != portal);
            }
            _ => {}
        }
    }
    Some((first, demands))
}

fn read_one(tag: u8, body: &[u8]) -> Named<'_> {
    match tag {
        frontend::BIND | frontend::DESCRIBE => Named::read(tag, body, body.len()),
        _ => Named::Nothing,
    }
}

fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let header = Header::parse(bytes).ok()??;
        let (message, rest) = bytes.split_at_checked(header.message_len())?;
        bytes = rest;
        Some((header.tag, &message[HEADER_LEN..]))
    })
}

/// Does a Parse with this definition say the types of so many parameters?
pub(super) fn declares(definition: &[u8], count: u16) -> bool {
    let types = || {
        let mut body = Body::new(definition);
        body.cstr()?;
        let count = body.bytes(2)?;
        body.bytes(4 * usize::from(u16::from_be_bytes([count[0], count[1]])))
    };
    let types = types().unwrap_or_default().chunks(4);
    types.filter(|&of_type| of_type != [0; 4]).count() >= usize::from(count)
}

impl Formats {
    /// Reads the rest of a Bind behind its names.
    fn read(rest: &[u8]) -> Result<Self, Malformed> {
        let mut body = Body::new(rest);
        let count = |body: &mut Body<'_>| {
            let count = body.bytes(2)?;
            Ok(u16::from_be_bytes([count[0], count[1]]))
        };
        let formats = count(&mut body)?;
        let formats = body.bytes(2 * usize::from(formats))?;
        let params = count(&mut body)?;
        for _ in 0..params {
            let len = body.i32()?;
            body.bytes(usize::try_from(len).unwrap_or(0))?;
        }
        Ok(Self {
            binary: if formats.iter().any(|&byte| byte != 0) {
                params
            } else {
                0
            },
            of_columns: count(&mut body)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    fn bind(portal: &str, name: &str, binary: bool, of_columns: u16) -> Vec<u8> {
        let formats = vec![0; 2 * usize::from(of_columns)];
        let names = format!("{portal}\0{name}\0");
        message(
            b'B',
            &[
                names.as_bytes(),
                &[0, 1, 0, u8::from(binary), 0, 1, 0, 0, 0, 1, b'x'],
                &of_columns.to_be_bytes(),
                &formats,
            ],
        )
    }

    fn describe(what: &str) -> Vec<u8> {
        message(b'D', &[what.as_bytes(), &[0]])
    }

    fn execute(portal: &str) -> Vec<u8> {
        message(b'E', &[portal.as_bytes(), &[0; 5]])
    }

    fn check(messages: &[Vec<u8>], params: u16, columns: bool) {
        let bytes = messages.concat();
        let expected = Demands { params, columns };
        assert_eq!(read(&bytes), Some((&b"S"[..], expected)), "{bytes:?}");
    }

    #[test]
    fn demands() {
        let sync = || message(b'S', &[]);
        check(&[bind("", "S", false, 0), execute(""), sync()], 0, true);
        check(&[bind("", "S", true, 0), sync()], 1, false);
        let described = |bind: Vec<u8>| [bind, describe("P"), execute(""), sync()];
        check(&described(bind("", "S", false, 1)), 0, false);
        check(&described(bind("", "S", false, 2)), 0, true);
        check(&described(bind("p", "S", false, 0)), 0, false);
        check(
            &[describe("SS"), bind("", "S", false, 0), execute("")],
            0,
            false,
        );
        check(
            &[bind("", "S", false, 0), execute(""), describe("P")],
            0,
            true,
        );
        let two = [
            bind("a", "S", false, 0),
            bind("b", "S", false, 0),
            describe("Pa"),
        ];
        check(&two, 0, false);
        check(&[&two[..], &[execute("b")]].concat(), 0, true);
        let other = [bind("", "S", false, 0), bind("", "T", true, 3), execute("")];
        check(&other, 0, false);
        assert_eq!(read(&execute("S")), None);
        assert_eq!(read(&describe("P")), None);
        assert_eq!(read(b""), None);
    }

    #[test]
    fn declared() {
        assert!(declares(b"select $1\0\0\x01\0\0\0\x17", 1));
        assert!(!declares(b"select $1, $2\0\0\x01\0\0\0\x17", 2));
        assert!(!declares(b"select $1\0\0\x01\0\0\0\0", 1));
        assert!(!declares(b"select $1\0\0\x01", 1));
        assert!(declares(b"select 1\0\0\0", 0));
    }
}
