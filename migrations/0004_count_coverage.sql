-- Receipts: what coverage is counted by, and the reference of ours that a carrier gives back.

ALTER TABLE messages ADD COLUMN sent_at bigint;         -- when a carrier had all of it, UTC ms; null before
ALTER TABLE receipts ADD COLUMN own_reference text;     -- what the receipt says of our own reference (dialect own_reference)

-- Hourly counts per provider. `shard` is of the writing connection: transactions of several processes never wait for
-- one row. An hour is summed over its shards when it is read.
CREATE TABLE coverage_hours (
    provider  text NOT NULL,
    hour_at   bigint NOT NULL,              -- begin of the UTC hour, ms
    shard     smallint NOT NULL,
    sent      bigint NOT NULL DEFAULT 0,    -- messages sent in this hour for which receipts are expected
    decided   bigint NOT NULL DEFAULT 0,    -- of these: with a final word for the whole message
    delivered bigint NOT NULL DEFAULT 0,    -- of these: delivered
    receipts  bigint NOT NULL DEFAULT 0,    -- receipts that arrived in this hour, repeats not counted
    PRIMARY KEY (provider, hour_at, shard)
) WITH (fillfactor = 50);
CREATE INDEX coverage_hours_by_time ON coverage_hours (hour_at);
