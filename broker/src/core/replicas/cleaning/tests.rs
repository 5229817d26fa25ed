//! The cleaner over logs that an earlier broker left behind; no metadata is needed for them.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::records::{BatchBuilder, BatchViews, ReadBuffer};
use protocol::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, RequestBody, TopicIdPartition, TopicPartition, Uuid,
};
use replication::time::{Instant, Now};
use replication::trace::NoTrace;
use storage::{Identity, LeaderAppendOptions, LogConfig, LogDir, RealDisk};

use crate::core::host::{
    Clock, ControllerLink, ControllerReply, FetcherLink, FollowedPartition, Host, NoCertificates,
};
use crate::core::replicas::{OpenReplicas, ReplicaManager, ReplicaManagerConfig, open_dirs};

const WALL_MS: i64 = 1_700_000_000_000;

#[derive(Clone, Default)]
struct TestClock(Arc<Mutex<Duration>>);

impl Clock for TestClock {
    fn now(&self) -> Now {
        let passed = *self.0.lock();
        let wall_clock_ms = WALL_MS + i64::try_from(passed.as_millis()).unwrap_or(0);
        Now { monotonic: Instant(passed), wall_clock_ms }
    }
}

struct Nobody;

impl ControllerLink for Nobody {
    fn call(&self, _: i16, _: RequestBody, _: Duration, _: ControllerReply) {}
}

impl FetcherLink for Nobody {
    fn change(&self, _: Vec<TopicIdPartition>, _: Vec<FollowedPartition>) {}
}

fn identity() -> Identity {
    Identity { cluster_id: "cleaning".into(), node_id: NodeId(1) }
}

fn batch(keys: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new(Offset(0));
    for key in keys {
        builder.append(WALL_MS, Some(key.as_bytes()), Some(b"value"), []).expect("fits");
    }
    builder.build().expect("builds")
}

/// Writes the logs of topic `t`: a closed segment with keys twice, and an active one. All of it is
/// below the high watermark.
fn write_logs(root: &Path, partitions: i32) {
    let now = TestClock::default().now();
    let dir = LogDir::open(&RealDisk, root, &identity(), Uuid([9; 16])).expect("ours");
    let mut logs = Vec::new();
    for at in 0..partitions {
        let partition = TopicPartition::new("t", at);
        let made = dir.create_log(&partition, Uuid([7; 16]), LogConfig::default(), now);
        let mut log = made.expect("made");
        for roll in [true, false] {
            for _ in 0..20 {
                let options = LeaderAppendOptions::CLIENT;
                let batch = batch(&["a", "b", "c"]);
                log.append_as_leader(&batch, LeaderEpoch(0), options, now).expect("appended");
            }
            if roll {
                log.roll(now).expect("rolls");
            }
        }
        logs.push(log);
    }
    let ends =
        logs.iter().map(|log| (log.topic_partition().clone(), log.log_end_offset())).collect();
    dir.shut_down(logs.iter_mut(), &ends, BrokerEpoch(1)).expect("stops");
}

struct World {
    clock: TestClock,
    replicas: Arc<ReplicaManager<RealDisk>>,
    root: tempfile::TempDir,
}

fn world(partitions: i32, configs: &[(&str, &str)], damage: impl FnOnce(&Path)) -> World {
    let root = tempfile::tempdir().expect("a temporary folder");
    write_logs(root.path(), partitions);
    damage(root.path());
    let clock = TestClock::default();
    let nobody = Arc::new(Nobody);
    let host = Host {
        clock: Arc::new(clock.clone()),
        controller: nobody.clone(),
        fetchers: nobody,
        certificates: Arc::new(NoCertificates),
        trace: Arc::new(NoTrace),
        wake_by: Arc::new(|_| {}),
    };
    let defaults = [("log.cleanup.policy", "compact"), ("log.cleaner.io.buffer.size", "300")];
    let configs = defaults.iter().chain(configs);
    let hour = Duration::from_secs(3600);
    let config = ReplicaManagerConfig {
        node: NodeId(1),
        replica_lag_time_max: hour,
        fetch_max_bytes: 1 << 20,
        high_watermark_checkpoint_interval: hour,
        recovery_point_checkpoint_interval: hour,
        log_start_checkpoint_interval: hour,
        retention_check_interval: hour,
        rack_aware_selector: false,
        static_configs: Arc::new(
            configs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ),
        fetch_session_slots: 1,
        seed: 1,
    };
    let paths = [root.path().to_path_buf()];
    let dirs = open_dirs(&RealDisk, &paths, &identity(), || Uuid([9; 16])).expect("ours");
    let open = OpenReplicas { disk: &RealDisk, dirs, recovery_threads: 1 };
    let replicas = ReplicaManager::open(open, config, host).expect("opens");
    World { clock, replicas, root }
}

impl World {
    /// Ticks until the cleaner wants to rest; gives how many ticks that took.
    fn tick_until_idle(&self) -> usize {
        for ticks in 1..10_000 {
            if self.replicas.on_cleaner_tick() > self.clock.now().monotonic {
                return ticks;
            }
        }
        panic!("the cleaner never rests");
    }

