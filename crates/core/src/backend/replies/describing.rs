//! What answers a Describe.

use super::Replies;
use crate::backend::Mark;

impl Replies {
    /// The server has answered a Describe of a statement, or of a portal: the mark of it, if it is to be noted.
    /// Not every portal's is: what comes before a statement's answer is none of it.
    pub fn described(&mut self, of_statement: bool) -> Option<Mark> {
        if of_statement {
            // A portal's that was too long to be looked at.
            while self.take_describe(Mark::is_of_portal).is_some() {}
        }
        self.take_describe(|mark| mark.is_of_portal() != of_statement)
    }

    pub(super) fn take_describe(&mut self, is_it: impl Fn(&Mark) -> bool) -> Option<Mark> {
        self.front_mark()
            .filter(|mark| mark.is_describe() && is_it(mark))?;
        self.take_front_mark()
    }
}
