-- Who is logged in to the console. Any process that serves an operators' port knows them, a restart keeps them, and
-- logging out ends one everywhere. The cookie's secret is nowhere: only its digest.
CREATE TABLE console_sessions (
    digest   bytea PRIMARY KEY,
    actor    text NOT NULL,                 -- as the audit names who did something
    key_id   text,                          -- the operators' key it was opened with, and ends with; null: a login link
    begun_at bigint NOT NULL,
    ends_at  bigint NOT NULL,
    ended_at bigint                         -- logged out
);
CREATE INDEX console_sessions_to_delete ON console_sessions (ends_at);
