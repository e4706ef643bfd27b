use super::*;
use crate::session::certificates::{Facts, Trust};

fn at(milliseconds: u64) -> Time {
    Time(milliseconds * 1000)
}

/// Returns the facts of a database without functions and relations.
fn facts(database: u32) -> Option<Facts> {
    facts_of(database, "f")
}

/// Returns the same facts, from a primary (`"f"`) or a standby (`"t"`).
fn facts_of(database: u32, is_in_recovery: &str) -> Option<Facts> {
    let mut facts = Facts::new(Trust::default());
    let number = database.to_string();
    let whose = ["d", &number, "UTF8", is_in_recovery];
    for row in [&["s", "77"][..], &whose, &["end"]] {
        assert!(facts.take(&crate::session::certificates::row(row)));
    }
    Some(facts)
}

fn read(catalog: &Arc<Catalog>, database: u32, now: Time) {
    let reading = catalog.begin(0, now).expect("it may be read");
    finish(catalog, reading, facts(database), now);
}

fn finish(catalog: &Arc<Catalog>, reading: Reading, facts: Option<Facts>, now: Time) {
    let (reading, findings) = match facts {
        Some(facts) if reading.is_of_identity => (reading, Findings::identity(&facts, "")),
        Some(facts) => {
            let evaluation = Evaluation {
                reading,
                facts,
                address: String::new(),
                database: "app".into(),
            };
            let evaluated = evaluation.run();
            (evaluated.reading, evaluated.findings)
        }
        None => (reading, Findings::default()),
    };
    catalog.finish(&reading, findings, now);
}

fn is_certified(catalog: &Catalog) -> bool {
    let certificates = catalog.certificates();
    assert_eq!(certificates.generation(), catalog.generation());
    certificates.every_text().is_empty()
}

#[test]
fn read_once_in_a_while() {
    let catalogs = Arc::<Catalogs>::default();
    let catalog = catalogs.add();
    let reading = catalog.begin(10_000_000, at(0)).expect("never read");
    assert!(
        catalog.begin(10_000_000, at(1)).is_none(),
        "another one reads"
    );
    finish(&catalog, reading, facts(1), at(1));
    assert!(is_certified(&catalog));
    assert!(catalog.begin(0, at(20)).is_none(), "a share of the time");
    assert!(
        catalog.begin(10_000_000, at(9_000)).is_none(),
        "the interval"
    );
    assert!(catalog.begin(10_000_000, at(11_000)).is_some());
}

#[test]
fn ddl_counts_from_its_beginning_to_a_reading_after_its_end() {
    let catalogs = Arc::<Catalogs>::default();
    let catalog = catalogs.add();
    read(&catalog, 1, at(0));
    let ddl = catalog.ddl_begins();
    assert!(!is_certified(&catalog));
    assert!(catalog.begin(0, at(1000)).is_none(), "of no use yet");
    drop(ddl);
    assert!(!is_certified(&catalog));
    let reading = catalog.begin(60_000_000, at(1000)).expect("stale");
    drop(catalog.ddl_begins());
    finish(&catalog, reading, facts(1), at(1001));
    assert!(!is_certified(&catalog), "DDL came meanwhile");
    read(&catalog, 1, at(2000));
    assert!(is_certified(&catalog));
}

#[test]
fn entries_of_one_database_share_a_catalog() {
    let catalogs = Arc::<Catalogs>::default();
    let [one, two, other] = [(); 3].map(|()| catalogs.add());
    read(&one, 1, at(0));
    read(&two, 1, at(0));
    read(&other, 2, at(0));
    assert!(
        [&one, &two, &other]
            .iter()
            .all(|catalog| is_certified(catalog))
    );
    let ddl = two.ddl_begins();
    assert!(!is_certified(&one) && !is_certified(&two) && is_certified(&other));
    drop(ddl);
    read(&one, 1, at(1000));
    assert!(is_certified(&one) && is_certified(&two));
}

#[test]
fn ddl_through_an_unknown_entry_counts_for_all() {
    let catalogs = Arc::<Catalogs>::default();
    let [known, unknown] = [(); 2].map(|()| catalogs.add());
    read(&known, 1, at(0));
    let ddl = unknown.ddl_begins();
    assert!(!is_certified(&known));
    drop(ddl);
    read(&known, 1, at(1000));
    assert!(is_certified(&known));
}

#[test]
fn entries_that_join_while_one_does_ddl() {
    let catalogs = Arc::<Catalogs>::default();
    let [one, two] = [(); 2].map(|()| catalogs.add());
    read(&one, 1, at(0));
    let reading = two.begin(0, at(0)).unwrap();
    let ddl = two.ddl_begins();
    finish(&two, reading, facts(1), at(1));
    assert!(two.is_alias() && !is_certified(&one));
    assert!(one.begin(0, at(500)).is_none());
    drop(ddl);
    read(&one, 1, at(1000));
    assert!(is_certified(&one) && is_certified(&two));
}

