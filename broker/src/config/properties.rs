//! Reads Java properties files, the format of `server.properties`: `#` and `!` comments, keys ended by
//! `=`, `:` or white space, lines continued by a backslash, the escapes `\t \n \r \f \uXXXX`. A key
//! given twice keeps its last value, as in Java.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

/// Why a properties file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PropertiesError {
    /// The file could not be read from disk.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file asked for.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// `\u` was not followed by four hexadecimal digits.
    #[error("line {line}: \\u must be followed by four hexadecimal digits, not {found:?}")]
    MalformedUnicodeEscape {
        /// The line that the entry starts on, from 1.
        line: usize,
        /// What followed the `\u`.
        found: String,
    },
}

/// Reads a properties file. UTF-8, or else Latin-1 as in Java: every byte is then one character.
pub fn read_file(path: &Path) -> Result<BTreeMap<String, String>, PropertiesError> {
    let bytes = std::fs::read(path)
        .map_err(|source| PropertiesError::Unreadable { path: path.to_path_buf(), source })?;
    match String::from_utf8(bytes) {
        Ok(text) => parse(&text),
        Err(error) => {
            parse(&error.as_bytes().iter().map(|&byte| char::from(byte)).collect::<String>())
        }
    }
}

/// Reads the text of a properties file.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, PropertiesError> {
    let mut entries = BTreeMap::new();
    for (line, logical) in logical_lines(text) {
        let (key, value) = split_entry(&logical);
        entries.insert(unescape(key, line)?, unescape(value, line)?);
    }
    Ok(entries)
}

/// Joins continued lines; leaves out blank lines and comments. Numbers are of the first line, from 1.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, natural) in natural_lines(text).into_iter().enumerate() {
        let natural = natural.trim_start_matches(is_blank);
        let (number, mut joined) = match open.take() {
            Some(started) => started,
            None if natural.is_empty() || natural.starts_with(['#', '!']) => continue,
            None => (index + 1, String::new()),
        };
        joined.push_str(natural);
        if ends_in_continuation(natural) {
            joined.pop();
            open = Some((number, joined));
        } else {
            lines.push((number, joined));
        }
    }
    lines.extend(open);
    lines
}

/// Lines end with `\n`, `\r` or both.
fn natural_lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(['\n', '\r']) {
        lines.push(&rest[..end]);
        let ending = if rest[end..].starts_with("\r\n") { 2 } else { 1 };
        rest = &rest[end + ending..];
    }
    lines.push(rest);
    lines
}

/// An odd number of backslashes at the end: an even number is escaped backslashes.
fn ends_in_continuation(line: &str) -> bool {
    (line.len() - line.trim_end_matches('\\').len()) % 2 == 1
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\x0c')
}

/// Key and value, both still escaped. White space around one separator belongs to neither.
fn split_entry(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line
        .char_indices()
        .find(|&(_, character)| {
            let ends = !escaped && (is_blank(character) || matches!(character, '=' | ':'));
            escaped = character == '\\' && !escaped;
            ends
        })
        .map_or(line.len(), |(index, _)| index);
    let rest = line[end..].trim_start_matches(is_blank);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (&line[..end], value.trim_start_matches(is_blank))
}

fn unescape(text: &str, line: usize) -> Result<String, PropertiesError> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut buffer = [0; 2];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let plain = match character {
            '\\' => match characters.next() {
                Some('u') => {
                    units.push(unicode_unit(&mut characters, line)?);
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some(other) => other,
                None => break,
            },
            other => other,
        };
        units.extend_from_slice(plain.encode_utf16(&mut buffer));
    }
    // Two escapes may form one character beyond the basic plane, hence the way through UTF-16.
    Ok(String::from_utf16_lossy(&units))
}

