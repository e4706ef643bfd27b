//! Turns the notes of a ledger into mail for workers, and actions. The notes ([`Notes`](crate::pool::Notes)) say what
//! other workers have to do: open a server, offer idle servers, search for one.

use std::sync::Arc;

use super::eviction::begin_search;
use crate::{
    Actions, Control, SharedPool, effect::Env, mail::Mail, pool::Notes, takeover::PoolNote,
};

/// Sends the notes of a pool's ledger to the workers, to searches, and to the old process of an online restart.
pub(crate) fn deliver(env: &Env<'_>, notes: &Notes, pool: &Arc<SharedPool>, out: &mut Actions) {
    for to in notes.wanted.iter() {
        let mail = Mail::ServersWanted(Arc::clone(pool));
        out.mail(to, mail);
    }
    if let Some((to, waiter)) = notes.exclusive {
        let mail = Mail::OpenFor(Arc::clone(pool), waiter);
        out.mail(to, mail);
    }
    if let Some(to) = notes.open {
        let mail = Mail::Open(Arc::clone(pool));
        out.mail(to, mail);
    }
    if notes.lend {
        let note = PoolNote {
            database: pool.key.database.to_string(),
            user: pool.key.user.to_string(),
            held: 0,
            lent: 0,
            keys: None,
        };
        out.control(Control::Lend(note));
    }
    // A server that has just gone has given its slot back already.
    let pools_with_room = notes
        .room
        .iter()
        .filter_map(|&id| env.directory.pool_of(id));
    for pool in pools_with_room {
        let mail = Mail::CapHasRoom(pool);
        out.mail(env.worker, mail);
    }
    for &scope in &notes.search {
        begin_search(env.worker, Arc::clone(pool), scope, out);
    }
}
