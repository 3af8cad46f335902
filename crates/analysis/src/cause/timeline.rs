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

    /// When the last stretch starts.
    fn last_start(&self) -> u64 {
        self.base + self.starts.last().map_or(0, |&start| u64::from(start))
    }

    /// Adds up the time of each owner; the last stretch ends at a time.
    fn count(&mut self, end: u64) {
        self.ns = vec![0; self.met.len()];
        for ((&owner, &start), &next) in self.owners.iter().zip(&self.starts).zip(&self.starts[1..])
        {
            self.ns[usize::from(owner)] += u64::from(next - start);
        }
        if let Some(&owner) = self.owners.last() {
            self.ns[usize::from(owner)] += end - self.last_start();
        }
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
    /// Those that are full, and the one that is written.
    pieces: Vec<Piece>,
    piece: Piece,
    /// The number of each owner in the piece that is written.
    numbers: Vec<u16>,
    /// The owner of the last stretch.
    last: Option<u32>,
    /// When it ended, if nobody's time follows. Nobody's stretch is written as soon as it has a length.
    ended: Option<u64>,
}

impl Builder {
    /// Whose the time is from a moment on.
    #[inline(always)]
    pub(super) fn push(&mut self, start: u64, owner: u32) {
        if owner == Owners::NOBODY {
            self.ended = self.ended.or(self.last.map(|_| start));
            return;
        }
        if self.ended.is_some() {
            self.write_gap(start);
        }
        if self.last != Some(owner) {
            self.write(start, owner);
        }
    }

    /// Writes the time of nobody before a moment, if there is any.
    fn write_gap(&mut self, start: u64) {
        if let Some(end) = self.ended.take()
            && end < start
        {
            self.write(end, Owners::NOBODY);
        }
    }

    #[inline(always)]
    fn write(&mut self, start: u64, owner: u32) {
        let known = self.numbers.get(owner as usize).copied().unwrap_or(UNMET);
        let since = start - self.piece.base;
        self.last = Some(owner);
        if known == UNMET || self.piece.starts.len() == MOST || since > u64::from(u32::MAX) {
            self.write_first(start, owner);
        } else {
            self.piece.starts.push(since as u32);
            self.piece.owners.push(known);
        }
    }

    /// Writes a stretch that may be the first one of its piece, or of its owner in that.
    #[cold]
    fn write_first(&mut self, start: u64, owner: u32) {
        let length = self.piece.starts.len();
        if length == MOST || length > 0 && start - self.piece.base > u64::from(u32::MAX) {
            self.end_piece(start);
        }
        if self.piece.starts.is_empty() {
            self.piece.base = start;
        }
        if self.numbers.len() <= owner as usize {
            self.numbers.resize(owner as usize + 1, UNMET);
        }
        if self.numbers[owner as usize] == UNMET {
            self.numbers[owner as usize] = self.piece.met.len() as u16;
            self.piece.met.push(owner);
        }
        self.piece.starts.push((start - self.piece.base) as u32);
        self.piece.owners.push(self.numbers[owner as usize]);
    }

    /// Puts the piece that is written to the others; its last stretch ends at a time.
    fn end_piece(&mut self, end: u64) {
        let room = self.piece.starts.len();
        let next = Piece {
            starts: Vec::with_capacity(room),
            owners: Vec::with_capacity(room),
            ..Piece::default()
        };
        let mut full = std::mem::replace(&mut self.piece, next);
        full.count(end);
        full.starts.shrink_to_fit();
        full.owners.shrink_to_fit();
        self.pieces.push(full);
        self.numbers.fill(UNMET);
    }

    /// Adds what the core did later. `numbers` has the number that each owner there has here.
    pub(super) fn append(&mut self, later: Self, numbers: &[u32]) {
        let mut pieces = later.pieces.into_iter().chain([later.piece]);
        // The first stretch may go on with the last one here, and the others may have room in its piece.
        if let Some(first) = pieces.next() {
            for (place, &start) in first.starts.iter().enumerate() {
                self.push(first.base + u64::from(start), numbers[first.owner(place) as usize]);
            }
        }
        for mut piece in pieces {
            self.write_ended();
            self.end_piece(piece.base);
            piece.renumber(numbers);
            self.last = Some(piece.owner(piece.starts.len() - 1));
            self.piece = piece;
        }
        self.number_last();
        self.ended = later.ended.or(self.ended);
    }

    /// Finds the numbers of the owners in the piece that is written again.
    fn number_last(&mut self) {
        let most = self.piece.met.iter().max().map_or(0, |&owner| owner as usize + 1);
        self.numbers.resize(self.numbers.len().max(most), UNMET);
        self.numbers.fill(UNMET);
        for (&owner, number) in self.piece.met.iter().zip(0..) {
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
        if !self.piece.starts.is_empty() {
            // The last stretch has no end, and no length that counts.
            self.end_piece(self.piece.last_start());
        }
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
