use super::*;

#[test]
fn nothing_is_clean_before_the_catalog_is_read() {
    let unread = Certificates::default();
    assert_eq!(unread.every_text(), Effects::OPAQUE | Effects::UNREAD);
    assert_ne!(unread.id(), Certificates::none().id());
    let read = Certificates::from_rows(1, [row("r", "accounts", "", "OPAQUE TEMP")]);
    let outdated = read.outdated(2);
    assert_eq!(outdated.generation(), 2);
    assert_ne!(outdated.id(), read.id());
    assert_eq!(outdated.outdated(3).id(), outdated.id());
    assert_eq!(outdated.every_text(), Effects::OPAQUE | Effects::UNREAD);
    let by_tables = read.outdated_by_tables(2);
    assert_eq!(by_tables.every_text(), Effects::OPAQUE);
    assert!(by_tables.code() == read.code() && outdated.code() != read.code());
    let written = outdated.word(Name::of(b"accounts")).write;
    assert!(written.contains(Effects::TEMP), "it may do DDL");
}

#[test]
fn the_same_names_in_another_encoding() {
    let utf8 = Certificates::from_rows(1, [row("e", "utf8", "", "")]);
    let other = Certificates::from_rows(1, [row("f", "utf8", "", "")]);
    assert_ne!(utf8.id(), Certificates::none().id());
    assert_ne!(utf8.id(), other.id());
}

#[test]
fn words() {
    let rows = [
        row("r", "audited", "", "OPAQUE"),
        row("f", "Set_It", "SETTING", ""),
    ];
    let certificates = Certificates::from_rows(1, rows);
    let word = |name: &str| certificates.word(Name::of(name.as_bytes()));
    assert_eq!(word("audited").write, Effects::OPAQUE);
    assert_eq!(word("set_it").read, Effects::SETTING);
    assert_eq!(word("harmless"), NameEffects::default());
}

fn row<'a>(kind: &'a str, name: &'a str, read: &'a str, write: &'a str) -> [&'a [u8]; 4] {
    [kind, name, read, write].map(str::as_bytes)
}

fn word(certificates: &Certificates, name: &str) -> Effects {
    certificates.word(Name::of(name.as_bytes())).read
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
    assert_eq!(word(&certificates, "mine"), Effects::NONE);
    assert_eq!(word(&certificates, "lower"), Effects::LOCK | Effects::SEED);
    assert_eq!(word(&certificates, "odd"), Effects::OPAQUE);
    assert_eq!(word(&certificates, "other"), Effects::NONE);
    let mine = certificates.word(Name::of(b"mine"));
    assert_eq!((mine.read, mine.write), (Effects::NONE, Effects::SEQUENCE));
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
