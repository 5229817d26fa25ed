//! From the text of a file to its stories.

use anyhow::{Context, Result, bail, ensure};
use protocol::ApiKey;

use super::token::{Token, open_brackets, tokens};
use super::value::{Expression, Part, Path};
use super::{Call, Chapter, Loop, Options, Step, Story};

/// Reads a file of cases.
pub fn chapter(text: &str) -> Result<Chapter> {
    let mut chapter = Chapter { lets: Vec::new(), stories: Vec::new() };
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, first)) = lines.next() {
        let mut line = first.trim().to_owned();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        while open_brackets(&line) > 0
            || lines.peek().is_some_and(|(_, next)| next.starts_with(' '))
        {
            let (_, more) = lines.next().with_context(|| format!("line {}: open", number + 1))?;
            line.push(' ');
            line.push_str(more.trim());
        }
        add_line(&mut chapter, &line).with_context(|| format!("line {}: {line}", number + 1))?;
    }
    Ok(chapter)
}

fn add_line(chapter: &mut Chapter, line: &str) -> Result<()> {
    if let Some(rest) = line.strip_prefix("story ") {
        let (name, repeat) = match rest.split_once(" for ") {
            Some((name, repeat)) => {
                let mut parser = Parser::new(repeat)?;
                let repeat = parser.repeat()?;
                parser.end()?;
                (name, Some(repeat))
            }
            None => (rest, None),
        };
        let story = Story { name: name.trim().to_owned(), repeat, steps: Vec::new() };
        chapter.stories.push(story);
        return Ok(());
    }
    match (chapter.stories.last_mut(), step(line)?) {
        (Some(story), step) => story.steps.push(step),
        (None, Step::Let(name, value)) => chapter.lets.push((name, value)),
        (None, _) => bail!("a step outside of a story"),
    }
    Ok(())
}

fn step(line: &str) -> Result<Step> {
    if let Some(rest) = line.strip_prefix("let ") {
        let (name, value) = rest.split_once('=').context("let without =")?;
        let mut parser = Parser::new(value)?;
        let value = parser.expression()?;
        parser.end()?;
        return Ok(Step::Let(name.trim().to_owned(), value));
    }
    if let Some(rest) = line.strip_prefix("keep ") {
        let (name, path) = rest.split_once('=').context("keep without =")?;
        let mut parser = Parser::new(path)?;
        let path = parser.path()?;
        parser.end()?;
        return Ok(Step::Keep(name.trim().to_owned(), path));
    }
    if let Some(rest) = line.strip_prefix("pause ") {
        return Ok(Step::Pause(rest.trim().parse()?));
    }
    if let Some(rest) = line.strip_prefix("receive ") {
        let (label, connection) = rest.split_once('@').context("receive without @")?;
        let connection = connection.trim().to_owned();
        return Ok(Step::Receive { label: label.trim().to_owned(), connection });
    }
    if let Some(rest) = line.strip_prefix("send ") {
        return Ok(Step::Send(call(rest)?));
    }
    Ok(Step::Call(call(line)?))
}

