//! The rules behind the events: each with its id in the list of rules, its KIP where it has one, and
//! a sentence.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! whys {
    ($($name:ident = $rule:literal, $kip:expr, $text:literal;)*) => {
        /// Why something was decided. The one-line form carries the rule's id and KIP.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum Why {
            $(#[doc = concat!($text, " (", $rule, ")")] $name,)*
        }

        impl Why {
            /// Every reason, in the order of the rules.
            pub const ALL: &'static [Why] = &[$(Why::$name),*];

            /// The rule's id.
            pub fn rule(self) -> &'static str {
                match self { $(Why::$name => $rule,)* }
            }

            /// The KIP that introduced the rule.
            pub fn kip(self) -> Option<u16> {
                match self { $(Why::$name => $kip,)* }
            }

            /// The rule in a few words.
            pub fn text(self) -> &'static str {
                match self { $(Why::$name => $text,)* }
            }
        }
    };
}

whys! {
    TruncateByEpochOnly = "T01", Some(101), "a restart cuts nothing; only a leader's epochs do";
    FloorOfUnknownEpoch = "T03", Some(279), "the leader's epoch is not known here, so cut to the end of the one below and ask again";
    CommonEpochEnd = "T04", Some(279), "both logs know the epoch, so cut to its smaller end";
    LogsDiverge = "T05", Some(320), "the reader's epoch is unknown here or ends before its offset";
    NewEpochRestartsFetching = "T07", Some(101), "every new leader epoch restarts the fetcher, even under the same leader";
    DivergingMovesNothing = "T08", Some(320), "a diverging answer moves no watermark";
    EpochMismatch = "T09", Some(320), "no truncation and no append across different epochs";
    StaleFetchAnswer = "T10", None, "the answer belongs to an earlier state of the fetcher";
    LeaderNotReady = "T09", Some(320), "the leader has not heard of this epoch yet, or cannot serve now";
    LeaderOutOfReach = "T09", None, "the leader does not answer, or refuses everything";
    BelowLeaderLogStart = "T11", None, "the leader's log starts beyond ours, so start there";
    BeyondLeaderLogEnd = "T11", None, "the leader's log ends before ours, so cut to its end";
    RecoveredFromDisk = "T12", Some(101), "what the disk kept, up to the last whole batch";
    LeaderToldUs = "H01", Some(101), "the leader's high watermark, bounded by our log end";
    MaximalIsrHasIt = "H03", Some(497), "every replica that may be in the ISR has it";
    ProposalOutstanding = "H03", Some(497), "the ISR may change only as the controller confirms";
    ProposalRejected = "H03", Some(497), "the controller refused for certain, so the confirmed ISR holds";
    AwaitingMetadata = "H03", Some(497), "the controller knows better, so the maximal ISR stays until its metadata arrives";
    ProposalUncertain = "H13", Some(497), "whether the change happened is not known, so it is asked again";
    IsrConfirmed = "H04", Some(497), "the controller confirmed the ISR, and the watermark may move at once";
    CaughtUpToEpochStart = "H05", Some(320), "the follower has reached the high watermark and the epoch's start";
    UnderMinIsr = "H06", Some(966), "nothing commits under min.insync.replicas";
    NotEnoughReplicas = "H07", None, "too few in-sync replicas";
    LaggingTooLong = "H09", None, "behind the leader for longer than replica.lag.time.max.ms";
    IneligibleReplica = "H10", Some(841), "a fenced or stopping broker may not join";
    StaleBrokerEpoch = "H11", Some(903), "the fetch is from before the broker registered again";
    CheckpointedWatermark = "H12", None, "the checkpointed high watermark, brought into the log";
    OffsetNotAvailableYet = "H02", Some(207), "the latest offset never goes backwards for clients";
    OlderEpochFenced = "E01", Some(320), "the requester's leader epoch is not ours";
    NotLeading = "E01", Some(320), "only the leader answers this";
    ReadByIsolation = "F03", Some(98), "readers see no more than their isolation allows";
    OutsideTheLog = "F03", None, "the offset is outside the log";
    ReplicaReadsToEnd = "F03", None, "replicas read to the log's end";
    AppendedByLeader = "H01", Some(101), "the leader appends, followers pull";
    FetchedFromLeader = "H01", Some(101), "followers append what the leader has";
    AcksSatisfied = "H07", None, "the acknowledgement asked for is reached";
    LeaderChosenByController = "C04", Some(631), "the controller's record names the leader";
    EligibleLeader = "C06", Some(966), "nobody is in the ISR, and an eligible leader replica has all of it";
    LastKnownLeader = "C06", Some(966), "nobody is in the ISR or eligible, and who led last is back";
    UncleanElection = "C05", None, "nobody in the ISR is alive and unclean election is allowed";
    NoLeaderAvailable = "C04", None, "no replica may lead";
    PreferredElection = "C04", None, "the preferred replica is in the ISR again";
    HeartbeatTimeout = "C01", Some(631), "no heartbeat within the session timeout";
    HeartbeatCaughtUp = "C02", Some(631), "the broker has read its own registration";
    Registration = "C02", Some(631), "every start of a broker is a new registration";
    ControlledShutdown = "C03", Some(631), "leaders move before a broker stops";
    Reassignment = "C07", Some(455), "a reassignment moves replicas";
    LogDirectoryFailed = "C08", Some(112), "the log directory failed";
    TopicLifecycle = "I01", Some(516), "a topic is its id";
    RecordsDeleted = "I02", Some(107), "records below were deleted, and followers learn it from the leader";
    Retention = "I02", None, "retention deletes the oldest segments";
    QuorumElection = "Q01", Some(595), "a majority of the controllers voted";
    FaultInjected = "C01", None, "a fault was injected";
    OperatorRequest = "C04", None, "somebody asked for it";
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kip() {
            Some(kip) => write!(f, "{} ({}, KIP-{kip})", self.text(), self.rule()),
            None => write!(f, "{} ({})", self.text(), self.rule()),
        }
    }
}
