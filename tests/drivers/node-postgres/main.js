// Many node-postgres clients that each know what their answers must be. See ../README.md.

import net from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import pg from "pg";

let answers = 0;
let kept = 0;

/** A seeded generator of numbers below 2^32 (mulberry32). */
function generator(seed) {
  let state = seed + 1;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let n = Math.imul(state ^ (state >>> 15), 1 | state);
    n = (n + Math.imul(n ^ (n >>> 7), 61 | n)) ^ n;
    return (n ^ (n >>> 14)) >>> 0;
  };
}

function shuffled(list, dice) {
  const result = [...list];
  for (let at = result.length - 1; at > 0; at--) {
    const other = dice() % (at + 1);
    [result[at], result[other]] = [result[other], result[at]];
  }
  return result;
}

function same(expected, heard) {
  answers += 1;
  if (expected !== heard) {
    throw new Error(`expected ${String(expected).slice(0, 100)}, heard ${String(heard).slice(0, 100)}`);
  }
}

class Runner {
  constructor(number, address) {
    this.number = number;
    this.address = address;
    this.dice = generator(number);
    this.pipeline = number % 2 === 1;
    this.client = new pg.Client({ ...address, ssl: false, pipeline: this.pipeline });
    this.client.on("error", () => {}); // the query that it hits tells of it
  }

  /** The first column of the first row; `name` makes it a prepared statement. */
  async value(text, values = [], name = undefined) {
    const result = await this.client.query({ text, values, name, rowMode: "array" });
    return result.rows[0][0];
  }

  /** Demands an error of this SQLSTATE. */
  async fails(sqlstate, promise) {
    let heard = "no error";
    try {
      await promise;
    } catch (error) {
      heard = error.code ?? error.message;
    }
    same(sqlstate, heard);
  }

  /** Every client has a statement "mine", and each one's text is its own. */
  async ownStatement(round) {
    const text = `SELECT 'client ${this.number}, ' || $1::int || ', ' || $2::text`;
    for (let n = 0; n < 5; n++) {
      same(`client ${this.number}, ${n}, r${round}`, await this.value(text, [n, `r${round}`], "mine"));
    }
  }

  /** All clients know the same texts, in an order and under names of their own. */
  async sharedTexts() {
    for (const n of shuffled([...Array(24).keys()], this.dice)) {
      const word = `${this.number}-${this.dice()}`;
      const name = `s${(n + this.number) % 24}`;
      same(`text ${n}, ${word}`, await this.value(`SELECT 'text ${n}, ' || $1::text`, [word], name));
    }
  }

  async errors() {
    const divide = "SELECT (100 / $1::int)::text";
    same("25", await this.value(divide, [4], "divide"));
    await this.fails("22012", this.value(divide, [0], "divide"));
    same("20", await this.value(divide, [5], "divide"));
    await this.fails("42601", this.value("SELEKT $1::int", [1], "wrong"));
    await this.fails("42P01", this.value(`SELECT word FROM missing_${this.number}`, [], "missing"));
    await this.fails("42P01", this.value(`SELECT word FROM missing_${this.number}`, [1]));
    same("1", await this.value("SELECT '1'"));
  }

  /** Twenty queries on their way at once, each with a Sync of its own; some of them fail. */
  async pipelined(round) {
    if (!this.pipeline) {
      return;
    }
    await Promise.all([...Array(20).keys()].map((n) => {
      const word = `${this.number}-${round}-${n}`;
      if (n % 5 === 4) {
        return this.fails("22012", this.value("SELECT 1 / $1::int", [0], n % 2 ? "zero" : undefined));
      }
      return this.value(`SELECT 'piped ${n % 7}, ' || $1::text`, [word], `p${n % 7}`)
        .then((heard) => same(`piped ${n % 7}, ${word}`, heard));
    }));
  }

