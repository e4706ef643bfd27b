-- The facts of a database by which its functions and relations are judged: rows whose first column says
-- what the others are. crates/core/src/session/certificates/facts.rs reads them and lists the kinds.
--
-- The text is one simple query: one transaction, one snapshot, and settings that hold for it alone, whatever
-- the session had. No backslash outside of E'', and no lock beyond AccessShareLock on catalogs: definitions
-- are read as stored, and judged by pgweir. Objects of PostgreSQL itself have OIDs below 16384.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY, NOT DEFERRABLE;
SET LOCAL search_path TO pg_catalog, pg_temp;
SET LOCAL client_encoding TO 'UTF8';
SET LOCAL statement_timeout TO '20s';
SET LOCAL lock_timeout TO '1s';
SET LOCAL work_mem TO '32MB';
SET LOCAL jit TO off;
SET LOCAL quote_all_identifiers TO off;
SELECT 'd', d.oid, current_setting('server_encoding'), pg_is_in_recovery() FROM pg_database d WHERE d.datname = current_database();
-- Functions of PostgreSQL itself that may change the session: pgweir knows their effects by their names, or counts them
-- as opaque. The query also returns functions that ALTER FUNCTION or GRANT has changed since initdb: even if they are
-- now declared STABLE and PARALLEL SAFE, they keep the effects that pgweir knows by their names.
SELECT 'b', oid, proname, provolatile = 'v' OR proparallel <> 's' FROM pg_proc
  WHERE oid < 16384 AND pronamespace = 'pg_catalog'::regnamespace
    AND (provolatile = 'v' OR proparallel <> 's' OR xmin::text::bigint > coalesce((SELECT max(xmin::text::bigint) FROM pg_depend
      WHERE refclassid = 'pg_extension'::regclass AND refobjid < 16384), 1000))
    AND prorettype NOT IN ('internal'::regtype, 'trigger'::regtype, 'event_trigger'::regtype, 'fdw_handler'::regtype,
      'language_handler'::regtype, 'index_am_handler'::regtype, 'table_am_handler'::regtype, 'tsm_handler'::regtype)
    AND NOT 'internal'::regtype = ANY (proargtypes);
-- What tells something of the session: the result is kept in plans if a function that is declared IMMUTABLE asks for it.
SELECT 'i', oid FROM pg_proc WHERE oid < 16384 AND (starts_with(proname, 'has_') OR proname = ANY (ARRAY[
    'current_query', 'current_schema', 'current_schemas', 'current_setting', 'gen_random_uuid',
    'getpgusername', 'pg_client_encoding', 'pg_cursor', 'pg_has_role', 'pg_listening_channels',
    'pg_lock_status', 'pg_my_temp_schema', 'pg_prepared_statement', 'pg_show_all_settings',
    'pg_stat_get_activity', 'random', 'random_normal', 'row_security_active', 'uuidv4', 'uuidv7']));
-- Objects of PostgreSQL itself that somebody has changed: their transaction number is higher than that of the extension
-- plpgsql, which initdb creates in one of its last transactions. The languages internal, c and sql have the OIDs 12 to
-- 14.
SELECT 'c', own.object FROM (
    SELECT concat('function ', oid::regprocedure), xmin FROM pg_proc WHERE oid < 16384 AND prolang NOT IN (12, 13)
    UNION ALL SELECT concat('operator ', oid::regoperator), xmin FROM pg_operator WHERE oid < 16384
    UNION ALL SELECT concat('aggregate ', aggfnoid), xmin FROM pg_aggregate WHERE aggfnoid < 16384
    UNION ALL SELECT concat('cast from ', castsource::regtype, ' to ', casttarget::regtype), xmin FROM pg_cast WHERE oid < 16384
    UNION ALL SELECT concat('function of an operator family, ', amproc), xmin FROM pg_amproc WHERE oid < 16384
    UNION ALL SELECT concat('operator of an operator family, ', amopopr::regoperator), xmin FROM pg_amop WHERE oid < 16384
    UNION ALL SELECT concat('type ', typname), xmin FROM pg_type WHERE oid < 16384 AND typtype IN ('b', 'r', 'm')
    UNION ALL SELECT concat('range type ', rngtypid::regtype), xmin FROM pg_range WHERE rngtypid < 16384
    UNION ALL SELECT concat('conversion ', conname), xmin FROM pg_conversion WHERE oid < 16384
    UNION ALL SELECT concat('text search parser ', prsname), xmin FROM pg_ts_parser WHERE oid < 16384
    UNION ALL SELECT concat('text search template ', tmplname), xmin FROM pg_ts_template WHERE oid < 16384
    UNION ALL SELECT concat('access method ', amname), xmin FROM pg_am WHERE oid < 16384
  ) AS own(object, xid)
  WHERE own.xid::text::bigint > coalesce((SELECT max(xmin::text::bigint) FROM pg_depend
    WHERE refclassid = 'pg_extension'::regclass AND refobjid < 16384), 1000);
