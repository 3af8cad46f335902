//! Which packet after the device is which packet before it.
//!
//! The table holds the packets seen before the device. It is filled one window ahead of the
//! packet after the device that is being looked up, so that everything that bears on a packet is
//! known when its turn comes: whether its key repeats before the device, and whether the copy
//! before the device carries a later stamp than the one after it. One pass, and nothing has to be
//! taken back.

use crate::edges::{Covered, Edges, Span};
use crate::equals::{Equals, Fate, Plan, Verdict};
use crate::losses::Losses;
use crate::ring::Ring;
use crate::table::{Entry, Placing, State, Table};

/// Tables have at least this many slots.
const MIN_SLOTS: usize = 1 << 12;
/// And start with at most this many, however many packets are expected.
const MAX_FIRST_SLOTS: usize = 1 << 24;
/// Packets that are prepared together for being looked up.
const BLOCK: usize = 256;

/// A way to find packets before the device again: a matcher. `S` is what is shown of their keys.
pub trait Match<S>: Sized {
    /// An empty matcher.
    fn new(how: &Matching) -> Self;

    /// Gathers packets that share their key with another within the window.
    fn gather_equals(self) -> Self {
        self
    }

    /// Follows what was settled of such packets.
    fn follow_plan(self, _plan: Plan) -> Self {
        self
    }

    /// Adds packets before the device, in time order. `frontier` is the time that the packets after
    /// the device have reached: what is older than one window by then is out of reach and may be
    /// forgotten.
    fn insert_all(&mut self, keys: &[u64], times: &[u64], shown: &[S], frontier: u64);

    /// Finds what packets after the device are, and hands each one's place and verdict to `each`; that
    /// of a packet in which several left more than once.
    fn look_up_all(
        &mut self,
        keys: &[u64],
        times: &[u64],
        shown: &[S],
        each: impl FnMut(usize, Verdict),
    );

    /// Says that the other capture has come to its end: packets are inserted from now on, but none looked
    /// up.
    fn close(&mut self, covered: Covered);

    /// What became of the packets before the device, and those that share their key with others if they
    /// were gathered.
    fn finish(self) -> Finished;
}

/// What became of the packets before the device, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// No copy after the device so far.
    pub lost: u64,
    /// Dropped from the evaluation as their key repeats within the window.
    pub repeated: u64,
    /// Only copies after the device with earlier stamps.
    pub early: u64,
    /// Of the packets in these classes, those stamped before the end of the trimmed time.
    pub trimmed: u64,
}

/// Counts what became of packets, so that nothing has to be gone through at the end: a packet counts
/// as lost when it comes, and as something else when more is known of it.
struct Registrar {
    /// Packets with an earlier stamp than this count as trimmed.
    trim_before: u64,
    /// Packets outside are not counted.
    span: Span,
    /// Whether every packet counts, and none as trimmed.
    whole: bool,
    window: u64,
    covered: Covered,
    fates: Fates,
    losses: Losses,
    edges: Edges,
}

impl Registrar {
    /// Counts packets of which nothing else is known yet, in time order.
    fn enter(&mut self, times: &[u64]) {
        let times = self.span.of(times);
        let trimmed = times.partition_point(|&time| time < self.trim_before);
        self.fates.trimmed += trimmed as u64;
        self.fates.lost += (times.len() - trimmed) as u64;
    }

    /// Counts a packet as what it is now.
    #[inline]
    fn change(&mut self, entry: Entry, state: State) {
        if self.whole || self.span.contains(entry.time) {
            if let Some(count) = self.count(entry.time, entry.state) {
                *count -= 1;
            }
            if let Some(count) = self.count(entry.time, state) {
                *count += 1;
            }
        }
    }

    /// Takes note of a packet that nothing can become of any more.
    #[inline]
    fn retire(&mut self, key: u64, entry: Entry) {
        if entry.state == State::Open && !self.is_outside(entry.time) {
            self.losses.push(entry.time, key);
        }
    }