    fn offsets(&self, partition: i32) -> Vec<i64> {
        let found = self.replicas.partition(&TopicPartition::new("t", partition), Uuid::ZERO);
        let found = found.expect("online");
        let replica = found.lock();
        let mut offsets = Vec::new();
        let mut next = Offset(0);
        while next < replica.log.log_end_offset() {
            let info = replica.log.read(next, 1 << 20, replica.log.log_end(), true);
            let bytes = info.expect("reads").records.read().expect("reads");
            for view in BatchViews::new(&bytes) {
                let view = view.expect("whole");
                next = view.next_offset();
                let mut buffer = ReadBuffer::new();
                let records = view.records(&mut buffer, 1 << 20).expect("readable");
                offsets.extend(records.map(|record| record.expect("sound").offset.0));
            }
        }
        offsets
    }

    fn checkpoint(&self) -> String {
        let path = self.root.path().join("cleaner-offset-checkpoint");
        fs::read_to_string(path).unwrap_or_default()
    }
}

/// What is left of [`write_logs`]: the last of each key in the closed segment, and the active one.
fn cleaned() -> Vec<i64> {
    (57..120).collect()
}

#[test]
fn dirty_logs_are_cleaned_in_small_steps_and_the_checkpoint_says_so() {
    let world = world(3, &[], |_| {});
    assert!(world.tick_until_idle() > 20, "each step is small");
    for partition in 0..3 {
        assert_eq!(world.offsets(partition), cleaned());
    }
    assert_eq!(world.checkpoint(), "0\n3\nt 0 60\nt 1 60\nt 2 60\n");
    assert_eq!(world.tick_until_idle(), 1, "nothing is dirty any more");
    // The next look comes after log.cleaner.backoff.ms.
    let now = world.clock.now().monotonic;
    assert_eq!(world.replicas.on_cleaner_tick(), now + Duration::from_secs(15));
}

#[test]
fn several_threads_work_on_several_logs_and_less_than_the_ratio_is_left_alone() {
    let threads = [("log.cleaner.threads", "2"), ("log.cleaner.backoff.ms", "7")];
    let world = world(2, &threads, |_| {});
    world.tick_until_idle();
    assert_eq!((world.offsets(0), world.offsets(1)), (cleaned(), cleaned()));
    let lazy = self::world(1, &[("log.cleaner.min.cleanable.ratio", "1.0")], |_| {});
    lazy.tick_until_idle();
    assert_eq!(lazy.offsets(0).len(), 120);
}

#[test]
fn log_cleaner_enable_turns_it_off() {
    let world = world(1, &[("log.cleaner.enable", "false")], |_| {});
    assert_eq!(world.tick_until_idle(), 1);
    assert_eq!(world.offsets(0).len(), 120);
    assert_eq!(world.checkpoint(), "");
}

#[test]
fn the_throttle_spreads_the_work_over_time() {
    let world = world(1, &[("log.cleaner.io.max.bytes.per.second", "1000")], |_| {});
    let mut ticks = 0;
    while world.offsets(0).len() == 120 {
        let next = world.replicas.on_cleaner_tick();
        *world.clock.0.lock() = next.0;
        ticks += 1;
        assert!(ticks < 10_000);
    }
    // The closed segment is read twice; it has more than 2 KB.
    let took = world.clock.now().monotonic.0;
    assert!(took > Duration::from_secs(4), "{took:?}");
    assert!(took < Duration::from_secs(12), "{took:?}");
}

#[test]
fn a_damaged_log_is_left_alone_and_serves_on_while_others_are_cleaned() {
    let world = world(2, &[], |root| {
        let path = root.join("t-0").join("00000000000000000000.log");
        let mut bytes = fs::read(&path).expect("there");
        bytes[200] ^= 1;
        fs::write(&path, bytes).expect("written");
    });
    world.tick_until_idle();
    assert_eq!(world.offsets(1), cleaned());
    assert_eq!(world.offsets(0).len(), 120, "as it was");
    assert_eq!(world.replicas.online_partitions().len(), 2);
    assert_eq!(world.checkpoint(), "0\n1\nt 1 60\n");
    assert_eq!(world.replicas.cleaner.lock().uncleanable.len(), 1);
}

#[test]
fn a_truncation_lowers_the_checkpoint_before_it_cuts() {
    let world = world(1, &[], |_| {});
    world.tick_until_idle();
    assert_eq!(world.checkpoint(), "0\n1\nt 0 60\n");
    let partition = world.replicas.online_partitions()[0].id().clone();
    world.replicas.before_truncation(&partition, Offset(60));
    assert_eq!(world.checkpoint(), "0\n1\nt 0 60\n");
    world.replicas.before_truncation(&partition, Offset(30));
    assert_eq!(world.checkpoint(), "0\n1\nt 0 30\n");
}

#[test]
fn stopping_in_the_middle_leaves_whole_logs_and_no_file_of_the_cleaner() {
    for ticks in [1, 5, 20, 30, 40] {
        let world = world(1, &[], |_| {});
        for _ in 0..ticks {
            world.replicas.on_cleaner_tick();
        }
        world.replicas.shut_down();
        let later = world.replicas.on_cleaner_tick();
        assert!(later > world.clock.now().monotonic, "it does no more");
        let names = fs::read_dir(world.root.path().join("t-0")).expect("listed");
        for name in names {
            let name = name.expect("listed").file_name().into_string().expect("text");
            assert!(!name.ends_with(".cleaned") && !name.ends_with(".swap"), "{name}");
        }
        assert_eq!(world.offsets(0).last(), Some(&119));
    }
}
