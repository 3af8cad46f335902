//! A trace that costs more than it may is taken for a part of the time only.
//!
//! Programs that are attached cost their time at every event, whatever they store: so they are taken away
//! for a while. Taking them away and attaching them interrupts every CPU some dozens of times (the kernel
//! changes its own code), so that a stretch lasts a second at least.

/// So long the kernel times the programs: each run of each costs more meanwhile.
const MOMENT_NS: u64 = 20_000_000;
/// How often it does.
const PERIOD_NS: u64 = 1_000_000_000;
/// So soon after they were attached it does so first.
const FIRST_NS: u64 = 50_000_000;
/// A stretch that is traced where another one is not.
const STRETCH_NS: u64 = 1_000_000_000;
/// The longest one that is not.
const MOST_NS: u64 = 300_000_000_000;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Have the kernel time the programs.
    Time,
    /// Say by [`Thinning::measured`] what they took.
    Measure,
    /// Take them away.
    Pause,
    /// Attach them again.
    Resume,
}

/// Decides when a trace pauses.
#[derive(Debug)]
pub(super) struct Thinning {
    /// The share of one core's time that it may take.
    limit: f64,
    /// What is next, and when.
    next: (Step, u64),
    /// Since when it is traced, or is not.
    since_ns: u64,
    /// How long it pauses next.
    pause_ns: u64,
    paused_ns: u64,
    traced_ns: u64,
    /// What was measured: its sum, and how often.
    shares: (f64, u32),
}

impl Thinning {
    pub(super) fn new(limit: f64, now: u64) -> Self {
        Self {
            limit,
            next: (Step::Time, now + FIRST_NS),
            since_ns: now,
            pause_ns: 0,
            paused_ns: 0,
            traced_ns: 0,
            shares: (0.0, 0),
        }
    }

    /// When there is something to do.
    pub(super) fn due_ns(&self) -> u64 {
        self.next.1
    }

    /// What is to be done now, if anything.
    pub(super) fn step(&mut self, now: u64) -> Option<Step> {
        let (step, due) = self.next;
        if now < due {
            return None;
        }
        match step {
            Step::Time => self.next = (Step::Measure, now + MOMENT_NS),
            Step::Measure => {} // what follows from it is not known yet
            Step::Pause => {
                self.traced_ns += now - self.since_ns;
                (self.since_ns, self.next) = (now, (Step::Resume, now + self.pause_ns));
            }
            Step::Resume => {
                self.paused_ns += now - self.since_ns;
                (self.since_ns, self.next) = (now, (Step::Time, now + FIRST_NS));
            }
        }
        Some(step)
    }

    /// Takes note of the share of a core that the programs took.
    pub(super) fn measured(&mut self, share: f64, now: u64) {
        self.shares = (self.shares.0 + share, self.shares.1 + 1);
        self.next = (Step::Time, now + PERIOD_NS - MOMENT_NS);
        if share > self.limit {
            let pause = STRETCH_NS as f64 * (share / self.limit - 1.0);
            self.pause_ns = (pause as u64).clamp(STRETCH_NS, MOST_NS);
            self.next = (Step::Pause, (self.since_ns + STRETCH_NS).max(now));
        }
    }

    /// Takes note that a pause begins only now: programs take a while to be taken away.
    pub(super) fn paused(&mut self, now: u64) {
        self.traced_ns += now - self.since_ns;
        (self.since_ns, self.next.1) = (now, now + self.pause_ns);
    }

    /// Since when nothing is traced, if nothing is.
    pub(super) fn paused_since(&self) -> Option<u64> {
        (self.next.0 == Step::Resume).then_some(self.since_ns)
    }

    /// How long nothing was traced until now.
    pub(super) fn paused_ns(&self, now: u64) -> u64 {
        self.paused_ns + self.paused_since().map_or(0, |since| now.saturating_sub(since))
    }

    /// The share of a core that it took, pauses included; none before it was measured.
    pub(super) fn share(&self, now: u64) -> Option<f64> {
        let rest = now.saturating_sub(self.since_ns);
        let traced = self.traced_ns + if self.paused_since().is_none() { rest } else { 0 };
        let whole = traced + self.paused_ns(now);
        let (sum, count) = self.shares;
        (count > 0 && whole > 0).then(|| sum / f64::from(count) * traced as f64 / whole as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minute of a trace whose programs take such a share of a core, and may take 2 %: how long it paused
    /// each time, in ns, and what is known in the end.
    fn minute(share: impl Fn(u64) -> f64) -> (Vec<u64>, Thinning) {
        let mut thinning = Thinning::new(0.02, 0);
        let mut pauses = Vec::new();
        while thinning.due_ns() < 60_000_000_000 {
            let now = thinning.due_ns();
            assert_eq!(thinning.step(now - 1), None);
            match thinning.step(now).expect("it is due") {
                Step::Measure => thinning.measured(share(now), now),
                Step::Resume => pauses.push(now),
                Step::Time | Step::Pause => {}
            }
        }
        (pauses, thinning)
    }

    const END: u64 = 60_000_000_000;

    #[test]
    fn what_is_cheap_enough_goes_on() {
        let (pauses, thinning) = minute(|_| 0.02);
        assert_eq!((pauses.len(), thinning.paused_ns(END)), (0, 0));
        assert!((thinning.share(END).expect("measured") - 0.02).abs() < 1e-9);
    }

    #[test]
    fn what_is_too_dear_pauses_so_long_that_the_budget_is_kept() {
        for share in [0.03, 0.1, 0.2] {
            let (pauses, thinning) = minute(|_| share);
            let taken = thinning.share(END).expect("measured");
            assert!(taken < 0.0215 && taken > 0.012, "{share}: {taken}");
            let paused = thinning.paused_ns(END) as f64 / END as f64;
            assert!((share * (1.0 - paused) - taken).abs() < 1e-9);
            assert!(!pauses.is_empty());
        }
    }

    #[test]
    fn a_minute_that_becomes_calm_is_traced_to_its_end() {
        let (pauses, thinning) = minute(|now| if now < 20_000_000_000 { 0.1 } else { 0.001 });
        assert!(pauses.last().expect("it paused") < &26_000_000_000);
        assert_eq!(thinning.paused_since(), None);
    }
}
