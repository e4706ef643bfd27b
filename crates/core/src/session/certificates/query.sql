-- Which functions and relations of this database leave a trace in the session that uses them.
--
-- Rows of kind, name, what a use leaves behind, what writing to it does. The text is one simple
-- query: the settings hold for it alone, whatever the session had. No backslash outside of E'',
-- and no lock beyond AccessShareLock on catalogs: definitions are read as stored trees.
SET LOCAL search_path TO pg_catalog, pg_temp;
SET LOCAL client_encoding TO 'UTF8';
SET LOCAL statement_timeout TO '20s';
SET LOCAL lock_timeout TO '1s';
SET LOCAL work_mem TO '32MB';
SET LOCAL jit TO off;
WITH RECURSIVE
builtin(name, bit) AS (VALUES
  ('set_config', 'SETTING'), ('setseed', 'SEED'), ('nextval', 'SEQUENCE'), ('setval', 'SEQUENCE'),
  ('currval', 'READS_SEQUENCE'), ('lastval', 'READS_SEQUENCE'),
  ('pg_advisory_lock', 'LOCK'), ('pg_advisory_lock_shared', 'LOCK'),
  ('pg_try_advisory_lock', 'LOCK'), ('pg_try_advisory_lock_shared', 'LOCK'),
  ('pg_advisory_unlock', 'LOCK'), ('pg_advisory_unlock_shared', 'LOCK'),
  ('pg_advisory_unlock_all', 'LOCK'),
  ('pg_prepared_statement', 'STATEMENTS_VIEW'), ('pg_listening_channels', 'STATEMENTS_VIEW'),
  ('pg_replication_origin_session_setup', 'LIBRARY'),
  ('pg_replication_origin_session_reset', 'LIBRARY'),
  ('pg_replication_origin_xact_setup', 'LIBRARY'),
  ('pg_replication_origin_xact_reset', 'LIBRARY'),
  ('pg_create_logical_replication_slot', 'LIBRARY'),
  ('pg_create_physical_replication_slot', 'LIBRARY'),
  ('pg_copy_logical_replication_slot', 'LIBRARY'),
  ('pg_copy_physical_replication_slot', 'LIBRARY'),
  ('pg_sync_replication_slots', 'LIBRARY'),
  ('pg_backup_start', 'LIBRARY'), ('pg_backup_stop', 'LIBRARY'),
  ('pg_start_backup', 'LIBRARY'), ('pg_stop_backup', 'LIBRARY'),
  ('dblink_connect', 'LIBRARY'), ('dblink_connect_u', 'LIBRARY'),
  ('pg_terminate_backend', 'TERMINATES'), ('pg_cancel_backend', 'CANCELS'),
  ('query_to_xml', 'OPAQUE'), ('query_to_xmlschema', 'OPAQUE'),
  ('query_to_xml_and_xmlschema', 'OPAQUE'), ('cursor_to_xml', 'OPAQUE'),
  ('cursor_to_xmlschema', 'OPAQUE'), ('table_to_xml', 'OPAQUE'), ('table_to_xmlschema', 'OPAQUE'),
  ('table_to_xml_and_xmlschema', 'OPAQUE'), ('schema_to_xml', 'OPAQUE'),
  ('schema_to_xmlschema', 'OPAQUE'), ('schema_to_xml_and_xmlschema', 'OPAQUE'),
  ('database_to_xml', 'OPAQUE'), ('database_to_xmlschema', 'OPAQUE'),
  ('database_to_xml_and_xmlschema', 'OPAQUE'), ('ts_stat', 'OPAQUE'), ('ts_rewrite', 'OPAQUE')),
-- Words of a function's source that make it suspect, beside the names of suspect functions.
verb(word, bit) AS (VALUES
  ('set', 'SETTING'), ('reset', 'SETTING'), ('pg_settings', 'SETTING'), ('execute', 'OPAQUE'),
  ('listen', 'LISTEN'), ('unlisten', 'LISTEN'), ('prepare', 'PREPARE'), ('deallocate', 'PREPARE'),
  ('discard', 'DISCARD'), ('discard', 'OPAQUE'), ('temp', 'TEMP'), ('temporary', 'TEMP'),
  ('create', 'TEMP'), ('create', 'OPAQUE'), ('drop', 'TEMP'), ('alter', 'OPAQUE'),
  ('do', 'OPAQUE'), ('load', 'LIBRARY'), ('hold', 'CURSOR'),
  ('pg_prepared_statements', 'STATEMENTS_VIEW')),
