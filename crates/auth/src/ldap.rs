//! Parses the LDAP options of an HBA rule or of `auth_ldap_options`: which LDAP servers check passwords, and how.

use std::fmt;

use zeroize::Zeroizing;

/// The options of PostgreSQL's method `ldap` for checking a user's password. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct LdapOptions {
    /// The servers, to be tried in this order: `ldap://host:port`.
    pub urls: Vec<String>,
    /// Whether TLS is started within the connection (`ldaptls`).
    pub starttls: bool,
    /// The way in which the name for the bind is found.
    pub mode: LdapMode,
}

/// The way in which the name for the bind with the user's password is found.
#[derive(Clone, PartialEq, Eq)]
pub enum LdapMode {
    /// The name is the user's name with a prefix and a suffix.
    Simple {
        /// The text before the user's name.
        prefix: String,
        /// The text after the user's name.
        suffix: String,
    },
    /// The name is searched for.
    Search {
        /// The entry below which the search starts.
        base: String,
        /// The depth of the search.
        scope: LdapScope,
        /// The filter, in which `$username` stands for the user's name.
        filter: String,
        /// The entry to bind as for the search. The bind is anonymous if it is empty.
        bind_dn: String,
        /// The password for that bind.
        bind_password: Zeroizing<String>,
    },
}

/// The depth of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LdapScope {
    /// The base entry itself.
    Base,
    /// The entries directly below the base.
    One,
    /// All entries below the base.
    Sub,
}

/// A problem of LDAP options, with the right form. Quotes no word of the options: any may be a part of a password with
/// a space in it. Words are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LdapProblem {
    /// The option does not exist.
    Unknown(usize),
    /// An option is not of the form `name=value`.
    NotAnOption(usize),
    /// The value of this option is wrong; with the right form.
    Value(&'static str, &'static str),
    /// Options of both modes are set.
    Mixed,
    /// No option of either mode is set.
    NoMode,
    /// Both a filter and an attribute to search for are set.
    TwoFilters,
    /// No server is set.
    NoServer,
}

impl fmt::Display for LdapProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(place) => write!(
                f,
                "option {place} of LDAP is unknown; expected one of {}; {QUOTED}",
                NAMES.join(", ")
            ),
            Self::NotAnOption(place) => {
                write!(f, "option {place} of LDAP is not of the form name=value; {QUOTED}")
            }
            Self::Value(name, right) => write!(f, "wrong value for {name}: expected {right}"),
            Self::Mixed => f.write_str(
                "ldapprefix and ldapsuffix can't be mixed with options of a search (ldapbasedn, ldapbinddn, \
                 ldapbindpasswd, ldapsearchattribute, ldapsearchfilter)",
            ),
            Self::NoMode => f.write_str(
                "one of ldapbasedn, ldapprefix and ldapsuffix must be set, or an ldapurl with a base",
            ),
            Self::TwoFilters => {
                f.write_str("ldapsearchattribute and ldapsearchfilter can't both be set")
            }
            Self::NoServer => f.write_str(
                "ldapserver must be set, or an ldapurl with a host (looking servers up in the DNS is not \
                 supported)",
            ),
        }
    }
}

impl std::error::Error for LdapProblem {}

/// The usual reason of a malformed option.
const QUOTED: &str = "a value with a space or a comma is written as name=\"value\"";

const NAMES: [&str; 13] = [
    "ldapserver",
    "ldapport",
    "ldapscheme",
    "ldaptls",
    "ldapprefix",
    "ldapsuffix",
    "ldapbasedn",
    "ldapbinddn",
    "ldapbindpasswd",
    "ldapsearchattribute",
    "ldapsearchfilter",
    "ldapscope",
    "ldapurl",
];

/// The options that were parsed so far.
#[derive(Default)]
struct Draft {
    servers: Option<String>,
    port: Option<u16>,
    ldaps: bool,
    starttls: bool,
    prefix: Option<String>,
    suffix: Option<String>,
    base: Option<String>,
    scope: Option<LdapScope>,
    bind_dn: Option<String>,
    bind_password: Option<Zeroizing<String>>,
    attribute: Option<String>,
    filter: Option<String>,
}

impl LdapOptions {
    /// Parses options of the form `name=value`.
    ///
    /// # Errors
    /// The first wrong option, or a problem of all options together.
    pub fn parse<'w>(words: impl Iterator<Item = &'w str>) -> Result<Self, LdapProblem> {
        let mut draft = Draft::default();
        for (place, word) in (1..).zip(words) {
            let (name, value) = word
                .split_once('=')
                .ok_or(LdapProblem::NotAnOption(place))?;
            draft.set(name, value, place)?;
        }
        draft.finish()
    }
}

