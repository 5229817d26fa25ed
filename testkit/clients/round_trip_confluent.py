"""librdkafka's Python client against a cluster: creates a topic for each codec, produces with
acks=all, reads everything back from assigned partitions, and compares.

usage: round_trip_confluent.py BOOTSTRAP PREFIX [KEY=VALUE...], more settings of every client
"""
import sys
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP, PREFIX = sys.argv[1], sys.argv[2]
COMMON = {"bootstrap.servers": BOOTSTRAP, **dict(pair.split("=", 1) for pair in sys.argv[3:])}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 3
RECORDS = 300


def create(topics):
    admin = AdminClient(COMMON)
    new = [NewTopic(t, num_partitions=PARTITIONS, replication_factor=3) for t in topics]
    for topic, future in admin.create_topics(new, operation_timeout=20).items():
        future.result(timeout=20)
    # A broker may learn of a topic a moment after the controller has created it.
    deadline = time.monotonic() + 20
    counts = None
    while counts != {topic: PARTITIONS for topic in topics}:
        assert time.monotonic() < deadline, f"partitions: {counts}"
        described = admin.list_topics(timeout=20).topics
        counts = {t: len(described[t].partitions) for t in topics if t in described}


def produce(topic, codec):
    acknowledged = {}
    failures = []

    def on_delivery(error, message):
        if error is not None:
            failures.append(str(error))
        else:
            acknowledged[(message.partition(), message.offset())] = message.value()

    producer = Producer({
        **COMMON, "acks": "all", "compression.type": codec,
        "enable.idempotence": codec in ("none", "lz4"), "linger.ms": 5,
    })
    for i in range(RECORDS):
        value = f"{codec} {i} ".encode() * 20
        producer.produce(topic, key=f"k{i}", value=value, partition=i % PARTITIONS,
                         headers=[("n", str(i).encode())], on_delivery=on_delivery)
    left = producer.flush(30)
    assert left == 0 and not failures, f"{topic}: {left} left, failures {failures[:3]}"
    assert len(acknowledged) == RECORDS, f"{topic}: {len(acknowledged)} acknowledged"
    return acknowledged


def consume(topic, expected):
    consumer = Consumer({
        **COMMON, "group.id": "unused", "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "earliest", "check.crcs": True,
    })
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    seen, ended = {}, set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None, f"{topic}: nothing within 30 s after {len(seen)} records"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
        else:
            seen[(message.partition(), message.offset())] = message.value()
            assert dict(message.headers())["n"].isdigit()
    for p in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)
        assert (low, high) == (0, RECORDS // PARTITIONS), (topic, p, low, high)
    consumer.close()
    assert seen == expected, f"{topic}: read {len(seen)}, acknowledged {len(expected)}"


def main():
    topics = {codec: f"{PREFIX}-{codec}" for codec in CODECS}
    create(list(topics.values()))
    for codec, topic in topics.items():
        consume(topic, produce(topic, codec))
        print(f"{codec}: {RECORDS} records")
    print("ok")


main()
