//! In the place of PAM where it is not built in.

use std::net::IpAddr;

use pgweir_auth::PamOptions;

/// Can PAM check passwords? If not, a configuration that asks for it is refused.
pub(super) const IS_BUILT_IN: bool = false;

/// Nobody gets in.
pub(super) fn check(_: &PamOptions, _: &str, _: &str, _: Option<IpAddr>) -> Result<(), String> {
    Err("PAM is not built in".to_owned())
}
