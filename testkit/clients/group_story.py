"""The life of a consumer group, the same for every client: members join one after another, one leaves,
one is killed, all leave and a new one goes on, while records keep coming; then the admin calls.

A member is a process of its own, so that it can be killed. It is given its options as JSON in its last
argument and prints one JSON object a line, with `t` from the machine's monotonic clock in seconds:

    {"t": 1.5, "e": "assigned", "parts": [0, 1]}      also "revoked" and "lost"
    {"t": 1.6, "e": "read", "p": 0, "o": 17}
    {"t": 1.7, "e": "committed", "p": 0, "o": 18}     only what the broker has acknowledged
    {"t": 1.8, "e": "failed", "code": 82, "text": "…"}  and then it ends

A line on its standard input asks it to close in order. It commits what it has read before it gives up a
partition. Everything is checked afterwards from the events, in the order of their times (`Story.verify`):

- no partition has two owners at a time (one that was killed owns nothing from then on);
- nothing is read by a member that does not own it;
- an owner begins where the group has committed, and reads on without holes;
- an acknowledged commit never goes back: nothing below it is read again.
"""
import json
import os
import subprocess
import sys
import threading
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 6
SESSION_MS = 6000
# The same with the protocol of KIP-848, where the broker says it: `group.consumer.session.timeout.ms`.
CONSUMER_SESSION_MS = 10_000
# A member that restarts must be back before its session ends, however busy the machine is.
STATIC_SESSION_MS = 15_000
HEARTBEAT_MS = 500
# What a busy machine may need beyond a session timeout, and for whatever has no timeout of its own.
SLACK_S = 180
NON_EMPTY_GROUP = 68
FENCED_INSTANCE_ID = 82
UNRELEASED_INSTANCE_ID = 111


