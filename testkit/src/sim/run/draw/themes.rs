//! The themes: incidents of several faults that belong together, with random times.

use std::time::Duration;

use super::super::super::network::{Kind, Plane};
use super::super::event::{Act, Messages, Who};
use super::{ALTER, ALTERED, Drawing, FETCHED, FETCHES, of};

/// A theme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Theme {
    /// A follower's fetch is still on its way when the follower's machine dies and comes back (H11).
    LateFetch,
    /// A leader hears nothing of what the controller decides about an ISR that changes (H03).
    DeafLeader,
    /// A follower comes back behind, while the leader goes and what is sent to it is slow (H05).
    LateJoiner,
    /// A leader that nobody can fetch from any more (H04, H06).
    Lonely,
    /// A node goes, perhaps for a moment, while a change of an ISR is under way (H13).
    RestartInChange,
    /// Replicas and leaders move, there and back (T07, C07).
    Moves,
    /// A node hears nothing of the metadata for long, then everything, perhaps as a snapshot.
    BehindInMetadata,
    /// Leader after leader goes.
    Dominoes,
}

impl Theme {
    /// All of them.
    pub const ALL: [Theme; 8] = [
        Theme::LateFetch,
        Theme::DeafLeader,
        Theme::LateJoiner,
        Theme::Lonely,
        Theme::RestartInChange,
        Theme::Moves,
        Theme::BehindInMetadata,
        Theme::Dominoes,
    ];
}

fn when(messages: Messages, then: Act) -> Act {
    Act::When { messages, then: Box::new(then) }
}

impl Drawing<'_> {
    /// Adds a theme's events from `at` on; gives how long until the next thing may begin.
    pub(super) fn add_theme(&mut self, theme: Theme, at: Duration) -> Duration {
        let partition = self.partition();
        let leader = Who::Leader(partition);
        let follower = Who::Follower(partition, self.random.below(2) as usize);
        match theme {
            Theme::LateFetch => self.late_fetch(at, leader, follower),
            Theme::DeafLeader => self.deaf_leader(at, leader, follower),
            Theme::LateJoiner => self.late_joiner(at, leader, follower),
            Theme::Lonely => {
                let lasts = self.millis(3000, 6000);
                let plane = Plane::Data;
                self.add(at, Act::Isolate { who: leader, plane, lasts });
                lasts / 2
            }
            Theme::RestartInChange => {
                let who = if self.random.one_in(2) { leader } else { follower };
                let (lasts, down) = (self.millis(3100, 4000), self.down());
                if self.random.one_in(2) {
                    let cut = Act::Cut {
                        from: leader,
                        to: follower,
                        both_ways: true,
                        plane: Plane::Data,
                        lasts,
                    };
                    self.add(at, cut);
                } else {
                    let down = self.millis(1900, 3500);
                    self.add(at, Act::Crash { who: follower, down });
                }
                let kind = if self.random.one_in(2) { ALTER } else { ALTERED };
                self.add(at, when(of(kind, None, None), Act::Crash { who, down }));
                lasts
            }
            Theme::Moves => {
                let (there, back) = (self.reassign(), self.reassign());
                let pause = self.millis(50, 1500);
                self.add(at, there);
                self.add(at + pause, Act::Elect { partition });
                self.add(at + pause * 2, back);
                pause * 2
            }
            Theme::BehindInMetadata => {
                let who = self.who();
                let lasts = self.millis(1500, 5000);
                let messages = of(Kind::MetadataAnswer, None, Some(who));
                let arrives = self.random.one_in(3);
                self.add(at, Act::Hold { messages, limit: usize::MAX, arrives, lasts });
                if self.random.one_in(2) {
                    let messages = of(Kind::Raft, None, Some(who));
                    self.add(at, Act::Hold { messages, limit: usize::MAX, arrives: false, lasts });
                }
                lasts / 4
            }
            Theme::Dominoes => {
                let mut when = at;
                for _ in 0..self.random.between(2, 4) {
                    let down = self.millis(1900, 4000);
                    self.add(when, Act::Crash { who: leader, down });
                    when += self.millis(1900, 3500);
                }
                when - at
            }
        }
    }

    fn late_fetch(&mut self, at: Duration, leader: Who, follower: Who) -> Duration {
        let fetches = of(FETCHES, Some(follower), Some(leader));
        let (down, lasts) = (self.millis(0, 200), self.millis(300, 2500));
        self.add(at, Act::Hold { messages: fetches, limit: 1, arrives: true, lasts });
        // What it asks for when it is back does not arrive so soon.
        let longer = lasts + self.millis(0, 1500);
        let messages =
            if self.random.one_in(2) { fetches } else { of(FETCHED, Some(leader), Some(follower)) };
        let hold = Act::Hold { messages, limit: usize::MAX, arrives: true, lasts: longer };
        self.add(at, when(fetches, hold));
        self.add(at, when(fetches, Act::PowerCut { who: follower, down }));
        longer
    }

    fn deaf_leader(&mut self, at: Duration, leader: Who, follower: Who) -> Duration {
        let away = if self.random.one_in(2) {
            let down = self.millis(1900, 4000);
            self.add(at, Act::Crash { who: follower, down });
            down
        } else {
            // Beyond the lag limit, and until the leader has said so.
            let (from, to, plane) = (leader, follower, Plane::Data);
            let lasts = self.millis(4500, 6000);
            self.add(at, Act::Cut { from, to, both_ways: true, plane, lasts });
            lasts
        };
        // As soon as it asks for a change, or from about then on.
        let from = at + away - self.millis(0, 300);
        let asks = self.random.one_in(3);
        // Who was caught up is waited for until the lag limit is over (H03): deaf for longer than that.
        let lasts = self.millis(1500, 7000);
        for kind in [ALTERED, Kind::MetadataAnswer] {
            let messages = of(kind, None, Some(leader));
            let arrives = self.random.one_in(2);
            let hold = Act::Hold { messages, limit: usize::MAX, arrives, lasts };
            self.add(from, if asks { hold } else { when(of(ALTER, Some(leader), None), hold) });
        }
        let messages = if self.random.one_in(2) {
            of(FETCHES, Some(follower), Some(leader))
        } else {
            of(FETCHED, Some(leader), Some(follower))
        };
        let lasts = self.millis(1500, 7000);
        let late = if !self.random.one_in(4) {
            let hold = Act::Hold { messages, limit: usize::MAX, arrives: true, lasts };
            when(of(ALTER, Some(leader), None), hold)
        } else {
            Act::Slow { messages, by: self.millis(10, 300), lasts }
        };
        self.add(from, late);
        away + lasts
    }

    fn late_joiner(&mut self, at: Duration, leader: Who, follower: Who) -> Duration {
        let away = self.millis(1900, 4000);
        self.add(at, Act::Crash { who: follower, down: away });
        let goes = at + away - self.millis(0, 400);
        let down = self.millis(2000, 5000);
        self.add(goes, Act::Crash { who: leader, down });
        let lasts = self.millis(1500, 4000);
        let messages = of(FETCHED, None, Some(follower));
        let act = if self.random.one_in(2) {
            Act::Hold { messages, limit: usize::MAX, arrives: true, lasts }
        } else {
            Act::Slow { messages, by: self.millis(20, 1000), lasts }
        };
        self.add(goes, act);
        away + lasts / 2
    }
}
