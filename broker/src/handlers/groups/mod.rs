//! The APIs of consumer groups: each request goes to the shard of its group's partition; one that names
//! several groups is divided among their shards and the answers joined in the request's order.
//!
//! | API | divided by |
//! |---|---|
//! | JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit, OffsetDelete, ConsumerGroupHeartbeat | - |
//! | OffsetFetch | group, from version 8 on |
//! | DescribeGroups, DeleteGroups, ConsumerGroupDescribe | group |
//! | ListGroups | all partitions that this broker leads |

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use coordinator::Caller;
use parking_lot::Mutex;
use protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DeleteGroupsRequest,
    DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, ListGroupsRequest,
    ListGroupsResponse, OffsetFetchRequest, OffsetFetchResponse,
};
use protocol::{ErrorCode, RequestBody, ResponseBody};
use storage::Disk;

use super::operations;
use crate::core::{BrokerCore, CallContext, Outcome, Responder};

/// The first version of OffsetFetch that names several groups.
const FIRST_BATCHED_FETCH: i16 = 8;

/// Hands a request to the coordinator. Only for the APIs in the table above.
pub(super) fn handle<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: RequestBody,
    reply: Responder,
) {
    let version = context.api_version;
    match request {
        RequestBody::OffsetFetch(request) if version >= FIRST_BATCHED_FETCH => {
            fetch_offsets(core, context, request, reply);
        }
        RequestBody::DescribeGroups(request) => describe(core, context, request, reply),
        RequestBody::ConsumerGroupDescribe(request) => {
            describe_consumers(core, context, request, reply);
        }
        RequestBody::DeleteGroups(request) => delete(core, context, request, reply),
        RequestBody::ListGroups(request) => list(core, context, &request, reply),
        request => {
            let group = group_of(&request).unwrap_or_default().to_owned();
            let reply = Box::new(move |response| reply(Outcome::Answer(response)));
            let partition = core.groups.partition_of(&group);
            core.groups.request(partition, &caller(context), version, request, reply);
        }
    }
}

/// The group that a request is about, if it is about one.
fn group_of(request: &RequestBody) -> Option<&str> {
    Some(match request {
        RequestBody::JoinGroup(request) => &request.group_id,
        RequestBody::SyncGroup(request) => &request.group_id,
        RequestBody::Heartbeat(request) => &request.group_id,
        RequestBody::LeaveGroup(request) => &request.group_id,
        RequestBody::OffsetCommit(request) => &request.group_id,
        RequestBody::OffsetFetch(request) => &request.group_id,
        RequestBody::OffsetDelete(request) => &request.group_id,
        RequestBody::ConsumerGroupHeartbeat(request) => &request.group_id,
        _ => return None,
    })
}

fn caller(context: &CallContext) -> Caller {
    Caller {
        client_id: context.client_id.clone().unwrap_or_default(),
        client_host: format!("/{}", context.peer),
    }
}

/// Gathers the answers to the parts of one request.
struct Gather {
    parts: Vec<Option<ResponseBody>>,
    missing: usize,
    finish: Option<Box<dyn FnOnce(Vec<ResponseBody>) + Send>>,
}

/// Asks for every part; `finish` gets the answers in the order of the parts.
fn ask_all<D: Disk, P: TryFrom<ResponseBody>>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    parts: Vec<(Option<i32>, RequestBody)>,
    finish: impl FnOnce(Vec<P>) + Send + 'static,
) {
    if parts.is_empty() {
        return finish(Vec::new());
    }
    let gather = Arc::new(Mutex::new(Gather {
        parts: vec![None; parts.len()],
        missing: parts.len(),
        finish: Some(Box::new(|answers: Vec<ResponseBody>| {
            finish(answers.into_iter().filter_map(|answer| answer.try_into().ok()).collect());
        })),
    }));
    let caller = caller(context);
    for (at, (partition, request)) in parts.into_iter().enumerate() {
        let gather = gather.clone();
        let reply = Box::new(move |response| {
            let mut gathered = gather.lock();
            gathered.parts[at] = Some(response);
            gathered.missing -= 1;
            if gathered.missing > 0 {
                return;
            }
            let parts: Vec<_> = gathered.parts.drain(..).flatten().collect();
            let finish = gathered.finish.take();
            drop(gathered);
            if let Some(finish) = finish {
                finish(parts);
            }
        });
        core.groups.request(partition, &caller, context.api_version, request, reply);
    }
}

