//! Scrapes a node's metrics and reads them strictly: a page that is not exactly the text form of
//! Prometheus (version 0.0.4) is an error that names its line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

const TIMEOUT: Duration = Duration::from_secs(30);
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// An answer over HTTP.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// As in 200.
    pub status: u16,
    /// The lines before the body, names in small letters.
    pub headers: BTreeMap<String, String>,
    /// What follows.
    pub body: String,
}

/// Sends `request` as it is and reads the answer up to the end of the connection.
///
/// # Errors
/// No connection, or an answer that is none.
pub fn http(address: &str, request: &str) -> Result<HttpAnswer> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("no {address}"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).context("an answer that is no text")?;
    let (head, body) = text.split_once("\r\n\r\n").context("an answer without a head")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status")?;
    let headers = lines.filter_map(|line| line.split_once(": "));
    Ok(HttpAnswer {
        status: status.parse()?,
        headers: headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect(),
        body: body.to_owned(),
    })
}

/// Labels by name.
pub type Labels = BTreeMap<String, String>;

/// A metric with its samples.
#[derive(Clone, Debug)]
pub struct Family {
    /// `counter` or `gauge`.
    pub kind: String,
    /// In the page's order.
    pub samples: Vec<(Labels, f64)>,
}

/// A page of metrics.
#[derive(Clone, Debug)]
pub struct MetricsPage {
    /// By name.
    pub families: BTreeMap<String, Family>,
}

impl MetricsPage {
    /// Asks for the metrics at `address` (`host:port`).
    ///
    /// # Errors
    /// No answer, another status than 200, or a page that is not well formed.
    pub fn scrape(address: &str) -> Result<MetricsPage> {
        let answer = http(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        ensure!(answer.status == 200, "status {}", answer.status);
        let content_type = answer.headers.get("content-type").map(String::as_str);
        ensure!(content_type == Some(CONTENT_TYPE), "content type {content_type:?}");
        let length: usize = answer.headers.get("content-length").context("no length")?.parse()?;
        ensure!(length == answer.body.len(), "{length} bytes promised, {} came", answer.body.len());
        Self::parse(&answer.body)
    }

    /// Reads a page, every line of it.
    ///
    /// # Errors
    /// The first line that is wrong, and why.
    pub fn parse(text: &str) -> Result<MetricsPage> {
        ensure!(text.ends_with('\n'), "the last line has no end");
        let mut reader = Reader { families: BTreeMap::new(), open: None, seen: BTreeSet::new() };
        for (number, line) in text.lines().enumerate() {
            reader.line(line).with_context(|| format!("line {}: {line}", number + 1))?;
        }
        for (name, family) in &reader.families {
            ensure!(!family.samples.is_empty(), "{name} has no sample");
        }
        Ok(MetricsPage { families: reader.families })
    }

    /// The value of the one sample whose labels include `labels`; of a metric without such a sample, none.
    ///
    /// # Panics
    /// When several samples do.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let found: Vec<_> = self.matching(name, labels).collect();
        assert!(found.len() <= 1, "{name} {labels:?}: {found:?}");
        found.first().map(|(_, value)| *value)
    }

    /// The value of the sample without labels.
    ///
    /// # Errors
    /// There is none.
    pub fn plain(&self, name: &str) -> Result<f64> {
        let family = self.families.get(name).with_context(|| format!("no metric {name}"))?;
        let found = family.samples.iter().find(|(labels, _)| labels.is_empty());
        Ok(found.with_context(|| format!("{name} has only samples with labels"))?.1)
    }

    /// The sum over the samples whose labels include `labels`; 0 when there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|(_, value)| *value).sum()
    }

    fn matching<'a>(
        &'a self,
        name: &str,
        labels: &'a [(&str, &str)],
    ) -> impl Iterator<Item = &'a (Labels, f64)> {
        let samples = self.families.get(name).into_iter().flat_map(|family| &family.samples);
        samples.filter(move |(own, _)| {
            labels.iter().all(|(name, value)| own.get(*name).is_some_and(|own| own == value))
        })
    }
}

