//! What the trace tells of the controller's decisions, and why each was made.

use replication::trace::{Event, Why};

use super::directories::dir;
use super::*;
use crate::events;

impl Cluster {
    /// The events of what `act` does, by name, each with its reason.
    fn told(&mut self, act: impl FnOnce(&mut Self)) -> Vec<(&'static str, Why)> {
        let before = self.follower.clone();
        act(self);
        let delta = ImageDelta::between(&before, &self.follower);
        let events = events::between(&before, &self.follower, &delta);
        events.iter().map(|event: &Event| (event.name(), event.why())).collect()
    }
}

#[test]
fn a_leader_that_is_silent_stops_or_starts_anew_is_told_with_its_reason() {
    let mut cluster = Cluster::with_topic();
    let told = cluster.told(|cluster| cluster.fence(1));
    assert_eq!(
        told,
        [("BrokerFenced", Why::HeartbeatTimeout), ("LeaderElected", Why::HeartbeatTimeout)]
    );
    let told = cluster.told(|cluster| cluster.unfence(1));
    assert_eq!(told, [("BrokerUnfenced", Why::HeartbeatCaughtUp)]);
    cluster.set_isr(&[2, 3, 1]);
    let told = cluster.told(|cluster| {
        cluster.heartbeat(2, Wish { shut_down: true, ..Wish::default() });
    });
    assert_eq!(
        told,
        [
            ("BrokerShuttingDown", Why::ControlledShutdown),
            ("LeaderElected", Why::ControlledShutdown)
        ]
    );
    cluster.pass(20_000);
    let told = cluster.told(|cluster| assert_eq!(cluster.register(1, 250).error_code, 0));
    assert_eq!(
        told,
        [("BrokerRegistered", Why::Registration), ("LeaderElected", Why::Registration)]
    );
}

#[test]
fn a_follower_that_goes_and_one_that_joins_are_changes_of_the_isr_with_their_reasons() {
    let mut cluster = Cluster::with_topic();
    let told = cluster.told(|cluster| cluster.fence(3));
    assert_eq!(
        told,
        [("BrokerFenced", Why::HeartbeatTimeout), ("IsrChanged", Why::HeartbeatTimeout)]
    );
    cluster.unfence(3);
    let told = cluster.told(|cluster| cluster.set_isr(&[1, 2, 3]));
    assert_eq!(told, [("IsrChanged", Why::IsrConfirmed)]);
    let told = cluster.told(|cluster| cluster.set_isr(&[1, 2]));
    assert_eq!(told, [("IsrChanged", Why::IsrConfirmed)]);
}

#[test]
fn a_failed_directory_and_the_leaders_it_costs_are_told_c08() {
    let mut cluster = Cluster::with_dirs();
    let told = cluster.told(|cluster| {
        cluster.report_failed(1, &[dir(1, 1)]);
    });
    assert_eq!(
        told,
        [("DirectoryLost", Why::LogDirectoryFailed), ("LeaderElected", Why::LogDirectoryFailed)]
    );
}

#[test]
fn a_topic_comes_with_its_first_leaders_and_goes_alone_i01() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    let told = cluster.told(|cluster| cluster.create(&[&[1, 2], &[2, 3]], &[]));
    let elected = ("LeaderElected", Why::LeaderChosenByController);
    assert_eq!(told, [("TopicCreated", Why::TopicLifecycle), elected, elected]);
    let told = cluster.told(|cluster| {
        let topic_names = vec![TOPIC.to_owned()];
        let request = protocol::messages::DeleteTopicsRequest { topic_names, ..Default::default() };
        cluster.ask(5, request);
    });
    assert_eq!(told, [("TopicDeleted", Why::TopicLifecycle)]);
}

#[test]
fn the_last_member_s_end_leaves_nobody_to_lead_and_that_is_told() {
    let mut cluster = Cluster::of(&[1]);
    cluster.create(&[&[1]], &[]);
    let told = cluster.told(|cluster| cluster.fence(1));
    assert_eq!(
        told,
        [("BrokerFenced", Why::HeartbeatTimeout), ("LeaderElected", Why::NoLeaderAvailable)]
    );
}

#[test]
fn leaders_elected_without_an_isr_are_told_with_their_reason_c06() {
    let mut cluster = Cluster::of(&[1, 2]);
    cluster.create(&[&[1, 2]], &[("min.insync.replicas", "2")]);
    cluster.fence(1);
    cluster.fence(2);
    let told = cluster.told(|cluster| cluster.unfence(1));
    let unfenced = ("BrokerUnfenced", Why::HeartbeatCaughtUp);
    assert_eq!(told, [unfenced, ("LeaderElected", Why::EligibleLeader)]);
    cluster.unfence(2);
    cluster.set_isr(&[1, 2]);
    cluster.fence(1);
    cluster.fence(2);
    cluster.pass(10_000);
    assert_eq!(cluster.register(1, 201).error_code, 0);
    assert_eq!(cluster.register(2, 202).error_code, 0);
    let told = cluster.told(|cluster| {
        cluster.unfence(1);
        cluster.unfence(2);
    });
    assert_eq!(told[2..], [("LeaderElected", Why::LastKnownLeader)]);
}
