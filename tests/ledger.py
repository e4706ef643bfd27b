"""Load with a ledger: clients record the outcome of each transaction, and in the end the tables must agree with these
records.

A transaction writes two rows. It is acknowledged when its COMMIT was answered, unknown when the connection broke or an error
came while COMMIT was under way, and refused when it failed before. Acknowledged ones must be there once and whole, unknown
ones may be, refused ones must not be.
"""

import asyncio
import contextlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import psycopg

TABLE = "CREATE TABLE IF NOT EXISTS ledger (who int, n int, part int)"
ROWS = "SELECT who, n, array_agg(part ORDER BY part) FROM ledger GROUP BY who, n"
SETTER = "SET app.tenant = %s"
# Seconds until a client whose login failed tries again.
RETRY = 0.1
# Seconds after which a client that gets no answer closes its connection, as a user would.
PATIENCE = 60


@dataclass
class Difference:
    """The differences between the tables and the answers that clients have received."""

    lost: set = field(default_factory=set)
    doubled: set = field(default_factory=set)
    torn: set = field(default_factory=set)
    ghosts: set = field(default_factory=set)

    def count(self):
        return len(self.lost) + len(self.doubled) + len(self.torn) + len(self.ghosts)

    def __str__(self):
        return (f"{len(self.lost)} lost, {len(self.doubled)} doubled, {len(self.torn)} torn,"
                f" {len(self.ghosts)} refused but there")


def where_and_why(where, error):
    return where, getattr(error, "sqlstate", None) or type(error).__name__