impl Draft {
    fn set(&mut self, name: &str, value: &str, place: usize) -> Result<(), LdapProblem> {
        let text = || Some(value.to_owned());
        match name {
            "ldapserver" => self.servers = text(),
            "ldapport" => {
                let port = value.parse().ok().filter(|&port| port > 0);
                let right = LdapProblem::Value("ldapport", "a number, 1 to 65535");
                self.port = Some(port.ok_or(right)?);
            }
            "ldapscheme" => self.ldaps = is_ldaps(value).ok_or(SCHEME)?,
            "ldaptls" => self.starttls = value == "1",
            "ldapprefix" => self.prefix = text(),
            "ldapsuffix" => self.suffix = text(),
            "ldapbasedn" => self.base = text(),
            "ldapbinddn" => self.bind_dn = text(),
            "ldapbindpasswd" => self.bind_password = Some(Zeroizing::new(value.to_owned())),
            "ldapsearchattribute" => self.attribute = text(),
            "ldapsearchfilter" => self.filter = text(),
            "ldapscope" => self.scope = Some(scope(value).ok_or(SCOPE)?),
            "ldapurl" => self.set_url(value)?,
            _ => return Err(LdapProblem::Unknown(place)),
        }
        Ok(())
    }

    /// Parses `ldap[s]://host[:port]/base[?attribute[?scope[?filter]]]`, as defined in RFC 4516.
    fn set_url(&mut self, url: &str) -> Result<(), LdapProblem> {
        const URL: LdapProblem = LdapProblem::Value(
            "ldapurl",
            "ldap://host:port/base?attribute?scope?filter, or the same with ldaps",
        );
        let (scheme, rest) = url.split_once("://").ok_or(URL)?;
        self.ldaps = is_ldaps(scheme).ok_or(URL)?;
        let (authority, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.rsplit_once(':') {
            // The colon is not a part of an IPv6 address.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        if let Some(port) = port {
            let port = port.parse().ok().filter(|&port| port > 0);
            self.port = Some(port.ok_or(URL)?);
        }
        if !host.is_empty() {
            self.servers = Some(decoded(host).ok_or(URL)?);
        }
        let mut parts = rest.splitn(4, '?');
        let mut part = || match parts.next() {
            Some(part) if !part.is_empty() => decoded(part).map(Some).ok_or(URL),
            _ => Ok(None),
        };
        if let Some(base) = part()? {
            self.base = Some(base);
        }
        if let Some(attributes) = part()? {
            let first = attributes.split(',').next().unwrap_or_default();
            self.attribute = Some(first.to_owned());
        }
        // Without a scope, the URL means the base entry itself, as in PostgreSQL.
        self.scope = Some(match part()? {
            Some(text) => scope(&text).ok_or(URL)?,
            None => LdapScope::Base,
        });
        if let Some(filter) = part()? {
            self.filter = Some(filter);
        }
        Ok(())
    }

    fn finish(self) -> Result<LdapOptions, LdapProblem> {
        let is_simple = self.prefix.is_some() || self.suffix.is_some();
        let searches = self.base.is_some()
            || self.bind_dn.is_some()
            || self.bind_password.is_some()
            || self.attribute.is_some()
            || self.filter.is_some();
        if is_simple && searches {
            return Err(LdapProblem::Mixed);
        }
        if self.attribute.is_some() && self.filter.is_some() {
            return Err(LdapProblem::TwoFilters);
        }
        let urls = self.urls();
        if urls.is_empty() {
            return Err(LdapProblem::NoServer);
        }
        let mode = match self.base {
            _ if is_simple => LdapMode::Simple {
                prefix: self.prefix.unwrap_or_default(),
                suffix: self.suffix.unwrap_or_default(),
            },
            None => return Err(LdapProblem::NoMode),
            Some(base) => LdapMode::Search {
                base,
                scope: self.scope.unwrap_or(LdapScope::Sub),
                filter: self.filter.unwrap_or_else(|| {
                    format!("({}=$username)", self.attribute.as_deref().unwrap_or("uid"))
                }),
                bind_dn: self.bind_dn.unwrap_or_default(),
                bind_password: self.bind_password.unwrap_or_default(),
            },
        };
        Ok(LdapOptions {
            urls,
            starttls: self.starttls,
            mode,
        })
    }

    fn urls(&self) -> Vec<String> {
        let (scheme, usual) = if self.ldaps {
            ("ldaps", 636)
        } else {
            ("ldap", 389)
        };
        let port = self.port.unwrap_or(usual);
        let servers = self.servers.as_deref().unwrap_or_default();
        let url = |host: &str| format!("{scheme}://{host}:{port}");
        servers.split_ascii_whitespace().map(url).collect()
    }
}

const SCHEME: LdapProblem = LdapProblem::Value("ldapscheme", "ldap or ldaps");
const SCOPE: LdapProblem = LdapProblem::Value("ldapscope", "base, one or sub");

fn is_ldaps(scheme: &str) -> Option<bool> {
    match scheme {
        "ldap" => Some(false),
        "ldaps" => Some(true),
        _ => None,
    }
}

fn scope(text: &str) -> Option<LdapScope> {
    match text {
        "base" => Some(LdapScope::Base),
        "one" => Some(LdapScope::One),
        "sub" => Some(LdapScope::Sub),
        _ => None,
    }
}

/// Decodes percent-encoded characters: `%41` becomes `A`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        let digits = std::str::from_utf8(&digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Debug for LdapOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LdapOptions")
            .field("urls", &self.urls)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<LdapOptions, LdapProblem> {
        LdapOptions::parse(words.split('|'))
    }

