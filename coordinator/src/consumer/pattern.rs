//! Regular expressions as subscriptions carry them: RE2's syntax (Kafka runs RE2/J), matched against
//! whole topic names.
//!
//! The crate `regex` reads nearly that syntax. What means something else to it inside brackets (`[`,
//! `&&`, `--`, `~~`) and what it lacks (`\Q...\E`, `\C`) is rewritten first. Both run in linear time,
//! so no pattern can stall a shard.

use regex::{Regex, RegexBuilder};

/// Memory that one compiled pattern may take, in bytes.
const MOST_BYTES: usize = 1 << 20;

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Regex);

impl Pattern {
    /// Compiles it; the error is one line that says what is wrong.
    pub(super) fn compile(text: &str) -> Result<Pattern, String> {
        let compile = |text: &str| RegexBuilder::new(text).size_limit(MOST_BYTES).build();
        let translated = translated(text);
        // Alone first: `a)(b` is only valid once it is put in brackets.
        compile(&translated)
            .and_then(|_| compile(&format!("^(?:{translated})$")))
            .map(Pattern)
            .map_err(|error| reason(&error))
    }

    /// Whether the whole name matches.
    pub(super) fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

fn translated(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // Inside brackets, and whether a `]` right here would be an ordinary character.
    let mut class: Option<bool> = None;
    while let Some(next) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix("\\Q").filter(|_| class.is_none()) {
            let (literal, after) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            out.push_str(&regex::escape(literal));
            rest = after;
            continue;
        }
        let taken = match (next, class) {
            ('\\', _) => escape(rest, &mut out),
            ('[', None) => {
                let negated = rest.starts_with("[^");
                out.push_str(if negated { "[^" } else { "[" });
                class = Some(true);
                1 + usize::from(negated)
            }
            ('[', Some(_)) if rest.starts_with("[:") && rest.contains(":]") => {
                let end = rest.find(":]").map_or(rest.len(), |at| at + 2);
                out.push_str(&rest[..end]);
                class = Some(false);
                end
            }
            (']', Some(true)) => {
                out.push_str("\\]");
                class = Some(false);
                1
            }
            (']', Some(false)) => {
                out.push(']');
                class = None;
                1
            }
            ('[' | '&' | '~', Some(_)) => {
                out.push('\\');
                out.push(next);
                class = Some(false);
                1
            }
            ('-', Some(true)) => {
                out.push_str("\\-");
                class = Some(false);
                1
            }
            ('-', Some(false)) if rest.starts_with("--") => {
                // A range that ends with a dash.
                out.push_str("-\\-");
                2
            }
            _ => {
                out.push(next);
                class = class.map(|_| false);
                next.len_utf8()
            }
        };
        rest = &rest[taken..];
        if next == '\\' {
            class = class.map(|_| false);
        }
    }
    out
}

/// Copies an escape sequence; says how many bytes it took.
fn escape(rest: &str, out: &mut String) -> usize {
    let taken: usize = rest.chars().take(2).map(char::len_utf8).sum();
    match &rest[..taken] {
        "\\C" => out.push_str("(?s:.)"),
        plain => out.push_str(plain),
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::compile(pattern).expect("a valid pattern").matches(name)
    }

    #[test]
    fn a_pattern_must_match_the_whole_name() {
        assert!(matches("a|b", "a") && matches("a|b", "b"));
        assert!(!matches("a|b", "ab") && !matches("a", "xa") && !matches("a", "ax"));
        assert!(matches("orders.*", "orders-eu") && matches("(?i)ORDERS", "orders"));
    }

    #[test]
    fn what_re2_reads_otherwise_is_rewritten() {
        assert!(matches(r"\Qa.b\E.*", "a.bc") && !matches(r"\Qa.b\E.*", "axbc"));
        assert!(matches("[[a]+", "[a") && matches("[]a]+", "]a") && matches("[^]a]", "b"));
        assert!(matches("[a&&b]", "&") && matches("[[:alpha:]-]+", "a-b"));
        assert!(
            matches("[a~~b]", "~")
                && matches("[+--]", ",")
                && matches("[--0]", ".")
                && matches(r"[\]a]", "]")
        );
        assert!(matches(r"\C+", "abc") && matches(r"a\.b", "a.b") && !matches(r"a\.b", "axb"));
    }

    #[test]
    fn an_invalid_pattern_says_why_in_one_line() {
        for wrong in ["(foo", "foo)", "a)(b", "[a", "*", r"\", "(?=a)", r"(a)\1", "a{1,100000}"] {
            let reason = Pattern::compile(wrong).expect_err(wrong);
            assert!(!reason.is_empty() && !reason.contains('\n'), "{wrong}: {reason}");
        }
    }
}
