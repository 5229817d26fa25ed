"""kafkajs in consumer groups: its own assignor, and its admin calls. Needs `node` with kafkajs, and
confluent-kafka for the records.

usage: group_kafkajs.py BOOTSTRAP PREFIX
"""
import json
import pathlib
import subprocess
import sys

from group_story import NON_EMPTY_GROUP, all_of, lives

SCRIPT = str(pathlib.Path(__file__).with_name("group_kafkajs.js"))


class Client:
    """What the stories ask of this client."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def command(self):
        return ["node", SCRIPT, "member"]

    def admin(self, call, argument):
        command = ["node", SCRIPT, "admin", self.bootstrap, call, json.dumps(argument)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout)

    def check_running(self, story, members):
        described = self.admin("describeGroups", [story.group])["groups"][0]
        assert described["state"] == "Stable" and described["errorCode"] == 0, described
        assert sorted(m["clientId"] for m in described["members"]) == sorted(m.name for m in members)
        assert story.group in self.groups()
        assert self.admin("deleteGroups", [story.group])["failed"] == [NON_EMPTY_GROUP]

    def check_empty(self, story):
        group, topic = story.group, story.topic
        described = self.admin("describeGroups", [group])["groups"][0]
        assert described["state"] == "Empty" and not described["members"], described
        assert self.offsets(story) == story.feed.ends, self.offsets(story)
        partitions = [{"partition": p, "offset": "3"} for p in range(2)]
        done = self.admin("setOffsets", {"groupId": group, "topic": topic, "partitions": partitions})
        assert done is None, done
        assert self.offsets(story) == {**story.feed.ends, 0: 3, 1: 3}, self.offsets(story)
        deleted = self.admin("deleteGroups", [group])
        assert deleted[0].get("errorCode") == 0, deleted
        assert group not in self.groups()
        assert set(self.offsets(story).values()) == {-1}, self.offsets(story)

    def groups(self):
        return {group["groupId"] for group in self.admin("listGroups", None)["groups"]}

    def offsets(self, story):
        found = self.admin("fetchOffsets", {"groupId": story.group, "topics": [story.topic]})
        return {part["partition"]: int(part["offset"]) for part in found[0]["partitions"]}


def main(bootstrap, prefix):
    all_of([lambda: lives(Client(bootstrap), bootstrap, prefix, "kafkajs")])


main(*sys.argv[1:])