    /// Whether a packet that was lost came when the other capture surely did not run, or does not count.
    #[inline]
    fn is_outside(&mut self, time: u64) -> bool {
        let counts = self.whole || (time >= self.trim_before && self.span.contains(time));
        !counts || self.edges.add(time, self.covered, self.window)
    }

    /// The count that a packet belongs to.
    #[inline]
    fn count(&mut self, time: u64, state: State) -> Option<&mut u64> {
        match state {
            State::Matched => None,
            _ if !self.whole && time < self.trim_before => Some(&mut self.fates.trimmed),
            State::Open => Some(&mut self.fates.lost),
            State::Repeated => Some(&mut self.fates.repeated),
            State::NonCausal => Some(&mut self.fates.early),
        }
    }
}

/// Where the packets before the device wait.
enum Store {
    /// As long as the keys are ids that count up.
    Ring(Ring),
    /// Any keys.
    Table(Table),
}

/// The packets before the device that can still be matched.
pub struct Matcher {
    store: Store,
    window: u64,
    registrar: Registrar,
    equals: Repeats,
}

/// What is done with packets that share their key with another.
#[derive(Default)]
enum Repeats {
    /// They are left out.
    #[default]
    Leave,
    /// They are left out, and gathered.
    Gather(Equals),
    /// It is known what became of them.
    Follow(Plan),
}

/// How packets are matched.
#[derive(Clone, Copy, Debug)]
pub struct Matching {
    /// Whether keys are ids that may well count up, or hashes.
    pub ids: bool,
    /// A packet must leave the device within this time, in nanoseconds.
    pub window: u64,
    /// Of the packets before the device that end without a match, those with an earlier stamp count as
    /// trimmed.
    pub trim_before: u64,
    /// Of them, those within are counted.
    pub span: Span,
    /// There is room for so many within two windows, and for more as they come.
    pub expected: usize,
    /// Of so many lost packets it is kept which they are.
    pub losses: usize,
    /// What the other capture covers, as far as that is known.
    pub covered: Covered,
}

impl<S> Match<S> for Matcher {
    fn new(how: &Matching) -> Self {
        let Matching { ids, window, trim_before, span, expected, losses, covered } = *how;
        let store = if ids {
            let slots = expected.next_power_of_two();
            Store::Ring(Ring::new(slots.clamp(MIN_SLOTS, MAX_FIRST_SLOTS)))
        } else {
            Store::Table(Table::new(slots_for(expected).min(MAX_FIRST_SLOTS), Placing::Spread))
        };
        let whole = span == Span::ALL && trim_before == 0;
        let (fates, losses) = (Fates::default(), Losses::new(losses));
        let edges = Edges::default();
        let registrar =
            Registrar { trim_before, span, whole, window, covered, fates, losses, edges };
        Self { store, window, registrar, equals: Repeats::Leave }
    }

    fn gather_equals(mut self) -> Self {
        self.equals = Repeats::Gather(Equals::default());
        self
    }

    fn follow_plan(mut self, plan: Plan) -> Self {
        self.equals = Repeats::Follow(plan);
        self
    }

    fn insert_all(&mut self, keys: &[u64], times: &[u64], _: &[S], frontier: u64) {
        self.registrar.enter(times);
        self.insert_entered(keys, times, frontier);
    }

    #[inline]
    fn look_up_all(
        &mut self,
        keys: &[u64],
        times: &[u64],
        _: &[S],
        mut each: impl FnMut(usize, Verdict),
    ) {
        if let Self { store: Store::Ring(ring), registrar, window, .. } = self {
            for (i, (key, &time)) in keys.iter().zip(times).enumerate() {
                each(i, look_up_id(ring, registrar, *key, time, *window));
            }
            return;
        }
        for (block, (keys, times)) in keys.chunks(BLOCK).zip(times.chunks(BLOCK)).enumerate() {
            self.warm_up(keys);
            let follows = matches!(self.equals, Repeats::Follow(_));
            for (i, (&key, &time)) in keys.iter().zip(times).enumerate() {
                let verdict = match follows {
                    true => self.look_up_by_plan(key, time),
                    false => self.look_up(key, time),
                };
                each(block * BLOCK + i, verdict);
            }
        }
    }

