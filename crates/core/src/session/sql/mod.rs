//! How SQL texts are read: bytes become tokens ([`lexer`]), and words are looked up in closed lists.
//!
//! The lists have the key words ([`keywords`]), and PostgreSQL's own functions and relations that leave session state
//! ([`denied`]). The readers of parameters, phrases and other parts of a text use the same tokens. This module knows
//! nothing of the database: what the functions and relations of users do is in the certificates, which are built by
//! reading the bodies of functions with this module.

pub(super) mod blocks;
mod byte_classes;
mod channel_command;
mod class;
mod computed_names;
mod data_changers;
mod denied;
mod dialect;
mod effects;
pub(super) mod lexer;
pub(super) mod literal_parameters;
mod literal_sets;
mod meaning;
mod name;
pub(super) mod parameters;
mod phrase;
pub(super) mod pieces;
mod session_readers;
pub(super) mod words;

pub(super) use byte_classes::is_of_word;
pub use channel_command::ChannelCommand;
pub use class::Class;
pub use computed_names::ComputedName;
pub(super) use data_changers::changes_data;
pub(super) use denied::is_harmless;
pub use dialect::Dialect;
pub use effects::Effects;
pub(super) use lexer::{Kind, Lexer};
pub use literal_parameters::affects_literals;
pub use literal_sets::{LiteralSets, literal_sets};
pub(super) use meaning::{CHANGE, Key, Meaning};
pub use name::Name;
pub(crate) use name::NameEffects;
pub(super) use name::is_found_as_word;
pub(super) use parameters::{TOUCHED_MAX, is_parameter_name};
pub use parameters::{
    Touched, affects_compilation, may_misread_bodies, outlasts_reset, shapes_plans,
    touched_parameters,
};
pub(super) use phrase::lower_case;
pub use phrase::{CustomNames, Phrase, Phrases, custom_names, is_broken, phrases};
pub(crate) use phrase::{custom_name_of_value, names_in_strings};
#[cfg(test)]
pub(super) use session_readers::SESSION_READERS;
pub(super) use session_readers::reads_session;
pub(super) use words::{builtin_effects, is_catalog};

/// The longest name, in bytes; PostgreSQL truncates longer ones (`NAMEDATALEN` - 1).
pub(super) const NAME_MAX: usize = 63;
