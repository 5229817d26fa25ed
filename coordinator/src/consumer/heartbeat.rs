//! ConsumerGroupHeartbeat (API 68, KIP-848): joining, keeping in touch, changing a subscription.
//!
//! Three steps, each on the group as the step before leaves it: the member is made or changed, and the
//! group's epoch grows if that matters to others; the target assignment catches up with the epoch; the
//! member takes a step towards its target. Leaving is in `membership.rs`.
//!
//! Version 1 adds regular expressions, and wants the client to make its own member id.

use protocol::ErrorCode;
use protocol::messages::consumer_group_heartbeat_request::TopicPartitions as OwnedTopic;
use protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

use super::base::{self, Base};
use super::fault::Fault;
use super::member::{LEAVE_EPOCH, LEAVE_STATIC_EPOCH, Member, partitions_of};
use super::membership::{self, Joiner};
use super::{settings, step, timers};
use crate::assignor::Partitions;
use crate::group::Groups;
use crate::shard::{Call, Scope};

/// The version from which clients make their own member ids.
const CLIENT_MADE_MEMBER_IDS: i16 = 1;

/// Answers a heartbeat, whatever the group is now.
pub(crate) fn heartbeat(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: ConsumerGroupHeartbeatRequest,
) {
    let done = check(scope, call.version, &request).and_then(|()| match request.member_epoch {
        LEAVE_EPOCH | LEAVE_STATIC_EPOCH => membership::leave(groups, scope, call, &request),
        _ => stay(groups, scope, call, &request),
    });
    if let Err(fault) = done {
        let response = ConsumerGroupHeartbeatResponse {
            error_code: fault.code.code(),
            error_message: fault.message,
            ..Default::default()
        };
        scope.output.answer(call.token, response);
    }
}

/// What can be said of the request without looking at the group.
fn check(
    scope: &Scope<'_>,
    version: i16,
    request: &ConsumerGroupHeartbeatRequest,
) -> Result<(), Fault> {
    if !scope.config.consumer_protocol_enabled {
        return Err(ErrorCode::UnsupportedVersion.into());
    }
    let not_empty = |text: Option<&str>, name: &str| match text {
        Some(text) if text.trim().is_empty() => {
            Err(Fault::invalid(format!("{name} can't be empty.")))
        }
        _ => Ok(()),
    };
    not_empty(Some(&request.group_id), "GroupId")?;
    not_empty(request.instance_id.as_deref(), "InstanceId")?;
    not_empty(request.rack_id.as_deref(), "RackId")?;
    if version >= CLIENT_MADE_MEMBER_IDS || request.member_epoch != 0 {
        not_empty(Some(&request.member_id), "MemberId")?;
    }
    match request.member_epoch {
        0 => check_first(request)?,
        LEAVE_STATIC_EPOCH if request.instance_id.is_none() => {
            return Err(Fault::invalid("InstanceId can't be null."));
        }
        epoch if epoch < LEAVE_STATIC_EPOCH => {
            return Err(Fault::invalid("MemberEpoch is invalid."));
        }
        _ => {}
    }
    let assignors = &scope.config.consumer_assignors;
    match &request.server_assignor {
        Some(name) if !assignors.contains(name) => Err(Fault::new(
            ErrorCode::UnsupportedAssignor,
            format!(
                "ServerAssignor {name} is not supported. Supported assignors: {}.",
                assignors.join(", ")
            ),
        )),
        _ => Ok(()),
    }
}

/// Whoever joins says everything and owns nothing.
fn check_first(request: &ConsumerGroupHeartbeatRequest) -> Result<(), Fault> {
    if request.rebalance_timeout_ms == -1 {
        return Err(Fault::invalid("RebalanceTimeoutMs must be provided in first request."));
    }
    if request.topic_partitions.as_ref().is_none_or(|topics| !topics.is_empty()) {
        return Err(Fault::invalid("TopicPartitions must be empty when (re-)joining."));
    }
    if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() {
        return Err(Fault::invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ));
    }
    Ok(())
}

