//! An online restart that fails: clients leave, are written down, and come back.

use pgweir_core::{
    Token, Word,
    takeover::{ClientRecord, Message},
};

use super::{
    World,
    driver::{Call, Conn, Open, Parcel},
};
use crate::checks::{Promise, Violation};

impl World {
    /// A new process begins to take over, or the one that has begun dies.
    pub(super) fn restart(&mut self) {
        if self.departing {
            return self.end_restart();
        }
        self.departing = true;
        self.grounds.takeover = true;
        self.count("takeover");
        self.note(|| "a new process takes over".to_owned());
        let _ = self.directory.begin_departure();
        self.tell_all(|| Word::Depart.into());
    }

    /// The new process has died: its clients are taken back.
    pub(super) fn end_restart(&mut self) {
        if !std::mem::take(&mut self.departing) {
            return;
        }
        self.note(|| "the new process has died".to_owned());
        self.directory.end_departure();
        self.tell_all(|| Word::Stay.into());
        for parcel in std::mem::take(&mut self.departed) {
            self.send_back(parcel);
        }
    }

    /// A client leaves: what is said of it must be what it is made of again.
    pub(super) fn depart(
        &mut self,
        host: usize,
        conn: Token,
        record: Box<ClientRecord>,
    ) -> Result<(), Violation> {
        let Some(Conn::Open(mut open)) = self.hosts[host].table.remove(&conn) else {
            let what = "a client leaves that is not connected";
            return Err(Violation::new(Promise::Sense, what));
        };
        self.count("client moves");
        let unsent = open.unsent.clone();
        let frame = Message::Client { record, unsent }.to_frame();
        let record = match frame.and_then(|frame| Message::of_frame(&frame)) {
            Ok(Message::Client { record, .. }) => record,
            _ => {
                return Err(Violation::new(
                    Promise::Sense,
                    "a client can't be written down",
                ));
            }
        };
        open.hung_up_told = false;
        open.frozen = false;
        match self.departing {
            true => self.departed.push((record, open)),
            false => self.send_back((record, open)),
        }
        Ok(())
    }

    fn send_back(&mut self, (record, open): (Box<ClientRecord>, Open)) {
        let to = record.cancel_key().worker(self.hosts.len());
        let parcel = Parcel::Client { record, open };
        self.post(self.hosts.len(), to.index(), parcel);
    }

    /// A client has come back.
    pub(super) fn take_back(
        &mut self,
        host: usize,
        record: Box<ClientRecord>,
        open: Open,
    ) -> Result<(), Violation> {
        let desk = &mut self.hosts[host];
        let blocked = !open.unsent.is_empty();
        let token = desk
            .worker
            .arrived(record, blocked, self.now, &mut desk.actions);
        desk.table.insert(token, Conn::Open(open));
        self.execute(host, Call::default())
    }
}
