//! Record batches against Kafka's own bytes, against themselves, and against bytes made to be wrong.

mod codecs;
mod golden;
mod malformed;
mod produce;
mod properties;
mod support;
