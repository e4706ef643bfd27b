//! Code in other languages than SQL and PL/pgSQL that was created since the catalog was read. Such code may keep state that
//! no clean removes.

use super::Certificates;

/// Compares the sum of the OIDs of extensions and languages with one that was read earlier.
const FOREIGN_CODE: &str = "(SELECT pg_catalog.sum(o.oid::pg_catalog.int8) FROM (SELECT oid FROM pg_catalog.pg_extension \
    UNION ALL SELECT oid FROM pg_catalog.pg_language) AS o) OPERATOR(pg_catalog.<>) ";
/// Whether there are functions of users in other languages than SQL and PL/pgSQL.
pub const ANY_FOREIGN_CODE: &str = "EXISTS (SELECT FROM pg_catalog.pg_proc WHERE oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid \
    AND prolang OPERATOR(pg_catalog.<>) ALL (SELECT oid FROM pg_catalog.pg_language \
    WHERE lanname::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['sql','plpgsql']::pg_catalog.text[])))";

impl Certificates {
    /// Returns whether the catalog was never read.
    #[must_use]
    pub(in crate::session) fn is_unread(&self) -> bool {
        !self.known.is_read && self.known.cleaning.foreign_code.is_none()
    }

    /// Returns a condition in SQL that is true if the database may have code in another language than SQL and PL/pgSQL
    /// that [`unclean_reason`](Self::unclean_reason) does not take into account. `None` if the catalog was read since it
    /// last changed, so that there is no such code.
    #[must_use]
    pub(crate) fn unread_foreign_code(&self) -> Option<String> {
        if self.known.is_read {
            return None;
        }
        Some(match self.known.cleaning.foreign_code {
            Some(read) => format!("{FOREIGN_CODE}{read}"),
            None => ANY_FOREIGN_CODE.into(),
        })
    }
}
