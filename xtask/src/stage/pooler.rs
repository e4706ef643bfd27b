//! A pooler in front of the temporary PostgreSQL.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{Ending, Stage, StageError, account::own_command, free_port, postgres};

const START_LIMIT: Duration = Duration::from_secs(15);

/// The password of clients, if poolers ask for one.
pub(super) const PASSWORD: &str = "bench";

/// The secret that PostgreSQL would store for [`PASSWORD`]. With this secret, no pooler has to derive keys from the
/// password.
const SCRAM_SECRET: &str = "SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==$qbnU56guAfsBfjUmn/x8mMeIloOz+rRbht9D8Z3DM4Y=:\
                            Kbp9MYIpdbkhD8HnNa1V6/KLlx5cE8efJ3vbHeSSYLo=";

/// The settings of a pooler. PgBouncer and pgweir take the same file.
pub(crate) struct PoolerSettings {
    /// The port on which PostgreSQL listens.
    pub(crate) postgres_port: u16,
    /// The number of server connections.
    pub(crate) pool: u32,
    /// The largest number of clients at a time.
    pub(crate) clients_max: u32,
    /// The number of threads; unset for the pooler's own default.
    pub(crate) workers: Option<u32>,
    /// The number of prepared statements on each server; unset for the pooler's own default.
    pub(crate) prepared_max: Option<u32>,
    /// The key and the certificate for clients that use TLS, if any do.
    pub(crate) tls: Option<Identity>,
    /// Whether clients prove by SCRAM-SHA-256 that they know the password.
    pub(crate) scram: bool,
    /// Further databases of the same server, by the same names.
    pub(crate) databases: &'static [&'static str],
    /// Further lines, of one pooler only; may be empty.
    pub(crate) more: &'static str,
    /// Further lines of this run alone; may be empty.
    pub(crate) own_lines: String,
}

/// A private key and its certificate.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// The key's file.
    pub(crate) key: PathBuf,
    /// The certificate's file.
    pub(crate) certificate: PathBuf,
}

impl Identity {
    /// Creates an ECDSA key and a certificate for it, in the stage's folder.
    pub(crate) async fn make(stage: &Stage) -> Result<Self, StageError> {
        let [key, certificate] = ["tls.key", "tls.crt"].map(|name| stage.path().join(name));
        let mut openssl = own_command(Path::new("openssl"));
        openssl
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ])
            .args(["-nodes", "-days", "7", "-subj", "/CN=localhost", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate);
        let output = openssl.output().await;
        let output = output.map_err(|e| StageError::new(format!("cannot run openssl: {e}")))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(StageError::new(format!("openssl: {}", words.trim())));
        }
        for path in [&key, &certificate] {
            let text = fs::read_to_string(path)
                .map_err(|e| StageError::new(format!("cannot read {}: {e}", path.display())))?;
            // The file is written again, so that it belongs to the unprivileged user.
            stage.write(path, &text)?;
        }
        Ok(Self { key, certificate })
    }
}

impl PoolerSettings {
    /// Returns the ini file: transaction mode, and no line in the log per connection. Everything is on this machine and
    /// temporary, so clients need a password only if logins with a password are measured.
    pub(crate) fn ini(&self, port: u16, user_list: &Path) -> String {
        let name = postgres::NAME;
        let mut ini = "[databases]\n".to_owned();
        for database in [&name].into_iter().chain(self.databases) {
            let _ = writeln!(
                ini,
                "{database} = host=127.0.0.1 port={} dbname={database}",
                self.postgres_port
            );
        }
        let _ = write!(
            ini,
            "[pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             pool_mode = transaction\n\
             default_pool_size = {pool}\n\
             max_client_conn = {clients_max}\n\
             auth_type = {auth_type}\n\
             auth_file = {users}\n\
             stats_users = {name}\n\
             log_connections = 0\n\
             log_disconnections = 0\n\
             log_stats = 0\n\
             server_tls_sslmode = disable\n",
            pool = self.pool,
            auth_type = if self.scram { "scram-sha-256" } else { "trust" },
            clients_max = self.clients_max,
            users = user_list.display(),
        );
        if let Some(workers) = self.workers {
            let _ = writeln!(ini, "workers = {workers}");
        }
        if let Some(count) = self.prepared_max {
            let _ = writeln!(ini, "max_prepared_statements = {count}");
        }
        if let Some(tls) = &self.tls {
            let _ = writeln!(ini, "client_tls_sslmode = allow");
            let _ = writeln!(ini, "client_tls_key_file = {}", tls.key.display());
            let _ = writeln!(ini, "client_tls_cert_file = {}", tls.certificate.display());
        }
        ini.push_str(self.more);
        ini.push_str(&self.own_lines);
        ini
    }
}

