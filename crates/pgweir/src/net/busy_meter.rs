//! Measures which part of the time a worker's thread is on a CPU.

use pgweir_core::{Time, shared::worker_loads::WINDOW};

use crate::clock::thread_cpu_ns;

/// The present measurement.
#[derive(Debug)]
pub(super) struct BusyMeter {
    began: Time,
    /// The CPU time of the thread at that time, in nanoseconds; `None` before the thread has begun to serve connections.
    cpu_at_begin: Option<u64>,
}

impl BusyMeter {
    /// Creates a meter, whose first measurement begins now.
    pub(super) fn new(now: Time) -> Self {
        Self {
            began: now,
            cpu_at_begin: None,
        }
    }

    /// Returns the part of the time for which the thread was on a CPU, in thousandths, since the last measurement; `None`
    /// while the present one is younger than [`WINDOW`].
    #[inline]
    pub(super) fn measure(&mut self, now: Time) -> Option<u32> {
        if now.since(self.began) < WINDOW {
            return None;
        }
        self.end_window(now)
    }

    #[cold]
    fn end_window(&mut self, now: Time) -> Option<u32> {
        let cpu = thread_cpu_ns();
        let before = self.cpu_at_begin.replace(cpu);
        let passed = now.since(std::mem::replace(&mut self.began, now));
        let busy = cpu.saturating_sub(before?) / passed.max(1);
        Some(busy.min(1000) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses CPU time for at least this number of nanoseconds.
    fn compute(ns: u64) {
        let until = thread_cpu_ns() + ns;
        while thread_cpu_ns() < until {}
    }

    #[test]
    fn the_share_of_a_window() {
        let begin = Time(1_000_000);
        let mut meter = BusyMeter::new(begin);
        assert_eq!(meter.measure(begin.after(WINDOW - 1)), None);
        assert_eq!(meter.measure(begin.after(WINDOW)), None, "the first window");
        compute(10_000_000);
        let busy = meter.measure(begin.after(2 * WINDOW)).expect("a window");
        assert!((20..200).contains(&busy), "10 ms of 500 ms, not {busy}");
        let busy = meter.measure(begin.after(200 * WINDOW)).expect("a window");
        assert!(busy < 20, "the thread slept, not {busy}");
    }
}