-- Extensions in C whose functions keep nothing in the session, these excepted.
trusted(name) AS (VALUES
  ('amcheck'), ('autoinc'), ('bloom'), ('btree_gin'), ('btree_gist'), ('citext'), ('cube'),
  ('dblink'), ('dict_int'), ('dict_xsyn'), ('earthdistance'), ('file_fdw'), ('fuzzystrmatch'),
  ('hll'), ('hstore'), ('insert_username'), ('intagg'), ('intarray'), ('ip4r'), ('isn'), ('lo'),
  ('ltree'), ('moddatetime'), ('pageinspect'), ('pg_bigm'), ('pg_buffercache'),
  ('pg_freespacemap'), ('pg_prewarm'), ('pg_stat_statements'), ('pg_trgm'), ('pg_visibility'),
  ('pg_walinspect'), ('pgcrypto'), ('pgrowlocks'), ('pgstattuple'), ('postgis'),
  ('postgis_raster'), ('postgis_sfcgal'), ('postgres_fdw'), ('prefix'), ('refint'), ('rum'),
  ('seg'), ('sslinfo'), ('tablefunc'), ('tcn'), ('timescaledb'), ('tsm_system_rows'),
  ('tsm_system_time'), ('unaccent'), ('uuid-ossp'), ('vector')),
exception(name, bit) AS (VALUES
  ('set_limit', 'SETTING'), ('autoinc', 'SEQUENCE'), ('crosstab', 'OPAQUE'),
  ('crosstab2', 'OPAQUE'), ('crosstab3', 'OPAQUE'), ('crosstab4', 'OPAQUE'),
  ('connectby', 'OPAQUE'), ('dblink_connect', 'LIBRARY'), ('dblink_connect_u', 'LIBRARY')),
-- Extensions whose functions pin a client (`pin_extensions`).
pinned_object(classid, objid) AS MATERIALIZED (
  SELECT d.classid, d.objid FROM pg_depend d
  JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
  WHERE d.deptype = 'e' AND e.extname = ANY (ARRAY[]::text[])),
trusted_object(classid, objid) AS MATERIALIZED (
  SELECT d.classid, d.objid FROM pg_depend d
  JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
  JOIN trusted t ON t.name = e.extname
  WHERE d.deptype = 'e'),
-- Functions that are not PostgreSQL's own.
func AS MATERIALIZED (
  SELECT p.oid, p.proname::text AS name, l.lanname AS language, p.prosrc AS source,
    p.prorettype, p.proargtypes, p.pronargs, p.pronargdefaults,
    concat(CASE WHEN l.lanname = 'sql' AND p.prosrc = '' THEN to_jsonb(p) ->> 'prosqlbody' END,
      p.proargdefaults::text) AS trees,
    p.prokind = 'a' OR l.lanname IN ('c', 'internal')
      AND EXISTS (SELECT FROM trusted_object t
        WHERE t.classid = 'pg_proc'::regclass AND t.objid = p.oid) AS is_trusted
  FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
  WHERE p.oid >= 16384),
relation AS MATERIALIZED (
  SELECT c.oid, c.relname::text AS name, c.relkind, c.reltype
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'c')
    AND c.relpersistence <> 't' AND n.nspname <> 'pg_toast'),
-- Sources without line comments (where no quote is near) and without what is harmless for certain,
-- in lower case.
source(oid, language, text) AS MATERIALIZED (
  SELECT oid, language,
    regexp_replace(
      regexp_replace(
        regexp_replace(
          regexp_replace(
            regexp_replace(lower(source), '^(([^''"$*-]|-(?!-))*)--[^''"$*]*$', E'\\1', 'gn'),
            'update([[:space:]]+(?!(then|loop|begin|else|declare)[[:space:]])["a-z0-9_.$*]+){0,4}[[:space:]]+set[[:space:]]',
            'update ', 'g'),
          'set[[:space:]]+(local|transaction|constraints)[[:space:]]', ' ', 'g'),
        'set_config[[:space:]]*[(][^();]*,[[:space:]]*true[[:space:]]*[)]', ' ', 'g'),
      'do[[:space:]]+(nothing|update|instead|also)|(insert|merge)[[:space:]]+into|on[[:space:]]+commit[[:space:]]+drop|with[[:space:]]+hold[[:space:]]*[(]', ' ', 'g')
  FROM func WHERE language IN ('sql', 'plpgsql')),
