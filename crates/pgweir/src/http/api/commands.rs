//! Carries out the console's commands that come as requests: `POST /api/v1/commands/pause` with `{"database": "app"}`.

use hyper::StatusCode;
use pgweir_core::{
    Level,
    console::{CommandOnAll, NodeOutcome},
};
use pgweir_formats::command_body::{Argument, Command};
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

/// Carries out a command, and writes a line about it to the log.
pub(super) async fn run(
    state: &State,
    identity: &Identity,
    sender: &Sender,
    command: &Command,
    body: &Map<String, Value>,
) -> Result<Answer, Problem> {
    let text = command.text(body).map_err(Problem::invalid)?;
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
