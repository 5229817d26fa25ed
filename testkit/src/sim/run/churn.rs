//! The group of a random run: who belongs to it, and how its members come and go.

use std::time::Duration;

use super::super::clients::{Language, MemberSettings, SubscriberSettings};
use super::{Run, TOPIC};

const GROUP: &str = "g";
const SESSION: Duration = Duration::from_millis(1500);
const REBALANCE: Duration = Duration::from_millis(2000);
const INTERVAL: Duration = Duration::from_millis(100);

impl Run<'_> {
    pub(super) fn add_classic(&mut self) {
        // A group that may be converted must speak what the coordinator understands.
        let language =
            if self.plan.subscribers > 0 { Language::Consumer } else { Language::Opaque };
        let member = self.simulation.add_member(MemberSettings {
            group: GROUP.into(),
            topic: TOPIC.into(),
            partitions: self.partitions(),
            session_timeout: SESSION,
            rebalance_timeout: REBALANCE,
            interval: INTERVAL,
            language,
        });
        self.group.push(member);
    }

    pub(super) fn add_subscriber(&mut self, is_static: bool, revocation: Duration) {
        let member = self.simulation.add_subscriber(SubscriberSettings {
            group: GROUP.into(),
            topic: TOPIC.into(),
            partitions: self.partitions(),
            instance_id: is_static.then(|| "one".to_owned()),
            session_timeout: SESSION,
            rebalance_timeout: REBALANCE,
            interval: INTERVAL,
            revocation,
        });
        self.group.push(member);
    }

    /// A member goes, with a word or without, and another one comes, of either protocol.
    pub(super) fn change_group(
        &mut self,
        which: u64,
        (hangs, returns): (bool, bool),
        classic: bool,
        revocation: Duration,
    ) {
        if self.group.is_empty() {
            return;
        }
        let gone = self.group.remove(which as usize % self.group.len());
        let was_static = self.simulation.subscriber(gone).is_some_and(|member| member.is_static());
        if hangs {
            self.tell(format!("client {gone} hangs"));
            self.simulation.hang(gone);
        } else {
            self.tell(format!("client {gone} leaves, for a while: {returns}"));
            self.simulation.leave_group(gone, returns);
        }
        // An instance id belongs to the new protocol here, so that it has one owner at most.
        if was_static || !classic {
            self.add_subscriber(was_static, revocation);
        } else {
            self.add_classic();
        }
    }
}
