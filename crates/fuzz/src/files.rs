//! Files of other programs, and certificates. The first byte chooses the kind: `ldap.conf` (`l`), the password file of
//! libpq (`p`), PgCat's configuration (`g`), a certificate in DER (`c`).
//!
//! The target checks that a password is one part of one line of the password file; that no value of PgCat's
//! configuration adds a line to the ini file, and the userlist can be read; and that the names of a certificate have no
//! control characters.

use pgweir_auth::userlist::Userlist;
use pgweir_formats::{
    certificate::{end_point, host, peer},
    ldap_conf::LdapConf,
    pgcat,
    pgpass::{PassfileKey, find},
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

/// See the module.
pub fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    match (kind, std::str::from_utf8(data)) {
        (b'l', Ok(text)) => ldap_conf(text),
        (b'p', Ok(text)) => password_file(text),
        (b'g', Ok(text)) => pgcat_file(text),
        (b'c', _) => certificate(data),
        _ => {}
    }
}

fn ldap_conf(text: &str) {
    let conf = LdapConf::parse(text);
    if conf.accepts_any_certificate {
        let upper = text.to_ascii_uppercase();
        assert!(upper.contains("TLS_REQCERT"));
    }
    for path in conf.ca_file.iter().chain(&conf.ca_folder) {
        assert!(text.contains(&*path.to_string_lossy()));
    }
}

fn password_file(text: &str) {
    let wanted = PassfileKey {
        host: "db",
        port: 5432,
        dbname: "shop",
        user: "app",
    };
    if let Some(password) = find(text, &wanted) {
        let is_part = |line: &str| {
            let unescaped = line.replace('\\', "");
            line.contains(&**password) || unescaped.contains(&password.replace('\\', ""))
        };
        assert!(text.lines().any(is_part));
    }
}

fn pgcat_file(text: &str) {
    match pgcat::convert(text, "userlist.txt") {
        Ok(imported) => {
            let sets_method = |line: &&str| line.starts_with("auth_type = ");
            assert_eq!(imported.ini.lines().filter(sets_method).count(), 1);
            let sections = imported.ini.lines().filter(|line| line.starts_with('['));
            assert!((2..=3).contains(&sections.count()));
            assert!(Userlist::parse(&imported.userlist).is_ok());
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
}

fn certificate(der: &[u8]) {
    if let Some(peer) = peer(der) {
        assert!(!peer.subject.contains(char::is_control));
        assert!(peer.common_name.is_none_or(|name| !name.contains('\0')));
    }
    assert!(end_point(der).is_none_or(|hash| (28..=64).contains(&hash.len())));
    if let Ok((_, certificate)) = X509Certificate::from_der(der) {
        // No certificate of the corpus is for these hosts.
        for other in ["other.example.net", "192.0.2.99"] {
            let _ = host::check(&certificate, other);
        }
    }
}
