//! The session settings that decide how a server splits the bytes of a text into tokens.

/// The rules by which a server turns the bytes of a text into tokens; they depend on the settings of its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Names beyond ASCII are written as the catalog writes them.
    Utf8,
    /// ASCII bytes mean ASCII characters; names beyond ASCII can't be compared.
    Ascii,
    /// A byte with the value of a quote or a backslash may be part of another character, so the text can't be scanned.
    #[default]
    Unreadable,
}

impl Dialect {
    /// Returns the dialect for these values of `standard_conforming_strings` and `client_encoding`, as the server
    /// reports them. Names beyond ASCII also need a database in UTF8, which the certificates know.
    #[must_use]
    pub fn of(standard_conforming_strings: &[u8], client_encoding: &[u8]) -> Self {
        if standard_conforming_strings != b"on" {
            return Self::Unreadable;
        }
        match client_encoding {
            b"UTF8" => Self::Utf8,
            // In the other encodings (BIG5, GBK, GB18030, UHC, JOHAB, SJIS, SHIFT_JIS_2004), a byte below 0x80 may be
            // part of another character.
            b"SQL_ASCII" | b"EUC_JP" | b"EUC_CN" | b"EUC_KR" | b"EUC_TW" | b"EUC_JIS_2004"
            | b"MULE_INTERNAL" | b"LATIN1" | b"LATIN2" | b"LATIN3" | b"LATIN4" | b"LATIN5"
            | b"LATIN6" | b"LATIN7" | b"LATIN8" | b"LATIN9" | b"LATIN10" | b"WIN866"
            | b"WIN874" | b"WIN1250" | b"WIN1251" | b"WIN1252" | b"WIN1253" | b"WIN1254"
            | b"WIN1255" | b"WIN1256" | b"WIN1257" | b"WIN1258" | b"ISO_8859_5" | b"ISO_8859_6"
            | b"ISO_8859_7" | b"ISO_8859_8" | b"KOI8R" | b"KOI8U" => Self::Ascii,
            _ => Self::Unreadable,
        }
    }

    /// Returns the number of characters in a text: errors give their position in characters.
    #[must_use]
    pub fn chars(self, text: &[u8]) -> usize {
        match self {
            Self::Utf8 => text.iter().filter(|&&byte| byte & 0xc0 != 0x80).count(),
            Self::Ascii | Self::Unreadable => text.len(),
        }
    }
}
