//! The TLS options of `ldap.conf`, as libldap reads them.

use std::path::PathBuf;

/// The options that pgweir uses. Environment variables with these names, after `LDAP`, override the file.
pub const OPTIONS: [&str; 3] = ["TLS_CACERT", "TLS_CACERTDIR", "TLS_REQCERT"];

/// The values of the options that pgweir uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LdapConf {
    /// The file with certificates of authorities.
    pub ca_file: Option<PathBuf>,
    /// The folder with such files.
    pub ca_folder: Option<PathBuf>,
    /// Whether a server's certificate may be invalid.
    pub accepts_any_certificate: bool,
}

impl LdapConf {
    /// Parses the text of the file. Options that pgweir does not use are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut conf = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((option, value)) = line.trim().split_once(|c: char| c.is_ascii_whitespace())
            {
                conf.set(&option.to_ascii_uppercase(), value.trim());
            }
        }
        conf
    }

    /// Sets an option, which is in upper case.
    pub fn set(&mut self, option: &str, value: &str) {
        match option {
            "TLS_CACERT" => self.ca_file = Some(value.into()),
            "TLS_CACERTDIR" => self.ca_folder = Some(value.into()),
            "TLS_REQCERT" => {
                self.accepts_any_certificate =
                    matches!(value.to_ascii_lowercase().as_str(), "never" | "allow");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_libldap_does() {
        let conf = LdapConf::parse(
            "# x\nTLS_CACERT  /a/b.pem\ntls_reqcert\tnever\nBASE dc=x\nURI ldap://h\n",
        );
        let expect = LdapConf {
            ca_file: Some("/a/b.pem".into()),
            ca_folder: None,
            accepts_any_certificate: true,
        };
        assert_eq!(conf, expect);
        assert_eq!(
            LdapConf::parse("#TLS_REQCERT never\nTLS_REQCERT demand"),
            LdapConf::default()
        );
    }
}
