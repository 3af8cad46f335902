//! The evaluation of a part of a pair of captures, as a value that merges.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::changes;
use super::choose::{self, KeyChoice};
use super::lost::{self, Looked};
use super::{Counts, EvaluateError, Evaluation, File, Options, Side, Warning, warnings};
use crate::blocks::Blocks;
use crate::capture::Format;
use crate::clocks::{Clocks, Excess};
use crate::distribution::Distribution;
use crate::edges::{Covered, Edges};
use crate::exceedances::Exceedances;
use crate::key::Name;
use crate::losses::Losses;
use crate::stream::Findings;
use crate::worst::{Worst, WorstPacket};

/// The evaluation of a part of a pair of captures.
///
/// Of parts that lie side by side in time, [merging](Self::merge) gives bit for bit the partial
/// evaluation of the whole, in whatever grouping they are merged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Partial {
    pub(super) choice: KeyChoice,
    pub(super) options: Options,
    pub(super) counts: Counts,
    pub(super) latencies: Distribution,
    /// Worst first.
    pub(super) worst: Vec<WorstPacket<Name>>,
    pub(super) reorder: Reorder,
    pub(super) exceedances: Exceedances,
    pub(super) blocks: Blocks,
    pub(super) losses: Losses,
    /// As in a tally.
    pub(super) matched: Vec<(u64, u64, u64)>,
    /// What the captures before and after the device cover, and the packets of each without a partner
    /// near the ends of the other.
    pub(super) covered: [Covered; 2],
    pub(super) edges: [Edges; 2],
    pub(super) ingress: Side,
    pub(super) egress: Side,
}

impl Partial {
    /// Adds the part that follows in time.
    pub fn merge(&mut self, next: Self) {
        self.reorder.merge(&next.reorder);
        self.counts.add(&next.counts);
        self.counts.reordered = self.reorder.count();
        self.latencies.merge(&next.latencies);
        let mut worst = Worst::new(self.options.worst);
        let both = std::mem::take(&mut self.worst).into_iter().chain(next.worst);
        both.for_each(|packet| worst.push(packet));
        self.worst = worst.into_sorted();
        self.exceedances.merge(next.exceedances, &self.latencies);
        self.blocks.merge(next.blocks);
        self.losses.merge(next.losses);
        self.matched.extend(next.matched);
        self.covered.iter_mut().zip(next.covered).for_each(|(all, one)| all.merge(one));
        self.edges.iter_mut().zip(next.edges).for_each(|(all, one)| all.merge(one));
        self.ingress.merge(next.ingress);
        self.egress.merge(next.egress);
    }

    /// The value as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("memory takes any partial evaluation")
    }

    /// The value of bytes that [`Self::to_bytes`] made; `None` for any others.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }

    /// What was counted, without any conclusion.
    pub fn counted(self) -> Counted {
        let excess = self.choice.clocks.as_ref().map_or_else(Excess::default, Clocks::excess);
        let losses = self.losses.sorted();
        Counted {
            counts: self.counts,
            latencies: self.latencies,
            worst: self.worst,
            lost_ns: losses.packets().iter().map(|&(time_ns, _)| time_ns).collect(),
            excess,
        }
    }

    /// The evaluation, when all parts have been merged. Fails for captures that make none.
    pub fn conclude(self) -> Result<Evaluation, EvaluateError> {
        let common = CommonTime::of(&self);
        let Self { choice, options, mut counts, latencies, ingress, egress, edges, .. } = self;
        let keys = choice.key.sides();
        choose::refuse_keyless(keys[0], &ingress)?;
        choose::refuse_keyless(keys[1], &egress)?;
        if counts.noncausal > counts.matched {
            return Err(EvaluateError::Swapped {
                ingress: ingress.path,
                egress: egress.path,
                noncausal: counts.noncausal,
                matched: counts.matched,
            });
        }
        if counts.matched == 0 {
            let why = choose::why_no_match(&choice, &counts, &ingress, &egress, &options);
            return Err(EvaluateError::NoMatch(why));
        }
        let outside = common.outside(&edges);
        let [before, after] = outside.map(|[early, late]| early + late);
        counts.lost -= before;
        counts.outside_ingress = before;
        counts.unmatched_egress -= after;
        counts.outside_egress = after;
        let excess = choice.clocks.as_ref().map_or_else(Excess::default, Clocks::excess);
        let mut changes = changes::look(&choice);
        let (losses, matched) = (self.losses, self.matched);
        let Looked { lost, arrivals } =
            lost::look(&choice, losses, matched, &common, &changes, &mut counts)?;
        changes.add_segments(&counts);
        let mut warnings = warnings::of(&counts, &ingress, &egress, &choice, &options);
        warnings.extend(common.told(outside, [&ingress, &egress], excess));
        let KeyChoice { key, reason: key_reason, .. } = choice;
        let (floor_ns, exceedances) = self.exceedances.into_largest(&latencies);
        Ok(Evaluation {
            keys: key.sides().map(|key| key.to_string()),
            key_reason,
            counts,
            latencies,
            worst: self.worst,
            floor_ns,
            exceedances,
            blocks: self.blocks,
            ingress,
            egress,
            warnings,
            excess,
            changes,
            lost,
            arrivals,
        })
    }
}

