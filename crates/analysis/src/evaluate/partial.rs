//! The evaluation of a part of a pair of captures, as a value that merges.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::choose::KeyChoice;
use super::lost::{self, Looked};
use super::times::{CommonTime, Reorder};
use super::{Counts, EvaluateError, Evaluation, File, Options, Side, changes, refusals, warnings};
use crate::blocks::Blocks;
use crate::capture::Format;
use crate::clocks::{Clocks, Excess};
use crate::distribution::Distribution;
use crate::edges::{Covered, Edges};
use crate::exceedances::Exceedances;
use crate::key::{Extract, Name};
use crate::losses::Losses;
use crate::stream::{Cursor, Findings};
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

    /// The time of which it is known what became of packets.
    fn common_time(&self) -> CommonTime {
        CommonTime::of(
            &self.reorder,
            self.covered,
            self.latencies.counts().last().map_or(0, |(most, _)| most),
            self.ingress.intake.first_ns.saturating_add(self.options.trim_ns),
            self.options.throughout,
        )
    }

    /// The evaluation, when all parts have been merged. Fails for captures that make none.
    pub fn conclude(self) -> Result<Evaluation, EvaluateError> {
        let common = self.common_time();
        let Self { choice, options, mut counts, latencies, ingress, egress, edges, .. } = self;
        let keys = choice.key.sides();
        refusals::refuse_keyless(keys[0], &ingress)?;
        refusals::refuse_keyless(keys[1], &egress)?;
        if counts.noncausal > counts.matched {
            return Err(EvaluateError::Swapped {
                ingress: ingress.path,
                egress: egress.path,
                noncausal: counts.noncausal,
                matched: counts.matched,
            });
        }
        if counts.matched == 0 {
            let why = refusals::why_no_match(&choice, &counts, &ingress, &egress, &options);
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

/// What the reader of a capture found.
pub(super) fn side<X: Extract>(cursor: &mut Cursor<X>) -> Side {
    let findings = cursor.take_findings();
    Side::of(findings, cursor.path(), cursor.file(), cursor.format())
}
