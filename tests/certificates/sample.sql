-- Objects that leave a trace, that leave none, and that hide it. Beside each kind of object stands
-- what the catalog's reading must say: `--: kind name read / write`.
--: r plain / 
CREATE TABLE plain (id int, a text);
--: r serials / SEQUENCE
--: r serials_id_seq / 
CREATE TABLE serials (id serial, a text);
--: r idents / SEQUENCE
--: r idents_id_seq / 
CREATE TABLE idents (id int generated always as identity, a text);
--: f clean_sql / 
CREATE FUNCTION clean_sql(int) RETURNS int LANGUAGE sql AS 'SELECT $1 + 1';
--: f clean_update / 
CREATE FUNCTION clean_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- set the thing; execute, create and drop
  IF TG_OP = 'UPDATE' THEN UPDATE plain SET a = NEW.a WHERE id = NEW.id; END IF;
  INSERT INTO plain VALUES (1) ON CONFLICT DO NOTHING;
  SET LOCAL statement_timeout = 0;
  PERFORM set_config('app.local', 'x', true);
  NEW.updated_at := now();
  RETURN NEW;
END $$;
--: f hidden SETTING|OPAQUE /
CREATE FUNCTION hidden() RETURNS text LANGUAGE sql AS $$ SELECT set_config('app.tenant', 'x', false) $$;
--: f hidden_set TEMP|OPAQUE /
CREATE FUNCTION hidden_set() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN SET app.x = '1'; END IF;
  RETURN NEW;
