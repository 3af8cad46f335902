//! `tailtap._core.evaluate`, its parts for many machines, and `percentiles`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pyo3::IntoPyObjectExt;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use tailtap_analysis::capture::Format;
use tailtap_analysis::clocks::{Clocks, Excess};
use tailtap_analysis::edges::Span;
use tailtap_analysis::evaluate::{
    Arrivals, Counted, EvaluateError, Evaluation, Flow, LostPacket, Options, Partial, Piece,
    both_ways as both_ways_of, crossings as crossings_of, evaluate as evaluate_captures,
    plan as plan_pieces, sides as sides_of,
};
use tailtap_analysis::key::{KeyKind, Name};
use tailtap_analysis::percentile::{self, Percentile};
use tailtap_analysis::source::Source;
use tailtap_analysis::worst::WorstPacket;

use crate::errors::{about, of_capture, raise};
use crate::records::{Matched, bytes};
use crate::source::Given;

/// How often an evaluation looks for signals such as Ctrl-C.
const LOOK_FOR_SIGNALS_MS: u64 = 50;

/// A column of integers, each as the bytes of an i64: arrays would need numpy, which takes longer to
/// load than a small evaluation. All times fit, as they are nanoseconds since an epoch of this
/// century.
pub fn column(py: Python<'_>, values: impl IntoIterator<Item = u64>) -> Bound<'_, PyBytes> {
    let bytes: Vec<u8> = values.into_iter().flat_map(u64::to_ne_bytes).collect();
    PyBytes::new(py, &bytes)
}

fn pairs<'py>(
    py: Python<'py>,
    pairs: impl IntoIterator<Item = (u64, u64)>,
) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
    let (left, right): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
    (column(py, left), column(py, right))
}

fn format(name: Option<String>) -> PyResult<Option<Format>> {
    name.map(|name| {
        Format::from_name(&name).ok_or_else(|| {
            raise(
                "InputError",
                format!("'{name}' is not a format: pcap, pcapng, erf, mscap or stamps"),
            )
        })
    })
    .transpose()
}

/// The knots of two clocks, and what these may be off by.
type ClocksOfPython = (Vec<(u64, u64)>, u64);

/// What packets are matched by on both sides, or on each.
fn key_of(key: Option<&str>, after: Option<&str>) -> PyResult<Option<KeyKind>> {
    let parse = |text: &str| text.parse().map_err(|error| raise("InputError", error));
    let key: Option<KeyKind> = key.map(parse).transpose()?;
    match (key, after) {
        (Some(key), Some(after)) => {
            let both = key.and_after(parse(after)?);
            both.map(Some).map_err(|error| raise("InputError", error))
        }
        (None, Some(_)) => {
            let why = "a key after the device needs one before it, of the same number";
            Err(raise("InputError", why))
        }
        (key, None) => Ok(key),
    }
}

/// How captures are matched: a dictionary in Python, of the names that its `Settings.matching` has.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Matching {
    key: Option<String>,
    #[pyo3(default)]
    key_after: Option<String>,
    #[pyo3(default)]
    trim_ns: u64,
    #[pyo3(default = Options::default().window_ns)]
    window_ns: u64,
    #[pyo3(default)]
    worst: usize,
    #[pyo3(default)]
    format: Option<String>,
    #[pyo3(default)]
    clocks: Option<ClocksOfPython>,
    #[pyo3(default)]
    nanoseconds: [bool; 2],
    #[pyo3(default)]
    stamps: Option<String>,
    #[pyo3(default)]
    losses: bool,
    #[pyo3(default)]
    flows: bool,
    #[pyo3(default)]
    throughout: bool,
}

impl Matching {
    /// The options that Python gives by name.
    pub fn options(self) -> PyResult<Options> {
        let clocks = self.clocks.map(|(knots, within_ns)| {
            let why = "the times of both clocks must ascend from each knot to the next";
            Clocks::new(knots, within_ns).ok_or_else(|| raise("InputError", why))
        });
        let format = format(self.format)?;
        let stamps = self.stamps.as_deref().map(str::parse).transpose();
        Ok(Options {
            key: key_of(self.key.as_deref(), self.key_after.as_deref())?,
            trim_ns: self.trim_ns,
            window_ns: self.window_ns,
            worst: self.worst,
            ingress_format: format,
            egress_format: format,
            clocks: clocks.transpose()?,
            nanoseconds: self.nanoseconds,
            stamps: stamps.map_err(|error| raise("InputError", error))?,
            losses: self.losses,
            flows: self.flows,
            throughout: self.throughout,
        })
    }
}

