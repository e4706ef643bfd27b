//! CopyDone and CopyFail messages that were sent before the server's CopyInResponse.

use std::collections::VecDeque;

/// The places of these messages among requests and marks. Messages at the same place take one entry.
#[derive(Debug, Default)]
pub(super) struct CopyEnds {
    places: VecDeque<Place>,
    count: usize,
}

/// A place, and the messages there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The number of the request that follows.
    pub(super) request: u64,
    /// The number of the mark that follows.
    pub(super) mark: u64,
    count: usize,
}

impl CopyEnds {
    pub(super) fn push(&mut self, request: u64, mark: u64) {
        self.count += 1;
        match self.places.back_mut() {
            Some(last) if (last.request, last.mark) == (request, mark) => last.count += 1,
            _ => self.places.push_back(Place {
                request,
                mark,
                count: 1,
            }),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the place of the first of these messages.
    pub(super) fn first(&self) -> Option<Place> {
        self.places.front().copied()
    }

    /// Removes the first of these messages, which has ended a COPY.
    pub(super) fn take_first(&mut self) {
        if let Some(first) = self.places.front_mut() {
            self.count -= 1;
            first.count -= 1;
            if first.count == 0 {
                self.places.pop_front();
            }
        }
    }

    /// Forgets the places up to this request and this mark, since the server has ignored them.
    #[inline]
    pub(super) fn forget(&mut self, request: u64, mark: u64) {
        while let Some(place) = self
            .places
            .pop_front_if(|place| place.request <= request && place.mark <= mark)
        {
            self.count -= place.count;
        }
    }
}
