-- The ledger: what was accepted, who may have sent it, what the network said.
-- Instants (`*_at`) are UTC milliseconds since 1970 on the queue's clock; `day` is the UTC day inside the UUIDv7 id.
-- No foreign keys on hot tables; every batch writes its rows sorted by key.

CREATE TABLE instance (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    pepper   bytea NOT NULL,            -- keys the idempotency fingerprints and number tokens of this installation
    cell     text  NOT NULL DEFAULT 'c1'
);

CREATE TABLE tenants (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    created_at bigint NOT NULL
);

CREATE TABLE api_keys (
    id           text PRIMARY KEY,
    tenant_id    integer REFERENCES tenants (id),   -- null: an operators' key
    digest       bytea NOT NULL,                    -- SHA-256 of the secret part; the secret itself is nowhere
    scopes       text[] NOT NULL,
    cidrs        text[] NOT NULL DEFAULT '{}',
    created_at   bigint NOT NULL,
    expires_at   bigint,
    revoked_at   bigint,
    last_used_at bigint
);

CREATE TABLE policy_versions (
    version    integer PRIMARY KEY,
    source     text NOT NULL,
    digest     bytea NOT NULL,
    applied_at bigint NOT NULL,
    applied_by text NOT NULL,
    note       text NOT NULL DEFAULT ''
);

CREATE TABLE policy_active (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  integer NOT NULL REFERENCES policy_versions (version)
);

CREATE TABLE audit (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     bigint NOT NULL,
    actor  text NOT NULL,
    action text NOT NULL,
    detail jsonb NOT NULL DEFAULT '{}'
);

-- Every running role: owner of sessions and claims, member of the policy quorum. Its row id is the owner id.
CREATE TABLE processes (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    role           text NOT NULL,
    worker         text NOT NULL,
    pid            integer NOT NULL,
    host           text NOT NULL,
    started_at     bigint NOT NULL,
    heartbeat_at   bigint NOT NULL,
    policy_version integer,                 -- the version in use
    policy_loaded  integer,                 -- the newest version loaded (secrets resolved), not yet in use
    policy_error   text,
    report         jsonb NOT NULL DEFAULT '{}',
    ended_at       bigint                   -- set by a graceful stop, by the supervisor that saw it die, or by the sweep
);
CREATE INDEX processes_live ON processes (role) WHERE ended_at IS NULL;

CREATE TABLE messages (
    day               date NOT NULL,
    id                uuid NOT NULL,
    tenant_id         integer NOT NULL,
    class             text NOT NULL,
    status            text NOT NULL,        -- stored: all of the contract but `sending` (= queued with an open attempt)
    version           integer NOT NULL DEFAULT 1,   -- +1 with each change; the `seq` of callbacks
    next_slot         smallint NOT NULL DEFAULT 0,  -- the only slot that may be inserted into attempts next
    attempts_spent    smallint NOT NULL DEFAULT 0,
    submit_begun      boolean NOT NULL DEFAULT false,  -- a submit was written once: expires_at rules from now on, not submit_by
    recipient         text NOT NULL,        -- +digits
    sender            text NOT NULL,
    body              bytea,                -- UTF-8; null once wiped
    body_key_id       smallint NOT NULL DEFAULT 0,  -- 0: not encrypted
    encoding          text NOT NULL,
    segments          smallint NOT NULL,
    application       text,
    client_ref        text,
    extras            jsonb,                -- metadata, callback_url, tlvs, transliterate, destination: where given
    route             text NOT NULL,
    provider          text NOT NULL,
    created_at        bigint NOT NULL,
    not_before        bigint,
    submit_by         bigint NOT NULL,
    expires_at        bigint NOT NULL,
    sweep_at          bigint,               -- when a sweep must look at it next: deadline, end of doubt, receipt cut-off; null once final
    final_at          bigint,
    predicted_wait_ms integer NOT NULL,
    policy_version    integer NOT NULL,
    network_state     text,                 -- the network's word: the fold of its receipts, never of our own clocks
    delivery          jsonb,
    expiry            jsonb,
    error             jsonb,
    possible_duplicate boolean NOT NULL DEFAULT false,
    PRIMARY KEY (day, id)
) PARTITION BY RANGE (day);
CREATE INDEX messages_by_tenant ON messages (tenant_id, id DESC);
CREATE INDEX messages_to_sweep ON messages (sweep_at) WHERE sweep_at IS NOT NULL;
CREATE INDEX messages_by_client_ref ON messages (tenant_id, client_ref) WHERE client_ref IS NOT NULL;

