//! How thin a sample must be so that the taps cost no more than they may.

use tailtap_analysis::marks::{IN_FLIGHT_NS, MOST_LEVEL};

/// A share below this part of the budget may be doubled, and stays well below it.
const CALM: f64 = 0.25;
/// So often in a row it must be seen before the sample is doubled: traffic comes in bursts.
const PATIENCE: u32 = 5;
/// So often in a row a packet must have cost no less with a thinner sample before that is given up.
const LOOKS: u32 = 3;

/// What the taps took of a core.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Their share of its time.
    pub share: f64,
    /// What of it was taken before the device,
    pub before: f64,
    /// by such a part of all links.
    pub part: f64,
    /// What a packet cost there, in nanoseconds, or everywhere where no link is before the device.
    pub packet_ns: Option<f64>,
}

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
///
/// Whether a packet is in a sample takes a hash of it, which costs more than its stamp where little is
/// kept of it. So it is seen whether a thinner sample helps.
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
    /// The least that a packet cost with the densest sample, in nanoseconds.
    densest_ns: Option<f64>,
    /// What it cost with a thinner sample, so often in a row no less than that.
    dearer: (u32, f64),
    /// That, where no thinner sample is taken any more.
    given_up: Option<f64>,
    /// The largest share that no thinner sample could help.
    exceeded: Option<f64>,
}

impl Budget {
    /// A budget of `limit` of a core's time. The sample is one packet of `2^densest` at first.
    pub fn new(limit: f64, densest: u8) -> Self {
        Self {
            limit,
            densest,
            level: densest,
            calm: 0,
            busy_until_ns: 0,
            densest_ns: None,
            dearer: (0, 0.0),
            given_up: None,
            exceeded: None,
        }
    }

