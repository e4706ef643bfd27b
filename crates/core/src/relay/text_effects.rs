//! The effects that a client's texts may have on the session of its server.

use std::collections::BTreeSet;

use pgweir_wire::{Body, tag::frontend};

use super::{
    client_to_server::ClientMessages, message::Message, named::Named, session_texts::until_nul,
};
use crate::backend::Unnamed;
use crate::session::{
    Class, CustomParameters, Effects, Fingerprint, Statement, Unlisted,
    sql::{ComputedName, CustomNames, custom_name_of_value, names_in_strings},
};

impl ClientMessages<'_> {
    /// Returns the effects of a message's text, and records the consequences that take effect at once.
    #[inline]
    pub(super) fn note_message_effects(&mut self, message: &Message<'_>) -> Effects {
        let (tag, body, is_whole) = (message.tag(), message.body(), message.is_whole());
        match tag {
            frontend::QUERY if is_whole => self.note_text_effects(body.strip_suffix(b"\0")),
            // The effects of a named statement are noted when it is sent to the server, and when it is used.
            frontend::PARSE
                if self.limits.statements_max > 0
                    && body.first().map_or(is_whole, |&byte| byte != 0) =>
            {
                Effects::NONE
            }
            frontend::PARSE if is_whole => {
                if self.limits.statements_max == 0 && body.first() == Some(&0) {
                    self.server.statements.unnamed = self.own_unnamed();
                }
                self.note_parse_effects(body)
            }
            // Without replaced names, the statement of an earlier request is unknown.
            frontend::BIND | frontend::DESCRIBE if self.limits.statements_max == 0 => {
                self.effects_of_unknown_use(tag, body)
            }
            frontend::SYNC if self.limits.statements_max == 0 => {
                self.server.statements.unnamed = Unnamed::None;
                Effects::NONE
            }
            // A text that has not arrived completely may have any effect.
            frontend::QUERY | frontend::PARSE | frontend::FUNCTION_CALL => Effects::OPAQUE,
            _ => Effects::NONE,
        }
    }

    /// Returns the effects of using a statement whose Parse is not known (`max_prepared_statements = 0`).
    #[cold]
    fn effects_of_unknown_use(&mut self, tag: u8, body: &[u8]) -> Effects {
        let mut rest = Body::new(body);
        let is_unnamed = match tag {
            frontend::DESCRIBE if body.first() == Some(&b'P') => return Effects::NONE,
            frontend::DESCRIBE => body.get(1) == Some(&0),
            _ => rest.cstr().is_ok() && rest.cstr().is_ok_and(|name| name.is_empty()),
        };
        if is_unnamed && self.server.statements.unnamed == self.own_unnamed() {
            return Effects::NONE;
        }
        self.note_ddl(Effects::OPAQUE, b"");
        Effects::OPAQUE
    }

    /// Returns the effects of a text. `None` stands for a text that has not arrived completely: it counts as opaque.
    #[inline]
    pub(super) fn note_text_effects(&mut self, text: Option<&[u8]>) -> Effects {
        let dialect = self.server.session.dialect();
        let text = text.filter(|text| !self.may_be_misread(text));
        text.map_or(Effects::OPAQUE, |text| {
            let verdict = self.verdicts.read(text, dialect, self.certificates);
            if self.counting.statistics.is_on() {
                let place = verdict.place;
                let find = || Fingerprint::hash_of(text, dialect);
                self.counting.scanned = Some(self.verdicts.fingerprint(place, find));
            }
            verdict.effects
        })
    }

    /// Returns whether the server may read this text in another way than pgweir does: an unanswered request may change
    /// `standard_conforming_strings` or `client_encoding`.
    #[inline]
    pub(super) fn may_be_misread(&self, text: &[u8]) -> bool {
        let session = &self.server.session;
        session.loan.effects().class() >= Class::Settings
            && text.iter().any(|&byte| byte == b'\\' || byte >= 0x80)
    }

    /// Returns the effects of the text in a Parse.
    #[inline]
    fn note_parse_effects(&mut self, body: &[u8]) -> Effects {
        let mut rest = Body::new(body);
        match rest.cstr() {
            Ok(_) => self.note_definition_effects(rest.rest()),
            Err(_) => Effects::OPAQUE,
        }
    }

    /// Returns the effects of a statement, from the body of its Parse without the name.
    #[inline]
    pub(super) fn note_definition_effects(&mut self, definition: &[u8]) -> Effects {
        let mut rest = Body::new(definition);
        // The types of the parameters are not read: a type that runs unknown code makes every text of the database
        // opaque.
        let text = rest.cstr().ok();
        self.note_text_effects(text)
    }

    /// Notes a statement that is sent to the server: its analysis and planning run code.
    #[inline]
    pub(super) fn note_parse(&mut self, statement: &Statement) {
        if !self.is_carried {
            return;
        }
        let effects = self.effects_of(statement);
        if !effects.is_empty() {
            self.note_use(statement, effects);
        }
    }

    /// Notes the use of a statement that only SQL's PREPARE can have made.
    #[inline]
    pub(super) fn note_unknown_effects(&mut self, named: &Named<'_>, is_ours: bool) {
        if self.is_carried
            && !is_ours
            && let Named::Bind { name, .. } | Named::Describe(name) = *named
        {
            self.note_executed(name);
        }
    }

    /// Notes the use of a statement by its name on the server, with the effects of its text. Returns the length of the
    /// texts that were scanned, in bytes.
    #[cold]
    pub(super) fn note_executed(&mut self, name: &[u8]) -> usize {
        let session = &self.server.session;
        let held = session.sql_statements.held().prepared(name);
        let given = self.client.statements.get(self.bindings, name);
        let given = given.map(|given| until_nul(given.definition()));
        let texts = session.client_names.prepared(name).chain(held).chain(given);
        let texts: Vec<Vec<u8>> = texts.map(<[u8]>::to_vec).collect();
        if session.client_names.has_hidden() {
            self.server.session.note(Effects::OPAQUE, b"");
            self.note_ddl(Effects::OPAQUE, b"");
            return 0;
        }
        if texts.is_empty() {
            // A function may have prepared the statement.
            self.server.session.note(Effects::OPAQUE, b"");
            self.note_ddl_of_unknown();
        }
        for text in &texts {
            let effects = self.note_text_effects(Some(text));
            if !effects.is_empty() {
                self.server.session.note(effects, text);
                self.note_values(effects);
                self.note_ddl(effects, text);
            }
        }
        texts.iter().map(Vec::len).sum()
    }

    /// Begins to read, part by part, a text that may set parameters.
    #[cold]
    pub(super) fn read_on_later(&mut self, message: &Message<'_>) {
        self.client.socket.end_text();
        if !matches!(message.tag(), frontend::QUERY | frontend::PARSE) {
            return;
        }
        let context = self.client.context.as_deref();
        if context.is_some_and(|context| !context.base.is_empty()) {
            self.server.replies.startup_values_taken();
        }
        self.read_ddl_on_later(message.rest);
        let mut names = Box::new(CustomNames::default());
        names.read(message.rest);
        self.client.socket.begin_text(names);
    }

    /// Reads more of a message that had not arrived completely.
    #[cold]
    pub(super) fn read_on(&mut self, bytes: &[u8]) {
        let (count, is_end) = self.client.socket.stream.left_of(bytes.len());
        self.read_ddl_on(&bytes[..count], is_end);
        let Some(names) = self.client.socket.text_names_mut() else {
            return;
        };
        names.read(&bytes[..count]);
        let context = self.client.context.as_ref();
        if names.may_reset() && context.is_some_and(|own| !own.base.is_empty()) {
            self.server
                .session
                .loan
                .edit()
                .inspection
                .note_unread_reset();
        }
        if is_end && let Some(names) = self.client.socket.end_text() {
            self.note_custom_parameters(&names.finish());
        }
    }

    /// Returns whether the values in a message may name parameters that an outstanding request sets: its texts do not show
    /// the names.
    #[inline]
    pub(super) fn may_name_parameters(&self, tag: u8) -> bool {
        let effects = || self.server.session.loan.effects();
        match tag {
            frontend::BIND => effects().contains(Effects::SETTING.and(Effects::OPAQUE)),
            frontend::FUNCTION_CALL => self.is_carried,
            _ => false,
        }
    }

    /// Notes the custom parameters that the values of a Bind or of a FunctionCall name. The values of a message that has
    /// not arrived completely are not read.
    #[cold]
    pub(super) fn note_names_in_values(&mut self, tag: u8, body: &[u8]) {
        let values = values_of(tag, body).unwrap_or_default();
        let names = values.into_iter().filter_map(custom_name_of_value);
        let names = names.collect::<BTreeSet<_>>();
        if !names.is_empty()
            && let Some(context) = &mut self.client.context
            && context.unlisted == Unlisted::Awaited
        {
            context.unlisted = Unlisted::None;
        }
        self.note_custom_parameters(&names);
    }

    /// Notes a text that may set a parameter whose name it computes. If no string in the text may be the name, and no
    /// value of the next Bind, the client keeps its server.
    pub(super) fn note_computed_name(&mut self, effects: Effects, text: &[u8]) {
        let computed = ComputedName::of(text);
        let is_computed_by_code = effects.contains(Effects::COMPUTED_NAME);
        if computed == ComputedName::None && !is_computed_by_code {
            return;
        }
        let names = names_in_strings(text);
        self.note_custom_parameters(&names);
        let unlisted = match computed {
            ComputedName::Expression => Unlisted::Set,
            _ if names.is_empty() => Unlisted::Awaited,
            _ => Unlisted::None,
        };
        if let Some(context) = &mut self.client.context {
            context.unlisted = context.unlisted.max(unlisted);
        }
    }

    /// Notes custom parameters that the client may set. If a server can't be asked for one, the client keeps its
    /// server.
    pub(super) fn note_custom_parameters(&mut self, names: &BTreeSet<Vec<u8>>) {
        if names.is_empty() {
            return;
        }
        let shared = &self.server.shared;
        let is_utf8 = self.server.tracked.client_encoding() == b"UTF8" && shared.is_utf8();
        let mut customs = shared.custom_parameters.lock();
        let inspection = &mut self.server.session.loan.edit().inspection;
        let mut are_known = true;
        for name in names {
            are_known &=
                customs.insert(name, is_utf8) && inspection.named().len() < CustomParameters::MAX;
            if are_known {
                inspection.note_named(name);
            }
        }
        if !are_known && let Some(context) = &mut self.client.context {
            context.unlisted = Unlisted::Set;
        }
    }
}

