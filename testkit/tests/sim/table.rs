//! Every rule the issue asks for runs in the simulator: where. The test holds the table to the files.

/// Rule, file under the workspace's root, and what in it shows the rule.
const SHOWN: &[(&str, &str, &str)] = &[
    ("T01", "scenarios/stories/t01.rs", "T01"),
    ("T02", "testkit/tests/sim/truncation.rs", "fn t02_"),
    ("T03", "scenarios/stories/t03.rs", "T03"),
    ("T04", "testkit/tests/sim/truncation.rs", "fn t04_"),
    ("T05", "testkit/tests/sim/truncation.rs", "fn t05_"),
    ("T07", "testkit/tests/sim/truncation.rs", "fn t07_"),
    ("T08", "testkit/tests/sim/truncation.rs", "fn t08_"),
    ("T09", "testkit/tests/sim/truncation.rs", "fn t09_"),
    ("T10", "testkit/tests/sim/truncation.rs", "fn t10_"),
    ("T11", "testkit/tests/sim/truncation.rs", "fn t11_"),
    ("T12", "testkit/tests/sim/truncation.rs", "fn t12_"),
    ("H01", "scenarios/stories/h01.rs", "H01"),
    ("H02", "testkit/tests/sim/watermarks.rs", "fn h02_"),
    ("H03", "testkit/tests/sim/watermarks.rs", "fn h03_"),
    ("H04", "testkit/tests/sim/watermarks.rs", "fn h04_"),
    ("H05", "testkit/tests/sim/watermarks.rs", "fn h05_"),
    ("H06", "testkit/tests/sim/watermarks.rs", "fn h06_"),
    ("H07", "testkit/tests/sim/watermarks.rs", "fn h07_"),
    ("H09", "testkit/tests/sim/watermarks.rs", "fn h09_"),
    ("H10", "testkit/tests/sim/controllers.rs", "fn c03_and_h10_"),
    ("H11", "testkit/tests/sim/watermarks.rs", "fn h11_"),
    ("H12", "testkit/tests/sim/watermarks.rs", "fn h12_"),
    ("H13", "testkit/tests/sim/controllers.rs", "fn h13_"),
    ("E01", "testkit/tests/sim/watermarks.rs", "fn e01_"),
    ("E02", "testkit/tests/sim/watermarks.rs", "fn e02_"),
    ("C01", "scenarios/stories/c01.rs", "C01"),
    ("C02", "testkit/tests/sim/controllers.rs", "fn c02_"),
    ("C03", "testkit/tests/sim/controllers.rs", "fn c03_"),
    ("C04", "testkit/tests/sim/controllers.rs", "fn c04_"),
    ("C05", "testkit/tests/sim/controllers.rs", "fn c05_"),
    ("C06", "scenarios/stories/c06.rs", "C06"),
    ("C07", "testkit/tests/sim/controllers.rs", "fn c07_"),
];

#[test]
fn every_rule_of_the_table_is_shown_where_it_says() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (rule, file, what) in SHOWN {
        let text = std::fs::read_to_string(root.join(file));
        let text = text.unwrap_or_else(|error| panic!("{rule}: {file}: {error}"));
        assert!(text.contains(what), "{rule}: {file} has no {what}");
    }
    // T06 and H08 are not among the rules.
    for (letter, numbers) in [("T", 1..=12), ("H", 1..=13), ("E", 1..=2), ("C", 1..=7)] {
        for number in numbers {
            let rule = format!("{letter}{number:02}");
            let is_asked = !["T06", "H08"].contains(&rule.as_str());
            let is_shown = SHOWN.iter().any(|(shown, _, _)| *shown == rule);
            assert_eq!(is_shown, is_asked, "{rule}");
        }
    }
}
