//! Passwords are checked by PAM.

use std::{cell::RefCell, net::IpAddr};

use nonstick::{
    AuthnFlags, Conversation, ErrorCode, PamShared, Transaction, TransactionBuilder,
    conv::Exchange, items::ItemsMut,
};
use pgweir_auth::PamOptions;

/// Can PAM check passwords?
pub(super) const IS_BUILT_IN: bool = true;
/// What the log repeats at most of what modules say, in characters.
const SAID_MAX: usize = 300;

/// Is this the user's password, and may the user come in now? If not, or if nobody can tell, what the log
/// has to say. Takes as long as the modules do: none can be interrupted.
pub(super) fn check(
    options: &PamOptions,
    user: &str,
    password: &str,
    address: Option<IpAddr>,
) -> Result<(), String> {
    let said = RefCell::default();
    let builder = TransactionBuilder::new_with_service(&options.service).username(user);
    let mut transaction = builder
        .build(Answers {
            password,
            said: &said,
        })
        .map_err(|error| format!("pam_start() failed: {error}"))?;
    // As PgBouncer calls the other end of a Unix socket.
    let host = address.map_or_else(|| "unix".to_owned(), |address| address.to_string());
    transaction
        .items_mut()
        .set_remote_host(Some(host.as_ref()))
        .map_err(|error| {
            format!("pam_set_item() failed: can't set PAM_RHOST to {host}: {error}")
        })?;
    let failed = |call: &str, error: ErrorCode| {
        let said = said.borrow();
        let colon = if said.is_empty() { "" } else { ": " };
        format!("{call} failed: {error}{colon}{said}")
    };
    // Who has no password at all does not get in with any.
    let flags = AuthnFlags::SILENT | AuthnFlags::DISALLOW_NULL_AUTHTOK;
    transaction
        .authenticate(flags)
        .map_err(|error| failed("pam_authenticate()", error))?;
    transaction
        .account_management(flags)
        .map_err(|error| failed("pam_acct_mgmt()", error))
}

/// What modules are told that ask: the password, and nothing else.
struct Answers<'a> {
    password: &'a str,
    /// What they said of errors.
    said: &'a RefCell<String>,
}

impl Conversation for Answers<'_> {
    fn communicate(&self, messages: &[Exchange<'_>]) {
        for message in messages {
            match message {
                Exchange::MaskedPrompt(prompt) => prompt.set_answer(Ok(self.password.into())),
                Exchange::Error(error) => {
                    let text = error.question().to_string_lossy();
                    let mut said = self.said.borrow_mut();
                    let space = if said.is_empty() { "" } else { " " };
                    let room = SAID_MAX.saturating_sub(said.chars().count());
                    said.extend(space.chars().chain(text.trim().chars()).take(room));
                    error.set_answer(Ok(()));
                }
                Exchange::Info(info) => info.set_answer(Ok(())),
                other => other.set_error(ErrorCode::ConversationError),
            }
        }
    }
}