fn refuse(error: EvaluateError) -> PyErr {
    match error {
        EvaluateError::Capture(error) => of_capture(&error),
        EvaluateError::NoKey { path, why } | EvaluateError::NoSides { path, why } => {
            about(&path, &raise("NothingMatched", why))
        }
        EvaluateError::NotSplittable => raise("NotSplittableError", error),
        EvaluateError::Cancelled => raise("Interrupted", error),
        EvaluateError::NoMatch(_) | EvaluateError::Swapped { .. } => raise("NothingMatched", error),
        error => raise("InputError", error),
    }
}

/// Does work without the GIL, looking now and then for signals, and asking `stopped` whether to give
/// up: signals reach the main thread alone.
pub fn detached<T: Send>(
    py: Python<'_>,
    stopped: Option<&Py<PyAny>>,
    work: impl FnOnce(&dyn Fn() -> bool) -> Result<T, EvaluateError> + Send,
) -> PyResult<T> {
    let signal = OnceLock::new();
    let started = Instant::now();
    let next_look_ms = AtomicU64::new(0);
    let cancelled = || {
        // Looking for signals takes the GIL, for which other threads may make us wait.
        let now_ms = started.elapsed().as_millis() as u64;
        if now_ms < next_look_ms.load(Ordering::Relaxed) {
            return false;
        }
        next_look_ms.store(now_ms + LOOK_FOR_SIGNALS_MS, Ordering::Relaxed);
        let look = |py: Python<'_>| {
            py.check_signals()?;
            stopped.map_or(Ok(false), |stopped| stopped.call0(py)?.is_truthy(py))
        };
        match Python::attach(look) {
            Ok(stop) => stop,
            Err(error) => {
                let _ = signal.set(error);
                true
            }
        }
    };
    let outcome = py.detach(|| work(&cancelled));
    outcome.map_err(|error| signal.into_inner().unwrap_or_else(|| refuse(error)))
}

/// Evaluates a pair of captures; see `tailtap.analysis.evaluation.evaluate`, which this serves.
#[pyfunction]
#[pyo3(signature = (ingress, egress, matching, *, bucket_ns))]
pub fn evaluate<'py>(
    py: Python<'py>,
    ingress: Given,
    egress: Given,
    matching: Matching,
    bucket_ns: u64,
) -> PyResult<Told<'py>> {
    let options = matching.options()?;
    let evaluation = detached(py, None, |cancelled| {
        let [ingress, egress] = both(ingress, egress, &options)?;
        evaluate_captures(ingress, egress, &options, cancelled)
    })?;
    told(py, &evaluation, bucket_ns)
}

/// Splits the evaluation of a pair of captures into pieces of about `chunk_bytes` each, as bytes,
/// in the order of time; one piece for 0 and where it cannot be split.
#[pyfunction]
#[pyo3(signature = (ingress, egress, matching, *, chunk_bytes))]
pub fn plan<'py>(
    py: Python<'py>,
    ingress: Given,
    egress: Given,
    matching: Matching,
    chunk_bytes: u64,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let options = matching.options()?;
    let pieces = detached(py, None, |_| {
        let [ingress, egress] = both(ingress, egress, &options)?;
        plan_pieces(ingress, egress, &options, chunk_bytes)
    })?;
    Ok(pieces.iter().map(|piece| PyBytes::new(py, &piece.to_bytes())).collect())
}

