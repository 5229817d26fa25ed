//! Each invariant can fail: states made by hand that break one rule each.