/// The time of which both captures know what became of packets.
///
/// A packet without a copy may have left before the capture after the device began, or may have been in
/// the device yet when that ended. It was not lost for all that is known if it had been there for no longer
/// than the longest latency, and if no packet that is in both captures shows that its turn had come: one
/// that entered after it and left, or before it, by more than packets overtake each other.
pub(super) struct CommonTime {
    covered: [Covered; 2],
    /// The largest latency.
    latency_ns: u64,
    /// By how much packets overtake each other at most.
    overtaken_ns: u64,
    /// When the first of the matched packets entered, and the last of them.
    entered_ns: [u64; 2],
    /// When the first of them left.
    left_ns: u64,
    /// Packets that came before were left out.
    since_ns: u64,
    throughout: bool,
}

impl CommonTime {
    fn of(partial: &Partial) -> Self {
        let Reorder { earliest_ns, latest_ns, overtaken_ns, first_egress_ns, .. } = partial.reorder;
        Self {
            covered: partial.covered,
            latency_ns: partial.latencies.counts().last().map_or(0, |(most, _)| most),
            overtaken_ns,
            entered_ns: [earliest_ns.unwrap_or(0), latest_ns],
            left_ns: first_egress_ns.unwrap_or(0),
            since_ns: partial.ingress.intake.first_ns.saturating_add(partial.options.trim_ns),
            throughout: partial.options.throughout,
        }
    }

    /// Whether a packet may have left before the capture after the device began.
    fn is_early(&self, time: u64) -> bool {
        let turn = self.entered_ns[0].saturating_add(self.overtaken_ns);
        time < self.covered[1].from_ns && time <= turn
    }

    /// Whether a packet may have been in the device when the capture after it ended.
    fn is_late(&self, time: u64) -> bool {
        let turn = self.entered_ns[1].saturating_sub(self.overtaken_ns);
        time.saturating_add(self.latency_ns) >= self.covered[1].until_ns && time >= turn
    }

    /// Whether it is known of a packet that came at this time whether it was lost, and counts.
    pub fn contains(&self, time: u64) -> bool {
        let within = self.throughout || !(self.is_early(time) || self.is_late(time));
        within && time >= self.since_ns
    }

    /// Whether it is between the first and the last packet that left, and counts.
    pub fn spans(&self, time: u64) -> bool {
        let [first, last] = self.entered_ns;
        (first..=last).contains(&time) && time >= self.since_ns
    }

    /// How many packets of either side are outside, at the beginning and at the end.
    fn outside(&self, edges: &[Edges; 2]) -> [[u64; 2]; 2] {
        let [ingress, _] = self.covered;
        let came = ingress.from_ns.saturating_add(self.latency_ns);
        let turn = |time| self.overtaken_ns > 0 || time <= self.left_ns;
        [
            edges[0].outside(|time| self.is_early(time), |time| self.is_late(time)),
            edges[1].outside(|time| time < came && turn(time), |time| time > ingress.until_ns),
        ]
    }

    /// What a reader must know of packets outside.
    fn told(&self, outside: [[u64; 2]; 2], sides: [&Side; 2], excess: Excess) -> Option<Warning> {
        let [before, after] = self.covered;
        let ahead = i128::from(excess.egress_ns) - i128::from(excess.ingress_ns);
        let apart = |one: u64, other: u64| {
            let ns = i128::from(other) - i128::from(one) - ahead;
            let how = if ns < 0 { "earlier" } else { "later" };
            format!("{:.6} s {how}", ns.abs() as f64 / 1e9)
        };
        let begins = apart(before.from_ns, after.from_ns);
        let ends = apart(before.until_ns, after.until_ns);
        let [early, late] = [0, 1].map(|end| outside[0][end] + outside[1][end]);
        let [ingress, egress] = sides.map(|side| side.path.display());
        (early + late > 0).then(|| Warning {
            code: "outside-common-time",
            message: format!(
                "{egress} begins {begins} and ends {ends} than {ingress}: {early} packets at the start \
                 and {late} at the end may have passed when the other capture did not run, and count as \
                 outside of the common time; if both ran all the time, and the device failed, give --throughout"),
        })
    }
}

