//! A client's startup packet, after its checks.

use std::sync::Arc;

use pgweir_wire::StartupParameters;

use super::options;
use crate::{
    ExclusiveServer, Replication,
    base::fault::Fault,
    session::{Tracked, TrackedNames},
};

/// The longest name of a user in bytes, as in PgBouncer. PostgreSQL truncates names at 63 bytes.
const NAME_MAX: usize = 127;

/// A client's startup packet, after its checks.
#[derive(Debug, Clone)]
pub struct LoginRequest {
    /// The user.
    pub user: Arc<str>,
    /// The database; the user's name if the packet has none.
    pub database: Arc<str>,
    /// The tracked parameters in the packet.
    pub tracked: Tracked,
    /// Protocol options (`_pq_.`) in the packet that pgweir does not support.
    pub unknown_options: Vec<Vec<u8>>,
    /// The way to open an exclusive server for the client, if it needs one.
    pub exclusive: Option<ExclusiveServer>,
    /// All parameters in the packet, with `options` split, if the client's session moves between servers.
    pub asked: Option<AskedParameters>,
}

/// Names and values of parameters in a startup packet, in the client's order.
pub type AskedParameters = Arc<[(Vec<u8>, Vec<u8>)]>;

/// The settings that decide which startup parameters a client may send.
pub struct StartupTerms<'t> {
    /// The setting `ignore_startup_parameters`.
    pub ignored: &'t [String],
    /// Returns whether this database and this user are among `bypass_users`.
    pub may_bypass: &'t dyn Fn(&str, &str) -> bool,
    /// Returns whether the session state of clients of this database and user is carried between servers.
    pub is_carried: &'t dyn Fn(&str, &str) -> bool,
}

/// Parameters that can be set at the start of a connection only: those of the context `backend` and
/// `superuser-backend`.
const ONLY_AT_START: [&str; 7] = [
    "ignore_system_indexes",
    "jit_debugging_support",
    "jit_profiling_support",
    "local_preload_libraries",
    "log_connections",
    "log_disconnections",
    "post_auth_delay",
];

impl LoginRequest {
    /// Adds the client's address to its application_name (`application_name_add_host`).
    pub fn add_host(&mut self, names: &TrackedNames, address: &str) {
        let own = self.tracked.application_name();
        let own = if own.is_empty() { b"app" } else { own };
        let named = [own, b" - ", address.as_bytes()].concat();
        if let Some(at) = names.position(b"application_name") {
            self.tracked.set(at, &named);
        }
    }

    /// Reads the parameters.
    ///
    /// # Errors
    /// One of the parameters is not supported.
    pub fn read(
        parameters: StartupParameters<'_>,
        names: &TrackedNames,
        terms: &StartupTerms<'_>,
    ) -> Result<Self, Fault> {
        let own = OwnParameters::read(parameters);
        let (user, database) = own.names()?;
        let mut tracked = names.unset();
        let mut unknown_options = Vec::new();
        let replication = match own.replication {
            Some(value) => Replication::parse(value)?,
            None => Replication::None,
        };
        let is_replication = replication != Replication::None;
        let bypass = !is_replication && (terms.may_bypass)(&database, &user);
        let is_carried = !is_replication && (terms.is_carried)(&database, &user);
        let is_native = is_replication || bypass;
        let mut passed = Vec::new();
        let is_ignored = |name: &[u8]| {
            let mut ignored = terms.ignored.iter();
            ignored.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
        };
        let (mut of_options, mut asked) = (Vec::new(), Vec::new());
        for (name, value) in parameters.iter() {
            match name {
                b"user" | b"database" | b"replication" => {}
                // The server is exclusive to the client: it may have any parameter that PostgreSQL accepts.
                b"options" if bypass => {
                    pass_options(value, names, &mut tracked, &mut passed, &mut of_options);
                }
                b"options" if is_native => passed.push((name.to_vec(), value.to_vec())),
                b"options" => {
                    // If `options` is in `ignore_startup_parameters`, unsupported settings inside of it are ignored.
                    let all = is_ignored(name);
                    let is_ignored = |name: &[u8]| all || is_ignored(name);
                    read_options(
                        value,
                        names,
                        &is_ignored,
                        is_carried,
                        &mut tracked,
                        &mut of_options,
                    )?;
                }
                _ if name.starts_with(b"_pq_.") => unknown_options.push(name.to_vec()),
                _ => match names.tracked_position(name) {
                    Some(at) => {
                        asked.push((name.to_vec(), value.to_vec()));
                        tracked.set(at, value);
                    }
                    None if is_ignored(name) => {}
                    None if bypass => {
                        asked.push((name.to_vec(), value.to_vec()));
                        passed.push((name.to_vec(), value.to_vec()));
                    }
                    None if is_carried => asked.push((name.to_vec(), value.to_vec())),
                    None if is_native => passed.push((name.to_vec(), value.to_vec())),
                    None => {
                        return Err(Fault::UnsupportedParameter(
                            String::from_utf8_lossy(name).into_owned(),
                        ));
                    }
                },
            }
        }
        // The command line comes first, as in PostgreSQL.
        of_options.append(&mut asked);
        let is_native = is_native || is_carried && needs_exclusive_server(&of_options);
        if is_native && !is_replication && passed.is_empty() {
            passed.clone_from(&of_options);
        }
        Ok(Self {
            user,
            database,
            // A client of `bypass_users` may still be served from the pool, without an exclusive server.
            asked: (is_carried && (bypass || !is_native)).then(|| of_options.into()),
            tracked,
            unknown_options,
            exclusive: is_native.then_some(ExclusiveServer {
                replication,
                bypass,
                parameters: passed,
            }),
        })
    }