    fn close(&mut self, covered: Covered) {
        self.registrar.covered = covered;
    }

    fn finish(self) -> Finished {
        let Self { store, mut registrar, equals, .. } = self;
        match &store {
            Store::Ring(ring) => {
                ring.entries().for_each(|(id, entry)| registrar.retire(id, entry));
            }
            Store::Table(table) => {
                table.entries().for_each(|(key, entry)| registrar.retire(key, entry));
            }
        }
        let Registrar { fates, losses, edges, .. } = registrar;
        let equals = match equals {
            Repeats::Gather(equals) if !equals.is_empty() => Some(equals),
            _ => None,
        };
        Finished { fates, losses, edges: edges.sorted(), equals, merged: 0 }
    }
}

impl Matcher {
    fn insert_entered(&mut self, keys: &[u64], times: &[u64], frontier: u64) {
        let Self { store: Store::Ring(ring), window, registrar, .. } = self else {
            for (keys, times) in keys.chunks(BLOCK).zip(times.chunks(BLOCK)) {
                self.warm_up(keys);
                if let Repeats::Follow(_) = self.equals {
                    self.insert_by_plan(keys, times, frontier);
                    continue;
                }
                keys.iter().zip(times).for_each(|(&key, &time)| self.insert(key, time, frontier));
            }
            return;
        };
        for (i, (key, &time)) in keys.iter().zip(times).enumerate() {
            let retire = |id, entry| {
                let spent = !reachable(entry, *window, frontier.min(time));
                if spent {
                    registrar.retire(id, entry);
                }
                spent
            };
            if ring.insert(*key, time, retire).is_err() {
                self.give_up_ring();
                return self.insert_entered(&keys[i..], &times[i..], frontier);
            }
        }
    }

    /// Goes on with a table.
    #[cold]
    fn give_up_ring(&mut self) {
        if let Store::Ring(ring) = &self.store {
            let slots = slots_for(ring.entries().count());
            let mut table = Table::new(slots, Placing::InOrder);
            for (id, entry) in ring.entries() {
                if let (Some(at), _) = table.search(id, |_, _| (None, true)) {
                    table.fill(at, id, entry);
                }
            }
            self.store = Store::Table(table);
        }
    }

    /// Adds packets whose fate is settled, or not.
    #[cold]
    #[inline(never)]
    fn insert_by_plan(&mut self, keys: &[u64], times: &[u64], frontier: u64) {
        for (&key, &time) in keys.iter().zip(times) {
            if !self.insert_planned(key, time) {
                self.insert(key, time, frontier);
            }
        }
    }

    /// What a packet after the device was settled to be, or else what the table says.
    #[cold]
    #[inline(never)]
    fn look_up_by_plan(&mut self, key: u64, time: u64) -> Verdict {
        let planned = match &mut self.equals {
            Repeats::Follow(plan) => plan.after(key, time),
            _ => None,
        };
        planned.unwrap_or_else(|| self.look_up(key, time))
    }

    /// Counts a packet as what it was settled to be, if it was.
    fn insert_planned(&mut self, key: u64, time: u64) -> bool {
        let Self { equals: Repeats::Follow(plan), registrar, .. } = self else { return false };
        let open = Entry { time, state: State::Open };
        match plan.before(key, time) {
            None => return false,
            Some(Fate::Matched) => registrar.change(open, State::Matched),
            Some(Fate::Unknown) => registrar.change(open, State::Repeated),
            Some(Fate::Lost) => registrar.retire(key, open),
            // As what it was entered.
            Some(Fate::LostAmong) => {
                registrar.is_outside(time);
            }
        }
        true
    }

