//! A response as it leaves a simulated broker: file slices are read now, as `sendfile` does (F08).

use broker::core::replicas::ReplicaManager;
use protocol::{Records, ResponseBody};
use storage::Disk;

use super::network::RpcAnswer;

/// Reads the slices of a response. One that cannot be read breaks the connection and takes its log directory
/// offline.
pub(super) fn as_sent<D: Disk>(body: ResponseBody, replicas: &ReplicaManager<D>) -> RpcAnswer {
    let ResponseBody::Fetch(mut fetch) = body else {
        return RpcAnswer::Kafka(body);
    };
    for partition in fetch.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
        let Some(Records::File(region)) = &partition.records else {
            continue;
        };
        match region.read() {
            Ok(bytes) => partition.records = Some(Records::Bytes(bytes)),
            Err(error) => {
                if let Some(folder) = region.folder() {
                    replicas.on_unreadable_folder(folder, &error);
                }
                return RpcAnswer::Broken;
            }
        }
    }
    RpcAnswer::Kafka(ResponseBody::Fetch(fetch))
}
