//! A piece of the work on a pair of captures, and how a pair is split into pieces.
//!
//! A piece is a stretch of time. It counts the packets stamped within, and reads those around that
//! bear on them: what became of a packet depends on others within one or two matching windows. So
//! pieces depend on nothing but the files, and their partial evaluations merge without a rest.

use std::thread;

use serde::{Deserialize, Serialize};

use super::choose::{self, KeyChoice};
use super::partial::{Partial, side};
use super::walk::{Stop, Tally, Walk};
use super::{Counts, EvaluateError, Options, Side};
use crate::capture::{CaptureError, Mark};
use crate::clocks::Clocks;
use crate::edges::Span;
use crate::equals::Plan;
use crate::key::{Extract, KeyKind, Moonsniff, Signatures};
use crate::source::{Copies, Feed, Source};
use crate::stream::{Cursor, Reading, Stretch};

/// Marks to a piece: the more, the less is read needlessly around a piece.
const MARKS: usize = 8;
/// Packets that are looked at at once.
const LOOK: usize = 1 << 16;

/// A piece of the work on a pair of captures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Piece {
    ingress: Part,
    egress: Part,
    choice: KeyChoice,
    options: Options,
    span: Span,
    /// Whether packets that are equal to others within the window may be left out.
    leaves_equals: bool,
}

/// What a piece reads of one capture.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Part {
    source: Source,
    /// None for the whole.
    stretch: Option<Stretch>,
}

impl Part {
    fn open(&self) -> Result<Feed, CaptureError> {
        self.source.open()
    }
}

impl Piece {
    /// The whole work.
    pub fn whole(
        ingress: impl Into<Source>,
        egress: impl Into<Source>,
        options: &Options,
    ) -> Result<Self, EvaluateError> {
        let choice = choose::key(ingress.into(), egress.into(), options)?;
        let part = |source: &Source| Part { source: source.clone(), stretch: None };
        Ok(Self {
            ingress: part(&choice.ingress),
            egress: part(&choice.egress),
            choice,
            options: options.clone(),
            span: Span::ALL,
            leaves_equals: false,
        })
    }

    /// A stretch of time of captures that may still be written: both must have all packets until a
    /// window behind `span`. Of a single file only what stands behind the place that `begins` has for
    /// it is read; there a record must begin, and nothing before it be younger than two windows before
    /// `span`. Packets that are equal to others within the window are left out.
    pub fn within(
        ingress: impl Into<Source>,
        egress: impl Into<Source>,
        options: &Options,
        span: Span,
        begins: [Option<u64>; 2],
    ) -> Result<Self, EvaluateError> {
        let mut piece = Self::whole(ingress, egress, options)?;
        let end_ns = span.until_ns.saturating_add(options.window_ns);
        let stretch = |offset| Stretch {
            begin: Mark { offset, time_ns: 0 },
            marks: Vec::new(),
            end_ns,
            first_ns: None,
            origin_ns: None,
        };
        piece.ingress.stretch = begins[0].map(stretch);
        piece.egress.stretch = begins[1].map(stretch);
        (piece.span, piece.leaves_equals) = (span, true);
        Ok(piece)
    }

