//! The cluster as this node's controller has it, and the quorum. Every controller tells the cluster's
//! gauges, as Kafka's do; which one decides is told by `activecontrollercount`.

use controller::ClusterImage;
use controller::node::NodeStatus;
use controller::quorum::QuorumRole;
use protocol::NodeId;

use crate::metrics::text::{Labels, Page};
use crate::metrics::trace_counts::TraceNumbers;

/// A controller at one moment.
pub(in crate::metrics) struct ControllerFacts {
    pub(in crate::metrics) status: NodeStatus,
    /// `None` when the controller did not answer in time.
    pub(in crate::metrics) image: Option<ClusterImage>,
}

pub(in crate::metrics) fn add(page: &mut Page, facts: &ControllerFacts, trace: &TraceNumbers) {
    let controller = |name: &str| format!("kafka_controller_kafkacontroller_{name}");
    page.gauge(
        &controller("activecontrollercount"),
        "Whether this controller decides.",
        facts.status.is_active,
    );
    let committed = facts.status.high_watermark.get();
    page.gauge(
        &controller("lastappliedrecordoffset"),
        "The last offset of the metadata that this controller applied.",
        committed,
    );
    page.gauge(
        &controller("lastcommittedrecordoffset"),
        "The last offset that it knows to be committed; it applies each at once.",
        committed,
    );
    page.counter(
        &controller("newactivecontrollerscount"),
        "How often this controller became the one that decides.",
        trace.new_active_controllers.get(),
    );
    page.counter(
        &controller("timedoutbrokerheartbeatcount"),
        "Brokers fenced for their silence while this controller decided.",
        trace.timed_out_heartbeats.get(),
    );
    page.meter(
        "kafka_controller_controllerstats_uncleanleaderelections",
        "Leaders elected from outside the ISR while this controller decided.",
        trace.unclean_elections.get(),
    );
    page.meter(
        "kafka_controller_controllerstats_electionfromeligibleleaderreplicas",
        "Leaders elected from the eligible leader replicas while this controller decided.",
        trace.eligible_elections.get(),
    );
    if let Some(image) = &facts.image {
        add_cluster(page, image);
    }
    add_quorum(page, &facts.status);
}

fn add_cluster(page: &mut Page, image: &ClusterImage) {
    let controller = |name: &str| format!("kafka_controller_kafkacontroller_{name}");
    let brokers = image.brokers();
    let (fenced, active): (Vec<_>, Vec<_>) = brokers.partition(|broker| broker.fenced);
    let (mut partitions, mut offline, mut imbalanced) = (0usize, 0usize, 0usize);
    for (_, _, partition) in image.partitions() {
        partitions += 1;
        offline += usize::from(partition.leader == NodeId::NONE);
        imbalanced += usize::from(partition.replicas.first() != Some(&partition.leader));
    }
    for (name, help, number) in [
        ("activebrokercount", "Brokers that are registered and not fenced.", active.len()),
        ("fencedbrokercount", "Brokers that are registered and fenced.", fenced.len()),
        ("globaltopiccount", "Topics of the cluster.", image.topics().count()),
        ("globalpartitioncount", "Partitions of the cluster.", partitions),
        ("offlinepartitionscount", "Partitions that nobody leads.", offline),
        (
            "preferredreplicaimbalancecount",
            "Partitions that another replica than the preferred one leads.",
            imbalanced,
        ),
    ] {
        page.gauge(&controller(name), help, number);
    }
}

fn add_quorum(page: &mut Page, status: &NodeStatus) {
    let raft = |name: &str| format!("kafka_server_raft_metrics_{name}");
    let state = match status.role {
        QuorumRole::Follower => "follower",
        QuorumRole::Prospective => "prospective",
        QuorumRole::Candidate => "candidate",
        QuorumRole::Leader => "leader",
    };
    page.gauges(
        &raft("current_state_info"),
        "This voter's role in the quorum.",
        [(Labels::of(&[("state", state)]), 1)],
    );
    page.gauge(
        &raft("current_leader"),
        "The quorum's leader; -1 when none is known.",
        status.leader.map_or(-1, NodeId::get),
    );
    page.gauge(&raft("current_epoch"), "The quorum's epoch.", status.epoch);
    page.gauge(
        &raft("high_watermark"),
        "The offset after the last committed one.",
        status.high_watermark.get() + 1,
    );
}
