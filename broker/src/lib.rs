//! The `broker` crate.
