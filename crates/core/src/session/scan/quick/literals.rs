//! Quotes, dollars, and comments.

use super::{HERE, Reader, blocks, is_of_word, starts_word};

impl Reader<'_> {
    #[inline]
    pub(super) fn string(&mut self, at: usize) -> Option<()> {
        match self.byte(at.wrapping_sub(1)) {
            b'e' | b'E' => self.escaped(at),
            b'&' => None,
            before => {
                self.follows_no_number(at, before)?;
                self.pass_quotes(at, b'\'')
            }
        }
    }

    /// None for `1e'..'`, `1.u&'..'` and the like, where versions differ.
    #[inline]
    pub(super) fn follows_no_number(&self, at: usize, before: u8) -> Option<()> {
        match before {
            b'e' | b'E' | b'u' | b'U' => self.follows_name(at),
            _ => Some(()),
        }
    }

    #[cold]
    fn follows_name(&self, at: usize) -> Option<()> {
        let word = self.start_of_word(at);
        let is_name = starts_word(self.byte(word)) && self.byte(word.wrapping_sub(1)) != b'.';
        is_name.then_some(())
    }

    /// `E'..'`, from its quote on; or another word before a quote.
    #[cold]
    fn escaped(&mut self, at: usize) -> Option<()> {
        self.follows_name(at)?;
        if self.start_of_word(at) + 1 != at {
            return self.pass_quotes(at, b'\'');
        }
        let mut end = at + 1;
        loop {
            match (*self.text.get(end)?, self.text.get(end + 1)) {
                (b'\\', _) | (b'\'', Some(b'\'')) => end += 2,
                (b'\'', _) => break,
                _ => end += 1,
            }
        }
        // In the next line it may go on.
        if self.byte(self.gap(end + 1)?) == b'\'' {
            return None;
        }
        self.skip_to(end + 1);
        Some(())
    }

    pub(super) fn quoted(&mut self, at: usize) -> Option<()> {
        match self.byte(at.wrapping_sub(1)) {
            b'&' => return None,
            before => self.follows_no_number(at, before)?,
        }
        if self.lists & HERE != 0 && self.byte(self.before(at)?) == b',' {
            return self.source(at);
        }
        self.pass_quotes(at, b'"')
    }

    /// Goes on after the quote that closes the one at `at`. A doubled one closes, and opens again.
    #[inline]
    fn pass_quotes(&mut self, at: usize, quote: u8) -> Option<()> {
        // Words in it are no events.
        let opens = self.special & (u64::MAX << 1) << (at - self.base);
        let mut rest = opens;
        while rest != 0 {
            let next = self.base + rest.trailing_zeros() as usize;
            if self.byte(next) == quote {
                self.events &= (u64::MAX << 1) << (next - self.base);
                return Some(());
            }
            rest &= rest - 1;
        }
        let end = blocks::find(self.text, self.base + blocks::LEN, quote)?;
        self.resume = end + 1;
        self.events = 0;
        Some(())
    }

    /// A parameter, or part of a name; not a string in dollars.
    pub(super) fn dollar(&mut self, at: usize) -> Option<()> {
        let before = self.byte(at.wrapping_sub(1));
        let is_parameter = self.byte(at + 1).is_ascii_digit();
        if !is_of_word(before) && before != b'.' {
            return is_parameter.then_some(());
        }
        let word = self.start_of_word(at);
        // Not `1x$`, `1.x$`.
        let in_name = starts_word(before) && starts_word(self.byte(word));
        (in_name && self.byte(word.wrapping_sub(1)) != b'.').then_some(())
    }

    /// What may be the beginning of a comment.
    pub(super) fn comment(&mut self, at: usize) -> Option<()> {
        if let Some(end) = self.end_of_comment(at)? {
            let last = self.before(at);
            if last.is_some_and(|last| last >= self.barrier) {
                self.earlier_barrier = self.barrier;
            }
            self.before_comment = last;
            self.barrier = end;
            self.skip_to(end);
        }
        Some(())
    }

    /// Where the comment ends that begins at `at`, if there is one. None if it does not end.
    fn end_of_comment(&self, at: usize) -> Option<Option<usize>> {
        let rest = self.text.get(at..).unwrap_or_default();
        Some(match rest {
            [b'-', b'-', ..] => {
                let end = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r');
                Some(at + end.unwrap_or(rest.len()))
            }
            [b'/', b'*', ..] => Some(blocks::comment_end(self.text, at)?),
            _ => None,
        })
    }

    /// Where the blanks and comments end that may begin at `at`. None if a comment does not end.
    #[inline]
    pub(super) fn gap(&self, at: usize) -> Option<usize> {
        let at = self.skip_blank(at);
        match self.byte(at) {
            b'-' | b'/' => self.gap_with_comments(at),
            _ => Some(at),
        }
    }

    #[cold]
    fn gap_with_comments(&self, mut at: usize) -> Option<usize> {
        while let Some(end) = self.end_of_comment(at)? {
            at = self.skip_blank(end);
        }
        Some(at)
    }
}
