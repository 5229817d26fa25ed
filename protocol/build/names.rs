//! Kafka's names in Rust's spelling.

/// `ThrottleTimeMs` and `throttleTimeMs` become `throttle_time_ms`; keywords are left to the caller.
pub fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (i, letter) in letters.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| letters[i]);
        let after = letters.get(i + 1);
        let starts_word = letter.is_ascii_uppercase()
            && before.is_some_and(|before| {
                !before.is_ascii_uppercase()
                    || after.is_some_and(|after| after.is_ascii_lowercase())
            });
        if starts_word {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// A field's name where Rust wants an identifier: keywords are escaped.
pub fn identifier(snake: &str) -> String {
    match snake {
        "type" | "match" | "ref" | "move" | "loop" | "final" | "priv" | "use" => {
            format!("r#{snake}")
        }
        _ => snake.to_owned(),
    }
}

/// `NOT_CONTROLLER` becomes `NotController`.
pub fn camel_case(upper: &str) -> String {
    upper.split('_').map(|word| word[..1].to_owned() + &word[1..].to_ascii_lowercase()).collect()
}

/// The name in Kafka's JSON: the first letter small.
pub fn json_name(name: &str) -> String {
    let mut letters = name.chars();
    match letters.next() {
        Some(first) => first.to_ascii_lowercase().to_string() + letters.as_str(),
        None => String::new(),
    }
}
