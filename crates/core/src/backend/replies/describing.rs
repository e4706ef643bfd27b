//! The replies to Describe messages.

use super::Replies;
use crate::backend::Mark;

impl Replies {
    /// Takes the mark of the Describe that the server has answered, of a statement or of a portal. `None` if that
    /// Describe has no mark.
    pub fn described(&mut self, of_statement: bool) -> Option<Mark> {
        self.front_mark()
            .filter(|mark| mark.is_describe() && mark.is_of_portal() != of_statement)?;
        self.take_front_mark()
    }

    /// Returns whether the Describe of a portal that is sent now gets a mark. It gets none if its reply could be
    /// mistaken for the reply to an earlier one, or if its description is not noted.
    #[inline]
    pub fn may_mark_portal(&mut self, is_noted: bool) -> bool {
        self.has_unmarked_portal |= !is_noted;
        !self.has_unmarked_portal
    }
}
