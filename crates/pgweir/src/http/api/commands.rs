//! The console's commands as requests: `POST /api/v1/commands/pause` with `{"database": "app"}`.

use hyper::StatusCode;
use pgweir_core::{
    Level,
    console::{CommandOnAll, NodeOutcome},
};
use serde_json::{Map, Value, json};
use tokio::{sync::oneshot, time};

use super::problem::{Problem, json_answer};
use crate::{
    console_link::{LinkError, Reply},
    control::{NodesAnswer, NodesOrder, OrderReply, Request},
    http::{
        identity::Identity,
        pages::{Answer, Sender},
        state::State,
    },
};

/// A command of the console.
#[derive(Debug, PartialEq)]
pub(super) struct Command {
    pub(super) path: &'static str,
    /// The first word of the command.
    pub(super) verb: &'static str,
    pub(super) about: &'static str,
    pub(super) argument: Argument,
}

/// The object that a command takes as its argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Argument {
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
pub(super) type Member = (&'static str, bool, &'static str);

/// The member with which a command runs on all nodes of a fleet, as with `ON ALL`, and its only value.
pub(super) const NODES: (Member, &str) = (
    (
        "nodes",
        false,
        "all: each process of the fleet carries the command out; only this process if it is left out",
    ),
    "all",
);

