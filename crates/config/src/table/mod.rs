//! The tables of settings, and the macro that generates parsers, SHOW CONFIG and documentation from them.

pub mod database;
pub mod global;
mod login;
pub mod peer;
mod process;
pub mod user;

use crate::{
    check::Verdict,
    value::{BadValue, Value},
};

/// The section of the ini file that a setting belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// In section `[pgbouncer]`, for the whole process.
    Global,
    /// In an entry of `[databases]`.
    Database,
    /// In an entry of `[users]`.
    User,
    /// In an entry of `[peers]`.
    Peer,
}

impl Scope {
    /// All scopes, in the order of the reference page.
    pub const ALL: [Scope; 4] = [Scope::Global, Scope::Database, Scope::User, Scope::Peer];

    /// Returns the section's name in the ini file.
    #[must_use]
    pub const fn section(self) -> &'static str {
        match self {
            Scope::Global => "pgbouncer",
            Scope::Database => "databases",
            Scope::User => "users",
            Scope::Peer => "peers",
        }
    }

    /// Returns the settings of this scope, in the order of the reference page.
    #[must_use]
    pub const fn settings(self) -> &'static [SettingInfo] {
        match self {
            Scope::Global => global::SETTINGS,
            Scope::Database => database::SETTINGS,
            Scope::User => user::SETTINGS,
            Scope::Peer => peer::SETTINGS,
        }
    }

    /// Returns whether a setting of this scope is a secret.
    #[must_use]
    pub fn is_secret(self, key: &str) -> bool {
        let mut settings = self.settings().iter();
        settings.any(|info| info.secret && info.name == key)
    }
}

/// The use that pgweir makes of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The setting has the effect that its description says.
    Now,
    /// The setting has no effect, and exists so that PgBouncer's configuration files load.
    Never,
}

/// The declaration of one setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingInfo {
    /// The key.
    pub name: &'static str,
    /// The section that the setting belongs to.
    pub scope: Scope,
    /// The heading of the setting's group on the reference page.
    pub group: &'static str,
    /// The type, in words.
    pub kind: &'static str,
    /// The unit of a bare number.
    pub unit: Option<&'static str>,
    /// The default as text for the ini file, or `None` if the setting is not set by default.
    pub default: Option<&'static str>,
    /// Whether a new value takes effect at RELOAD, instead of the next restart.
    pub reloadable: bool,
    /// Whether the setting has an effect.
    pub effect: Effect,
    /// Whether the value must not be shown.
    pub secret: bool,
    /// The description: lines, each after a space.
    pub doc: &'static str,
}

/// The result of setting a value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// The setting.
    pub(crate) info: &'static SettingInfo,
    /// Whether the new value is the default.
    pub(crate) is_default: bool,
    /// A message for the operator.
    pub(crate) note: Option<&'static str>,
}

/// The reason why a value could not be set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SetError {
    /// The scope has no such setting.
    Unknown,
    /// The value is invalid.
    Bad(&'static SettingInfo, BadValue),
}

/// The check of a setting's value beyond its type.
pub(crate) type Check<T> = fn(&T) -> Verdict;

/// Parses and checks `text`, and puts it in `slot`.
pub(crate) fn put<T: Value>(
    slot: &mut T,
    text: &str,
    info: &'static SettingInfo,
    check: Option<Check<T>>,
) -> Result<Accepted, SetError> {
    let value = T::parse(text).map_err(|bad| SetError::Bad(info, bad))?;
    let note = match check.map(|check| check(&value)) {
        None | Some(Verdict::Fine) => None,
        Some(Verdict::Note(note)) => Some(note),
        Some(Verdict::Wrong(expected)) => return Err(SetError::Bad(info, BadValue::new(expected))),
    };
    let is_default = value == default_of(info.default);
    *slot = value;
    Ok(Accepted {
        info,
        is_default,
        note,
    })
}

/// Parses a default of a table.
///
/// # Panics
/// When the default is not of the setting's type. A test finds such a fault of the table.
pub(crate) fn default_of<T: Value>(text: Option<&str>) -> T {
    let value = match text {
        Some(text) => T::parse(text).ok(),
        None => T::absent(),
    };
    value.expect("a default in the table of settings is of the setting's type")
}

