//! What a random run may do.

use std::time::Duration;

use super::draw::Theme;

/// Which faults a run may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Processes that die and keep what they gave to the system.
    pub crashes: bool,
    /// Machines that die; one at a time, see [`crate::invariants::FaultModel`].
    pub lossy_crashes: bool,
    /// Clean stops.
    pub stops: bool,
    /// Freezes.
    pub freezes: bool,
    /// Cuts, one way and both, of all messages or of one plane.
    pub cuts: bool,
    /// Messages lost.
    pub loss: bool,
    /// Messages held back for a while, all of a kind or a single one.
    pub holds: bool,
    /// Messages that take longer.
    pub slow: bool,
    /// Wall clocks that jump.
    pub clock_jumps: bool,
    /// Wall clocks that go too fast or too slow.
    pub clock_drifts: bool,
    /// Disks that take long.
    pub slow_disks: bool,
    /// Disks that are full or fail, until the node is started again.
    pub broken_disks: bool,
    /// Bits that flip at rest, in what a batch's checksum covers, on one disk at a time, which is then replaced:
    /// as much as one machine that loses everything, and claimed under the same condition.
    pub bit_flips: bool,
    /// Partitions that get other replicas.
    pub reassignments: bool,
    /// Preferred leaders elected.
    pub elections: bool,
    /// Controllers that make snapshots so often that who falls behind gets one.
    pub snapshots: bool,
}

impl Faults {
    /// All of them.
    pub const ALL: Faults = Faults {
        crashes: true,
        lossy_crashes: true,
        stops: true,
        freezes: true,
        cuts: true,
        loss: true,
        holds: true,
        slow: true,
        clock_jumps: true,
        clock_drifts: true,
        slow_disks: true,
        broken_disks: true,
        bit_flips: true,
        reassignments: true,
        elections: true,
        snapshots: true,
    };

    /// None.
    pub const NONE: Faults = Faults {
        crashes: false,
        lossy_crashes: false,
        stops: false,
        freezes: false,
        cuts: false,
        loss: false,
        holds: false,
        slow: false,
        clock_jumps: false,
        clock_drifts: false,
        slow_disks: false,
        broken_disks: false,
        bit_flips: false,
        reassignments: false,
        elections: false,
        snapshots: false,
    };
}

/// What a random run does.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// For how long faults happen, in virtual time.
    pub duration: Duration,
    /// The mean pause between two faults.
    pub pause: Duration,
    /// The single faults.
    pub faults: Faults,
    /// The incidents of several faults that runs draw from.
    pub themes: Vec<Theme>,
    /// The pause between two batches of a producer; zero to draw it.
    pub interval: Duration,
    /// Partitions of the topic.
    pub partitions: i32,
    /// How long the healed cluster may take.
    pub patience: Duration,
    /// min.insync.replicas; 0 to draw it.
    pub min_isr: i32,
    /// Whether unclean elections are allowed.
    pub unclean: bool,
    /// Members of a classic consumer group beside the other clients.
    pub members: usize,
    /// Members of the new protocol in the same group; members of both kinds then come and go.
    pub subscribers: usize,
    /// Whether the topic, and the groups', are compacted, with small segments and an eager cleaner.
    pub cleaning: bool,
    /// The historical bugs that are on.
    #[cfg(feature = "historical-bugs")]
    pub bugs: Vec<replication::bugs::Bug>,
}

impl Default for RunPlan {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(6),
            pause: Duration::from_millis(400),
            faults: Faults::ALL,
            themes: Theme::ALL.to_vec(),
            interval: Duration::ZERO,
            partitions: 1,
            patience: Duration::from_secs(40),
            min_isr: 0,
            unclean: false,
            members: 0,
            subscribers: 0,
            cleaning: false,
            #[cfg(feature = "historical-bugs")]
            bugs: Vec::new(),
        }
    }
}
