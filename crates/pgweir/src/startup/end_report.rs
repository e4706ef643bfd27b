//! The thread of a worker, and its report to the control thread when it ends.

use std::thread;

use crossbeam_channel::Sender;
use pgweir_core::WorkerId;

use crate::{control::Request, net::Driver};

/// Reports to the control thread how a worker ended, even after a panic.
pub(super) struct EndReport {
    pub(super) worker: WorkerId,
    pub(super) control: Sender<Request>,
    pub(super) error: Option<String>,
}

impl Drop for EndReport {
    fn drop(&mut self) {
        let panicked = thread::panicking().then(|| "panic, see standard error".to_owned());
        let error = self.error.take().or(panicked);
        // The control thread no longer receives when the process is about to exit.
        let _ = self.control.send(Request::Ended {
            worker: self.worker,
            error,
        });
    }
}

/// Runs a worker until it ends.
pub(super) fn work(mut driver: Driver, mut end_report: EndReport) {
    end_report.error = driver.run().err().map(|error| error.to_string());
}
