//! The types of settings: how a value is parsed, shown and described.

use crate::number;

/// A value that is not of the setting's form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadValue {
    /// The right form, as the end of "expected ...".
    pub expected: String,
}

impl BadValue {
    pub(crate) fn new(expected: impl Into<String>) -> Self {
        Self {
            expected: expected.into(),
        }
    }
}

/// The type of a setting.
pub(crate) trait Value: Sized + PartialEq {
    /// The type's name for the reference page.
    const KIND: &'static str;
    /// Unit of a bare number, if any.
    const UNIT: Option<&'static str> = None;
    /// Whether errors and the console may show the text.
    const SECRET: bool = false;
    /// A text besides the empty one that means "not set" for an optional setting.
    const UNSET: Option<&'static str> = None;

    /// Parses the value; `text` has no space at either end.
    fn parse(text: &str) -> Result<Self, BadValue>;

    /// Returns the value as PgBouncer's SHOW CONFIG shows it.
    fn show(&self) -> String;

    /// Returns the value of a setting that has neither a text nor a default.
    fn absent() -> Option<Self> {
        None
    }
}

impl Value for u32 {
    const KIND: &'static str = "integer";
    const UNSET: Option<&'static str> = Some("-1");

    fn parse(text: &str) -> Result<Self, BadValue> {
        number::unsigned(text).ok_or_else(|| {
            BadValue::new(match text.ends_with('%') {
                true => "a whole number, 0 or more (this setting can't be a percentage)",
                false => "a whole number, 0 or more",
            })
        })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for i32 {
    const KIND: &'static str = "integer";

    fn parse(text: &str) -> Result<Self, BadValue> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let number = number::unsigned(digits).and_then(|number| i32::try_from(number).ok());
        number
            .map(|number| if negative { -number } else { number })
            .ok_or_else(|| BadValue::new("a whole number"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for u16 {
    const KIND: &'static str = "port";

    fn parse(text: &str) -> Result<Self, BadValue> {
        let port = number::unsigned(text).and_then(|port| u16::try_from(port).ok());
        port.ok_or_else(|| BadValue::new("a port number, at most 65535"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    const KIND: &'static str = "boolean";

    fn parse(text: &str) -> Result<Self, BadValue> {
        match text.to_ascii_lowercase().as_str() {
            "on" | "yes" | "true" => Ok(true),
            "off" | "no" | "false" => Ok(false),
            // PgBouncer parses its switches as integers.
            _ => number::unsigned(text)
                .map(|n| n != 0)
                .ok_or_else(|| BadValue::new("0 or 1")),
        }
    }

    fn show(&self) -> String {
        u8::from(*self).to_string()
    }
}

impl Value for String {
    const KIND: &'static str = "text";

    fn parse(text: &str) -> Result<Self, BadValue> {
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl Value for Vec<String> {
    const KIND: &'static str = "list";

    fn parse(text: &str) -> Result<Self, BadValue> {
        let items = text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        Ok(items.map(str::to_owned).collect())
    }

    fn show(&self) -> String {
        self.join(",")
    }

    fn absent() -> Option<Self> {
        Some(Vec::new())
    }
}

impl<T: Value> Value for Option<T> {
    const KIND: &'static str = T::KIND;
    const UNIT: Option<&'static str> = T::UNIT;
    const SECRET: bool = T::SECRET;

    fn parse(text: &str) -> Result<Self, BadValue> {
        if text.is_empty() || T::UNSET == Some(text) {
            Ok(None)
        } else {
            T::parse(text).map(Some)
        }
    }

    fn show(&self) -> String {
        self.as_ref().map(T::show).unwrap_or_default()
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}
