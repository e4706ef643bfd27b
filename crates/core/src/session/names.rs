//! The names that clients have given to their prepared statements.
//!
//! Many clients give the same names to the same statements. So a worker stores each pair of name and statement once,
//! and a client needs two bytes for each of its names.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use hashbrown::HashTable;

use pgweir_wire::Malformed;

use crate::base::memory::{MemoryUsage, OVERHEAD};

use super::{Statement, StatementDescription, ids::Ids, statement_description};

/// The bytes that a name counts towards `max_client_prepared_bytes`, beside the statement itself.
const NAME_COST: usize = 128;

/// The number of bytes by which PostgreSQL distinguishes names of prepared statements. SQL cuts longer names, the protocol
/// does not.
const KEY_LEN: usize = 63;

/// Returns the part of a prepared statement's name that distinguishes it from other names.
#[must_use]
#[inline]
pub fn statement_key(name: &[u8]) -> &[u8] {
    &name[..name.len().min(KEY_LEN)]
}

/// Identifies a pair of name and statement. After a pair was removed, its id is not valid for the next pair in the same
/// slot: a Describe may be answered after its statement was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingId {
    slot: u32,
    number: u32,
}

/// The pairs of name and statement that the clients of one worker have.
#[derive(Debug, Default)]
pub struct Bindings {
    slots: Vec<Option<Binding>>,
    free: Vec<u32>,
    /// The number of pairs that were created so far.
    made: u32,
    index: HashTable<u32>,
    hasher: RandomState,
    /// The bytes of all names.
    name_bytes: usize,
}

#[derive(Debug)]
struct Binding {
    name: Box<[u8]>,
    statement: Arc<Statement>,
    /// Distinguishes the pair from earlier ones in the same slot.
    number: u32,
    /// The description of the statement that its clients have received.
    shape: StatementDescription,
    hash: u32,
    holders: u32,
}

/// The statements of one client by name: ids of bindings, in the order of their names' hashes. Must be
/// [cleared](Names::clear) at the client's end.
#[derive(Debug, Default)]
pub struct Names {
    sorted: Ids,
    bytes: usize,
    /// The binding that was used last.
    recent: Option<BindingId>,
}

impl Bindings {
    /// Creates an empty table. All workers have the same `hasher`: a client's descriptions are compared by digests, and
    /// move with the client to other workers.
    #[must_use]
    pub fn new(hasher: RandomState) -> Self {
        Self {
            hasher,
            ..Self::default()
        }
    }

    fn hash(&self, name: &[u8]) -> u32 {
        self.hasher.hash_one(name) as u32
    }

    /// Returns the statement of a binding.
    #[must_use]
    #[inline]
    pub fn statement(&self, id: BindingId) -> Option<&Arc<Statement>> {
        self.found(id).map(|binding| &binding.statement)
    }

    /// Returns the description that the clients have received of a binding's statement.
    #[must_use]
    #[inline]
    pub fn shape(&self, id: BindingId) -> StatementDescription {
        self.found(id)
            .map_or_else(StatementDescription::default, |binding| binding.shape)
    }

    /// Returns a digest of the body of a RowDescription, regardless of the formats; 0 without a body (NoData).
    ///
    /// # Errors
    /// The body is malformed.
    pub fn digest_columns(&self, body: Option<&[u8]>) -> Result<u64, Malformed> {
        body.map_or(Ok(0), |body| {
            statement_description::of_columns(&self.hasher, body)
        })
    }

    /// Returns a digest of the body of a ParameterDescription.
    #[must_use]
    pub fn digest_params(&self, body: &[u8]) -> u64 {
        self.hasher.hash_one(body)
    }

    /// Returns whether a client of the worker has a statement under this name.
    #[must_use]
    pub fn has(&self, name: &[u8], statement: &Statement) -> bool {
        let name = statement_key(name);
        let hash = self.hash(name);
        self.find(hash, name, statement, |_| true).is_some()
    }

    /// Returns the memory that the pairs take.
    #[must_use]
    pub fn usage(&self) -> MemoryUsage {
        MemoryUsage {
            count: self.slots.len() - self.free.len(),
            bytes: self.slots.capacity() * size_of::<Option<Binding>>()
                + self.free.capacity() * size_of::<u32>()
                + self.index.allocation_size()
                + self.name_bytes,
        }
    }

