use super::{CustomNames, Phrase, custom_names, phrases};

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the phrases of a text, one word for each.
fn of(text: &str) -> String {
    let word = |phrase| match phrase {
        Phrase::Set {
            name,
            local,
            to_default,
        } => {
            let scope = if local { "local" } else { "set" };
            let tail = if to_default { "=default" } else { "" };
            format!("{scope}:{}{tail}", shown(&name))
        }
        Phrase::Reset(name) => format!("reset:{}", shown(&name)),
        Phrase::ResetAll => "reset-all".to_owned(),
        Phrase::SetConfig(name) => match name {
            Some(name) => format!("set_config:{}", shown(&name)),
            None => "set_config?".to_owned(),
        },
        Phrase::Unlisten(None) => "unlisten*".to_owned(),
        Phrase::Unlisten(Some(name)) => format!("unlisten:{}", shown(&name)),
        Phrase::Prepare {
            name,
            statement,
            prepared,
        } => format!(
            "prepare:{}<{}><{}>",
            shown(&name),
            &text[statement],
            &text[prepared]
        ),
        Phrase::Execute(name) => format!("execute:{}", shown(&name)),
        Phrase::Deallocate(None) => "deallocate*".to_owned(),
        Phrase::Deallocate(Some(name)) => format!("deallocate:{}", shown(&name)),
        Phrase::DiscardAll => "discard*".to_owned(),
        Phrase::OfTransaction => "transaction".to_owned(),
        Phrase::Other => "other".to_owned(),
    };
    phrases(text.as_bytes())
        .map(word)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn says() {
    let check = |text: &str, expect: &str| assert_eq!(of(text), expect, "{text}");
    check("", "");
    check(" ; ; ", "");
    check("select 1", "other");
    check("select 1; select 2;", "other other");
    check("SET Search_Path = a, b", "set:search_path");
    check("SET x TO DEFAULT", "set:x=default");
    check("set session x = 1", "set:x");
    check("SET LOCAL a.B = ';'", "local:a.b");
    check("SET \"DateStyle\" = 'ISO'", "set:DateStyle");
    check("SET \"a.b\" = 'x'; SET a.\"C d\" = 1", "set:a.b set:a.C d");
    check("SET local.x = 1", "set:local.x");
    check(
        "SET ROLE x; SET LOCAL ROLE NONE; SET role = x",
        "set:role local:role set:role",
    );
    check(
        "SET SESSION AUTHORIZATION x; SET LOCAL SESSION AUTHORIZATION DEFAULT",
        "set:session_authorization local:session_authorization=default",
    );
    check(
        "SET TIME ZONE 'UTC'; SET TIME ZONE LOCAL",
        "set:TimeZone set:TimeZone=default",
    );
    check(
        "SET NAMES 'UTF8'; SET NAMES DEFAULT",
        "set:client_encoding set:client_encoding=default",
    );
    check(
        "SET SCHEMA 'a'; SET XML OPTION CONTENT; SET SEED TO 0.5",
        "set:search_path set:xmloption set:seed",
    );
    check(
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "set:default_transaction_isolation set:default_transaction_read_only set:default_transaction_deferrable",
    );
    check(
        "SET TRANSACTION READ ONLY; SET CONSTRAINTS ALL DEFERRED",
        "transaction transaction",
    );
}

#[test]
fn says_more() {
    let check = |text: &str, expect: &str| assert_eq!(of(text), expect, "{text}");
    check(
        "RESET ALL; RESET a.b; RESET ROLE; RESET TIME ZONE",
        "reset-all reset:a.b reset:role reset:TimeZone",
    );
    check(
        "RESET SESSION AUTHORIZATION; RESET \"all\"",
        "reset:session_authorization reset:all",
    );
    check(
        "UNLISTEN Abc; UNLISTEN \"A b\"\"c\"; UNLISTEN x; UNLISTEN *",
        "unlisten:abc unlisten:A b\"c unlisten:x unlisten*",
    );
    check(
        "/* a */ PREPARE P (int, numeric(1,2)) AS select $1 -- b\n ; select 1",
        "prepare:p<PREPARE P (int, numeric(1,2)) AS select $1><select $1> other",
    );
    check(
        "PREPARE TRANSACTION 'a'; COMMIT PREPARED 'a'; ROLLBACK PREPARED 'a'",
        "other other other",
    );
    check(
        "EXECUTE p; EXPLAIN ANALYZE EXECUTE \"P\"(1)",
        "execute:p execute:P",
    );
    check("CREATE TEMP TABLE t AS EXECUTE p(1)", "execute:p");
    check(
        "DEALLOCATE p; DEALLOCATE PREPARE p; DEALLOCATE ALL; DEALLOCATE prepare",
        "deallocate:p deallocate:p deallocate* deallocate:prepare",
    );
    check("DISCARD ALL; DISCARD TEMPORARY", "discard* other");
    check(
        "select set_config('a.b', 'c', false), Set_Config ( 'd''e', x)",
        "set_config:a.b set_config:d'e",
    );
    check(
        "select set_config($1, 'c'), set_config('a'||'b', 'c')",
        "set_config? set_config?",
    );
    check("select 'set_config(1)', $$ set x = 1; $$", "other");
    check("select 'unterminated ; set x = 1", "other");
    check("EXECUTE", "other");
    check("DISCARD PLANS", "other");
}

#[test]
fn long_names_are_cut() {
    let check = |name: &str, expect: &str| {
        let text = format!("UNLISTEN \"{name}\"");
        assert_eq!(of(&text), format!("unlisten:{expect}"));
    };
    check(&"a".repeat(70), &"a".repeat(63));
    check(
        &format!("a{}", "\u{e9}".repeat(40)),
        &format!("a{}", "\u{e9}".repeat(31)),
    );
    check(&"\u{e9}".repeat(40), &"\u{e9}".repeat(31));
}

#[test]
fn custom_parameters() {
    let check = |text: &str, expect: &[&str]| {
        let names: Vec<_> = custom_names(text.as_bytes())
            .iter()
            .map(|name| shown(name))
            .collect();
        assert_eq!(names, expect, "{text}");
    };
    check("select a.b from c", &[]);
    check(
        "set App.Tenant = 1; show b.c; reset d.e.f; set local g.h = 1; set session i.j to 2",
        &["app.tenant", "b.c", "d.e.f", "g.h", "i.j"],
    );
    check(
        "select set_config('a.b', x, true), current_setting( 'c.d' )",
        &["a.b", "c.d"],
    );
    check("do 'begin perform set_config(''a.b'', 1); end'", &["a.b"]);
    check("do $$ begin execute 'set a.b = 1'; end $$", &["a.b"]);
    check(
        "select current_setting(E'e.f'), set_config(\"x\")",
        &["e.f"],
    );
    check("set \"a.b\" = 1; set \"c\".\"d\" = 1", &["a.b", "c.d"]);
    check("select current_setting('search_path'), set_config(", &[]);
    check("set a. = 1", &[]);
    // Words in a name that is too long are not read again, but words after it are read.
    let long = "set.".repeat(CustomNames::NAME_MAX / 4);
    let text = format!("set {long}set.set.; set a.b = 1");
    let names = custom_names(text.as_bytes());
    assert!(names.contains(&b"a.b"[..]) && names.len() < 8, "{names:?}");
    check(
        "set_config(ee'e.f'), set_config (\n$$a.b$$), current_setting('\"c\".d')",
        &["a.b", "a.b$$", "c.d", "e.f"],
    );
    check("select set_config($t$a.b$t$, x)", &["a.b", "t$a.b$t$"]);
    check("set session set.local.x", &["set.local.x"]);
    check(
        "reset settled.x, unset a.b, set_configs('c.d')",
        &["settled.x"],
    );
    check(
        "select set_config(n, 'v', false) from (values ('App.a'), ('x'), ('t.b.c'), (E't.d'), (1.5)) v(n), s.t",
        &["app.a", "t.d"],
    );
    check(
        "do 'execute f(''select set_config($1)'') using ''a.b'' '",
        &["a.b"],
    );
    check("select set_config('c.d', 'e.f', false)", &["c.d"]);
    check("select current_setting(n) from (values ('a.b')) v(n)", &[]);
    let [cut, truncated] = [254, 63].map(|len| format!("a.{}", "b".repeat(len)));
    check(&format!("set a.{}", "b".repeat(300)), &[&truncated, &cut]);
    let [long, truncated] = [40, 31].map(|len| format!("{}.b", "\u{e9}".repeat(len)));
    check(&format!("set {long} = 1"), &[&truncated, &long]);
}

/// The result does not depend on how a text is cut into pieces.
#[test]
fn custom_parameters_in_pieces() {
    let text =
        b"select set_config ( E'app.x', 'y', false); SET LOCAL app.z = 'reset a.b'; show \"c\".d";
    let whole = custom_names(text);
    assert_eq!(whole.len(), 4);
    for first in 0..text.len() {
        for second in first..text.len() {
            let mut names = CustomNames::default();
            for piece in [&text[..first], &text[first..second], &text[second..]] {
                names.read(piece);
            }
            assert_eq!(names.finish(), whole, "{first} {second}");
        }
    }
}

/// Such a text may bring back startup values.
#[test]
fn resets_in_pieces() {
    for (pieces, may_reset) in [
        (["/* a */res", "et all\0"], true),
        (["set a.b to DEF", "AULT;"], true),
        (["discard", " all\0"], true),
        (["select resets, ", "preset\0"], false),
    ] {
        let mut names = CustomNames::default();
        for piece in pieces {
            names.read(piece.as_bytes());
        }
        assert_eq!(names.may_reset(), may_reset, "{pieces:?}");
    }
}
