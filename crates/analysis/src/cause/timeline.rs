//! What one core did: a sequence of stretches without overlap, each with one owner.
//!
//! A stretch takes six bytes: four for its start and two for its owner, both of them counted within
//! a piece. A piece also knows the time of each of its owners, so that sums over a long time do not
//! look at each stretch.

use super::Owners;

/// Stretches of a piece at most: each of its owners has a number of two bytes, and one is for none.
const MOST: usize = u16::MAX as usize;
/// The number of an owner that a piece has not met.
const UNMET: u16 = u16::MAX;

/// A part of a stretch: from, until, and whose it is.
pub type Stretch = (u64, u64, u32);

/// Stretches of a time that four bytes can tell.
#[derive(Clone, Debug, Default)]
struct Piece {
    /// When the first one starts.
    base: u64,
    /// When each one starts, from the base.
    starts: Vec<u32>,
    /// Whose each one is, as a place in `met`.
    owners: Vec<u16>,
    /// Who is in it.
    met: Vec<u32>,
    /// How long in total, each of them.
    ns: Vec<u64>,
}

impl Piece {
    fn owner(&self, place: usize) -> u32 {
        self.met[usize::from(self.owners[place])]
    }
}

/// The stretches of a core, in the order of time. Each ends where the next one begins; the last one
/// is nobody's and has no end.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pieces: Vec<Piece>,
}

impl Timeline {
    /// The stretches between two times, cut there.
    pub fn between(&self, from: u64, until: u64) -> impl Iterator<Item = Stretch> + '_ {
        let mut coming = self.after(from);
        let mut owner = coming.owner_before().unwrap_or(Owners::NOBODY);
        let mut at = from;
        std::iter::from_fn(move || {
            if at >= until {
                return None;
            }
            let (end, next) = coming.next().unwrap_or((until, owner));
            let stretch = (at, end.min(until), owner);
            (at, owner) = (end, next);
            Some(stretch)
        })
    }

    /// Adds the time of each owner between two times to `sums`, which has a place for each owner.
    pub fn add_totals(&self, from: u64, until: u64, sums: &mut [u64]) {
        let mut at = from;
        for pair in self.pieces.windows(2) {
            let (piece, end) = (&pair[0], pair[1].base);
            if piece.base >= from && end <= until {
                self.walk(at, piece.base, sums);
                for (&owner, ns) in piece.met.iter().zip(&piece.ns) {
                    sums[owner as usize] += ns;
                }
                at = end;
            }
        }
        self.walk(at, until, sums);
    }

    fn walk(&self, from: u64, until: u64, sums: &mut [u64]) {
        for (start, end, owner) in self.between(from, until) {
            sums[owner as usize] += end - start;
        }
    }

    /// The starts behind a time.
    pub(super) fn after(&self, time: u64) -> Starts<'_> {
        let piece = self.pieces.partition_point(|piece| piece.base <= time).saturating_sub(1);
        let place = self.pieces.get(piece).map_or(0, |found| {
            found.starts.partition_point(|&start| found.base + u64::from(start) <= time)
        });
        Starts { pieces: &self.pieces, piece, place }
    }

    /// Gives each owner another number.
    pub(super) fn renumber(&mut self, numbers: &[u32]) {
        for owner in self.pieces.iter_mut().flat_map(|piece| &mut piece.met) {
            *owner = numbers[*owner as usize];
        }
    }
}

/// Where stretches start, and whose they are.
#[derive(Clone)]
pub(super) struct Starts<'a> {
    pieces: &'a [Piece],
    piece: usize,
    place: usize,
}

impl Starts<'_> {
    /// Whose the time before the next start is; none before the first one.
    pub(super) fn owner_before(&self) -> Option<u32> {
        match (self.place.checked_sub(1), self.piece.checked_sub(1)) {
            (Some(place), _) => Some(self.pieces[self.piece].owner(place)),
            (None, Some(piece)) => {
                let before = &self.pieces[piece];
                Some(before.owner(before.starts.len() - 1))
            }
            (None, None) => None,
        }
    }
}

impl Iterator for Starts<'_> {
    type Item = (u64, u32);

    #[inline]
    fn next(&mut self) -> Option<(u64, u32)> {
        loop {
            let piece = self.pieces.get(self.piece)?;
            if let Some(&start) = piece.starts.get(self.place) {
                let owner = piece.owner(self.place);
                self.place += 1;
                return Some((piece.base + u64::from(start), owner));
            }
            (self.piece, self.place) = (self.piece + 1, 0);
        }
    }
}