    /// Releases unused memory.
    pub fn shrink(&mut self) {
        while let Some(None) = self.slots.last() {
            self.slots.pop();
        }
        let len = self.slots.len();
        self.free.retain(|&slot| (slot as usize) < len);
        self.slots.shrink_to_fit();
        self.free.shrink_to_fit();
        let slots = &self.slots;
        self.index.shrink_to_fit(|&id| place_of(slots, id));
    }

    fn find(
        &self,
        hash: u32,
        name: &[u8],
        statement: &Statement,
        fits: impl Fn(&StatementDescription) -> bool,
    ) -> Option<u32> {
        let is_same = |&id: &u32| {
            let slot = self.slots[id as usize].as_ref();
            slot.is_some_and(|slot| {
                slot.statement.id() == statement.id() && fits(&slot.shape) && *slot.name == *name
            })
        };
        let found = self.index.find(mix(hash, statement.id()), is_same);
        found.copied()
    }

    #[inline]
    fn get(&self, id: u32) -> Option<&Binding> {
        self.slots.get(id as usize)?.as_ref()
    }

    /// Returns the pair that was found under this id, if a client still has it.
    #[inline]
    fn found(&self, id: BindingId) -> Option<&Binding> {
        self.get(id.slot)
            .filter(|binding| binding.number == id.number)
    }

    /// Returns the id of the pair in a slot.
    #[inline]
    fn id_of(&self, slot: u32) -> Option<BindingId> {
        let number = self.get(slot)?.number;
        Some(BindingId { slot, number })
    }

    fn acquire(
        &mut self,
        name: &[u8],
        statement: &Arc<Statement>,
        shape: StatementDescription,
    ) -> u32 {
        let name = statement_key(name);
        let hash = self.hash(name);
        let place = mix(hash, statement.id());
        if let Some(id) = self.find(hash, name, statement, |found| *found == shape) {
            if let Some(slot) = &mut self.slots[id as usize] {
                slot.holders += 1;
            }
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.made = self.made.wrapping_add(1);
        self.slots[id as usize] = Some(Binding {
            name: name.into(),
            statement: Arc::clone(statement),
            number: self.made,
            shape,
            hash,
            holders: 1,
        });
        self.name_bytes += name.len() + OVERHEAD;
        statement.add_name();
        let slots = &self.slots;
        self.index
            .insert_unique(place, id, |&id| place_of(slots, id));
        id
    }

    fn release(&mut self, id: u32) {
        let Some(slot) = self.slots.get_mut(id as usize).and_then(Option::as_mut) else {
            return;
        };
        slot.holders -= 1;
        if slot.holders > 0 {
            return;
        }
        let place = mix(slot.hash, slot.statement.id());
        self.name_bytes -= slot.name.len() + OVERHEAD;
        slot.statement.remove_name();
        self.slots[id as usize] = None;
        if let Ok(entry) = self.index.find_entry(place, |&found| found == id) {
            entry.remove();
        }
        self.free.push(id);
    }
}

impl Names {
    /// Returns the binding of this name.
    #[must_use]
    #[inline]
    pub fn find(&self, bindings: &Bindings, name: &[u8]) -> Option<BindingId> {
        if self.is_empty() {
            return None;
        }
        let at = self.position(bindings, name).ok()?;
        bindings.id_of(self.sorted.get(at)?)
    }

