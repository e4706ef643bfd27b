//! What may take its time to be found out about clients, on threads of its own.

use std::{io, thread};

use crossbeam_channel::{Receiver, Sender, bounded};
use nix::unistd::{Uid, User};
use pgweir_config::Settings;
use pgweir_core::{Finding, Inquiry, Service, Token, WorkerId};

use super::{Overloaded, ldap};
use crate::net::{Mailboxes, Parcel};

#[derive(Debug)]
struct Order {
    worker: WorkerId,
    conn: Token,
    inquiry: Inquiry,
}

/// Takes questions; the answers come by mail.
#[derive(Debug, Clone)]
pub(crate) struct Inquirer(Sender<Order>);

impl Inquirer {
    /// Starts `auth_threads` threads, for which `auth_queue` questions may wait. They end when the last `Inquirer` is gone.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(settings: &Settings, mailboxes: &Mailboxes) -> io::Result<Self> {
        let (sender, receiver) = bounded(settings.auth_queue as usize);
        for index in 0..settings.auth_threads {
            let (orders, mailboxes) = (receiver.clone(), mailboxes.clone());
            thread::Builder::new()
                .name(format!("inquire-{index}"))
                .spawn(move || work(&orders, &mailboxes))?;
        }
        Ok(Self(sender))
    }

    /// Takes a question.
    ///
    /// # Errors
    /// When too many wait already.
    pub(crate) fn submit(
        &self,
        worker: WorkerId,
        conn: Token,
        inquiry: Inquiry,
    ) -> Result<(), Overloaded> {
        let order = Order {
            worker,
            conn,
            inquiry,
        };
        self.0.try_send(order).map_err(|_| Overloaded)
    }
}

fn work(orders: &Receiver<Order>, mailboxes: &Mailboxes) {
    for order in orders {
        let (conn, finding) = (order.conn, answer(order.inquiry));
        mailboxes.send(order.worker, Parcel::Found { conn, finding });
    }
}

fn answer(inquiry: Inquiry) -> Finding {
    match inquiry {
        Inquiry::SystemUser(uid) => Finding::SystemUser(system_user(uid)),
        Inquiry::Password {
            service: Service::Ldap(options),
            user,
            password,
            ..
        } => Finding::Password(ldap::check(&options, &user, &password)),
    }
}

fn system_user(uid: u32) -> Result<String, String> {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => Ok(user.name),
        Ok(None) => Err(format!("the system has no user with the id {uid}")),
        Err(error) => Err(format!(
            "cannot look up the user with the id {uid}: {error}"
        )),
    }
}
