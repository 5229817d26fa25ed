//! Events in a few signs, for the columns of a story.

use protocol::{NodeId, PartitionEpoch, TopicPartition};
use replication::trace::{Event, Nodes};

fn nodes(nodes: &Nodes) -> String {
    let ids: Vec<String> = nodes.0.iter().map(ToString::to_string).collect();
    format!("{{{}}}", ids.join(","))
}

/// The event in a few signs, and whether it is the controller's rather than a broker's. `None` for
/// what a story leaves out.
pub(super) fn short(event: &Event) -> Option<(String, bool)> {
    let broker = |text: String| Some((text, false));
    let controller = |text: String| Some((text, true));
    match event {
        Event::AppendedAsLeader { base_offset, log_end, .. } => {
            broker(format!("write [{base_offset},{log_end})"))
        }
        Event::AppendedAsFollower { base_offset, log_end, .. } => {
            broker(format!("copy [{base_offset},{log_end})"))
        }
        Event::HighWatermarkMoved { from, to, .. } => broker(format!("hw {from}>{to}")),
        Event::FollowerProgressed { replica, to, .. } => broker(format!("b{replica} is at {to}")),
        Event::BecameLeader { leader_epoch, epoch_start, .. } => {
            broker(format!("lead e{leader_epoch} from {epoch_start}"))
        }
        Event::BecameFollower { leader, leader_epoch, .. } if *leader == NodeId::NONE => {
            broker(format!("no leader e{leader_epoch}"))
        }
        Event::BecameFollower { leader, leader_epoch, .. } => {
            broker(format!("follow b{leader} e{leader_epoch}"))
        }
        Event::Truncated { from, to, .. } => broker(format!("cut {from}>{to}")),
        Event::TruncatedFully { to, .. } => broker(format!("emptied, start {to}")),
        Event::FetchDiverged {
            reader,
            fetch_offset,
            last_fetched_epoch,
            epoch,
            end_offset,
            ..
        } => broker(format!(
            "b{reader} ({fetch_offset},e{last_fetched_epoch}): e{epoch} ends {end_offset}"
        )),
        Event::IsrProposed { to, .. } => broker(format!("ask ISR {}", nodes(to))),
        Event::IsrRejected { error_code, .. } => broker(format!("ISR refused {error_code}")),
        Event::FetchStopped { error_code, .. } => broker(format!("stop fetching: {error_code}")),
        Event::LogRecovered { log_end, high_watermark, .. } => {
            broker(format!("recover end {log_end} hw {high_watermark}"))
        }
        Event::NodeStarted { .. } => broker("start".into()),
        Event::NodeStopped { .. } => broker("stopped".into()),
        Event::NodeCrashed { .. } => broker("crash".into()),
        Event::LeaderElected { to, leader_epoch, isr, clean, .. } => {
            let who = if *to == NodeId::NONE { "nobody".into() } else { format!("b{to}") };
            let how = if *clean { "" } else { " unclean" };
            controller(format!("leader {who} e{leader_epoch} ISR {}{how}", nodes(isr)))
        }
        Event::BrokerFenced { broker, .. } => controller(format!("fence b{broker}")),
        Event::BrokerUnfenced { broker, .. } => controller(format!("unfence b{broker}")),
        _ => None,
    }
}

/// A change of the ISR with its partition epoch: both the controller and the leader tell of it.
pub(super) fn isr_change(event: &Event) -> Option<(String, PartitionEpoch)> {
    match event {
        Event::IsrChanged { to, partition_epoch, .. } => {
            Some((format!("ISR {}", nodes(to)), *partition_epoch))
        }
        _ => None,
    }
}

/// Whether the event concerns the partition, or no partition at all.
pub(super) fn concerns(event: &Event, partition: &TopicPartition) -> bool {
    event.partition().is_none_or(|its| its == partition)
}
