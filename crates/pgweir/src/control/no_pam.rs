//! Replaces the module `pam` in a build without PAM.

use std::net::IpAddr;

use pgweir_auth::PamOptions;

/// Whether PAM can check passwords. If not, a configuration that needs PAM is refused.
pub(super) const IS_BUILT_IN: bool = false;

/// Refuses every login.
pub(super) fn check(_: &PamOptions, _: &str, _: &str, _: Option<IpAddr>) -> Result<(), String> {
    Err("PAM is not built in".to_owned())
}
