//! An online restart that fails: clients are handed over as records, and taken back.

use std::sync::Arc;

use pgweir_core::{
    HandedOverServer, SharedPool, TakeoverMail, Token, WorkerId,
    takeover::{ClientRecord, Encryption, Message},
};

use super::{
    World,
    driver::{Call, Conn, Open, Posted},
};
use crate::checks::{Guarantee, Violation};

/// A client that was handed over, with its server if it has one: the server's pool, and the worker that counts it.
#[derive(Debug)]
pub(super) struct Departed {
    record: Box<ClientRecord>,
    open: Open,
    /// The worker that the client has left.
    host: usize,
    server: Option<(Open, Arc<SharedPool>)>,
}

impl World {
    /// A new process begins to take over, or the process that has begun dies.
    pub(super) fn restart(&mut self) {
        if self.departing {
            return self.end_restart();
        }
        self.departing = true;
        self.faults.takeover = true;
        self.count("takeover");
        self.note(|| "a new process takes over".to_owned());
        let _ = self.directory.begin_departure();
        self.mail_to_all(|| TakeoverMail::BeginHandover.into());
    }

    /// The new process has died: its clients are taken back.
    pub(super) fn end_restart(&mut self) {
        if !std::mem::take(&mut self.departing) {
            return;
        }
        self.note(|| "the new process has died".to_owned());
        self.directory.end_departure();
        self.mail_to_all(|| TakeoverMail::CancelHandover.into());
        for client in std::mem::take(&mut self.departed) {
            self.send_back(client);
        }
    }

    /// Hands a client over. The client's record must suffice to create it again.
    pub(super) fn depart(
        &mut self,
        host: usize,
        conn: Token,
        record: Box<ClientRecord>,
        server: Option<HandedOverServer>,
    ) -> Result<(), Violation> {
        let mut remove = |conn| match self.hosts[host].table.remove(&conn) {
            Some(Conn::Open(mut open)) => {
                open.hang_up_was_reported = false;
                open.frozen = false;
                Ok(open)
            }
            _ => {
                let what = "somebody leaves who is not connected";
                Err(Violation::new(Guarantee::ValidActions, what))
            }
        };
        let open = remove(conn)?;
        let server = match server {
            Some(along) => Some((remove(along.conn)?, along.shared)),
            None => None,
        };
        if server.is_some() {
            self.count("server goes along");
        }
        self.count("client moves");
        let unsent = open.unsent.clone();
        // The driver's part: the simulated network has no encryption.
        let encryption = Encryption::default();
        let message = Message::Client {
            record,
            unsent,
            encryption,
            early: Vec::new(),
        };
        let frame = message.to_frame();
        let record = match frame.and_then(|frame| Message::of_frame(&frame)) {
            Ok(Message::Client { record, .. }) => record,
            _ => {
                return Err(Violation::new(
                    Guarantee::ValidActions,
                    "a client can't be written down",
                ));
            }
        };
        let client = Departed {
            record,
            open,
            host,
            server,
        };
        match self.departing {
            true => self.departed.push(client),
            false => self.send_back(client),
        }
        Ok(())
    }

    fn send_back(&mut self, client: Departed) {
        let Departed {
            record,
            open,
            host,
            server,
        } = client;
        let control = self.hosts.len();
        let worker = WorkerId(host as u8);
        let to = record.returns_to(worker, control);
        let counted = |(open, shared)| (open, TakeoverMail::Gone { shared, worker });
        let (server, gone) = server.map(counted).unzip();
        let message = Posted::Client {
            record,
            open,
            server,
        };
        self.post(control, to.index(), message);
        if let Some(word) = gone {
            self.post(control, to.index(), Posted::Mail(word.into()));
        }
    }

    /// Takes a client back.
    pub(super) fn take_back(
        &mut self,
        host: usize,
        record: Box<ClientRecord>,
        open: Open,
        server: Option<Open>,
    ) -> Result<(), Violation> {
        let driver = &mut self.hosts[host];
        let blocked = !open.unsent.is_empty();
        let arrival =
            driver
                .worker
                .take_over_client(record, blocked, self.now, &mut driver.actions);
        driver.table.insert(arrival.client, Conn::Open(open));
        match (arrival.server, server) {
            (Some(token), Some(open)) => drop(driver.table.insert(token, Conn::Open(open))),
            (None, Some(open)) => self.net.let_go(open.link, &open.unsent),
            _ => {}
        }
        self.execute(host, Call::default())
    }
}
