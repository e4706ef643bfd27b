//! Tables as text.

/// A table with a title. Without columns, it is a list.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) title: &'static str,
    pub(super) columns: &'static [&'static str],
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns the table as text with aligned columns.
    pub(super) fn aligned(&self) -> String {
        let mut widths: Vec<usize> = self.columns.iter().map(|name| name.len()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut text = String::from("  ");
            for (index, cell) in cells.enumerate() {
                let width = widths.get(index).copied().unwrap_or(0);
                text.push_str(&format!("{cell:width$}  "));
            }
            format!("{}\n", text.trim_end())
        };
        let mut text = format!("{}\n", self.title);
        if !self.columns.is_empty() {
            text.push_str(&line(&mut self.columns.iter().copied()));
        }
        for row in &self.rows {
            text.push_str(&line(&mut row.iter().map(String::as_str)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let row = |cells: &[&str]| cells.iter().map(ToString::to_string).collect();
        let table = Table {
            title: "Things",
            columns: &["name", "is"],
            rows: vec![row(&["a", "one"]), row(&["änother", ""])],
        };
        assert_eq!(
            table.aligned(),
            "Things\n  name     is\n  a        one\n  änother\n"
        );
    }
}
