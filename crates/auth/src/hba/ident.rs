//! Parses the ident file. Each of its maps says which system users, or names in certificates, may log in as which
//! database users.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use super::{
    HbaProblem, Wrong,
    line::{Word, fields, lines},
    pattern::Pattern,
};

/// All maps of an ident file, by name.
#[derive(Debug, Clone, Default)]
pub struct IdentMaps(BTreeMap<String, Arc<IdentMap>>);

/// A map from names to the users that a client may log in as.
#[derive(Debug, Clone, Default)]
pub struct IdentMap {
    name: String,
    lines: Vec<Mapping>,
}

#[derive(Debug, Clone)]
struct Mapping {
    system: System,
    user: User,
}

#[derive(Debug, Clone)]
enum System {
    Name(String),
    Pattern(Pattern),
}

#[derive(Debug, Clone)]
enum User {
    All,
    Name(String),
    Pattern(Pattern),
    /// The texts before and after `\1`.
    Around(String, String),
}

impl IdentMaps {
    /// Parses the text of an ident file.
    ///
    /// # Errors
    /// All invalid lines.
    pub fn parse(text: &str, file: &Path) -> Result<Self, Vec<HbaProblem>> {
        let mut maps: BTreeMap<String, IdentMap> = BTreeMap::new();
        let mut problems = Vec::new();
        for (number, line) in lines(text) {
            match fields(&line).and_then(|fields| mapping(&fields)) {
                Ok(None) => {}
                Ok(Some((name, mapping))) => {
                    let map = maps.entry(name.clone()).or_default();
                    map.name = name;
                    map.lines.push(mapping);
                }
                Err(wrong) => problems.push(HbaProblem::new(file, number, wrong)),
            }
        }
        match problems.is_empty() {
            true => Ok(Self(
                maps.into_iter()
                    .map(|(name, map)| (name, Arc::new(map)))
                    .collect(),
            )),
            false => Err(problems),
        }
    }

    /// Returns the map of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<IdentMap>> {
        self.0.get(name)
    }
}

impl IdentMap {
    /// Returns the name of the map.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether a client with this name in the system, or in its certificate, may log in as this user.
    #[must_use]
    pub fn allows(&self, system: &str, user: &str) -> bool {
        self.lines.iter().any(|line| line.allows(system, user))
    }
}

impl Mapping {
    fn allows(&self, system: &str, user: &str) -> bool {
        let group = match &self.system {
            System::Name(name) if name == system => "",
            System::Name(_) => return false,
            System::Pattern(pattern) => match pattern.first_group(system) {
                Some(group) => group,
                None => return false,
            },
        };
        match &self.user {
            User::All => true,
            User::Name(name) => name == user,
            User::Pattern(pattern) => pattern.is_match(user),
            User::Around(before, behind) => user
                .strip_prefix(&**before)
                .and_then(|rest| rest.strip_suffix(&**behind))
                .is_some_and(|middle| middle == group),
        }
    }
}

fn mapping(fields: &[Vec<Word>]) -> Result<Option<(String, Mapping)>, Wrong> {
    if fields.is_empty() {
        return Ok(None);
    }
    let column = |at: usize, what: &'static str| match fields.get(at).map(Vec::as_slice) {
        None => Err(Wrong::Missing(what)),
        Some([word]) if word.text.is_empty() => Err(Wrong::EmptyName),
        Some([word]) => Ok(word),
        Some(_) => Err(Wrong::Several(what)),
    };
    let name = column(0, "name of the map")?;
    let system = column(1, "system user")?;
    let user = column(2, "database user")?;
    if let Some(surplus) = fields.get(3).and_then(|field| field.first()) {
        return Err(Wrong::Surplus(surplus.text.clone()));
    }
    let system = match system.text.strip_prefix('/') {
        Some(pattern) => System::Pattern(Pattern::parse(pattern)?),
        None => System::Name(system.text.clone()),
    };
    let has_group = matches!(&system, System::Pattern(pattern) if pattern.has_group());
    let user = match &*user.text {
        "all" if !user.quoted => User::All,
        text => match (text.strip_prefix('/'), text.split_once("\\1")) {
            _ if user.after('+').is_some() => return Err(Wrong::RoleInMap(text.to_owned())),
            (Some(pattern), _) => User::Pattern(Pattern::parse(pattern)?),
            (None, Some((before, behind))) if has_group => {
                User::Around(before.to_owned(), behind.to_owned())
            }
            (None, Some(_)) => return Err(Wrong::NoGroup),
            (None, None) => User::Name(text.to_owned()),
        },
    };
    Ok(Some((name.text.clone(), Mapping { system, user })))
}