    /// Adds a packet to the table.
    #[inline]
    fn insert(&mut self, key: u64, time: u64, frontier: u64) {
        let Store::Table(table) = &mut self.store else { return };
        // A packet that comes later than the frontier may still repeat a key within the window.
        let frontier = frontier.min(time);
        if table.used() * 4 >= table.slots() * 3 {
            let placing = table.placing();
            self.rebuild(frontier, placing);
        }
        let Self { store: Store::Table(table), registrar, window, equals } = self else { return };
        let window = *window;
        let mut state = State::Open;
        let mut earliest: Option<(usize, Entry)> = None;
        let mut spare: Option<(usize, Entry)> = None;
        let (empty, steps) = table.search(key, |at, other| {
            if time.abs_diff(other.time) >= window {
                if !reachable(other, window, frontier) {
                    spare = Some((at, other));
                }
                return (None, true);
            }
            state = State::Repeated;
            if other.state != state
                && let Repeats::Gather(equals) = equals
            {
                equals.before(key, other.time);
            }
            registrar.change(other, state);
            let repeated = Some((at, Entry { state, ..other }));
            if earliest.is_none_or(|(_, first)| other.time < first.time) {
                spare = earliest.or(spare);
                earliest = repeated;
            } else {
                spare = repeated;
            }
            (Some(state), true)
        });
        registrar.change(Entry { time, state: State::Open }, state);
        let entry = Entry { time, state };
        if state == State::Repeated
            && let Repeats::Gather(equals) = equals
        {
            equals.before(key, time);
        }
        // Entries of one key stay few, so that a key that never changes costs no more than others.
        // Of packets that repeat a key within the window, the first and this one tell the same
        // without those between them: whatever time comes before this packet and after the first
        // has one of the two less than a window before it.
        if let Some((at, other)) = spare {
            registrar.retire(key, other);
            table.replace(at, entry);
        } else if let Some(at) = empty {
            let spent = |other| !reachable(other, window, frontier);
            if let Some((of, other)) = table.put(key, at, entry, spent) {
                registrar.retire(of, other);
            }
        }
        if table.crowded(steps) {
            self.rebuild(frontier, Placing::Mixed);
        }
    }

    /// Finds what a packet after the device is in the table.
    #[inline]
    fn look_up(&mut self, key: u64, time: u64) -> Verdict {
        let Self { store: Store::Table(table), registrar, window, .. } = self else {
            return Verdict::Unmatched;
        };
        let window = *window;
        let mut verdict = Verdict::Unmatched;
        let mut repeated = false;
        let (_, steps) = table.search(key, |_, entry| {
            if entry.time.abs_diff(time) >= window {
                return (None, true);
            }
            if entry.time > time {
                if verdict == Verdict::Unmatched {
                    verdict = Verdict::NonCausal;
                }
                return (None, true);
            }
            match entry.state {
                State::Repeated => {
                    repeated = true;
                    (None, true)
                }
                State::Matched => {
                    verdict = Verdict::Duplicate;
                    (None, false)
                }
                State::Open | State::NonCausal => {
                    registrar.change(entry, State::Matched);
                    verdict = Verdict::Match { ingress_ns: entry.time };
                    (Some(State::Matched), false)
                }
            }
        });
        if verdict == Verdict::NonCausal && !repeated {
            // The packets that were stamped after `time` are not lost.
            table.search(key, |_, entry| {
                let early = entry.time > time && entry.time - time < window;
                let found = early && entry.state == State::Open;
                if found {
                    registrar.change(entry, State::NonCausal);
                }
                (found.then_some(State::NonCausal), true)
            });
        }
        if table.crowded(steps) {
            self.rebuild(time, Placing::Mixed);
        }
        if !repeated {
            return verdict;
        }
        if let Repeats::Gather(equals) = &mut self.equals {
            equals.after(key, time);
        }
        Verdict::Unmatched
    }

    /// Brings the places of these keys into the processor's cache, ahead of their turn.
    fn warm_up(&self, keys: &[u64]) {
        if let Store::Table(table) = &self.store {
            table.warm_up(keys);
        }
    }

    /// Forgets packets that are out of reach and makes room for more.
    #[cold]
    fn rebuild(&mut self, frontier: u64, placing: Placing) {
        let Self { store: Store::Table(table), window, registrar, .. } = self else { return };
        let reachable = |entry| reachable(entry, *window, frontier);
        let kept = table.entries().filter(|&(_, entry)| reachable(entry)).count();
        // Half of the slots are free, so that most packets will take the place of one that is out of
        // reach, and the next time is far away.
        let size = slots_for(kept).max(2 * kept).max(table.slots() / 2);
        let old = std::mem::replace(table, Table::new(size, placing));
        for (key, entry) in old.entries() {
            if !reachable(entry) {
                registrar.retire(key, entry);
            } else if let (Some(at), _) = table.search(key, |_, _| (None, true)) {
                table.fill(at, key, entry);
            }
        }
    }
}