/// Evaluates a piece that `plan` made; the partial evaluation as bytes. Raises `Interrupted` soon
/// after the function `stopped` says so.
#[pyfunction]
#[pyo3(signature = (piece, *, stopped=None))]
pub fn evaluate_piece<'py>(
    py: Python<'py>,
    piece: &[u8],
    stopped: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let piece = Piece::from_bytes(piece).ok_or_else(|| foreign("piece"))?;
    let work = |cancelled: &dyn Fn() -> bool| Ok(piece.evaluate(cancelled)?.to_bytes());
    let partial = detached(py, stopped.as_ref(), work)?;
    Ok(PyBytes::new(py, &partial))
}

/// What became of the packets of a stretch of time; see `tailtap.analysis.live.counting`, which this
/// serves. Times of lost packets where `matching` asks for losses.
#[pyfunction]
#[pyo3(signature = (ingress, egress, matching, *, from_ns, until_ns, begins=None))]
pub fn evaluate_within<'py>(
    py: Python<'py>,
    ingress: Given,
    egress: Given,
    matching: Matching,
    from_ns: u64,
    until_ns: u64,
    begins: Option<(Option<u64>, Option<u64>)>,
) -> PyResult<Bound<'py, PyDict>> {
    let options = matching.options()?;
    let counted = detached(py, None, |cancelled| {
        let [ingress, egress] = both(ingress, egress, &options)?;
        let span = Span { from_ns, until_ns };
        let piece =
            Piece::within(ingress, egress, &options, span, begins.unwrap_or_default().into())?;
        Ok(piece.evaluate(cancelled)?.counted())
    })?;
    let Counted { counts: of_all, latencies, worst, lost_ns, excess } = counted;
    let before = |time: u64| time.wrapping_sub(excess.ingress_ns);
    let took = |latency: u64| latency.wrapping_sub(excess.latency_ns);
    let dict = PyDict::new(py);
    dict.set_item("counts", bytes(py, &of_all))?;
    let rows = latencies.counts().map(|(value, count)| (took(value), count));
    dict.set_item("distribution", pairs(py, rows))?;
    dict.set_item("worst", worst_rows(py, &worst, excess))?;
    dict.set_item("lost_ns", column(py, lost_ns.into_iter().map(before)))?;
    Ok(dict)
}

/// Merges partial evaluations that follow each other in time; in whatever grouping that is done,
/// the result is the same.
#[pyfunction]
pub fn merge<'py>(py: Python<'py>, partials: Vec<PyBackedBytes>) -> PyResult<Bound<'py, PyBytes>> {
    let merged = py.detach(|| {
        let mut partials = partials.iter().map(|bytes| Partial::from_bytes(bytes));
        let mut first = partials.next()??;
        for next in partials {
            first.merge(next?);
        }
        Some(first.to_bytes())
    });
    Ok(PyBytes::new(py, &merged.ok_or_else(|| foreign("partial evaluation"))?))
}

/// What `evaluate` returns, from the partial evaluation of the whole.
#[pyfunction]
#[pyo3(signature = (partial, *, bucket_ns))]
pub fn conclude<'py>(py: Python<'py>, partial: &[u8], bucket_ns: u64) -> PyResult<Told<'py>> {
    let partial = Partial::from_bytes(partial).ok_or_else(|| foreign("partial evaluation"))?;
    told(py, &partial.conclude().map_err(refuse)?, bucket_ns)
}

fn foreign(what: &str) -> PyErr {
    let why = "made by another version of tailtap, or not at all";
    raise("InputError", format!("these bytes are no {what}: {why}"))
}

/// The packets that two captures of different clocks have in common: the times of each in both, and
/// of both captures the first and the last time, and the resolution of the stamps.
#[pyfunction]
pub fn crossings<'py>(
    py: Python<'py>,
    earlier: Given,
    later: Given,
    matching: Matching,
) -> PyResult<Bound<'py, PyDict>> {
    let options = matching.options()?;
    let found = detached(py, None, |cancelled| {
        let [earlier, later] = both(earlier, later, &options)?;
        crossings_of(earlier, later, &options, cancelled)
    })?;
    let dict = PyDict::new(py);
    dict.set_item("key", found.key.to_string())?;
    dict.set_item("times", pairs(py, found.times))?;
    dict.set_item("spans", found.spans)?;
    dict.set_item("resolutions_ns", found.resolutions_ns)?;
    dict.set_item("trailers", found.trailers.map(|one| one.map(|trailer| trailer.to_string())))?;
    Ok(dict)
}

