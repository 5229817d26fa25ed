//! Each rule of a history is shown to fail, and each exception to hold; the lines are written and read back.

use std::time::Duration;

use super::*;

/// A history told in few words; every act takes a millisecond.
#[derive(Default)]
struct Told {
    recorder: Recorder,
    now: Duration,
}

impl Told {
    fn tick(&mut self) -> Duration {
        self.now += Duration::from_millis(1);
        self.now
    }

    fn begin(&mut self, client: &str, act: Act) {
        let at = self.tick();
        self.recorder.begin(at, client, "t-0", act);
    }

    fn end(&mut self, client: &str, phase: Phase, done: Act) {
        let at = self.tick();
        let error = (phase != Phase::Ok).then(|| "REQUEST_TIMED_OUT".to_owned());
        self.recorder.end(at, client, phase, done, error);
    }

    /// A write that is acknowledged at this offset.
    fn sent(&mut self, client: &str, acks: i16, values: &[&str], base: i64) {
        let act = Act::send(acks, values);
        self.begin(client, act.clone());
        self.end(client, Phase::Ok, act.sent_at(base));
    }

    /// A write that ends otherwise.
    fn not_sent(&mut self, client: &str, phase: Phase, value: &str) {
        let act = Act::send(-1, &[value]);
        self.begin(client, act.clone());
        self.end(client, phase, act);
    }

    fn assigned(&mut self, client: &str, from: i64) {
        let at = self.tick();
        self.recorder.assign(at, client, "t-0", from);
    }

    fn polled(&mut self, client: &str, from: i64, records: &[(i64, &str)]) {
        self.answered(client, Act::poll(from), records);
    }

    fn read_finally(&mut self, client: &str, from: i64, records: &[(i64, &str)]) {
        self.answered(client, Act::Poll { from, records: Vec::new(), is_final: true }, records);
    }

    fn answered(&mut self, client: &str, act: Act, records: &[(i64, &str)]) {
        let named = records.iter().map(|(offset, value)| (*offset, Some((*value).to_owned())));
        self.begin(client, act.clone());
        self.end(client, Phase::Ok, act.read(named.collect()));
    }

    fn report(&self) -> Report {
        check(&self.recorder.operations())
    }

    /// What is broken: rules and lines.
    fn broken(&self) -> Vec<(Rule, Vec<u64>)> {
        self.report().broken.into_iter().map(|broken| (broken.rule, broken.lines)).collect()
    }
}

/// Two producers, of which one loses sight of a write, and a consumer.
fn usual() -> Told {
    let mut told = Told::default();
    told.sent("producer 1", -1, &["a", "b"], 0);
    told.not_sent("producer 2", Phase::Info, "c");
    told.not_sent("producer 1", Phase::Fail, "d");
    told.sent("producer 2", -1, &["e"], 3);
    told.assigned("consumer", 0);
    told.polled("consumer", 0, &[(0, "a"), (1, "b")]);
    told.polled("consumer", 2, &[(2, "c"), (3, "e")]);
    told
}

#[test]
fn a_history_in_which_nothing_is_wrong_is_counted() {
    let mut told = usual();
    told.sent("producer 1", -1, &["f"], 4);
    let report = told.report();
    assert_eq!(report.broken, []);
    assert_eq!((report.sent, report.acknowledged, report.unseen), (6, 4, 1), "f may be read yet");
    assert_eq!((report.polls, report.read), (2, 4));
}