    /// Serves a client of `bypass_users` from the pool, like others.
    ///
    /// # Errors
    /// One of the client's parameters needs an exclusive server.
    pub fn give_up_bypass(&mut self) -> Result<(), Fault> {
        let Some(mut exclusive) = self.exclusive.take_if(|exclusive| exclusive.bypass) else {
            return Ok(());
        };
        let is_carried = self.asked.is_some();
        let refused = exclusive.parameters.iter().find(|(name, _)| {
            // These options contain something other than settings.
            !is_carried || name == b"options"
        });
        if let Some((name, _)) = refused {
            let name = String::from_utf8_lossy(name).into_owned();
            return Err(Fault::UnsupportedParameter(name));
        }
        if self.asked.as_deref().is_some_and(needs_exclusive_server) {
            exclusive.bypass = false;
            self.exclusive = Some(exclusive);
        }
        Ok(())
    }
}

/// The parameters that are not settings. Of several values of one parameter, the last one counts.
#[derive(Default)]
struct OwnParameters<'a> {
    user: Option<&'a [u8]>,
    database: Option<&'a [u8]>,
    replication: Option<&'a [u8]>,
}

impl<'a> OwnParameters<'a> {
    fn read(parameters: StartupParameters<'a>) -> Self {
        let mut own = Self::default();
        for (name, value) in parameters.iter() {
            match name {
                b"user" => own.user = Some(value),
                b"database" => own.database = Some(value),
                b"replication" => own.replication = Some(value),
                _ => {}
            }
        }
        own
    }

    /// Returns the user, and the database or its default.
    fn names(&self) -> Result<(Arc<str>, Arc<str>), Fault> {
        let database = self.database.map(|name| checked_name(name, "database"));
        let user = self.user.map(|name| checked_name(name, "user"));
        let user = user
            .transpose()?
            .filter(|user| !user.is_empty())
            .ok_or(Fault::NoUserName)?;
        let database = database.transpose()?.filter(|name| !name.is_empty());
        let database = database.unwrap_or_else(|| Arc::clone(&user));
        Ok((user, database))
    }
}

/// Adds the settings in `options` to the startup parameters. Anything else in it goes to the server unchanged.
fn pass_options(
    value: &[u8],
    names: &TrackedNames,
    tracked: &mut Tracked,
    passed: &mut Vec<(Vec<u8>, Vec<u8>)>,
    of_options: &mut Vec<(Vec<u8>, Vec<u8>)>,
) {
    let settings: Result<Vec<_>, _> = options::settings(value).into_iter().collect();
    let Ok(settings) = settings else {
        return passed.push((b"options".to_vec(), value.to_vec()));
    };
    for (name, value) in settings {
        match names.tracked_position(&name) {
            Some(at) => tracked.set(at, &value),
            None => passed.push((name.clone(), value.clone())),
        }
        of_options.push((name, value));
    }
}

fn read_options(
    value: &[u8],
    names: &TrackedNames,
    is_ignored: &dyn Fn(&[u8]) -> bool,
    is_carried: bool,
    tracked: &mut Tracked,
    asked: &mut Vec<(Vec<u8>, Vec<u8>)>,
) -> Result<(), Fault> {
    for setting in options::settings(value) {
        let (name, value) = setting.map_err(|_| Fault::OptionsSyntax)?;
        match names.tracked_position(&name) {
            Some(at) => {
                tracked.set(at, &value);
                asked.push((name, value));
            }
            None if is_ignored(&name) => {}
            None if is_carried => asked.push((name, value)),
            None => {
                return Err(Fault::UnsupportedOption(
                    String::from_utf8_lossy(&name).into_owned(),
                ));
            }
        }
    }
    Ok(())
}

fn needs_exclusive_server(asked: &[(Vec<u8>, Vec<u8>)]) -> bool {
    let is_only_at_start = |name: &[u8]| {
        let mut known = ONLY_AT_START.iter();
        known.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
    };
    asked.iter().any(|(name, _)| is_only_at_start(name))
}

