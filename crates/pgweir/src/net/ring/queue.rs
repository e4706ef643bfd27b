//! The queues of io_uring that the process and the kernel share, and the calls of the kernel about them.
//!
//! Input: requests. Output: completions, in the order in which the kernel has reported them.

use std::{collections::VecDeque, io};

use io_uring::{EnterFlags, IoUring, Submitter, cqueue, opcode, squeue, types};

use super::request::{Completion, sent};

/// The number of requests that can be queued before they are submitted.
const REQUESTS: u32 = 1024;
/// The number of completions that fit into the ring. The kernel keeps more of them elsewhere.
const COMPLETIONS: u32 = 8192;
/// The bytes of memory that these queues share with the kernel.
pub(super) const QUEUE_BYTES: usize = REQUESTS as usize * size_of::<squeue::Entry>()
    + COMPLETIONS as usize * size_of::<cqueue::Entry>();
/// The largest number of times that a wait asks for completions that the kernel has not reported yet.
pub(super) const ROUNDS_MAX: u32 = 256;

/// The queues of one ring.
pub(super) struct Queue {
    ring: IoUring,
    /// The completions that were not processed yet.
    pub(super) completions: VecDeque<Completion>,
    /// The results of sends, by index in the outbox, that were not processed yet.
    pub(super) sent: Vec<(u32, i32)>,
    /// Flags of each call. A wait for sockets is no wait for disks: the system's statistics of waits must not count it.
    enter_flags: EnterFlags,
    /// Whether requests can be submitted. Only the thread that enables the ring may do so.
    enabled: bool,
    /// Whether no call may be made any more.
    is_abandoned: bool,
    /// The error of the last call, until the next wait reports it.
    pub(super) failed: Option<io::Error>,
    /// Whether the kernel had no memory for a completion.
    has_lost: bool,
}

impl Queue {
    /// Creates the queues, for the thread that calls [`wait`](Self::wait) first.
    ///
    /// # Errors
    /// When the kernel lacks a feature, forbids io_uring, or is short of memory.
    pub(super) fn new() -> io::Result<Self> {
        // A kernel that accepts these flags (6.1) has all features that are used here, except those that `probe`
        // checks.
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_r_disabled()
            .setup_cqsize(COMPLETIONS)
            .dontfork()
            .build(REQUESTS)?;
        let submitter = ring.submitter();
        let params = ring.params();
        let mut known = io_uring::Probe::new();
        submitter.register_probe(&mut known)?;
        let codes = [
            opcode::PollAdd::CODE,
            opcode::RecvMulti::CODE,
            opcode::Send::CODE,
            opcode::AsyncCancel::CODE,
        ];
        let has_all = codes.into_iter().all(|code| known.is_supported(code))
            && params.is_feature_ext_arg()
            && params.is_feature_nodrop()
            && params.is_feature_skip_cqe_on_success();
        if !has_all {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let enter_flags = match params.is_feature_no_iowait() {
            true => EnterFlags::NO_IOWAIT,
            false => EnterFlags::empty(),
        };
        Ok(Self {
            ring,
            enter_flags,
            completions: VecDeque::new(),
            sent: Vec::new(),
            enabled: false,
            is_abandoned: false,
            failed: None,
            has_lost: false,
        })
    }

    pub(super) fn submitter(&self) -> Submitter<'_> {
        self.ring.submitter()
    }

    /// Submits all requests, and waits for a completion.
    ///
    /// # Errors
    /// When the kernel is short of memory, or has lost a completion.
    pub(super) fn wait(&mut self, timeout_us: Option<u64>) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        self.reap();
        let want = usize::from(self.completions.is_empty() && timeout_us != Some(0));
        self.enter(want, timeout_us)?;
        self.reap();
        // Everything that has arrived before the wait is reported by it.
        let mut rounds = 0;
        while self.has_more() && rounds < ROUNDS_MAX {
            self.enter(0, None)?;
            self.reap();
            rounds += 1;
        }
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Cancels all requests.
    ///
    /// # Errors
    /// When the kernel does not do that. Everything that it has completed before is among the completions.
    pub(super) fn cancel_all(&mut self) -> io::Result<()> {
        let cancelled = self.try_cancel_all();
        // Completions lie in shared memory, also those of calls that have failed.
        self.reap();
        cancelled
    }

    /// Makes no call any more, so that requests which are still queued are never submitted.
    pub(super) fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    fn try_cancel_all(&mut self) -> io::Result<()> {
        if self.is_abandoned {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if !self.enabled {
            return Ok(());
        }
        // Queued requests are submitted first, else they would outlast the cancellation.
        self.enter(0, None)?;
        let submitter = self.ring.submitter();
        match submitter.register_sync_cancel(None, types::CancelBuilder::any()) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {
                return Err(error);
            }
            _ => {}
        }
        self.enter(0, None)
    }

    /// Returns whether the kernel had no memory for a completion, which may have reported bytes.
    pub(super) fn has_lost_completions(&mut self) -> bool {
        self.has_lost || self.ring.submission().cq_overflow()
    }

    /// Queues a request.
    #[allow(unsafe_code, reason = "the kernel trusts the addresses in a request")]
    pub(super) fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: only sends have an address of memory; receives use the registered buffers. The kernel uses a send's
        // memory during the call that submits it, and the outbox does not change that memory before the result is known.
        if unsafe { self.ring.submission().push(entry) }.is_ok() {
            return;
        }
        self.submit();
        // SAFETY: as above.
        if unsafe { self.ring.submission().push(entry) }.is_err() && self.failed.is_none() {
            self.failed = Some(io::ErrorKind::OutOfMemory.into());
        }
    }

    /// Submits the queued requests.
    pub(super) fn submit(&mut self) {
        if self.enabled
            && let Err(error) = self.enter(0, None)
        {
            self.failed = Some(error);
        }
    }

    /// Submits the queued requests, lets the kernel complete what it can, and waits for `want` completions.
    pub(super) fn enter(&mut self, want: usize, timeout_us: Option<u64>) -> io::Result<()> {
        let patience = timeout_us.filter(|_| want > 0).map(|us| {
            types::Timespec::new()
                .sec(us / 1_000_000)
                .nsec((us % 1_000_000) as u32 * 1000)
        });
        let args = types::SubmitArgs::new();
        let args = match &patience {
            Some(patience) => args.timespec(patience),
            None => args,
        };
        let submitter = self.ring.submitter();
        match submitter.submit_with_args_and_flags(want, &args, self.enter_flags) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // A signal ends a wait, too. The process may have been stopped for long, so what arrived is reported before
                // the caller checks its deadlines.
                Some(libc::EINTR) if want > 0 => self.enter(0, None),
                // With too many completions, those are taken first.
                Some(libc::EINTR | libc::ETIME | libc::EBUSY) => Ok(()),
                code => {
                    self.has_lost |= code == Some(libc::EBADR);
                    Err(error)
                }
            },
        }
    }

    /// Takes the completions that the kernel has reported.
    pub(super) fn reap(&mut self) {
        for entry in self.ring.completion() {
            match sent(entry.user_data()) {
                Some(index) => self.sent.push((index, entry.result())),
                None => self.completions.push_back(Completion {
                    data: entry.user_data(),
                    result: entry.result(),
                    flags: entry.flags(),
                }),
            }
        }
    }

    fn has_more(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }
}
