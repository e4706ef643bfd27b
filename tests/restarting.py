"""A pooler that is restarted while it serves."""


class Line:
    """A pooler that is restarted: `pooler.process` is always the process that has the clients."""

    def __init__(self, pooler):
        self.pooler = pooler

    def restart(self, *flags):
        """Starts `pgweir -R`. Returns the old process, which ends when its clients have moved."""
        old = self.pooler.process
        self.pooler.spawn("-R", *flags)
        return old

    def done(self, old, seconds=30):
        assert old.wait(seconds) == 0, self.pooler.log_tail()
        assert self.pooler.alive(), self.pooler.log_tail()

    def new_process_dies(self, old):
        """Kills the new process before it has taken over: the old one goes on."""
        self.pooler.process.kill()
        self.pooler.process.wait()
        self.pooler.process = old
        self.pooler.expect_log("online restart failed")

    def full(self):
        self.done(self.restart())
