//! Writes the structs of a message: definition, defaults, decoding and encoding.

use super::fields::{
    condition, decode_value, default_value, encode_value, has_plain_default, is_set, rust_type,
};
use super::model::{Field, Message, Struct};
use super::names::{identifier, json_name};
use super::schema::Versions;
use super::writer::Writer;

/// Writes all structs of a message.
pub fn write_message(writer: &mut Writer, message: &Message) {
    for (index, current) in message.structs.iter().enumerate() {
        let main = index == 0;
        write_definition(writer, message, current, main);
        write_default(writer, current);
        writer.line(format!("impl Message for {} {{", current.name));
        writer.line(format!("const NAME: &'static str = \"{}\";", current.name));
        let Versions { first, last } = current.versions;
        writer.line(format!("const VERSIONS: RangeInclusive<i16> = {first}..={last};"));
        writer.line(format!("const MIN_SIZE: usize = {};", current.min_size));
        writer.line("");
        write_decode(writer, current, main);
        writer.line("");
        write_encode(writer, current, main);
        writer.line("}");
        writer.line("");
    }
    if let Some(key) = message.record_key {
        writer.line(format!("impl {} {{", message.name));
        writer.doc("The int16 that stands before the key of such a record.");
        writer.line(format!("pub const RECORD_KEY: i16 = {key};"));
        writer.line("}");
    }
}

fn write_definition(writer: &mut Writer, message: &Message, current: &Struct, main: bool) {
    let versions = current.versions;
    if main {
        writer.doc(&message.about);
        writer.line("///");
        writer.doc(&format!("Versions {versions}, flexible: {}.", current.flexible));
    } else {
        writer.doc(&format!(
            "`{}` of [`{}`], versions {versions}.",
            current.used_by, message.structs[0].name
        ));
    }
    let derive_default =
        if current.fields.iter().all(has_plain_default) { ", Default" } else { "" };
    writer.line(format!("#[derive(Clone, Debug, PartialEq{derive_default})]"));
    writer.line(format!("pub struct {} {{", current.name));
    for field in &current.fields {
        write_field_doc(writer, field);
        writer.line(format!("pub {}: {},", identifier(&field.rust_name), rust_type(field)));
    }
    if !current.flexible.is_empty() {
        writer.doc("Tagged fields that this schema does not know.");
        writer.line("pub unknown_tagged_fields: Vec<UnknownTaggedField>,");
    }
    writer.line("}");
    writer.line("");
}

/// What the field holds, then its facts: type, versions, nullability, tag, default.
fn write_field_doc(writer: &mut Writer, field: &Field) {
    if !field.about.is_empty() {
        writer.doc(&field.about);
        writer.line("///");
    }
    let mut facts = format!(
        "`{}` `{}`, versions {}",
        json_name(&field.name),
        field.field_type.schema_name(),
        field.stated_versions
    );
    if field.nullable == field.versions {
        facts += ", nullable";
    } else if !field.nullable.is_empty() {
        facts += &format!(", nullable in {}", field.nullable);
    }
    if let Some(tag) = field.tag {
        facts += &format!(", tag {tag}");
    }
    if let Some(default) = super::fields::default_in_words(field) {
        facts += &format!(", default {default}");
    }
    if field.ignorable {
        facts += ", ignorable";
    }
    if field.key {
        facts += ", key";
    }
    writer.doc(&(facts + "."));
}

fn write_default(writer: &mut Writer, current: &Struct) {
    if current.fields.iter().all(has_plain_default) {
        return;
    }
    writer.line(format!("impl Default for {} {{", current.name));
    writer.line("fn default() -> Self {");
    writer.line("Self {");
    for field in &current.fields {
        writer.line(format!("{}: {},", identifier(&field.rust_name), default_value(field)));
    }
    if !current.flexible.is_empty() {
        writer.line("unknown_tagged_fields: Vec::new(),");
    }
    writer.line("}");
    writer.line("}");
    writer.line("}");
    writer.line("");
}

/// Binds `flexible` where the answer depends on the version and something asks.
fn write_flexible(writer: &mut Writer, current: &Struct) {
    let test = condition(current.flexible, current.versions);
    if let Some(test) = test.filter(|test| test != "false") {
        writer.line(format!("let flexible = {test};"));
    }
}

