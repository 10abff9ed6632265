-- Pauses by hand, what waits for their end, and what the release of due work goes by.

-- What is paused by hand now. Egress reads the sessions.
CREATE TABLE pauses (
    kind       text NOT NULL,               -- application | route | provider | session
    tenant_id  integer NOT NULL DEFAULT 0,  -- of an application; 0 for the others
    name       text NOT NULL,
    mode       text NOT NULL DEFAULT 'pause',   -- pause | drain (sessions only)
    since_at   bigint NOT NULL,
    paused_by  text NOT NULL,
    PRIMARY KEY (kind, tenant_id, name)
);

-- Ends of pauses whose consequences are not all drawn yet: the index told, submit_by of an application's messages moved
-- by what the pause took, held messages back in the queue. While a row stands no wait budget of its messages ends.
CREATE TABLE resumptions (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind      text NOT NULL,
    tenant_id integer NOT NULL,
    name      text NOT NULL,
    since_at  bigint NOT NULL,              -- the pause lasted from here
    until_at  bigint NOT NULL,              -- to here
    moved_to  uuid                          -- messages up to this one have their new submit_by; null: none yet
);
CREATE INDEX resumptions_by_name ON resumptions (kind, tenant_id, name);

-- Queued messages whose reference met a pause at the claim: out of the index until the pause is over.
CREATE TABLE held (
    day       date NOT NULL,
    id        uuid NOT NULL,
    kind      text NOT NULL,
    tenant_id integer NOT NULL,
    name      text NOT NULL,
    held_at   bigint NOT NULL,
    PRIMARY KEY (day, id)
);
CREATE INDEX held_by_pause ON held (kind, tenant_id, name);

-- What one line (provider, class) of one tenant has waiting is released in its own order; `flow` is the flow's key in
-- the index, so that the scheduler can be told what is coming. Null in rows written before: these go first.
ALTER TABLE due ADD COLUMN class text;
ALTER TABLE due ADD COLUMN provider text;
ALTER TABLE due ADD COLUMN tenant_id integer;
ALTER TABLE due ADD COLUMN flow text;
ALTER TABLE due ADD COLUMN segments smallint;
CREATE INDEX due_by_lane ON due (class, provider, tenant_id, kind, due_at);

-- Applications are paused, counted and canceled as a whole. Neither column ever changes, so updates stay in place.
CREATE INDEX messages_by_application ON messages (tenant_id, application, id) WHERE application IS NOT NULL;

-- One-time passwords are expired first, however much else is due.
CREATE INDEX messages_otp_to_sweep ON messages (sweep_at) WHERE class = 'otp' AND sweep_at IS NOT NULL;