/// What was counted of a part.
#[derive(Debug)]
pub struct Counted {
    /// What became of the packets.
    pub counts: Counts,
    /// Latencies of the matched packets in nanoseconds.
    pub latencies: Distribution,
    /// The worst packets, worst first.
    pub worst: Vec<WorstPacket<Name>>,
    /// The times of the packets that were lost, ascending, where that was asked.
    pub lost_ns: Vec<u64>,
    /// What all times and latencies are too large by.
    pub excess: Excess,
}

impl Side {
    /// A source that was read, by what was found out: `file` is its only file, where there is one.
    pub(crate) fn of(found: Findings, path: &Path, file: &Path, format: Format) -> Self {
        let Findings { mut notes, mut files, set_aside, intake, series } = found;
        if files.is_empty() {
            notes.look_again(file);
        }
        for (path, of_file) in &mut files {
            of_file.look_again(path);
            notes.resized = notes.resized.or(of_file.resized);
        }
        let files = files.into_iter().map(|(path, notes)| File { path, notes }).collect();
        let path = path.to_owned();
        Self { path, format, notes, files, chosen: None, set_aside, intake, series }
    }

    /// How finely the stamps tell time, in nanoseconds: as the file says, or as they show.
    pub fn resolution_ns(&self) -> u64 {
        let seen = self.intake.tick.of_clock(&self.series).unwrap_or(1);
        seen.max(self.notes.unit_ns).max(1)
    }

    fn merge(&mut self, next: Self) {
        self.notes.packets += next.notes.packets;
        self.notes.damage = next.notes.damage;
        self.notes.skipped.merge(next.notes.skipped);
        self.notes.unread.merge(&next.notes.unread);
        self.notes.unit_ns = self.notes.unit_ns.max(next.notes.unit_ns);
        self.notes.fcs_len = self.notes.fcs_len.max(next.notes.fcs_len);
        let size = next.notes.resized.unwrap_or(next.notes.size);
        self.notes.resized = (size != self.notes.size).then_some(size);
        self.intake.merge(&next.intake);
        self.series.merge(&next.series);
    }
}

/// Counts packets that left the device after one that had entered it later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reorder {
    count: u64,
    /// Earliest ingress stamp.
    earliest_ns: Option<u64>,
    /// Latest ingress stamp so far.
    latest_ns: u64,
    /// How much later than any of these packets one had entered that left before it, at most.
    overtaken_ns: u64,
    /// Egress stamp of the first packet.
    first_egress_ns: Option<u64>,
    /// Ingress stamps, each the latest when it came, of packets that had entered before the first
    /// one left: those that one of an earlier part may yet have overtaken.
    early: Vec<u64>,
}

impl Reorder {
    /// Shows packets by their stamps; they come in the order of their egress stamps.
    pub fn record_all(&mut self, ingress: &[u64], egress: &[u64]) {
        let mut early_before = self.first_egress_ns.unwrap_or(u64::MAX);
        for (&ingress_ns, &egress_ns) in ingress.iter().zip(egress) {
            if ingress_ns < self.latest_ns {
                self.count += 1;
                self.overtaken_ns = self.overtaken_ns.max(self.latest_ns - ingress_ns);
                self.earliest_ns = self.earliest_ns.min(Some(ingress_ns));
            } else {
                self.latest_ns = ingress_ns;
                if ingress_ns < early_before {
                    self.earliest_ns.get_or_insert(ingress_ns);
                    early_before = *self.first_egress_ns.get_or_insert(egress_ns);
                    self.early.push(ingress_ns);
                }
            }
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds the part that follows in time.
    fn merge(&mut self, next: &Self) {
        let Some(next_egress) = next.first_egress_ns else { return };
        // Every packet of this part left before any of the next, so that what may have been
        // overtaken is among those that the next part remembers.
        let overtaken = next.early.partition_point(|&ingress| ingress < self.latest_ns);
        self.count += next.count + overtaken as u64;
        let first = *self.first_egress_ns.get_or_insert(next_egress);
        let further = &next.early[overtaken..];
        self.early.extend(&further[..further.partition_point(|&ingress| ingress < first)]);
        let earliest = next.earliest_ns.unwrap_or(self.latest_ns);
        let overtaken = self.latest_ns.saturating_sub(earliest);
        self.overtaken_ns = self.overtaken_ns.max(next.overtaken_ns).max(overtaken);
        self.earliest_ns = self.earliest_ns.map_or(Some(earliest), |own| Some(own.min(earliest)));
        self.latest_ns = self.latest_ns.max(next.latest_ns);
    }
}
