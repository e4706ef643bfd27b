import random, socket, itertools
import pytest
import rawclient as wire
from rawclient import SYNC, FLUSH, COPY_DONE, copy_data, copy_fail, query, parse, bind, execute, describe, close, function_call
from test_attack import stage, cell, value_of  # noqa

COPY_IN = "COPY plain FROM STDIN"
X = lambda t: parse(t) + bind() + execute()
PIECES = [query("SELECT 'mine'"), query(COPY_IN), query("COPY plain TO STDOUT"), X("SELECT 'mine'"), X(COPY_IN), X("COPY plain TO STDOUT"),
          SYNC, SYNC, FLUSH, COPY_DONE, copy_fail("no"), copy_data(b"1\tone\n"), copy_data(b"bad"), query("SELECT 1/0"), X("SELECT 1/0"), parse("SELEKT"),
          query("BEGIN"), query("COMMIT"), query("ROLLBACK"), X("BEGIN"), X("COMMIT"), query(""), parse("SELECT 'named'", "s"), bind(name="s") + execute(),
          close("S", "s"), describe("S", "s"), describe("P"), bind(name="nope"), query("SELECT 'a'; COPY plain FROM STDIN; SELECT 'b'"),
          query("SELECT 'a'; SELECT 1/0; SELECT 'b'"), function_call(2078, (b"app.x", b"A", b"\0")), function_call(1, ()), query("SET work_mem = '77MB'"),
          X("SET app.x = 'A'"), query("DISCARD ALL"), query("LISTEN x"), query("PREPARE p AS SELECT 1"), query("DEALLOCATE ALL"), execute(portal="no"), execute(1)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(int(__import__("os").environ.get("SEEDS", "4"))))
def test_random(stage, seed):
    one = stage()
    rng = random.Random(seed)
    bad = []
    for n in range(120):
        said = [rng.choice(PIECES) for _ in range(rng.randint(2, 9))]
        client = one.pooled()
        client.query("SELECT 0")
        raw = b"".join(said)
        if rng.random() < 0.5:
            client.send(raw)
        else:
            at = 0
            while at < len(raw):
                k = rng.randint(1, 40)
                client.send(raw[at:at + k])
                at += k
        leaves = rng.random() < 0.5
        if leaves:
            client.close()
        else:
            try:
                client.send(SYNC)
                if rng.random() < 0.5: client.send(COPY_DONE + SYNC)
            except OSError:
                pass
        with one.pooled() as other:
            for k in range(3):
                token = f"{seed}-{n}-{k}"
                try:
                    answer = other.query(f"SELECT '{token}'")
                except (wire.Closed, TimeoutError) as e:
                    if leaves: bad.append((n, "closed", [s[:30] for s in said], str(e)))
                    break
                if any(m.kind == "E" for m in answer):
                    words = [m.words for m in answer if m.kind == "E"]
                    if "query_wait_timeout" in words[0]:
                        break
                    bad.append((n, "error", words, [s[:30] for s in said]))
                    break
                got = wire.rows(answer)
                if got != [(token,)]:
                    bad.append((n, "rows", got, [s[:30] for s in said]))
            else:
                found = one._looker.dirt(other, ["app.x"])
                if found:
                    bad.append((n, "dirt", found, [s[:30] for s in said]))
        if not leaves:
            client.close()
    assert not bad, bad
