//! The console's tables as JSON.

use std::{collections::HashSet, fmt::Write};

use hyper::StatusCode;
use pgweir_core::console::{TableInfo, tables};
use pgweir_formats::query::Selection;
use serde_json::{Value, json};

use super::problem::{Problem, json_answer, text_answer};
use crate::{
    console_link::{ColumnType, LinkError, Reply},
    http::{access::Role, identity::Identity, pages::Answer, state::State},
};

fn select(query: &str) -> Result<Selection, Problem> {
    Selection::parse(query).map_err(Problem::bad_query)
}

/// Returns the rows that are asked for, and the number of all rows that match, as JSON.
fn answer(selection: &Selection, mut reply: Reply) -> Result<String, Problem> {
    let at = |name: &str| {
        let mut columns = reply.columns.iter();
        columns
            .position(|(column, _)| column == name)
            .ok_or_else(|| {
                let names: Vec<_> = reply.columns.iter().map(|(name, _)| &**name).collect();
                let names = names.join(", ");
                Problem::bad_query(format!("there is no column {name:?}; there are {names}"))
            })
    };
    for (name, value) in &selection.filters {
        let at = at(name)?;
        let fits = |row: &Vec<Option<String>>| row[at].as_deref().unwrap_or_default() == value;
        reply.rows.retain(fits);
    }
    if let Some((name, falls)) = &selection.sort {
        let at = at(name)?;
        let is_number = reply.columns[at].1 == ColumnType::Number;
        reply.rows.sort_by(|one, other| {
            let (one, other) = (one[at].as_deref(), other[at].as_deref());
            let order = match is_number {
                true => number(one).total_cmp(&number(other)),
                false => one.cmp(&other),
            };
            if *falls { order.reverse() } else { order }
        });
    }
    if !selection.distinct.is_empty() {
        let columns = selection.distinct.iter().map(|name| at(name));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let mut seen = HashSet::new();
        reply.rows.retain(|row| {
            let values: Vec<_> = columns.iter().map(|at| row[*at].clone()).collect();
            seen.insert(values)
        });
    }
    let total = reply.rows.len();
    reply.rows.truncate(selection.limit);
    Ok(table_as_json(&reply, total))
}

/// Writes a table as JSON. A table may have thousands of rows, so no values of a JSON library are made of them.
fn table_as_json(reply: &Reply, total: usize) -> String {
    let columns = reply.columns.iter();
    let columns = columns.map(|(name, kind)| json!({"name": name, "type": kind.name()}));
    let mut text = format!("{{\"columns\":{},\"rows\":[", Value::from_iter(columns));
    let kinds = reply.columns.iter();
    let members: Vec<(String, ColumnType)> = kinds
        .map(|(name, kind)| (format!("{}:", json!(name)), *kind))
        .collect();
    for (at, row) in reply.rows.iter().enumerate() {
        text.push_str(if at == 0 { "{" } else { ",{" });
        for (at, ((name, kind), value)) in members.iter().zip(row).enumerate() {
            text.push_str(if at == 0 { "" } else { "," });
            text.push_str(name);
            push_value(value.as_deref(), *kind, &mut text);
        }
        text.push('}');
    }
    // Writing to a String can't fail.
    let _ = write!(text, "],\"total\":{total}}}");
    text
}

/// Appends a value of a table as JSON.
fn push_value(value: Option<&str>, kind: ColumnType, text: &mut String) {
    let Some(value) = value else {
        return text.push_str("null");
    };
    let is_number = kind == ColumnType::Number;
    if is_number && let Ok(number) = value.parse::<u64>() {
        text.push_str(&number.to_string());
    } else if is_number && let Ok(number) = value.parse::<f64>() {
        text.push_str(&json!(number).to_string());
    } else {
        text.push_str(&json!(value).to_string());
    }
}

fn number(text: Option<&str>) -> f64 {
    text.and_then(|text| text.parse().ok())
        .unwrap_or(f64::NEG_INFINITY)
}

impl ColumnType {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Number => "number",
        }
    }
}

/// Returns the tables that a role may see.
fn visible(role: Role) -> impl Iterator<Item = TableInfo> {
    tables().filter(move |table| !table.is_for_admins || role == Role::Admin)
}

/// Lists the tables.
pub(super) fn list(identity: &Identity) -> Answer {
    let tables = visible(identity.role).map(|table| {
        let name = table.name.to_ascii_lowercase();
        json!({"name": name, "about": table.about})
    });
    let tables: Vec<Value> = tables.collect();
    json_answer(
        StatusCode::OK,
        &json!({"tables": tables}),
        "application/json",
    )
}

