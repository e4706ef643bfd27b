//! Ranges of addresses.

use std::net::IpAddr;

use super::{Wrong, line::Word};

/// The range of addresses of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Range {
    /// Any address.
    All,
    /// A network: the address and the mask.
    Network(IpAddr, IpAddr),
}

impl Range {
    /// Parses the column of addresses. `mask` returns the next column, if that is needed.
    pub(super) fn parse<'w>(
        word: &Word,
        mask: impl FnOnce() -> Option<&'w Word>,
    ) -> Result<Self, Wrong> {
        if word.is("all") {
            return Ok(Self::All);
        }
        let text = &word.text;
        let wrong = || Wrong::Address(text.clone());
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| wrong())?;
            let mask = mask_of(address, bits).ok_or_else(|| Wrong::Mask(bits.to_owned()))?;
            return Ok(Self::Network(address, mask));
        }
        let address: IpAddr = text.parse().map_err(|_| wrong())?;
        let mask = mask().ok_or_else(|| Wrong::NoMask(text.clone()))?;
        match mask.text.parse::<IpAddr>() {
            Ok(mask) if mask.is_ipv4() == address.is_ipv4() => Ok(Self::Network(address, mask)),
            Ok(_) => Err(Wrong::Mask(mask.text.clone())),
            // The next column is most likely the method.
            Err(_) => Err(Wrong::NoMask(text.clone())),
        }
    }

    /// Returns whether the range contains an address. As in PgBouncer, a network whose own address has bits outside its
    /// mask contains no address.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        match self {
            Self::All => true,
            Self::Network(network, mask) => masked(address, *mask) == Some(*network),
        }
    }

    /// Returns whether the range contains no address.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::All => false,
            Self::Network(network, mask) => masked(*network, *mask) != Some(*network),
        }
    }
}

fn masked(address: IpAddr, mask: IpAddr) -> Option<IpAddr> {
    match (address, mask) {
        (IpAddr::V4(address), IpAddr::V4(mask)) => Some(IpAddr::V4(address & mask)),
        (IpAddr::V6(address), IpAddr::V6(mask)) => Some(IpAddr::V6(address & mask)),
        _ => None,
    }
}

fn mask_of(address: IpAddr, bits: &str) -> Option<IpAddr> {
    // Neither a sign nor a space is allowed.
    if !bits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let bits: u32 = bits.parse().ok()?;
    match address {
        IpAddr::V4(_) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Some(IpAddr::V4(mask.into()))
        }
        IpAddr::V6(_) if bits <= 128 => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Some(IpAddr::V6(mask.into()))
        }
        _ => None,
    }
}
