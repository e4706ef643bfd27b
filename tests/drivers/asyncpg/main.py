"""Many asyncpg clients, each of which checks its answers. See ../README.md."""

import asyncio
import io
import json
import random
import sys

import asyncpg

answers = kept = 0


def same(expected, heard):
    global answers
    answers += 1
    assert expected == heard, f"expected {expected!r:.100}, heard {heard!r:.100}"


class Client:
    """A connection with asyncpg's cache of prepared statements."""

    def __init__(self, number, where):
        self.number, self.where = number, where
        self.dice = random.Random(number)
        self.db = None

    async def run(self, rounds):
        scenarios = [self.own_statement, self.shared_texts, self.errors, self.many, self.broken_many,
                     self.transaction, self.copy, self.large, self.cursor, self.cancel, self.terminate]
        # Fewer than the number of texts, so that the driver closes statements, too.
        size = 6 if self.number % 3 == 1 else 100
        self.db = await asyncpg.connect(**self.where, statement_cache_size=size)
        try:
            for at in range(rounds):
                for scenario in self.dice.sample(scenarios, len(scenarios)):
                    try:
                        await scenario(at)
                    except Exception as error:
                        error.add_note(f"client {self.number}, {scenario.__name__}, round {at}")
                        raise
        finally:
            await self.db.close()

    async def fails(self, expected, asked):
        try:
            heard = await asked
        except asyncpg.PostgresError as error:
            heard = type(error)
        same(expected, heard)

    async def own_statement(self, at):
        """The driver names it __asyncpg_stmt_n__ as everybody's, and each one's text is its own."""
        statement = await self.db.prepare(
            f"SELECT 'client {self.number}.{at // 2}, ' || $1::int || ', ' || $2::text")
        for n in range(5):
            same(f"client {self.number}.{at // 2}, {n}, r{at}", await statement.fetchval(n, f"r{at}"))

    async def shared_texts(self, at):
        """All clients use the same texts, in their own order and under their own names."""
        for n in self.dice.sample(range(24), 24):
            word = f"{self.number}-{self.dice.random()}"
            same(f"text {n}, {word}", await self.db.fetchval(f"SELECT 'text {n}, ' || $1::text", word))

    async def errors(self, at):
        divide = "SELECT 100 / $1::int"
        same(25, await self.db.fetchval(divide, 4))
        await self.fails(asyncpg.DivisionByZeroError, self.db.fetchval(divide, 0))
        same(20, await self.db.fetchval(divide, 5))
        await self.fails(asyncpg.PostgresSyntaxError, self.db.fetchval("SELEKT $1::int", 1))
        await self.fails(asyncpg.UndefinedTableError,
                         self.db.fetchval(f"SELECT word FROM missing_{self.number}"))
        same(10, await self.db.fetchval(divide, 10))

    async def many(self, at):
        """One Parse, many Binds and one Sync."""
        global kept
        rows = [(self.number, at, f"many {n}") for n in range(20)]
        await self.db.executemany("INSERT INTO driver_rows VALUES ($1, $2, $3)", rows)
        kept += 20
        same(20, await self.db.fetchval(
            "SELECT count(*) FROM driver_rows WHERE client = $1 AND round = $2 AND word LIKE 'many %'",
            self.number, at))

    async def broken_many(self, at):
        """Statements behind the error are not run, and statements before it are undone."""
        rows = [(self.number, at, int(n != 6)) for n in range(10)]
        await self.fails(asyncpg.DivisionByZeroError, self.db.executemany(
            "INSERT INTO driver_rows VALUES ($1, $2 / $3::int, 'lost')", rows))
        same(0, await self.db.fetchval(
            "SELECT count(*) FROM driver_rows WHERE client = $1 AND word = 'lost'", self.number))

    async def transaction(self, at):
        global kept
        who = "SELECT pg_backend_pid()"
        transaction = self.db.transaction()
        await transaction.start()
        backend = await self.db.fetchval(who)
        for _ in range(3):
            await self.db.execute("INSERT INTO driver_rows VALUES ($1, $2, 'kept')", self.number, at)
            same(backend, await self.db.fetchval(who))
        if self.dice.random() < 0.5:
            await self.fails(asyncpg.DivisionByZeroError, self.db.fetchval("SELECT 1 / $1::int", 0))
            await self.fails(asyncpg.InFailedSQLTransactionError, self.db.fetchval(who))
            await transaction.rollback()
        else:
            await transaction.commit()
            kept += 3

    async def copy(self, at):
        global kept
        rows = [(self.number, at, f"copied {n}") for n in range(200)]
        same("COPY 200", await self.db.copy_records_to_table("driver_rows", records=rows))
        kept += 200
        await self.fails(asyncpg.InvalidTextRepresentationError,
                         self.db.copy_to_table("driver_rows", source=io.BytesIO(b"1\tmany\tx\n")))
        out = io.BytesIO()
        same("COPY 200", await self.db.copy_from_query(
            "SELECT word FROM driver_rows WHERE client = $1 AND round = $2 AND word LIKE 'copied %'",
            self.number, at, output=out))
        same({f"copied {n}" for n in range(200)}, set(out.getvalue().decode().splitlines()))

    async def large(self, at):
        word = f"{self.number:04}"
        same(word * 100_000, await self.db.fetchval("SELECT repeat($1::text, $2::int)", word, 100_000))
        rows = await self.db.fetch("SELECT $1::text || n FROM generate_series(1, $2::int) n", word, 3000)
        same([f"{word}{n}" for n in range(1, 3001)], [value for (value,) in rows])

    async def cursor(self, at):
        """A portal that is read by 7 rows, with another statement between."""
        async with self.db.transaction():
            heard = []
            async for (n,) in self.db.cursor("SELECT n + $1::int FROM generate_series(1, 40) n",
                                             self.number, prefetch=7):
                heard.append(n)
                if n % 10 == 0:
                    same("between", await self.db.fetchval("SELECT $1::text", "between"))
            same([n + self.number for n in range(1, 41)], heard)

    async def cancel(self, at):
        """A timeout in the client: asyncpg sends a cancel request, and waits until it is done."""
        if self.number % 5 or at:
            return
        transaction = self.db.transaction()  # so that the client has a server
        await transaction.start()
        try:
            heard = await self.db.fetchval("SELECT pg_sleep($1)", 60, timeout=0.5)
        except TimeoutError as error:
            heard = type(error)
        same(TimeoutError, heard)
        await transaction.rollback()
        same("calm", await self.db.fetchval("SELECT $1::text", "calm"))

    async def terminate(self, at):
        """Another connection ends this one, by the pid that the driver knows."""
        if self.number % 5 != 1 or at:
            return
        other = await asyncpg.connect(**self.where)
        gone = asyncio.Event()
        other.add_termination_listener(lambda _: gone.set())
        await self.db.execute("SELECT pg_terminate_backend($1)", other.get_server_pid())
        await asyncio.wait_for(gone.wait(), 30)
        same(True, other.is_closed())


async def main(host, port, user, database, clients, rounds):
    where = {"host": host, "port": port, "user": user, "database": database, "ssl": False}
    runs = [Client(number, where).run(int(rounds)) for number in range(int(clients))]
    problems = [p for p in await asyncio.gather(*runs, return_exceptions=True) if p is not None]
    for problem in problems:
        print(*getattr(problem, "__notes__", []), repr(problem), file=sys.stderr)
    print(json.dumps({"answers": answers, "kept": kept}))
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 7:
        sys.exit("usage: main.py HOST PORT USER DBNAME CLIENTS ROUNDS")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
