//! The messages with everything resolved: structs in one list, types known, every range of versions cut
//! to the versions in which its struct can occur. What contradicts itself is refused here.

use serde_json::Value;

use super::names::{camel_case, snake_case};
use super::schema::{ApiFile, FieldSchema, MessageSchema, Versions};

/// A message: a request, a response, or something else that is written on its own.
#[derive(Debug)]
pub struct Message {
    /// Kafka's name; also the name of the main struct.
    pub name: String,
    /// The module that holds its structs.
    pub module: String,
    /// What it is for.
    pub about: String,
    /// The int16 before the key, for the coordinators' records.
    pub record_key: Option<i16>,
    /// The structs; the first is the message itself.
    pub structs: Vec<Struct>,
}

/// A struct of a message.
#[derive(Debug)]
pub struct Struct {
    /// The name, unique in its message.
    pub name: String,
    /// The path of fields that leads to its first use, empty for the message itself.
    pub used_by: String,
    /// The versions in which the struct can occur.
    pub versions: Versions,
    /// The flexible ones among them.
    pub flexible: Versions,
    /// The fields that occur in these versions.
    pub fields: Vec<Field>,
    /// No version takes fewer bytes.
    pub min_size: usize,
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Kafka's name.
    pub name: String,
    /// The name in Rust.
    pub rust_name: String,
    /// What it holds, or empty.
    pub about: String,
    /// The type.
    pub field_type: FieldType,
    /// The versions that carry it, as the schema says.
    pub stated_versions: Versions,
    /// The versions that carry it, cut to those of its struct.
    pub versions: Versions,
    /// The versions in which it may be null, cut likewise.
    pub nullable: Versions,
    /// The versions in which it has compact lengths, cut likewise.
    pub flexible: Versions,
    /// The tag, for a tagged field.
    pub tag: Option<u32>,
    /// The default.
    pub default: DefaultValue,
    /// Whether a value may be lost in versions that lack the field.
    pub ignorable: bool,
    /// Whether it identifies its struct in an array.
    pub key: bool,
}

/// The default of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum DefaultValue {
    /// Null.
    Null,
    /// Zero, false, empty, or a struct of defaults.
    OfType,
    /// A number other than zero.
    Int(i64),
    /// True.
    True,
}

/// The type of a field, not saying whether it may be null.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldType {
    /// `bool`
    Bool,
    /// `int8`, `int16`, `int32`, `int64` by their bits.
    Int(u8),
    /// `uint16`
    Uint16,
    /// `float64`
    Float64,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// `records`
    Records,
    /// `uuid`
    Uuid,
    /// A struct of the same message.
    Struct(String),
    /// An array.
    Array(Box<FieldType>),
}

impl FieldType {
    fn parse(text: &str) -> FieldType {
        match text {
            "bool" => FieldType::Bool,
            "int8" => FieldType::Int(8),
            "int16" => FieldType::Int(16),
            "int32" => FieldType::Int(32),
            "int64" => FieldType::Int(64),
            "uint16" => FieldType::Uint16,
            "float64" => FieldType::Float64,
            "string" => FieldType::String,
            "bytes" => FieldType::Bytes,
            "records" => FieldType::Records,
            "uuid" => FieldType::Uuid,
            _ => match text.strip_prefix("[]") {
                Some(element) => FieldType::Array(Box::new(FieldType::parse(element))),
                None => FieldType::Struct(text.to_owned()),
            },
        }
    }

    /// The schema's own word for the type.
    pub fn schema_name(&self) -> String {
        match self {
            FieldType::Bool => "bool".into(),
            FieldType::Int(bits) => format!("int{bits}"),
            FieldType::Uint16 => "uint16".into(),
            FieldType::Float64 => "float64".into(),
            FieldType::String => "string".into(),
            FieldType::Bytes => "bytes".into(),
            FieldType::Records => "records".into(),
            FieldType::Uuid => "uuid".into(),
            FieldType::Struct(name) => name.clone(),
            FieldType::Array(element) => format!("[]{}", element.schema_name()),
        }
    }

    /// The struct that this is, or that this is an array of.
    pub fn struct_name(&self) -> Option<&str> {
        match self {
            FieldType::Struct(name) => Some(name),
            FieldType::Array(element) => element.struct_name(),
            _ => None,
        }
    }
}

impl Message {
    /// The request and the response of an API.
    pub fn of_api(api: &ApiFile) -> Result<[Message; 2], String> {
        let message = |kind: &str, fields: &[FieldSchema]| {
            let name = format!("{}{kind}", api.name);
            let about = format!("The {} of {}. {}", kind.to_lowercase(), api.name, api.about);
            resolve(name, about, None, api.versions, api.flexible, fields)
        };
        Ok([message("Request", &api.request.fields)?, message("Response", &api.response.fields)?])
    }

