//! Generates the messages, the API keys and the error codes from `schemas/*.json`. The
//! generator itself is in `build/`.

#[path = "build/mod.rs"]
mod generator;

use std::env;
use std::path::Path;
use std::process::exit;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=schemas");
    let (Some(root), Some(out)) = (env::var_os("CARGO_MANIFEST_DIR"), env::var_os("OUT_DIR"))
    else {
        eprintln!("to be run by cargo");
        exit(1);
    };
    let options = generator::Options { reflect: env::var_os("CARGO_FEATURE_JSON").is_some() };
    if let Err(error) =
        generator::generate(&Path::new(&root).join("schemas"), Path::new(&out), options)
    {
        eprintln!("{error}");
        exit(1);
    }
}