struct Reader {
    families: BTreeMap<String, Family>,
    /// The metric whose samples come now, and whether its type was told.
    open: Option<(String, bool)>,
    seen: BTreeSet<(String, Labels)>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<()> {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').context("no help")?;
            check_name(name)?;
            ensure!(!help.trim().is_empty(), "an empty help");
            ensure!(!self.families.contains_key(name), "{name} comes twice");
            self.open = Some((name.to_owned(), false));
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').context("no type")?;
            ensure!(self.open == Some((name.to_owned(), false)), "a type without its help");
            ensure!(matches!(kind, "counter" | "gauge"), "type {kind}");
            self.open = Some((name.to_owned(), true));
            let family = Family { kind: kind.to_owned(), samples: Vec::new() };
            self.families.insert(name.to_owned(), family);
            return Ok(());
        }
        ensure!(!line.starts_with('#') && !line.is_empty(), "neither comment nor sample");
        self.sample(line)
    }

    fn sample(&mut self, line: &str) -> Result<()> {
        let end = line.find(['{', ' ']).context("no value")?;
        let (name, rest) = line.split_at(end);
        ensure!(self.open == Some((name.to_owned(), true)), "a sample out of its place");
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => read_labels(rest)?,
            None => (Labels::new(), rest),
        };
        let value = rest.strip_prefix(' ').context("no space before the value")?;
        let value: f64 = match value {
            "NaN" => f64::NAN,
            "+Inf" => f64::INFINITY,
            "-Inf" => f64::NEG_INFINITY,
            number => {
                ensure!(number.starts_with(|c: char| c.is_ascii_digit() || c == '-'), "{number}");
                number.parse().with_context(|| format!("value {number}"))?
            }
        };
        let family = self.families.get_mut(name).context("no type")?;
        if family.kind == "counter" {
            ensure!(value >= 0.0 && value.is_finite(), "a counter of {value}");
        }
        ensure!(self.seen.insert((name.to_owned(), labels.clone())), "the sample comes twice");
        family.samples.push((labels, value));
        Ok(())
    }
}

fn check_name(name: &str) -> Result<()> {
    let mut letters = name.chars();
    let first = letters.next().context("an empty name")?;
    ensure!(first.is_ascii_alphabetic() || first == '_', "name {name}");
    ensure!(letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_'), "name {name}");
    Ok(())
}

/// Reads labels up to the closing brace; gives what follows it.
fn read_labels(mut rest: &str) -> Result<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        let (name, value) = rest.split_once("=\"").context("a label without a value")?;
        check_name(name)?;
        let mut text = String::new();
        let mut letters = value.char_indices();
        let end = loop {
            match letters.next().context("a value without an end")? {
                (at, '"') => break at,
                (_, '\\') => match letters.next().context("a value without an end")?.1 {
                    'n' => text.push('\n'),
                    letter @ ('\\' | '"') => text.push(letter),
                    letter => bail!("\\{letter} is no escape"),
                },
                (_, letter) => text.push(letter),
            }
        };
        ensure!(labels.insert(name.to_owned(), text).is_none(), "label {name} comes twice");
        rest = &value[end + 1..];
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        rest = rest.strip_prefix(',').context("neither comma nor brace after a label")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reads_with_its_labels_and_values() {
        let page = MetricsPage::parse(
            "# HELP a Some.\n# TYPE a gauge\na{x=\"1\\n\\\"\\\\\",y=\"\"} 2.5\na{x=\"2\"} NaN\n\
             # HELP b Some.\n# TYPE b counter\nb 7\n",
        );
        let page = page.expect("well formed");
        assert_eq!(page.get("a", &[("x", "1\n\"\\")]), Some(2.5));
        assert_eq!(page.plain("b").expect("a value"), 7.0);
        assert_eq!(page.get("a", &[("x", "3")]), None);
    }

    #[test]
    fn a_page_that_is_not_well_formed_is_refused() {
        for wrong in [
            "a 1\n",
            "# HELP a Some.\na 1\n",
            "# TYPE a gauge\na 1\n",
            "# HELP a Some.\n# TYPE a gauge\n",
            "# HELP a Some.\n# TYPE a gauge\na 1",
            "# HELP a Some.\n# TYPE a gauge\na one\n",
            "# HELP a Some.\n# TYPE a gauge\na 1\na 1\n",
            "# HELP a Some.\n# TYPE a gauge\nb 1\n",
            "# HELP a Some.\n# TYPE a counter\na -1\n",
            "# HELP a Some.\n# TYPE a gauge\na{x=\"\\t\"} 1\n",
            "# HELP a Some.\n# TYPE a gauge\na{x=\"1\",x=\"2\"} 1\n",
            "# HELP a-b Some.\n# TYPE a-b gauge\na-b 1\n",
        ] {
            assert!(MetricsPage::parse(wrong).is_err(), "{wrong}");
        }
    }
}