    /// Returns the statement of this name.
    #[must_use]
    pub fn get<'b>(&self, bindings: &'b Bindings, name: &[u8]) -> Option<&'b Arc<Statement>> {
        bindings.statement(self.find(bindings, name)?)
    }

    /// Gives a name to a statement that is prepared under this schema number. Returns `false` if the name is taken.
    pub fn define(
        &mut self,
        bindings: &mut Bindings,
        name: &[u8],
        statement: &Arc<Statement>,
        schema: u32,
    ) -> bool {
        let shape = StatementDescription::not_described(schema);
        self.define_described(bindings, name, statement, shape)
    }

    /// Gives a name to a statement of which the client has received this description. Returns `false` if the name is
    /// taken.
    pub fn define_described(
        &mut self,
        bindings: &mut Bindings,
        name: &[u8],
        statement: &Arc<Statement>,
        shape: StatementDescription,
    ) -> bool {
        let Err(at) = self.position(bindings, name) else {
            return false;
        };
        let id = bindings.acquire(name, statement, shape);
        self.sorted.insert(at, id);
        self.bytes += Self::cost(statement);
        true
    }

    /// Notes the description of one of the client's statements that the client has received.
    pub fn note_description(
        &mut self,
        bindings: &mut Bindings,
        described: BindingId,
        shape: StatementDescription,
    ) {
        let old = described.slot;
        let Some(at) = self.sorted.iter().position(|id| id == old) else {
            return;
        };
        let Some(binding) = bindings
            .found(described)
            .filter(|found| found.shape != shape)
        else {
            return;
        };
        let (name, statement) = (binding.name.clone(), Arc::clone(&binding.statement));
        let new = bindings.acquire(&name, &statement, shape);
        bindings.release(old);
        self.sorted.replace(at, new);
        if self.recent == Some(described) {
            self.recent = bindings.id_of(new);
        }
    }

    /// Removes a name, and returns its statement.
    pub fn remove(&mut self, bindings: &mut Bindings, name: &[u8]) -> Option<Arc<Statement>> {
        let at = self.position(bindings, name).ok()?;
        let id = self.sorted.remove(at);
        let statement = Arc::clone(&bindings.get(id)?.statement);
        self.bytes -= Self::cost(&statement);
        bindings.release(id);
        Some(statement)
    }

    /// Removes all names, and returns them with their statements and the descriptions that the client has received.
    #[must_use]
    pub fn take(
        &mut self,
        bindings: &mut Bindings,
    ) -> Vec<(Box<[u8]>, Arc<Statement>, StatementDescription)> {
        let held = self.sorted.iter().filter_map(|slot| bindings.get(slot));
        let all = held.map(|binding| {
            let statement = Arc::clone(&binding.statement);
            (binding.name.clone(), statement, binding.shape)
        });
        let all = all.collect();
        self.clear(bindings);
        self.recent = None;
        all
    }

    /// Removes all names.
    pub fn clear(&mut self, bindings: &mut Bindings) {
        for id in std::mem::take(&mut self.sorted).iter() {
            bindings.release(id);
        }
        self.bytes = 0;
    }

    /// Returns a name of the statement with this id. If the statement has several names and one of them was used last,
    /// returns that one.
    #[must_use]
    pub fn name_of<'b>(&self, bindings: &'b Bindings, id: u64) -> Option<&'b [u8]> {
        let recent = self.recent.filter(|&id| bindings.found(id).is_some());
        let recent = recent.map(|id| id.slot);
        let first = recent.filter(|&slot| self.sorted.iter().any(|id| id == slot));
        let slots = first.into_iter().chain(self.sorted.iter());
        let mut held = slots.filter_map(|slot| bindings.get(slot));
        let found = held.find(|binding| binding.statement.id() == id)?;
        Some(&found.name)
    }

    /// Returns all names with their statements, sorted by name.
    #[must_use]
    pub fn all(&self, bindings: &Bindings) -> Vec<(Box<[u8]>, Arc<Statement>)> {
        let held = self.sorted.iter().filter_map(|slot| bindings.get(slot));
        held.map(|binding| (binding.name.clone(), Arc::clone(&binding.statement)))
            .collect()
    }

    /// Returns the ids of the statements that have names.
    pub fn statement_ids(&self, bindings: &Bindings) -> impl Iterator<Item = u64> {
        let held = self.sorted.iter().filter_map(|slot| bindings.get(slot));
        held.map(|binding| binding.statement.id())
    }

    /// Notes that this binding is used: a following error probably concerns it.
    #[inline]
    pub fn used(&mut self, binding: BindingId) {
        self.recent = Some(binding);
    }

    /// Returns the number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns whether there are no names.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sorted.len() == 0
    }

    /// Returns the bytes that the names count towards `max_client_prepared_bytes`.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes that the list of names takes. The names themselves are in the [`Bindings`].
    #[must_use]
    pub fn list_bytes(&self) -> usize {
        self.sorted.bytes()
    }

    /// Returns the bytes that one more statement counts.
    #[must_use]
    pub fn cost(statement: &Statement) -> usize {
        statement.definition().len() + NAME_COST
    }

    fn position(&self, bindings: &Bindings, name: &[u8]) -> Result<usize, usize> {
        let name = statement_key(name);
        let hash = bindings.hash(name);
        let hash_at = |id: u32| bindings.get(id).map_or(0, |binding| binding.hash);
        let mut at = self.sorted.partition_point(|id| hash_at(id) < hash);
        while let Some(binding) = self.sorted.get(at).and_then(|id| bindings.get(id)) {
            if binding.hash != hash {
                break;
            }
            if *binding.name == *name {
                return Ok(at);
            }
            at += 1;
        }
        Err(at)
    }
}