#[test]
fn an_entry_with_two_databases_is_never_certified() {
    let catalogs = Arc::<Catalogs>::default();
    let catalog = catalogs.add();
    read(&catalog, 1, at(0));
    read(&catalog, 2, at(1000));
    assert!(!is_certified(&catalog));
    assert!(catalog.begin(0, at(9000)).is_none());
    assert!(catalog.news().unwrap().contains("different databases"));
    assert_eq!(catalog.news(), None, "told once");
}

#[test]
fn quiet_ddl_leaves_certificates_in_force() {
    let catalogs = Arc::<Catalogs>::default();
    let catalog = catalogs.add();
    read(&catalog, 1, at(0));
    let quiet = catalog.quiet_begins();
    assert!(quiet.is_quiet() && is_certified(&catalog));
    drop(quiet);
    assert!(is_certified(&catalog));
    assert!(
        catalog.begin(60_000_000, at(1000)).is_some(),
        "it is read soon"
    );
}

#[test]
fn quiet_ddl_beside_other_ddl_is_not_quiet() {
    let catalogs = Arc::<Catalogs>::default();
    let catalog = catalogs.add();
    read(&catalog, 1, at(0));
    let quiet = catalog.quiet_begins();
    let ddl = catalog.ddl_begins();
    drop(ddl);
    assert!(catalog.begin(0, at(1000)).is_none(), "it has not ended");
    drop(quiet);
    assert!(!is_certified(&catalog));
    read(&catalog, 1, at(1000));
    assert!(is_certified(&catalog));
}

#[test]
fn code_that_runs_during_a_reading_may_be_new() {
    let other_facts = || {
        let mut facts = Facts::new(Trust::default());
        let dynamic = "BEGIN EXECUTE 'x'; END";
        let dynamic = [
            "f", "20001", "p", "plpgsql", "p", "", dynamic, "", "", "0", "v",
        ];
        for row in [
            &["s", "77"][..],
            &["d", "1", "UTF8", "f"],
            &dynamic,
            &["end"],
        ] {
            assert!(facts.take(&crate::session::certificates::row(row)));
        }
        Some(facts)
    };
    for ends_before in [false, true] {
        let catalogs = Arc::<Catalogs>::default();
        let catalog = catalogs.add();
        read(&catalog, 1, at(0));
        drop(catalog.ddl_begins());
        let reading = catalog.begin(0, at(1000)).expect("stale");
        let mut code = Some(catalog.quiet_begins());
        code.take_if(|_| ends_before);
        finish(&catalog, reading, other_facts(), at(1001));
        assert!(!is_certified(&catalog), "the code may be new");
        let p = catalog.certificates().any_word(b"p");
        assert!(p.read.contains(crate::session::Effects::UNREAD));
        assert_eq!(catalog.begin(0, at(2000)).is_some(), ends_before);
        drop(code);
        let reading = catalog.begin(0, at(3000)).expect("stale");
        drop(catalog.quiet_begins());
        finish(&catalog, reading, other_facts(), at(3001));
        assert!(is_certified(&catalog), "the code was known");
    }
}

#[test]
fn a_transaction_has_its_own_schema() {
    let catalog = Catalog::default();
    let before = catalog.schema();
    let within = catalog.schema_within();
    assert_eq!(catalog.schema(), before, "nobody else sees it");
    catalog.schema_changed();
    assert!(catalog.schema() != before && catalog.schema() != within);
    let (schema, stale) = (catalog.schema(), catalog.stale_plans());
    catalog.plan_is_stale();
    assert!(catalog.schema() != schema && catalog.stale_plans() != stale);
}

#[test]
fn a_standby_may_not_have_replayed_ddl() {
    let catalogs = Arc::<Catalogs>::default();
    let catalog = catalogs.add();
    let read_on = |who, now| {
        let reading = catalog.begin(0, now).expect("it may be read");
        finish(&catalog, reading, facts_of(1, who), now);
    };
    read_on("t", at(0));
    assert!(is_certified(&catalog), "there was no DDL");
    drop(catalog.ddl_begins());
    read_on("t", at(1_000));
    assert!(!is_certified(&catalog) && catalog.is_stale());
    read_on("f", at(2_000));
    assert!(is_certified(&catalog), "the primary knows");
    drop(catalog.ddl_begins());
    read_on("t", at(3_000));
    assert!(!is_certified(&catalog));
    read_on("t", at(64_000));
    assert!(is_certified(&catalog), "the time has passed");
}