fn checked_name(value: &[u8], what: &'static str) -> Result<Arc<str>, Fault> {
    let text = std::str::from_utf8(value).map_err(|_| Fault::BadName(what))?;
    if text.len() > NAME_MAX {
        return Err(Fault::BadName(what));
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgweir_wire::{Startup, startup_packet};

    fn terms(ignored: &[String]) -> StartupTerms<'_> {
        StartupTerms {
            ignored,
            may_bypass: &|_, _| false,
            is_carried: &|_, _| false,
        }
    }

    type Pairs<'p> = &'p [(&'p str, &'p str)];

    fn check(pairs: Pairs<'_>, expect: Result<(&str, &str, Pairs<'_>), Fault>) {
        let names = TrackedNames::new(&["IntervalStyle".into()]);
        let mut packet = Vec::new();
        startup_packet(
            &mut packet,
            pairs
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        );
        let Ok(Some((Startup::Login { parameters, .. }, _))) = Startup::parse(&packet, 10_000)
        else {
            panic!()
        };
        let ignored = ["extra_float_digits".to_owned()];
        let found = LoginRequest::read(parameters, &names, &terms(&ignored));
        let found = found.map(|request| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let pairs: Vec<_> = names
                .pairs(&request.tracked)
                .map(|(name, value)| (name.to_owned(), text(value)))
                .collect();
            (
                request.user.to_string(),
                request.database.to_string(),
                pairs,
            )
        });
        let own = |text: &str| text.to_owned();
        let expect = expect.map(|(user, database, pairs)| {
            (
                own(user),
                own(database),
                pairs
                    .iter()
                    .map(|(name, value)| (own(name), own(value)))
                    .collect(),
            )
        });
        assert_eq!(found, expect, "{pairs:?}");
    }

    #[test]
    fn cases() {
        check(&[("user", "u")], Ok(("u", "u", &[])));
        check(&[("user", "u"), ("database", "d")], Ok(("u", "d", &[])));
        check(&[("database", "d")], Err(Fault::NoUserName));
        check(&[("user", "")], Err(Fault::NoUserName));
        check(&[("user", &"u".repeat(128))], Err(Fault::BadName("user")));
        check(
            &[("user", "u"), ("datestyle", "ISO")],
            Ok(("u", "u", &[("DateStyle", "ISO")])),
        );
        check(
            &[("user", "u"), ("extra_float_digits", "2")],
            Ok(("u", "u", &[])),
        );
        check(
            &[("user", "u"), ("work_mem", "2")],
            Err(Fault::UnsupportedParameter("work_mem".into())),
        );
        check(
            &[("user", "u"), ("options", "-c timezone=UTC")],
            Ok(("u", "u", &[("TimeZone", "UTC")])),
        );
        check(
            &[("user", "u"), ("options", "-c work_mem=1")],
            Err(Fault::UnsupportedOption("work_mem".into())),
        );
        check(
            &[("user", "u"), ("options", "-c timezone")],
            Err(Fault::OptionsSyntax),
        );
        check(
            &[("user", "u"), ("replication", "false")],
            Ok(("u", "u", &[])),
        );
        check(
            &[("user", "u"), ("replication", "maybe")],
            Err(Fault::BadReplication("maybe".into())),
        );
        check(
            &[("user", "u"), ("options", "-x"), ("replication", "on")],
            Ok(("u", "u", &[])),
        );
        check(&[("user", "u"), ("_pq_.x", "1")], Ok(("u", "u", &[])));
    }

    #[test]
    fn ignoring_options_is_ignoring_what_is_unknown_in_them() {
        let names = TrackedNames::new(&[]);
        let mut packet = Vec::new();
        let options = "-c work_mem=1 -c timezone=UTC";
        let pairs = [("user", "u"), ("options", options)];
        let pairs = pairs.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        startup_packet(&mut packet, pairs.into_iter());
        let Ok(Some((Startup::Login { parameters, .. }, _))) = Startup::parse(&packet, 10_000)
        else {
            panic!()
        };
        let ignored = ["options".to_owned()];
        let request = LoginRequest::read(parameters, &names, &terms(&ignored)).unwrap();
        let pairs: Vec<_> = names.pairs(&request.tracked).collect();
        assert_eq!(pairs, [("TimeZone", &b"UTC"[..])]);
    }

    #[test]
    fn the_host_in_the_application_name() {
        let names = TrackedNames::new(&[]);
        let mut request = LoginRequest {
            user: "u".into(),
            database: "d".into(),
            tracked: names.unset(),
            unknown_options: Vec::new(),
            exclusive: None,
            asked: None,
        };
        request.add_host(&names, "unix:6432");
        assert_eq!(request.tracked.application_name(), b"app - unix:6432");
        request.add_host(&names, "x");
        assert_eq!(request.tracked.application_name(), b"app - unix:6432 - x");
    }
}