word(oid, word) AS MATERIALIZED (
  SELECT DISTINCT s.oid, w.word
  FROM source s, LATERAL regexp_split_to_table(s.text, '[[:space:] -#%-/:-@[-^`{-~]+') AS w(word)),
-- Stored trees, and whose they are: (f)unction, (r)elation, (t)ype; (r)ead, (w)ritten.
tree(kind, id, mode, tree) AS MATERIALIZED (
  SELECT 'f', oid, 'r', trees FROM func WHERE trees <> ''
  UNION ALL SELECT 'r', r.ev_class, m.mode, concat(r.ev_action, r.ev_qual)
    FROM pg_rewrite r, (VALUES ('r'), ('w')) AS m(mode)
    WHERE r.oid >= 16384 AND (r.ev_type = '1' OR m.mode = 'w')
  UNION ALL SELECT 'r', d.adrelid, m.mode, d.adbin::text
    FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum,
      (VALUES ('r'), ('w')) AS m(mode)
    WHERE d.adrelid >= 16384 AND (m.mode = 'w' OR a.attgenerated <> '')
  UNION ALL SELECT 'r', conrelid, 'w', conbin::text FROM pg_constraint
    WHERE conrelid >= 16384 AND conbin IS NOT NULL
  UNION ALL SELECT 't', contypid, 'r', conbin::text FROM pg_constraint
    WHERE contypid >= 16384 AND conbin IS NOT NULL
  UNION ALL SELECT 'r', p.polrelid, m.mode, concat(p.polqual, p.polwithcheck)
    FROM pg_policy p, (VALUES ('r'), ('w')) AS m(mode)
  UNION ALL SELECT 'r', i.indrelid, m.mode, concat(i.indexprs, i.indpred)
    FROM pg_index i, (VALUES ('r'), ('w')) AS m(mode)
    WHERE i.indrelid >= 16384 AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
  UNION ALL SELECT 'r', tgrelid, 'w', tgqual::text FROM pg_trigger
    WHERE tgrelid >= 16384 AND tgqual IS NOT NULL
  UNION ALL SELECT 'r', p.partrelid, m.mode, p.partexprs::text
    FROM pg_partitioned_table p, (VALUES ('r'), ('w')) AS m(mode) WHERE p.partexprs IS NOT NULL),
