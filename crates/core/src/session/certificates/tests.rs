use super::*;

#[test]
fn nothing_is_clean_before_the_catalog_is_read() {
    let unread = Certificates::default();
    assert_eq!(unread.every_text(), Suspicion::OPAQUE);
    assert_ne!(unread.id(), Certificates::none().id());
    let read = Certificates::from_rows(1, [row("r", "accounts", "", "OPAQUE TEMP")]);
    let outdated = read.outdated(2);
    assert_eq!(outdated.generation(), 2);
    assert_ne!(outdated.id(), read.id());
    assert_eq!(outdated.outdated(3).id(), outdated.id());
    assert_eq!(outdated.every_text(), Suspicion::OPAQUE);
    let written = outdated.word(Name::of(b"accounts")).write;
    assert!(written.contains(Suspicion::TEMP), "it may do DDL");
}

#[test]
fn words() {
    let rows = [
        row("r", "audited", "", "OPAQUE"),
        row("f", "Set_It", "SETTING", ""),
    ];
    let certificates = Certificates::from_rows(1, rows);
    let word = |name: &str| certificates.word(Name::of(name.as_bytes()));
    assert_eq!(word("audited").write, Suspicion::OPAQUE);
    assert_eq!(word("set_it").read, Suspicion::SETTING);
    assert_eq!(word("innocent"), Traces::default());
    assert_eq!(word("pg_settings").write, Suspicion::SETTING);
    for name in [
        "query_to_xml",
        "lo_import",
        "binary_upgrade_set_record_init_privs",
    ] {
        assert_eq!(word(name).read, Suspicion::OPAQUE, "{name}");
    }
    assert_eq!(word("nextval").read, Suspicion::SEQUENCE);
}

fn row<'a>(kind: &'a str, name: &'a str, read: &'a str, write: &'a str) -> [&'a [u8]; 4] {
    [kind, name, read, write].map(str::as_bytes)
}

fn function(certificates: &Certificates, name: &str) -> Suspicion {
    certificates.function(Name::of(name.as_bytes()))
}

#[test]
fn the_catalog_adds_to_what_is_known() {
    let certificates = Certificates::from_rows(
        7,
        [
            row("f", "mine", "", ""),
            row("f", "Lower", "LOCK SEED", ""),
            row("f", "odd", "SOMETHING", ""),
            row("r", "mine", "", "SEQUENCE"),
            row("s", "a.b", "", ""),
        ],
    );
    assert_eq!(certificates.generation(), 7);
    assert_eq!(function(&certificates, "mine"), Suspicion::NONE);
    assert_eq!(
        function(&certificates, "lower"),
        Suspicion::LOCK | Suspicion::SEED
    );
    assert_eq!(function(&certificates, "odd"), Suspicion::OPAQUE);
    assert_eq!(function(&certificates, "other"), Suspicion::OPAQUE);
    let mine = certificates.relation(Name::of(b"mine"));
    assert_eq!(
        (mine.read, mine.write),
        (Suspicion::NONE, Suspicion::SEQUENCE)
    );
    assert_eq!(certificates.custom_names().collect::<Vec<_>>(), [b"a.b"]);
    assert!(certificates.every_text().is_empty());
}

#[test]
fn others_have_another_id() {
    let rows = [row("f", "a", "", ""), row("r", "b", "LOCK", "")];
    let id = |rows: &[[&[u8]; 4]]| Certificates::from_rows(1, rows.iter().copied()).id();
    assert_eq!(id(&rows), id(&[rows[1], rows[0]]));
    assert_eq!(id(&[]), Certificates::none().id());
    for other in [
        row("r", "b", "", "LOCK"),
        row("r", "c", "LOCK", ""),
        row("f", "b", "LOCK", ""),
    ] {
        assert_ne!(id(&rows), id(&[rows[0], other]));
    }
    assert_ne!(id(&rows), id(&rows[..1]));
}

#[test]
fn what_does_not_fit_is_not_clean() {
    let names: Vec<_> = (0..NAMES_MAX + 10).map(|n| format!("f{n}")).collect();
    let rows = names.iter().map(|name| row("f", name, "", ""));
    let late = row("f", "upper", "LOCK", "");
    let certificates = Certificates::from_rows(1, rows.chain([late]));
    assert_eq!(
        function(&certificates, &names[NAMES_MAX + 9]),
        Suspicion::OPAQUE
    );
    assert_eq!(function(&certificates, "upper"), Suspicion::LOCK);
}

#[test]
fn no_denied_function_is_clean() {
    let clean: BTreeSet<_> = builtin::CLEAN_FUNCTIONS.lines().collect();
    let suspect = builtin::SUSPECT_FUNCTIONS.iter().map(|(name, _)| *name);
    for name in builtin::DENIED_FUNCTIONS.lines().chain(suspect) {
        assert!(!clean.contains(name), "{name}");
    }
}