/// The packets of both sides.
fn both(ingress: Given, egress: Given, options: &Options) -> Result<[Source; 2], EvaluateError> {
    Ok([ingress.source(options.ingress_format)?, egress.source(options.egress_format)?])
}

/// What tells both directions of two captures apart; see `tailtap.analysis.evaluation.evaluate`.
#[pyfunction]
pub fn both_ways<'py>(
    py: Python<'py>,
    ingress: Given,
    egress: Given,
    matching: Matching,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let options = matching.options()?;
    let found = detached(py, None, |_| {
        let [ingress, egress] = both(ingress, egress, &options)?;
        both_ways_of(ingress, egress, &options)
    })?;
    let Some(found) = found else { return Ok(None) };
    let dict = PyDict::new(py);
    let [before, after] = found.ways.map(|ways| ways.to_bytes());
    dict.set_item("ways", (PyBytes::new(py, &before), PyBytes::new(py, &after)))?;
    dict.set_item("links", found.links)?;
    dict.set_item("least_ns", (found.least_there_ns, found.least_back_ns))?;
    Ok(Some(dict))
}

/// What is to be chosen of one capture before the device and behind it, as texts.
#[pyfunction]
pub fn sides(py: Python<'_>, source: Given, matching: Matching) -> PyResult<(String, String)> {
    let options = matching.options()?;
    let [before, after] =
        detached(py, None, |_| sides_of(source.source(options.ingress_format)?, &options))?;
    Ok((before.to_string(), after.to_string()))
}

/// The fields of `Percentile`.
type PercentileRow = (f64, i64, Option<i64>, Option<i64>, u64, bool);

/// Percentiles of a distribution given as distinct values, ascending, and their counts: arrays, or
/// views of bytes, of i64.
#[pyfunction]
pub fn percentiles(
    py: Python<'_>,
    values: PyBuffer<i64>,
    counts: PyBuffer<i64>,
    ps: Vec<f64>,
) -> PyResult<Vec<PercentileRow>> {
    let (values, counts) = (values.to_vec(py)?, counts.to_vec(py)?);
    let found = py.detach(|| {
        let counts: Vec<_> = values
            .into_iter()
            .zip(counts)
            .map(|(value, count)| (value.cast_unsigned(), count.cast_unsigned()))
            .collect();
        percentile::percentiles(&counts, &ps)
    });
    // Ranks are all that matters, so that values below zero do as well.
    let signed = |bound: Option<u64>| bound.map(u64::cast_signed);
    let row = |f: &Percentile| {
        (f.p, f.value.cast_signed(), signed(f.low), signed(f.high), f.above, f.supported)
    };
    Ok(found.iter().map(row).collect())
}

