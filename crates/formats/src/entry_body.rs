//! The body of a request that changes an entry of `[databases]` or `[users]`.

use serde_json::{Map, Value};

use crate::body::text_of;

/// Keys and values of an entry, in their order.
pub type Pairs = Vec<(String, String)>;

/// Applies the members of a body to the keys and values of an entry. A key whose value is null is removed.
///
/// # Errors
/// Each wrong key, with a description of valid values.
pub fn with_body(
    mut pairs: Pairs,
    body: &Map<String, Value>,
) -> Result<Pairs, Vec<(String, String)>> {
    let mut errors = Vec::new();
    for (key, value) in body {
        let text = match value {
            Value::Null => {
                pairs.retain(|(known, _)| known != key);
                continue;
            }
            Value::Array(items) => items
                .iter()
                .map(text_of)
                .collect::<Option<Vec<_>>>()
                .map(|items| items.join(",")),
            other => text_of(other),
        };
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            let detail = "expected a text, a number, true, false, a list of texts, or null to remove the key";
            errors.push((key.clone(), detail.to_owned()));
            continue;
        };
        match pairs.iter_mut().find(|(known, _)| known == key) {
            Some((_, value)) => *value = text,
            None => pairs.push((key.clone(), text)),
        }
    }
    match errors.is_empty() {
        true => Ok(pairs),
        false => Err(errors),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Pairs {
        list.iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn bodies_change_entries() {
        let before = pairs(&[("host", "a"), ("port", "1")]);
        let body = json!({"port": 2, "host": null, "dedicated": true, "user": "u"});
        let after = with_body(before, body.as_object().expect("an object"));
        let expected = pairs(&[("port", "2"), ("dedicated", "1"), ("user", "u")]);
        let sorted = |mut pairs: Pairs| {
            pairs.sort();
            pairs
        };
        assert_eq!(after.map(sorted), Ok(sorted(expected)));
        let list = json!({"host": ["a", "b"]});
        let after = with_body(Vec::new(), list.as_object().expect("an object"));
        assert_eq!(after, Ok(pairs(&[("host", "a,b")])));
        for wrong in [
            json!({"host": {}}),
            json!({"host": [1, []]}),
            json!({"host": ""}),
        ] {
            assert!(
                with_body(Vec::new(), wrong.as_object().expect("an object")).is_err(),
                "{wrong}"
            );
        }
    }
}
