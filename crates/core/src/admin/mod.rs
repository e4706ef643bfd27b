//! The console: clients that operate pgweir, and their commands.
//!
//! This module owns no state of its own: the state of a console client's conversation is in its connection
//! ([`ClientDuty`](crate::frontend::ClientDuty)), and orders that are in force are in the directory. `console` reads
//! what a console client sends and answers it; `operator_commands` carries out commands that change something;
//! `worker_round` lets a command visit all workers; `on_all` passes a command on to all nodes of the fleet; `show`
//! makes the tables; `metrics` counts for `/metrics`; `audit` records which user gave a command.
//!
//! Input: bytes of console clients, rounds and measurements that visit this worker, and results of the control thread's
//! work. Output: answers, mail to the next worker, work for the control thread, and effects. The worker carries out the
//! effects of an order on clients, servers and pools first, and then the console's own next steps ([`ConsoleEffect`]).

mod audit;
mod console;
mod metrics;
mod on_all;
mod operator_commands;
mod show;
mod worker_round;

use crate::{
    Actions, Token,
    connections::Connections,
    effect::{ConsoleEffect, Effect, Effects, Env},
    listeners::Listeners,
    login::ClientLogins,
    measurement::statistics::Statistics,
    operators::suspension::Suspension,
    pooling::LocalPools,
};

/// An event of the console, and the parts of the worker that it concerns.
#[derive(Debug)]
pub(crate) struct Admin<'w> {
    pub(crate) env: Env<'w>,
    pub(crate) connections: &'w mut Connections,
    pub(crate) pools: &'w mut LocalPools,
    pub(crate) listeners: &'w Listeners,
    pub(crate) logins: &'w ClientLogins,
    pub(crate) statistics: &'w mut Statistics,
    pub(crate) suspension: &'w mut Suspension,
    /// The effects that the worker carries out after the event, in this order.
    pub(crate) effects: Effects,
}

impl Admin<'_> {
    /// Carries out a step that the console itself has asked for.
    pub(crate) fn carry_out(&mut self, effect: ConsoleEffect, out: &mut Actions) {
        match effect {
            ConsoleEffect::Serve(client, early) => self.serve(client, &early, out),
            ConsoleEffect::GoOn(client) => self.read_commands(client, out),
            ConsoleEffect::PassOn(round) => self.pass_on(*round, out),
            ConsoleEffect::Check(client) => self.check_wait(client, out),
            ConsoleEffect::EndCommand(client) => self.cancel(client, out),
            ConsoleEffect::Left(client) => self.forget(client, out),
            ConsoleEffect::AnswerOnAll(client, outcome) => {
                self.answer_on_all(client, *outcome, out);
            }
        }
    }

    /// Goes on with this console after the effects so far.
    fn go_on(&mut self, client: Token) {
        let effect = ConsoleEffect::GoOn(client);
        self.effects.push(Effect::Console(effect));
    }
}
