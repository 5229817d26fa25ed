//! The rules of replication: plain, synchronous state machines without clocks, files or sockets.

pub mod time;
