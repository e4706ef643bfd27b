//! ErrorResponse and NoticeResponse: their severities and fields.

use crate::{Body, Malformed};

/// The severity, in the protocol's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The session ends.
    Fatal,
    /// The command failed.
    Error,
    /// A warning (NoticeResponse).
    Warning,
    /// A note (NoticeResponse).
    Notice,
}

impl Severity {
    /// Returns the text of the fields `S` and `V`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Fatal => "FATAL",
            Severity::Error => "ERROR",
            Severity::Warning => "WARNING",
            Severity::Notice => "NOTICE",
        }
    }
}

/// The fields of an ErrorResponse that pgweir uses, borrowed from its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report<'a> {
    /// Field `V` (never translated), else `S`.
    pub severity: &'a [u8],
    /// Field `C`: the SQLSTATE.
    pub code: &'a [u8],
    /// Field `M`.
    pub message: &'a [u8],
    /// Field `D`.
    pub detail: Option<&'a [u8]>,
    /// Field `H`.
    pub hint: Option<&'a [u8]>,
    /// Field `R`: the function in PostgreSQL's source that raised the error.
    pub routine: &'a [u8],
}

impl<'a> Report<'a> {
    /// Returns whether the session ends with this error.
    #[must_use]
    pub fn ends_session(&self) -> bool {
        matches!(self.severity, b"FATAL" | b"PANIC")
    }

    /// Reads the body of an ErrorResponse or NoticeResponse.
    ///
    /// # Errors
    /// When a field has no terminating zero byte, or the list has none.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Body::new(body);
        let mut report = Report::default();
        loop {
            let field = body.u8()?;
            if field == 0 {
                body.end()?;
                return Ok(report);
            }
            let value = body.cstr()?;
            match field {
                b'S' if report.severity.is_empty() => report.severity = value,
                b'V' => report.severity = value,
                b'C' => report.code = value,
                b'M' => report.message = value,
                b'D' => report.detail = Some(value),
                b'H' => report.hint = Some(value),
                b'R' => report.routine = value,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MessageWriter;

    #[test]
    fn written_reports_are_parsed() {
        let mut bytes = Vec::new();
        MessageWriter::new(&mut bytes).error(
            Severity::Fatal,
            "28P01",
            "no",
            Some("why"),
            Some("so"),
        );
        assert_eq!(bytes[0], b'E');
        let report = Report::parse(&bytes[5..]).unwrap();
        assert_eq!(
            (report.severity, report.code, report.message),
            (&b"FATAL"[..], &b"28P01"[..], &b"no"[..])
        );
        assert_eq!(
            (report.detail, report.hint),
            (Some(&b"why"[..]), Some(&b"so"[..]))
        );
        for end in 5..bytes.len() {
            assert!(Report::parse(&bytes[5..end]).is_err(), "cut at {end}");
        }
    }
}
