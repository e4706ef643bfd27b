//! Parts of HTTP requests. The first byte chooses the part: the header `Accept` (`a`) or `Authorization` (`c`), a query
//! (`q`), a file of tokens (`t`), the body of a request that changes an entry (`e`), or the body of a command (a digit or
//! capital letter, for the place of the command in the list).
//!
//! The target checks that a command's text is that one command and nothing more, whatever the members of the body are;
//! that an entry's text has the keys and values of the body; and that no message about a file of tokens contains a token.

use pgweir_config::{entry_pairs, entry_text};
use pgweir_core::console::CommandOnAll;
use pgweir_formats::{
    accept::prefers_openmetrics,
    body::members,
    command_body::{COMMANDS, Command},
    credentials::Credentials,
    entry_body::with_body,
    query::{Selection, pairs},
    tokens::Tokens,
};

/// See the module.
pub fn run(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else {
        return;
    };
    let text = std::str::from_utf8(data);
    match (kind, text) {
        (b'e', _) => entry(data),
        (b'0'..=b'9' | b'A'..=b'Z', _) => {
            let place = char::from(kind).to_digit(36).unwrap_or_default();
            command(&COMMANDS[place as usize % COMMANDS.len()], data);
        }
        (b'a', Ok(text)) => {
            let _ = prefers_openmetrics(Some(text));
        }
        (b'c', Ok(text)) => match Credentials::parse(text) {
            Some(Credentials::Password { user, password }) => {
                assert!(!user.is_empty() && !user.contains(['\0', ':']));
                assert!(!password.contains('\0'));
            }
            Some(Credentials::Token(token)) => assert!(text.contains(&*token)),
            None => {}
        },
        (b'q', Ok(text)) => query(text),
        (b't', Ok(text)) => tokens(text),
        _ => {}
    }
}

fn query(text: &str) {
    let count = text.split('&').filter(|pair| !pair.is_empty()).count();
    assert!(pairs(text).is_ok_and(|pairs| pairs.len() == count) || pairs(text).is_err());
    if let Ok(selection) = Selection::parse(text) {
        assert!(selection.limit >= 1);
    }
}

fn entry(body: &[u8]) {
    let Ok(members) = members(body) else { return };
    let Ok(pairs) = with_body(Vec::new(), &members) else {
        return;
    };
    let Ok(text) = entry_text(&pairs) else { return };
    assert_eq!(entry_pairs(text.expose()), Ok(pairs));
    assert!(!text.expose().contains(char::is_control));
}

fn command(command: &Command, body: &[u8]) {
    let Ok(members) = members(body) else { return };
    let text = match command.text(&members) {
        Ok(text) => text,
        Err(errors) => return assert!(!errors.is_empty()),
    };
    assert!(text.command.starts_with(command.verb) && !text.command.contains('\0'));
    if CommandOnAll::is_allowed(command.verb)
        && let Some(parsed) = CommandOnAll::parse(&text.command)
    {
        assert_eq!(parsed.text(), text.command);
    }
    assert!(text.on_all.is_none_or(|sent| sent.text() == text.command));
}

fn tokens(text: &str) {
    let Err(problems) = Tokens::parse(text) else {
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    for problem in problems {
        let number: usize = problem
            .split(':')
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a line");
        let line = lines[number - 1];
        let long = line.split_whitespace().filter(|word| word.len() > 40);
        for word in long {
            assert!(!problem.contains(word), "{problem}");
        }
    }
}
