//! The kernel's figures for this process, under the names that Prometheus' client libraries use.

use std::fs;

use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

use super::exposition::{Exposition, Kind};

/// Writes the `process_` families, as far as `/proc` can be read.
pub(super) fn write(text: &mut Exposition) {
    if let Ok(stat) = fs::read_to_string("/proc/self/stat")
        && let Some(numbers) = Numbers::of_stat(&stat)
    {
        let micros = |ticks: u64| ticks * 1_000_000 / clock_ticks_per_second().max(1);
        text.family(
            "process_cpu_seconds",
            Kind::Counter,
            "CPU time of this process, of user and system.",
        )
        .add_micros(&[], micros(numbers.cpu_ticks));
        if let Some(boot) = boot_second() {
            text.family(
                "process_start_time_seconds",
                Kind::Gauge,
                "When this process started, in seconds since 1970.",
            )
            .add_micros(&[], boot * 1_000_000 + micros(numbers.start_ticks));
        }
        text.gauge(
            "process_virtual_memory_bytes",
            "Virtual memory of this process.",
            numbers.virtual_bytes,
        );
        text.gauge(
            "process_resident_memory_bytes",
            "Resident memory of this process.",
            numbers.resident_pages * page_size() as u64,
        );
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        let open = open.count() as u64;
        text.gauge("process_open_fds", "Open file descriptors.", open);
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        let help = "The most file descriptors that may be open.";
        text.gauge("process_max_fds", help, most);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Numbers {
    cpu_ticks: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Numbers {
    /// Reads a line of `/proc/PID/stat`, as proc(5) describes it.
    fn of_stat(line: &str) -> Option<Self> {
        // The name of the program is in parentheses, and may contain any character.
        let fields: Vec<&str> = line.rsplit_once(") ")?.1.split(' ').collect();
        // The first of these fields is field 3 of proc(5).
        let field = |number: usize| fields.get(number - 3)?.trim().parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// Returns the time at which the machine was started, in seconds since 1970.
fn boot_second() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("btime "));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_does_not_matter() {
        let rest =
            "S 1 2 3 0 -1 4194560 1 0 0 0 70 30 0 0 20 0 4 0 5555 123456 789 18446744073709551615";
        for name in ["pgweir", "a) b", "x (y) z"] {
            let found = Numbers::of_stat(&format!("42 ({name}) {rest}"));
            let expected = Numbers {
                cpu_ticks: 100,
                start_ticks: 5555,
                virtual_bytes: 123_456,
                resident_pages: 789,
            };
            assert_eq!(found, Some(expected), "{name}");
        }
        assert_eq!(Numbers::of_stat("42 (pgweir) S 1"), None);
    }
}