    /// The value as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("memory takes any piece")
    }

    /// The value of bytes that [`Self::to_bytes`] made; `None` for any others.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }

    /// Evaluates the piece. `cancelled` is asked now and then whether to give up.
    pub fn evaluate(&self, cancelled: &dyn Fn() -> bool) -> Result<Partial, EvaluateError> {
        let (found, lost_in_order) = self.evaluate_all(cancelled)?;
        if !self.has_copies(&found.counts, lost_in_order, cancelled)? {
            return Ok(found);
        }
        if self.span != Span::ALL {
            // Whether packets are copies is seen in the whole capture.
            return Err(EvaluateError::NotSplittable);
        }
        let mut piece = self.clone();
        piece.ingress.source.without_copies = true;
        piece.choice.ingress.without_copies = true;
        Ok(piece.evaluate_all(cancelled)?.0)
    }

    /// Whether packets before the device were left out, or seem lost, that are copies, as a mirror port
    /// makes them of all packets or some. Equal packets that were sent are as many behind the device,
    /// mostly, and told apart by their order. Of a copy that came when its packet had left already, that
    /// one is matched and the copy seems lost.
    fn has_copies(
        &self,
        counts: &Counts,
        lost_in_order: u64,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<bool, EvaluateError> {
        let source = &self.ingress.source;
        let may = source.may_have_copies() && !source.without_copies && !self.leaves_equals;
        let alone = counts.duplicate_ingress + lost_in_order;
        // Copies that are matched have copies of their own behind the device.
        if !may || alone == 0 || 2 * alone < counts.matched_in_order {
            return Ok(false);
        }
        let mut copies = Copies::default();
        let mut capture = source.open()?;
        let (mut last_ns, mut end_ns) = (0, u64::MAX);
        if let Some(stretch) = &self.ingress.stretch {
            capture.seek(stretch.begin.offset, None)?;
            end_ns = stretch.end_ns;
        }
        loop {
            let more = capture.read(LOOK, |packet| {
                copies.add(&packet);
                last_ns = packet.time_ns;
            })?;
            if cancelled() {
                return Err(EvaluateError::Cancelled);
            }
            if !more || last_ns >= end_ns {
                return Ok(copies.are_no_equals());
            }
        }
    }

    /// What is found, and how many packets that are equal to others were lost.
    fn evaluate_all(&self, cancelled: &dyn Fn() -> bool) -> Result<(Partial, u64), EvaluateError> {
        match self.choice.key {
            KeyKind::Packet(packet) => self.evaluate_by([packet; 2], cancelled),
            KeyKind::Stream(stream) => self.evaluate_by([stream; 2], cancelled),
            KeyKind::Moonsniff => self.evaluate_by([Moonsniff; 2], cancelled),
            KeyKind::Signature => self.evaluate_by([Signatures; 2], cancelled),
            KeyKind::Field(field) => self.evaluate_by([field; 2], cancelled),
            KeyKind::Fields(fields) => self.evaluate_by(fields, cancelled),
        }
    }

    fn evaluate_by<X: Extract>(
        &self,
        extract: [X; 2],
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(Partial, u64), EvaluateError> {
        let clocks = &self.choice.clocks;
        let reading = |part: &Part, extract, shift_ns, keep_shown| Reading {
            extract,
            shift_ns,
            clocks: None,
            trim_ns: self.options.trim_ns,
            keep_shown,
            stretch: part.stretch.clone(),
            span: self.span,
        };
        let earlier = clocks.as_ref().map_or(0, Clocks::ingress_shift_ns);
        let shift_ns = self.choice.ingress_shift_ns + earlier;
        let before = reading(&self.ingress, extract[0], shift_ns, X::SHOWN_BEFORE);
        let mut after = reading(&self.egress, extract[1], self.choice.egress_shift_ns, true);
        after.clocks.clone_from(clocks);
        let window_ns = self.options.window_ns;
        let changes = self.choice.changes.iter().map(|range| {
            let mut ends = [range.start, range.end];
            clocks.iter().for_each(|clocks| clocks.convert(&mut ends));
            ends[0]..ends[1]
        });
        let changes: Vec<_> = changes.collect();
        let mut walk = Walk {
            window_ns: clocks.as_ref().map_or(window_ns, |clocks| clocks.window_ns(window_ns)),
            trim_ns: self.options.trim_ns,
            worst: self.options.worst,
            span: self.span,
            expected: self.choice.expected_ahead,
            packets: self.choice.expected_egress,
            losses: self.options.kept_losses(),
            flows: self.options.flows,
            throughout: self.options.throughout,
            covered: None,
            changes: &changes,
            cancelled,
        };
        let mut sorted = false;
        let mut walked = self.pass(&walk, [&before, &after], sorted, None);
        if let Err(Stop::Unsorted) = walked {
            sorted = true;
            walked = self.pass(&walk, [&before, &after], sorted, None);
        }
        if let Ok((_, _, tally)) = &mut walked
            && let Some(equals) = tally.equals.take()
            && !self.leaves_equals
        {
            if self.span != Span::ALL {
                // What became of equal packets depends on all that came before.
                return Err(EvaluateError::NotSplittable);
            }
            let plan = equals.settle(walk.window_ns);
            if plan.is_of_use() {
                walk.covered = Some(tally.covered[1]);
                walked = self.pass(&walk, [&before, &after], sorted, Some(plan));
            }
        }
        match walked {
            Ok((ingress, egress, tally)) => {
                let lost_in_order = tally.lost_in_order;
                Ok((self.partial(ingress, egress, tally), lost_in_order))
            }
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Unsorted) => unreachable!("the stamps have just been sorted"),
        }
    }

    /// Walks through both captures once, as they are or `sorted` in memory.
    fn pass<X: Extract>(
        &self,
        walk: &Walk<'_>,
        [before, after]: [&Reading<X>; 2],
        sorted: bool,
        plan: Option<Plan>,
    ) -> Result<(Side, Side, Tally), Stop> {
        let (ingress, egress) = (&self.ingress, &self.egress);
        thread::scope(|scope| {
            let (mut ingress, mut egress) = if sorted {
                let reading = scope.spawn(|| Cursor::sorted(ingress.open()?, before));
                let egress = egress.open().map(|open| Cursor::sorted(open, after));
                (reading.join().expect("reading does not panic")?, egress??)
            } else {
                let ingress = Cursor::stream(scope, ingress.open()?, before)?;
                (ingress, Cursor::stream(scope, egress.open()?, after)?)
            };
            let tally = walk.run(&mut ingress, &mut egress, plan)?;
            Ok((side(&mut ingress), side(&mut egress), tally))
        })
    }

    fn partial(&self, mut ingress: Side, mut egress: Side, tally: Tally) -> Partial {
        for (side, part) in [(&mut ingress, &self.ingress), (&mut egress, &self.egress)] {
            side.chosen = part.source.chosen(&side.notes.interfaces);
        }
        let Tally { mut counts, latencies, worst, reorder, exceedances, blocks, .. } = tally;
        let Tally { losses, matched, covered, edges, .. } = tally;
        counts.ingress = ingress.intake.keyed;
        counts.egress = egress.intake.keyed;
        counts.unkeyed_ingress = ingress.intake.unkeyed() + ingress.set_aside.undirected;
        counts.unkeyed_egress = egress.intake.unkeyed() + egress.set_aside.undirected;
        counts.unread_ingress = ingress.notes.unread.total();
        counts.unread_egress = egress.notes.unread.total();
        Partial {
            choice: self.choice.clone(),
            options: self.options.clone(),
            counts,
            latencies,
            worst: worst.into_sorted(),
            reorder,
            exceedances,
            blocks,
            losses,
            matched,
            covered,
            edges,
            ingress,
            egress,
        }
    }
}

