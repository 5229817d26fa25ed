//! Collects lines of Rust and indents them by their braces, so that what is generated reads well
//! without another tool.

/// The text being written.
#[derive(Debug, Default)]
pub struct Writer {
    text: String,
    depth: usize,
}

impl Writer {
    /// One line. A line that starts with a closing bracket steps out; one that ends with an opening
    /// bracket steps in.
    pub fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if line.starts_with(['}', ')', ']']) {
            self.depth = self.depth.saturating_sub(1);
        }
        if !line.is_empty() {
            self.text.extend(std::iter::repeat_n("    ", self.depth));
            self.text.push_str(line);
        }
        self.text.push('\n');
        if line.ends_with(['{', '(', '[']) && !line.starts_with("//") {
            self.depth += 1;
        }
    }

    /// A doc comment, wrapped at about 100 characters.
    pub fn doc(&mut self, text: &str) {
        let width = 92usize.saturating_sub(4 * self.depth);
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > width {
                self.line(format!("/// {line}"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(format!("/// {line}"));
    }

    /// What was written.
    pub fn finish(self) -> String {
        self.text
    }
}