#[test]
fn lines_have_the_shape_that_is_told() {
    let mut told = usual();
    told.read_finally("reader", 3, &[(3, "e")]);
    let mut text = Vec::new();
    write_history(&told.recorder.operations(), &mut text).expect("memory takes it");
    let text = String::from_utf8(text).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in [
        (
            0,
            r#"{"index":0,"time":1000000,"process":0,"client":"producer 1","type":"invoke","f":"send","partition":"t-0","acks":-1,"value":[["send","t-0","a"],["send","t-0","b"]]}"#,
        ),
        (
            1,
            r#"{"index":1,"time":2000000,"process":0,"client":"producer 1","type":"ok","f":"send","partition":"t-0","acks":-1,"value":[["send","t-0",[0,"a"]],["send","t-0",[1,"b"]]]}"#,
        ),
        (
            3,
            r#"{"index":3,"time":4000000,"process":1,"client":"producer 2","type":"info","f":"send","partition":"t-0","acks":-1,"value":[["send","t-0","c"]],"error":"REQUEST_TIMED_OUT"}"#,
        ),
        (
            6,
            r#"{"index":6,"time":7000000,"process":2,"client":"producer 2","type":"invoke","f":"send","partition":"t-0","acks":-1,"value":[["send","t-0","e"]]}"#,
        ),
        (
            8,
            r#"{"index":8,"time":9000000,"process":3,"client":"consumer","type":"invoke","f":"assign","partition":"t-0","from":0,"value":["t-0"]}"#,
        ),
        (
            10,
            r#"{"index":10,"time":10000000,"process":3,"client":"consumer","type":"invoke","f":"poll","partition":"t-0","from":0,"value":[["poll"]]}"#,
        ),
        (
            11,
            r#"{"index":11,"time":11000000,"process":3,"client":"consumer","type":"ok","f":"poll","partition":"t-0","from":0,"value":[["poll",{"t-0":[[0,"a"],[1,"b"]]}]]}"#,
        ),
        (
            15,
            r#"{"index":15,"time":15000000,"process":4,"client":"reader","type":"ok","f":"poll","partition":"t-0","from":3,"final":true,"value":[["poll",{"t-0":[[3,"e"]]}]]}"#,
        ),
    ] {
        assert_eq!(lines[at], line);
    }
}

