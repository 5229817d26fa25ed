//! Single situations of the quorum, each from a fixed seed.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use controller::quorum::{FileQuorumStorage, QuorumRole, QuorumStorage};
use protocol::NodeId;

use crate::network::{CrashStorage, Network, STEP};

const LONG: Duration = Duration::from_secs(5);

fn fresh(voters: i32, seed: u64) -> Network<CrashStorage> {
    let mut network = Network::new(voters, seed);
    for id in network.voters.clone() {
        network.start(id, CrashStorage::default());
    }
    network
}

/// A fresh quorum with a settled leader that everybody follows.
fn settled(voters: i32, seed: u64) -> (Network<CrashStorage>, NodeId) {
    let mut network = fresh(voters, seed);
    let follows = |network: &Network<CrashStorage>| {
        let leader = network.leader();
        leader.is_some()
            && network.is_level()
            && network.members.values().all(|member| member.node.status().leader == leader)
            && network.members[&leader.unwrap()].node.status().is_settled_leader
    };
    assert!(network.run_until(LONG, follows), "a leader");
    let leader = network.leader().expect("a leader");
    (network, leader)
}

fn commit(network: &mut Network<CrashStorage>, leader: NodeId, data: &'static str) -> u64 {
    let index = network.propose(leader, data).expect("leads");
    let _ = network.drain(leader);
    let done = |network: &Network<CrashStorage>| network.committed.contains_key(&index);
    assert!(network.run_until(LONG, done), "{data} is committed");
    index
}

#[test]
fn a_single_voter_leads_and_commits_at_once() {
    let mut network = fresh(1, 1);
    network.step();
    let index = network.propose(NodeId(1), "decision").expect("leads");
    assert!(network.drain(NodeId(1)).is_ok(), "no crash");
    assert_eq!(network.committed[&index].1, "decision");
    assert!(network.members[&NodeId(1)].node.has_lease(network.clocks()), "Q03: never expires");
}

#[test]
fn a_fresh_quorum_elects_its_lowest_voter_within_tens_of_milliseconds() {
    let mut network = fresh(3, 7);
    let elected = |network: &Network<CrashStorage>| network.leader().is_some();
    assert!(network.run_until(Duration::from_millis(30), elected));
    assert_eq!(network.leader(), Some(NodeId(1)));
}

#[test]
fn the_lowest_voter_keeps_asking_until_a_peer_is_there() {
    let mut network = Network::<CrashStorage>::new(3, 7);
    network.start(NodeId(1), CrashStorage::default());
    network.run(Duration::from_millis(90));
    assert_eq!(network.leader(), None, "one of three is no majority");
    network.start(NodeId(3), CrashStorage::default());
    let elected = |network: &Network<CrashStorage>| network.leader().is_some();
    assert!(network.run_until(Duration::from_millis(40), elected));
    assert_eq!(network.leader(), Some(NodeId(1)));
}

#[test]
fn a_restarted_member_does_not_disturb_a_running_leader() {
    let (mut network, leader) = settled(3, 3);
    let epoch = network.members[&leader].node.status().epoch;
    for id in network.voters.clone().into_iter().filter(|id| *id != leader) {
        let storage = network.stop(id).after_crash();
        network.start(id, storage);
        network.run(Duration::from_millis(600));
        let status = network.members[&leader].node.status();
        assert_eq!((status.role, status.epoch), (QuorumRole::Leader, epoch), "after {id}");
    }
}

#[test]
fn a_member_cut_off_for_long_comes_back_without_an_election() {
    // Q04: many timeouts alone must not raise the epoch.
    let (mut network, leader) = settled(3, 5);
    let epoch = network.members[&leader].node.status().epoch;
    let lonely = *network.voters.iter().find(|id| **id != leader).expect("another");
    network.isolate(lonely, true);
    network.run(Duration::from_secs(3));
    assert_eq!(network.members[&lonely].node.status().epoch, epoch, "pre-vote raises nothing");
    network.heal();
    commit(&mut network, leader, "after the heal");
    assert!(network.run_until(LONG, |network| network.is_level()));
    assert_eq!(network.members[&leader].node.status().epoch, epoch);
}