-- References to functions that this query does not follow.
SELECT 'q', fktable::regclass::text, fkcols::text FROM pg_get_catalog_foreign_keys()
  WHERE pktable = 'pg_proc'::regclass AND concat(fktable::regclass::text, fkcols::text) <> ALL (ARRAY[
    'pg_aggregate{aggcombinefn}', 'pg_aggregate{aggdeserialfn}', 'pg_aggregate{aggfinalfn}',
    'pg_aggregate{aggfnoid}', 'pg_aggregate{aggmfinalfn}', 'pg_aggregate{aggminvtransfn}',
    'pg_aggregate{aggmtransfn}', 'pg_aggregate{aggserialfn}', 'pg_aggregate{aggtransfn}', 'pg_am{amhandler}',
    'pg_amproc{amproc}', 'pg_cast{castfunc}', 'pg_conversion{conproc}', 'pg_event_trigger{evtfoid}',
    'pg_foreign_data_wrapper{fdwhandler}', 'pg_foreign_data_wrapper{fdwvalidator}',
    'pg_foreign_data_wrapper{fdwconnection}', 'pg_language{laninline}',
    'pg_language{lanplcallfoid}', 'pg_language{lanvalidator}', 'pg_operator{oprcode}', 'pg_operator{oprjoin}',
    'pg_operator{oprrest}', 'pg_proc{prosupport}', 'pg_range{rngcanonical}', 'pg_range{rngsubdiff}',
    'pg_transform{trffromsql}', 'pg_transform{trftosql}', 'pg_trigger{tgfoid}', 'pg_ts_parser{prsend}',
    'pg_ts_parser{prsheadline}', 'pg_ts_parser{prslextype}', 'pg_ts_parser{prsstart}', 'pg_ts_parser{prstoken}',
    'pg_ts_template{tmplinit}', 'pg_ts_template{tmpllexize}', 'pg_type{typanalyze}', 'pg_type{typinput}',
    'pg_type{typmodin}', 'pg_type{typmodout}', 'pg_type{typoutput}', 'pg_type{typreceive}', 'pg_type{typsend}',
    'pg_type{typsubscript}']);
-- Extensions and languages: a sum that changes when one of them is created.
SELECT 'j', sum(o.oid::int8) FROM (SELECT oid FROM pg_extension UNION ALL SELECT oid FROM pg_language) AS o;
-- A language can be renamed, so pgweir recognizes PL/pgSQL by its handler.
SELECT 'l', l.lanname FROM pg_language l LEFT JOIN pg_proc h ON h.oid = l.lanplcallfoid
    LEFT JOIN pg_proc i ON i.oid = l.laninline
  WHERE l.oid NOT IN (12, 13, 14) AND (h.prosrc, h.probin, i.prosrc, i.probin)
    IS DISTINCT FROM ('plpgsql_call_handler', '$libdir/plpgsql', 'plpgsql_inline_handler', '$libdir/plpgsql');
-- postgres_fdw keeps its connections to other servers, with the state of their sessions, until a function closes them.
SELECT 'o', (SELECT concat(quote_ident(n.nspname), '.', quote_ident(p.proname))
    FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.classid = 'pg_proc'::regclass
      AND d.deptype = 'e' AND p.prosrc = 'postgres_fdw_disconnect_all'
      AND has_schema_privilege('public', n.oid, 'USAGE') AND has_function_privilege('public', p.oid, 'EXECUTE') LIMIT 1)
  FROM pg_extension e WHERE e.extname = 'postgres_fdw';
SELECT 'v', evtname, evtevent, evtfoid::oid FROM pg_event_trigger WHERE evtenabled <> 'D';
-- Whoever writes to a system catalog changes what functions and relations are.
SELECT 'w', oid FROM pg_class WHERE oid < 16384 AND relkind = 'r' AND relnamespace = 'pg_catalog'::regnamespace;
-- Relations that many see, and views of PostgreSQL's own: they keep something, or tell something of the session.
SELECT 'r', c.oid, c.relname, c.relkind,
    EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attidentity <> '' AND NOT a.attisdropped),
    c.relrowsecurity
  FROM pg_class c
  WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND c.relpersistence <> 't'
    AND c.relnamespace <> 'pg_toast'::regnamespace;
