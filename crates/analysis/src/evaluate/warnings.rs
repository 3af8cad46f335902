//! What a reader must know before believing an evaluation.

use std::fmt::Display;
use std::path::Path;

use serde::Serialize;

use super::choose::KeyChoice;
use super::{Counts, Options, Side, outside};
use crate::capture::{Damage, Marked, Notes, Reason};
use crate::key::{Keeps, KeyKind, Packet};
use crate::source::SetAside;
use crate::source::Source;

/// Egress packets without a partner beyond this share are worth a warning. The published data
/// has runs with up to 6.8 % and says nothing of it.
const UNMATCHED_SHARE: f64 = 0.001;

/// Where such a share leaves before it came, there may be no device.
const MANY: f64 = 0.1;

/// A warning about the quality of the measurement, stored with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// A stable name for programs.
    pub code: &'static str,
    /// One sentence for people.
    pub message: String,
}

/// All warnings about an evaluation.
pub(super) fn of(
    counts: &Counts,
    ingress: &Side,
    egress: &Side,
    choice: &KeyChoice,
    options: &Options,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |code, message| warnings.push(Warning { code, message });
    if let KeyKind::Packet(Packet { keeps: Keeps::Id, .. }) = choice.key {
        warn(
            "payload-changed",
            "packets were matched by addresses and IP ids alone, as what stands behind the header of IP \
             differs: what the device merged with others looks lost, and of what it cut in pieces the first \
             piece counts"
                .to_owned(),
        );
    }
    // Else they are outside of the common time.
    let behind = |count| if options.throughout { count } else { 0 };
    let (unmatched, lost) = (behind(counts.unmatched_egress), behind(counts.lost));
    warnings.extend(of_sides([
        (ingress, egress, Some(&choice.ingress), (unmatched, "unmatched")),
        (egress, ingress, Some(&choice.egress), (lost, "lost")),
    ]));
    warnings.extend(of_counts(counts, choice, options));
    warnings
}

/// Warnings about captures, whatever was looked for in them.
pub(crate) fn of_captures(ingress: &Side, egress: &Side) -> Vec<Warning> {
    of_sides([(ingress, egress, None, (0, "")), (egress, ingress, None, (0, ""))])
}

