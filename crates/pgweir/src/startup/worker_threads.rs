//! The workers' threads: what they share, and their start.
//!
//! Input: the parts of the process, and the directory. Output: running threads.

use std::{io, sync::Arc, thread};

use crossbeam_channel::Sender;
use pgweir_config::Settings;
use pgweir_core::{Directory, Level, Worker, WorkerId, console, shared::events::EventKind};

use super::{
    end_report::{EndReport, work},
    io_driver,
};
use crate::{
    clock::Clock,
    control::{Request, Resolver, SlowWork},
    http,
    log::{Log, LogBuffer},
    net::{Driver, DriverDependencies, Listeners, Load, Mailboxes, NetOptions, Ring},
    otlp::TraceQueue,
    takeover::Outgoing,
};

/// The state that all workers share.
pub(super) struct WorkerThreads {
    pub(super) clock: Clock,
    pub(super) listeners: Arc<Listeners>,
    pub(super) load: Load,
    pub(super) mailboxes: Mailboxes,
    pub(super) options: Arc<NetOptions>,
    pub(super) resolver: Arc<Resolver>,
    pub(super) slow_work: SlowWork,
    pub(super) control: Sender<Request>,
    pub(super) departures: Sender<Outgoing>,
    pub(super) traces: TraceQueue,
    pub(super) log: Log,
}

impl WorkerThreads {
    /// Starts one thread per worker, and logs it. All drivers are created first, so that a shortage of descriptors shows
    /// before any of them runs.
    pub(super) fn start(
        &self,
        directory: &Arc<Directory>,
        lines: &mut LogBuffer,
    ) -> Result<Vec<thread::JoinHandle<()>>, io::Error> {
        let count = self.mailboxes.workers().count();
        let rings = self.rings(directory, lines);
        let driver = if rings.is_empty() {
            "epoll"
        } else {
            "io_uring"
        };
        let up = format!(
            "process up: {}, {driver}, {count} workers",
            console::VERSION
        );
        let mut rings = rings.into_iter().map(Box::new);
        let drivers = self
            .mailboxes
            .workers()
            .map(|id| {
                Ok((
                    id,
                    Driver::new(
                        Worker::new(id, Arc::clone(directory)),
                        self.driver_dependencies(id, directory, rings.next()),
                    )?,
                ))
            })
            .collect::<io::Result<Vec<_>>>()?;
        // The event comes before those of the first clients, which the workers serve at once.
        directory.note_event(EventKind::Started, ("", ""), &up, self.clock.now());
        let threads: io::Result<Vec<_>> = drivers
            .into_iter()
            .map(|(id, driver)| {
                let end_report = EndReport {
                    worker: id,
                    control: self.control.clone(),
                    error: None,
                };
                let builder = thread::Builder::new().name(format!("worker-{}", id.0));
                builder.spawn(move || work(driver, end_report))
            })
            .collect();
        let threads = threads?;
        lines.say(self.clock.now(), Level::Log, up);
        Ok(threads)
    }

    pub(super) fn into_http_dependencies(self, directory: &Arc<Directory>) -> http::Dependencies {
        http::Dependencies::new(
            directory,
            (&self.mailboxes, &self.load),
            &self.resolver,
            self.clock,
            (&self.log, &self.control),
            &self.traces,
        )
    }

    /// Returns one ring for each worker, or none, as the configuration and the kernel want it.
    fn rings(&self, directory: &Directory, lines: &mut LogBuffer) -> Vec<Ring> {
        let snapshot = directory.snapshot();
        let settings = &snapshot.config.settings;
        let workers = self.mailboxes.workers().count();
        let buffers = buffer_count(settings);
        let counts = &directory.occupancies().rings;
        let choice = io_driver::choose(settings.io_driver, workers, || Ring::new(buffers, counts));
        if let Some((level, text)) = choice.line {
            lines.say(self.clock.now(), level, text);
        }
        choice.rings
    }

    fn driver_dependencies(
        &self,
        id: WorkerId,
        directory: &Directory,
        ring: Option<Box<Ring>>,
    ) -> DriverDependencies {
        let snapshot = directory.snapshot();
        let settings = &snapshot.config.settings;
        DriverDependencies {
            id,
            clock: self.clock,
            listeners: Arc::clone(&self.listeners),
            load: self.load.clone(),
            mailboxes: self.mailboxes.clone(),
            options: Arc::clone(&self.options),
            resolver: Arc::clone(&self.resolver),
            slow_work: self.slow_work.clone(),
            control: self.control.clone(),
            departures: self.departures.clone(),
            traces: self.traces.clone(),
            log: self.log.buffer(),
            ring,
            memory: Arc::clone(directory.memory()),
            read_buffer: settings.read_buffer as usize,
            random: rand::make_rng(),
        }
    }
}

/// Returns the number of buffers of a ring: `io_uring_buffers`, rounded up to a power of two.
fn buffer_count(settings: &Settings) -> u16 {
    let power = settings.io_uring_buffers.next_power_of_two();
    u16::try_from(power).unwrap_or(1 << 15)
}
