//! Names that are suspect wherever they stand. Few databases have any.

use super::{
    Suspicion,
    careful::unquoted,
    lexer::{Kind, Lexer},
};
use crate::session::certificates::{Certificates, Name};

/// What the text is suspected of for the names in it.
pub(super) fn look(text: &[u8], certificates: &Certificates) -> Suspicion {
    let mut found = Suspicion::NONE;
    let mut lexer = Lexer::new(text);
    loop {
        let token = lexer.next();
        let name = match token.kind {
            Kind::Word => lexer.bytes(token),
            Kind::Quoted => unquoted(lexer.bytes(token)),
            Kind::End | Kind::Broken => return found,
            _ => continue,
        };
        found |= certificates.tripwire(Name::of(name));
    }
}
