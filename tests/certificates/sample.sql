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
--: f hidden SETTING / 
CREATE FUNCTION hidden() RETURNS text LANGUAGE sql AS $$ SELECT set_config('app.tenant', 'x', false) $$;
--: f hidden_set SETTING / 
CREATE FUNCTION hidden_set() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN SET app.x = '1'; END IF;
  RETURN NEW;
END $$;
--: f calls_hidden SETTING / 
CREATE FUNCTION calls_hidden() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN hidden(); END $$;
--: f calls_calls SETTING / 
CREATE FUNCTION calls_calls() RETURNS text LANGUAGE sql AS $$ SELECT calls_hidden() $$;
--: f locks LOCK / 
CREATE FUNCTION locks() RETURNS void LANGUAGE sql AS $$ SELECT pg_advisory_lock(1) $$;
--: f kills CANCELS TERMINATES / 
CREATE FUNCTION kills(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
  RETURN pg_terminate_backend($1) OR pg_cancel_backend($1);
END $$;
--: f dynamic OPAQUE / 
CREATE FUNCTION dynamic(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE $1; END $$;
--: f hides_in_comment LOCK SETTING / 
CREATE FUNCTION hides_in_comment() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
 /* -- */ PERFORM set_config('a.b','c',false);
 PERFORM '--'; PERFORM pg_advisory_lock(1);
END $$;
--: f inserts_serials SEQUENCE / 
CREATE FUNCTION inserts_serials() RETURNS void LANGUAGE sql AS $$ INSERT INTO serials (a) VALUES ('x') $$;
--: f makes_temp OPAQUE TEMP / 
CREATE FUNCTION makes_temp() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CREATE TEMP TABLE x (a int) ON COMMIT DROP; END $$;
--: f into_temp OPAQUE TEMP / 
CREATE FUNCTION into_temp() RETURNS void LANGUAGE sql AS $$ SELECT 1 AS a INTO pg_temp.y $$;
--: r rowed SETTING / SETTING
CREATE TABLE rowed (id int);
--: f of_row SETTING / 
CREATE FUNCTION of_row(rowed) RETURNS text LANGUAGE sql AS $$ SELECT set_config('a.b', 'c', false) $$;
--: f polymorphic SETTING / 
--: w polymorphic SETTING / 
CREATE FUNCTION polymorphic(anyelement) RETURNS text LANGUAGE sql AS $$ SELECT set_config('a.b', 'c', false) $$;
--: f with_default SETTING / 
CREATE FUNCTION with_default(a text DEFAULT set_config('a.b', 'c', false)) RETURNS text LANGUAGE sql AS $$ SELECT $1 $$;
--: f set_seed SEED / 
CREATE FUNCTION set_seed() RETURNS void LANGUAGE sql AS $$ SELECT set_config('seed', '0.5', true) $$;
--: r triggered / 
CREATE TABLE triggered (id int, updated_at timestamptz);
CREATE TRIGGER t BEFORE UPDATE ON triggered FOR EACH ROW EXECUTE FUNCTION clean_update();
--: r dirty_triggered / SETTING
CREATE TABLE dirty_triggered (id int primary key);
CREATE TRIGGER t BEFORE UPDATE ON dirty_triggered FOR EACH ROW EXECUTE FUNCTION hidden_set();
--: r parent_key / SETTING
CREATE TABLE parent_key (id int primary key);
--: r child_key / SETTING
CREATE TABLE child_key (id int references parent_key ON DELETE CASCADE);
CREATE TRIGGER t AFTER DELETE ON child_key FOR EACH ROW EXECUTE FUNCTION hidden_set();
--: r clean_view / 
CREATE VIEW clean_view AS SELECT id, upper(a) FROM plain;
--: r dirty_view SETTING / SETTING
CREATE VIEW dirty_view AS SELECT id, set_config('a.b', a, false) FROM plain;
--: r view_of_dirty SETTING / SETTING
CREATE VIEW view_of_dirty AS SELECT * FROM dirty_view;
--: r view_of_function SETTING / SETTING
CREATE VIEW view_of_function AS SELECT hidden();
--: r view_of_serials / SEQUENCE
CREATE VIEW view_of_serials AS SELECT * FROM serials;
--: r view_of_settings / SETTING
CREATE VIEW view_of_settings AS SELECT * FROM pg_settings;
--: r view_of_statements STATEMENTS_VIEW / STATEMENTS_VIEW
CREATE VIEW view_of_statements AS SELECT * FROM pg_prepared_statements;
--: r ruled / SETTING
CREATE TABLE ruled (a int);
CREATE RULE r AS ON INSERT TO ruled DO ALSO SELECT hidden();
--: r policed SETTING / SETTING
CREATE TABLE policed (a text);
CREATE POLICY p ON policed USING (a = current_setting('app.tenant', true));
CREATE POLICY q ON policed USING (hidden() = a);
--: r policed_clean / 
CREATE TABLE policed_clean (a text);
CREATE POLICY p ON policed_clean USING (a = current_setting('app.tenant_id', true));
--: r defaulted SETTING / SETTING
CREATE TABLE defaulted (a text DEFAULT hidden());
--: r checked / SETTING
CREATE TABLE checked (a text CHECK (hidden() <> a));
--: f lies SETTING / 
CREATE FUNCTION lies(text) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT set_config('a.b', $1, false) $$;
--: f lies_plpgsql SETTING / 
CREATE FUNCTION lies_plpgsql(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN set_config('a.b', $1, false); END $$;
--: r indexed SETTING / SETTING
CREATE TABLE indexed (a text);
CREATE INDEX i ON indexed (lies_plpgsql(a));
--: r generated SETTING / SETTING
CREATE TABLE generated (a text, b text GENERATED ALWAYS AS (lies_plpgsql(a)) STORED);
--: r parts SETTING / SETTING
CREATE TABLE parts (a text) PARTITION BY LIST (lies_plpgsql(a));
--: r part_1 SETTING / SETTING
CREATE TABLE part_1 PARTITION OF parts DEFAULT;
--: r parted / SETTING
CREATE TABLE parted (a int) PARTITION BY LIST (a);
--: r parted_1 / SETTING
CREATE TABLE parted_1 PARTITION OF parted DEFAULT;
CREATE TRIGGER t BEFORE INSERT ON parted_1 FOR EACH ROW EXECUTE FUNCTION hidden_set();
--: w dirty_domain SETTING / 
CREATE DOMAIN dirty_domain AS text CHECK (lies_plpgsql(VALUE) <> '');
--: w over_domain SETTING / 
CREATE DOMAIN over_domain AS dirty_domain;
CREATE DOMAIN clean_domain AS text CHECK (length(VALUE) < 10);
--: r domained SETTING / SETTING
--: w domained SETTING / 
CREATE TABLE domained (a over_domain);
--: r domained_clean / 
CREATE TABLE domained_clean (a clean_domain);
--: f op SETTING / 
CREATE FUNCTION op(int, int) RETURNS bool LANGUAGE sql AS $$ SELECT hidden() = '' $$;
--: o === SETTING / 
CREATE OPERATOR === (leftarg = int, rightarg = int, function = op);
--: r operated SETTING / SETTING
CREATE VIEW operated AS SELECT id === 1 AS x FROM plain;
--: f trans SETTING / 
CREATE FUNCTION trans(int, int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM hidden(); RETURN $1; END $$;
--: f dirty_agg SETTING / 
CREATE AGGREGATE dirty_agg(int) (sfunc = trans, stype = int);
--: f clean_agg / 
CREATE AGGREGATE clean_agg(int) (sfunc = int4pl, stype = int);
--: r Grün / 
CREATE TABLE "Grün" (a int);
--: r mat / 
CREATE MATERIALIZED VIEW mat AS SELECT * FROM plain;
--: r seq / 
CREATE SEQUENCE seq;
--: f proc SETTING / 
CREATE PROCEDURE proc() LANGUAGE plpgsql AS $$ BEGIN SET app.y = 1; COMMIT; END $$;
