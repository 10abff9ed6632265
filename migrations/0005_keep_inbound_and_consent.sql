-- Messages from handsets joined and handed over; stop lists and consent; endpoints that said 410; usage of past days.

-- A part is unread, then (where it belongs to a long message) waits under its join_key, then is done: handed over, or
-- known as a double. Done ones stay for a while, so that a part that the carrier repeats is recognised.
ALTER TABLE inbound_parts
    ADD COLUMN data_sm  boolean NOT NULL DEFAULT false,  -- the body of a data_sm, else of a deliver_sm
    ADD COLUMN join_key bytea,                           -- what the parts of one long message share
    ADD COLUMN done_at  bigint;
CREATE INDEX inbound_parts_unread ON inbound_parts (id) WHERE done_at IS NULL AND join_key IS NULL;
CREATE INDEX inbound_parts_joining ON inbound_parts (join_key) WHERE join_key IS NOT NULL;
CREATE INDEX inbound_parts_waiting ON inbound_parts (received_at) WHERE done_at IS NULL AND join_key IS NOT NULL;
CREATE INDEX inbound_parts_to_delete ON inbound_parts (done_at) WHERE done_at IS NOT NULL;

CREATE TABLE inbound (
    id          uuid PRIMARY KEY,                        -- UUIDv7 of the moment at which it was handed over
    tenant_id   integer,                                 -- null: no tenant owns the number
    provider    text NOT NULL,
    sender      text NOT NULL,                           -- the handset
    recipient   text NOT NULL,                           -- the owned number as the policy writes it, else as it came
    body        bytea,                                   -- UTF-8; null once wiped
    body_key_id smallint NOT NULL DEFAULT 0,             -- 0: not encrypted
    received_at bigint NOT NULL,                         -- of its first part
    parts       smallint NOT NULL DEFAULT 1,             -- parts that came
    total       smallint NOT NULL DEFAULT 1,             -- parts that there should have been
    keyword     text                                     -- stop | start
);
CREATE INDEX inbound_by_tenant ON inbound (tenant_id, id DESC);
CREATE INDEX inbound_unowned ON inbound (id) WHERE tenant_id IS NULL;

-- Who may not be written to any more, and who asked to be. `sender` is which of the tenant's senders; '': all of them.
CREATE TABLE opt_outs (
    tenant_id  integer NOT NULL,
    recipient  text NOT NULL,                            -- +digits
    sender     text NOT NULL DEFAULT '',
    source     text NOT NULL,                            -- inbound | api | import
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant_id, recipient, sender)
);
CREATE TABLE opt_ins (
    tenant_id  integer NOT NULL,
    recipient  text NOT NULL,
    sender     text NOT NULL DEFAULT '',
    source     text NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant_id, recipient, sender)
);

-- Lists that a tenant handed in as CSV, and how far they are.
CREATE TABLE list_imports (
    id           uuid PRIMARY KEY,
    tenant_id    integer NOT NULL,
    list         text NOT NULL,                          -- opt_outs | opt_ins
    created_at   bigint NOT NULL,
    finished_at  bigint,
    source       bytea,                                  -- the CSV; null once done
    rows_total   integer NOT NULL,
    rows_done    integer NOT NULL DEFAULT 0,
    rows_added   integer NOT NULL DEFAULT 0,
    faults_total integer NOT NULL DEFAULT 0,
    faults       jsonb NOT NULL DEFAULT '[]'             -- the first ones: line and what is wrong
);
CREATE INDEX list_imports_open ON list_imports (created_at) WHERE finished_at IS NULL;

-- An endpoint that answered 410 Gone gets nothing while this policy version is in use.
ALTER TABLE endpoints ADD COLUMN gone_version integer;

-- What days came to whose messages are no longer here: one row per group, summed up when the day is dropped.
CREATE TABLE usage_days (
    day         date NOT NULL,
    tenant_id   integer NOT NULL,
    application text,
    class       text NOT NULL,
    route       text NOT NULL,
    status      text NOT NULL,
    messages    bigint NOT NULL,
    segments    bigint NOT NULL
);
CREATE INDEX usage_days_by_tenant ON usage_days (tenant_id, day);
