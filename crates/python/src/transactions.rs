//! `tailtap._core.transactions`: requests and their answers.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailtap_analysis::transactions::{
    Options, Transactions, has_transactions as has, transactions as transactions_of,
};

use crate::evaluation::{Matching, detached, to_dict};
use crate::source::Given;

/// Evaluates requests and answers; see `tailtap.analysis.evaluation.transactions`, which this serves.
#[pyfunction]
#[pyo3(signature = (first, second, matching, *, bucket_ns, from_last))]
pub fn transactions<'py>(
    py: Python<'py>,
    first: Given,
    second: Option<Given>,
    matching: Matching,
    bucket_ns: u64,
    from_last: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let options = Options { matching: matching.options()?, from_last };
    let format = options.matching.ingress_format;
    let Transactions { kinds, warnings } = detached(py, None, |cancelled| {
        let second = second.map(|given| given.source(format)).transpose()?;
        transactions_of(first.source(format)?, second, &options, cancelled)
    })?;
    let dict = PyDict::new(py);
    let found = kinds.into_iter().map(|found| -> PyResult<_> {
        let dict = PyDict::new(py);
        dict.set_item("kind", found.kind.name())?;
        dict.set_item("name", found.name)?;
        let counts = PyDict::new(py);
        for (name, count) in found.counts.named() {
            counts.set_item(name, count)?;
        }
        dict.set_item("counts", counts)?;
        dict.set_item("evaluation", to_dict(py, found.evaluation, bucket_ns)?)?;
        Ok(dict)
    });
    dict.set_item("kinds", found.collect::<PyResult<Vec<_>>>()?)?;
    let warnings = warnings.into_iter().map(|warning| (warning.code, warning.message));
    dict.set_item("warnings", warnings.collect::<Vec<_>>())?;
    Ok(dict)
}

/// Whether there are answered requests among the first packets of one capture or two, so many of each.
#[pyfunction]
#[pyo3(signature = (first, second, matching, *, packets))]
pub fn has_transactions(
    py: Python<'_>,
    first: Given,
    second: Option<Given>,
    matching: Matching,
    packets: u64,
) -> PyResult<bool> {
    let options = Options { matching: matching.options()?, from_last: false };
    let format = options.matching.ingress_format;
    detached(py, None, |_| {
        let second = second.map(|given| given.source(format)).transpose()?;
        has(first.source(format)?, second, &options, packets)
    })
}
