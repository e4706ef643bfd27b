//! The parameters that `connect_query` sets on a server.
//!
//! A clean resets all parameters to the values with which the session began. To keep the values that `connect_query`
//! has set, pgweir asks the first server of a pool for them, and sends them to the next servers in the startup packet.

use pgweir_wire::{Body, Malformed};

use crate::session::{quote, sql::custom_names};

/// Parameters by name, with their values.
pub type Parameters = Vec<(Vec<u8>, Vec<u8>)>;

/// The `connect_query` of a server that is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectQuery {
    /// The query.
    pub text: String,
    /// The login's step for the parameters that the query sets.
    pub settings: SettingsStep,
}

/// A login's step for the parameters that `connect_query` sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsStep {
    /// Nothing: no clean resets them, or the query sets none, or a server has refused them.
    None,
    /// The server is asked for them after the query.
    Ask,
    /// The startup packet has them.
    Send,
}

/// The parameters that a `connect_query` sets, as the first server has reported them.
#[derive(Debug, Default)]
pub struct ConnectSettings {
    /// The query.
    pub query: String,
    /// The parameters. Empty if a server has refused them in its startup packet.
    pub parameters: Parameters,
}

/// The beginning of the query for these parameters. Only a superuser may have a parameter of superusers in the startup
/// packet, but a function of a superuser may have set it for another user. `seed` has no value that can be read.
const OF_SESSION: &str = "SELECT pg_catalog.lower(name),pg_catalog.current_setting(name) FROM pg_catalog.pg_settings \
    WHERE source OPERATOR(pg_catalog.=) 'session' AND name OPERATOR(pg_catalog.<>) 'seed' \
    AND (context OPERATOR(pg_catalog.=) 'user' OR context OPERATOR(pg_catalog.=) 'superuser' \
    AND pg_catalog.current_setting('is_superuser') OPERATOR(pg_catalog.=) 'on') \
    UNION ALL SELECT 'role',pg_catalog.current_setting('role') \
    WHERE pg_catalog.current_setting('role') OPERATOR(pg_catalog.<>) 'none'";

impl ConnectQuery {
    /// Returns the query for the parameters that were set; `None` if the server is not asked for them. `pg_settings` does
    /// not list custom parameters that no extension defines, so the query names those that stand in the text.
    #[must_use]
    pub fn settings_query(&self) -> Option<Vec<u8>> {
        if self.settings != SettingsStep::Ask {
            return None;
        }
        let mut query = OF_SESSION.as_bytes().to_vec();
        for name in custom_names(self.text.as_bytes()) {
            let mut literal = Vec::new();
            quote::literal(&mut literal, &name);
            for part in [
                &b" UNION ALL SELECT "[..],
                &literal,
                b",pg_catalog.current_setting(",
                &literal,
                b",true) WHERE pg_catalog.current_setting(",
                &literal,
                b",true) IS NOT NULL",
            ] {
                query.extend_from_slice(part);
            }
        }
        Some(query)
    }
}

impl ConnectSettings {
    /// Adds a row of the answer. Values that are not ASCII are left out: how the server reads them in a startup packet
    /// depends on its encoding.
    ///
    /// # Errors
    /// The row is malformed.
    pub fn add_row(parameters: &mut Parameters, row: Body<'_>) -> Result<(), Malformed> {
        if let [Some(name), Some(value)] = *row.columns()?
            && name.is_ascii()
            && value.is_ascii()
            && parameters.iter().all(|(known, _)| known != name)
        {
            parameters.push((name.to_vec(), value.to_vec()));
        }
        Ok(())
    }

    /// Adds the parameters to those of a startup packet, in which the last value of a parameter counts.
    pub fn add_to(&self, startup: &mut Parameters) {
        startup.extend_from_slice(&self.parameters);
    }

    /// Returns the names, for the log.
    #[must_use]
    pub fn names(&self) -> String {
        let names = self.parameters.iter().map(|(name, _)| name);
        let names: Vec<_> = names.map(|name| String::from_utf8_lossy(name)).collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_names_custom_parameters() {
        let connect = ConnectQuery {
            text: "SELECT set_config('app.it''s', 'x', false)".into(),
            settings: SettingsStep::Ask,
        };
        let query = String::from_utf8(connect.settings_query().unwrap()).unwrap();
        assert!(query.starts_with("SELECT pg_catalog.lower(name)"));
        let plain = ConnectQuery {
            text: "SET app.tenant = 'x'; SET work_mem = '1MB'".into(),
            settings: SettingsStep::Ask,
        };
        let query = String::from_utf8(plain.settings_query().unwrap()).unwrap();
        assert!(query.ends_with(
            " UNION ALL SELECT 'app.tenant',pg_catalog.current_setting('app.tenant',true) \
             WHERE pg_catalog.current_setting('app.tenant',true) IS NOT NULL"
        ));
    }

    #[test]
    fn rows() {
        let mut found = Parameters::new();
        for row in [
            &b"\0\x02\0\0\0\x01a\0\0\0\x011"[..],
            b"\0\x02\0\0\0\x01a\0\0\0\x012",
            b"\0\x02\0\0\0\x01b\0\0\0\x02\xc3\xa9",
            b"\0\x02\0\0\0\x01c\xff\xff\xff\xff",
        ] {
            ConnectSettings::add_row(&mut found, Body::new(row)).unwrap();
        }
        assert_eq!(found, [(b"a".to_vec(), b"1".to_vec())]);
        assert!(ConnectSettings::add_row(&mut found, Body::new(b"\0\x02\0")).is_err());
    }
}
