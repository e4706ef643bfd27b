//! Prepared statements. Each text is stored once for all clients of the process.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use super::{Certificates, Dialect, Effects, Literals, interner::Interner, scan};

/// The prefix of the names under which pgweir prepares statements on servers.
pub const RESERVED: &[u8] = b"PGWEIR_";
/// A name that no statement ever has, on any server.
pub const NO_SUCH_NAME: &[u8] = b"PGWEIR_NONE";
/// The number of locks: each protects its share of the statements, so that workers rarely contend.
const SHARDS: usize = 16;
/// A number that no version of a catalog has.
const NO_VERDICT: u64 = u64::MAX;
/// The low bits of a verdict hold the effects; the others identify the certificates under which they were found.
const EFFECTS_BITS: u32 = 20;

/// One statement: its text and the types of its parameters. Two statements are the same if both are equal.
pub struct Statement {
    id: u64,
    name: Box<[u8]>,
    definition: Box<[u8]>,
    literals: Literals,
    /// The effects that the scanner found for the text, and by which certificates: see [`Statement::effects`].
    verdict: AtomicU64,
}

/// All statements of the process that are in use.
#[derive(Debug, Default)]
pub struct Statements {
    shards: [Mutex<Interner<Statement>>; SHARDS],
    hasher: RandomState,
    last_id: AtomicU64,
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
    /// run code, too, so the effects count from the statement's Parse on. The result is remembered for texts that are
    /// read as the catalog is; others are rare.
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
    /// Returns the statement with this definition, and makes it if there is none yet.
    #[must_use]
    pub fn intern(&self, definition: &[u8]) -> Arc<Statement> {
        let hash = self.hasher.hash_one(definition);
        // The hash table itself uses the top and the lowest bits.
        let mut shard = self.shards[(hash >> 32) as usize % SHARDS].lock();
        shard.intern(
            hash,
            |statement| *statement.definition == *definition,
            |statement| self.hasher.hash_one(&*statement.definition),
            || Arc::new(self.make(definition)),
        )
    }

    fn make(&self, definition: &[u8]) -> Statement {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        Statement {
            id,
            name: [RESERVED, id.to_string().as_bytes()].concat().into(),
            definition: definition.into(),
            literals: Literals::of(Statement::text_of(definition)),
            verdict: AtomicU64::new(NO_VERDICT),
        }
    }

    /// Returns the number of statements and the bytes of their definitions. Some may be unused by now.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let mut size = (0, 0);
        for shard in &self.shards {
            for statement in shard.lock().iter() {
                size.0 += 1;
                size.1 += statement.definition.len();
            }
        }
        size
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
        assert_eq!(statements.size(), (2, 11 + 15));
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
    fn what_nobody_holds_goes() {
        let statements = Statements::default();
        let kept: Vec<_> = (0..100)
            .map(|n| statements.intern(format!("kept {n}\0\0\0").as_bytes()))
            .collect();
        for n in 0..100_000 {
            let _ = statements.intern(format!("passing {n}\0\0\0").as_bytes());
        }
        let (count, _) = statements.size();
        assert!(count < 2 * SHARDS * SWEEP_MIN + 200, "{count}");
        for statement in &kept {
            assert!(Arc::ptr_eq(
                statement,
                &statements.intern(statement.definition())
            ));
        }
    }
}