#[test]
fn a_leader_without_a_majority_loses_its_lease_and_resigns() {
    // Q03.
    let (mut network, leader) = settled(5, 11);
    let others: Vec<_> = network.voters.iter().copied().filter(|id| *id != leader).collect();
    for other in &others[..3] {
        network.cut_pair(leader, *other);
    }
    network.cut_pair(others[3], others[0]);
    network.run(Duration::from_millis(250));
    assert!(!network.members[&leader].node.has_lease(network.clocks()), "heard one of four only");
    let resigned = move |network: &Network<CrashStorage>| {
        network.members[&leader].node.status().role != QuorumRole::Leader
    };
    assert!(network.run_until(LONG, resigned));
    let replaced =
        move |network: &Network<CrashStorage>| network.leader().is_some_and(|id| id != leader);
    assert!(network.run_until(LONG, replaced), "the majority elects");
}

#[test]
fn what_a_lost_minority_leader_proposed_is_never_committed() {
    let (mut network, leader) = settled(3, 13);
    network.isolate(leader, true);
    let lost = network.propose(leader, "lost").expect("still believes to lead");
    let _ = network.drain(leader);
    let replaced =
        move |network: &Network<CrashStorage>| network.leader().is_some_and(|id| id != leader);
    assert!(network.run_until(LONG, replaced));
    let successor = network.leader().expect("a leader");
    commit(&mut network, successor, "kept");
    network.heal();
    assert!(network.run_until(LONG, |network| network.is_level()));
    assert_ne!(network.committed[&lost].1, "lost");
    assert!(network.committed.values().all(|(_, data)| data != "lost"));
}

#[test]
fn the_loss_of_a_minority_stops_nothing_and_the_loss_of_a_majority_everything() {
    let (mut network, leader) = settled(3, 17);
    let others: Vec<_> = network.voters.iter().copied().filter(|id| *id != leader).collect();
    let first = network.stop(others[0]).after_crash();
    commit(&mut network, leader, "with two of three");
    let second = network.stop(others[1]).after_crash();
    let index = network.propose(leader, "with one of three").expect("leads still");
    network.run(Duration::from_secs(2));
    assert!(!network.committed.contains_key(&index));
    network.start(others[0], first);
    network.start(others[1], second);
    let level = |network: &Network<CrashStorage>| network.leader().is_some() && network.is_level();
    assert!(network.run_until(LONG, level));
}

#[test]
fn an_entry_of_a_leader_that_crashed_before_committing_is_taken_over_or_replaced_as_one() {
    for (seed, reaches_one) in (0..20).map(|seed| (seed, seed % 2 == 0)) {
        let (mut network, leader) = settled(3, seed);
        let others: Vec<_> = network.voters.iter().copied().filter(|id| *id != leader).collect();
        network.cut_pair(leader, others[0]);
        if !reaches_one {
            network.cut_pair(leader, others[1]);
        }
        let index = network.propose(leader, "in doubt").expect("leads");
        let _ = network.drain(leader);
        // Long enough for the entry to arrive, too short for the commit to be told further.
        network.run(STEP);
        let storage = network.stop(leader).after_crash();
        network.heal();
        let elected = |network: &Network<CrashStorage>| network.leader().is_some();
        assert!(network.run_until(LONG, elected));
        let successor = network.leader().expect("a leader");
        commit(&mut network, successor, "next");
        network.start(leader, storage);
        assert!(network.run_until(LONG, |network| network.is_level()));
        if reaches_one {
            // Two of three have it: only one of them can win (Q01).
            assert_eq!(network.committed[&index].1, "in doubt", "seed {seed}");
        } else {
            assert_ne!(network.committed[&index].1, "in doubt", "seed {seed}");
        }
    }
}

#[test]
fn a_vote_is_on_disk_before_it_is_told() {
    // Q01: a member whose disk fails while it stores its vote tells nobody.
    let mut network = Network::<CrashStorage>::new(3, 19);
    network.start(NodeId(1), CrashStorage::default());
    network.start(NodeId(2), CrashStorage::crashing_in(0));
    let mut crashed = Vec::new();
    for _ in 0..100 {
        crashed.extend(network.step());
    }
    assert_eq!(crashed.len(), 1);
    let (id, storage) = crashed.remove(0);
    assert_eq!((id, storage.after_crash().hard_state().vote), (NodeId(2), 0));
    assert!(network.leaders.is_empty(), "a vote that is not on disk elects nobody");
}

