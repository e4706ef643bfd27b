//! The rules of an HBA file.

use std::{collections::BTreeSet, net::IpAddr, path::Path, sync::Arc};

use super::{
    HbaProblem, IdentMap, IdentMaps, Wrong,
    address::Range,
    line::{Word, fields, lines},
    names::{Column, Fit, Names, Read},
};
use crate::{LdapOptions, Method, PamOptions};

/// The rules of an HBA file, in their order.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    notes: Vec<String>,
}

/// A rule: the logins that match, and how these clients authenticate.
#[derive(Debug, Clone)]
pub struct Rule {
    connection: Connection,
    databases: Names,
    users: Names,
    range: Range,
    /// The way in which matching clients have to authenticate.
    pub method: Method,
    /// The map from names of the system, or of certificates, to users.
    pub map: Option<Arc<IdentMap>>,
    /// The number of the line in the file, from 1.
    pub line: usize,
}

/// The kind of a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connection {
    /// By a Unix socket.
    Local,
    /// By TCP.
    Host,
    /// By TCP, with TLS.
    HostTls,
    /// By TCP, without TLS.
    HostPlain,
}

/// A login: the client, its address, and the database that it asks for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The address of the client. `None` is a Unix socket.
    pub address: Option<IpAddr>,
    /// Whether the client uses TLS.
    pub is_tls: bool,
    /// Whether the client asks for physical replication, which has no database.
    pub is_physical: bool,
    /// The requested database.
    pub database: &'a str,
    /// The claimed user.
    pub user: &'a str,
    /// The roles that the user is a member of, if they are known.
    pub roles: Option<&'a BTreeSet<String>>,
}

/// The result of the rules.
#[derive(Debug, Clone, Copy)]
pub enum Found<'r> {
    /// The rule that matches.
    Rule(&'r Rule),
    /// No rule matches.
    Nothing,
    /// Whether this rule matches depends on the user's roles, which are not known.
    RolesWanted(&'r Rule),
}

impl Rules {
    /// Parses the text of an HBA file. `read` returns the text of files of names.
    ///
    /// # Errors
    /// All invalid lines.
    pub fn parse(
        text: &str,
        file: &Path,
        maps: &IdentMaps,
        read: Read<'_>,
    ) -> Result<Self, Vec<HbaProblem>> {
        let mut found = Self::default();
        let mut problems = Vec::new();
        for (number, line) in lines(text) {
            let rule = fields(&line)
                .and_then(|fields| rule(&fields, number, &mut Context { file, maps, read }));
            match rule {
                Ok(None) => {}
                Ok(Some(rule)) => {
                    let notes = rule.notes();
                    let place = format!("{}:{number}", file.display());
                    found
                        .notes
                        .extend(notes.map(|note| format!("{place}: {note}")));
                    found.rules.push(rule);
                }
                Err(wrong) => {
                    let wrong = wrong.without_secret(&line);
                    problems.push(HbaProblem::new(file, number, wrong));
                }
            }
        }
        match problems.is_empty() {
            true => Ok(found),
            false => Err(problems),
        }
    }

    /// Creates one rule for all clients, by LDAP, from the text of `auth_ldap_options`.
    ///
    /// # Errors
    /// The problem of the options.
    pub fn of_ldap(options: &str) -> Result<Self, Wrong> {
        let fields = fields(options)?;
        let words = fields.iter().flatten().map(|word| word.text.as_str());
        let options = LdapOptions::parse(words).map_err(Wrong::Ldap)?;
        Ok(Self::of_method(Method::Ldap(Arc::new(options))))
    }

    /// Creates one rule for all clients, by PAM: `auth_type = pam`.
    #[must_use]
    pub fn of_pam() -> Self {
        Self::of_method(Method::Pam(Arc::new(PamOptions::default())))
    }

    /// Creates one rule for all clients.
    fn of_method(method: Method) -> Self {
        let mut rules = Self::default();
        for connection in [Connection::Local, Connection::Host] {
            rules.rules.push(Rule {
                connection,
                databases: Names::everything(),
                users: Names::everything(),
                range: Range::All,
                method: method.clone(),
                map: None,
                line: 0,
            });
        }
        rules
    }

    /// Returns the first rule that matches.
    #[must_use]
    pub fn find(&self, asked: &Asked<'_>) -> Found<'_> {
        for rule in &self.rules {
            match rule.fit(asked) {
                Fit::Yes => return Found::Rule(rule),
                Fit::No => {}
                Fit::Unknown => return Found::RolesWanted(rule),
            }
        }
        Found::Nothing
    }

    /// Returns the first rule that depends on roles.
    #[must_use]
    pub fn by_roles(&self) -> Option<&Rule> {
        let mut rules = self.rules.iter();
        rules.find(|rule| rule.databases.name_roles() || rule.users.name_roles())
    }

    /// Returns the first rule that uses PAM.
    #[must_use]
    pub fn by_pam(&self) -> Option<&Rule> {
        let mut rules = self.rules.iter();
        rules.find(|rule| matches!(rule.method, Method::Pam(_)))
    }

    /// Returns warnings about rules that are allowed but hardly intended, for the log.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Rule {
    fn fit(&self, asked: &Asked<'_>) -> Fit {
        let has_come_so = match (asked.address, self.connection) {
            (None, connection) => connection == Connection::Local,
            (Some(_), Connection::Local) => false,
            (Some(_), Connection::HostTls) if !asked.is_tls => false,
            (Some(_), Connection::HostPlain) if asked.is_tls => false,
            // A socket for both versions reports IPv4 addresses as IPv6 addresses.
            (Some(address), _) => self.range.contains(address.to_canonical()),
        };
        if !has_come_so {
            return Fit::No;
        }
        let database = if asked.is_physical {
            self.databases.replication.into()
        } else {
            self.databases.fit(asked.database, asked.user, asked.roles)
        };
        let user = self.users.fit(asked.user, asked.user, asked.roles);
        match (database, user) {
            (Fit::No, _) | (_, Fit::No) => Fit::No,
            (Fit::Unknown, _) | (_, Fit::Unknown) => Fit::Unknown,
            (Fit::Yes, Fit::Yes) => Fit::Yes,
        }
    }

    fn notes(&self) -> impl Iterator<Item = &'static str> {
        let is_local = self.connection == Connection::Local;
        let address = self.range.is_empty().then_some(
            "the address has bits that its mask has not, so that no client fits; set them to 0",
        );
        let (cert, peer) = match self.method {
            Method::Cert => (is_local || self.connection == Connection::HostPlain, false),
            Method::Peer => (false, !is_local),
            _ => (false, false),
        };
        let cert = cert.then_some("cert needs TLS: nobody who fits this rule can log in");
        let peer = peer.then_some("peer needs a Unix socket: nobody who fits this rule can log in");
        [address, cert, peer].into_iter().flatten()
    }
}

/// The context in which a line is parsed.
struct Context<'c> {
    file: &'c Path,
    maps: &'c IdentMaps,
    read: Read<'c>,
}

