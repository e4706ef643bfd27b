//! Handles a server whose parameters have other default values than those that pgweir has reported to the client. The
//! client keeps its values of the parameters that PgBouncer tracks and of those in its startup packet. For all other
//! parameters, pgweir reports the server's values by ParameterStatus, before the server gets any of the client's bytes.

use crate::session::{Context, SettingsTable, Tracked, TrackedNames};

impl Context {
    /// Keeps values that were reported to the client but that the client has not set, if they differ on the next
    /// server. These are values of the parameters that PgBouncer tracks, and of those in the startup packet. From now
    /// on they count as set at login. Returns `false` if there are no such values.
    pub(crate) fn keep_sent_values(
        &mut self,
        names: &TrackedNames,
        sent: &Tracked,
        found: &Tracked,
        settings: &SettingsTable,
    ) -> bool {
        let kept = names
            .respelled(sent, found)
            .filter_map(|(name, sent, found)| {
                let lower = name.to_ascii_lowercase().into_bytes();
                let is_tracked = names.tracked_position(&lower).is_some();
                let value = self.implied.get(&lower).or(is_tracked.then_some(sent))?;
                let is_kept = value != found && self.wanted.get(&lower).is_none();
                is_kept.then(|| (lower, value.to_vec()))
            });
        let kept: Vec<_> = kept.collect();
        if kept.is_empty() {
            return false;
        }
        let kept = settings.intern(kept);
        self.base = settings.overlay(&self.base, &kept);
        self.wanted = settings.overlay(&self.wanted, &kept);
        true
    }

    /// Restores values of the startup packet, after a RESET has replaced them by the server's defaults.
    pub(super) fn restore_startup_values(
        &mut self,
        held: &[(Vec<u8>, Vec<u8>)],
        names: &TrackedNames,
        found: &Tracked,
        settings: &SettingsTable,
    ) {
        let is_lost = |name: &[u8], value: &[u8]| {
            let is_set = held.iter().any(|(set, _)| set == name) || self.base.get(name).is_some();
            !is_set && names.value(found, name).is_some_and(|now| now != value)
        };
        let lost: Vec<_> = self
            .implied
            .iter()
            .filter(|(name, value)| is_lost(name, value))
            .collect();
        if !lost.is_empty() {
            self.base = settings.overlay(&self.base, &settings.intern(lost));
        }
    }
}
