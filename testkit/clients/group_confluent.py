"""librdkafka's Python client in consumer groups: eager, cooperative, static, and the protocol of KIP-848.

usage: group_confluent.py BOOTSTRAP PREFIX [STORY...]
"""
import json
import sys

from confluent_kafka import (Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError,
                             KafkaException, TopicPartition)
from confluent_kafka.admin import AdminClient

from group_story import (FENCED_INSTANCE_ID, NON_EMPTY_GROUP, UNRELEASED_INSTANCE_ID, all_of,
                         asked_to_close, endures, lives, say, static)


class Committing:
    """Commits what was read, before anything is given up."""

    def __init__(self):
        self.read = {}

    def flush(self, consumer):
        if not self.read:
            return
        offsets = [TopicPartition(topic, p, o) for (topic, p), o in self.read.items()]
        self.read = {}
        try:
            for part in consumer.commit(offsets=offsets, asynchronous=False):
                if part.error is None:
                    say("committed", p=part.partition, o=part.offset)
        except KafkaException as error:
            say("not committed", code=error.args[0].code(), text=str(error))


def member(options):
    config = {
        "bootstrap.servers": options["bootstrap"], "group.id": options["group"],
        "client.id": options["name"], "enable.auto.commit": False, "auto.offset.reset": "earliest",
    }
    if options["strategy"] == "consumer":
        config["group.protocol"] = "consumer"
    else:
        config |= {"partition.assignment.strategy": options["strategy"],
                   "session.timeout.ms": options["session_ms"],
                   "heartbeat.interval.ms": options["heartbeat_ms"]}
    if options.get("instance"):
        config["group.instance.id"] = options["instance"]
    consumer, pending, asked = Consumer(config), Committing(), asked_to_close()

    def on_assign(_, parts):
        say("assigned", parts=[part.partition for part in parts])

    def on_revoke(_, parts):
        pending.flush(consumer)
        say("revoked", parts=[part.partition for part in parts])

    def on_lost(_, parts):
        pending.read = {}
        say("lost", parts=[part.partition for part in parts])

    consumer.subscribe([options["topic"]], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    while not asked.is_set():
        message = consumer.poll(0.1)
        while message is not None:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._FATAL:
                    say("failed", code=fatal_code(error), text=str(error))
                    return
                say("told", code=error.code(), text=str(error))
            else:
                say("read", p=message.partition(), o=message.offset())
                pending.read[(message.topic(), message.partition())] = message.offset() + 1
            message = consumer.poll(0) if len(pending.read) < 50 else None
        pending.flush(consumer)
    consumer.close()


def fatal_code(error):
    """What made the client give up, which the binding has in words only."""
    words = {"fenced by other consumer": FENCED_INSTANCE_ID, "still used by": UNRELEASED_INSTANCE_ID}
    return next((code for word, code in words.items() if word in error.str()), None)


class Client:
    """What the stories ask of this client besides members."""

    def command(self):
        return [sys.executable, __file__, "member"]

    def check_running(self, story, members):
        admin = AdminClient({"bootstrap.servers": story.bootstrap})
        described = admin.describe_consumer_groups([story.group])[story.group].result(20)
        assert described.state == ConsumerGroupState.STABLE, described.state
        if story.options["strategy"] != "consumer":
            assert described.partition_assignor == story.options["strategy"], described.partition_assignor
        parts = {m.client_id: sorted(tp.partition for tp in m.assignment.topic_partitions)
                 for m in described.members}
        assert parts == {m.name: sorted(m.owned) for m in members}, parts
        listed = {g.group_id: g.state for g in admin.list_consumer_groups().result(20).valid}
        assert listed.get(story.group) == ConsumerGroupState.STABLE, listed
        assert self.delete(admin, story.group) == NON_EMPTY_GROUP

    def check_empty(self, story):
        admin, group, topic = AdminClient({"bootstrap.servers": story.bootstrap}), story.group, story.topic
        described = admin.describe_consumer_groups([group])[group].result(20)
        assert described.state == ConsumerGroupState.EMPTY and not described.members, described
        assert self.offsets(admin, group) == story.feed.ends, (self.offsets(admin, group), story.feed.ends)
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p, 3) for p in range(2)])
        altered = admin.alter_consumer_group_offsets([wanted])[group].result(20)
        assert all(part.error is None for part in altered.topic_partitions), altered
        assert self.offsets(admin, group) == {**story.feed.ends, 0: 3, 1: 3}, self.offsets(admin, group)
        assert self.delete(admin, group) == 0
        assert group not in {g.group_id for g in admin.list_consumer_groups().result(20).valid}
        assert self.offsets(admin, group) == {}

    def offsets(self, admin, group):
        asked = ConsumerGroupTopicPartitions(group)
        found = admin.list_consumer_group_offsets([asked], require_stable=True)[group].result(20)
        for part in found.topic_partitions:
            assert part.error is None, part
        return {part.partition: part.offset for part in found.topic_partitions}

    def delete(self, admin, group):
        try:
            admin.delete_consumer_groups([group])[group].result(20)
            return 0
        except KafkaException as error:
            return error.args[0].code()


STORIES = {
    "range": (lives, {"strategy": "range"}),
    "cooperative-sticky": (lives, {"strategy": "cooperative-sticky"}),
    "consumer": (lives, {"strategy": "consumer"}),
    "static-range": (static, {"strategy": "range"}),
    "static-cooperative": (static, {"strategy": "cooperative-sticky"}),
    "static-consumer": (static, {"strategy": "consumer"}),
}
# Told one at a time, by name, since they read standard input.
BROKEN_FROM_OUTSIDE = {
    "endures-range": (endures, {"strategy": "range"}),
    "endures-cooperative": (endures, {"strategy": "cooperative-sticky"}),
    "endures-consumer": (endures, {"strategy": "consumer"}),
}


def main(bootstrap, prefix, *names):
    def story(name):
        tell, options = {**STORIES, **BROKEN_FROM_OUTSIDE}[name]
        return lambda: tell(Client(), bootstrap, prefix, name, **options)

    all_of([story(name) for name in names or STORIES])


if sys.argv[1] == "member":
    member(json.loads(sys.argv[2]))
else:
    main(*sys.argv[1:])
