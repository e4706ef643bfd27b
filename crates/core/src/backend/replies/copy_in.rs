//! COPY FROM STDIN: a server that begins to read COPY data ignores the Syncs that were sent before.

use super::Replies;
use crate::backend::Request;

impl Replies {
    /// Notes that the server has sent CopyInResponse.
    pub fn copy_in_started(&mut self) {
        self.copy.reads_data = true;
        self.copy.ignored_syncs = 0;
        let end = self.copy.ends.first();
        let ignored_end = end.map_or(self.next_request(), |end| end.request);
        let is_at_end = end.is_some_and(|end| end.request <= self.answered);
        let is_extended = match self.requests.front() {
            _ if self.front_mark().is_some() => true,
            _ if is_at_end => false,
            Some(sent) => sent.request == Request::Sync,
            None => true,
        };
        if is_extended {
            // Messages other than data are an error in COPY.
            let marks_end = end.map_or(self.marks.next(), |end| end.mark);
            self.certainty.is_uncertain |= self.marks.first() < marks_end;
            self.marks.forget(marks_end);
            let mut syncs = 0;
            while self.answered < ignored_end && self.pop().is_some() {
                syncs += 1;
            }
            self.certainty.dropping.ends_ignored(syncs);
            self.certainty.restoring.ends_ignored(syncs);
            self.copy.ignored_syncs = syncs as u32;
            self.since_mark.unsynced |= self.is_queue_empty() || syncs > 0 && end.is_none();
            self.since_mark.asked |= self.since_mark.unsynced;
        } else {
            self.ignore_syncs(ignored_end);
        }
        if end.is_some() {
            self.copy.reads_data = false;
            self.copy.ends.take_first();
        }
    }

    /// Removes the Syncs after the present request, up to the request number `end`: the server ignores them, since it
    /// reads COPY data.
    fn ignore_syncs(&mut self, end: u64) {
        let is_ignored = |replies: &Self| match (replies.requests.front(), replies.requests.get(1))
        {
            (Some(query), Some(next)) => {
                next.request == Request::Sync && next.marks_end == query.marks_end
            }
            _ => false,
        };
        let most = end.saturating_sub(self.answered + 1);
        while u64::from(self.copy.ignored_syncs) < most && is_ignored(self) {
            self.requests.remove(1);
            // The removed Sync counts as answered, so that the numbers of the requests after it stay.
            self.answered += 1;
            self.owed_to_client -= 1;
            self.copy.ignored_syncs += 1;
        }
        self.certainty
            .dropping
            .next_ignored(self.copy.ignored_syncs);
        self.certainty
            .restoring
            .next_ignored(self.copy.ignored_syncs);
    }
}
