//! The quorum over a network that loses, delays, reorders and cuts, one thread, virtual time, from
//! seeds: rules Q01 to Q04 and invariant I13.

mod network;
mod stories;
mod storms;
