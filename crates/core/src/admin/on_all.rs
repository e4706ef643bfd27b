//! Commands for all nodes of the fleet (`ON ALL`): the control thread passes the command on to each node, and the console
//! shows what the nodes have answered.

use super::Admin;
use crate::{
    Actions, Control, Token,
    base::fault::Fault,
    console::{Cell, Column, CommandOnAll, Console, Kind, NodeOutcome, OrderForNodes},
};

const COLUMNS: [Column; 3] = [
    ("node", Kind::Text),
    ("addresses", Kind::Text),
    ("result", Kind::Text),
];

impl Admin<'_> {
    /// Asks the control thread to let all nodes carry out a command.
    pub(super) fn order_all_nodes(
        &mut self,
        conn: Token,
        command: CommandOnAll,
        out: &mut Actions,
    ) -> Result<(), Fault> {
        if !self.env.snapshot.config.settings.fleet_etcd.is_set() {
            return Err(Fault::Command(CommandOnAll::NO_FLEET.to_owned()));
        }
        let Some(client) = self.connections.client(conn) else {
            return Ok(());
        };
        let tag = format!("{} ON ALL", command.shown());
        let (_, user) = client.database_and_user();
        let order = OrderForNodes {
            worker: self.env.worker,
            console: conn,
            user: user.to_owned(),
            address: client.origin.remote.with_port(client.origin.port),
            command,
        };
        out.control(Control::OrderNodes(Box::new(order)));
        self.await_control(conn, tag);
        Ok(())
    }

    /// Shows what the nodes have answered to the command of this console.
    pub(super) fn answer_on_all(
        &mut self,
        conn: Token,
        outcome: Result<Vec<NodeOutcome>, Fault>,
        out: &mut Actions,
    ) {
        let Some(tag) = self.console(conn).map(Console::take_tag) else {
            return;
        };
        let failure = outcome.as_ref().map_or_else(
            |fault| Some(fault.clone()),
            |nodes| NodeOutcome::failure_of(nodes),
        );
        self.audit_command(conn, tag, "", failure.as_ref(), out);
        let nodes = match outcome {
            Ok(nodes) => nodes,
            Err(fault) => return self.answer(conn, Err(&fault), out),
        };
        let row = |node: NodeOutcome| -> Vec<Cell> {
            vec![
                format!("{:016x}", node.node).into(),
                node.addresses.into(),
                node.result.into(),
            ]
        };
        let rows: Vec<_> = nodes.into_iter().map(row).collect();
        self.answer_table(conn, &COLUMNS, &rows, out);
    }
}
