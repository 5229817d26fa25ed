//! The metrics themselves, by what they tell of. Names and labels are those that Kafka's MBeans get from
//! the usual JMX exporter rules; what Kafka has no name for begins with `highwater_`.
//!
//! | file | what it tells |
//! |---|---|
//! | `node.rs` | the node, its process and threads, the request log |
//! | `network.rs` | connections, bytes by the way they took |
//! | `requests.rs` | requests by API: counts, errors, times, sizes; fetch sessions' bytes |
//! | `topics.rs` | messages and bytes by topic |
//! | `replicas.rs` | the replica manager: counts, purgatories, sessions, log directories, cleaner |
//! | `partitions.rs` | every partition and its log |
//! | `fetchers.rs` | the fetch loops of this broker as a follower |
//! | `controller.rs` | the cluster as a controller sees it, and the quorum |
//! | `groups.rs` | the groups whose coordinator this broker is |

pub(super) mod controller;
pub(super) mod fetchers;
pub(super) mod groups;
pub(super) mod network;
pub(super) mod node;
pub(super) mod partitions;
pub(super) mod replicas;
pub(super) mod requests;
pub(super) mod topics;
