//! A pair of captures in, an evaluation out.
//!
//! A pair is one [`Piece`] of work, or several that lie side by side in time ([`plan`]). Each gives
//! a [`Partial`] evaluation. Partial evaluations merge, in any grouping, into that of the whole,
//! and the whole [concludes](Partial::conclude) in an [`Evaluation`].

mod changes;
mod choose;
mod crossings;
mod keyed;
mod lost;
mod marked;
mod outside;
mod partial;
mod piece;
mod refusals;
mod sides;
mod stamps;
mod times;
mod unforwarded;
mod walk;
mod warnings;
mod ways;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use changes::{Change, Changes};
pub use choose::KeyChoice;
pub use crossings::{Crossings, crossings};
pub use lost::{Arrivals, Flow, LostPacket, flows_at};
pub use partial::{Counted, Partial};
pub use piece::{Piece, plan};
pub use sides::sides;
pub use stamps::Stamps;
pub use warnings::Warning;
pub(crate) use warnings::of_captures as capture_warnings;
pub use ways::{BothWays, both_ways};

use crate::blocks::Blocks;
use crate::capture::{CaptureError, Format, Notes};
use crate::clocks::{Clocks, Excess};
use crate::distribution::Distribution;
use crate::exceedances::Exceedance;
use crate::key::{KeyKind, Name};
use crate::losses::MOST;
use crate::series::Series;
use crate::source::{ParseSelectError, SetAside, Source};
use crate::stream::Intake;
use crate::worst::WorstPacket;

/// How captures are evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// What packets are matched by; looked for in the captures when not given.
    pub key: Option<KeyKind>,
    /// Packets after the device within this time of the first one are left out, in nanoseconds.
    pub trim_ns: u64,
    /// A packet must leave the device within this time, in nanoseconds.
    pub window_ns: u64,
    /// How many of the worst packets are kept.
    pub worst: usize,
    /// Format of the capture before the device; told by content when not given.
    pub ingress_format: Option<Format>,
    /// Format of the capture after the device; told by content when not given.
    pub egress_format: Option<Format>,
    /// How the clocks of the two captures are to each other, where they are two.
    pub clocks: Option<Clocks>,
    /// Whether the stamps before the device, and those after it, are nanoseconds where the file says
    /// that they are microseconds.
    pub nanoseconds: [bool; 2],
    /// Whether it is told which packets were lost, and what no device forwards is told apart from them;
    /// that reads the capture before the device once more.
    pub losses: bool,
    /// Whether losses and latencies are told for each flow; that keeps 24 bytes of each packet.
    pub flows: bool,
    /// Where the stamps are taken from; when not given, from trailers where both captures have them.
    pub stamps: Option<Stamps>,
    /// Whether both captures ran all the time, so that what does not leave at their ends is lost, too.
    pub throughout: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            key: None,
            trim_ns: 0,
            window_ns: 5_000_000_000,
            worst: 5000,
            ingress_format: None,
            egress_format: None,
            clocks: None,
            nanoseconds: [false; 2],
            losses: false,
            flows: false,
            stamps: None,
            throughout: false,
        }
    }
}

impl Options {
    /// Of so many lost packets it is kept which they are.
    fn kept_losses(&self) -> usize {
        if self.flows {
            usize::MAX
        } else if self.losses {
            MOST
        } else {
            0
        }
    }
}

/// Makes the counts, so that each has one place.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What became of the packets.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// Adds those of other packets.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Packets with a key before the device.
    ingress,
    /// Packets with a key after the device.
    egress,
    /// Pairs that the statistics are made of.
    matched,
    /// Packets before the device without any copy after it, of the time that both captures cover.
    lost,
    /// Packets after the device without a usable packet before it in the window.
    unmatched_egress,
    /// Packets before the device that were left out since their key repeats in the window.
    duplicate_ingress,
    /// Further copies after the device of a packet that was matched.
    duplicate_egress,
    /// Matched packets that left the device after one that had entered it later.
    reordered,
    /// Packets after the device stamped before their copy before the device.
    noncausal,
    /// Packets before the device left out by trimming.
    trimmed_ingress,
    /// Packets after the device left out by trimming, or since the sample changed while they were under way.
    trimmed_egress,
    /// Packets before the device without a key.
    unkeyed_ingress,
    /// Packets after the device without a key.
    unkeyed_egress,
    /// Packets before the device that were not read, or not captured as the capture itself says.
    unread_ingress,
    /// Packets after the device that were not read, or not captured as the capture itself says.
    unread_egress,
    /// Pairs of packets that are equal to others within the window, and were told apart by their order.
    matched_in_order,
    /// Packets before the device that left it in one packet with others.
    merged_ingress,
    /// Packets after the device that are a piece of one before it, the last pieces apart.
    parts_egress,
    /// Packets without a copy after the device that came when that capture may not have run yet, or
    /// not any more.
    outside_ingress,
    /// Packets without a partner before the device that may have come when that capture did not run.
    outside_egress,
    /// Packets without a copy after the device that no such device forwards.
    not_forwarded,
    /// Packets without a copy after the device that were for itself.
    to_device,
    /// Packets before the device whose copies after it all carry earlier stamps.
    noncausal_ingress,
}

