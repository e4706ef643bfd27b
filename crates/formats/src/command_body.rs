//! The console's commands as requests: `POST /api/v1/commands/pause` with `{"database": "app"}`.

use pgweir_core::console::CommandOnAll;
use serde_json::{Map, Value};

use crate::body::text_of;

/// A command of the console.
#[derive(Debug, PartialEq)]
pub struct Command {
    /// The path of requests for the command, below `/api/v1`.
    pub path: &'static str,
    /// The first word of the command.
    pub verb: &'static str,
    /// A description.
    pub about: &'static str,
    /// The object that the command takes.
    pub argument: Argument,
}

/// The object that a command takes as its argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument {
    /// No argument.
    None,
    /// `database`, or all databases if there is none.
    AnyDatabase,
    /// `database`.
    Database,
    /// `client`: the number of a client, as SHOW CLIENTS has it.
    Client,
    /// `whom`: an address or a user, or all if there is none.
    Whom,
    /// `key` and `value` of a setting.
    Setting,
    /// `mode`: see [`MODES`].
    Mode,
}

/// A member of a command's body: its name, whether it is required, and its description.
pub type Member = (&'static str, bool, &'static str);

/// The member with which a command runs on all nodes of a fleet, as with `ON ALL`, and its only value.
pub const NODES: (Member, &str) = (
    (
        "nodes",
        false,
        "all: each process of the fleet carries the command out; only this process if it is left out",
    ),
    "all",
);

/// The values of `mode`: the ways in which SHUTDOWN ends the process.
pub const MODES: [&str; 3] = ["immediate", "wait_for_servers", "wait_for_clients"];

impl Argument {
    /// Returns the members of the body that name the argument.
    fn members(self) -> &'static [Member] {
        match self {
            Self::None => &[],
            Self::AnyDatabase => &[(
                "database",
                false,
                "The database; all of them if it is left out",
            )],
            Self::Database => &[("database", true, "The database")],
            Self::Client => &[("client", true, "The client's id or ptr in SHOW CLIENTS")],
            Self::Whom => &[(
                "whom",
                false,
                "The address or the user; all of them if it is left out",
            )],
            Self::Setting => &[
                ("key", true, "The setting"),
                ("value", true, "Its new value"),
            ],
            Self::Mode => &[(
                "mode",
                false,
                "immediate (if it is left out), wait_for_servers or wait_for_clients",
            )],
        }
    }
}

macro_rules! commands {
    ($($name:literal, $verb:literal, $argument:ident, $about:literal;)+) => {
        &[$(Command {
            path: concat!("/commands/", $name),
            verb: $verb,
            about: $about,
            argument: Argument::$argument,
        }),+]
    };
}

/// All commands but SHOW.
pub const COMMANDS: &[Command] = commands![
    "set", "SET", Setting, "Change a setting until the next RELOAD or restart";
    "reload", "RELOAD", None, "Read the configuration again";
    "pause", "PAUSE", AnyDatabase, "Wait until no server is in use, close all, and let clients wait";
    "resume", "RESUME", AnyDatabase, "End PAUSE, SUSPEND or KILL";
    "disable", "DISABLE", Database, "Refuse new clients of a database";
    "enable", "ENABLE", Database, "End DISABLE";
    "reconnect", "RECONNECT", AnyDatabase, "Replace servers as they become free; try failed logins at once";
    "kill", "KILL", AnyDatabase, "Disconnect clients and servers at once, and PAUSE";
    "kill_client", "KILL_CLIENT", Client, "Disconnect a client";
    "unban", "UNBAN", Whom, "Forget failed logins, and end bans";
    "wait_close", "WAIT_CLOSE", AnyDatabase, "Wait until servers that RECONNECT or RELOAD outdated are closed";
    "suspend", "SUSPEND", None, "Let all connections come to rest, and hold them there until RESUME";
    "restart", "RESTART", None, "Let a new process take over sockets and clients";
    "shutdown", "SHUTDOWN", Mode, "End the process";
];

