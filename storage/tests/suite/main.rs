//! Tests of the log through its public surface: against Kafka's own files, against crashes, and
//! against a naive model.

mod append;
mod cleaner;
mod cleaner_golden;
mod cleaner_model;
mod cleaner_world;
mod common;
mod golden;
mod kafka_tools;
mod log_dir;
mod mem_disk;
mod model;
mod recovery;
mod retention;
mod truncation;
