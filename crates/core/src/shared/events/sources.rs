//! The addresses from which the occurrences of an event came. Input: one address per occurrence, with a description of
//! the client there. Output: the most frequent addresses with their counts.
//!
//! A bounded number of addresses is kept (Space-Saving, by Metwally, Agrawal and El Abbadi): a new address takes the
//! place of the least frequent one, and each count that is shown is a lower bound. An address with more than one
//! occurrence in [`KEPT`] is never lost.

use std::fmt::Write;

/// The largest number of addresses that are kept of one event.
const KEPT: usize = 4;
/// The largest number of bytes of a description.
const ABOUT_MAX: usize = 160;

/// The address of a client that an event is about, and a description of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventSource<'a> {
    /// The IP address, or `unix`.
    pub address: &'a str,
    /// A description, such as the client's `application_name`; may be empty.
    pub about: &'a str,
}

/// The most frequent sources of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventSources(Vec<SourceCount>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceCount {
    address: Box<str>,
    /// The description of the latest client at this address.
    about: Box<str>,
    count: u64,
    /// How many of `count` may have come from addresses that were here before.
    inherited: u64,
}

impl SourceCount {
    /// Returns how many occurrences certainly came from this address.
    fn certain(&self) -> u64 {
        self.count - self.inherited
    }
}

impl EventSources {
    /// Counts an occurrence.
    pub(super) fn add(&mut self, source: EventSource<'_>) {
        let about = super::cut(source.about, ABOUT_MAX);
        let mut kept = self.0.iter_mut();
        if let Some(known) = kept.find(|kept| *kept.address == *source.address) {
            known.count += 1;
            if *known.about != *about {
                known.about = about.into();
            }
            return;
        }
        let least = (0..self.0.len()).min_by_key(|&at| self.0[at].count);
        let inherited = match least {
            Some(at) if self.0.len() >= KEPT => self.0.swap_remove(at).count,
            _ => 0,
        };
        self.0.push(SourceCount {
            address: source.address.into(),
            about: about.into(),
            count: inherited + 1,
            inherited,
        });
    }

    /// Returns the addresses with their counts, the most frequent first; `None` if there is none. `total`: the number
    /// of all occurrences.
    #[must_use]
    pub fn describe(&self, total: u64) -> Option<String> {
        let mut kept: Vec<&SourceCount> = self.0.iter().collect();
        kept.sort_by_key(|kept| std::cmp::Reverse(kept.certain()));
        let mut text = String::new();
        for source in &kept {
            let SourceCount { address, about, .. } = source;
            let between = if text.is_empty() { "" } else { "; " };
            let about = match about.is_empty() {
                true => String::new(),
                false => format!(" ({about})"),
            };
            // A write to a text can't fail.
            let _ = write!(text, "{between}{address}{about}: {}", source.certain());
        }
        let certain: u64 = kept.iter().map(|kept| kept.certain()).sum();
        if total > certain && !kept.is_empty() {
            let _ = write!(text, "; others: {}", total - certain);
        }
        (!kept.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(sources: &mut EventSources, address: &str, about: &str) {
        sources.add(EventSource { address, about });
    }

    #[test]
    fn the_most_frequent_comes_first() {
        let mut sources = EventSources::default();
        assert_eq!(sources.describe(0), None);
        add(&mut sources, "10.0.0.1", "");
        for about in ["user \"a\"", "user \"b\""] {
            add(&mut sources, "10.0.0.2", about);
        }
        let text = sources.describe(3);
        assert_eq!(
            text.as_deref(),
            Some("10.0.0.2 (user \"b\"): 2; 10.0.0.1: 1")
        );
    }

    #[test]
    fn a_frequent_address_is_found_among_many() {
        let mut sources = EventSources::default();
        for number in 0..1000 {
            add(
                &mut sources,
                &format!("10.1.{}.{}", number / 256, number % 256),
                "",
            );
            add(&mut sources, "10.0.0.7", "");
        }
        assert_eq!(sources.0.len(), KEPT);
        let text = sources.describe(2000).expect("sources");
        let (first, rest) = text.split_once("; ").expect("several");
        let count = first
            .strip_prefix("10.0.0.7: ")
            .expect("the frequent one first");
        assert!(
            (990..=1000).contains(&count.parse().expect("a number")),
            "{text}"
        );
        assert!(rest.contains("others: "), "{text}");
    }

    #[test]
    fn no_address_is_shown_with_the_count_of_others() {
        let mut sources = EventSources::default();
        for number in 0..100 {
            add(&mut sources, &format!("10.0.0.{number}"), "");
        }
        let text = sources.describe(100).expect("sources");
        assert!(text.ends_with("; others: 96"), "{text}");
        assert_eq!(text.matches(": 1;").count(), KEPT, "{text}");
    }
}