/// Wrong members of a body, each with a description of valid values.
type Errors = Vec<(String, String)>;

/// A command in the console's language.
#[derive(Debug, PartialEq)]
pub struct CommandText {
    /// The command.
    pub command: String,
    /// The command as the log shows it: without the value of a setting, which may be a secret.
    pub logged: String,
    /// The database that the command names, or an empty text.
    pub database: String,
    /// The command, if all nodes of the fleet are to carry it out.
    pub on_all: Option<CommandOnAll>,
}

impl Command {
    /// Returns the members of the body.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let mut members = self.argument.members().to_vec();
        members.extend(CommandOnAll::is_allowed(self.verb).then_some(NODES.0));
        members
    }

    /// Translates a body to the console's language.
    ///
    /// # Errors
    /// Each wrong member of the body, with a description of valid values.
    pub fn text(&self, body: &Map<String, Value>) -> Result<CommandText, Errors> {
        let ((nodes_member, ..), _) = NODES;
        let mut text = self.text_for_one_node(body)?;
        if body.contains_key(nodes_member) {
            let command = CommandOnAll::parse(&text.command);
            text.on_all = Some(command.ok_or_else(|| {
                let detail = "the command is too long for all nodes".to_owned();
                vec![(nodes_member.to_owned(), detail)]
            })?);
            text.logged.push_str(" ON ALL");
        }
        Ok(text)
    }

    fn text_for_one_node(&self, body: &Map<String, Value>) -> Result<CommandText, Errors> {
        let (known, members) = (self.members(), self.argument.members());
        let ((nodes_member, ..), all_nodes) = NODES;
        let mut errors = Vec::new();
        for (key, value) in body {
            if !known.iter().any(|(name, ..)| name == key) {
                errors.push((key.clone(), expected(&known)));
            } else if key == nodes_member && value != all_nodes {
                errors.push((key.clone(), format!("expected \"{all_nodes}\"")));
            }
        }
        let mut values = Vec::new();
        for &(name, is_needed, what) in members {
            match body.get(name).map(text_of) {
                Some(Some(text)) if !text.contains('\0') && !text.is_empty() => {
                    values.push(text);
                }
                Some(Some(text)) if text.is_empty() && name == "value" => values.push(text),
                None if !is_needed => {}
                _ => errors.push((name.to_owned(), format!("expected a text: {what}"))),
            }
        }
        let unknown_mode = |mode: &String| !MODES.contains(&mode.as_str());
        if self.argument == Argument::Mode && values.first().is_some_and(unknown_mode) {
            errors.push(("mode".to_owned(), expected_mode()));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let verb = self.verb;
        let names_database = matches!(self.argument, Argument::AnyDatabase | Argument::Database);
        let database = values.first().filter(|_| names_database);
        let same = |command: String| CommandText {
            logged: command.clone(),
            command,
            database: database.cloned().unwrap_or_default(),
            on_all: None,
        };
        Ok(match (self.argument, values.as_slice()) {
            (Argument::Setting, [key, value]) => CommandText {
                command: format!("SET {} = {}", quoted(key, '"'), quoted(value, '\'')),
                logged: format!("SET {}", quoted(key, '"')),
                database: String::new(),
                on_all: None,
            },
            (Argument::Mode, [mode]) if mode != MODES[0] => {
                same(format!("{verb} {}", mode.to_ascii_uppercase()))
            }
            (Argument::Mode, _) | (_, []) => same(verb.to_owned()),
            (_, [one, ..]) => same(format!("{verb} {}", quoted(one, '"'))),
        })
    }
}

fn expected(members: &[Member]) -> String {
    if members.is_empty() {
        return "no such member: this command has none".to_owned();
    }
    let names: Vec<_> = members.iter().map(|(name, ..)| *name).collect();
    format!("no such member: expected {}", names.join(" and "))
}

