//! The end of a login: the messages about parameters, which are the same for all clients of a pool that have asked for
//! the same values.

use std::sync::Arc;

use pgweir_wire::MessageWriter;

use crate::{
    session::{Tracked, TrackedNames},
    shared::pool::ServerParameters,
};

/// The number of greetings that a worker keeps.
const KEPT_MAX: usize = 8;

/// The ParameterStatus messages for clients that have asked for certain values.
#[derive(Debug)]
pub(super) struct Greeting {
    /// The values that clients have asked for.
    asked: Tracked,
    /// The parameters that the servers report.
    of: Arc<ServerParameters>,
    /// The values that these clients have: what they have asked for, else the servers' values.
    tracked: Tracked,
    messages: Vec<u8>,
}

/// The greetings that a worker keeps.
#[derive(Debug, Default)]
pub(super) struct Greetings {
    kept: Vec<Greeting>,
    /// The position of the greeting that the next new one replaces.
    next: usize,
}

impl Greeting {
    /// Returns the values of the reported parameters that the clients have.
    pub(super) fn tracked(&self) -> &Tracked {
        &self.tracked
    }

    /// Returns the ParameterStatus messages.
    pub(super) fn messages(&self) -> &[u8] {
        &self.messages
    }
}

impl Greetings {
    /// Returns the greeting of clients that have asked for these values, in a pool whose servers report these
    /// parameters.
    pub(super) fn find(
        &mut self,
        names: &TrackedNames,
        asked: &Tracked,
        of: &Arc<ServerParameters>,
    ) -> &Greeting {
        let is_it = |kept: &Greeting| Arc::ptr_eq(&kept.of, of) && kept.asked.is_equal(asked);
        let at = match self.kept.iter().position(is_it) {
            Some(at) => at,
            None => self.add(names, asked, of),
        };
        &self.kept[at]
    }

    /// Makes a greeting, and returns its position. Above [`KEPT_MAX`], the greeting that was made first is dropped.
    fn add(&mut self, names: &TrackedNames, asked: &Tracked, of: &Arc<ServerParameters>) -> usize {
        let mut tracked = asked.clone();
        tracked.fill(&of.tracked);
        let greeting = Greeting {
            asked: asked.clone(),
            of: Arc::clone(of),
            messages: messages(names, &tracked, of),
            tracked,
        };
        let at = self.next;
        match self.kept.get_mut(at) {
            Some(oldest) => *oldest = greeting,
            None => self.kept.push(greeting),
        }
        self.next = (at + 1) % KEPT_MAX;
        at
    }
}

/// Returns a ParameterStatus for each reported parameter of a client that has these values.
pub(super) fn messages(names: &TrackedNames, tracked: &Tracked, of: &ServerParameters) -> Vec<u8> {
    let mut messages = of.messages.clone();
    let mut writer = MessageWriter::new(&mut messages);
    for (name, value) in names.pairs(tracked) {
        writer.parameter_status(name.as_bytes(), value);
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(names: &TrackedNames, zone: &str) -> Arc<ServerParameters> {
        let mut messages = Vec::new();
        MessageWriter::new(&mut messages).parameter_status(b"server_version", b"18.1");
        Arc::new(ServerParameters {
            messages,
            tracked: names.tracked(&[("TimeZone", zone), ("application_name", "")]),
            report: None,
        })
    }

    fn expect(zone: &str, name: &str) -> Vec<u8> {
        let mut messages = Vec::new();
        MessageWriter::new(&mut messages)
            .parameter_status(b"server_version", b"18.1")
            .parameter_status(b"TimeZone", zone.as_bytes())
            .parameter_status(b"application_name", name.as_bytes());
        messages
    }

    #[test]
    fn clients_with_equal_values_share_a_greeting() {
        let names = TrackedNames::new(&[]);
        let (utc, cet) = (parameters(&names, "UTC"), parameters(&names, "CET"));
        let mut greetings = Greetings::default();
        for _ in 0..2 {
            for (name, zone, of) in [("a", "UTC", &utc), ("b", "UTC", &utc), ("a", "CET", &cet)] {
                let asked = names.tracked(&[("application_name", name)]);
                let first = greetings.find(&names, &asked, of).tracked().clone();
                let greeting = greetings.find(&names, &asked, of);
                assert_eq!(greeting.messages(), expect(zone, name));
                assert!(greeting.tracked().is_same(&first));
                assert_eq!(greeting.tracked().application_name(), name.as_bytes());
            }
        }
        assert_eq!(greetings.kept.len(), 3);
    }

    #[test]
    fn few_greetings_are_kept() {
        let names = TrackedNames::new(&[]);
        let of = parameters(&names, "UTC");
        let mut greetings = Greetings::default();
        for number in 0..3 * KEPT_MAX {
            let name = number.to_string();
            let asked = names.tracked(&[("application_name", &name)]);
            let greeting = greetings.find(&names, &asked, &of);
            assert_eq!(greeting.messages(), expect("UTC", &name));
        }
        assert_eq!(greetings.kept.len(), KEPT_MAX);
    }
}
