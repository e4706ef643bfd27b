//! The choice between io_uring, with one ring for each worker, and epoll.
//!
//! Input: the setting `io_driver`, and a function that makes a ring. Output: the rings, or a line for the log.

use std::io;

use pgweir_config::IoDriver;
use pgweir_core::Level;

/// The rings, and a line for the log if the kernel refuses them.
#[derive(Debug)]
pub(super) struct Choice<R> {
    /// One ring for each worker, or none: then they use epoll.
    pub(super) rings: Vec<R>,
    pub(super) line: Option<(Level, String)>,
}

/// Makes a ring for each worker if the configuration wants that. If the kernel refuses one of them, none is used.
pub(super) fn choose<R>(
    driver: IoDriver,
    workers: usize,
    mut make: impl FnMut() -> io::Result<R>,
) -> Choice<R> {
    let level = match driver {
        IoDriver::Epoll => {
            return Choice {
                rings: Vec::new(),
                line: None,
            };
        }
        IoDriver::Auto => Level::Log,
        IoDriver::IoUring => Level::Warning,
    };
    match (0..workers).map(|_| make()).collect::<io::Result<Vec<R>>>() {
        Ok(rings) => Choice { rings, line: None },
        Err(error) => Choice {
            rings: Vec::new(),
            line: Some((
                level,
                format!("io_uring is not available ({error}): workers use epoll"),
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that allows so many rings.
    fn kernel(mut allowed: usize) -> impl FnMut() -> io::Result<()> {
        move || match allowed.checked_sub(1) {
            Some(left) => {
                allowed = left;
                Ok(())
            }
            None => Err(rustix::io::Errno::PERM.into()),
        }
    }

    #[test]
    fn a_refusal_is_one_line_and_epoll() {
        for (driver, level) in [
            (IoDriver::Auto, Level::Log),
            (IoDriver::IoUring, Level::Warning),
        ] {
            // The second worker's ring is refused, so the first has none either.
            for allowed in [0, 1] {
                let choice = choose(driver, 2, kernel(allowed));
                assert_eq!(choice.rings.len(), 0);
                let (found, text) = choice.line.expect("a line");
                assert_eq!(found, level);
                assert!(
                    text.starts_with("io_uring is not available (Operation not permitted")
                        && text.ends_with("workers use epoll"),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn each_worker_has_a_ring_where_that_is_allowed() {
        for driver in [IoDriver::Auto, IoDriver::IoUring] {
            let choice = choose(driver, 2, kernel(2));
            assert_eq!(choice.rings.len(), 2);
            assert!(choice.line.is_none());
        }
    }

    #[test]
    fn epoll_asks_for_no_ring() {
        let refuses = || -> io::Result<()> { panic!("a ring was made") };
        let choice = choose(IoDriver::Epoll, 2, refuses);
        assert!(choice.rings.is_empty() && choice.line.is_none());
    }
}