/// The columns of an evaluation, by the names of `Columns` in Python.
pub fn columns<'py>(
    py: Python<'py>,
    evaluation: &Evaluation,
    bucket_ns: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let Excess { ingress_ns, egress_ns, latency_ns } = evaluation.excess;
    // Differences may be below zero: the bytes are those of an i64.
    let before = |time: u64| time.wrapping_sub(ingress_ns);
    let after = |time: u64| time.wrapping_sub(egress_ns);
    let took = |latency: u64| latency.wrapping_sub(latency_ns);
    let counts = evaluation.latencies.counts();
    dict.set_item("distribution", pairs(py, counts.map(|(value, count)| (took(value), count))))?;
    dict.set_item("worst", worst_rows(py, &evaluation.worst, evaluation.excess))?;
    let lost = &evaluation.lost;
    // A length that is not known is less than nothing.
    let length = |l: &LostPacket| l.length.map_or(u64::MAX, u64::from);
    dict.set_item(
        "losses",
        (
            column(py, lost.iter().map(|l| before(l.ingress_ns))),
            column(py, lost.iter().map(|l| l.position)),
            column(py, lost.iter().map(length)),
            column(py, lost.iter().map(|l| l.burst)),
            lost.iter().map(|l| l.flow.as_str()).collect::<Vec<_>>(),
            lost.iter().map(|l| l.key.as_str()).collect::<Vec<_>>(),
        ),
    )?;
    let exceedances = &evaluation.exceedances;
    dict.set_item(
        "exceedances",
        (
            took(evaluation.floor_ns).cast_signed(),
            column(py, exceedances.iter().map(|e| e.position)),
            column(py, exceedances.iter().map(|e| before(e.ingress_ns))),
            column(py, exceedances.iter().map(|e| took(e.latency_ns))),
        ),
    )?;
    let blocks = &evaluation.blocks;
    dict.set_item(
        "blocks",
        (
            blocks.width_ns(),
            column(py, blocks.iter().map(|(start_ns, _)| after(start_ns))),
            column(py, blocks.iter().map(|(_, block)| block.packets)),
            column(py, blocks.iter().map(|(_, b)| b.sum_ns.wrapping_sub(b.packets * latency_ns))),
            column(py, blocks.iter().map(|(_, block)| took(block.max_ns))),
        ),
    )?;
    let (gaps, rates) = (PyDict::new(py), PyDict::new(py));
    for (name, side, excess_ns) in
        [("ingress", &evaluation.ingress, ingress_ns), ("egress", &evaluation.egress, egress_ns)]
    {
        let start = |time: u64| time.wrapping_sub(excess_ns);
        gaps.set_item(name, pairs(py, side.series.gaps.histogram(bucket_ns)))?;
        let seconds = side.series.rates().map(|(time, packets)| (start(time), packets));
        rates.set_item(name, pairs(py, seconds))?;
    }
    dict.set_item("gaps", gaps)?;
    dict.set_item("rates", rates)?;
    Ok(dict)
}

/// What is told of all packets before the device, where these were read again.
fn arrivals<'py>(py: Python<'py>, evaluation: &Evaluation) -> PyResult<Bound<'py, PyAny>> {
    let Excess { ingress_ns, latency_ns, .. } = evaluation.excess;
    let before = |time: u64| time.wrapping_sub(ingress_ns);
    let took = |latency: u64| latency.wrapping_sub(latency_ns);
    let arrivals = evaluation.arrivals.as_ref().map(|arrivals| {
        let Arrivals { flows, others, lengths, blocks } = arrivals;
        let row = |flow: &Flow| {
            let latencies = flow.latencies.chunk_by(|one, other| one == other);
            let latencies = latencies.map(|equal| (took(equal[0]), equal.len() as u64));
            (flow.name.clone(), flow.packets, flow.lost, pairs(py, latencies))
        };
        let flows: Vec<_> = flows.iter().map(row).collect();
        let width_ns = blocks.width_ns();
        let blocks = pairs(py, blocks.iter().map(|(start, one)| (before(start), one.packets)));
        (flows, row(others), lengths.clone(), width_ns, blocks)
    });
    arrivals.into_bound_py_any(py)
}

type Told<'py> = (Bound<'py, PyBytes>, Bound<'py, PyDict>, Bound<'py, PyAny>);

/// The record `Matched` as bytes, columns, and arrivals.
fn told<'py>(py: Python<'py>, evaluation: &Evaluation, bucket_ns: u64) -> PyResult<Told<'py>> {
    let record = bytes(py, &Matched::from(evaluation));
    Ok((record, columns(py, evaluation, bucket_ns)?, arrivals(py, evaluation)?))
}

type WorstRows<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<String>);

/// Latency, both stamps and key of the worst packets, a column each.
fn worst_rows<'py>(py: Python<'py>, worst: &[WorstPacket<Name>], excess: Excess) -> WorstRows<'py> {
    let less = |of: fn(&WorstPacket<Name>) -> u64, excess: u64| {
        column(py, worst.iter().map(|packet| of(packet).wrapping_sub(excess)))
    };
    (
        less(|w| w.latency_ns, excess.latency_ns),
        less(|w| w.ingress_ns, excess.ingress_ns),
        less(|w| w.egress_ns, excess.egress_ns),
        worst.iter().map(|packet| packet.key.to_string()).collect(),
    )
}
