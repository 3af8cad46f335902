//! The records of one core as its stretches: at once where they lie in each other, by a sweep elsewhere.

use super::Owners;
use super::layout::{Arranger, Server};
use super::nested::{Nest, Rank};
use super::sweep::Sweep;
use super::timeline::Builder;
use crate::capture::CaptureError;
use crate::trace::{Ahead, Record};

/// Lays out the records of one core, which come block by block in the order of the file.
pub(super) struct Lane {
    arranger: Arranger,
    sweep: Sweep,
    nest: Nest,
    /// For each record of the block, the earliest time that one behind it tells of.
    behind: Vec<u64>,
    untold: Option<u32>,
}

impl Lane {
    /// As [`Arranger::new`].
    pub(super) fn new(ended_ns: u64, from_ns: Option<u64>, server: Server) -> Self {
        let mut arranger = Arranger::new(ended_ns, from_ns, server);
        let untold = arranger.untold();
        let sweep = Sweep::new(untold);
        Self { arranger, sweep, nest: Nest::default(), behind: Vec::new(), untold }
    }

    /// Takes the records of a block; `ahead` is what comes behind it.
    pub(super) fn take(&mut self, records: &[Record], ahead: &Ahead) -> Result<(), CaptureError> {
        let mut behind = std::mem::take(&mut self.behind);
        behind.clear();
        let mut earliest_ns = ahead.earliest_ns;
        behind.extend(records.iter().rev().map(|record| {
            let behind = earliest_ns;
            earliest_ns = earliest_ns.min(record.since_ns());
            behind
        }));
        // Records are a group when nothing before them ends, and nothing behind them begins, during it.
        let (mut first, mut latest_ns) = (0, 0);
        let mut fits = earliest_ns >= self.arranger.latest_ns();
        for (place, (record, &behind_ns)) in records.iter().zip(behind.iter().rev()).enumerate() {
            latest_ns = latest_ns.max(record.end_ns());
            let closes = latest_ns <= behind_ns;
            if fits {
                match self.arranger.plain(record)? {
                    Some((rank, owner)) if closes && first == place && rank.has_core() => {
                        self.lay(record, rank, owner);
                        (first, latest_ns) = (place + 1, 0);
                        continue;
                    }
                    Some((rank, owner)) => fits = self.nest.take(record, rank, owner),
                    None => fits = false,
                }
            }
            if !closes {
                continue;
            }
            if fits && self.nest.is_whole() {
                self.lay_nest(&records[first..=place], latest_ns);
            } else {
                for place in first..=place {
                    self.arranger.add(records, place, ahead)?;
                }
            }
            self.nest.clear();
            (first, latest_ns) = (place + 1, 0);
            fits = behind_ns >= self.arranger.latest_ns();
        }
        self.nest.clear();
        self.behind = behind;
        for place in first..records.len() {
            self.arranger.add(records, place, ahead)?;
        }
        self.arranger.settle(ahead.earliest_ns, |intervals| self.sweep.take(intervals));
        Ok(())
    }

    /// Lays out a record that stands alone.
    #[inline]
    fn lay(&mut self, record: &Record, rank: Rank, owner: u32) {
        let end = record.end_ns();
        self.arranger.settle_all(|intervals| self.sweep.take(intervals));
        if record.start_ns < end {
            let untold = self.untold.filter(|_| rank.is_task());
            self.sweep.lay(record.start_ns, end, untold.unwrap_or(owner));
        }
        self.arranger.pass(record.start_ns, end);
    }

    /// Lays out a group of records that lie in each other.
    #[inline]
    fn lay_nest(&mut self, group: &[Record], latest_ns: u64) {
        self.arranger.settle_all(|intervals| self.sweep.take(intervals));
        for (start, end, owner) in self.nest.stretches(self.untold) {
            self.sweep.lay(start, end, owner);
        }
        self.arranger.pass(group[0].start_ns, latest_ns);
        self.arranger.pass_functions(group);
    }

    /// What the core did, and who it met.
    pub(super) fn finish(mut self) -> (Builder, Owners) {
        self.arranger.settle_all(|intervals| self.sweep.take(intervals));
        (self.sweep.finish(), self.arranger.into_owners())
    }
}

#[cfg(test)]
mod tests {
    use super::super::egress::Leaving;
    use super::super::sweep::tests::{followed, record};
    use super::*;
    use crate::stamps::{Clock, Header};
    use crate::trace::kind;
    use proptest::prelude::*;
    use std::io::Write;

    const ENDED: u64 = 200_000;
    const VECTOR: u32 = 1;

    /// What serves: threads alone, or beside a softirq of another core; a softirq, or both.
    fn server(which: u8, stamps: &std::path::Path) -> Server {
        match which {
            0 => Server::Threads { foreign: None },
            1 => Server::Threads { foreign: Some(VECTOR) },
            alone => Server::Softirq {
                vector: VECTOR,
                leaving: vec![Leaving::open(stamps, None, 0).expect("stamps")],
                alone: alone == 2,
            },
        }
    }

    /// Packets leave at the end of every other softirq.
    fn stamps(records: &[Record]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let header = Header { clock: Clock::Monotonic, counts: None, link: "egress".into() };
        let softirqs = records.iter().filter(|record| record.kind == kind::SOFTIRQ);
        let mut times: Vec<u64> = softirqs.step_by(2).map(Record::end_ns).collect();
        times.sort_unstable();
        let stamps = times.into_iter().map(|time| [time.to_le_bytes(), [0; 8]].concat());
        let bytes = [header.encode().to_vec(), stamps.flatten().collect()].concat();
        file.write_all(&bytes).expect("room");
        file
    }