/// The values of `mode`: the ways in which SHUTDOWN ends the process.
pub(super) const MODES: [&str; 3] = ["immediate", "wait_for_servers", "wait_for_clients"];

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
pub(super) const COMMANDS: &[Command] = commands![
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

/// A command in the console's language.
#[derive(Debug, PartialEq)]
struct Text {
    command: String,
    /// The command as the log shows it: without the value of a setting, which may be a secret.
    logged: String,
    /// The database that the command names, or an empty text.
    database: String,
    /// The command, if all nodes of the fleet are to carry it out.
    on_all: Option<CommandOnAll>,
}

impl Command {
    /// Returns the members of the body.
    pub(super) fn members(&self) -> Vec<Member> {
        let mut members = self.argument.members().to_vec();
        members.extend(CommandOnAll::is_allowed(self.verb).then_some(NODES.0));
        members
    }

    /// Translates a body to the console's language.
    fn text(&self, body: &Map<String, Value>) -> Result<Text, Problem> {
        let ((nodes_member, ..), _) = NODES;
        let mut text = self.text_for_one_node(body)?;
        if body.contains_key(nodes_member) {
            let command = CommandOnAll::parse(&text.command);
            text.on_all = Some(command.ok_or_else(|| {
                let detail = "the command is too long for all nodes".to_owned();
                Problem::invalid(vec![(nodes_member.to_owned(), detail)])
            })?);
            text.logged.push_str(" ON ALL");
        }
        Ok(text)
    }

    fn text_for_one_node(&self, body: &Map<String, Value>) -> Result<Text, Problem> {
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
            return Err(Problem::invalid(errors));
        }
        let verb = self.verb;
        let names_database = matches!(self.argument, Argument::AnyDatabase | Argument::Database);
        let database = values.first().filter(|_| names_database);
        let same = |command: String| Text {
            logged: command.clone(),
            command,
            database: database.cloned().unwrap_or_default(),
            on_all: None,
        };
        Ok(match (self.argument, values.as_slice()) {
            (Argument::Setting, [key, value]) => Text {
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

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(u8::from(*value).to_string()),
        _ => None,
    }
}

fn quoted(text: &str, quote: char) -> String {
    let doubled = text.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{doubled}{quote}")
}

/// Carries out a command, and writes a line about it to the log.
pub(super) async fn run(
    state: &State,
    identity: &Identity,
    sender: &Sender,
    command: &Command,
    body: &Map<String, Value>,
) -> Result<Answer, Problem> {
    let text = command.text(body)?;
    let audit = |level, outcome: &str| {
        let command = (&*text.logged, &*text.database);
        state.audit(level, identity, sender, command, outcome);
    };
    if let Some(command) = &text.on_all {
        let answered = run_on_all(state, identity, sender, command.clone());
        return answer_for_nodes(&text.logged, answered.await?, audit);
    }
    let answered = time::timeout(
        state.patience(),
        send(state, sender, command, &text.command),
    );
    let (status, outcome, notices) = match answered.await {
        Ok(Ok(reply)) => (StatusCode::OK, "done", reply.notices),
        // The process ends before it can answer, which means success.
        Ok(Err(LinkError::Ended)) if command.argument == Argument::Mode => {
            (StatusCode::ACCEPTED, "begun", Vec::new())
        }
        Ok(Err(LinkError::Command(error))) => {
            audit(Level::Warning, &format!("refused: {error}"));
            let hint = error.hint.as_ref();
            let hint = hint.map_or(String::new(), |hint| format!(": {hint}"));
            return Err(Problem::refused(format!("{error}{hint}")));
        }
        Ok(Err(error)) => {
            audit(Level::Warning, &format!("failed: {error}"));
            return Err(Problem::unavailable(error.to_string()));
        }
        Err(_) if command.verb == "SUSPEND" => {
            audit(
                Level::Warning,
                "ended: not all connections came to rest in time",
            );
            let detail = "not all connections came to rest in time, and go on: try again";
            return Err(Problem::unavailable(detail));
        }
        Err(_) => (StatusCode::ACCEPTED, "begun", Vec::new()),
    };
    audit(Level::Log, outcome);
    let body = json!({"command": text.logged, "outcome": outcome, "notices": notices});
    Ok(json_answer(status, &body, "application/json"))
}

/// Lets all nodes carry out a command. Returns `None` if they have not answered in time.
async fn run_on_all(
    state: &State,
    identity: &Identity,
    sender: &Sender,
    command: CommandOnAll,
) -> Result<Option<NodesAnswer>, Problem> {
    let (reply, answer) = oneshot::channel();
    let order = NodesOrder {
        command,
        user: identity.user.to_string(),
        address: sender.name.to_string(),
        reply: OrderReply::Request(reply),
    };
    let ended = || Problem::unavailable("pgweir's control thread has ended");
    let asked = Request::OrderNodes(Box::new(order));
    state.control.send(asked).map_err(|_| ended())?;
    match time::timeout(state.patience(), answer).await {
        Ok(answer) => answer.map(Some).map_err(|_| ended()),
        Err(_) => Ok(None),
    }
}

/// Writes the answers of the nodes as JSON. `audit` writes the line in the log.
fn answer_for_nodes(
    command: &str,
    answer: Option<NodesAnswer>,
    audit: impl Fn(Level, &str),
) -> Result<Answer, Problem> {
    let nodes = match answer {
        None => {
            audit(Level::Log, "begun");
            let body = json!({"command": command, "outcome": "begun", "notices": []});
            return Ok(json_answer(StatusCode::ACCEPTED, &body, "application/json"));
        }
        Some(Err(fault)) => {
            audit(Level::Warning, &format!("refused: {fault}"));
            return Err(Problem::refused(fault.to_string()));
        }
        Some(Ok(nodes)) => nodes,
    };
    let rows = nodes.iter().map(|node| {
        let number = format!("{:016x}", node.node);
        json!({"node": number, "addresses": node.addresses, "result": node.result})
    });
    let rows: Value = rows.collect();
    let Some(failure) = NodeOutcome::failure_of(&nodes) else {
        audit(Level::Log, "done");
        let body = json!({"command": command, "outcome": "done", "notices": [], "nodes": rows});
        return Ok(json_answer(StatusCode::OK, &body, "application/json"));
    };
    audit(Level::Warning, &failure.to_string());
    let problem = Problem::new(StatusCode::BAD_GATEWAY, failure.to_string());
    Err(problem.with_nodes(rows))
}

async fn send(
    state: &State,
    sender: &Sender,
    command: &Command,
    text: &str,
) -> Result<Reply, LinkError> {
    // SUSPEND lasts as long as the link that ordered it, and the console serves no other link meanwhile.
    if command.verb == "RESUME"
        && let Some(mut link) = state.links.suspender.take()
    {
        let outcome = link.run(text).await;
        if !matches!(outcome, Ok(_) | Err(LinkError::Ended)) {
            state.links.suspender.replace(Some(link));
        }
        return outcome;
    }
    let name = format!("http {}", sender.name);
    let mut link = state.links.connector.open_own(&name).await?;
    let reply = link.run(text).await?;
    if command.verb == "SUSPEND" {
        state.links.suspender.replace(Some(link));
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pgweir_core::console::command_forms;

    use super::*;

    fn text(name: &str, body: &Value) -> Result<String, Problem> {
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
