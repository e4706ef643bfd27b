//! Workers that begin or cease to take part, and clients that move between workers.

use pgweir_core::{Token, WorkerId, frontend::MovedClient, mail::Mail};

use super::{
    World,
    driver::{Call, Conn, Posted, sense},
};
use crate::checks::Violation;

impl World {
    /// A worker reports a load, or the number of workers that take part changes, whatever their loads are.
    pub(super) fn change_load(&mut self) -> Result<(), Violation> {
        if self.moves_rng.bool() {
            let active = self.moves_rng.usize(1..=self.hosts.len());
            self.directory.worker_loads().set_active(active);
            self.mail_to_all(|| Mail::ActiveWorkersChanged);
            return Ok(());
        }
        let host = self.moves_rng.usize(..self.hosts.len());
        let busy = self.moves_rng.u32(..=1000);
        // By then, the loads show the effect of the last change.
        self.now = self.now.after(self.moves_rng.u64(..200_000));
        let driver = &mut self.hosts[host];
        if driver.stopped {
            return Ok(());
        }
        driver
            .worker
            .mail(Mail::Busy(busy), self.now, &mut driver.actions);
        self.execute(host, Call::default())
    }

    /// Passes a client on to another worker.
    pub(super) fn move_client(
        &mut self,
        host: usize,
        conn: Token,
        to: WorkerId,
        client: Box<MovedClient>,
    ) -> Result<(), Violation> {
        let Some(Conn::Open(mut open)) = self.hosts[host].table.remove(&conn) else {
            return Err(sense("moves a client that is not connected"));
        };
        open.hang_up_was_reported = false;
        self.count("client moves");
        self.post(host, to.index(), Posted::MovedClient { client, open });
        Ok(())
    }
}
