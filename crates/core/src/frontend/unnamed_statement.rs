//! The unnamed statement of one client: the definition that pgweir needs to parse it again on another server.

/// A client's unnamed statement.
#[derive(Debug, Default)]
pub struct UnnamedStatement {
    /// The definition, if the client may use the statement on another server than the one that has it.
    definition: Option<Box<[u8]>>,
    /// Whether a statement without a stored definition may change the session.
    is_opaque: bool,
    /// The definition that stays in force if the server skips all outstanding Parses.
    former: Option<Box<[u8]>>,
    /// The id of the certificates (`Certificates::id`) under which the statement was parsed.
    parsed_with: u64,
    /// The number of the client's unnamed statements so far, which shows whether a server has an older statement.
    version: u32,
}

impl UnnamedStatement {
    /// Returns the bytes of the definitions.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let kept = [&self.definition, &self.former].into_iter().flatten();
        kept.map(|definition| definition.len()).sum()
    }

    /// Returns the statement that another process has kept for its client.
    #[must_use]
    pub fn resumed(definition: Option<&[u8]>) -> Self {
        Self {
            definition: definition.map(Into::into),
            ..Self::default()
        }
    }

    /// Returns whether the client has a statement that it may use later, or that may change its session.
    #[must_use]
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.definition.is_some() || self.is_opaque
    }

    /// Returns the kept definition.
    #[must_use]
    #[inline]
    pub fn definition(&self) -> Option<&[u8]> {
        self.definition.as_deref()
    }

    /// Takes the kept definition out.
    pub fn take_definition(&mut self) -> Option<Box<[u8]>> {
        self.definition.take()
    }

    /// Keeps this definition.
    #[inline]
    pub fn keep(&mut self, definition: Box<[u8]>) {
        self.definition = Some(definition);
    }

    /// Notes that the definition is not stored, and may change the session.
    pub fn set_opaque(&mut self) {
        self.is_opaque = true;
    }

    /// Returns the number of the present statement among all unnamed statements of the client.
    #[must_use]
    #[inline]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Forgets the statement, which is gone or replaced.
    pub fn forget(&mut self) {
        self.definition = None;
        self.is_opaque = false;
        self.version = self.version.wrapping_add(1);
    }

    /// Notes that a Parse has passed while these certificates held.
    #[inline]
    pub fn parsed_under(&mut self, certificates: u64) {
        self.parsed_with = certificates;
    }

    /// Returns whether the statement was parsed under other certificates than these.
    #[must_use]
    #[inline]
    pub fn is_outdated(&self, certificates: u64) -> bool {
        self.parsed_with != certificates
    }

    /// Before a Parse: notes that the present statement stays in force if the server skips the Parse.
    #[inline]
    pub fn replace_with_next(&mut self) {
        self.former = self.definition.take();
    }

    /// Before the statement is prepared again: notes that it also stays in force if the server skips that Parse.
    pub fn keep_as_former(&mut self) {
        self.former.clone_from(&self.definition);
    }

    /// Forgets the statement that would have stayed in force.
    pub fn forget_former(&mut self) {
        self.former = None;
    }

    /// Restores the statement that the client had before a request that is about to be repeated, since the lost server
    /// had all later ones.
    pub fn restore(&mut self, definition: Option<Box<[u8]>>) {
        self.forget();
        self.forget_former();
        self.definition = definition;
    }

    /// Returns whether the client may have a statement of which no definition is kept, so that no other server can get it.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.is_opaque && self.definition.is_none()
    }

    /// Removes and returns the statement that is in force after the server has skipped all Parses.
    pub fn take_former(&mut self) -> Option<Box<[u8]>> {
        self.former.take()
    }
}