/// A heartbeat of a member that joins or stays.
fn stay(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: &ConsumerGroupHeartbeatRequest,
) -> Result<(), Fault> {
    let joins = request.member_epoch == 0;
    let base = Base::find(groups, &request.group_id, joins)?;
    let group_id = base.group_id.clone();
    let mut draft = base.draft(scope)?;

    let instance_id = request.instance_id.as_deref();
    membership::check_room(draft.group(), scope.config, &request.member_id, instance_id)?;
    let owned = request.topic_partitions.as_deref().map(owned_partitions);
    let member_id = match request.member_id.as_str() {
        "" => membership::new_member_id(scope),
        given => given.to_owned(),
    };
    let joiner = Joiner {
        group_id: &group_id,
        member_id: &member_id,
        instance_id,
        create: joins,
        classic: false,
        epoch: request.member_epoch,
        owned: owned.as_ref(),
    };
    let before = joiner.find_or_make(&mut draft)?;

    let changed = changed(&before, request, call);
    let subscription_changed =
        step::update_member(&mut draft, scope, &group_id, &member_id, &before, &changed)?;
    super::target::maybe_update(&mut draft, scope, &group_id);
    let after = step::reconcile(
        &mut draft,
        scope,
        &group_id,
        &member_id,
        changed,
        subscription_changed,
        owned.as_ref(),
    )?;

    let response = response(scope, &group_id, &member_id, request, &before, &after);
    timers::start_session(
        scope,
        &group_id,
        &member_id,
        settings::session_timeout(scope, &group_id),
    );
    let checked = step::checked(&draft, scope);
    let upgraded = base.is_upgrade();
    let seen = base.written;
    let records = draft.into_records();
    base::answer(scope, &group_id, call.token, records, response, seen);
    base::note_checked(groups, &group_id, checked);
    if upgraded {
        base::release_classic(groups, scope, &group_id);
    }
    Ok(())
}

/// The member with what the request says of it.
fn changed(before: &Member, request: &ConsumerGroupHeartbeatRequest, call: Call<'_>) -> Member {
    let mut member = before.clone();
    if request.instance_id.is_some() {
        member.instance_id.clone_from(&request.instance_id);
    }
    if request.rack_id.is_some() {
        member.rack_id.clone_from(&request.rack_id);
    }
    if request.rebalance_timeout_ms != -1 {
        member.rebalance_timeout_ms = request.rebalance_timeout_ms;
    }
    if request.server_assignor.is_some() {
        member.server_assignor.clone_from(&request.server_assignor);
    }
    if let Some(names) = &request.subscribed_topic_names {
        member.topics = names.iter().cloned().collect();
    }
    if let Some(regex) = &request.subscribed_topic_regex {
        member.regex.clone_from(regex);
    }
    member.client_id.clone_from(&call.caller.client_id);
    member.client_host.clone_from(&call.caller.client_host);
    member.classic = None;
    member
}

/// The assignment is part of the answer when it is news, or when the client told everything (it does
/// so after errors, so it may have missed the news).
fn response(
    scope: &Scope<'_>,
    group_id: &str,
    member_id: &str,
    request: &ConsumerGroupHeartbeatRequest,
    before: &Member,
    after: &Member,
) -> ConsumerGroupHeartbeatResponse {
    let told_everything = request.rebalance_timeout_ms != -1
        && (request.subscribed_topic_names.is_some() || request.subscribed_topic_regex.is_some())
        && request.topic_partitions.is_some();
    let assigned = partitions_of(&after.assigned);
    let is_news =
        request.member_epoch == 0 || told_everything || assigned != partitions_of(&before.assigned);
    ConsumerGroupHeartbeatResponse {
        member_id: Some(member_id.to_owned()),
        member_epoch: after.epoch,
        heartbeat_interval_ms: settings::to_ms(settings::heartbeat_interval(scope, group_id)),
        assignment: is_news.then(|| assignment(&assigned)),
        ..Default::default()
    }
}

fn assignment(partitions: &Partitions) -> Assignment {
    let topic_partitions = partitions
        .iter()
        .map(|(topic, of_topic)| TopicPartitions {
            topic_id: *topic,
            partitions: of_topic.iter().copied().collect(),
            ..Default::default()
        })
        .collect();
    Assignment { topic_partitions, ..Default::default() }
}

fn owned_partitions(topics: &[OwnedTopic]) -> Partitions {
    let mut owned = Partitions::new();
    for topic in topics.iter().filter(|topic| !topic.partitions.is_empty()) {
        owned.entry(topic.topic_id).or_default().extend(&topic.partitions);
    }
    owned
}