    /// What follows from what was measured until `now`.
    pub fn decide(&mut self, taken: Taken, now: u64) -> Option<Change> {
        self.compare(taken.packet_ns);
        let is_busy = now < self.busy_until_ns;
        if self.dearer.0 >= LOOKS {
            if is_busy {
                return None;
            }
            (self.level, self.given_up) = (self.densest, Some(self.dearer.1));
            self.dearer.0 = 0;
            return Some(Change { level: self.level, behind_ns: now });
        }
        // Behind the device the thinner sample is still to come; it will be there as it is before it.
        let is_coming = is_busy && taken.part > 0.0;
        let share = if is_coming { taken.before / taken.part } else { taken.share };
        if share > self.limit {
            self.calm = 0;
            if self.level == MOST_LEVEL || self.given_up.is_some() {
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
        if self.calm < PATIENCE || self.level == self.densest || is_busy {
            return None;
        }
        self.calm = 0;
        self.level -= 1;
        Some(Change { level: self.level, behind_ns: now })
    }

    /// Takes note of what a packet cost.
    fn compare(&mut self, packet_ns: Option<f64>) {
        let Some(ns) = packet_ns else { return };
        if self.level == self.densest {
            self.densest_ns = Some(self.densest_ns.map_or(ns, |least| least.min(ns)));
        } else if self.densest_ns.is_some_and(|least| ns >= least) {
            self.dearer = (self.dearer.0 + 1, ns);
        } else {
            self.dearer.0 = 0;
        }
    }

    /// The largest share beyond the budget that was measured where no thinner sample could be taken.
    pub fn exceeded(&self) -> Option<f64> {
        self.exceeded
    }

    /// What a packet cost with the densest sample and with a thinner one, in nanoseconds, where the thinner
    /// one was given up as it costs no less.
    pub fn given_up(&self) -> Option<(f64, f64)> {
        self.densest_ns.zip(self.given_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_above_the_budget_thins_at_once_and_behind_the_device_later() {
        let mut budget = Budget::new(0.02, 0);
        let taken = |share, before| Taken { share, before, part: 0.5, packet_ns: None };
        assert_eq!(budget.decide(taken(0.02, 0.01), 0), None);
        let change = budget.decide(taken(0.15, 0.07), 1000).expect("a change");
        assert_eq!(change, Change { level: 3, behind_ns: 1000 + IN_FLIGHT_NS });
        // Behind the device it is not thinner yet: what it takes there says nothing.
        assert_eq!(budget.decide(taken(0.085, 0.01), 2000), None);
        assert_eq!(budget.decide(taken(0.085, 0.011), 2000).expect("a change").level, 4);
        // Where all links are behind the device nothing else can be said.
        let behind = Taken { part: 0.0, ..taken(0.021, 0.0) };
        assert_eq!(budget.decide(behind, 3000).expect("a change").level, 5);
        assert_eq!(budget.exceeded(), None);
    }

    #[test]
    fn only_a_share_that_stays_small_makes_it_denser_again_and_never_too_dense() {
        let mut budget = Budget::new(0.02, 1);
        budget.decide(taken(0.05), 0).expect("a change");
        let mut changes = Vec::new();
        for second in 1..40u64 {
            let now = second * 1_000_000_000;
            let share = if second == 8 { 0.01 } else { 0.001 };
            changes.extend(budget.decide(taken(share), now).map(|change| (second, change.level)));
        }
        // Not while packets are under way that are in the denser sample; then each time anew.
        assert_eq!(changes, [(5, 2), (13, 1)]);
    }

    #[test]
    fn the_thinnest_sample_may_not_be_enough() {
        let mut budget = Budget::new(0.001, 0);
        for now in 0..10 {
            budget.decide(taken(0.5), now);
        }
        assert_eq!(budget.decide(taken(0.6), 11), None);
        assert_eq!(budget.exceeded(), Some(0.6));
        assert_eq!(budget.given_up(), None);
    }

    /// What taps do whose stamps cost `stamp` and hashes `hash` ns, at 100,000 packets a second and a
    /// budget of 1 %, half a minute long: the levels that were taken, and the budget.
    fn taps(stamp: f64, hash: f64, densest: u8) -> (Vec<u8>, Budget) {
        let mut budget = Budget::new(0.01, densest);
        let mut levels = vec![densest];
        for second in 1..30 {
            let level = *levels.last().expect("the first one");
            let hash = if level > 0 { hash } else { 0.0 };
            let ns = hash + stamp / f64::from(1 << level);
            let share = ns * 1e-4;
            let taken = Taken { share, before: share, part: 1.0, packet_ns: Some(ns) };
            levels.extend(budget.decide(taken, second * 1_000_000_000).map(|to| to.level));
        }
        (levels, budget)
    }

    #[test]
    fn a_thinner_sample_that_costs_no_less_is_given_up() {
        // Below 100 ns the budget is kept.
        let (levels, budget) = taps(400.0, 50.0, 0);
        assert_eq!((levels, budget.given_up()), (vec![0, 2, 3], None));
        let (levels, budget) = taps(120.0, 200.0, 0);
        assert_eq!((levels[0], levels.last()), (0, Some(&0)));
        assert!(levels.len() < 8, "{levels:?}");
        let (stamped, hashed) = budget.given_up().expect("it costs more");
        assert!(stamped == 120.0 && hashed > 200.0);
        assert!(budget.exceeded().expect("more than the budget") >= 0.012);
        // What dearer stamps save is kept, though it is not enough.
        let (levels, budget) = taps(400.0, 200.0, 0);
        assert_eq!((levels.last(), budget.given_up()), (Some(&MOST_LEVEL), None));
        // Who asked for a sample pays for hashes in any case.
        let (levels, budget) = taps(120.0, 200.0, 1);
        assert_eq!((levels.last(), budget.given_up()), (Some(&MOST_LEVEL), None));
    }

    fn taken(share: f64) -> Taken {
        Taken { share, before: share, part: 1.0, packet_ns: None }
    }
}
