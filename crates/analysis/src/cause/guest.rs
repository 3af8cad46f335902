//! A guest's cores, laid under those of its host.
//!
//! A virtual core is a thread of the host. While that thread has a core of the host, what the guest
//! did there has the time, by the guest's own trace; while it has none, the host's owner keeps it.
//! Two clocks meet here: [`Clock`] gives the host's time for a time of the guest.

use std::collections::BTreeMap;

use super::timeline::{Builder, Timeline};
use super::{Cores, GUEST, Owner, Owners};

/// The host's clock, said by the guest's, as straight lines between some moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock(Vec<(u64, u64)>);

impl Clock {
    /// From moments as the guest and the host have them; both sides ascend, and there are two at
    /// least. None otherwise.
    pub fn new(moments: Vec<(u64, u64)>) -> Option<Self> {
        let ascend = moments.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
        (moments.len() >= 2 && ascend).then_some(Self(moments))
    }

    /// The host's time for a time of the guest. The first and the last line go on beyond their ends.
    pub fn host(&self, guest: u64) -> u64 {
        let moments = &self.0;
        let after = moments.partition_point(|&(at, _)| at <= guest).clamp(1, moments.len() - 1);
        let ((from, ours), (until, theirs)) = (moments[after - 1], moments[after]);
        let since = i128::from(guest) - i128::from(from);
        let run = since * i128::from(theirs - ours) / i128::from(until - from);
        u64::try_from(i128::from(ours) + run).unwrap_or(0)
    }
}

impl Cores {
    /// These cores at the times of another clock, which takes their own for a guest's.
    #[must_use]
    pub fn on_clock(&self, clock: &Clock) -> Self {
        let numbers: Vec<u32> = (0..self.owners.list().len() as u32).collect();
        let timelines = self.timelines.iter();
        let moved = timelines.map(|(&cpu, timeline)| (cpu, on_host(timeline, clock, &numbers)));
        Self { timelines: moved.collect(), owners: self.owners.clone() }
    }

    /// These cores with those of a guest below them. `seats` has for each owner by its number the
    /// core of the guest that it is, if it is one. Owners of the guest have the bit [`GUEST`].
    ///
    /// # Panics
    /// If an owner has no place in `seats`.
    #[must_use]
    pub fn with_guest(&self, guest: &Self, seats: &[Option<u16>], clock: &Clock) -> Self {
        assert_eq!(seats.len(), self.owners.list().len(), "every owner needs a seat");
        let mut owners = self.owners.clone();
        let numbers: Vec<u32> = guest
            .owners
            .list()
            .iter()
            .enumerate()
            .map(|(number, &owner)| match number as u32 {
                Owners::NOBODY => Owners::NOBODY,
                _ => owners.number(Owner { more: owner.more | GUEST, ..owner }),
            })
            .collect();
        let below: BTreeMap<u16, Timeline> = guest
            .timelines
            .iter()
            .map(|(&cpu, timeline)| (cpu, on_host(timeline, clock, &numbers)))
            .collect();
        let timelines = self.timelines.iter().map(|(&cpu, host)| {
            let mut merged = Builder::default();
            for (from, until, owner) in host.between(0, u64::MAX) {
                match seats[owner as usize].and_then(|seat| below.get(&seat)) {
                    Some(below) => below
                        .between(from, until)
                        .for_each(|(start, _, owner)| merged.push(start, owner)),
                    None => merged.push(from, owner),
                }
            }
            (cpu, merged.finish())
        });
        Self { timelines: timelines.collect(), owners }
    }
}

