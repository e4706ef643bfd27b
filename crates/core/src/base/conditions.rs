//! Finds the first condition that holds, in a list of conditions with descriptions.

/// Returns the description of the first condition that holds.
pub(crate) fn first_of(conditions: &[(bool, &'static str)]) -> Option<&'static str> {
    let mut those = conditions.iter().filter(|(holds, _)| *holds);
    those.next().map(|(_, words)| *words)
}