def say(event, **fields):
    """For members: prints an event; without the driver there is nobody to go on for."""
    try:
        sys.stdout.write(json.dumps({"t": time.monotonic(), "e": event, **fields}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(1)


def asked_to_close():
    """For members: an event that is set once the driver wants them to close."""
    asked = threading.Event()

    def wait():
        sys.stdin.readline()
        asked.set()

    threading.Thread(target=wait, daemon=True).start()
    return asked


def create_topic(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=-1)
    admin.create_topics([new], operation_timeout=20)[topic].result(timeout=20)
    deadline = time.monotonic() + SLACK_S
    while len(getattr(admin.list_topics(timeout=20).topics.get(topic), "partitions", [])) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic} is not known"
        time.sleep(0.05)


class Feed(threading.Thread):
    """Produces to every partition in turn until it is stopped."""

    def __init__(self, bootstrap, topic):
        super().__init__(daemon=True)
        self.topic = topic
        self.producer = Producer({"bootstrap.servers": bootstrap, "acks": "all",
                                  "enable.idempotence": True, "linger.ms": 5})
        self.stopped = threading.Event()
        self.ends = {p: 0 for p in range(PARTITIONS)}
        self.failures = []

    def on_delivery(self, error, message):
        if error is not None:
            self.failures.append(str(error))
        else:
            p = message.partition()
            self.ends[p] = max(self.ends[p], message.offset() + 1)

    def add(self, count):
        for i in range(count):
            self.producer.produce(self.topic, value=f"record {i}".encode(), partition=i % PARTITIONS,
                                  on_delivery=self.on_delivery)
        self.producer.poll(0)

    def run(self):
        while not self.stopped.wait(0.25):
            self.add(2 * PARTITIONS)

    def stop(self):
        self.stopped.set()
        self.join()
        assert self.producer.flush(60) == 0, "records are left unsent"
        assert not self.failures, self.failures[:3]


class Member:
    """A member's process and what is known of it so far."""

    def __init__(self, story, name, command, options):
        self.story, self.name, self.instance = story, name, options.get("instance")
        self.owned, self.failed, self.killed_at, self.asked = set(), None, None, False
        self.events = []
        self.process = subprocess.Popen([*command, json.dumps(options)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue
            try:
                event = json.loads(line)
            except ValueError:  # cut off by a kill
                continue
            self.events.append(event)
            if event["e"] == "assigned":
                self.owned = self.owned | set(event["parts"])
            elif event["e"] in ("revoked", "lost"):
                self.owned = self.owned - set(event["parts"])
            elif event["e"] == "failed":
                self.failed = event
        self.owned = set()

    def expected_to_run(self):
        return self.killed_at is None and not self.asked

    def moves(self):
        return sum(event["e"] in ("assigned", "revoked", "lost") for event in self.events)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.killed_at = time.monotonic()
        self.reader.join()

    def close(self):
        self.asked = True
        self.process.stdin.write("close\n")
        self.process.stdin.flush()
        assert self.process.wait(timeout=60) == 0, f"{self.name} ended with {self.process.returncode}"
        self.reader.join()


class Story:
    """One group, one topic, and everything that happened to them."""

    def __init__(self, client, bootstrap, prefix, label, **options):
        self.client, self.bootstrap, self.label, self.options = client, bootstrap, label, options
        self.topic = self.group = f"{prefix}-{label}"
        self.members, self.began = [], time.monotonic()
        create_topic(bootstrap, self.topic)
        self.feed = Feed(bootstrap, self.topic)
        self.feed.add(10 * PARTITIONS)
        self.feed.start()

    def tell(self, text):
        print(f"{time.monotonic() - self.began:6.1f} s {self.label}: {text}", flush=True)

    def join(self, name, **more):
        options = {"bootstrap": self.bootstrap, "group": self.group, "topic": self.topic, "name": name,
                   "session_ms": SESSION_MS, "heartbeat_ms": HEARTBEAT_MS, **self.options, **more}
        member = Member(self, name, self.client.command(), options)
        self.members.append(member)
        return member

    def wait(self, what, true, seconds=STATIC_SESSION_MS / 1000 + SLACK_S):
        """Waits for `true()`; a member that ends unasked meanwhile is a failure."""
        deadline = time.monotonic() + seconds
        while not true():
            for member in self.members:
                if member.expected_to_run() and member.process.poll() is not None:
                    raise AssertionError(f"{self.label}: {member.name} ended by itself: {member.failed}")
            owners = {member.name: sorted(member.owned) for member in self.members}
            assert time.monotonic() < deadline, f"{self.label}: no {what} in {seconds} s; {owners}"
            time.sleep(0.05)

    def wait_shared(self, members):
        """Waits until the members share all partitions evenly, and each has read in its part."""
        share = PARTITIONS // len(members)

        def shared():
            owned = [member.owned for member in members]
            return all(len(o) == share for o in owned) and len(set().union(*owned)) == PARTITIONS

        self.wait(f"even shares among {[m.name for m in members]}", shared)
        since = time.monotonic()

        def reading():
            return shared() and all(
                any(e["e"] == "committed" and e["t"] > since for e in list(m.events)) for m in members)

        self.wait(f"progress of {[m.name for m in members]}", reading)

    def wait_all_read(self):
        self.wait("reader at the end", lambda: self.committed() == self.feed.ends)

    def committed(self):
        """What the members were told is committed, the highest of each partition."""
        committed = {p: 0 for p in range(PARTITIONS)}
        for member in self.members:
            for event in list(member.events):
                if event["e"] == "committed":
                    committed[event["p"]] = max(committed[event["p"]], event["o"])
        return committed

    def verify(self):
        events = sorted(((event["t"], member, event) for member in self.members for event in member.events),
                        key=lambda entry: entry[0])
        owner, committed, read_to = {}, {}, {p: 0 for p in range(PARTITIONS)}
        position, reads = {}, 0
        for at, member, event in events:
            def fail(text):
                raise AssertionError(f"{self.label}: at {at:.3f} {member.name}: {text} ({event})")

            kind = event["e"]
            if kind == "assigned":
                for p in event["parts"]:
                    holder = owner.get(p)
                    if holder not in (None, member) and (holder.killed_at is None or holder.killed_at > at):
                        fail(f"partition {p} is owned by {holder.name}")
                    owner[p], position[p] = member, None
            elif kind in ("revoked", "lost"):
                for p in event["parts"]:
                    if owner.get(p) is member:
                        del owner[p]
            elif kind == "read":
                p, offset = event["p"], event["o"]
                reads += 1
                if owner.get(p) is not member:
                    fail("reads what it does not own")
                if offset < committed.get(p, 0):
                    fail(f"reads below the commit of {committed[p]}")
                if position[p] is not None and offset != position[p]:
                    fail(f"reads on, but not at {position[p]}")
                if offset > read_to[p]:
                    fail(f"leaves out what comes after {read_to[p]}")
                position[p] = offset + 1
                read_to[p] = max(read_to[p], offset + 1)
            elif kind == "committed":
                committed[event["p"]] = max(committed.get(event["p"], 0), event["o"])
        assert read_to == self.feed.ends, f"{self.label}: read to {read_to}, written to {self.feed.ends}"
        total = sum(self.feed.ends.values())
        self.tell(f"{total} records, {reads - total} of them read again")


def lives(client, bootstrap, prefix, label, **options):
    """Members come, go and die."""
    story = Story(client, bootstrap, prefix, label, **options)
    a = story.join("a")
    story.wait_shared([a])
    b = story.join("b")
    story.wait_shared([a, b])
    c = story.join("c")
    story.wait_shared([a, b, c])
    story.tell("three members share the partitions")
    client.check_running(story, [a, b, c])
    b.close()
    story.wait_shared([a, c])
    story.tell("one left")
    killed_at = time.monotonic()
    c.kill()
    story.wait_shared([a])
    story.tell(f"one was killed, and replaced within {time.monotonic() - killed_at:.1f} s")
    d = story.join("d")
    story.wait_shared([a, d])
    a.close()
    d.close()
    story.feed.add(5 * PARTITIONS)
    last = story.join("last")
    story.wait_shared([last])
    story.feed.stop()
    story.wait_all_read()
    last.close()
    story.verify()
    client.check_empty(story)
    story.tell("the admin calls agree")


def restart(story, a, b, new_protocol):
    """Restarts a member and shows that nothing moved, which counts only if it was back in its session: a
    busy machine is given a second and a third chance."""
    session_ms = CONSUMER_SESSION_MS if new_protocol else STATIC_SESSION_MS
    for _ in range(3):
        moves, owned, since = a.moves(), set(b.owned), time.monotonic()
        if new_protocol:
            b.close()
        else:
            b.kill()
        time.sleep(1)
        again = story.join("b again", instance="ib")
        story.wait_shared([a, again])
        assigned_at = max(e["t"] for e in again.events if e["e"] == "assigned")
        if assigned_at - since < session_ms / 1000:
            assert again.owned == owned, f"{story.label}: {again.owned} after the restart, {owned} before"
            assert a.moves() == moves, f"{story.label}: the restart of another member moved partitions"
            return again
        b = again
    raise AssertionError(f"{story.label}: no restart within {session_ms} ms")


def double(story, a, again, new_protocol):
    """A second member with the name of one that lives: one of them is told off. Gives the other one."""
    second = story.join("double", instance="ib")
    if new_protocol:
        loser, winner, code = second, again, UNRELEASED_INSTANCE_ID
    else:
        loser, winner, code = again, second, FENCED_INSTANCE_ID
    loser.asked = True
    story.wait("end of one of two with one name", lambda: loser.process.poll() is not None)
    loser.reader.join()
    assert loser.failed and loser.failed["code"] == code, f"{story.label}: {loser.failed}"
    story.wait_shared([a, winner])
    if loser is again:
        # It lost everything when the other one joined, and heard of it with its next heartbeat only.
        loser.killed_at = next(e["t"] for e in winner.events if e["e"] == "assigned")
        loser.events = [e for e in loser.events if e["t"] < loser.killed_at or e["e"] == "committed"]
    story.tell("of two with one name one was fenced")
    return winner


def static(client, bootstrap, prefix, label, fences=True, **options):
    """Members with names of their own: a restart moves nothing, a double is fenced, and only the session's
    end gives their partitions away. With the protocol of KIP-848 a restart must be a clean one."""
    new_protocol = options.get("strategy") == "consumer"
    story = Story(client, bootstrap, prefix, label, session_ms=STATIC_SESSION_MS, **options)
    a = story.join("a", instance="ia")
    b = story.join("b", instance="ib")
    story.wait_shared([a, b])
    again = restart(story, a, b, new_protocol)
    story.tell("a restart moved nothing")
    winner = double(story, a, again, new_protocol) if fences else again
    left_at = time.monotonic()
    a.close()
    story.wait_shared([winner])
    waited = time.monotonic() - left_at
    assert waited > SESSION_MS / 2000, f"{label}: a static member's partitions moved after {waited} s"
    story.feed.stop()
    story.wait_all_read()
    winner.close()
    story.verify()


def endures(client, bootstrap, prefix, label, **options):
    """Three members live on while the cluster is broken by the one who started this script. It prints
    `ready` once they share the partitions, and ends when it reads a line."""
    story = Story(client, bootstrap, prefix, label, **options)
    members = [story.join(name) for name in ("a", "b", "c")]
    story.wait_shared(members)
    print("ready", flush=True)
    sys.stdin.readline()
    story.wait_shared(members)
    story.feed.stop()
    story.wait_all_read()
    for member in members:
        member.close()
    story.verify()


def all_of(stories):
    """Tells stories at the same time; each is a function without arguments."""
    failures = []

    def run(story):
        try:
            story()
        except BaseException as error:  # told below, in the main thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(story,), daemon=True) for story in stories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        for error in failures:
            print(f"FAILED: {type(error).__name__}: {error}", file=sys.stderr)
        raise failures[0]
    print("ok")