/// Makes a timeline, stretch by stretch.
#[derive(Default)]
pub(super) struct Builder {
    pieces: Vec<Piece>,
    /// The number of each owner in the last piece.
    numbers: Vec<u16>,
    /// The start and the owner of the last stretch, and its owner's number in its piece.
    last: Option<(u64, u32, u16)>,
}

impl Builder {
    /// Whose the time is from a moment on.
    #[inline]
    pub(super) fn push(&mut self, start: u64, owner: u32) {
        match self.last {
            Some((_, last, _)) if last == owner => return,
            None if owner == Owners::NOBODY => return,
            Some((from, _, number)) => {
                if let Some(piece) = self.pieces.last_mut() {
                    piece.ns[usize::from(number)] += start - from;
                }
            }
            None => {}
        }
        let fits =
            |piece: &Piece| piece.starts.len() < MOST && start - piece.base <= u64::from(u32::MAX);
        if !self.pieces.last().is_some_and(fits) {
            self.begin(start);
        }
        let piece = self.pieces.last_mut().expect("one was begun");
        if self.numbers.len() <= owner as usize {
            self.numbers.resize(owner as usize + 1, UNMET);
        }
        let number = &mut self.numbers[owner as usize];
        if *number == UNMET {
            *number = piece.met.len() as u16;
            piece.met.push(owner);
            piece.ns.push(0);
        }
        piece.starts.push((start - piece.base) as u32);
        piece.owners.push(*number);
        self.last = Some((start, owner, *number));
    }

    fn begin(&mut self, base: u64) {
        let room = self.pieces.last_mut().map_or(0, |piece| {
            for &owner in &piece.met {
                self.numbers[owner as usize] = UNMET;
            }
            piece.starts.shrink_to_fit();
            piece.owners.shrink_to_fit();
            piece.starts.len()
        });
        let starts = Vec::with_capacity(room);
        self.pieces.push(Piece {
            base,
            starts,
            owners: Vec::with_capacity(room),
            ..Piece::default()
        });
    }

    pub(super) fn finish(mut self) -> Timeline {
        self.pieces.shrink_to_fit();
        Timeline { pieces: self.pieces }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::SplitMix64;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    #[test]
    fn pieces_are_the_same_as_one_list() {
        let mut random = SplitMix64::seed_from_u64(1);
        let mut builder = Builder::default();
        let mut list = Vec::new();
        let mut at = 1_000;
        for place in 0..200_000 {
            let owner = 1 + place % 2 + 2 * (random.next_u64() % 3) as u32;
            builder.push(at, owner);
            list.push((at, owner));
            // Now and then four bytes do not tell the distance.
            at +=
                1 + random.next_u64() % if random.next_u64() % 5_000 == 0 { 1 << 33 } else { 900 };
        }
        builder.push(at, Owners::NOBODY);
        list.push((at, Owners::NOBODY));
        let timeline = builder.finish();
        assert!(timeline.pieces.len() > 20);
        let cuts: Vec<u64> = (0..60).map(|_| random.next_u64() % (at + 500)).collect();
        for (&one, &other) in cuts.iter().zip(&cuts[1..]) {
            let (from, until) = (one.min(other), one.max(other));
            let first = list.partition_point(|&(start, _)| start <= from);
            let last = list.partition_point(|&(start, _)| start < until).max(first);
            let before = first.checked_sub(1).map_or(Owners::NOBODY, |place| list[place].1);
            let mut starts = vec![(from, before)];
            starts.extend_from_slice(&list[first..last]);
            let ends = starts[1..].iter().map(|&(start, _)| start).chain([until]);
            let expected: Vec<Stretch> =
                starts.iter().zip(ends).map(|(&(start, owner), end)| (start, end, owner)).collect();
            assert!(timeline.between(from, until).eq(expected.iter().copied()));
            let mut sums = vec![0; 7];
            timeline.add_totals(from, until, &mut sums);
            for (owner, &sum) in sums.iter().enumerate() {
                let of_owner = expected.iter().filter(|stretch| stretch.2 as usize == owner);
                assert_eq!(sum, of_owner.map(|stretch| stretch.1 - stretch.0).sum::<u64>());
            }
        }
    }
}
