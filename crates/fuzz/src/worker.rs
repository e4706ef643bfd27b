//! Arbitrary bytes from clients (before and after login) and from servers, in any order and cut anywhere: a worker does not
//! panic, and sends nothing to a connection that it has closed.

use std::{
    collections::{HashMap, VecDeque},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

use pgweir_auth::userlist::Userlist;
use pgweir_config::Config;
use pgweir_core::{
    Action, Actions, Address, AuthCheckResult, Closed, Directory, Peer, ReadMode, ServerTls,
    Snapshot, Time, TlsFacts, TlsTerms, Token, Worker, WorkerId, mail::Mail,
};

const STARTUP: &[u8] = b"\0\0\0\x19\0\x03\0\0user\0u\0database\0d\0\0";
/// The messages of a server at login.
const WELCOME: &[u8] =
    b"R\0\0\0\x08\0\0\0\0S\0\0\0\x11TimeZone\0UTC\0K\0\0\0\x0c\0\0\0\x01abcdZ\0\0\0\x05I";

/// A driver without sockets.
struct World {
    worker: Worker,
    out: Actions,
    modes: HashMap<Token, ReadMode>,
    mail: VecDeque<Mail>,
    servers: Vec<Token>,
    now: Time,
}

/// See the module.
pub fn run(data: &[u8]) {
    let [auth, mode, script @ ..] = data else {
        return;
    };
    let mut world = World::new(*auth, *mode);
    let mut clients: Vec<Token> = (0..3).map(|_| world.accept()).collect();
    let mut rest = script;
    while let [what, len, tail @ ..] = rest {
        let (bytes, tail) = tail.split_at((*len as usize).min(tail.len()));
        rest = tail;
        let client = clients[*what as usize % 3];
        match what >> 4 {
            0..=4 => world.deliver(client, bytes),
            5..=9 => {
                if let Some(&server) = world
                    .servers
                    .get(*what as usize % world.servers.len().max(1))
                {
                    world.deliver(server, bytes);
                }
            }
            10 => world.deliver(client, STARTUP),
            11 => {
                if let Some(&server) = world.servers.last() {
                    world.deliver(server, WELCOME);
                }
            }
            12 => {
                world.end(client);
                clients[*what as usize % 3] = world.accept();
            }
            13 => {
                if let Some(&server) = world.servers.first() {
                    world.end(server);
                }
            }
            14 => world.readable(client),
            _ => world.tick(u64::from(*len) * 100_000),
        }
    }
}

impl World {
    fn new(auth: u8, mode: u8) -> Self {
        let auth = ["trust", "plain", "md5", "scram-sha-256"][auth as usize % 4];
        let mode = ["session", "transaction", "statement"][mode as usize % 3];
        let ini = format!(
            "[databases]\n*=host=127.0.0.1\n[pgbouncer]\nauth_type={auth}\npool_mode={mode}\ndefault_pool_size=2\nadmin_users=u\n"
        );
        let config = Config::load(Path::new("x.ini"), &mut |_| Ok(ini.clone()))
            .expect("a good configuration");
        let users = Userlist::parse("\"u\" \"p\"\n").expect("a good userlist");
        let tls = TlsTerms {
            clients: true,
            demanded: false,
            servers: Some(ServerTls::default()),
        };
        let directory = Arc::new(Directory::new(
            1,
            Arc::new(Snapshot {
                config,
                users,
                tls,
                rules: Default::default(),
            }),
            [7; 32],
        ));
        Self {
            worker: Worker::new(WorkerId(0), directory),
            out: Actions::default(),
            modes: HashMap::new(),
            mail: VecDeque::new(),
            servers: Vec::new(),
            now: Time(1_000_000),
        }
    }

    fn accept(&mut self) -> Token {
        let address = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
        let peer = Peer {
            remote: address,
            local: address,
            port: 6432,
            same_uid: false,
            is_internal: false,
            uid: None,
            pid: 0,
            entropy: [3; 64],
        };
        let token = self.worker.accepted(&peer, self.now, &mut self.out);
        self.modes.insert(token, ReadMode::Deliver);
        self.execute();
        token
    }

    fn deliver(&mut self, conn: Token, bytes: &[u8]) {
        self.readable(conn);
        if self.modes.get(&conn) == Some(&ReadMode::Deliver) && !bytes.is_empty() {
            self.worker.received(conn, bytes, self.now, &mut self.out);
            self.execute();
        }
    }

    fn readable(&mut self, conn: Token) {
        if self.modes.get(&conn) == Some(&ReadMode::Notify) {
            self.modes.insert(conn, ReadMode::Hold);
            self.worker.readable(conn, self.now, &mut self.out);
            self.execute();
        }
    }

    fn end(&mut self, conn: Token) {
        if self.modes.remove(&conn).is_some() {
            self.servers.retain(|&server| server != conn);
            self.worker
                .closed(conn, &Closed::Eof, self.now, &mut self.out);
            self.execute();
        }
    }

    fn tick(&mut self, micros: u64) {
        self.now = self.now.after(micros);
        if self.worker.next_tick().is_some_and(|at| at <= self.now) {
            self.worker.tick(self.now, &mut self.out);
            self.execute();
        }
    }

    fn execute(&mut self) {
        loop {
            self.out.scratch.clear();
            let list = std::mem::take(&mut self.out.list);
            if list.is_empty() {
                match self.mail.pop_front() {
                    Some(mail) => self.worker.mail(mail, self.now, &mut self.out),
                    None => return,
                }
                continue;
            }
            for action in list {
                self.carry_out(action);
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Send { to, .. } => {
                assert!(self.modes.contains_key(&to), "sent to a closed connection")
            }
            Action::Read { conn, mode } => {
                assert!(
                    self.modes.contains_key(&conn),
                    "a mode for a closed connection"
                );
                self.modes.insert(conn, mode);
            }
            Action::Close(conn) | Action::CloseServer { conn, .. } => {
                assert!(self.modes.remove(&conn).is_some(), "closed twice");
                self.servers.retain(|&server| server != conn);
            }
            Action::Connect { conn, .. } => {
                self.modes.insert(conn, ReadMode::Hold);
                self.servers.push(conn);
                let address = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 5432)));
                self.worker
                    .connected(conn, address, address, [9; 18], self.now, &mut self.out);
            }
            Action::Derive { conn, job } => {
                let keys = job.run();
                self.worker.derived(conn, keys, self.now, &mut self.out);
            }
            Action::StartTls { conn, .. } => {
                assert!(
                    self.modes.contains_key(&conn),
                    "TLS for a closed connection"
                );
                let facts = TlsFacts {
                    protocol: "TLSv1.3".into(),
                    cipher: "TLS_AES_256_GCM_SHA384".into(),
                    group: None,
                    peer: None,
                    end_point: None,
                    is_agreed: true,
                };
                self.worker.secured(conn, facts, self.now, &mut self.out);
            }
            Action::CheckAuth { conn, .. } => {
                self.worker
                    .auth_checked(conn, AuthCheckResult::Overloaded, self.now, &mut self.out)
            }
            Action::Evaluate(evaluation) => {
                let evaluated = Box::new(evaluation.run());
                self.mail.push_back(Mail::CatalogEvaluated(evaluated));
            }
            Action::Mail { mail, .. } | Action::MailAfterPending { mail, .. } => {
                self.mail.push_back(*mail)
            }
            Action::Freeze(_) | Action::Thaw(_) | Action::Accept(_) => {}
            Action::Peek(_)
            | Action::LoggedIn(_)
            | Action::HandOverClient { .. }
            | Action::ForwardToNewProcess { .. }
            | Action::AwaitReturns
            | Action::MoveServer { .. }
            | Action::MoveClient { .. }
            | Action::Log(_)
            | Action::WriteLog
            | Action::Export(_)
            | Action::Control(_)
            | Action::Finished => {}
        }
    }
}