END $$;
--: f calls_hidden SETTING|OPAQUE /
CREATE FUNCTION calls_hidden() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN hidden(); END $$;
--: f calls_calls SETTING|OPAQUE /
CREATE FUNCTION calls_calls() RETURNS text LANGUAGE sql AS $$ SELECT calls_hidden() $$;
--: f locks LOCK|OPAQUE /
CREATE FUNCTION locks() RETURNS void LANGUAGE sql AS $$ SELECT pg_advisory_lock(1) $$;
--: f kills TERMINATES|CANCELS /
CREATE FUNCTION kills(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
  RETURN pg_terminate_backend($1) OR pg_cancel_backend($1);
END $$;
--: f dynamic TEMP|OPAQUE|UNREAD /
CREATE FUNCTION dynamic(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE $1; END $$;
--: f hides_in_comment SETTING|LOCK|OPAQUE /
CREATE FUNCTION hides_in_comment() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
 /* -- */ PERFORM set_config('a.b','c',false);
 PERFORM '--'; PERFORM pg_advisory_lock(1);
END $$;
--: f inserts_serials SEQUENCE /
CREATE FUNCTION inserts_serials() RETURNS void LANGUAGE sql AS $$ INSERT INTO serials (a) VALUES ('x') $$;
--: f makes_temp TEMP|OPAQUE /
CREATE FUNCTION makes_temp() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CREATE TEMP TABLE x (a int) ON COMMIT DROP; END $$;
--: f into_temp TEMP|OPAQUE /
CREATE FUNCTION into_temp() RETURNS void LANGUAGE sql AS $$ SELECT 1 AS a INTO pg_temp.y $$;
--: r rowed / 
CREATE TABLE rowed (id int);
--: f of_row SETTING|OPAQUE /
CREATE FUNCTION of_row(rowed) RETURNS text LANGUAGE sql AS $$ SELECT set_config('a.b', 'c', false) $$;
--: f polymorphic SETTING|OPAQUE /
CREATE FUNCTION polymorphic(anyelement) RETURNS text LANGUAGE sql AS $$ SELECT set_config('a.b', 'c', false) $$;
--: f with_default SETTING|OPAQUE /
CREATE FUNCTION with_default(a text DEFAULT set_config('a.b', 'c', false)) RETURNS text LANGUAGE sql AS $$ SELECT $1 $$;
--: f set_seed SETTING|OPAQUE /
CREATE FUNCTION set_seed() RETURNS void LANGUAGE sql AS $$ SELECT set_config('seed', '0.5', true) $$;
--: r triggered / 
CREATE TABLE triggered (id int, updated_at timestamptz);
CREATE TRIGGER t BEFORE UPDATE ON triggered FOR EACH ROW EXECUTE FUNCTION clean_update();
--: r dirty_triggered / TEMP|OPAQUE
CREATE TABLE dirty_triggered (id int primary key);
CREATE TRIGGER t BEFORE UPDATE ON dirty_triggered FOR EACH ROW EXECUTE FUNCTION hidden_set();
--: r parent_key / TEMP|OPAQUE
CREATE TABLE parent_key (id int primary key);
--: r child_key / TEMP|OPAQUE
CREATE TABLE child_key (id int references parent_key ON DELETE CASCADE);
CREATE TRIGGER t AFTER DELETE ON child_key FOR EACH ROW EXECUTE FUNCTION hidden_set();
--: r clean_view / 
CREATE VIEW clean_view AS SELECT id, upper(a) FROM plain;
--: r dirty_view SETTING|OPAQUE / SETTING|OPAQUE
CREATE VIEW dirty_view AS SELECT id, set_config('a.b', a, false) FROM plain;
--: r view_of_dirty SETTING|OPAQUE / SETTING|OPAQUE
CREATE VIEW view_of_dirty AS SELECT * FROM dirty_view;
--: r view_of_function SETTING|OPAQUE / SETTING|OPAQUE
CREATE VIEW view_of_function AS SELECT hidden();
--: r view_of_serials / SEQUENCE
CREATE VIEW view_of_serials AS SELECT * FROM serials;
--: r view_of_settings / SETTING|OPAQUE
CREATE VIEW view_of_settings AS SELECT * FROM pg_settings;
--: r view_of_statements STATEMENTS_VIEW / STATEMENTS_VIEW
CREATE VIEW view_of_statements AS SELECT * FROM pg_prepared_statements;
--: r ruled / SETTING|OPAQUE
CREATE TABLE ruled (a int);
CREATE RULE r AS ON INSERT TO ruled DO ALSO SELECT hidden();
--: r policed SETTING|OPAQUE / SETTING|OPAQUE
CREATE TABLE policed (a text);
CREATE POLICY p ON policed USING (a = current_setting('app.tenant', true));
CREATE POLICY q ON policed USING (hidden() = a);
--: r policed_clean / 
CREATE TABLE policed_clean (a text);
CREATE POLICY p ON policed_clean USING (a = current_setting('app.tenant_id', true));
--: r defaulted / SETTING|OPAQUE
CREATE TABLE defaulted (a text DEFAULT hidden());
--: r checked SETTING|OPAQUE / SETTING|OPAQUE
CREATE TABLE checked (a text CHECK (hidden() <> a));
--: f lies SETTING|OPAQUE /
CREATE FUNCTION lies(text) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT set_config('a.b', $1, false) $$;
--: f lies_plpgsql SETTING|OPAQUE /
CREATE FUNCTION lies_plpgsql(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN set_config('a.b', $1, false); END $$;
--: r indexed SETTING|OPAQUE / SETTING|OPAQUE
CREATE TABLE indexed (a text);
CREATE INDEX i ON indexed (lies_plpgsql(a));
--: r generated SETTING|OPAQUE / SETTING|OPAQUE
CREATE TABLE generated (a text, b text GENERATED ALWAYS AS (lies_plpgsql(a)) STORED);
--: r parts SETTING|OPAQUE / SETTING|OPAQUE
CREATE TABLE parts (a text) PARTITION BY LIST (lies_plpgsql(a));
--: r part_1 SETTING|OPAQUE / SETTING|OPAQUE
CREATE TABLE part_1 PARTITION OF parts DEFAULT;
--: r parted / TEMP|OPAQUE
CREATE TABLE parted (a int) PARTITION BY LIST (a);
--: r parted_1 / TEMP|OPAQUE
CREATE TABLE parted_1 PARTITION OF parted DEFAULT;
CREATE TRIGGER t BEFORE INSERT ON parted_1 FOR EACH ROW EXECUTE FUNCTION hidden_set();
CREATE DOMAIN dirty_domain AS text CHECK (lies_plpgsql(VALUE) <> '');
CREATE DOMAIN over_domain AS dirty_domain;
CREATE DOMAIN clean_domain AS text CHECK (length(VALUE) < 10);
--: r domained / 
CREATE TABLE domained (a over_domain);
--: r domained_clean / 
CREATE TABLE domained_clean (a clean_domain);
--: f op SETTING|OPAQUE /
CREATE FUNCTION op(int, int) RETURNS bool LANGUAGE sql AS $$ SELECT hidden() = '' $$;
CREATE OPERATOR === (leftarg = int, rightarg = int, function = op);
--: r operated SETTING|OPAQUE / SETTING|OPAQUE
CREATE VIEW operated AS SELECT id === 1 AS x FROM plain;
--: f trans SETTING|OPAQUE /
CREATE FUNCTION trans(int, int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM hidden(); RETURN $1; END $$;
--: f dirty_agg SETTING|OPAQUE /
CREATE AGGREGATE dirty_agg(int) (sfunc = trans, stype = int);
--: f clean_agg / 
CREATE AGGREGATE clean_agg(int) (sfunc = int4pl, stype = int);
--: r Grün / 
CREATE TABLE "Grün" (a int);
--: r mat / 
CREATE MATERIALIZED VIEW mat AS SELECT * FROM plain;
--: r seq / 
CREATE SEQUENCE seq;
--: f proc TEMP|OPAQUE /
CREATE PROCEDURE proc() LANGUAGE plpgsql AS $$ BEGIN SET app.y = 1; COMMIT; END $$;
