//! Any text as an ident file and as an HBA file. Each file of names (`@file`) has another part of the input as its
//! text.
//!
//! The target checks that each problem and each rule that is found names an existing line.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

use pgweir_auth::hba::{Asked, Found, IdentMaps, Rules};

/// The input: the ident file, the HBA file, a name, an address, and whether TLS is used, separated by zero bytes.
pub fn run(data: &[u8]) {
    let Ok(input) = std::str::from_utf8(data) else {
        return;
    };
    let mut parts = input.split('\0');
    let mut next = || parts.next().unwrap_or_default();
    let (ident, text, name) = (next(), next(), next());
    let address = next().parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let flag = !next().is_empty();
    let maps = match IdentMaps::parse(ident, Path::new("ident")) {
        Ok(maps) => maps,
        Err(problems) => {
            check(ident, problems.iter().map(|problem| problem.line));
            IdentMaps::default()
        }
    };
    if let Some(map) = maps.get("m") {
        let _ = map.allows(name, "user");
    }
    let rules = match Rules::parse(text, Path::new("hba"), &maps, &mut |_| Ok(name.to_owned())) {
        Ok(rules) => rules,
        Err(problems) => return check(text, problems.iter().map(|problem| problem.line)),
    };
    let roles = BTreeSet::from([name.to_owned()]);
    let asked = Asked {
        address: Some(address),
        is_tls: flag,
        is_physical: false,
        database: "database",
        user: name,
        roles: flag.then_some(&roles),
    };
    for asked in [
        asked,
        Asked {
            address: None,
            is_physical: true,
            ..asked
        },
    ] {
        match rules.find(&asked) {
            Found::Rule(rule) => check(text, [rule.line].into_iter()),
            Found::RolesWanted(_) => assert!(!flag && rules.by_roles().is_some()),
            Found::Nothing => {}
        }
    }
}

fn check(text: &str, lines: impl Iterator<Item = usize>) {
    let count = text.lines().count();
    for line in lines {
        assert!((1..=count).contains(&line), "line {line} of {count}");
    }
}
