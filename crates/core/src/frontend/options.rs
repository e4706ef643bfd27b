//! The startup parameter `options`, which has the form of a command line.

/// A setting's name and value, or an error for another option.
type Setting = Result<(Vec<u8>, Vec<u8>), NoSetting>;

/// The error for an option that is not a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoSetting;

/// Splits `options` into its settings: `-c name=value`, `-cname=value` and `--name=value`, with
/// `\` before a blank that belongs to a word (PostgreSQL's manual, "libpq: options").
pub(crate) fn settings(options: &[u8]) -> Vec<Setting> {
    let mut found = Vec::new();
    let mut words = words(options).into_iter();
    while let Some(word) = words.next() {
        let setting = match word.as_slice() {
            b"-c" => words.next().ok_or(NoSetting),
            [b'-', b'c' | b'-', rest @ ..] if !rest.is_empty() => Ok(rest.to_vec()),
            _ => Err(NoSetting),
        };
        found.push(setting.and_then(
            |setting| match setting.iter().position(|&byte| byte == b'=') {
                Some(at) => Ok((name(&setting[..at]), setting[at + 1..].to_vec())),
                None => Err(NoSetting),
            },
        ));
    }
    found
}

/// Returns the name of a setting: PostgreSQL accepts `-` in place of `_` in the names of `--name=value`.
fn name(text: &[u8]) -> Vec<u8> {
    text.iter()
        .map(|&byte| if byte == b'-' { b'_' } else { byte })
        .collect()
}

fn words(options: &[u8]) -> Vec<Vec<u8>> {
    let (mut words, mut word) = (Vec::new(), None::<Vec<u8>>);
    let mut bytes = options.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte.is_ascii_whitespace() {
            words.extend(word.take());
            continue;
        }
        let literal = if byte == b'\\' {
            bytes.next()
        } else {
            Some(byte)
        };
        word.get_or_insert_default().extend(literal);
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::NoSetting;

    #[test]
    fn cases() {
        let check = |options: &str, expect: &[Result<(&str, &str), NoSetting>]| {
            let bytes = |text: &str| text.as_bytes().to_vec();
            let expect: Vec<_> = expect
                .iter()
                .map(|one| one.map(|(name, value)| (bytes(name), bytes(value))))
                .collect();
            assert_eq!(super::settings(options.as_bytes()), expect, "{options}");
        };
        check("", &[]);
        check("  -c  a=b ", &[Ok(("a", "b"))]);
        check(
            "-ca=b --work-mem=1",
            &[Ok(("a", "b")), Ok(("work_mem", "1"))],
        );
        check(r"-c a=x\ y\\z", &[Ok(("a", r"x y\z"))]);
        check("-c", &[Err(NoSetting)]);
        check("-c a", &[Err(NoSetting)]);
        check("-d 3", &[Err(NoSetting), Err(NoSetting)]);
    }
}