/// Returns the text that the console shows, or `None` if the setting is not set and has no default.
pub(crate) fn shown<T: Value>(value: &T, info: &SettingInfo) -> Option<String> {
    let text = value.show();
    if text.is_empty() && info.default.is_none() {
        None
    } else {
        Some(text)
    }
}

/// Declares the settings of one scope: `name: type = "default" in "unit", when, effect, check;`
/// where `when` is `reloads` or `restarts`, `effect` is `now` or `never`, and default,
/// unit and check may be left out.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($scope:ident) $({ $($(#[$extra_meta:meta])* pub $extra:ident: $extra_ty:ty,)* })?
        $($group:literal {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $ty:ty $(= $default:literal $(in $unit:literal)?)?, $when:ident, $effect:ident $(, $check:expr)?;
            )+
        })+
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($($(#[$extra_meta])* pub $extra: $extra_ty,)*)?
            $($($(#[doc = $doc])+ pub $key: $ty,)+)+
        }

        /// The settings of this scope, in the order of the reference page.
        pub const SETTINGS: &[$crate::SettingInfo] = &[
            $($($crate::SettingInfo {
                name: stringify!($key),
                scope: $crate::Scope::$scope,
                group: $group,
                kind: <$ty as $crate::value::Value>::KIND,
                unit: $crate::table::settings!(@first $($([Some($unit)])?)? [<$ty as $crate::value::Value>::UNIT]),
                default: $crate::table::settings!(@first $([Some($default)])? [None]),
                reloadable: $crate::table::settings!(@when $when),
                effect: $crate::table::settings!(@effect $effect),
                secret: <$ty as $crate::value::Value>::SECRET,
                doc: concat!($($doc, "\n"),+),
            },)+)+
        ];

        #[allow(non_camel_case_types, reason = "an index into SETTINGS for each key, spelled as the key")]
        enum Index { $($($key,)+)+ }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($($extra: Default::default(),)*)?
                    $($($key: $crate::table::default_of(SETTINGS[Index::$key as usize].default),)+)+
                }
            }
        }

        impl $name {
            /// Sets one key from its text.
            pub(crate) fn set(
                &mut self,
                key: &str,
                text: &str,
            ) -> Result<$crate::table::Accepted, $crate::table::SetError> {
                match key {
                    $($(stringify!($key) => $crate::table::put(
                        &mut self.$key,
                        text,
                        &SETTINGS[Index::$key as usize],
                        $crate::table::settings!(@first $([Some($check)])? [None]),
                    ),)+)+
                    _ => Err($crate::table::SetError::Unknown),
                }
            }

            /// Returns each setting with its value as text.
            #[allow(dead_code, reason = "not every scope has a console page of its settings")]
            pub(crate) fn texts(&self) -> Vec<(&'static $crate::SettingInfo, Option<String>)> {
                let texts = [$($($crate::table::shown(&self.$key, &SETTINGS[Index::$key as usize]),)+)+];
                SETTINGS.iter().zip(texts).collect()
            }

            /// Returns the settings whose values differ.
            #[allow(dead_code, reason = "only the global scope has settings that need a restart")]
            pub(crate) fn differing(&self, other: &Self) -> Vec<&'static $crate::SettingInfo> {
                let differs = [$($(self.$key != other.$key,)+)+];
                SETTINGS.iter().zip(differs).filter(|(_, differs)| *differs).map(|(info, _)| info).collect()
            }

            /// Copies the values from `other` that only a restart can change.
            #[allow(dead_code, reason = "only the global scope has settings that need a restart")]
            pub(crate) fn keep_fixed(&mut self, other: &Self) {
                $($(if !SETTINGS[Index::$key as usize].reloadable {
                    self.$key.clone_from(&other.$key);
                })+)+
            }
        }
    };
    (@first [$first:expr] $($rest:tt)*) => { $first };
    (@when reloads) => { true };
    (@when restarts) => { false };
    (@effect now) => { $crate::Effect::Now };
    (@effect never) => { $crate::Effect::Never };
}
pub(crate) use settings;
