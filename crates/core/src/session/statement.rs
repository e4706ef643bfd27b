//! Prepared statements. Each text is stored once for all clients of the process.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use crate::base::memory::{Memory, MemoryKind, MemoryRefusal};

use super::{Certificates, Dialect, Effects, Fingerprint, Literals, interner::Interner, scan};

/// The prefix of the names under which pgweir prepares statements on servers.
pub const RESERVED: &[u8] = b"PGWEIR_";
/// A name that no statement has on any server.
pub const NO_SUCH_NAME: &[u8] = b"PGWEIR_NONE";
/// The number of locks: each protects its share of the statements, so that workers rarely contend.
const SHARDS: usize = 16;
/// The value of `verdict` before the text was scanned: no certificates have this number.
const NO_VERDICT: u64 = u64::MAX;
/// The low bits of a verdict hold the effects; the others identify the certificates under which they were found.
const EFFECTS_BITS: u32 = Effects::KINDS;

/// One statement: its text and the types of its parameters. Two statements are the same if both are equal.
pub struct Statement {
    id: u64,
    name: Box<[u8]>,
    definition: Box<[u8]>,
    literals: Literals,
    /// The effects that the scanner has found for the text, and the id of the certificates that it used: see
    /// [`Statement::effects`].
    verdict: AtomicU64,
    /// The hash of the text's fingerprint; 0 until it is known.
    fingerprint: AtomicU64,
    /// The number of names that the clients of all workers have given to the statement.
    names: AtomicU32,
}

/// All statements of the process that are in use.
#[derive(Debug)]
pub struct Statements {
    shards: [Mutex<Interner<Statement>>; SHARDS],
    hasher: RandomState,
    last_id: AtomicU64,
    memory: Arc<Memory>,
}

impl Default for Statements {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Statement {
    /// Returns an id that is unique in the process and never reused.
    #[must_use]
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the statement's name on servers.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the body of the statement's Parse, without the name: text, number of types, types.
    #[must_use]
    pub fn definition(&self) -> &[u8] {
        &self.definition
    }

    /// Returns the literals in the text, whose meaning depends on settings.
    #[must_use]
    #[inline]
    pub fn literals(&self) -> Literals {
        self.literals
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        Self::text_of(&self.definition)
    }

    /// Returns the text of a definition.
    fn text_of(definition: &[u8]) -> &[u8] {
        let end = definition.iter().position(|&byte| byte == 0);
        &definition[..end.unwrap_or_default()]
    }

    /// Returns the effects that the text may have on a session, by [`scan`] and [`Certificates`]. Analysis and planning
    /// run code, too, so the effects count from the statement's Parse on. The result is cached if the text is in the
    /// encoding of the catalog, as almost all texts are.
    #[inline]
    pub fn effects(&self, dialect: Dialect, certificates: &Certificates) -> Effects {
        let verdict = self.verdict.load(Ordering::Relaxed);
        if verdict >> EFFECTS_BITS == certificates.id() && dialect == Dialect::Utf8 {
            return Effects::from_bits(verdict as u32 & ((1 << EFFECTS_BITS) - 1));
        }
        self.read(dialect, certificates)
    }

    #[cold]
    fn read(&self, dialect: Dialect, certificates: &Certificates) -> Effects {
        let effects = scan(Self::text_of(&self.definition), dialect, certificates);
        if dialect == Dialect::Utf8 {
            let verdict = certificates.id() << EFFECTS_BITS | u64::from(effects.bits());
            self.verdict.store(verdict, Ordering::Relaxed);
        }
        effects
    }

    /// Returns the hash of the text's fingerprint.
    #[inline]
    pub fn fingerprint(&self) -> u64 {
        match self.fingerprint.load(Ordering::Relaxed) {
            0 => self.read_fingerprint(),
            known => known,
        }
    }

    #[cold]
    fn read_fingerprint(&self) -> u64 {
        let fingerprint = Fingerprint::of_any(self.text()).hash;
        self.fingerprint.store(fingerprint, Ordering::Relaxed);
        fingerprint
    }

    /// Returns whether a client has a name for the statement. If none has, only servers may still have it.
    #[must_use]
    pub fn has_names(&self) -> bool {
        self.names.load(Ordering::Relaxed) > 0
    }

