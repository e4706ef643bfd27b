//! The reasons for which a client keeps its server between transactions: its session is pinned to the server.

/// Session state that can't be moved to another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Pin {
    /// Temporary tables, views, functions, types, ...
    Temporary,
    /// Session-level advisory locks.
    Lock,
    /// Cursors WITH HOLD.
    Cursor,
    /// `setseed` was called: the next values of `random()` depend on the server process.
    Seed,
    /// LOAD has loaded a library into the server process.
    Library,
    /// Sequence values that the client is likely to read by `currval` or `lastval`.
    Sequence,
    /// SQL-prepared statements that can't be carried.
    Statement,
    /// Channels that the server listens on.
    Listen,
    /// A parameter that can't be carried.
    Parameter,
    /// A parameter that the login user has no privilege to set; the session got it under another role.
    Privileged,
    /// The inspection of the session failed, so its state is not known.
    Unknown,
    /// The configuration (`pin_parameters`, a startup parameter) demands it.
    Configured,
}

/// A set of [`Pin`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Pins(u16);

impl Pin {
    /// All reasons.
    pub const ALL: [Self; 12] = [
        Self::Temporary,
        Self::Lock,
        Self::Cursor,
        Self::Seed,
        Self::Library,
        Self::Sequence,
        Self::Statement,
        Self::Listen,
        Self::Parameter,
        Self::Privileged,
        Self::Unknown,
        Self::Configured,
    ];

    /// Returns the reason's name in the console and the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Temporary => "temporary objects",
            Self::Lock => "advisory lock",
            Self::Cursor => "cursor with hold",
            Self::Seed => "setseed",
            Self::Library => "load",
            Self::Sequence => "sequence value",
            Self::Statement => "prepared statement",
            Self::Listen => "listen",
            Self::Parameter => "parameter",
            Self::Privileged => "privileged setting",
            Self::Unknown => "unknown state",
            Self::Configured => "configured",
        }
    }
}

impl Pins {
    /// Returns the set as a number, one bit for each reason.
    #[must_use]
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Returns the set of a number that [`Pins::bits`] has returned. Bits of no reason are dropped.
    #[must_use]
    pub fn from_bits(bits: u16) -> Self {
        Self(bits & ((1 << Pin::ALL.len()) - 1))
    }

    /// Adds a reason.
    pub fn insert(&mut self, pin: Pin) {
        self.0 |= 1 << pin as u8;
    }

    /// Removes a reason.
    pub fn remove(&mut self, pin: Pin) {
        self.0 &= !(1 << pin as u8);
    }

    /// Adds a reason if `wanted`.
    pub fn insert_if(&mut self, pin: Pin, wanted: bool) {
        self.0 |= u16::from(wanted) << pin as u8;
    }

    /// Returns the set without one reason.
    #[must_use]
    pub fn without(self, pin: Pin) -> Self {
        Self(self.0 & !(1 << pin as u8))
    }

    /// Returns whether the set contains this reason.
    #[must_use]
    pub fn contains(self, pin: Pin) -> bool {
        self.0 & (1 << pin as u8) != 0
    }

    /// Returns whether the set is empty.
    #[must_use]
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the reasons.
    pub fn iter(self) -> impl Iterator<Item = Pin> {
        Pin::ALL.into_iter().filter(move |&pin| self.contains(pin))
    }

    /// Returns the reasons that are not in `before`.
    #[must_use]
    pub fn new_since(self, before: Self) -> Self {
        Self(self.0 & !before.0)
    }

    /// Returns whether there is a reason besides [`Pin::Configured`].
    #[must_use]
    pub fn ends(self) -> bool {
        self.iter().any(|pin| pin != Pin::Configured)
    }

    /// Returns whether there is session state that no SQL command removes, so that only closing the server does.
    #[must_use]
    pub fn require_close(self) -> bool {
        self.contains(Pin::Seed) || self.contains(Pin::Library)
    }
}

impl std::fmt::Display for Pins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, pin) in self.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{}", pin.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        let mut pins = Pins::default();
        assert!(pins.is_empty() && !pins.require_close());
        pins.insert(Pin::Cursor);
        pins.insert(Pin::Temporary);
        pins.insert_if(Pin::Seed, false);
        assert_eq!(pins.to_string(), "temporary objects, cursor with hold");
        let before = pins;
        pins.insert_if(Pin::Library, true);
        assert!(pins.require_close());
        assert_eq!(pins.new_since(before).to_string(), "load");
    }

    #[test]
    fn pins_are_numbered_in_their_order() {
        for (at, pin) in Pin::ALL.into_iter().enumerate() {
            assert_eq!(pin as usize, at);
        }
    }
}
