//! Which samples all links together take.

use std::collections::VecDeque;

use tailtap_analysis::marks::Sample;

use crate::clock::now_ns;

use super::budget::{Budget, Change, Taken};
use super::live::LiveTap;
use super::meter::LinkMeasured;
use super::{Measured, Options};

/// Changes the samples of all links together, as a budget asks for.
pub(super) struct Sampler {
    budget: Option<Budget>,
    samples: Vec<Sample>,
    /// What the links behind the device are to take, and from when on.
    ahead: VecDeque<(u64, u8)>,
}

impl Sampler {
    pub(super) fn new(options: &Options, first: Sample) -> Self {
        let budget = options.budget.map(|limit| Budget::new(limit, options.level));
        Self { budget, samples: vec![first], ahead: VecDeque::new() }
    }

    /// When links behind the device are to take another sample.
    pub(super) fn due_ns(&self) -> u64 {
        self.ahead.front().map_or(u64::MAX, |&(due, _)| due)
    }

    /// Has the links behind the device take what is due.
    pub(super) fn catch_up(&mut self, taps: &mut [LiveTap<'_>], now: u64) {
        while let Some(&(due, level)) = self.ahead.front()
            && due <= now
        {
            self.ahead.pop_front();
            taps.iter_mut().filter(|tap| tap.is_behind()).for_each(|tap| tap.set_level(level));
        }
    }

    /// Takes another sample if the links' shares of a core's time ask for it. A packet that is in the sample
    /// before the device is so behind it: there a thinner one is taken later, and a denser one first.
    pub(super) fn decide(&mut self, taps: &mut [LiveTap<'_>], measured: &Measured<'_>) {
        let now = now_ns();
        let Some(budget) = &mut self.budget else { return };
        if !taps.iter().all(LiveTap::takes_change) {
            return;
        }
        let links = taps.iter().zip(&measured.links);
        let of_before = || links.clone().filter(|(tap, _)| !tap.is_behind());
        let taken = Taken {
            share: measured.share,
            before: of_before().map(|(_, link)| link.share).sum(),
            part: of_before().count() as f64 / taps.len() as f64,
            packet_ns: packet_ns(of_before()).or_else(|| packet_ns(links)),
        };
        let Some(Change { level, behind_ns }) = budget.decide(taken, now) else { return };
        self.ahead.push_back((behind_ns, level));
        self.catch_up(taps, now);
        let sample = Sample { since_ns: now, level };
        for tap in taps.iter_mut() {
            if !tap.is_behind() {
                tap.set_level(level);
            }
            tap.say_sample(sample);
        }
        self.samples.push(sample);
    }

    /// The samples, and what should be warned of.
    pub(super) fn told(&self) -> (&[Sample], Option<String>) {
        let Some(budget) = &self.budget else { return (&self.samples, None) };
        let exceeded = budget.exceeded().map(|share| {
            let with = match budget.given_up() {
                None => "with the thinnest sample".into(),
                Some((dense, thin)) => format!(
                    "and a thinner sample costs no less ({thin:.0} ns a packet, and {dense:.0} without)"
                ),
            };
            format!(
                "the taps took up to {:.2} % of a core {with}, which is more than the budget: filter, \
                 or tap elsewhere",
                100.0 * share
            )
        });
        (&self.samples, exceeded)
    }
}

/// What a packet cost at some links, in nanoseconds; none where none was timed.
fn packet_ns<'a>(
    links: impl Iterator<Item = (&'a LiveTap<'a>, &'a LinkMeasured<'a>)>,
) -> Option<f64> {
    let timed = links.filter_map(|(_, link)| link.ns.map(|ns| (link.rate, ns)));
    let (rate, spent) = timed
        .fold((0.0, 0.0), |(rate, spent), (packets, ns)| (rate + packets, spent + packets * ns));
    (rate > 0.0).then(|| spent / rate)
}
