//! OpenSSL's names of protocols, ciphers and curves, and which of them are supported.

use rustls::{
    CipherSuite, NamedGroup, ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion,
    crypto::{SupportedKxGroup, aws_lc_rs as provider},
    version::{TLS12, TLS13},
};

/// The chosen items, and messages for the operator.
#[derive(Debug)]
pub(super) struct Chosen<T> {
    pub(super) items: Vec<T>,
    pub(super) note: Option<String>,
}

/// A cipher suite of TLS 1.2, and the words of cipher strings that select it.
struct Cipher {
    name: &'static str,
    suite: &'static SupportedCipherSuite,
    words: &'static [&'static str],
}

/// Words that select every supported suite.
const EVERY: [&str; 10] = [
    "ALL", "DEFAULT", "HIGH", "ECDHE", "EECDH", "KECDHE", "KEECDH", "ECDH", "TLSV1.2", "AEAD",
];

use provider::cipher_suite as suite;

const CIPHERS: [Cipher; 6] = [
    Cipher {
        name: "ECDHE-ECDSA-AES256-GCM-SHA384",
        suite: &suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        words: &[
            "ECDSA",
            "AECDSA",
            "AES",
            "AES256",
            "AESGCM",
            "SHA384",
            "FIPS",
            "SUITEB192",
        ],
    },
    Cipher {
        name: "ECDHE-RSA-AES256-GCM-SHA384",
        suite: &suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        words: &["ARSA", "AES", "AES256", "AESGCM", "SHA384", "FIPS"],
    },
    Cipher {
        name: "ECDHE-ECDSA-CHACHA20-POLY1305",
        suite: &suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        words: &["ECDSA", "AECDSA", "CHACHA20"],
    },
    Cipher {
        name: "ECDHE-RSA-CHACHA20-POLY1305",
        suite: &suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        words: &["ARSA", "CHACHA20"],
    },
    Cipher {
        name: "ECDHE-ECDSA-AES128-GCM-SHA256",
        suite: &suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        words: &[
            "ECDSA",
            "AECDSA",
            "AES",
            "AES128",
            "AESGCM",
            "SHA256",
            "FIPS",
            "SUITEB128",
        ],
    },
    Cipher {
        name: "ECDHE-RSA-AES128-GCM-SHA256",
        suite: &suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        words: &["ARSA", "AES", "AES128", "AESGCM", "SHA256", "FIPS"],
    },
];

const CIPHERS_13: [(&str, Option<&SupportedCipherSuite>); 5] = [
    (
        "TLS_AES_256_GCM_SHA384",
        Some(&suite::TLS13_AES_256_GCM_SHA384),
    ),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        Some(&suite::TLS13_CHACHA20_POLY1305_SHA256),
    ),
    (
        "TLS_AES_128_GCM_SHA256",
        Some(&suite::TLS13_AES_128_GCM_SHA256),
    ),
    ("TLS_AES_128_CCM_SHA256", None),
    ("TLS_AES_128_CCM_8_SHA256", None),
];

/// A group with OpenSSL's short name and other names. `None` marks a group that is not supported.
type Group = (
    &'static [&'static str],
    Option<&'static dyn SupportedKxGroup>,
);

const GROUPS: [Group; 8] = [
    (&["X25519", "x25519"], Some(provider::kx_group::X25519)),
    (
        &["prime256v1", "P-256", "secp256r1"],
        Some(provider::kx_group::SECP256R1),
    ),
    (&["secp384r1", "P-384"], Some(provider::kx_group::SECP384R1)),
    (
        &["X25519MLKEM768"],
        Some(provider::kx_group::X25519MLKEM768),
    ),
    (&["secp521r1", "P-521"], None),
    (&["X448"], None),
    (
        &["brainpoolP256r1", "brainpoolP384r1", "brainpoolP512r1"],
        None,
    ),
    (&["secp224r1", "P-224", "secp256k1"], None),
];

