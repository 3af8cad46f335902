//! Records of Python as bytes of JSON: their fields are those of `tailtap.records.evaluation`.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::{Serialize, Serializer};
use tailtap_analysis::evaluate::{Changes, Counts, Evaluation, Side, Warning};
use tailtap_analysis::stamps::Clock;
use tailtap_analysis::transactions;

/// No count of a record is larger.
const MOST: u64 = 1 << 61;

/// The bytes of a record.
pub fn bytes<'py>(py: Python<'py>, record: &impl Serialize) -> Bound<'py, PyBytes> {
    // Records have texts as keys, and write to memory.
    PyBytes::new(py, &serde_json::to_vec(record).expect("a record is JSON"))
}

/// A record as dictionaries, lists, numbers and texts.
pub fn plain<'py>(py: Python<'py>, record: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (bytes(py, record),))
}

/// `Matched`: what an evaluation says beside its columns.
#[derive(Serialize)]
pub struct Matched<'a> {
    key: &'a str,
    key_after: Option<&'a str>,
    key_reason: Option<&'a str>,
    counts: &'a Counts,
    device: Option<&'a Changes>,
    mean: Option<f64>,
    inputs: Sides<'a>,
    warnings: &'a [Warning],
}

impl<'a> From<&'a Evaluation> for Matched<'a> {
    fn from(found: &'a Evaluation) -> Self {
        let [key, key_after] = &found.keys;
        Self {
            key,
            key_after: (key_after != key).then_some(key_after),
            key_reason: found.key_reason.as_deref(),
            counts: &found.counts,
            device: (found.changes.looked_at > 0).then_some(&found.changes),
            mean: found.mean(),
            inputs: Sides {
                ingress: Capture::of(&found.ingress, found.excess.ingress_ns),
                egress: Capture::of(&found.egress, found.excess.egress_ns),
            },
            warnings: &found.warnings,
        }
    }
}

#[derive(Serialize)]
struct Sides<'a> {
    ingress: Capture<'a>,
    egress: Capture<'a>,
}

/// `Side`.
#[derive(Serialize)]
struct Capture<'a> {
    path: Cow<'a, str>,
    format: &'static str,
    clock: &'static str,
    packets: u64,
    first_ns: i64,
    last_ns: i64,
    resolution_ns: u64,
    fcs_bytes: u64,
    trailer: Option<String>,
    /// In their order, those of which there are any.
    #[serde(serialize_with = "map")]
    unread: Vec<(&'static str, u64)>,
    files: Option<Vec<File<'a>>>,
    chosen: Option<&'a str>,
    others: u64,
    copies: u64,
}

#[derive(Serialize)]
struct File<'a> {
    path: Cow<'a, str>,
    packets: u64,
}

fn map<S: Serializer>(rows: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(rows.iter().copied())
}

impl<'a> Capture<'a> {
    /// A capture whose times are too large by `excess_ns`.
    fn of(side: &'a Side, excess_ns: u64) -> Self {
        let Side { notes, intake, set_aside, .. } = side;
        let shown = |time: u64| time.wrapping_sub(excess_ns).cast_signed();
        let without_end = notes.damage.is_some() || notes.resized.is_some() || notes.unclosed;
        let others = [
            ("short", intake.short),
            ("no-ethernet", intake.headless),
            ("foreign", intake.foreign),
            ("direction-unknown", set_aside.undirected),
            ("tap-lost", notes.tap.map_or(0, |tap| tap.lost)),
            ("skipped-at-most", notes.skipped.packets_at_most),
            ("without-end", without_end.into()),
        ];
        let unread = notes.unread.named().chain(others).filter(|&(_, count)| count > 0);
        let files = side.files.iter();
        let files =
            files.map(|one| File { path: one.path.to_string_lossy(), packets: one.notes.packets });
        Self {
            path: side.path.to_string_lossy(),
            format: side.format.name(),
            clock: notes.clock.unwrap_or(Clock::Unknown).name(),
            packets: notes.packets,
            first_ns: shown(intake.first_ns),
            last_ns: shown(intake.last_ns),
            resolution_ns: side.resolution_ns(),
            fcs_bytes: notes.fcs_len,
            trailer: notes.trailer.map(|trailer| trailer.to_string()),
            unread: unread.map(|(reason, count)| (reason, count.min(MOST))).collect(),
            files: (!side.files.is_empty()).then(|| files.collect()),
            chosen: side.chosen.as_deref(),
            others: set_aside.others,
            copies: set_aside.copies,
        }
    }
}

/// `MatchedRequests`: the transactions of one kind.
#[derive(Serialize)]
pub struct Requests<'a> {
    kind: &'static str,
    name: &'a str,
    counts: &'a transactions::Counts,
    matched: Matched<'a>,
}

impl<'a> From<&'a transactions::Found> for Requests<'a> {
    fn from(found: &'a transactions::Found) -> Self {
        let transactions::Found { kind, name, counts, evaluation } = found;
        Self { kind: kind.name(), name, counts, matched: evaluation.into() }
    }
}