/// What a guest's core did, at the times of the host and with the numbers that its owners have there.
fn on_host(timeline: &Timeline, clock: &Clock, numbers: &[u32]) -> Timeline {
    let mut found = Builder::default();
    // What lies before the first record is nobody's: it has no place on the other clock.
    for (from, _, owner) in timeline.between(0, u64::MAX).skip_while(|stretch| stretch.0 == 0) {
        found.push(clock.host(from), numbers[owner as usize]);
    }
    found.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::kind;
    use proptest::prelude::*;

    const VCPU: u32 = 77;

    /// A core on which tasks follow each other, from a time on: how long each lasts, and which.
    fn cores(cpu: u16, from: u64, lasting: &[(u32, u32)]) -> Cores {
        let (mut owners, mut builder) = (Owners::default(), Builder::default());
        let mut at = from;
        for &(dur, id) in lasting {
            builder.push(at, owners.number(Owner { kind: kind::TASK, id: id.into(), more: 0 }));
            at += u64::from(dur);
        }
        builder.push(at, Owners::NOBODY);
        Cores { timelines: BTreeMap::from([(cpu, builder.finish())]), owners }
    }

    fn seats(cores: &Cores) -> Vec<Option<u16>> {
        let seat = |owner: &Owner| (owner.kind == kind::TASK && owner.id == 77).then_some(1);
        cores.owners.list().iter().map(seat).collect()
    }

    /// Whose the time of a core is at a time: the guest's or not, and which.
    fn owner_at(cores: &Cores, cpu: u16, time: u64) -> (bool, u64) {
        let (_, _, number) = cores.timelines[&cpu].between(time, time + 1).next().expect("one");
        let owner = cores.owners.list()[number as usize];
        (owner.more & GUEST != 0, owner.id)
    }

    #[test]
    fn times_lie_on_lines_between_the_moments() {
        let clock = Clock::new(vec![(100, 1000), (200, 1100), (300, 1300)]).expect("it ascends");
        let times = [0, 100, 150, 200, 250, 400].map(|time| clock.host(time));
        assert_eq!(times, [900, 1000, 1050, 1100, 1200, 1500]);
        for wrong in [vec![], vec![(1, 1)], vec![(1, 5), (2, 5)], vec![(2, 5), (2, 6)]] {
            assert_eq!(Clock::new(wrong), None);
        }
    }

    #[test]
    fn cores_are_shown_by_another_clock() {
        let here = cores(3, 1000, &[(10, 5), (20, VCPU), (10, 5)]);
        let clock = Clock::new(vec![(1000, 5000), (2000, 7000)]).expect("it ascends");
        let there = here.on_clock(&clock);
        for time in 4900..5200 {
            let mine = if time < 5000 { 0 } else { 1000 + (time - 5000) / 2 };
            assert_eq!(owner_at(&there, 3, time), owner_at(&here, 3, mine), "at {time}");
        }
    }

    #[test]
    fn what_is_no_core_of_the_guest_stays_the_hosts() {
        let host = cores(3, 1000, &[(10, 5), (20, VCPU), (10, 5)]);
        let guest = cores(1, 1, &[(100, 5)]);
        let clock = Clock::new(vec![(0, 900), (1000, 1900)]).expect("it ascends");
        let merged = host.with_guest(&guest, &seats(&host), &clock);
        // The guest's task of that number is another one. Its trace ends at 1000 of the host's clock.
        assert_eq!(owner_at(&merged, 3, 1005), (false, 5));
        assert_eq!(owner_at(&merged, 3, 1035), (false, 5));
        assert_eq!(owner_at(&merged, 3, 1015), (false, 0));
    }

    proptest! {
        /// Nanosecond by nanosecond: the guest's owner while its thread has the core.
        #[test]
        fn the_guest_has_what_its_thread_has(
            above in proptest::collection::vec((1..20u32, 75..79u32), 1..20),
            below in proptest::collection::vec((1..20u32, 1..5u32), 1..20),
            offset in 0..100u64,
            slow in 1..4u64,
        ) {
            let host = cores(0, 1000, &above);
            let guest = cores(1, 500, &below);
            // The guest's clock runs slower, by a whole factor.
            let clock = Clock::new(vec![(500, 950 + offset), (600, 950 + offset + 100 * slow)]);
            let clock = clock.expect("it ascends");
            let merged = host.with_guest(&guest, &seats(&host), &clock);
            for time in 900..1500 {
                let there = owner_at(&host, 0, time);
                let guests = time.checked_sub(950 + offset).map(|since| 500 + since / slow);
                let expected = match guests {
                    _ if there.1 != u64::from(VCPU) => there,
                    Some(at) => {
                        let (_, id) = owner_at(&guest, 1, at);
                        (id != 0, id)
                    }
                    None => (false, 0),
                };
                prop_assert_eq!(owner_at(&merged, 0, time), expected, "at {}", time);
            }
        }
    }
}
