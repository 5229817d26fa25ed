//! The rules of replication as tests, one module per KIP or subject. Names of rules (T01, H05, ...)
//! are those of the list of replication rules. Whole-cluster rules are played by hand: a few partition
//! states, small logs in memory and a controller of one partition ([`support`]).

mod support;

mod admission;
mod fetch_answers;
mod kip_101;
mod kip_207;
mod kip_279;
mod kip_320;
mod kip_392;
mod kip_497;
mod kip_841;
mod kip_903;
mod kip_966;
mod lag;
mod random_histories;
mod trace;
mod watermark;
