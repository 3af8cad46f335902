-- Views of the tables that `tailtap export --to postgresql://…` fills.

-- The papers' queries, with the columns of their result files. The text of a double has every
-- digit that counts; its cast to numeric keeps fifteen.
CREATE OR REPLACE VIEW papers_percentiles AS
SELECT run, experiment, slug, p AS percentile, value,
       1 / nullif(1 - p::text::numeric, 0) AS onefraconeminuspercentile
FROM runs JOIN percentiles USING (run);

CREATE OR REPLACE VIEW papers_worst_over_time AS
SELECT run, experiment, slug, latency_ns AS latency, ingress_ns AS prets, egress_ns AS postts,
       key AS encode,
       (ingress_ns - (SELECT min(start_ns) FROM rates WHERE rates.run = worst.run
                      AND side = 'ingress')) / 1e9 AS second
FROM runs JOIN worst USING (run);

CREATE OR REPLACE VIEW papers_transferrate AS
SELECT run, experiment, slug, pre_received, post_received,
       post_received::numeric / nullif(pre_received, 0) AS transferrate,
       (SELECT avg(packets) FROM rates WHERE rates.run = counted.run
        AND side = 'ingress') AS pre_pkts_per_second,
       (SELECT avg(packets) FROM rates WHERE rates.run = counted.run
        AND side = 'egress') AS post_pkts_per_second
FROM (SELECT run, ingress - trimmed_ingress AS pre_received,
             egress - trimmed_egress AS post_received
      FROM evaluations) AS counted
JOIN runs USING (run);