    /// A message that belongs to no API.
    pub fn of_schema(schema: &MessageSchema) -> Result<Message, String> {
        let (name, about) = (schema.name.clone(), schema.about.clone());
        let (versions, flexible) = (schema.versions, schema.flexible);
        resolve(name, about, schema.record_key, versions, flexible, &schema.fields)
    }
}

fn resolve(
    name: String,
    about: String,
    record_key: Option<i16>,
    versions: Versions,
    flexible: Versions,
    fields: &[FieldSchema],
) -> Result<Message, String> {
    let mut resolver = Resolver { structs: Vec::new() };
    resolver
        .add_struct(&name, "", versions, fields)
        .map_err(|problem| format!("{name}: {problem}"))?;
    let mut structs = Vec::new();
    for found in &resolver.structs {
        let resolved = resolve_struct(found, flexible)
            .map_err(|problem| format!("{name}, {}: {problem}", found.name))?;
        structs.push(resolved);
    }
    for index in 0..structs.len() {
        structs[index].min_size = min_struct_size(&structs[index], &structs);
        if structs[index].min_size == 0 && index > 0 {
            return Err(format!("{name}: {} may take no bytes at all", structs[index].name));
        }
    }
    let module = snake_case(&name);
    Ok(Message { name, module, about, record_key, structs })
}

/// Collects the structs of a message and the versions in which each is used.
struct Resolver<'a> {
    structs: Vec<FoundStruct<'a>>,
}

struct FoundStruct<'a> {
    name: String,
    used_by: String,
    versions: Versions,
    fields: &'a [FieldSchema],
    /// Whether all fields have been walked: only then may it be referred to, so no struct can
    /// come to contain itself and decoding cannot recurse without bound.
    complete: bool,
}

impl<'a> Resolver<'a> {
    fn add_struct(
        &mut self,
        name: &str,
        used_by: &str,
        versions: Versions,
        fields: &'a [FieldSchema],
    ) -> Result<(), String> {
        if self.structs.iter().any(|found| found.name == name) {
            return Err(format!("{name} is defined twice"));
        }
        let index = self.structs.len();
        self.structs.push(FoundStruct {
            name: name.to_owned(),
            used_by: used_by.to_owned(),
            versions,
            fields,
            complete: false,
        });
        for field in fields {
            self.add_field(used_by, versions, field)?;
        }
        self.structs[index].complete = true;
        Ok(())
    }

    fn add_field(
        &mut self,
        parent: &str,
        versions: Versions,
        field: &'a FieldSchema,
    ) -> Result<(), String> {
        let field_type = FieldType::parse(&field.type_name);
        let Some(name) = field_type.struct_name() else {
            return Ok(());
        };
        let used_in = versions.intersect(field.versions);
        let path = match parent {
            "" => field.name.clone(),
            parent => format!("{parent}.{}", field.name),
        };
        if !field.fields.is_empty() {
            return self.add_struct(name, &path, used_in, &field.fields);
        }
        if !self.structs.iter().any(|found| found.name == name && found.complete) {
            return Err(format!("{path} uses {name}, which is not defined before it"));
        }
        self.widen(name, used_in);
        Ok(())
    }

    /// A further use of a struct, and so of the structs inside it.
    fn widen(&mut self, name: &str, used_in: Versions) {
        let Some(found) = self.structs.iter_mut().find(|found| found.name == name) else {
            return;
        };
        found.versions = found.versions.hull(used_in);
        let (versions, fields) = (found.versions, found.fields);
        for field in fields {
            if let Some(inner) = FieldType::parse(&field.type_name).struct_name() {
                self.widen(inner, versions.intersect(field.versions));
            }
        }
    }
}

fn resolve_struct(found: &FoundStruct<'_>, flexible: Versions) -> Result<Struct, String> {
    let versions = found.versions;
    let mut fields = Vec::new();
    for schema in found.fields {
        let field = resolve_field(schema, versions, flexible)
            .map_err(|problem| format!("{}: {problem}", schema.name))?;
        // A field that no version here carries would only be a way to get an error.
        if !field.versions.is_empty() {
            fields.push(field);
        }
    }
    let mut tags: Vec<u32> = fields.iter().filter_map(|field| field.tag).collect();
    tags.sort_unstable();
    if tags.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("a tag is used twice".into());
    }
    Ok(Struct {
        name: found.name.clone(),
        used_by: found.used_by.clone(),
        versions,
        flexible: flexible.intersect(versions),
        fields,
        min_size: 0,
    })
}

