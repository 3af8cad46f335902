-- The tables of results.duckdb. Times are integer nanoseconds; `run` is the run's number.

CREATE TABLE IF NOT EXISTS runs (
    run INTEGER PRIMARY KEY,
    slug VARCHAR NOT NULL,
    experiment VARCHAR NOT NULL,
    repeat INTEGER NOT NULL,
    status VARCHAR NOT NULL,
    error VARCHAR,
    started TIMESTAMPTZ,
    finished TIMESTAMPTZ,
    variables JSON NOT NULL,
    parameters JSON NOT NULL,
    generator JSON,
    taps JSON,
    environment JSON
);

CREATE TABLE IF NOT EXISTS evaluations (
    run INTEGER PRIMARY KEY,
    key VARCHAR NOT NULL,
    ingress BIGINT NOT NULL,
    egress BIGINT NOT NULL,
    matched BIGINT NOT NULL,
    lost BIGINT NOT NULL,
    unmatched_egress BIGINT NOT NULL,
    duplicate_ingress BIGINT NOT NULL,
    duplicate_egress BIGINT NOT NULL,
    reordered BIGINT NOT NULL,
    noncausal BIGINT NOT NULL,
    trimmed_ingress BIGINT NOT NULL,
    trimmed_egress BIGINT NOT NULL,
    unkeyed_ingress BIGINT NOT NULL,
    unkeyed_egress BIGINT NOT NULL,
    min_ns BIGINT NOT NULL,
    mean_ns DOUBLE NOT NULL,
    max_ns BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS percentiles (
    run INTEGER NOT NULL,
    p DOUBLE NOT NULL,
    value BIGINT NOT NULL,
    low BIGINT,
    high BIGINT,
    above BIGINT NOT NULL,
    supported BOOLEAN NOT NULL
);

CREATE TABLE IF NOT EXISTS distribution (
    run INTEGER NOT NULL,
    latency_ns BIGINT NOT NULL,
    count BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS histogram (
    run INTEGER NOT NULL,
    bucket_ns BIGINT NOT NULL,
    count BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS worst (
    run INTEGER NOT NULL,
    latency_ns BIGINT NOT NULL,
    ingress_ns BIGINT NOT NULL,
    egress_ns BIGINT NOT NULL,
    key VARCHAR NOT NULL
);

CREATE TABLE IF NOT EXISTS gaps (
    run INTEGER NOT NULL,
    side VARCHAR NOT NULL,
    bucket_ns BIGINT NOT NULL,
    count BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS rates (
    run INTEGER NOT NULL,
    side VARCHAR NOT NULL,
    start_ns BIGINT NOT NULL,
    packets BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS warnings (
    run INTEGER NOT NULL,
    code VARCHAR NOT NULL,
    message VARCHAR NOT NULL
);
