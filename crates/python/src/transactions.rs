//! `tailtap._core.transactions`: requests and their answers.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tailtap_analysis::transactions::{
    Options, Transactions, has_transactions as has, transactions as transactions_of,
};

use crate::evaluation::{Matching, columns, detached};
use crate::records::{Requests, bytes};
use crate::source::Given;

/// Of each kind its record and its columns; the warnings of the captures as a whole.
type Told<'py> = (Vec<(Bound<'py, PyBytes>, Bound<'py, PyDict>)>, Bound<'py, PyBytes>);

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
) -> PyResult<Told<'py>> {
    let options = Options { matching: matching.options()?, from_last };
    let format = options.matching.ingress_format;
    let Transactions { kinds, warnings } = detached(py, None, |cancelled| {
        let second = second.map(|given| given.source(format)).transpose()?;
        transactions_of(first.source(format)?, second, &options, cancelled)
    })?;
    let told = kinds.iter().map(|found| {
        let record = bytes(py, &Requests::from(found));
        Ok((record, columns(py, &found.evaluation, bucket_ns)?))
    });
    Ok((told.collect::<PyResult<_>>()?, bytes(py, &warnings)))
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
