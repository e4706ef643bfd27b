"""Many psycopg clients, each of which checks its answers. See ../README.md."""

import asyncio
import json
import random
import sys

import psycopg
from psycopg import errors
from psycopg.rows import scalar_row

answers = kept = 0


def same(expected, heard):
    global answers
    answers += 1
    assert expected == heard, f"expected {expected!r:.100}, heard {heard!r:.100}"


class Client:
    """A connection that prepares statements from the first execution on."""

    def __init__(self, number, where):
        self.number, self.where = number, where
        self.dice = random.Random(number)
        self.db = None

    async def run(self, rounds):
        scenarios = [self.own_statement, self.shared_texts, self.types, self.errors, self.pipeline,
                     self.broken_pipeline, self.pipeline_of_syncs, self.transaction, self.copy,
                     self.large, self.cursor, self.cancel, self.terminate]
        async with await psycopg.AsyncConnection.connect(
                **self.where, autocommit=True, prepare_threshold=0, row_factory=scalar_row) as self.db:
            if self.number % 3 == 1:  # fewer than the number of texts, so that the driver deallocates statements, too
                self.db.prepared_max = 6
            for at in range(rounds):
                for scenario in self.dice.sample(scenarios, len(scenarios)):
                    try:
                        await scenario(at)
                    except Exception as error:
                        error.add_note(f"client {self.number}, {scenario.__name__}, round {at}")
                        raise

    async def value(self, sql, *values):
        cursor = await self.db.execute(sql, values or None)
        return await cursor.fetchone()

    async def fails(self, expected, sql, *values):
        try:
            heard = await self.value(sql, *values)
        except psycopg.Error as error:
            heard = type(error)
        same(expected, heard)

    async def own_statement(self, at):
        """The driver names it _pg3_n as everybody's, and each one's text is its own."""
        sql = f"SELECT 'client {self.number}.{at // 2}, ' || %s::int || ', ' || %s::text"
        for n in range(5):
            same(f"client {self.number}.{at // 2}, {n}, r{at}", await self.value(sql, n, f"r{at}"))

    async def shared_texts(self, at):
        """All clients use the same texts, in their own order and under their own names."""
        for n in self.dice.sample(range(24), 24):
            word = f"{self.number}-{self.dice.random()}"
            same(f"text {n}, {word}", await self.value(f"SELECT 'text {n}, ' || %s::text", word))

    async def types(self, at):
        """The same text with parameters of several types is several statements."""
        sql = f"SELECT pg_typeof(%s) || ' client {self.number % 7}'"
        for value, name in ((1, "smallint"), (1 << 20, "integer"), (1 << 40, "bigint"),
                            (1.5, "double precision"), (True, "boolean")):
            same(f"{name} client {self.number % 7}", await self.value(sql, value))

    async def errors(self, at):
        divide = "SELECT 100 / %s::int"
        same(25, await self.value(divide, 4))
        await self.fails(errors.DivisionByZero, divide, 0)
        same(20, await self.value(divide, 5))
        await self.fails(errors.SyntaxError, "SELEKT %s::int", 1)
        await self.fails(errors.UndefinedTable, f"SELECT word FROM missing_{self.number} WHERE %s", True)
        same(10, await self.value(divide, 10))

    async def pipeline(self, at):
        async with self.db.pipeline() as pipeline:
            asked = []
            for n in range(20):
                word = f"{self.number}-{at}-{n}"
                cursor = await self.db.execute(f"SELECT 'piped {n % 7}, ' || %s::text", (word,))
                asked.append((f"piped {n % 7}, {word}", cursor))
            await pipeline.sync()
            for expected, cursor in asked:
                same(expected, await cursor.fetchone())

    async def broken_pipeline(self, at):
        """Statements behind the error are not run, and statements before it are undone."""
        insert = "INSERT INTO driver_rows VALUES (%s, %s, 'lost')"
        try:
            async with self.db.pipeline():
                await self.db.execute(insert, (self.number, at))
                await self.db.execute("SELECT 1 / %s::int", (0,))
                await self.db.execute(insert, (self.number, at))
            heard = None
        except psycopg.Error as error:
            heard = type(error)
        same(errors.DivisionByZero, heard)
        count = "SELECT count(*) FROM driver_rows WHERE client = %s AND word = 'lost'"
        same(0, await self.value(count, self.number))

    async def pipeline_of_syncs(self, at):
        """Each part ends by itself: an error in one is none in the next."""
        async with self.db.pipeline() as pipeline:
            for n in range(6):
                if n % 3 == 2:
                    await self.db.execute("SELECT 1 / %s::int", (0,))
                    try:
                        await pipeline.sync()
                        heard = None
                    except psycopg.Error as error:
                        heard = type(error)
                    same(errors.DivisionByZero, heard)
                else:
                    cursor = await self.db.execute("SELECT %s::int + 1", (n,))
                    await pipeline.sync()
                    same(n + 1, await cursor.fetchone())

    async def transaction(self, at):
        global kept
        who = "SELECT pg_backend_pid()"
        try:
            async with self.db.transaction():
                backend = await self.value(who)
                for _ in range(3):
                    await self.db.execute("INSERT INTO driver_rows VALUES (%s, %s, 'kept')",
                                          (self.number, at))
                    same(backend, await self.value(who))
                if self.dice.random() < 0.5:
                    await self.fails(errors.DivisionByZero, "SELECT 1 / %s::int", 0)
                    await self.fails(errors.InFailedSqlTransaction, who)
                    raise psycopg.Rollback
                kept += 3
        except psycopg.Rollback:
            pass

    async def copy(self, at):
        global kept
        into = "COPY driver_rows FROM STDIN"
        async with self.db.cursor() as cursor:
            async with cursor.copy(into) as copy:
                for n in range(200):
                    await copy.write_row((self.number, at, f"copied {n}"))
            same(200, cursor.rowcount)
            kept += 200
            try:
                async with cursor.copy(into) as copy:
                    await copy.write("1\tmany\tx\n")
                heard = None
            except psycopg.Error as error:
                heard = type(error)
            same(errors.InvalidTextRepresentation, heard)
            out = (f"COPY (SELECT word FROM driver_rows WHERE client = {self.number} AND round = {at}"
                   " AND word LIKE 'copied %') TO STDOUT")
            async with cursor.copy(out) as copy:
                words = {word async for (word,) in copy.rows()}
            same({f"copied {n}" for n in range(200)}, words)

    async def large(self, at):
        word = f"{self.number:04}"
        same(word * 100_000, await self.value("SELECT repeat(%s::text, %s::int)", word, 100_000))
        cursor = await self.db.execute("SELECT %s::text || n FROM generate_series(1, %s::int) n", (word, 3000))
        same([f"{word}{n}" for n in range(1, 3001)], await cursor.fetchall())

    async def cursor(self, at):
        async with self.db.transaction(), self.db.cursor("mine", row_factory=scalar_row) as cursor:
            cursor.itersize = 7
            await cursor.execute("SELECT n + %s::int FROM generate_series(1, 40) n", (self.number,))
            same([n + self.number for n in range(1, 41)], [n async for n in cursor])

    async def cancel(self, at):
        """In a transaction, so that the client has a server to be canceled on."""
        if self.number % 5 or at:
            return
        async with self.db.transaction(force_rollback=True):
            await self.value("SELECT 1")
            asked = asyncio.create_task(self.fails(errors.QueryCanceled, "SELECT pg_sleep(%s)", 60))
            while not (await asyncio.wait([asked], timeout=0.1))[0]:
                await self.db.cancel_safe()  # it may not have begun: ask again
            await asked
        try:
            await self.value("SELECT 1")
        except errors.QueryCanceled:
            pass  # hit by a late request
        same("calm", await self.value("SELECT %s::text", "calm"))

    async def terminate(self, at):
        """Another connection ends this one, by the pid that the driver knows."""
        if self.number % 5 != 1 or at:
            return
        async with await psycopg.AsyncConnection.connect(**self.where, autocommit=True) as other:
            await self.value("SELECT pg_terminate_backend(%s)", other.info.backend_pid)
            try:
                heard = await (await other.execute("SELECT 1")).fetchone()
            except psycopg.OperationalError as error:
                heard = type(error)
            same((errors.AdminShutdown, True), (heard, other.closed))


async def main(host, port, user, dbname, clients, rounds):
    where = {"host": host, "port": port, "user": user, "dbname": dbname, "sslmode": "disable"}
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