/// Answers with a table.
pub(super) async fn table(
    state: &State,
    identity: &Identity,
    name: &str,
    query: &str,
) -> Result<Answer, Problem> {
    let selection = select(query)?;
    let found = tables().find(|table| table.name.eq_ignore_ascii_case(name));
    let Some(table) = found else {
        let names: Vec<_> = visible(identity.role)
            .map(|table| table.name.to_ascii_lowercase())
            .collect();
        let detail = format!("there is no such table; there are {}", names.join(", "));
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    };
    if table.is_for_admins && identity.role < Role::Admin {
        let detail = "only admin_users, and tokens of an admin, may see this table";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    let reply = state.show(&format!("SHOW {}", table.name)).await;
    let reply = reply.map_err(|error| match error {
        LinkError::Command(error) => Problem::refused(error.to_string()),
        other => Problem::unavailable(other.to_string()),
    })?;
    let body = answer(&selection, reply)?;
    Ok(text_answer(StatusCode::OK, body, "application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply() -> Reply {
        let text = |text: &str| Some(text.to_owned());
        Reply {
            columns: vec![
                ("name".to_owned(), ColumnType::Text),
                ("count".to_owned(), ColumnType::Number),
            ],
            rows: vec![
                vec![text("a"), text("9")],
                vec![text("b"), text("10")],
                vec![None, None],
            ],
            ..Reply::default()
        }
    }

    fn ask(query: &str) -> Result<Value, Problem> {
        let text = answer(&select(query)?, reply())?;
        Ok(serde_json::from_str(&text).expect("JSON"))
    }

    #[test]
    fn rows_are_objects_with_numbers_and_nulls() {
        let all = ask("").expect("a table");
        assert_eq!(all["total"], 3);
        assert_eq!(all["rows"][1], json!({"name": "b", "count": 10}));
        assert_eq!(all["rows"][2], json!({"name": null, "count": null}));
        assert_eq!(
            all["columns"][1],
            json!({"name": "count", "type": "number"})
        );
    }

    #[test]
    fn any_text_is_a_valid_value() {
        let check = |value: &str, kind, expect: Value| {
            let mut text = String::new();
            push_value(Some(value), kind, &mut text);
            assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), expect);
        };
        for value in ["", "a\"b", "\\", "\u{1}\n\u{7f}", "\u{202e}x", "12", "null"] {
            check(value, ColumnType::Text, json!(value));
        }
        check("007", ColumnType::Number, json!(7));
        check("1.5", ColumnType::Number, json!(1.5));
        check("-3", ColumnType::Number, json!(-3.0));
        check("NaN", ColumnType::Number, Value::Null);
        check("many", ColumnType::Number, json!("many"));
    }

    #[test]
    fn rows_are_filtered_sorted_and_counted() {
        let names = |query: &str| {
            let table = ask(query).expect("a table");
            let rows = table["rows"].as_array().expect("rows").iter();
            let names: Vec<_> = rows
                .map(|row| row["name"].as_str().unwrap_or("-").to_owned())
                .collect();
            (names.join(" "), table["total"].as_u64())
        };
        assert_eq!(names("sort=-count"), ("b a -".to_owned(), Some(3)));
        assert_eq!(names("sort=count&limit=2"), ("- a".to_owned(), Some(3)));
        assert_eq!(names("sort=-name&limit=1"), ("b".to_owned(), Some(3)));
        assert_eq!(names("name=a"), ("a".to_owned(), Some(1)));
        assert_eq!(names("count=10"), ("b".to_owned(), Some(1)));
        assert_eq!(names("name=%62"), ("b".to_owned(), Some(1)));
        assert_eq!(names("name="), ("-".to_owned(), Some(1)));
    }

    #[test]
    fn the_first_row_of_each_value_is_taken() {
        let text = |text: &str| Some(text.to_owned());
        let ask = |query: &str| {
            let mut reply = reply();
            reply.rows.push(vec![text("a"), text("10")]);
            reply.rows.push(vec![text("a"), text("9")]);
            let selection = Selection::parse(query).expect("a selection");
            let table = answer(&selection, reply).expect("a table");
            let table: Value = serde_json::from_str(&table).expect("JSON");
            (table["total"].as_u64(), table["rows"].clone())
        };
        let (total, rows) = ask("distinct=name&sort=-count");
        let expect = [
            json!({"name": "b", "count": 10}),
            json!({"name": "a", "count": 10}),
            json!({"name": null, "count": null}),
        ];
        assert_eq!((total, rows), (Some(3), expect.into()));
        assert_eq!(ask("distinct=name,count").0, Some(4));
        assert_eq!(ask("distinct=name&limit=1").0, Some(3));
    }

    #[test]
    fn wrong_questions() {
        for query in [
            "limit=0",
            "limit=x",
            "limit=100001",
            "nothing=1",
            "sort=nothing",
            "distinct=nothing",
            "name=%ff",
        ] {
            assert!(ask(query).is_err(), "{query}");
        }
    }
}
