//! The generator: reads the schema files and writes Rust. `schema` is the files as they are
//! written, `model` the messages resolved and checked, the rest writes code.

pub mod apis;
pub mod errors;
pub mod fields;
pub mod model;
pub mod names;
pub mod reflect;
pub mod schema;
pub mod structs;
pub mod writer;

use std::fs;
use std::path::{Path, PathBuf};

use schema::{ApiFile, ErrorsFile, MessagesFile, Versions};
use serde::de::DeserializeOwned;
use serde_json::Value;
use writer::Writer;

/// What to generate beyond the messages themselves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Conversion to JSON and random filling, for tests.
    pub reflect: bool,
}

/// All schema files, parsed.
#[derive(Debug, Default)]
pub struct Schemas {
    /// The APIs, ascending by key.
    pub apis: Vec<ApiFile>,
    /// The messages that belong to no API.
    pub messages: Vec<MessagesFile>,
    /// The error codes.
    pub errors: Option<ErrorsFile>,
}

/// Reads the schemas in one folder and writes the Rust into another.
pub fn generate(schemas: &Path, out: &Path, options: Options) -> Result<(), String> {
    let schemas = read_schemas(schemas)?;
    fs::create_dir_all(out.join("messages")).map_err(|error| error.to_string())?;
    for (path, text) in render(&schemas, options)? {
        write_if_changed(&out.join(path), &text)?;
    }
    Ok(())
}

/// An untouched file keeps its time, which spares a rebuild.
fn write_if_changed(path: &Path, text: &str) -> Result<(), String> {
    if fs::read_to_string(path).is_ok_and(|current| current == text) {
        return Ok(());
    }
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_schemas(folder: &Path) -> Result<Schemas, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut schemas = Schemas::default();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(|error| error.to_string());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        text.and_then(|text| add_file(&mut schemas, &name, &text))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    schemas.apis.sort_by_key(|api| api.key);
    Ok(schemas)
}

/// Adds one schema file; what kind it is shows in its outermost keys.
pub fn add_file(schemas: &mut Schemas, name: &str, text: &str) -> Result<(), String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if value.get("errors").is_some() {
        schemas.errors = Some(parse(text)?);
    } else if value.get("messages").is_some() {
        schemas.messages.push(parse(text)?);
    } else {
        let api: ApiFile = parse(text)?;
        if apis::file_name(&api) != name {
            return Err(format!("should be called {}", apis::file_name(&api)));
        }
        if schemas.apis.iter().any(|other| other.key == api.key) {
            return Err(format!("key {} is taken", api.key));
        }
        schemas.apis.push(api);
    }
    Ok(())
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The files to write, as path and text.
pub fn render(schemas: &Schemas, options: Options) -> Result<Vec<(PathBuf, String)>, String> {
    let mut messages = Vec::new();
    for api in &schemas.apis {
        messages.extend(model::Message::of_api(api)?);
    }
    for schema in schemas.messages.iter().flat_map(|file| &file.messages) {
        messages.push(model::Message::of_schema(schema)?);
    }
    let header_versions = |name: &str| {
        let found = messages.iter().find(|message| message.name == name);
        found.map_or(Versions::NONE, |message| message.structs[0].versions)
    };
    let (request, response) = (header_versions("RequestHeader"), header_versions("ResponseHeader"));
    for api in &schemas.apis {
        apis::check_api(api, request, response)?;
    }

    let mut files = Vec::new();
    for message in &messages {
        let mut writer = Writer::default();
        structs::write_message(&mut writer, message);
        if schemas.apis.iter().any(|api| message.name == format!("{}Response", api.name)) {
            errors::write_message(&mut writer, message);
        }
        if options.reflect {
            reflect::write_message(&mut writer, message);
        }
        let path = Path::new("messages").join(format!("{}.rs", message.module));
        files.push((path, writer.finish()));
    }
    let mut writer = Writer::default();
    apis::write_modules(&mut writer, &messages);
    apis::write_body_enum(&mut writer, &schemas.apis, "Request");
    apis::write_body_enum(&mut writer, &schemas.apis, "Response");
    apis::write_request_impls(&mut writer, &schemas.apis);
    errors::write_body(&mut writer, &schemas.apis, &messages);
    if options.reflect {
        reflect::write_registry(&mut writer, &messages);
        reflect::write_arbitrary_body(&mut writer, &schemas.apis, "Request");
        reflect::write_arbitrary_body(&mut writer, &schemas.apis, "Response");
        reflect::write_json_body(&mut writer, &schemas.apis, "Request");
        reflect::write_json_body(&mut writer, &schemas.apis, "Response");
    }
    files.push(("messages.rs".into(), writer.finish()));

    let mut writer = Writer::default();
    apis::write_api_keys(&mut writer, &schemas.apis);
    files.push(("api_key.rs".into(), writer.finish()));

    let errors = schemas.errors.as_ref().ok_or("there is no file of error codes")?;
    let mut writer = Writer::default();
    apis::write_error_codes(&mut writer, errors);
    files.push(("error_code.rs".into(), writer.finish()));
    Ok(files)
}
