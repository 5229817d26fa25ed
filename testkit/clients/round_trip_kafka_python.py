"""kafka-python against a cluster: creates a topic for each codec, produces with acks=all, reads
everything back from assigned partitions, and compares.

usage: round_trip_kafka_python.py BOOTSTRAP PREFIX
"""
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

BOOTSTRAP, PREFIX = sys.argv[1].split(","), sys.argv[2]
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 3
RECORDS = 300


def create(topics):
    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    admin.create_topics([NewTopic(t, PARTITIONS, 3) for t in topics], timeout_ms=20000)
    admin.close()


def produce(topic, codec):
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", compression_type=codec, linger_ms=5)
    sent = []
    for i in range(RECORDS):
        value = f"{codec} {i} ".encode() * 20
        future = producer.send(topic, key=f"k{i}".encode(), value=value, partition=i % PARTITIONS,
                               headers=[("n", str(i).encode())])
        sent.append((value, future))
    producer.flush(timeout=30)
    acknowledged = {}
    for value, future in sent:
        metadata = future.get(timeout=30)
        acknowledged[(metadata.partition, metadata.offset)] = value
    producer.close()
    assert len(acknowledged) == RECORDS, f"{topic}: {len(acknowledged)} offsets for {RECORDS} records"
    return acknowledged


def consume(topic, expected):
    consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, group_id=None,
                             auto_offset_reset="earliest", consumer_timeout_ms=20000)
    partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    seen = {}
    while len(seen) < len(expected):
        batches = consumer.poll(timeout_ms=20000)
        assert batches, f"{topic}: nothing within 20 s after {len(seen)} records"
        for partition, records in batches.items():
            for record in records:
                seen[(partition.partition, record.offset)] = record.value
    ends = consumer.end_offsets(partitions)
    assert set(ends.values()) == {RECORDS // PARTITIONS}, ends
    consumer.close()
    assert seen == expected, f"{topic}: read {len(seen)}, acknowledged {len(expected)}"


def main():
    topics = {codec: f"{PREFIX}-{codec or 'none'}" for codec in CODECS}
    create(list(topics.values()))
    for codec, topic in topics.items():
        consume(topic, produce(topic, codec))
        print(f"{codec}: {RECORDS} records")
    print("ok")


main()
