//! Writes the API keys with their facts, the enums over all requests and responses, and the error codes.

use super::model::{Message, variant_name};
use super::names::snake_case;
use super::schema::{ApiFile, ErrorsFile, Versions};
use super::writer::Writer;

/// Checks what ties an API's facts together; a file that fails is refused.
pub fn check_api(
    api: &ApiFile,
    request_headers: Versions,
    response_headers: Versions,
) -> Result<(), String> {
    let mut next = api.versions.first;
    for row in &api.headers {
        if row.versions.first != next {
            return Err(format!("{}: header rows skip version {next}", api.name));
        }
        if !request_headers.contains(row.request) || !response_headers.contains(row.response) {
            return Err(format!("{}: version {next} names a header that does not exist", api.name));
        }
        next = row.versions.last.saturating_add(1);
    }
    if next != api.versions.last.saturating_add(1) {
        return Err(format!("{}: header rows end before version {}", api.name, api.versions.last));
    }
    if !api.versions.contains(api.latest_stable) {
        return Err(format!("{}: latest_stable is no version", api.name));
    }
    Ok(())
}

/// Writes the enum `ApiKey` and the table behind it.
pub fn write_api_keys(writer: &mut Writer, apis: &[ApiFile]) {
    writer.doc("The APIs of Kafka, by their number on the wire.");
    writer.line("#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]");
    writer.line("#[repr(i16)]");
    writer.line("pub enum ApiKey {");
    for api in apis {
        writer.doc(&format!("{} Versions {}.", api.about, api.versions));
        writer.line(format!("{} = {},", api.name, api.key));
    }
    writer.line("}");
    writer.line("");
    writer.line("impl ApiKey {");
    writer.doc("Every API, ascending by key.");
    writer.line(format!("pub const ALL: [ApiKey; {}] = [", apis.len()));
    for api in apis {
        writer.line(format!("ApiKey::{},", api.name));
    }
    writer.line("];");
    writer.line("");
    writer.doc("The API with this number, if there is one.");
    writer.line("pub fn from_i16(key: i16) -> Option<ApiKey> {");
    writer.line("Some(match key {");
    for api in apis {
        writer.line(format!("{} => ApiKey::{},", api.key, api.name));
    }
    writer.line("_ => return None,");
    writer.line("})");
    writer.line("}");
    writer.line("");
    writer.line("fn facts(self) -> &'static ApiFacts {");
    writer.line("match self {");
    for (index, api) in apis.iter().enumerate() {
        writer.line(format!("ApiKey::{} => &API_FACTS[{index}],", api.name));
    }
    writer.line("}");
    writer.line("}");
    writer.line("}");
    writer.line("");
    writer.line(format!("static API_FACTS: [ApiFacts; {}] = [", apis.len()));
    for api in apis {
        write_facts(writer, api);
    }
    writer.line("];");
}

fn write_facts(writer: &mut Writer, api: &ApiFile) {
    let serves = |listener: &str| api.listeners.iter().any(|name| name == listener);
    let advertised_from = api.advertised_from.unwrap_or(api.versions.first);
    writer.line("ApiFacts {");
    writer.line(format!("name: \"{}\",", api.name));
    writer.line(format!("kafka_name: \"{}\",", api.kafka_name));
    writer.line(format!("versions: ({}, {}),", api.versions.first, api.versions.last));
    writer.line(format!("latest_stable: {},", api.latest_stable));
    writer.line(format!("advertised: {},", api.advertised));
    writer.line(format!("advertised_from: {advertised_from},"));
    writer.line(format!(
        "flexible_from: {},",
        match api.flexible {
            versions if versions.is_empty() => i16::MAX,
            versions => versions.first,
        }
    ));
    writer.line(format!("on_broker: {},", serves("broker")));
    writer.line(format!("on_controller: {},", serves("controller")));
    writer.line(format!("cluster_action: {},", api.cluster_action));
    writer.line("headers: &[");
    for row in &api.headers {
        writer.line(format!(
            "HeaderRow {{ from: {}, request: {}, response: {} }},",
            row.versions.first, row.request, row.response
        ));
    }
    writer.line("],");
    writer.line("},");
}

/// Writes the modules of all messages.
pub fn write_modules(writer: &mut Writer, messages: &[Message]) {
    for message in messages {
        writer.doc(&format!("[`{}`] and the structs inside it.", message.name));
        writer.line(format!("pub mod {} {{", message.module));
        writer.line("use super::prelude::*;");
        writer.line(format!(
            "include!(concat!(env!(\"OUT_DIR\"), \"/messages/{}.rs\"));",
            message.module
        ));
        writer.line("}");
        writer.line(format!("pub use {}::{};", message.module, message.name));
        writer.line("");
    }
}