fn expected_mode() -> String {
    format!("expected one of {}", MODES.join(", "))
}

fn quoted(text: &str, quote: char) -> String {
    let doubled = text.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{doubled}{quote}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pgweir_core::console::command_forms;
    use serde_json::json;

    use super::*;

    fn text(name: &str, body: &Value) -> Result<String, Errors> {
        let path = format!("/commands/{name}");
        let command = COMMANDS.iter().find(|command| command.path == path);
        let body = body.as_object().expect("an object");
        let text = command.expect("a command").text(body);
        text.map(|text| text.command)
    }

    #[test]
    fn every_command_of_the_console_is_here() {
        let verb = |form: &'static str| form.split(' ').next();
        let console: BTreeSet<_> = command_forms().filter_map(|(form, _)| verb(form)).collect();
        let here: BTreeSet<_> = COMMANDS.iter().map(|command| command.verb).collect();
        assert_eq!(here, console);
    }

    #[test]
    fn bodies_become_commands() {
        for (name, body, expected) in [
            ("reload", json!({}), "RELOAD"),
            ("pause", json!({}), "PAUSE"),
            ("pause", json!({"nodes": "all"}), "PAUSE"),
            (
                "pause",
                json!({"database": "a \"b\""}),
                "PAUSE \"a \"\"b\"\"\"",
            ),
            ("kill_client", json!({"client": 7}), "KILL_CLIENT \"7\""),
            (
                "set",
                json!({"key": "pool_mode", "value": "it's"}),
                "SET \"pool_mode\" = 'it''s'",
            ),
            ("set", json!({"key": "a", "value": true}), "SET \"a\" = '1'"),
            ("set", json!({"key": "a", "value": ""}), "SET \"a\" = ''"),
            ("shutdown", json!({}), "SHUTDOWN"),
            ("shutdown", json!({"mode": "immediate"}), "SHUTDOWN"),
            (
                "shutdown",
                json!({"mode": "wait_for_clients"}),
                "SHUTDOWN WAIT_FOR_CLIENTS",
            ),
        ] {
            assert_eq!(text(name, &body), Ok(expected.to_owned()), "{body}");
        }
    }

    #[test]
    fn commands_for_all_nodes() {
        let on_all = |name: &str, body: Value| {
            let path = format!("/commands/{name}");
            let command = COMMANDS.iter().find(|command| command.path == path);
            let text = command
                .expect("a command")
                .text(body.as_object().expect("an object"));
            let text = text.expect("a text");
            (
                text.logged,
                text.on_all.map(|command| command.text().to_owned()),
            )
        };
        let text = "PAUSE \"a\"".to_owned();
        assert_eq!(
            on_all("pause", json!({"database": "a", "nodes": "all"})),
            (format!("{text} ON ALL"), Some(text.clone()))
        );
        assert_eq!(on_all("pause", json!({"database": "a"})), (text, None));
        let with_nodes = |command: &&Command| command.members().contains(&NODES.0);
        assert_eq!(COMMANDS.iter().filter(with_nodes).count(), 9);
    }

    #[test]
    fn invalid_bodies_are_refused() {
        for (name, body) in [
            ("reload", json!({"database": "app"})),
            ("disable", json!({})),
            ("disable", json!({"database": ["app"]})),
            ("disable", json!({"database": "a\u{0}b"})),
            ("pause", json!({"database": ""})),
            ("shutdown", json!({"mode": "now"})),
            ("set", json!({"key": "a"})),
            ("pause", json!({"nodes": "some"})),
            ("pause", json!({"nodes": 3})),
            ("set", json!({"key": "a", "value": "b", "nodes": "all"})),
            (
                "pause",
                json!({"database": "a".repeat(1_024), "nodes": "all"}),
            ),
        ] {
            assert!(text(name, &body).is_err(), "{name} {body}");
        }
    }
}
