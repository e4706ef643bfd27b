//! The password file, by libpq's rules: `host:port:database:user:password`, one login per line.

use zeroize::Zeroizing;

/// The login for which a password is searched.
#[derive(Debug, Clone, Copy)]
pub struct PassfileKey<'a> {
    /// `localhost` for the default folder of Unix sockets.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The database.
    pub dbname: &'a str,
    /// The user.
    pub user: &'a str,
}

/// Returns the password of the first line that matches.
#[must_use]
pub fn find(text: &str, wanted: &PassfileKey<'_>) -> Option<Zeroizing<String>> {
    let port = wanted.port.to_string();
    let fields = [wanted.host, &port, wanted.dbname, wanted.user];
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let mut rest = line;
            for field in fields {
                rest = after_field(rest, field)?;
            }
            Some(unescape(rest))
        })
}

/// Returns the rest of `line` after its first field, if that field matches `wanted`.
fn after_field<'a>(line: &'a str, wanted: &str) -> Option<&'a str> {
    if let Some(rest) = line.strip_prefix("*:") {
        return Some(rest);
    }
    let mut expected = wanted.chars();
    let mut found = line.char_indices();
    while let Some((at, character)) = found.next() {
        let character = match character {
            ':' => return expected.next().is_none().then(|| &line[at + 1..]),
            '\\' => found.next()?.1,
            other => other,
        };
        if expected.next() != Some(character) {
            return None;
        }
    }
    None
}

/// Returns the password at the beginning of `rest`. A colon ends it.
fn unescape(rest: &str) -> Zeroizing<String> {
    let mut password = Zeroizing::new(String::with_capacity(rest.len()));
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' => break,
            '\\' => password.extend(characters.next()),
            other => password.push(other),
        }
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: PassfileKey<'_> = PassfileKey {
        host: "db",
        port: 5432,
        dbname: "shop",
        user: "app",
    };

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(
            find(text, &WANTED).as_deref().map(String::as_str),
            expected,
            "{text}"
        );
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        check("", None);
        check("db:5432:shop:app:secret", Some("secret"));
        check("*:*:*:*:secret\n", Some("secret"));
        check(
            "db:5433:shop:app:no\n*:*:shop:*:yes\ndb:5432:shop:app:late",
            Some("yes"),
        );
        check("#db:5432:shop:app:no", None);
        check("dbx:5432:shop:app:no\nd:5432:shop:app:no", None);
        check("db:5432:shop:app", None);
        check("db:5432:shop:app:", Some(""));
        check(r"db:5432:shop:app:a\:b\\c:rest", Some(r"a:b\c"));
        check(r"d\b:5432:shop:app:x", Some("x"));
        check("db:5432:shop:app:secret\r\n", Some("secret"));
    }

    #[test]
    fn a_wildcard_is_a_whole_field() {
        let wanted = PassfileKey {
            host: "a:b",
            ..WANTED
        };
        let found = find("*x:*:*:*:no\na\\:b:*:*:*:yes", &wanted);
        assert_eq!(found.as_deref().map(String::as_str), Some("yes"));
    }
}
