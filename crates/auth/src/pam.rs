//! Parses the options for PAM, which checks passwords.

use std::fmt;

/// The default service, as in PgBouncer: its file is `/etc/pam.d/pgbouncer`.
const DEFAULT_SERVICE: &str = "pgbouncer";

/// The options of PostgreSQL's method `pam` for checking a user's password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PamOptions {
    /// The name of the PAM service (`pamservice`).
    pub service: String,
}

/// A problem of PAM options, with the right form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PamProblem {
    /// The option does not exist.
    Unknown(String),
    /// An option is not of the form `name=value`.
    NotAnOption(String),
    /// The name can't be a service's name.
    Service(String),
    /// Names of client hosts are not looked up.
    HostName(String),
}

impl PamOptions {
    /// Parses options of the form `name=value`.
    ///
    /// # Errors
    /// The first wrong option.
    pub fn parse<'w>(words: impl Iterator<Item = &'w str>) -> Result<Self, PamProblem> {
        let mut options = Self::default();
        for word in words {
            match word.split_once('=') {
                Some(("pamservice", name)) if is_service(name) => {
                    name.clone_into(&mut options.service)
                }
                Some(("pamservice", name)) => return Err(PamProblem::Service(name.to_owned())),
                Some(("pam_use_hostname", "0")) => {}
                Some(("pam_use_hostname", value)) => {
                    return Err(PamProblem::HostName(value.to_owned()));
                }
                Some((name, _)) => return Err(PamProblem::Unknown(name.to_owned())),
                None => return Err(PamProblem::NotAnOption(word.to_owned())),
            }
        }
        Ok(options)
    }
}

/// Returns whether the name is a file in PAM's directory, and not a path out of it.
fn is_service(name: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_of_name)
}

impl Default for PamOptions {
    fn default() -> Self {
        Self {
            service: DEFAULT_SERVICE.to_owned(),
        }
    }
}

impl fmt::Display for PamProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(
                f,
                "PAM has no option \"{name}\"; expected pamservice or pam_use_hostname"
            ),
            Self::NotAnOption(word) => {
                write!(f, "expected an option as name=value, not \"{word}\"")
            }
            Self::Service(name) => write!(
                f,
                "\"{name}\" can't be a pamservice: expected the name of a file in /etc/pam.d, of letters, \
                 digits, _, - and ."
            ),
            Self::HostName(value) => write!(
                f,
                "pam_use_hostname={value} is not supported; expected 0: PAM is told the client's address, not \
                 its name"
            ),
        }
    }
}

impl std::error::Error for PamProblem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options() {
        let parse = |text: &str| PamOptions::parse(text.split_whitespace()).map(|o| o.service);
        assert_eq!(parse(""), Ok("pgbouncer".to_owned()));
        assert_eq!(
            parse("pamservice=my-db.2 pam_use_hostname=0"),
            Ok("my-db.2".to_owned())
        );
        for name in ["", "../login", "a/b", ".hidden", "a b\0"] {
            let wrong = PamOptions::parse([format!("pamservice={name}").as_str()].into_iter());
            assert_eq!(wrong, Err(PamProblem::Service(name.to_owned())));
        }
        assert_eq!(
            parse("pam_use_hostname=1"),
            Err(PamProblem::HostName("1".to_owned()))
        );
        assert_eq!(
            parse("service=x"),
            Err(PamProblem::Unknown("service".to_owned()))
        );
        assert_eq!(parse("x"), Err(PamProblem::NotAnOption("x".to_owned())));
    }
}