/// Writes the enum over all requests or all responses, `kind` being `Request` or `Response`.
pub fn write_body_enum(writer: &mut Writer, apis: &[ApiFile], kind: &str) {
    let small = kind.to_lowercase();
    writer.doc(&format!("The {small} of any API."));
    writer.line("#[derive(Clone, Debug, PartialEq)]");
    writer.line("#[allow(clippy::large_enum_variant)]");
    writer.line(format!("pub enum {kind}Body {{"));
    for api in apis {
        writer.doc(&api.about);
        writer.line(format!("{}({}{kind}),", api.name, api.name));
    }
    writer.line("}");
    writer.line("");
    writer.line(format!("impl {kind}Body {{"));
    writer.doc(&format!("Reads the {small} of `api_key`; bytes after it are left to the caller."));
    writer.line("pub fn decode(api_key: ApiKey, version: i16, decoder: &mut Decoder) -> Result<Self, DecodeError> {");
    writer.line("Ok(match api_key {");
    for api in apis {
        writer.line(format!(
            "ApiKey::{0} => Self::{0}({0}{kind}::decode(decoder, version)?),",
            api.name
        ));
    }
    writer.line("})");
    writer.line("}");
    writer.line("");
    writer.doc("Writes the body, or measures it, as its encoder is made to.");
    writer.line(
        "pub fn encode(&self, encoder: &mut Encoder, version: i16) -> Result<(), EncodeError> {",
    );
    writer.line("match self {");
    for api in apis {
        writer.line(format!("Self::{}(body) => body.encode(encoder, version),", api.name));
    }
    writer.line("}");
    writer.line("}");
    writer.line("");
    writer.doc("Which API the body belongs to.");
    writer.line("pub fn api_key(&self) -> ApiKey {");
    writer.line("match self {");
    for api in apis {
        writer.line(format!("Self::{0}(_) => ApiKey::{0},", api.name));
    }
    writer.line("}");
    writer.line("}");
    writer.line("}");
    writer.line("");
    for api in apis {
        writer.line(format!("body_conversions!({kind}Body, {0}, {0}{kind});", api.name));
    }
    writer.line("");
}

/// Ties every request to its response and key.
pub fn write_request_impls(writer: &mut Writer, apis: &[ApiFile]) {
    for api in apis {
        writer.line(format!("impl Request for {}Request {{", api.name));
        writer.line(format!("type Response = {}Response;", api.name));
        writer.line(format!("const KEY: ApiKey = ApiKey::{};", api.name));
        writer.line("}");
        writer.line("");
    }
}

/// Writes the enum `ErrorCode`.
pub fn write_error_codes(writer: &mut Writer, file: &ErrorsFile) {
    writer.doc("Why a request, or a part of it, failed: Kafka's error codes.");
    writer.line("#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]");
    writer.line("#[repr(i16)]");
    writer.line("pub enum ErrorCode {");
    for error in &file.errors {
        let retriable = if error.retriable { ", retriable" } else { "" };
        writer.doc(&format!("`{}`, code {}{retriable}.", error.name, error.code));
        writer.line(format!("{} = {},", variant_name(&error.name), error.code));
    }
    writer.line("}");
    writer.line("");
    writer.line("impl ErrorCode {");
    writer.doc("Every code, ascending.");
    writer.line(format!("pub const ALL: [ErrorCode; {}] = [", file.errors.len()));
    for error in &file.errors {
        writer.line(format!("ErrorCode::{},", variant_name(&error.name)));
    }
    writer.line("];");
    writer.line("");
    writer.doc("The error with this code, if there is one.");
    writer.line("pub fn known(code: i16) -> Option<ErrorCode> {");
    writer.line("Some(match code {");
    for error in &file.errors {
        writer.line(format!("{} => ErrorCode::{},", error.code, variant_name(&error.name)));
    }
    writer.line("_ => return None,");
    writer.line("})");
    writer.line("}");
    writer.line("");
    writer.doc("Kafka's name of the error, as in `NOT_CONTROLLER`.");
    writer.line("pub fn kafka_name(self) -> &'static str {");
    writer.line("match self {");
    for error in &file.errors {
        writer.line(format!("ErrorCode::{} => \"{}\",", variant_name(&error.name), error.name));
    }
    writer.line("}");
    writer.line("}");
    writer.line("");
    writer.doc("Whether a client may try the same again and hope for success.");
    writer.line("pub fn is_retriable(self) -> bool {");
    writer.line("matches!(");
    writer.line("self,");
    let retriable: Vec<String> = file
        .errors
        .iter()
        .filter(|error| error.retriable)
        .map(|error| format!("ErrorCode::{}", variant_name(&error.name)))
        .collect();
    writer.line(retriable.join("\n            | "));
    writer.line(")");
    writer.line("}");
    writer.line("}");
}

/// The name of the schema file that an API must be in.
pub fn file_name(api: &ApiFile) -> String {
    format!("{}.json", snake_case(&api.name))
}