-- What is suspect in itself.
base(kind, id, mode, bit) AS (
  -- Of a tree, by the functions of PostgreSQL's own in it.
  SELECT t.kind, t.id, t.mode, b.bit
    FROM tree t, (
      SELECT p.oid, b.bit FROM builtin b JOIN pg_proc p ON p.proname = b.name AND p.oid < 16384
    ) AS b
    WHERE strpos(t.tree, concat('funcid ', b.oid, ' ')) > 0
  UNION ALL SELECT t.kind, t.id, t.mode, 'STATEMENTS_VIEW' FROM tree t
    WHERE strpos(t.tree, concat(':relid ', 'pg_prepared_statements'::regclass::oid::text, ' ')) > 0
  UNION ALL SELECT t.kind, t.id, t.mode, 'SEQUENCE' FROM tree t
    WHERE strpos(t.tree, 'NEXTVALUEEXPR') > 0
  UNION ALL SELECT 'r', t.id, 'w', 'SETTING' FROM tree t
    WHERE t.kind = 'r' AND strpos(t.tree, concat(':relid ', 'pg_settings'::regclass::oid::text, ' ')) > 0
  -- Of a function, by the words of its source.
  UNION ALL SELECT 'f', w.oid, 'r', v.bit FROM word w JOIN verb v ON v.word = w.word
  UNION ALL SELECT 'f', oid, 'r', 'SEED' FROM func
    WHERE language IN ('sql', 'plpgsql') AND source ~* '[[:<:]]seed[[:>:]]'
      AND source ~* '[[:<:]]set(_config)?[[:>:]]'
  UNION ALL SELECT 'f', w.oid, 'r', b.bit FROM word w JOIN builtin b ON b.name = w.word
  UNION ALL SELECT 'f', w.oid, 'r', b.bit
    FROM word w JOIN source s ON s.oid = w.oid, (VALUES ('TEMP'), ('OPAQUE')) AS b(bit)
    WHERE w.word LIKE 'pg!_temp%' ESCAPE '!' OR w.word = 'into' AND s.language = 'sql'
  -- Of a function, by its language.
  UNION ALL SELECT 'f', oid, 'r', 'OPAQUE' FROM func
    WHERE NOT is_trusted AND language NOT IN ('sql', 'plpgsql')
  UNION ALL SELECT 'f', f.oid, 'r', e.bit FROM func f JOIN exception e ON e.name = f.name
    WHERE f.language = 'c'
  -- Of a function, by its extension, or by that of its language.
  UNION ALL SELECT 'f', f.oid, 'r', 'LIBRARY'
    FROM pinned_object o JOIN func f ON f.oid = o.objid
    WHERE o.classid = 'pg_proc'::regclass
  UNION ALL SELECT 'f', f.oid, 'r', 'LIBRARY'
    FROM pinned_object o JOIN pg_language l ON l.oid = o.objid JOIN func f ON f.language = l.lanname
    WHERE o.classid = 'pg_language'::regclass
  UNION ALL SELECT 'r', a.attrelid, 'w', 'SEQUENCE' FROM pg_attribute a
    WHERE a.attrelid >= 16384 AND a.attidentity <> '' AND NOT a.attisdropped
  UNION ALL SELECT 'r', t.ftrelid, m.mode, 'OPAQUE'
    FROM pg_foreign_table t JOIN pg_foreign_server s ON s.oid = t.ftserver
      JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw, (VALUES ('r'), ('w')) AS m(mode)
    WHERE NOT EXISTS (SELECT FROM trusted_object o
      WHERE o.classid = 'pg_proc'::regclass AND o.objid = w.fdwhandler)),
-- Objects that have dependencies of their own, and whose they are.
owner(classid, objid, kind, id, mode) AS MATERIALIZED (
  SELECT 'pg_proc'::regclass, oid, 'f', oid, 'r' FROM func
  UNION ALL SELECT 'pg_rewrite'::regclass, r.oid, 'r', r.ev_class, m.mode
    FROM pg_rewrite r, (VALUES ('r'), ('w')) AS m(mode)
    WHERE r.oid >= 16384 AND (r.ev_type = '1' OR m.mode = 'w')
  UNION ALL SELECT 'pg_attrdef'::regclass, d.oid, 'r', d.adrelid, m.mode
    FROM pg_attrdef d, (VALUES ('r'), ('w')) AS m(mode) WHERE d.oid >= 16384
  UNION ALL SELECT 'pg_constraint'::regclass, oid, 'r', conrelid, 'w' FROM pg_constraint
    WHERE oid >= 16384 AND contype = 'c' AND conrelid <> 0
  UNION ALL SELECT 'pg_constraint'::regclass, oid, 't', contypid, 'r' FROM pg_constraint
    WHERE oid >= 16384 AND contypid <> 0
  UNION ALL SELECT 'pg_policy'::regclass, p.oid, 'r', p.polrelid, m.mode
    FROM pg_policy p, (VALUES ('r'), ('w')) AS m(mode)
  UNION ALL SELECT 'pg_trigger'::regclass, oid, 'r', tgrelid, 'w' FROM pg_trigger
    WHERE oid >= 16384 AND NOT tgisinternal
  UNION ALL SELECT 'pg_class'::regclass, i.indexrelid, 'r', i.indrelid, m.mode
    FROM pg_index i, (VALUES ('r'), ('w')) AS m(mode) WHERE i.indrelid >= 16384
  UNION ALL SELECT 'pg_class'::regclass, p.partrelid, 'r', p.partrelid, m.mode
    FROM pg_partitioned_table p, (VALUES ('r'), ('w')) AS m(mode)
  UNION ALL SELECT 'pg_operator'::regclass, oid, 'o', oid, 'r' FROM pg_operator WHERE oid >= 16384
  UNION ALL SELECT 'pg_cast'::regclass, oid, 'e', 0, 'r' FROM pg_cast WHERE oid >= 16384
  UNION ALL SELECT 'pg_opclass'::regclass, oid, 'e', 0, 'r' FROM pg_opclass WHERE oid >= 16384
  UNION ALL SELECT 'pg_opfamily'::regclass, oid, 'e', 0, 'r' FROM pg_opfamily WHERE oid >= 16384
  UNION ALL SELECT 'pg_amproc'::regclass, oid, 'e', 0, 'r' FROM pg_amproc WHERE oid >= 16384),