-- One row per thing that was decided about a message: inserted at (day, id, next_slot) or not at all.
CREATE TABLE attempts (
    day         date NOT NULL,
    id          uuid NOT NULL,
    slot        smallint NOT NULL,
    kind        text NOT NULL,              -- submit | cancel | expire | suppress
    owner_id    bigint,                     -- processes.id of the claimer
    provider    text,
    session     text,
    claimed_at  bigint NOT NULL,
    written_at  bigint,                     -- first byte given to the socket
    outcome     text,                       -- null: open. accepted | throttled | later | never | hold | given_back | unconfirmed | closed
    outcome_at  bigint,
    command_status integer,
    parts       jsonb,                      -- per part where parted
    PRIMARY KEY (day, id, slot)
) PARTITION BY RANGE (day);
CREATE INDEX attempts_open ON attempts (owner_id) WHERE outcome IS NULL;

-- What changed a message besides its attempts and receipts: deferred, released, corrected, resent ...
CREATE TABLE message_events (
    day   date NOT NULL,
    id    uuid NOT NULL,
    at    bigint NOT NULL,
    type  text NOT NULL,
    cause text,
    n     bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (day, id, n)
);

-- Accepted parts by the carrier's id in its dialect's normal form.
CREATE TABLE carrier_ids (
    provider   text NOT NULL,
    carrier_id text NOT NULL,
    day        date NOT NULL,
    id         uuid NOT NULL,
    slot       smallint NOT NULL,
    part       smallint NOT NULL,
    recipient  text NOT NULL,
    sent_at    bigint NOT NULL,
    PRIMARY KEY (provider, carrier_id, day, id, slot, part)
) PARTITION BY HASH (carrier_id);
CREATE TABLE carrier_ids_0 PARTITION OF carrier_ids FOR VALUES WITH (MODULUS 4, REMAINDER 0);
CREATE TABLE carrier_ids_1 PARTITION OF carrier_ids FOR VALUES WITH (MODULUS 4, REMAINDER 1);
CREATE TABLE carrier_ids_2 PARTITION OF carrier_ids FOR VALUES WITH (MODULUS 4, REMAINDER 2);
CREATE TABLE carrier_ids_3 PARTITION OF carrier_ids FOR VALUES WITH (MODULUS 4, REMAINDER 3);
CREATE INDEX carrier_ids_by_message ON carrier_ids (id);

-- Submits that may be at a carrier under an id that nobody told us: the answer was lost, or named none.
-- A receipt that no carrier id explains may be of one of these.
CREATE TABLE unnamed_submits (
    day         date NOT NULL,
    id          uuid NOT NULL,
    slot        smallint NOT NULL,
    part        smallint NOT NULL,
    provider    text NOT NULL,
    recipient   text NOT NULL,
    sender      text NOT NULL,
    earliest_at bigint NOT NULL,            -- the submit left between these two instants, if it left
    latest_at   bigint NOT NULL,
    PRIMARY KEY (day, id, slot, part)
);
CREATE INDEX unnamed_submits_by_address ON unnamed_submits (provider, right(recipient, 7));
CREATE INDEX unnamed_submits_to_delete ON unnamed_submits (latest_at);

CREATE TABLE idempotency (
    tenant_id   integer NOT NULL,
    endpoint    text NOT NULL,              -- messages | batch
    key         text NOT NULL,
    fingerprint bytea NOT NULL,             -- keyed hash of the parsed fields
    answer      bytea NOT NULL,             -- the first answer's body
    status_code smallint NOT NULL DEFAULT 202,
    created_at  bigint NOT NULL,
    keep_until  bigint NOT NULL,
    PRIMARY KEY (tenant_id, endpoint, key)
);
CREATE INDEX idempotency_to_delete ON idempotency (keep_until);

CREATE TABLE daily_usage (
    tenant_id integer NOT NULL,
    day       date NOT NULL,
    worker    text NOT NULL,
    segments  bigint NOT NULL,
    PRIMARY KEY (tenant_id, day, worker)
);