/// A capture, the other one, how it was read, and how many packets it may be the reason of that have no
/// partner.
type Told<'a> = (&'a Side, &'a Side, Option<&'a Source>, (u64, &'a str));

/// Warnings about each capture.
fn of_sides(sides: [Told<'_>; 2]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |code, message| warnings.push(Warning { code, message });
    for (side, other, told, (count, fate)) in sides {
        let path = side.path.display();
        let rest = if count > 0 { rest(side, other, fate) } else { String::new() };
        if side.files.is_empty() {
            about_file(&side.path, &side.notes, &rest, &mut warn);
        }
        for file in &side.files {
            about_file(&file.path, &file.notes, "", &mut warn);
        }
        let fcs_len = told.map_or(0, |told| told.fcs_len);
        if fcs_len > 0 {
            warn(
                "fcs-taken-off",
                format!(
                    "{path}: the frames end in their check sequences, of which the file says nothing: \
                     the last {fcs_len} bytes of each were left out"
                ),
            );
        }
        if let Some(trailer) = told.and_then(|told| told.unused_trailer) {
            let other = other.path.display();
            warn(
                "trailers-unused",
                format!(
                    "{path}: the frames end in stamps of a switch ({trailer}), and those of {other} do \
                     not: the stamps of the records count; --stamps trailer takes those of the switch"
                ),
            );
        }
        if let Some(trailer) = side.notes.trailer
            && other.notes.trailer.is_none()
        {
            let other = other.path.display();
            warn(
                "trailers-one-side",
                format!(
                    "{path}: the stamps are those of a switch's trailers ({trailer}), and those of \
                     {other} are of its records: unless one clock is behind both, say how they are by \
                     --egress-ahead or --back"
                ),
            );
        }
        if side.intake.backwards > 0 {
            warn(
                "timestamps-backwards",
                format!(
                    "{path}: {} stamps are earlier than the one before them, by up to {} ns; the \
                     packets were sorted by time",
                    side.intake.backwards, side.intake.largest_step_ns
                ),
            );
        }
        if side.intake.short > 0 {
            warn(
                "snap-length",
                format!("{path}: the snap length cut the key off {} packets", side.intake.short),
            );
        }
        if side.intake.headless > 0 {
            warn(
                "no-ethernet-header",
                format!(
                    "{path}: {} packets were captured without the Ethernet header that the key counts \
                     from; left out",
                    side.intake.headless
                ),
            );
        }
        if side.intake.foreign > 0 {
            warn(
                "foreign-packets",
                format!("{path}: {} packets do not carry the key; left out", side.intake.foreign),
            );
        }
        let SetAside { undirected, copies, .. } = side.set_aside;
        if undirected > 0 {
            warn(
                "direction-unknown",
                format!(
                    "{path}: nobody knows the direction of {undirected} packets, which have no pair \
                     and may be lost; left out"
                ),
            );
        }
        if copies > 0 {
            warn(
                "copies",
                format!(
                    "{path}: {copies} packets are exact copies of others that were captured moments \
                     before, as mirror ports make them; the first of each counts"
                ),
            );
        }
    }
    warnings
}

/// Warnings about what became of packets.
fn of_counts(counts: &Counts, choice: &KeyChoice, options: &Options) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |code, message| warnings.push(Warning { code, message });
    if counts.noncausal > 0 {
        warn(
            "noncausal",
            format!(
                "{} packets were stamped at egress before ingress{}{}",
                counts.noncausal,
                match options.clocks.is_some() {
                    true => {
                        ", by more than the clocks may be off: their interval does not hold the truth"
                    }
                    false => ": check that both clocks are synchronised",
                },
                match options.clocks.is_none()
                    && counts.noncausal as f64 >= MANY * counts.matched as f64
                {
                    true => "; of two feeds of the same packets, of which neither is first, \
                             --egress-ahead finds the differences"
                        .to_owned(),
                    false => String::new(),
                }
            ),
        );
    }
    if counts.matched_in_order > 0 {
        warn(
            "equal-packets",
            format!(
                "{} packets are equal to others within the window and were told apart by their order: \
                 right unless the device changes the order of equal packets",
                counts.matched_in_order
            ),
        );
    }
    if counts.duplicate_ingress > 0 {
        let remedy = match choice.key {
            KeyKind::Packet(_) => {
                "; a shorter --window, of the longest time in the device, leaves fewer of them out"
                    .to_owned()
            }
            _ => String::new(),
        };
        warn(
            "duplicate-ingress",
            format!(
                "{} packets before the device share their key with another within the window and \
                 were left out: what they took is in no percentile, which is too low if they were \
                 slow{remedy}",
                counts.duplicate_ingress
            ),
        );
    }
    let after = counts.egress - counts.trimmed_egress;
    if counts.unmatched_egress as f64 > UNMATCHED_SHARE * after as f64 {
        let outside = match counts.lost > 0 {
            true => outside::look(choice, options),
            false => None,
        };
        let why = outside
            .map_or(String::new(), |outside| format!("; {}", outside.told(options.window_ns)));
        warn(
            "unmatched-egress",
            format!(
                "{} of {after} packets after the device match none before it{why}",
                counts.unmatched_egress
            ),
        );
    }
    warnings
}

/// What is to be said of each file by itself. `rest` is what becomes of packets behind its end.
fn about_file(path: &Path, notes: &Notes, rest: &str, mut warn: impl FnMut(&'static str, String)) {
    let path = path.display();
    let Notes { damage, skipped, unread, .. } = notes;
    if let Some(Damage { byte, why }) = damage {
        let packets = notes.packets;
        warn(
            "capture-damaged",
            format!(
                "{path}: damaged after packet {packets} (byte {byte}): {why}; what stands \
                 before that was evaluated{rest}"
            ),
        );
    }
    if let Some(Damage { byte, why }) = &skipped.first {
        let (places, bytes) = (skipped.places, skipped.bytes);
        let where_ = match places {
            1 => format!("damaged at byte {byte}"),
            _ => format!("damaged at {places} places, byte {byte} first"),
        };
        warn(
            "capture-damaged",
            format!(
                "{path}: {where_}: {why}; {bytes} bytes were skipped, packets that stood there \
                 look lost or unmatched and may not be"
            ),
        );
    }
    if let Some(reasons) = notes.reasons() {
        warn(
            "unread-packets",
            format!(
                "{path}: packets were not read, which look lost or unmatched and may not be: \
                 {reasons}"
            ),
        );
    }
    let dropped = unread.of(Reason::Dropped);
    if dropped > 0 {
        warn(
            "capture-drops",
            format!(
                "{path}: the program that captured dropped {dropped} packets, which look lost or \
                 unmatched and may not be"
            ),
        );
    }
    if let Some(to) = notes.resized {
        let from = notes.size;
        let how = if to > from { "grew" } else { "shrank" };
        warn(
            "capture-growing",
            format!(
                "{path}: the file {how} from {from} to {to} bytes while it was read: the \
                 capture still runs; what it held so far was evaluated{rest}"
            ),
        );
    }
    if notes.unwrapped > 0 {
        warn(
            "mscap-unwrapped",
            format!(
                "{path}: MoonSniff's times jumped back by 2^32 ns {} times and were unwrapped",
                notes.unwrapped
            ),
        );
    }
    if notes.unclosed {
        warn(
            "tap-unclosed",
            format!(
                "{path}: the tap still runs, or ended before it closed the file; its counts \
                 are unknown{rest}"
            ),
        );
    }
    if let Some(marked) = &notes.marked
        && (marked.unsampled > 0 || marked.samples.iter().any(|sample| sample.level > 0))
    {
        warn("sampled", sampled(&path, marked));
    }
    if let Some(tap) = notes.tap
        && tap.lost > 0
    {
        warn(
            "tap-lost",
            format!(
                "{path}: the tap lost {} of {} stamps; these packets look lost or unmatched \
                 and may not be",
                tap.lost, tap.seen
            ),
        );
    }
}

/// How many packets of a file of marks there are for each that counts.
fn sampled(path: impl Display, marked: &Marked) -> String {
    let of = |level: u8| 1u64 << level.min(63);
    let levels = || marked.samples.iter().map(|sample| sample.level);
    let (least, most) = (levels().min().unwrap_or_default(), levels().max().unwrap_or_default());
    let changes = match least == most {
        true => String::new(),
        false => format!(", and at times one of {}", of(most)),
    };
    let thinned = match marked.thinned {
        0 => String::new(),
        thinned => format!(
            "; {thinned} more are in the file and were left out, as the other side has a thinner sample"
        ),
    };
    format!(
        "{path}: one packet of {} was stamped{changes}: {} packets were not, and are in no count{thinned}",
        of(least),
        marked.unsampled
    )
}

/// What becomes of the packets behind the end of a capture that is not whole.
fn rest(side: &Side, other: &Side, fate: &str) -> String {
    let apart = other.intake.last_ns.saturating_sub(side.intake.last_ns);
    if apart == 0 {
        return String::new();
    }
    let path = other.path.display();
    let seconds = apart as f64 / 1e9;
    format!("; packets of the last {seconds:.6} s of {path} count as {fate} and may not be")
}
