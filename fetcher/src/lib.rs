//! The `fetcher` crate.