-- References on their way into the index: written in the transaction that made a message `queued`,
-- deleted after scheduler.enqueue answered under the current epoch.
CREATE TABLE outbox (
    id         uuid PRIMARY KEY,            -- also the batch marker of scheduler.enqueue
    created_at bigint NOT NULL,
    payload    bytea NOT NULL               -- scheduler.core.records.pack_batch
);
CREATE INDEX outbox_by_age ON outbox (created_at);

-- What waits for a time: retries, send_at, deferral, send windows.
CREATE TABLE due (
    day    date NOT NULL,
    id     uuid NOT NULL,
    due_at bigint NOT NULL,
    kind   text NOT NULL,                   -- retry | send_at | deferral | send_window
    PRIMARY KEY (day, id)
);
CREATE INDEX due_by_time ON due (due_at);

-- The receipt inbox: kept before it is answered, matched and merged later.
CREATE TABLE receipts (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider    text NOT NULL,
    digest      bytea NOT NULL,             -- of the body: a receipt sent twice is one row
    session     text NOT NULL,
    received_at bigint NOT NULL,
    carrier_id  text,                       -- in its dialect's normal form
    raw_id      text,                       -- as it came
    recipient   text,                       -- source_addr of the receipt, digits
    sender      text,
    state       text,                       -- enroute accepted delivered undeliverable expired deleted rejected unknown skipped; null: not readable
    error_code  text,
    done_at     bigint,                     -- the carrier's time, UTC ms
    submitted_at bigint,                    -- when the carrier says it took the message, UTC ms
    raw         bytea NOT NULL,             -- the PDU body as it came
    next_try_at bigint,                     -- unmatched: when to look again; null once merged
    tries       integer NOT NULL DEFAULT 0,
    day         date,                       -- of the message it was matched with
    message_id  uuid,
    slot        smallint,
    part        smallint,
    merged_at   bigint,
    UNIQUE (provider, digest)
);
CREATE INDEX receipts_unmerged ON receipts (next_try_at) WHERE merged_at IS NULL;
CREATE INDEX receipts_waiting_for ON receipts (carrier_id) WHERE merged_at IS NULL;
CREATE INDEX receipts_by_message ON receipts (message_id) WHERE message_id IS NOT NULL;

-- Messages from handsets, kept before they are answered (joining and handing over: inbound).
CREATE TABLE inbound_parts (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider    text NOT NULL,
    session     text NOT NULL,
    sequence    bigint NOT NULL,
    digest      bytea NOT NULL,
    received_at bigint NOT NULL,
    sender      text NOT NULL,
    recipient   text NOT NULL,
    raw         bytea NOT NULL,
    UNIQUE (provider, session, sequence, digest)
);

CREATE TABLE endpoints (
    id        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id integer NOT NULL,
    url       text NOT NULL,
    UNIQUE (tenant_id, url)
);

CREATE TABLE callbacks (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id integer NOT NULL,
    tenant_id   integer NOT NULL,
    day         date,
    message_id  uuid,
    seq         integer NOT NULL,
    type        text NOT NULL,
    webhook_id  uuid NOT NULL,
    body        bytea NOT NULL,
    created_at  bigint NOT NULL,
    due_at      bigint NOT NULL,
    tries       smallint NOT NULL DEFAULT 0,
    last_status text,
    gave_up_at  bigint
);
CREATE INDEX callbacks_due ON callbacks (endpoint_id, due_at) WHERE gave_up_at IS NULL;
CREATE INDEX callbacks_gave_up ON callbacks (tenant_id, gave_up_at) WHERE gave_up_at IS NOT NULL;

-- Makes the daily partitions from one day back to `days_ahead` days ahead of the given UTC day; safe twice and by several at once.
CREATE FUNCTION ensure_partitions(today date, days_ahead integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    d date;
    made integer := 0;
    parent text;
    child text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('sluicegate.partitions'));
    FOR d IN SELECT generate_series(today - 1, today + days_ahead, interval '1 day')::date LOOP
        FOREACH parent IN ARRAY ARRAY['messages', 'attempts'] LOOP
            child := parent || '_' || to_char(d, 'YYYYMMDD');
            IF to_regclass(child) IS NULL THEN
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L) WITH (fillfactor = 80)', child, parent, d, d + 1);
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;