    /// Describes the mode in short, for comparisons.
    fn check(words: &str, urls: &[&str], expect: &str) {
        let options = parse(words).expect(words);
        let mode = match &options.mode {
            LdapMode::Simple { prefix, suffix } => format!("{prefix}USER{suffix}"),
            LdapMode::Search {
                base,
                scope,
                filter,
                bind_dn,
                bind_password,
            } => format!("{base} {scope:?} {filter} {bind_dn}/{}", **bind_password),
        };
        assert_eq!(
            (options.urls, &*mode),
            (urls.iter().map(|&url| url.to_owned()).collect(), expect),
            "{words}"
        );
    }

    #[test]
    fn both_modes_and_urls() {
        check(
            "ldapserver=h|ldapprefix=uid=|ldapsuffix=,dc=x",
            &["ldap://h:389"],
            "uid=USER,dc=x",
        );
        check(
            "ldapserver=a b|ldapscheme=ldaps|ldapsuffix=@x",
            &["ldaps://a:636", "ldaps://b:636"],
            "USER@x",
        );
        check(
            "ldapserver=h|ldapport=1|ldapbasedn=dc=x",
            &["ldap://h:1"],
            "dc=x Sub (uid=$username) /",
        );
        check(
            "ldapserver=h|ldapbasedn=b|ldapbinddn=cn=m|ldapbindpasswd=p=w|ldapsearchattribute=mail",
            &["ldap://h:389"],
            "b Sub (mail=$username) cn=m/p=w",
        );
        check(
            "ldapurl=ldap://h:7/dc=x?uid?sub",
            &["ldap://h:7"],
            "dc=x Sub (uid=$username) /",
        );
        check(
            "ldapurl=ldaps://[::1]/dc=x",
            &["ldaps://[::1]:636"],
            "dc=x Base (uid=$username) /",
        );
        check(
            "ldapurl=ldap://h/dc%3Dx??one?(&(a=$username)(b=?))",
            &["ldap://h:389"],
            "dc=x One (&(a=$username)(b=?)) /",
        );
    }

    #[test]
    fn problems_do_not_show_the_password() {
        let wrong = |words: &str, expect: &str| {
            let problem = parse(words).expect_err(words).to_string();
            assert!(
                problem.contains(expect) && !problem.contains("hush"),
                "{words}: {problem}"
            );
        };
        wrong("ldapserver=h", "must be set");
        wrong(
            "ldapserver=h|ldapprefix=a|ldapbindpasswd=hush",
            "can't be mixed",
        );
        wrong(
            "ldapserver=h|ldapbasedn=a|ldapsearchfilter=b|ldapsearchattribute=c",
            "can't both be set",
        );
        wrong("ldapbasedn=a|ldapbindpasswd=hush", "ldapserver must be set");
        wrong("ldapserver=h|ldapport=0", "1 to 65535");
        wrong("ldapserver=h|ldapscheme=http", "ldap or ldaps");
        wrong("ldapurl=http://h/x", "ldap://host");
        wrong("ldapurl=ldap://h:x/b", "ldap://host");
        wrong("ldapurl=ldap://h/%zz", "ldap://host");
        wrong("ldapfoo=hush", "option 1 of LDAP is unknown");
        wrong(
            "ldapserver=h|ldapbindpasswd=a|hush",
            "option 3 of LDAP is not of the form",
        );
        wrong("ldapbindpasswd=a|hush=b", "option 2 of LDAP is unknown");
        assert!(
            !format!(
                "{:?}",
                parse("ldapserver=h|ldapbasedn=b|ldapbindpasswd=hush")
            )
            .contains("hush")
        );
    }
}
