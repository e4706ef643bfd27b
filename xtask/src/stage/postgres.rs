//! A throw-away PostgreSQL.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{Ending, Stage, StageError, account::own_command, free_port};

/// The name of the database, and of the user, for the load. The user is no superuser and needs no password over TCP on
/// this machine; superusers can connect only by the socket in a closed directory.
pub(crate) const NAME: &str = "bench";

const START_LIMIT: Duration = Duration::from_secs(60);

/// The folder of the programs of the newest installed PostgreSQL.
#[derive(Clone)]
pub(crate) struct Programs(PathBuf);

impl Programs {
    /// Searches Debian's folders, and then the search path.
    pub(crate) fn find() -> Result<Self, StageError> {
        let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let mut versions: Vec<(u32, PathBuf)> = debian
            .flatten()
            .filter_map(|entry| {
                let version = entry.file_name().to_str()?.parse().ok()?;
                Some((version, entry.path().join("bin")))
            })
            .filter(|(_, bin)| is_complete(bin))
            .collect();
        versions.sort();
        let searched = std::env::var_os("PATH").unwrap_or_default();
        let in_path = || std::env::split_paths(&searched).find(|bin| is_complete(bin));
        let newest = versions.pop().map(|(_, bin)| bin);
        newest.or_else(in_path).map(Self).ok_or_else(|| {
            StageError::with_next(
                "found no PostgreSQL with initdb, postgres, psql and pgbench",
                "install it (on Debian: apt-get install postgresql-15) or put its bin directory into PATH",
            )
        })
    }

    /// Takes the programs in a folder.
    ///
    /// # Errors
    ///
    /// One of the programs is missing.
    pub(crate) fn at(folder: &Path) -> Result<Self, StageError> {
        if is_complete(folder) {
            return Ok(Self(folder.to_path_buf()));
        }
        Err(StageError::new(format!(
            "{} has no initdb, postgres, psql and pgbench",
            folder.display()
        )))
    }

    /// Returns the path of a program.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn is_complete(bin: &Path) -> bool {
    ["initdb", "postgres", "psql", "pgbench"]
        .iter()
        .all(|name| bin.join(name).is_file())
}

/// A running server.
pub(crate) struct Postgres {
    programs: Programs,
    port: u16,
    socket_directory: PathBuf,
    id: u32,
}

impl Postgres {
    /// Makes a cluster in the stage and starts it, with a database and a user [`NAME`].
    pub(crate) async fn start(
        stage: &mut Stage,
        programs: &Programs,
        connections_max: u32,
    ) -> Result<Self, StageError> {
        let home = stage.make_directory("postgresql")?;
        let data = home.join("data");
        initialize(stage, programs, &data).await?;
        let port = free_port()?;
        write_settings(stage, &data, &home, port, connections_max)?;
        let data_text = data.to_string_lossy().into_owned();
        let id = stage.start(
            "postgresql",
            &programs.path("postgres"),
            &["-D", &data_text],
            Ending::Postgres,
        )?;
        let server = Self {
            programs: programs.clone(),
            port,
            socket_directory: home,
            id,
        };
        server.wait_until_ready(stage).await?;
        server
            .administer(stage, "postgres", &format!("create role {NAME} login"))
            .await?;
        let create = format!("create database {NAME} owner {NAME}");
        server.administer(stage, "postgres", &create).await?;
        Ok(server)
    }

    /// Returns the TCP port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the process id of the postmaster.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Returns the programs.
    pub(crate) fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Runs SQL as superuser and returns the rows, fields separated by `|`.
    pub(crate) async fn administer(
        &self,
        stage: &Stage,
        database: &str,
        sql: &str,
    ) -> Result<String, StageError> {
        let mut psql = stage.account().command(&self.programs.path("psql"), None);
        psql.arg("-XAtq")
            .arg("-h")
            .arg(&self.socket_directory)
            .args(["-p", &self.port.to_string(), "-d", database])
            .args(["-U", stage.account().name()])
            .args(["-v", "ON_ERROR_STOP=1", "-c", sql])
            .current_dir(stage.path())
            .kill_on_drop(true);
        finish("psql", psql).await
    }

    /// Fills the tables of pgbench.
    pub(crate) async fn fill(&self, stage: &Stage, scale: u32) -> Result<(), StageError> {
        let mut pgbench = own_command(&self.programs.path("pgbench"));
        pgbench
            .args(["-i", "-q", "-s", &scale.to_string(), "-h", "127.0.0.1"])
            .args(["-p", &self.port.to_string(), "-U", NAME, NAME])
            .current_dir(stage.path())
            .kill_on_drop(true);
        finish("pgbench -i", pgbench).await.map(drop)
    }

    async fn wait_until_ready(&self, stage: &mut Stage) -> Result<(), StageError> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            stage.check(self.id)?;
            match self.administer(stage, "postgres", "select 1").await {
                Ok(_) => return Ok(()),
                Err(e) if Instant::now() > deadline => {
                    let log = stage.log_tail(self.id);
                    return Err(StageError::new(format!(
                        "PostgreSQL does not answer: {e}\n    {log}"
                    )));
                }
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

async fn initialize(stage: &Stage, programs: &Programs, data: &Path) -> Result<(), StageError> {
    let mut initdb = stage.account().command(&programs.path("initdb"), None);
    initdb
        .arg("-D")
        .arg(data)
        .args(["-U", stage.account().name(), "-E", "UTF8", "--locale=C"])
        .args(["--auth-local=peer", "--auth-host=reject", "--no-sync"])
        .current_dir(stage.path())
        .kill_on_drop(true);
    finish("initdb", initdb).await.map(drop)
}

/// Durability is off: nothing here outlives the run.
fn write_settings(
    stage: &Stage,
    data: &Path,
    socket_directory: &Path,
    port: u16,
    connections_max: u32,
) -> Result<(), StageError> {
    let sockets = socket_directory.display();
    let settings = format!(
        "listen_addresses = '127.0.0.1'\n\
         port = {port}\n\
         unix_socket_directories = '{sockets}'\n\
         max_connections = {connections_max}\n\
         superuser_reserved_connections = 0\n\
         shared_buffers = 256MB\n\
         fsync = off\n\
         synchronous_commit = off\n\
         full_page_writes = off\n\
         max_wal_size = 4GB\n\
         checkpoint_timeout = 1h\n\
         logging_collector = off\n"
    );
    stage.write(&data.join("postgresql.conf"), &settings)?;
    let access = format!("local all all peer\nhost all {NAME} 127.0.0.1/32 trust\n");
    stage.write(&data.join("pg_hba.conf"), &access)
}

/// Runs a command to its end and returns its output.
async fn finish(name: &str, mut command: tokio::process::Command) -> Result<String, StageError> {
    let output = command
        .output()
        .await
        .map_err(|e| StageError::new(format!("cannot run {name}: {e}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(StageError::new(format!("{name} failed: {}", errors.trim())))
}
