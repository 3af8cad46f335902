//! What held the cores that tell others of packets, laid under the time in which they told nobody.
//!
//! A packet that was handed over waits until its core is told of it. Until then its core idles, or has
//! other work ([`UNTOLD`]). If the core that was to tell it was away meanwhile, that made it wait. Once a
//! core has been told, other owners have its time: the interrupt that is under way, the thread that
//! wakes up. An interrupt counts as sent when what it shall call was queued, a moment before that. So what
//! held the sender has this time, too, if it ended before the interrupt was entered.

use super::timeline::{Builder, Timeline};
use super::{Cores, Owner, Owners, SENDER, SENDER_CPU, UNTOLD};
use crate::trace::kind;

impl Cores {
    /// These cores with those of `senders` below those that they tell of packets. Where several were held,
    /// the first one has the time.
    #[must_use]
    pub fn with_senders(&self, senders: &Self, told_of_packets: &[u16]) -> Self {
        let mut owners = self.owners.clone();
        let mut timelines = self.timelines.clone();
        // What is laid last stands on top.
        for (&cpu, sender) in senders.timelines.iter().rev() {
            let numbers: Vec<u32> = senders
                .owners
                .list()
                .iter()
                .map(|owner| match owner.kind {
                    0 | kind::IDLE => Owners::NOBODY,
                    _ => {
                        let more = owner.more | SENDER | u64::from(cpu) << SENDER_CPU;
                        owners.number(Owner { more, ..*owner })
                    }
                })
                .collect();
            let untold: Vec<Told> = owners.list().iter().map(told).collect();
            for cpu in told_of_packets {
                if let Some(timeline) = timelines.get_mut(cpu) {
                    *timeline = laid_under(timeline, sender, &numbers, &untold);
                }
            }
        }
        Self { timelines, owners }
    }
}

/// Whether somebody has told a core of packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    No,
    /// What the interrupt shall call was queued.
    Queued,
    Yes,
}

/// The same while it has this owner; a sender may already have the time.
fn told(owner: &Owner) -> Told {
    match owner.kind {
        _ if owner.more & SENDER != 0 => Told::No,
        UNTOLD | kind::IDLE => Told::No,
        kind::IPI_DELAY => Told::Queued,
        _ => Told::Yes,
    }
}

fn laid_under(core: &Timeline, sender: &Timeline, numbers: &[u32], untold: &[Told]) -> Timeline {
    let mut merged = Builder::default();
    for (from, until, owner) in core.between(0, u64::MAX) {
        let told = match untold[owner as usize] {
            Told::Yes => {
                merged.push(from, owner);
                continue;
            }
            told => told,
        };
        for (start, end, held) in sender.between(from, until) {
            let held = numbers[held as usize];
            let before = told == Told::No || end < until;
            merged.push(start, if held != Owners::NOBODY && before { held } else { owner });
        }
    }
    merged.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const IDLE: Owner = Owner { kind: kind::IDLE, id: 1, more: 0 };
    const TIMER: Owner = Owner { kind: kind::VECTOR, id: 1, more: 0 };
    const OWNERS: [Owner; 5] = [
        Owner { kind: super::super::UNSEEN, id: 0, more: 0 },
        IDLE,
        Owner { kind: UNTOLD, id: 0, more: 0 },
        Owner { kind: kind::TASK, id: 7, more: 0 },
        TIMER,
    ];

    /// A core that has one owner after the other.
    fn cores(cpu: u16, lasting: &[(u64, usize)]) -> Cores {
        let (mut owners, mut builder) = (Owners::default(), Builder::default());
        let mut at = 100;
        for &(dur, which) in lasting {
            builder.push(at, owners.number(OWNERS[which]));
            at += dur;
        }
        builder.push(at, Owners::NOBODY);
        Cores { timelines: BTreeMap::from([(cpu, builder.finish())]), owners }
    }

    fn owners_of(cores: &Cores) -> Vec<Owner> {
        (90..500).map(|time| owner_at(cores, time)).collect()
    }

    fn owner_at(cores: &Cores, time: u64) -> Owner {
        let timeline = cores.timelines.values().next().expect("a core");
        let (_, _, number) = timeline.between(time, time + 1).next().expect("one");
        cores.owners.list()[number as usize]
    }

    proptest! {
        /// Nanosecond by nanosecond: what held the sender has the time in which nobody had told.
        #[test]
        fn a_sender_has_what_nobody_was_told(
            above in proptest::collection::vec((1..20u64, 0..5usize), 1..20),
            below in proptest::collection::vec((1..20u64, 0..5usize), 1..20),
        ) {
            let (core, sender) = (cores(1, &above), cores(5, &below));
            prop_assert_eq!(owners_of(&core.with_senders(&sender, &[2])), owners_of(&core));
            let merged = core.with_senders(&sender, &[1]);
            for time in 90..500 {
                let (mine, held) = (owner_at(&core, time), owner_at(&sender, time));
                let waits = [UNTOLD, kind::IDLE].contains(&mine.kind);
                let away = ![0, kind::IDLE].contains(&held.kind);
                let more = held.more | SENDER | 5 << SENDER_CPU;
                let expected = if waits && away { Owner { more, ..held } } else { mine };
                prop_assert_eq!(owner_at(&merged, time), expected, "at {}", time);
            }
        }
    }

    #[test]
    fn what_ends_before_an_interrupt_is_entered_kept_it_from_being_sent() {
        let delay = Owner { kind: kind::IPI_DELAY, id: 0, more: 0 };
        let mut core = cores(1, &[]);
        let number = core.owners.number(delay);
        let mut builder = Builder::default();
        builder.push(100, number);
        builder.push(200, Owners::NOBODY);
        core.timelines.insert(1, builder.finish());
        // From 110 to 150, and from 190 on.
        let merged = core.with_senders(&cores(5, &[(10, 1), (40, 4), (40, 1), (20, 4)]), &[1]);
        let kinds = [105, 120, 160, 195].map(|time| owner_at(&merged, time).kind);
        let here = kind::IPI_DELAY;
        assert_eq!(kinds, [here, kind::VECTOR, here, here]);
    }

    #[test]
    fn of_two_senders_the_first_has_the_time() {
        let core = cores(1, &[(100, 1)]);
        let mut senders = cores(2, &[(20, 3)]);
        let other = cores(3, &[(50, 4)]);
        let number = senders.owners.number(TIMER);
        let mut builder = Builder::default();
        for (from, _, owner) in other.timelines[&3].between(100, u64::MAX) {
            builder.push(from, if owner == 0 { 0 } else { number });
        }
        senders.timelines.insert(3, builder.finish());
        let merged = core.with_senders(&senders, &[1]);
        let whose = |time| (owner_at(&merged, time).kind, owner_at(&merged, time).more & !SENDER);
        assert_eq!(whose(110), (kind::TASK, 2 << SENDER_CPU));
        assert_eq!(whose(130), (kind::VECTOR, 3 << SENDER_CPU));
        assert_eq!(whose(170), (kind::IDLE, 0));
    }
}
