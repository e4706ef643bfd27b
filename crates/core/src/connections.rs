//! The connections of a worker, by token: clients, servers, and connections that carry cancel requests.
//!
//! This module owns the connections, changes their states (`moves`), and knows when the worker next checks their
//! deadlines. The module forwards no bytes and makes no decisions.

pub(crate) mod moves;

use crate::{
    Actions, Time, Token,
    backend::Server,
    frontend::Client,
    pool::PoolId,
    session::{Settings, SqlStatements},
    shared::cancel::CancelConnection,
};

/// Microseconds between two checks of the deadlines.
pub(crate) const INTERVAL: u64 = 333_000;

/// One connection.
#[derive(Debug)]
pub(crate) enum Conn {
    Client(Box<Client>),
    Server(Box<Server>),
    Cancel(Box<CancelConnection>),
}

impl Conn {
    /// Returns whether the present state of the connection ends after a time.
    fn has_deadline(&self) -> bool {
        match self {
            Self::Client(client) => client.has_deadline(),
            Self::Server(server) => {
                server.duty().has_deadline() || server.link.was_within_message()
            }
            Self::Cancel(_) => true,
        }
    }

    /// Returns whether this is a server of the pool.
    pub(crate) fn is_server_of(&self, pool: PoolId) -> bool {
        matches!(self, Self::Server(server) if server.pool() == pool)
    }

    /// Returns whether this is a client of the pool.
    pub(crate) fn is_client_of(&self, pool: PoolId) -> bool {
        matches!(self, Self::Client(client) if client.pool() == Some(pool))
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    conn: Option<Conn>,
}

/// Connections by token. Slots are reused, generations are not.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The time at which deadlines are checked next.
    next_tick: Option<Time>,
    /// The logins that may begin a race between two hosts, and others that have been such logins.
    racers: Vec<Token>,
}

impl Connections {
    /// Creates an empty table; deadlines are first checked at `next_tick`.
    pub(crate) fn with_tick(next_tick: Option<Time>) -> Self {
        Self {
            next_tick,
            ..Self::default()
        }
    }

    /// Returns the time at which deadlines are checked next; `None` if no connection has one.
    #[inline]
    pub(crate) fn next_tick(&self) -> Option<Time> {
        self.next_tick
    }

    /// Sets the time at which deadlines are checked next.
    pub(crate) fn set_next_tick(&mut self, at: Option<Time>) {
        self.next_tick = at;
    }

    /// Makes sure that deadlines are checked, since a connection has one now.
    #[inline]
    pub(crate) fn schedule(&mut self, now: Time) {
        self.schedule_at(now.after(INTERVAL));
    }

    /// Makes sure that deadlines are checked at this time, or earlier.
    #[inline]
    fn schedule_at(&mut self, at: Time) {
        if self.next_tick.is_none_or(|next| next > at) {
            self.next_tick = Some(at);
        }
    }

    /// Returns whether any connection has a deadline.
    pub(crate) fn have_deadlines(&self) -> bool {
        self.iter().any(|(_, conn)| conn.has_deadline())
    }

    /// Makes sure that the race of this login begins at this time. The login has just planned it.
    pub(crate) fn schedule_race(&mut self, login: Token, at: Time) {
        self.racers.push(login);
        self.schedule_at(at);
    }

    /// Returns when the next race between two hosts begins.
    pub(crate) fn next_race(&mut self) -> Option<Time> {
        let mut racers = std::mem::take(&mut self.racers);
        let mut next = None;
        racers.retain(|&login| {
            let planned = match self.get(login) {
                Some(Conn::Server(server)) => server.link.race().planned_at(),
                _ => None,
            };
            next = Time::earlier(next, planned);
            planned.is_some()
        });
        self.racers = racers;
        next
    }

    /// Returns whether this server has exactly these settings and statements.
    #[inline]
    pub(crate) fn holds(&self, server: Token, wanted: &Settings, sql: &SqlStatements) -> bool {
        match self.get(server) {
            Some(Conn::Server(server)) => {
                server.session.settings.held().is_same(wanted)
                    && server.session.sql_statements.held().is_same(sql)
            }
            _ => false,
        }
    }

    /// Returns whether the types that this server's functions keep are those of a client with these settings.
    pub(crate) fn has_types_for(&self, server: Token, wanted: &Settings) -> bool {
        match self.get(server) {
            Some(Conn::Server(server)) => server.session.lasting.types.suit(wanted),
            _ => false,
        }
    }

