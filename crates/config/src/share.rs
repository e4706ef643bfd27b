//! The type of settings that are a number or a percentage, such as `max_pinned`.

use crate::{
    number,
    value::{BadValue, Value},
};

/// A number, or a percentage of a whole that the setting names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// A number.
    Number(u32),
    /// A percentage.
    Percent(u32),
}

impl Share {
    /// Returns the number, or the percentage of `whole`, rounded down.
    #[must_use]
    pub fn of(self, whole: u32) -> u32 {
        match self {
            Self::Number(number) => number,
            Self::Percent(percent) => {
                let part = u64::from(whole) * u64::from(percent) / 100;
                u32::try_from(part).unwrap_or(u32::MAX)
            }
        }
    }
}

impl Value for Share {
    const KIND: &'static str = "integer or percentage";

    fn parse(text: &str) -> Result<Self, BadValue> {
        let wrong = || BadValue::new("a whole number, or a percentage such as 75%, up to 100%");
        match text.strip_suffix('%') {
            Some(percent) => number::unsigned(percent.trim())
                .filter(|percent| *percent <= 100)
                .map(Self::Percent),
            None => number::unsigned(text).map(Self::Number),
        }
        .ok_or_else(wrong)
    }

    fn show(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Percent(percent) => format!("{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let check = |text: &str, whole: u32, expect: u32| {
            let share = Share::parse(text).unwrap();
            assert_eq!(share.of(whole), expect, "{text} of {whole}");
            assert_eq!(share.show(), text);
        };
        check("75%", 20, 15);
        check("75%", 1, 0);
        check("100%", u32::MAX, u32::MAX);
        check("7", 3, 7);
        for wrong in ["101%", "-1", "%", "x%", "", "7.5%"] {
            assert!(Share::parse(wrong).is_err(), "{wrong}");
        }
    }
}
