//! HBA rules and ident maps.

use std::{collections::BTreeSet, io, path::Path};

use pgweir_auth::{
    Method,
    hba::{Asked, Found, IdentMaps, Rules},
};

const FILE: &str = "/etc/weir/hba.conf";

const MAPS: &str = "\
# a comment
staff  peter        paul
staff  \"mary ann\"   mary
staff  root         all
mail   /^(.*)@example\\.com$   \\1
mail   /^(.*)@lab\\.example\\.com$   lab_\\1_x
mail   /^admin_[0-9]+$         /^(root|postgres)$
";

fn maps() -> IdentMaps {
    IdentMaps::parse(MAPS, Path::new("ident.conf")).expect("maps")
}

fn read(path: &Path) -> io::Result<String> {
    let text = match path.to_str().unwrap_or_default() {
        "/etc/weir/some" => "one, two three # four\n\"all\"\n@more\n",
        "/etc/weir/more" => "/^re_\nfive",
        "/etc/weir/round" => "@round",
        _ => return Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    Ok(text.to_owned())
}

fn rules(text: &str) -> Rules {
    Rules::parse(text, Path::new(FILE), &maps(), &mut read).expect("rules")
}

/// Returns the rule that matches. `from` is an address, with a `+` after it for TLS, or `unix`.
fn verdict(
    rules: &Rules,
    database: &str,
    user: &str,
    from: &str,
    roles: Option<&[&str]>,
) -> String {
    let roles: Option<BTreeSet<String>> =
        roles.map(|roles| roles.iter().map(|&role| role.to_owned()).collect());
    let address = from.trim_end_matches('+');
    let found = rules.find(&Asked {
        address: (address != "unix").then(|| address.parse().expect("an address")),
        is_tls: from.ends_with('+'),
        is_physical: database == "<physical>",
        database,
        user,
        roles: roles.as_ref(),
    });
    match found {
        Found::Rule(rule) => rule.line.to_string(),
        Found::Nothing => "none".to_owned(),
        Found::RolesWanted(_) => "roles".to_owned(),
    }
}

/// Checks cases: database, user, address, and the line that must match.
fn check(text: &str, cases: &[(&str, &str, &str, &str)]) {
    let rules = rules(text);
    for &(database, user, from, expect) in cases {
        let found = verdict(&rules, database, user, from, None);
        assert_eq!(found, expect, "{database} {user} {from}");
    }
}

#[test]
fn the_first_rule_that_fits_decides() {
    check(
        "local all all peer\nhost d1 all 10.0.0.0/8 md5\nhost all u1 10.1.0.0 255.255.0.0 trust\nhost all all all reject",
        &[
            ("d1", "u1", "unix", "1"),
            ("d1", "u1", "10.1.2.3", "2"),
            ("d2", "u1", "10.1.2.3", "3"),
            ("d2", "u1", "10.2.2.3", "4"),
            ("d2", "u1", "::1", "4"),
        ],
    );
}

#[test]
fn connections_with_and_without_tls() {
    check(
        "hostssl all all 10.0.0.0/8 cert\nhostnossl all all 10.0.0.0/8 md5\nhost all all ::/0 trust",
        &[
            ("d", "u", "10.0.0.1+", "1"),
            ("d", "u", "10.0.0.1", "2"),
            ("d", "u", "11.0.0.1+", "none"),
            ("d", "u", "fe80::1+", "3"),
            ("d", "u", "unix", "none"),
        ],
    );
}

#[test]
fn addresses_and_masks() {
    check(
        "host a all 128.0.0.0/9 md5\nhost a all 128.0.0.0/2 md5\nhost a all 0.0.0.0/0 md5\n\
         host b all ff20::/12 md5\nhost b all ::1/128 md5\nhost b all 1.2.3.4/32 md5\nhost c all 10.1.2.3/8 md5",
        &[
            ("a", "u", "128.127.0.1", "1"),
            ("a", "u", "128.128.0.1", "2"),
            ("a", "u", "1.1.1.1", "3"),
            ("a", "u", "::1", "none"),
            ("b", "u", "ff2f::1", "4"),
            ("b", "u", "ff30::1", "none"),
            ("b", "u", "::1", "5"),
            ("b", "u", "1.2.3.4", "6"),
            ("b", "u", "::ffff:1.2.3.4", "6"),
            ("b", "u", "1.2.3.5", "none"),
            // As in PgBouncer, the network's own address has bits outside of its mask.
            ("c", "u", "10.1.2.3", "none"),
        ],
    );
    let notes =
        rules("# one\nhost c all 10.1.2.3/8 md5\nhost c all ::1/128 peer\nlocal all all cert");
    assert_eq!(notes.notes().len(), 3, "{:?}", notes.notes());
    assert!(notes.notes()[0].starts_with("/etc/weir/hba.conf:2: the address has bits"));
}

#[test]
fn lists_keywords_and_quotes() {
    check(
        "local d1,d2 u1 , u2 md5\nlocal \"all\" \"all\" md5\nlocal \"q\"\"1\" \"a , b\" md5\n\
         local sameuser all md5\nlocal \"sameuser\" x md5\nlocal x replication,sameuser md5\nlocal replication r md5\n\
         local all,replication both md5",
        &[
            ("d2", "u1", "unix", "1"),
            ("d1", "u2", "unix", "1"),
            ("all", "all", "unix", "2"),
            ("q\"1", "a , b", "unix", "3"),
            ("me", "me", "unix", "4"),
            ("sameuser", "x", "unix", "5"),
            ("x", "replication", "unix", "6"),
            ("x", "sameuser", "unix", "6"),
            ("replication", "r", "unix", "none"),
            ("<physical>", "r", "unix", "7"),
            ("<physical>", "u1", "unix", "none"),
            ("<physical>", "both", "unix", "8"),
            ("any", "both", "unix", "8"),
        ],
    );
}

#[test]
fn files_of_names_and_regular_expressions() {
    check(
        "local @some u md5\nlocal d @some md5\nlocal \"/^x, *[0-9]+$\" all md5\nlocal all /_ro$,/^mon md5\n\
         local \"@some\" q md5",
        &[
            ("one", "u", "unix", "1"),
            ("three", "u", "unix", "1"),
            ("four", "u", "unix", "none"),
            ("all", "u", "unix", "1"),
            ("re_x", "u", "unix", "1"),
            ("are_x", "u", "unix", "none"),
            ("d", "five", "unix", "2"),
            ("x,  12", "v", "unix", "3"),
            ("y", "app_ro", "unix", "4"),
            ("y", "monitor", "unix", "4"),
            ("y", "app_ro2", "unix", "none"),
            ("@some", "q", "unix", "5"),
        ],
    );
}

#[test]
fn members_of_roles() {
    let rules = rules("local d1 +dba,paul md5\nlocal samerole all trust\nlocal all all reject");
    assert_eq!(rules.by_roles().map(|rule| rule.line), Some(1));
    let check = |database, user, roles, expect: &str| {
        let found = verdict(&rules, database, user, "unix", roles);
        assert_eq!(found, expect, "{database} {user} {roles:?}");
    };
    check("d1", "paul", None, "1");
    check("d1", "mary", None, "roles");
    check("d1", "mary", Some(&["dba", "mary"]), "1");
    check("d1", "mary", Some(&["mary", "d1"]), "2");
    check("d2", "mary", Some(&["dba"]), "3");
    check("d2", "mary", None, "roles");
    check("<physical>", "mary", None, "none");
}

#[test]
fn maps_are_found() {
    let rules = rules("local all all peer map=staff\nhostssl all all all cert map=\"mail\"");
    let map = |from| match rules.find(&Asked {
        address: from,
        is_tls: true,
        is_physical: false,
        database: "d",
        user: "u",
        roles: None,
    }) {
        Found::Rule(rule) => rule.map.as_ref().map(|map| map.name().to_owned()),
        _ => None,
    };
    assert_eq!(map(None).as_deref(), Some("staff"));
    assert_eq!(map(Some([1, 1, 1, 1].into())).as_deref(), Some("mail"));
}

#[test]
fn ident_maps_allow_users() {
    let maps = maps();
    let check = |map: &str, system: &str, user: &str, expect: bool| {
        let map = maps.get(map).expect("a map");
        assert_eq!(map.allows(system, user), expect, "{system} as {user}");
    };
    check("staff", "peter", "paul", true);
    check("staff", "peter", "peter", false);
    check("staff", "mary ann", "mary", true);
    check("staff", "root", "anybody", true);
    check("staff", "Peter", "paul", false);
    check("mail", "ann@example.com", "ann", true);
    check("mail", "ann@example.com", "bob", false);
    check("mail", "ann@example.org", "ann", false);
    check("mail", "bob@lab.example.com", "lab_bob_x", true);
    check("mail", "bob@lab.example.com", "lab_bo_x", false);
    check("mail", "admin_7", "postgres", true);
    check("mail", "admin_7", "postgres2", false);
}

#[test]
fn pam_has_a_service() {
    let service = |rules: &Rules| {
        let rule = rules.by_pam().expect("a rule by PAM");
        match &rule.method {
            Method::Pam(options) => (rule.line, options.service.clone()),
            other => panic!("{other:?}"),
        }
    };
    let named =
        rules("local all all md5\nhost all all all pam pamservice=\"db\" pam_use_hostname=0");
    assert_eq!(service(&named), (2, "db".to_owned()));
    let usual = rules("local all all pam");
    assert_eq!(service(&usual), (1, "pgbouncer".to_owned()));
    assert_eq!(service(&Rules::of_pam()), (0, "pgbouncer".to_owned()));
    assert!(rules("local all all peer").by_pam().is_none());
}

/// Checks that the message about a line of the HBA file contains this text.
fn check_wrong(line: &str, expect: &str) {
    let text = format!("# first\n\n{line}\nlocal all all md5\n");
    let problems = Rules::parse(&text, Path::new(FILE), &maps(), &mut read).expect_err(line);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let problem = problems[0].to_string();
    assert!(problem.starts_with("/etc/weir/hba.conf:3: "), "{problem}");
    assert!(problem.contains(expect), "{line}: {problem}");
}

#[test]
fn problems_of_wrong_lines_have_the_right_form() {
    for (line, expect) in [
        ("lokal all all md5", "expected local, host"),
        ("local all \"all md5", "double quote"),
        ("local all", "user is missing"),
        ("local all all", "method is missing"),
        ("host all all", "address is missing"),
        ("host all all 10.0.0.0/8", "method is missing"),
        ("host all all 10.0.0.0 md5", "write 10.0.0.0/32"),
        ("host all all 10.0.0.0", "has no mask"),
        ("host all all 10.0.0.0/33 md5", "no mask for this address"),
        ("host all all 10.0.0.0/+8 md5", "no mask for this address"),
        (
            "host all all 10.0.0.0 ffff:: md5",
            "no mask for this address",
        ),
        ("host all all ::1/129 md5", "no mask for this address"),
        ("host all all localhost md5", "host names, samehost"),
        ("host all all 1.1.1.1/8,2.2.2.2/8 md5", "must be one word"),
        ("local all all gss", "expected one of trust"),
        ("local all all \"md5\"", "expected one of trust"),
        ("local all all md5 map=staff", "cert and peer only"),
        ("local all all peer map=nobody", "no map \"nobody\""),
        ("local all all peer what", "name=value"),
        ("local all all peer a=b", "no option \"a\""),
        ("local all all pam map=staff", "PAM has no option \"map\""),
        (
            "local all all pam pamservice=../su",
            "the name of a file in /etc/pam.d",
        ),
        ("local @none all md5", "/etc/weir/none can't be read"),
        ("local @round all md5", "within too many others"),
        ("local \"\" all md5", "a name is empty"),
        ("local all + md5", "a name is empty"),
        (
            "local all /a(b md5",
            "no regular expression: unclosed group",
        ),
    ] {
        check_wrong(line, expect);
    }
}

#[test]
fn problems_of_ldap_lines_show_no_password() {
    for (line, expect) in [
        (
            "host all all all ldap ldapserver=h ldapbindpasswd=my hush",
            "option 3 of LDAP",
        ),
        (
            "host all all all ldap ldapserver=h ldapbindpasswd=my hush=1",
            "option 3 of LDAP",
        ),
        ("ldapbindpasswd=hush", "not \"****\""),
        ("host all all ldapbindpasswd=hush ldap", "not \"****\""),
        (
            "local all all ldapbindpasswd=\"hu\"\"sh\" ldap",
            "not \"****\"",
        ),
        (
            "local all all pam ldapbindpasswd=my hush",
            "no option \"****\"",
        ),
        (
            "local all all peer map=staff LDAPbindpw=my hush",
            "no option \"****\"",
        ),
        ("local all all lddap ldapbindpasswd=hush", "not \"lddap\""),
    ] {
        check_wrong(line, expect);
        let problems = Rules::parse(line, Path::new(FILE), &maps(), &mut read).expect_err(line);
        assert!(!problems[0].to_string().contains("hu"), "{problems:?}");
    }
}

#[test]
fn wrong_lines_of_the_ident_file() {
    for (line, expect) in [
        ("m", "system user is missing"),
        ("m a", "database user is missing"),
        ("m a b c", "one word too many"),
        ("m a,b c", "must be one word"),
        ("m /( c", "no regular expression"),
        ("m a \\1", "first group"),
        ("m /a \\1", "first group"),
        ("m a +r", "roles are not supported"),
    ] {
        let problems = IdentMaps::parse(&format!("\n{line}"), Path::new("i")).expect_err(line);
        let problem = problems[0].to_string();
        assert!(
            problem.starts_with("i:2: ") && problem.contains(expect),
            "{line}: {problem}"
        );
    }
}
