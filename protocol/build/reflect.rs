//! Writes what only tests and tools use: messages as JSON in Kafka's form, and random messages.

use super::fields::{condition, default_value, is_set};
use super::model::{Field, FieldType, Message, Struct};
use super::names::{identifier, json_name};
use super::schema::ApiFile;
use super::writer::Writer;

/// Writes `Reflect` for all structs of a message.
pub fn write_message(writer: &mut Writer, message: &Message) {
    for current in &message.structs {
        writer.line("#[allow(unused_variables, unused_mut, clippy::useless_conversion)]");
        writer.line(format!("impl Reflect for {} {{", current.name));
        write_to_json(writer, current);
        writer.line("");
        write_arbitrary(writer, current);
        writer.line("}");
        writer.line("");
        writer.line(format!("impl ToJson for {} {{", current.name));
        writer.line("fn to_json(&self, version: i16) -> Value {");
        writer.line("Reflect::to_json(self, version)");
        writer.line("}");
        writer.line("}");
        writer.line("");
        write_from_json(writer, current);
    }
}

/// What the JSON leaves out is the default, what the version lacks is passed over; a name that no
/// version knows is an error.
fn write_from_json(writer: &mut Writer, current: &Struct) {
    writer.line("#[allow(unused_variables)]");
    writer.line(format!("impl FromJson for {} {{", current.name));
    writer.line("fn from_json(value: &Value, version: i16) -> Result<Self, JsonError> {");
    let names: Vec<String> =
        current.fields.iter().map(|field| format!("\"{}\"", json_name(&field.name))).collect();
    writer.line(format!(
        "let fields = JsonFields::of(\"{}\", value, &[{}])?;",
        current.name,
        names.join(", ")
    ));
    writer.line("Ok(Self {");
    for field in &current.fields {
        let name = identifier(&field.rust_name);
        let default = default_value(field);
        let value = format!("fields.read(\"{}\", version, {default})?", json_name(&field.name));
        match condition(field.versions, current.versions) {
            None => writer.line(format!("{name}: {value},")),
            Some(test) => {
                writer.line(format!("{name}: if {test} {{ {value} }} else {{ {default} }},"));
            }
        }
    }
    if !current.flexible.is_empty() {
        writer.line("unknown_tagged_fields: Vec::new(),");
    }
    writer.line("})");
    writer.line("}");
    writer.line("}");
    writer.line("");
}

fn write_to_json(writer: &mut Writer, current: &Struct) {
    writer.line("fn to_json(&self, version: i16) -> Value {");
    writer.line("let mut object = JsonObject::new();");
    for field in &current.fields {
        let mut tests: Vec<String> =
            condition(field.versions, current.versions).into_iter().collect();
        if field.tag.is_some() {
            tests.push(is_set(field));
        }
        let insert = format!(
            "object.insert(\"{}\".into(), ToJson::to_json(&self.{}, version));",
            json_name(&field.name),
            identifier(&field.rust_name)
        );
        if tests.is_empty() {
            writer.line(insert);
        } else {
            writer.line(format!("if {} {{", tests.join(" && ")));
            writer.line(insert);
            writer.line("}");
        }
    }
    writer.line("Value::Object(object)");
    writer.line("}");
}

fn write_arbitrary(writer: &mut Writer, current: &Struct) {
    writer.line("fn arbitrary(source: &mut Source<'_>, version: i16) -> Self {");
    writer.line("Self {");
    for field in &current.fields {
        let name = identifier(&field.rust_name);
        let value = arbitrary_field(field);
        match condition(field.versions, current.versions) {
            None => writer.line(format!("{name}: {value},")),
            Some(test) => writer.line(format!(
                "{name}: if {test} {{ {value} }} else {{ {} }},",
                default_value(field)
            )),
        }
    }
    if !current.flexible.is_empty() {
        let test = condition(current.flexible, current.versions).unwrap_or("true".into());
        writer.line(format!("unknown_tagged_fields: arbitrary::tagged_fields(source, {test}),"));
    }
    writer.line("}");
    writer.line("}");
}

