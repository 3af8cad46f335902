//! Where stamps are taken from: the records of the captures, or the trailers of a switch.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::capture::{Packet, Trailer};

/// Fewer frames than this may end in what looks like a trailer by chance.
const ENOUGH: u64 = 8;

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

/// Counts packets that end in trailers.
#[derive(Default)]
pub(super) struct Trailers {
    packets: u64,
    fitting: [u64; Trailer::ALL.len()],
}

impl Trailers {
    pub fn add(&mut self, packet: &Packet<'_>) {
        self.packets += 1;
        for (count, trailer) in self.fitting.iter_mut().zip(Trailer::ALL) {
            *count += u64::from(trailer.fits(packet));
        }
    }

    /// The trailers that all packets have.
    fn of_all(&self) -> Option<Trailer> {
        self.most()
            .filter(|(_, count)| *count == self.packets && *count >= ENOUGH)
            .map(|most| most.0)
    }

    /// The trailers that some packets have, and how many.
    fn most(&self) -> Option<(Trailer, u64)> {
        // Of those that are as frequent the first.
        let counts = Trailer::ALL.into_iter().zip(self.fitting).rev();
        counts.max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 0)
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
            [Some(before), Some(after)] => [used(Some(before)), used(Some(after))],
            alone => alone.map(|trailer| Chosen { used: None, unused: trailer }),
        },
    }
}

/// What becomes of a capture's trailers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub used: Option<Trailer>,
    pub unused: Option<Trailer>,
}
