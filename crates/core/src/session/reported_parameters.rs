//! The parameters that PostgreSQL reports by ParameterStatus, and the values that each client has for those that pgweir
//! tracks, as PgBouncer does.

use std::sync::Arc;

use pgweir_wire::MessageWriter;

use super::{quote, word_list::words};

/// The names of the parameters that PostgreSQL reports, in a fixed order. The tracked ones come first: they are set on
/// every server that a client gets.
#[derive(Debug, Clone)]
pub struct TrackedNames {
    names: Vec<String>,
    /// The number of tracked names.
    tracked: usize,
    /// No value for any name. Each client begins with a clone of this.
    unset: Tracked,
}

/// A value for each reported name that has one. Cloning is cheap, and so is the comparison with a clone. Clients share
/// their values with the server's defaults where they are equal.
#[derive(Debug, Clone)]
pub struct Tracked {
    values: Arc<[Option<Arc<[u8]>>]>,
}

impl TrackedNames {
    const ALWAYS: [&str; 5] =
        words("client_encoding DateStyle TimeZone standard_conforming_strings application_name");
    /// The position of `application_name`.
    const APPLICATION_NAME: usize = 4;
    /// The other parameters that PostgreSQL reports. Their values may change without a SET of that name (PostgreSQL's
    /// manual, "Asynchronous Operations").
    const REPORTED: [&str; 7] = words(
        "IntervalStyle default_transaction_read_only in_hot_standby is_superuser scram_iterations \
         search_path session_authorization",
    );

    /// Makes the list from PgBouncer's five tracked names and `extra` (the setting `track_extra_parameters`).
    #[must_use]
    pub fn new(extra: &[String]) -> Self {
        let mut names: Vec<String> = Self::ALWAYS.map(str::to_owned).into();
        let add = |names: &mut Vec<String>, name: &str| {
            if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                names.push(name.to_owned());
            }
        };
        extra.iter().for_each(|name| add(&mut names, name));
        let tracked = names.len();
        Self::REPORTED.iter().for_each(|name| add(&mut names, name));
        let unset = Tracked {
            values: vec![None; names.len()].into(),
        };
        Self {
            names,
            tracked,
            unset,
        }
    }

    /// Returns the position of `name`, in any case, if PostgreSQL reports it.
    #[must_use]
    pub fn position(&self, name: &[u8]) -> Option<usize> {
        self.names
            .iter()
            .position(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Returns the position of `name`, in any case, if it is tracked.
    #[must_use]
    pub fn tracked_position(&self, name: &[u8]) -> Option<usize> {
        self.position(name).filter(|&at| at < self.tracked)
    }

    /// Returns the value that `tracked` has for `name`, in any case.
    #[must_use]
    pub fn value<'t>(&self, tracked: &'t Tracked, name: &[u8]) -> Option<&'t [u8]> {
        tracked.values.get(self.position(name)?)?.as_deref()
    }

    /// Returns a [`Tracked`] without values.
    #[must_use]
    pub fn unset(&self) -> Tracked {
        self.unset.clone()
    }

    /// Returns the names with the values that `tracked` has for them.
    pub fn pairs<'t>(&'t self, tracked: &'t Tracked) -> impl Iterator<Item = (&'t str, &'t [u8])> {
        let pairs = self.names.iter().zip(tracked.values.iter());
        pairs.filter_map(|(name, value)| Some((name.as_str(), value.as_deref()?)))
    }

    /// Appends a Query that gives a server with the values `server` the values of `client`. Appends nothing and returns
    /// `false` if the server has them already. Parameters for which the client has no value stay as they are.
    pub fn plan(&self, client: &Tracked, server: &Tracked, out: &mut Vec<u8>) -> bool {
        if client.is_same(server) {
            return false;
        }
        let mut text = Vec::new();
        for (name, value, _) in self.differing(client, server) {
            if self.is_set(name) {
                text.extend_from_slice(b"SET ");
                text.extend_from_slice(name.as_bytes());
                text.push(b'=');
                quote::literal(&mut text, value);
                text.push(b';');
            }
        }
        if text.is_empty() {
            return false;
        }
        MessageWriter::new(out).query(&text);
        true
    }

    /// Appends a ParameterStatus for each value of `now` that differs from `before`.
    pub fn report(&self, before: &Tracked, now: &Tracked, out: &mut Vec<u8>) {
        if now.is_same(before) {
            return;
        }
        for (name, value, _) in self.differing(now, before) {
            MessageWriter::new(out).parameter_status(name.as_bytes(), value);
        }
    }

    /// Returns the names for which both sides have values that differ, with both values.
    pub fn respelled<'t>(
        &'t self,
        before: &'t Tracked,
        now: &'t Tracked,
    ) -> impl Iterator<Item = (&'t str, &'t [u8], &'t [u8])> {
        let differing = self.differing(now, before);
        differing.filter_map(|(name, now, before)| Some((name, before?, now)))
    }

    /// Returns whether [`Self::plan`] sets this parameter.
    fn is_set(&self, name: &str) -> bool {
        self.names[..self.tracked].iter().any(|known| known == name)
    }

    fn differing<'t>(
        &'t self,
        wanted: &'t Tracked,
        present: &'t Tracked,
    ) -> impl Iterator<Item = (&'t str, &'t [u8], Option<&'t [u8]>)> {
        let values = wanted.values.iter().zip(present.values.iter());
        let values = self.names.iter().zip(values);
        values.filter_map(|(name, (wanted, present))| {
            let (value, present) = (wanted.as_deref()?, present.as_deref());
            (present != Some(value)).then_some((name.as_str(), value, present))
        })
    }
}