/// Parses `client_tls_protocols`: names, or `all`, `secure`, `default`, `legacy`, each optionally with `!`.
///
/// # Errors
/// An unknown name.
pub(super) fn protocols(text: &str) -> Result<Chosen<&'static SupportedProtocolVersion>, String> {
    const ALL: u8 = 0b1111;
    const SECURE: u8 = 0b1100;
    let mut set = 0;
    for (index, word) in words(text).enumerate() {
        let (is_out, name) = match word.strip_prefix('!') {
            Some(name) => (true, name),
            None => (false, word),
        };
        let bits = match name.to_ascii_lowercase().as_str() {
            "all" | "legacy" | "tlsv1" => ALL,
            "secure" | "default" => SECURE,
            "tlsv1.0" => 1,
            "tlsv1.1" => 2,
            "tlsv1.2" => 4,
            "tlsv1.3" => 8,
            _ => return Err(word.to_owned()),
        };
        if is_out {
            set = if index == 0 { ALL } else { set } & !bits;
        } else {
            set |= bits;
        }
    }
    let mut items: Vec<&'static SupportedProtocolVersion> = Vec::new();
    items.extend((set & 8 > 0).then_some(&TLS13));
    items.extend((set & 4 > 0).then_some(&TLS12));
    let asks_for_old =
        set & 3 > 0 && !matches!(text.to_ascii_lowercase().as_str(), "all" | "legacy");
    let note = asks_for_old.then(|| "TLS 1.0 and 1.1 are not safe and never spoken".to_owned());
    Ok(Chosen { items, note })
}

/// Parses ciphers of TLS 1.2, in the order and by the rules of OpenSSL's cipher strings. Words that select no supported
/// suite are ignored.
pub(super) fn ciphers(text: &str) -> Vec<SupportedCipherSuite> {
    let mut chosen: Vec<&Cipher> = Vec::new();
    let mut banned: Vec<&str> = Vec::new();
    for word in words(text) {
        let (sign, word) = match word.as_bytes().first() {
            Some(sign @ (b'!' | b'-' | b'+')) => (Some(sign), &word[1..]),
            _ => (None, word),
        };
        let meant = CIPHERS.iter().filter(|cipher| cipher.is_meant_by(word));
        for cipher in meant {
            let position = chosen.iter().position(|other| other.name == cipher.name);
            match (sign, position) {
                (Some(b'+'), Some(at)) => {
                    let moved = chosen.remove(at);
                    chosen.push(moved);
                }
                (Some(b'+'), None) => {}
                (Some(sign), _) => {
                    chosen.retain(|other| other.name != cipher.name);
                    banned.extend((*sign == b'!').then_some(cipher.name));
                }
                (None, None) if !banned.contains(&cipher.name) => chosen.push(cipher),
                (None, _) => {}
            }
        }
    }
    chosen.into_iter().map(|cipher| *cipher.suite).collect()
}

impl Cipher {
    /// Returns whether a word selects the suite. `ECDHE+AESGCM` selects the suites that both words select.
    fn is_meant_by(&self, word: &str) -> bool {
        // Keywords of libtls.
        if matches!(
            word,
            "secure" | "default" | "fast" | "normal" | "compat" | "legacy" | "all" | "insecure"
        ) {
            return true;
        }
        let upper = word.to_ascii_uppercase();
        upper
            .split('+')
            .all(|part| self.name == part || EVERY.contains(&part) || self.words.contains(&part))
    }
}

/// Parses ciphers of TLS 1.3, separated by colons.
///
/// # Errors
/// An unknown name.
pub(super) fn ciphers_13(text: &str) -> Result<Chosen<SupportedCipherSuite>, String> {
    let mut chosen = Chosen {
        items: Vec::new(),
        note: None,
    };
    for word in words(text) {
        match CIPHERS_13.iter().find(|(name, _)| *name == word) {
            Some((_, Some(suite))) => chosen.items.push(**suite),
            Some((name, None)) => chosen.note = Some(format!("{name} is not available")),
            None => return Err(word.to_owned()),
        }
    }
    if text.trim().is_empty() {
        chosen.items = CIPHERS_13
            .iter()
            .filter_map(|(_, suite)| suite.copied())
            .collect();
    }
    Ok(chosen)
}

/// Parses groups for the key exchange, the preferred one first.
///
/// # Errors
/// An unknown name.
pub(super) fn groups(text: &str) -> Result<Chosen<&'static dyn SupportedKxGroup>, String> {
    let mut chosen = Chosen {
        items: Vec::new(),
        note: None,
    };
    for word in words(text) {
        if matches!(word, "auto" | "none") {
            chosen
                .items
                .extend(GROUPS.iter().filter_map(|(_, group)| *group));
            continue;
        }
        let known = GROUPS
            .iter()
            .find(|(names, _)| names.iter().any(|name| name.eq_ignore_ascii_case(word)));
        match known {
            Some((_, Some(group))) => chosen.items.push(*group),
            Some((names, None)) => chosen.note = Some(format!("{} is not available", names[0])),
            None => return Err(word.to_owned()),
        }
    }
    Ok(chosen)
}