/// Whether the struct has a section of tagged fields: never, always, or when `flexible`.
enum TagSection {
    Never,
    Always,
    Sometimes,
}

fn tag_section(current: &Struct) -> TagSection {
    match condition(current.flexible, current.versions).as_deref() {
        None => TagSection::Always,
        Some("false") => TagSection::Never,
        Some(_) => TagSection::Sometimes,
    }
}

fn write_version_check(writer: &mut Writer, error: &str) {
    writer.line("if !Self::VERSIONS.contains(&version) {");
    writer.line(format!(
        "return Err({error}::UnsupportedVersion {{ message: Self::NAME, version }});"
    ));
    writer.line("}");
}

fn write_decode(writer: &mut Writer, current: &Struct, main: bool) {
    let uses_version = main || uses_version(current);
    let version = if uses_version { "version" } else { "_version" };
    writer.line(format!(
        "fn decode(decoder: &mut Decoder, {version}: i16) -> Result<Self, DecodeError> {{"
    ));
    if main {
        write_version_check(writer, "DecodeError");
    }
    write_flexible(writer, current);
    let tagged: Vec<&Field> = current.fields.iter().filter(|field| field.tag.is_some()).collect();
    let section = tag_section(current);
    let binding = match section {
        TagSection::Never => "Ok(Self {",
        _ => "let mut decoded = Self {",
    };
    writer.line(binding);
    for field in &current.fields {
        write_decode_field(writer, field, current);
    }
    if matches!(section, TagSection::Never) {
        writer.line("})");
    } else {
        writer.line("unknown_tagged_fields: Vec::new(),");
        writer.line("};");
        let sometimes = matches!(section, TagSection::Sometimes);
        if sometimes {
            writer.line("if flexible {");
        }
        write_decode_tags(writer, &tagged, current);
        if sometimes {
            writer.line("}");
        }
        writer.line("Ok(decoded)");
    }
    writer.line("}");
}

fn write_decode_field(writer: &mut Writer, field: &Field, current: &Struct) {
    let name = identifier(&field.rust_name);
    let default = default_value(field);
    if field.tag.is_some() {
        writer.line(format!("{name}: {default},"));
        return;
    }
    let value = decode_value(field, field.versions);
    match condition(field.versions, current.versions) {
        None => writer.line(format!("{name}: {value},")),
        Some(test) => {
            writer.line(format!("{name}: if {test} {{ {value} }} else {{ {default} }},"));
        }
    }
}

fn write_decode_tags(writer: &mut Writer, tagged: &[&Field], current: &Struct) {
    if tagged.is_empty() {
        writer.line(
            "decoded.unknown_tagged_fields = decoder.get_tagged_fields(&mut |_, _| Ok(false))?;",
        );
        return;
    }
    writer.line("decoded.unknown_tagged_fields = decoder.get_tagged_fields(&mut |decoder, tag| {");
    writer.line("match tag {");
    let flexible = current.flexible;
    for field in tagged {
        let tag = field.tag.unwrap_or_default();
        let guard = match condition(field.versions, flexible) {
            None => String::new(),
            Some(test) => format!(" if {test}"),
        };
        let name = identifier(&field.rust_name);
        let value = decode_value(field, field.versions);
        writer.line(format!("{tag}{guard} => decoded.{name} = {value},"));
    }
    writer.line("_ => return Ok(false),");
    writer.line("}");
    writer.line("Ok(true)");
    writer.line("})?;");
}

fn write_encode(writer: &mut Writer, current: &Struct, main: bool) {
    let section = tag_section(current);
    let uses_version = main
        || uses_version(current)
        || matches!(section, TagSection::Sometimes)
        || current.fields.iter().any(|field| {
            let lacking = condition(field.versions, current.versions).is_some();
            lacking && !field.ignorable
        });
    let version = if uses_version { "version" } else { "_version" };
    writer.line(format!(
        "fn encode(&self, encoder: &mut Encoder, {version}: i16) -> Result<(), EncodeError> {{"
    ));
    if main {
        write_version_check(writer, "EncodeError");
    }
    write_flexible(writer, current);
    for field in &current.fields {
        write_encode_field(writer, field, current);
    }
    match section {
        TagSection::Never => writer.line("Ok(())"),
        TagSection::Always => write_encode_tags(writer, current),
        TagSection::Sometimes => {
            writer.line("if !flexible {");
            writer.line(
                "return check_no_tagged_fields(&self.unknown_tagged_fields, Self::NAME, version);",
            );
            writer.line("}");
            write_encode_tags(writer, current);
        }
    }
    writer.line("}");
}