fn arbitrary_field(field: &Field) -> String {
    let plain = arbitrary_value(&field.field_type);
    if field.nullable.is_empty() {
        return plain;
    }
    match condition(field.nullable, field.versions) {
        None => format!("arbitrary::option(source, true, |source| {plain})"),
        Some(test) => format!("arbitrary::option(source, {test}, |source| {plain})"),
    }
}

fn arbitrary_value(field_type: &FieldType) -> String {
    match field_type {
        FieldType::Bool => "source() & 1 == 1".into(),
        FieldType::Int(bits) => format!("source() as i{bits}"),
        FieldType::Uint16 => "source() as u16".into(),
        FieldType::Float64 => "source() as i32 as f64".into(),
        FieldType::String => "arbitrary::string(source)".into(),
        FieldType::Bytes => "arbitrary::bytes(source)".into(),
        FieldType::Records => "Records::Bytes(arbitrary::bytes(source))".into(),
        FieldType::Uuid => "arbitrary::uuid(source)".into(),
        FieldType::Struct(name) => format!("<{name} as Reflect>::arbitrary(source, version)"),
        FieldType::Array(element) => {
            format!("arbitrary::vec(source, |source| {})", arbitrary_value(element))
        }
    }
}

/// Writes the list of all messages, so that a test can walk over them.
pub fn write_registry(writer: &mut Writer, messages: &[Message]) {
    writer.doc("Calls `visitor` once for every message.");
    writer.line("pub fn visit_messages(visitor: &mut impl crate::reflect::Visitor) {");
    for message in messages {
        writer.line(format!("visitor.visit::<{}>();", message.name));
    }
    writer.line("}");
}

/// Writes a random body of any API, `kind` being `Request` or `Response`.
pub fn write_arbitrary_body(writer: &mut Writer, apis: &[ApiFile], kind: &str) {
    writer.line(format!("impl {kind}Body {{"));
    writer.doc("A body of `api_key` with random values in the fields that `version` carries.");
    writer.line("pub fn arbitrary(");
    writer.line("api_key: ApiKey,");
    writer.line("source: &mut crate::reflect::Source<'_>,");
    writer.line("version: i16,");
    writer.line(") -> Self {");
    writer.line("match api_key {");
    for api in apis {
        let random = format!("<{}{kind} as crate::reflect::Reflect>::arbitrary", api.name);
        writer.line(format!("ApiKey::{0} => {random}(source, version).into(),", api.name));
    }
    writer.line("}");
    writer.line("}");
    writer.line("}");
    writer.line("");
}

/// Writes the way from JSON to the body of any API, and back.
pub fn write_json_body(writer: &mut Writer, apis: &[ApiFile], kind: &str) {
    writer.line(format!("impl {kind}Body {{"));
    writer.doc("A body of `api_key` with the fields that `value` names and `version` carries.");
    writer.line("pub fn from_json(");
    writer.line("api_key: ApiKey,");
    writer.line("value: &crate::reflect::Value,");
    writer.line("version: i16,");
    writer.line(") -> Result<Self, crate::reflect::JsonError> {");
    writer.line("Ok(match api_key {");
    for api in apis {
        let read = format!("<{}{kind} as crate::reflect::FromJson>::from_json", api.name);
        writer.line(format!("ApiKey::{0} => {read}(value, version)?.into(),", api.name));
    }
    writer.line("})");
    writer.line("}");
    writer.line("");
    writer.doc("The fields that `version` carries.");
    writer.line("pub fn to_json(&self, version: i16) -> crate::reflect::Value {");
    writer.line("match self {");
    for api in apis {
        writer.line(format!(
            "Self::{}(body) => crate::reflect::Reflect::to_json(body, version),",
            api.name
        ));
    }
    writer.line("}");
    writer.line("}");
    writer.line("}");
    writer.line("");
}
