//! Compiles every `proto/*.proto` of this crate to Rust, with a compiler written in Rust so that
//! a build needs no tools beyond cargo.

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    // The order of a folder's listing must not show in the output.
    files.sort();
    let descriptors = protox::compile(&files, [&folder])?;
    tonic_prost_build::configure().bytes(".highwater.control").compile_fds(descriptors)?;
    Ok(())
}
