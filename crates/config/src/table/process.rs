//! The keys of section `[pgbouncer]` about the process, its threads, and its sockets.

/// Defines the settings from two parts of the table, and those about the process and the network, which stand here.
macro_rules! process_settings {
    ({ $($before:tt)* } { $($between:tt)* }) => {
        $crate::table::login::login_settings! { {
            $($before)*
        } {
            $($between)*

            "Process" {
                /// The number of threads that serve connections. 0: as many as there are cores.
                workers: u32 = "0", restarts, now, between::<0, 64>;
                /// As long as the active workers are less busy than this, on average, the other workers sleep: several
                /// workers cost more CPU time than one for the same work, since each of them wakes up for its part. Above
                /// this, as many more workers become active as the load needs, and get some of the clients. A worker
                /// becomes inactive when the others have been able to do its work with less than two thirds of this for
                /// three seconds; its clients move to them between two transactions. Clients of pools in session mode are
                /// assigned to all workers in turn when they log in, since they can't move later. SHOW WORKERS has the
                /// loads. 0: all workers are always active, and clients stay on their workers.
                worker_busy_target: u32 = "60" in "percent of a CPU", reloads, now, between::<0, 100>;
                /// The time that a worker spends on logins, new clients and disconnects of idle clients in each turn of
                /// its event loop. The worker serves queries first, so that many logins at once do not delay the
                /// queries of other clients. If the queries of the turn have taken longer than this time, logins get as
                /// much time as the queries. 0: one step of a login, or one disconnect, in each turn.
                /// `pgweir_waiting_logins` shows how many logins and disconnects wait, and `pgweir_login_delays_total`
                /// in how many turns they used up their time.
                login_slice: Micros = "0.0005", reloads, now;
                /// The Unix user to switch to after a start as root.
                user: Option<String>, restarts, now;
                /// The file that has pgweir's process id while it runs.
                pidfile: Option<String> = "", restarts, now;
                /// The ini file that the next RELOAD reads. If not set, the file on the command line.
                conffile: Option<String>, reloads, now;
                /// Read the configuration again, as RELOAD does, when the contents of its files have changed: the ini
                /// file, files that it includes, and the files with users, rules, tokens and certificates that it
                /// names. pgweir waits until the folders of these files have been quiet for 0.2 seconds. If anything in
                /// the files is wrong, the configuration in force stays, and the log has the file, the line and the
                /// key. The kernel (inotify) reports no changes that other machines make in a network file system.
                config_watch: bool = "0", reloads, now;
                /// Name of a Windows service.
                service_name: Option<String>, restarts, never;
                /// Another name for `service_name`.
                job_name: String = "pgbouncer", restarts, never;
                /// The zone of this process: pgweir prefers hosts of the same `zone` in a list of hosts (`zone` in
                /// `[databases]`).
                zone: Option<String>, reloads, now;
                /// The number of this process among the `[peers]`, or among the processes of `fleet_etcd`. 0: no peers.
                peer_id: u32 = "0", reloads, now, between::<0, 16_383>;
            }

            "Network" {
                /// Use TCP keepalive to detect connections whose other side is gone. The next three settings adjust it.
                tcp_keepalive: bool = "1", reloads, now;
                /// The number of unanswered keepalive probes that end a connection. 0: the system's default.
                tcp_keepcnt: u32 = "0", reloads, now;
                /// The time without traffic before the first keepalive probe. 0: the system's default.
                tcp_keepidle: u32 = "0" in "seconds", reloads, now;
                /// The time between keepalive probes. 0: the system's default.
                tcp_keepintvl: u32 = "0" in "seconds", reloads, now;
                /// How long sent bytes may stay unacknowledged before TCP gives up. 0: the system's default.
                tcp_user_timeout: u32 = "0" in "milliseconds", reloads, now;
                /// Size of each socket's buffers in the kernel. 0: the system's default; a change back to 0 takes
                /// effect for clients at the next restart.
                tcp_socket_buffer: u32 = "0" in "bytes", reloads, now;
                /// The largest message that pgweir forwards, in either direction.
                max_packet_size: u32 = "2147483647" in "bytes", reloads, now, packet_size;
                /// The largest number of outstanding replies to the messages of one client (Query, FunctionCall, Sync,
                /// and messages that create or close prepared statements). Above it, pgweir does not read from the
                /// client until half of them have arrived. The column `pipelined` of SHOW CLIENTS and SHOW SERVERS has
                /// the present number.
                max_pipelined_messages: u32 = "10000", reloads, now, between::<100, 1_000_000>;
                /// The largest startup packet that a client may send.
                startup_packet_limit: u32 = "10000" in "bytes", reloads, now, between::<1_024, 1_048_576>;
                /// Size of the buffer that each worker reads into.
                read_buffer: u32 = "262144" in "bytes", restarts, now, between::<16_384, 1_048_576>;
                /// How the workers wait for their sockets. `epoll`: on every Linux. `io_uring`: short messages take fewer
                /// system calls, and so less CPU time. It needs Linux 6.1, and a kernel and container
                /// that allow it, and takes 0.25 MB of memory per worker besides `io_uring_buffers`. Where it is not
                /// allowed, pgweir logs that and uses epoll; when the kernel runs out of memory for it later, the
                /// worker goes on with epoll, and keeps its connections. Some kernels count a worker's 0.2 MB of queues
                /// against the limit on locked memory (`LimitMEMLOCK` of systemd). `auto`: `io_uring` where it is
                /// allowed, else `epoll`.
                io_driver: IoDriver = "auto", restarts, now;
                /// The number of buffers that each worker lends to io_uring, of 16 kB each; rounded up to a power of
                /// two. They hold what servers send between two waits of the worker. When all are full, servers are
                /// read as with epoll, and `pgweir_io_uring_buffer_shortages_total` counts that. As many connections
                /// can have up to 4 kB each that are sent together at the next wait; others are sent to at once.
                io_uring_buffers: u32 = "64", restarts, now, between::<8, 4_096>;
                /// PgBouncer's buffer for each connection. pgweir has no such buffer: see `read_buffer`.
                pkt_buf: u32 = "4096" in "bytes", restarts, never;
                /// How often PgBouncer fills its buffer from one connection before it turns to the next.
                sbuf_loopcnt: u32 = "5", reloads, never;
                /// How long to keep the addresses of a host name. If they have changed after that, servers at the old
                /// addresses are closed when they are free. With several addresses, each new connection starts with the
                /// next one.
                dns_max_ttl: Micros = "15", reloads, now;
                /// How long to keep the result of a failed look-up of a host name.
                dns_nxdomain_ttl: Micros = "15", reloads, now;
                /// How often to check whether the serials of the host names' DNS zones (everything after a name's first
                /// dot) have changed. After a change, the zone's names are looked up again. 0: never.
                dns_zone_check_period: Micros = "0", reloads, now;
                /// Use the name servers of this file, in the format of `resolv.conf`, to look up hosts, after
                /// `/etc/hosts`. A name server may have a port: `nameserver [ADDRESS]:PORT`. If not set, the system's
                /// resolver is used.
                resolv_conf: Option<String> = "", restarts, now;
            }
        } }
    };
}
pub(super) use process_settings;