/// What a matcher found.
pub struct Finished {
    /// What became of the packets before the device.
    pub fates: Fates,
    /// Which were lost.
    pub losses: Losses,
    /// Of the lost ones, those near the ends of the other capture.
    pub edges: Edges,
    /// Those that share their key with others, where they were gathered.
    pub equals: Option<Equals>,
    /// How many left the device in one packet with others.
    pub merged: u64,
}

/// Finds what a packet after the device is where each id occurs once.
#[inline]
fn look_up_id(
    ring: &mut Ring,
    registrar: &mut Registrar,
    id: u64,
    time: u64,
    window: u64,
) -> Verdict {
    match ring.get(id) {
        Some(entry) if entry.time <= time && time - entry.time < window => {
            if entry.state == State::Matched {
                return Verdict::Duplicate;
            }
            registrar.change(entry, State::Matched);
            ring.set(id, Entry { state: State::Matched, ..entry });
            Verdict::Match { ingress_ns: entry.time }
        }
        Some(entry) if entry.time > time && entry.time - time < window => {
            if entry.state == State::Open {
                registrar.change(entry, State::NonCausal);
                ring.set(id, Entry { state: State::NonCausal, ..entry });
            }
            Verdict::NonCausal
        }
        _ => Verdict::Unmatched,
    }
}

/// Whether a packet before the device still bears on packets from the time `frontier` on.
#[inline]
fn reachable(entry: Entry, window: u64, frontier: u64) -> bool {
    entry.time.saturating_add(window) > frontier
}

