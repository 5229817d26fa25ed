//! Writes what metrics and the request log ask of any response: all its error codes, its own and those of
//! its parts in the order of the fields, and its throttle time. Which fields these are is told by their
//! names alone.

use super::model::{Field, FieldType, Message, Struct};
use super::names::identifier;
use super::schema::ApiFile;
use super::writer::Writer;

/// Writes `visit_errors` for every struct of a response that holds an error code somewhere.
pub fn write_message(writer: &mut Writer, message: &Message) {
    for current in &message.structs {
        if !has_errors(message, current) {
            continue;
        }
        writer.line(format!("impl {} {{", current.name));
        writer.doc("Gives every error code in here, 0 for success among them.");
        writer.line("pub fn visit_errors(&self, visit: &mut dyn FnMut(i16)) {");
        for field in &current.fields {
            write_field(writer, message, field);
        }
        writer.line("}");
        writer.line("}");
        writer.line("");
    }
}

fn is_error_code(field: &Field) -> bool {
    field.name == "ErrorCode" && field.field_type == FieldType::Int(16)
}

/// The struct that a field holds one or many of.
fn inner<'a>(message: &'a Message, field: &Field) -> Option<&'a Struct> {
    let name = match &field.field_type {
        FieldType::Struct(name) => name,
        FieldType::Array(element) => match &**element {
            FieldType::Struct(name) => name,
            _ => return None,
        },
        _ => return None,
    };
    message.structs.iter().find(|candidate| candidate.name == *name)
}

fn has_errors(message: &Message, current: &Struct) -> bool {
    current.fields.iter().any(|field| {
        is_error_code(field)
            || inner(message, field).is_some_and(|inner| has_errors(message, inner))
    })
}

fn write_field(writer: &mut Writer, message: &Message, field: &Field) {
    let name = identifier(&field.rust_name);
    if is_error_code(field) {
        writer.line(format!("visit(self.{name});"));
        return;
    }
    if !inner(message, field).is_some_and(|inner| has_errors(message, inner)) {
        return;
    }
    let is_list = matches!(field.field_type, FieldType::Array(_));
    let elements = match (is_list, field.nullable.is_empty()) {
        (true, true) | (false, false) => format!("&self.{name}"),
        (true, false) => format!("self.{name}.iter().flatten()"),
        (false, true) => {
            writer.line(format!("self.{name}.visit_errors(visit);"));
            return;
        }
    };
    writer.line(format!("for element in {elements} {{"));
    writer.line("element.visit_errors(visit);");
    writer.line("}");
}

/// Writes the walk over a response of any API.
pub fn write_body(writer: &mut Writer, apis: &[ApiFile], messages: &[Message]) {
    writer.line("impl ResponseBody {");
    writer.doc("Gives every error code of the response and its parts, 0 for success among them.");
    writer.line("pub fn visit_errors(&self, visit: &mut dyn FnMut(i16)) {");
    writer.line("match self {");
    for api in apis {
        let name = format!("{}Response", api.name);
        let message = messages.iter().find(|message| message.name == name);
        match message.filter(|message| has_errors(message, &message.structs[0])) {
            Some(_) => {
                writer.line(format!("Self::{}(body) => body.visit_errors(visit),", api.name))
            }
            None => writer.line(format!("Self::{}(_) => {{}}", api.name)),
        }
    }
    writer.line("}");
    writer.line("}");
    writer.line("");
    writer.doc(
        "How long the client was or is to be held back; 0 where the response has no such field.",
    );
    writer.line("pub fn throttle_time_ms(&self) -> i32 {");
    writer.line("match self {");
    for api in apis {
        let name = format!("{}Response", api.name);
        let message = messages.iter().find(|message| message.name == name);
        let mut fields = message.iter().flat_map(|message| &message.structs[0].fields);
        match fields.find(|field| field.name == "ThrottleTimeMs") {
            Some(_) => writer.line(format!("Self::{}(body) => body.throttle_time_ms,", api.name)),
            None => writer.line(format!("Self::{}(_) => 0,", api.name)),
        }
    }
    writer.line("}");
    writer.line("}");
    writer.line("}");
    writer.line("");
}
