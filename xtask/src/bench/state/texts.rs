//! The statements whose cost is measured.

/// A kind of statement.
pub(super) struct Kind {
    /// The name in the table.
    pub(super) name: &'static str,
    /// The statement that the client sends once before the measurement.
    pub(super) before: &'static [&'static str],
    /// The statements that the client repeats, each in a Query message of its own.
    pub(super) texts: &'static [&'static str],
}

const fn kind(name: &'static str, texts: &'static [&'static str]) -> Kind {
    Kind {
        name,
        before: &[],
        texts,
    }
}

const fn prepared(
    name: &'static str,
    before: &'static [&'static str],
    texts: &'static [&'static str],
) -> Kind {
    Kind {
        name,
        before,
        texts,
    }
}

/// Relations and functions of the kinds. Neither a trigger nor a function with EXECUTE can be read
/// in advance: pgweir takes both as opaque.
pub(super) const OBJECTS: &str = "\
    set role bench; \
    create table item (id int primary key, name text); \
    insert into item select i, 'item ' || i from generate_series(1, 1000) i; \
    create view item_view as select id, name from item; \
    create table numbered (id serial, v int); \
    create sequence counter; \
    create function plain(i int) returns int language plpgsql as 'begin return i + 1; end'; \
    create function hidden(i int) returns int language plpgsql as \
        'declare n int; begin execute ''select 1'' into n; return n + i; end'; \
    create procedure procedure(i int) language plpgsql as 'begin perform i; end'; \
    create function fire() returns trigger language plpgsql as \
        'begin execute ''select 1''; return new; end'; \
    create table fired (v int); \
    create trigger fire before insert on fired for each row execute function fire(); ";

/// The kinds, in the order of the table.
pub(super) const KINDS: &[Kind] = &[
    kind("select", &["select name from item where id = 7"]),
    kind("SET", &["set statement_timeout = '50s'"]),
    kind("SET search_path", &["set search_path = public, pg_temp"]),
    kind(
        "SET of a custom parameter, select",
        &["set app.tenant = '7'", "select name from item where id = 7"],
    ),
    kind("RESET", &["reset statement_timeout"]),
    kind(
        "SET LOCAL",
        &["begin", "set local work_mem = '5MB'", "commit"],
    ),
    kind(
        "SET under a savepoint",
        &[
            "begin",
            "savepoint s",
            "set work_mem = '5MB'",
            "rollback to s",
            "commit",
        ],
    ),
    kind(
        "set_config, session",
        &["select set_config('app.tenant', '7', false)"],
    ),
    kind(
        "set_config, local",
        &[
            "begin",
            "select set_config('app.tenant', '7', true)",
            "commit",
        ],
    ),
    kind("SET ROLE, RESET ROLE", &["set role bench", "reset role"]),
    kind(
        "PREPARE, EXECUTE, DEALLOCATE",
        &["prepare p as select 1", "execute p", "deallocate p"],
    ),
    kind("DEALLOCATE ALL", &["deallocate all"]),
    kind("DISCARD ALL", &["discard all"]),
    prepared(
        "insert into one's temp table",
        &["create temp table t (v int)"],
        &["insert into t values (1)"],
    ),
    kind(
        "CREATE TEMP TABLE, DROP",
        &["create temp table t (v int)", "drop table t"],
    ),
    kind(
        "temp table ON COMMIT DROP",
        &[
            "begin",
            "create temp table t (v int) on commit drop",
            "commit",
        ],
    ),
    kind("DO", &["do 'begin perform 1; end'"]),
    kind("CALL", &["call procedure(1)"]),
    kind(
        "advisory lock, unlock",
        &["select pg_advisory_lock(7)", "select pg_advisory_unlock(7)"],
    ),
    kind(
        "advisory lock of a transaction",
        &["begin", "select pg_advisory_xact_lock(7)", "commit"],
    ),
    kind(
        "cursor WITH HOLD",
        &[
            "declare c cursor with hold for select id from item limit 10",
            "fetch 5 from c",
            "close c",
        ],
    ),
    kind(
        "cursor in a transaction",
        &[
            "begin",
            "declare c cursor for select id from item",
            "fetch 5 from c",
            "commit",
        ],
    ),
    kind(
        "CREATE TABLE, DROP TABLE",
        &["create table made (v int)", "drop table made"],
    ),
    kind(
        "CREATE INDEX, DROP INDEX",
        &["create index made on item (name)", "drop index made"],
    ),
    kind("insert, serial", &["insert into numbered (v) values (1)"]),
    kind("nextval", &["select nextval('counter')"]),
    kind(
        "nextval, currval",
        &["select nextval('counter')", "select currval('counter')"],
    ),
    kind("LISTEN, UNLISTEN", &["listen news", "unlisten news"]),
    kind("NOTIFY", &["notify news"]),
    kind("function", &["select plain(7)"]),
    kind("function with EXECUTE", &["select hidden(7)"]),
    kind("trigger with EXECUTE", &["insert into fired values (1)"]),
    kind("view", &["select name from item_view where id = 7"]),
    kind("EXPLAIN", &["explain select name from item where id = 7"]),
    kind(
        "COPY TO STDOUT",
        &["copy (select id from item limit 10) to stdout"],
    ),
];
