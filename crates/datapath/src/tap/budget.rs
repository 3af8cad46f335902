//! How thin a sample must be so that the taps cost no more than they may.

use tailtap_analysis::marks::{IN_FLIGHT_NS, MOST_LEVEL};

/// A share below this part of the budget may be doubled, and stays well below it.
const CALM: f64 = 0.25;
/// So often in a row it must be seen before the sample is doubled: traffic comes in bursts.
const PATIENCE: u32 = 5;

/// A change of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// One packet of `2^level` from now on.
    pub level: u8,
    /// When the side behind the device takes this sample, too: packets are under way that are in the
    /// sample of before.
    pub behind_ns: u64,
}

/// Decides by the share of a core that the taps took.
#[derive(Debug)]
pub struct Budget {
    /// The share that they may take.
    limit: f64,
    /// No denser sample is taken than the user asked for.
    densest: u8,
    level: u8,
    calm: u32,
    /// Until then the side behind the device has a denser sample than the one before it.
    busy_until_ns: u64,
    /// The largest share that no thinner sample could help.
    exceeded: Option<f64>,
}

impl Budget {
    /// A budget of `limit` of a core's time. The sample is one packet of `2^densest` at first.
    pub fn new(limit: f64, densest: u8) -> Self {
        Self { limit, densest, level: densest, calm: 0, busy_until_ns: 0, exceeded: None }
    }

    /// What follows from the share that was measured until `now`, of which `before` was taken before the
    /// device, by such a part of all links.
    pub fn decide(&mut self, share: f64, before: f64, part: f64, now: u64) -> Option<Change> {
        // Behind the device the thinner sample is still to come; it will be there as it is before it.
        let is_coming = now < self.busy_until_ns && part > 0.0;
        let share = if is_coming { before / part } else { share };
        if share > self.limit {
            self.calm = 0;
            if self.level == MOST_LEVEL {
                self.exceeded = Some(self.exceeded.map_or(share, |most| most.max(share)));
                return None;
            }
            // What is not in the sample costs as well, so that this is rarely too much.
            let steps = (share / self.limit).log2().ceil().clamp(1.0, f64::from(MOST_LEVEL)) as u8;
            self.level = (self.level + steps).min(MOST_LEVEL);
            self.busy_until_ns = now.saturating_add(IN_FLIGHT_NS);
            return Some(Change { level: self.level, behind_ns: self.busy_until_ns });
        }
        self.calm = if share < CALM * self.limit { self.calm + 1 } else { 0 };
        if self.calm < PATIENCE || self.level == self.densest || now < self.busy_until_ns {
            return None;
        }
        self.calm = 0;
        self.level -= 1;
        Some(Change { level: self.level, behind_ns: now })
    }

    /// The largest share beyond the budget that was measured with the thinnest sample.
    pub fn exceeded(&self) -> Option<f64> {
        self.exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_above_the_budget_thins_at_once_and_behind_the_device_later() {
        let mut budget = Budget::new(0.02, 0);
        assert_eq!(budget.decide(0.02, 0.01, 0.5, 0), None);
        let change = budget.decide(0.15, 0.07, 0.5, 1000).expect("a change");
        assert_eq!(change, Change { level: 3, behind_ns: 1000 + IN_FLIGHT_NS });
        // Behind the device it is not thinner yet: what it takes there says nothing.
        assert_eq!(budget.decide(0.085, 0.01, 0.5, 2000), None);
        assert_eq!(budget.decide(0.085, 0.011, 0.5, 2000).expect("a change").level, 4);
        // Where all links are behind the device nothing else can be said.
        assert_eq!(budget.decide(0.021, 0.0, 0.0, 3000).expect("a change").level, 5);
        assert_eq!(budget.exceeded(), None);
    }

    #[test]
    fn only_a_share_that_stays_small_makes_it_denser_again_and_never_too_dense() {
        let mut budget = Budget::new(0.02, 1);
        budget.decide(0.05, 0.05, 1.0, 0).expect("a change");
        let mut changes = Vec::new();
        for second in 1..40u64 {
            let now = second * 1_000_000_000;
            let share = if second == 8 { 0.01 } else { 0.001 };
            changes
                .extend(budget.decide(share, share, 1.0, now).map(|change| (second, change.level)));
        }
        // Not while packets are under way that are in the denser sample; then each time anew.
        assert_eq!(changes, [(5, 2), (13, 1)]);
    }

    #[test]
    fn the_thinnest_sample_may_not_be_enough() {
        let mut budget = Budget::new(0.001, 0);
        for now in 0..10 {
            budget.decide(0.5, 0.5, 1.0, now);
        }
        assert_eq!(budget.decide(0.6, 0.6, 1.0, 11), None);
        assert_eq!(budget.exceeded(), Some(0.6));
    }
}