/// A running pooler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pooler {
    /// Its TCP port on 127.0.0.1.
    pub(crate) port: u16,
    /// The process id.
    pub(crate) id: u32,
}

impl Pooler {
    /// Starts `program` with a file of these settings and waits until it answers a query.
    pub(crate) async fn start(
        stage: &mut Stage,
        name: &str,
        program: &Path,
        settings: &PoolerSettings,
        psql: &Path,
    ) -> Result<Self, StageError> {
        Self::start_below(stage, name, &[], program, settings, psql).await
    }

    /// Does the same, but another program runs the pooler: `above` is that program's path and its arguments.
    pub(crate) async fn start_below(
        stage: &mut Stage,
        name: &str,
        above: &[&str],
        program: &Path,
        settings: &PoolerSettings,
        psql: &Path,
    ) -> Result<Self, StageError> {
        let port = free_port()?;
        let users = stage.path().join(format!("{name}.users"));
        let secret = if settings.scram { SCRAM_SECRET } else { "" };
        let user = format!("\"{}\" \"{secret}\"\n", postgres::NAME);
        stage.write(&users, &user)?;
        let ini = stage.path().join(format!("{name}.ini"));
        stage.write(&ini, &settings.ini(port, &users))?;
        let ini = ini.to_string_lossy().into_owned();
        let own = program.to_string_lossy();
        let line: Vec<&str> = above.iter().copied().chain([&*own, &*ini]).collect();
        let id = stage.start(name, Path::new(line[0]), &line[1..], Ending::Pooler)?;
        let pooler = Self { port, id };
        pooler.wait_until_ready(stage, name, psql).await?;
        Ok(pooler)
    }

    /// Starts haproxy as a plain TCP forwarder: one server connection per client.
    pub(crate) async fn start_haproxy(
        stage: &mut Stage,
        program: &Path,
        postgres_port: u16,
        psql: &Path,
    ) -> Result<Self, StageError> {
        let port = free_port()?;
        let path = stage.path().join("haproxy.cfg");
        let text = format!(
            "global\n maxconn 2000\n nbthread 1\n\
             defaults\n mode tcp\n timeout connect 10s\n timeout client 1h\n timeout server 1h\n\
             frontend clients\n bind 127.0.0.1:{port}\n default_backend servers\n\
             backend servers\n server postgresql 127.0.0.1:{postgres_port}\n"
        );
        stage.write(&path, &text)?;
        let path = path.to_string_lossy().into_owned();
        let id = stage.start("haproxy", program, &["-db", "-f", &path], Ending::Proxy)?;
        let pooler = Self { port, id };
        pooler.wait_until_ready(stage, "haproxy", psql).await?;
        Ok(pooler)
    }

    async fn wait_until_ready(
        &self,
        stage: &mut Stage,
        name: &str,
        psql: &Path,
    ) -> Result<(), StageError> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            stage.check(self.id)?;
            let words = match self.ask(psql).await {
                Ok(()) => return Ok(()),
                Err(words) => words,
            };
            if Instant::now() > deadline {
                let log = stage.log_tail(self.id);
                return Err(StageError::new(format!(
                    "{name} does not answer: {words}\n    {log}"
                )));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn ask(&self, psql: &Path) -> Result<(), String> {
        let mut command = own_command(psql);
        command
            .args(["-XAtq", "-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-U", postgres::NAME, "-d", postgres::NAME])
            .args(["-c", "select 1"])
            .env("PGCONNECT_TIMEOUT", "5")
            .env("PGPASSWORD", PASSWORD)
            .kill_on_drop(true);
        let output = command.output().await.map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}
