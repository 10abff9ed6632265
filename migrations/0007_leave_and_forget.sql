-- Days on their way out. A day's partition is taken off `messages` under a lock of a moment, put under this table, and
-- summed up and dropped in peace: what is summed up cannot change any more, and nothing waits while it is counted.
-- Inheritance, not partitioning: nobody has to look at the rows to let one in. Only what is counted has a column here.
CREATE TABLE leaving_messages (
    day         date,
    tenant_id   integer,
    application text,
    class       text,
    route       text,
    status      text,
    segments    smallint
);

-- Endpoints that are owed nothing go: a tenant whose callback URLs name the message would leave one behind with each.
-- Marked first, deleted later, unless a callback was written to it meanwhile, which takes the mark away.
ALTER TABLE endpoints ADD COLUMN idle_at bigint;
CREATE INDEX endpoints_idle ON endpoints (idle_at) WHERE idle_at IS NOT NULL;
