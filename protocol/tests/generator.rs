//! The generator itself: what it can express that no schema uses yet, and what it refuses.

#[allow(dead_code)]
#[path = "../build/mod.rs"]
mod generator;

use generator::{Options, Schemas, add_file, render};

const ERRORS: &str = r#"{ "about": "", "errors": [ { "code": 0, "name": "NONE" } ] }"#;
const HEADERS: &str = r#"{ "about": "", "messages": [
    { "name": "RequestHeader", "about": "", "versions": "1-3", "flexible": "2+", "fields": [
        { "name": "ClientId", "type": "string", "versions": "1+", "nullable": "1+", "flexible": "none" },
        { "name": "ClientInstanceId", "type": "uuid", "versions": "3+", "tagged": "3+", "tag": 0 } ] },
    { "name": "ResponseHeader", "about": "", "versions": "0-1", "flexible": "1+", "fields": [] } ] }"#;

/// An API whose header rows and request fields are given.
fn api(headers: &str, fields: &str) -> String {
    format!(
        r#"{{ "about": "", "name": "Push", "key": 72, "kafka_name": "PUSH", "listeners": ["broker"],
            "versions": "0-1", "latest_stable": 0, "flexible": "0+", "headers": [ {headers} ],
            "request": {{ "fields": [ {fields} ] }}, "response": {{ "fields": [] }} }}"#
    )
}

const V3_ROWS: &str = r#"{ "versions": "0", "request": 2, "response": 1 },
                         { "versions": "1", "request": 3, "response": 1 }"#;

/// The generated files in one text, or what the generator says against them.
fn generate(api: &str) -> Result<String, String> {
    let mut schemas = Schemas::default();
    add_file(&mut schemas, "errors.json", ERRORS)?;
    add_file(&mut schemas, "headers.json", HEADERS)?;
    add_file(&mut schemas, "push.json", api)?;
    let files = render(&schemas, Options { reflect: false })?;
    Ok(files.into_iter().map(|(path, text)| format!("// {}\n{text}", path.display())).collect())
}

#[test]
fn a_third_request_header_with_a_tagged_id_can_be_expressed() {
    let text = generate(&api(V3_ROWS, "")).expect("generates");
    assert!(text.contains("HeaderRow { from: 0, request: 2, response: 1 },"), "{text}");
    assert!(text.contains("HeaderRow { from: 1, request: 3, response: 1 },"), "{text}");
    let tag = "KnownTag { tag: 0, defined: version >= 3, set: !self.client_instance_id.is_zero() }";
    assert!(text.contains(tag), "{text}");
    assert!(text.contains("client_id: decoder.get_nullable_string(false)?,"), "{text}");
    // Not ignorable, so a header below version 3 cannot lose it silently.
    assert!(text.contains("if version < 3 && !self.client_instance_id.is_zero() {"), "{text}");
}

#[track_caller]
fn refused(api: &str, because: &str) {
    match generate(api) {
        Ok(_) => panic!("accepted, although {because}"),
        Err(problem) => assert!(problem.contains(because), "{problem:?} does not say {because:?}"),
    }
}

#[test]
fn header_rows_must_cover_every_version_and_name_headers_that_exist() {
    refused(
        &api(r#"{ "versions": "0", "request": 2, "response": 1 }"#, ""),
        "end before version 1",
    );
    refused(&api(r#"{ "versions": "1", "request": 2, "response": 1 }"#, ""), "skip version 0");
    let missing = r#"{ "versions": "0-1", "request": 4, "response": 1 }"#;
    refused(&api(missing, ""), "a header that does not exist");
}

#[test]
fn a_struct_cannot_contain_itself_so_decoding_cannot_recurse_without_bound() {
    let fields = r#"{ "name": "Nodes", "type": "[]Node", "versions": "0+", "fields": [
        { "name": "Children", "type": "[]Node", "versions": "0+" } ] }"#;
    refused(&api(V3_ROWS, fields), "not defined before it");
}

#[test]
fn contradicting_facts_are_refused() {
    let field =
        |facts: &str| api(V3_ROWS, &format!(r#"{{ "name": "Field", "versions": "0+", {facts} }}"#));
    refused(&field(r#""type": "int8", "default": 128"#), "no default for int8");
    refused(&field(r#""type": "int32", "default": "x""#), "no default for int32");
    refused(&field(r#""type": "int32", "tag": 0"#), "needs tagged versions");
    refused(&field(r#""type": "int32", "nullible": "0+""#), "unknown field `nullible`");
    refused(&field(r#""type": "Unknown""#), "not defined before it");
    let twice = r#"{ "name": "A", "type": "int8", "versions": "0+", "tagged": "0+", "tag": 4 },
                   { "name": "B", "type": "int8", "versions": "0+", "tagged": "0+", "tag": 4 }"#;
    refused(&api(V3_ROWS, twice), "a tag is used twice");
}

#[test]
fn every_field_is_documented_with_its_facts() {
    let fields = r#"{ "name": "ThrottleTimeMs", "type": "int32", "versions": "1+", "default": -1,
        "ignorable": true, "about": "How long." }"#;
    let text = generate(&api(V3_ROWS, fields)).expect("generates");
    assert!(text.contains("/// How long.\n"), "{text}");
    let facts = "/// `throttleTimeMs` `int32`, versions 1+, default -1, ignorable.\n";
    assert!(text.contains(facts), "{text}");
}