fn unicode_unit(characters: &mut Peekable<Chars<'_>>, line: usize) -> Result<u16, PropertiesError> {
    let mut digits = String::with_capacity(4);
    while digits.chars().count() < 4 {
        let Some(digit) = characters.next() else {
            break;
        };
        digits.push(digit);
    }
    let malformed = digits.len() != 4 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u16::from_str_radix(&digits, 16)
        .ok()
        .filter(|_| !malformed)
        .ok_or(PropertiesError::MalformedUnicodeEscape { line, found: digits })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> (String, String) {
        let entries = parse(text).expect("well-formed");
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries.into_iter().next().expect("one entry")
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn a_key_ends_at_equals_colon_or_white_space() {
        for text in [
            "node.id=1",
            "node.id:1",
            "node.id 1",
            "  node.id \t=  1",
            "node.id\t:1",
            "node.id = 1",
        ] {
            assert_eq!(one(text), pair("node.id", "1"), "{text:?}");
        }
    }

    #[test]
    fn a_second_separator_belongs_to_the_value() {
        assert_eq!(one("map=A:B,C=D"), pair("map", "A:B,C=D"));
        assert_eq!(one("listeners=PLAINTEXT://:9092"), pair("listeners", "PLAINTEXT://:9092"));
        assert_eq!(one("a==b"), pair("a", "=b"));
    }

    #[test]
    fn comments_and_blank_lines_are_left_out() {
        let text = "# one\n! two\n\n   \t\n  # indented \\\nnode.id=1\n";
        assert_eq!(one(text), pair("node.id", "1"));
    }

    #[test]
    fn a_backslash_at_the_end_continues_the_line_without_its_indentation() {
        assert_eq!(
            one("voters=1@a:1,\\\n    2@b:2,\\\r\n\t3@c:3"),
            pair("voters", "1@a:1,2@b:2,3@c:3")
        );
        // A hash in a continued line is no comment, and a blank line ends the continuation.
        assert_eq!(one("a=b\\\n#c"), pair("a", "b#c"));
        assert_eq!(one("a=b\\\n\n"), pair("a", "b"));
        assert_eq!(one("a=b\\"), pair("a", "b"));
    }

    #[test]
    fn an_even_number_of_backslashes_does_not_continue() {
        let entries = parse("path=c:\\\\\nnode.id=2").expect("well-formed");
        assert_eq!(entries["path"], "c:\\");
        assert_eq!(entries["node.id"], "2");
    }

    #[test]
    fn escapes_stand_for_their_characters() {
        assert_eq!(one(r"a\ b\=c=x\ty\nz\q\u00e9\u20AC"), pair("a b=c", "x\ty\nzq\u{e9}\u{20ac}"));
        assert_eq!(one(r"face=\uD83D\uDE00"), pair("face", "\u{1F600}"));
    }

    #[test]
    fn a_malformed_unicode_escape_names_its_line() {
        for text in ["ok=1\nbad=\\u12g4", "ok=1\nbad=\\u12", "ok=1\nbad=\\u+123"] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.starts_with("line 2: \\u must be followed by four"), "{error}");
        }
    }

    #[test]
    fn every_line_ending_works_and_the_last_value_wins() {
        let entries = parse("a=1\rb=2\r\nc=3\na=4").expect("well-formed");
        assert_eq!(
            entries.into_iter().collect::<Vec<_>>(),
            [pair("a", "4"), pair("b", "2"), pair("c", "3")]
        );
    }

    #[test]
    fn trailing_white_space_stays_and_a_key_alone_has_an_empty_value() {
        assert_eq!(one("a=b "), pair("a", "b "));
        assert_eq!(one("rack"), pair("rack", ""));
        assert_eq!(one("rack="), pair("rack", ""));
    }

    #[test]
    fn a_file_that_is_not_utf_8_is_read_as_latin_1() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("server.properties");
        std::fs::write(&path, b"broker.rack=caf\xe9").expect("written");
        assert_eq!(read_file(&path).expect("read")["broker.rack"], "caf\u{e9}");
        let missing = read_file(&folder.path().join("none")).expect_err("missing").to_string();
        assert!(missing.starts_with("cannot read ") && missing.contains("none"), "{missing}");
    }
}
