"""aiokafka in consumer groups: eager and static, and its admin calls; what those lack (altering and
deleting) is done with confluent-kafka, which makes the records as well.

usage: group_aiokafka.py BOOTSTRAP PREFIX [STORY...]
"""
import asyncio
import json
import logging
import sys

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from group_story import all_of, asked_to_close, lives, say, static

STRATEGIES = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor,
              "sticky": StickyPartitionAssignor}


class Listener(ConsumerRebalanceListener):
    """Tells what comes and goes, and waits until what was read before is committed."""

    def __init__(self):
        self.busy, self.owned, self.closed = asyncio.Lock(), set(), False

    def close(self):
        """Gives up everything. A rebalance that ends while the client stops may still assign
        partitions; nobody reads them, so they are not told of."""
        self.closed = True
        say("revoked", parts=[tp.partition for tp in self.owned])

    async def on_partitions_revoked(self, revoked):
        async with self.busy:
            self.owned.clear()
            if self.closed:
                return
            say("revoked", parts=[tp.partition for tp in revoked])

    async def on_partitions_assigned(self, assigned):
        async with self.busy:
            if self.closed:
                return
            self.owned = set(assigned)
            say("assigned", parts=[tp.partition for tp in assigned])


async def member(options):
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options["bootstrap"].split(","), group_id=options["group"],
        client_id=options["name"], group_instance_id=options.get("instance"), enable_auto_commit=False,
        auto_offset_reset="earliest", session_timeout_ms=options["session_ms"],
        heartbeat_interval_ms=options["heartbeat_ms"],
        partition_assignment_strategy=(STRATEGIES[options["strategy"]],))
    asked, listener = asked_to_close(), Listener()
    consumer.subscribe([options["topic"]], listener=listener)
    await consumer.start()
    while not asked.is_set():
        try:
            batches = await consumer.getmany(timeout_ms=200)
            async with listener.busy:
                await take(consumer, listener, batches)
        except KafkaError as error:
            say("failed", code=getattr(error, "errno", None), text=repr(error))
            return
    # It stops without telling its listener.
    listener.close()
    await consumer.stop()


async def take(consumer, listener, batches):
    offsets = {}
    for partition, records in batches.items():
        # Given up between reading and now: it is another member's to read.
        if partition in listener.owned:
            for record in records:
                say("read", p=partition.partition, o=record.offset)
            offsets[partition] = records[-1].offset + 1
    if not offsets:
        return
    try:
        await consumer.commit(offsets)
    except KafkaError as error:
        if getattr(error, "errno", None) == 82:
            raise
        say("not committed", code=getattr(error, "errno", None), text=repr(error))
        return
    for partition, offset in offsets.items():
        say("committed", p=partition.partition, o=offset)


async def with_admin(story, ask):
    admin = AIOKafkaAdminClient(bootstrap_servers=story.bootstrap.split(","))
    await admin.start()
    try:
        return await ask(admin)
    finally:
        await admin.close()


class Client:
    """What the stories ask of this client besides members."""

    def command(self):
        return [sys.executable, __file__, "member"]

    def check_running(self, story, members):
        async def ask(admin):
            (response,) = await admin.describe_consumer_groups([story.group])
            return response.to_object()["groups"][0], await admin.list_consumer_groups()

        described, listed = asyncio.run(with_admin(story, ask))
        assert described["state"] == "Stable" and described["error_code"] == 0, described
        assert described["protocol"] == story.options["strategy"], described
        assert sorted(m["client_id"] for m in described["members"]) == sorted(m.name for m in members)
        assert story.group in {group[0] for group in listed}, listed

    def check_empty(self, story):
        async def ask(admin):
            (response,) = await admin.describe_consumer_groups([story.group])
            return response.to_object()["groups"][0], await admin.list_consumer_group_offsets(story.group)

        described, found = asyncio.run(with_admin(story, ask))
        assert described["state"] == "Empty" and not described["members"], described
        offsets = {tp.partition: o.offset for tp, o in found.items()}
        assert offsets == story.feed.ends, (offsets, story.feed.ends)


STORIES = {
    "range": (lives, {"strategy": "range"}),
    "roundrobin": (lives, {"strategy": "roundrobin"}),
    "sticky": (lives, {"strategy": "sticky"}),
    # Told off, this client joins anew and tells off the other: with Kafka too, so nothing is asked of it.
    "static": (static, {"strategy": "range", "fences": False}),
}


def main(bootstrap, prefix, *names):
    def story(name):
        tell, options = STORIES[name]
        return lambda: tell(Client(), bootstrap, prefix, name, **options)

    all_of([story(name) for name in names or STORIES])


if sys.argv[1] == "member":
    logging.disable(logging.ERROR)
    asyncio.run(member(json.loads(sys.argv[2])))
else:
    main(*sys.argv[1:])