fn rule(
    fields: &[Vec<Word>],
    line: usize,
    context: &mut Context<'_>,
) -> Result<Option<Rule>, Wrong> {
    let Some(first) = fields.first() else {
        return Ok(None);
    };
    let connection = match first.as_slice() {
        [word] if word.is("local") => Connection::Local,
        [word] if word.is("host") => Connection::Host,
        [word] if word.is("hostssl") => Connection::HostTls,
        [word] if word.is("hostnossl") => Connection::HostPlain,
        words => {
            let first = words.first().map(|word| word.text.clone());
            return Err(Wrong::Type(first.unwrap_or_default()));
        }
    };
    let mut rest = fields[1..].iter().map(Vec::as_slice);
    let databases = rest.next().ok_or(Wrong::Missing("database"))?;
    let databases = Names::parse(Column::Databases, databases, context.file, context.read)?;
    let users = rest.next().ok_or(Wrong::Missing("user"))?;
    let users = Names::parse(Column::Users, users, context.file, context.read)?;
    let range = match connection {
        Connection::Local => Range::All,
        _ => {
            let address = single(rest.next(), "address")?;
            Range::parse(address, || match rest.next() {
                Some([mask]) => Some(mask),
                _ => None,
            })?
        }
    };
    let method = single(rest.next(), "method")?;
    let (method, map) = method_with_options(method, rest.flatten(), context.maps)?;
    Ok(Some(Rule {
        connection,
        databases,
        users,
        range,
        method,
        map,
        line,
    }))
}

fn method_with_options<'w>(
    method: &Word,
    words: impl Iterator<Item = &'w Word>,
    maps: &IdentMaps,
) -> Result<(Method, Option<Arc<IdentMap>>), Wrong> {
    if method.is("ldap") {
        let options = LdapOptions::parse(words.map(|word| word.text.as_str()));
        let options = options.map_err(Wrong::Ldap)?;
        return Ok((Method::Ldap(Arc::new(options)), None));
    }
    if method.is("pam") {
        let options = PamOptions::parse(words.map(|word| word.text.as_str()));
        let options = options.map_err(Wrong::Pam)?;
        return Ok((Method::Pam(Arc::new(options)), None));
    }
    let method = method_of(method).ok_or_else(|| Wrong::Method(method.text.clone()))?;
    let map = options(words, &method, maps)?;
    Ok((method, map))
}

fn single<'w>(field: Option<&'w [Word]>, what: &'static str) -> Result<&'w Word, Wrong> {
    match field {
        None => Err(Wrong::Missing(what)),
        Some([word]) => Ok(word),
        Some(_) => Err(Wrong::Several(what)),
    }
}

fn method_of(word: &Word) -> Option<Method> {
    if word.quoted {
        return None;
    }
    Some(match &*word.text {
        "trust" => Method::Trust,
        "reject" => Method::Reject,
        "md5" => Method::Md5,
        "scram-sha-256" => Method::ScramSha256,
        "password" | "plain" => Method::Password,
        "cert" => Method::Cert,
        "peer" => Method::Peer,
        _ => return None,
    })
}

fn options<'w>(
    words: impl Iterator<Item = &'w Word>,
    method: &Method,
    maps: &IdentMaps,
) -> Result<Option<Arc<IdentMap>>, Wrong> {
    let mut map = None;
    for word in words {
        let (name, value) = word
            .text
            .split_once('=')
            .ok_or_else(|| Wrong::NotAnOption(word.text.clone()))?;
        match (name, method) {
            ("map", Method::Cert | Method::Peer) => {
                let found = maps.get(value);
                map = Some(
                    found
                        .ok_or_else(|| Wrong::NoSuchMap(value.to_owned()))?
                        .clone(),
                );
            }
            ("map", _) => return Err(Wrong::MapUnused),
            _ => return Err(Wrong::Option(name.to_owned())),
        }
    }
    Ok(map)
}