#[test]
fn a_leader_hands_over_on_request() {
    let (mut network, leader) = settled(3, 23);
    let now = network.clocks();
    let member = network.members.get_mut(&leader).expect("running");
    let successor = member.node.resign(&BTreeSet::new(), now).expect("there are others");
    assert!(!member.node.can_propose(), "nothing is taken while handing over");
    let _ = network.drain(leader);
    let done = move |network: &Network<CrashStorage>| network.leader() == Some(successor);
    assert!(network.run_until(Duration::from_millis(50), done), "no timeout is waited for (Q02)");
}

#[test]
fn a_voter_that_lags_behind_the_log_gets_a_snapshot() {
    let (mut network, leader) = settled(3, 29);
    let lagging = *network.voters.iter().find(|id| **id != leader).expect("another");
    let storage = network.stop(lagging).after_crash();
    for _ in 0..50 {
        commit(&mut network, leader, "a decision");
    }
    network.snapshot(leader, 3).expect("storage works");
    assert!(network.members[&leader].node.storage().first_index() > 40);
    network.start(lagging, storage);
    assert!(network.run_until(LONG, |network| network.is_level()));
    commit(&mut network, leader, "after the snapshot");
    assert!(network.run_until(LONG, |network| network.is_level()));
    assert!(network.members[&lagging].node.storage().snapshot_position().0 > 40);
}

#[test]
fn a_lost_snapshot_is_sent_again() {
    let (mut network, leader) = settled(3, 31);
    let lagging = *network.voters.iter().find(|id| **id != leader).expect("another");
    let storage = network.stop(lagging).after_crash();
    for _ in 0..20 {
        commit(&mut network, leader, "a decision");
    }
    network.snapshot(leader, 1).expect("storage works");
    network.start(lagging, storage);
    // Every message to it is lost, the snapshot too.
    network.run(Duration::from_millis(100));
    network.isolate(lagging, true);
    network.run(Duration::from_millis(300));
    network.heal();
    assert!(network.run_until(LONG, |network| network.is_level()));
}

#[test]
fn a_voter_that_lost_its_disk_is_filled_again() {
    let (mut network, leader) = settled(3, 37);
    for _ in 0..10 {
        commit(&mut network, leader, "a decision");
    }
    assert!(network.run_until(LONG, |network| network.is_level()));
    let other = *network.voters.iter().find(|id| **id != leader).expect("another");
    network.stop(other);
    network.start(other, CrashStorage::default());
    let epoch = network.members[&leader].node.status().epoch;
    assert!(network.run_until(LONG, |network| network.is_level()));
    assert_eq!(network.members[&leader].node.status().epoch, epoch, "nor is the leader disturbed");
}

#[test]
fn messages_that_no_voter_sends_are_refused() {
    let (mut network, leader) = settled(3, 41);
    let now = network.clocks();
    let node = &mut network.members.get_mut(&leader).expect("running").node;
    for garbage in [&b""[..], b"\x08\x02", b"\xff\xff\xff\xff", b"\x08\x03\x10\x02\x18\x63\x20\x01"]
    {
        let refused = node.step(Bytes::copy_from_slice(garbage), now);
        assert!(refused.is_err_and(|error| error.is_harmless()), "{garbage:?}");
    }
}

#[test]
fn three_members_on_files_go_on_where_they_were_after_a_restart() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().expect("a folder")).collect();
    let open = |at: usize| FileQuorumStorage::open(folders[at].path()).expect("readable");
    let mut network = Network::<FileQuorumStorage>::new(3, 43);
    for round in 0..4 {
        for id in 1..=3 {
            network.start(NodeId(id), open(id as usize - 1));
        }
        let elected = |network: &Network<_>| network.leader().is_some();
        assert!(network.run_until(LONG, elected));
        for n in 0..10 {
            let leader = network.leader().expect("a leader");
            let _ = network.propose(leader, format!("round {round} decision {n}"));
            let _ = network.drain(leader);
            network.run(STEP);
        }
        assert!(network.run_until(LONG, |network| network.is_level()));
        if round == 1 {
            network.snapshot(NodeId(1), 2).expect("storage works");
            network.snapshot(NodeId(3), 0).expect("storage works");
        }
        for id in 1..=3 {
            drop(network.stop(NodeId(id)));
        }
    }
    let decisions = network.committed.values().filter(|(_, data)| !data.is_empty()).count();
    assert_eq!(decisions, 40);
}
