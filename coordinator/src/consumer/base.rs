//! The group that a request of the consumer protocol finds, or begins: one that is there, a new one,
//! or a classic one that becomes a consumer group by this request. And the ways out: an answer with
//! records or without.

use std::sync::Arc;

use protocol::messages::ResponseBody;
use protocol::{ErrorCode, Offset};

use super::Then;
use super::convert;
use super::draft::Draft;
use super::fault::Fault;
use super::group::ConsumerGroup;
use super::{settings, timers};
use crate::classic::ClassicGroup;
use crate::group::{Group, GroupKind, Groups};
use crate::record::Record;
use crate::shard::{Scope, Token, Write};

/// The group before the request.
pub(super) struct Base<'g> {
    pub group_id: Arc<str>,
    /// The last offset written for it.
    pub written: Option<Offset>,
    found: Found<'g>,
    fresh: ConsumerGroup,
}

enum Found<'g> {
    /// Nothing: it begins now.
    Nothing,
    /// A consumer group.
    Consumer(&'g ConsumerGroup),
    /// A classic group without members, to be deleted first.
    Empty(&'g ClassicGroup),
    /// A classic group with members, to be converted first.
    Classic(&'g ClassicGroup),
}

impl<'g> Base<'g> {
    /// Finds the group, or what stands in its place. Only a member that joins may begin one.
    pub(super) fn find(groups: &'g Groups, id: &str, joins: bool) -> Result<Base<'g>, Fault> {
        let fresh = ConsumerGroup::default();
        let Some((group_id, group)) = groups.get_key_value(id) else {
            if joins {
                let group_id = Arc::from(id);
                return Ok(Base { group_id, written: None, found: Found::Nothing, fresh });
            }
            return Err(Fault::new(
                ErrorCode::GroupIdNotFound,
                format!("Consumer group {id} not found."),
            ));
        };
        let found = match &group.kind {
            GroupKind::Consumer(group) => Found::Consumer(group),
            GroupKind::Classic(_) if !joins => return Err(not_a_consumer_group(id)),
            GroupKind::Classic(group) if group.is_empty() => Found::Empty(group),
            GroupKind::Classic(group) => Found::Classic(group),
        };
        Ok(Base { group_id: group_id.clone(), written: group.written, found, fresh })
    }

    /// A draft of the group, with the records of its conversion.
    pub(super) fn draft(&self, scope: &Scope<'_>) -> Result<Draft<'_>, Fault> {
        let mut draft = match &self.found {
            Found::Consumer(group) => return Ok(Draft::of(group)),
            Found::Nothing | Found::Empty(_) | Found::Classic(_) => Draft::of(&self.fresh),
        };
        match &self.found {
            Found::Empty(classic) => draft.extend(classic.tombstones(&self.group_id)),
            Found::Classic(classic) => {
                convert::upgrade(&mut draft, classic, scope, &self.group_id)?;
            }
            Found::Nothing | Found::Consumer(_) => {}
        }
        Ok(draft)
    }

    /// Whether classic members come along.
    pub(super) fn is_upgrade(&self) -> bool {
        matches!(self.found, Found::Classic(_))
    }
}

/// A consumer group that is there, with its id and the last offset written for it.
pub(super) fn existing<'g>(
    groups: &'g Groups,
    id: &str,
) -> Result<(Arc<str>, &'g ConsumerGroup, Option<Offset>), Fault> {
    let Some((group_id, group)) = groups.get_key_value(id) else {
        return Err(Fault::new(ErrorCode::GroupIdNotFound, format!("Group {id} not found.")));
    };
    match group.as_consumer() {
        Some(consumer) => Ok((group_id.clone(), consumer, group.written)),
        None => Err(not_a_consumer_group(id)),
    }
}

fn not_a_consumer_group(id: &str) -> Fault {
    Fault::new(ErrorCode::GroupIdNotFound, format!("Group {id} is not a consumer group."))
}

/// Answers a request: when its records are written, or when what it saw is committed.
pub(super) fn answer(
    scope: &mut Scope<'_>,
    group_id: &Arc<str>,
    token: Token,
    records: Vec<Record>,
    response: impl Into<ResponseBody>,
    seen: Option<Offset>,
) {
    if records.is_empty() {
        scope.output.answer_seen(token, response, seen);
    } else {
        write(scope, group_id, records, vec![(token, response.into())]);
    }
}

/// Writes records of the group; after a failure its timers are looked after.
pub(super) fn write(
    scope: &mut Scope<'_>,
    group_id: &Arc<str>,
    records: Vec<Record>,
    answers: Vec<(Token, ResponseBody)>,
) {
    write_then(scope, records, answers, Then::Nothing { group: group_id.clone() });
}

/// Writes records, with what follows.
pub(super) fn write_then(
    scope: &mut Scope<'_>,
    records: Vec<Record>,
    answers: Vec<(Token, ResponseBody)>,
    then: Then,
) {
    if !records.is_empty() {
        let then = crate::shard::Then::Consumer(then);
        scope.output.writes.push(Write { records, answers, then });
    }
}

/// Remembers with which metadata the group's hash was compared last, and at which epoch. While that
/// epoch is not in the log, the comparing is done again.
pub(super) fn note_checked(groups: &mut Groups, group_id: &Arc<str>, checked: (u64, i32)) {
    if let Some(group) = groups.get_mut(group_id).and_then(Group::as_consumer_mut) {
        group.checked = Some(checked);
    }
}

/// The classic group becomes a consumer group: who waits in it is told to join again, and sessions of
/// the new kind begin.
pub(super) fn release_classic(groups: &mut Groups, scope: &mut Scope<'_>, group_id: &Arc<str>) {
    let Some(group) = groups.get_mut(group_id).and_then(Group::as_classic_mut) else { return };
    group.refuse_all_waiting(scope, ErrorCode::RebalanceInProgress);
    for member in group.members() {
        let timeout = settings::from_ms(member.session_timeout_ms);
        timers::start_session(scope, group_id, &member.id, timeout);
    }
}
