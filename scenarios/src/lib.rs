//! The `scenarios` crate.
