//! One walk through both captures at once.

use std::ops::Range;

use super::times::Reorder;
use super::{Counts, EvaluateError};
use crate::blocks::Blocks;
use crate::distribution::Distribution;
use crate::edges::{Covered, Edges, Span};
use crate::equals::{Equals, Plan, Verdict};
use crate::exceedances::Exceedances;
use crate::key::{Extract, Name};
use crate::losses::Losses;
use crate::matching::{Finished, Match, Matching};
use crate::stream::{Cursor, StreamError};
use crate::worst::Worst;

/// What is to be looked for.
pub(super) struct Walk<'a> {
    /// A packet must leave the device within this time, in nanoseconds.
    pub window_ns: u64,
    /// Packets within this time of a capture's first one are left out.
    pub trim_ns: u64,
    /// How many of the worst packets are kept.
    pub worst: usize,
    /// The time whose packets are counted.
    pub span: Span,
    /// About how many packets before the device there are within two windows.
    pub expected: usize,
    /// About how many packets there are after the device, if that is known.
    pub packets: Option<u64>,
    /// Of so many lost packets it is kept which they are.
    pub losses: usize,
    /// Whether it is kept which packets were matched.
    pub flows: bool,
    /// Whether both captures ran all the time, whatever they hold.
    pub throughout: bool,
    /// What the capture after the device covers, where that is known already.
    pub covered: Option<Covered>,
    /// When packets behind the device that match none are left out, as the sample changed.
    pub changes: &'a [Range<u64>],
    /// Asked now and then whether to give up.
    pub cancelled: &'a dyn Fn() -> bool,
}

/// What a walk gathers.
pub(super) struct Tally {
    pub counts: Counts,
    pub latencies: Distribution,
    pub worst: Worst<Name>,
    pub reorder: Reorder,
    pub exceedances: Exceedances,
    pub blocks: Blocks,
    pub losses: Losses,
    /// Of each matched packet its stamp before the device, its key there and its latency, if wanted.
    pub matched: Vec<(u64, u64, u64)>,
    /// What the captures before and after the device cover, and the packets of each without a partner
    /// near the ends of the other.
    pub covered: [Covered; 2],
    pub edges: [Edges; 2],
    /// Packets that share their key with others, where their order may tell them apart.
    pub equals: Option<Equals>,
    /// How many such packets were lost, where their order told it.
    pub lost_in_order: u64,
}

/// Why a walk ended early.
pub(super) enum Stop {
    Unsorted,
    Error(EvaluateError),
}

impl From<StreamError> for Stop {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Unsorted => Self::Unsorted,
            StreamError::NotSplittable => Self::Error(EvaluateError::NotSplittable),
            StreamError::Capture(error) => Self::Error(error.into()),
        }
    }
}

/// The matched packets of a batch, a column for each thing that is known of them.
#[derive(Default)]
struct Matched {
    /// Places in the batch.
    places: Vec<usize>,
    ingress: Vec<u64>,
    egress: Vec<u64>,
    latencies: Vec<u64>,
}

impl Matched {
    #[inline]
    fn push(&mut self, place: usize, ingress_ns: u64, egress_ns: u64) {
        self.places.push(place);
        self.ingress.push(ingress_ns);
        self.egress.push(egress_ns);
        self.latencies.push(egress_ns - ingress_ns);
    }

    fn clear(&mut self) {
        self.places.clear();
        self.ingress.clear();
        self.egress.clear();
        self.latencies.clear();
    }
}

impl Tally {
    /// Adds matched packets, in time order.
    fn record_all(&mut self, matched: &Matched, name: impl Fn(usize) -> Name) {
        let Matched { places, ingress, egress, latencies } = matched;
        // One loop for each statistic: each is short and keeps what it needs in registers.
        self.latencies.record_all(latencies.iter().copied());
        self.reorder.record_all(ingress, egress);
        self.worst.offer_all(ingress, egress, latencies, |i| name(places[i]));
        self.exceedances.record_all(ingress, latencies);
        self.blocks.record_all(egress, latencies);
        if self.exceedances.is_full() {
            self.exceedances.shrink(&self.latencies);
        }
    }
}