    /// What the records behind some are like.
    fn ahead(records: &[Record]) -> Ahead {
        let mut ahead = Ahead::NONE;
        records.iter().for_each(|record| ahead.add(record));
        ahead
    }

    type Found = (Vec<(u64, u64, u32)>, Vec<super::super::Owner>);

    fn found((builder, owners): (Builder, Owners)) -> Found {
        (builder.finish().between(0, 1 << 40).collect(), owners.list().to_vec())
    }

    /// The stretches, by a sweep alone.
    fn swept(records: &[Record], server: Server) -> Found {
        let mut arranger = Arranger::new(ENDED, None, server);
        let mut sweep = Sweep::new(arranger.untold());
        for place in 0..records.len() {
            arranger.add(records, place, &Ahead::NONE).expect("stamps");
        }
        arranger.settle_all(|intervals| sweep.take(intervals));
        found((sweep.finish(), arranger.into_owners()))
    }

    /// The stretches by blocks of so many records.
    fn laid(records: &[Record], server: Server, block: usize) -> Found {
        let mut lane = Lane::new(ENDED, None, server);
        for from in (0..records.len()).step_by(block) {
            let until = records.len().min(from + block);
            lane.take(&records[from..until], &ahead(&records[until..])).expect("stamps");
        }
        found(lane.finish())
    }

    /// Records that lie in each other, mostly: each is begun within the one before, or after it.
    fn nested() -> impl Strategy<Value = Vec<Record>> {
        let kinds = prop_oneof![
            8 => Just(kind::TASK), 4 => Just(kind::IDLE), 4 => Just(kind::VECTOR),
            4 => Just(kind::SOFTIRQ), 2 => Just(kind::IRQ), 2 => Just(kind::WORK),
            3 => Just(kind::IPI_FUNCTION), 2 => Just(kind::HRTIMER), 2 => Just(kind::WAKEUP),
            1 => Just(kind::RUNNABLE), 1 => Just(kind::IPI_DELAY), 1 => Just(kind::NMI),
            1 => Just(18), 3 => Just(kind::TLB_FLUSH), 1 => Just(kind::FOREIGN_RX),
        ];
        let gaps = prop_oneof![9 => 0..6u64, 1 => 2500..3000u64];
        let one = (gaps, 0..30u64, kinds, 0..3u32, any::<bool>(), 0..40u32);
        proptest::collection::vec(one, 1..40).prop_map(|ones| {
            let mut open: Vec<Record> = Vec::new();
            let mut at = 5_000;
            let mut done = Vec::new();
            for (gap, dur, kind, id, inner, rare) in ones {
                at += gap;
                while let Some(last) = open.last().copied()
                    && (!inner || last.end_ns() <= at)
                {
                    at = at.max(last.end_ns());
                    done.extend(open.pop());
                }
                let most = open.last().map_or(u64::MAX, |last| last.end_ns() - at);
                let aux = match rare {
                    // Of a softirq, when it was raised.
                    0..9 if kind == kind::SOFTIRQ => 2_001 + dur,
                    9 => crate::trace::THROTTLED,
                    _ => 0,
                };
                // A flush of the TLB may be a moment.
                let dur = if kind == kind::TLB_FLUSH && id > 0 { 0 } else { dur };
                let steal_ns = u32::from(rare == 10);
                let dur_ns = dur.min(most) as u32;
                open.push(Record {
                    start_ns: at,
                    dur_ns,
                    kind,
                    id,
                    aux,
                    steal_ns,
                    ..Record::default()
                });
            }
            done.extend(open.into_iter().rev());
            done
        })
    }

    fn agrees(records: &[Record], which: u8, block: usize) -> Result<(), TestCaseError> {
        let stamps = stamps(records);
        let expected = swept(records, server(which, stamps.path()));
        prop_assert_eq!(laid(records, server(which, stamps.path()), block), expected);
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn nested_records_are_laid_out_as_a_sweep_does(
            records in nested(), which in 0..4u8, block in 1..50usize,
        ) {
            agrees(&records, which, block)?;
        }

        #[test]
        fn records_that_follow_each_other_are_laid_out_as_a_sweep_does(
            records in followed(), which in 0..4u8, block in 1..50usize,
        ) {
            agrees(&records, which, block)?;
        }

        #[test]
        fn any_records_are_laid_out_as_a_sweep_does(
            mut records in proptest::collection::vec(record(), 1..40),
            which in 0..4u8,
            block in 1..50usize,
            sorted in any::<bool>(),
        ) {
            records.iter_mut().for_each(|record| record.cpu = 0);
            if sorted {
                records.sort_by_key(Record::end_ns);
            }
            agrees(&records, which, block)?;
        }
    }

    #[test]
    fn most_nested_records_need_no_sweep() {
        let record = |start_ns: u64, dur_ns: u32, kind: u8| Record {
            start_ns,
            dur_ns,
            kind,
            ..Record::default()
        };
        let records = [
            record(10, 20, kind::IDLE),
            record(25, 5, kind::WAKEUP),
            record(35, 3, kind::WORK),
            record(34, 6, kind::VECTOR),
            record(33, 9, kind::SOFTIRQ),
            record(30, 30, kind::TASK),
        ];
        let mut lane = Lane::new(ENDED, None, Server::Threads { foreign: None });
        lane.take(&records, &Ahead::NONE).expect("no stamps");
        assert_eq!(lane.arranger.latest_ns(), 0);
        let starts: Vec<u64> = found(lane.finish()).0.iter().map(|stretch| stretch.0).collect();
        assert_eq!(starts, [0, 10, 25, 30, 33, 34, 35, 38, 40, 42, 60]);
    }
}
