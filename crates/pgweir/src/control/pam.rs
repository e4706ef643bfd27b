//! Checks passwords by PAM.

use std::{cell::RefCell, net::IpAddr};

use nonstick::{
    AuthnFlags, Conversation, ErrorCode, PamShared, Transaction, TransactionBuilder,
    conv::Exchange, items::ItemsMut,
};
use pgweir_auth::PamOptions;

/// Whether PAM can check passwords.
pub(super) const IS_BUILT_IN: bool = true;
/// The largest number of characters of PAM modules' messages that the log repeats.
const SAID_MAX: usize = 300;

/// Checks the user's password, and whether the account may log in now. Blocks as long as the PAM modules do; they
/// can't be interrupted.
///
/// # Errors
/// The log's text, if the login is refused or could not be checked.
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
    // PgBouncer's name for clients of the Unix socket.
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
    // An account without a password can't log in.
    let flags = AuthnFlags::SILENT | AuthnFlags::DISALLOW_NULL_AUTHTOK;
    transaction
        .authenticate(flags)
        .map_err(|error| failed("pam_authenticate()", error))?;
    transaction
        .account_management(flags)
        .map_err(|error| failed("pam_acct_mgmt()", error))
}

/// Answers the questions of PAM modules: only those for a password.
struct Answers<'a> {
    password: &'a str,
    /// The modules' error messages.
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