SELECT 'z', oid, relname, relnamespace = 'pg_catalog'::regnamespace, relkind FROM pg_class
  WHERE oid < 16384 AND (relkind = 'v' OR relkind = 'r' AND relnamespace <> 'pg_catalog'::regnamespace);
-- Names of types (those of tables, too) and collations that several schemas have.
SELECT 'm', t.name FROM (SELECT typname, typnamespace, oid FROM pg_type
    UNION ALL SELECT collname, collnamespace, oid FROM pg_collation) AS t(name, schema, oid)
  JOIN pg_namespace n ON n.oid = t.schema AND n.nspname !~ '^pg_(temp|toast)'
  GROUP BY t.name HAVING count(DISTINCT t.schema) > 1 AND max(t.oid) >= 16384;
-- Names of functions come before bodies, of which only known names are kept.
SELECT DISTINCT 'n', proname FROM pg_proc WHERE oid >= 16384;
SELECT 'f', p.oid, p.proname, CASE WHEN l.oid = 12 THEN 'internal' WHEN l.oid = 13 THEN 'c' WHEN l.oid = 14 THEN 'sql'
      WHEN h.prosrc = 'plpgsql_call_handler' AND h.probin = '$libdir/plpgsql' THEN 'plpgsql'
      WHEN l.lanname IN ('internal', 'c', 'sql', 'plpgsql') THEN concat('another ', l.lanname) ELSE l.lanname END,
    p.prokind,
    (SELECT e.extname FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
      WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
        AND d.refclassid = 'pg_extension'::regclass LIMIT 1),
    CASE WHEN octet_length(p.prosrc) <= 262144 THEN p.prosrc ELSE '?' END,
    CASE WHEN octet_length(concat(p.prosqlbody::text, p.proargdefaults::text)) <= 262144
      THEN concat(p.prosqlbody::text, p.proargdefaults::text) ELSE '?' END,
    (SELECT string_agg(split_part(c.setting, '=', 1), ',') FROM unnest(p.proconfig) AS c(setting)
      WHERE c.setting <> 'standard_conforming_strings=on'),
    p.prosupport::oid, p.provolatile
  FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang LEFT JOIN pg_proc h ON h.oid = l.lanplcallfoid
  WHERE p.oid >= 16384;
SELECT 'g', a.aggfnoid::oid, f.id FROM pg_aggregate a, LATERAL unnest(ARRAY[a.aggtransfn, a.aggfinalfn, a.aggcombinefn,
    a.aggserialfn, a.aggdeserialfn, a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn]::oid[]) AS f(id)
  WHERE a.aggfnoid >= 16384 AND f.id <> 0;
-- Stored trees, and the relation whose they are: read and (w)ritten, or written alone. Those of PostgreSQL's own views
-- only count if somebody has replaced the view.
SELECT 't', t.mode, t.relation, CASE WHEN octet_length(t.tree) <= 262144 THEN t.tree ELSE '?' END FROM (
  SELECT 'r', r.ev_class, concat(r.ev_action::text, r.ev_qual::text)
  FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
  WHERE r.ev_type = '1' AND c.relkind <> 'm' AND (r.oid >= 16384 OR r.xmin::text::bigint > coalesce((SELECT max(xmin::text::bigint) FROM pg_depend
    WHERE refclassid = 'pg_extension'::regclass AND refobjid < 16384), 1000))
  UNION ALL SELECT 'w', r.ev_class, concat(r.ev_action::text, r.ev_qual::text)
  FROM pg_rewrite r WHERE r.oid >= 16384 OR r.xmin::text::bigint > coalesce((SELECT max(xmin::text::bigint) FROM pg_depend
    WHERE refclassid = 'pg_extension'::regclass AND refobjid < 16384), 1000)
  UNION ALL SELECT CASE WHEN a.attgenerated = '' THEN 'w' ELSE 'r' END, d.adrelid, d.adbin::text
  FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
  -- Planning a SELECT folds the constants of a check, to see whether the table can have rows for it.
  UNION ALL SELECT 'r', conrelid, conbin::text FROM pg_constraint WHERE conrelid <> 0 AND conbin IS NOT NULL
  UNION ALL SELECT 'r', polrelid, concat(polqual::text, polwithcheck::text) FROM pg_policy
  UNION ALL SELECT 'r', indrelid, concat(indexprs::text, indpred::text) FROM pg_index
  WHERE (indexprs IS NOT NULL OR indpred IS NOT NULL)
  UNION ALL SELECT 'w', tgrelid, tgqual::text FROM pg_trigger WHERE tgqual IS NOT NULL
  UNION ALL SELECT 'r', partrelid, partexprs::text FROM pg_partitioned_table WHERE partexprs IS NOT NULL
  UNION ALL SELECT 'r', stxrelid, stxexprs::text FROM pg_statistic_ext WHERE stxexprs IS NOT NULL) AS t(mode, relation, tree);
