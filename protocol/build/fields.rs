//! The Rust of a single field: its type, its default, and the expressions that read and write it.

use super::model::{DefaultValue, Field, FieldType, fixed_size};
use super::names::identifier;
use super::schema::Versions;

/// The test for being in `versions`, given that the version is in `within`: `None` when that is
/// certain, `false` when it is impossible.
pub fn condition(versions: Versions, within: Versions) -> Option<String> {
    let both = versions.intersect(within);
    if both.is_empty() {
        return Some("false".into());
    }
    match (both.first == within.first, both.last == within.last) {
        (true, true) => None,
        (true, false) if both.first == both.last => Some(format!("version == {}", both.last)),
        (true, false) => Some(format!("version <= {}", both.last)),
        (false, true) => Some(format!("version >= {}", both.first)),
        (false, false) => Some(format!("({}..={}).contains(&version)", both.first, both.last)),
    }
}

/// The field's type, `Option` where some version allows null.
pub fn rust_type(field: &Field) -> String {
    let plain = plain_type(&field.field_type);
    if field.nullable.is_empty() { plain } else { format!("Option<{plain}>") }
}

fn plain_type(field_type: &FieldType) -> String {
    match field_type {
        FieldType::Bool => "bool".into(),
        FieldType::Int(bits) => format!("i{bits}"),
        FieldType::Uint16 => "u16".into(),
        FieldType::Float64 => "f64".into(),
        FieldType::String => "String".into(),
        FieldType::Bytes => "Bytes".into(),
        FieldType::Records => "Records".into(),
        FieldType::Uuid => "Uuid".into(),
        FieldType::Struct(name) => name.clone(),
        FieldType::Array(element) => format!("Vec<{}>", plain_type(element)),
    }
}

/// Whether the default is the one that Rust derives.
pub fn has_plain_default(field: &Field) -> bool {
    match field.default {
        DefaultValue::Null => true,
        DefaultValue::OfType => field.nullable.is_empty(),
        DefaultValue::Int(_) | DefaultValue::True => false,
    }
}

/// The default as an expression.
pub fn default_value(field: &Field) -> String {
    let plain = match field.default {
        DefaultValue::Null => return "None".into(),
        DefaultValue::Int(number) => int_literal(number, &field.field_type),
        DefaultValue::True => "true".into(),
        DefaultValue::OfType => match &field.field_type {
            FieldType::Bool => "false".into(),
            FieldType::Int(_) | FieldType::Uint16 => "0".into(),
            FieldType::Float64 => "0.0".into(),
            FieldType::String => "String::new()".into(),
            FieldType::Bytes => "Bytes::new()".into(),
            FieldType::Records => "Records::empty()".into(),
            FieldType::Uuid => "Uuid::ZERO".into(),
            FieldType::Struct(name) => format!("{name}::default()"),
            FieldType::Array(_) => "Vec::new()".into(),
        },
    };
    if field.nullable.is_empty() { plain } else { format!("Some({plain})") }
}

/// The default for the field's documentation, unless it is the obvious one.
pub fn default_in_words(field: &Field) -> Option<String> {
    match field.default {
        DefaultValue::Null => Some("null".into()),
        DefaultValue::Int(number) => Some(number.to_string()),
        DefaultValue::True => Some("true".into()),
        DefaultValue::OfType => (!field.nullable.is_empty()).then(|| "not null".into()),
    }
}

fn int_literal(number: i64, field_type: &FieldType) -> String {
    match (number, field_type) {
        (i64::MAX, FieldType::Int(64)) => "i64::MAX".into(),
        (number, FieldType::Int(32)) if number == i64::from(i32::MAX) => "i32::MAX".into(),
        (number, FieldType::Int(32)) if number == i64::from(i32::MIN) => "i32::MIN".into(),
        (number, _) => number.to_string(),
    }
}

/// The test for a value other than the default.
pub fn is_set(field: &Field) -> String {
    let value = format!("self.{}", identifier(&field.rust_name));
    let default = default_value(field);
    match (&field.field_type, &field.default) {
        (_, DefaultValue::Null) => format!("{value}.is_some()"),
        (_, DefaultValue::OfType) if !field.nullable.is_empty() => {
            format!("{value} != {default}")
        }
        (FieldType::Bool, DefaultValue::True) => format!("!{value}"),
        (FieldType::Bool, _) => value,
        (FieldType::Uuid, _) => format!("!{value}.is_zero()"),
        (FieldType::String | FieldType::Bytes | FieldType::Records | FieldType::Array(_), _) => {
            format!("!{value}.is_empty()")
        }
        _ => format!("{value} != {default}"),
    }
}

