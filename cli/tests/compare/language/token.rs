//! Words, numbers, texts and signs of one step.

use anyhow::{Result, bail};

/// The smallest parts of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Word(String),
    Number(i64),
    Text(String),
    /// A sign; `..` and `...` are one each.
    Sign(&'static str),
}

const SIGNS: [&str; 14] = ["...", "..", "{", "}", "[", "]", "(", ")", ",", ":", ".", "+", "-", "@"];

/// Splits a step into its tokens.
pub fn tokens(line: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let length;
        if first.is_ascii_digit() {
            length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            tokens.push(Token::Number(rest[..length].parse()?));
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
            length = rest.find(end).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..length].to_owned()));
        } else if first == '\'' {
            let Some(end) = rest[1..].find('\'') else { bail!("a text does not end: {rest}") };
            length = end + 2;
            tokens.push(Token::Text(rest[1..=end].to_owned()));
        } else if first == '=' {
            length = 1;
            tokens.push(Token::Sign("="));
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            length = sign.len();
            tokens.push(Token::Sign(sign));
        } else {
            bail!("what is this: {rest}");
        }
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

/// How many brackets the line opens beyond those it closes; texts and comments do not count.
pub fn open_brackets(line: &str) -> i32 {
    let mut in_text = false;
    let mut open = 0;
    for c in line.chars() {
        match c {
            '\'' => in_text = !in_text,
            '{' | '[' | '(' if !in_text => open += 1,
            '}' | ']' | ')' if !in_text => open -= 1,
            _ => {}
        }
    }
    open
}
