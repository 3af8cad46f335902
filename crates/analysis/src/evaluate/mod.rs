//! A pair of captures in, an evaluation out.

mod choose;
mod warnings;

use std::path::{Path, PathBuf};
use std::thread;

pub use choose::KeyChoice;
pub use warnings::Warning;

use crate::capture::{Capture, CaptureError, Format, Notes};
use crate::distribution::Distribution;
use crate::key::{Extract, Key, KeyKind, Moonsniff, Signatures};
use crate::matching::{Matcher, Verdict};
use crate::series::Series;
use crate::stream::{Cursor, Intake, Reading, StreamError};
use crate::worst::{Worst, WorstPacket};

/// How captures are evaluated.
#[derive(Clone, Debug)]
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
        }
    }
}

/// What became of the packets. Every packet after the device is in one of `matched`,
/// `duplicate_egress`, `noncausal`, `unmatched_egress` and `trimmed_egress`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets with a key before the device.
    pub ingress: u64,
    /// Packets with a key after the device.
    pub egress: u64,
    /// Pairs that the statistics are made of.
    pub matched: u64,
    /// Packets before the device without any copy after it.
    pub lost: u64,
    /// Packets after the device without a usable packet before it in the window.
    pub unmatched_egress: u64,
    /// Packets before the device that were left out since their key repeats in the window.
    pub duplicate_ingress: u64,
    /// Further copies after the device of a packet that was matched.
    pub duplicate_egress: u64,
    /// Matched packets that left the device after one that had entered it later.
    pub reordered: u64,
    /// Packets after the device stamped at or before their copy before the device.
    pub noncausal: u64,
    /// Packets before the device left out by trimming.
    pub trimmed_ingress: u64,
    /// Packets after the device left out by trimming.
    pub trimmed_egress: u64,
    /// Packets before the device without a key.
    pub unkeyed_ingress: u64,
    /// Packets after the device without a key.
    pub unkeyed_egress: u64,
}

/// One of the two captures, as it was read.
#[derive(Clone, Debug)]
pub struct Side {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// What the reader found out.
    pub notes: Notes,
    /// What the keys were like.
    pub intake: Intake,
    /// Gaps and rates after trimming.
    pub series: Series,
}

/// The evaluation of a pair of captures.
#[derive(Debug)]
pub struct Evaluation {
    /// What packets were matched by.
    pub key: KeyKind,
    /// Why that key, when it was chosen and not given.
    pub key_reason: Option<String>,
    /// What became of the packets.
    pub counts: Counts,
    /// Latencies of the matched packets in nanoseconds.
    pub latencies: Distribution,
    /// The worst packets, worst first, with their keys as text.
    pub worst: Vec<WorstPacket<String>>,
    /// The capture before the device.
    pub ingress: Side,
    /// The capture after the device.
    pub egress: Side,
    /// What a reader must know before believing the numbers.
    pub warnings: Vec<Warning>,
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
    /// Packets leave before they arrive.
    #[error(
        "the captures look swapped: {noncausal} packets of {egress} were stamped there before they \
         were in {ingress}, {matched} after; give the capture from before the device first (or \
         the two clocks are not synchronised)"
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
    /// The caller asked to stop.
    #[error("interrupted")]
    Cancelled,
}

/// Evaluates the captures from before (`ingress`) and after (`egress`) the device. `cancelled` is
/// asked now and then whether to give up.
pub fn evaluate(
    ingress: &Path,
    egress: &Path,
    options: &Options,
    cancelled: &dyn Fn() -> bool,
) -> Result<Evaluation, EvaluateError> {
    let pair = Pair { ingress, egress, options, cancelled };
    let choice = choose::key(&pair)?;
    match choice.key {
        KeyKind::Moonsniff => pair.evaluate(Moonsniff, choice),
        KeyKind::Signature => pair.evaluate(Signatures, choice),
        KeyKind::Field(field) => pair.evaluate(field, choice),
    }
}