    /// Puts a connection into the table. Its deadline is checked, if it has one.
    pub(crate) fn insert(&mut self, conn: Conn, now: Time) -> Token {
        if conn.has_deadline() {
            self.schedule(now);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[slot as usize];
        entry.conn = Some(conn);
        Token {
            slot,
            generation: entry.generation,
        }
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<Conn> {
        let entry = self.slots.get_mut(token.slot as usize)?;
        if entry.generation != token.generation {
            return None;
        }
        let conn = entry.conn.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(token.slot);
        Some(conn)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Conn> {
        let entry = self.slots.get_mut(token.slot as usize)?;
        if entry.generation == token.generation {
            entry.conn.as_mut()
        } else {
            None
        }
    }

    /// Returns a connection for reading.
    #[inline]
    pub(crate) fn get(&self, token: Token) -> Option<&Conn> {
        let entry = self.slots.get(token.slot as usize)?;
        entry
            .conn
            .as_ref()
            .filter(|_| entry.generation == token.generation)
    }

    #[inline]
    pub(crate) fn client(&mut self, token: Token) -> Option<&mut Client> {
        match self.get_mut(token) {
            Some(Conn::Client(client)) => Some(client),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn server(&mut self, token: Token) -> Option<&mut Server> {
        match self.get_mut(token) {
            Some(Conn::Server(server)) => Some(server),
            _ => None,
        }
    }

    /// Returns a client and the server that works for it.
    #[inline]
    pub(crate) fn pair(
        &mut self,
        client: Token,
        server: Token,
    ) -> Option<(&mut Client, &mut Server)> {
        let wanted = [client.slot as usize, server.slot as usize];
        let [client_slot, server_slot] = self.slots.get_disjoint_mut(wanted).ok()?;
        if client_slot.generation != client.generation
            || server_slot.generation != server.generation
        {
            return None;
        }
        match (&mut client_slot.conn, &mut server_slot.conn) {
            (Some(Conn::Client(client)), Some(Conn::Server(server))) => Some((client, server)),
            _ => None,
        }
    }

    /// Returns a server and the client that it works for.
    pub(crate) fn pair_of(&mut self, server: Token) -> Option<(Token, &mut Client, &mut Server)> {
        let client = self.server(server)?.client()?;
        let (of, server) = self.pair(client, server)?;
        Some((client, of, server))
    }

    /// Returns a server, and the client whose messages are relayed to it, if there is one.
    pub(crate) fn relaying(&mut self, server: Token) -> Option<(Option<&mut Client>, &mut Server)> {
        let client = self.server(server)?.relays_for();
        match client.filter(|&client| self.client(client).is_some()) {
            Some(client) => {
                let (client, server) = self.pair(client, server)?;
                Some((Some(client), server))
            }
            None => Some((None, self.server(server)?)),
        }
    }

    /// Returns a client that nothing can have removed since the caller got its token. A lost one is reported.
    #[inline]
    #[track_caller]
    pub(crate) fn known_client(&mut self, token: Token, out: &mut Actions) -> Option<&mut Client> {
        out.known(
            self.client(token),
            "a client that an event or an effect names",
        )
    }

    /// Returns a server that nothing can have removed since the caller got its token. A lost one is reported.
    #[inline]
    #[track_caller]
    pub(crate) fn known_server(&mut self, token: Token, out: &mut Actions) -> Option<&mut Server> {
        out.known(
            self.server(token),
            "a server that an event or an effect names",
        )
    }

    /// Returns the client and the server of a loan that nothing can have ended since the caller got their tokens. A lost
    /// loan is reported.
    #[inline]
    #[track_caller]
    pub(crate) fn known_pair(
        &mut self,
        client: Token,
        server: Token,
        out: &mut Actions,
    ) -> Option<(&mut Client, &mut Server)> {
        out.known(
            self.pair(client, server),
            "the client or the server of a loan",
        )
    }

    /// Returns a server and the client that it works for, if nothing can have ended the loan since the caller got the
    /// server's token. A lost loan is reported.
    #[inline]
    #[track_caller]
    pub(crate) fn known_pair_of(
        &mut self,
        server: Token,
        out: &mut Actions,
    ) -> Option<(Token, &mut Client, &mut Server)> {
        out.known(self.pair_of(server), "the loan of a server")
    }

    /// Returns the client that a server works for, for reading.
    pub(crate) fn client_of(&self, server: &Server) -> Option<&Client> {
        match self.get(server.client()?) {
            Some(Conn::Client(client)) => Some(client),
            _ => None,
        }
    }

    /// Returns the tokens of the connections that are `wanted`.
    pub(crate) fn tokens(&self, wanted: impl Fn(&Conn) -> bool) -> Vec<Token> {
        let found = self.iter().filter(|(_, conn)| wanted(conn));
        found.map(|(token, _)| token).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, &Conn)> {
        self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            let token = Token {
                slot: slot as u32,
                generation: entry.generation,
            };
            entry.conn.as_ref().map(|conn| (token, conn))
        })
    }
}
