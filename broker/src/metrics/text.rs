//! The text form that Prometheus reads (version 0.0.4): for every metric its help and type, then its
//! samples, all in one place. Label values are escaped, whatever a topic or a client calls itself; names
//! and helps are our own and need none.

use std::fmt::Write;

/// The content type of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A sample's value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// A whole number, written without loss.
    Whole(i64),
    /// Any number.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Whole(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Value::from(value as u64)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Whole(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Value::Whole(value.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Whole(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Real(value)
    }
}

/// Labels as they are written between the braces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Labels(String);

impl Labels {
    /// No labels.
    pub fn none() -> Self {
        Self::default()
    }

    /// These labels.
    pub fn of(labels: &[(&str, &str)]) -> Self {
        labels.iter().fold(Self::none(), |all, (name, value)| all.and(name, value))
    }

    /// These labels and one more.
    #[must_use]
    pub fn and(&self, name: &str, value: &str) -> Self {
        let mut text = self.0.clone();
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                letter => text.push(letter),
            }
        }
        text.push('"');
        Self(text)
    }
}

/// A page of metrics in the making.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// A metric with all its samples; one without samples is left out.
    pub fn family<V: Into<Value>>(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        self.head(kind, name, help);
        for (labels, value) in samples {
            self.sample(name, &labels, value.into());
        }
    }

    /// A gauge with samples.
    pub fn gauges<V: Into<Value>>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) {
        self.family(Kind::Gauge, name, help, samples);
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Into<Value>) {
        self.gauges(name, help, [(Labels::none(), value)]);
    }

    /// A counter with samples.
    pub fn counters<V: Into<Value>>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) {
        self.family(Kind::Counter, name, help, samples);
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Into<Value>) {
        self.counters(name, help, [(Labels::none(), value)]);
    }

    /// One of Kafka's meters, in both spellings that dashboards know: `_total` and `persec`.
    pub fn meters<V: Into<Value> + Copy>(
        &mut self,
        name: &str,
        help: &str,
        samples: &[(Labels, V)],
    ) {
        for ending in ["_total", "persec"] {
            self.counters(&format!("{name}{ending}"), help, samples.iter().cloned());
        }
    }

    /// A meter without labels.
    pub fn meter(&mut self, name: &str, help: &str, value: impl Into<Value> + Copy) {
        self.meters(name, help, &[(Labels::none(), value)]);
    }

    /// The page.
    pub fn finish(self) -> String {
        self.text
    }

    fn head(&mut self, kind: Kind, name: &str, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &Labels, value: Value) {
        self.text.push_str(name);
        if !labels.0.is_empty() {
            let _ = write!(self.text, "{{{}}}", labels.0);
        }
        let _ = match value {
            Value::Whole(value) => writeln!(self.text, " {value}"),
            Value::Real(value) if value.is_nan() => writeln!(self.text, " NaN"),
            Value::Real(value) if value.is_infinite() && value > 0.0 => {
                writeln!(self.text, " +Inf")
            }
            Value::Real(value) if value.is_infinite() => writeln!(self.text, " -Inf"),
            Value::Real(value) => writeln!(self.text, " {value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_help_type_and_samples_with_escaped_labels() {
        let mut page = Page::default();
        let name = Labels::of(&[("clientId", "a\"b\\c\nd"), ("topic", "t")]);
        page.gauges("lag", "How far.", [(name, 7u64)]);
        page.meter("bytes", "Bytes.", 3u64);
        page.gauges("ratio", "Some.", [(Labels::none(), f64::NAN)]);
        page.gauge("big", "Exact.", (1u64 << 62) + 1);
        let nothing: [(Labels, u64); 0] = [];
        page.gauges("nothing", "Left out.", nothing);
        assert_eq!(
            page.finish(),
            "# HELP lag How far.\n# TYPE lag gauge\n\
             lag{clientId=\"a\\\"b\\\\c\\nd\",topic=\"t\"} 7\n\
             # HELP bytes_total Bytes.\n# TYPE bytes_total counter\nbytes_total 3\n\
             # HELP bytespersec Bytes.\n# TYPE bytespersec counter\nbytespersec 3\n\
             # HELP ratio Some.\n# TYPE ratio gauge\nratio NaN\n\
             # HELP big Exact.\n# TYPE big gauge\nbig 4611686018427387905\n"
        );
    }
}