/// What is to be evaluated, and how.
struct Pair<'a> {
    ingress: &'a Path,
    egress: &'a Path,
    options: &'a Options,
    cancelled: &'a dyn Fn() -> bool,
}

/// What one walk through the captures gathers.
struct Tally<X: Extract> {
    counts: Counts,
    latencies: Distribution,
    worst: Worst<(X::Key, Option<X::Shown>)>,
}

impl Pair<'_> {
    fn open_ingress(&self) -> Result<Capture, CaptureError> {
        Capture::open(self.ingress, self.options.ingress_format)
    }

    fn open_egress(&self) -> Result<Capture, CaptureError> {
        Capture::open(self.egress, self.options.egress_format)
    }

    fn evaluate<X: Extract>(
        &self,
        extract: X,
        choice: KeyChoice,
    ) -> Result<Evaluation, EvaluateError> {
        let trim_ns = self.options.trim_ns;
        let shift_ns = choice.ingress_shift_ns;
        let before = Reading { extract, shift_ns, trim_ns, keep_shown: false };
        let shift_ns = choice.egress_shift_ns;
        let after = Reading { extract, shift_ns, trim_ns, keep_shown: true };
        let expected = choice.expected_ahead;
        let streamed = thread::scope(|scope| -> Result<_, Stop> {
            let mut ingress = Cursor::stream(scope, self.open_ingress()?, before)?;
            let mut egress = Cursor::stream(scope, self.open_egress()?, after)?;
            let tally = self.walk(&mut ingress, &mut egress, expected)?;
            Ok((ingress, egress, tally))
        });
        let (ingress, egress, tally) = match streamed {
            Ok(walked) => walked,
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Unsorted) => {
                let mut ingress = Cursor::sorted(self.open_ingress()?, before)?;
                let mut egress = Cursor::sorted(self.open_egress()?, after)?;
                match self.walk(&mut ingress, &mut egress, expected) {
                    Ok(tally) => (ingress, egress, tally),
                    Err(Stop::Error(error)) => return Err(error),
                    Err(Stop::Unsorted) => unreachable!("the stamps have just been sorted"),
                }
            }
        };
        self.conclude(choice, ingress, egress, tally)
    }

    /// Walks through both captures at once, the one before the device a window ahead.
    fn walk<X: Extract>(
        &self,
        ingress: &mut Cursor<X>,
        egress: &mut Cursor<X>,
        expected: usize,
    ) -> Result<Tally<X>, Stop> {
        let window = self.options.window_ns;
        let first_after_trim = |cursor: &Cursor<X>| {
            cursor.peek().map_or(0, |(time, _)| time.saturating_add(self.options.trim_ns))
        };
        let (cut_before, cut_after) = (first_after_trim(ingress), first_after_trim(egress));
        let mut matcher = Matcher::new(window, cut_before, expected);
        let mut tally = Tally::<X> {
            counts: Counts::default(),
            latencies: Distribution::new(),
            worst: Worst::new(self.options.worst),
        };
        let mut latest_ingress = 0;
        while let Some((time, key)) = egress.peek() {
            if let Some(keys) = egress.starting_block() {
                self.pause(&matcher, keys)?;
            }
            let ahead = time.saturating_add(window);
            self.feed(ingress, &mut matcher, ahead, time)?;
            let verdict = matcher.look_up(key, time);
            let counts = &mut tally.counts;
            if time < cut_after {
                counts.trimmed_egress += 1;
                counts.trimmed_ingress += u64::from(matches!(verdict, Verdict::Match { .. }));
            } else {
                match verdict {
                    Verdict::Match { ingress_ns } => {
                        counts.matched += 1;
                        tally.latencies.record(time - ingress_ns);
                        tally.worst.offer(ingress_ns, time, || (key, egress.shown()));
                        counts.reordered += u64::from(ingress_ns < latest_ingress);
                        latest_ingress = latest_ingress.max(ingress_ns);
                    }
                    Verdict::Duplicate => counts.duplicate_egress += 1,
                    Verdict::NonCausal => counts.noncausal += 1,
                    Verdict::Unmatched => counts.unmatched_egress += 1,
                }
            }
            egress.advance()?;
        }
        let end = u64::MAX;
        self.feed(ingress, &mut matcher, end, end)?;
        let fates = matcher.finish();
        let counts = &mut tally.counts;
        counts.lost = fates.lost;
        counts.duplicate_ingress = fates.repeated;
        counts.trimmed_ingress += fates.trimmed;
        counts.ingress = ingress.intake().keyed;
        counts.egress = egress.intake().keyed;
        counts.unkeyed_ingress = ingress.intake().unkeyed();
        counts.unkeyed_egress = egress.intake().unkeyed();
        Ok(tally)
    }

    /// Adds packets before the device to the matching table up to the time `ahead`.
    #[inline]
    fn feed<X: Extract>(
        &self,
        ingress: &mut Cursor<X>,
        matcher: &mut Matcher<X::Key>,
        ahead: u64,
        frontier: u64,
    ) -> Result<(), Stop> {
        while let Some((time, key)) = ingress.peek() {
            if time >= ahead {
                break;
            }
            if let Some(keys) = ingress.starting_block() {
                self.pause(matcher, keys)?;
            }
            matcher.insert(key, time, frontier);
            ingress.advance()?;
        }
        Ok(())
    }

    /// What is done once a block: prepare the table, ask whether to go on.
    fn pause<K: Key>(&self, matcher: &Matcher<K>, keys: &[K]) -> Result<(), Stop> {
        matcher.warm_up(keys);
        if (self.cancelled)() { Err(Stop::Error(EvaluateError::Cancelled)) } else { Ok(()) }
    }

    fn conclude<X: Extract>(
        &self,
        choice: KeyChoice,
        mut ingress: Cursor<X>,
        mut egress: Cursor<X>,
        tally: Tally<X>,
    ) -> Result<Evaluation, EvaluateError> {
        let Tally { counts, latencies, worst } = tally;
        let ingress = side(&mut ingress);
        let egress = side(&mut egress);
        choose::refuse_keyless(choice.key, &ingress)?;
        choose::refuse_keyless(choice.key, &egress)?;
        if counts.noncausal > counts.matched {
            return Err(EvaluateError::Swapped {
                ingress: ingress.path,
                egress: egress.path,
                noncausal: counts.noncausal,
                matched: counts.matched,
            });
        }
        if counts.matched == 0 {
            return Err(EvaluateError::NoMatch(choose::why_no_match(
                &choice,
                &counts,
                &ingress,
                &egress,
                self.options,
            )));
        }
        let warnings = warnings::of(&counts, &ingress, &egress);
        let worst = worst
            .into_sorted()
            .into_iter()
            .map(|packet| WorstPacket {
                latency_ns: packet.latency_ns,
                ingress_ns: packet.ingress_ns,
                egress_ns: packet.egress_ns,
                key: packet.key.1.map_or_else(String::new, |shown| X::show(packet.key.0, shown)),
            })
            .collect();
        Ok(Evaluation {
            key: choice.key,
            key_reason: choice.reason,
            counts,
            latencies,
            worst,
            ingress,
            egress,
            warnings,
        })
    }
}

/// Why a walk ended early.
enum Stop {
    Unsorted,
    Error(EvaluateError),
}

impl From<CaptureError> for Stop {
    fn from(error: CaptureError) -> Self {
        Self::Error(error.into())
    }
}

impl From<StreamError> for Stop {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Unsorted => Self::Unsorted,
            StreamError::Capture(error) => Self::Error(error.into()),
        }
    }
}

fn side<X: Extract>(cursor: &mut Cursor<X>) -> Side {
    let mut notes = cursor.notes().clone();
    notes.look_again(cursor.path());
    Side {
        path: cursor.path().to_owned(),
        format: cursor.format(),
        notes,
        intake: *cursor.intake(),
        series: cursor.take_series(),
    }
}