/// Returns the hash of the pair in a slot.
fn place_of(slots: &[Option<Binding>], id: u32) -> u64 {
    let slot = slots[id as usize].as_ref();
    slot.map_or(0, |slot| mix(slot.hash, slot.statement.id()))
}

/// Hashes name and statement. The upper bits must differ well, since the hash table uses them.
fn mix(hash: u32, id: u64) -> u64 {
    (u64::from(hash) ^ id.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Statements;

    #[test]
    fn a_name_means_what_its_client_gave_it_to() {
        let (statements, mut bindings) = (Statements::default(), Bindings::default());
        let (one, two) = (statements.intern(b"1"), statements.intern(b"2"));
        let (mut a, mut b) = (Names::default(), Names::default());
        assert!(a.define(&mut bindings, b"S_1", &one, 0));
        assert!(!a.define(&mut bindings, b"S_1", &two, 0), "taken");
        assert!(a.define(&mut bindings, b"S_2", &one, 0));
        assert!(b.define(&mut bindings, b"S_1", &two, 0));
        assert_eq!(a.get(&bindings, b"S_1").unwrap().id(), one.id());
        assert_eq!(b.get(&bindings, b"S_1").unwrap().id(), two.id());
        assert!(b.get(&bindings, b"S_2").is_none());
        assert_eq!(b.name_of(&bindings, two.id()), Some(&b"S_1"[..]));
        assert_eq!(a.remove(&mut bindings, b"S_1").unwrap().id(), one.id());
        assert!(a.remove(&mut bindings, b"S_1").is_none());
        assert_eq!((a.len(), a.bytes()), (1, 1 + NAME_COST));
        a.clear(&mut bindings);
        b.clear(&mut bindings);
        assert_eq!((a.bytes(), bindings.index.len()), (0, 0));
        assert!(bindings.slots.iter().all(Option::is_none));
    }

    #[test]
    fn the_description_of_a_closed_statement_is_not_used_for_the_next() {
        let (statements, mut bindings) = (Statements::default(), Bindings::default());
        let (one, two) = (statements.intern(b"1"), statements.intern(b"2"));
        let mut names = Names::default();
        names.define(&mut bindings, b"S_1", &one, 0);
        let described = names.find(&bindings, b"S_1").unwrap();
        names.used(described);
        names.remove(&mut bindings, b"S_1");
        names.define(&mut bindings, b"S_2", &two, 0);
        let next = names.find(&bindings, b"S_2").unwrap();
        assert_eq!(described.slot, next.slot, "the same place");
        let shape = StatementDescription {
            columns: Some(7),
            ..StatementDescription::not_described(0)
        };
        names.note_description(&mut bindings, described, shape);
        assert_eq!(bindings.shape(next), StatementDescription::not_described(0));
        assert!(bindings.statement(described).is_none());
        names.note_description(&mut bindings, next, shape);
        assert_eq!(
            bindings.shape(names.find(&bindings, b"S_2").unwrap()),
            shape
        );
    }

    #[test]
    fn a_thousand_clients_with_a_thousand_statements_each() {
        let (statements, mut bindings) = (Statements::default(), Bindings::default());
        let mut clients: Vec<Names> = (0..1000).map(|_| Names::default()).collect();
        for n in 0..1000 {
            let statement = statements.intern(format!("select {n}").as_bytes());
            for client in &mut clients {
                assert!(client.define(&mut bindings, format!("S_{n}").as_bytes(), &statement, 0));
            }
        }
        assert_eq!(bindings.slots.len(), 1000, "each pair once");
        for client in &clients {
            assert!(client.sorted.bytes() <= 2064);
            let found = client.get(&bindings, b"S_567").unwrap();
            assert_eq!(found.definition(), b"select 567");
        }
        for client in &mut clients {
            client.clear(&mut bindings);
        }
        assert_eq!(bindings.index.len(), 0);
    }
}