fn write_encode_field(writer: &mut Writer, field: &Field, current: &Struct) {
    let test = condition(field.versions, current.versions);
    let refuse =
        format!("return Err(unsupported_field(Self::NAME, \"{}\", version));", field.rust_name);
    let set = is_set(field);
    if field.tag.is_some() {
        if let Some(test) = test.filter(|_| !field.ignorable) {
            writer.line(format!("if {} && {set} {{", negated(&test)));
            writer.line(refuse);
            writer.line("}");
        }
        return;
    }
    if let Some(test) = &test {
        writer.line(format!("if {test} {{"));
    }
    write_null_check(writer, field);
    writer.line(encode_value(field) + ";");
    if test.is_some() {
        if !field.ignorable {
            writer.line(format!("}} else if {set} {{"));
            writer.line(refuse);
        }
        writer.line("}");
    }
}

/// Refuses null in those versions of the field that allow none.
fn write_null_check(writer: &mut Writer, field: &Field) {
    if field.nullable.is_empty() {
        return;
    }
    let Some(test) = condition(field.nullable, field.versions) else {
        return;
    };
    let name = identifier(&field.rust_name);
    writer.line(format!("if {} && self.{name}.is_none() {{", negated(&test)));
    writer.line(format!("return Err(null_field(Self::NAME, \"{}\", version));", field.rust_name));
    writer.line("}");
}

fn write_encode_tags(writer: &mut Writer, current: &Struct) {
    let mut tagged: Vec<&Field> =
        current.fields.iter().filter(|field| field.tag.is_some()).collect();
    tagged.sort_by_key(|field| field.tag);
    if tagged.is_empty() {
        writer.line("encoder.put_unknown_tagged_fields(&self.unknown_tagged_fields)");
        return;
    }
    writer.line("let known = [");
    for field in &tagged {
        let tag = field.tag.unwrap_or_default();
        let defined =
            condition(field.versions, current.flexible).unwrap_or_else(|| "true".to_owned());
        writer.line(format!(
            "KnownTag {{ tag: {tag}, defined: {defined}, set: {} }},",
            is_set(field)
        ));
    }
    writer.line("];");
    writer.line("encoder.put_tagged_fields(&self.unknown_tagged_fields, &known, &|encoder, tag| {");
    let only_one = tagged.len() == 1;
    if !only_one {
        writer.line("match tag {");
    }
    for field in &tagged {
        let tag = field.tag.unwrap_or_default();
        writer.line(match only_one {
            true => format!("if tag == {tag} {{"),
            false => format!("{tag} => {{"),
        });
        write_null_check(writer, field);
        writer.line(encode_value(field) + ";");
        writer.line("}");
    }
    if !only_one {
        writer.line("_ => {}");
        writer.line("}");
    }
    writer.line("Ok(())");
    writer.line("})");
}

/// Whether reading or writing the carried fields looks at the version.
fn uses_version(current: &Struct) -> bool {
    matches!(tag_section(current), TagSection::Sometimes)
        || current.fields.iter().any(|field| {
            let partly_carried = match field.tag {
                None => condition(field.versions, current.versions).is_some(),
                Some(_) => condition(field.versions, current.flexible).is_some(),
            };
            partly_carried
                || field.field_type.struct_name().is_some()
                || (!field.nullable.is_empty() && field.nullable != field.versions)
        })
}

fn negated(test: &str) -> String {
    match test.split_once(" >= ") {
        Some((version, first)) if !test.contains('(') => format!("{version} < {first}"),
        _ => match test.split_once(" <= ") {
            Some((version, last)) if !test.contains('(') => format!("{version} > {last}"),
            _ => format!("!({test})"),
        },
    }
}
