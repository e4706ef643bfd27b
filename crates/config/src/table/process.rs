//! The keys of section `[pgbouncer]` about the process and its threads.

/// Defines the settings between the last two of three parts of the table: those about the process stand here.
macro_rules! process_settings {
    ({ $($before:tt)* } { $($between:tt)* } { $($after:tt)* }) => {
        $crate::table::login::login_settings! { {
            $($before)*
        } {
            $($between)*

            "Process" {
                /// The number of threads that serve connections. 0: as many as there are cores.
                workers: u32 = "0", restarts, now, between::<0, 64>;
                /// The Unix user to switch to after a start as root.
                user: Option<String>, restarts, now;
                /// The file that has pgweir's process id while it runs.
                pidfile: Option<String> = "", restarts, now;
                /// The ini file that the next RELOAD reads. If not set, the file on the command line.
                conffile: Option<String>, reloads, now;
                /// Read the configuration again, as RELOAD does, when the contents of its files have changed: the ini file,
                /// files that it includes, and the files with users, rules, tokens and certificates that it names. pgweir
                /// waits until the folders of these files have been quiet for 0.2 seconds. If anything in the files is
                /// wrong, the configuration in force stays, and the log has the file, the line and the key. The kernel
                /// (inotify) reports no changes that other machines make in a network file system.
                config_watch: bool = "0", reloads, now;
                /// Name of a Windows service.
                service_name: Option<String>, restarts, never;
                /// Another name for `service_name`.
                job_name: String = "pgbouncer", restarts, never;
                /// The zone of this process: pgweir prefers hosts of the same `zone` in a list of hosts (`zone` in `[databases]`).
                zone: Option<String>, reloads, now;
                /// The number of this process among the `[peers]`, or among the processes of `fleet_etcd`. 0: no peers.
                peer_id: u32 = "0", reloads, now, between::<0, 16_383>;
            }

            $($after)*
        } }
    };
}
pub(super) use process_settings;
