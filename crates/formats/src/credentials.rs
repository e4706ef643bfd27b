//! The credentials of an HTTP request: the header `Authorization`.

use base64::{Engine, prelude::BASE64_STANDARD};
use zeroize::Zeroizing;

/// The contents of the `Authorization` header.
#[derive(PartialEq)]
pub enum Credentials {
    /// `Bearer TOKEN`.
    Token(Zeroizing<String>),
    /// `Basic`, with a user of the console.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: Zeroizing<String>,
    },
}

impl Credentials {
    /// Parses the value of the header. `None` if it has no credentials of these forms.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let (scheme, text) = value.split_once(' ')?;
        let text = text.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return Some(Self::Token(Zeroizing::new(text.to_owned())));
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = Zeroizing::new(BASE64_STANDARD.decode(text).ok()?);
        let text = std::str::from_utf8(&decoded).ok()?;
        let (user, password) = text.split_once(':')?;
        let is_clean = !user.is_empty() && !text.contains('\0');
        is_clean.then(|| Self::Password {
            user: user.to_owned(),
            password: Zeroizing::new(password.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Option<Credentials> {
        Some(Credentials::Token(Zeroizing::new(text.to_owned())))
    }

    #[test]
    fn credentials_are_read_from_their_header() {
        assert!(Credentials::parse("Bearer abc") == token("abc"));
        assert!(Credentials::parse("bearer  abc ") == token("abc"));
        let ann = Some(Credentials::Password {
            user: "ann".to_owned(),
            password: Zeroizing::new("a:b".to_owned()),
        });
        assert!(Credentials::parse("Basic YW5uOmE6Yg==") == ann);
        // Without a colon, without a user, not base64, and with a zero byte.
        for value in [
            "Basic YW5u",
            "Basic OmE=",
            "Basic %",
            "Basic YQA6Yg==",
            "abc",
            "Digest a",
        ] {
            assert!(Credentials::parse(value).is_none(), "{value}");
        }
    }
}
