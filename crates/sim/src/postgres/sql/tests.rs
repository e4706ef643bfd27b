use pgweir_core::session::{Class, Clean, ToDeallocate};

use super::{eval::Rows, *};

fn state() -> State {
    let defaults = [
        ("work_mem", "4MB"),
        ("timezone", "UTC"),
        ("role", "none"),
        ("lock_timeout", "0"),
        ("statement_timeout", "0"),
        ("session_authorization", "ann"),
    ];
    State::new(
        defaults
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    )
}

/// What the last statement of a text gives, as one simple query.
fn run(state: &mut State, text: &str) -> Result<Vec<Vec<Option<String>>>, Failure> {
    let facts = Facts {
        named: vec!["PGWEIR_1".to_owned()],
        user: "ann".to_owned(),
        next_value: 17,
        refuses: true,
    };
    state.begin();
    let mut last = Ok(Rows::default());
    for part in split(text)
        .into_iter()
        .filter(|part| !part.trim().is_empty())
    {
        let Some(statement) = parse(part) else {
            last = Err(Failure::Unknown(part.to_owned()));
            break;
        };
        last = state.apply(&statement, text, &facts);
        if last.is_err() {
            break;
        }
    }
    if last.is_err() {
        state.abort();
    }
    state.end();
    last.map(|rows| rows.0)
}

/// The rows of a query, columns and rows between blanks and bars.
fn rows(state: &mut State, text: &str) -> String {
    let rows = run(state, text).unwrap_or_else(|why| panic!("{text}: {why:?}"));
    let row = |row: &Vec<Option<String>>| {
        let columns = row.iter().map(|value| value.as_deref().unwrap_or("-"));
        columns.collect::<Vec<_>>().join(" ")
    };
    rows.iter().map(row).collect::<Vec<_>>().join("|")
}

fn dirty() -> State {
    let mut state = state();
    for text in [
        "set work_mem = '9MB'; set app.tenant to 't1'; set role r1",
        "/*c1r1*/prepare q1 as select rows(1, 2)",
        "create temp table t1 (a int); declare c1 cursor with hold for select rows(1, 1)",
        "select pg_advisory_lock_shared(7); listen \"Ch\"",
        "select nextval('s'); select setseed(0.5)",
    ] {
        run(&mut state, text).expect(text);
    }
    state
}

#[test]
fn settings_are_transactional() {
    let mut state = state();
    assert_eq!(
        rows(
            &mut state,
            "set work_mem='5MB'; select current_setting('work_mem')"
        ),
        "5MB"
    );
    assert!(run(&mut state, "set work_mem='6MB'; set nonsense = 1").is_err());
    assert_eq!(state.value("work_mem"), Some("5MB"));
    assert_eq!(
        rows(
            &mut state,
            "set local work_mem='7MB'; select current_setting('work_mem')"
        ),
        "7MB"
    );
    assert_eq!(state.value("work_mem"), Some("5MB"));
    run(
        &mut state,
        "select set_config('work_mem', '8MB', true); reset all",
    )
    .unwrap();
    assert_eq!(state.value("work_mem"), Some("4MB"));
    state.begin();
    state.savepoint("a");
    state
        .apply(&parse("set app.x = 'y'").unwrap(), "", &Facts::default())
        .unwrap();
    assert!(state.roll_back_to("a") && state.release("a") && !state.release("a"));
    assert_eq!(state.value("app.x"), None);
}

#[test]
fn what_a_look_finds() {
    let probe = pgweir_core::session::Probe::full(vec![b"app.tenant"[..].into()]);
    let text = String::from_utf8(probe.text()).unwrap();
    assert_eq!(rows(&mut state(), &text), "n  0".replace('0', "1"));
    assert_eq!(
        rows(&mut dirty(), &text),
        "g work_mem 9MB|g role r1|g app.tenant t1|t  |h  |a  |\
         p q1 /*c1r1*/prepare q1 as select rows(1, 2)|n  1|c Ch "
    );
    assert_eq!(
        rows(
            &mut dirty(),
            "SELECT pg_catalog.current_setting('work_mem'), pg_catalog.current_setting('app.no', true)"
        ),
        "9MB -"
    );
}

#[test]
fn a_clean_takes_all() {
    let clean = "SET LOCAL statement_timeout=0;SET TRANSACTION ISOLATION LEVEL READ COMMITTED,NOT DEFERRABLE;\
        RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;SET LOCAL lock_timeout='1s';\
        CLOSE ALL;UNLISTEN *;DISCARD SEQUENCES;DISCARD TEMP;DEALLOCATE \"q1\";\
        SELECT pg_catalog.pg_advisory_unlock_all(),pg_catalog.setseed(pg_catalog.float8(\
        pg_catalog.uuid_hash(pg_catalog.gen_random_uuid())) OPERATOR(pg_catalog./) 2147483648::pg_catalog.float8),\
        pg_catalog.count(*) FILTER (WHERE from_sql),pg_catalog.count(*) FILTER (WHERE NOT from_sql)\
        FROM pg_catalog.pg_prepared_statement()";
    let mut state = dirty();
    assert_eq!(rows(&mut state, clean), "  0 1");
    assert_eq!(state.difference_from(&self::state()), None);
    assert!(!state.is_bound() && !state.has_sequences() && state.remains().is_none());
    let mut state = dirty();
    let clean = Clean {
        class: Class::Opaque,
        changes_role: true,
        changes_plans: true,
        reseeds: false,
        version: 18,
    };
    let text = String::from_utf8(clean.text(&ToDeallocate::All)).unwrap();
    run(&mut state, &text).unwrap();
    let left = state.difference_from(&self::state()).expect("the seed");
    assert!(left.contains("seed"), "{left}");
}

#[test]
fn differences() {
    let mut other = dirty();
    for (text, what) in [
        ("discard sequences", None),
        ("unlisten *", None),
        ("set work_mem = '1MB'", Some("work_mem")),
        ("reset app.tenant", Some("app.tenant")),
        ("reset role", Some("role")),
        ("discard temp", Some("temporary")),
        ("close c1", Some("cursors")),
        ("deallocate q1", Some("statements")),
        ("select pg_advisory_unlock_shared(7)", Some("locks")),
        ("select nextval('other')", Some("sequences")),
        ("listen x", Some("channels")),
        ("select setseed(0.1)", Some("seed")),
    ] {
        other.clone_from(&dirty());
        run(&mut other, text).expect(text);
        let found = other.difference_from(&dirty());
        assert_eq!(found.is_some(), what.is_some(), "{text}: {found:?}");
        assert!(
            found.unwrap_or_default().contains(what.unwrap_or_default()),
            "{text}"
        );
    }
}

#[test]
fn effects_that_are_hidden() {
    let mut state = state();
    run(&mut state, "select whisper('t2'), harmless()").unwrap();
    assert_eq!(state.value("app.whisper"), Some("t2"));
    run(
        &mut state,
        "select learn('q9'); insert into locked values (3); insert into plain values (1)",
    )
    .unwrap();
    assert_eq!(state.prepared("q9"), Some("select rows(1, 1)"));
    assert!(state.remains().is_some());
    assert!(matches!(
        run(&mut state, "insert into nowhere values (1)"),
        Err(Failure::Sql("42P01", _))
    ));
}

#[test]
fn what_is_not_known_is_told_apart() {
    for text in [
        "select foreign_function()",
        "vacuum",
        "select * from t",
        "select 1 from pg_class where relkind = 'r'",
    ] {
        assert!(
            matches!(run(&mut dirty(), text), Err(Failure::Unknown(_))),
            "{text}"
        );
    }
}