/// What `flexible` is for the field where it is read or written.
fn flexible(field: &Field, versions: Versions) -> &'static str {
    match condition(field.flexible, versions).as_deref() {
        None => "true",
        Some("false") => "false",
        Some(_) => "flexible",
    }
}

/// The expression that reads the field.
pub fn decode_value(field: &Field, versions: Versions) -> String {
    let always_null_allowed = field.nullable == field.versions;
    if field.nullable.is_empty() {
        return decode_call(field, versions, false);
    }
    let read = decode_call(field, versions, true);
    if always_null_allowed {
        return read;
    }
    let test = condition(field.nullable, field.versions).unwrap_or_else(|| "true".into());
    if let FieldType::Struct(_) = field.field_type {
        let plain = decode_call(field, versions, false);
        return format!("if {test} {{ {read} }} else {{ Some({plain}) }}");
    }
    format!("{{ let value = {read}; decoder.check_null({test}, value)? }}")
}

fn decode_call(field: &Field, versions: Versions, nullable: bool) -> String {
    let flexible = flexible(field, versions);
    let or_null = if nullable { "nullable_" } else { "" };
    match &field.field_type {
        FieldType::String => format!("decoder.get_{or_null}string({flexible})?"),
        FieldType::Bytes => format!("decoder.get_{or_null}bytes({flexible})?"),
        FieldType::Records => format!("decoder.get_{or_null}records({flexible})?"),
        FieldType::Struct(_) if nullable && field.tag.is_some() => {
            "decoder.get_nullable_tagged_struct(version)?".into()
        }
        FieldType::Struct(_) if nullable => "decoder.get_nullable_struct(version)?".into(),
        FieldType::Struct(name) => format!("{name}::decode(decoder, version)?"),
        FieldType::Array(element) => match &**element {
            FieldType::Struct(_) => format!("decoder.get_{or_null}structs({flexible}, version)?"),
            FieldType::String => format!(
                "decoder.get_{or_null}array({flexible}, 1, |decoder| decoder.get_string({flexible}))?"
            ),
            fixed => format!(
                "decoder.get_{or_null}array({flexible}, {}, Decoder::get_{})?",
                fixed_size(fixed),
                primitive(fixed)
            ),
        },
        fixed => format!("decoder.get_{}()?", primitive(fixed)),
    }
}

/// The ending of the codec's functions for a type of fixed size.
fn primitive(field_type: &FieldType) -> String {
    match field_type {
        FieldType::Uuid => "uuid".into(),
        other => plain_type(other),
    }
}

/// The expression that writes the field.
pub fn encode_value(field: &Field) -> String {
    let flexible = flexible(field, field.versions);
    let value = format!("self.{}", identifier(&field.rust_name));
    let nullable = !field.nullable.is_empty();
    let or_null = if nullable { "nullable_" } else { "" };
    let by_reference = |deref: bool| match (nullable, deref) {
        (false, _) => format!("&{value}"),
        (true, true) => format!("{value}.as_deref()"),
        (true, false) => format!("{value}.as_ref()"),
    };
    match &field.field_type {
        FieldType::String => {
            format!("encoder.put_{or_null}string({}, {flexible})?", by_reference(true))
        }
        FieldType::Bytes => {
            format!("encoder.put_{or_null}bytes({}, {flexible})?", by_reference(false))
        }
        FieldType::Records => {
            format!("encoder.put_{or_null}records({}, {flexible})?", by_reference(false))
        }
        FieldType::Struct(_) if nullable => encode_nullable_struct(field, &value),
        FieldType::Struct(_) => format!("{value}.encode(encoder, version)?"),
        FieldType::Array(element) => {
            let values = by_reference(true);
            match &**element {
                FieldType::Struct(_) => {
                    format!("encoder.put_{or_null}structs({values}, {flexible}, version)?")
                }
                FieldType::String => format!(
                    "encoder.put_{or_null}array({values}, {flexible}, |encoder, value| encoder.put_string(value, {flexible}))?"
                ),
                fixed => format!(
                    "encoder.put_{or_null}array({values}, {flexible}, |encoder, value| {{ encoder.put_{}(*value); Ok(()) }})?",
                    primitive(fixed)
                ),
            }
        }
        fixed => format!("encoder.put_{}({value})", primitive(fixed)),
    }
}

/// The byte that tells a null struct exists only in the versions that allow null.
fn encode_nullable_struct(field: &Field, value: &str) -> String {
    let tagged = if field.tag.is_some() { "tagged_" } else { "" };
    let nullable = format!("encoder.put_nullable_{tagged}struct({value}.as_ref(), version)?");
    match condition(field.nullable, field.versions) {
        None => nullable,
        Some(test) => format!(
            "if {test} {{ {nullable} }} else if let Some(value) = &{value} {{ value.encode(encoder, version)? }}"
        ),
    }
}