-- Who uses what.
edge(kind, id, mode, used_kind, used_id, used_mode) AS MATERIALIZED (
  SELECT o.kind, o.id, o.mode, 'f', d.refobjid, 'r'
    FROM owner o JOIN pg_depend d ON d.classid = o.classid AND d.objid = o.objid
    WHERE d.refclassid = 'pg_proc'::regclass
      -- What C does for an operator, a cast or an index keeps nothing.
      AND (o.kind IN ('f', 'r')
        OR EXISTS (SELECT FROM func f WHERE f.oid = d.refobjid AND f.language <> 'c'))
  UNION ALL SELECT o.kind, o.id, o.mode, 'o', d.refobjid, 'r'
    FROM owner o JOIN pg_depend d ON d.classid = o.classid AND d.objid = o.objid
    WHERE d.refclassid = 'pg_operator'::regclass AND o.kind <> 'e'
  UNION ALL SELECT o.kind, o.id, o.mode, 't', d.refobjid, 'r'
    FROM owner o JOIN pg_depend d ON d.classid = o.classid AND d.objid = o.objid
    WHERE d.refclassid = 'pg_type'::regclass AND o.kind IN ('f', 'r')
  UNION ALL SELECT o.kind, o.id, o.mode, 'r', d.refobjid, m.mode
    FROM owner o JOIN pg_depend d ON d.classid = o.classid AND d.objid = o.objid,
      (VALUES ('r'), ('w')) AS m(mode)
    WHERE d.refclassid = 'pg_class'::regclass AND o.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_policy'::regclass)
      AND (m.mode = 'r' OR o.mode = 'w' OR o.kind = 'f') AND NOT (o.kind = 'r' AND o.id = d.refobjid)
  UNION ALL SELECT 'f', w.oid, 'r', 'f', f.oid, 'r' FROM word w JOIN func f ON lower(f.name) = w.word
    WHERE f.oid <> w.oid
  UNION ALL SELECT 'f', w.oid, 'r', 'r', r.oid, m.mode
    FROM word w JOIN relation r ON lower(r.name) = w.word, (VALUES ('r'), ('w')) AS m(mode)
  UNION ALL SELECT 'f', w.oid, 'r', 't', t.oid, 'r'
    FROM word w JOIN pg_type t ON lower(t.typname) = w.word AND t.oid >= 16384
  -- Foreign keys that write, and inheritance.
  UNION ALL SELECT 'r', confrelid, 'w', 'r', conrelid, 'w' FROM pg_constraint
    WHERE contype = 'f' AND (confupdtype IN ('c', 'n', 'd') OR confdeltype IN ('c', 'n', 'd'))
  UNION ALL SELECT 'r', i.inhparent, m.mode, 'r', i.inhrelid, m.mode
    FROM pg_inherits i, (VALUES ('r'), ('w')) AS m(mode)
  UNION ALL SELECT 'r', i.inhrelid, m.mode, 'r', i.inhparent, m.mode
    FROM pg_inherits i, (VALUES ('r'), ('w')) AS m(mode)
  -- `row.function`
  UNION ALL SELECT 'r', r.oid, m.mode, 'f', f.oid, 'r'
    FROM func f JOIN relation r ON r.reltype = f.proargtypes[0], (VALUES ('r'), ('w')) AS m(mode)
    WHERE f.pronargs > 0 AND f.pronargs - f.pronargdefaults <= 1
  -- Domains: over others, in rows, in arrays, as arguments.
  UNION ALL SELECT 't', oid, 'r', 't', typbasetype, 'r' FROM pg_type WHERE typbasetype >= 16384
  UNION ALL SELECT 't', oid, 'r', 't', typelem, 'r' FROM pg_type WHERE typelem >= 16384
  UNION ALL SELECT 't', rngtypid, 'r', 't', rngsubtype, 'r' FROM pg_range WHERE rngsubtype >= 16384
  UNION ALL SELECT 't', c.reltype, 'r', 't', a.atttypid, 'r'
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE a.atttypid >= 16384 AND c.reltype <> 0
  UNION ALL SELECT 'r', a.attrelid, m.mode, 't', a.atttypid, 'r'
    FROM pg_attribute a, (VALUES ('r'), ('w')) AS m(mode)
    WHERE a.atttypid >= 16384 AND NOT a.attisdropped
  UNION ALL SELECT 't', rngtypid, 'r', 'f', f.id, 'r'
    FROM pg_range, unnest(array[rngcanonical::oid, rngsubdiff::oid]) AS f(id) WHERE f.id >= 16384),