  async transaction(round) {
    await this.client.query("BEGIN");
    const backend = await this.value("SELECT pg_backend_pid()::text", [], "who");
    const insert = "INSERT INTO driver_rows VALUES ($1, $2, 'kept')";
    for (let n = 0; n < 3; n++) {
      const done = await this.client.query({ text: insert, values: [this.number, round], name: "insert" });
      same(1, done.rowCount);
      same(backend, await this.value("SELECT pg_backend_pid()::text", [], "who"));
    }
    if (this.dice() % 2) {
      await this.fails("22012", this.value("SELECT 1 / $1::int", [0], "zero"));
      await this.fails("25P02", this.value("SELECT pg_backend_pid()::text", [], "who"));
      await this.client.query("ROLLBACK");
    } else {
      await this.client.query("COMMIT");
      kept += 3;
    }
  }

  async large() {
    const word = String(this.number).padStart(4, "0");
    const repeated = await this.value("SELECT repeat($1::text, $2::int)", [word, 100_000], "repeat");
    same(word.repeat(100_000), repeated);
    const text = "SELECT $1::text || n FROM generate_series(1, $2::int) n";
    const result = await this.client.query({ text, values: [word, 3000], name: "series", rowMode: "array" });
    same(3000, result.rows.length);
    result.rows.forEach(([heard], n) => same(`${word}${n + 1}`, heard));
  }

  /** A portal that is read in pieces. */
  async portal() {
    if (this.pipeline) {
      return; // the driver refuses
    }
    const text = "SELECT n FROM generate_series(1, $1::int) n";
    const result = await this.client.query({ text, values: [50], name: "pieces", rows: 7, rowMode: "array" });
    same(50, result.rows.length);
  }

  /** In a transaction, so that the client has a server to be canceled on. */
  async cancel(round) {
    if (this.number % 5 || round) {
      return;
    }
    await this.client.query("BEGIN");
    let running = true;
    const asked = this.fails("57014", this.value("SELECT pg_sleep($1::int)", [60], "sleep"))
      .finally(() => { running = false; });
    while (running) { // it may not have begun: ask again
      await Promise.race([asked, pause(100)]);
      if (running) {
        await this.cancelRequest();
      }
    }
    await asked;
    // On a busy machine, a second request may be sent before the first one has taken effect, and hit one of these.
    await this.client.query("ROLLBACK").catch((error) => {
      if (error.code !== "57014") {
        throw error;
      }
      return this.client.query("ROLLBACK");
    });
    await this.value("SELECT 1").catch(() => {});
    same("calm", await this.value("SELECT 'calm'"));
  }

  cancelRequest() {
    const packet = Buffer.alloc(16);
    [16, 80877102, this.client.processID, this.client.secretKey].forEach((n, at) => packet.writeInt32BE(n, at * 4));
    return new Promise((resolve, reject) => {
      const socket = net.connect(this.address.port, this.address.host, () => socket.end(packet));
      socket.on("close", resolve).on("error", reject).resume();
    });
  }

  async run(rounds) {
    await this.client.connect();
    const scenarios = ["ownStatement", "sharedTexts", "errors", "pipelined", "transaction", "large", "portal", "cancel"];
    for (let round = 0; round < rounds; round++) {
      for (const name of shuffled(scenarios, this.dice)) {
        try {
          await this[name](round);
        } catch (error) {
          throw new Error(`client ${this.number}, ${name}, round ${round}: ${error.message}`);
        }
      }
    }
    await this.client.end();
  }
}

const [host, port, user, database, clients, rounds] = process.argv.slice(2);
if (rounds === undefined) {
  console.error("usage: main.js HOST PORT USER DBNAME CLIENTS ROUNDS");
  process.exit(2);
}
const address = { host, port: Number(port), user, database };
const runs = [...Array(Number(clients)).keys()].map((n) => new Runner(n, address).run(Number(rounds)));
const problems = (await Promise.allSettled(runs)).filter((run) => run.status === "rejected");
problems.forEach((run) => console.error(run.reason.message));
console.log(JSON.stringify({ answers, kept }));
process.exit(problems.length ? 1 : 0);
