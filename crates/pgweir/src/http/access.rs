//! The access rights of a request, which follow from its token, or from the system user at the other end of a Unix
//! socket.

pub(crate) use pgweir_formats::tokens::{Role, Tokens};

/// The reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// The request has no token, or none that is known.
    Unknown,
    /// The token's role may not do this.
    Forbidden,
}

/// The credentials that come with a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Credentials<'a> {
    /// The token in `Authorization: Bearer TOKEN`.
    pub(super) token: Option<&'a str>,
    /// The other end of the Unix socket is root, or the user whom pgweir runs as.
    pub(super) is_own_user: bool,
}

/// Checks whether a request may read metrics. Without a file of tokens, every request may.
pub(super) fn may_read_metrics(
    tokens: Option<&Tokens>,
    who: Credentials<'_>,
) -> Result<(), Denied> {
    match tokens {
        None => Ok(()),
        Some(tokens) => check(tokens, who, Role::Stats),
    }
}

/// Checks whether a request may send commands.
pub(super) fn may_order(tokens: Option<&Tokens>, who: Credentials<'_>) -> Result<(), Denied> {
    check(tokens.unwrap_or(&Tokens::default()), who, Role::Admin)
}

fn check(tokens: &Tokens, who: Credentials<'_>, needed: Role) -> Result<(), Denied> {
    match who.token {
        None if who.is_own_user => Ok(()),
        None => Err(Denied::Unknown),
        Some(token) => match tokens.role(token) {
            Some(role) if role >= needed => Ok(()),
            Some(_) => Err(Denied::Forbidden),
            None => Err(Denied::Unknown),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATS: &str = "0123456789abcdef-stats";
    const ADMIN: &str = "0123456789abcdef-admin";

    fn who(token: Option<&str>, is_own_user: bool) -> Credentials<'_> {
        Credentials { token, is_own_user }
    }

    #[test]
    fn rights_of_tokens_and_users() {
        let text = format!("# tokens\n\nstats {STATS}\n admin\t{ADMIN} \n");
        let tokens = Tokens::parse(&text).unwrap();
        let tokens = Some(&tokens);
        assert_eq!(may_read_metrics(None, who(None, false)), Ok(()));
        assert_eq!(
            may_read_metrics(tokens, who(None, false)),
            Err(Denied::Unknown)
        );
        assert_eq!(
            may_read_metrics(tokens, who(Some("no such token"), true)),
            Err(Denied::Unknown)
        );
        assert_eq!(may_read_metrics(tokens, who(Some(STATS), false)), Ok(()));
        assert_eq!(may_read_metrics(tokens, who(Some(ADMIN), false)), Ok(()));
        assert_eq!(may_read_metrics(tokens, who(None, true)), Ok(()));
        assert_eq!(
            may_order(tokens, who(Some(STATS), false)),
            Err(Denied::Forbidden)
        );
        assert_eq!(may_order(tokens, who(Some(ADMIN), false)), Ok(()));
        assert_eq!(
            may_order(None, who(Some(ADMIN), false)),
            Err(Denied::Unknown)
        );
        assert_eq!(may_order(None, who(None, false)), Err(Denied::Unknown));
        assert_eq!(may_order(None, who(None, true)), Ok(()));
    }
}
