//! Keys and values in etcd. The first byte chooses the kind: a value of the fleet (`F`, `N`, `P`, `C`, `A`), or the key and
//! the value of an entry of `config_etcd` (`E`), with a line end between them.
//!
//! The target checks that a value that was parsed is the same after it was written and parsed again; that an entry is
//! still there, and the only one of its name, after it was written to `api_config_file` and read again, and has no password; and that the message about a
//! wrong entry is one line without the entry's value.

use std::path::Path;

use pgweir_config::{Changes, Scope, Secret};
use pgweir_core::console::CommandOnAll;
use pgweir_formats::{
    etcd_entries::{Keys, Meaning, secret_key, value_of},
    fleet_values::{AnswerValue, CommandValue, FreeValue, NodeValue, PeerValue},
};

/// See the module.
pub fn run(data: &[u8]) {
    let Some((kind, value)) = data.split_first() else {
        return;
    };
    match kind {
        b'F' => read_again(value, FreeValue::parse, FreeValue::write),
        b'N' => read_again(value, NodeValue::parse, NodeValue::write),
        b'P' => read_again(value, PeerValue::parse, PeerValue::write),
        b'C' => {
            read_again(value, CommandValue::parse, CommandValue::write);
            let command = CommandValue::parse(value);
            let command = command.and_then(|command| CommandOnAll::parse(&command.text));
            if let Some(command) = command {
                assert_eq!(CommandOnAll::parse(command.text()), Some(command.clone()));
            }
        }
        b'A' => read_again(value, AnswerValue::parse, AnswerValue::write),
        b'E' => entry(value),
        _ => {}
    }
}

fn read_again<T: PartialEq + std::fmt::Debug>(
    value: &[u8],
    parse: fn(&[u8]) -> Option<T>,
    write: fn(&T) -> Vec<u8>,
) {
    if let Some(parsed) = parse(value) {
        assert_eq!(parse(&write(&parsed)), Some(parsed));
    }
}

fn entry(data: &[u8]) {
    let keys = Keys::new("main");
    let end = data.iter().position(|&byte| byte == b'\n');
    let (key, value) = data.split_at(end.unwrap_or(data.len()));
    let value = value.get(1..).unwrap_or_default();
    match keys.meaning(key, value) {
        Ok(Meaning::InUse) => assert_eq!(key, keys.in_use().as_bytes()),
        Ok(Meaning::Entry(scope, name, text)) => {
            assert_eq!(key, keys.of_entry(scope, &name).as_bytes());
            assert!(key < keys.end().as_slice());
            assert_eq!(value, value_of(text.as_ref()).as_bytes());
            if let Some(text) = &text {
                assert_eq!(secret_key(scope, text.expose()), None);
            }
            keep(scope, &name, text);
        }
        Err(message) => {
            assert!(!message.contains(char::is_control), "{message}");
            let shown = String::from_utf8_lossy(value);
            let is_in_key = String::from_utf8_lossy(key).contains(&*shown);
            // A short value may be in the message by chance.
            assert!(shown.len() < 60 || is_in_key || !message.contains(&*shown));
        }
    }
}

/// Writes the entry to `api_config_file`, before another one, and reads both again.
fn keep(scope: Scope, name: &str, text: Option<Secret>) {
    let mut changes = Changes::default();
    changes.set(scope, name, text);
    changes.set(Scope::User, "\u{10ffff}", Some(Secret::new("pool_size=3")));
    let count = changes.len();
    let file = changes.file_text();
    let read = Changes::parse(file.expose(), Path::new("entries.ini")).expect("our own file");
    assert_eq!(read.len(), count);
    assert!(read.has(scope, name) && read.has(Scope::User, "\u{10ffff}"));
    // Blanks around an entry's text are left out. Afterwards the file stays the same.
    let again = Changes::parse(read.file_text().expose(), Path::new("entries.ini"));
    assert_eq!(again.expect("our own file").file_text(), read.file_text());
}
