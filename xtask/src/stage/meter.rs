//! CPU time and memory, from /proc.

use std::{collections::HashMap, fs};

use nix::{
    sys::resource::{UsageWho, getrusage},
    unistd::{SysconfVar, sysconf},
};
use tokio::time::Instant;

/// The sizes of the kernel's units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Units {
    ticks_per_second: f64,
    page_bytes: f64,
}

impl Units {
    /// Asks the system for its units.
    pub(crate) fn new() -> Self {
        let ask = |name, usual| sysconf(name).ok().flatten().map_or(usual, |v| v as f64);
        Self {
            ticks_per_second: ask(SysconfVar::CLK_TCK, 100.0),
            page_bytes: ask(SysconfVar::PAGE_SIZE, 4096.0),
        }
    }

    /// Returns the resident memory of a process and its descendants.
    pub(crate) fn resident_kb(self, root: u32) -> f64 {
        let pages: f64 = tree(root).into_iter().map(resident_pages).sum();
        pages * self.page_bytes / 1024.0
    }

    /// Reads all clocks at this moment; the clock of processes is that of `root` and its descendants.
    pub(crate) fn read(self, root: u32) -> Reading {
        let (user, system) = process_ticks(root);
        let machine = machine_ticks();
        Reading {
            at: Instant::now(),
            user_s: user / self.ticks_per_second,
            system_s: system / self.ticks_per_second,
            busy_s: machine.busy / self.ticks_per_second,
            stolen: machine.stolen,
            all: machine.all,
            children_s: children_seconds(),
        }
    }
}

/// Clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    at: Instant,
    user_s: f64,
    system_s: f64,
    busy_s: f64,
    stolen: f64,
    all: f64,
    children_s: f64,
}

/// The differences between two readings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    /// Time on the wall, in seconds.
    pub(crate) wall_s: f64,
    /// The pooler's user time, in seconds.
    pub(crate) user_s: f64,
    /// The pooler's system time, in seconds.
    pub(crate) system_s: f64,
    /// Time for which the machine's cores were busy, in seconds.
    pub(crate) busy_s: f64,
    /// CPU time of the clients that this program started and that have ended, in seconds.
    pub(crate) children_s: f64,
    /// Time taken by other virtual machines, in percent of all.
    pub(crate) stolen_percent: f64,
}

impl Spent {
    /// Returns the pooler's CPU time, in seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

impl Reading {
    /// Returns the difference to an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> Spent {
        Spent {
            wall_s: (self.at - earlier.at).as_secs_f64(),
            user_s: self.user_s - earlier.user_s,
            system_s: self.system_s - earlier.system_s,
            busy_s: self.busy_s - earlier.busy_s,
            children_s: self.children_s - earlier.children_s,
            stolen_percent: 100.0 * (self.stolen - earlier.stolen)
                / (self.all - earlier.all).max(1.0),
        }
    }
}

/// Returns the fields of /proc/PID/stat from the state on; the name before them may contain any character.
fn process_fields(id: u32) -> Option<Vec<String>> {
    let text = fs::read(format!("/proc/{id}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let fields = text.get(text.rfind(')')? + 1..)?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let parent = id.and_then(|id| process_fields(id)?.get(1)?.parse().ok());
        if let (Some(id), Some(parent)) = (id, parent) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut found = vec![root];
    let mut at = 0;
    while let Some(id) = found.get(at) {
        found.extend(children.remove(id).unwrap_or_default());
        at += 1;
    }
    found
}

/// Returns the user and system ticks, including those of children that have ended.
fn process_ticks(root: u32) -> (f64, f64) {
    let mut sum = (0.0, 0.0);
    for fields in tree(root).into_iter().filter_map(process_fields) {
        let number = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok());
        sum.0 += number(11).unwrap_or(0.0) + number(13).unwrap_or(0.0);
        sum.1 += number(12).unwrap_or(0.0) + number(14).unwrap_or(0.0);
    }
    sum
}

fn resident_pages(id: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{id}/statm")).unwrap_or_default();
    let pages = text.split_whitespace().nth(1);
    pages.and_then(|p| p.parse().ok()).unwrap_or(0.0)
}

struct MachineTicks {
    busy: f64,
    stolen: f64,
    all: f64,
}

/// Returns the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
fn machine_ticks() -> MachineTicks {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let mut ticks = [0.0; 8];
    for (tick, field) in ticks.iter_mut().zip(line.split_whitespace().skip(1)) {
        *tick = field.parse().unwrap_or(0.0);
    }
    let [user, nice, system, _, _, irq, soft_irq, stolen] = ticks;
    MachineTicks {
        busy: user + nice + system + irq + soft_irq,
        stolen,
        all: ticks.iter().sum(),
    }
}

fn children_seconds() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else {
        return 0.0;
    };
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}