/// Slots for `packets` packets and some more: a table is rebuilt when three quarters are in use.
fn slots_for(packets: usize) -> usize {
    packets.saturating_add(packets / 2).max(MIN_SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: u64 = 100;
    const HOW: Matching = Matching {
        ids: true,
        window: WINDOW,
        trim_before: 0,
        span: Span::ALL,
        expected: 0,
        losses: crate::losses::MOST,
        covered: Covered::ALL,
    };

    impl Matcher {
        fn empty(how: &Matching) -> Self {
            Match::<()>::new(how)
        }

        fn add(&mut self, keys: &[u64], times: &[u64], frontier: u64) {
            Match::<()>::insert_all(self, keys, times, &[], frontier);
        }

        fn find(&mut self, keys: &[u64], times: &[u64], each: impl FnMut(usize, Verdict)) {
            Match::<()>::look_up_all(self, keys, times, &[], each);
        }

        fn fates(&self) -> Fates {
            self.registrar.fates
        }

        fn end(self) -> Finished {
            Match::<()>::finish(self)
        }
    }

    /// The rules once more, by comparing every packet with every other.
    fn by_brute_force(ingress: &[(u64, u64)], egress: &[(u64, u64)]) -> Outcome {
        let repeated: Vec<bool> = (0..ingress.len())
            .map(|i| {
                (0..ingress.len()).any(|j| {
                    i != j
                        && ingress[i].0 == ingress[j].0
                        && ingress[i].1.abs_diff(ingress[j].1) < WINDOW
                })
            })
            .collect();
        let mut matched = vec![false; ingress.len()];
        let mut early = vec![false; ingress.len()];
        let mut verdicts = Vec::new();
        for &(key, time) in egress {
            let same = || (0..ingress.len()).filter(|&i| ingress[i].0 == key);
            let causal =
                || same().filter(|&i| ingress[i].1 <= time && time - ingress[i].1 < WINDOW);
            let later = || same().filter(|&i| ingress[i].1 > time && ingress[i].1 - time < WINDOW);
            verdicts.push(if let Some(i) = causal().find(|&i| !repeated[i]) {
                if std::mem::replace(&mut matched[i], true) {
                    Verdict::Duplicate
                } else {
                    Verdict::Match { ingress_ns: ingress[i].1 }
                }
            } else if causal().next().is_some() {
                Verdict::Unmatched
            } else if later().next().is_some() {
                later().for_each(|i| early[i] = true);
                Verdict::NonCausal
            } else {
                Verdict::Unmatched
            });
        }
        let lost = (0..ingress.len()).filter(|&i| !matched[i] && !early[i] && !repeated[i]);
        let mut lost: Packets = lost.map(|i| (ingress[i].1, ingress[i].0)).collect();
        lost.sort_unstable();
        let only_early = (0..ingress.len()).filter(|&i| !matched[i] && early[i] && !repeated[i]);
        let fates = Fates {
            lost: lost.len() as u64,
            repeated: repeated.iter().filter(|&&r| r).count() as u64,
            early: only_early.count() as u64,
            trimmed: 0,
        };
        (verdicts, fates, lost)
    }

    /// Verdicts, counts, and the lost packets.
    type Outcome = (Vec<Verdict>, Fates, Packets);

    fn by_table(ingress: &[(u64, u64)], egress: &[(u64, u64)]) -> Outcome {
        let found = by_matcher(true, ingress, egress);
        assert_eq!(by_matcher(false, ingress, egress), found);
        found
    }

    fn by_matcher(ids: bool, ingress: &[(u64, u64)], egress: &[(u64, u64)]) -> Outcome {
        let mut matcher = Matcher::empty(&Matching { ids, ..HOW });
        let mut ahead = ingress;
        let mut verdicts = Vec::new();
        let mut insert = |matcher: &mut Matcher, until: u64, frontier| {
            let (now, later) = ahead.split_at(ahead.partition_point(|packet| packet.1 < until));
            let (keys, times): (Vec<_>, Vec<_>) = now.iter().copied().unzip();
            matcher.add(&keys, &times, frontier);
            ahead = later;
        };
        // Several packets after the device at a time, as they come from a capture.
        for block in egress.chunks(3) {
            let (keys, times): (Vec<_>, Vec<_>) = block.iter().copied().unzip();
            insert(&mut matcher, times[times.len() - 1] + WINDOW, times[0]);
            matcher.find(&keys, &times, |_, verdict| verdicts.push(verdict));
        }
        insert(&mut matcher, u64::MAX, u64::MAX);
        let Finished { fates, losses, .. } = matcher.end();
        (verdicts, fates, losses.sorted().packets().to_vec())
    }

    type Packets = Vec<(u64, u64)>;

    /// Ids that count up, with gaps and a change of order here and there, few or no repeats.
    fn counting() -> impl Strategy<Value = (Packets, Packets)> {
        let step = (1..4u64, 0..40u64, prop_oneof![9 => Just(0u64), 1 => 1..6u64], 0..250u64);
        proptest::collection::vec(step, 0..120).prop_map(|steps| {
            let (mut id, mut time) = (0, 200);
            let (mut ingress, mut egress) = (Vec::new(), Vec::new());
            for (up, gap, back, latency) in steps {
                id += up;
                time += gap;
                ingress.push((id - back.min(id), time));
                // Some come before their time, some are late, one in five is lost.
                if latency % 5 > 0 {
                    egress.push((id - back.min(id), (time + latency).saturating_sub(100)));
                }
                if latency % 7 == 0 {
                    egress.push((id, time + 2 * latency));
                }
            }
            egress.sort_by_key(|packet| packet.1);
            (ingress, egress)
        })
    }

    /// So few keys over many windows that repeats, wraps, early, late and foreign packets occur.
    fn packets(keys: u64) -> impl Strategy<Value = Packets> {
        proptest::collection::vec((0..keys, 0..1_000u64), 0..60).prop_map(|mut packets| {
            packets.sort_by_key(|packet| packet.1);
            packets
        })
    }

    proptest! {
        #[test]
        fn the_table_follows_the_rules(ingress in packets(12), egress in packets(12)) {
            prop_assert_eq!(by_table(&ingress, &egress), by_brute_force(&ingress, &egress));
        }

        #[test]
        fn the_table_follows_the_rules_for_long_repeats(
            ingress in packets(2),
            egress in packets(3),
        ) {
            prop_assert_eq!(by_table(&ingress, &egress), by_brute_force(&ingress, &egress));
        }

        #[test]
        fn ids_that_count_follow_the_rules((ingress, egress) in counting()) {
            prop_assert_eq!(by_table(&ingress, &egress), by_brute_force(&ingress, &egress));
        }
    }

    #[test]
    fn a_key_that_never_changes_takes_no_room() {
        let mut matcher = Matcher::empty(&HOW);
        for time in 0..100_000 {
            matcher.add(&[7], &[time], time);
            matcher.add(&[8], &[time * WINDOW], time * WINDOW);
        }
        let Store::Table(table) = &matcher.store else { panic!("repeats in a ring") };
        assert!(table.used() < 10, "{} slots in use", table.used());
        assert_eq!(matcher.fates(), Fates { lost: 100_000, repeated: 100_000, ..Fates::default() });
    }

    #[test]
    fn old_packets_are_forgotten_and_counted() {
        // Ids that count up, and others for which a table is needed.
        for factor in [1, 1 << 40] {
            let mut matcher = Matcher::empty(&HOW);
            for number in 0..100_000u64 {
                let (id, time) = (number * factor, number * 10);
                matcher.add(&[id], &[time], time);
                if number % 2 == 0 {
                    matcher.find(&[id], &[time + 1], |_, verdict| {
                        assert_eq!(verdict, Verdict::Match { ingress_ns: time });
                    });
                }
            }
            let slots = match &matcher.store {
                Store::Ring(ring) => ring.capacity(),
                Store::Table(table) => table.slots(),
            };
            assert_eq!(matches!(matcher.store, Store::Ring(_)), factor == 1);
            assert!(slots <= 2 * MIN_SLOTS, "{slots} slots");
            assert_eq!(matcher.fates(), Fates { lost: 50_000, ..Fates::default() });
            assert_eq!(matcher.end().losses.packets().len(), 50_000);
        }
    }

    #[test]
    fn ids_are_known_as_long_as_they_are_in_reach_and_others_are_not() {
        let mut matcher = Matcher::empty(&Matching { window: u64::MAX, ..HOW });
        let ids: Vec<u64> = (0..2 * MIN_SLOTS as u64).collect();
        let verdict = |matcher: &mut Matcher, id, time| {
            let mut found = Verdict::Unmatched;
            matcher.find(&[id], &[time], |_, verdict| found = verdict);
            found
        };
        for &id in &ids {
            matcher.add(&[id], &[id], 0);
            assert_eq!(verdict(&mut matcher, id, id), Verdict::Match { ingress_ns: id });
            assert_eq!(verdict(&mut matcher, id + MIN_SLOTS as u64, id), Verdict::Unmatched);
        }
        assert!(ids.iter().all(|&id| verdict(&mut matcher, id, 1 << 40) == Verdict::Duplicate));
        assert!(matches!(matcher.store, Store::Ring(_)));
    }

    #[test]
    fn keys_that_crowd_are_spread() {
        // High bits only; two counters that overlap in the low bits; keys that are not there.
        let high = (0..200_000u64).map(|id| id << 40).collect::<Vec<_>>();
        let twice = (0..200_000u64).map(|id| (id / 2) | (id % 2) << 40).collect::<Vec<_>>();
        for keys in [high, twice] {
            let mut matcher = Matcher::empty(&Matching { window: u64::MAX, ..HOW });
            let times: Vec<u64> = (0..keys.len() as u64).collect();
            matcher.add(&keys, &times, 0);
            for (&time, &key) in times.iter().zip(&keys) {
                let pair = [key | 1 << 63, key];
                let mut verdicts = Vec::new();
                matcher.find(&pair, &[1 << 40; 2], |_, verdict| verdicts.push(verdict));
                assert_eq!(verdicts, [Verdict::Unmatched, Verdict::Match { ingress_ns: time }]);
            }
            assert!(
                matches!(&matcher.store, Store::Table(table) if table.placing() == Placing::Mixed)
            );
        }
    }
}
