//! Checks periodically whether a zone's serial has changed, and if so looks up the zone's names again.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::Resolver;

/// Runs until the resolver is dropped. `changed` signals a new period.
pub(super) fn watch(changed: &Receiver<()>, resolver: &Weak<Resolver>) {
    loop {
        let Some(period_us) = resolver.upgrade().map(|resolver| resolver.zone_period_us()) else {
            return;
        };
        let waited = if period_us == 0 {
            changed.recv().map_err(RecvTimeoutError::from)
        } else {
            changed.recv_timeout(Duration::from_micros(period_us))
        };
        match waited {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let Some(resolver) = resolver.upgrade() else {
                    return;
                };
                check(&resolver);
            }
        }
    }
}

fn check(resolver: &Arc<Resolver>) {
    for (zone, old) in resolver.zones() {
        match resolver.source.serial(&zone) {
            Ok(new) if is_newer(old, new) => resolver.zone_changed(&zone, old, new),
            Ok(serial) => resolver.detail(format!("zone '{zone}' unchanged: serial={serial}")),
            Err(error) => {
                resolver.detail(format!("cannot get the serial of zone '{zone}': {error}"))
            }
        }
    }
}

/// Returns whether `new` is later than `old`. Serials wrap around.
fn is_newer(old: u32, new: u32) -> bool {
    (new.wrapping_sub(old) as i32) > 0
}

/// Returns the zone of a host: everything after the first dot.
pub(super) fn zone_of(host: &str) -> Option<&str> {
    let (_, zone) = host.split_once('.')?;
    (!zone.trim_matches('.').is_empty()).then_some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_what_stands_behind_the_first_dot() {
        assert_eq!(zone_of("db.example.test"), Some("example.test"));
        assert_eq!(zone_of("db."), None);
        assert_eq!(zone_of("db"), None);
    }

    #[test]
    fn serials_count_in_a_circle() {
        assert!(is_newer(0, 2_026_112_101));
        assert!(is_newer(u32::MAX, 3));
        assert!(!is_newer(7, 7));
        assert!(!is_newer(8, 7));
    }
}
