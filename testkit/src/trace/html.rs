//! A trace as one page that needs nothing else: a row for each event, a column for each node, a field that keeps
//! the rows with some words, and the reason behind each event when it is pointed at.

use std::fmt::Write;

use super::{TraceLine, nodes};

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 1em; color-scheme: light dark; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
th { position: sticky; top: 0; background: Canvas; text-align: left; }
th, td { border-bottom: 1px solid #8884; padding: 2px 8px; vertical-align: top; overflow-wrap: anywhere; }
td:first-child, th:first-child { width: 7em; font-variant-numeric: tabular-nums; }
small { opacity: .7; }
input { font: inherit; padding: 4px 8px; width: 24em; max-width: 100%; margin-bottom: 1em; }
</style>
"#;

const TAIL: &str = r#"</tbody>
</table>
<script>
const field = document.querySelector("input"), rows = [...document.querySelectorAll("tbody tr")];
field.addEventListener("input", () => {
  const words = field.value.toLowerCase().split(" ").filter(Boolean);
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  }
});
</script>
</html>
"#;

/// The page.
pub fn html(lines: &[TraceLine], title: &str) -> String {
    let nodes: Vec<i32> = nodes(lines).into_iter().collect();
    let mut text = String::from(HEAD);
    let title = escaped(title);
    let _ = write!(
        text,
        "<title>{title}</title>\n<h1>{title}</h1>\n<p>{} events of {} nodes. Point at one for the rule behind it.</p>\n",
        lines.len(),
        nodes.len()
    );
    text.push_str("<input type=\"search\" placeholder=\"words to keep, as: truncated t-0\" aria-label=\"filter\">\n<table>\n<thead><tr><th>seconds</th>");
    for node in &nodes {
        let _ = write!(text, "<th>node {node}</th>");
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for line in lines {
        let why = line.event.why();
        let reason = escaped(&why.to_string());
        let _ = write!(text, "<tr title=\"{reason}\"><td>{}</td>", line.seconds());
        for node in &nodes {
            if *node == line.node {
                let partition = line.partition().map_or(String::new(), |name| escaped(&name) + " ");
                let (what, rule) = (escaped(&line.what()), why.rule());
                let _ = write!(text, "<td>{partition}{what} <small>{rule}</small></td>");
            } else {
                text.push_str("<td></td>");
            }
        }
        text.push_str("</tr>\n");
    }
    text.push_str(TAIL);
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::testing::trace;
    use super::*;

    #[test]
    fn a_page_has_a_row_for_each_event_in_its_nodes_column_and_no_markup_of_others() {
        let page = html(&trace(), "a <story>");
        assert_eq!(page.matches("<tr title=").count(), 5);
        assert!(page.contains("<title>a &lt;story&gt;</title>") && !page.contains("a<b"));
        let row = page.lines().find(|line| line.contains("follower appended")).expect("a row");
        let cell = "<td>0.061500</td><td></td><td>a&lt;b;c-0 follower appended [0, 1) under epoch 0 <small>C04</small></td><td></td></tr>";
        assert!(row.ends_with(cell), "{row}");
        for outside in ["http:", "https:", "src=", "@import"] {
            assert!(!page.contains(outside), "{outside} would need something else");
        }
    }
}
