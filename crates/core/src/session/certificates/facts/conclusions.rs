//! Derives conclusions from the facts of a database.

use std::collections::{HashMap, HashSet};

use super::{
    super::{
        LoginTriggers, Name, NameEffects, OpaqueObject,
        graph::{At, Node},
    },
    Facts,
};
use crate::session::sql::Effects;

/// The largest number of functions and relations that are remembered for SHOW OPAQUE.
const OPAQUE_OBJECTS_MAX: usize = 1000;

/// The conclusions from the facts.
#[derive(Debug, Default)]
pub(in crate::session::certificates) struct Conclusions {
    pub(in crate::session::certificates) every_text: Effects,
    /// The reason why every text is opaque.
    pub(in crate::session::certificates) opaque_reason: Option<String>,
    /// The reason why a server connection can't be cleaned after opaque statements.
    pub(in crate::session::certificates) unclean_reason: Option<String>,
    pub(in crate::session::certificates) login_triggers: LoginTriggers,
    /// Effects of calls of users' functions by OID.
    pub(in crate::session::certificates) calls: HashMap<u32, Effects>,
    /// Effects of calls of PostgreSQL's own functions by OID.
    pub(in crate::session::certificates) builtin_calls: HashMap<u32, Effects>,
    /// Functions, and the effects of a call.
    pub(in crate::session::certificates) functions: Vec<(Box<str>, Effects)>,
    /// Relations, and the effects of reading and of writing them.
    pub(in crate::session::certificates) relations: Vec<(Box<str>, Effects, Effects)>,
    /// Functions and relations that are not certified, as shown to administrators.
    pub(in crate::session::certificates) opaque_objects: Vec<OpaqueObject>,
    /// Names of the users' functions and relations whose result differs between sessions.
    pub(in crate::session::certificates) session_readers: HashSet<Name>,
    /// Names of the users' functions and relations whose use may change more than the session; `None` if every text may
    /// do so.
    pub(in crate::session::certificates) data_changers: Option<HashSet<Name>>,
}

impl Facts {
    /// Derives the conclusions.
    pub(in crate::session::certificates) fn conclude(&mut self) -> Conclusions {
        let mut found = Conclusions::default();
        if self.size.too_much || !self.size.is_whole {
            found.every_text = Effects::OPAQUE;
            found.opaque_reason =
                Some("it has more functions and relations than pgweir reads".to_owned());
            found.unclean_reason = found.opaque_reason.clone();
            return found;
        }
        self.name_altered_relations();
        self.graph.spread();
        for (at, ..) in &self.functions {
            if self.graph.is_opaque_by_plans(*at) {
                let reason = "it is declared IMMUTABLE and reads a parameter, the user or the like";
                self.reasons
                    .by_function
                    .entry(at.number())
                    .or_insert(reason.into());
            }
        }
        let names = self.named_nodes();
        if let Some(at) = self.graph.known(Node::EveryText) {
            found.every_text = self.graph.bits(at);
            if found.every_text.contains(Effects::OPAQUE) {
                found.opaque_reason = self.explain(&names, at).map(Into::into);
            }
        }
        if let Some(doubt) = &self.reasons.doubt {
            found.every_text |= Effects::OPAQUE;
            found.opaque_reason = Some(doubt.clone());
        }
        found.unclean_reason.clone_from(&self.reasons.unclean);
        if self.disconnects.as_deref() == Some("") {
            let reason = "PUBLIC may call no function that closes the connections of postgres_fdw";
            found.unclean_reason.get_or_insert_with(|| reason.into());
        }
        if !self.login_triggers.is_empty() {
            found.login_triggers = LoginTriggers::Clean;
        }
        for (at, name) in &self.login_triggers {
            if self.graph.bits(*at).contains(Effects::OPAQUE) {
                found.login_triggers = LoginTriggers::LeaveState;
                let reason = || format!("login trigger {name} may leave state in each session");
                found.unclean_reason.get_or_insert_with(reason);
            }
        }
        for name in &self.own.unknown {
            let reason = "pgweir does not know what this function of PostgreSQL does";
            let traces = NameEffects::of_use(Effects::OPAQUE);
            found.remember("built-in", name, traces, || Some(reason.into()));
        }
        let builtin = self.own.effects.iter();
        found.builtin_calls = builtin
            .map(|(&oid, bits)| (oid, bits.without(Effects::OF_CODE)))
            .collect();
        for (at, oid, name) in &self.functions {
            let read = self.graph.bits(*at);
            let traces = NameEffects::of_use(read);
            found.remember("function", name, traces, || self.explain(&names, *at));
            found.functions.push((name.clone(), read));
            found.calls.insert(*oid, read);
        }
        for (oid, name) in &self.relations {
            self.conclude_relation(*oid, name, &names, &mut found);
        }
        for (oid, name) in &self.own.relations {
            if self.own.altered.contains(oid) {
                self.conclude_relation(*oid, name, &names, &mut found);
            }
        }
        found.session_readers = self.names_with(Effects::READS_SESSION);
        let every_text = self.graph.known(Node::EveryText);
        if every_text.is_none_or(|at| !self.graph.has(at, Effects::CHANGES_DATA)) {
            found.data_changers = Some(self.names_with(Effects::CHANGES_DATA));
        }
        found
    }