/// Asks for each group at its own shard; `finish` gets the parts of the answer in the groups' order.
fn ask_each<D: Disk, G, P: TryFrom<ResponseBody>>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    groups: impl IntoIterator<Item = G>,
    id: fn(&G) -> &str,
    part: impl Fn(Vec<G>) -> RequestBody,
    finish: impl FnOnce(Vec<P>) + Send + 'static,
) {
    let parts = groups.into_iter().map(|group| {
        let partition = core.groups.partition_of(id(&group));
        (partition, part(vec![group]))
    });
    ask_all(core, context, parts.collect(), finish);
}

fn fetch_offsets<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: OffsetFetchRequest,
    reply: Responder,
) {
    let require_stable = request.require_stable;
    let part = |groups| OffsetFetchRequest { groups, require_stable, ..Default::default() }.into();
    let id: fn(&OffsetFetchRequestGroup) -> &str = |group| &group.group_id;
    ask_each(core, context, request.groups, id, part, |parts: Vec<OffsetFetchResponse>| {
        let groups = parts.into_iter().flat_map(|part| part.groups).collect();
        super::answer(reply, OffsetFetchResponse { groups, ..OffsetFetchResponse::default() });
    });
}

fn describe<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: DescribeGroupsRequest,
    reply: Responder,
) {
    let operations_asked = request.include_authorized_operations;
    let part = |groups| DescribeGroupsRequest { groups, ..Default::default() }.into();
    let finish = move |parts: Vec<DescribeGroupsResponse>| {
        let mut groups: Vec<_> = parts.into_iter().flat_map(|part| part.groups).collect();
        for group in &mut groups {
            group.authorized_operations = allowed(operations_asked, group.error_code);
        }
        super::answer(reply, DescribeGroupsResponse { groups, ..Default::default() });
    };
    ask_each(core, context, request.groups, String::as_str, part, finish);
}

fn describe_consumers<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: ConsumerGroupDescribeRequest,
    reply: Responder,
) {
    let operations_asked = request.include_authorized_operations;
    let part = |group_ids| ConsumerGroupDescribeRequest { group_ids, ..Default::default() }.into();
    let finish = move |parts: Vec<ConsumerGroupDescribeResponse>| {
        let mut groups: Vec<_> = parts.into_iter().flat_map(|part| part.groups).collect();
        for group in &mut groups {
            group.authorized_operations = allowed(operations_asked, group.error_code);
        }
        super::answer(reply, ConsumerGroupDescribeResponse { groups, ..Default::default() });
    };
    ask_each(core, context, request.group_ids, String::as_str, part, finish);
}

/// What may be done with a group that could be described, if that was asked.
fn allowed(asked: bool, error_code: i16) -> i32 {
    if asked && error_code == 0 { operations::GROUP } else { operations::NOT_ASKED }
}

fn delete<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: DeleteGroupsRequest,
    reply: Responder,
) {
    // A group that is named twice is deleted, and told of, once.
    let mut named = BTreeSet::new();
    let groups = request.groups_names.into_iter().filter(|group| named.insert(group.clone()));
    let part = |groups_names| DeleteGroupsRequest { groups_names, ..Default::default() }.into();
    ask_each(core, context, groups, String::as_str, part, |parts: Vec<DeleteGroupsResponse>| {
        let results = parts.into_iter().flat_map(|part| part.results).collect();
        super::answer(reply, DeleteGroupsResponse { results, ..Default::default() });
    });
}

/// All groups of all partitions; of a partition that is still being loaded nobody can say, so the
/// whole answer is its error. One that was lost meanwhile is somebody else's to list.
fn list<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: &ListGroupsRequest,
    reply: Responder,
) {
    let partitions = core.groups.partitions().into_iter();
    let parts = partitions.map(|index| (Some(index), request.clone().into()));
    ask_all(core, context, parts.collect(), |parts: Vec<ListGroupsResponse>| {
        let mut joined = ListGroupsResponse::default();
        for part in parts {
            if part.error_code == 0 {
                joined.groups.extend(part.groups);
            } else if part.error_code != ErrorCode::NotCoordinator.code() {
                joined.error_code = part.error_code;
            }
        }
        if joined.error_code != 0 {
            joined.groups.clear();
        }
        super::answer(reply, joined);
    });
}
