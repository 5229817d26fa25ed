//! The group of a random run: who belongs to it, and how its members come and go.

use std::time::Duration;

use anyhow::Result;

use super::super::clients::{Language, MemberSettings, SubscriberSettings};
use super::{Run, TOPIC};

const GROUP: &str = "g";
const SESSION: Duration = Duration::from_millis(1500);
const REBALANCE: Duration = Duration::from_millis(2000);
const INTERVAL: Duration = Duration::from_millis(100);

impl Run {
    pub(super) fn add_group(&mut self, partitions: i32) {
        for _ in 0..self.plan.members {
            self.add_classic(partitions);
        }
        for at in 0..self.plan.subscribers {
            self.add_subscriber(partitions, at == 0);
        }
    }

    fn add_classic(&mut self, partitions: i32) {
        // A group that may be converted must speak what the coordinator understands.
        let language =
            if self.plan.subscribers > 0 { Language::Consumer } else { Language::Opaque };
        let member = self.simulation.add_member(MemberSettings {
            group: GROUP.into(),
            topic: TOPIC.into(),
            partitions,
            session_timeout: SESSION,
            rebalance_timeout: REBALANCE,
            interval: INTERVAL,
            language,
        });
        self.group.push(member);
    }

    fn add_subscriber(&mut self, partitions: i32, is_static: bool) {
        let member = self.simulation.add_subscriber(SubscriberSettings {
            group: GROUP.into(),
            topic: TOPIC.into(),
            partitions,
            instance_id: is_static.then(|| "one".to_owned()),
            session_timeout: SESSION,
            rebalance_timeout: REBALANCE,
            interval: INTERVAL,
            revocation: Duration::from_millis(self.random.below(400)),
        });
        self.group.push(member);
    }

    /// A member goes, with a word or without, and another one comes, of either protocol.
    pub(super) fn change_group(&mut self) -> Result<()> {
        let Some(gone) = self.random.choose(&self.group).copied() else {
            return Ok(());
        };
        self.group.retain(|member| *member != gone);
        let (hangs, returns) = (self.random.one_in(3), self.random.one_in(3));
        let was_static = self.simulation.subscriber(gone).is_some_and(|member| member.is_static());
        if hangs {
            self.tell(format!("client {gone} hangs"));
            self.simulation.hang(gone);
        } else {
            self.tell(format!("client {gone} leaves, for a while: {returns}"));
            self.simulation.leave_group(gone, returns);
        }
        let partitions = self.plan.partitions.clamp(1, 3);
        // An instance id belongs to the new protocol here, so that it has one owner at most.
        if was_static || self.random.one_in(2) {
            self.add_subscriber(partitions, was_static);
        } else {
            self.add_classic(partitions);
        }
        Ok(())
    }
}