    /// Adds the names of PostgreSQL's own relations to which somebody has attached code.
    fn name_altered_relations(&mut self) {
        for (oid, name) in &self.own.relations {
            if self.own.altered.contains(oid) {
                let named = self.graph.at(Node::Named(Name::of(name.as_bytes())));
                let written = self.graph.at(Node::Written(*oid));
                self.graph.add_use(named, written);
            }
        }
    }

    fn conclude_relation(
        &self,
        oid: u32,
        name: &str,
        names: &HashMap<u32, String>,
        found: &mut Conclusions,
    ) {
        let place = |node| self.graph.known(node);
        let bits = |node| place(node).map_or(Effects::NONE, |at| self.graph.bits(at));
        let (read, write) = (bits(Node::Read(oid)), bits(Node::Written(oid)));
        let reason = || self.explain(names, place(Node::Written(oid))?);
        found.remember("relation", name, NameEffects { read, write }, reason);
        found.relations.push((name.into(), read, write));
    }

    /// Returns the names of functions, and of relations that are read, with this effect of [`Effects::OF_CODE`].
    fn names_with(&self, effect: Effects) -> HashSet<Name> {
        let functions = self.functions.iter().map(|(at, _, name)| (Some(*at), name));
        let altered = self.own.relations.iter();
        let altered = altered.filter(|(oid, _)| self.own.altered.contains(oid));
        let relations = self.relations.iter().chain(altered);
        let relations = relations.map(|(oid, name)| (self.graph.known(Node::Read(*oid)), name));
        functions
            .chain(relations)
            .filter(|(at, _)| at.is_some_and(|at| self.graph.has(at, effect)))
            .map(|(_, name)| Name::of(name.as_bytes()))
            .collect()
    }

    /// Returns the names of nodes in reasons.
    fn named_nodes(&self) -> HashMap<u32, String> {
        let functions = self.functions.iter();
        let functions = functions.map(|(at, _, name)| (at.number(), format!("function {name}")));
        let relations = self.relations.iter().chain(&self.own.relations);
        let relations = relations.flat_map(|(oid, name)| {
            [Node::Read(*oid), Node::Written(*oid)]
                .into_iter()
                .filter_map(|node| self.graph.known(node))
                .map(move |at| (at.number(), format!("relation {name}")))
        });
        let others = self.reasons.everywhere.iter();
        let others = others.map(|(at, label)| (*at, label.to_string()));
        functions.chain(relations).chain(others).collect()
    }

    /// Returns the reason why a node is opaque, as a sentence.
    fn explain(&self, names: &HashMap<u32, String>, at: At) -> Option<Box<str>> {
        if !self.graph.bits(at).contains(Effects::OPAQUE) {
            return None;
        }
        let mut steps: Vec<&str> = Vec::new();
        let mut reason = None;
        for at in self.graph.causes(at) {
            match names.get(&at.number()) {
                Some(name) if steps.last() != Some(&name.as_str()) => steps.push(name),
                _ => {}
            }
            reason = self.reasons.by_function.get(&at.number());
        }
        let chain = steps.join(" uses ");
        Some(match reason {
            Some(reason) => format!("{chain}: {reason}").into(),
            None => chain.into(),
        })
    }
}

impl Conclusions {
    fn remember(
        &mut self,
        kind: &'static str,
        name: &str,
        traces: NameEffects,
        reason: impl FnOnce() -> Option<Box<str>>,
    ) {
        if traces != NameEffects::default() && self.opaque_objects.len() < OPAQUE_OBJECTS_MAX {
            self.opaque_objects.push(OpaqueObject {
                kind,
                name: name.into(),
                traces,
                reason: reason(),
            });
        }
    }
}