#[test]
fn a_reading_ends_with_its_server() {
    let catalogs = Arc::<Catalogs>::default();
    let catalog = catalogs.add();
    let lost = catalog.begin(0, at(0)).unwrap();
    assert!(catalog.begin(0, at(60_000)).is_none());
    drop(lost);
    let other = catalog.begin(0, at(60_000)).expect("the first has ended");
    finish(&catalog, other, None, at(60_001));
    assert!(!is_certified(&catalog), "it failed");
    let third = catalog.begin(0, at(70_000)).expect("the second has ended");
    finish(&catalog, third, facts(1), at(70_001));
    assert!(is_certified(&catalog));
}

#[test]
fn another_database_may_take_the_name() {
    let catalogs = Arc::<Catalogs>::default();
    let catalog = catalogs.add();
    let server = catalog.connected();
    read(&catalog, 1, at(0));
    let other = catalog.connected();
    drop(server);
    assert!(is_certified(&catalog), "one is left");
    drop(other);
    assert!(!is_certified(&catalog) && catalog.is_stale());
    // The database is the same: the former certificates are valid again, without a pause.
    let _server = catalog.connected();
    let reading = catalog.begin(60_000_000, at(1)).expect("unsure");
    assert!(reading.is_of_identity);
    finish(&catalog, reading, facts(1), at(2));
    assert!(is_certified(&catalog) && !catalog.is_stale());
    assert!(catalog.begin(60_000_000, at(3)).is_none());
}

#[test]
fn another_database_has_taken_the_name() {
    let catalogs = Arc::<Catalogs>::default();
    let (catalog, second) = (catalogs.add(), catalogs.add());
    drop(catalog.connected());
    read(&catalog, 1, at(0));
    drop(catalog.connected());
    let reading = catalog.begin(60_000_000, at(1)).expect("unsure");
    finish(&catalog, reading, facts(2), at(2));
    assert!(!is_certified(&catalog));
    let reading = catalog
        .begin(60_000_000, at(1000))
        .expect("it is another one");
    assert!(!reading.is_of_identity);
    finish(&catalog, reading, facts(2), at(1001));
    assert!(is_certified(&catalog) && !catalog.report().is_mixed);
    // The other entry has the same database, so it is identified as the new one too.
    read(&second, 2, at(2000));
    assert!(second.is_alias());
    // DDL between the last server connection and the next one.
    drop(second.connected());
    drop(second.ddl_begins());
    let reading = catalog.begin(60_000_000, at(9000)).expect("stale");
    assert!(!reading.is_of_identity);
}

#[test]
fn ddl_through_another_entry_during_a_reading_counts() {
    let catalogs = Arc::<Catalogs>::default();
    let (one, two) = (catalogs.add(), catalogs.add());
    read(&two, 1, at(0));
    let reading = one.begin(0, at(1)).expect("never read");
    drop(two.ddl_begins());
    finish(&one, reading, facts(1), at(2));
    assert!(two.is_alias());
    assert!(!is_certified(&one), "what was read is older than the DDL");
}

#[test]
fn session_state_that_a_login_may_have_left() {
    let catalogs = Arc::<Catalogs>::default();
    let catalog = catalogs.add();
    let early = catalog.changes();
    assert!(catalog.login_may_have_left_state(early), "not read yet");
    read(&catalog, 1, at(0));
    assert!(!catalog.login_may_have_left_state(early));
    let ddl = catalog.ddl_begins();
    let meanwhile = catalog.changes();
    drop(ddl);
    let late = catalog.changes();
    assert!(catalog.login_may_have_left_state(late), "not read again");
    read(&catalog, 1, at(1000));
    assert!(catalog.login_may_have_left_state(early));
    assert!(catalog.login_may_have_left_state(meanwhile));
    assert!(!catalog.login_may_have_left_state(late));
}

#[test]
fn a_login_through_an_entry_that_was_merged() {
    let catalogs = Arc::<Catalogs>::default();
    let [known, other] = [(); 2].map(|()| catalogs.add());
    drop(other.ddl_begins());
    read(&known, 1, at(0));
    drop(other.ddl_begins());
    let login = other.changes();
    read(&other, 1, at(1000));
    assert!(other.is_alias());
    read(&known, 1, at(2000));
    assert!(other.login_may_have_left_state(login), "counted elsewhere");
}

#[test]
fn other_functions_are_trusted() {
    let catalogs = Arc::<Catalogs>::default();
    let [one, other] = [(); 2].map(|()| catalogs.add());
    read(&one, 1, at(0));
    read(&other, 2, at(0));
    catalogs.doubt();
    assert!(!is_certified(&one) && !is_certified(&other));
    read(&one, 1, at(1000));
    assert!(is_certified(&one) && !is_certified(&other));
}
