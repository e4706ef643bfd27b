//! A SHOW that has to ask every worker.

use std::collections::BTreeMap;

use super::{command::Show, rows::Cell, show};
use crate::{
    Action, Actions, Time, Token, WorkerId, mail::Mail, pool::PoolKey, stats::Stats, worker::Worker,
};

/// A console command on its way through all workers; each adds its part.
#[derive(Debug)]
pub struct Collection {
    origin: WorkerId,
    console: Token,
    visited: usize,
    pub(crate) show: Show,
    /// Rows of clients or servers, with their ids to sort by.
    pub(crate) rows: Vec<(u64, Vec<Cell>)>,
    pub(crate) pools: BTreeMap<PoolKey, PoolCount>,
    /// Clients of the console.
    pub(crate) console_clients: usize,
}

/// What all workers have of one pool.
#[derive(Debug, Default)]
pub(crate) struct PoolCount {
    pub(crate) clients_active: usize,
    pub(crate) clients_waiting: usize,
    pub(crate) cancels: usize,
    pub(crate) being_canceled: usize,
    pub(crate) servers_active: usize,
    pub(crate) servers_idle: usize,
    pub(crate) servers_tested: usize,
    pub(crate) servers_login: usize,
    /// How long the oldest waiting client has waited, in microseconds.
    pub(crate) maxwait: u64,
    pub(crate) mode: &'static str,
    pub(crate) total: Stats,
    pub(crate) last: Stats,
}

impl Worker {
    pub(crate) fn begin_collection(
        &mut self,
        console: Token,
        show: Show,
        now: Time,
        out: &mut Actions,
    ) {
        let collection = Collection {
            origin: self.id,
            console,
            visited: 0,
            show,
            rows: Vec::new(),
            pools: BTreeMap::new(),
            console_clients: 0,
        };
        self.collect(collection, now, out);
    }

    /// Adds this worker's part, and passes the collection on.
    pub(crate) fn collect(&mut self, mut collection: Collection, now: Time, out: &mut Actions) {
        let workers = self.directory.workers();
        if collection.visited < workers {
            collection.visited += 1;
            show::add(self, &mut collection, now);
        }
        let to = if collection.visited < workers {
            WorkerId(((self.id.index() + 1) % workers) as u8)
        } else {
            collection.origin
        };
        if collection.visited < workers || to != self.id {
            return out.list.push(Action::Mail {
                to,
                mail: Mail::Collect(Box::new(collection)),
            });
        }
        let (columns, rows) = show::table(self, &mut collection);
        self.answer_table(collection.console, &columns, &rows, now, out);
    }
}
