"""kafka-python in consumer groups: eager, cooperative and static, and its admin calls.

usage: group_kafka_python.py BOOTSTRAP PREFIX [STORY...]
"""
import json
import sys

import kafka.errors
from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import BrokerResponseError, KafkaError

from group_story import NON_EMPTY_GROUP, all_of, asked_to_close, lives, say, static

STRATEGIES = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}


class Listener(ConsumerRebalanceListener):
    """Tells what comes and goes."""

    def on_partitions_assigned(self, assigned):
        say("assigned", parts=[tp.partition for tp in assigned])

    def on_partitions_revoked(self, revoked):
        say("revoked", parts=[tp.partition for tp in revoked])

    def on_partitions_lost(self, lost):
        say("lost", parts=[tp.partition for tp in lost])


def member(options):
    # The session is renewed by a thread of its own, which the client runs.
    consumer = KafkaConsumer(
        bootstrap_servers=options["bootstrap"].split(","), group_id=options["group"],
        client_id=options["name"], group_instance_id=options.get("instance"), enable_auto_commit=False,
        auto_offset_reset="earliest", session_timeout_ms=options["session_ms"],
        heartbeat_interval_ms=options["heartbeat_ms"],
        partition_assignment_strategy=[STRATEGIES[options["strategy"]]])
    asked = asked_to_close()
    consumer.subscribe([options["topic"]], listener=Listener())
    while not asked.is_set():
        try:
            # A join that ends between two polls is forgotten by kafka-python 3.0.12 and sent anew, which makes
            # the whole group rebalance; so the first one is waited for within a poll, on a busy machine too.
            batches = consumer.poll(timeout_ms=200 if consumer.assignment() else 20_000)
            # Nothing is given up but inside `poll`, so what is read here is committed in time.
            offsets = {}
            for partition, records in batches.items():
                for record in records:
                    say("read", p=partition.partition, o=record.offset)
                offsets[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
            if offsets:
                commit(consumer, offsets)
        except KafkaError as error:
            say("failed", code=getattr(error, "errno", None), text=str(error))
            return
    consumer.close()


def commit(consumer, offsets):
    try:
        consumer.commit(offsets)
    except BrokerResponseError as error:
        if error.errno == 82:
            raise
        say("not committed", code=error.errno, text=str(error))
        return
    for partition, offset in offsets.items():
        say("committed", p=partition.partition, o=offset.offset)


class Client:
    """What the stories ask of this client besides members."""

    def command(self):
        return [sys.executable, __file__, "member"]

    def check_running(self, story, members):
        admin, group = KafkaAdminClient(bootstrap_servers=story.bootstrap.split(",")), story.group
        described = admin.describe_groups([group])[group]
        assert described["group_state"] == "Stable", described
        assert described["protocol_data"] == story.options["strategy"], described
        assert sorted(m["client_id"] for m in described["members"]) == sorted(m.name for m in members)
        listed = {g["group_id"]: g.get("group_state") for g in admin.list_groups()}
        assert listed.get(group) == "Stable", listed
        assert group not in {g["group_id"] for g in admin.list_groups(states_filter=["Empty"])}
        assert self.delete(admin, group) == NON_EMPTY_GROUP
        admin.close()

    def check_empty(self, story):
        admin, group = KafkaAdminClient(bootstrap_servers=story.bootstrap.split(",")), story.group
        parts = {p: TopicPartition(story.topic, p) for p in story.feed.ends}
        described = admin.describe_groups([group])[group]
        assert described["group_state"] == "Empty" and not described["members"], described
        assert self.offsets(admin, group) == story.feed.ends, self.offsets(admin, group)
        wanted = {parts[p]: OffsetAndMetadata(3, "by hand", -1) for p in range(2)}
        altered = admin.alter_group_offsets(group, wanted)
        assert all(error.errno == 0 for error in altered.values()), altered
        assert self.offsets(admin, group) == {**story.feed.ends, 0: 3, 1: 3}, self.offsets(admin, group)
        deleted = admin.delete_group_offsets(group, [parts[0]])
        assert all(error.errno == 0 for error in deleted.values()), deleted
        assert 0 not in self.offsets(admin, group), self.offsets(admin, group)
        assert self.delete(admin, group) == 0
        assert group not in {g["group_id"] for g in admin.list_groups()}
        assert self.offsets(admin, group) == {}
        admin.close()

    def offsets(self, admin, group):
        return {tp.partition: o.offset for tp, o in admin.list_group_offsets({group: None})[group].items()}

    def delete(self, admin, group):
        name = admin.delete_groups([group])[group]
        return 0 if name == "OK" else getattr(kafka.errors, name).errno


STORIES = {
    "range": (lives, {"strategy": "range"}),
    "cooperative-sticky": (lives, {"strategy": "cooperative-sticky"}),
    "static": (static, {"strategy": "range"}),
}


def main(bootstrap, prefix, *names):
    def story(name):
        tell, options = STORIES[name]
        return lambda: tell(Client(), bootstrap, prefix, name, **options)

    all_of([story(name) for name in names or STORIES])


if sys.argv[1] == "member":
    member(json.loads(sys.argv[2]))
else:
    main(*sys.argv[1:])
