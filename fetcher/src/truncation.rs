//! Where a follower cuts its log when the leader says that they diverge (rules T03, T04, T05; KIP-101,
//! KIP-279, KIP-320).

use protocol::{LeaderEpoch, Offset};

/// The leader's word: the largest epoch it knows at or below ours, and where that ended there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DivergingEpoch {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its end in the leader's log, exclusive.
    pub end_offset: Offset,
}

/// The offset at which the follower's log has to end now.
///
/// `own` is the follower's own largest epoch at or below the leader's, with its end. When that is
/// another epoch, the leader's end says nothing about our records of it: cut to our end of that
/// epoch, and let the next fetch compare it (T03). One cut per fetch, until the epochs meet (T04).
pub fn truncation_offset(
    leader: DivergingEpoch,
    own: Option<(LeaderEpoch, Offset)>,
    log_end_offset: Offset,
) -> Offset {
    let offset = match own {
        Some((epoch, end)) if epoch == leader.epoch => end.min(leader.end_offset),
        Some((_, end)) => end,
        // No epoch of ours is that old: nothing below the leader's end can be told apart.
        None => leader.end_offset,
    };
    offset.min(log_end_offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diverging(epoch: i32, end: i64) -> DivergingEpoch {
        DivergingEpoch {
            epoch: LeaderEpoch(epoch),
            end_offset: Offset(end),
        }
    }

    #[test]
    fn t03_an_epoch_the_follower_lacks_cuts_to_the_end_of_the_epoch_below_it() {
        let own = Some((LeaderEpoch(1), Offset(10)));
        assert_eq!(
            truncation_offset(diverging(2, 20), own, Offset(15)),
            Offset(10)
        );
    }

    #[test]
    fn a_shared_epoch_cuts_to_the_shorter_end() {
        let own = Some((LeaderEpoch(1), Offset(2)));
        assert_eq!(
            truncation_offset(diverging(1, 1), own, Offset(2)),
            Offset(1)
        );
        assert_eq!(
            truncation_offset(diverging(1, 5), own, Offset(2)),
            Offset(2)
        );
    }

    #[test]
    fn without_own_epochs_the_leaders_end_decides() {
        assert_eq!(
            truncation_offset(diverging(0, 3), None, Offset(8)),
            Offset(3)
        );
        assert_eq!(
            truncation_offset(diverging(0, 30), None, Offset(8)),
            Offset(8)
        );
    }
}