impl Walk<'_> {
    /// Walks through both captures, the one before the device a window ahead. Where it was settled what
    /// became of packets that share their key, `plan` says it.
    pub fn run<X: Extract>(
        &self,
        ingress: &mut Cursor<X>,
        egress: &mut Cursor<X>,
        plan: Option<Plan>,
    ) -> Result<Tally, Stop> {
        let cut = |cursor: &Cursor<X>| match (cursor.first_ns(), self.trim_ns) {
            (None, _) | (_, 0) => 0,
            (Some(time), trim_ns) => time.saturating_add(trim_ns),
        };
        let (cut_before, cut_after) = (cut(ingress), cut(egress));
        let covers = |cursor: Covered| if self.throughout { Covered::ALL } else { cursor };
        let (in_order, lost_in_order) =
            plan.as_ref().map_or((0, 0), |plan| (plan.matched(), plan.lost()));
        let matcher = X::Matcher::new(&Matching {
            ids: X::IS_ID,
            window: self.window_ns,
            trim_before: cut_before,
            span: self.span,
            expected: self.expected,
            losses: self.losses,
            covered: covers(self.covered.unwrap_or(egress.covered())),
        });
        let mut matcher = match plan {
            Some(plan) => matcher.follow_plan(plan),
            None if X::IN_ORDER => matcher.gather_equals(),
            None => matcher,
        };
        let mut tally = Tally {
            counts: Counts::default(),
            latencies: Distribution::new(),
            worst: Worst::new(self.worst),
            reorder: Reorder::default(),
            exceedances: Exceedances::new(self.packets),
            blocks: Blocks::default(),
            losses: Losses::default(),
            matched: Vec::new(),
            covered: [Covered::NONE; 2],
            edges: [Edges::default(), Edges::default()],
            equals: None,
            lost_in_order,
        };
        let mut matched = Matched::default();
        loop {
            let (times, keys, shown) = egress.next();
            let (Some(&first), Some(&last)) = (times.first(), times.last()) else { break };
            self.feed(ingress, &mut matcher, last.saturating_add(self.window_ns), first)?;
            let (counts, edges) = (&mut tally.counts, &mut tally.edges[1]);
            let covered = covers(ingress.covered());
            // Nearly all batches count from end to end.
            let whole = [first, last].iter().all(|&time| self.span.contains(time));
            let whole = whole && first >= cut_after;
            matcher.look_up_all(keys, times, shown, |i, verdict| {
                let time = times[i];
                if !whole && !self.span.contains(time) {
                    return;
                }
                if !whole && time < cut_after {
                    counts.trimmed_egress += 1;
                    counts.trimmed_ingress += u64::from(matches!(verdict, Verdict::Match { .. }));
                    return;
                }
                match verdict {
                    Verdict::Match { ingress_ns } => matched.push(i, ingress_ns, time),
                    Verdict::Duplicate => counts.duplicate_egress += 1,
                    Verdict::NonCausal => counts.noncausal += 1,
                    Verdict::Unmatched if self.changes.iter().any(|one| one.contains(&time)) => {
                        counts.trimmed_egress += 1;
                    }
                    Verdict::Unmatched => {
                        counts.unmatched_egress += 1;
                        edges.add(time, covered, self.window_ns);
                    }
                    Verdict::Part => counts.parts_egress += 1,
                }
            });
            tally.record_all(&matched, |i| X::name(keys[i], shown[i]));
            if self.flows {
                let Matched { places, ingress, latencies, .. } = &matched;
                let each = places.iter().zip(ingress).zip(latencies);
                tally.matched.extend(
                    each.map(|((&i, &time), &took)| (time, X::known_by(keys[i], shown[i]), took)),
                );
            }
            matched.clear();
            let count = times.len();
            egress.advance(count)?;
        }
        tally.covered[1] = egress.covered();
        matcher.close(covers(tally.covered[1]));
        self.feed(ingress, &mut matcher, u64::MAX, u64::MAX)?;
        tally.covered[0] = ingress.covered();
        let Finished { fates, losses, edges, equals, merged } = matcher.finish();
        (tally.losses, tally.edges[0], tally.equals) = (losses, edges, equals);
        tally.edges[1] = std::mem::take(&mut tally.edges[1]).sorted();
        let counts = &mut tally.counts;
        counts.matched_in_order = in_order;
        counts.merged_ingress = merged;
        counts.matched = tally.latencies.count();
        counts.lost = fates.lost;
        counts.duplicate_ingress = fates.repeated;
        counts.noncausal_ingress = fates.early;
        counts.trimmed_ingress += fates.trimmed;
        counts.reordered = tally.reorder.count();
        tally.exceedances.shrink(&tally.latencies);
        Ok(tally)
    }

    /// Adds packets before the device up to the time `ahead`.
    fn feed<X: Extract>(
        &self,
        ingress: &mut Cursor<X>,
        matcher: &mut X::Matcher,
        ahead: u64,
        frontier: u64,
    ) -> Result<(), Stop> {
        if (self.cancelled)() {
            return Err(Stop::Error(EvaluateError::Cancelled));
        }
        loop {
            let (times, keys, shown) = ingress.next();
            let count = times.partition_point(|&time| time < ahead || ahead == u64::MAX);
            if count == 0 {
                return Ok(());
            }
            let shown = shown.get(..count).unwrap_or_default();
            matcher.insert_all(&keys[..count], &times[..count], shown, frontier);
            ingress.advance(count)?;
        }
    }
}
