//! SHOW INTERNAL: pgweir's own queries and connections, and their limits.

use crate::{
    admin::Admin,
    backend::{Duty, InternalQuery, Phase, Server},
    connections::Conn,
    console::{Cell, Collection, Column, Kind, Table, Task},
    frontend::{Client, ClientDuty, Stage},
    shared::{
        cancel::{CancelState, CancelTarget},
        occupancy::Occupied,
    },
};

use Kind::{Int4, Int8, Text};

const COLUMNS: [Column; 8] = [
    ("task", Text),
    ("database", Text),
    ("user", Text),
    ("active", Int4),
    ("waiting", Int4),
    ("active_max", Int4),
    ("waiting_max", Int4),
    ("refused", Int8),
];

/// Adds one worker's part.
pub(super) fn add(admin: &Admin<'_>, collection: &mut Collection) {
    for (_, conn) in admin.connections.iter() {
        let (pool, task, is_active) = match conn {
            Conn::Client(client) if waits_to_ask(client) => {
                let pool = client.pool().and_then(|pool| admin.pools.get(pool));
                let Some(pool) = pool else { continue };
                (&pool.shared, Task::AuthQuery, false)
            }
            Conn::Client(_) => continue,
            Conn::Server(server) => match task_of(server) {
                Some((task, is_active)) => (&server.shared, task, is_active),
                None => continue,
            },
            Conn::Cancel(cancel) => {
                let CancelTarget::Server(server) = cancel.goal else {
                    continue;
                };
                let Some(Conn::Server(server)) = admin.connections.get(server) else {
                    continue;
                };
                let is_sent = cancel.state == CancelState::Sent;
                (&server.shared, Task::Cancel, is_sent)
            }
        };
        let work = collection.internal.entry((pool.key.clone(), task));
        let work = work.or_default();
        work.active += usize::from(is_active);
        work.waiting += usize::from(!is_active);
    }
}

fn waits_to_ask(client: &Client) -> bool {
    let login = client.present_login();
    matches!(*client.duty(), ClientDuty::Waiting { .. })
        && login.is_some_and(|login| matches!(login.stage, Stage::LookingUp(_)))
}

/// Returns the task that a server does for pgweir itself, and whether the task has begun.
fn task_of(server: &Server) -> Option<(Task, bool)> {
    match *server.duty() {
        Duty::Listening { .. } => Some((Task::Listen, true)),
        Duty::Login(_) if server.purpose().listener_key().is_some() => Some((Task::Listen, false)),
        Duty::CheckingHost { .. } => Some((Task::CheckHost, true)),
        Duty::Login(_) if server.purpose().checks_host() => Some((Task::CheckHost, false)),
        Duty::Lent { phase, .. } => {
            matches!(phase, Phase::Checking { .. }).then_some((Task::Check, true))
        }
        Duty::Cleaning { .. } if server.session.queries.is_under_way(InternalQuery::Lookup) => {
            Some((Task::AuthQuery, true))
        }
        Duty::Cleaning { .. } if server.session.queries.is_under_way(InternalQuery::Catalog) => {
            Some((Task::Catalog, true))
        }
        _ => None,
    }
}

/// Returns the table: threads of the process first, then pools.
pub(super) fn table(admin: &Admin<'_>, collection: Collection) -> Table {
    let threads = admin.env.directory.occupancies();
    let mut rows = vec![
        of_threads("inquiry", threads.inquiries.read()),
        of_threads("scram_keys", threads.keys.read()),
        of_threads("catalog_evaluation", threads.catalogs.read()),
    ];
    rows.extend(collection.internal.into_iter().map(|((key, task), work)| {
        vec![
            task.name().into(),
            (*key.database).into(),
            (*key.user).into(),
            work.active.into(),
            work.waiting.into(),
            Cell::Null,
            Cell::Null,
            Cell::Null,
        ]
    }));
    (COLUMNS.into(), rows)
}

fn of_threads(task: &str, work: Occupied) -> Vec<Cell> {
    vec![
        task.into(),
        Cell::Null,
        Cell::Null,
        work.active.into(),
        work.waiting.into(),
        work.threads.into(),
        work.places.into(),
        work.refused.into(),
    ]
}
