//! The results side by side: a row for each figure, a column for each system.

/// What was measured of one system.
pub struct Column {
    name: String,
    rows: Vec<(String, String)>,
}

impl Column {
    pub fn new(name: &str) -> Column {
        Column { name: name.to_owned(), rows: Vec::new() }
    }

    /// Adds a figure, and tells it at once: a run takes minutes.
    pub fn add(&mut self, what: impl Into<String>, value: String) {
        let what = what.into();
        eprintln!("{}: {what}: {value}", self.name);
        self.rows.push((what, value));
    }

    fn value(&self, what: &str) -> &str {
        let found = self.rows.iter().find(|(row, _)| row == what);
        found.map_or("-", |(_, value)| value)
    }
}

/// Prints the columns as a Markdown table.
pub fn print(columns: &[Column]) {
    let mut rows: Vec<&str> = Vec::new();
    for column in columns {
        for (what, _) in &column.rows {
            if !rows.contains(&what.as_str()) {
                rows.push(what);
            }
        }
    }
    let head: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let first = rows.iter().map(|what| what.len()).max().unwrap_or(0);
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| {
            let values = column.rows.iter().map(|(_, value)| value.len());
            values.chain([column.name.len()]).max().unwrap_or(0)
        })
        .collect();
    let line = |what: &str, values: &[String]| {
        let mut text = format!("| {what:first$} |");
        for (value, width) in values.iter().zip(&widths) {
            text.push_str(&format!(" {value:>width$} |"));
        }
        println!("{text}");
    };
    println!();
    line("", &head);
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(width - 1) + ":").collect();
    line(&"-".repeat(first), &rule);
    for what in rows {
        let values: Vec<String> =
            columns.iter().map(|column| column.value(what).to_owned()).collect();
        line(what, &values);
    }
}