    /// Counts one more name that a client has given to the statement.
    pub(super) fn add_name(&self) {
        self.names.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one from the number of names.
    pub(super) fn remove_name(&self) {
        self.names.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the bytes that the statement takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.definition.len()
    }

    /// Returns the id from a name that pgweir gave.
    #[must_use]
    pub fn id_of_name(name: &[u8]) -> Option<u64> {
        let digits = name.strip_prefix(RESERVED)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may contain secrets, so it is left out.
        f.debug_struct("Statement")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Statements {
    /// Creates the table. `memory` counts the bytes of the statements.
    #[must_use]
    pub fn new(memory: Arc<Memory>) -> Self {
        Self {
            shards: std::array::from_fn(|_| {
                let kind = MemoryKind::Statement;
                Mutex::new(Interner::new(Statement::bytes, &memory, kind))
            }),
            hasher: RandomState::default(),
            last_id: AtomicU64::new(0),
            memory,
        }
    }

    /// Returns the hash function of this process's statements.
    #[must_use]
    pub fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    /// Returns the statement with this definition, and makes it if there is none yet.
    #[must_use]
    pub fn intern(&self, definition: &[u8]) -> Arc<Statement> {
        self.intern_with(definition, || {
            self.last_id.fetch_add(1, Ordering::Relaxed) + 1
        })
    }

    /// Returns the statement with this definition. A new one gets this id, since servers may have it under this id from
    /// the previous process of an online restart.
    #[must_use]
    pub fn intern_as(&self, definition: &[u8], id: u64) -> Arc<Statement> {
        self.intern_with(definition, || id)
    }

    fn intern_with(&self, definition: &[u8], id: impl FnOnce() -> u64) -> Arc<Statement> {
        let hash = self.hasher.hash_one(definition);
        let is_it = |statement: &Statement| *statement.definition == *definition;
        let hash_of = |statement: &Statement| self.hasher.hash_one(&*statement.definition);
        let make = || Arc::new(Self::make(definition, id()));
        self.shard(hash).lock().intern(hash, is_it, hash_of, make)
    }

    /// Returns the statement with this definition, and makes it if there is none yet and `memory_limit` has room for it.
    #[must_use]
    pub fn intern_within_limit(&self, definition: &[u8]) -> Option<Arc<Statement>> {
        if self.memory.limit() > 0 {
            let hash = self.hasher.hash_one(definition);
            let is_it = |statement: &Statement| *statement.definition == *definition;
            let known = self.shard(hash).lock().find(hash, is_it);
            if known.is_some() {
                return known;
            }
            let memory = &self.memory;
            if !memory.allows(definition.len(), MemoryRefusal::Statement) {
                return None;
            }
        }
        Some(self.intern(definition))
    }

    /// Removes the statements that are not in use. Without this call, they are removed when the table has doubled since
    /// the last removal.
    pub fn sweep(&self) {
        for shard in &self.shards {
            shard.lock().sweep();
        }
    }

    /// Returns the lock for statements with this hash. The hash table itself uses the top and the lowest bits.
    fn shard(&self, hash: u64) -> &Mutex<Interner<Statement>> {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// Returns the last id that was given.
    #[must_use]
    pub fn last_id(&self) -> u64 {
        self.last_id.load(Ordering::Relaxed)
    }

    /// Makes all further ids greater than this one.
    pub fn start_after(&self, id: u64) {
        self.last_id.fetch_max(id, Ordering::Relaxed);
    }

    fn make(definition: &[u8], id: u64) -> Statement {
        Statement {
            id,
            name: [RESERVED, id.to_string().as_bytes()].concat().into(),
            definition: definition.into(),
            literals: Literals::of(Statement::text_of(definition)),
            verdict: AtomicU64::new(NO_VERDICT),
            fingerprint: AtomicU64::new(0),
            names: AtomicU32::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::interner::SWEEP_MIN, *};

    #[test]
    fn one_for_each_definition() {
        let statements = Statements::default();
        let one = statements.intern(b"select 1\0\0\0");
        assert!(Arc::ptr_eq(&one, &statements.intern(b"select 1\0\0\0")));
        let typed = statements.intern(b"select 1\0\0\x01\0\0\0\x17");
        assert_ne!(one.id(), typed.id());
        assert_eq!(Statement::id_of_name(typed.name()), Some(typed.id()));
        let usage = statements.memory.usage(MemoryKind::Statement);
        assert_eq!(usage.count, 2);
        assert!(usage.bytes > one.bytes() + typed.bytes());
        assert!(!format!("{one:?}").contains("select"));
    }

    #[test]
    fn names_that_are_not_ours() {
        for name in ["", "S_1", "PGWEIR_", "PGWEIR_x", "pgweir_1"] {
            assert_eq!(Statement::id_of_name(name.as_bytes()), None, "{name}");
        }
        assert_eq!(Statement::id_of_name(NO_SUCH_NAME), None);
    }

    #[test]
    fn unused_statements_are_dropped() {
        let statements = Statements::default();
        let kept: Vec<_> = (0..100)
            .map(|n| statements.intern(format!("kept {n}\0\0\0").as_bytes()))
            .collect();
        for n in 0..100_000 {
            let _ = statements.intern(format!("passing {n}\0\0\0").as_bytes());
        }
        let count = || statements.memory.usage(MemoryKind::Statement).count;
        assert!(count() < 2 * SHARDS * SWEEP_MIN + 200, "{}", count());
        statements.sweep();
        assert_eq!(count(), 100);
        for statement in &kept {
            assert!(Arc::ptr_eq(
                statement,
                &statements.intern(statement.definition())
            ));
        }
    }

    #[test]
    fn no_new_ones_above_the_limit() {
        let memory = Arc::new(Memory::new(1));
        let statements = Statements::new(Arc::clone(&memory));
        let text = |n: u8| vec![n; 1000];
        let one = statements.intern_within_limit(&text(1)).expect("no limit");
        memory.set_limit(2000);
        let two = statements.intern_within_limit(&text(2));
        assert!(two.is_none(), "{}", memory.total());
        let same = statements.intern_within_limit(&text(1)).expect("is known");
        assert!(Arc::ptr_eq(&one, &same));
        drop((one, same));
        statements.sweep();
        assert_eq!(memory.total(), 0);
        assert!(statements.intern_within_limit(&text(2)).is_some());
    }
}