impl Counts {
    /// What became of the packets before the device: as many as `ingress`.
    pub fn entered(&self) -> u64 {
        self.matched
            + self.lost
            + self.outside_ingress
            + self.not_forwarded
            + self.to_device
            + self.duplicate_ingress
            + self.noncausal_ingress
            + self.trimmed_ingress
    }

    /// What the packets after the device are: as many as `egress`, unless some hold several.
    pub fn left(&self) -> u64 {
        self.matched
            + self.duplicate_egress
            + self.noncausal
            + self.unmatched_egress
            + self.outside_egress
            + self.parts_egress
            + self.trimmed_egress
    }
}

/// A file of several that make one capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// Where it is.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
    /// What the reader found out about it.
    pub notes: Notes,
}

/// One of the two captures, as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The file, or what people are told of several.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// What the reader found out.
    pub notes: Notes,
    /// Its files, where there are several, in the order in which they were read.
    pub files: Vec<File>,
    /// What was chosen of the packets of its files, if not all.
    pub chosen: Option<String>,
    /// Packets of the files that are not of the side.
    pub set_aside: SetAside,
    /// What the keys were like.
    pub intake: Intake,
    /// Gaps and rates after trimming.
    pub series: Series,
}

/// The evaluation of a pair of captures.
#[derive(Debug)]
pub struct Evaluation {
    /// What packets were matched by before the device, and after it.
    pub keys: [String; 2],
    /// Why that key, when it was chosen and not given.
    pub key_reason: Option<String>,
    /// What became of the packets.
    pub counts: Counts,
    /// Latencies of the matched packets in nanoseconds.
    pub latencies: Distribution,
    /// The worst packets, worst first.
    pub worst: Vec<WorstPacket<Name>>,
    /// A latency in nanoseconds that only the packets in `exceedances` are above.
    pub floor_ns: u64,
    /// Every packet with a latency above `floor_ns`, in the order of egress.
    pub exceedances: Vec<Exceedance>,
    /// Latencies as time went on.
    pub blocks: Blocks,
    /// The capture before the device.
    pub ingress: Side,
    /// The capture after the device.
    pub egress: Side,
    /// What a reader must know before believing the numbers.
    pub warnings: Vec<Warning>,
    /// What all times and latencies are too large by, those of two clocks.
    pub excess: Excess,
    /// What the device did to packets.
    pub changes: Changes,
    /// The packets that were lost, the first [`crate::losses::MOST`] of them, where that was asked.
    pub lost: Vec<LostPacket>,
    /// What came to the device, where that was read again: some were lost, or flows were asked for.
    pub arrivals: Option<Arrivals>,
}

impl Evaluation {
    /// The mean latency in nanoseconds, without what is too much.
    pub fn mean(&self) -> Option<f64> {
        let count = self.latencies.count();
        let too_much = u128::from(count) * u128::from(self.excess.latency_ns);
        let sum = self.latencies.sum() as i128 - too_much as i128;
        (count > 0).then(|| sum as f64 / count as f64)
    }
}

/// Captures that cannot be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// A capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// No packet of a capture has the key.
    #[error("{path}: {why}")]
    NoKey {
        /// The file.
        path: PathBuf,
        /// Why, and what mends it.
        why: String,
    },
    /// The captures have no packet in common.
    #[error("{0}")]
    NoMatch(String),
    /// A text chooses no packets.
    #[error(transparent)]
    Select(#[from] ParseSelectError),
    /// The sides of one capture cannot be told apart.
    #[error("{path}: {why}")]
    NoSides {
        /// The file.
        path: PathBuf,
        /// Why, and what mends it.
        why: String,
    },
    /// Packets leave before they arrive.
    #[error(
        "the captures look swapped: {noncausal} packets of {egress} were stamped there before they \
         were in {ingress}, {matched} after; give the capture from before the device first (or \
         the two clocks are not synchronised, or these are two feeds of the same packets: say how the \
         clocks are by --egress-ahead or --back)"
    )]
    Swapped {
        /// The first file.
        ingress: PathBuf,
        /// The second file.
        egress: PathBuf,
        /// Packets with an earlier stamp in the second.
        noncausal: u64,
        /// Packets with a later stamp in the second.
        matched: u64,
    },
    /// No frame ends in a switch's trailer.
    #[error(
        "neither {ingress} nor {egress} has frames that end in a trailer of Arista's 7130 series \
         (Metamako) or of Cisco's Nexus 3550 (Exablaze), with times that go on from frame to frame and \
         the original check sequence or the number of one device: leave --stamps trailer out"
    )]
    NoTrailer {
        /// The first file.
        ingress: PathBuf,
        /// The second file.
        egress: PathBuf,
    },
    /// A piece is not what it was taken for when the captures were split up: their stamps are not
    /// in order, or a capture is damaged on the way.
    #[error("the captures cannot be split up: evaluate them as one piece")]
    NotSplittable,
    /// The caller asked to stop.
    #[error("interrupted")]
    Cancelled,
}

/// Evaluates the captures from before (`ingress`) and after (`egress`) the device. `cancelled` is
/// asked now and then whether to give up.
pub fn evaluate(
    ingress: impl Into<Source>,
    egress: impl Into<Source>,
    options: &Options,
    cancelled: &dyn Fn() -> bool,
) -> Result<Evaluation, EvaluateError> {
    Piece::whole(ingress, egress, options)?.evaluate(cancelled)?.conclude()
}
