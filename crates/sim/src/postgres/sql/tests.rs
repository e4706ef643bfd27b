use std::sync::Arc;

use pgweir_core::session::{
    AllSettings, BASELINE, Baseline, Class, Clean, Probe, SettingsTable, ToDeallocate,
};

use super::{eval::Rows, *};

fn state() -> State {
    let defaults = [
        ("work_mem", "4MB"),
        ("timezone", "UTC"),
        ("role", "none"),
        ("lock_timeout", "0"),
        ("statement_timeout", "0"),
        ("transaction_timeout", "0"),
        ("jit", "on"),
        ("session_authorization", "ann"),
    ];
    State::new(
        defaults
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    )
}

/// Runs all statements of a text as one simple query, and returns the rows.
fn run(state: &mut State, text: &str) -> Result<Vec<Vec<Option<String>>>, Failure> {
    let facts = Facts {
        named: vec!["PGWEIR_1".to_owned()],
        user: "ann".to_owned(),
        next_value: 17,
        database: 5,
        refuses: true,
    };
    state.begin();
    let mut found = Ok(Rows::default());
    for part in split(text)
        .into_iter()
        .filter(|part| !part.trim().is_empty())
    {
        let Some(statement) = parse(part) else {
            found = Err(Failure::Unknown(part.to_owned()));
            break;
        };
        match (&mut found, state.apply(&statement, text, &facts)) {
            (Ok(found), Ok(mut rows)) => found.0.append(&mut rows.0),
            (_, result) => {
                found = result;
                break;
            }
        }
    }
    if found.is_err() {
        state.abort();
    }
    state.end();
    found.map(|rows| rows.0)
}

/// Returns the rows of a query as text, with spaces and bars between columns and rows.
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

/// Returns the result of an inspection in a session of its own. Its settings are compared with this baseline, or
/// listed.
fn look(state: &mut State, baseline: Option<Baseline>) -> String {
    let mut probe = Probe::full(vec![b"app.tenant"[..].into()]);
    if let Some(baseline) = baseline {
        probe.all = AllSettings::Compared(Arc::new(baseline));
    }
    rows(state, &String::from_utf8(probe.text()).unwrap())
}

#[test]
fn results_of_inspections() {
    // Three parameters with their present values, and with their default values.
    let usual = "0|0|on|0|0|on";
    assert_eq!(look(&mut state(), None), format!("{usual}|f f f f 0 0 1"));
    let found = "g work_mem 9MB|g role r1|g app.tenant t1|t t t t 1 0 1";
    assert_eq!(look(&mut dirty(), None), format!("{usual}|{found}"));
    let mut hostile = state();
    run(&mut hostile, "set statement_timeout = 1; set jit = off").unwrap();
    let shown = "1|0|off|0|0|on";
    assert_eq!(look(&mut hostile, None), format!("{shown}|f f f f 0 0 1"));
    assert_eq!(hostile.value("statement_timeout"), Some("1"));
    let probe = Probe {
        statements: true,
        channels: true,
        ..Probe::default()
    };
    assert_eq!(
        rows(&mut dirty(), &String::from_utf8(probe.text()).unwrap()),
        "p q1 /*c1r1*/prepare q1 as select rows(1, 2)|c Ch "
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
fn a_look_compares() {
    let of_clean = run(&mut state(), BASELINE).unwrap();
    let of_clean: Vec<[Vec<u8>; 4]> = of_clean
        .into_iter()
        .map(|row| {
            let row: Vec<Vec<u8>> = row.into_iter().map(|v| v.unwrap().into()).collect();
            row.try_into().unwrap()
        })
        .collect();
    let baseline = || Baseline::from_rows(&of_clean, &SettingsTable::default());
    // The baseline has the default values of the parameters.
    assert_eq!(look(&mut state(), baseline()), "0|0|on|f f f f 0 0 1");
    assert_eq!(
        look(&mut dirty(), baseline()),
        "0|0|on|g work_mem 9MB|g role r1|g app.tenant t1|t t t t 1 0 1"
    );
}

#[test]
fn a_clean_takes_all() {
    let clean = |reseeds| Clean {
        class: Class::Opaque,
        changes_role: true,
        changes_plans: true,
        reseeds,
        asks: Default::default(),
        version: 18,
    };
    let text =
        |clean: Clean, statements| String::from_utf8(clean.text(&statements, None, None)).unwrap();
    let own = || ToDeallocate::Named(vec![b"q1"]);
    let mut state = dirty();
    let found = rows(&mut state, &text(clean(true), own()));
    // The columns for setseed, locks, and the counts.
    assert_eq!(found, "||0 1 f");
    assert_eq!(state.difference_from(&self::state()), None);
    assert!(!state.is_bound() && !state.has_sequences() && state.remains().is_none());
    let mut state = dirty();
    run(&mut state, &text(clean(false), own())).unwrap();
    let left = state.difference_from(&self::state()).expect("the seed");
    assert!(left.contains("seed"), "{left}");
    let mut state = dirty();
    run(&mut state, &text(clean(true), ToDeallocate::All)).unwrap();
    assert_eq!(state.difference_from(&self::state()), None);
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
fn texts_that_the_model_does_not_know_are_reported() {
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