#[test]
fn what_is_written_is_read_back_whatever_the_values() {
    let mut told = usual();
    told.sent("producer 1", 1, &["ü\"\n"], -1);
    let odd = Act::send(-1, &[&b"\xff\x00"[..]]);
    told.begin("producer 1", odd.clone());
    let Act::Send { acks, records, .. } = odd.sent_at(5) else { panic!("a send") };
    told.end("producer 1", Phase::Ok, Act::Send { acks, records, may_repeat: true });
    told.begin("consumer", Act::poll(4));
    told.end(
        "consumer",
        Phase::Ok,
        Act::poll(4).read(vec![(4, None), (5, name_of(Some(b"\xff\0")))]),
    );
    told.begin("consumer", Act::poll(6));
    let operations = told.recorder.operations();
    let mut text = Vec::new();
    write_history(&operations, &mut text).expect("memory takes it");
    assert!(String::from_utf8_lossy(&text).contains(r#"[5,"0xff00"]"#));
    assert_eq!(read_history(&text[..]).expect("a history"), operations);
}

#[test]
fn a_file_that_is_no_history_is_refused_by_its_line() {
    let told = usual();
    let lines: Vec<String> = told.recorder.operations().iter().map(line).collect();
    let refused = |lines: &[&str]| {
        let error = read_history(lines.join("\n").as_bytes()).expect_err("no history");
        format!("{error:#}")
    };
    assert!(
        refused(&[&lines[0], "{}"]).starts_with("line 2 is no line of a history: missing field")
    );
    assert_eq!(refused(&[&lines[1]]), "line 1: process 0 did not begin that");
    assert_eq!(refused(&[&lines[0], &lines[4]]), "line 2: process 0 does something else still");
    let after_info = lines[6].replace(r#""process":2"#, r#""process":1"#);
    assert_eq!(refused(&[&lines[2], &lines[3], &after_info]), "line 3: process 1 ended in an info");
    let again = lines[1].replace(r#""index":1"#, r#""index":0"#);
    assert_eq!(refused(&[&lines[0], &again]), "line 2: index 0 again");
    let elsewhere = lines[0].replace(r#"["send","t-0","b"]"#, r#"["send","t-1","b"]"#);
    assert!(refused(&[&elsewhere]).contains("not a send to t-0"));
    let unknown = r#"{"index":9,"time":1,"process":7,"type":"invoke","f":"crash","partition":"t-0","value":null}"#;
    assert_eq!(read_history(unknown.as_bytes()).expect("passed over"), []);
}

#[test]
fn an_acknowledged_record_that_the_last_reading_does_not_have_is_lost() {
    let mut told = usual();
    told.sent("producer 1", -1, &["f"], 4);
    told.read_finally("reader", 0, &[(0, "a"), (1, "b"), (2, "c"), (3, "e")]);
    assert_eq!(told.broken(), [(Rule::Lost, vec![15, 17])]);
    let mut without_an_offset = usual();
    without_an_offset.sent("producer 1", -1, &["f"], -1);
    without_an_offset.read_finally("reader", 0, &[(0, "a"), (1, "b"), (2, "c"), (3, "e")]);
    assert_eq!(without_an_offset.broken(), [(Rule::Lost, vec![15, 17])]);
}

#[test]
fn the_last_reading_need_not_have_what_was_promised_by_one_broker_or_after_it_or_below_it() {
    let mut told = usual();
    told.sent("producer 1", 1, &["f"], 4);
    told.begin("reader", Act::Poll { from: 3, records: Vec::new(), is_final: true });
    told.sent("producer 1", -1, &["g"], 4);
    let read = Act::Poll { from: 3, records: vec![(3, Some("e".into()))], is_final: true };
    told.end("reader", Phase::Ok, read);
    assert_eq!(told.broken(), []);
    let mut failing = usual();
    let last = Act::Poll { from: 0, records: Vec::new(), is_final: true };
    failing.begin("reader", last.clone());
    failing.end("reader", Phase::Fail, last);
    assert_eq!(failing.broken(), [], "a reading that failed tells nothing");
}

#[test]
fn an_acknowledged_record_that_all_readers_pass_over_is_lost() {
    let mut told = usual();
    told.sent("producer 1", -1, &["f", "g"], 4);
    told.polled("consumer", 4, &[(5, "g")]);
    assert_eq!(told.broken(), [(Rule::Lost, vec![13, 15, 17])]);
}

#[test]
fn a_reader_that_passes_over_what_another_read_has_a_gap() {
    let mut told = usual();
    told.assigned("second", 0);
    told.polled("second", 0, &[(0, "a"), (1, "b"), (3, "e")]);
    assert_eq!(told.broken(), [(Rule::Gap, vec![13, 17])], "it is c that nobody was sure of");
    let mut later = usual();
    later.assigned("second", 1);
    later.polled("second", 1, &[(1, "b")]);
    later.assigned("second", 3);
    later.polled("second", 3, &[(3, "e")]);
    assert_eq!(later.broken(), [], "it was told to go on elsewhere");
}

#[test]
fn an_offset_at_which_two_records_were_seen_is_told() {
    let mut told = usual();
    told.sent("producer 1", -1, &["f"], 3);
    assert_eq!(told.broken(), [(Rule::OneRecordPerOffset, vec![7, 15])]);
    let mut by_one_broker = usual();
    by_one_broker.sent("producer 1", 1, &["f"], 3);
    assert_eq!(by_one_broker.broken(), [], "acks=1 was taken back");
}

#[test]
fn a_record_that_is_at_two_offsets_is_told_unless_it_was_sent_twice() {
    let twice = |prepare: fn(&mut Told)| {
        let mut told = usual();
        prepare(&mut told);
        told.polled("consumer", 4, &[(4, "a")]);
        told.broken()
    };
    let broken = twice(|_| {}).into_iter().map(|(rule, _)| rule).collect::<Vec<_>>();
    assert_eq!(broken, [Rule::OneOffsetPerRecord]);
    assert_eq!(twice(|told| told.not_sent("producer 1", Phase::Info, "a")), []);
    let mut repeated = Told::default();
    let act = Act::send(-1, &["a"]);
    repeated.begin("producer", act.clone());
    let records = vec![(Some(1), Some("a".into()))];
    repeated.end("producer", Phase::Ok, Act::Send { acks: -1, records, may_repeat: true });
    repeated.polled("consumer", 0, &[(0, "a"), (1, "a")]);
    assert_eq!(repeated.broken(), []);
}

#[test]
fn a_reader_that_goes_back_without_being_told_to_is_out_of_order() {
    let mut told = usual();
    told.polled("consumer", 2, &[(2, "c")]);
    assert_eq!(told.broken(), [(Rule::Order, vec![13, 14, 15])]);
    let mut within = Told::default();
    within.sent("producer", -1, &["a", "b"], 0);
    within.polled("consumer", 0, &[(1, "b"), (0, "a")]);
    assert_eq!(within.broken(), [(Rule::Order, vec![2, 3])]);
}

#[test]
fn what_is_read_and_was_never_sent_or_only_later_is_told() {
    let mut told = usual();
    told.polled("consumer", 4, &[(4, "ghost")]);
    assert_eq!(told.broken(), [(Rule::Unsent, vec![15])]);
    let mut early = usual();
    early.polled("consumer", 4, &[(4, "f")]);
    early.sent("producer 1", -1, &["f"], 4);
    assert_eq!(early.broken(), [(Rule::Unsent, vec![15, 16])]);
    let mut failed = usual();
    failed.polled("consumer", 4, &[(4, "d")]);
    assert_eq!(failed.broken(), [], "a send that failed may be there");
}
