//! The metadata quorum and what it decides: who is in the cluster, which topics exist, who leads
//! each partition, and the configs.
//!
//! Two halves. The pure half: [`records`] (what is decided), [`image`] (what the records add up
//! to, on brokers and controllers alike), [`config`] (the catalogue of config keys), [`placement`]
//! (where new replicas go) and [`state`] (the active controller: Kafka's requests and time in,
//! records and answers out). The other half replicates the records: the quorum, its log, and the
//! service that brokers call.
//!
//! The order that keeps an answer true: a decision changes the working image at once, its records
//! go to the quorum as one batch, and its response leaves only when that batch is committed. A
//! controller that loses its leadership drops the working image and starts again from the committed
//! one.

pub mod client;
pub mod config;
pub mod events;
pub mod handshake;
pub mod image;
pub mod node;
pub mod placement;
pub mod quorum;
pub mod records;
pub mod rpc;
pub mod state;

pub use config::{ConfigCatalogue, ConfigResource, ConfigResourceType, ConfigSource};
pub use image::{
    ApplyError, BrokerImage, BrokerListener, ClusterImage, ImageDelta, LeaderRecoveryState,
    PartitionImage, TopicImage,
};
pub use records::MetadataRecord;