class Load:
    """Clients in a thread of their own: busy ones that write, and idle ones with session state.

    `connect` are psycopg's arguments. Half of the busy clients write in a transaction block, half in one message.
    `pause` is how long a client thinks between two transactions, in seconds. Idle clients have a setting and a prepared
    statement, the last `listening` of them listen as well. `setter` is the statement that sets; a text for `%s` is its argument.
    """

    def __init__(self, busy=100, idle=0, listening=0, pause=0.0, state=True, setter=SETTER, patience=PATIENCE, **connect):
        self._connect = {"autocommit": True, "prepare_threshold": None, "connect_timeout": 30} | connect
        self._busy, self._pause, self._state, self._patience = busy, pause, state, patience
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stop = asyncio.Event()
        self._work, self._idle, self._asked = [], [], []
        self._setter = setter
        self._wanted_idle, self._silent = idle, idle - listening
        self.acknowledged, self.unknown, self.refused = set(), set(), set()
        self.errors, self.answered = Counter(), []
        self._last, self._began = {}, time.monotonic()

    def _run(self, coroutine, seconds=120):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(seconds)

    # -- the thread that tests run in

    def __enter__(self):
        self._run(self._start())
        return self

    def __exit__(self, *_):
        self.stop()
        self._run(self._leave())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def stop(self):
        """Lets each busy client end its transaction, and leave."""
        self._run(self._end(), self._patience + 60)

    def ask(self, share=0.5):
        """Makes this share of the idle clients query their setting, without waiting for the answers."""
        self._run(self._ask(share))

    def failed_waiting(self):
        """Waits for the answers of the clients that `ask` has started. Returns the errors of those that got no answer.
        """
        return self._run(self._answers(), self._patience + 60)

    def failed_idle(self):
        """Each idle client uses its session; returns the errors of those that don't listen."""
        return self._run(self._use_sessions(range(self._silent)))

    def failed_listening(self, notify):
        """The same for those that listen; `notify` sends a notification on channel `c` past the pooler."""
        errors = self._run(self._use_sessions(range(self._silent, self._wanted_idle)))
        notified = asyncio.run_coroutine_threadsafe(self._notified(), self._loop)
        notify()
        return errors + notified.result(60)

    def first_after(self, moment):
        """Returns the time of the first transaction that was acknowledged after this moment, or None."""
        return min((at for at in list(self.answered) if at > moment), default=None)

    def last_before(self, moment):
        return max((at for at in list(self.answered) if at <= moment), default=moment)

    def silent_for(self):
        """Returns the seconds since a transaction was last acknowledged."""
        return time.monotonic() - (self.answered[-1] if self.answered else self._began)

    def all_since(self, moment):
        """Returns whether each busy client has had a transaction acknowledged since this moment."""
        return len(self._last) == self._busy and min(self._last.values()) > moment

    def longest_pause(self, since):
        """Returns the longest time since this moment in which no transaction was acknowledged."""
        times = [since, *(at for at in list(self.answered) if at > since)]
        return max((later - earlier for earlier, later in zip(times, times[1:])), default=time.monotonic() - since)

    def difference(self, rows):
        """Compares the ledger with the result of ROWS, after all clients have stopped."""
        found = {(who, n): parts for who, n, parts in rows}
        return Difference(
            lost=self.acknowledged - found.keys(),
            doubled={key for key, parts in found.items() if len(parts) != len(set(parts))},
            torn={key for key, parts in found.items() if set(parts) != {1, 2}},
            ghosts=self.refused & found.keys() - self.unknown)

    def errors_by_place(self):
        """Returns the number of clients' errors, by step: `login`, `transaction`, `commit`."""
        places = Counter()
        for (place, _), count in self.errors.items():
            places[place] += count
        return places

    # -- the clients' thread

    async def _start(self):
        self._idle = [await self._new_idle(number) for number in range(self._wanted_idle)]
        self._work = [asyncio.create_task(self._write(who)) for who in range(self._busy)]

    async def _new_idle(self, number):
        client = await psycopg.AsyncConnection.connect(application_name=f"idle {number}", **self._connect)
        if self._state:
            await client.execute(self._setter.replace("%s", f"'tenant {number}'"))
            await client.execute(f"PREPARE mine AS SELECT {number}")
            if number >= self._silent:
                await client.execute("LISTEN c")
        else:
            await client.execute("SELECT 1")
        return client

    async def _end(self):
        self._stop.set()
        await asyncio.gather(*self._work)

    async def _leave(self):
        for client in self._idle:
            await client.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _paused(self, seconds):
        if seconds == 0:
            return self._stop.is_set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
        return self._stop.is_set()

    async def _write(self, who):
        client, n = None, 0
        while not self._stop.is_set():
            if client is None:
                client = await self._login()
                if client is None:
                    await self._paused(RETRY)
                    continue
            if not await self._transaction(client, who, n):
                await client.close()
                client = None
            n += 1
            await self._paused(self._pause)
        if client is not None:
            await client.close()

    async def _login(self):
        try:
            return await psycopg.AsyncConnection.connect(**self._connect)
        except psycopg.Error as error:
            self.errors[where_and_why("login", error)] += 1
            return None

    async def _transaction(self, client, who, n):
        """Returns whether the connection can be used again."""
        key, place, told = (who, n), "transaction", self.refused
        part = f"INSERT INTO ledger VALUES ({who}, {n}, %d);"
        try:
            async with asyncio.timeout(self._patience):
                if who % 2:
                    place, told = "commit", self.unknown
                    await client.execute(part % 1 + part % 2)
                else:
                    for sql in ("BEGIN", part % 1, part % 2):
                        await client.execute(sql)
                    place, told = "commit", self.unknown
                    await client.execute("COMMIT")
        except (psycopg.Error, TimeoutError) as error:
            self.errors[where_and_why(place, error)] += 1
            told.add(key)
            return isinstance(error, psycopg.Error) and not client.closed and await self._rolled_back(client)
        self.acknowledged.add(key)
        self._last[key[0]] = time.monotonic()
        self.answered.append(self._last[key[0]])
        return True

    async def _rolled_back(self, client):
        try:
            async with asyncio.timeout(self._patience):
                await client.rollback()
        except (psycopg.Error, TimeoutError):
            return False
        return True

    async def _ask(self, share):
        asking = self._idle[:round(share * self._silent)]
        self._asked = [asyncio.create_task(self._own_setting(client, number)) for number, client in enumerate(asking)]

    async def _answers(self):
        return [problem for problem in await asyncio.gather(*self._asked) if problem]

    async def _own_setting(self, client, number):
        """Returns a description of the mismatch, or None."""
        return await self._expect(client, "SHOW app.tenant" if self._state else "SELECT 'x'",
                                  f"tenant {number}" if self._state else "x")

    async def _expect(self, client, sql, value):
        try:
            async with asyncio.timeout(self._patience):
                (found,) = await (await client.execute(sql)).fetchone()
        except (psycopg.Error, TimeoutError) as error:
            return f"{sql}: {getattr(error, 'sqlstate', None)} {error}".strip()
        return None if found == value else f"{sql}: {found}"

    async def _use_sessions(self, numbers):
        async def use(client, number):
            problem = await self._own_setting(client, number)
            if problem is None and self._state:
                problem = await self._expect(client, "EXECUTE mine", number)
            return problem
        problems = await asyncio.gather(*(use(self._idle[number], number) for number in numbers))
        return [problem for problem in problems if problem]

    async def _notified(self):
        async def is_notified(client):
            try:
                async with asyncio.timeout(10):
                    async for notification in client.notifies():
                        if notification.channel == "c":
                            return None
            except (psycopg.Error, TimeoutError) as error:
                return f"LISTEN: {type(error).__name__}"
            return "LISTEN: ended"
        problems = await asyncio.gather(*(is_notified(client) for client in self._idle[self._silent:] if not client.closed))
        return [problem for problem in problems if problem]
