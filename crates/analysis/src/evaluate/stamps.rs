//! Where stamps are taken from: the records of the captures, or the trailers of a switch.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tailtap_wire::ethernet::FCS_LEN;

use crate::capture::{Content, NEAR_NS, Packet, Restamping, Trailer, ahead_ns};

/// Fewer frames than this may end in what looks like a trailer by chance.
const ENOUGH: usize = 8;
/// Such a share of frames must agree that they end in trailers.
const MOST: f64 = 0.75;

/// Where the stamps are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stamps {
    /// From the records of the captures.
    Record,
    /// From the trailers of a switch, in whichever capture has them.
    Trailer,
}

/// A text that says no source of stamps.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no source of stamps: give record or trailer")]
pub struct ParseStampsError(String);

impl FromStr for Stamps {
    type Err = ParseStampsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "record" => Ok(Self::Record),
            "trailer" => Ok(Self::Trailer),
            _ => Err(ParseStampsError(text.to_owned())),
        }
    }
}

/// Whether a frame ends in its check sequence.
pub(super) fn is_checked(frame: &[u8]) -> bool {
    frame.split_last_chunk::<FCS_LEN>().is_some_and(|(frame, fcs)| {
        let mut crc = flate2::Crc::new();
        crc.update(frame);
        crc.sum() == u32::from_le_bytes(*fcs)
    })
}

/// What frames say that may end in trailers of one format.
#[derive(Default)]
struct Ends {
    times: Vec<u64>,
    /// How far the trailer's clock is ahead of the record's, of each.
    ahead_ns: Vec<i64>,
    /// Frames whose original check sequence, in front of the trailer, is right.
    checked: usize,
    /// Frames by the number of the device.
    devices: HashMap<u32, usize>,
}

impl Ends {
    /// Whether these are trailers by more than one of their fields: time goes on from frame to frame, and
    /// the check sequence is right or one device stamped them.
    fn are_trailers(&self) -> bool {
        let most = |frames: usize| frames as f64 >= MOST * self.times.len() as f64;
        let later = self.times.windows(2).filter(|pair| pair[0] < pair[1]).count();
        let of_one = self.devices.values().copied().max().unwrap_or(0);
        !self.times.is_empty() && most(later + 1) && (most(self.checked) || most(of_one))
    }

    /// Frames whose time is near that of the record.
    fn near(&self) -> usize {
        self.ahead_ns.iter().filter(|ahead| ahead.unsigned_abs() < NEAR_NS).count()
    }

    /// The trailers, and how far their clock is ahead in the middle.
    fn restamping(&self, trailer: Trailer) -> Restamping {
        let mut sorted = self.ahead_ns.clone();
        sorted.sort_unstable();
        (trailer, sorted.get(sorted.len() / 2).copied().unwrap_or(0))
    }
}

/// Finds out which trailers frames end in.
#[derive(Default)]
pub(super) struct Trailers {
    packets: usize,
    ends: [Ends; Trailer::ALL.len()],
}

impl Trailers {
    pub fn add(&mut self, packet: &Packet<'_>) {
        self.packets += 1;
        for (ends, trailer) in self.ends.iter_mut().zip(Trailer::ALL) {
            if let Some((frame, stamped)) = trailer.split(packet)
                && let Content::Frame { bytes, .. } = packet.content
            {
                ends.times.push(stamped.time_ns);
                ends.ahead_ns.push(ahead_ns(&stamped, packet));
                ends.checked += usize::from(is_checked(&bytes[..frame.len() + FCS_LEN]));
                *ends.devices.entry(stamped.port >> 8).or_default() += 1;
            }
        }
    }

    /// The trailers that all packets have, of a clock that was set, and their times.
    fn of_all(&self) -> Option<(Restamping, &[u64])> {
        let all = |ends: &Ends| ends.near() == self.packets && self.packets >= ENOUGH;
        self.most().filter(|(_, ends)| all(ends)).map(|(found, ends)| (found, &ends.times[..]))
    }

    /// The trailers that most packets have, among those that some have.
    fn most(&self) -> Option<(Restamping, &Ends)> {
        // Of those that are as frequent the first.
        let ends = Trailer::ALL.into_iter().zip(&self.ends).rev();
        let found = ends.filter(|(_, ends)| ends.are_trailers());
        let most = found.max_by_key(|(_, ends)| (ends.near(), ends.times.len()));
        most.map(|(trailer, ends)| (ends.restamping(trailer), ends))
    }
}

/// The trailers that stamps are taken from, of the captures before the device and after it; and those that
/// only one of them has and that are therefore left alone.
pub(super) fn choose(sides: [&Trailers; 2], stamps: Option<Stamps>) -> [Chosen; 2] {
    let used = |trailer| Chosen { used: trailer, unused: None };
    match stamps {
        Some(Stamps::Record) => [Chosen::default(); 2],
        Some(Stamps::Trailer) => sides.map(|side| used(side.most().map(|most| most.0))),
        None => match sides.map(Trailers::of_all) {
            [Some((before, earlier)), Some((after, later))] => {
                // What passes the device as it is was not written by a switch on either side of it.
                let earlier: HashSet<&u64> = earlier.iter().collect();
                let same = later.iter().filter(|time| earlier.contains(time)).count();
                match same as f64 >= MOST * later.len() as f64 {
                    true => [Chosen::default(); 2],
                    false => [used(Some(before)), used(Some(after))],
                }
            }
            alone => alone.map(|found| Chosen { used: None, unused: found.map(|all| all.0.0) }),
        },
    }
}

/// What becomes of a capture's trailers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub used: Option<Restamping>,
    pub unused: Option<Trailer>,
}
