//! The query of an HTTP request: the part of its address after `?`.

use percent_encoding::percent_decode_str;

/// The number of rows of an answer, if the request does not set it.
const ROWS: usize = 1000;
const ROWS_MAX: usize = 100_000;

/// The part of a table that a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Selection {
    /// The largest number of rows.
    pub limit: usize,
    /// The column to sort by, and whether the largest value comes first.
    pub sort: Option<(String, bool)>,
    /// Columns, and the values that rows must have there.
    pub filters: Vec<(String, String)>,
    /// Columns of which each combination of values is listed once: the answer has the first row of each combination.
    pub distinct: Vec<String>,
}

/// Splits a query into names and values.
///
/// # Errors
/// The query is not UTF-8.
pub fn pairs(query: &str) -> Result<Vec<(String, String)>, String> {
    let decoded = |text: &str| -> Result<String, String> {
        let text = text.replace('+', " ");
        let text = percent_decode_str(&text).decode_utf8();
        let text = text.map_err(|_| "the query is not UTF-8".to_owned())?;
        Ok(text.into_owned())
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(name)?, decoded(value)?))
        })
        .collect()
}

impl Selection {
    /// Parses a query.
    ///
    /// # Errors
    /// The query is not UTF-8, or its `limit` is out of range.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut selection = Self {
            limit: ROWS,
            sort: None,
            filters: Vec::new(),
            distinct: Vec::new(),
        };
        for (name, value) in pairs(query)? {
            match name.as_str() {
                "limit" => {
                    let limit = value.parse().ok();
                    let limit = limit.filter(|limit| (1..=ROWS_MAX).contains(limit));
                    selection.limit =
                        limit.ok_or_else(|| format!("limit: expected 1 to {ROWS_MAX}"))?;
                }
                "sort" => {
                    let column = value.strip_prefix('-');
                    let falls = column.is_some();
                    selection.sort = Some((column.unwrap_or(&value).to_owned(), falls));
                }
                "distinct" => selection.distinct = value.split(',').map(str::to_owned).collect(),
                _ => selection.filters.push((name, value)),
            }
        }
        Ok(selection)
    }
}
