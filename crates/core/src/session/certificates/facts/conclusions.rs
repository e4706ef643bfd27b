//! Derives conclusions from the facts of a database.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    super::{
        Counts, Known, Name, NameEffects, OpaqueObject,
        graph::{At, Node},
    },
    Facts,
};
use crate::session::sql::Effects;

/// The largest number of functions and relations that are remembered for SHOW OPAQUE.
const OPAQUE_OBJECTS_MAX: usize = 1000;

impl Facts {
    /// Derives the certificates. `self.known` is left empty.
    pub(in crate::session::certificates) fn conclude(&mut self) -> Known {
        let mut found = std::mem::take(&mut self.known);
        found.counts = Counts::default();
        found.custom_names = std::mem::take(&mut self.customs);
        found.ddl.has_event_triggers = self.has_event_triggers;
        if self.identity.utf8 {
            found.note_utf8();
        }
        for name in &self.own.unknown {
            found.add_function(name.as_bytes(), Effects::OPAQUE);
        }
        if self.size.too_much || !self.size.is_whole {
            let reason = "it has more functions and relations than pgweir reads";
            found.add_to_every_text(Effects::OPAQUE | Effects::UNREAD);
            found.opaque_reason = Some(reason.into());
            found.cleaning.unclean_reason = Some(reason.into());
            return found;
        }
        found.is_read = true;
        self.name_altered_relations();
        for at in self.types.makers() {
            self.graph.add(at, Effects::UNREAD);
        }
        self.graph.spread();
        self.note_opaque_plans();
        let names = self.named_nodes();
        self.conclude_for_every_text(&names, &mut found);
        self.conclude_cleaning(&mut found);
        let mut opaque_objects = OpaqueObjects::default();
        for name in &self.own.unknown {
            let reason = "pgweir does not know what this function of PostgreSQL does";
            let traces = NameEffects::of_use(Effects::OPAQUE);
            opaque_objects.add("built-in", name, traces, || Some(reason.into()));
        }
        let builtin = self.own.effects.iter();
        let builtin = builtin.map(|(&oid, bits)| (oid, bits.without(Effects::OF_CODE)));
        found.builtin_calls = Arc::new(builtin.collect());
        let mut calls = HashMap::new();
        for (at, oid, name) in &self.functions {
            let bits = self.bits(*at);
            let traces = NameEffects::of_use(bits);
            opaque_objects.add("function", name, traces, || self.explain(&names, *at));
            found.add_function(name.as_bytes(), bits);
            calls.insert(*oid, bits);
        }
        found.calls = Arc::new(calls);
        let altered = self.own.relations.iter();
        let altered = altered.filter(|(oid, _)| self.own.altered.contains(oid));
        for (oid, name) in self.relations.iter().chain(altered) {
            let (traces, written) = self.effects_of_relation(*oid);
            opaque_objects.add("relation", name, traces, || self.explain(&names, written?));
            found.add_relation(name.as_bytes(), traces);
        }
        found.opaque_objects = opaque_objects.0.into();
        found.names.session_readers = Arc::new(self.names_with(Effects::READS_SESSION));
        let every_text = self.graph.known(Node::EveryText);
        if every_text.is_none_or(|at| !self.graph.has(at, Effects::CHANGES_DATA)) {
            let data_changers = self.names_with(Effects::CHANGES_DATA);
            found.names.data_changers = Some(Arc::new(data_changers));
        }
        found.note_types(std::mem::take(&mut self.types).finish());
        found.note_rest();
        found
    }

    /// Notes the reason for functions that are opaque since the server may evaluate them once and keep the result.
    fn note_opaque_plans(&mut self) {
        for (at, ..) in &self.functions {
            if self.graph.is_opaque_by_plans(*at) {
                let reason =
                    "it is declared IMMUTABLE and reads a table, a parameter, the user or the like";
                self.reasons
                    .by_function
                    .entry(at.number())
                    .or_insert(reason.into());
            }
        }
    }

    fn conclude_for_every_text(&self, names: &HashMap<u32, String>, found: &mut Known) {
        if let Some(at) = self.graph.known(Node::EveryText) {
            let bits = self.bits(at);
            found.add_to_every_text(bits);
            if bits.contains(Effects::OPAQUE) {
                found.opaque_reason = self.explain(names, at);
            }
        }
        if let Some(doubt) = &self.reasons.doubt {
            found.add_to_every_text(Effects::OPAQUE | Effects::UNREAD);
            found.opaque_reason = Some(doubt.as_str().into());
        }
    }

    fn conclude_cleaning(&mut self, found: &mut Known) {
        let mut unclean_reason = self.reasons.unclean.clone();
        if self.disconnects.as_deref() == Some("") {
            let reason = "PUBLIC may call no function that closes the connections of postgres_fdw";
            unclean_reason.get_or_insert_with(|| reason.into());
        }
        for (at, name) in &self.login_triggers {
            if self.graph.bits(*at).contains(Effects::OPAQUE) {
                found.logins_leave_state = true;
                let reason = || format!("login trigger {name} may leave state in each session");
                unclean_reason.get_or_insert_with(reason);
            }
        }
        found.cleaning.unclean_reason = unclean_reason.map(Into::into);
        found.cleaning.foreign_code = self.identity.foreign_code;
        found.cleaning.disconnects = self.disconnects.take().filter(|call| !call.is_empty());
    }

    /// Returns the effects of a node's use.
    fn bits(&self, at: At) -> Effects {
        let bits = self.graph.bits(at);
        match self.types.depend_on_path() {
            true => bits,
            false => bits.without(Effects::PATH),
        }
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

    /// Returns the effects of a relation, and the node of its writing.
    fn effects_of_relation(&self, oid: u32) -> (NameEffects, Option<At>) {
        let [read, written] =
            [Node::Read(oid), Node::Written(oid)].map(|node| self.graph.known(node));
        let bits = |at: Option<At>| at.map_or(Effects::NONE, |at| self.bits(at));
        let (read, write) = (bits(read), bits(written));
        (NameEffects { read, write }, written)
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

/// Objects that are not certified, as shown to administrators.
#[derive(Default)]
struct OpaqueObjects(Vec<OpaqueObject>);

impl OpaqueObjects {
    fn add(
        &mut self,
        kind: &'static str,
        name: &str,
        traces: NameEffects,
        reason: impl FnOnce() -> Option<Box<str>>,
    ) {
        if traces != NameEffects::default() && self.0.len() < OPAQUE_OBJECTS_MAX {
            self.0.push(OpaqueObject {
                kind,
                name: name.into(),
                traces,
                reason: reason(),
            });
        }
    }
}