impl Tracked {
    /// Returns whether both share the same memory: the usual case, and the only one on the hot path.
    #[must_use]
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.values, &other.values)
    }

    /// Shares the memory of `other` if all values are equal.
    #[inline]
    pub fn adopt(&mut self, other: &Self) {
        if !self.is_same(other) && self.values == other.values {
            self.values = Arc::clone(&other.values);
        }
    }

    /// Returns whether all values are equal.
    #[must_use]
    pub fn is_equal(&self, other: &Self) -> bool {
        self.is_same(other) || self.values == other.values
    }

    /// Sets one value. `at` comes from [`TrackedNames::position`].
    pub fn set(&mut self, at: usize, value: &[u8]) {
        if self
            .values
            .get(at)
            .is_none_or(|present| present.as_deref() == Some(value))
        {
            return;
        }
        let mut values = self.values.to_vec();
        values[at] = Some(value.into());
        self.values = values.into();
    }

    /// Takes the values of `defaults` for names that have no value.
    pub fn fill(&mut self, defaults: &Self) {
        if self.values.iter().all(Option::is_none) {
            self.values = Arc::clone(&defaults.values);
        } else if self.values.iter().any(Option::is_none) {
            let filled = self.values.iter().zip(defaults.values.iter());
            self.values = filled
                .map(|(own, default)| own.clone().or_else(|| default.clone()))
                .collect();
        }
    }

    /// Returns the value of `client_encoding`, empty if there is none.
    #[must_use]
    pub fn client_encoding(&self) -> &[u8] {
        let value = self.values.first().and_then(Option::as_deref);
        value.unwrap_or_default()
    }

    /// Returns the value of `application_name`, empty if there is none.
    #[must_use]
    pub fn application_name(&self) -> &[u8] {
        self.values
            .get(TrackedNames::APPLICATION_NAME)
            .and_then(Option::as_deref)
            .unwrap_or_default()
    }
}

#[cfg(test)]
impl TrackedNames {
    /// Returns values for a test.
    pub(crate) fn tracked(&self, pairs: &[(&str, &str)]) -> Tracked {
        let mut tracked = self.unset();
        for (name, value) in pairs {
            tracked.set(self.position(name.as_bytes()).unwrap(), value.as_bytes());
        }
        tracked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(client: &[(&str, &str)], server: &[(&str, &str)], expect: Option<&str>) {
        let names = TrackedNames::new(&["IntervalStyle".into()]);
        let mut out = Vec::new();
        let planned = names.plan(&names.tracked(client), &names.tracked(server), &mut out);
        assert_eq!(planned, expect.is_some());
        if let Some(text) = expect {
            assert_eq!(String::from_utf8_lossy(&out[5..out.len() - 1]), text);
        }
    }

    #[test]
    fn plans() {
        check(&[], &[("timezone", "UTC")], None);
        check(&[("timezone", "UTC")], &[("TimeZone", "UTC")], None);
        check(&[("timezone", "UTC")], &[], Some("SET TimeZone='UTC';"));
        check(
            &[("application_name", "it's"), ("intervalstyle", "iso_8601")],
            &[("application_name", ""), ("IntervalStyle", "postgres")],
            Some("SET application_name='it''s';SET IntervalStyle='iso_8601';"),
        );
    }

    #[test]
    fn filling_shares_the_defaults_where_it_can() {
        let names = TrackedNames::new(&[]);
        let defaults = names.tracked(&[("TimeZone", "UTC")]);
        let mut client = names.unset();
        client.fill(&defaults);
        assert!(client.is_same(&defaults));
        let mut client = names.tracked(&[("DateStyle", "ISO")]);
        client.fill(&defaults);
        let expect = names.tracked(&[("DateStyle", "ISO"), ("TimeZone", "UTC")]);
        assert!(!client.is_same(&expect));
        client.adopt(&expect);
        assert!(client.is_same(&expect));
        client.adopt(&defaults);
        assert!(client.is_same(&expect), "other values");
    }
}
