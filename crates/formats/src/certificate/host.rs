//! Checks whether a certificate is for a host, as libpq does.

use std::net::IpAddr;

use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

use super::{alternatives, common_name};

/// Checks the host against the alternative names and addresses. The common name counts only if there are none.
///
/// # Errors
/// The name that the certificate has instead.
pub fn check(certificate: &X509Certificate<'_>, host: &str) -> Result<(), String> {
    let address = host.parse::<IpAddr>().ok();
    let mut first = None;
    let mut decided = false;
    for name in alternatives(certificate) {
        match name {
            GeneralName::DNSName(name) => {
                decided = true;
                first.get_or_insert_with(|| (*name).to_owned());
                if matches(name, host) {
                    return Ok(());
                }
            }
            GeneralName::IPAddress(bytes) => {
                let of_bytes = address_of(bytes);
                // For a host name, an address in the certificate does not exclude the common name.
                decided |= address.is_some();
                first.get_or_insert_with(|| {
                    of_bytes.map_or_else(|| "?".to_owned(), |address| address.to_string())
                });
                if address.is_some() && address == of_bytes {
                    return Ok(());
                }
            }
            _ => {}
        }
    }
    let common = common_name(certificate);
    match common {
        Some(common) if !decided && matches(common, host) => Ok(()),
        _ => Err(first.or(common.map(str::to_owned)).unwrap_or_default()),
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Returns whether a name matches. A `*` as the whole first label stands for one label.
fn matches(pattern: &str, host: &str) -> bool {
    if pattern.contains('\0') {
        return false;
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let (Some(rest), Some((label, of_host))) = (pattern.strip_prefix("*."), host.split_once('.'))
    else {
        return false;
    };
    let is_address = host.parse::<IpAddr>().is_ok();
    !is_address && !label.is_empty() && rest.eq_ignore_ascii_case(of_host)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, host) in [
            ("db.example.org", "DB.example.org"),
            ("db.example.org", "db.example.org."),
            ("*.example.org", "db.example.org"),
            ("10.0.0.1", "10.0.0.1"),
        ] {
            assert!(matches(pattern, host), "{pattern} {host}");
        }
        for (pattern, host) in [
            ("*.example.org", "example.org"),
            ("*.example.org", "a.b.example.org"),
            ("*.example.org", ".example.org"),
            ("d*.example.org", "db.example.org"),
            ("*", "db"),
            ("*.0.0.1", "10.0.0.1"),
            ("db.example.org\0.evil.org", "db.example.org"),
        ] {
            assert!(!matches(pattern, host), "{pattern} {host}");
        }
    }
}
