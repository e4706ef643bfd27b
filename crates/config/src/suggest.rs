//! Suggests the name that an operator probably meant.

use crate::Scope;

/// The length of the longest name for which a similar one is searched.
const LENGTH_MAX: usize = 64;

/// Returns the candidate that is most similar to `name`, if one is similar enough.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if name.len() > LENGTH_MAX {
        return None;
    }
    let name = name.to_lowercase().replace('-', "_");
    let distances = candidates
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(&name, known), known));
    let (distance, known) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + known.len() / 5).then_some(known)
}

/// Returns the key of this scope that is most similar to `key`.
pub(crate) fn nearest_key(key: &str, scope: Scope) -> Option<&'static str> {
    nearest(key, scope.settings().iter().map(|info| info.name))
}

/// Returns the scopes that have this key.
pub(crate) fn scopes_of(key: &str) -> Vec<Scope> {
    let has_key = |scope: &Scope| scope.settings().iter().any(|info| info.name == key);
    Scope::ALL.into_iter().filter(has_key).collect()
}

/// Returns the section that is most similar to `name`.
pub(crate) fn nearest_section(name: &str) -> Option<&'static str> {
    nearest(name, Scope::ALL.map(Scope::section))
}