fn resolve_field(
    schema: &FieldSchema,
    versions: Versions,
    flexible: Versions,
) -> Result<Field, String> {
    let field_type = FieldType::parse(&schema.type_name);
    let carried = schema.versions.intersect(versions);
    let tagged = schema.tagged.intersect(carried);
    if schema.tag.is_some() == schema.tagged.is_empty() {
        return Err("a tag needs tagged versions, and the other way round".into());
    }
    // Fields untagged in early versions and tagged later do not fit the struct's layout of code.
    let tag = schema.tag.filter(|_| !tagged.is_empty());
    if tag.is_some() && tagged.intersect(flexible) != tagged {
        return Err("tagged in a version that is not flexible".into());
    }
    let stated = if tag.is_some() { schema.tagged } else { schema.versions };
    let carried = if tag.is_some() { tagged } else { carried };
    let nullable = schema.nullable.intersect(carried);
    let default = default_value(schema, &field_type, !nullable.is_empty())?;
    Ok(Field {
        rust_name: snake_case(&schema.name),
        name: schema.name.clone(),
        about: schema.about.clone(),
        field_type,
        stated_versions: stated,
        versions: carried,
        nullable,
        flexible: schema.flexible.unwrap_or(flexible).intersect(carried),
        tag,
        default,
        ignorable: schema.ignorable,
        key: schema.key,
    })
}

fn default_value(
    schema: &FieldSchema,
    field_type: &FieldType,
    nullable: bool,
) -> Result<DefaultValue, String> {
    let Some(value) = &schema.default else {
        // Kafka's own rule: records are the one type whose default is null wherever it may be.
        return Ok(match field_type {
            FieldType::Records if nullable => DefaultValue::Null,
            _ => DefaultValue::OfType,
        });
    };
    let default = match (field_type, value) {
        // "default null" of a field that is nullable in no version here falls back to the type's.
        (_, Value::Null) if nullable => Some(DefaultValue::Null),
        (_, Value::Null) => Some(DefaultValue::OfType),
        (FieldType::Bool, Value::Bool(true)) => Some(DefaultValue::True),
        (FieldType::Bool, Value::Bool(false)) => Some(DefaultValue::OfType),
        (FieldType::Int(_) | FieldType::Uint16, Value::Number(number)) => {
            number.as_i64().filter(|number| fits(*number, field_type)).map(|number| match number {
                0 => DefaultValue::OfType,
                number => DefaultValue::Int(number),
            })
        }
        (FieldType::String | FieldType::Bytes | FieldType::Records, Value::String(text)) => {
            text.is_empty().then_some(DefaultValue::OfType)
        }
        _ => None,
    };
    default.ok_or_else(|| format!("{value} is no default for {}", schema.type_name))
}

fn fits(number: i64, field_type: &FieldType) -> bool {
    match field_type {
        FieldType::Int(8) => i8::try_from(number).is_ok(),
        FieldType::Int(16) => i16::try_from(number).is_ok(),
        FieldType::Int(32) => i32::try_from(number).is_ok(),
        FieldType::Uint16 => u16::try_from(number).is_ok(),
        _ => true,
    }
}

/// The least bytes over all versions of a struct.
fn min_struct_size(current: &Struct, structs: &[Struct]) -> usize {
    let in_version = |version| {
        let carried = current
            .fields
            .iter()
            .filter(|field| field.tag.is_none() && field.versions.contains(version));
        let fields: usize = carried.map(|field| min_field_size(field, version, structs)).sum();
        fields + usize::from(current.flexible.contains(version))
    };
    (current.versions.first..=current.versions.last).map(in_version).min().unwrap_or(0)
}

fn min_field_size(field: &Field, version: i16, structs: &[Struct]) -> usize {
    let flexible = field.flexible.contains(version);
    match &field.field_type {
        FieldType::String if !flexible => 2,
        FieldType::Bytes | FieldType::Records | FieldType::Array(_) if !flexible => 4,
        FieldType::Struct(name) if !field.nullable.contains(version) => structs
            .iter()
            .find(|other| other.name == *name)
            .map_or(0, |found| min_struct_size(found, structs)),
        other => fixed_size(other),
    }
}

/// The least bytes that a value of a type takes as an element of an array of primitives.
pub fn fixed_size(field_type: &FieldType) -> usize {
    match field_type {
        FieldType::Int(bits) => usize::from(bits / 8),
        FieldType::Uint16 => 2,
        FieldType::Float64 => 8,
        FieldType::Uuid => 16,
        _ => 1,
    }
}

/// The name of an error code or an API in Rust: `NOT_CONTROLLER` becomes `NotController`.
pub fn variant_name(kafka_name: &str) -> String {
    camel_case(kafka_name)
}