-- Functions that a relation fires.
SELECT 'u', 'w', tgrelid, tgfoid::oid FROM pg_trigger WHERE tgfoid >= 16384;
SELECT 'a', encode(tgargs, 'hex') FROM pg_trigger WHERE tgnargs > 0 AND tgfoid >= 16384;
-- Relations whose use is the use of another one.
SELECT DISTINCT 'k', conrelid, confrelid FROM pg_constraint WHERE contype = 'f';
SELECT 'h', inhparent, inhrelid FROM pg_inherits;
-- Functions that no text need name; a superuser may have put them behind objects of PostgreSQL itself.
SELECT 'x', concat('cast from ', castsource::regtype, ' to ', casttarget::regtype), castfunc
  FROM pg_cast WHERE (oid >= 16384 OR castfunc >= 16384) AND castfunc <> 0
UNION ALL SELECT 'x', concat('operator ', o.oprname), f.id
  FROM pg_operator o, LATERAL unnest(ARRAY[o.oprcode, o.oprrest, o.oprjoin]::oid[]) AS f(id)
  WHERE (o.oid >= 16384 OR f.id >= 16384) AND f.id <> 0
UNION ALL SELECT 'x', concat('operator family ', f.opfname), a.amproc::oid
  FROM pg_amproc a JOIN pg_opfamily f ON f.oid = a.amprocfamily WHERE a.oid >= 16384 OR a.amproc::oid >= 16384
UNION ALL SELECT 'x', concat('type ', t.typname), f.id
  FROM pg_type t, LATERAL unnest(ARRAY[t.typinput, t.typoutput, t.typreceive, t.typsend, t.typmodin, t.typmodout,
    t.typanalyze, t.typsubscript]::oid[]) AS f(id)
  WHERE f.id >= 16384
UNION ALL SELECT 'x', concat('range type ', rngtypid::regtype), f.id
  FROM pg_range, LATERAL unnest(ARRAY[rngcanonical, rngsubdiff]::oid[]) AS f(id)
  WHERE (rngtypid >= 16384 OR f.id >= 16384) AND f.id <> 0
UNION ALL SELECT 'x', concat('access method ', amname), amhandler::oid FROM pg_am WHERE oid >= 16384 OR amhandler::oid >= 16384
UNION ALL SELECT 'x', concat('conversion ', conname), conproc::oid FROM pg_conversion
  WHERE oid >= 16384 OR conproc::oid >= 16384
UNION ALL SELECT 'x', concat('text search parser ', p.prsname), f.id
  FROM pg_ts_parser p, LATERAL unnest(ARRAY[p.prsstart, p.prstoken, p.prsend, p.prsheadline, p.prslextype]::oid[])
    AS f(id)
  WHERE (p.oid >= 16384 OR f.id >= 16384) AND f.id <> 0
UNION ALL SELECT 'x', concat('text search template ', t.tmplname), f.id
  FROM pg_ts_template t, LATERAL unnest(ARRAY[t.tmplinit, t.tmpllexize]::oid[]) AS f(id)
  WHERE (t.oid >= 16384 OR f.id >= 16384) AND f.id <> 0
UNION ALL SELECT 'x', concat('aggregate ', a.aggfnoid), f.id
  FROM pg_aggregate a, LATERAL unnest(ARRAY[a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn,
    a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn]::oid[]) AS f(id)
  WHERE a.aggfnoid < 16384 AND f.id >= 16384
-- The grammar calls these functions without their names: AT TIME ZONE, TRIM, LIKE .. ESCAPE, SIMILAR TO, IS NORMALIZED, ...
UNION ALL SELECT 'x', concat('function ', oid::regprocedure, ' in pg_catalog'), oid FROM pg_proc
  WHERE oid >= 16384 AND pronamespace = 'pg_catalog'::regnamespace AND proname = ANY (ARRAY['timezone', 'btrim', 'ltrim',
    'rtrim', 'like_escape', 'similar_escape', 'similar_to_escape', 'is_normalized', 'pg_collation_for']);
SELECT 'y', y.label, CASE WHEN octet_length(y.tree) <= 262144 THEN y.tree ELSE '?' END FROM (
  SELECT concat('domain ', contypid::regtype), conbin::text FROM pg_constraint WHERE contypid <> 0
  UNION ALL SELECT concat('default of type ', typname), typdefaultbin::text FROM pg_type
  WHERE typdefaultbin IS NOT NULL) AS y(label, tree);
SELECT 'end'