fn call(line: &str) -> Result<Call> {
    let (label, rest) = line.split_once(':').context("a step without a label")?;
    let mut parser = Parser::new(rest)?;
    let connection = if parser.takes("@") { parser.word()? } else { "main".to_owned() };
    let api = parser.word()?;
    let api_key = ApiKey::ALL.into_iter().find(|key| key.name() == api);
    let api_key = api_key.with_context(|| format!("no API {api}"))?;
    let versions = parser.versions()?;
    let body = parser.expression()?;
    let options = parser.options()?;
    parser.end()?;
    Ok(Call { label: label.trim().to_owned(), connection, api_key, versions, body, options })
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn new(text: &str) -> Result<Parser> {
        Ok(Parser { tokens: tokens(text)?, at: 0 })
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Result<Token> {
        let token = self.peek().cloned().context("the line ends too early")?;
        self.at += 1;
        Ok(token)
    }

    fn end(&self) -> Result<()> {
        ensure!(self.at == self.tokens.len(), "left over: {:?}", &self.tokens[self.at..]);
        Ok(())
    }

    fn takes(&mut self, sign: &'static str) -> bool {
        let there = self.peek() == Some(&Token::Sign(sign));
        self.at += usize::from(there);
        there
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let there = matches!(self.peek(), Some(Token::Word(found)) if found == word);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, sign: &'static str) -> Result<()> {
        ensure!(self.takes(sign), "{sign} expected, found {:?}", self.peek());
        Ok(())
    }

    fn word(&mut self) -> Result<String> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            other => bail!("a word expected, found {other:?}"),
        }
    }

    fn number(&mut self) -> Result<i64> {
        let negative = self.takes("-");
        match self.next()? {
            Token::Number(number) => Ok(if negative { -number } else { number }),
            other => bail!("a number expected, found {other:?}"),
        }
    }

    /// `NAME in LIST`.
    fn repeat(&mut self) -> Result<Loop> {
        let name = self.word()?;
        ensure!(self.takes_word("in"), "in expected, found {:?}", self.peek());
        Ok(Loop { name, list: self.list()? })
    }

    /// A list in brackets or a range of numbers.
    fn list(&mut self) -> Result<Expression> {
        let first = self.expression()?;
        if !self.takes("..") {
            return Ok(first);
        }
        Ok(Expression::Range(Box::new(first), Box::new(self.expression()?)))
    }

    /// One version or several; always a list.
    fn versions(&mut self) -> Result<Expression> {
        let first = self.version()?;
        if self.takes("..") {
            return Ok(Expression::Range(Box::new(first), Box::new(self.version()?)));
        }
        let mut versions = vec![first];
        while self.takes(",") {
            versions.push(self.version()?);
        }
        Ok(Expression::List(versions))
    }

    /// A number, a name or a call: never a sum, so that the body can follow.
    fn version(&mut self) -> Result<Expression> {
        if self.takes("-") {
            return Ok(Expression::Number(-self.number()?));
        }
        self.operand()
    }

    fn expression(&mut self) -> Result<Expression> {
        let mut left = self.operand()?;
        loop {
            let plus = self.takes("+");
            if !plus && !self.takes("-") {
                return Ok(left);
            }
            let right = self.operand()?;
            left = Expression::Sum { left: Box::new(left), right: Box::new(right), plus };
        }
    }

    fn operand(&mut self) -> Result<Expression> {
        Ok(match self.next()? {
            Token::Number(number) => Expression::Number(number),
            Token::Text(text) => Expression::Text(text),
            Token::Sign("-") => Expression::Number(-self.number()?),
            Token::Sign("[") => Expression::List(self.expressions("]")?),
            Token::Sign("{") => Expression::Object(self.parts()?),
            Token::Word(word) => match word.as_str() {
                "true" => Expression::Bool(true),
                "false" => Expression::Bool(false),
                "null" => Expression::Null,
                _ if self.takes("(") => Expression::Call(word, self.expressions(")")?),
                _ => {
                    let mut value = Expression::Name(word);
                    while self.takes(".") {
                        value = Expression::Field(Box::new(value), self.word()?);
                    }
                    value
                }
            },
            other => bail!("a value expected, found {other:?}"),
        })
    }

    fn expressions(&mut self, end: &'static str) -> Result<Vec<Expression>> {
        let mut expressions = Vec::new();
        while !self.takes(end) {
            expressions.push(self.expression()?);
            if !self.takes(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(expressions)
    }

    fn parts(&mut self) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        while !self.takes("}") {
            if self.takes("...") {
                parts.push(Part::Spread(self.expression()?));
            } else {
                let key = self.word()?;
                self.expect(":")?;
                parts.push(Part::Field(key, self.expression()?));
            }
            if !self.takes(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(parts)
    }

    /// `name.name[0].name`.
    fn path(&mut self) -> Result<Path> {
        let mut path = vec![self.word()?];
        loop {
            if self.takes(".") {
                path.push(self.word()?);
            } else if self.takes("[") {
                path.push(self.number()?.to_string());
                self.expect("]")?;
            } else {
                return Ok(Path(path));
            }
        }
    }

    fn options(&mut self) -> Result<Options> {
        let mut options = Options::default();
        while self.peek().is_some() {
            match self.word()?.as_str() {
                "for" => options.loops.push(self.repeat()?),
                "hidden" => options.hidden = true,
                "silent" => options.silent = true,
                "except" => {
                    options.except.push(self.word()?);
                    while self.takes(",") {
                        options.except.push(self.word()?);
                    }
                }
                "until" => {
                    let path = self.path()?;
                    ensure!(self.takes_word("is"), "is expected, found {:?}", self.peek());
                    options.until = Some((path, self.expression()?));
                }
                "written" => {
                    ensure!(self.takes_word("as"), "as expected, found {:?}", self.peek());
                    options.written_as = Some(self.number()?.try_into()?);
                }
                other => bail!("no option {other}"),
            }
        }
        Ok(options)
    }
}
