//! Any text as a userlist: users that were parsed are the same after they were written and parsed again.

use pgweir_auth::userlist::{Secret, Userlist};

/// See the module.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Userlist::parse(text) {
        Ok(list) => {
            let written: String = list
                .iter()
                .map(|(user, secret)| line(user, secret))
                .collect();
            let again = Userlist::parse(&written).expect("our own text");
            assert_eq!(again.len(), list.len());
            for (user, secret) in list.iter() {
                let read = again.get(user).expect("the same users");
                assert_eq!(line(user, read), line(user, secret));
            }
            let _ = format!("{list:?} {:?}", list.warnings());
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                assert!(
                    (1..=text.split('\n').count()).contains(&error.line),
                    "{error}"
                );
            }
        }
    }
}

fn line(user: &str, secret: &Secret) -> String {
    let text = match secret {
        Secret::Plain(text) | Secret::Md5(text) => text.to_string(),
        Secret::Scram(secret) => secret.to_text().to_string(),
    };
    format!(
        "\"{}\" \"{}\"\n",
        user.replace('"', "\"\""),
        text.replace('"', "\"\"")
    )
}
