//! Finds the functions and relations that stored expressions and queries (`pg_node_tree`) use.
//!
//! A tree names each function by its OID in a field whose name ends with `funcid` or `fnoid`, or is `tsmhandler`, and
//! each relation in `relid`. Strings can't be mistaken for fields: constants are written as numbers, and a blank in a
//! name has a backslash before it.

use memchr::memmem;

use super::body;

/// An object that a tree uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    Function(u32),
    Relation(u32),
    /// The next value of a sequence.
    NextValue,
    /// The user, or another value of the session that SQL reads by a key word.
    SessionValue,
}

/// Returns the names of fields, and their values up to the next blank.
fn fields(tree: &[u8]) -> impl Iterator<Item = (&[u8], &[u8], &[u8])> {
    let mut rest = tree;
    std::iter::from_fn(move || {
        loop {
            let colon = rest.iter().position(|&byte| byte == b':')?;
            rest = &rest[colon + 1..];
            let blank = rest.iter().position(|&byte| byte == b' ')?;
            let (name, after) = rest.split_at(blank);
            if name.contains(&b':') {
                continue;
            }
            let value = &after[1..];
            let end = value
                .iter()
                .position(|byte| !byte.is_ascii_digit())
                .unwrap_or(value.len());
            return Some((name, &value[..end], value));
        }
    })
}

/// Returns the objects that a tree uses.
pub(super) fn references(tree: &[u8]) -> impl Iterator<Item = Reference> {
    let contains = |name: &str| memmem::find(tree, name.as_bytes()).is_some();
    let next_value = contains("NEXTVALUEEXPR").then_some(Reference::NextValue);
    let session_value = contains("SQLVALUEFUNCTION").then_some(Reference::SessionValue);
    let found = fields(tree).filter_map(|(name, number, _)| {
        let is_function =
            name.ends_with(b"funcid") || name.ends_with(b"fnoid") || name == b"tsmhandler";
        if !is_function && name != b"relid" {
            return None;
        }
        let oid = std::str::from_utf8(number)
            .ok()?
            .parse()
            .ok()
            .filter(|&oid| oid != 0)?;
        Some(if is_function {
            Reference::Function(oid)
        } else {
            Reference::Relation(oid)
        })
    });
    found.chain(next_value).chain(session_value)
}

/// Returns whether a tree inserts, updates, deletes or merges rows (`CmdType`).
pub(super) fn changes_rows(tree: &[u8]) -> bool {
    fields(tree).any(|(name, number, _)| name == b"commandType" && !matches!(number, b"" | b"1"))
}

/// Returns the custom parameters that a tree names as constants, if the tree reads or sets parameters.
pub(super) fn custom_names(tree: &[u8]) -> Vec<Vec<u8>> {
    /// The OIDs of `set_config`, and of `current_setting` with one argument and with two.
    const OIDS: [u32; 3] = [2078, 2077, 3294];
    let uses_parameters = references(tree)
        .any(|found| matches!(found, Reference::Function(oid) if OIDS.contains(&oid)));
    if !uses_parameters {
        return Vec::new();
    }
    let constants = fields(tree).filter(|(name, ..)| *name == b"constvalue");
    constants
        .filter_map(|(_, _, value)| constant(value))
        .collect()
}

/// Returns whether a tree calls `set_config` with a name that is not a constant.
pub(super) fn computes_name(tree: &[u8]) -> bool {
    let calls =
        fields(tree).filter(|(name, number, _)| name.ends_with(b"funcid") && *number == b"2078");
    calls.into_iter().any(|(.., rest)| {
        const ARGUMENTS: &[u8] = b":args ({";
        let arguments = memmem::find(rest, ARGUMENTS);
        !arguments.is_some_and(|at| rest[at + ARGUMENTS.len()..].starts_with(b"CONST"))
    })
}

/// Returns the text of a constant such as `12 [ 48 0 0 0 97 46 98 ]`, if the text may be a parameter's name.
fn constant(value: &[u8]) -> Option<Vec<u8>> {
    /// The number of length bytes before a text.
    const HEADER: usize = 4;
    let open = value.iter().take(16).position(|&byte| byte == b'[')?;
    let rest = &value[open + 1..];
    let close = rest.iter().position(|&byte| byte == b']')?;
    let bytes: Option<Vec<u8>> = rest[..close]
        .split(|&byte| byte == b' ')
        .filter(|number| !number.is_empty())
        .map(|number| std::str::from_utf8(number).ok()?.parse().ok())
        .collect();
    let name = bytes?.get(HEADER..)?.to_vec();
    body::is_custom_name(&name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_a_tree_uses() {
        let tree = b"({QUERY :commandType 1 :rtable ({RTE :alias {ALIAS :aliasname x:funcid\\ 5 :colnames <>} \
            :relid 16400 :relkind r}) :targetList ({TARGETENTRY :expr {FUNCEXPR :funcid 2078 :args ({CONST \
            :consttype 25 :constvalue 7 [ 28 0 0 0 97 46 98 ]} {AGGREF :aggfnoid 16500 :aggtype 25} {OPEXPR \
            :opno 96 :opfuncid 0})}})})";
        let found: Vec<_> = references(tree).collect();
        assert_eq!(
            found,
            [
                Reference::Relation(16400),
                Reference::Function(2078),
                Reference::Function(16500),
            ]
        );
        assert_eq!(custom_names(tree), [b"a.b".to_vec()]);
        assert!(!computes_name(tree));
        let computed =
            b"{FUNCEXPR :funcid 2078 :funcresulttype 25 :args ({PARAM :paramkind 0 :paramid 1})}";
        assert!(computes_name(computed));
        assert!(
            references(b"{NEXTVALUEEXPR :seqid 5 }").any(|found| found == Reference::NextValue)
        );
    }
}
