//! The marks of all requests, in one queue. Counters answer questions about the marks without a walk through the queue.

use std::collections::VecDeque;

use super::super::mark::{Change, Mark};

/// Marks in the order in which they were sent. Each has a number, counted from the first mark of the
/// connection on; a request keeps the number at which its marks end.
#[derive(Debug, Default)]
pub(super) struct Marks {
    queue: VecDeque<Mark>,
    /// Returns the number of the next mark that is sent.
    next: u64,
    /// Marks before this number belong to requests that were sent completely.
    ended: u64,
    /// The names in marks before this number were dropped since: a failed Close does not restore them.
    gone: u64,
    /// Changes by requests that were sent completely.
    unsure: Changes,
    /// Changes by the request that is being sent.
    present: Changes,
    /// The number of marks for whose replies the client's next messages wait.
    awaited: usize,
    /// The number of Parses of the unnamed statement.
    unnamed: usize,
}

/// The numbers of marks with changes.
#[derive(Debug, Default)]
struct Changes {
    all: usize,
    /// The number of marks that remove a name.
    removals: usize,
}

impl Changes {
    fn remove(&mut self, is_removal: bool) {
        self.all -= 1;
        self.removals -= usize::from(is_removal);
    }

    fn forget_removals(&mut self) {
        self.all -= std::mem::take(&mut self.removals);
    }
}

impl Marks {
    /// Releases unused memory if no reply is outstanding.
    pub(super) fn shrink(&mut self) {
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }

    /// Returns the bytes that the queue takes.
    pub(super) fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Mark>()
    }

    #[inline]
    pub(super) fn push(&mut self, mark: Mark) {
        self.present.all += usize::from(mark.change.is_some());
        self.present.removals += usize::from(is_removal(&mark));
        self.awaited += usize::from(mark.is_awaited());
        self.unnamed += usize::from(mark.is_unnamed_parse());
        self.next += 1;
        self.queue.push_back(mark);
    }

    /// Notes the end of the request that was being sent.
    #[inline]
    pub(super) fn end_request(&mut self) {
        self.ended = self.next;
        self.unsure.all += std::mem::take(&mut self.present.all);
        self.unsure.removals += std::mem::take(&mut self.present.removals);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of the first mark that is not answered.
    #[inline]
    pub(super) fn first(&self) -> u64 {
        self.next - self.queue.len() as u64
    }

    /// Returns the number of the next mark that is sent.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the first mark, if its number is below `end`.
    #[inline]
    pub(super) fn front(&self, end: u64) -> Option<&Mark> {
        self.queue.front().filter(|_| self.first() < end)
    }

    /// Removes the first mark.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Mark> {
        let number = self.first();
        let mut mark = self.queue.pop_front()?;
        self.awaited -= usize::from(mark.is_awaited());
        self.unnamed -= usize::from(mark.is_unnamed_parse());
        let is_removal = is_removal(&mark);
        if is_removal && number < self.gone {
            mark.change = None;
        } else if mark.change.is_some() {
            match number < self.ended {
                true => self.unsure.remove(is_removal),
                false => self.present.remove(is_removal),
            }
        }
        Some(mark)
    }

    /// Removes and returns the marks with numbers below `end`.
    pub(super) fn take(&mut self, end: u64) -> Vec<Mark> {
        let count = end.saturating_sub(self.first());
        (0..count).map_while(|_| self.pop()).collect()
    }

    /// Removes the marks with numbers below `end`.
    #[inline]
    pub(super) fn forget(&mut self, end: u64) {
        while self.first() < end && self.pop().is_some() {}
    }

    /// Notes that all statements were dropped: a failed Close does not restore its name.
    pub(super) fn statements_gone(&mut self) {
        self.gone = self.next;
        self.unsure.forget_removals();
        self.present.forget_removals();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Mark> {
        self.queue.iter()
    }

    /// Returns whether requests that were sent completely have changes.
    #[inline]
    pub(super) fn are_unsure(&self) -> bool {
        self.unsure.all > 0
    }

    /// Returns whether the client's next messages wait for the reply to one of the marks.
    #[inline]
    pub(super) fn are_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// Returns whether one of the marks is a Parse of the unnamed statement.
    pub(super) fn make_unnamed(&self) -> bool {
        self.unnamed > 0
    }
}

fn is_removal(mark: &Mark) -> bool {
    matches!(
        mark.change(),
        Some(Change::Evicted(_) | Change::Unnamed(..))
    )
}
