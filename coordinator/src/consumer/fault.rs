//! Why a request of a member is refused: the code, and the sentence that goes with it.

use protocol::ErrorCode;

/// A refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    /// Kafka's code.
    pub code: ErrorCode,
    /// What the client's log will show.
    pub message: Option<String>,
}

impl Fault {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Fault {
        Fault { code, message: Some(message.into()) }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Fault {
        Fault::new(ErrorCode::InvalidRequest, message)
    }

    pub(super) fn unknown_member(member: &str, group: &str) -> Fault {
        Fault::new(
            ErrorCode::UnknownMemberId,
            format!("Member {member} is not a member of group {group}."),
        )
    }
}

impl From<ErrorCode> for Fault {
    fn from(code: ErrorCode) -> Fault {
        Fault { code, message: None }
    }
}