impl From<CaptureError> for Stop {
    fn from(error: CaptureError) -> Self {
        Self::Error(error.into())
    }
}

/// Splits the work on a pair of captures into pieces of about `chunk` bytes of the larger file,
/// in the order of time. There is one piece only if `chunk` is 0 or larger than both files, or
/// one cannot begin anywhere in them: in compressed files, pcapng and mscap; or if the captures are of
/// two clocks, or of clocks that resolve differently.
pub fn plan(
    ingress: impl Into<Source>,
    egress: impl Into<Source>,
    options: &Options,
    chunk: u64,
) -> Result<Vec<Piece>, EvaluateError> {
    let whole = Piece::whole(ingress, egress, options)?;
    let mut before = whole.ingress.open()?;
    let mut after = whole.egress.open()?;
    let size = |capture: &Feed| capture.size().unwrap_or(0);
    let streams = matches!(whole.choice.key, KeyKind::Stream(_));
    let one = chunk == 0 || whole.choice.clocks.is_some() || streams;
    if one || size(&before).max(size(&after)) <= chunk {
        return Ok(vec![whole]);
    }
    let step = (chunk / MARKS as u64).max(1);
    let (Some(marks_before), Some(marks_after)) = (before.marks(step)?, after.marks(step)?) else {
        return Ok(vec![whole]);
    };
    let leader = if size(&before) >= size(&after) { &marks_before } else { &marks_after };
    let cuts: Vec<u64> = leader.iter().skip(MARKS).step_by(MARKS).map(|m| m.time_ns).collect();
    let in_order = |marks: &[Mark]| marks.windows(2).all(|pair| pair[0].time_ns < pair[1].time_ns);
    if cuts.is_empty() || !in_order(&marks_before) || !in_order(&marks_after) {
        return Ok(vec![whole]);
    }
    let keys = whole.choice.key.sides();
    let before = Outline::of(&mut before, marks_before, keys[0], options.trim_ns)?;
    let after = Outline::of(&mut after, marks_after, keys[1], options.trim_ns)?;
    let window = options.window_ns;
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([u64::MAX]);
    let pieces = starts.zip(ends).map(|(from_ns, until_ns)| {
        // A packet before the device is repeated by others within one window of it. One after the
        // device concerns those before it within one window to either side.
        let ingress = (from_ns.saturating_sub(2 * window), until_ns.saturating_add(window));
        let egress = (from_ns.saturating_sub(window), until_ns.saturating_add(window));
        let mut piece = whole.clone();
        piece.span = Span { from_ns, until_ns };
        piece.ingress.stretch = Some(before.stretch(ingress.0, ingress.1));
        piece.egress.stretch = Some(after.stretch(egress.0, egress.1));
        piece
    });
    Ok(pieces.collect())
}

