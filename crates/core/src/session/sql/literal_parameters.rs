//! The parameters on which the meaning of literals depends.

use crate::session::word_list::{is_any, words};

/// The settings that affect strings of letters, and NULL.
pub(in crate::session) const OF_WORDS: [&str; 2] = words("transform_null_equals xmloption");
/// The settings that affect other literals, too.
pub(in crate::session) const OF_VALUES: [&str; 9] = words(
    "array_nulls backslash_quote client_encoding datestyle intervalstyle lc_monetary \
     standard_conforming_strings timezone timezone_abbreviations",
);
/// Returns whether the meaning of literals depends on this parameter.
#[must_use]
pub fn affects_literals(parameter: &[u8]) -> bool {
    is_any(parameter, &OF_WORDS) || is_any(parameter, &OF_VALUES)
}