/// Returns the values in a Bind or in a FunctionCall.
fn values_of(tag: u8, body: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = Body::new(body);
    if tag == frontend::FUNCTION_CALL {
        rest.i32().ok()?;
    } else {
        rest.cstr().ok()?;
        rest.cstr().ok()?;
    }
    let count = |rest: &mut Body<'_>| {
        let bytes = rest.bytes(2).ok()?;
        Some(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    };
    let formats = count(&mut rest)?;
    rest.bytes(2 * formats).ok()?;
    let mut values = Vec::new();
    for _ in 0..count(&mut rest)? {
        if let Ok(len) = usize::try_from(rest.i32().ok()?) {
            values.push(rest.bytes(len).ok()?);
        }
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_messages() {
        let bind = b"p\0s\0\0\x01\0\0\0\x03\0\0\0\x03a.b\xff\xff\xff\xff\0\0\0\x01c\0\0";
        let values = values_of(frontend::BIND, bind).unwrap();
        assert_eq!(values, [&b"a.b"[..], b"c"]);
        let call = b"\0\0\x08\x1e\0\0\0\x01\0\0\0\x03a.b\0\0";
        let values = values_of(frontend::FUNCTION_CALL, call).unwrap();
        assert_eq!(values, [&b"a.b"[..]]);
        for end in 0..bind.len() - 2 {
            assert_eq!(values_of(frontend::BIND, &bind[..end]), None, "{end}");
        }
        assert_eq!(values_of(frontend::BIND, b"\0\0\0\0\xff\xff"), None);
    }
}