/// Returns OpenSSL's name of a version.
pub(super) fn protocol_name(version: Option<ProtocolVersion>) -> &'static str {
    match version {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "-",
    }
}

/// Returns OpenSSL's name of a cipher suite.
pub(super) fn cipher_name(suite: Option<CipherSuite>) -> &'static str {
    let Some(suite) = suite else { return "-" };
    let old = CIPHERS
        .iter()
        .find(|cipher| cipher.suite.suite() == suite)
        .map(|cipher| cipher.name);
    let new = CIPHERS_13
        .iter()
        .find(|(_, known)| known.is_some_and(|known| known.suite() == suite));
    old.or(new.map(|(name, _)| *name)).unwrap_or("-")
}

/// Returns OpenSSL's name of a group.
pub(super) fn group_name(group: NamedGroup) -> Option<&'static str> {
    let found = GROUPS
        .iter()
        .find(|(_, known)| known.is_some_and(|known| known.name() == group));
    found.map(|(names, _)| names[0])
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([':', ',', ' ']).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<&'static str> {
        ciphers(text)
            .into_iter()
            .map(|suite| cipher_name(Some(suite.suite())))
            .collect()
    }

    #[test]
    fn cipher_strings() {
        assert_eq!(named("default").len(), 6);
        assert_eq!(named("HIGH:MEDIUM:+3DES:!aNULL").len(), 6);
        assert_eq!(
            named("ECDHE-RSA-AES128-GCM-SHA256"),
            ["ECDHE-RSA-AES128-GCM-SHA256"]
        );
        assert_eq!(
            named("ECDHE+AESGCM:!aRSA:@STRENGTH"),
            [
                "ECDHE-ECDSA-AES256-GCM-SHA384",
                "ECDHE-ECDSA-AES128-GCM-SHA256"
            ]
        );
        assert_eq!(
            named("CHACHA20:AES128:+CHACHA20:-aECDSA"),
            ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"]
        );
        assert_eq!(named("!AES:ALL").len(), 2);
        assert!(named("AES256-SHA:DHE-RSA-AES128-SHA:RC4").is_empty());
    }

    #[test]
    fn protocol_words() {
        let check = |text, expect: &[&str], is_noted| {
            let chosen = protocols(text).expect("known names");
            let names: Vec<_> = chosen
                .items
                .iter()
                .map(|version| protocol_name(Some(version.version)))
                .collect();
            assert_eq!(
                (names.as_slice(), chosen.note.is_some()),
                (expect, is_noted),
                "{text}"
            );
        };
        check("secure", &["TLSv1.3", "TLSv1.2"], false);
        check("all", &["TLSv1.3", "TLSv1.2"], false);
        check("tlsv1.3", &["TLSv1.3"], false);
        check("TLSv1.0,tlsv1.2", &["TLSv1.2"], true);
        check("!tlsv1.3:!tlsv1.0:!tlsv1.1", &["TLSv1.2"], false);
        check("tlsv1.0", &[], true);
        assert_eq!(
            protocols("secure,tlsv1.4").err(),
            Some("tlsv1.4".to_owned())
        );
    }

    #[test]
    fn names_of_the_new() {
        let chosen =
            ciphers_13("TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_CCM_SHA256").expect("known");
        assert_eq!(
            cipher_name(Some(chosen.items[0].suite())),
            "TLS_CHACHA20_POLY1305_SHA256"
        );
        assert!(chosen.items.len() == 1 && chosen.note.is_some());
        assert_eq!(ciphers_13("unknown").err(), Some("unknown".to_owned()));
        assert_eq!(ciphers_13("").expect("default").items.len(), 3);
        assert_eq!(groups("auto").expect("known").items.len(), 4);
        let chosen = groups("P-521:prime256v1").expect("known");
        assert_eq!(group_name(chosen.items[0].name()), Some("prime256v1"));
        assert!(chosen.note.is_some() && groups("curve").is_err());
    }
}
