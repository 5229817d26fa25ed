//! The `storage` crate.
