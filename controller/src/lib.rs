//! The `controller` crate.
