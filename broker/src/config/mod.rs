//! What a node is told: properties files, `KAFKA_` environment variables and `--set` pairs, merged and
//! checked into one typed [`BrokerConfig`](broker_config::BrokerConfig).

pub mod environment;
pub mod properties;
