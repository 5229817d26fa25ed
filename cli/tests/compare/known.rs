//! The table of differences that are wanted or accepted, each with its reason. An entry that nothing differs by any
//! more is an error, so that the table says what is true.

use anyhow::{Context, Result, ensure};

use crate::differ::{Difference, shown};

/// One line of `known.txt`: `case | path | ours | kafka | reason`, the first four with `*` for anything.
#[derive(Debug)]
pub struct Known {
    case: String,
    path: String,
    ours: String,
    kafkas: String,
    pub used: usize,
}

/// Reads the table.
pub fn table(text: &str) -> Result<Vec<Known>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|line| entry(line).with_context(|| line.to_owned())).collect()
}

fn entry(line: &str) -> Result<Known> {
    let parts: Vec<String> = line.split(" | ").map(|part| part.trim().to_owned()).collect();
    let [case, path, ours, kafkas, reason]: [String; 5] =
        parts.try_into().ok().context("five parts with | between them")?;
    ensure!(!reason.is_empty(), "a reason");
    Ok(Known { case, path, ours, kafkas, used: 0 })
}

impl Known {
    /// Whether the entry speaks of this difference.
    pub fn covers(&self, case: &str, difference: &Difference) -> bool {
        matches(&self.case, case)
            && matches(&self.path, &difference.path)
            && matches(&self.ours, &shown(&difference.ours, false))
            && matches(&self.kafkas, &shown(&difference.kafkas, false))
    }

    /// The entry as it stands in the table.
    pub fn line(&self) -> String {
        format!("{} | {} | {} | {}", self.case, self.path, self.ours, self.kafkas)
    }
}

/// Whether the text fits the pattern, in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for piece in pieces {
        if let Some(before) = last.replace(piece) {
            match rest.find(before) {
                Some(place) => rest = &rest[place + before.len()..],
                None => return false,
            }
        }
    }
    match last {
        None => rest.is_empty(),
        Some(end) => rest.len() >= end.len() && rest.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_anything_and_nothing_else_does() {
        for (pattern, text) in
            [("*", ""), ("a*", "a"), ("*b", "ab"), ("a*b*c", "a-bb-c"), ("a", "a")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("a*b", "a"), ("a*a", "a"), ("*b*c", "cb"), ("", "a")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