/// What is known of a capture before it is read.
struct Outline {
    marks: Vec<Mark>,
    first_ns: Option<u64>,
    origin_ns: Option<u64>,
}

impl Outline {
    fn of(
        capture: &mut Feed,
        marks: Vec<Mark>,
        key: KeyKind,
        trim_ns: u64,
    ) -> Result<Self, CaptureError> {
        let first_ns = first_keyed(capture, marks[0], key, 0)?;
        let mut origin_ns = None;
        if let Some(first) = first_ns {
            let cut = first.saturating_add(trim_ns);
            let near = marks.iter().rev().find(|mark| mark.time_ns <= cut).unwrap_or(&marks[0]);
            origin_ns = first_keyed(capture, *near, key, cut)?;
        }
        Ok(Self { marks, first_ns, origin_ns })
    }

    /// The stretch with all packets from one time to another.
    fn stretch(&self, from_ns: u64, end_ns: u64) -> Stretch {
        let begin = self.marks.partition_point(|mark| mark.time_ns <= from_ns).max(1) - 1;
        // One behind the end: records without a key may lead there. All of them in each piece would
        // be a square of the capture's length.
        let end = self.marks.partition_point(|mark| mark.time_ns <= end_ns) + 1;
        Stretch {
            begin: self.marks[begin],
            marks: self.marks[begin + 1..end.min(self.marks.len())].to_vec(),
            end_ns,
            first_ns: self.first_ns,
            origin_ns: self.origin_ns,
        }
    }
}

/// Time of the first packet with a key, from a mark on and not before a time.
fn first_keyed(
    capture: &mut Feed,
    from: Mark,
    key: KeyKind,
    earliest: u64,
) -> Result<Option<u64>, CaptureError> {
    const AT_ONCE: usize = 64;
    capture.seek(from.offset, None)?;
    let mut found = None;
    loop {
        let more = capture.read(AT_ONCE, |packet| {
            if found.is_none() && packet.time_ns >= earliest && key.fits(packet.content) {
                found = Some(packet.time_ns);
            }
        })?;
        if found.is_some() || !more {
            return Ok(found);
        }
    }
}
