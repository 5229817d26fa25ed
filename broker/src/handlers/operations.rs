//! Authorized operations (KIP-430), as a set of bits: without access control, all that exist for the
//! kind of resource. Bit numbers are those of Kafka's operations: 3 read, 4 write, 5 create, 6 delete,
//! 7 alter, 8 describe, 9 cluster action, 10 describe configs, 11 alter configs, 12 idempotent write.

/// The client did not ask.
pub(super) const NOT_ASKED: i32 = i32::MIN;
/// All operations on a cluster.
pub(super) const CLUSTER: i32 = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;
/// All operations on a group.
pub(super) const GROUP: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;
/// All operations on a topic.
pub(super) const TOPIC: i32 =
    1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;
