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

    fn renumber(&mut self, numbers: &[u32]) {
        for owner in &mut self.met {
            *owner = numbers[*owner as usize];
        }
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
        self.pieces.iter_mut().for_each(|piece| piece.renumber(numbers));
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
    /// When it ended, if nobody's time follows. Nobody's stretch is written as soon as it has a length.
    ended: Option<u64>,
}

impl Builder {
    /// Whose the time is from a moment on.
    #[inline]
    pub(super) fn push(&mut self, start: u64, owner: u32) {
        if owner == Owners::NOBODY {
            self.ended = self.ended.or(self.last.map(|_| start));
            return;
        }
        if let Some(end) = self.ended.take()
            && end < start
        {
            self.write(end, Owners::NOBODY);
        }
        if self.last.is_none_or(|(_, last, _)| last != owner) {
            self.write(start, owner);
        }
    }

    #[inline]
    fn write(&mut self, start: u64, owner: u32) {
        self.close(start);
        let fits =
            |piece: &Piece| piece.starts.len() < MOST && start - piece.base <= u64::from(u32::MAX);
        if !self.pieces.last().is_some_and(fits) {
            let room = self.pieces.last().map_or(0, |piece| piece.starts.len());
            self.add(Piece {
                base: start,
                starts: Vec::with_capacity(room),
                owners: Vec::with_capacity(room),
                ..Piece::default()
            });
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

    /// Counts the last stretch, which ends at a time.
    #[inline]
    fn close(&mut self, end: u64) {
        if let (Some((from, _, number)), Some(piece)) = (self.last, self.pieces.last_mut()) {
            piece.ns[usize::from(number)] += end - from;
        }
    }

    /// Adds a piece behind all others.
    fn add(&mut self, piece: Piece) {
        if let Some(last) = self.pieces.last_mut() {
            self.numbers.fill(UNMET);
            last.starts.shrink_to_fit();
            last.owners.shrink_to_fit();
        }
        self.pieces.push(piece);
    }

    /// Adds what the core did later. `numbers` has the number that each owner there has here.
    pub(super) fn append(&mut self, later: Self, numbers: &[u32]) {
        let mut pieces = later.pieces.into_iter();
        // The first stretch may go on with the last one here, and the others may have room in its piece.
        if let Some(first) = pieces.next() {
            for (place, &start) in first.starts.iter().enumerate() {
                self.push(first.base + u64::from(start), numbers[first.owner(place) as usize]);
            }
        }
        for (place, mut piece) in pieces.enumerate() {
            if place == 0 {
                self.write_ended();
                self.close(piece.base); // the ends of the others are counted
            }
            piece.renumber(numbers);
            let last = piece.starts.len() - 1;
            let start = piece.base + u64::from(piece.starts[last]);
            self.last = Some((start, piece.owner(last), piece.owners[last]));
            self.add(piece);
        }
        self.number_last();
        self.ended = later.ended.or(self.ended);
    }

    /// Finds the numbers of the owners in the last piece again.
    fn number_last(&mut self) {
        let Some(piece) = self.pieces.last() else { return };
        let most = piece.met.iter().max().map_or(0, |&owner| owner as usize + 1);
        self.numbers.resize(self.numbers.len().max(most), UNMET);
        for (&owner, number) in piece.met.iter().zip(0..) {
            self.numbers[owner as usize] = number;
        }
    }

    fn write_ended(&mut self) {
        if let Some(end) = self.ended.take() {
            self.write(end, Owners::NOBODY);
        }
    }

    pub(super) fn finish(mut self) -> Timeline {
        self.write_ended();
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
        let mut whole = Builder::default();
        let mut builder = Builder::default();
        let mut list = Vec::new();
        let mut at = 1_000;
        for place in 0..400_000 {
            if place % 100_003 == 77 {
                // What comes later is added with other numbers; in between is nobody, or is not.
                builder.push(at, Owners::NOBODY);
                whole.append(std::mem::take(&mut builder), &[0, 6, 5, 4, 3, 2, 1]);
                if place > 200_000 {
                    list.push((at, Owners::NOBODY));
                    at += 77;
                }
            }
            let owner = 1 + place % 2 + 2 * (random.next_u64() % 3) as u32;
            builder.push(at, 7 - owner);
            list.push((at, owner));
            // Now and then four bytes do not tell the distance.
            at +=
                1 + random.next_u64() % if random.next_u64() % 5_000 == 0 { 1 << 33 } else { 900 };
        }
        builder.push(at, Owners::NOBODY);
        list.push((at, Owners::NOBODY));
        whole.append(builder, &[0, 6, 5, 4, 3, 2, 1]);
        let timeline = whole.finish();
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
