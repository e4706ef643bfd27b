//! Builds the messages that pgweir sends.

use crate::{ProtocolVersion, Severity, tag::backend, tag::frontend};

/// Appends messages to a buffer.
#[derive(Debug)]
pub struct MessageWriter<'a> {
    out: &'a mut Vec<u8>,
}

/// A server's request or status during login ('R').
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// Login has succeeded.
    Ok,
    /// The client must send the password in clear text.
    CleartextPassword,
    /// The client must send the md5 hash of password, user and this salt.
    Md5Password([u8; 4]),
    /// The client must choose one of these mechanisms.
    Sasl(&'a [&'a str]),
    /// The client must continue with this SASL message.
    SaslContinue(&'a [u8]),
    /// The last SASL message of the server.
    SaslFinal(&'a [u8]),
}

impl<'a> MessageWriter<'a> {
    /// Creates a builder that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Appends one message. `body` appends what follows the length.
    pub fn message(&mut self, tag: u8, body: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        self.out.push(tag);
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        body(self.out);
        // No message of pgweir comes near 2 GB: its query texts and rows are bounded.
        let length = (self.out.len() - start) as u32;
        self.out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        self
    }

    /// Appends an authentication message ('R').
    pub fn authentication(&mut self, what: Authentication<'_>) -> &mut Self {
        let (code, tail): (u32, &[u8]) = match &what {
            Authentication::Ok => (0, &[]),
            Authentication::CleartextPassword => (3, &[]),
            Authentication::Md5Password(salt) => (5, salt),
            Authentication::Sasl(_) => (10, &[]),
            Authentication::SaslContinue(data) => (11, data),
            Authentication::SaslFinal(data) => (12, data),
        };
        self.message(backend::AUTHENTICATION, |out| {
            out.extend_from_slice(&code.to_be_bytes());
            out.extend_from_slice(tail);
            if let Authentication::Sasl(mechanisms) = what {
                for mechanism in mechanisms {
                    cstr(out, mechanism.as_bytes());
                }
                out.push(0);
            }
        })
    }

    /// Appends a server's ParameterStatus ('S').
    pub fn parameter_status(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        self.message(backend::PARAMETER_STATUS, |out| {
            cstr(out, name);
            cstr(out, value);
        })
    }

    /// Appends BackendKeyData ('K').
    pub fn backend_key_data(&mut self, pid: u32, secret: &[u8]) -> &mut Self {
        self.message(backend::BACKEND_KEY_DATA, |out| {
            out.extend_from_slice(&pid.to_be_bytes());
            out.extend_from_slice(secret);
        })
    }

    /// Appends NegotiateProtocolVersion ('v'): the newest version that pgweir supports, and the options that it does
    /// not know.
    pub fn negotiate_protocol_version(
        &mut self,
        newest: ProtocolVersion,
        unknown: &[&[u8]],
    ) -> &mut Self {
        self.message(backend::NEGOTIATE_PROTOCOL_VERSION, |out| {
            out.extend_from_slice(&newest.to_code().to_be_bytes());
            out.extend_from_slice(&(unknown.len() as u32).to_be_bytes());
            for name in unknown {
                cstr(out, name);
            }
        })
    }

    /// Appends ReadyForQuery ('Z'). `status` is `I`, `T` or `E`.
    pub fn ready_for_query(&mut self, status: u8) -> &mut Self {
        self.message(backend::READY_FOR_QUERY, |out| out.push(status))
    }

    /// Appends ErrorResponse ('E').
    pub fn error(
        &mut self,
        severity: Severity,
        sqlstate: &str,
        message: &str,
        detail: Option<&str>,
        hint: Option<&str>,
    ) -> &mut Self {
        self.report(
            backend::ERROR_RESPONSE,
            severity,
            sqlstate,
            message,
            detail,
            hint,
        )
    }

    /// Appends ErrorResponse ('E') of severity ERROR with the name of a function in PostgreSQL's source: drivers
    /// recognise some errors by that.
    pub fn error_by(&mut self, sqlstate: &str, message: &str, routine: &str) -> &mut Self {
        self.message(backend::ERROR_RESPONSE, |out| {
            let severity = Severity::Error.as_str();
            let fields = [
                (b'S', severity),
                (b'V', severity),
                (b'C', sqlstate),
                (b'M', message),
                (b'R', routine),
            ];
            for (code, text) in fields {
                out.push(code);
                cstr(out, text.as_bytes());
            }
            out.push(0);
        })
    }

    /// Appends NoticeResponse ('N').
    pub fn notice(&mut self, severity: Severity, sqlstate: &str, message: &str) -> &mut Self {
        self.report(
            backend::NOTICE_RESPONSE,
            severity,
            sqlstate,
            message,
            None,
            None,
        )
    }

    /// Appends NoticeResponse ('N') of severity NOTICE, with a detail.
    pub fn notice_with_detail(&mut self, sqlstate: &str, message: &str, detail: &str) -> &mut Self {
        let (tag, severity) = (backend::NOTICE_RESPONSE, Severity::Notice);
        self.report(tag, severity, sqlstate, message, Some(detail), None)
    }

    fn report(
        &mut self,
        tag: u8,
        severity: Severity,
        sqlstate: &str,
        message: &str,
        detail: Option<&str>,
        hint: Option<&str>,
    ) -> &mut Self {
        self.message(tag, |out| {
            let mut field = |code: u8, text: &str| {
                out.push(code);
                cstr(out, text.as_bytes());
            };
            field(b'S', severity.as_str());
            field(b'V', severity.as_str());
            field(b'C', sqlstate);
            field(b'M', message);
            if let Some(detail) = detail {
                field(b'D', detail);
            }
            if let Some(hint) = hint {
                field(b'H', hint);
            }
            out.push(0);
        })
    }

    /// Appends RowDescription ('T') with columns in text format: name, type oid, type length.
    pub fn row_description(
        &mut self,
        columns: impl ExactSizeIterator<Item = (&'a str, u32, i16)>,
    ) -> &mut Self {
        self.message(backend::ROW_DESCRIPTION, |out| {
            out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
            for (name, oid, size) in columns {
                cstr(out, name.as_bytes());
                out.extend_from_slice(&[0; 6]); // no table, no column number
                out.extend_from_slice(&oid.to_be_bytes());
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(&(-1i32).to_be_bytes());
                out.extend_from_slice(&[0; 2]); // text
            }
        })
    }

    /// Appends DataRow ('D'). `None` is NULL.
    pub fn data_row<'v>(
        &mut self,
        values: impl ExactSizeIterator<Item = Option<&'v [u8]>>,
    ) -> &mut Self {
        self.message(backend::DATA_ROW, |out| {
            out.extend_from_slice(&(values.len() as u16).to_be_bytes());
            for value in values {
                match value {
                    Some(value) => {
                        out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                        out.extend_from_slice(value);
                    }
                    None => out.extend_from_slice(&(-1i32).to_be_bytes()),
                }
            }
        })
    }

    /// Appends a server's CommandComplete ('C').
    pub fn command_complete(&mut self, command: &str) -> &mut Self {
        self.message(backend::COMMAND_COMPLETE, |out| {
            cstr(out, command.as_bytes())
        })
    }

    /// Appends EmptyQueryResponse ('I').
    pub fn empty_query_response(&mut self) -> &mut Self {
        self.message(backend::EMPTY_QUERY_RESPONSE, |_| {})
    }

    /// Appends Query ('Q') for a server.
    pub fn query(&mut self, text: &[u8]) -> &mut Self {
        self.message(frontend::QUERY, |out| cstr(out, text))
    }

    /// Appends Parse, Bind, Execute, Close and Sync ('P', 'B', 'E', 'C', 'S') for a server: a query with one parameter
    /// in text format, as the unnamed statement, which is closed afterwards.
    pub fn unnamed_query(&mut self, text: &[u8], parameter: &[u8]) -> &mut Self {
        self.message(frontend::PARSE, |out| {
            out.push(0);
            cstr(out, text);
            out.extend_from_slice(&[0; 2]); // no types
        })
        .message(frontend::BIND, |out| {
            out.extend_from_slice(&[0; 4]); // portal, statement, no formats
            out.extend_from_slice(&1u16.to_be_bytes());
            out.extend_from_slice(&(parameter.len() as u32).to_be_bytes());
            out.extend_from_slice(parameter);
            out.extend_from_slice(&[0; 2]); // no formats
        })
        .message(frontend::EXECUTE, |out| out.extend_from_slice(&[0; 5]))
        .statement(frontend::CLOSE, b"")
        .sync()
    }

    /// Appends Parse, Bind, Execute, Close and Sync for a server: a command without parameters, as the unnamed
    /// statement, which is closed afterwards.
    pub fn unnamed_command(&mut self, text: &[u8]) -> &mut Self {
        self.unsynced_command(text)
            .statement(frontend::CLOSE, b"")
            .sync()
    }

    /// Appends Parse, Bind and Execute for a server: a command without parameters, as the unnamed statement. The
    /// transaction of the command lasts until the next Sync.
    pub fn unsynced_command(&mut self, text: &[u8]) -> &mut Self {
        self.message(frontend::PARSE, |out| {
            out.push(0);
            cstr(out, text);
            out.extend_from_slice(&[0; 2]); // no types
        })
        .message(frontend::BIND, |out| out.extend_from_slice(&[0; 8]))
        .message(frontend::EXECUTE, |out| out.extend_from_slice(&[0; 5]))
    }

    /// Appends Describe ('D') or Close ('C') of a statement for a server.
    pub fn statement(&mut self, tag: u8, name: &[u8]) -> &mut Self {
        self.message(tag, |out| {
            out.push(b'S');
            cstr(out, name);
        })
    }

    /// Appends Sync ('S') for a server.
    pub fn sync(&mut self) -> &mut Self {
        self.message(frontend::SYNC, |_| {})
    }

    /// Appends CopyFail ('f') for a server.
    pub fn copy_fail(&mut self, reason: &str) -> &mut Self {
        self.message(frontend::COPY_FAIL, |out| cstr(out, reason.as_bytes()))
    }

    /// Appends Terminate ('X') for a server.
    pub fn terminate(&mut self) -> &mut Self {
        self.message(frontend::TERMINATE, |_| {})
    }

    /// Appends PasswordMessage ('p') for a server.
    pub fn password(&mut self, password: &[u8]) -> &mut Self {
        self.message(frontend::PASSWORD, |out| cstr(out, password))
    }

    /// Appends SASLInitialResponse ('p') for a server.
    pub fn sasl_initial_response(&mut self, mechanism: &str, data: &[u8]) -> &mut Self {
        self.message(frontend::PASSWORD, |out| {
            cstr(out, mechanism.as_bytes());
            out.extend_from_slice(&(data.len() as u32).to_be_bytes());
            out.extend_from_slice(data);
        })
    }

    /// Appends SASLResponse ('p') for a server: a later SASL message.
    pub fn sasl_response(&mut self, data: &[u8]) -> &mut Self {
        self.message(frontend::PASSWORD, |out| out.extend_from_slice(data))
    }
}

/// Appends a string. A string on the wire ends at its first zero byte, so the string must not contain one.
fn cstr(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.contains(&0) {
        out.extend(bytes.iter().copied().filter(|&byte| byte != 0));
    } else {
        out.extend_from_slice(bytes);
    }
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        let mut out = Vec::new();
        MessageWriter::new(&mut out)
            .ready_for_query(b'I')
            .query(b"select 1")
            .sync();
        assert_eq!(out, b"Z\0\0\0\x05IQ\0\0\0\x0dselect 1\0S\0\0\0\x04");
        out.clear();
        MessageWriter::new(&mut out).authentication(Authentication::Sasl(&["SCRAM-SHA-256"]));
        assert_eq!(out, b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0");
        out.clear();
        MessageWriter::new(&mut out).data_row([Some(&b"a"[..]), None].into_iter());
        assert_eq!(out, b"D\0\0\0\x0f\0\x02\0\0\0\x01a\xff\xff\xff\xff");
        out.clear();
        MessageWriter::new(&mut out)
            .negotiate_protocol_version(ProtocolVersion::V3_2, &[b"_pq_.x"]);
        assert_eq!(out, b"v\0\0\0\x13\0\x03\0\x02\0\0\0\x01_pq_.x\0");
    }

    #[test]
    fn a_zero_byte_inside_a_string_is_left_out() {
        let mut out = Vec::new();
        MessageWriter::new(&mut out).query(b"a\0b");
        assert_eq!(out, b"Q\0\0\0\x07ab\0");
    }
}
