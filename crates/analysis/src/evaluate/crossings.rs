//! The packets that two captures have in common, whatever their clocks are to each other.

use std::thread;

use super::keyed::{common, once};
use super::partial::side;
use super::refusals::refuse_keyless;
use super::{EvaluateError, Options, Side, choose};
use crate::capture::Trailer;
use crate::edges::Span;
use crate::key::{Extract, KeyKind, Moonsniff, Signatures};
use crate::source::{Feed, Source};
use crate::stream::{Cursor, Reading, StreamError};

/// Packets that passed two clocks; times in nanoseconds, each by the clock of its capture.
#[derive(Debug, PartialEq, Eq)]
pub struct Crossings {
    /// What packets were matched by.
    pub key: KeyKind,
    /// The times of each packet in the first capture and in the second, in the order of the keys.
    pub times: Vec<(u64, u64)>,
    /// The first time and the last one of the first capture, and of the second one.
    pub spans: [(u64, u64); 2],
    /// How finely the stamps of both captures tell time, in nanoseconds.
    pub resolutions_ns: [u64; 2],
    /// The trailers that the stamps of both captures were taken from.
    pub trailers: [Option<Trailer>; 2],
}

/// The keys and times of a capture, by key.
struct Keyed {
    packets: Vec<(u64, u64)>,
    side: Side,
}

/// The packets that are in both captures, each of them once: no window tells packets of one key
/// apart, as the clocks of the captures are not known to agree. Keeps 16 bytes for each packet.
pub fn crossings(
    earlier: impl Into<Source>,
    later: impl Into<Source>,
    options: &Options,
    cancelled: &dyn Fn() -> bool,
) -> Result<Crossings, EvaluateError> {
    let choice = choose::key(earlier.into(), later.into(), options)?;
    let captures = [choice.ingress.open()?, choice.egress.open()?];
    let [first, second] = match choice.key {
        KeyKind::Packet(packet) => read_both(captures, [packet; 2])?,
        KeyKind::Stream(stream) => read_both(captures, [stream; 2])?,
        KeyKind::Moonsniff => read_both(captures, [Moonsniff; 2])?,
        KeyKind::Signature => read_both(captures, [Signatures; 2])?,
        KeyKind::Field(field) => read_both(captures, [field; 2])?,
        KeyKind::Fields(fields) => read_both(captures, fields)?,
    };
    for (keyed, key) in [&first, &second].into_iter().zip(choice.key.sides()) {
        choose::refuse_undated(&keyed.side.path, keyed.side.format)?;
        refuse_keyless(key, &keyed.side)?;
    }
    if cancelled() {
        return Err(EvaluateError::Cancelled);
    }
    let times = common(&once(first.packets), &once(second.packets));
    if times.is_empty() {
        return Err(EvaluateError::NoMatch(format!(
            "clocks cannot be aligned: no packet of {} is in {} by the key '{}' and occurs once in \
             each; give --key bytes that the device keeps and that differ from packet to packet",
            choice.ingress.name().display(),
            choice.egress.name().display(),
            choice.key
        )));
    }
    let sides = [first.side, second.side];
    let spans = sides.each_ref().map(|side| (side.intake.first_ns, side.intake.last_ns));
    let resolutions_ns = sides.each_ref().map(Side::resolution_ns);
    let trailers = sides.map(|side| side.notes.trailer);
    Ok(Crossings { key: choice.key, times, spans, resolutions_ns, trailers })
}

fn read_both<X: Extract>(
    [first, second]: [Feed; 2],
    extract: [X; 2],
) -> Result<[Keyed; 2], EvaluateError> {
    thread::scope(|scope| {
        let reading = scope.spawn(|| read(first, extract[0]));
        let second = read(second, extract[1]);
        Ok([reading.join().expect("reading does not panic")?, second?])
    })
}

fn read<X: Extract>(capture: Feed, extract: X) -> Result<Keyed, EvaluateError> {
    let reading = Reading {
        extract,
        shift_ns: 0,
        clocks: None,
        trim_ns: 0,
        keep_shown: false,
        stretch: None,
        span: Span::ALL,
    };
    let refuse = |error| match error {
        StreamError::Capture(error) => EvaluateError::from(error),
        StreamError::Unsorted | StreamError::NotSplittable => EvaluateError::NotSplittable,
    };
    let mut cursor = Cursor::sorted(capture, &reading).map_err(refuse)?;
    let mut packets = Vec::new();
    loop {
        let (times, keys, _) = cursor.next();
        let count = times.len();
        if count == 0 {
            break;
        }
        packets.extend(keys.iter().copied().zip(times.iter().copied()));
        cursor.advance(count).map_err(refuse)?;
    }
    Ok(Keyed { packets, side: side(&mut cursor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_common_where_their_key_is_their_own_in_both() {
        let first = once(vec![(5, 10), (7, 20), (7, 30), (9, 40), (2, 50)]);
        let second = once(vec![(2, 90), (7, 91), (5, 92), (8, 93), (8, 94)]);
        assert_eq!(first, [(2, 50), (5, 10), (9, 40)]);
        assert_eq!(common(&first, &second), [(50, 90), (10, 92)]);
        assert_eq!(common(&second, &first), [(90, 50), (92, 10)]);
        assert_eq!(common(&first, &[]), []);
    }
}
