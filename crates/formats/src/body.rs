//! The body of an HTTP request: a JSON object.

use serde_json::{Map, Value};

/// Returns the members of the object.
///
/// # Errors
/// Why the body is no JSON object.
pub fn members(body: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err("the body is no JSON object".to_owned()),
        Err(error) => Err(format!("the body is no JSON: {error}")),
    }
}

/// Returns a text, a number, or true or false (1 or 0) as text; `None` for another value.
#[must_use]
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(u8::from(*value).to_string()),
        _ => None,
    }
}