suspect(kind, id, mode, bit) AS (
  SELECT DISTINCT kind, id, mode, bit FROM base
  UNION
  SELECT e.kind, e.id, e.mode, s.bit
    FROM suspect s JOIN edge e ON (e.used_kind, e.used_id, e.used_mode) = (s.kind, s.id, s.mode)),
named(kind, name, mode, bit) AS (
  SELECT 'f', f.name, s.mode, s.bit FROM func f LEFT JOIN suspect s ON s.kind = 'f' AND s.id = f.oid
  UNION SELECT 'r', r.name, s.mode, s.bit
    FROM relation r LEFT JOIN suspect s ON s.kind = 'r' AND s.id = r.oid WHERE r.relkind <> 'c'
  UNION SELECT 'o', o.oprname, 'r', s.bit FROM suspect s JOIN pg_operator o ON s.kind = 'o' AND o.oid = s.id
  UNION SELECT 'w', t.typname, 'r', s.bit FROM suspect s JOIN pg_type t ON s.kind = 't' AND t.oid = s.id
    WHERE t.typelem = 0
  UNION SELECT 'w', f.name, 'r', s.bit FROM suspect s JOIN func f ON s.kind = 'f' AND f.oid = s.id
    WHERE f.pronargs > 0 AND f.pronargs - f.pronargdefaults <= 1
      AND f.proargtypes[0] IN (2249, 2276, 2283, 2776, 5077, 5079)
  UNION SELECT 'e', '', 'r', s.bit FROM suspect s WHERE s.kind = 'e'
  UNION SELECT 'e', 'utf8', NULL, NULL WHERE current_setting('server_encoding') = 'UTF8'
  UNION SELECT 's', lower(m.name[1]), NULL, NULL
    FROM func f, LATERAL regexp_matches(f.source,
      '(?:set_config|current_setting)[[:space:]]*[(][[:space:]''E]*([a-z_][a-z0-9_$]*(?:[.][a-z_][a-z0-9_$]*)+)', 'gi') AS m(name)
    WHERE f.language NOT IN ('c', 'internal')
  UNION SELECT 's', lower(m.name[1]), NULL, NULL
    FROM func f, LATERAL regexp_matches(f.source,
      '(?:set|reset|local|session)[[:space:]]+([a-z_][a-z0-9_$]*(?:[.][a-z_][a-z0-9_$]*)+)[[:space:]]*(?:=|to[[:space:]]|;)', 'gi') AS m(name)
    WHERE f.language NOT IN ('c', 'internal')
  UNION SELECT 's', lower(m.name[1]), NULL, NULL
    FROM pg_policy p, LATERAL (VALUES (p.polqual), (p.polwithcheck)) AS x(tree), LATERAL regexp_matches(
      pg_get_expr(x.tree, p.polrelid),
      'current_setting[(]''([a-z_][a-z0-9_$]*(?:[.][a-z_][a-z0-9_$]*)+)''', 'gi') AS m(name)
    WHERE strpos(x.tree::text, 'funcid 2077 ') > 0 OR strpos(x.tree::text, 'funcid 3294 ') > 0)
SELECT kind, name,
  string_agg(DISTINCT bit, ' ') FILTER (WHERE mode = 'r'),
  string_agg(DISTINCT bit, ' ') FILTER (WHERE mode = 'w')
FROM named
WHERE kind = 'w' OR name !~ '[^ -~]' OR current_setting('server_encoding') = 'UTF8'
GROUP BY kind, name
ORDER BY count(bit) = 0, kind, name
LIMIT 60000
