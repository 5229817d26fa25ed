//! The stories, each a file of its own; the list is in the order of the rules.

use crate::Scenario;

mod c01;
mod c02;
mod c02_again;
mod c03;
mod c03_alone;
mod c04;
mod c05;
mod c06;
mod c06_standing;
mod c06_unclean;
mod c07;
mod c08;
mod cut;
mod e01;
mod e02;
mod e03;
mod e04;
mod f04;
mod f07;
mod h01;
mod h02;
mod h03;
mod h04;
mod h05;
mod h06;
mod h07;
mod h09;
mod h10;
mod h11;
mod h12;
mod h13;
mod i01;
mod i02;
mod i02_failover;
mod k02;
mod q03;
mod q04;
mod q05;
mod q07;
mod s01;
mod s04;
mod t01;
mod t02;
mod t03;
mod t04;
mod t05;
mod t07;
mod t08;
mod t09;
mod t10;
mod t11;
mod t12;
mod x01;
mod x02;
mod x05;

/// All stories, by rule.
pub fn list() -> &'static [Scenario] {
    &[
        t01::SCENARIO,
        t02::SCENARIO,
        t03::SCENARIO,
        t04::SCENARIO,
        t05::SCENARIO,
        t07::SCENARIO,
        t08::SCENARIO,
        t09::SCENARIO,
        t10::SCENARIO,
        t11::SCENARIO,
        t12::SCENARIO,
        h01::SCENARIO,
        h02::SCENARIO,
        h03::SCENARIO,
        h04::SCENARIO,
        h05::SCENARIO,
        h06::SCENARIO,
        h07::SCENARIO,
        h09::SCENARIO,
        h10::SCENARIO,
        h11::SCENARIO,
        h12::SCENARIO,
        h13::SCENARIO,
        e01::SCENARIO,
        e02::SCENARIO,
        e03::SCENARIO,
        e04::SCENARIO,
        s01::SCENARIO,
        s04::SCENARIO,
        f04::SCENARIO,
        f07::SCENARIO,
        k02::SCENARIO,
        c01::SCENARIO,
        c02::SCENARIO,
        c02_again::SCENARIO,
        c03::SCENARIO,
        c03_alone::SCENARIO,
        c04::SCENARIO,
        c05::SCENARIO,
        c06::SCENARIO,
        c06_standing::SCENARIO,
        c06_unclean::SCENARIO,
        c07::SCENARIO,
        c08::SCENARIO,
        i01::SCENARIO,
        i02::SCENARIO,
        i02_failover::SCENARIO,
        x01::SCENARIO,
        x02::SCENARIO,
        x05::SCENARIO,
        q03::SCENARIO,
        q04::SCENARIO,
        q05::SCENARIO,
        q07::SCENARIO,
        cut::SCENARIO,
    ]
}
